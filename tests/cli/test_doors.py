"""What any command may meet at its doors: a disk that fills up, a run from a newer version, a cell of any length."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli_support import Command, blobs, write_blobs
from folder_support import write_folder
from small_runs import contents, difference

from surelabel.runs.files import write_json

pytestmark = pytest.mark.usefixtures("short_fits")

STUMP = ("--estimator", "sklearn.tree:DecisionTreeClassifier", "--rounds", "1", "--passes", "3")
FIT = ("fit", "pets.csv", "--label", "pet", "--id", "id", *STUMP)
OUTPUTS = {
    ("predict", "run", "pets.csv"): ["out.csv"],
    ("label", "run", "pets.csv"): ["out.parquet"],
    ("label", "run", "pets.csv", "--format", "label-studio"): ["out.xml", "out.json"],
    ("report", "run"): ["out.html"],
}
"""Commands, and the files that each writes, in this order; it is given the last."""


class Disk:
    """A disk in a folder that takes only so many more files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.room, self.written = folder, 1000, 0

    def flush(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if Path(path).is_relative_to(self.folder) and not os.path.isdir(path):
            self.written += 1
            if self.written > self.room:
                raise OSError(errno.ENOSPC, "No space left on device")

    def has_room_for(self, number: int) -> None:
        self.room, self.written = number, 0


@pytest.fixture
def home(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SURELABEL_DATA", str(own_folder / "cache"))
    write_blobs(own_folder / "pets.csv", **blobs(24, num_labeled=6))
    return own_folder


@pytest.fixture
def disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(home)
    monkeypatch.setattr(os, "fsync", disk.flush)
    return disk


def test_a_disk_that_fills_up_is_told_and_the_run_goes_on_to_the_same_end(
    home: Path, command: Command, disk: Disk
) -> None:
    assert command(*FIT, "--out", "whole").code == 0
    written = disk.written
    for room in (3, written // 2, written - 1):  # at the beginning, within the folds, and as the best is kept
        disk.has_room_for(room)
        result = command(*FIT, "--out", "run")
        (line,) = [line for line in result.err.splitlines() if line.startswith("error: ")]
        assert result.code == 1
        assert line.startswith("error: File 'run/")
        assert "(No space left on device). Nothing is lost: free some space" in line
        disk.has_room_for(1000)
        again = ("resume", "run") if Path("run/run.json").exists() else (*FIT, "--out", "run")
        assert command(*again).code == 0
        assert difference(home / "run", home / "whole") == ""
        assert not list(home.rglob("*.tmp"))
        shutil.rmtree("run")


def test_a_full_disk_leaves_no_half_of_an_output(home: Path, command: Command, disk: Disk, undrawn: None) -> None:
    assert command(*FIT, "--no-compare", "--out", "run").code == 0
    before = contents(home)
    for words, names in OUTPUTS.items():
        for room, name in enumerate(names):
            disk.has_room_for(room)
            line = command.fails(1, *words, "--out", names[-1])
            assert "No space left on device" in line
            assert name in line
            assert "free some space" in line
            assert contents(home) == before


def test_a_full_disk_under_the_cache_names_it_and_begins_no_run(home: Path, command: Command, disk: Disk) -> None:
    photos = write_folder(home / "photos", labeled=2, pool=2)
    disk.has_room_for(0)
    line = command.fails(1, "fit", photos, "--out", "run")
    assert f"Decoded files cannot be written to '{home / 'cache'}" in line
    assert "free space, or name another folder for the cache with SURELABEL_DATA." in line
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format": 3, "version": "9.0"}, "was written by surelabel 9.0 in format 3; install it."),
        ({"version": "9.1", "settings": {"shiny": 1}}, "'run/run.json' of surelabel 9.1 has settings that "),
    ],
)
def test_a_run_from_a_newer_version_is_left_alone_by_every_command(
    home: Path, command: Command, changes: dict[str, Any], problem: str
) -> None:
    assert command(*FIT, "--no-compare", "--rounds", "0", "--out", "run").code == 0
    content = json.loads(Path("run/run.json").read_text())
    del content["checksum"]
    changes = {name: {**content[name], **value} if name == "settings" else value for name, value in changes.items()}
    write_json(home / "run/run.json", {**content, **changes})
    before = contents(home)
    exports = {("export", "run"): ["model.pt2"], ("thresholds", "run"): ["out.svg"]}
    for words, names in {**OUTPUTS, **exports}.items():
        assert problem in command.fails(1, *words, "--out", names[-1])
    assert problem in command.fails(1, "resume", "run", "--rounds", "3")
    assert "holds a run already" in command.fails(1, *FIT, "--out", "run")
    assert contents(home) == before


def test_a_cell_of_any_length_that_samples_may_have_is_shown_to_label_studio(home: Path, command: Command) -> None:
    assert command(*FIT, "--no-compare", "--out", "run").code == 0
    text = Path("pets.csv").read_text().splitlines()
    long = [f"{text[0]},note", *(f"{line},{'x' * 200_000 if row == 0 else ''}" for row, line in enumerate(text[1:]))]
    Path("long.csv").write_text("\n".join(long) + "\n")
    assert command("label", "run", "long.csv", "--format", "label-studio", "--out", "tasks.json").code == 0
    assert len(json.loads(Path("tasks.json").read_text())[0]["data"]["row"]["note"]) == 200_000
