"""The blocks of the documents with rows of the paper's tables that were run again, from `results/`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from newest_runs import Row, budget_of, newest_runs

from surelabel.reproduce.experiment import WHOLE_MINUTES
from surelabel.reproduce.methods import OURS
from surelabel.reproduce.results import read_rows

RERUN = ("table1", "table2", "table5", "few-labels", "tin100", "coco18", "ucf3")
"""Experiments whose rows are shown: the paper's, and those on stand-ins for its data sets."""


def rerun(results: Path, dataset: str) -> str:
    """Return the rows of the paper's tables that were run on a data set, each with the runs of its newest settings."""
    scores = [row for row in _scores(results) if row["dataset"] == dataset and not row["row"].startswith(OURS)]
    if not scores:
        return "Not run."
    cells: dict[tuple[str, ...], list[Row]] = {}
    for row in scores:
        cells.setdefault(tuple(row[name] for name in ("experiment", "row", "labels", "metric")), []).append(row)
    lines = [
        "| table | row | labels | metric | paper | ours | seeds | rounds | minutes | commit |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (experiment, name, labels, metric), found in cells.items():
        runs = newest_runs(found, results)
        minutes = np.mean([float(row["minutes"]) for row in runs])
        ours = [_mean(runs), str(len(runs)), runs[-1]["rounds"], f"{minutes:.1f}", runs[-1]["commit"][:7]]
        paper = f"{float(runs[-1]['paper']):.2f}" if runs[-1]["paper"] else ""
        head = [experiment, name, labels, metric.removeprefix("test "), paper]
        lines.append(f"| {' | '.join([*head, *ours])} |")
    return "\n".join([*lines, "", f"`results/runs.csv`, {dataset}, last network, {_devices(scores)}."])


def own_rows(results: Path) -> str:
    """Return the rows `UPS + consistency`, each with every budget that it was run with."""
    scores = [row for row in _scores(results) if row["row"].startswith(OURS)]
    if not scores:
        command = 'surelabel reproduce table1 --rows "UPS + consistency" --seed 1 --budget 8.5'
        return f"Not run yet: `{command}` makes the first row."
    cells: dict[tuple[str | float | None, ...], list[Row]] = {}
    for row in scores:
        cell = (*(row[name] for name in ("experiment", "dataset", "row", "labels")), budget_of(row, results))
        cells.setdefault(cell, []).append(row)
    whole = {
        _told_by(row): float(row["value"]) for row in read_rows(results / "runs.csv") if row["metric"] == WHOLE_MINUTES
    }
    lines = [
        "| table | data set | row | labels | test error % | seeds | planned minutes | minutes in all | commit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (*head, budget), found in cells.items():
        runs = newest_runs(found, results)
        took = [whole[key] for row in runs if (key := _told_by(row)) in whole]
        in_all = f"{max(took):.1f}" if took else ""
        ours = [_mean(runs), ", ".join(row["seed"] for row in runs), f"{budget:g}" if budget else "", in_all]
        lines.append(f"| {' | '.join([*map(str, head), *ours, runs[-1]['commit'][:7]])} |")
    return "\n".join([*lines, "", f"`results/runs.csv`, last network, {_devices(scores)}."])


def _scores(results: Path) -> list[Row]:
    rows = [row for row in read_rows(results / "runs.csv") if row["experiment"] in RERUN]
    return [row for row in rows if row["metric"].startswith("test ") and row["metric"].endswith(" %")]


def _told_by(row: Row) -> tuple[str, ...]:
    """Return what distinguishes a run from others."""
    return tuple(row[name] for name in ("experiment", "dataset", "row", "labels", "seed", "settings", "commit"))


def _mean(runs: Sequence[Row]) -> str:
    values = [float(row["value"]) for row in runs]
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def _devices(rows: Sequence[Row]) -> str:
    return ", ".join(sorted({row["device"].partition(":")[0] for row in rows}))
