"""The blocks and the figure of docs/methods.md about methods at equal minutes, from `results/`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import gates
from newest_runs import Row, budget_of, newest_runs

from surelabel.report.drawing import Panel, curves
from surelabel.report.tables import Statistic, statistic
from surelabel.reproduce.entries import labels_text
from surelabel.reproduce.methods import METHOD_TRIALS, METHODS, TRIED
from surelabel.reproduce.results import read_rows

FIGURE = "methods.svg"
MOST_TIMES = 1.5
"""An error that is more times a published one, for the same network and labels, is a fault."""

SOURCE = (
    "Published errors are for CNN-13 and the same number of labels, as in the paper of UPS: table 5 for the first two\n"
    "rows, table 1 for the others. Some were never published for this network."
)


class Runs(NamedTuple):
    """The newest runs of a row with a number of labels and a budget, one for each seed, over which means are taken."""

    error: Statistic
    minutes: Statistic
    rows: list[Row]


Found = Mapping[tuple[str, str, float], Runs]
"""By row, number of labels and budget in minutes."""


def runs_of(results: Path, experiment: str, metric: str) -> Found:
    """Return the newest runs of an experiment at equal minutes."""
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for row in read_rows(results / "runs.csv"):
        if (row["experiment"], row["metric"]) == (experiment, metric):
            budget = budget_of(row, results)
            assert budget is not None, "these experiments need one"
            groups.setdefault((row["row"], row["labels"], float(budget)), []).append(row)
    return {key: _runs(newest_runs(rows, results)) for key, rows in groups.items()}


def _runs(rows: list[Row]) -> Runs:
    error, minutes = (statistic([float(row[name]) for row in rows]) for name in ("value", "minutes"))
    assert error is not None
    assert minutes is not None
    return Runs(error, minutes, rows)


def methods(results: Path) -> str:
    """Return the table of methods at equal minutes beside published errors, and which rows are taken for faults."""
    found = runs_of(results, METHODS.name, "test error %")
    if not found:
        return "Not run yet: `surelabel reproduce methods --budget 4 --seed 1` makes the rows."
    published = {(entry.row, labels_text(entry.labels)): entry.paper for entry in METHODS.entries}
    names = dict.fromkeys([entry.row for entry in METHODS.entries] + [row for row, *_ in found])
    numbers = list(dict.fromkeys(labels_text(entry.labels) for entry in METHODS.entries))
    columns = sorted({key[1:] for key in found}, key=lambda column: (int(column[0]), column[1]))
    head = [f"{int(labels):,} labels, {_minutes(budget)}" for labels, budget in columns]
    lines = _table(["method", *head, *(f"published, {int(labels):,}" for labels in numbers)])
    for name in names:
        cells = [found.get((name, *column)) for column in columns]
        papers = [published.get((name, labels)) for labels in numbers]
        ours = ["" if runs is None else f"{runs.error:.2f}" for runs in cells]
        theirs = ["" if paper is None else f"{Statistic(*paper, number=1):.2f}" for paper in papers]
        lines.append(f"| {' | '.join([name, *ours, *theirs])} |")
    return "\n\n".join(["\n".join(lines), SOURCE, *_faults(found, published), _origin(METHODS.name, found.values())])


def _faults(found: Found, published: Mapping[tuple[str, str], tuple[float, float | None] | None]) -> list[str]:
    """Name the rows that are no better than supervised, or far above a published error, each in its longest runs.

    A row without a run of Supervised at the same budget, and a row that was not run, are not judged.
    """
    problems, missing = [], []
    for labels in dict.fromkeys(labels for _, labels, _ in found):
        errors = {(row, budget): runs.error.mean for (row, number, budget), runs in found.items() if number == labels}
        for row in dict.fromkeys(entry.row for entry in METHODS.entries):
            budgets = [budget for name, budget in errors if name == row and ("Supervised", budget) in errors]
            what = f"{row} with {labels} labels"
            if not budgets:
                missing.append(what)
                continue
            error, base = (errors[name, max(budgets)] for name in (row, "Supervised"))
            paper = published.get((row, labels))
            if row != "Supervised" and error >= base:
                problems.append(f"{what} is no better than Supervised ({error:.2f}, {base:.2f})")
            if paper is not None and error > MOST_TIMES * paper[0]:
                limit = f"above {MOST_TIMES:g} times its published error"
                problems.append(f"{what} is {limit} ({error:.2f}, {paper[0]:.2f})")
    good = f"No row is worse than Supervised, and none is above {MOST_TIMES:g} times its published error."
    verdict = f"**Faults to be found:** {'; '.join(problems)}." if problems else "" if missing else good
    return [text for text in (verdict, f"Not judged yet: {'; '.join(missing)}." if missing else "") if text]


def settings(results: Path) -> str:
    """Return the validation errors by which each method's setting was chosen."""
    found = runs_of(results, METHOD_TRIALS.name, "validation error %")
    if not found:
        return "Not run yet: `surelabel reproduce method-trials --budget 1.5` makes the rows."
    budget = max(budget for *_, budget in found)  # the longest trials decide
    errors = {name: runs.error for (name, _, minutes), runs in found.items() if minutes == budget}
    lines, against = _table(["method", "setting", "validation error %", "used"]), []
    for row, tried in TRIED.items():
        used, *others = tried
        for what in tried:
            error = errors.get(f"{row}, {what}")
            text = "not run" if error is None else f"{error:.2f}"
            lines.append(f"| {row} | {what} | {text} | {'yes' if what == used else ''} |")
        mine = errors.get(f"{row}, {used}")
        better = [errors[name] for what in others if (name := f"{row}, {what}") in errors]
        if mine is not None and any(error.mean < mine.mean for error in better):
            against.append(row)
    note = [f"The other setting has the lower error: {', '.join(against)}."] if against else []
    return "\n\n".join(["\n".join(lines), *note, _origin(METHOD_TRIALS.name, found.values())])


