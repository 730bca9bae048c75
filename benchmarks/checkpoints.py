"""What checkpoints cost: CNN-13 in training with one every few seconds, beside none, in turns.

    python -m benchmarks.checkpoints --results results/bench.csv

A run writes one every five minutes. That would take too long to measure, and the share of so little time would drown in
noise; so they are written 150 times as often here, and cost 150 times as much.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.results import append_rows, check_file, describe_device, origin
from benchmarks.timing import medians, synchronize
from surelabel.data.source import ArraySource
from surelabel.data.targets import OneLabel
from surelabel.data.training_set import TrainingSet
from surelabel.reproduce.cifar import fast_recipe
from surelabel.runs.writing import RunCheckpoints
from surelabel.settings import RunSettings

DEFAULT = 60 * (RunSettings().checkpoint_minutes or 0.0)
"""Seconds between two checkpoints of a run."""


class Bench:
    """Trainings of some seconds, from the end of the first step to the end of the round."""

    def __init__(self, device: torch.device, steps: int, batch: int, seconds: float, folder: Path) -> None:
        generator = np.random.default_rng(0)
        pictures = generator.integers(0, 256, (4 * batch, 3, 32, 32), dtype=np.uint8)
        known = OneLabel.of(generator.integers(0, 10, len(pictures)), 10)
        self.training_set = TrainingSet(ArraySource(pictures), known, len(pictures), "single")
        recipe = fast_recipe()
        changes = {"batch_size": batch, "labeled_batch_size": 0, "negative_batch_size": None, "steps": steps}
        training = recipe.network.training.replace(**changes)
        if device.type == "cpu":
            training = training.replace(precision="float32", channels_last=False)
        settings = recipe.network.replace(training=training, device=str(device))
        self.learner = settings.build("single", self._note)
        self.store = RunCheckpoints(folder, seconds / 60)
        self.device, self.images, self.begun = device, batch * (steps - 1), 0.0

    def with_checkpoints(self) -> float:
        """Return the seconds for a picture."""
        self.learner.checkpoints = self.store
        (self.store.path / "rounds" / "000" / "checkpoint.bin").unlink(missing_ok=True)
        return self._train()

    def without(self) -> float:
        """Return the seconds for a picture."""
        self.learner.checkpoints = None
        return self._train()

    def _train(self) -> float:
        self.learner.fit(self.training_set, seed=0)
        synchronize(self.device)
        return (time.perf_counter() - self.begun) / self.images

    def _note(self, what: str, done: int, total: int) -> None:
        if (what, done) == ("train", 1):
            synchronize(self.device)
            self.begun = time.perf_counter()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="append the row to this CSV file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=2.0, help="between two checkpoints")
    options = parser.parse_args(arguments)
    if options.results is not None:
        check_file(options.results)
    device = torch.device(options.device)
    print(describe_device(device))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(device, options.steps, options.batch, options.seconds, Path(folder))
        taken = medians({"with": bench.with_checkpoints, "without": bench.without}, options.repeats)
        size = (Path(folder) / "rounds" / "000" / "checkpoint.bin").stat().st_size
    ratio = taken["without"] / taken["with"]
    share = (1 / ratio - 1) * options.seconds / DEFAULT
    print(f"{1 / taken['with']:,.0f} and {1 / taken['without']:,.0f} pictures a second, ratio {ratio:.4f}")
    print(f"a checkpoint has {size / 2**20:.0f} MiB; one every {DEFAULT:.0f} s costs {share:.3%} of the time")
    row = {
        "what": f"training, a checkpoint every {options.seconds:g} s, beside none",
        "model": "cnn13, checkpoints",
        "batch": options.batch,
        "per_second": 1 / taken["with"],
        "plain_per_second": 1 / taken["without"],
        "ratio": ratio,
        **origin(device),
    }
    if options.results is not None:
        append_rows(options.results, [row])


if __name__ == "__main__":
    main()
