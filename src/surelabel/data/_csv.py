"""CSV and TSV, plain or gzipped, read block by block: the text of a file never lies in memory as a whole."""

import csv
import gzip
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from surelabel.data._collect import Batch, Collector, Table
from surelabel.data._columns import Columns, Request, choose_columns, no_rows, not_a_number
from surelabel.data.wording import damage_named, damaged, shown
from surelabel.errors import DataError

# Arrow reads 32 blocks ahead; blocks this small keep that to 8 MiB.
_BLOCK = 1 << 18
_LARGEST_BLOCK = 1 << 30
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE)
_BOOLEANS = frozenset({"true", "false", "True", "False", "TRUE", "FALSE"})


@dataclass(frozen=True)
class _Layout:
    """What the first two records tell of a file."""

    header: list[str]
    first: list[str]
    header_row: int
    record_bytes: int


def read_csv(path: Path, request: Request) -> Table:
    """Return the table in a CSV file; features are parsed as float32, labels and ids as strings."""
    import pyarrow as pa

    with damage_named(path, "gzipped text" if _is_gzip(path) else "text"):
        layout = _read_layout(path)
        _check_delimiter(path, layout.header, request)
        columns = choose_columns(path, [name.strip() for name in layout.header], request)
        if not layout.first:
            raise no_rows(path)
        row_limit = _row_limit(path, columns)
        block = max(_BLOCK, 4 * layout.record_bytes)
        while True:
            collector = Collector(path, columns, row_limit, request)
            try:
                for batch in _batches(path, columns, layout, block):
                    collector.add(batch)
                return collector.table()
            except pa.ArrowException as error:
                # A row must fit into a block; "straddling" is Arrow's word for one that does not.
                if "straddling" not in str(error) or block >= _LARGEST_BLOCK:
                    raise _explain(path, columns, layout, collector.rows, error) from error
            block = min(16 * block, _LARGEST_BLOCK)


def _batches(path: Path, columns: Columns, layout: _Layout, block: int) -> Iterator[Batch]:
    import pyarrow as pa
    import pyarrow.csv as pc

    booleans = _boolean_columns(columns, layout)
    types = {str(position): pa.large_string() for position in columns.used}
    types |= {str(position): pa.float32() for position in columns.features}
    types |= {str(position): pa.bool_() for position in booleans}
    with pa.input_stream(str(path), compression="gzip" if _is_gzip(path) else None) as stream:
        yield from pc.open_csv(
            stream,
            # Columns go by position, since any text may stand in a header.
            # One thread, so that the memory does not grow with the number of cores.
            read_options=pc.ReadOptions(
                block_size=block,
                use_threads=False,
                column_names=[str(position) for position in range(len(columns.names))],
                skip_rows_after_names=layout.header_row,
            ),
            parse_options=pc.ParseOptions(delimiter=_delimiter(path), newlines_in_values=True),
            convert_options=pc.ConvertOptions(
                column_types=types, include_columns=[str(position) for position in columns.used]
            ),
        )


def _boolean_columns(columns: Columns, layout: _Layout) -> frozenset[int]:
    """Return the features whose first cell is true or false; one cell decides, since none may be empty."""
    return frozenset(
        position
        for position in columns.features
        if position < len(layout.first) and layout.first[position].strip() in _BOOLEANS
    )


def _read_layout(path: Path) -> _Layout:
    with _text(path) as stream:
        records = csv.reader(stream, delimiter=_delimiter(path))
        try:
            # Empty lines may come before the header; Arrow counts them among the rows to skip.
            header_row, header = next(((row, record) for row, record in enumerate(records, 1) if record), (0, []))
            first = next((record for record in records if record), [])
        except csv.Error as error:
            raise damaged(path, "a table", error) from error
    if not any(name.strip() for name in header):
        raise DataError(f"File '{path}' is empty; write a table with a header and at least one row to it.")
    if any(_is_not_utf8(name) for name in header):
        raise DataError(f"File '{path}': the header is not UTF-8 text; save the file with the encoding UTF-8.")
    length = max(sum(len(cell) + 3 for cell in record) for record in (header, first))
    return _Layout(header, first, header_row, length)


