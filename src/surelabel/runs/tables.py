"""The pool as a Parquet table, a row for every sample, and back without loss.

`pool`: id, (task "multi": class,) label, confidence, uncertainty, confidence_soft, uncertainty_soft, selected
("positive", "negative" or "none"), before_balancing (a positive before balancing), truth (null where unknown). For task
"single" there is one row per sample, and label and truth are class names; for task "multi" there is a row for each
sample and class, and they are 0 or 1.

`negatives`: a row for each sample with negatives (task "single": and without a positive): id, classes. These are packed
bits, a byte for eight classes, the first one the highest bit. Earlier versions wrote a row for every selected negative:
id, class, confidence_soft, uncertainty_soft; these tables can be read too. Floats keep their width.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from surelabel.base.text import excess, listed, shown
from surelabel.core.arrays import ROUNDING
from surelabel.core.labels import Task
from surelabel.data._arrow_files import text_leaves, unpacked_size
from surelabel.data._values import text_size
from surelabel.data.pool import Floats, LeftOut, PoolLabels
from surelabel.data.source import Ids
from surelabel.data.stored_pool import bits_column, bits_of
from surelabel.data.targets import Codes, Marks
from surelabel.errors import InvalidInputError

Table: TypeAlias = Any
"""A pyarrow.Table."""

SELECTED = ("none", "negative", "positive")
_FLOATS = ("confidence", "uncertainty", "confidence_soft", "uncertainty_soft")
_COLUMNS = ["id", "class", "label", *_FLOATS, "selected", "before_balancing", "truth"]
_NEGATIVE_COLUMNS = ["id", "classes"]
_EARLIER_NEGATIVE_COLUMNS = ["id", "class", *_FLOATS[2:]]
_KEY = b"surelabel"


def to_tables(pool: PoolLabels, classes: Sequence[str], truth: Codes | None = None) -> tuple[Table, Table]:
    """Return the table of all samples and that of the samples with negatives.

    Args:
        pool: one network's labels for each sample.
        classes: the names of the C classes.
        truth: class indices (N,), or 0 and 1, (N, C); -1 where unknown.
    """
    multi = pool.label.ndim == 2
    ids = ids_column(pool.ids)
    columns: dict[str, Any] = {"id": ids}
    if multi:
        columns["id"] = ids.take(pa.array(np.repeat(np.arange(len(pool)), len(classes))))
        columns["class"] = _names(np.tile(np.arange(len(classes)), len(pool)), classes)
    columns["label"] = _label_column(pool.label, classes)
    columns |= {name: _float_column(getattr(pool, name), pool.confidence) for name in _FLOATS}
    # A row with a positive counts as positive, even if it has negatives.
    negative = pool.negative[:] if multi else np.isin(np.arange(len(pool)), pool.negative.rows)
    columns["selected"] = _names(np.where(pool.positive, 2, negative).ravel(), SELECTED)
    columns["before_balancing"] = pa.array(pool.positive_before.ravel())
    columns["truth"] = _label_column(np.full(pool.label.shape, -1) if truth is None else truth, classes)
    negatives = {"id": ids.take(pa.array(pool.negative.rows)), "classes": bits_column(pool.negative.bits)}
    ids_kind = "object" if pool.ids.dtype.kind in "OT" else pool.ids.dtype.str
    about = {
        "task": "multi" if multi else "single",
        "ids": ids_kind,
        "classes": list(classes),
        "left_out": pool.left_out._asdict(),
    }
    metadata = {_KEY: json.dumps(about).encode()}
    return pa.table(columns, metadata=metadata), pa.table(negatives, metadata=metadata)


def check_table(table: Table, task: Task, classes: Sequence[str], *, negatives: bool) -> None:
    """Raise ValueError, with the reason, if a table cannot have come from `to_tables`.

    Args:
        table: as it was read.
        task: of the run.
        classes: of the run.
        negatives: whether it is the table of the samples with negatives.
    """
    about = json.loads((table.schema.metadata or {}).get(_KEY, b"{}"))
    if not isinstance(about, dict) or (about.get("task"), about.get("classes")) != (task, list(classes)):
        raise ValueError("its metadata are not those of the run's task and classes")
    names = [name for name in _COLUMNS if name != "class" or task == "multi"]
    if negatives:
        earlier = table.column_names == _EARLIER_NEGATIVE_COLUMNS
        names = _EARLIER_NEGATIVE_COLUMNS if earlier else _NEGATIVE_COLUMNS
    if table.column_names != names:
        raise ValueError(f"its columns must be {', '.join(names)}; they are {', '.join(table.column_names)}")
    label = classes if task == "single" else (0, 1)
    values = {"class": classes, "label": label, "selected": SELECTED, "truth": label}
    for name in names:
        if name == "classes":
            _check_bits(table[name], len(classes))
        else:
            _check_column(name, table[name], values.get(name))
    _check_left_out(about.get("left_out"))
    _check_ids(table["id"], about.get("ids"))
    if not negatives:
        _check_rows(table, classes if task == "multi" else None)


def from_tables(table: Table, negatives: Table) -> PoolLabels:
    """Return exactly the pool that `to_tables` was given; raise ValueError if the tables are not of one pool."""
    about = json.loads(table.schema.metadata[_KEY])
    classes = about["classes"]
    codes = _label_codes(table["label"], about)
    label: Codes = codes.astype(np.int32) if codes.ndim == 1 else codes.astype(np.int8)
    ids = table["id"][:: len(classes) if label.ndim == 2 else 1]
    if negatives["id"].type != ids.type:
        raise ValueError("its ids are of another type than those of the pool")
    rows = _positions(negatives["id"], ids)
    earlier, shape = "class" in negatives.column_names, (len(label), len(classes))
    of_class = _codes(negatives["class"], classes) if earlier else np.zeros_like(rows)
    if (rows < 0).any() or (np.diff(rows * len(classes) + of_class) <= 0).any():
        raise ValueError("its ids are not those of the pool, in their order")
    negative = (
        Marks.at(rows, of_class, shape)
        if earlier
        else Marks.packed(rows, bits_of(negatives["classes"].combine_chunks()), shape)
    )
    floats = {name: _floats(table[name], label.shape) for name in _FLOATS}
    return PoolLabels(
        ids=_ids(ids, about["ids"]),
        label=label,
        positive=(_codes(table["selected"], SELECTED) == 2).reshape(label.shape),
        positive_before=table["before_balancing"].to_numpy().reshape(label.shape),
        negative=negative,
        left_out=LeftOut(**about.get("left_out", {})),
        **floats,
    )


def _ids(column: Any, dtype: str) -> Ids:
    """Return the original ids; numbers without a Python object for each."""
    numbers = np.dtype(dtype).kind in "iuf"
    return np.array(column.to_numpy() if numbers else column.to_pylist(), dtype=dtype)


def truth_codes(table: Table) -> Codes | None:
    """Return the truth column as class indices (N,), or 0 and 1, (N, C), with -1 where unknown; None: all unknown."""
    known = table["truth"].null_count < len(table)
    return _label_codes(table["truth"], json.loads(table.schema.metadata[_KEY])) if known else None


def ids_column(ids: Ids) -> Any:
    """Return ids as an Arrow array; an error says what kinds of ids a run can keep."""
    try:
        column = pa.array(ids)
        if column.null_count:
            raise TypeError("an id is missing")
        return column
    except (pa.ArrowException, TypeError, OverflowError) as error:
        problem = f"The samples' ids must be all integers or all strings ({error})"
        raise InvalidInputError(f"{problem}; convert them with astype(str).") from error


def write_tables(pool: PoolLabels, classes: Sequence[str], truth: Codes | None, *files: BinaryIO) -> None:
    """Write both tables of a pool, some rows at a time, as Parquet to two files."""
    writers: list[Any] = []
    try:
        start = 0
        for block in pool.blocks():
            known = None if truth is None else truth[start : start + len(block)]
            tables = to_tables(dataclasses.replace(block, left_out=pool.left_out), classes, known)
            start += len(block)
            if not writers:
                pairs = zip(files, tables, strict=True)
                writers = [pq.ParquetWriter(file, table.schema, compression="zstd") for file, table in pairs]
            for writer, table in zip(writers, tables, strict=True):
                writer.write_table(table)
    finally:
        for writer in writers:
            writer.close()


def table_bytes(table: Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def table_from_bytes(data: bytes) -> Table:
    """Return the table in the bytes of a Parquet file; raise ValueError if there is none."""
    try:
        metadata = pq.read_metadata(pa.BufferReader(data))
        _check_size(data, unpacked_size(metadata))
        # Text as it is stored, each distinct value once, until its full size is known. Not pq.read_table: it starts
        # threads, and a process that ends soon after aborts (pyarrow 26).
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=text_leaves(metadata))
        table = file.read(use_threads=False)
        text = [(place, field) for place, field in enumerate(table.schema) if pa.types.is_dictionary(field.type)]
        _check_size(data, sum(text_size(chunk) for place, _ in text for chunk in table.column(place).chunks))
        for place, field in text:
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it is not Parquet ({error})") from error
    return table


def _check_size(data: bytes, size: int) -> None:
    problem = excess(len(data), size)
    if problem is not None:
        raise ValueError(f"the table {problem}")


def _check_column(name: str, column: Any, values: Sequence[str | int] | None) -> None:
    """Refuse a column with another type, empty cells or impossible values."""
    kind = column.type
    if values is not None:
        fits = kind == (pa.string() if isinstance(values[0], str) else pa.int8())
    elif name in _FLOATS:
        fits = pa.types.is_floating(kind)
    else:
        texts = pa.string(), pa.large_string(), pa.binary(), pa.large_binary()
        fits = kind == pa.bool_() if name == "before_balancing" else pa.types.is_primitive(kind) or kind in texts
    if not fits:
        raise ValueError(f"its column {name!r} is of another type: {shown(kind, quote=False)}")
    nulls, there = column.null_count, column.drop_null()
    if nulls and name != "truth" and not (name.startswith("uncertainty") and nulls == len(column)):
        raise ValueError(f"its column {name!r} has {nulls} empty cells")
    if values is not None and not pc.all(pc.is_in(there, value_set=pa.array(values, kind)), min_count=0).as_py():
        raise ValueError(f"its column {name!r} has values other than {listed(values)}")
    if name in _FLOATS:
        numbers = np.asarray(there.to_numpy(), dtype=np.float64)
        low, high = (-ROUNDING, 1 + ROUNDING) if name.startswith("confidence") else (0.0, math.inf)
        if not ((numbers >= low) & (numbers <= high)).all():
            raise ValueError(f"its column {name!r} has numbers that are no {name.partition('_')[0]}")


def _check_bits(column: Any, num_classes: int) -> None:
    """Refuse anything but packed bits of the classes, with at least one set in every row."""
    width = -(-num_classes // 8)
    if column.type != pa.binary(width) or column.null_count:
        raise ValueError(f"its column 'classes' must have {width} bytes in each row; it is {column.type}")
    bits, beyond = bits_of(column.combine_chunks()), np.uint8(0xFF >> (num_classes - 1) % 8 + 1)
    if not bits.any(axis=1).all() or (bits[:, -1] & beyond).any():
        raise ValueError("its column 'classes' has rows without a class, or classes that are not there")


def _check_left_out(values: Any) -> None:
    """Refuse impossible counts of negatives."""
    if values is None:
        return
    counts = list(values.values()) if isinstance(values, dict) and list(values) == list(LeftOut._fields) else [None]
    if not all(type(value) is int and 0 <= value < 2**53 for value in counts):
        raise ValueError(f"its metadata say {shown(values)} of negatives that were left out")


def _check_rows(table: Table, classes: Sequence[str] | None) -> None:
    """Refuse a table without exactly one row per sample or, with classes, a row for each of them in order."""
    ids = table["id"]
    if classes is not None:
        ids = ids[:: len(classes)]
        in_order = table["class"].combine_chunks().equals(pa.array([*classes] * len(ids), pa.string()))
        if not in_order or not ids.take(pa.array(np.repeat(np.arange(len(ids)), len(classes)))).equals(table["id"]):
            raise ValueError("it has not, sample by sample, a row for each class")
    if pc.count_distinct(ids).as_py() < len(ids):
        raise ValueError("it has some ids more than once")


def _check_ids(column: Any, name: Any) -> None:
    """Refuse a dtype in the metadata that these ids cannot have had."""
    if name == "object":
        return
    try:
        dtype = np.dtype(name if isinstance(name, str) else "")
        expected = {"U": pa.string(), "S": pa.binary()}.get(dtype.kind) or pa.from_numpy_dtype(dtype)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise ValueError(f"its metadata call its ids {shown(name)}") from error
    # Parquet has its own units of time.
    fits = pa.types.is_temporal(column.type) if dtype.kind in "mM" else column.type == expected
    if fits and dtype.kind in "US":
        length = pc.utf8_length if dtype.kind == "U" else pc.binary_length
        longest, width = pc.max(length(column)).as_py() or 0, dtype.itemsize // (4 if dtype.kind == "U" else 1)
        # Ids that are not in this table may have been longer, within reason.
        fits = longest <= width <= max(longest, 4096)
    if not fits:
        raise ValueError(f"its metadata call its ids {shown(name)}; they are {column.type}")


def _label_column(codes: Codes, classes: Sequence[str]) -> Any:
    if codes.ndim == 1:
        return _names(codes, classes)
    flat = codes.ravel().astype(np.int8)
    return pa.array(flat, mask=flat < 0)


def _label_codes(column: Any, about: dict[str, Any]) -> npt.NDArray[np.int64]:
    """Return class indices (N,), or for task "multi" 0 and 1, (N, C); -1 for null."""
    if about["task"] == "single":
        return _codes(column, about["classes"])
    return np.asarray(column.fill_null(-1).to_numpy(), dtype=np.int64).reshape(-1, len(about["classes"]))


def _names(codes: Codes, names: Sequence[str]) -> Any:
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string())).cast(pa.string())


def _codes(column: Any, names: Sequence[str]) -> npt.NDArray[np.int64]:
    return _positions(column, pa.array(names, pa.string()))


def _positions(column: Any, values: Any) -> npt.NDArray[np.int64]:
    """The index of each entry in `values`, -1 for null."""
    found = pc.index_in(column, value_set=values, skip_nulls=True)
    return np.asarray(found.fill_null(-1).to_numpy(), dtype=np.int64)


def _float_column(values: Floats | None, like: Floats) -> Any:
    if values is None:
        return pa.nulls(like.size, type=pa.from_numpy_dtype(like.dtype))
    return pa.array(values.ravel())


def _floats(column: Any, shape: tuple[int, ...]) -> Any:
    return None if column.null_count else np.asarray(column.to_numpy()).reshape(shape)
