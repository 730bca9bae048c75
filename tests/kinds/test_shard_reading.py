"""Shards of a pool: their blocks, and samples read as a run reads its own data."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shards_support import in_store

from surelabel.data.run_data import TableData
from surelabel.data.shards import find_shards
from surelabel.data.tables import read_table
from surelabel.errors import DataError, UnreachableError
from surelabel.kinds.backbones import BackboneSettings
from surelabel.kinds.shard_reading import Reading, ShardReader, find_pool
from surelabel.kinds.texts import TextData

COLUMNS: dict[str, Any] = {"id": ["1", "2", "x", "4", "5"], "size": [1, 2, 3, 4, None], "pet": list("abaab")}

COUNTS = """
import torch

def net():
    return lambda texts: torch.tensor([[len(text), text.count("a")] for text in texts])
"""


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """One shard with groups of two rows, one of them empty."""
    (tmp_path / "pool").mkdir()
    table = pa.table(COLUMNS)
    with pq.ParquetWriter(tmp_path / "pool/a.parquet", table.schema) as writer:
        writer.write_table(table[:2])
        writer.write_table(table[:0])
        writer.write_table(table[2:], row_group_size=2)
    return tmp_path / "pool"


@pytest.fixture
def data(tmp_path: Path) -> TableData:
    """Settings that have learned a column of numbers with gaps and one of categories."""
    pq.write_table(pa.table({**COLUMNS, "label": list("yn") + [None] * 3}), tmp_path / "labeled.parquet")
    data = TableData(path=tmp_path / "labeled.parquet", labels=("label",), id_column="id").pinned()
    return data.replace(**data.load().learned)


def reading(data: TableData, **changes: Any) -> Reading:
    return Reading(data, **{"sample_shape": (4,), "feature_names": ("size", "pet"), **changes})


def test_groups_of_rows_are_read_as_the_whole_file_is(pool: Path, data: TableData) -> None:
    place, (shard,) = find_shards(str(pool))
    reader = ShardReader(place, reading(data))
    encoder = data.encoder(None)
    assert encoder is not None
    whole = encoder.read(pool / "a.parquet", id_column="id")
    assert reader.blocks(shard) == [2, 2, 1]
    blocks = [reader.read(shard, block) for block in range(3)]
    np.testing.assert_array_equal(np.concatenate([block[np.arange(len(block))] for block in blocks]), whole.x)
    # Of all groups alike, also of those whose ids all look like numbers.
    assert [name for block in blocks for name in block.ids] == COLUMNS["id"]


def test_ids_of_a_column_of_numbers_are_numbers(pool: Path, data: TableData) -> None:
    pq.write_table(pa.table({**COLUMNS, "id": [7, 8, 9, 10, 11]}), pool / "a.parquet", row_group_size=2)
    place, (shard,) = find_shards(str(pool))
    assert ShardReader(place, reading(data)).read(shard, 1).ids.tolist() == [9, 10]


def test_large_ids_do_not_change_the_type_of_others(tmp_path: Path, data: TableData) -> None:
    """Numbers of 19 digits may not fit into 64 bits; a group of rows without such has the type of the others."""
    for name, ids in (("a", np.array([1, 2**63 - 1])), ("b", np.array([1, 2**64 - 1], dtype=np.uint64))):
        columns = {"id": ids, "size": [1, 2], "pet": ["a", "b"]}
        (tmp_path / "large").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / "large" / f"{name}.parquet", row_group_size=1)
    place, shards = find_shards(str(tmp_path / "large"))
    reader = ShardReader(place, reading(data))
    for shard, kind, largest in zip(shards, (np.int64, np.uint64), (2**63 - 1, 2**64 - 1), strict=True):
        found = [reader.read(shard, block).ids for block in range(2)]
        assert [(some.dtype, some.tolist()) for some in found] == [(kind, [1]), (kind, [largest])]


def test_rows_are_numbered_within_their_shard(pool: Path, data: TableData) -> None:
    place, (shard,) = find_shards(str(pool))
    reader = ShardReader(place, reading(data, id_column=""))
    assert [reader.read(shard, block).ids.tolist() for block in range(3)] == [[0, 1], [2, 3], [4]]


def test_a_reader_can_be_sent_to_other_processes(pool: Path, data: TableData) -> None:
    place, (shard,) = find_shards(f"file://{pool}/*.parquet")
    reader = ShardReader(place, reading(data))
    assert reader.blocks(shard) == pickle.loads(pickle.dumps(reader)).blocks(shard)
    reader.close()
    assert len(reader.read(shard, 2)) == 1


def test_a_row_that_cannot_be_read_is_named_by_its_number_in_the_file(pool: Path) -> None:
    place, (shard,) = find_shards(str(pool))
    reader = ShardReader(place, Reading(None, (1,), ("size",)))
    with pytest.raises(DataError, match=r"a\.parquet', column 'size', row 5: the cell is empty"):
        reader.read(shard, 2)


def test_what_is_no_shard_of_the_run_is_named(pool: Path, data: TableData) -> None:
    (pool / "b.parquet").write_bytes(b"PAR1 nonsense PAR1")
    place, shards = find_shards(str(pool))
    with pytest.raises(DataError, match=r"b\.parquet' is damaged or not really Parquet"):
        ShardReader(place, reading(data)).blocks(shards[1])
    with pytest.raises(DataError, match=r"has samples of shape \(1,\), and the run learned from \(7,\)"):
        ShardReader(place, Reading(None, (7,), ("size",))).read(shards[0], 0)
    with pytest.raises(DataError, match=r"lacks 1 of the 1 feature columns.*'weight'"):
        ShardReader(place, Reading(None, (1,), ("weight",))).read(shards[0], 0)


@pytest.mark.parametrize("broken", [("open_input_file", "open_input_stream"), ("open_input_file",)])
def test_a_connection_that_breaks_off_is_no_damage(
    pool: Path, data: TableData, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...]
) -> None:
    whole, (shard,) = find_pool(str(pool), reading(data))
    expected = whole.read(shard, 1)
    in_store(monkeypatch, *broken)
    reader, (shard,) = find_pool(str(pool), reading(data))
    if len(broken) == 2:
        with pytest.raises(UnreachableError, match=r"pool' cannot be reached \(AWS Error NETWORK_CONNECTION .*; check"):
            reader.blocks(shard)
    else:  # it is there again
        assert reader.blocks(shard) == [2, 2, 1]
        np.testing.assert_array_equal(reader.read(shard, 1)[np.arange(2)], expected[np.arange(2)])


def test_damage_in_an_object_store_is_damage(pool: Path, data: TableData, monkeypatch: pytest.MonkeyPatch) -> None:
    (pool / "a.parquet").write_bytes((pool / "a.parquet").read_bytes()[:-20])
    in_store(monkeypatch)
    reader, (shard,) = find_pool(str(pool), reading(data))
    with pytest.raises(DataError, match=r"pool/a\.parquet' is damaged or not really Parquet") as error:
        reader.blocks(shard)
    assert not isinstance(error.value, UnreachableError)


def test_few_shards_stay_open(pool: Path, data: TableData) -> None:
    for number in range(20):
        shutil.copy(pool / "a.parquet", pool / f"{number}.parquet")
    place, shards = find_shards(str(pool))
    reader = ShardReader(place, reading(data))
    for shard in shards:
        assert reader.blocks(shard) == [2, 2, 1]
    assert list(reader._open) == shards[-8:]
    reader.close()
    assert not reader._open


def test_a_file_without_rows_has_no_blocks(tmp_path: Path) -> None:
    pq.write_table(pa.table({"size": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    place, (shard,) = find_shards(str(tmp_path / "empty.parquet"))
    assert ShardReader(place, Reading(None, (1,), ("size",))).blocks(shard) == []
    with pytest.raises(DataError, match="no rows"):
        read_table(tmp_path / "empty.parquet")


def test_texts_are_shown_to_backbones_and_nothing_of_them_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "cache"))
    (tmp_path / "nets.py").write_text(COUNTS)
    texts = ["a cat", "", "banana", "a dog ran", "ham"]
    pq.write_table(pa.table({"note": texts, "label": list("yn") + [None] * 3}), tmp_path / "own.parquet")
    backbone = BackboneSettings(reference=f"{tmp_path / 'nets.py'}:net")
    data = TextData(path=tmp_path / "own.parquet", labels=("label",), use=("note=text",), backbones=(backbone,))
    data = data.pinned().replace(**data.pinned().load().learned)
    pq.write_table(pa.table({"note": ["aa", None, "b a"]}), tmp_path / "pool.parquet", row_group_size=2)
    before = sorted((tmp_path / "cache").rglob("*"))
    place, (shard,) = find_shards(str(tmp_path / "pool.parquet"))
    reader = ShardReader(place, Reading(data, (2,)))
    blocks = [reader.read(shard, block)[np.arange(rows)].tolist() for block, rows in enumerate(reader.blocks(shard))]
    assert blocks == [[[2, 2], [0, 0]], [[3, 1]]]
    assert sorted((tmp_path / "cache").rglob("*")) == before
    pq.write_table(pa.table({"text": ["aa", "b"]}), tmp_path / "other.parquet")
    place, (shard,) = find_shards(str(tmp_path / "other.parquet"))
    with pytest.raises(DataError, match="lacks 1 of the 1 feature columns.*'note'"):
        ShardReader(place, Reading(data, (2,))).blocks(shard)  # no row has been read yet
