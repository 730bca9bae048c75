"""Write the documents' result tables from `results/`; `--check` fails when they differ.

python experiments/update_documents.py
"""

import argparse
import csv
import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from communication_tables import communication
from first_run import first_run
from method_tables import FIGURE, figure, figure_link, gate_table, methods, settings
from own_data_tables import heads, kept_rules, own_data, own_data_short, pictures, sounds, table_models
from rerun_tables import own_rows, rerun
from scale_tables import labels_at_scale, rounds_at_scale, sizes
from uncertainty_tables import first_round, fresh_rounds

from surelabel.core.metrics import paired_difference
from surelabel.report.drawing import Panel
from surelabel.reproduce.results import read_rows

ROOT = Path(__file__).resolve().parents[1]
CHOICE = "choose defaults"


Values = dict[str, dict[str, dict[int, float]]]
"""Data set, row, seed to value."""


def latest(experiment: str, path: Path, metric: str | None = None) -> tuple[Values, dict[str, str]]:
    """Return the values of an experiment's newest settings and commit, for one metric, and its last row."""
    rows = [row for row in read_rows(path) if row["experiment"] == experiment and metric in (None, row["metric"])]
    last = rows[-1]
    values: Values = {}
    for row in rows:
        if (row["commit"], row["settings"]) == (last["commit"], last["settings"]):
            scale = 1 if row["metric"].endswith("%") else 100
            by_row = values.setdefault(row["dataset"], {})
            by_row.setdefault(row["row"], {})[int(row["seed"])] = scale * float(row["value"])
    return values, last


def num_seeds(values: Values) -> int:
    """Return how many seeds each row has."""
    return len(next(iter(next(iter(values.values())).values())))


def table(values: Values, ups: str) -> list[str]:
    """Return a Markdown table of means, and of UPS minus each with its interval: methods by data sets."""
    datasets = list(values)
    lines = ["| | " + " | ".join(datasets) + " |", "|---|" + "---|" * len(datasets)]
    for row in values[datasets[0]]:
        cells = [_cell(values[dataset], row, ups) for dataset in datasets]
        lines.append(f"| {'**UPS**' if row == ups else row} | " + " | ".join(cells) + " |")
    return lines


def _cell(by_row: dict[str, dict[int, float]], row: str, ups: str) -> str:
    seeds = sorted(by_row[row])
    mean = f"{np.mean([by_row[row][seed] for seed in seeds]):.1f}"
    if row == ups:
        return f"**{mean}**"
    difference, low, high = paired_difference([by_row[ups][s] for s in seeds], [by_row[row][s] for s in seeds])
    return f"{mean} ({difference:+.1f} [{low:+.1f}, {high:+.1f}])"


def tables(results: Path) -> str:
    """Return the comparison on small tables."""
    values, origin = latest("tables", results / "runs.csv")
    seeds = num_seeds(values)
    return "\n".join(
        [
            f"Small tables with five labels per class: test accuracy in %, mean over {seeds} seeds. In brackets: UPS",
            "minus the method, paired by seed, with its 95 % confidence interval. `UPSClassifier` runs with its",
            "defaults. They were chosen on other data sets. We kept searching because earlier defaults fell short on",
            "digits and wine (`docs/defaults.md`).",
            "",
            *table(values, "UPS"),
            "",
            f"`results/runs.csv`, experiment `tables`, commit {origin['commit'][:7]}, one CPU core.",
        ]
    )


def demo(results: Path) -> str:
    """Return the table of the demo."""
    values, origin = latest("demo", results / "runs.csv")
    return "\n".join(
        [
            f"The demo, {origin['labels']} labeled images of digits: test accuracy in %, mean over {num_seeds(values)}",
            "seeds, brackets as above.",
            "",
            *table(values, "UPS"),
            "",
            f"`results/runs.csv`, experiment `demo`, commit {origin['commit'][:7]}.",
        ]
    )


