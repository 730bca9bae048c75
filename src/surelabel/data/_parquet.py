"""Parquet: decoded in batches, never more than a few megabytes of them at a time."""

import re
import shlex
from pathlib import Path
from typing import Any

from surelabel.data._collect import Collector, Table
from surelabel.data._columns import Request, choose_columns, no_rows
from surelabel.data.wording import damage_named, damaged, shown
from surelabel.errors import DataError

_CELLS_IN_BATCH = 1 << 18
_BUFFER = 1 << 20
# A data frame's index, which pandas stores beside the columns; it is not a feature.
_INDEX = re.compile(r"__index_level_[0-9]+__")


def read_parquet(path: Path, request: Request) -> Table:
    """Return the table in a Parquet file; numbers and booleans become float32, labels and ids strings."""
    import pyarrow as pa

    try:
        with damage_named(path, "Parquet"):
            return _read(path, request)
    except pa.ArrowException as error:
        raise damaged(path, "Parquet", error) from error


def _read(path: Path, request: Request) -> Table:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    # Without pre-buffering, pages are read as they are decoded instead of a row group at once.
    with ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER) as file:
        fields = [field for field in file.schema_arrow if not _INDEX.fullmatch(field.name)]
        columns = choose_columns(path, [field.name for field in fields], request)
        if file.metadata.num_rows == 0:
            raise no_rows(path)
        for position in columns.features:
            _check_numeric(path, file, fields[position])
        collector = Collector(path, columns, file.metadata.num_rows, request)
        names = [columns.names[position] for position in columns.used]
        for batch in file.iter_batches(max(1, _CELLS_IN_BATCH // len(names)), columns=list(dict.fromkeys(names))):
            count = len(columns.features)
            parts = [batch.column(name) for name in names]
            cells = [_as_text(path, name, cell) for name, cell in zip(names[count:], parts[count:], strict=True)]
            collector.add(pa.RecordBatch.from_arrays(parts[:count] + cells, names=names))
    return collector.table()


def _check_numeric(path: Path, file: Any, field: Any) -> None:
    from pyarrow import types

    kinds = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if not any(is_kind(field.type) for is_kind in kinds):
        value = next(file.iter_batches(1, columns=[field.name])).column(0)[0].as_py()
        raise DataError(
            f"File '{path}', column {field.name!r}, row 1: {shown(value)} is not a number (its type is "
            f"{field.type}); drop the column with --drop {shlex.quote(field.name)} or encode it as numbers."
        )


def _as_text(path: Path, name: str, cells: Any) -> Any:
    """Return label or id cells as strings, null where missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_floating(cells.type):
        cells = pc.if_else(pc.is_nan(cells), pa.scalar(None, cells.type), cells)
    if pa.types.is_boolean(cells.type):
        # As Python and pandas write them, so that a class has one name in every kind of file.
        return pc.if_else(cells, pa.scalar("True", pa.large_string()), pa.scalar("False", pa.large_string()))
    try:
        return cells.cast(pa.large_string())
    except pa.ArrowException as error:
        raise DataError(
            f"File '{path}', column {name!r} of type {cells.type} cannot hold labels or ids; store it as "
            "text or whole numbers."
        ) from error
