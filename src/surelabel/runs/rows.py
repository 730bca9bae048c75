"""CSV files with a fixed header, to which rows are appended, all of them or none."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from surelabel.base.processes import locked
from surelabel.errors import InvalidInputError
from surelabel.runs.files import make_folder, read_file, write_file


@contextmanager
def alone(path: Path, seconds: float = 60.0) -> Iterator[None]:
    """Hold a file and its folder against other processes that use this lock; wait for the current holder.

    Args:
        path: a file to which rows are appended; its folder is made, and the hidden lock file stays there.
        seconds: how long to wait; an append takes milliseconds.
    """
    make_folder(path.parent)
    with locked(path.with_name(f".{path.name}.lock"), seconds):
        yield


def append(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows; a missing file is made. Columns that a row leaves out stay empty.

    If several processes may append, each does it `alone`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.csv"
        >>> append(path, ["what", "ratio"], [{"what": "select"}])
        >>> path.read_text().splitlines()
        ['what,ratio', 'select,']
    """
    before = content(path, columns)
    text = io.StringIO(newline="")
    # A column that is not in the file is a bug of ours: DictWriter raises.
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    if not before:
        writer.writeheader()
    writer.writerows(rows)
    # A last line without a line end would swallow the first new row.
    gap = "" if not before or before.endswith("\n") else "\n"
    make_folder(path.parent)
    write_file(path, (before + gap + text.getvalue()).encode())


def content(path: Path, columns: Sequence[str]) -> str:
    """Return the text of a file, "" when there is none; refuse another header."""
    if not path.exists():
        return ""
    remedy = "Move it away, or append to another file."
    try:
        text = read_file(path, remedy=remedy).decode()
        header, *_ = [*csv.reader(io.StringIO(text, newline="")), []]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"File '{path}' is not a CSV file of results ({error}). {remedy}") from error
    if text and header != list(columns):
        names = f"must have the columns {', '.join(columns)}. Got {', '.join(header)} instead"
        raise InvalidInputError(f"File '{path}' {names}. {remedy}")
    return text
