"""PoolLabels to Parquet and back: nothing is lost, whatever was selected."""

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import assert_same_pool

from surelabel.core.labels import Task
from surelabel.data.pool import PoolLabels, Prediction, balanced, label_chunk, without_unneeded
from surelabel.errors import InvalidInputError
from surelabel.runs.tables import (
    check_table,
    from_tables,
    ids_column,
    table_bytes,
    table_from_bytes,
    to_tables,
    truth_codes,
    write_tables,
)


def through_bytes(pool: PoolLabels, classes: list[str], truth: Any = None) -> PoolLabels:
    tables = [table_from_bytes(table_bytes(table)) for table in to_tables(pool, classes, truth)]
    for table, negatives in zip(tables, (False, True), strict=True):
        check_table(table, "multi" if pool.label.ndim == 2 else "single", classes, negatives=negatives)
    return from_tables(*tables)


def make_pool(
    seed: int, task: Task, rows: int, classes: int, dtype: Any, *, has_u: bool, ids: Any, thresholds: dict[str, float]
) -> PoolLabels:
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.ones(classes), rows) if task == "single" else generator.random((rows, classes))
    u = generator.random((rows, classes)).astype(dtype) if has_u else None
    soft = generator.random((rows, classes)).astype(dtype)
    prediction = Prediction(ids, p.astype(dtype), u, soft, None if u is None else u / 2)
    limits = thresholds if has_u else {**thresholds, "kappa_p": np.inf, "kappa_n": np.inf}
    pool = balanced(label_chunk(prediction, task, limits, negatives=True), 1, None)
    return without_unneeded(pool) if seed % 2 else pool


@given(
    seed=st.integers(0, 10**6),
    task=st.sampled_from(["single", "multi"]),
    rows=st.integers(1, 30),
    classes=st.integers(2, 5),
    dtype=st.sampled_from([np.float32, np.float64]),
    has_u=st.booleans(),
    strings=st.booleans(),
    tau=st.floats(0, 1),
    kappa=st.floats(0, 1),
)
def test_a_pool_is_restored_exactly(
    seed: int, task: Task, rows: int, classes: int, dtype: Any, has_u: bool, strings: bool, tau: float, kappa: float
) -> None:
    ids = np.array([f"é{number}" for number in range(rows)]) if strings else np.arange(rows)[::-1] * 7
    thresholds = {"tau_p": tau, "tau_n": min(0.5, tau), "kappa_p": kappa, "kappa_n": kappa, "gamma": 0.5}
    pool = make_pool(seed, task, rows, classes, dtype, has_u=has_u, ids=ids, thresholds=thresholds)
    assert_same_pool(through_bytes(pool, [f"class {c}" for c in range(classes)]), pool)


THRESHOLDS = {"tau_p": 0.4, "tau_n": 0.3, "kappa_p": 0.8, "kappa_n": 0.8, "gamma": 0.5}


@pytest.mark.parametrize(
    "ids",
    [
        np.arange(6, dtype=np.int32),
        np.arange(6, dtype=np.uint64) + np.uint64(2**63),
        np.array(list("abcdef")),
        np.array(["a", "bb", "ccc", "d d", "", "\0x"], dtype=object),
        np.array(list("abcdef"), dtype="<U70"),
        np.array(list("abcdef"), dtype="S3"),
        np.arange(6) / 4,
        np.arange(6).astype("M8[D]"),
        np.arange(6).astype("M8[s]"),
    ],
    ids=["int32", "uint64", "fixed width", "objects", "wider", "bytes", "floats", "days", "seconds"],
)
def test_ids_keep_their_dtype(ids: Any) -> None:
    pool = make_pool(0, "single", 6, 3, np.float32, has_u=True, ids=ids, thresholds=THRESHOLDS)
    assert pool.selection.negative.any()
    assert_same_pool(through_bytes(pool, ["a", "b", "c"]), pool)


