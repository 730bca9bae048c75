"""Trials of consistency on CIFAR-10: a teacher labels weakly augmented pictures, the network learns strong views.

    python experiments/consistency_trials.py --minutes 9 --out runs/consistency-trials base soft

The teacher is the average of the network's weights. Its label of a picture, seen under flip and crop, is learned on
strong views of the same picture, as much as a gate says (`Consistency`). Trials (TRIALS) are scored on 10,000 training
pictures that are held out; test pictures are not looked at. They take about as much work each: `seconds` at the speed
of one H200, where the network's pass back and forth costs three passes of the teacher.

A finished trial is kept as a file in `--out` and not repeated. With `--minutes` none is begun that would end too late.
The rows of all kept ones go to `--results`, once. `--tiny` shows that it works: made-up pictures, a CPU, seconds.
"""

import argparse
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from does_uncertainty_help import store_made_up
from torch import Tensor, nn
from torch.nn.functional import batch_norm, cross_entropy

from surelabel.augment.chain import Augment
from surelabel.augment.settings import AugmentSettings
from surelabel.data.draws import seed_for
from surelabel.data.run_data import RunData
from surelabel.data.sets import cifar10
from surelabel.data.source import as_source
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.method import Batch, Method, Stream
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.network import TorchLearner
from surelabel.models.cnn13 import cnn13
from surelabel.reproduce.cifar import CIFAR10
from surelabel.reproduce.results import append_rows, read_rows, settings_file
from surelabel.runs.checks import split_of
from surelabel.runs.environment import describe_environment
from surelabel.runs.files import make_folder, read_json, write_file, write_json
from surelabel.runs.rows import alone

EXPERIMENT = "consistency-trials"
VALIDATION, SPEED = 10_000, 230_000
"""Pictures held out; teacher's passes in a second, measured on one H200."""

PROTOCOL = (
    "One training of CNN-13 by the method `Consistency` of experiments/consistency_trials.py, linear rate after a "
    "warm-up of 5 %, bfloat16. Scored on training pictures held out: the averaged weights in one plain pass, with "
    "BatchNorm's running statistics, or with those of the pool's pictures as they are."
)

