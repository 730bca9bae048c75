"""The settings of an experiment's runs: the recipe, cut to a number of minutes if there is a limit.

The network's speed is measured on this machine. Then rounds and steps are chosen to fill the minutes. A run of R rounds
after round 0, each `growth` times as long as the one before it, takes

    (1 + growth + ... + growth^R) · steps · batch / training speed + (R + 1) · pool / labeling speed

R is as large as the recipe allows, but with more than one round, round 0 gets at least as many samples as in the
recipe, or three million if that is less.

The plan is kept in a file, so that a resumed run, or another seed, follows the same plan. The speed is kept too, for
other budgets on the same machine, and for rows that take as long.
"""

import functools
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from surelabel.base.references import portable
from surelabel.core.arrays import to_numpy
from surelabel.data.run_data import FunctionData, RunData
from surelabel.data.source import Subset
from surelabel.data.training_set import TrainingSet, known_targets, make_problem
from surelabel.engine.parallel import processes
from surelabel.errors import InvalidInputError
from surelabel.learners.settings import METHODS
from surelabel.reproduce.entries import Arguments, Entry, Labels, RecipeName
from surelabel.reproduce.ucf101 import MODEL, TORCHVISION
from surelabel.reproduce.variants import with_estimator
from surelabel.runs.environment import describe_environment
from surelabel.runs.files import read_json, write_json
from surelabel.settings import RunSettings

LEAST_SAMPLES = 3_000_000
"""The least number of samples of round 0 if there is more than one further round; fewer if the recipe has fewer."""

MARGIN = 0.93
"""The share of the minutes that is planned for; the rest is for reading data, compiling, scoring and writing."""

_MOST_MINUTES = 1_000_000

_SAME_SPEED = {
    "training": ("learning_rate", "warmup", "schedule", "weight_decay", "label_smoothing", "ema_share", "steps"),
    "method_parameters": ("weight", "ramp", "threshold", "momentum", "sharpness"),
}
"""Settings of a learner whose values do not change how long a step takes."""


class Options(NamedTuple):
    """How an experiment is run.

    Attributes:
        seeds: each row is run with each of them; a seed also draws the split.
        recipe: "fast"; "paper", without the rows of the best recipe; or "best", only these.
        minutes: for each run; None: the whole recipe.
        device: None: the GPU if there is one.
        rows: names of the rows to run; empty: all.
        labels: numbers or shares of labels to run; empty: all.
        pretrained: a file of weights that the networks begin with; None: random ones. 3-D ResNet-18 then has
            torchvision's stem and shortcuts.
        datasets: names of the data sets to run; empty: all.
        arguments: for the data sets, see `Entry.settable`; None: none.
        rounds: the most rounds after round 0; None: as many as the recipe has.
        uncertainty: the estimator of p and u, "deep-ensemble" or "file.py:Class", of rows that do not name their own;
            None: the recipe's.
    """

    seeds: Sequence[int] = (0,)
    recipe: RecipeName = "fast"
    minutes: float | None = None
    device: str | None = None
    rows: Sequence[str] = ()
    labels: Sequence[Labels] = ()
    pretrained: str | None = None
    datasets: Sequence[str] = ()
    arguments: Arguments | None = None
    rounds: int | None = None
    uncertainty: str | None = None


class Speed(NamedTuple):
    """Samples per second, in training and in labeling with all passes."""

    training: float
    labeling: float


class Cut(NamedTuple):
    """The rounds and steps that fit into the minutes, instead of a recipe's own.

    Attributes:
        max_rounds: rounds after round 0.
        steps: of round 0; later rounds have more if the recipe lets them grow.
    """

    max_rounds: int
    steps: int

    def apply(self, settings: RunSettings) -> RunSettings:
        """Return the settings with this many rounds and steps."""
        config = settings.config.replace(max_rounds=self.max_rounds)
        return settings.replace(config=config).with_training(steps=self.steps)


