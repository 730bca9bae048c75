"""Tables in files: samples with a few labels and many empty label cells, read without surprises.

A file is CSV or TSV (also gzipped), Parquet, or numpy's .npz and .npy. Every fault is one line that names the
file, the column, the row (counted from 1, without the header) and what to do.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from surelabel.base.references import file_hash
from surelabel.base.system import write_whole
from surelabel.base.text import check_file, damage_named, shown
from surelabel.core.arrays import to_numpy
from surelabel.data._arrow_files import read_csv, read_parquet, text_batches
from surelabel.data._numpy_files import read_npy, read_npz
from surelabel.data._table import Request, Table
from surelabel.data._values import LabelMarks, Unlabeled
from surelabel.data.row_groups import RowGroup
from surelabel.errors import DataError, InvalidInputError

__all__ = ["RowGroup", "Table", "content_hash", "read_cells", "read_labels", "read_table", "write_table"]

_READERS = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz"), read_csv),
    ".parquet": read_parquet,
    ".npz": read_npz,
    ".npy": read_npy,
}
ARRAYS = (".npz", ".npy")
"""Their columns have no names."""
_NEEDS_QUOTES = re.compile(r'[",\r\n]')
# What a spreadsheet takes for the start of a formula, as listed by the Open Worldwide Application Security Project.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")


def read_table(
    path: str | os.PathLike[str],
    *,
    labels: Sequence[str] = (),
    id_column: str | None = None,
    drop: Sequence[str] = (),
    unlabeled: Unlabeled = None,
    features: Sequence[str] | None = None,
    labels_path: str | os.PathLike[str] | None = None,
    separator: str | None = None,
    none: str | None = None,
    labels_if_there: bool = False,
    group: str | None = None,
    words: Sequence[str] | None = None,
    tolerant: bool = False,
    part: RowGroup | None = None,
) -> Table:
    """Return the samples, labels and ids in a file.

    CSV and Parquet are read block by block, so that little more memory is needed than for the table itself.

    Args:
        path: A .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .npz or .npy file.
        labels: One label column, or one column of 0 and 1 for each class (multi-label), where -1 is unknown. An empty
            cell is unlabeled. In a Parquet file one column may hold lists of labels: an empty list is none of the
            classes, a missing one is unlabeled. The array `y` of an .npz file is always read; in it an integer -1 or
            NaN is unlabeled.
        id_column: The column that names each row; default is the row's number from 0.
        drop: Columns that are not features; without effect if `features` is given.
        unlabeled: A label that means unlabeled, like the empty cell, or several.
        features: The columns to read as features, in this order; default is all that have no other role. For
            predictions these are the model's training features, so that a new file may have another order.
        labels_path: An .npy file with the labels of an .npy file.
        separator: The text between several labels in one cell: with "|", "cat|dog" is a cat and a dog and nothing else;
            in "cat|?dog" it is unknown whether there is a dog. The separator alone is none of the classes, an empty
            cell is unlabeled.
        none: A label that means none of the classes, like the separator alone.
        labels_if_there: Whether a file without these label columns is read, without labels.
        group: The column that says which rows belong together, such as those of one patient; it is not a feature.
        words: Features that are read as text, into `Table.words`; with any, even none, numbers may have gaps (NaN).
        tolerant: Whether features that are not numbers are listed in `Table.no_numbers` instead of refused; numbers may
            have gaps (NaN). Arrays from .npz and .npy must always be numbers without gaps.
        part: A row group of an open Parquet file, to be read alone; `path` is then the file's name in errors.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "pets.csv")
    >>> path = write_table(path, {"weight": [4.5, 30.0, 5.0], "pet": ["cat", "dog", None]})
    >>> table = read_table(path, labels=["pet"])
    >>> table.x.tolist(), table.y.tolist(), table.feature_names
    ([[4.5], [30.0], [5.0]], ['cat', 'dog', None], ('weight',))
    """
    for argument, names in (("labels", labels), ("drop", drop), ("features", features)):
        if isinstance(names, str):  # it would be split into letters
            raise InvalidInputError(f"{argument} must be a list of column names; write [{names!r}], not {names!r}.")
    path = Path(path)
    if features is not None and not features and path.suffix.lower() not in ARRAYS:
        raise DataError(f"File '{path}' was to be read with no feature columns; name at least one feature.")
    marks = LabelMarks(unlabeled, separator, none)
    marks.check(labels)
    used = None if features is None else tuple(features)
    labels_path = None if labels_path is None else Path(labels_path)
    text = None if words is None else tuple(words)
    request = Request(
        tuple(labels), id_column, tuple(drop), used, marks, labels_if_there, labels_path, group, text, tolerant, part
    )
    return _read(path, request)


def read_labels(path: Path, labels: Sequence[str], marks: LabelMarks, files: str, group: str | None = None) -> Table:
    """Return the labels of files that a table names: its `ids` are the names, `x` has no columns.

    Args:
        path: A .csv, .csv.gz, .tsv, .tsv.gz or .parquet file.
        labels: One label column, or one column of 0 and 1 for each class.
        marks: How label cells are read.
        files: The column that names the files.
        group: The column that says which files belong together.
    """
    marks.check(labels)
    if path.suffix.lower() in ARRAYS:
        raise DataError(f"File '{path}' must be a table with the columns {files!r} and {labels[0]!r}; write a .csv.")
    return _read(path, Request(tuple(labels), files, (), (), marks, False, None, group))


def read_cells(
    path: Path, columns: Sequence[str], ids: Iterable[object], id_column: str | None = None
) -> dict[str, list[str | None]]:
    """Return a file's cells in some columns for the rows with these ids, by id, for people to look at.

    The file is read block by block: little more than these rows is in memory.

    Args:
        path: A .csv, .csv.gz, .tsv, .tsv.gz or .parquet file that `read_table` has read.
        columns: Their names.
        ids: As `Table.ids` has them.
        id_column: The column that names each row; None: ids are row numbers from 0.

    >>> import tempfile
    >>> path = write_table(Path(tempfile.mkdtemp(), "pets.csv"), {"weight": [4.5, None], "pet": ["cat", "dog"]})
    >>> read_cells(path, ["pet", "weight"], [1])
    {'1': ['dog', None]}
    """
    wanted, found, first = {str(name) for name in ids}, dict[str, list[str | None]](), 0
    names = [*columns, *([] if id_column is None else [id_column])]
    for batch in text_batches(path, names):
        rows = range(first, first + len(batch[0]))
        named = map(str, rows) if id_column is None else batch[-1].to_pylist()
        for row, name in enumerate(named):
            if name in wanted:
                found[name] = [cells[row].as_py() or None for cells in batch[: len(columns)]]
        first = rows.stop
    return found


def _read(path: Path, request: Request) -> Table:
    if request.part is None:
        check_file(path)
    read = next((read for ending, read in _READERS.items() if path.name.lower().endswith(ending)), None)
    if read is None:
        raise DataError(f"File '{path}' has an ending that is not known; use one of {', '.join(_READERS)}.")
    if request.labels_path is not None and read is not read_npy:
        problem = f"'{path}' is no .npy file, and has its labels itself"
        raise InvalidInputError(f"{problem}; leave out the other file of labels (labels_path, --labels-file).")
    if request.group is not None and path.suffix.lower() in ARRAYS:
        raise InvalidInputError(f"'group' is for tables with named columns, not for '{path}'; leave it out.")
    return read(path, request)


def content_hash(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal, without holding the file in memory.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "abc")
    >>> _ = path.write_bytes(b"abc")
    >>> content_hash(path)[:16]
    'ba7816bf8f01cfea'
    """
    path = Path(path)
    check_file(path)
    with damage_named(path, "a file"):
        return file_hash(path)