@pytest.mark.parametrize("task", ["single", "multi"])
def test_truth_is_kept_with_its_gaps(task: Task) -> None:
    pool = make_pool(1, task, 4, 3, np.float32, has_u=True, ids=np.arange(4), thresholds=THRESHOLDS)
    truth = np.array([0, -1, 2, 1]) if task == "single" else np.array([[0, 1, -1], [-1, -1, -1], [1, 1, 1], [0, 0, 0]])
    table, _ = to_tables(pool, ["a", "b", "c"], truth)
    np.testing.assert_array_equal(truth_codes(table_from_bytes(table_bytes(table))), truth)
    unknown, _ = to_tables(pool, ["a", "b", "c"])
    assert truth_codes(unknown) is None
    assert table["truth"].to_pylist()[:3] == (["a", None, "c"] if task == "single" else [0, 1, None])


def test_each_block_of_a_long_table_has_its_own_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surelabel.data.pool.ROWS_OF_A_BLOCK", 3)
    pool = make_pool(1, "single", 8, 3, np.float32, has_u=True, ids=np.arange(8), thresholds=THRESHOLDS)
    truth, file, negatives = np.array([0, -1, 2, 1, 1, 0, 2, -1]), io.BytesIO(), io.BytesIO()
    write_tables(pool, ["a", "b", "c"], truth, file, negatives)
    table = table_from_bytes(file.getvalue())
    np.testing.assert_array_equal(truth_codes(table), truth)
    assert_same_pool(from_tables(table, table_from_bytes(negatives.getvalue())), pool)


def test_a_row_says_what_was_selected() -> None:
    p = np.array([[0.9, 0.05, 0.05], [0.5, 0.45, 0.05], [0.4, 0.3, 0.3]])
    thresholds = {"tau_p": 0.7, "tau_n": 0.1, "kappa_p": np.inf, "kappa_n": np.inf, "gamma": 0.5}
    pool = label_chunk(Prediction(np.array([7, 8, 9]), p, None), "single", thresholds, negatives=True)
    table, negatives = to_tables(pool, ["x", "y", "z"], np.array([0, 1, -1]))
    assert table.to_pylist()[:2] == [
        {
            "id": 7,
            "label": "x",
            "confidence": 0.9,
            "uncertainty": None,
            "confidence_soft": 0.9,
            "uncertainty_soft": None,
            "selected": "positive",
            "before_balancing": True,
            "truth": "x",
        },
        {
            "id": 8,
            "label": "x",
            "confidence": 0.5,
            "uncertainty": None,
            "confidence_soft": 0.5,
            "uncertainty_soft": None,
            "selected": "negative",
            "before_balancing": False,
            "truth": "y",
        },
    ]
    assert table["selected"].to_pylist()[2] == "none"
    assert negatives.to_pylist() == [{"id": 7, "classes": b"\x60"}, {"id": 8, "classes": b"\x20"}]  # 0110…, 0010…


@given(
    seed=st.integers(0, 10**6).map(lambda number: 2 * number),
    task=st.sampled_from(["single", "multi"]),
    has_u=st.booleans(),
)
def test_a_pool_of_an_earlier_version_is_read(seed: int, task: Task, has_u: bool) -> None:
    """Its table of negatives had a row for each of them."""
    classes = list("abcdefghij")
    pool = make_pool(seed, task, 8, 10, np.float32, has_u=has_u, ids=np.arange(8) * 3, thresholds=THRESHOLDS)
    table, now = to_tables(pool, classes)
    about = {name: value for name, value in json.loads(now.schema.metadata[b"surelabel"]).items() if name != "left_out"}
    metadata = {b"surelabel": json.dumps(about).encode()}
    rows, codes = np.nonzero(pool.negative[:])
    values = pa.array(np.full(len(rows), 0.25, np.float32))
    columns = [pa.array(pool.ids[rows]), pa.array([classes[code] for code in codes], pa.string()), values, values]
    names = ["id", "class", "confidence_soft", "uncertainty_soft"]
    then = pa.table(columns, names=names).replace_schema_metadata(metadata)
    table = table.replace_schema_metadata(metadata)
    for part, negatives in ((table, False), (then, True)):
        check_table(part, task, classes, negatives=negatives)
    assert_same_pool(from_tables(table, then), pool)


