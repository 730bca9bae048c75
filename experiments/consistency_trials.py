"""Trials of consistency on CIFAR-10: a teacher labels weakly augmented pictures, the network learns strong views.

    python experiments/consistency_trials.py --minutes 9 --out runs/consistency-trials search "260 s, memory"

The teacher is the average of the network's weights. Its label of a picture under flip and crop is learned on strong
views of the same picture, weighted by a gate (`TeacherMatch`). Trials are scored on 10,000 held-out training pictures;
test pictures are not used. Each takes about the same work: `seconds` at the speed of one H200, where the network's
forward and backward pass costs as much as three passes of the teacher. A trial is named by what it changes (CHANGES);
"search" stands for the eight trials of SEARCH. "small, …" is for a CPU: pictures of half the side, and a network of a
quarter of the width, in about twenty minutes on one core.

A finished trial is kept as a file in `--out` and not repeated. With `--minutes`, no trial starts that would end too
late. The rows of all kept trials go to `--results`, once. `--tiny` is a test run of seconds: synthetic pictures, on a
CPU.
"""

import argparse
import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from does_uncertainty_help import store_made_up
from gate_material import Arrays, Looker
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import surelabel as sl
from surelabel.augment.chain import Augment
from surelabel.augment.mixup import mixup_coefficients
from surelabel.augment.settings import AugmentSettings
from surelabel.data.images import ImageSet, Pictures, data_folder, is_stored, open_stored, store
from surelabel.data.run_data import RunData
from surelabel.data.sets import cifar10
from surelabel.data.source import Concatenation, as_source
from surelabel.data.training_set import TrainingSet
from surelabel.engine.method import Batch, Look
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.network import TorchLearner
from surelabel.methods.consistency import LEAST
from surelabel.methods.teacher_match import TeacherMatch
from surelabel.models.cnn13 import cnn13
from surelabel.reproduce.cifar import CIFAR10
from surelabel.reproduce.results import append_rows, read_rows, settings_file
from surelabel.runs.checks import split_of
from surelabel.runs.environment import describe_environment
from surelabel.runs.files import make_folder, read_json, write_file, write_json
from surelabel.runs.rows import alone

EXPERIMENT = "consistency-trials"
MIXED = 0.75
"""Of the Beta distribution of mixtures, as in MixMatch."""

VALIDATION, TINY_VALIDATION = 10_000, 200
"""Pictures held out, also with --tiny."""

SPEED, SMALL_SPEED = 230_000, 5_000
"""Teacher's passes in a second: measured on one H200, and of a small trial on one core of a CPU."""

