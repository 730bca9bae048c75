"""The experiment on coco18: its pictures are read one after another, and its labels belong to them."""

import dataclasses
import functools
import io
from pathlib import Path
from typing import Any

import coco18 as experiment
import numpy as np
import pytest
from PIL import Image
from tiny_recipes import miniature, tiny_pictures

from surelabel.base.references import resolve
from surelabel.cli import main
from surelabel.data.images import data_folder
from surelabel.errors import DataError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.reproduce import voc2007
from surelabel.reproduce.results import read_rows

pytestmark = pytest.mark.usefixtures("own_folder")

coco18, read_coco18 = experiment.coco18, experiment.read_coco18
TABLE = f"{experiment.FILE}:TABLE"


def write_coco18(folder: Path, **changes: Any) -> np.ndarray:
    """Write thirty plain pictures, the parts mixed in the index, and return their gray values."""
    folder.mkdir(exist_ok=True)
    gray = np.random.default_rng(0).permutation(np.arange(0, 240, 8))
    split = np.arange(30, dtype=np.uint8) % 3 // 2
    pictures = []
    for value in gray.tolist():
        stream = io.BytesIO()
        Image.new("RGB", (20, 16), (value,) * 3).save(stream, "JPEG", quality=100)
        pictures.append(stream.getvalue())
    for number, name in enumerate(("trainval", "test")):
        (folder / f"{name}.bin").write_bytes(b"".join(pictures[row] for row in np.flatnonzero(split == number)))
    index = {
        "y": (gray[:, None] // 8 >> np.arange(4) & 1).astype(np.uint8),
        "split": split,
        "length": np.array([len(data) for data in pictures], dtype=np.int32),
        "image_id": np.array([f"{row}.jpg" for row in range(30)]),
        "names": np.array(["one", "two", "four", "eight"]),
    }
    np.savez(folder / "index.npz", **{**index, **changes})
    return gray


def test_each_picture_has_its_own_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gray = write_coco18(tmp_path / "coco18")
    train, test, classes = read_coco18(tmp_path / "coco18", side=8)
    assert classes == ("one", "two", "four", "eight")
    for part, rows in ((train, np.flatnonzero(np.arange(30) % 3 < 2)), (test, np.arange(2, 30, 3))):
        assert part.pictures.x.shape == (len(rows), 3, 8, 8)
        assert np.array_equal(part.pictures.x[:, 0, 0, 0], gray[rows])
        assert part.pictures.ids.tolist() == [f"{row}.jpg" for row in rows]
        assert np.array_equal(part.y @ [1, 2, 4, 8], gray[rows] // 8 % 16)
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    data = coco18(seed=2, labels=10, num_validation=3, side=8)
    assert (len(data.labeled[1]), len(data.unlabeled), len(data.validation[1]), len(data.test[1])) == (10, 7, 3, 10)
    for source, y in (data.labeled, data.validation, (data.unlabeled, data.truth), data.test):
        assert np.array_equal(source.x[:, 0, 0, 0] // 8 % 16, y @ [1, 2, 4, 8])
    assert data.task == "multi"


def test_broken_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    folder = tmp_path / "coco18"
    with pytest.raises(DataError, match=rf"coco18 is not in '{folder}'; put its folder"):
        coco18()
    write_coco18(folder, y=np.full((30, 4), 2))
    with pytest.raises(DataError, match=r"index.npz' must hold 0 or 1 for each of 30 pictures and 4 classes"):
        coco18()
    write_coco18(folder, length=np.full(30, 100))
    with pytest.raises(DataError, match=r"trainval.bin' has \d+ bytes; the index says 2000"):
        coco18()
    write_coco18(folder)
    data = bytearray((folder / "test.bin").read_bytes())
    data[: len(data) // 10] = bytes(len(data) // 10)
    (folder / "test.bin").write_bytes(data)
    with pytest.raises(DataError, match=rf"Picture '{folder}/test.bin: 2.jpg' is empty, truncated, damaged or none of"):
        coco18()
    (folder / "index.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"index.npz' is damaged or not really an .npz archive of coco18's labels"):
        coco18()


def test_its_rows_are_complete_and_at_128_pixels() -> None:
    table = experiment.TABLE
    assert {(entry.row, entry.labels) for entry in table.entries} == {
        *(
            (row, labels)
            for row in ("Supervised", "Pseudo-labeling", "UPS", "UPS, no class balance")
            for labels in (500, 1000)
        ),
        ("Supervised, all labels", 5011),
    }
    for entry in table.entries:
        settings = entry.of(entry.base(2, "fast"))
        assert settings.data.function == f"{experiment.FILE}:coco18"
        assert settings.data.arguments == {"seed": 2, "labels": entry.labels, "num_validation": 0, "side": 128}
        assert isinstance(settings.learner, TorchLearnerSettings)
        assert settings.learner.training.augment.crop == 16
        assert settings.learner.training.labeled_batch_size == settings.learner.training.batch_size
        settings.learner.build("multi")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its table with few labels and tiny networks, in place of the one that the file has."""
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    write_coco18(tmp_path / "coco18")
    dataset = dataclasses.replace(
        experiment.COCO18,
        paper=functools.partial(voc2007.paper_recipe, side=32),
        fast=lambda *given: tiny_pictures(voc2007.fast_recipe(*given, side=32)),
    )
    table = miniature(experiment.TABLE, dataset, {500: 8, 1000: 10, 5011: 20})
    monkeypatch.setitem(resolve(f"{experiment.FILE}:coco18").__globals__, "TABLE", table)
    return tmp_path


@pytest.mark.filterwarnings("ignore:The labeled classes are far from even")
def test_its_table_runs_with_the_options_of_reproduce(small: Path) -> None:
    words = ["--device", "cpu", "--out", str(small / "runs"), "--results", str(small / "runs.csv")]
    chosen = ["--labels", "8", "--rows", "Supervised", "--rows", "UPS", "--rows", "UPS, no class balance"]
    assert main(["reproduce", TABLE, *words, *chosen]) == 0
    written = (small / "runs" / "coco18.md").read_text()
    assert "| UPS | coco18 | 10 |  | not run | not run |  |" in written
    rows = read_rows(small / "runs.csv")
    assert {(row["row"], row["dataset"], row["labels"], row["metric"]) for row in rows} == {
        (row, "coco18", "8", metric)
        for row in ("Supervised", "UPS", "UPS, no class balance")
        for metric in ("test mAP %", "test mAP, 11 points %")
    }
    assert main(["reproduce", TABLE, "--labels", "9"]) == 1


def test_with_all_pictures_labeled_round_0_is_all(small: Path) -> None:
    words = ["--device", "cpu", "--out", str(small / "runs"), "--labels", "20"]
    assert main(["reproduce", TABLE, *words]) == 0
    assert "| Supervised, all labels | coco18 | 20 |  | not run |" not in (small / "runs" / "coco18.md").read_text()


def test_the_real_coco18_has_as_many_pictures_as_voc2007() -> None:
    folder = data_folder() / "coco18"
    if not folder.is_dir():
        pytest.skip(f"coco18 is not in {folder}")
    train, test, classes = read_coco18(folder, side=16)
    assert train.pictures.x.shape == (5011, 3, 16, 16)
    assert test.pictures.x.shape == (4952, 3, 16, 16)
    assert len(classes) == train.y.shape[1] == 18
    for part in (train, test):
        assert (part.y.sum(axis=0) > 0).all()
        assert (part.y.sum(axis=1) > 0).all()
        assert part.pictures.x.reshape(len(part.y), -1).std(axis=1).min() > 0
