"""A folder of videos goes through `fit` and `predict`; where PyAV is missing, the install command is named."""

import sys
from pathlib import Path

import pytest
from cli_support import Command, rows
from folder_support import QUICK, write_folder
from video_support import write_clip

from surelabel.kinds.video import CLIP, Video
from surelabel.runs import RunFolder


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Video, "defaults", {**Video.defaults, "min_steps": 2, "batch_size": 4})
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "cache"))


def test_videos_are_learned_from(tmp_path: Path, command: Command) -> None:
    clips = write_folder(tmp_path / "clips", write_clip, ".avi", labeled=2, pool=4)
    result = command("fit", clips, "--out", tmp_path / "run", *QUICK)
    assert result.code == 0, result.err
    assert "Found video in" in result.out
    settings = RunFolder.open(tmp_path / "run").settings
    assert settings.sample_shape == CLIP.shape == (3, 30, 40, 40)
    assert settings.network.training.augment is not None
    assert settings.network.training.augment.test_windows == 3
    assert len(rows(command("predict", tmp_path / "run", clips / "unlabeled").out)) == 4
    assert command("report", tmp_path / "run", "--out", tmp_path / "report.html").code == 0


def test_a_damaged_video_is_named(tmp_path: Path, command: Command) -> None:
    clips = write_folder(tmp_path / "clips", write_clip, ".avi", labeled=1, pool=1)
    (clips / "cat" / "0.avi").write_bytes(b"no video")
    line = command.fails(1, "fit", clips, "--out", tmp_path / "run", *QUICK)
    assert f"Video '{clips / 'cat' / '0.avi'}' cannot be read" in line


def test_without_pyav_the_install_command_is_named(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips = write_folder(tmp_path / "clips", write_clip, ".avi", labeled=1, pool=1)
    monkeypatch.setitem(sys.modules, "av", None)
    line = command.fails(1, "fit", clips, "--out", tmp_path / "run", *QUICK)
    assert 'pip install "surelabel[video]"' in line
