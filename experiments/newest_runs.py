"""Which rows of `results/runs.csv` count as the newest runs of the same thing, one for each seed."""

import copy
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, str]


def newest_runs(rows: Sequence[Row], results: Path) -> list[Row]:
    """Return the rows with the settings of the last one; of a seed that was run again, the last one.

    With a budget, the number of steps follows from the speed of that day, and is no difference on the same device.
    """
    wanted = _same(rows[-1], results)
    return list({row["seed"]: row for row in rows if _same(row, results) == wanted}.values())


def budget_of(row: Row, results: Path) -> float | None:
    """Return the minutes that were planned for a run; None: there was no limit."""
    budget: float | None = _settings(results / row["settings"]).get(row["row"], {}).get("budget")
    return budget


def _same(row: Row, results: Path) -> str:
    """Return as text what the runs of a mean have in common."""
    if budget_of(row, results) is None:
        return row["settings"]
    settings = copy.deepcopy(_settings(results / row["settings"])[row["row"]])
    del settings["learner"]["training"]["steps"]
    return json.dumps([settings, row["device"]], sort_keys=True)


@functools.cache
def _settings(path: Path) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(path.read_text())
    return settings
