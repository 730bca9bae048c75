"""Runs on VOC2007's pictures and UCF-101's clips, seen from outside: bars while files are decoded, and their report."""

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_support import Command
from rich.console import Console
from video_support import numbered, write_video
from voc_support import small_voc, write_voc

from surelabel.augment.settings import AugmentSettings
from surelabel.cli._rounds import shown_decoding, shown_work
from surelabel.data import sets as datasets
from surelabel.data.decoding import decode_files, tell, watched
from surelabel.data.pictures import PictureSettings
from surelabel.data.pool import Prediction
from surelabel.data.run_data import FunctionData, RunData
from surelabel.data.source import ArraySource
from surelabel.data.video import ClipSettings
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.report.pictures import pictures_figure, to_pixels
from surelabel.report.tables import Row
from surelabel.runs import RunFolder
from surelabel.runs.session import run, start
from surelabel.settings import RunSettings, UPSConfig

CLIPS = ClipSettings(passages=1, frames=4, height=8, width=8)
Seen = list[tuple[str, int, int]]


@pytest.fixture
def voc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_voc(tmp_path, small_voc())
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "VOC2007_PICTURES", {"trainval": 40, "test": 20})
    return tmp_path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Console:
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    for module in ("_rounds", "_console"):
        monkeypatch.setattr(f"surelabel.cli.{module}.out", screen)
    return screen


