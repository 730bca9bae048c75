"""Decoded pictures on the disk: decoded once, again when something changed, and never half."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from surelabel.data import picture_cache
from surelabel.data.picture_cache import CachedPictures, cached_pictures
from surelabel.data.source import Source, as_source
from surelabel.errors import DataError, InvalidInputError

SIDE = 4
NAMES = [f"{number:06}" for number in range(10)]


@pytest.fixture(autouse=True)
def _parts_of_three_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_cache, "PART_BYTES", 3 * 3 * SIDE * SIDE + 5)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Ten pictures, the value of each its number times ten."""
    paths = [tmp_path / f"{name}.jpg" for name in NAMES]
    for number, path in enumerate(paths):
        Image.new("L", (12, 8), 10 * number).save(path, quality=100)
    return paths


def values(pictures: CachedPictures) -> list[int]:
    return pictures[np.arange(len(pictures))][:, 0, 0, 0].tolist()


def break_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def decoded_names(folder: Path) -> list[str]:
    return sorted(name for path in folder.glob("*.json") for name in json.loads(path.read_text())["pictures"])


def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(picture_cache, "decode_pictures", refuse)


def test_pictures_are_a_source_of_rows_in_any_order(files: list[Path], tmp_path: Path) -> None:
    pictures = cached_pictures(tmp_path / "cache", NAMES, files, SIDE)
    assert isinstance(pictures, Source)
    assert as_source("unlabeled", pictures) is pictures
    assert pictures.ids.tolist() == NAMES
    assert pictures.sample_shape == (3, SIDE, SIDE)
    assert len(pictures) == 10
    x = pictures[np.array([9, 0, 4, 4, 3])]
    assert x.dtype == np.uint8
    assert x.shape == (5, 3, SIDE, SIDE)
    assert x[:, 1, 2, 3].tolist() == [90, 0, 40, 40, 30]
    assert pictures[np.array([], dtype=np.int64)].shape == (0, 3, SIDE, SIDE)


def test_anyone_can_read_the_files(files: list[Path], tmp_path: Path) -> None:
    cached_pictures(tmp_path / "cache", NAMES, files, SIDE)
    lists = sorted((tmp_path / "cache").glob("*.json"))
    assert len(lists) == 4
    for path in lists:
        names = json.loads(path.read_text())["pictures"]
        x = np.load(path.with_suffix(".npy"))
        assert x.shape == (len(names), 3, SIDE, SIDE)
        assert [int(name) * 10 for name in names] == x[:, 0, 0, 0].tolist()