def mulan(results: Path) -> str:
    """Return the comparison on Mulan's multi-label tables, in both mean average precisions."""
    lines = []
    for metric, name in (("test mAP %", "uninterpolated"), ("test mAP, 11 points %", "11-point")):
        values, origin = latest("mulan", results / "runs.csv", metric)
        seeds = num_seeds(values)
        lines += [
            f"Mean average precision in % ({name}), {origin['labels']} labeled rows, mean over {seeds} seeds. In",
            "brackets: UPS minus the method, paired by seed, with its 95 % confidence interval.",
            "",
            *table(values, "UPS"),
            "",
        ]
    return "\n".join([*lines, f"`results/runs.csv`, experiment `mulan`, commit {origin['commit'][:7]}, one CPU core."])


def choice(results: Path) -> str:
    """Return the comparison of candidate defaults, with 95 % intervals over the data sets."""
    values, origin = latest(CHOICE, results / "defaults.csv")
    means = {
        name: {row: np.mean(list(by_seed.values())) for row, by_seed in rows.items()} for name, rows in values.items()
    }
    rows = next(iter(means.values()))
    candidates = [row for row in rows if f"{row}: round 0" in rows]
    baselines = [row for row in rows if row not in candidates and not row.endswith(": round 0")]
    lines = [
        "| candidate | round 0 | last round | gain | data sets with a gain | minus each data set's best baseline |",
        "|---|---|---|---|---|---|",
    ]
    for row in candidates:
        first, last = ([mean[name] for mean in means.values()] for name in (f"{row}: round 0", row))
        best = [max(mean[name] for name in baselines) for mean in means.values()]
        gain, gap = paired_difference(last, first), paired_difference(last, best)
        up = sum(after > before for before, after in zip(first, last, strict=True))
        lines.append(
            f"| {row} | {np.mean(first):.1f} | {np.mean(last):.1f} "
            f"| {gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}] "
            f"| {up} of {len(means)} | {gap.mean:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}] |"
        )
    seeds = num_seeds(values)
    head = [
        f"Test accuracy in %, mean over {len(means)} data sets with {seeds} seeds each. The 95 % confidence",
        "intervals are over the data sets.",
        "",
    ]
    return "\n".join([*head, *lines, "", f"`results/defaults.csv`, commit {origin['commit'][:7]}."])


def method_trials(results: Path) -> str:
    """Return what consistency methods alone gain over round 0 on small tables, and by other weights and ratios."""
    values, origin = latest("choose methods", results / "defaults.csv")
    several = [name for name in values if name.endswith("mAP")]
    single = [name for name in values if name not in several]
    head = ["trial", "minus round 0", "minus the published value", f"minus round 0, {len(several)} multi-label sets"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in values[single[0]]:
        if row == "round 0":
            continue
        published = row.split(", ")[0]
        gains = [
            _gain(values, single, row, "round 0"),
            "" if row == published else _gain(values, single, row, published),
            _gain(values, several, row, "round 0") if row in values[several[0]] else "",
        ]
        lines.append("| " + " | ".join([row, *gains]) + " |")
    sets = f"{len(single)} data sets with {num_seeds(values)} seeds"
    where = f"`results/defaults.csv`, experiment `choose methods`, commit {origin['commit'][:7]}, one CPU core."
    return "\n".join(
        [
            f"Accuracy on test samples in points (multi-label: mAP), mean over {sets} each, with",
            "95 % intervals over the data sets.",
            "",
            *lines,
            "",
            where,
        ]
    )


def _gain(values: Values, datasets: Sequence[str], row: str, base: str) -> str:
    means = [[float(np.mean(list(values[name][one].values()))) for name in datasets] for one in (row, base)]
    gain = paired_difference(*means)
    return f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"


def newest(path: Path) -> list[dict[str, str]]:
    """Return the rows of the last commit on each device for each model."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    commits = {(row["device"], row["model"]): row["commit"] for row in rows}
    return [row for row in rows if row["commit"] == commits[row["device"], row["model"]]]


def speeds(results: Path) -> str:
    """Return the newest bench on each device, as a Markdown table."""
    lines = [
        "| device, network | what | batch | engine | plain | published-like | of peak |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [row for row in newest(results / "bench.csv") if row["model"] and "beside" not in row["what"]]
    for row in rows:
        plain = _speed(row["plain_per_second"], row["ratio"])
        published = _speed(row["published_like_per_second"], row["published_like_ratio"])
        peak = f"{float(row['fraction_of_peak']):.0%}" if row["fraction_of_peak"] else ""
        cells = [f"{row['device']}, {row['model']}", row["what"], row["batch"], _speed(row["per_second"])]
        lines.append("| " + " | ".join([*cells, plain, published, peak]) + " |")
    return "\n".join([*lines, "", f"`results/bench.csv`, commit {_commits(rows)}."])


def beside_alone(results: Path) -> str:
    """Return the engine's speed on the networks for images and clips, beside the same network alone."""
    rows = [row for row in newest(results / "bench.csv") if "beside" in row["what"]]
    if not rows:
        return "Not run."
    lines = ["| device, network | what | batch | engine | alone |", "|---|---|---|---|---|"]
    for row in rows:
        cells = [f"{row['device']}, {row['model']}", row["what"], row["batch"], _speed(row["per_second"], row["ratio"])]
        lines.append("| " + " | ".join([*cells, _speed(row["plain_per_second"])]) + " |")
    return "\n".join([*lines, "", f"`results/bench.csv`, commit {_commits(rows)}."])


def selection(results: Path) -> str:
    """Return the time of the functions on arrays, in units of one comparison-and-sum."""
    rows = [row for row in newest(results / "bench.csv") if not row["model"]]
    lines = ["| function | time relative to one comparison-and-sum over p |", "|---|---|"]
    lines += [f"| {row['what']} | {float(row['ratio']):.1f} |" for row in rows]
    return "\n".join([*lines, "", f"`results/bench.csv`, commit {_commits(rows)}."])


def kernels(results: Path) -> str:
    """Return the newest profile, as a Markdown table."""
    lines = ["| what | kernels | ns per image | share | launches per batch |", "|---|---|---|---|---|"]
    rows = newest(results / "profile.csv")
    for row in rows:
        launches = float(row["launches"]) * int(row["batch"])
        cells = [f"{float(row['nanoseconds']):.0f}", f"{float(row['share']):.0%}", f"{launches:.0f}"]
        lines.append(f"| {row['what']} | {row['kernels']} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", f"`results/profile.csv`, commit {_commits(rows)}."])