def _check_delimiter(path: Path, header: list[str], request: Request) -> None:
    """Refuse a header of one cell that holds another delimiter, and is no column that was asked for."""
    asked = {*request.labels, *(request.features or ()), *request.drop, request.id_column}
    expected = _delimiter(path)
    found = next((mark for mark in ",;\t|" if mark in header[0] and mark != expected), None)
    if len(header) == 1 and found is not None and header[0].strip() not in asked:
        ending = ", or end its name in .tsv" if found == "\t" else ""
        raise DataError(
            f"File '{path}' has {found!r} between its cells, not {expected!r}: {shown(header[0])} is its header; write "
            f"it with {expected!r}, and numbers with a decimal point{ending}."
        )


def _row_limit(path: Path, columns: Columns) -> int:
    """Return a number of rows that the file does not exceed, from one fast sweep over its bytes."""
    size = newlines = returns = quotes = 0
    with _binary(path) as stream:
        while chunk := stream.read(_BLOCK):
            size += len(chunk)
            newlines += chunk.count(b"\n")
            returns += chunk.count(b"\r")
            quotes += chunk.count(b'"')
    if quotes % 2:
        _check_quotes(path)
    # A row has a separator or line end for each column, and no feature cell may be empty.
    return min(newlines or returns, size // (len(columns.names) + len(columns.features))) + 1


def _check_quotes(path: Path) -> None:
    """Refuse a quote that is never closed: the rest of the file would silently be one cell."""
    with _text(path) as stream:
        records = csv.reader(stream, delimiter=_delimiter(path), strict=True)
        row = -1
        try:
            for row, _ in enumerate(filter(None, records)):  # noqa: B007
                pass
        except csv.Error as error:
            raise DataError(
                f"File '{path}', row {row + 1}: a quoted cell is not closed or goes on after its closing "
                f"quote ({error}); correct the quotes."
            ) from error


def _explain(path: Path, columns: Columns, layout: _Layout, read: int, error: Exception) -> DataError:
    """Return the error that names the first faulty row after `read` good ones."""
    booleans = _boolean_columns(columns, layout)
    with _text(path) as stream:
        records = filter(None, csv.reader(stream, delimiter=_delimiter(path)))
        try:
            for row, record in enumerate(records):
                if row > read:
                    problem = _fault(path, columns, booleans, row, record)
                    if problem is not None:
                        return problem
        except csv.Error as fault:
            return damaged(path, "a table", fault)
    return damaged(path, "a table", error)


def _fault(path: Path, columns: Columns, booleans: frozenset[int], row: int, record: list[str]) -> DataError | None:
    import pyarrow.csv as pc

    if len(record) != len(columns.names):
        return DataError(
            f"File '{path}', row {row} has {len(record)} cells where the header has {len(columns.names)}; "
            f"correct the row (a cell with {_delimiter(path)!r} in it must be quoted). It starts "
            f"{shown(record[0])}."
        )
    for position in columns.used:
        if _is_not_utf8(record[position]):
            return DataError(
                f"File '{path}', column {columns.names[position]!r}, row {row} is not UTF-8 text; save the "
                "file with the encoding UTF-8."
            )
    missing = pc.ConvertOptions().null_values
    for position in columns.features:
        cell = record[position].strip()
        right = cell in _BOOLEANS | {"0", "1"} if position in booleans else _NUMBER.fullmatch(cell)
        if not right and cell not in missing:
            place = (path, columns.names[position], row)
            return not_a_number(*place, record[position], droppable=not columns.trained)
    return None


def _is_not_utf8(text: str) -> bool:
    # The text was read with surrogateescape, which keeps a byte that is not UTF-8 as a lone surrogate.
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in path.name.lower()[-7:] else ","


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


@contextmanager
def _binary(path: Path) -> Iterator[BinaryIO]:
    if _is_gzip(path):
        with gzip.open(path, "rb") as packed:
            yield cast(BinaryIO, packed)
    else:
        with path.open("rb") as plain:
            yield plain


@contextmanager
def _text(path: Path) -> Iterator[io.TextIOWrapper]:
    with _binary(path) as stream:
        yield io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
