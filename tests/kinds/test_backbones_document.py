"""Every command in docs/backbones.md runs, with the network that the document shows."""

import re
from pathlib import Path

import pytest
from backbone_support import write_pictures
from cli_support import Command

from surelabel.data.tables import write_table

DOCUMENT = Path(__file__).parents[2] / "docs" / "backbones.md"


def test_the_commands_run_as_they_are_written(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(own_folder / "cache"))
    text = DOCUMENT.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 2
    (own_folder / "mine.py").write_text("\n".join(blocks))
    write_pictures(own_folder / "photos", pool=10)
    write_pictures(own_folder / "new", labeled=0, pool=4, seed=1)
    texts = [f"{('see you at lunch', 'win free money')[row % 2]} {row}" for row in range(30)]
    write_table("messages.csv", {"message": texts, "spam": [str(row % 2) if row < 10 else None for row in range(30)]})
    write_table("new.csv", {"message": texts})
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL) for line in block.splitlines()]
    assert len(lines) == 7
    for line in lines:
        program, *words = line.split()
        assert program == "surelabel"
        quick = ["--epochs", "1", "--rounds", "1"] if words[0] == "fit" else []
        result = command(*words, *quick)
        assert result.code == 0, result.err
    assert "3 by mine.py:colors, 48 by mine.py:edges" in command("fit", *words[1:-1], "runs/again", *quick).out
