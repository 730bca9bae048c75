"""What several processes that train one network spend on exchanging gradients: measured for two, computed for more.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 -m benchmarks.communication --results results
    python -m benchmarks.communication --results results

Under torchrun it is measured. Before each exchange the processes wait for each other, and this is timed apart: how far
they drift depends on what else the machine does. What is claimed is a share, of two things timed in one run.

By itself it is computed, from the measured steps of one GPU in `results/bench.csv` and the bytes that a step exchanges,
for a ring all-reduce over n GPUs in m machines:

    seconds = 2 (n - 1) / n * bytes / bandwidth + latency
    latency = BASE + 2 (n - m) * NVLINK_HOP + 2 (m - 1) * NETWORK_HOP

Each GPU takes the batch that the measured one took, and nothing overlaps with the exchange, as in the engine.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.pool_at_scale import COLUMNS
from benchmarks.resnet import NUM_CLASSES
from surelabel.data.source import ArraySource
from surelabel.data.targets import OneLabel
from surelabel.data.training_set import TrainingSet
from surelabel.engine import step
from surelabel.engine.norms import norms_of
from surelabel.engine.parallel import average, processes
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.network import ModelFactory, TorchLearner
from surelabel.models.cnn13 import cnn13
from surelabel.models.resnet import resnet50
from surelabel.models.resnet3d import resnet3d18
from surelabel.models.table import table_network
from surelabel.runs.environment import describe_environment
from surelabel.runs.rows import append, content

NVLINK = 450e9
"""Bytes a second in each direction, of a GPU to the others of its machine: half of the 900 GB/s of NVIDIA's H200
datasheet, which counts both directions."""
NETWORK = 50e9
"""Bytes a second between machines: 400 Gbit/s for each machine of eight GPUs."""
BASE, NVLINK_HOP, NETWORK_HOP = 8.4e-6, 3.4e-6, 9.6e-6
"""Seconds to begin, and for a step of the ring within and between machines: those by which NCCL itself chooses its
algorithms (src/graph/tuning.cc, ring, protocol Simple)."""
CLUSTERS = {(8, 1): "8 GPUs of one machine", (64, 8): "64 GPUs of 8 machines"}
"""Numbers of GPUs and machines."""

ON_GPU: dict[str, tuple[ModelFactory, tuple[int, ...], int]] = {
    "cnn13, width 128": (cnn13, (3, 32, 32), 10),
    "resnet50, 128 px": (resnet50, (3, 128, 128), NUM_CLASSES),
    "resnet3d18, 16 x 112 x 112": (resnet3d18, (3, 16, 112, 112), NUM_CLASSES),
}
"""The networks of `results/bench.csv`: how they are made, the shape of a sample, and how many classes there are."""

WARM_UP = 5
"""Steps that are not counted."""


class Case(NamedTuple):
    """What is trained here: a network, samples, and how many of these a step of all processes takes."""

    model: str
    make: ModelFactory
    samples: Any
    batch: int


class Exchanges:
    """Takes the place of `average`, and times it.

    Attributes:
        waiting: of each exchange, the seconds until the other processes were there.
        seconds: of each exchange itself.
        bytes: of the last one.
    """

    def __init__(self) -> None:
        self.waiting: list[float] = []
        self.seconds: list[float] = []
        self.bytes = 0

    def __call__(self, tensors: Iterable[Tensor]) -> None:
        """Wait for the other processes, then replace the tensors by their means."""
        tensors = list(tensors)
        self.bytes = sum(tensor.nbytes for tensor in tensors)
        started = time.perf_counter()
        dist.barrier()
        met = time.perf_counter()
        average(tensors)
        self.waiting.append(met - started)
        self.seconds.append(time.perf_counter() - met)


def cases(tiny: bool) -> list[Case]:
    """Return CNN-13, without augmentation, and the network for tables.

    Args:
        tiny: few samples, which tries everything and says nothing.
    """
    generator = np.random.default_rng(0)
    pictures = generator.random((8 if tiny else 64, 3, 32, 32), dtype=np.float32)
    rows = generator.normal(size=(32 if tiny else 4096, 64)).astype(np.float32)
    return [
        Case("cnn13, width 128", cnn13, pictures, 4 if tiny else 16),
        Case("table, 64 features, hidden 128 and 128", table_network, rows, 16 if tiny else 256),
    ]


def measure(case: Case, steps: int) -> dict[str, Any]:
    """Return the row of a case: medians over the steps of this process."""
    labels = np.arange(len(case.samples)) % 10
    known = OneLabel.of(labels, 10)
    training_set = TrainingSet(ArraySource(case.samples), known, len(known), "single")
    training = TrainingSettings(batch_size=case.batch, steps=WARM_UP + steps)
    ends: list[float] = []
    learner = TorchLearner(
        case.make,
        training=training,
        device="cpu",
        threads=1,
        progress=lambda *_: ends.append(time.perf_counter()),
    )
    exchanges = Exchanges()
    with mock.patch.object(step, "average", exchanges):
        learner.fit(training_set, seed=0)
    taken = np.diff(ends)[WARM_UP - 1 :]
    seconds = statistics.median(taken)
    exchange, waiting = (statistics.median(part[WARM_UP:]) for part in (exchanges.seconds, exchanges.waiting))
    return row(
        case.model, processes().size, case.batch, seconds, exchange, exchanges.bytes, waiting_seconds=f"{waiting:.4g}"
    ) | {"what": "training step", "source": "measured"}


def computed(bench: Path) -> list[dict[str, Any]]:
    """Return the rows that follow from the newest training of each network and batch on an H200."""
    with bench.open(newline="") as file:
        rows = [one for one in csv.DictReader(file) if one["what"].startswith("training")]
    found = {(one["model"], one["batch"]): one for one in rows if one["model"] in ON_GPU and "H200" in one["device"]}
    return [of_gpus(one, *size) for one in found.values() for size in CLUSTERS]


def of_gpus(measured: dict[str, str], gpus: int, machines: int) -> dict[str, Any]:
    """Return the row of as many GPUs as that of a measured one."""
    make, shape, num_classes = ON_GPU[measured["model"]]
    with torch.device("meta"):
        size = exchanged_bytes(make(shape, num_classes))
    batch = int(measured["batch"])
    exchange = ring(size, gpus, machines)
    seconds = batch / float(measured["per_second"]) + exchange
    named = f"{measured['what']}, batch {batch}, {measured['device']}, {measured['commit'][:7]}"
    link = "NVLink 450 GB/s" + (", 400 Gbit/s a machine" if machines > 1 else "")
    return row(measured["model"], gpus, batch * gpus, seconds, exchange, size) | {
        "what": "training step",
        "source": f"computed from bench.csv: {named}",
        "machine": f"{CLUSTERS[gpus, machines]}, {measured['device']}, {link}",
    }


def ring(size: int, gpus: int, machines: int) -> float:
    """Return the seconds of a ring all-reduce.

    >>> ring(0, 8, 1) == 8.4e-6 + 14 * 3.4e-6
    True
    >>> round(1e3 * (ring(10**9, 8, 1) - ring(0, 8, 1)), 3)  # 7 / 4 * 1 GB at 450 GB/s
    3.889
    """
    bandwidth = NVLINK if machines == 1 else NETWORK
    latency = BASE + 2 * (gpus - machines) * NVLINK_HOP + 2 * (machines - 1) * NETWORK_HOP
    return 2 * (gpus - 1) / gpus * size / bandwidth + latency


def exchanged_bytes(network: nn.Module) -> int:
    """Return how many bytes a step exchanges: gradients, which there are, BatchNorm's statistics and the loss.

    All are in single precision.

    >>> exchanged_bytes(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    84
    """
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    kept = [buffer for norm in norms_of(network) for buffer in norm.buffers() if buffer.is_floating_point()]
    return 4 * (sum(tensor.numel() for tensor in (*learned, *kept)) + len(learned) + 1)


def row(model: str, number: int, batch: int, seconds: float, exchange: float, size: int, **more: Any) -> dict[str, Any]:
    """Return a row of `results/scale.csv`; `seconds` are those of a step, the exchange in it."""
    environment = describe_environment()
    return {
        "samples": batch,
        "seconds": f"{seconds:.4g}",
        "per_second": f"{batch / seconds:.4g}",
        "machine": f"{environment['processor']}, {environment['cores']} cores",
        "python": environment["versions"]["python"],
        "numpy": np.__version__,
        "commit": environment["commit"],
        "model": model,
        "processes": number,
        "exchange_seconds": f"{exchange:.4g}",
        "exchange_bytes": size,
        "share": f"{exchange / seconds:.4g}",
        **more,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="append to scale.csv in this folder")
    parser.add_argument("--bench", type=Path, default=Path("results/bench.csv"), help="the measured steps of one GPU")
    parser.add_argument("--steps", type=int, default=40, help="that are measured")
    parser.add_argument("--tiny", action="store_true", help="few samples: tries everything, says nothing")
    options = parser.parse_args(arguments)
    if options.results is not None:
        content(options.results / "scale.csv", COLUMNS)  # refused now rather than after the measurement
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
        rows = [measure(case, options.steps) for case in cases(options.tiny)]
        first = dist.get_rank() == 0
        dist.destroy_process_group()
        if not first:
            return
    else:
        rows = computed(options.bench)
    for one in rows:
        size = f"{int(one['exchange_bytes']) / 1e6:.3g} MB"
        print(f"{one['model']}, {one['processes']} processes, {one['samples']} samples a step: {size}", end=", ")
        print(f"{float(one['share']):.1%} of {1e3 * float(one['seconds']):.3g} ms; {one['source']}")
    if options.results is not None:
        append(options.results / "scale.csv", COLUMNS, rows)


if __name__ == "__main__":
    main()
