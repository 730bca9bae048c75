"""The run that the README begins with: its commands, and what is shown of their output."""

from pathlib import Path

import pytest
from cli_support import Command
from first_run import FIT, REST, shortened
from folder_support import QUICK, write_folder

ROOT = Path(__file__).parents[2]


def test_the_commands_that_the_readme_begins_with_run(
    own_folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(own_folder / "cache"))
    write_folder(own_folder / "photos")
    text = (ROOT / "README.md").read_text()
    for line in (FIT, *(line for line, _ in REST)):
        assert f"\n$ {line}" in text
        result = command(*line.split()[1:], *(QUICK if line == FIT else ()))
        assert result.code == 0, result.err
    assert (own_folder / "labels.csv").exists()
    assert (own_folder / "report.html").exists()


def test_the_output_is_shown_as_a_terminal_shows_it() -> None:
    printed = "Found it.  \n1/5 folds: comparing\n\n \nDone.\nBy class, few.\nThe run is in runs/photos. Go on with:\n"
    assert shortened(printed) == "Found it.\n\nDone."
