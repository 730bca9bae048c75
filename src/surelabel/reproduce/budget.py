"""A run within some minutes: its speed is measured here, then rounds and steps are set so that they fill them.

A run of R rounds after round 0, each `growth` times as long as the one before it, takes

    (1 + growth + ... + growth^R) · steps · batch / training speed + (R + 1) · pool / labeling speed

R is as large as the recipe allows, but while there is more than one, round 0 gets no fewer samples than the recipe's
own has, or three million where that is less.
"""

import time
from typing import NamedTuple

import numpy as np

from surelabel.core.arrays import to_numpy
from surelabel.data.run_data import RunData
from surelabel.data.source import Subset
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.errors import InvalidInputError
from surelabel.settings import RunSettings

LEAST_SAMPLES = 3_000_000
"""Samples that round 0 is trained on at least, before there are two more; fewer where the recipe's own has fewer."""

MARGIN = 0.93
"""Of the minutes that are planned for; the rest is for reading data, compiling, judging and writing."""

_MOST_MINUTES = 1_000_000


class Speed(NamedTuple):
    """Samples a second, of training and of labeling with all passes."""

    training: float
    labeling: float


class Cut(NamedTuple):
    """The rounds and steps that fit into the minutes, in place of a recipe's own.

    Attributes:
        max_rounds: rounds after round 0.
        steps: of round 0; further ones have more where the recipe lets them grow.
    """

    max_rounds: int
    steps: int

    def apply(self, settings: RunSettings) -> RunSettings:
        """Return the settings with this many rounds and steps."""
        config = settings.config.replace(max_rounds=self.max_rounds)
        return settings.replace(config=config).with_training(steps=self.steps)


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
    learner = settings.network
    sample_seconds, label_seconds = learner.members / speed.training, pool_size / speed.labeling
    available = 60 * minutes * MARGIN
    batch, own_steps = batch_of(settings), learner.training.steps
    least = LEAST_SAMPLES if own_steps is None else min(LEAST_SAMPLES, own_steps * batch)

    def samples(rounds: int) -> float:
        """Return those that round 0 can be trained on."""
        left = available - (rounds + 1) * label_seconds
        return left / (sample_seconds * _in_units_of_round_0(rounds, learner.training.round_growth))

    rounds = settings.config.max_rounds
    while rounds > 1 and samples(rounds) < least:
        rounds -= 1
    steps = int(samples(rounds) / batch)
    if steps < 1:
        length = _in_units_of_round_0(rounds, learner.training.round_growth)
        needed = ((rounds + 1) * label_seconds + length * sample_seconds * batch) / 60 / MARGIN
        raise InvalidInputError(
            f"The 'budget' must leave time for one step a round: here at least {needed:.2g} minutes. Got {minutes:g} "
            "instead."
        )
    return Cut(rounds, steps)


def _in_units_of_round_0(rounds: int, growth: float) -> float:
    """Return how many times as long as round 0 all rounds together are, itself included."""
    return sum(growth**number for number in range(rounds + 1))


def cut_text(cut: RunSettings, whole: RunSettings) -> str:
    """Return what is run in place of a recipe's rounds; "" where they are the same.

    Example:
        >>> from surelabel.learners.settings import TorchLearnerSettings
        >>> recipe = RunSettings(learner=TorchLearnerSettings())
        >>> cut_text(Cut(1, 4675).apply(recipe), recipe)
        '1 round of 4,675 steps in place of 20 rounds of 100 epochs'
    """
    ours, recipe = _length(cut), _length(whole)
    return "" if ours == recipe else f"{ours} in place of {recipe}"


def check_minutes(minutes: float) -> None:
    """Refuse what is no length of time, or two years of it."""
    if not 0 < minutes <= _MOST_MINUTES:
        raise InvalidInputError(
            f"The 'budget' must be a number of minutes above 0, and at most {_MOST_MINUTES:,}. Got {minutes:g} instead."
        )


def measure(settings: RunSettings, data: RunData) -> Speed:
    """Return the speed of a run's network on this machine, compiled and warm; what it trains is thrown away.

    Where all samples are labeled there is no pool, and they are labeled again: other rows share what is planned here.
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
    y = np.zeros((len(problem.source), problem.num_classes), dtype=bool)
    y[:, 0] = True
    training_set = TrainingSet(problem.source, y, np.ones_like(y), len(y), data.task)
    _, samples = learner.method(training_set, shared=True).samples_in_round(len(y), 0, 0, 0)
    times = []
    for seed in range(2):  # the first round compiles
        started = time.perf_counter()
        learner.fit(training_set, seed=seed)
        trained = time.perf_counter()
        for prediction in learner.predict(pool, seed=seed):
            to_numpy(prediction.p)  # waits for the device
        times.append((trained - started, time.perf_counter() - trained))
    return Speed(learner.uncertainty.members * samples / times[1][0], len(pool) / times[1][1])


def batch_of(settings: RunSettings) -> int:
    """Return how many samples a step sees at most."""
    learner = settings.network
    return learner.make_method()(settings.config.task, learner.training).samples_in_step(settings.config.max_rounds)


def _length(settings: RunSettings) -> str:
    training, rounds = settings.network.training, settings.config.max_rounds
    first, unit = (training.epochs, "epochs") if training.steps is None else (training.steps, "steps")
    last = round(first * training.round_growth**rounds)
    one = f"{first:,} {unit}" if last == first else f"{first:,} to {last:,} {unit}"
    return f"{rounds} round{'s' * (rounds > 1)} of {one}" if rounds else one
