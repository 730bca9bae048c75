"""Every command in the guides for folders of files runs."""

import csv
import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli_support import Command
from folder_support import Write, write_folder, write_picture, write_sound
from video_support import write_clip

from surelabel.kinds import KINDS
from surelabel.runs.folds import folds_of

DOCS = Path(__file__).parents[2] / "docs"


def write_labels(root: Path, path: Path, group: str) -> None:
    """A table with the labels of the folder's files, two of which are always of one group."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "label", group])
        for number, sample in enumerate(sorted(root.glob("[cd]*/*"))):
            table.writerow([sample.relative_to(root).as_posix(), sample.parent.name, f"g{number // 2}"])


@pytest.mark.parametrize(
    ("guide", "folder", "write", "ending", "group"),
    [
        ("pictures", "photos", write_picture, ".png", "animal"),
        ("sounds", "sounds", write_sound, ".wav", "speaker"),
        ("video", "clips", write_clip, ".avi", "recording"),
    ],
)
def test_the_commands_of_a_guide_run(
    guide: str,
    folder: str,
    write: Write,
    ending: str,
    group: str,
    own_folder: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = KINDS[guide]
    quick = {"min_steps": 2, "batch_size": 4, "max_rounds": 1, "epochs": 1, "passes": 2}
    monkeypatch.setattr(type(kind), "defaults", {**kind.defaults, **quick})
    monkeypatch.setattr("surelabel.runs.folds.folds_of", lambda data, most, seed: folds_of(data, 2, seed))
    monkeypatch.setenv("SURELABEL_DATA", str(own_folder / "cache"))
    photos = write_folder(own_folder / folder, write, ending, labeled=4, pool=4)
    shutil.copytree(photos / "unlabeled", own_folder / "new")
    shutil.copytree(photos, own_folder / "moved" / folder)
    write_labels(photos, own_folder / f"{folder}.csv", group)
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / f"{guide}.md").read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 3
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "surelabel"
        result = command(*words)
        assert result.code == 0, (line, result.err)
