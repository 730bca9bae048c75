"""Labels of a pool in shards, by the command line: rows a second with one process, with two, and with Ray.

`surelabel label` labels made-up Parquet shards of 64 features with ten passes of a run's network. Each way starts anew,
and its time is that of the whole command, start and all. The parts of all ways must be the same, byte for byte.

    python -m benchmarks.labels_at_scale --samples 1000000 --results results/
    python -m benchmarks.labels_at_scale --samples 1000000 --ray --results results/
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pool_at_scale import COLUMNS
from surelabel.data.tables import write_table
from surelabel.runs.environment import describe_environment
from surelabel.runs.rows import append

FEATURES, CLASSES, LABELED = 64, 10, 500
ROWS_OF_A_GROUP = 50_000
WAYS = {"1 process": ["--workers", "1"], "2 processes": ["--workers", "2"]}
RAY = {"Ray, 2 workers": ["--engine", "ray", "--workers", "2"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("--ray", action="store_true", help="measure Ray too, which must be installed")
    parser.add_argument("--results", type=Path, help="append to scale.csv in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="surelabel-labels-") as name:
        folder = Path(name)
        make_pool(folder, options.samples, options.shards)
        rows = measure(folder, options.samples, WAYS | (RAY if options.ray else {}))
    if options.results:
        append(options.results / "scale.csv", COLUMNS, rows)


def make_pool(folder: Path, num_samples: int, num_shards: int) -> None:
    """Write a run of a table, and a pool in shards."""
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    names = [f"x{number}" for number in range(FEATURES)]

    def drawn(number: int) -> tuple[dict[str, Any], Any]:
        y = np.arange(number) % CLASSES
        x = centers[y] + 2 * generator.normal(size=(number, FEATURES)).astype(np.float32)
        return dict(zip(names, x.T, strict=True)), y

    columns, y = drawn(2 * LABELED)
    labels = [f"class {label}" if row < LABELED else None for row, label in enumerate(y)]
    write_table(folder / "own.csv", {**columns, "label": labels})
    words = ["--label", "label", "--rounds", "1", "--epochs", "1", "--no-compare", "--device", "cpu", "--quiet"]
    run("fit", folder / "own.csv", *words, "--out", folder / "run")
    (folder / "pool").mkdir()
    for shard, rows in enumerate(np.array_split(np.arange(num_samples), num_shards)):
        table = pa.table(drawn(len(rows))[0])
        pq.write_table(table, folder / "pool" / f"{shard:04d}.parquet", row_group_size=ROWS_OF_A_GROUP)


def measure(folder: Path, num_samples: int, ways: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Label the pool in each way, and return the rows of `results/scale.csv`."""
    environment = describe_environment()
    about = {"samples": num_samples, "classes": CLASSES, "python": environment["versions"]["python"]}
    about |= {"machine": f"{environment['processor']}, {environment['cores']} cores", "numpy": np.__version__}
    about["commit"] = environment["commit"]
    rows, first = [], None
    for way, words in ways.items():
        out = folder / way.replace(" ", "-")
        started = time.perf_counter()
        run("label", folder / "run", folder / "pool", *words, "--out", f"{out}/")
        seconds = time.perf_counter() - started
        # Of all processes so far the largest; Ray's workers are not among them.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        memory = "" if "--engine" in words else f"{peak:.0f}"
        values = {"seconds": f"{seconds:.4g}", "per_second": f"{num_samples / seconds:.4g}", "peak_mib": memory}
        rows.append({**about, "what": f"label, {way}", **values})
        print(f"{way:16s}{seconds:9.1f} s{num_samples / seconds:12,.0f} rows/s, peak {memory or '?'} MiB", flush=True)
        parts = {path.name: path.read_bytes() for path in sorted(out.glob("*.parquet"))}
        first = first or parts
        if parts != first:
            raise AssertionError(f"The parts by {way} are not those by {next(iter(ways))}.")
    return rows


def run(*words: object) -> None:
    """Run a command of surelabel."""
    subprocess.run([sys.executable, "-m", "surelabel", *map(str, words)], check=True)


if __name__ == "__main__":
    main()
