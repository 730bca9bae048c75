"""How fast ResNet-50 on pictures and 3-D ResNet-18 on clips are, beside the same network alone; all in one run.

    python -m benchmarks.resnet --results results/bench.csv

Two ratios for each network, of medians taken in turns, by the fast recipes of VOC2007 and UCF-101 on random samples:

- training with augmentation through the engine, against the same network, compiled, with the same optimizer, its step
  captured in a CUDA graph, on one batch that is on the device already, again and again;
- labeling by ten stochastic passes through the engine, against one pass of the same network, compiled, over batches of
  a size of its own: larger ones, where that makes it faster.

On a GPU in bfloat16 and channels_last; on a CPU, for which `--tiny` is meant, in float32 and not compiled.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.operations import MultiplyAdds, multiply_adds
from benchmarks.peak import matmul_peak
from benchmarks.results import append_rows, check_file, describe_device, origin
from benchmarks.timing import fastest_convolutions, medians, seconds, synchronize
from surelabel.augment.chain import Augment
from surelabel.data.source import ArraySource
from surelabel.data.training_set import TrainingSet, known_targets
from surelabel.data.video import ClipSettings
from surelabel.engine.feed import channels_last
from surelabel.engine.optimizer import make_optimizer
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.reproduce import ucf101, voc2007
from surelabel.settings import RunSettings

NUM_CLASSES = 20
ENGINE, ALONE = "engine", "alone"
LEAST_TRAINING, MOST_LABELING = 0.7, 1.3
"""What is aimed at: the share of the network's own speed in training, and ten passes in units of one."""


@dataclass(frozen=True)
class Case:
    """A network and its samples.

    Attributes:
        name: of the network and what it is shown.
        recipe: its fast recipe.
        shape: of a sample as it is stored.
        batch: samples in a step.
        batches: how many batches of samples there are.
        steps: of a training that is timed, the first one not counted.
        pass_batch: samples that the pass alone takes at once.
    """

    name: str
    recipe: RunSettings
    shape: tuple[int, ...]
    batch: int
    batches: int
    steps: int
    pass_batch: int


def cases(tiny: bool) -> list[Case]:
    """Return ResNet-50 at 128 pixels and 3-D ResNet-18 on 16 frames of 112 x 112; `tiny`: a few of 32 x 32."""
    side, frame = (32, 32) if tiny else (128, ucf101.SIDE)
    pictures = voc2007.fast_recipe(side=side)
    clips, clip = ucf101.fast_recipe(), ClipSettings(height=frame + 16, width=frame + 16)
    sizes = ((2, 2, 3, 4), (2, 2, 3, 2)) if tiny else ((256, 64, 60, 1024), (128, 16, 30, 128))
    return [
        Case(f"resnet50, {side} px", pictures, (3, side, side), *sizes[0]),
        Case(f"resnet3d18, {ucf101.WINDOW} x {frame} x {frame}", clips, clip.shape, *sizes[1]),
    ]