def paper_short(results: Path) -> str:
    """Return a sentence with the newest runs of the paper's main table beside its figures."""
    rows = [row for row in read_rows(results / "runs.csv") if (row["experiment"], row["row"]) == ("table1", "UPS")]
    newest = {row["labels"]: row for row in rows if row["dataset"] == "cifar10" and row["metric"] == "test error %"}
    found = [
        f"{float(row['value']):.1f} % with {int(labels):,} labels (paper: {float(row['paper']):.1f} %)"
        for labels, row in newest.items()
    ]
    minutes = max(float(row["minutes"]) for row in newest.values())
    return f"The paper's CIFAR-10: test error {', '.join(found)}; one seed, up to {minutes:.0f} minutes on one H200."


def first_labels(results: Path, experiment: str) -> str:
    """Return the newest first selection for each number of labels, and what uncertainty adds at equal counts."""
    rows = [row for row in read_rows(results / "runs.csv") if row["experiment"] == experiment]
    found = [row for row in rows if row["metric"].startswith("first selection")]
    if not found:
        return "Not run."
    newest = {(row["labels"], row["metric"]): row for row in found}
    lines = []
    for labels in dict.fromkeys(labels for labels, _ in newest):
        value = {metric: float(row["value"]) for (n, metric), row in newest.items() if n == labels}
        for stage in ("before", "after"):
            number, accuracy = (
                value[f"first selection, {what} {stage} balancing"] for what in ("positives", "accuracy %")
            )
            cells = [labels, stage, f"{number:,.0f}", f"{accuracy:.2f}"]
            for other in ("confidence", "confidence (Cal.)"):
                what = f"first selection {stage} balancing, points above {other} at equal counts"
                mean, low, high = (value[f"{what}{end}"] for end in ("", ", 95 % low", ", 95 % high"))
                cells.append(f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]")
            lines.append("| " + " | ".join(cells) + " |")
    origin = sorted({f"{row['experiment']}, seed {row['seed']}, commit {row['commit'][:7]}" for row in newest.values()})
    return "\n".join(
        [
            "| labels | balancing | positive labels | correct (%) | minus confidence | minus confidence (Cal.) |",
            "|---|---|---|---|---|---|",
            *lines,
            "",
            f"`results/runs.csv`, {rows[-1]['dataset']}: {'; '.join(origin)}.",
        ]
    )


