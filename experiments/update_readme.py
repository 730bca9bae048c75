"""Write the README's result tables from `results/runs.csv`; `--check` fails when they differ.

python experiments/update_readme.py
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surelabel.report.results import paired_difference, read_rows

ROOT = Path(__file__).resolve().parents[1]
Values = dict[str, dict[str, dict[int, float]]]
"""Data set, row, seed to value."""


def latest(experiment: str, results: Path) -> tuple[Values, dict[str, str]]:
    """Return the values of the experiment's newest settings and commit, and one of its rows."""
    rows = [row for row in read_rows(results / "runs.csv") if row["experiment"] == experiment]
    last = rows[-1]
    values: Values = {}
    for row in rows:
        if (row["commit"], row["settings"]) == (last["commit"], last["settings"]):
            scale = 1 if row["metric"].endswith("%") else 100
            by_row = values.setdefault(row["dataset"], {})
            by_row.setdefault(row["row"], {})[int(row["seed"])] = scale * float(row["value"])
    return values, last


def table(values: Values, ups: str) -> list[str]:
    """Return a Markdown table: a row a method, a column a data set; the mean, and UPS minus it with its interval."""
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


def blocks(results: Path) -> dict[str, str]:
    """Return the text of each marked block of the README."""
    tables, origin = latest("tables", results)
    demo, demo_origin = latest("demo", results)
    seeds, demo_seeds = (len(next(iter(next(iter(v.values())).values()))) for v in (tables, demo))
    return {
        "tables": "\n".join(
            [
                f"Five labels per class on small tables, test accuracy in %, mean over {seeds} seeds; in brackets UPS",
                "minus the method, paired, with its 95 % interval. `UPSClassifier` runs with its defaults, which were",
                "chosen on other data sets.",
                "",
                *table(tables, "UPS"),
                "",
                f"`results/runs.csv`, experiment `tables`, commit {origin['commit']}, one CPU core.",
            ]
        ),
        "demo": "\n".join(
            [
                f"The demo, {demo_origin['labels']} labeled digits as pictures, test accuracy in %, mean over",
                f"{demo_seeds} seeds; brackets as above:",
                "",
                *table(demo, "UPS"),
                "",
                f"`results/runs.csv`, experiment `demo`, commit {demo_origin['commit'][:7]}.",
            ]
        ),
    }


def updated(text: str, results: Path) -> str:
    """Return the README with its marked blocks filled in."""
    for name, block in blocks(results).items():
        pattern = re.compile(rf"(<!-- results:{name} -->\n).*?(<!-- /results:{name} -->)", re.DOTALL)
        text = pattern.sub(lambda match, block=block: f"{match[1]}{block}\n{match[2]}", text)
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the README is out of date")
    options = parser.parse_args(arguments)
    readme = ROOT / "README.md"
    before = readme.read_text()
    after = updated(before, ROOT / "results")
    if options.check:
        return int(before != after)
    readme.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
