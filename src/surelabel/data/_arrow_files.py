"""CSV, TSV (also gzipped) and Parquet, which Arrow reads block by block; no file is held in memory as a whole.

Python's csv module reads text files first. It counts the rows and finds errors in lines and quotes, so that the count
of Arrow, which is faster but less strict, can be checked.
"""

import csv
import gzip
import io
import re
import warnings
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from surelabel.base.text import MAX_BYTES, check_size, damage_named, most_bytes, shown
from surelabel.data._table import Columns, Request, Table, build_table, choose_columns, no_rows
from surelabel.data._values import (
    BETWEEN_LABELS,
    Cells,
    Place,
    holds_labels,
    is_words,
    no_number,
    words_in,
    written_size,
)
from surelabel.errors import DataError

# Arrow reads 32 blocks ahead; blocks this small keep that to 8 MiB.
_BLOCK = 1 << 18
# About what Arrow takes for a column, even with few rows.
_COLUMN = 10_000
# Arrow counts the bytes of a block, which holds at least one row, in 32 bits.
_LARGEST_ROW = 1 << 30
_CELLS_IN_BATCH = 1 << 18
_BUFFER = 1 << 20
# Bytes of an unpacked value; for text, which is kept once, those of its index.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
# Bytes beside each value in a list that say where its list begins.
_LEVELS = 4
# A data frame's index, which pandas stores like a column; it is not a feature.
_INDEX = re.compile(r"__index_level_[0-9]+__")


@dataclass(frozen=True)
class Survey:
    """What is known about a file before it is parsed: its header, that record's number, and the rows after it."""

    header: list[str]
    header_record: int
    rows: int
    longest: int
    """The bytes of the longest record."""
    blank: int
    """Rows whose cells are all empty, as at the end of a spreadsheet."""


def read_csv(path: Path, request: Request) -> Table:
    """Return the table in a CSV file; features are parsed as float32, labels and ids as strings."""
    import pyarrow as pa

    with damage_named(path, "gzipped text" if _is_gzip(path) else "text", pa.ArrowException):
        asked = (*request.labels, *(request.features or ()), *request.drop, request.id_column or "")
        survey = survey_text(path, asked)
        check_size(path, len(survey.header) * _COLUMN)
        columns = choose_columns(path, survey.header, request)
        if not survey.rows:
            raise no_rows(path)
        table = build_table(path, columns, request.marks, survey.rows, _batches(path, columns, survey))
    if survey.blank and request.features is None:
        found = f"File '{path}' has {survey.blank:,} rows without any value"
        warnings.warn(f"{found}; they count as unlabeled samples: remove them.", stacklevel=3)
    return table


def _no_number(place: Place, kind: Any, droppable: bool) -> DataError:
    return place.problem(0, f"its type {kind} is {no_number(place, droppable)}")


