"""A pool in a file: the same selection, bit for bit, as a pool in memory, and little memory."""

import errno
import functools
import gc
import io
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pool_support import Chunked, problem_of, traced
from small_runs import assert_same_pool
from strategies import probabilities, shapes, uncertainties

import surelabel as sl
from surelabel.core.selection import most_certain
from surelabel.data import stored_pool
from surelabel.data.pool import ROWS_IN_MEMORY, PoolLabels, rows_in_memory
from surelabel.data.stored_pool import StoredPool, most_certain_in_blocks
from surelabel.errors import InvalidInputError, RunError
from surelabel.loop import label_pool, rounds
from surelabel.records import describe
from surelabel.runs.files import write_streams
from surelabel.runs.tables import write_tables


def in_memory(pool: PoolLabels) -> PoolLabels:
    columns = ("ids", "label", "confidence", "uncertainty", "confidence_soft", "uncertainty_soft")
    marks = ("positive", "positive_before", "negative", "left_out")
    return PoolLabels(**{name: getattr(pool, name) for name in (*columns, *marks)})


class Given(Chunked):
    """Labels the pool by these p and u, `size` rows at a time."""

    def __init__(self, p: Any, u: Any, size: int) -> None:
        self.values, self.size = (p, u), size

    def predict(self, source: sl.Source, *, seed: int) -> Any:
        for start in range(0, len(source), self.size):
            rows = slice(start, start + self.size)
            p, u = (None if part is None else part[rows] for part in self.values)
            yield sl.Prediction(source.ids[rows], p, u)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    shape=shapes(min_classes=2),
    balance=st.sampled_from([None, "equal", "prior"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    by=st.sampled_from(["u", "confidence", "no u"]),
)
def test_selection_from_a_file_equals_selection_in_memory(
    data: Any, shape: tuple[int, int], balance: Any, dtype: Any, by: str
) -> None:
    """With many ties, and blocks and chunks whose borders differ."""
    num_rows, num_classes = 3 * shape[0], shape[1]
    p = data.draw(probabilities((num_rows, num_classes), dtype))
    u = None if by == "no u" else data.draw(uncertainties((num_rows, num_classes), dtype))
    kappas = {"kappa_p": 0.06 if by == "u" else math.inf, "kappa_n": 0.06 if by == "u" else math.inf}
    floor = data.draw(st.integers(0, 3))
    config = sl.UPSConfig(balance=balance, balance_rounds=1, balance_floor=floor, tau_p=0.3, tau_n=0.3, **kappas)
    problem = problem_of(num_rows, num_classes)
    truth = data.draw(hnp.arrays(np.int64, num_rows, elements=st.integers(-1, num_classes - 1)))
    learner = Given(p, u, data.draw(st.integers(1, num_rows)))
    expected = label_pool(learner, problem, config, 1, truth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROWS_IN_MEMORY, "0")
        patch.setattr(stored_pool, "_ROWS_OF_A_BLOCK", 8)
        pool = label_pool(learner, problem, config, 1, truth)
        assert isinstance(pool, StoredPool)
        assert expected is not None
        assert_same_pool(in_memory(pool), expected)
        assert (len(pool), pool.num_classes) == (num_rows, num_classes)
        assert pool.num_negative == expected.num_negative
        assert [len(block) for block in pool.blocks()][:-1] == [8] * ((num_rows - 1) // 8)
        rest: Any = {"balanced": True, "negatives_use": "loss", "minutes": 0.0, "stop": None}
        records = [describe(1, part, truth, num_classes=num_classes, **rest) for part in (pool, expected)]
        assert records[0] == records[1]
        for got, wanted in zip(
            problem.training_set(pool.selected).targets.arrays(),
            problem.training_set(expected.selected).targets.arrays(),
            strict=True,
        ):
            np.testing.assert_array_equal(got, wanted)


@settings(max_examples=60)
@given(
    data=st.data(),
    number=st.integers(0, 40),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    floor=st.integers(0, 6),
    shared=st.booleans(),
)
def test_cut_offs_are_those_of_a_stable_sort(data: Any, number: int, dtype: Any, floor: int, shared: bool) -> None:
    """Of any numbers: 1 - p may be below 0 by rounding, and -0 equals 0."""
    classes = data.draw(hnp.arrays(np.int32, number, elements=st.integers(0, 2)))
    some = st.sampled_from([0.0, -0.0, 0.25, -1e-7, 1e-8]) | st.floats(-1, 1, width=8 * np.dtype(dtype).itemsize)
    values = np.array([data.draw(some) for _ in range(number)], dtype=dtype)
    shares = np.array([0.5, 0.3, 0.2]) if shared else None
    cuts = sorted(data.draw(st.lists(st.integers(0, number), max_size=3)))
    parts = list(zip(np.split(classes, cuts), np.split(values, cuts), strict=True))
    expected = np.zeros(number, dtype=bool)
    expected[most_certain(classes, values, 3, floor, shares)] = True
    got = list(most_certain_in_blocks(lambda: parts, 3, floor, shares))
    np.testing.assert_array_equal(np.concatenate(got), expected)


def test_a_whole_run_from_files_has_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.full(4, 0.2), 300).astype(np.float32)
    u = generator.integers(0, 5, p.shape).astype(np.float32) / 50
    problem, truth = problem_of(300, 4), generator.integers(-1, 4, 300)
    config = sl.UPSConfig(balance="equal", balance_rounds=1, balance_floor=3, max_rounds=3)
    found = []
    for most in ("300", "299"):
        monkeypatch.setenv(ROWS_IN_MEMORY, most)
        records = list(rounds(Given(p, u, 70), problem, config, truth=truth))
        found.append([{**record.numbers(), "minutes": 0} for record in records])
        assert isinstance(records[-1].pool, StoredPool) == (most == "299")
    assert found[0] == found[1]
    assert found[0][1]["num_negative_only"] > 0
    assert found[0][1]["negative_accuracy"] < 1


def stored(num_rows: int = 100) -> StoredPool:
    pool = label_pool(Chunked(np.full(4, 0.25), u=0.0), problem_of(num_rows, 4), sl.UPSConfig(), 1)
    assert isinstance(pool, StoredPool)
    return pool


def test_no_folder_lists_the_file_so_that_a_killed_process_leaves_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ROWS_IN_MEMORY, "10")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pool = stored()
    assert os.fstat(pool._file.fileno()).st_dev == tmp_path.stat().st_dev
    assert list(tmp_path.iterdir()) == []
    assert len(pool.label) == 100