class Plans:
    """The settings of every run within the minutes; plans are kept in a file.

    Args:
        path: of the file; None: there is none, for settings without a limit.
        options: recipe, minutes and device.
    """

    def __init__(self, path: Path | None, options: Options) -> None:
        self.path, self.options = path, options
        self._kept: dict[str, Any] = {}
        if options.minutes is not None and path is not None and path.exists():
            self._kept = read_json(path)
        self._speeds = {
            (kept["network"], kept["machine"]): Speed(kept["training"], kept["labeling"])
            for kept in self._kept.values()
            if "machine" in kept
        }
        self._pretrained_hash: str | None = None

    def settings(self, entry: Entry, seed: int) -> RunSettings:
        """Return the complete settings of a run."""
        base, cut = self._base(entry, seed, self.options), self._cut(entry)
        return _pinned(entry.of(base if cut is None else cut.apply(base)))

    def whole(self, entry: Entry, recipe: RecipeName, seed: int = 0) -> RunSettings:
        """Return the complete settings of a run by this recipe, with all of the recipe's rounds."""
        return _pinned(entry.of(self._base(entry, seed, self.options._replace(recipe=recipe, rounds=None))))

    def knows(self, entry: Entry) -> bool:
        """Whether the settings of an entry are known without measuring a speed."""
        return self.options.minutes is None or self._plan_key(self._timed(entry)) in self._kept

    def _base(self, entry: Entry, seed: int, options: Options) -> RunSettings:
        base = entry.base(seed, entry.recipe or options.recipe, options.arguments)
        if options.rounds is not None:
            base = base.replace(config=base.config.replace(max_rounds=options.rounds))
        if options.uncertainty is not None:
            base = with_estimator(base, options.uncertainty)
        learner = base.network.replace(device=options.device)
        if options.pretrained is not None:
            more = TORCHVISION if learner.model == MODEL else {}
            parameters = {**learner.model_parameters, **more, "pretrained": options.pretrained}
            # The file is read for its content hash once.
            learner = learner.replace(model_parameters=parameters, pretrained_hash=self._pretrained_hash).pinned()
            self._pretrained_hash = learner.pretrained_hash
        if not _on_gpu(options.device):
            # Not every CPU can compute in bfloat16, and few are faster with it.
            learner = learner.replace(training=learner.training.replace(precision="float32"))
        return base.replace(learner=learner)

    def _timed(self, entry: Entry) -> RunSettings:
        """Return the settings that determine an entry's speed and rounds.

        Rows that train the same networks get the same rounds, however they label, because they share round 0. A row
        without rounds trains one network for the whole time.
        """
        base = self._base(entry, 0, self.options)
        row = entry.of(base)
        if row.config.max_rounds == 0:
            base = base.replace(config=base.config.replace(max_rounds=0))
        same = row.network.fit_settings() == base.network.fit_settings()
        return _pinned(base if same else row.replace(config=base.config))

    def _plan_key(self, timed: RunSettings) -> str:
        assert self.options.minutes is not None
        return _key(timed, timed.config.max_rounds, self.options.minutes)

    def _cut(self, entry: Entry) -> Cut | None:
        if self.options.minutes is None:
            return None
        timed = self._timed(entry)
        key = self._plan_key(timed)
        if key not in self._kept:
            assert timed.data is not None
            assert self.path is not None
            data, of = timed.data.load(), (_speed_key(timed), machine(timed))
            if of not in self._speeds:
                measured = measure(timed, data)
                self._speeds[of] = speed = processes().by_first(lambda: measured)
                self._keep(" on ".join(of), {"network": of[0], "machine": of[1], **speed._asdict()})
            num_labeled_again = len(data.labeled[0] if data.unlabeled is None else data.unlabeled)
            cut = cut_to(timed, self.options.minutes, self._speeds[of], num_labeled_again)
            self._keep(key, {"minutes": self.options.minutes, **cut._asdict()})
        return Cut(self._kept[key]["max_rounds"], self._kept[key]["steps"])

    def _keep(self, key: str, what: dict[str, Any]) -> None:
        assert self.path is not None
        self._kept[key] = what
        processes().only_first(functools.partial(write_json, self.path, self._kept))


def cut_to(settings: RunSettings, minutes: float, speed: Speed, pool_size: int) -> Cut:
    """Return how many rounds of how many steps fit into the minutes.

    Args:
        settings: of the whole recipe.
        minutes: for one run.
        speed: on this machine.
        pool_size: samples that every round labels.

    Example:
        >>> from surelabel.learners.settings import TorchLearnerSettings
        >>> recipe = RunSettings(learner=TorchLearnerSettings())
        >>> cut_to(recipe, 6, Speed(80_000, 50_000), 49_000)
        Cut(max_rounds=7, steps=12771)
    """
    check_minutes(minutes)
    learner, rounds = settings.network, settings.config.max_rounds
    sample_seconds, label_seconds = learner.members / speed.training, pool_size / speed.labeling
    batch, own_steps = batch_of(settings), learner.training.steps
    least = LEAST_SAMPLES if own_steps is None else min(LEAST_SAMPLES, own_steps * batch)

    def seconds_of_sample(rounds: int) -> float:
        """Return the seconds of all rounds together per training sample of round 0."""
        return sample_seconds * sum(learner.training.round_growth**number for number in range(rounds + 1))

    def samples(rounds: int) -> float:
        """Return how many samples round 0 can be trained on."""
        return (60 * minutes * MARGIN - (rounds + 1) * label_seconds) / seconds_of_sample(rounds)

    while rounds > 1 and samples(rounds) < least:
        rounds -= 1
    steps = int(samples(rounds) / batch)
    if steps < 1:
        needed = ((rounds + 1) * label_seconds + seconds_of_sample(rounds) * batch) / 60 / MARGIN
        raise InvalidInputError(f"The budget must be at least {needed:.2g} minutes, a step a round; got {minutes:g}.")
    return Cut(rounds, steps)