NORMALIZE = AugmentSettings(mean=CIFAR10.mean, std=CIFAR10.std)
WEAK = NORMALIZE.replace(flip=True, crop=4)
STRONG = WEAK.replace(operations=2, jitter=0.4, hole=16)


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a trial consists of.

    Attributes:
        seconds: of training, by the count of passes.
        labels: labeled pictures; 0: all of them, and no consistency.
        labeled: labeled pictures in a batch.
        unlabeled: unlabeled pictures in a batch, each labeled once by the teacher.
        views: strong views of each of them.
        gate: "fixed": labels of at least `tau`. "soft": SoftMatch's weight. "free": FreeMatch's thresholds.
        tau: of the fixed gate.
        align: the teacher's answer is divided by its mean over time before it is judged and taken as a label.
        strong_labels: labeled pictures are strongly augmented too.
        batch_statistics: the teacher's BatchNorm uses those of its weak batch, not the network's running ones.
        dropout: of CNN-13.
        rate: the peak rate.
        decay: of the average.
        weight_decay: on matrices.
        seed: of split and training.
    """

    seconds: float = 120.0
    labels: int = 1000
    labeled: int = 64
    unlabeled: int = 448
    views: int = 1
    gate: Literal["fixed", "soft", "free"] = "fixed"
    tau: float = 0.95
    align: bool = False
    strong_labels: bool = False
    batch_statistics: bool = False
    dropout: float = 0.15
    rate: float = 0.2
    decay: float = 0.998
    weight_decay: float = 5e-4
    seed: int = 0

    @property
    def steps(self) -> int:
        """So many as take `seconds`."""
        if not self.labels:
            return round(self.seconds * SPEED / (3 * self.labeled))
        return round(self.seconds * SPEED / (3 * (self.labeled + self.views * self.unlabeled) + self.unlabeled))


BASE = Trial()
ALL = Trial(
    gate="soft", align=True, views=2, unlabeled=224, strong_labels=True, batch_statistics=True, dropout=0.0, decay=0.999
)
WEAK_LABELS = dataclasses.replace(ALL, strong_labels=False)
TRIALS = {
    "all labels": Trial(labels=0, labeled=512, strong_labels=True, dropout=0.0, decay=0.999),
    "base": BASE,
    "all changes": ALL,
    "all changes, half the batch": dataclasses.replace(ALL, labeled=32, unlabeled=112, rate=0.1),
    "all changes, fixed gate": dataclasses.replace(ALL, gate="fixed"),
    "all changes, weak labels": WEAK_LABELS,
    "weak labels, one view": dataclasses.replace(WEAK_LABELS, views=1, unlabeled=448),
    "weak labels, rate 0.1": dataclasses.replace(WEAK_LABELS, rate=0.1),
    "weak labels, running statistics": dataclasses.replace(WEAK_LABELS, batch_statistics=False),
    "weak labels, rate 0.4": dataclasses.replace(WEAK_LABELS, rate=0.4),
}


@dataclasses.dataclass(frozen=True)
class Consistency(Method):
    """CE(labels) + mean of w(q) CE(argmax q, p(strong view)), q the teacher's answer to the weak view.

    w is 1[max q >= tau], or SoftMatch's exp(-min(max q - m, 0)² / (2 v / 4)) with m and v the running mean and variance
    of max q, or 1[max q_c >= t p_c / max p] with FreeMatch's running t and p.
    """

    teacher = True

    trial: Trial

    def tensors(self, num_rows: int, num_classes: int) -> dict[str, Tensor]:
        """Return running means: of the teacher's answers, of the largest probability in them, and its variance."""
        uniform = torch.full((num_classes,), 1 / num_classes)
        return {"answers": uniform, "mean": uniform[0].clone(), "variance": torch.ones(())}

    def streams(self, training_set: TrainingSet) -> list[Stream]:
        """Return a stream of labeled pictures, and one of all, without labels."""
        labeled = training_set.g.all(axis=1)
        streams = [Stream(np.flatnonzero(labeled), self.trial.labeled)]
        if self.trial.labels:
            streams.append(Stream(np.arange(len(labeled)), self.trial.unlabeled))
        return streams

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss of a batch."""
        assert teacher is not None
        trial, weak, strong = self.trial, Augment(WEAK), Augment(STRONG)
        known = batch.stream(0)
        views = [known.view(strong if trial.strong_labels else weak)]
        if trial.labels:
            others = batch.stream(1)
            views += [others.view(strong, f"strong {number}") for number in range(trial.views)]
            with torch.no_grad():
                q = teacher(channels_last(others.view(weak))).float().softmax(dim=1)
                weight, label = self.judged(q, batch.state)
        logits = network(channels_last(torch.cat(views))).float()
        first = batch.sizes[0]
        loss = cross_entropy(logits[:first], known.y.float())
        if trial.labels:
            each = cross_entropy(logits[first:], label.repeat(trial.views), reduction="none")
            loss = loss + (weight.repeat(trial.views) * each).mean()
        return loss

    def judged(self, q: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the weight of each of the teacher's answers and its label."""
        answers, mean, variance = state["answers"], state["mean"], state["variance"]
        answers.lerp_(q.mean(dim=0), 0.01)
        if self.trial.align:
            q = q / answers
            q = q / q.sum(dim=1, keepdim=True)
        confidence, label = q.max(dim=1)
        mean.lerp_(confidence.mean(), 0.01)
        variance.lerp_(confidence.var(), 0.01)
        if self.trial.gate == "fixed":
            weight = confidence >= self.trial.tau
        elif self.trial.gate == "free":
            weight = confidence >= mean * answers[label] / answers.max()
        else:
            weight = torch.exp(-((confidence - mean).clamp(max=0) ** 2) / (2 * variance / 4))
        return weight.float(), label

    def samples_in_step(self, max_rounds: int) -> int:
        """Return those that the network sees."""
        return self.trial.labeled + (self.trial.views * self.trial.unlabeled if self.trial.labels else 0)

    def samples_in_round(self, num_labeled: int, *others: object) -> tuple[int, int]:
        """Return the epochs over the labels, and what the network sees in all."""
        steps = self.trial.steps
        return round(steps * self.trial.labeled / num_labeled), steps * self.samples_in_step(0)


class BatchNorm(nn.BatchNorm2d):
    """In evaluation mode by the statistics of the batch, until `running` is set."""

    running = False

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalized."""
        if self.training or self.running:
            return super().forward(x)
        return batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class ConsistencyLearner(TorchLearner):
    """Trains CNN-13 by `Consistency`."""

    def __init__(self, trial: Trial, width: int = 128) -> None:
        self.trial, self.width = trial, width
        super().__init__(self._network, training=training_of(trial), method=lambda *_: Consistency(trial))

    def _network(self, sample_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        network = cnn13(sample_shape, num_classes, dropout=self.trial.dropout, width=self.width)
        for layer in network.modules():
            if self.trial.batch_statistics and type(layer) is nn.BatchNorm2d:
                layer.__class__ = BatchNorm
        return network


def training_of(trial: Trial) -> TrainingSettings:
    """Return how a trial's network is trained."""
    gpu = torch.cuda.is_available()
    return TrainingSettings(
        learning_rate=trial.rate,
        weight_decay=trial.weight_decay,
        decay_all=False,
        warmup=0.05,
        schedule="linear",
        steps=trial.steps,
        ema_decay=trial.decay,
        augment=NORMALIZE,
        precision="bfloat16" if gpu else "float32",
        channels_last=gpu,
    )


def channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", choices=[*TRIALS, []], help="all where none is named")
    parser.add_argument("--out", type=Path, default=Path("runs") / EXPERIMENT, help="where finished trials are kept")
    parser.add_argument("--results", type=Path, default=Path("results/runs.csv"))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for this call")
    parser.add_argument("--tiny", action="store_true", help="made-up pictures, a narrow network, few steps")
    options = parser.parse_args(arguments)
    make_folder(options.out)
    if options.tiny:
        store_made_up(options.out / "data")
        options.results = options.out / "results" / "runs.csv"
        make_folder(options.results.parent)
    started = time.monotonic()
    record(options.out, options.results)
    for name in options.trials or TRIALS:
        trial, file = TRIALS[name], options.out / f"{name.replace(' ', '-')}.json"
        if file.exists():
            continue
        if (time.monotonic() - started + trial.seconds) / 60 + 1 > options.minutes:
            print(f"Stopped before '{name}': it might not end in time. The same command goes on.")
            return
        write_json(file, run(name, trial, options))
        record(options.out, options.results)


def run(name: str, trial: Trial, options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings and the rows of a results file of one trial."""
    started = time.monotonic()
    if options.tiny:
        trial = dataclasses.replace(trial, labeled=16, unlabeled=32, seconds=0.03)
    data = data_of(trial, options.out if options.tiny else None)
    learner = ConsistencyLearner(trial, width=8 if options.tiny else 128)
    problem = make_problem(data.labeled, data.unlabeled, "single", len(data.classes))
    learner.fit(problem.training_set(None), seed=seed_for(trial.seed, 0, "fit"))
    assert data.validation is not None
    minutes, errors = (time.monotonic() - started) / 60, {}
    if not trial.batch_statistics:  # else the running ones were never used
        errors["validation error %, running statistics"] = validation_error(learner, data)
    estimate_statistics(learner, data)
    errors["validation error %"] = validation_error(learner, data)
    print(f"{name}: {errors}, {trial.steps} steps, {minutes:.2f} minutes", flush=True)
    same = row_of(name, trial, data, learner, minutes)
    return {
        "settings": {"protocol": PROTOCOL, **dataclasses.asdict(trial)},
        "rows": [{**same, "metric": metric, "value": value} for metric, value in errors.items()],
    }


def data_of(trial: Trial, tiny: Path | None) -> RunData:
    held, everything = (VALIDATION, 50_000) if tiny is None else (200, 600)
    labels = trial.labels if tiny is None else 200
    return cifar10(
        seed=trial.seed,
        labels=labels if trial.labels else everything - held,
        num_validation=held,
        folder=None if tiny is None else str(tiny / "data"),
    )


def validation_error(learner: TorchLearner, data: RunData) -> float:
    assert data.validation is not None
    samples, y = data.validation
    return round(100 * float(np.mean(learner.predict_proba(samples).argmax(axis=1) != y)), 4)


@torch.no_grad()
def estimate_statistics(learner: TorchLearner, data: RunData) -> None:
    """Set BatchNorm's statistics to those of the pool's pictures as they are."""
    network = learner.network
    assert network is not None
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum, layer.running = None, True
            layer.train()
    pictures = data.labeled[0] if data.unlabeled is None else data.unlabeled
    for _, batch in learner._chunks(as_source("pictures", pictures), network):
        with learner._arithmetic(batch):
            network(batch)
    network.eval()


def row_of(name: str, trial: Trial, data: RunData, learner: TorchLearner, minutes: float) -> dict[str, Any]:
    labeled, environment = len(data.labeled[1]), describe_environment(learner)
    epochs, seen = Consistency(trial).samples_in_round(labeled)
    assert data.validation is not None
    return {
        "experiment": EXPERIMENT,
        "row": name,
        "dataset": CIFAR10.name,
        "labels": labeled,
        "validation_labels": len(data.validation[1]),
        "split_hash": split_of(data)["hash"],
        "seed": trial.seed,
        "paper": None,
        "rounds": 0,
        "epochs": epochs,
        "images_seen": seen,
        "minutes": minutes,
        "device": f"{environment['device']}: {environment['processor']}",
        "torch": torch.__version__,
        "commit": environment["commit"] or "",
    }


def record(out: Path, results: Path) -> None:
    """Append the rows of all kept trials that the results file has not yet, and keep their settings beside it."""

    def told(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in ("experiment", "row", "seed", "metric", "settings", "commit"))

    with alone(results):
        known = {told(row) for row in read_rows(results)}
        for path in sorted(out.glob("*.json")):
            trial = read_json(path)
            name, text = settings_file(EXPERIMENT, trial["settings"])
            rows = [{**row, "settings": name} for row in trial["rows"]]
            write_file(results.parent / name, text)
            append_rows(results, [row for row in rows if told(row) not in known])


if __name__ == "__main__":
    main()
