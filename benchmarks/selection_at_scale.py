"""Selection at scale: how long equations 1, 2 and 5 and the balance rule take, and how much memory.

    OMP_NUM_THREADS=1 python -m benchmarks.selection_at_scale --results results

Each function is timed in turns with one comparison-and-sum over p, `(p >= t).sum()`, on made-up predictions; the ratio
is its median time over that one's. Memory is the peak of what the function allocates, as a share of p and u together;
what it returns counts.

In a virtual machine that hands freed memory back to its host, the two masks of `select` (0.4 GB) can take the system as
long to provide as all comparisons take, or next to nothing, from one call to the next. With the GNU C library,

    MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=1073741824

before the command lets the process keep what it has freed, and the time is the function's own; the rows say so.
"""

import argparse
import functools
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.results import append_rows, origin
from benchmarks.timing import medians, seconds
from surelabel import balance, pseudo_labels, select

COMPARISON = "comparison and sum"
MOST_TIME, MOST_MEMORY = 6.0, 0.5
CPU = torch.device("cpu")
MEMORY = ", freed memory kept" if "MALLOC_TRIM_THRESHOLD_" in os.environ else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--results", type=Path, help="append to bench.csv in this folder")
    options = parser.parse_args()
    p, u = predictions(options.samples, options.classes)
    work = functions(p, u)
    times = medians({name: functools.partial(warm_seconds, f) for name, f in work.items()}, options.repeats)
    comparison = times.pop(COMPARISON)
    print(f"{options.samples} x {options.classes} float32{MEMORY}; {COMPARISON}: {comparison:.3f} s")
    for name, value in times.items():
        memory = peak_bytes(work[name]) / (p.nbytes + u.nbytes)
        print(f"  {name:32s}{value:7.3f} s {value / comparison:6.2f} x (at most {MOST_TIME:g})", end="")
        print(f"   memory {memory:.3f} of p and u (at most {MOST_MEMORY:g})")
    if options.results:
        torch.set_num_threads(1)  # the rows name the number of threads, and numpy's comparisons use one
        append_rows(options.results / "bench.csv", rows(times, comparison, options.samples))


def warm_seconds(function: Callable[[], Any]) -> float:
    """Return the time of a second run: the first one fetches memory that the second may use again."""
    function()
    return seconds(function, CPU)


def predictions(num_samples: int, num_classes: int) -> tuple[Any, Any]:
    """Return p, softmax of normal logits with one class of each row raised, and u, both (N, C) in float32."""
    generator = np.random.default_rng(0)
    p = np.empty((num_samples, num_classes), np.float32)
    for start in range(0, num_samples, 1000):
        block = p[start : start + 1000]
        z = generator.standard_normal(block.shape, dtype=np.float32)
        top = generator.integers(0, num_classes, len(block))
        z[np.arange(len(block)), top] += 12 * generator.random(len(block), dtype=np.float32)
        np.exp(z, out=z)
        block[:] = z / z.sum(axis=1, keepdims=True)
    u = generator.random(p.shape, dtype=np.float32)
    u *= 0.02
    return p, u


def functions(p: Any, u: Any) -> dict[str, Callable[[], Any]]:
    """Return what is timed, by the name of its row."""
    selection = select(p, u)
    p_soft, u_soft = p.copy(), u.copy()
    return {
        COMPARISON: lambda: (p >= np.float32(0.7)).sum(),
        "pseudo_labels": lambda: pseudo_labels(p),
        "pseudo_labels, multi": lambda: pseudo_labels(p, "multi"),
        "select": lambda: select(p, u),
        "select, softened pass given": lambda: select(p, u, p_soft=p_soft, u_soft=u_soft),
        "select, multi": lambda: select(p, u, task="multi"),
        "balance": lambda: balance(selection, u),
    }


def peak_bytes(function: Callable[[], Any]) -> int:
    """Return the peak of what a function allocates through numpy."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def rows(times: dict[str, float], comparison: float, num_samples: int) -> list[dict[str, Any]]:
    """Return the rows of `results/bench.csv`: `ratio` is a function's time over the comparison's."""
    return [
        {
            "what": name + MEMORY,
            "batch": num_samples,
            "per_second": num_samples / value,
            "ratio": value / comparison,
            **origin(CPU),
        }
        for name, value in times.items()
    ]


if __name__ == "__main__":
    main()
