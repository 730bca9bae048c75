"""The pool as a Parquet table, a row for every sample, and back without loss.

`pool`: id, (task "multi": class,) label, confidence, uncertainty, confidence_soft, uncertainty_soft, selected
("positive", "negative" or "none"), before_balancing (a positive before balancing), truth (null where unknown). Task
"single" has a row a sample, and label and truth are class names; task "multi" has a row for each sample and class, and
they are 0 or 1.

`negatives`: a row for every selected negative: id, class, confidence_soft, uncertainty_soft. Floats keep their width.
"""

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from surelabel.data.pool import Entries, Floats, PoolLabels
from surelabel.data.source import Ids
from surelabel.errors import InvalidInputError
from surelabel.labels import Task

Table: TypeAlias = Any
"""A pyarrow.Table; pyarrow is loaded only when one is made or read."""
Codes: TypeAlias = npt.NDArray[np.integer[Any]]

SELECTED = ("none", "negative", "positive")
_FLOATS = ("confidence", "uncertainty", "confidence_soft", "uncertainty_soft")
_KEY = b"surelabel"


def to_tables(pool: PoolLabels, classes: Sequence[str], truth: Codes | None = None) -> tuple[Table, Table]:
    """Return the table of all samples and that of the selected negatives.

    Args:
        pool: what one network says of each sample.
        classes: the names of the C classes.
        truth: class indices (N,), or 0 and 1, (N, C); -1 where unknown.
    """
    import pyarrow as pa

    multi = pool.label.ndim == 2
    ids = ids_column(pool.ids)
    columns: dict[str, Any] = {"id": ids}
    if multi:
        columns["id"] = ids.take(pa.array(np.repeat(np.arange(len(pool)), len(classes))))
        columns["class"] = _names(np.tile(np.arange(len(classes)), len(pool)), classes)
    columns["label"] = _label_column(pool.label, classes)
    for name in _FLOATS:
        columns[name] = _float_column(getattr(pool, name), pool.confidence)
    columns["selected"] = _names(_selected(pool).ravel(), SELECTED)
    columns["before_balancing"] = pa.array(pool.positive_before.ravel())
    columns["truth"] = _label_column(np.full(pool.label.shape, -1) if truth is None else truth, classes)
    negatives = {
        "id": ids.take(pa.array(pool.negative.rows)),
        "class": _names(pool.negative.classes, classes),
        "confidence_soft": pa.array(pool.negative_p),
        "uncertainty_soft": _float_column(pool.negative_u, pool.negative_p),
    }
    about = {"task": "multi" if multi else "single", "ids": _dtype_name(pool.ids), "classes": list(classes)}
    metadata = {_KEY: json.dumps(about).encode()}
    return pa.table(columns, metadata=metadata), pa.table(negatives, metadata=metadata)


def from_tables(table: Table, negatives: Table) -> PoolLabels:
    """Return exactly the pool that `to_tables` was given."""
    about = json.loads(table.schema.metadata[_KEY])
    classes, multi = about["classes"], about["task"] == "multi"
    num_rows = len(table) // len(classes) if multi else len(table)
    shape = (num_rows, len(classes)) if multi else (num_rows,)
    label = _label_codes(table["label"], about["task"], classes).reshape(shape)
    ids = table["id"][:: len(classes)] if multi else table["id"]
    negative = _positions(negatives["id"], ids), _codes(negatives["class"], classes)
    floats = {name: _floats(table[name], shape) for name in _FLOATS}
    has_soft = floats["uncertainty_soft"] is not None
    return PoolLabels(
        ids=np.array(ids.to_pylist(), dtype=about["ids"]),
        label=label,
        positive=(_codes(table["selected"], SELECTED) == 2).reshape(shape),
        positive_before=table["before_balancing"].to_numpy().reshape(shape),
        negative=Entries.at(*negative, (num_rows, len(classes))),
        negative_p=negatives["confidence_soft"].to_numpy(),
        negative_u=negatives["uncertainty_soft"].to_numpy() if has_soft else None,
        **floats,
    )


def truth_codes(table: Table) -> Codes | None:
    """Return the truth column as class indices (N,), or 0 and 1, (N, C), with -1 where unknown; None: all unknown."""
    about = json.loads(table.schema.metadata[_KEY])
    if table["truth"].null_count == len(table):
        return None
    codes = _label_codes(table["truth"], about["task"], about["classes"])
    return codes.reshape(-1, len(about["classes"])) if about["task"] == "multi" else codes


def ids_column(ids: Ids) -> Any:
    """Return ids as an Arrow array, or say what kind of ids a run can keep."""
    import pyarrow as pa

    try:
        column = pa.array(ids)
        if column.null_count:
            raise TypeError("an id is missing")
        return column
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidInputError(
            f"The samples' ids must be all integers or all strings, so that a run can keep them ({error}). Convert "
            "them with astype(str)."
        ) from error


def table_bytes(table: Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def table_from_bytes(data: bytes) -> Table:
    """Return the table in the bytes of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Not pq.read_table: it starts threads, and a process that ends soon after aborts (pyarrow 26).
    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)


def _selected(pool: PoolLabels) -> npt.NDArray[np.int8]:
    """Index into SELECTED of each row (entry); a row with a positive counts as positive, whatever else it has."""
    negative = pool.negative.counts > 0 if pool.label.ndim == 1 else pool.negative[:]
    return np.where(pool.positive, 2, np.where(negative, 1, 0)).astype(np.int8)


def _label_column(codes: Codes, classes: Sequence[str]) -> Any:
    import pyarrow as pa

    if codes.ndim == 1:
        return _names(codes, classes)
    flat = codes.ravel().astype(np.int8)
    return pa.array(flat, mask=flat < 0)


def _label_codes(column: Any, task: Task, classes: Sequence[str]) -> npt.NDArray[np.int64]:
    if task == "single":
        return _codes(column, classes)
    return np.asarray(column.fill_null(-1).to_numpy(), dtype=np.int64)


def _names(codes: Codes, names: Sequence[str]) -> Any:
    import pyarrow as pa

    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string())).cast(pa.string())


def _codes(column: Any, names: Sequence[str]) -> npt.NDArray[np.int64]:
    import pyarrow as pa

    return _positions(column, pa.array(names, pa.string()))


def _positions(column: Any, values: Any) -> npt.NDArray[np.int64]:
    """Where each entry stands among `values`, -1 for null."""
    import pyarrow.compute as pc

    found = pc.index_in(column, value_set=values, skip_nulls=True)
    return np.asarray(found.fill_null(-1).to_numpy(), dtype=np.int64)


def _float_column(values: Floats | None, like: Floats) -> Any:
    import pyarrow as pa

    if values is None:
        return pa.nulls(like.size, type=pa.from_numpy_dtype(like.dtype))
    return pa.array(values.ravel())


def _floats(column: Any, shape: tuple[int, ...]) -> Any:
    return None if column.null_count else np.asarray(column.to_numpy()).reshape(shape)


def _dtype_name(ids: Ids) -> str:
    return "object" if ids.dtype.kind in "OT" else ids.dtype.str