def first_labels_by_tau(results: Path, experiment: str) -> str:
    """Return the accuracy and the number of a first network's labels, by method and tau_p."""
    rows = [row for row in read_rows(results / "runs.csv") if row["experiment"] == experiment]
    pattern = re.compile(r"first labels by (?P<method>.*), (?P<tau>(?:no )?tau_p.*), (?P<what>number|accuracy %)")
    found = [(row, match) for row in rows if (match := pattern.fullmatch(row["metric"]))]
    if not found:
        return "Not run."
    last, _ = found[-1]
    cells: dict[str, dict[str, dict[str, float]]] = {}
    for row, match in found:
        if all(row[name] == last[name] for name in ("experiment", "row", "labels", "seed", "commit", "settings")):
            by_tau = cells.setdefault(match["method"], {}).setdefault(match["tau"], {})
            by_tau[match["what"]] = float(row["value"])
    taus = list(next(iter(cells.values())))
    lines = ["| | " + " | ".join(taus) + " |", "|---|" + "---|" * len(taus)]
    for method, by_tau in cells.items():
        # Without any label there is no accuracy, and no row for it.
        texts = [
            f"{cell['accuracy %']:.2f} % of {cell['number']:,.0f}" if "accuracy %" in cell else "none"
            for cell in (by_tau[tau] for tau in taus)
        ]
        lines.append(f"| {method} | " + " | ".join(texts) + " |")
    return "\n".join(
        [*lines, "", f"`results/runs.csv`, {last['dataset']}, seed {last['seed']}, commit {last['commit'][:7]}."]
    )


def trials(results: Path, experiment: str) -> str:
    """Return the validation scores by which a recipe was chosen."""
    rows = [row for row in read_rows(results / "runs.csv") if row["experiment"] == experiment]
    if not rows:
        return "Not run."
    lines = [f"| trial | {rows[-1]['metric']} | epochs | minutes |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['row']} | {float(row['value']):.2f} | {row['epochs']} | {float(row['minutes']):.1f} |")
    origin = ", ".join(sorted({f"seed {row['seed']}, commit {row['commit'][:7]}" for row in rows}))
    return "\n".join([*lines, "", f"`results/runs.csv`, experiment `{experiment}`: {origin}."])


def reliability(results: Path) -> str:
    """Return the counts of the last soak."""
    path = results / "reliability.csv"
    if not path.exists():
        return "Not run."
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    last = rows[-1]
    rows = [row for row in rows if all(row[name] == last[name] for name in ("commit", "seed", "machine"))]
    faults = ("unexpected", "tracebacks", "hangs", "differences", "outside")
    lines = [f"| test | count | outcomes | {' | '.join(faults)} |", "|---|---|---|" + "---|" * len(faults)]
    for row in rows:
        cells = [row["what"], f"{int(row['count']):,}", row["details"], *(row[name] for name in faults)]
        lines.append("| " + " | ".join(cells) + " |")
    minutes = sum(float(row["seconds"]) for row in rows) / 60
    origin = f"seed {last['seed']}, commit {last['commit'][:7]}, {minutes:.0f} minutes on {last['machine']}"
    where = f"Python {last['python']}, torch {last['torch']}"
    return "\n".join([*lines, "", f"`results/reliability.csv`, {origin}, {where}."])


