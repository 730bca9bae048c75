"""The table of experiments/own_data.py for the documents."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surelabel.core.metrics import paired_difference
from surelabel.reproduce.results import read_rows

KEPT = "kept model"
COLUMNS = {
    "logistic regression": "logistic regression",
    "self-training, logistic regression": "self-training of it",
    "round 0": "round 0",
    "last round": "last round",
}
TRIALS = {
    "wide": "last round",
    "averaged": "last round",
    "linear UPS": "last round",
    "ensemble": "last round",
    "ensemble, last": "last round",
    "pi-model": "last round",
    "averaged rounds": "last round",
    "agreement": "last round",
    "linear, selected": "last round",
    "kept model, linear UPS compared too": "kept model",
}
"""Trials of experiments/choose_table_model.py, and what each would replace."""
NAMES = {"linear": "linear", "first": "round 0", "last": "last round"}


def own_data(results: Path) -> str:
    """Return the means of all models by data set, and the kept model minus each with its 95 % interval."""
    rows = _newest(results)
    if not rows:
        return "Not run."
    lines = [
        f"| data | labels | seeds | kept model | {' | '.join(COLUMNS.values())} | kept | seconds |",
        "|---|---|---|---|" + "---|" * len(COLUMNS) + "---|---|",
    ]
    lines += [_line(name, rows) for name in dict.fromkeys(row["dataset"] for row in rows)]
    return "\n".join([*lines, "", f"`results/runs.csv`, experiment `own data`, {_commits(rows)}, two CPU cores."])


def own_data_short(results: Path) -> str:
    """Return the means of scikit-learn's two models and of the kept one."""
    rows = _newest(results)
    if not rows:
        return "Not run."
    lines = [
        "| data | labels | logistic regression | scikit-learn's self-training | surelabel |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["dataset"] for row in rows):
        values = _values(name, rows)
        means = [f"{np.mean(list(values[of].values())):.1f}" for of in (*list(COLUMNS)[:2], KEPT)]
        best = max(means, key=float)
        cells = [f"**{mean}**" if mean == best else mean for mean in means]
        lines.append(f"| {name} | {_labels(name, rows)} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"`results/runs.csv`, experiment `own data`, {_commits(rows)}, two CPU cores."])


def sounds(results: Path) -> str:
    """Return the trials on recordings with odd numbers, by their settings and commit."""
    rows = [row for row in read_rows(results / "defaults.csv") if row["dataset"] == "spoken digits, odd numbers"]
    if not rows:
        return "Not run."
    values: dict[tuple[str, str], list[float]] = {}
    rounds = {(row["row"], row["commit"]): row["rounds"] for row in rows}
    for row in rows:
        values.setdefault((row["row"], row["commit"]), []).append(float(row["value"]))
    lines = ["| settings | rounds | round 0 | last round | commit |", "|---|---|---|---|---|"]
    for name, commit in values:
        if (f"{name}: round 0", commit) in values:
            cells = [f"{np.mean(values[of, commit]):.1f}" for of in (f"{name}: round 0", name)]
            lines.append(f"| {name} | {rounds[name, commit]} | {' | '.join(cells)} | {commit[:7]} |")
    seeds = len({row["seed"] for row in rows})
    return "\n".join([*lines, "", f"`results/defaults.csv`, mean over {seeds} speakers, each with a seed of its own."])


OF_PICTURES = "CIFAR-10, training, 32 x 32", "Fashion-MNIST, 28 x 28", "MNIST, 28 x 28", "MNIST, 8 x 8"
OF_HEADS = "Fashion-MNIST, 28 x 28", "Tiny-ImageNet, classes 10 to 19", "Tiny-ImageNet, classes 20 to 39"


def pictures(results: Path) -> str:
    """Return the trials of defaults for pictures."""
    return _trials(results, "choose defaults of kinds", OF_PICTURES, "chosen")


def heads(results: Path) -> str:
    """Return the trials of defaults for features of pictures."""
    return _trials(results, "choose defaults of heads", OF_HEADS, "a scale each, rate 0.01")


def _trials(results: Path, experiment: str, datasets: Sequence[str], before: str) -> str:
    """Return the last round of each candidate on each data set, and the mean of its gains over the defaults before."""
    everything = (row for row in read_rows(results / "defaults.csv") if row["experiment"] == experiment)
    rows = [row for row in everything if row["dataset"] in datasets]
    names = [
        name
        for name in dict.fromkeys(row["row"] for row in rows)
        if {row["dataset"] for row in rows if row["row"] == f"{name}: round 0"} == set(datasets)
    ]
    rows = [row for row in rows if row["row"].removesuffix(": round 0") in names]
    values: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        values.setdefault((row["row"], row["dataset"]), []).append(float(row["value"]))
    means = {key: float(np.mean(part)) for key, part in values.items()}
    lines = [f"| changed | {' | '.join(datasets)} | round 0 | last round | gain |", "|---" * (len(datasets) + 4) + "|"]
    for name in names:
        first, last, base = ([means[row, one] for one in datasets] for row in (f"{name}: round 0", name, before))
        gain = paired_difference(last, base)
        text = "" if name == before else f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"
        cells = [f"{value:.1f}" for value in (*last, np.mean(first), np.mean(last))]
        lines.append(f"| {'nothing' if name == before else name} | {' | '.join(cells)} | {text} |")
    seeds = len({row["seed"] for row in rows})
    end = (
        f"`results/defaults.csv`, experiment `{experiment}`, mean over {seeds} seeds, {_commits(rows)}; 95 % intervals"
    )
    return "\n".join([*lines, "", f"{end} over the data sets."])


def _newest(results: Path) -> list[dict[str, str]]:
    """Return the rows of the newest commit of each data set."""
    rows = [row for row in read_rows(results / "runs.csv") if row["experiment"] == "own data"]
    commits = {row["dataset"]: (row["commit"], row["settings"]) for row in rows}
    return [row for row in rows if (row["commit"], row["settings"]) == commits[row["dataset"]]]


def _commits(rows: list[dict[str, str]]) -> str:
    return "commit " + ", ".join(dict.fromkeys(row["commit"][:7] for row in rows))


def _values(dataset: str, rows: list[dict[str, str]]) -> dict[str, dict[str, float]]:
    """Return the scores of a data set by row and seed."""
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["dataset"] == dataset and row["metric"].startswith("test "):
            values.setdefault(row["row"], {})[row["seed"]] = float(row["value"])
    return values


def _labels(dataset: str, rows: list[dict[str, str]]) -> str:
    return " to ".join(str(n) for n in sorted({int(row["labels"]) for row in rows if row["dataset"] == dataset}))


def kept_rules(results: Path) -> str:
    """Return what two rules of keeping a model come to on the data that defaults were chosen on."""
    rows = [row for row in read_rows(results / "defaults.csv") if row["experiment"] == "choose own data"]
    if not rows:
        return "Not run."
    origin = rows[-1]["commit"], rows[-1]["settings"]
    rows = [row for row in rows if (row["commit"], row["settings"]) == origin and row["metric"].startswith("test ")]
    names = {
        KEPT: "the last round, unless another is clearly better (kept)",
        "the best": "the best, of equally good ones the last",
        "the simplest within one standard error": "the simplest within one standard error of the best",
        "last round": "always the last round",
        "round 0": "always round 0",
        "linear model of fit": "always the linear model",
        "self-training, logistic regression": "scikit-learn's self-training of logistic regression",
    }
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    lines = ["| rule | mean test accuracy (%) | the kept one minus it |", "|---|---|---|"]
    values = {name: {(r["dataset"], r["seed"]): float(r["value"]) for r in rows if r["row"] == name} for name in names}
    for name, text in names.items():
        means = [np.mean([v for (dataset, _), v in values[name].items() if dataset == d]) for d in datasets]
        kept = [np.mean([v for (dataset, _), v in values[KEPT].items() if dataset == d]) for d in datasets]
        change = paired_difference(kept, means)
        more = "" if name == KEPT else f"{change.mean:+.1f} [{change.low:+.1f}, {change.high:+.1f}]"
        lines.append(f"| {text} | {np.mean(means):.1f} | {more} |")
    seeds = len({row["seed"] for row in rows})
    where = f"`results/defaults.csv`, experiment `choose own data`, commit {origin[0][:7]}"
    what = (
        f"{len(datasets)} data sets ({', '.join(datasets)}) with {seeds} seeds each; 95 % intervals over the data sets"
    )
    return "\n".join([*lines, "", f"{where}: {what}."])


def table_models(results: Path) -> str:
    """Return what trials of experiments/choose_table_model.py gain over what they would replace."""
    rows = [row for row in read_rows(results / "defaults.csv") if row["experiment"] == "choose table model"]
    if not rows:
        return "Not run."
    lines = ["| trial | compared with | gain | better on | seeds | commit |", "|---|---|---|---|---|---|"]
    for trial, base in TRIALS.items():
        having = {name: {(r["commit"], r["settings"]) for r in rows if r["row"] == name} for name in (trial, base)}
        newest = [(r["commit"], r["settings"]) for r in rows if (r["commit"], r["settings"]) in having[trial]]
        newest = [origin for origin in newest if origin in having[base]]
        if not newest:
            continue
        same = [row for row in rows if (row["commit"], row["settings"]) == newest[-1]]
        values = {
            name: {(row["dataset"], row["seed"]): float(row["value"]) for row in same if row["row"] == name}
            for name in (trial, base)
        }
        datasets = list(dict.fromkeys(dataset for dataset, _ in values[trial]))
        means = [
            [np.mean([v for (d, _), v in values[name].items() if d == dataset]) for dataset in datasets]
            for name in (trial, base)
        ]
        gain = paired_difference(*means)
        better = sum(after > before for after, before in zip(*means, strict=True))
        seeds = len({seed for _, seed in values[trial]})
        interval = f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"
        lines.append(f"| {trial} | {base} | {interval} | {better} of {len(datasets)} | {seeds} | {newest[-1][0][:7]} |")
    where = "`results/defaults.csv`, experiment `choose table model`"
    return "\n".join([*lines, "", f"{where}: test accuracy in points, 95 % intervals over the data sets."])


def _line(dataset: str, rows: list[dict[str, str]]) -> str:
    values = _values(dataset, rows)
    kept, seeds = values[KEPT], list(values[KEPT])
    cells = [f"**{np.mean(list(kept.values())):.1f}**"]
    for name in COLUMNS:
        others = [values[name][seed] for seed in seeds]
        mean, low, high = paired_difference([kept[seed] for seed in seeds], others)
        cells.append(f"{np.mean(others):.1f} ({mean:+.1f} [{low:+.1f}, {high:+.1f}])")
    mine = [row for row in rows if row["dataset"] == dataset and row["row"] == KEPT]
    choices = Counter(row["metric"].removeprefix("keeps ") for row in mine if row["metric"].startswith("keeps "))
    chosen = ", ".join(f"{NAMES[name]} {choices[name]}" for name in NAMES if choices[name])
    seconds = [60 * float(row["minutes"]) for row in mine if row["minutes"]]
    spent = f"{np.mean(seconds):.0f} (at most {max(seconds):.0f})"
    return f"| {dataset} | {_labels(dataset, rows)} | {len(seeds)} | {' | '.join(cells)} | {chosen} | {spent} |"
