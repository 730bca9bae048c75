"""Figures in the documents come from rows in results/, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
from update_documents import main, updated

ROOT = Path(__file__).parents[1]


def test_the_documents_tables_are_those_of_the_results() -> None:
    assert main(["--check"]) == 0, "run python experiments/update_documents.py"


def test_a_block_is_filled_in_and_a_mark_without_one_is_refused() -> None:
    text = "<!-- results:speeds -->\nold\n<!-- /results:speeds -->\n"
    assert updated(text, {"speeds": "new"}) == text.replace("old", "new")
    with pytest.raises(ValueError, match="no block 'speeds'; there are tables"):
        updated(text, {"tables": "new"})
    for broken in (text.replace("/results:speeds", "/results:tables"), text.replace("/", ""), text * 2 + text[:30]):
        with pytest.raises(ValueError, match="A block is broken"):
            updated(broken, {"speeds": "new"})


def test_links_inside_the_documents_lead_to_files() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    assert documents
    for document in documents:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