def scale(results: Path) -> str:
    """Return the time and the memory of a round's steps, of each size the newest measurement."""
    path = results / "scale.csv"
    if not path.exists():
        return "Not run."
    with path.open(newline="") as file:
        rows = {(row["samples"], row["pool"], row["what"]): row for row in csv.DictReader(file) if row["pool"]}
    sizes = sorted({key[:2] for key in rows}, key=lambda size: (int(size[0]), size[1]))
    steps = list(dict.fromkeys(row["what"] for row in rows.values()))
    heads = [f"{int(samples):,}, in {'a file' if pool == 'file' else pool}" for samples, pool in sizes]
    lines = [f"| step | {' | '.join(heads)} |", "|---|" + "---|" * len(sizes)]
    for step in steps:
        found = [rows.get((*size, step)) for size in sizes]
        lines.append(f"| {step} | " + " | ".join("" if row is None else _seconds(row) for row in found) + " |")
    last = [rows[*size, steps[-1]] for size in sizes]
    kept = [[row for row in (rows.get((*size, step)) for step in steps) if row and row["kept_bytes"]] for size in sizes]
    bytes_kept = [" + ".join(f"{float(row['kept_bytes']):.3g}" for row in of_size) for of_size in kept]
    ends = {
        "largest memory of the process": [f"{int(row['peak_mib']):,} MiB" for row in last],
        "bytes a sample: problem + labels + targets + order": bytes_kept,
        "samples with negatives only": [f"{int(row['negatives_only']) / int(row['samples']):.0%}" for row in last],
    }
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in ends.items()]
    commits = ", ".join(sorted({row["commit"][:7] for row in last}))
    where = f"{last[0]['classes']} classes, {last[0]['machine']}, one of them used, Python {last[0]['python']}"
    return "\n".join([*lines, "", f"`results/scale.csv`, commit {commits}: {where}, numpy {last[0]['numpy']}."])


def _seconds(row: Mapping[str, str]) -> str:
    return f"{float(row['seconds']):,.2f} s"


def _speed(per_second: str, ratio: str = "") -> str:
    if not per_second:
        return ""
    value = float(per_second)
    text = f"{value:,.0f} /s" if value >= 100 else f"{1 / value:.3f} s"
    return f"{text} ({float(ratio):.2f} x)" if ratio else text


def _commits(rows: Sequence[dict[str, str]]) -> str:
    return ", ".join(sorted({f"{row['commit'][:7]} ({row['device']})" for row in rows}))


def consistency(results: Path, dataset: str) -> str:
    """Return the consistency trials with their scores on held-out training images; of those run again, the last."""
    found = [row for row in read_rows(results / "runs.csv") if row["experiment"] == "consistency-trials"]
    scores = [row for row in found if (row["dataset"], row["metric"]) == (dataset, "validation error %")]
    # The trial `study` trains on the held-out images too, without their labels.
    rows = {row["row"]: row for row in scores if "study" not in row["row"]}.values()
    if not rows:
        return "Not run yet: `experiments/consistency_trials.py` makes the rows."
    lines = ["| trial | labels | validation error % | images | minutes |", "|---|---|---|---|---|"]
    for row in rows:
        seen = f"{int(row['images_seen']) / 1e6:.1f} million"
        lines.append(
            f"| {row['row']} | {row['labels']} | {float(row['value']):.2f} | {seen} | {float(row['minutes']):.1f} |"
        )
    commits, devices = (", ".join(dict.fromkeys(of(row) for row in rows)) for of in (_commit, _device))
    end = f"`results/runs.csv`, experiment `consistency-trials`, seed 0, {devices}, commits {commits}."
    return "\n".join([*lines, "", end])


def _commit(row: Mapping[str, str]) -> str:
    return row["commit"][:7]


def _device(row: Mapping[str, str]) -> str:
    return row["device"].partition(":")[0]