def read_parquet(path: Path, request: Request) -> Table:
    """Return the table in a Parquet file; numbers and booleans become float32, labels and ids strings."""
    import pyarrow as pa
    from pyarrow import types

    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    words = (is_words, types.is_date, types.is_timestamp)
    # Names of columns and labels in lists that are not UTF-8 are found when they are read.
    with damage_named(path, "Parquet", pa.ArrowException, UnicodeDecodeError), _file(path, request) as file:
        fields = [field for field in file.metadata.schema.to_arrow_schema() if not _INDEX.fullmatch(field.name)]
        columns = choose_columns(path, [field.name for field in fields], request)
        if file.metadata.num_rows == 0:
            raise no_rows(path)
        # Text may be numbers, as in a CSV file.
        tried = (*numbers, is_words) if columns.gaps else numbers
        no_numbers = {
            position: _no_number(Place(path, fields[position].name), fields[position].type, columns.droppable)
            for position in columns.features
            if not any(is_kind(fields[position].type) for is_kind in tried)
        }
        for position in (*no_numbers, *columns.words):
            kind = fields[position].type
            if not columns.gaps or not any(is_kind(kind) for is_kind in words + numbers):
                raise _no_number(Place(path, fields[position].name), kind, columns.droppable)
        if no_numbers and not columns.tolerant:
            raise next(iter(no_numbers.values()))
        columns = replace(columns, features=tuple(p for p in columns.features if p not in no_numbers))
        marks = request.marks
        if len(columns.labels) == 1 and holds_labels(fields[columns.labels[0]].type):
            if marks.separator is not None:
                raise DataError(f"File '{path}' has lists of labels, which need no separator; leave the separator out.")
            marks = replace(marks, separator=BETWEEN_LABELS)
        names = list(columns.named(columns.used))
        size = max(1, _CELLS_IN_BATCH // len(names))
        # Arrow does not read lists of distinct values beyond a group of rows.
        groups = range(file.num_row_groups) if request.part is None else [request.part.number]
        num_rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        batches = (batch for group in groups for batch in file.iter_batches(size, row_groups=[group], columns=names))
        rows = ([batch.column(name) for name in names] for batch in batches)
        table = build_table(path, columns, marks, num_rows, rows, request.part)
        found = {fields[position].name: error for position, error in no_numbers.items()}
        return replace(table, no_numbers={**found, **table.no_numbers})


def text_batches(path: Path, names: Sequence[str]) -> Iterator[Sequence[Cells]]:
    """Yield columns of a CSV or Parquet file as text, some rows at a time, null where missing."""
    import pyarrow as pa

    places = [Place(path, name) for name in names]
    if path.suffix.lower() == ".parquet":
        with damage_named(path, "Parquet", pa.ArrowException), _opened(path) as file:
            size = max(1, _CELLS_IN_BATCH // len(names))
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(size, row_groups=[group], columns=list(names)):
                    yield [words_in(place, batch.column(place.column)) for place in places]
        return
    with damage_named(path, "text", pa.ArrowException):
        survey = survey_text(path, names)
        positions = tuple(survey.header.index(name) for name in names)
        yield from _batches(path, Columns(tuple(survey.header), (), (), None, False, words=positions), survey)


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield all cells of each row of a Parquet file, by the names of the columns."""
    import pyarrow as pa

    size = 0
    with damage_named(path, "Parquet", pa.ArrowException, UnicodeDecodeError), _opened(path) as file:
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(row_groups=[group]):
                size += sum(map(written_size, batch.columns))
                check_size(path, size)
                yield from batch.to_pylist()


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
    """Return the columns of text, which Arrow can read as they are stored, each distinct value once."""
    leaves = [metadata.schema.column(position) for position in range(len(metadata.schema))]
    return [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]


def survey_text(path: Path, asked: Collection[str] = ()) -> Survey:
    """Read a text file once; refuse it if it is too large, holds a NUL, or has wrong quotes or ragged rows.

    Args:
        path: The file.
        asked: Names of columns; a header equal to one of them is not taken for several names with another delimiter.
    """
    rows, blank, ragged = 0, 0, None
    with _lines(path) as lines:
        records = csv.reader(lines, delimiter=_delimiter(path), strict=True)
        try:
            # Empty lines may come before the header; Arrow counts them among the rows to skip.
            header_record, cells = next(((place, cells) for place, cells in enumerate(records, 1) if cells), (0, []))
            header = _checked_header(path, cells, asked)
            for record in records:
                lines.records += 1
                rows += bool(record)
                blank += bool(record) and not any(record)
                if record and len(record) != len(header):
                    ragged = ragged or (rows, record)
        except csv.Error as error:
            where = (
                f"row {rows + 1}: a quoted cell is not closed or goes on after its quote, in line {records.line_num}"
            )
            raise DataError(f"File '{path}', {where} ({error}); correct the quotes.") from error
    if ragged is not None:  # reported at the end, when it is known that a compressed file is complete
        row, record = ragged
        problem = f"has {len(record)} cells where the header has {len(header)}, and starts {shown(record[0])}"
        raise DataError(f"File '{path}', row {row} {problem}; correct it, and quote cells with {_delimiter(path)!r}.")
    return Survey(header, header_record, rows, lines.longest, blank)


def _batches(path: Path, columns: Columns, survey: Survey) -> Iterator[Sequence[Cells]]:
    import pyarrow as pa
    import pyarrow.csv as pc

    # Columns are matched by position, since a header may hold any text.
    names = [str(position) for position in range(len(columns.names))]
    used = [names[position] for position in columns.used]
    with pa.input_stream(str(path), compression="gzip" if _is_gzip(path) else None) as stream:
        batches = pc.open_csv(
            _WholeLineEnds(stream),
            # A row must fit into a block, with its line end and the byte-order mark. One thread, so that the memory
            # does not grow with the number of cores.
            read_options=pc.ReadOptions(
                block_size=max(_BLOCK, survey.longest + 8),
                use_threads=False,
                column_names=names,
                skip_rows_after_names=survey.header_record,
            ),
            parse_options=pc.ParseOptions(delimiter=_delimiter(path), newlines_in_values=True),
            # Text that is not UTF-8 is found later, when its row is known.
            convert_options=pc.ConvertOptions(
                check_utf8=False, include_columns=used, column_types=dict.fromkeys(used, pa.large_string())
            ),
        )
        for batch in batches:
            yield batch.columns


class _WholeLineEnds(io.RawIOBase):
    r"""Gives Arrow blocks that never split "\r\n": Arrow drops a "\n" at the start of a block, even within quotes."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._next = stream, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return at most this many bytes; one less is read at first, to leave room for a line feed."""
        block: bytes = self._next + self._stream.read(size - 1 - len(self._next))
        self._next = self._stream.read(1) if block.endswith(b"\r") else b""
        if self._next == b"\n":
            block, self._next = block + self._next, b""
        return block


class _Lines:
    """The lines of a text file, one character a byte; refuses a NUL, and a file or record that is too large.

    Attributes:
        records: how many were made from the lines so far; the code that makes them counts.
        longest: the bytes of the longest record.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        packed = path.stat().st_size
        self.records = self.longest = 0
        self._path, self._stream, self._most = path, stream, most_bytes(packed)
        # A row takes many times its length in memory.
        self._most_in_record = min(max(self._most // 256, packed), _LARGEST_ROW)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._blocks())

    def _blocks(self) -> Iterator[list[str]]:
        size = number = within = records = largest = 0
        rest = ""
        # A long line is read in ever larger blocks, so that it is not copied for each small one.
        while block := self._stream.read(max(_BLOCK, len(rest))):
            size += len(block)
            if size > self._most:
                check_size(self._path, size)
            lines = list(io.StringIO(rest + block.decode("latin-1"), newline=""))
            # Arrow looks for the end of a row in words of eight bytes, but not after a NUL within a word.
            if b"\0" in block:
                number += next(place for place, line in enumerate(lines, 1) if "\0" in line)
                raise DataError(f"File '{self._path}', line {number} holds a NUL character; save it as UTF-8 text.")
            # The last line may continue, and so may its line end.
            rest = lines.pop()
            number += len(lines)
            yield lines
            # A record may span blocks in which no record ends, plus the block before and the one after.
            within = within + len(block) if self.records == records else 0
            records, largest = self.records, max(largest, len(block))
            self.longest = max(self.longest, within + 2 * largest)
            if within > self._most_in_record:
                where = f"line {number + 1} is longer than {self._most_in_record:,} bytes"
                remedy = f"if no line end or quote is missing, set {MAX_BYTES} to 256 times its length, 2^30 at most"
                raise DataError(f"File '{self._path}', {where}; {remedy}.")
        yield [rest] if rest else []


def _file(path: Path, request: Request) -> AbstractContextManager[Any]:
    """Open a Parquet file; the file of a part is open already, and stays open."""
    return cast(AbstractContextManager[Any], _opened(path)) if request.part is None else nullcontext(request.part.file)


def _opened(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile, read_metadata

    metadata = read_metadata(path)
    check_size(path, unpacked_size(metadata))
    return ParquetFile(
        path,
        metadata=metadata,
        read_dictionary=text_leaves(metadata),
        # Without pre-buffering, pages are read as they are decoded, instead of a whole row group at once.
        pre_buffer=False,
        buffer_size=_BUFFER,
        page_checksum_verification=True,
    )


def open_row_groups(path: Path, source: Any) -> Any:
    """Return an open Parquet file whose groups of rows are read one by one.

    Args:
        path: what errors call it.
        source: a stream with random access; only the bytes of the needed columns of a group are read.
    """
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile, read_metadata

    with damage_named(path, "Parquet", ArrowException):
        metadata = read_metadata(source)
        return ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=text_leaves(metadata),
            # The columns of a group in few large reads: an object store answers each one slowly.
            pre_buffer=True,
            page_checksum_verification=True,
        )


@contextmanager
def _lines(path: Path) -> Iterator[_Lines]:
    """Open a file after the byte-order mark that some programs put before UTF-8 text."""
    before = csv.field_size_limit(_LARGEST_ROW)
    try:
        with cast(BinaryIO, gzip.open(path)) if _is_gzip(path) else path.open("rb") as stream:
            if stream.read(len(BOM_UTF8)) != BOM_UTF8:
                stream.seek(0)
            yield _Lines(path, stream)
    finally:
        csv.field_size_limit(before)


def _checked_header(path: Path, cells: list[str], asked: Collection[str]) -> list[str]:
    """Return the names in a header; refuse one cell with another delimiter in it, unless its name was asked for."""
    try:
        header = [cell.encode("latin-1").decode().strip() for cell in cells]
    except UnicodeDecodeError as error:
        raise DataError(f"File '{path}': the header is not UTF-8 text; save the file as UTF-8.") from error
    if not any(header):
        raise DataError(f"File '{path}' is empty; write a table with a header and at least one row to it.")
    expected = _delimiter(path)
    found = next((mark for mark in ",;\t|" if mark in header[0] and mark != expected), None)
    if len(header) == 1 and found is not None and header[0] not in asked:
        ending = ", or end its name in .tsv" if found == "\t" else ""
        remedy = f"write it with {expected!r}, and numbers with a decimal point{ending}"
        problem = f"{found!r} between its cells, not {expected!r}, in the header {shown(header[0])}"
        raise DataError(f"File '{path}' has {problem}; {remedy}.")
    return header


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in path.name.lower()[-7:] else ","


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")