def _shown(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", screen.file.getvalue())


def _bars(screen: Console) -> list[Any]:
    """What is being redrawn on the screen; more than one at a time would garble it."""
    return screen._live_stack


def _voc_run(folder: Path) -> Path:
    training = TrainingSettings(steps=1, batch_size=4, augment=AugmentSettings())
    model = {"model": "surelabel.models.resnet:ResNet", "model_parameters": {"width": 1}}
    settings = RunSettings(
        config=UPSConfig(task="multi", max_rounds=0, balance=None),
        learner=TorchLearnerSettings(**model, training=training, passes=2, device="cpu"),
        data=FunctionData(function="surelabel.data.sets:voc2007", arguments={"labels": 30, "side": 32}),
    )
    assert list(start(folder / "run", settings))
    return folder / "run"


def _videos(folder: Path) -> dict[str, Path]:
    return {f"v{number}": write_video(folder / f"v{number}.avi", numbered(4)) for number in range(3)}


def test_who_watches_is_told_of_everything_that_is_decoded(voc: Path) -> None:
    seen: Seen = []
    files = {file.stem: file for file in sorted((voc / "VOCdevkit/VOC2007/JPEGImages").iterdir())[:3]}
    with watched(lambda *told: seen.append(told)):
        decode_files(files, voc / "cache", PictureSettings(side=8))
        assert seen == [("pictures", done, 3) for done in (1, 2, 3)]
        seen.clear()
        decode_files(files, voc / "cache", PictureSettings(side=8))
        assert seen == [], "all is there"
        decode_files(_videos(voc), voc / "clips", CLIPS, workers=0)
        assert seen == [("clips", done, 3) for done in (1, 2, 3)]
        with watched(None):
            decode_files(files, voc / "cache", PictureSettings(side=9))
    tell("pictures")(1, 2)
    assert len(seen) == 3


def test_a_terminal_shows_a_bar_while_something_is_decoded(terminal: Console) -> None:
    with shown_decoding():
        tell("clips")(3, 3)
        (bar,) = _bars(terminal)
        bar.refresh()
        assert re.search(r"decoding clips ━+ 3/3", _shown(terminal))
        with shown_decoding(quiet=True):
            before = _shown(terminal)
            tell("more")(1, 9)
            assert _shown(terminal) == before
    assert not _bars(terminal)


def test_decoding_is_told_beside_the_bar_of_a_command_that_has_one(terminal: Console) -> None:
    with shown_work("rounds") as progress:
        tell("pictures")(1, 9)
        (bar,) = _bars(terminal)
        bar.refresh()
        assert "decoding pictures 1/9" in _shown(terminal)
        progress("UPS", 1, 2)


def test_a_command_that_needs_pictures_shows_a_bar_and_can_be_interrupted(
    voc: Path, command: Command, terminal: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _voc_run(voc)
    shutil.rmtree(voc / "voc2007-pictures")
    decode = datasets.decode_files

    def interrupted(files: dict[str, Path], *rest: Any, **options: Any) -> Any:
        decode(dict(list(files.items())[:16]), *rest, **options, names=list(files))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(datasets, "decode_files", interrupted)
        result = command("resume", folder, "--rounds", "1")
    assert (result.code, result.err.splitlines()[0]) == (130, "error: interrupted.")
    assert "round 0 is done and kept; go on with: surelabel resume" in result.err
    assert re.search(r"decoding pictures ━+ +\d+/16", _shown(terminal))
    (lines,) = (voc / "voc2007-pictures").glob("*/pictures.jsonl")
    assert len(lines.read_text().splitlines()) == 16
    assert command("resume", folder, "--rounds", "1").code == 0
    assert RunFolder.open(folder).num_rounds == 2


def test_quiet_shows_no_bar(voc: Path, command: Command, terminal: Console) -> None:
    folder = _voc_run(voc)
    shutil.rmtree(voc / "voc2007-pictures")
    assert command("resume", folder, "--rounds", "1", "--quiet") == (0, "", "")
    assert _shown(terminal) == ""
    assert list((voc / "voc2007-pictures").iterdir())


def test_without_a_terminal_no_bar_is_shown(voc: Path, command: Command) -> None:
    folder = _voc_run(voc)
    shutil.rmtree(voc / "voc2007-pictures")
    result = command("resume", folder, "--rounds", "1")
    assert (result.code, result.err) == (0, "")
    assert "decoding" not in result.out
    assert result.out.splitlines()[0].split()[0] == "round"


class _Told:
    """A learner that says of the pool what it is told, (N, C) each."""

    def __init__(self, p: Any, u: Any) -> None:
        self.p, self.u = np.asarray(p, dtype=np.float32), np.asarray(u, dtype=np.float32)

    def fit(self, training_set: Any, *, seed: int) -> None:
        """Do nothing."""

    def predict(self, source: Any, *, seed: int) -> Iterator[Prediction]:
        yield Prediction(source.ids, self.p, self.u)

    def predict_proba(self, source: Any) -> Any:
        return self.p[: len(source)]


def several_labels() -> RunData:
    """One partly and one wholly labeled picture, and a pool of four: each has a gray level of its own."""
    levels = np.arange(1, 7, dtype=np.uint8)
    x = np.broadcast_to((40 * levels)[:, None, None, None], (6, 3, 4, 4)).copy()
    labeled = ArraySource(x[:2], ids=np.arange(2)), np.array([[1, -1, 0], [0, 1, 1]])
    truth = np.array([[1, 1, 0], [0, 0, 0], [0, -1, 1], [1, 0, 0]])
    pool = ArraySource(x[2:], ids=np.arange(2, 6))
    return RunData(labeled, pool, ("cat", "dog", "sofa"), task="multi", truth=truth)


@pytest.mark.filterwarnings("ignore:The run keeps no model")
def test_pictures_with_several_labels_name_them_all(tmp_path: Path) -> None:
    # The first row is the partly labeled picture: what is unknown of it is not judged.
    p = [[0.1, 0.99, 0.1], [0.9, 0.9, 0.95], [0.1, 0.92, 0.97], [0.1, 0.99, 0.9], [0.95, 0.95, 0.1]]
    u = [[0.1, 0.40, 0.1], [0.1, 0.1, 0.21], [0.1, 0.30, 0.31], [0.1, 0.40, 0.1], [0.50, 0.01, 0.1]]
    data = several_labels()
    config = UPSConfig(task="multi", tau_p=0.5, kappa_p=0.05, max_rounds=0, balance=None)
    parts = {"truth": data.truth, "classes": data.classes}
    list(run(tmp_path / "run", _Told(p, u), data.labeled, data.unlabeled, config, **parts))
    folder = RunFolder.open(tmp_path / "run")
    source = FunctionData(function=f"{__file__}:several_labels")
    named, trusted = (
        RunFolder(folder.path, folder.settings.replace(data=source), folder.version, folder.entries, trust)
        for trust in (False, True)
    )
    assert f"names the code '{source.function}'" in pictures_figure(Row("UPS", (named,))).note
    figure = pictures_figure(Row("UPS", (trusted,)))
    assert [picture.caption for picture in figure.pictures] == [
        "none taken for sofa, confidence 0.97, u 0.31 (round 0)",
        "cat + dog taken for sofa, confidence 0.95, u 0.21 (round 0)",
    ]
    assert [int(picture.pixels[0, 0, 0]) for picture in figure.pictures] == [160, 120]


def test_a_clip_is_shown_by_four_frames() -> None:
    clip = np.broadcast_to(np.arange(16, dtype=np.uint8)[:, None, None], (3, 16, 4, 6)).copy()
    pixels = to_pixels(clip)
    assert pixels.shape == (64, 96, 3)
    assert pixels[::32, ::48, 0].tolist() == [[0, 5], [10, 15]]
    assert to_pixels(np.zeros((1, 2, 4, 4), dtype=np.uint8)).shape == (96, 96)


def test_large_pictures_are_made_smaller() -> None:
    sample = np.zeros((3, 400, 1000), dtype=np.uint8)
    sample[0] = 200
    pixels = to_pixels(sample)
    assert pixels.shape == (102, 256, 3)
    assert pixels[50, 50].tolist() == [200, 0, 0]


def test_our_own_data_are_read_without_being_asked_unless_a_run_says_where_they_are(voc: Path) -> None:
    folder = RunFolder.open(_voc_run(voc))
    figure = pictures_figure(Row("UPS", (folder,)))
    assert figure.pictures or figure.note.startswith("There is no such sample")
    data = folder.settings.data
    assert isinstance(data, FunctionData)
    elsewhere = data.replace(arguments={**data.arguments, "cache": "/elsewhere"})
    moved = RunFolder(folder.path, folder.settings.replace(data=elsewhere), folder.version, folder.entries)
    note = pictures_figure(Row("UPS", (moved,))).note
    assert "names the code \"surelabel.data.sets:voc2007 with cache='/elsewhere'\"" in note
