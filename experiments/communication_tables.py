"""The tables of docs/several-gpus.md: the cost of exchanging gradients, measured here and computed for GPUs."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

Row = Mapping[str, str]


def communication(results: Path) -> str:
    """Return both tables: of measurements, all of the last commit; of what is computed, the newest rows."""
    path = results / "scale.csv"
    if not path.exists():
        return "Not run."
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"]]
    measured = [row for row in rows if row["source"] == "measured"]
    computed = {(row["model"], row["samples"], row["processes"]): row for row in rows if row["source"] != "measured"}
    return "\n\n".join(["\n".join(_measured(measured)), "\n".join(_computed([*computed.values()]))])


def _measured(rows: Sequence[Row]) -> list[str]:
    last = rows[-1]
    runs = [row for row in rows if (row["commit"], row["machine"]) == (last["commit"], last["machine"])]
    heads = "samples a step | exchanged | share of the exchange | waiting for the other process"
    lines = [f"| measured, {last['processes']} processes on a CPU | {heads} |", "|---|---|---|---|---|"]
    of_models = {
        model: [row for row in runs if row["model"] == model] for model in {row["model"]: None for row in runs}
    }
    for model, of_model in of_models.items():
        waiting = [float(row["waiting_seconds"]) / float(row["seconds"]) for row in of_model]
        shares = _range([float(row["share"]) for row in of_model]), _range(waiting)
        cells = [of_model[0]["samples"], _megabytes(of_model[0]), *shares]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    number = len(of_models[last["model"]])
    where = f"medians over the steps of each run, from the lowest to the highest of {number} runs"
    origin = f"commit {last['commit'][:7]}, {last['machine']}, one for each process"
    return [*lines, "", f"`results/scale.csv`, {where}; gloo, {origin}."]


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


def _range(shares: Sequence[float]) -> str:
    return _percent(min(shares)) if len(shares) == 1 else f"{100 * min(shares):.2g} to {_percent(max(shares))}"


def _percent(share: str | float) -> str:
    return f"{100 * float(share):.2g} %"
