"""Shards of pictures and of other files: read as a run reads its own, block by block, and nothing of them is kept."""

import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folder_support import write_folder, write_sound
from packed_support import add, pictures, write_parquet, write_shards
from shards_support import in_store

from surelabel.data.shards import find_shards
from surelabel.errors import DataError, UnreachableError
from surelabel.kinds.backbones import BackboneSettings
from surelabel.kinds.folder import FolderData
from surelabel.kinds.packed import PackedData
from surelabel.kinds.shard_reading import Reading, ShardReader, find_pool

BACKBONE = """
import torch
from torch import nn

class Means(nn.Module):
    side = 8

    def forward(self, x):
        return torch.cat([x.mean((2, 3)), x.amax((2, 3))], dim=1)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is kept of files; runs of two pictures at once."""
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr("surelabel.kinds.shard_files.FILES_OF_A_BLOCK", 3)
    return tmp_path / "cache"


@pytest.fixture
def packed(tmp_path: Path) -> PackedData:
    """Settings of a run on packed pictures, which are read at 9 x 9 pixels."""
    files = pictures(12)
    path = write_parquet(tmp_path / "own.parquet", files, ["red", "blue"] * 3 + [None] * 6)
    return PackedData(path=path, labels=("y",)).pinned().replace(reading={"side": 9})


def both(reader: ShardReader, shards: list[Any]) -> tuple[np.ndarray, list[Any]]:
    blocks = [reader.read(shard, block) for shard in shards for block in range(len(reader.blocks(shard)))]
    ids = [name for block in blocks for name in block.ids.tolist()]
    return np.concatenate([block[np.arange(len(block))] for block in blocks]), ids


def expect_as_own(reader: ShardReader, shards: list[Any], own: Any) -> None:
    x, ids = both(reader, shards)
    np.testing.assert_array_equal(x, own[np.arange(len(own))])
    assert ids == own.ids.tolist()


def test_a_column_of_pictures_is_read_group_by_group(tmp_path: Path, packed: PackedData, cache: Path) -> None:
    names = [f"p{number}" for number in range(12)]
    path = write_parquet(tmp_path / "pool.parquet", pictures(12, seed=1), None, name=names)
    reader, shards = find_pool(str(path), Reading(packed, (3, 9, 9), id_column="name"))
    assert reader.blocks(shards[0]) == [5, 5, 2]
    assert not cache.exists()
    expect_as_own(reader, shards, packed.read(path, id_column="name"))
    numbered, _ = find_pool(str(path), Reading(packed, (3, 9, 9)))
    assert numbered.read(shards[0], 2).ids.tolist() == [10, 11]


def test_tar_files_are_read_in_runs_of_pictures(tmp_path: Path, packed: PackedData) -> None:
    folder = write_shards(tmp_path / "shards", pictures(9), [None] * 9)
    reader, shards = find_pool(f"{folder}/*.tar", Reading(packed, (3, 9, 9)))
    assert [reader.blocks(shard) for shard in shards] == [[3, 2], [3, 1]]
    expect_as_own(reader, shards, packed.read(folder))
    assert both(reader, shards)[1][0] == "000.tar/000"


def test_a_tar_file_of_another_system_is_copied_while_it_is_open(tmp_path: Path, packed: PackedData) -> None:
    from dataclasses import replace

    from pyarrow import fs

    folder = write_shards(tmp_path / "shards", pictures(4), [None] * 4, number=1)
    place, shards = find_shards(str(folder))
    elsewhere = replace(place, system=fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()), root="")
    reader = ShardReader(elsewhere, Reading(packed, (3, 9, 9)))
    expect_as_own(reader, shards, packed.read(folder))
    (copy,) = {place.shard for place in reader._open[shards[0]]._pictures._places}
    assert copy.exists()
    reader.close()
    assert not copy.exists()


def test_files_of_a_folder_are_shards_of_some_thousand(
    tmp_path: Path, packed: PackedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "photos", labeled=2, pool=6)
    monkeypatch.setattr("surelabel.kinds.shard_reading.FILES_OF_A_SHARD", 4)
    data = FolderData(of="pictures", path=folder, reading={"side": 9})
    for settings in (data, packed):
        reader, shards = find_pool(str(folder), Reading(settings, (3, 9, 9)))
        assert [shard.name for shard in shards] == ["files-000000", "files-000001", "files-000002"]
        assert reader.blocks(shards[0]) == [3, 1]
        expect_as_own(reader, shards, data.read(folder))
    (folder / "link.png").symlink_to(shutil.copy(folder / "cat/0.png", tmp_path / "outside.png"))
    reader, shards = find_pool(f"{folder}/*.png", Reading(data, (3, 9, 9)))
    with pytest.raises(DataError, match=r"link.png' is a link to .*outside\.png'"):
        reader.read(shards[0], 0)