def lines_of(results: Path) -> dict[str, tuple[list[float], list[float]]]:
    """Return minutes and test errors of each row that was run with at least two budgets, with the fewest labels."""
    found = runs_of(results, METHODS.name, "test error %")
    labels = labels_text(min(entry.labels for entry in METHODS.entries))
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for (row, number, _), runs in sorted(found.items(), key=lambda item: item[0][2]):
        if number == labels:
            minutes, errors = lines.setdefault(row, ([], []))
            minutes.append(runs.minutes.mean)
            errors.append(runs.error.mean)
    order = dict.fromkeys([entry.row for entry in METHODS.entries] + list(lines))
    return {row: lines[row] for row in order if len(lines.get(row, ((),))[0]) > 1}


def figure(results: Path) -> Panel | None:
    """Return the test error over minutes; None where no row was run with two budgets."""
    lines = lines_of(results)
    return curves(lines, "minutes of training", "test error (%)", markers="os^") if lines else None


def figure_link(results: Path) -> str:
    """Return the figure as the document shows it, or what makes it."""
    if not lines_of(results):
        return "No figure yet: it needs rows of two budgets, such as `--budget 1` and `--budget 4`."
    return f"![Test error of each method over the minutes of training](images/{FIGURE})"


def gate_table(results: Path) -> str:
    """Return how well each score separates right from wrong labels, on each data set; a placeholder without rows."""
    rows = [row for row in read_rows(results / "runs.csv") if row["experiment"] == gates.EXPERIMENT]
    if not rows:
        return "Not run yet: the trial `study` and `experiments/gates.py` make the rows."
    datasets = dict.fromkeys(row["dataset"] for row in rows)
    return "\n\n".join(_gates([row for row in rows if row["dataset"] == name]) for name in datasets)


def _gates(rows: Sequence[Row]) -> str:
    """Return the table of the newest rows of a data set: a line for each score, and columns for each moment."""
    found = {(row["row"], row["metric"]): float(row["value"]) for row in rows}
    moments = [f"after {moment}" for moment in gates.AFTER.values()]
    lines = _table(
        ["score", *(f"{moment}: area, %" for moment in moments), *(f"{moment}: points" for moment in moments)]
    )
    for name in dict.fromkeys(row["row"] for row in rows):
        areas = [f"{found[name, f'{gates.AREA}, {moment}']:.2f}" for moment in moments]
        points = []
        for moment in moments:
            mean, low, high = (found[name, f"{gates.DIFFERENCE}{part}, {moment}"] for part in ("", ", low", ", high"))
            points.append("" if name == gates.FIRST else f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]")
        lines.append(f"| {' | '.join([name, *areas, *points])} |")
    last = rows[-1]
    made = f"{last['dataset']}, {last['labels']} labels, seed {last['seed']}, {last['device'].partition(':')[0]}"
    origin = f"experiment `{gates.EXPERIMENT}`, {made}, commit {last['commit'][:7]}"
    return "\n".join([*lines, "", f"`results/runs.csv`, {origin}."])


def _table(head: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]


def _minutes(budget: float) -> str:
    return f"{budget:g} minute{'' if budget == 1 else 's'}"


def _origin(experiment: str, found: Iterable[Runs]) -> str:
    """Say which rows of the results these are, where they were made, and how long they took."""
    rows = [row for runs in found for row in runs.rows]
    minutes = [float(row["minutes"]) for row in rows]
    seeds, commits = (
        ", ".join(dict.fromkeys(row[name][:7] for row in sorted(rows, key=lambda row: row["seed"])))
        for name in ("seed", "commit")
    )
    devices = ", ".join(dict.fromkeys(row["device"].partition(":")[0] for row in rows))
    took = f"{min(minutes):.1f} to {max(minutes):.1f} minutes each on {devices}"
    return f"`results/runs.csv`, experiment `{experiment}`, seed {seeds}, {took}, commit {commits}."