def write_table(
    path: str | os.PathLike[str], columns: Mapping[str, Any], *, overwrite: bool = False, excel_safe: bool = False
) -> Path:
    r"""Write columns of equal length to a .csv or .parquet file, whole or not at all, and return its path.

    The file is written under a temporary name in the same folder, flushed to the disk and renamed. None is an
    empty cell.

    Args:
        path: The file to write.
        columns: Name and values (N,) of each column.
        overwrite: Whether a file of that name may be replaced.
        excel_safe: Whether text in a .csv file that a spreadsheet would take as a formula, such as "=A1" or "-x", gets
            an apostrophe before it, in cells and names of columns; numbers stay as they are.

    >>> import tempfile
    >>> path = write_table(Path(tempfile.mkdtemp(), "labels.csv"), {"id": [7, 8], "label": ["cat", None]})
    >>> path.read_text()
    'id,label\n7,cat\n8,\n'
    """
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"File '{path}' cannot be written; end its name in .csv or .parquet.")
    if not path.parent.is_dir():
        raise DataError(f"The folder '{path.parent}' does not exist; make it first.")
    if path.exists() and not overwrite:
        raise DataError(f"File '{path}' exists and is kept; choose another name or ask for it to be overwritten.")
    table = _arrow_table(columns)
    write_whole(path, lambda stream: _write(table, stream, path.suffix.lower(), excel_safe))
    return path


def _arrow_table(columns: Mapping[str, Any]) -> Any:
    import pyarrow as pa

    arrays = {str(name): _arrow_column(str(name), values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        described = ", ".join(f"{length} in {name!r}" for name, length in list(lengths.items())[:8])
        raise InvalidInputError(
            f"columns must be at least one, with as many values in each; got {described or 'none'}."
        )
    return pa.table(arrays)


def _arrow_column(name: str, values: Any) -> Any:
    import pyarrow as pa

    try:
        name.encode()  # a lone surrogate, in a name or a value, cannot be written
        column = pa.array(to_numpy(values) if hasattr(values, "detach") else values)
        if pa.types.is_nested(column.type):
            raise pa.ArrowTypeError(str(column.type))
    except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
        problem = (
            f"column {name!r} must have values of one kind, shape (N,); got {shown(error, quote=False, limit=120)}"
        )
        raise InvalidInputError(f"{problem}. Make it several columns or convert it.") from error
    return column


def _write(table: Any, stream: BinaryIO, ending: str, excel_safe: bool) -> None:
    if ending == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, stream)
        return
    # Arrow writes the shortest text that gives the same number again, also for float32.
    columns = [_text_cells(column, excel_safe) for column in table.columns]
    stream.write(_csv_line([_no_formula(name) if excel_safe else name for name in table.column_names]))
    stream.writelines(map(_csv_line, zip(*columns, strict=True)))


def _text_cells(column: Any, excel_safe: bool) -> list[str | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    is_boolean = pa.types.is_boolean(column.type)
    cells = pc.if_else(column, "True", "False") if is_boolean else column.cast(pa.large_string())
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return [_no_formula(cell) if excel_safe and is_text else cell for cell in cells.to_pylist()]


def _no_formula(cell: str | None) -> str | None:
    return f"'{cell}" if cell and cell.startswith(_FORMULA) else cell


def _csv_line(cells: Sequence[str | None]) -> bytes:
    # The csv module of Python 3.11 does not quote a lone carriage return, which would end the row.
    texts = [cell or "" for cell in cells]
    quoted = ['"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text for text in texts]
    # A row of one empty cell would be an empty line, which readers skip.
    return (",".join(quoted) or '""').encode() + b"\n"