def test_what_is_there_is_not_decoded_again(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    first = cached_pictures(folder, NAMES, files, SIDE)
    no_decoding(monkeypatch)
    counts: list[tuple[int, int]] = []
    again = cached_pictures(folder, NAMES, files, SIDE, progress=lambda *count: counts.append(count))
    assert values(again) == values(first) == list(range(0, 100, 10))
    assert counts == [(3, 10), (6, 10), (9, 10), (10, 10)]
    with pytest.raises(AssertionError, match="decoded again"):
        cached_pictures(folder, NAMES, files, SIDE, "crop")
    with pytest.raises(AssertionError, match="decoded again"):
        cached_pictures(folder, NAMES, files, SIDE + 1)
    with pytest.raises(AssertionError, match="decoded again"):
        cached_pictures(folder, NAMES[1:], files[1:], SIDE)


def test_a_changed_picture_is_decoded_again_with_its_part_only(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    cached_pictures(folder, NAMES, files, SIDE)
    Image.new("L", (12, 8), 255).save(files[4], quality=100)
    done: list[str] = []
    decode = picture_cache.decode_pictures

    def noted(names: list[str], *arguments: Any, **options: Any) -> Any:
        done.extend(names)
        return decode(names, *arguments, **options)

    monkeypatch.setattr(picture_cache, "decode_pictures", noted)
    assert values(cached_pictures(folder, NAMES, files, SIDE)) == [0, 10, 20, 30, 255, 50, 60, 70, 80, 90]
    assert done == NAMES[3:6]
    # Of the same size, but written later.
    os.utime(files[4], ns=(1, 1))
    cached_pictures(folder, NAMES, files, SIDE)
    assert done == 2 * NAMES[3:6]


def test_interrupted_work_goes_on_after_the_last_whole_part(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "cache"

    def interrupt(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_pictures(folder, NAMES, files, SIDE, progress=interrupt)
    assert decoded_names(folder) == NAMES[:3]
    assert all(path.suffix in (".npy", ".json") for path in folder.iterdir())
    counts: list[int] = []
    pictures = cached_pictures(folder, NAMES, files, SIDE, progress=lambda done, total: counts.append(done))
    assert counts[:2] == [3, 4]
    assert counts[-1] == 10
    assert values(pictures) == list(range(0, 100, 10))


def test_a_part_whose_list_was_not_written_is_decoded_again(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    write = picture_cache.write_whole

    def killed(path: Path, content: Any) -> None:
        if path.suffix == ".json":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(picture_cache, "write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        cached_pictures(folder, NAMES, files, SIDE)
    (array,) = folder.iterdir()
    array.write_bytes(b"\0" * array.stat().st_size)
    monkeypatch.setattr(picture_cache, "write_whole", write)
    assert values(cached_pictures(folder, NAMES, files, SIDE)) == list(range(0, 100, 10))


def test_broken_pictures_stop_the_work_or_are_left_out_and_told_each_time(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    break_off(files[1])
    break_off(files[8])
    stop = rf"Picture '{files[1]}' is truncated or damaged .* pass on_error='skip'"
    with pytest.raises(DataError, match=stop):
        cached_pictures(folder, NAMES, files, SIDE)
    told = rf"2 of 10 pictures cannot be decoded and are left out: '000001', '000008'. Picture '{files[1]}' is trunc"
    for _ in range(2):
        with pytest.warns(UserWarning, match=told):
            pictures = cached_pictures(folder, NAMES, files, SIDE, on_error="skip")
        assert pictures.rows.tolist() == [0, 2, 3, 4, 5, 6, 7, 9]
        assert pictures.ids.tolist() == [NAMES[row] for row in pictures.rows]
        assert values(pictures) == [10 * row for row in pictures.rows]
        assert list(pictures.skipped) == ["000001", "000008"]
    with pytest.raises(DataError, match=stop):
        cached_pictures(folder, NAMES, files, SIDE)


def test_a_part_may_be_empty_but_not_all_of_them(files: list[Path], tmp_path: Path) -> None:
    for path in files[:3]:
        break_off(path)
    with pytest.warns(UserWarning, match="3 of 10 pictures"):
        pictures = cached_pictures(tmp_path / "cache", NAMES, files, SIDE, on_error="skip")
    assert values(pictures) == list(range(30, 100, 10))
    with pytest.raises(DataError, match=rf"None of the 3 pictures can be decoded. Picture '{files[0]}' is truncated"):
        cached_pictures(tmp_path / "cache", NAMES[:3], files[:3], SIDE, on_error="skip")


def test_a_source_is_small_when_it_is_sent_to_a_process(files: list[Path], tmp_path: Path) -> None:
    pictures = cached_pictures(tmp_path / "cache", NAMES, files, 64)
    data = pickle.dumps(pictures)
    assert len(data) < 3 * 64 * 64
    assert values(pickle.loads(data)) == values(pictures)


def test_damaged_parts_are_named(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cached_pictures(folder, NAMES, files, SIDE)
    array = next(path for path in folder.glob("*.npy") if len(np.load(path)) == 3)
    whole, whole_list = array.read_bytes(), array.with_suffix(".json").read_bytes()
    for content in (whole[:-1], b"\x93NUMPY\x01\x00v\x00{'descr", b"", None):
        array.unlink()
        if content is not None:
            array.write_bytes(content)
        with pytest.raises(DataError, match=rf"Decoded pictures in '{array}' are damaged .*; remove the folder"):
            cached_pictures(folder, NAMES, files, SIDE)
    np.save(array, np.zeros((2, 3, SIDE, SIDE), np.uint8))
    with pytest.raises(DataError, match=r"holds uint8 \(2, 3, 4, 4\), not uint8 \(3, 3, 4, 4\)"):
        cached_pictures(folder, NAMES, files, SIDE)
    array.write_bytes(whole)
    for text in (b"{", b"[]", b'{"pictures": []}'):
        array.with_suffix(".json").write_bytes(text)
        with pytest.raises(DataError, match=rf"Decoded pictures in '{array.with_suffix('.json')}' are damaged"):
            cached_pictures(folder, NAMES, files, SIDE)
    array.with_suffix(".json").write_bytes(whole_list)
    assert values(cached_pictures(folder, NAMES, files, SIDE)) == list(range(0, 100, 10))


def test_missing_pictures_and_folders_that_cannot_be_written_are_named(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=rf"cannot be written to '{tmp_path}/file/cache' .*; make room, or name"):
        cached_pictures(tmp_path / "file" / "cache", NAMES, files, SIDE)
    files[2].unlink()
    with pytest.raises(DataError, match=rf"Picture '{files[2]}' cannot be found \(No such file or directory\)"):
        cached_pictures(tmp_path / "cache", NAMES, files, SIDE)
    with pytest.raises(InvalidInputError, match="'fit' argument must be one of"):
        cached_pictures(tmp_path / "cache", NAMES, files, SIDE, "pad")
    with pytest.raises(InvalidInputError, match="Got 'a' twice"):
        cached_pictures(tmp_path / "cache", ["a", "a"], files[:2], SIDE)