def test_the_file_is_closed_with_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROWS_IN_MEMORY, "10")
    pool = stored()
    file = pool._file
    del pool
    gc.collect()
    assert file.closed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_full_folder_for_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ROWS_IN_MEMORY, "10")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tempfile.TemporaryFile", functools.partial(open, "/dev/full", "w+b"))
    message = r"could not be written in the folder for temporary files, '.*' \(No space left on device\). Free some"
    with pytest.raises(RunError, match=message) as caught:
        stored(10_000)
    assert str(tmp_path) in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)  # `fit` then says how to go on


class Unreadable(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_file_that_cannot_be_read_is_not_taken_for_one_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ROWS_IN_MEMORY, "10")
    pool, paths = stored(), [tmp_path / "pool.parquet", tmp_path / "negatives.parquet"]
    file, pool.__dict__["_file"] = pool._file, Unreadable(pool._file.read())
    message = r"labels of the pool could not be read in the folder for temporary files, .* \(Input/output error\)"
    with pytest.raises(RunError, match=message):
        write_streams(paths, lambda *files: write_tables(pool, list("abcd"), None, *files))
    assert list(tmp_path.iterdir()) == []
    file.close()


def test_a_pool_in_a_file_keeps_less_than_a_byte_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 320 classes, each sample with negatives has 40 bytes of them, which are in the file."""
    monkeypatch.setattr(stored_pool, "_ROWS_OF_A_BLOCK", 1 << 12)
    monkeypatch.setenv(ROWS_IN_MEMORY, "10")
    num_rows, num_classes = 100_000, 320
    problem, config = problem_of(num_rows, num_classes), sl.UPSConfig(balance="equal", balance_rounds=1)
    learner = Chunked([0.9, *[0.1 / (num_classes - 1)] * (num_classes - 1)], u=0.0)
    label_pool(learner, problem_of(1000, num_classes), config, 1)
    (pool, _), kept, peak = traced(lambda: (label_pool(learner, problem, config, 1), gc.collect()))
    assert pool is not None
    assert pool.num_negative == num_rows * (num_classes - 1)
    assert kept < num_rows
    assert peak < num_rows * num_classes / 8


def test_the_number_of_rows_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_in_memory() == 4_000_000
    monkeypatch.setenv(ROWS_IN_MEMORY, "4e6")
    with pytest.raises(InvalidInputError, match="must be a whole number of rows. Got '4e6' instead"):
        rows_in_memory()
