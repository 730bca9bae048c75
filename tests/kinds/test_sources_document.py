"""Every command and the program in docs/sources.md run."""

import re
import shlex
from pathlib import Path

import pytest
from cli_support import Command
from packed_support import classes, pictures, write_parquet, write_saved, write_shards

TEXT = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()


def test_the_commands_run_as_they_are_written(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(own_folder / "cache"))
    files, labels = pictures(14), classes(14, labeled=8)
    write_parquet(own_folder / "pool.parquet", files, labels)
    write_saved(own_folder / "saved", files, labels)
    write_shards(own_folder / "shards", files, labels)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, flags=re.DOTALL) for line in block.splitlines()]
    assert len(lines) == 6
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "surelabel"
        network = ["--model", "surelabel.models.image:small_image_network"]
        quick = ["--epochs", "1", "--rounds", "0", *network] if words[0] == "fit" else []
        result = command(*words, *quick)
        assert result.code == 0, result.err


def test_the_program_runs(capsys: pytest.CaptureFixture[str], seeded: None) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec(compile(code, "sources.md", "exec"), {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["0", "1"]
