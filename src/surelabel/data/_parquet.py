"""Parquet: decoded in batches, never more than a few megabytes of them at a time."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from surelabel.base.text import damage_named, shown
from surelabel.data._collect import Collector, Table
from surelabel.data._columns import Columns, Request, choose_columns, no_rows, not_a_number
from surelabel.data._limits import check_size
from surelabel.errors import DataError

_CELLS_IN_BATCH = 1 << 18
_BUFFER = 1 << 20
# What a value takes once it is unpacked; of text, which is kept once, its number.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
# What says, beside each value in a list, where its list begins.
_LEVELS = 4
# About what a label in a list takes as one of Python's, beside its text, and how often its text lies in memory.
_IN_LIST, _COPIES = 64, 4
# A data frame's index, which pandas stores beside the columns; it is not a feature.
_INDEX = re.compile(r"__index_level_[0-9]+__")
# What joins the labels of a list until they are parted again; no name may have it, and it is no white space.
_BETWEEN = "\0"


def read_parquet(path: Path, request: Request) -> Table:
    """Return the table in a Parquet file; numbers and booleans become float32, labels and ids strings."""
    import pyarrow as pa

    # Names of columns that are no UTF-8 are met as the schema is read.
    with damage_named(path, "Parquet", pa.ArrowException, UnicodeDecodeError):
        return _read(path, request)


def _read(path: Path, request: Request) -> Table:
    import pyarrow as pa

    with _opened(path) as file:
        fields = [field for field in file.metadata.schema.to_arrow_schema() if not _INDEX.fullmatch(field.name)]
        columns = choose_columns(path, [field.name for field in fields], request)
        if file.metadata.num_rows == 0:
            raise no_rows(path)
        for position in columns.features:
            _check_numeric(path, file, fields[position], droppable=not columns.trained)
        has_lists = _has_label_lists(path, fields, columns, request)
        request = replace(request, separator=_BETWEEN) if has_lists else request
        collector = Collector(path, columns, file.metadata.num_rows, request)
        names = [columns.names[position] for position in columns.used]
        count = len(columns.features)
        for batch in _batches(file, names, has_lists):
            parts = [batch.column(name) for name in names]
            done = count
            if has_lists:
                parts[count] = _joined(path, names[count], parts[count], collector.rows)
                done += 1
            texts = zip(names[done:], parts[done:], strict=True)
            cells = parts[count:done] + [_as_text(path, name, part, collector.rows) for name, part in texts]
            collector.add(pa.RecordBatch.from_arrays(parts[:count] + cells, names=names))
    return collector.table()


def check_metadata(path: Path, metadata: Any) -> None:
    """Refuse a file whose columns take too much memory once they are unpacked."""
    check_size(path, unpacked_size(metadata))


def unpacked_size(metadata: Any) -> int:
    """Return how many bytes all columns of a file take at least, before and after they are decoded."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size, packed = 0, sum(int(group.total_byte_size) for group in groups)
    for position in range(len(metadata.schema)):
        leaf = metadata.schema.column(position)
        width = _WIDTHS.get(leaf.physical_type, leaf.length)
        if leaf.max_repetition_level > 0:
            size += (width + _LEVELS) * sum(group.column(position).num_values for group in groups)
        else:
            size += width * metadata.num_rows
    return max(size, packed)


def text_leaves(metadata: Any) -> list[str]:
    """Return the columns of text, which Arrow can read as the file keeps them, each distinct value once."""
    leaves = [metadata.schema.column(position) for position in range(len(metadata.schema))]
    return [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]