def test_negatives_of_an_earlier_version_must_be_in_the_order_of_the_pool() -> None:
    pool = make_pool(0, "single", 4, 3, np.float32, has_u=True, ids=np.arange(4), thresholds=THRESHOLDS)
    table, _ = to_tables(pool, ["a", "b", "c"])
    values = pa.array(np.zeros(2, np.float32))
    columns = {"class": pa.array(["b", "a"]), "confidence_soft": values, "uncertainty_soft": values}
    for rows in ([0, 0], [1, 0]):
        with pytest.raises(ValueError, match="its ids are not those of the pool, in their order"):
            from_tables(table, pa.table({"id": pa.array(rows), **columns}))


@pytest.mark.parametrize(
    ("bits", "problem"),
    [
        ([b"\x60", b"\x00"], "rows without a class"),
        ([b"\x60", b"\x30"], "classes that are not there"),
        ([b"\x60\x00", b"\x20\x00"], "must have 1 bytes in each row"),
        ([b"\x60", None], "must have 1 bytes in each row"),
    ],
)
def test_bits_that_no_selection_has_are_refused(bits: list[bytes | None], problem: str) -> None:
    pool = make_pool(0, "single", 2, 3, np.float32, has_u=True, ids=np.arange(2), thresholds=THRESHOLDS)
    _, negatives = to_tables(pool, ["a", "b", "c"])
    changed = pa.table({"id": pa.array([0, 1]), "classes": pa.array(bits, pa.binary(len(bits[0] or b"")))})
    with pytest.raises(ValueError, match=problem):
        check_table(
            changed.replace_schema_metadata(negatives.schema.metadata), "single", ["a", "b", "c"], negatives=True
        )


@pytest.mark.parametrize("values", [7, {}, {"number": 1}, {"number": -1, "judged": 0, "wrong": 0, "samples": 0}])
def test_counts_that_no_selection_has_are_refused(values: Any) -> None:
    pool = make_pool(0, "single", 2, 3, np.float32, has_u=True, ids=np.arange(2), thresholds=THRESHOLDS)
    table, _ = to_tables(pool, ["a", "b", "c"])
    about = {**json.loads(table.schema.metadata[b"surelabel"]), "left_out": values}
    with pytest.raises(ValueError, match="of negatives that were left out"):
        check_table(
            table.replace_schema_metadata({b"surelabel": json.dumps(about).encode()}),
            "single",
            ["a", "b", "c"],
            negatives=False,
        )


@pytest.mark.parametrize(("name", "size"), [("u", "5,300,000"), ("x" * 3000, "3,")])
def test_a_small_table_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch, name: str, size: str) -> None:
    rows = 1000 if len(name) > 1 else 100_000
    thresholds = {"tau_p": 1.0, "tau_n": 0.0, "kappa_p": 0.0, "kappa_n": 0.0, "gamma": 0.5}
    pool = make_pool(0, "single", 1, 2, np.float64, has_u=True, ids=np.zeros(1, np.int64), thresholds=thresholds)
    table, _ = to_tables(pool, [name, name + "v"])
    data = table_bytes(table.take(np.zeros(rows, np.int64)))
    with pytest.raises(ValueError, match="it has some ids more than once"):
        check_table(table_from_bytes(data), "single", [name, name + "v"], negatives=False)
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "2000000")
    with pytest.raises(ValueError, match=f"the table of .* bytes would take {size}.* bytes of memory or more"):
        table_from_bytes(data)


def test_equal_pools_are_equal_files() -> None:
    pools = [make_pool(2, "multi", 9, 3, np.float32, has_u=True, ids=np.arange(9), thresholds=THRESHOLDS) for _ in "ab"]
    first, second = ([table_bytes(table) for table in to_tables(pool, ["a", "b", "c"])] for pool in pools)
    assert first == second


def test_ids_of_mixed_types_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="all integers or all strings"):
        ids_column(np.array([1, "a"], dtype=object))
