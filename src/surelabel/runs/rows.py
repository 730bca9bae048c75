"""CSV files that rows are appended to, all of them or none, under a header that never changes."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surelabel.errors import InvalidInputError
from surelabel.runs.files import make_folder, write_file


def append(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows; a missing file is made. Columns that a row leaves out stay empty. One process at a time may append.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.csv"
        >>> append(path, ["what", "ratio"], [{"what": "select"}])
        >>> path.read_text().splitlines()
        ['what,ratio', 'select,']
    """
    before = content(path, columns)
    text = io.StringIO(newline="")
    # A column that is not in the file is an error of ours: DictWriter raises.
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    if not before:
        writer.writeheader()
    writer.writerows(rows)
    # A last line without an end would swallow the first new row.
    gap = "" if not before or before.endswith("\n") else "\n"
    make_folder(path.parent)
    write_file(path, (before + gap + text.getvalue()).encode())


def content(path: Path, columns: Sequence[str]) -> str:
    """Return the text of a file, "" when there is none; refuse another header."""
    if not path.exists():
        return ""
    text = path.read_bytes().decode()
    header = next(csv.reader(io.StringIO(text, newline="")), [])
    if text and header != list(columns):
        raise InvalidInputError(
            f"File '{path}' must have the columns {', '.join(columns)}. Got {', '.join(header)} instead; "
            "move it away, or append to another file."
        )
    return text
