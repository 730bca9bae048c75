"""Figures in the documents come from rows in results/, and its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_documents_tables_are_those_of_the_results() -> None:
    command = [sys.executable, str(ROOT / "experiments" / "update_documents.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run python experiments/update_documents.py"


def test_links_inside_the_documents_lead_to_files() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    assert documents
    for document in documents:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
