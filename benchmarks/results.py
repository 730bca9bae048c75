"""Rows of `results/bench.csv`: speeds measured in one run, with the device, the version of torch and the commit."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from surelabel.runs.environment import describe_environment
from surelabel.runs.rows import append, content

COLUMNS = (
    "what",
    "model",
    "batch",
    "per_second",
    "plain_per_second",
    "ratio",
    "published_like_per_second",
    "published_like_ratio",
    "fraction_of_peak",
    "device",
    "torch",
    "commit",
)
"""The columns of `results/bench.csv`; those that say nothing of a row are empty."""

_DIGITS = 4


def append_rows(path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a results file, all of them or none; a missing file is made.

    Args:
        path: the CSV file; its header must be `COLUMNS`.
        rows: the values by column name; columns that are left out or None stay empty.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "bench.csv"
        >>> append_rows(path, [{"what": "select", "ratio": 2.41973}])
        >>> path.read_text().splitlines()[1]
        'select,,,,,2.42,,,,,,'
    """
    append(Path(path), COLUMNS, [{name: _rounded(value) for name, value in row.items()} for row in rows])


def origin(device: torch.device) -> dict[str, str | None]:
    """Return where a row was measured: device, torch, commit.

    >>> sorted(origin(torch.device("cpu")))
    ['commit', 'device', 'torch']
    """
    environment = describe_environment()
    return {
        "device": describe_device(device),
        "torch": torch.__version__,
        "commit": environment["commit"],
    }


def describe_device(device: torch.device) -> str:
    """Return the name of a GPU, or the processor with the number of threads that torch uses on it."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    threads = torch.get_num_threads()
    return f"cpu ({threads} thread{'s' * (threads > 1)}, {describe_environment()['processor']})"


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that `append_rows` would refuse, before anything is measured."""
    content(Path(path), COLUMNS)


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