def test_sounds_are_read_as_the_run_reads_them(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "sounds", write_sound, ".wav", labeled=2, pool=2)
    data = FolderData(of="sounds", path=folder)
    data = data.replace(reading=data.load().learned["reading"])
    own = data.read(folder)
    reader, shards = find_pool(str(folder), Reading(data, own.sample_shape))
    expect_as_own(reader, shards, own)


def test_features_by_backbones_are_computed_and_not_kept(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "nets.py").write_text(BACKBONE)
    folder = write_folder(tmp_path / "photos", labeled=2, pool=3)
    two = (BackboneSettings(reference=f"{tmp_path / 'nets.py'}:Means"),) * 2
    data = FolderData(of="pictures", path=folder, backbones=two).pinned()
    data = data.replace(backbones=data.load().learned["backbones"])
    shutil.rmtree(cache)
    reader, shards = find_pool(str(folder), Reading(data, (12,)))
    x, ids = both(reader, shards)
    assert not cache.exists()
    own = data.read(folder)
    np.testing.assert_allclose(x, own[np.arange(len(own))], rtol=1e-6)
    assert ids == own.ids.tolist()
    (folder / "cat/0.png").write_bytes(b"")
    skipping, shards = find_pool(str(folder), Reading(data, (12,), on_error="skip"))
    assert both(skipping, shards)[1] == [name for name in ids if name != "cat/0.png"]


def test_a_picture_that_cannot_be_read_is_named_or_left_out(tmp_path: Path, packed: PackedData) -> None:
    files = pictures(5)
    files[1] = files[1][:40]
    folder = write_shards(tmp_path / "shards", files, [None] * 5, number=1)
    reader, shards = find_pool(str(folder), Reading(packed, (3, 9, 9)))
    with pytest.raises(DataError, match=r"Picture '.*000\.tar: 000\.tar/001' is"):
        reader.read(shards[0], 0)
    skipping, _ = find_pool(str(folder), Reading(packed, (3, 9, 9), on_error="skip"))
    assert (skipping.blocks(shards[0]), len(skipping.read(shards[0], 0))) == ([3, 2], 2)
    assert both(skipping, shards)[1] == [f"000.tar/{number:03}" for number in (0, 2, 3, 4)]


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_files_out_of_reach_are_not_left_out(
    tmp_path: Path, packed: PackedData, monkeypatch: pytest.MonkeyPatch, on_error: Any
) -> None:
    folder = write_folder(tmp_path / "photos", labeled=1, pool=1)
    in_store(monkeypatch, "open_input_stream")
    reader, shards = find_pool(f"{folder}/*/*.png", Reading(packed, (3, 9, 9), on_error=on_error))
    with pytest.raises(UnreachableError, match="cannot be reached"):
        reader.read(shards[0], 0)


def test_what_is_no_pool_of_the_run_is_named(tmp_path: Path, packed: PackedData) -> None:
    folder = write_folder(tmp_path / "photos", labeled=1, pool=1)
    write_parquet(folder / "more.parquet", pictures(2), None)
    reading = Reading(packed, (3, 9, 9))
    with pytest.raises(DataError, match=r"has shards, such as 'more\.parquet', and files beside them, such as 'cat/0"):
        find_pool(str(folder), reading)
    with tarfile.open(tmp_path / "none.tar", "w") as archive:
        add(archive, "a.txt", b"")
    reader, shards = find_pool(str(tmp_path / "none.tar"), reading)
    with pytest.raises(DataError, match=r"none\.tar' has no pictures"):
        reader.blocks(shards[0])
    sounds = FolderData(of="sounds", path=folder)
    with pytest.raises(DataError, match=r"names 'none\.tar'; the run learned from sounds, and reads \.wav, \.flac\."):
        find_pool(f"{tmp_path}/*.tar", Reading(sounds, (1, 8, 8)))
