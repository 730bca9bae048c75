"""The tables of docs/scale.md: how fast pools in shards are labeled, rounds over them, and what that adds up to."""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

Row = Mapping[str, str]

ONE = "label, 1 process"
CORES = 64
"""Of the cluster that times are computed for."""
KEPT = 40
"""Bytes of a sample that stay in memory in rounds, ids included; docs/scale.md says what they are."""
WAYS = {
    1_000: "`fit`",
    10_000: "`fit`",
    100_000: "`fit`, on a GPU where samples are pictures",
    1_000_000: "`fit`, or `fit --pool` where the samples do not fit in memory",
    10_000_000: "`fit --pool --workers N`, or torchrun",
    100_000_000: "`fit --pool --engine ray`",
    1_000_000_000: "`fit` on a part of the pool, then `label --engine ray`",
}
"""What suits a pool of so many samples."""


def labels_at_scale(results: Path) -> str:
    """Return how fast pools in shards are labeled, the newest measurement of each way and size."""
    rows = {(row["what"], row["samples"]): row for row in _rows(results) if row["what"].startswith("label, ")}
    if not rows:
        return "Not run yet: `python -m benchmarks.labels_at_scale --samples 1000000 --ray --results results/`."
    lines = ["| labeled by | samples | seconds | samples a second | largest process |", "|---|---|---|---|---|"]
    for (what, samples), row in rows.items():
        speed = f"{float(row['seconds']):,.0f} | {float(row['per_second']):,.0f}"
        lines.append(f"| {what.removeprefix('label, ')} | {int(samples):,} | {speed} | {_memory(row)} |")
    last = [*rows.values()][-1]
    about = f"{last['classes']} classes, 64 features, ten passes, {last['machine']}, Python {last['python']}"
    source = f"`results/scale.csv`, commit {_commits(rows.values())}: {about}. Whole commands, start and all."
    return "\n".join([*lines, "", source])


def rounds_at_scale(results: Path) -> str:
    """Return how rounds over a pool in shards ended, undisturbed and with kills; the newest of each kind of workers."""
    rows = {row["what"]: row for row in _rows(results) if " rounds over shards, " in row["what"]}
    if not rows:
        return "Not run yet: `python -m benchmarks.rounds_at_scale --samples 1000000 --engine ray --results results/`."
    heads = "labeled | seconds | samples a second | largest driver | largest worker | labeled twice"
    lines = [f"| rounds | {heads} |", "|---|---|---|---|---|---|---|"]
    for what, row in rows.items():
        if not what.endswith((", undisturbed", ", killed")):
            continue
        ways = [rows.get(f"{what}: memory of a {role}") for role in ("driver", "worker")]
        memory = " | ".join("" if one is None else _memory(one) for one in ways)
        how, _, disturbed = what.rpartition(", ")
        again = {name: row for name, row in rows.items() if name.startswith(f"{how}: rows labeled twice")}
        twice = ""
        for name, one in again.items() if disturbed == "killed" else ():
            kills = name.removeprefix(f"{how}: rows labeled twice after ")
            twice = f"{int(one['samples']):,} ({kills})"
        speed = f"{float(row['seconds']):,.0f} | {float(row['per_second']):,.0f}"
        lines.append(f"| {what} | {int(row['samples']):,} | {speed} | {memory} | {twice} |")
    last = [*rows.values()][-1]
    about = f"{last['classes']} classes, 64 features, ten passes, one epoch, {last['machine']}"
    return "\n".join([*lines, "", f"`results/scale.csv`, commit {_commits(rows.values())}: {about}. Training counted."])


def sizes(results: Path) -> str:
    """Return what to use from 10^3 to 10^9 samples, and what measured rates add up to."""
    rows = [row for row in _rows(results) if row["what"] == ONE]
    if not rows:
        return "Not computed yet: it needs the rows of `benchmarks.labels_at_scale`."
    rate = float(max(rows, key=lambda row: int(row["samples"]))["per_second"])
    heads = f"what is kept in rounds | labeled once, one core | the same, {CORES} cores"
    lines = [f"| samples | use | {heads} |", "|---|---|---|---|---|"]
    for number, way in WAYS.items():
        times = f"{_time(number / rate)} | {_time(number / rate / CORES)}"
        lines.append(f"| {number:,} | {way} | {_size(KEPT * number)} | {times} |")
    source = (
        f"Computed: {KEPT} bytes a sample, and {rate:,.0f} samples a second and core as in the table of labels below "
        f"(64 features, ten passes). {CORES} cores are taken to be {CORES} times as fast as one."
    )
    return "\n".join([*lines, "", source])


def _rows(results: Path) -> list[Row]:
    """Return the rows that are not steps of a pool in memory."""
    path = results / "scale.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if not row["pool"]]


def _commits(rows: Iterable[Row]) -> str:
    return ", ".join(sorted({row["commit"][:7] for row in rows}))


def _memory(row: Row) -> str:
    return f"{int(row['peak_mib']):,} MiB" if row["peak_mib"] else ""


def _size(number: float) -> str:
    """Return bytes as people say them.

    >>> _size(40_000), _size(4e9)
    ('40 kB', '4 GB')
    """
    units = {"GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1}
    unit = next(unit for unit, size in units.items() if number >= size)
    return f"{number / units[unit]:g} {unit}"


def _time(seconds: float) -> str:
    """Return seconds as people say them.

    >>> _time(0.2), _time(90), _time(7200), _time(300_000)
    ('less than a second', '90 seconds', '2 hours', '3 days')
    """
    if seconds < 1:
        return "less than a second"
    if seconds < 100:
        return f"{seconds:.0f} second{'s' * (round(seconds) != 1)}"
    units = {"days": (86_400, 3), "hours": (3600, 2), "minutes": (60, 1)}
    unit, size = next((unit, size) for unit, (size, least) in units.items() if seconds >= least * size)
    return f"{seconds / size:.0f} {unit}"
