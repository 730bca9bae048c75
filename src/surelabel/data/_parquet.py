"""Parquet: decoded in batches, never more than a few megabytes of them at a time."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from surelabel.base.text import check_size, damage_named
from surelabel.data._table import (
    BETWEEN_LABELS,
    Request,
    Table,
    build_table,
    choose_columns,
    has_labels,
    no_rows,
    not_a_number,
)
from surelabel.errors import DataError

_CELLS_IN_BATCH = 1 << 18
_BUFFER = 1 << 20
# What a value takes once it is unpacked; of text, which is kept once, its number.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
# What says, beside each value in a list, where its list begins.
_LEVELS = 4
# A data frame's index, which pandas stores beside the columns; it is not a feature.
_INDEX = re.compile(r"__index_level_[0-9]+__")


def read_parquet(path: Path, request: Request) -> Table:
    """Return the table in a Parquet file; numbers and booleans become float32, labels and ids strings."""
    import pyarrow as pa

    # Names of columns and labels in lists that are no UTF-8 are met as they are read.
    with damage_named(path, "Parquet", pa.ArrowException, UnicodeDecodeError), _opened(path) as file:
        fields = [field for field in file.metadata.schema.to_arrow_schema() if not _INDEX.fullmatch(field.name)]
        columns = choose_columns(path, [field.name for field in fields], request)
        if file.metadata.num_rows == 0:
            raise no_rows(path)
        for field in (fields[position] for position in columns.features):
            if pa.types.is_nested(field.type):  # one cell may hold the whole file
                problem = not_a_number(str(field.type), field.name, columns.droppable)
                raise DataError(f"File '{path}', column {field.name!r}, row 1: {problem}")
        marks = request.marks
        if len(columns.labels) == 1 and has_labels(fields[columns.labels[0]].type):
            if marks.separator is not None:
                raise DataError(f"File '{path}' has lists of labels, which need no separator; leave the separator out.")
            marks = replace(marks, separator=BETWEEN_LABELS)
        names = list(columns.named(columns.used))
        size = max(1, _CELLS_IN_BATCH // len(names))
        # Arrow does not read lists of distinct values beyond a group of rows.
        groups = range(file.num_row_groups)
        batches = (batch for group in groups for batch in file.iter_batches(size, row_groups=[group], columns=names))
        rows = ([batch.column(name) for name in names] for batch in batches)
        return build_table(path, columns, marks, file.metadata.num_rows, rows)


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


def _opened(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile, read_metadata

    metadata = read_metadata(path)
    check_size(path, unpacked_size(metadata))
    return ParquetFile(
        path,
        metadata=metadata,
        read_dictionary=text_leaves(metadata),
        # Without pre-buffering, pages are read as they are decoded instead of a row group at once.
        pre_buffer=False,
        buffer_size=_BUFFER,
        page_checksum_verification=True,
    )