def cut_text(cut: RunSettings, whole: RunSettings) -> str:
    """Return what is run instead of a recipe's rounds; "" if they are the same.

    Example:
        >>> from surelabel.learners.settings import TorchLearnerSettings
        >>> recipe = RunSettings(learner=TorchLearnerSettings())
        >>> cut_text(Cut(1, 4675).apply(recipe), recipe)
        '1 round of 4,675 steps in place of 20 rounds of 100 epochs'
    """
    ours, recipe = _length(cut), _length(whole)
    return "" if ours == recipe else f"{ours} in place of {recipe}"


def check_minutes(minutes: float) -> None:
    """Refuse minutes that are not a positive number, or are more than about two years."""
    if not 0 < minutes <= _MOST_MINUTES:
        raise InvalidInputError(f"The budget must be above 0 and at most {_MOST_MINUTES:,} minutes; got {minutes:g}.")


def measure(settings: RunSettings, data: RunData) -> Speed:
    """Return the speed of a run's network on this machine, compiled and warm; the trained network is discarded.

    If all samples are labeled, there is no pool, and they are labeled again, because other rows share this plan.
    """
    network = settings.network
    learner = network.build(data.task)
    on_gpu = learner.device.type == "cuda"
    learner.training = network.training.replace(steps=200 if on_gpu else 2)
    problem = make_problem(data.labeled, data.unlabeled, data.task, len(data.classes))
    pool = problem.source if data.unlabeled is None else problem.pool
    if not on_gpu:
        pool = Subset(pool, np.arange(min(len(pool), 64)))
    # All samples labeled: batches are then as large as in most rounds, however few labels there are.
    number, first = len(problem.source), np.arange(problem.num_classes) == 0
    labels = np.zeros(number, dtype=np.int64) if data.task == "single" else np.tile(first, (number, 1))
    known = known_targets("labeled", labels, data.task, problem.num_classes)
    training_set = TrainingSet(problem.source, known, number, data.task)
    _, samples = learner.method(training_set, shared=True).samples_in_round(number, 0, 0, 0, 0)
    times = []
    for seed in range(2):  # the first round compiles
        started = time.perf_counter()
        learner.fit(training_set, seed=seed)
        trained = time.perf_counter()
        for prediction in learner.predict(pool, seed=seed):
            to_numpy(prediction.p)  # waits for the device
        times.append((trained - started, time.perf_counter() - trained))
    return Speed(learner.uncertainty.members * samples / times[1][0], len(pool) / times[1][1])


def machine(settings: RunSettings) -> str:
    """Return the name of what a network is trained on."""
    environment = describe_environment(settings.network.build(settings.config.task))
    return f"{environment['device']}: {environment['processor']}"


def batch_of(settings: RunSettings) -> int:
    """Return the most samples that a step sees."""
    learner = settings.network
    return learner.make_method()(settings.config.task, learner.training).samples_in_step(settings.config.max_rounds)


def _length(settings: RunSettings) -> str:
    training, rounds = settings.network.training, settings.config.max_rounds
    first, unit = (training.epochs, "epochs") if training.steps is None else (training.steps, "steps")
    last = round(first * training.round_growth**rounds)
    one = f"{first:,} {unit}" if last == first else f"{first:,} to {last:,} {unit}"
    return f"{rounds} round{'s' * (rounds > 1)} of {one}" if rounds else one


def _pinned(settings: RunSettings) -> RunSettings:
    """Return the settings with the content hash of an estimator in a file: a changed one makes another run."""
    return settings.replace(learner=settings.network.pinned())


def _on_gpu(device: str | None) -> bool:
    import torch

    return torch.cuda.is_available() if device is None else torch.device(device).type == "cuda"


def _key(settings: RunSettings, *length: float) -> str:
    """Return a hash of a network, its data, and how long it is trained."""
    return _hash([*_parts(settings), *length])


def _speed_key(settings: RunSettings) -> str:
    """Return a hash of what a network's speed depends on.

    Example:
        >>> from surelabel.reproduce.cifar import fast_recipe
        >>> fast = fast_recipe()
        >>> _speed_key(fast.with_training(learning_rate=0.1)) == _speed_key(fast)
        True
    """
    learner, function = _parts(settings)
    for part, names in _SAME_SPEED.items():
        if part == "method_parameters" and settings.network.method not in METHODS:
            continue  # one's own method may use the names otherwise
        learner[part] = {name: value for name, value in learner[part].items() if name not in names}
    learner["training"]["ema_decay"] = learner["training"]["ema_decay"] > 0
    return _hash([learner, function])


def _parts(settings: RunSettings) -> tuple[dict[str, Any], str]:
    """Return the learner's settings and the name of the function that makes the data."""
    assert isinstance(settings.data, FunctionData)
    learner, data = (portable(part.model_dump(mode="json")) for part in (settings.network, settings.data))
    return learner, data["function"]


def _hash(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
