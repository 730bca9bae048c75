"""The few pictures that a run folder keeps: figure 4 is drawn from them alone, and damaged ones are named."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import contents

from surelabel.data.run_data import FunctionData
from surelabel.report.pictures import keep_pictures, pictures_figure
from surelabel.report.tables import Row
from surelabel.runs import RunFolder
from surelabel.runs.layout import PICTURES
from tests.reproduce.test_paper_figures import cifar_row


def test_figure_4_is_drawn_without_the_data_where_the_run_keeps_its_pictures(tmp_path: Path) -> None:
    _, row = cifar_row(tmp_path)
    expected = pictures_figure(row).pictures
    (one,) = row.runs
    keep_pictures(one)
    kept = contents(one.path)
    keep_pictures(one)
    assert contents(one.path) == kept
    shutil.rmtree(tmp_path / "data")
    for data in (one.settings.data, FunctionData(function="elsewhere:data")):
        alone = Row("UPS", (RunFolder(one.path, one.settings.replace(data=data), one.version, one.entries),))
        pictures = pictures_figure(alone).pictures
        assert [picture.caption for picture in pictures] == [picture.caption for picture in expected]
        for picture, other in zip(pictures, expected, strict=True):
            np.testing.assert_array_equal(picture.pixels, other.pixels)
    assert "names the code 'elsewhere:data'" in pictures_figure(alone, limit=13).note
    assert "the run's data cannot be read" in pictures_figure(row, limit=13).note
    (one.path / PICTURES).unlink()
    assert "the run's data cannot be read" in pictures_figure(row).note


def of_shape(*shape: int) -> dict[str, Any]:
    return {"places": np.arange(12), "pixels": np.zeros(shape, np.uint8)}


DAMAGES: dict[str, dict[str, Any]] = {
    "other arrays": {"x": np.arange(2)},
    "no pixels": {"places": [0], "pixels": [0.5]},
    "numbers": of_shape(12),
    "one number": of_shape(),
    "two channels": of_shape(12, 8, 8, 2),
    "clips": of_shape(12, 2, 8, 8, 3),
    "no height": of_shape(12, 0, 8, 3),
    "no channel": of_shape(12, 8, 8, 0),
    "fewer than places": of_shape(11, 8, 8),
    "none of its places": of_shape(0),
}


@pytest.mark.parametrize("damage", ["cut off", "no archive", *DAMAGES])
def test_damaged_pictures_are_named(tmp_path: Path, damage: str) -> None:
    _, row = cifar_row(tmp_path)
    path = row.runs[0].path / PICTURES
    keep_pictures(row.runs[0])
    whole = path.read_bytes()
    if damage in DAMAGES:
        np.savez(path, **DAMAGES[damage])
    else:
        path.write_bytes(whole[:-100] if damage == "cut off" else b"")
    note = pictures_figure(row).note
    assert re.search(r"File '.*pictures.npz' is damaged \(.+\). Remove it: the data are then read.", note)
    assert "the run's data cannot be read" not in note
    keep_pictures(row.runs[0])
    assert path.read_bytes() == whole
    path.unlink()
    assert len(pictures_figure(row, limit=13).pictures) == 13


def test_pictures_are_looked_at_before_they_take_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, row = cifar_row(tmp_path)
    path = row.runs[0].path / PICTURES
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "1000000")
    np.savez_compressed(path, **of_shape(12, 1000, 1000))
    assert re.search(r"pictures.npz' is damaged \(.*would take 12,000,.*allowed.*Remove it", pictures_figure(row).note)
    path.unlink()
    os.mkfifo(path)
    assert re.search(r"pictures.npz' cannot be read \(it is not a plain file\). Remove it", pictures_figure(row).note)


def test_a_run_without_such_pictures_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surelabel.report.pictures.CONFIDENT", 1.0)
    _, row = cifar_row(tmp_path)
    keep_pictures(row.runs[0])
    assert (row.runs[0].path / PICTURES).exists()
    assert pictures_figure(row).note.startswith("There is no such sample")
