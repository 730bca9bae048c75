"""What torchrun costs one process: CNN-13 trained as the only member of a group, beside no group, before and after.

    python -m benchmarks.one_process --results results/bench.csv

A process in a group averages its gradients and statistics over the group in every step, also where it is alone in it.
The step is compiled and captured with or without that, so it is made once for each, and not in turns.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import distributed as dist

from benchmarks.checkpoints import Bench
from benchmarks.results import append_rows, check_file, describe_device, origin


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="append the row to this CSV file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=4, help="trainings in the group; half as many before and after")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args(arguments)
    if options.results is not None:
        check_file(options.results)
    device = torch.device(options.device)
    half = max(1, options.repeats // 2)
    print(describe_device(device))
    with tempfile.TemporaryDirectory() as folder:
        alone, member = (Bench(device, options.steps, options.batch, 1.0, Path(folder)) for _ in range(2))
        taken = [alone.without() for _ in range(1 + half)][1:]  # the first one compiles
        backend, store = "nccl" if device.type == "cuda" else "gloo", dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        try:
            in_group = statistics.median([member.without() for _ in range(1 + options.repeats)][1:])
        finally:
            dist.destroy_process_group()
        taken += [alone.without() for _ in range(half)]
    without = statistics.median(taken)
    print(f"{1 / in_group:,.0f} and {1 / without:,.0f} pictures a second, ratio {without / in_group:.4f}")
    print(f"before and after: {', '.join(f'{1 / seconds:,.0f}' for seconds in taken)}")
    row = {
        "what": "training, one process in a group, beside no group",
        "model": "cnn13, torchrun",
        "batch": options.batch,
        "per_second": 1 / in_group,
        "plain_per_second": 1 / without,
        "ratio": without / in_group,
        **origin(device),
    }
    if options.results is not None:
        append_rows(options.results, [row])


if __name__ == "__main__":
    main()
