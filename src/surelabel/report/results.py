"""Numbers that documents quote: rows of a CSV file in `results/`, and paired differences between them.

A paired difference over seeds is mean(d) ± t · std(d) / sqrt(n) with d = a − b, the standard deviation with n − 1, and
t the 97.5 % quantile of Student's t with n − 1 degrees of freedom.
"""

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from surelabel.errors import InvalidInputError
from surelabel.metrics import Interval
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


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the mean of a − b and its 95 % interval, mean ± t · std / sqrt(n) (Student's t, n − 1).

    Args:
        a: one value for each seed, shape (n,).
        b: the values that it is compared with, for the same seeds in the same order, shape (n,).

    Example:
        >>> tuple(round(value, 3) for value in paired_difference([3.0, 5.0, 7.0], [2.0, 3.0, 4.0]))
        (2.0, -0.484, 4.484)
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise InvalidInputError(
            f"The 'a' and 'b' arguments must be paired values of at least two seeds. Got shapes {first.shape} and "
            f"{second.shape} instead; give one value for each seed, in the same order."
        )
    difference = first - second
    if not np.isfinite(difference).all():
        raise InvalidInputError(
            f"The 'a' and 'b' arguments must be finite. Got the differences {difference.tolist()} instead; "
            "leave out runs that did not finish."
        )
    mean = float(difference.mean())
    half = float(stdtrit(len(difference) - 1, 0.975)) * float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return Interval(mean, mean - half, mean + half)


def _check_row(row: Mapping[str, Any]) -> None:
    if set(row) != set(COLUMNS):
        missing = [name for name in COLUMNS if name not in row]
        unknown = [name for name in row if name not in COLUMNS]
        raise InvalidInputError(
            f"The 'rows' argument must give each row exactly the columns of a results file. Missing: {missing}; "
            f"unknown: {unknown}."
        )
