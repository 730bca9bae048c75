"""Where a GPU's time goes: kernels of a training step and of labeling, by what they do, as `make bench` runs them.

    python -m benchmarks.profile_engine --results results

Needs a GPU. Times are the kernels' own, for an image, without the gaps between them; under the profiler a step is up to
a tenth slower than without it.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.engine_way import Engine
from benchmarks.results import origin
from benchmarks.run import default_settings
from surelabel.runs.rows import append

COLUMNS = ("what", "model", "batch", "kernels", "nanoseconds", "share", "launches", "device", "torch", "commit")

MATRIX_PRODUCTS, ELEMENTWISE, OPTIMIZER, REST = (
    "convolutions and matrix products",
    "BatchNorm, activation, pooling, dropout",
    "optimizer",
    "augmentation, loss, copies and the rest",
)
KINDS = {
    MATRIX_PRODUCTS: r"xmma|cutlass|gemm|nvjet|AddPadding",
    ELEMENTWISE: r"batch_norm|leaky_relu|max_pool|dropout",
    OPTIMIZER: r"multi_tensor_apply|foreach",
}
"""What a kernel's name shows; the first that fits counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="append to profile.csv in this folder")
    options = parser.parse_args()
    settings = default_settings("cuda")
    engine = Engine(settings.work(settings.batches[0]))
    engine.train_seconds()
    engine.label_seconds()
    trained, labeled = engine.epochs * len(engine.work.images), len(engine.work.images)
    rows = [
        *profiled("training", settings.batches[0], engine._fit, trained),
        *profiled(f"labeling, {settings.passes} passes", settings.label_batch, engine._label, labeled),
    ]
    where = {"model": f"{settings.model}, width {settings.width}", **origin(torch.device("cuda"))}
    for row in rows:
        print(f"{row['what']:22s}{row['kernels']:42s}{row['nanoseconds']:8.0f} ns an image  {row['share']:6.1%}")
    if options.results:
        append(options.results / "profile.csv", COLUMNS, [{**row, **where} for row in rows])


def profiled(what: str, batch: int, work: Callable[[], None], num_images: int) -> list[dict[str, Any]]:
    """Return the time and the launches of each kind of kernel, for an image."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    times, launches = dict.fromkeys([*KINDS, REST], 0.0), dict.fromkeys([*KINDS, REST], 0)
    for event in profiler.key_averages():
        kind = next((kind for kind, names in KINDS.items() if re.search(names, event.key)), REST)
        times[kind] += event.self_device_time_total
        launches[kind] += event.count
    total = sum(times.values())
    return [
        {
            "what": what,
            "batch": batch,
            "kernels": kind,
            "nanoseconds": round(1e3 * time / num_images, 1),
            "share": round(time / total, 4),
            "launches": round(launches[kind] / num_images, 5),
        }
        for kind, time in times.items()
        if time
    ]


if __name__ == "__main__":
    main()
