"""Numbers that documents quote: rows of a CSV file in `results/`."""

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from surelabel.errors import InvalidInputError
from surelabel.runs.rows import append, content

COLUMNS = (
    "experiment",
    "row",
    "dataset",
    "labels",
    "validation_labels",
    "split_hash",
    "seed",
    "metric",
    "value",
    "paper",
    "rounds",
    "epochs",
    "images_seen",
    "minutes",
    "device",
    "torch",
    "commit",
    "settings",
)
"""The columns of `results/runs.csv`, one row a finished run."""


def append_rows(path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a results file, all of them or none; a missing file is made. Several processes do it `alone`.

    Args:
        path: the CSV file; its header must be `COLUMNS`.
        rows: the values by column name; None leaves a cell empty.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "runs.csv"
        >>> append_rows(path, [dict.fromkeys(COLUMNS, None) | {"row": "UPS", "value": 91.5}])
        >>> [(row["row"], row["value"], row["paper"]) for row in read_rows(path)]
        [('UPS', '91.5', '')]
    """
    path, rows = Path(path), list(rows)
    for row in rows:
        _check_row(row)
    append(path, COLUMNS, rows)


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return the rows of a results file, every value as text; a missing file has none."""
    return list(csv.DictReader(io.StringIO(content(Path(path), COLUMNS), newline="")))


def _check_row(row: Mapping[str, Any]) -> None:
    if set(row) != set(COLUMNS):
        missing = [name for name in COLUMNS if name not in row]
        unknown = [name for name in row if name not in COLUMNS]
        raise InvalidInputError(
            f"The 'rows' argument must give each row exactly the columns of a results file. Missing: {missing}; "
            f"unknown: {unknown}."
        )
