"""The experiment on ucf3: its rows are complete, and its table runs with the options of `surelabel reproduce`."""

import dataclasses
from pathlib import Path

import pytest
import ucf3 as experiment
from tiny_recipes import miniature, tiny_clips
from video_support import numbered, write_video

from surelabel.base.references import resolve
from surelabel.cli import main
from surelabel.reproduce import ucf101
from surelabel.reproduce.results import read_rows
from tests.data.sets.test_ucf101 import CLASSES, official_lists, write_files, write_lists

pytestmark = pytest.mark.usefixtures("own_folder")


def test_its_rows_are_complete() -> None:
    rows = {(row, share) for row in ("Supervised", "Pseudo-labeling", "UPS") for share in (0.2, 0.5)}
    assert {(entry.row, entry.labels) for entry in experiment.TABLE.entries} == {*rows, ("Supervised, all labels", 1.0)}
    for entry in experiment.TABLE.entries:
        settings = entry.of(entry.base(2, "fast"))
        assert settings.data.function == f"{experiment.FILE}:ucf3"
        assert settings.data.arguments == {"seed": 2, "share": entry.labels, "validation_share": 0.0}
        assert settings.config.num_balanced_rounds(3) == 0
        assert settings.network.training.batch_size == 32
        settings.network.build("single")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its table on miniature files with tiny networks, in place of the one that the file has."""
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    write_lists(tmp_path / "ucf3", official_lists())
    write_files(tmp_path / "ucf3", lambda path: write_video(path, numbered(18, 36, 36), "mpeg4"), ending=".mp4")
    loaded = resolve(f"{experiment.FILE}:ucf3").__globals__
    monkeypatch.setitem(loaded, "CLASSES", CLASSES)
    monkeypatch.setitem(loaded, "CLIPS", tmp_path / "clips")
    dataset = dataclasses.replace(experiment.UCF3, fast=lambda *given: tiny_clips(ucf101.fast_recipe(*given)))
    table = miniature(experiment.TABLE, dataset, {share: share for share in (0.2, 0.5, 1.0)})
    monkeypatch.setitem(loaded, "TABLE", table)
    return tmp_path


def test_its_table_runs_with_the_options_of_reproduce(small: Path) -> None:
    words = ["--device", "cpu", "--out", str(small / "runs"), "--results", str(small / "runs.csv")]
    chosen = ["--labels", "20%", "--rows", "Supervised", "--rows", "UPS"]
    assert main(["reproduce", f"{experiment.FILE}:TABLE", *words, *chosen]) == 0
    rows = read_rows(small / "runs.csv")
    assert [(row["row"], row["dataset"], row["labels"], row["metric"]) for row in rows] == [
        ("Supervised", "ucf3", "20 %", "test accuracy %"),
        ("UPS", "ucf3", "20 %", "test accuracy %"),
    ]
    assert "| Pseudo-labeling | ucf3 | 50 % |  | not run |  |" in (small / "runs" / "ucf3.md").read_text()
    assert (small / "runs" / "ucf3-20-percent").is_dir()