def text_size(cells: Any) -> int:
    """Return how many bytes text takes once its distinct values are written out row by row."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(cells.dictionary).take(cells.indices)).as_py() or 0)


def _batches(file: Any, names: list[str], has_lists: bool) -> Iterator[Any]:
    rows, columns = max(1, _CELLS_IN_BATCH // len(names)), list(dict.fromkeys(names))
    if not has_lists:
        yield from file.iter_batches(rows, columns=columns)
        return
    # Arrow does not read lists of distinct values beyond a group of rows.
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group], columns=columns)


def _opened(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile, read_metadata

    metadata = read_metadata(path)
    check_metadata(path, metadata)
    return ParquetFile(
        path,
        metadata=metadata,
        read_dictionary=text_leaves(metadata),
        # Without pre-buffering, pages are read as they are decoded instead of a row group at once.
        pre_buffer=False,
        buffer_size=_BUFFER,
        page_checksum_verification=True,
    )


def _check_numeric(path: Path, file: Any, field: Any, *, droppable: bool) -> None:
    from pyarrow import types

    kinds = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if types.is_nested(field.type):  # one cell may hold the whole file
        raise not_a_number(path, field.name, 1, str(field.type), droppable=droppable)
    if not any(is_kind(field.type) for is_kind in kinds):
        value = next(file.iter_batches(1, columns=[field.name])).column(0)[0].as_py()
        raise not_a_number(path, field.name, 1, value, droppable=droppable, kind=field.type)


def _has_label_lists(path: Path, fields: list[Any], columns: Columns, request: Request) -> bool:
    """Whether the one label column has a list of labels in each cell."""
    from pyarrow import types

    if len(columns.labels) != 1:
        return False
    kind = fields[columns.labels[0]].type
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    if request.separator is not None:
        raise DataError(f"File '{path}' has lists of labels, which need no separator; leave the separator out.")
    of = kind.value_type.value_type if types.is_dictionary(kind.value_type) else kind.value_type
    # All lists are empty where they are of nulls.
    return any(is_kind(of) for is_kind in (types.is_string, types.is_large_string, types.is_integer, types.is_null))


def _joined(path: Path, name: str, cells: Any, first_row: int) -> Any:
    """Return lists of labels as strings with the separator between them; it alone is the empty list."""
    import pyarrow as pa

    labels = cells.flatten()
    text = text_size(labels) if pa.types.is_dictionary(labels.type) else 0
    check_size(path, _IN_LIST * len(labels) + _COPIES * text)
    _check_text(path, name, labels)
    lists = cells.to_pylist()
    for row, labels in enumerate(lists, first_row + 1):
        names = [] if labels is None else [None if label is None else str(label).strip() for label in labels]
        if not all(names) or len(set(names)) < len(names) or any(_BETWEEN in str(label) for label in names):
            raise DataError(
                f"File '{path}', label column {name!r}, row {row}: {shown(labels)} must name each of its classes once, "
                "without a NUL; correct it (0 and 1 for each class go into a column each)."
            )
    texts = [None if labels is None else _BETWEEN.join(map(str, labels)) or _BETWEEN for labels in lists]
    return pa.array(texts, pa.large_string())


def _check_text(path: Path, name: str, cells: Any) -> None:
    """Refuse text that is not UTF-8, or too large with its distinct values written out row by row."""
    import pyarrow as pa

    if pa.types.is_dictionary(cells.type):
        check_size(path, text_size(cells))
        cells = cells.dictionary
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"File '{path}', column {name!r} holds text that is not UTF-8; write the file again with UTF-8 text."
        ) from error


def _as_text(path: Path, name: str, cells: Any, first_row: int) -> Any:
    """Return label or id cells as strings, null where missing; `first_row` counts from 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(cells.type):
        _check_text(path, name, cells)
        cells = cells.dictionary_decode()
    if pa.types.is_fixed_size_binary(cells.type):
        check_size(path, _COPIES * cells.nbytes)
    if pa.types.is_floating(cells.type):
        cells = pc.if_else(pc.is_nan(cells), pa.scalar(None, cells.type), cells)
    if pa.types.is_boolean(cells.type):
        # As Python and pandas write them, so that a class has one name in every kind of file.
        return pc.if_else(cells, pa.scalar("True", pa.large_string()), pa.scalar("False", pa.large_string()))
    try:
        text = cells.cast(pa.large_string())
    except pa.ArrowException as error:
        raise DataError(
            f"File '{path}', column {name!r} of type {cells.type} cannot hold labels or ids; store it as "
            "text or whole numbers."
        ) from error
    if pa.types.is_floating(cells.type):
        text = pc.if_else(pc.equal(text, "-0"), pa.scalar("0", text.type), text)
    nul = pc.index(pc.match_substring(text, "\0"), True).as_py()
    if nul >= 0:
        raise DataError(
            f"File '{path}', column {name!r}, row {first_row + nul + 1} holds a NUL character, which text does not "
            "have; remove it."
        )
    return text
