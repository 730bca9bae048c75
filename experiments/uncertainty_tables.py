"""The tables of docs/does-uncertainty-help.md, from `results/`."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from does_uncertainty_help import EXPERIMENT, ROWS

from surelabel.core.metrics import paired_difference
from surelabel.reproduce.cifar import paper_recipe
from surelabel.reproduce.first_selection import PAPER
from surelabel.reproduce.paper import experiment
from surelabel.reproduce.results import read_rows

NOT_YET = "Not run yet."
LEAST = 0.7
"""Points of test error. A smaller difference is not counted as shown."""

HEADER = ("row", "labels", "correct, %", "test error, %", "A minus it", "shown", "steps", "images", "minutes", "seeds")

BySeed = dict[int, float]


def first_round(results: Path) -> str:
    """Return the first selection by the paper's recipe with 1000 labels, seed by seed, beside the paper's."""
    rows = _by_the_papers_recipe(results)
    values = _values(rows)
    selected = values.get("first selection, positives before balancing")
    if selected is None:
        return NOT_YET
    seeds = sorted(selected)
    lines = [[name, *_figure([values[metric][seed] for seed in seeds], known)] for name, metric, known in _figures()]
    for other in ("confidence", "confidence (Cal.)"):
        what = f"first selection before balancing, points above {other} at equal counts"
        mean, low, high = (values[f"{what}{end}"] for end in ("", ", 95 % low", ", 95 % high"))
        cells = [_interval(mean[seed], low[seed], high[seed]) for seed in seeds]
        average = f"{np.mean([mean[seed] for seed in seeds]):+.2f}"
        lines.append([f"UPS minus {other}, equal counts, points", "", average, *cells])
    origin = f"experiment `first-selection`, cifar10, 1000 labels, {_origin(rows)}"
    return _table(["", "paper", "ours", *(f"seed {seed}" for seed in seeds)], lines, origin)


def fresh_rounds(results: Path) -> str:
    """Return the networks that learned from labels chosen in four ways, and A's error minus each other's."""
    rows = [row for row in read_rows(results / "runs.csv") if row["experiment"] == EXPERIMENT]
    if not rows:
        return NOT_YET
    rows = [row for row in rows if row["settings"] == rows[-1]["settings"]]
    of_row = {name: [row for row in rows if row["row"] == name] for name in ROWS.values()}
    first = _values(of_row[ROWS["A"]]).get("test error %", {})
    lines = []
    for name, mine in of_row.items():
        if not mine:
            continue
        values = _values(mine)
        labels, right, steps = (np.mean(list(values[key].values())) for key in ("labels", "labels right %", "steps"))
        pictures, minutes = (np.mean([float(row[column]) for row in mine]) for column in ("images_seen", "minutes"))
        error = values["test error %"]
        compared = ["", ""] if name == ROWS["A"] else _compared(first, error)
        cells = [name, f"{labels:,.0f}", f"{right:.2f}", _mean(list(error.values())), *compared]
        lines.append([*cells, f"{steps:,.0f}", f"{pictures:,.0f}", f"{minutes:.1f}", str(len(error))])
    return _table(HEADER, lines, f"experiment `{EXPERIMENT}`, {_origin(rows)}")


def _figures() -> tuple[tuple[str, str, float], ...]:
    """Return names, metrics, and what the paper says."""
    paper = PAPER["accuracy"]["cifar10", 1000]
    supervised = next(entry.paper for entry in experiment("table5").entries if entry.row == "Supervised")
    assert supervised is not None
    first = "first labels by confidence"
    return (
        ("test error, %", "test error %", supervised[0]),
        ("correct labels, all, %", f"{first}, no tau_p, accuracy %", 100 * paper["confidence"][0]),
        ("correct labels, p ≥ 0.7, %", f"{first}, tau_p 0.7, accuracy %", 100 * paper["confidence"][0.7]),
        ("UPS's labels", "first selection, positives before balancing", PAPER["positives"]),
        ("correct labels, UPS, %", "first selection, accuracy % before balancing", 100 * paper["UPS"][0.7]),
    )


def _by_the_papers_recipe(results: Path) -> list[dict[str, str]]:
    wanted = ("first-selection", "Supervised", "1000")
    rows = [row for row in read_rows(results / "runs.csv") if (row["experiment"], row["row"], row["labels"]) == wanted]
    paper = paper_recipe().network.training.model_dump(mode="json")

    def is_papers(settings: str) -> bool:
        training = json.loads((results / settings).read_text())["Supervised"]["learner"]["training"]
        return all(paper.get(key) == value for key, value in training.items())

    chosen = {settings for settings in {row["settings"] for row in rows} if is_papers(settings)}
    return [row for row in rows if row["settings"] in chosen]


def _values(rows: Iterable[dict[str, str]]) -> dict[str, BySeed]:
    """Return the values by metric and seed; of a seed that was run again the last."""
    values: dict[str, BySeed] = {}
    for row in rows:
        values.setdefault(row["metric"], {})[int(row["seed"])] = float(row["value"])
    return values


def _figure(values: Sequence[float], paper: float) -> list[str]:
    digits = 0 if paper > 100 else 2  # a number of labels, or percent
    return [f"{paper:,.{digits}f}", _mean(values, digits), *(f"{value:,.{digits}f}" for value in values)]


def _mean(values: Sequence[float], digits: int = 2) -> str:
    spread = f" ± {np.std(values, ddof=1):,.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):,.{digits}f}{spread}"


def _interval(mean: float, low: float, high: float) -> str:
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def _compared(first: BySeed, other: BySeed) -> list[str]:
    """Return the paired difference with its interval, and whether it is large and sure enough to show anything."""
    seeds = sorted(first.keys() & other.keys())
    if len(seeds) < 2:
        return ["", "no"]
    mean, low, high = paired_difference([first[seed] for seed in seeds], [other[seed] for seed in seeds])
    shown = abs(mean) >= LEAST and not low <= 0 <= high
    return [_interval(mean, low, high), "yes" if shown else "no"]


def _origin(rows: Iterable[dict[str, str]]) -> str:
    return ", ".join(sorted({f"commit {row['commit'][:7]} ({row['device'].partition(':')[0]})" for row in rows}))


def _table(header: Sequence[str], lines: Sequence[Sequence[str]], origin: str) -> str:
    rule = "|".join(["---"] * len(header))
    texts = [f"| {' | '.join(header)} |", f"|{rule}|", *(f"| {' | '.join(line)} |" for line in lines)]
    return "\n".join([*texts, "", f"`results/runs.csv`, {origin}."])
