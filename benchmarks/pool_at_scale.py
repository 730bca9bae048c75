"""A pool at scale: time and memory of what a round does with the labels of 10^5 to 10^8 samples, except for training.

    OMP_NUM_THREADS=1 python -m benchmarks.pool_at_scale --samples 1000000 --results results

The predictions are made by code, a chunk at a time: some made-up blocks whose classes are shifted anew for each chunk.
Each step is that of a run: chunks are labeled, selected and balanced, the record is made, the tables are
written, the next round's targets are made, and the first batches of its training are drawn.

Memory is the peak of the whole process, interpreter included, since it began; so a size is a process of its own.
`SURELABEL_ROWS_IN_MEMORY` says above which size a pool is kept in a file. The time that the predictions take is left
out of the other steps, and is a row of its own.
"""

import argparse
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.selection_at_scale import predictions
from surelabel import Prediction, Source, TrainingSet, TrainingSettings, UPSConfig
from surelabel.data.draws import sample_keys
from surelabel.data.pool import PoolLabels, rows_in_memory
from surelabel.data.source import ArraySource
from surelabel.data.training_set import make_problem
from surelabel.engine.order import batch_order
from surelabel.loop import label_pool
from surelabel.methods.ups import UPSMethod
from surelabel.records import describe
from surelabel.runs.environment import describe_environment
from surelabel.runs.files import write_streams
from surelabel.runs.rows import append
from surelabel.runs.tables import write_tables

COLUMNS = (
    "what",
    "samples",
    "classes",
    "pool",
    "seconds",
    "per_second",
    "peak_mib",
    "kept_bytes",
    "negatives_only",
    "machine",
    "python",
    "numpy",
    "commit",
    "model",
    "processes",
    "exchange_seconds",
    "waiting_seconds",
    "exchange_bytes",
    "share",
    "source",
)
"""The columns of `results/scale.csv`; those from `model` on are of `benchmarks.communication`.

`kept_bytes` is what a step adds to memory for a sample, on average, and what stays until another one takes its place:
ids and ground truth until the run ends, labels until the next network trains, targets and the order of an epoch while
it does. Not in it are the samples, and the packed bits of negatives, C / 8 bytes for each of `negatives_only`.
"""

CHUNK, BLOCKS, BATCHES = 1000, 4, 200


class MadeUp:
    """Labels samples by blocks of made-up predictions, and measures how long these take."""

    def __init__(self, num_classes: int) -> None:
        p, u = predictions(BLOCKS * CHUNK, num_classes)
        self.blocks = [(p[at : at + CHUNK], u[at : at + CHUNK]) for at in range(0, len(p), CHUNK)]
        self.seconds = 0.0

    def fit(self, training_set: TrainingSet, *, seed: int) -> None:
        """Learn nothing."""

    def predict(self, source: Source, *, seed: int) -> Iterator[Prediction]:
        """Yield the predictions, chunk by chunk."""
        for number, start in enumerate(range(0, len(source), CHUNK)):
            started = time.perf_counter()
            ids = source.ids[start : start + CHUNK]
            p, u = (np.roll(part, number, axis=1)[: len(ids)] for part in self.blocks[number % BLOCKS])
            self.seconds += time.perf_counter() - started
            yield Prediction(ids, p, u)


class Steps:
    """The rows of one size."""

    def __init__(self, num_samples: int, num_classes: int) -> None:
        environment = describe_environment()
        machine = f"{environment['processor']}, {environment['cores']} cores"
        versions = {"python": environment["versions"]["python"], "numpy": np.__version__}
        kept = "file" if num_samples > rows_in_memory() else "memory"
        self.about: dict[str, Any] = {"samples": num_samples, "classes": num_classes, "pool": kept, "machine": machine}
        self.about |= {**versions, "commit": environment["commit"]}
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, seconds: float, kept: float | str = "") -> None:
        """Add a row, and show it; `kept`: how many bytes stay."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        speed = f"{self.about['samples'] / seconds:.4g}"
        self.rows.append(
            {
                **self.about,
                "what": what,
                "seconds": f"{seconds:.4g}",
                "per_second": speed,
                "peak_mib": f"{peak:.0f}",
                "kept_bytes": f"{kept / self.about['samples']:.3g}" if kept else "",
            }
        )
        print(f"{what:32s}{seconds:9.2f} s, peak {peak:6.0f} MiB", flush=True)

    def timed(self, what: str, step: Callable[[], Any], kept: Callable[[Any], float] = lambda _: 0) -> Any:
        """Take a step, and add its row with the bytes that stay of its result."""
        started = time.perf_counter()
        result = step()
        self.add(what, time.perf_counter() - started, kept(result))
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--results", type=Path, help="append to scale.csv in this folder")
    options = parser.parse_args()
    steps = Steps(options.samples, options.classes)
    print(f"{options.samples} samples x {options.classes} classes, pool in {steps.about['pool']}")
    measure(steps, options.samples, options.classes)
    if options.results:
        append(options.results / "scale.csv", COLUMNS, steps.rows)


def measure(steps: Steps, num_samples: int, num_classes: int) -> None:
    """Take all steps of a round."""
    learner = MadeUp(num_classes)
    labeled = np.zeros((num_classes, 1), np.uint8), np.arange(num_classes)
    pool_of = ArraySource(np.zeros((num_samples, 1), np.uint8))
    labeled_source = ArraySource(labeled[0], ids=np.arange(num_samples, num_samples + num_classes))
    config = UPSConfig(balance="equal", balance_rounds=1)
    problem = steps.timed(
        "problem",
        lambda: make_problem((labeled_source, labeled[1]), pool_of, "single"),
        lambda made: made.pool.ids.nbytes + made.targets.arrays()[0].nbytes,
    )
    started = time.perf_counter()
    pool = label_pool(learner, problem, config, 1)
    assert pool is not None
    steps.add("label, select, balance", time.perf_counter() - started - learner.seconds, bytes_of_pool(pool))
    steps.add("predictions, made by code", learner.seconds)
    rest: Any = {"balanced": True, "negatives_use": "loss", "minutes": 0.0, "stop": None}
    record = steps.timed("record", lambda: describe(1, pool, None, num_classes=num_classes, **rest))
    names = [str(number) for number in range(num_classes)]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("pool.parquet", "negatives.parquet")]
        steps.timed("tables", lambda: write_streams(files, lambda *to: write_tables(pool, names, None, *to)))
    del learner
    training_set = steps.timed(
        "targets", lambda: problem.training_set(pool.selected), lambda made: made.targets.arrays()[0].nbytes
    )
    steps.timed(f"first {BATCHES} batches", lambda: draw_batches(training_set), float)
    for row in steps.rows:
        row["negatives_only"] = record.num_negative_only


def bytes_of_pool(pool: PoolLabels) -> int:
    """Return how many bytes of a pool are in memory, without the packed bits of its negatives and its source's ids."""
    there = vars(pool)
    columns = sum(column.nbytes for name, column in there.items() if name != "ids" and isinstance(column, np.ndarray))
    return columns + (there["negative"].rows.nbytes if "negative" in there else 0)


def draw_batches(training_set: TrainingSet) -> int:
    """Draw the first batches of a training, with their packed targets; return the bytes that stay until the last."""
    settings, kept = TrainingSettings(batch_size=256, negative_batch_size=256), 0
    tracemalloc.start()
    streams = UPSMethod("single", settings).streams(training_set)
    for block in batch_order(streams, sample_keys(training_set.source.ids), 0, BATCHES):
        training_set.targets.packed(block.rows.ravel())
        kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept


if __name__ == "__main__":
    main()
