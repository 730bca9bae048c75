"""The experiment on tin100: its pictures are read tile by tile, and its rows are complete."""

import json
from pathlib import Path

import numpy as np
import pytest
import tin100 as experiment
from PIL import Image

from surelabel.cli import main
from surelabel.data.images import data_folder
from surelabel.errors import DataError

pytestmark = pytest.mark.usefixtures("own_folder")

FILE = Path(__file__).parents[2] / "experiments" / "tin100.py"

read_tin100, tin100 = experiment.read_tin100, experiment.tin100


def test_its_rows_name_its_own_function() -> None:
    for entry in (*experiment.TABLE.entries, *experiment.FIRST_SELECTION.entries):
        settings = entry.of(entry.base(2, "fast"))
        assert settings.data.function == f"{FILE}:tin100"
        assert settings.data.arguments == {"seed": 2, "labels": 4000, "num_validation": 0}


def test_its_experiments_run_as_those_of_the_paper_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    for name in ("TABLE", "FIRST_SELECTION"):
        assert main(["reproduce", f"{FILE}:{name}", "--device", "cpu", "--out", str(tmp_path / "runs")]) == 1
        assert "tin100 is not in" in capsys.readouterr().err


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=rf"tin100 is not in '{tmp_path}/tin100'; put its folder"):
        tin100()


def write_tin100(folder: Path) -> np.ndarray:
    """Write grids of one row of plain tiles, and return their gray values, (6, 100)."""
    folder.mkdir()
    gray = np.random.default_rng(0).integers(0, 256, size=(6, 100), dtype=np.uint8)
    for name, row in zip([*(f"train_{number}" for number in range(1, 6)), "test"], gray, strict=True):
        tiles = np.repeat(np.repeat(row[None, :, None], 3, axis=2), 32, axis=1).repeat(32, axis=0)
        Image.fromarray(tiles).save(folder / f"{name}.jpg", quality=100)
    np.savez(folder / "labels.npz", train=np.tile(np.arange(100), 5).astype(np.uint8), test=np.arange(100))
    names = [{"wnid": f"n{number}", "name": "crane" if number < 2 else f"thing {number}, it"} for number in range(100)]
    (folder / "classes.json").write_text(json.dumps(names))
    return gray


def test_tin100_is_read_tile_by_tile_and_broken_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tin100"
    gray = write_tin100(folder)
    images = read_tin100(folder)
    assert images.train.x.shape == (500, 3, 32, 32)
    assert images.train.x.dtype == np.uint8
    difference = images.train.x.astype(int) - gray[:5].reshape(500, 1, 1, 1)
    assert abs(difference).max() <= 2
    assert images.test.y.tolist() == list(range(100))
    assert images.classes[:3] == ("crane (n0)", "crane (n1)", "thing 2")
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    data = tin100(labels=200, num_validation=100)
    assert (len(data.labeled[1]), len(data.unlabeled), len(data.validation[1]), len(data.test[1])) == (
        200,
        200,
        100,
        100,
    )

    np.savez(folder / "labels.npz", train=np.full(500, 100), test=np.arange(100))
    with pytest.raises(DataError, match="labels.npz': train must hold 500 labels from 0 to 99"):
        read_tin100(folder)
    (folder / "labels.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match="labels.npz' is damaged or not really an .npz archive of labels"):
        read_tin100(folder)
    np.savez_compressed(folder / "labels.npz", train=np.tile(np.arange(100), 5), test=np.arange(100))
    whole = (folder / "labels.npz").read_bytes()
    data, method = whole.index(b"train.npy") + 80, whole.index(b"PK\x01\x02") + 10
    for changed in (whole[:data] + b"?" * 40 + whole[data + 40 :], whole[:method] + b"c" + whole[method + 1 :]):
        (folder / "labels.npz").write_bytes(changed)
        with pytest.raises(DataError, match="labels.npz' is damaged or not really an .npz archive of labels"):
            read_tin100(folder)
    Image.new("RGB", (3200, 40)).save(folder / "train_2.jpg")
    with pytest.raises(DataError, match="train_2.jpg' must have rows of tiles 32 pixels high. Got 40"):
        read_tin100(folder)
    (folder / "train_2.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError, match="train_2.jpg' is damaged or not really a JPEG picture"):
        read_tin100(folder)
    (folder / "classes.json").write_text("[1]")
    with pytest.raises(DataError, match="classes.json' is damaged or not really a JSON list of classes"):
        read_tin100(folder)


def test_the_real_tin100_has_500_and_50_pictures_of_each_class() -> None:
    folder = data_folder() / "tin100"
    if not folder.is_dir():
        pytest.skip(f"tin100 is not in {folder}")
    images = read_tin100(folder)
    assert np.bincount(images.train.y).tolist() == [500] * 100
    assert np.bincount(images.test.y).tolist() == [50] * 100
    assert len(set(images.classes)) == 100
    pixels = np.asarray(Image.open(folder / "test.jpg")).reshape(50, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4)
    assert np.array_equal(images.test.x[1234], pixels.reshape(-1, 32, 32, 3)[1234].transpose(2, 0, 1))