class Bench:
    """The two ways of a case."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device, self.first_step = case, device, 0.0
        generator = np.random.default_rng(0)
        count = case.batch * case.batches
        samples = generator.integers(0, 256, (count, *case.shape), dtype=np.uint8)
        y = np.eye(NUM_CLASSES, dtype=bool)[generator.integers(0, NUM_CLASSES, count)]
        task = case.recipe.config.task
        labels = y.argmax(axis=1) if task == "single" else y.astype(np.int64)
        known = known_targets("labeled", labels, task, NUM_CLASSES)
        self.training_set = TrainingSet(ArraySource(samples), known, count, task)
        self.learner = _settings(case, device).build(case.recipe.config.task, self._note_first_step)
        self.network = self.learner.build(case.shape, NUM_CLASSES).train()
        self.store, self.y = torch.from_numpy(samples).to(device), torch.from_numpy(y).float().to(device)
        self.fixed = self._shown(self.store[: case.batch])
        self.compiled = torch.compile(self.network, dynamic=False) if device.type == "cuda" else self.network
        rate = torch.tensor(self.learner.training.learning_rate, device=device)
        self.optimizer = make_optimizer(self.network, self.learner.training, rate)
        self.step_alone: Callable[[], object] | None = None

    def train(self) -> float:
        """Return the engine's seconds for a sample, from the end of a round's first step to the end of the round."""
        self.learner.fit(self.training_set, seed=0)
        synchronize(self.device)
        return (time.perf_counter() - self.first_step) / (self.case.batch * (self.case.steps - 1))

    def train_alone(self) -> float:
        """Return the network's own seconds for a sample, on one batch again and again."""
        self.network.train()
        with fastest_convolutions():
            step = self.step_alone = self.step_alone or self._captured()
            taken = seconds(lambda: [step() for _ in range(self.case.steps - 1)], self.device)
        return taken / (self.case.batch * (self.case.steps - 1))

    def label(self) -> float:
        """Return the engine's seconds for a sample by ten passes, until p and u are in the host's memory."""
        if self.learner.network is None:
            self.train()
        return seconds(self._label, self.device) / len(self.store)

    def label_alone(self) -> float:
        """Return the network's own seconds for a sample by one pass, until p is in the host's memory."""
        self.network.eval()
        with fastest_convolutions(), torch.no_grad():
            return seconds(lambda: [p.cpu() for p in self._one_pass()], self.device) / len(self.store)

    def count(self) -> MultiplyAdds:
        """Return the multiply-adds for a sample."""
        return multiply_adds(self.network, self.fixed[:1])

    def _captured(self) -> Callable[[], object]:
        """Return the step; on a GPU as a graph, so that launching its kernels does not bound it."""
        if self.device.type != "cuda":
            return self._step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            self._step()
        return graph.replay

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = binary_cross_entropy_with_logits(self._logits(self.compiled, self.fixed), self.y[: self.case.batch])
        loss.backward()
        self.optimizer.step()

    def _label(self) -> None:
        for prediction in self.learner.predict(self.training_set.source, seed=0):
            for part in prediction[1:]:
                assert part is not None
                part.cpu()

    def _one_pass(self) -> Iterator[Tensor]:
        for samples in self.store.split(self.case.pass_batch):
            yield self._logits(self.compiled, self._shown(samples)).sigmoid()

    def _logits(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        # Without the cache of cast weights: a graph would keep those of its capture.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda", cache_enabled=False):
            z = network(x)
        return z.float()

    def _shown(self, samples: Tensor) -> Tensor:
        augment = self.learner.training.augment
        assert augment is not None
        return channels_last(Augment(augment).plain(samples))

    def _note_first_step(self, what: str, done: int, total: int) -> None:
        if (what, done) == ("train", 1):
            synchronize(self.device)
            self.first_step = time.perf_counter()


def _settings(case: Case, device: torch.device) -> TorchLearnerSettings:
    learner = case.recipe.learner
    assert isinstance(learner, TorchLearnerSettings)
    assert learner.training.augment is not None
    augment = learner.training.augment
    if augment.side:
        augment = augment.replace(side=case.shape[-1] - 16)
    precision = "bfloat16" if device.type == "cuda" else "float32"
    changes = {"batch_size": case.batch, "labeled_batch_size": 0, "negative_batch_size": None, "steps": case.steps}
    training = learner.training.replace(**changes, precision=precision, augment=augment)
    return learner.replace(training=training, device=str(device))


def measure(case: Case, device: torch.device, peak: float, repeats: int) -> list[dict[str, object]]:
    """Return the two rows of a case."""
    bench = Bench(case, device)
    counted = bench.count()
    whats = {
        "training, beside a fixed batch alone": (bench.train, bench.train_alone, counted.training_operations()),
        "labeling, 10 passes, beside 1 pass alone": (bench.label, bench.label_alone, counted.labeling_operations(10)),
    }
    rows: list[dict[str, object]] = []
    for (what, (engine, alone, operations)), batch in zip(whats.items(), (case.batch, case.pass_batch), strict=True):
        taken = medians({ENGINE: engine, ALONE: alone}, repeats)
        speeds = {way: 1 / value for way, value in taken.items()}
        ratio = speeds[ENGINE] / speeds[ALONE]
        print(f"{case.name}: {what}: {speeds[ENGINE]:,.0f} and {speeds[ALONE]:,.0f} a second, ratio {ratio:.3f}")
        rows.append(
            {
                "what": what,
                "model": case.name,
                "batch": batch,
                "per_second": speeds[ENGINE],
                "plain_per_second": speeds[ALONE],
                "ratio": ratio,
                "fraction_of_peak": speeds[ENGINE] * operations / peak,
                **origin(device),
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, help="append the rows to this CSV file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a few small samples: tries everything, says nothing")
    options = parser.parse_args(arguments)
    if options.results is not None:
        check_file(options.results)
    device = torch.device(options.device)
    print(describe_device(device))
    peak, rows = matmul_peak(device), list[dict[str, object]]()
    for case in cases(options.tiny):
        measured = measure(case, device, peak, options.repeats)
        if options.results is not None:
            append_rows(options.results, measured)
        rows += measured
    training, labeling = (min(float(str(row["ratio"])) for row in rows[start::2]) for start in (0, 1))
    print(f"training: at least {training:.2f} of the network alone; aimed at: {LEAST_TRAINING}")
    print(f"ten passes: at most {1 / labeling:.2f} times one; aimed at: {MOST_LABELING}")


if __name__ == "__main__":
    main()