def foreign(results: Path) -> str:
    """Return how many samples of no class are selected by each rule, in round 0 and in the last round."""
    with open(results / "foreign.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    last = rows[-1]
    rows = [row for row in rows if row["commit"] == last["commit"]]
    lines = [
        "| selection | tau_p | kappa_p | foreign selected (%), round 0 | last round | others selected, last round |",
        "|---|---|---|---|---|---|",
    ]
    for rule in dict.fromkeys(row["rule"] for row in rows):
        first, final = _by_place([row for row in rows if row["rule"] == rule])
        cells = [_percent(first, "foreign"), _percent(final, "foreign"), _percent(final, "known")]
        kappa = "–" if final[0]["kappa_p"] == "inf" else final[0]["kappa_p"]
        lines.append(f"| {rule} | {final[0]['tau_p']} | {kappa} | {' | '.join(cells)} |")
    seeds = len({row["seed"] for row in rows})
    most = max(int(row["foreign"]) for row in rows)
    more = f"mean over {seeds} seeds; {most} foreign and {last['known']} other samples, before any is labeled “other”"
    return "\n".join([*lines, "", f"`results/foreign.csv`, {more}, commit {last['commit'][:7]}."])


def _by_place(rows: Sequence[Mapping[str, str]]) -> tuple[list[Mapping[str, str]], list[Mapping[str, str]]]:
    """Return the rows of round 0, and those of the last rounds."""
    return [row for row in rows if row["round"] == "0"], [row for row in rows if row["round"] != "0"]


def _percent(rows: Sequence[Mapping[str, str]], kind: str) -> str:
    return f"{np.mean([100 * int(row[f'{kind}_selected']) / int(row[kind]) for row in rows]):.1f}"


BLOCKS: dict[str, Callable[[Path], str]] = {
    "first-run": first_run,
    "own-data": own_data,
    "pictures": pictures,
    "heads": heads,
    "own-data-short": own_data_short,
    "kept-rules": kept_rules,
    "sounds": sounds,
    "table-models": table_models,
    "method-trials": method_trials,
    "methods": methods,
    "own-rows": own_rows,
    "methods-settings": settings,
    "methods-figure": figure_link,
    "paper-short": paper_short,
    "foreign": foreign,
    "tables": tables,
    "demo": demo,
    "defaults": choice,
    "mulan": mulan,
    "speeds": speeds,
    "selection": selection,
    "kernels": kernels,
    "first-selection": functools.partial(first_labels, experiment="table5"),
    "first-labels-cifar10": functools.partial(first_labels_by_tau, experiment="table5"),
    "first-labels-tin100": functools.partial(first_labels_by_tau, experiment="tin100"),
    "first-round": first_round,
    "fresh-rounds": fresh_rounds,
    "all-labels": functools.partial(trials, experiment="cifar10-all-labels"),
    "beside-alone": beside_alone,
    "reliability": reliability,
    "scale": scale,
    "communication": communication,
    "labels-at-scale": labels_at_scale,
    "rounds-at-scale": rounds_at_scale,
    "sizes": sizes,
    "consistency": functools.partial(consistency, dataset="cifar10"),
    "consistency-small": functools.partial(consistency, dataset="cifar10, 16 x 16"),
    "gates": gate_table,
    **{name: functools.partial(rerun, dataset=name) for name in ("cifar10", "tin100", "coco18", "ucf3")},
}


FIGURES: dict[str, Callable[[Path], Panel | None]] = {FIGURE: figure}
"""Drawn into docs/images; None: there is nothing to draw yet."""


def updated(text: str, blocks: Mapping[str, str]) -> str:
    """Return a document with its marked blocks filled in; an unpaired mark or an unknown block is an error."""
    pattern = re.compile(r"(<!-- results:([\w-]+) -->\n).*?(<!-- /results:\2 -->)", re.DOTALL)
    marks, pairs = re.findall(r"<!-- /?results:.*?-->", text), pattern.findall(text)
    if len(marks) != 2 * len(pairs):
        raise ValueError("A block is broken: each <!-- results:NAME --> needs its <!-- /results:NAME -->.")
    unknown = [name for _, name, _ in pairs if name not in blocks]
    if unknown:
        raise ValueError(f"There is no block {unknown[0]!r}; there are {', '.join(blocks)}.")
    return pattern.sub(lambda match: f"{match[1]}{blocks[match[2]]}\n{match[3]}", text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a document is out of date")
    options = parser.parse_args(arguments)
    blocks = {name: make(ROOT / "results") for name, make in BLOCKS.items()}
    stale = False
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        before = document.read_text()
        after = updated(before, blocks)
        stale |= before != after
        if not options.check:
            document.write_text(after)
    stale |= any(figure_is_stale(ROOT / "docs" / "images" / name, options.check) for name in FIGURES)
    return int(stale and options.check)


def figure_is_stale(path: Path, check: bool) -> bool:
    """Draw a figure of the documents anew, or take away one of nothing; return whether that changes the file.

    Args:
        path: of the file, by whose name it is drawn.
        check: leave the file as it is.
    """
    before, panel = path.read_bytes() if path.exists() else None, FIGURES[path.name](ROOT / "results")
    after = None if panel is None else panel.file(path.suffix[1:])
    if not check and before != after:
        path.unlink(missing_ok=True)
        if after is not None:
            path.write_bytes(after)
    return before != after


if __name__ == "__main__":
    sys.exit(main())
