"""The parts of a folder of labels: what they say of themselves, and which are taken for a shard."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from shards_support import ObjectStore

from surelabel.data.shards import Shard, place_of
from surelabel.errors import DataError, UnreachableError
from surelabel.runs.parts import Labels, Part, Parts

MADE_WITH = {"model": "m", "thresholds": "tau_p 0.7", "ids": "by number or file", "rows": "one for each sample"}
FILES = Shard("files-000000", 5, (Shard("a.png", 2), Shard("b.png", 3)))


def parts(folder: Path, **changes: str) -> Parts:
    return Parts(place_of(str(folder)), {**MADE_WITH, **changes})


def write(folder: Path, shard: Shard, expected: int = 2, ids: tuple[object, ...] = ("x", "y")) -> Part:
    """Write the part of a shard of which two samples could be read."""
    made = parts(folder)
    part, content = made.content(shard, [Labels(pa.table({"id": ids}), len(ids), 1)], expected)
    made.write(part, content)
    return part


def test_a_part_counts_the_samples_that_could_not_be_read(tmp_path: Path) -> None:
    part = write(tmp_path, Shard("a.parquet", 10), expected=5)
    assert part == Part("a.parquet", rows=2, selected=1, left_out=3)
    assert parts(tmp_path).finished([Shard("a.parquet", 10)]) == [part]


@pytest.mark.parametrize("what", MADE_WITH)
def test_all_parts_are_made_with_the_same(tmp_path: Path, what: str) -> None:
    write(tmp_path, Shard("a.parquet", 10))
    with pytest.raises(DataError, match=f"was made differently: {what} {MADE_WITH[what]}, not other; name another"):
        parts(tmp_path, **{what: "other"}).finished([Shard("b.parquet", 10)])


def test_a_shard_of_other_files_is_another_one(tmp_path: Path) -> None:
    part = write(tmp_path, FILES)
    assert parts(tmp_path).finished([FILES]) == [part]
    other = FILES._replace(files=(Shard("a.png", 2), Shard("c.png", 3)))
    with pytest.raises(DataError, match="is of another shard 'files-000000' "):
        parts(tmp_path).finished([other])


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ((("1000", "x"), (1000, 7)), "The id '1000' is in 'a.parquet' and in 'b.parquet'; correct"),
        (((1000, 7), ("1000", "x")), "The id '1000' is in 'a.parquet' and in 'b.parquet'; correct"),
        (((1000, 7), (8, 1000)), "The id 1000 is in 'a.parquet' and in 'b.parquet'; correct"),
        (((1000, 1000), ("x", "y")), "The id '1000' is twice in 'a.parquet'; correct"),
        (((1000, 7), ("x", "y")), None),
    ],
)
def test_numbers_beside_ids_of_text_are_text(tmp_path: Path, ids: Any, problem: str | None) -> None:
    made = [write(tmp_path, Shard(f"{name}.parquet", 1), ids=some) for name, some in zip("ab", ids, strict=True)]
    made.append(write(tmp_path, Shard("empty.parquet", 1), ids=()))
    if problem is None:
        parts(tmp_path).check_ids(made)
        return
    with pytest.raises(DataError, match=problem):
        parts(tmp_path).check_ids(made)


def test_ids_that_cannot_be_read_any_more_are_told_in_one_line(tmp_path: Path) -> None:
    part = write(tmp_path, Shard("a.parquet", 10))
    data = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(data[:4] + bytes(60) + data[64:])
    with pytest.raises(DataError, match=r"'a.parquet' in '.*' cannot be read \(.*\); give the same command again"):
        parts(tmp_path).check_ids([part])


def test_a_part_out_of_reach_is_neither_foreign_nor_damaged(tmp_path: Path) -> None:
    shard = Shard("a.parquet", 10)
    part, made = write(tmp_path, shard), parts(tmp_path)
    for broken in (["open_input_stream"], ["open_input_file", "open_input_stream"]):
        with pytest.raises(UnreachableError, match="cannot be reached"):
            replace(made, place=replace(made.place, system=ObjectStore(*broken))).finished([shard])
    assert replace(made, place=replace(made.place, system=ObjectStore())).finished([shard]) == [part]


def test_two_shards_with_one_part_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Two shards would have the part 'a.tar.parquet'; rename 'a.tar.parquet'"):
        parts(tmp_path).finished([Shard("a.tar", 1), Shard("a.tar.parquet", 1)])
