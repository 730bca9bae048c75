"""The tables of docs/several-gpus.md: what exchanging gradients takes, measured here and computed for GPUs."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

Row = Mapping[str, str]


def communication(results: Path) -> str:
    """Return both tables, of each network and batch the newest rows."""
    path = results / "scale.csv"
    if not path.exists():
        return "Not run."
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"]]
    measured = _newest([row for row in rows if row["source"] == "measured"])
    computed = _newest([row for row in rows if row["source"] != "measured"])
    return "\n\n".join(["\n".join(_measured(measured)), "\n".join(_computed(computed))])


def _newest(rows: Sequence[Row]) -> list[Row]:
    return list({(row["model"], row["samples"], row["processes"]): row for row in rows}.values())


def _measured(rows: Sequence[Row]) -> list[str]:
    heads = "samples a step | exchanged | share of the exchange | waiting for the other process"
    lines = [f"| measured, 2 processes on a CPU | {heads} |", "|---|---|---|---|---|"]
    for row in rows:
        waiting = float(row["waiting_seconds"]) / float(row["seconds"])
        cells = [row["samples"], _megabytes(row), _percent(row["share"]), _percent(waiting)]
        lines.append(f"| {row['model']} | {' | '.join(cells)} |")
    where = ", ".join(
        dict.fromkeys(f"{row['machine']}, one for each process, commit {row['commit'][:7]}" for row in rows)
    )
    return [*lines, "", f"`results/scale.csv`, gloo, medians: {where}."]


def _computed(rows: Sequence[Row]) -> list[str]:
    sizes = list(dict.fromkeys(row["processes"] for row in rows))
    heads = [f"exchange, {size} GPUs (computed) | efficiency" for size in sizes]
    lines = [f"| network, samples a GPU | step of one GPU (measured) | exchanged | {' | '.join(heads)} |"]
    lines.append("|---|---|---|" + "---|---|" * len(sizes))
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{row['model']}, {int(row['samples']) // int(row['processes'])}"
        by_name.setdefault(name, []).append(row)
    for name, of_sizes in by_name.items():
        first = of_sizes[0]
        alone = float(first["seconds"]) - float(first["exchange_seconds"])
        cells = [_milliseconds(alone), _megabytes(first)]
        for row in of_sizes:
            cells += [_milliseconds(float(row["exchange_seconds"])), _percent(1 - float(row["share"]))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    sources = ", ".join(dict.fromkeys(row["source"].rsplit(", ", 1)[1] for row in rows))
    return [*lines, "", f"`results/scale.csv`, from the steps of one H200 in `results/bench.csv`, commits {sources}."]


def _megabytes(row: Row) -> str:
    return f"{int(row['exchange_bytes']) / 1e6:.3g} MB"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def _percent(share: str | float) -> str:
    return f"{100 * float(share):.2g} %"
