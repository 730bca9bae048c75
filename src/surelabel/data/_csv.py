"""CSV and TSV, plain or gzipped, read block by block: the text of a file never lies in memory as a whole."""

import csv
import gzip
import io
import math
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from surelabel.base.text import damage_named, damaged, is_text, shown
from surelabel.data._collect import Batch, Collector, Table
from surelabel.data._columns import Columns, Request, choose_columns, no_rows, not_a_number, not_finite
from surelabel.data._limits import check_size, longest_row, row_too_long
from surelabel.errors import DataError

# Arrow reads 32 blocks ahead; blocks this small keep that to 8 MiB.
_BLOCK = 1 << 18
_LARGEST_BLOCK = (1 << 31) - 3
# About what Arrow takes for a column, however few its rows.
_COLUMN = 10_000
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE)
_BOOLEANS = frozenset({"true", "false", "True", "False", "TRUE", "FALSE"})


@dataclass(frozen=True)
class Survey:
    """What is known of a file before it is parsed: how many records it has, and the bytes of the longest.

    Both are in doubt where a quote stands within a cell or is never closed.
    """

    records: int
    longest: int
    has_nul: bool
    in_doubt: bool


@dataclass(frozen=True)
class _Layout:
    """What the first two records tell of a file."""

    header: list[str]
    first: list[str]
    header_row: int


def read_csv(path: Path, request: Request) -> Table:
    """Return the table in a CSV file; features are parsed as float32, labels and ids as strings."""
    import pyarrow as pa

    with damage_named(path, "gzipped text" if _is_gzip(path) else "text"):
        survey = survey_text(path)
        layout = _read_layout(path)
        check_size(path, len(layout.header) * _COLUMN)
        _check_delimiter(path, layout.header, request)
        columns = choose_columns(path, [name.strip() for name in layout.header], request)
        if not layout.first:
            raise no_rows(path)
        collector = Collector(path, columns, survey.records - 1, request)
        try:
            # A row must fit into a block, with its line end and the mark before all text.
            for batch in _batches(path, columns, layout, max(_BLOCK, survey.longest + 8)):
                collector.add(batch)
        except pa.ArrowException as error:
            raise _explain(path, columns, layout, collector.rows, error) from error
        return collector.table()


def survey_text(path: Path) -> Survey:
    """Count the records of a text file, the header among them; refuse what is too large or holds a NUL.

    Arrow looks for the end of a row in words of eight bytes, and in such a word not behind a NUL.
    """
    survey = _survey_lines(path)
    if survey.has_nul:
        _read_layout(path)  # text in another encoding, such as UTF-16, is named so
        raise _nul_character(path)
    return _survey_records(path, survey) if survey.in_doubt else survey