PROTOCOL = (
    "One training of CNN-13 by the method `TeacherMatch`, linear rate after a "
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
        labels: labeled pictures; 0: all of them, learned by UPS's rule.
        labeled: labeled pictures in a batch.
        unlabeled: unlabeled pictures in a batch, each labeled by the teacher.
        method: parameters of `Tried`.
        strong: settings of the strong augmentation other than the usual ones.
        dropout: of CNN-13.
        rate: the peak rate.
        optimizer: what it is the rate of.
        decay: of the average.
        share: the most of the steps so far that the average covers.
        weight_decay: on matrices.
        growth: how many times as long as round 0 a round of UPS is that follows it; None: there is none.
        config: settings of that round, such as thresholds, that differ from the paper's.
        seed: of split and training.
        small: whether pictures have half the side, and the network a quarter of the width.
    """

    seconds: float = 120.0
    labels: int = 1000
    labeled: int = 64
    unlabeled: int = 224
    method: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    strong: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dropout: float = 0.0
    rate: float = 0.4
    optimizer: Literal["sgd", "muon"] = "sgd"
    decay: float = 0.999
    share: float = 0.1
    weight_decay: float = 5e-4
    growth: float | None = None
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    small: bool = False

    @property
    def steps(self) -> int:
        """So many as take `seconds`, in round 0."""
        speed = SMALL_SPEED if self.small else SPEED
        if not self.labels:
            return round(self.seconds * speed / (3 * self.labeled))
        views = self.method.get("views", 2)
        passes = 2 if self.method.get("asked") == "mirrored" else 1
        shown = 9 / 16 if self.method.get("squares") else 1
        steps = self.seconds * speed / (3 * shown * (self.labeled + views * self.unlabeled) + passes * self.unlabeled)
        return round(steps / (1 + (self.growth or 0)))


CHANGES: dict[str, dict[str, Any]] = {
    "small": {"small": True, "seconds": 1200.0},
    "all labels": {"labels": 0, "labeled": 512, "share": 1.0},
    "260 s": {"seconds": 260.0},
    "rate 0.8": {"rate": 0.8},
    "muon": {"optimizer": "muon"},
    "stronger": {"strong": {"operations": 3}},
    "weaker": {"share": 1.0, "strong": {"operations": 1, "jitter": 0.0}},
    "four views": {"share": 1.0, "unlabeled": 112, "method": {"views": 4}},
    "fewer labeled": {"labeled": 32, "unlabeled": 240},
    "average of a twentieth": {"share": 0.05},
    "more decay": {"weight_decay": 1e-3},
    "ramp": {"method": {"ramp": 0.1}},
    "wider weights": {"method": {"sharpness": 1.0}},
    "soft labels": {"method": {"soft": 0.5}},
    "negatives": {"method": {"tau_n": 0.05}},
    "memory": {"method": {"memory": 0.7}},
    "memory with a gate": {"method": {"memory": 0.7, "kappa": 0.1}},
    "mixed": {"method": {"mixing": "mixup"}},
    "cut and mixed": {"method": {"mixing": "cutmix"}},
    "plain answers": {"method": {"asked": "plain"}},
    "mirrored answers": {"method": {"asked": "mirrored"}},
    "squares": {"method": {"squares": True}},
    "weak end": {"method": {"weak_end": 0.2}},
    "study": {"method": {"studied": VALIDATION}},
    "a round": {"growth": 1.0},
    "a round without negatives": {"growth": 1.0, "config": {"negatives": False}},
}
"""What is changed in `Trial()`. A trial is named by its changes, "260 s, a round"."""

PLAIN = "recent average"
"""The trial without changes."""

FACTORS = "rate 0.8", "stronger", "cut and mixed", "soft labels", "memory", "fewer labeled", "weak end"
"""What the eight trials of SEARCH compare: each change is in four of them, and each two of the changes are in two."""


def design() -> list[str]:
    """Return the trials of a fractional factorial design for seven changes: the last four follow from the first three.

    >>> design()[1]
    'rate 0.8, soft labels, memory, weak end'
    """
    trials = []
    for number in range(8):
        a, b, c = (1 if number >> bit & 1 else -1 for bit in range(3))
        signs = a, b, c, -a * b, -a * c, -b * c, a * b * c
        changes = [name for name, sign in zip(FACTORS, signs, strict=True) if sign > 0]
        trials.append(", ".join(changes) or PLAIN)
    return trials


SEARCH = design()


def trial_of(name: str) -> Trial:
    """Return the trial with the changes that its name lists."""
    changes: dict[str, Any] = {}
    for part in name.split(", ") if name != PLAIN else []:
        for field, value in CHANGES[part].items():
            changes[field] = {**changes.get(field, {}), **value} if isinstance(value, dict) else value
    return Trial(**changes)


@dataclasses.dataclass(frozen=True)
class Tried(TeacherMatch):
    """`TeacherMatch`, and what may help.

    Args:
        task: "single".
        settings: of the training.
        ramp: the share of the round in which the weight rises from 0.
        memory: what the memory of a row's answers keeps of itself in a visit: its mean is then the answer. 0: none.
        kappa: answers whose spread over the visits of a row is larger do not count.
        soft: the temperature of answers that are learned as probabilities, not as the likeliest class. 0: as that.
        tau_n: classes with a lower probability are negative labels of answers that count less than half. 0: none.
        mixing: "mixup" or "cutmix": the last strong view of each row is mixed with that of the next row. "": none.
        asked: what the teacher is asked about: "weak" views, "plain" pictures, or "mirrored", these and their mirror
            images, whose answers are averaged.
        weak_end: the last share of the round, in which more and more of the strong views become weak ones.
        squares: the network learns squares that are cut out of the pictures, 24 pixels of 32; the teacher sees all.
        studied: the last so many rows of the pool: what can judge the teacher's answers to them is written at a
            quarter, a half and three quarters of the training, for `gates.py`. The memory is kept, and not used.
    """

    ramp: float = 0.0
    memory: float = 0.0
    kappa: float = float("inf")
    soft: float = 0.0
    tau_n: float = 0.0
    mixing: str = ""
    asked: str = "weak"
    weak_end: float = 0.0
    squares: bool = False
    studied: int = 0

    moments: ClassVar[list[Arrays]] = []

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.squares:
            augment = self.settings.augment
            assert augment is not None
            side = 6 * augment.crop  # three quarters: shifts are by an eighth of the whole
            strong = augment.replace(side=side, crop=0, hole=side // 2)
            object.__setattr__(self, "_strong", Augment(strong))
            object.__setattr__(self, "_square", Augment(strong.replace(operations=0, jitter=0.0, hole=0)))

    @property
    def looks(self) -> int:  # type: ignore[override]
        """How many moments are looked at; at the first one there is nothing to study."""
        return 4 if self.studied else 0

    def tensors(self, num_rows: int, num_classes: int) -> Mapping[str, Tensor]:
        """Return the moving averages, and the memory of the answers to each row."""
        memory = {name: torch.zeros(num_rows, num_classes) for name in ("last", "answers", "squares")}
        return {**super().tensors(num_rows, num_classes), **memory, "visits": torch.zeros(num_rows)}

    def look(self, look: Look, training_set: TrainingSet, state: Mapping[str, Tensor]) -> None:
        """Keep the memory of the studied rows, and what the networks answer to them."""
        if not state["batches"]:
            return
        step = look.args[0]  # type: ignore[attr-defined]  # of the trainer, for its networks
        rows = np.arange(len(training_set.y))[-self.studied :]
        assert self._weak is not None
        looker = Looker(step.network, step.average, training_set, self.settings, self._weak)
        memory = {name: state[name].cpu().numpy()[rows] for name in ("answers", "squares", "visits")}
        self.moments.append({**memory, "classes": state["classes"].cpu().numpy(), **looker.material(rows)})

    def answers(self, teacher: nn.Module, pool: Batch, batch: Batch) -> Tensor:
        """Return what the teacher answers to the samples of the pool, (N, C)."""
        if self.asked == "weak":
            return self.logits(teacher, super().weak(pool, "weak"), batch).softmax(dim=1)
        assert self._weak is not None
        x = self._weak.plain(pool.samples)
        if self.asked == "plain":
            return self.logits(teacher, x, batch).softmax(dim=1)
        both = self.logits(teacher, torch.cat([x, x.flip(3)]), batch).softmax(dim=1)
        return both.unflatten(0, (2, len(x))).mean(dim=0)

    def answered(self, q: Tensor, pool: Batch) -> tuple[Tensor, Tensor]:
        """Return the label of each answer, and how much it counts, both (N,)."""
        label, share = super().answered(q, pool)
        aligned = q / pool.state["classes"]
        aligned = aligned / aligned.sum(dim=1, keepdim=True)
        if self.memory or self.studied or self.soft or self.tau_n:
            mean, spread = self.remembered(aligned, pool)
        if self.memory:
            return mean.argmax(dim=1), share * (spread <= self.kappa)
        return label, share

    def unlabeled(self, logits: Tensor, label: Tensor, share: Tensor, pool: Batch) -> Tensor:
        """Return the part of the loss that needs no labels, from the logits of strong views."""
        answer = pool.state["answers" if self.memory else "last"]
        q = answer.index_select(0, pool.rows).repeat(self.views, 1)
        target = (q.clamp(min=LEAST).log() / self.soft).softmax(dim=1) if self.soft else label
        each = share * cross_entropy(logits, target, reduction="none")
        if self.mixing:
            size, kept = len(pool.rows), self.kept(pool)[:, 0, 0, 0]
            other = share[:size].roll(-1) * cross_entropy(logits[-size:], target[:size].roll(-1, 0), reduction="none")
            each = torch.cat([each[:-size], kept * each[-size:] + (1 - kept) * other])
        loss = each.mean()
        if self.tau_n:
            loss = loss + sl.losses.negative_cross_entropy(logits, (q <= self.tau_n) & (share < 0.5)[:, None])
        return loss

    def weak(self, batch: Batch, name: str) -> Tensor:
        """Return a weak view for the network."""
        return batch.view(self._square, name) if self.squares else super().weak(batch, name)

    def strong(self, batch: Batch, name: str) -> Tensor:
        """Return a strong view, or near the end a weak one; the last one may be mixed with those of the next rows."""
        x = super().strong(batch, name)
        if self.weak_end:
            share = (1 + (batch.progress - 1) / self.weak_end).clamp(min=0)
            turned = batch.draws.uniform(f"{name} turned") < share
            x = torch.where(turned[:, None, None, None], self.weak(batch, name), x)
        if not self.mixing or name != f"strong {self.views - 1}":
            return x
        kept = self.pasted(batch) if self.mixing == "cutmix" else self.kept(batch)
        return x * kept + x.roll(-1, 0) * (1 - kept)

    def kept(self, pool: Batch) -> Tensor:
        """Return how much of each row is left in a mixture, (N, 1, 1, 1)."""
        if self.mixing == "cutmix":
            return self.pasted(pool).mean(dim=(2, 3), keepdim=True)
        return mixup_coefficients(pool.draws, MIXED)[:, None, None, None]

    def pasted(self, pool: Batch) -> Tensor:
        """Return 0 in a square that is cut out of each row, and 1 elsewhere, (N, 1, H, W)."""
        length = pool.samples.shape[-1]
        half = length * pool.draws.uniform("cutmix area").sqrt() / 2
        places = torch.arange(length, device=half.device) + 0.5
        x, y = ((pool.draws.uniform(f"cutmix {axis}") * length)[:, None] - places for axis in "xy")
        inside = (y.abs() < half[:, None])[:, :, None] & (x.abs() < half[:, None])[:, None, :]
        return (~inside).float()[:, None]

    def remembered(self, q: Tensor, pool: Batch) -> tuple[Tensor, Tensor]:
        """Return the mean (N, C) of the answers over the visits, these counted, and the spread of its largest (N,)."""
        state, rows = pool.state, pool.rows
        visits = state["visits"].index_select(0, rows)
        towards = (1 / (visits + 1)).clamp(min=1 - (self.memory or 0.7))[:, None]
        mean = state["answers"].index_select(0, rows).lerp(q, towards)
        square = state["squares"].index_select(0, rows).lerp(q.square(), towards)
        for name, value in (("last", q), ("answers", mean), ("squares", square), ("visits", visits + 1)):
            state[name].index_copy_(0, rows, value)
        spread = (square - mean.square()).clamp(min=0).sqrt()
        return mean, spread.gather(1, mean.argmax(dim=1, keepdim=True))[:, 0]


def learner_of(trial: Trial, width: int = 128) -> TorchLearner:
    """Return what trains CNN-13; a round's labels are judged by ten weak views."""
    method = functools.partial(Tried, **trial.method) if trial.labels else None
    network = functools.partial(cnn13, dropout=trial.dropout, width=width)
    estimator = sl.Deterministic() if trial.growth is None else sl.RandomAugmentation()
    return TorchLearner(network, training=training_of(trial), method=method, uncertainty=estimator)


def training_of(trial: Trial) -> TrainingSettings:
    """Return how a trial's network is trained."""
    gpu = torch.cuda.is_available()
    augment = STRONG.replace(crop=2, hole=8) if trial.small else STRONG
    return TrainingSettings(
        optimizer=trial.optimizer,
        learning_rate=trial.rate,
        weight_decay=trial.weight_decay,
        decay_all=False,
        warmup=0.05,
        schedule="linear",
        batch_size=trial.unlabeled if trial.labels else trial.labeled,
        labeled_batch_size=trial.labeled if trial.labels else 0,
        steps=trial.steps,
        round_growth=trial.growth or 1.0,
        ema_decay=trial.decay,
        ema_share=trial.share,
        augment=augment.replace(**trial.strong),
        precision="bfloat16" if gpu else "float32",
        channels_last=gpu or trial.small,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="+", type=known, help="changes, such as '260 s, a round', or 'search'")
    parser.add_argument("--out", type=Path, default=Path("runs") / EXPERIMENT, help="where finished trials are kept")
    parser.add_argument("--results", type=Path, default=Path("results/runs.csv"))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for this call")
    parser.add_argument("--tiny", action="store_true", help="made-up pictures, a narrow network, few steps")
    options = parser.parse_args(arguments)
    make_folder(options.out)
    if options.tiny:
        store_made_up(options.out / "tiny")
        options.results = options.out / "results" / "runs.csv"
        make_folder(options.results.parent)
    started = time.monotonic()
    record(options.out, options.results)
    for name in [trial for asked in options.trials for trial in (SEARCH if asked == "search" else [asked])]:
        trial, file = trial_of(name), options.out / f"{stem_of(name)}.json"
        if file.exists():
            continue
        if (time.monotonic() - started + trial.seconds) / 60 + 1 > options.minutes:
            print(f"Stopped before '{name}': it might not end in time. The same command goes on.")
            return
        write_json(file, run(name, trial, options))
        record(options.out, options.results)


def stem_of(name: str) -> str:
    """Return the name of a trial's files, without their ending."""
    return name.replace(",", "").replace(" ", "-")


def known(name: str) -> str:
    """Return the name of a trial; refuse others."""
    unknown = [part for part in name.split(", ") if part not in CHANGES]
    if unknown and name not in (PLAIN, "search"):
        listed = ", ".join(CHANGES)
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not a change; these are: {listed}")
    return name


def run(name: str, trial: Trial, options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings and the rows of a results file of one trial."""
    started = time.monotonic()
    folder = None
    if options.tiny:
        trial = dataclasses.replace(trial, labeled=16, unlabeled=32, seconds=0.5, small=True)
        if "studied" in trial.method:
            trial = dataclasses.replace(trial, method={"studied": TINY_VALIDATION})
        folder = options.out / "tiny"  # whose pictures are small already
    elif trial.small:
        folder = store_halved(options.out / "small")
    data = data_of(trial, folder, tiny=options.tiny)
    learner = learner_of(trial, width=8 if options.tiny else 32 if trial.small else 128)
    assert data.validation is not None
    pool, truth = data.unlabeled, data.truth
    Tried.moments.clear()
    if trial.method.get("studied"):
        pool, truth = Concatenation(pool, as_source("validation", data.validation[0])), None
    rounds = 0 if trial.growth is None else 1
    plain = {} if rounds else {"kappa_p": math.inf, "kappa_n": math.inf}  # nothing is selected, by one pass
    config = sl.UPSConfig(seed=trial.seed, max_rounds=rounds, num_classes=len(data.classes), **plain, **trial.config)
    errors = {}
    for record in sl.self_train(learner, data.labeled, pool, config, truth=truth):
        if record.round:
            print(f"{record.num_positive} labels of {record.num_positive_before}, {record.positive_accuracy} right")
        elif rounds:
            errors["validation error %, round 0"] = validation_error(learner, data)
    minutes = (time.monotonic() - started) / 60
    errors["validation error %, running statistics"] = validation_error(learner, data)
    for number, moment in enumerate(Tried.moments, start=1):
        np.savez_compressed(options.out / f"{stem_of(name)}-{number}.npz", **moment, y=data.validation[1])
    estimate_statistics(learner, data)
    errors["validation error %"] = validation_error(learner, data)
    print(f"{name}: {errors}, {trial.steps} steps, {minutes:.2f} minutes", flush=True)
    same = row_of(name, trial, data, learner, minutes)
    return {
        "settings": {"protocol": PROTOCOL, **dataclasses.asdict(trial)},
        "rows": [{**same, "metric": metric, "value": value} for metric, value in errors.items()],
    }


def data_of(trial: Trial, folder: Path | None, tiny: bool) -> RunData:
    held, everything = (TINY_VALIDATION, 600) if tiny else (VALIDATION, 50_000)
    labels = 200 if tiny else trial.labels
    return cifar10(
        seed=trial.seed,
        labels=labels if trial.labels else everything - held,
        num_validation=held,
        folder=None if folder is None else str(folder),
        test=False,
    )


def store_halved(into: Path) -> Path:
    """Store the pictures of CIFAR-10 with half their side, if they are not there yet; return where."""
    if not is_stored(into / "cifar10"):
        whole = open_stored(data_folder() / "cifar10")
        parts = [Pictures(halved(part.x), part.y) for part in (whole.train, whole.test)]
        store(into / "cifar10", ImageSet(*parts, whole.classes, f"{whole.origin}, means of 2 x 2 pixels"))
    return into


def halved(x: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return pictures (N, C, H, W) whose pixels are the means of 2 x 2 pixels."""
    number, channels, height, width = x.shape
    means = np.empty((number, channels, height // 2, width // 2), dtype=np.uint8)
    for some in np.array_split(np.arange(number), max(1, number // VALIDATION)):
        blocks = x[some].reshape(len(some), channels, height // 2, 2, width // 2, 2)
        means[some] = np.round(blocks.mean(axis=(3, 5), dtype=np.float32))
    return means


def validation_error(learner: TorchLearner, data: RunData) -> float:
    assert data.validation is not None
    samples, y = data.validation
    return round(100 * float(np.mean(learner.predict_proba(samples).argmax(axis=1) != y)), 4)


@torch.no_grad()
def estimate_statistics(learner: TorchLearner, data: RunData) -> None:
    """Set BatchNorm's statistics to those of the pool's unaugmented pictures."""
    network = learner.network
    assert network is not None
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None
            layer.train()
    pictures = data.labeled[0] if data.unlabeled is None else data.unlabeled
    for _, batch in learner._chunks(as_source("pictures", pictures), network):
        with learner._arithmetic(batch):
            network(batch)
    network.eval()


def row_of(name: str, trial: Trial, data: RunData, learner: TorchLearner, minutes: float) -> dict[str, Any]:
    labeled, environment = len(data.labeled[1]), describe_environment(learner)
    method, pool = learner._method(), len(data.unlabeled or ())
    lengths = [method.samples_in_round(labeled, 0, 0, number, pool) for number in range(1 + (trial.growth is not None))]
    epochs, seen = map(sum, zip(*lengths, strict=True))
    assert data.validation is not None
    return {
        "experiment": EXPERIMENT,
        "row": name,
        "dataset": f"{CIFAR10.name}, 16 x 16" if trial.small else CIFAR10.name,
        "labels": labeled,
        "validation_labels": len(data.validation[1]),
        "split_hash": split_of(data)["hash"],
        "seed": trial.seed,
        "paper": None,
        "rounds": 0 if trial.growth is None else 1,
        "epochs": epochs,
        "images_seen": seen,
        "minutes": minutes,
        "device": f"{environment['device']}: {environment['processor']}",
        "torch": torch.__version__,
        "commit": environment["commit"] or "",
    }


def record(out: Path, results: Path) -> None:
    """Append the rows of all kept trials that the results file lacks, and keep their settings in its folder."""

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
