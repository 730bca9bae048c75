"""Labels of shards that wait for their round to be recorded: which of them count as made."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from surelabel.core.labels import Task
from surelabel.data.pool import PoolLabels, Prediction, label_chunk
from surelabel.data.shards import Shard
from surelabel.errors import DamagedFileError
from surelabel.runs.round_parts import LabelParts, made_by

SHARDS = [Shard("a.parquet", 10), Shard("b.parquet", 20)]
IDS = [np.arange(3), np.arange(3, 7)]
THRESHOLDS = {"tau_p": 0.7, "tau_n": 0.3, "kappa_p": 0.1, "kappa_n": 0.1, "gamma": 0.5}


def parts(folder: Path, network: str = "one", first: Shard = SHARDS[0], task: Task = "single") -> LabelParts:
    return LabelParts(folder, network, [first, SHARDS[1]], IDS, 3, task)


def labels(task: Task = "single") -> PoolLabels:
    p = np.array([[0.9, 0.1, 0.0], [0.5, 0.5, 0.0], [0.1, 0.1, 0.8]], dtype=np.float32)
    u = np.full_like(p, 0.01)
    return label_chunk(Prediction(IDS[0], p, u, p, u), task, THRESHOLDS, negatives=True)


def test_a_part_is_taken_for_its_own_network_and_shard_alone(tmp_path: Path) -> None:
    parts(tmp_path).write(0, labels())
    assert parts(tmp_path).missing() == [1]
    for other in (("two", SHARDS[0]), ("one", Shard("c.parquet", 10)), ("one", Shard("a.parquet", 11))):
        assert parts(tmp_path, *other).missing() == [0, 1]


@pytest.mark.parametrize("task", ["single", "multi"])
def test_a_part_comes_back_as_it_was(tmp_path: Path, task: Task) -> None:
    written = labels(task)
    parts(tmp_path).write(0, written)
    found = parts(tmp_path, task=task).read(0)
    assert parts(tmp_path, task="multi" if task == "single" else "single").missing() == [0, 1]
    for name in ("ids", "label", "confidence", "uncertainty", "positive", "positive_before"):
        np.testing.assert_array_equal(getattr(found, name), getattr(written, name))
    np.testing.assert_array_equal(found.negative[:], written.negative[:])


NONSENSE: dict[str, dict[str, Any]] = {
    "too few rows": {"confidence": np.ones(2, dtype=np.float32)},
    "a class that is not there": {"label": np.array([0, 3, 1], dtype=np.int32)},
    "a class below 0": {"label": np.array([0, -1, 1], dtype=np.int32)},
    "no number": {"confidence": np.array([0.9, np.nan, 0.8], dtype=np.float32)},
    "more than 1": {"confidence_soft": np.array([0.9, 1.5, 0.8], dtype=np.float32)},
    "a spread without end": {"uncertainty": np.array([0.1, np.inf, 0.1], dtype=np.float32)},
    "one spread of two": {"uncertainty": None},
    "a spread below 0": {"uncertainty": np.array([0.1, -0.1, 0.1], dtype=np.float32)},
    "classes as fractions": {"label": np.array([0.0, 1.0, 1.0], dtype=np.float32)},
    "choices that are no masks": {"positive": np.ones(3, dtype=np.int8)},
    "rows that are not there": {"negative.rows": np.array([7], dtype=np.int32)},
    "rows that do not rise": {"negative.rows": np.array([1, 1], dtype=np.int32)},
    "marks of other classes": {"negative.bits": np.zeros((1, 2), dtype=np.uint8)},
    "a column too many": {"more": np.ones(3)},
    "a column too few": {"positive": None},
}


@pytest.mark.parametrize("what", NONSENSE)
def test_a_part_that_makes_no_sense_counts_as_missing(tmp_path: Path, what: str) -> None:
    parts(tmp_path).write(0, labels())
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()[32:]
    length = int.from_bytes(content[:8], "little")
    columns = {**safetensors.numpy.load(content), **NONSENSE[what]}
    columns = {name: column for name, column in columns.items() if column is not None}
    about = json.loads(content[8 : 8 + length])["__metadata__"]
    forged = safetensors.numpy.save(columns, about)
    path.write_bytes(hashlib.sha256(forged).digest() + forged)
    assert parts(tmp_path).missing() == [0, 1]
    with pytest.raises(DamagedFileError, match=r"000000.bin.*Remove it"):
        parts(tmp_path).read(0)


def test_a_part_without_uncertainties_beside_one_with_them_counts_as_missing(tmp_path: Path) -> None:
    made = parts(tmp_path)
    made.write(0, dataclasses.replace(labels(), uncertainty=None, uncertainty_soft=None))
    assert made.missing() == [1]
    p = np.full((4, 3), 1 / 3, dtype=np.float32)
    made.write(1, label_chunk(Prediction(IDS[1], p, p, p, p), "single", THRESHOLDS, negatives=True))
    assert made.missing() == [0]


@pytest.mark.parametrize("content", [b"", b"abc", b"\x02" + bytes(7) + b"[]", b"\x09" + bytes(7) + b'{"a": 1}x'])
def test_a_part_that_is_no_table_counts_as_missing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "000000.bin").write_bytes(hashlib.sha256(content).digest() + content)
    (tmp_path / "000001.bin").write_bytes(content)
    assert parts(tmp_path).missing() == [0, 1]


def test_all_that_labels_depend_on_is_in_the_hash() -> None:
    made_with: list[Any] = [(b"weights", {"seed": 1}), (b"others", {"seed": 1}), (b"weights", {"seed": 2})]
    assert len({made_by(*one, "torch 2") for one in made_with} | {made_by(*made_with[0], "torch 3")}) == 4