def _batches(path: Path, columns: Columns, layout: _Layout, block: int) -> Iterator[Batch]:
    import pyarrow as pa
    import pyarrow.csv as pc

    booleans = _boolean_columns(columns, layout)
    types = {str(position): pa.large_string() for position in columns.used}
    types |= {str(position): pa.float32() for position in columns.features}
    types |= {str(position): pa.bool_() for position in booleans}
    with pa.input_stream(str(path), compression="gzip" if _is_gzip(path) else None) as stream:
        yield from pc.open_csv(
            _WholeLineEnds(stream),
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


class _WholeLineEnds(io.RawIOBase):
    r"""Gives Arrow blocks that never part "\r\n": it drops a "\n" that begins a block, also within quotes."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._next = stream, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return at most so many bytes; there is room for one more behind those that are asked for first."""
        block: bytes = self._next + self._stream.read(size - 1 - len(self._next))
        self._next = self._stream.read(1) if block.endswith(b"\r") else b""
        if self._next == b"\n":
            block, self._next = block + self._next, b""
        return block


def _boolean_columns(columns: Columns, layout: _Layout) -> frozenset[int]:
    """Return the features whose first cell is true or false; one cell decides, since none may be empty."""
    return frozenset(
        position
        for position in columns.features
        if position < len(layout.first) and layout.first[position].strip() in _BOOLEANS
    )


def _survey_lines(path: Path) -> Survey:
    """Go over the bytes once, with no more than a block in memory; refuse a file or a row that is too large."""
    size = records = longest = 0
    last_end, before, most = -1, ord("\n"), longest_row(path)
    has_nul = inside = in_doubt = False
    with _binary(path) as stream:
        while chunk := stream.read(_BLOCK):
            data = np.frombuffer(chunk, np.uint8)
            is_end = (data == ord("\n")) | (data == ord("\r"))
            if not in_doubt and (inside or before == ord('"') or b'"' in chunk):
                within, in_doubt = _within_quotes(data, before, inside, _delimiter(path))
                is_end, inside = (is_end, False) if in_doubt else (is_end & ~within, bool(within[-1]))
            ends, before = size + np.flatnonzero(is_end), chunk[-1]
            size += len(chunk)
            check_size(path, size)
            lengths = np.diff(ends, prepend=last_end) - 1
            last_end = int(ends[-1]) if len(ends) else last_end
            longest = max(longest, size - last_end - 1, int(lengths.max(initial=0)))
            if longest > most:
                shorter = lengths[np.logical_and.accumulate(lengths <= most)]
                raise row_too_long(path, records + int((shorter > 0).sum()) + 1)
            records += int((lengths > 0).sum())
            has_nul = has_nul or b"\0" in chunk
    return Survey(records + (size > last_end + 1), longest, has_nul, in_doubt or inside)


def _within_quotes(
    data: npt.NDArray[np.uint8], before: int, inside: bool, delimiter: str
) -> tuple[npt.NDArray[np.bool_], bool]:
    """Return which bytes lie within quotes, and whether that is in doubt, since a quote stands within a cell.

    A quote begins or ends a cell, or is one of two that stand for one.

    Args:
        data: some bytes of a file.
        before: the byte before them.
        inside: whether that lies within quotes.
        delimiter: what stands between cells.
    """
    quotes = data == ord('"')
    within = (np.cumsum(quotes) + inside) % 2 == 1
    in_cells = np.ones(256, dtype=np.bool_)
    in_cells[[ord(mark) for mark in (delimiter, "\n", "\r", '"')]] = False
    text, begins, ends = in_cells[data], quotes & within, quotes & ~within
    at_edge = (begins[0] and in_cells[before]) or (before == ord('"') and not inside and text[0])
    return within, bool(at_edge or (begins[1:] & text[:-1]).any() or (ends[:-1] & text[1:]).any())


def _survey_records(path: Path, survey: Survey) -> Survey:
    """Count the records cell by cell; refuse a quoted cell that is never closed, or goes on after its closing quote.

    The rows up to the next quote, or all that follow, would silently be one cell.
    """
    count, longest, most = 0, 0, longest_row(path)
    # Each byte is one character of latin-1.
    with _records(path, encoding="latin-1", strict=True) as records:
        try:
            for record in filter(None, records):
                count += 1
                longest = max(longest, sum(map(len, record)) + len(record))
                if longest > most:
                    raise row_too_long(path, count)
        except csv.Error as error:
            if "field limit" in str(error):
                raise row_too_long(path, count + 1) from error
            raise DataError(
                f"File '{path}', row {count}: a quoted cell is not closed or goes on after its closing quote, in line "
                f"{records.line_num} ({error}); correct the quotes."
            ) from error
    # A quote within a cell is written twice, and a cell has one before and one behind it.
    return replace(survey, records=count, longest=min(3 * longest, _LARGEST_BLOCK))


def _nul_character(path: Path) -> DataError:
    with _text(path) as stream:
        line = next(number for number, line in enumerate(stream, 1) if "\0" in line)
    return DataError(
        f"File '{path}', line {line} holds a NUL character, which text does not have; remove it, or write the file "
        "again as UTF-8 text."
    )


def _read_layout(path: Path) -> _Layout:
    with _records(path) as records:
        try:
            # Empty lines may come before the header; Arrow counts them among the rows to skip.
            header_row, header = next(((row, record) for row, record in enumerate(records, 1) if record), (0, []))
            first: list[str] = next((record for record in records if record), [])
        except csv.Error as error:
            raise damaged(path, "a table", error) from error
    if not any(name.strip() for name in header):
        raise DataError(f"File '{path}' is empty; write a table with a header and at least one row to it.")
    if not all(map(is_text, header)):
        raise DataError(f"File '{path}': the header is not UTF-8 text; save the file with the encoding UTF-8.")
    return _Layout(header, first, header_row)


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


def _explain(path: Path, columns: Columns, layout: _Layout, read: int, error: Exception) -> DataError:
    """Return the error that names the first faulty row after `read` good ones."""
    booleans = _boolean_columns(columns, layout)
    with _records(path) as records:
        try:
            for row, record in enumerate(filter(None, records)):
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
        if not is_text(record[position]):
            return DataError(
                f"File '{path}', column {columns.names[position]!r}, row {row} is not UTF-8 text; save the "
                "file with the encoding UTF-8."
            )
    missing = pc.ConvertOptions().null_values
    for position in columns.features:
        # Arrow takes spaces away, but no line ends; and it looks for what is missing first.
        cell = record[position].strip(" \t")
        right = cell in _BOOLEANS | {"0", "1"} if position in booleans else _NUMBER.fullmatch(cell)
        if not right and record[position] not in missing:
            place, droppable = (path, columns.names[position], row), not columns.trained
            if not cell:
                return not_finite(*place, math.nan, droppable=droppable)
            return not_a_number(*place, record[position], droppable=droppable)
    return None


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in path.name.lower()[-7:] else ","


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


@contextmanager
def _binary(path: Path) -> Iterator[BinaryIO]:
    """Open a file behind the mark that some programs put before text in UTF-8."""
    with cast(BinaryIO, gzip.open(path)) if _is_gzip(path) else path.open("rb") as stream:
        if stream.read(len(BOM_UTF8)) != BOM_UTF8:
            stream.seek(0)
        yield stream


@contextmanager
def _text(path: Path, encoding: str = "utf-8") -> Iterator[io.TextIOWrapper]:
    with _binary(path) as stream:
        # A byte that is no UTF-8 becomes a lone surrogate, which `is_text` finds.
        yield io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline="")


@contextmanager
def _records(path: Path, *, encoding: str = "utf-8", strict: bool = False) -> Iterator[Any]:
    """Give the cells of each record, none for an empty line; a cell may be as long as a row."""
    before = csv.field_size_limit(longest_row(path))
    try:
        with _text(path, encoding) as stream:
            yield csv.reader(stream, delimiter=_delimiter(path), strict=strict)
    finally:
        csv.field_size_limit(before)
