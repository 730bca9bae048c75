"""A run within some minutes: its speed is measured here, then rounds and steps are set so that they fill them.

Every round trains the same number of steps. A run of R rounds after round 0 takes

    (R + 1) · (steps · batch / training speed + pool / labeling speed)

R is as large as the recipe allows, but no round gets fewer than three million samples while there is more than one.
"""

import math
import time
from typing import NamedTuple

import numpy as np

from surelabel.arrays import to_numpy
from surelabel.data.reference import RunData
from surelabel.data.source import Subset
from surelabel.data.training_set import make_problem
from surelabel.errors import InvalidInputError
from surelabel.learners.rule import samples_trained_on
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.runs import RunSettings

LEAST_SAMPLES = 3_000_000
"""Samples that a round is trained on at least, before there are two of them."""

MARGIN = 0.93
"""Of the minutes that are planned for; the rest is for reading data, compiling, judging and writing."""


class Speed(NamedTuple):
    """Samples a second, of training and of labeling with all passes."""

    training: float
    labeling: float


class Cut(NamedTuple):
    """The rounds and steps that fit into the minutes, in place of a recipe's own.

    Attributes:
        max_rounds: rounds after round 0.
        steps: of each round.
        text: the same for people, beside the whole recipe.
    """

    max_rounds: int
    steps: int
    text: str

    def apply(self, settings: RunSettings) -> RunSettings:
        """Return the settings with this many rounds and steps."""
        learner = _network(settings)
        training = learner.training.replace(steps=self.steps)
        config = settings.config.replace(max_rounds=self.max_rounds)
        return settings.replace(config=config, learner=learner.replace(training=training))


def cut_to(settings: RunSettings, minutes: float, speed: Speed, pool_size: int) -> Cut:
    """Return how many rounds of how many steps fit into the minutes.

    Args:
        settings: of the whole recipe.
        minutes: for one run.
        speed: on this machine.
        pool_size: samples that every round labels.

    Example:
        >>> recipe = RunSettings(learner=TorchLearnerSettings())
        >>> cut_to(recipe, 6, Speed(80_000, 50_000), 49_000).text
        '20 rounds of 4,675 steps in place of 20 rounds of 100 epochs'
    """
    check_minutes(minutes)
    learner = _network(settings)
    sample_seconds, label_seconds = learner.members / speed.training, pool_size / speed.labeling
    available = 60 * minutes * MARGIN
    round_seconds = LEAST_SAMPLES * sample_seconds + label_seconds
    rounds = max(1, min(settings.config.max_rounds, int(available / round_seconds) - 1))
    left = available / (rounds + 1) - label_seconds
    steps = int(left / (sample_seconds * batch_of(learner)))
    if steps < 1:
        needed = (rounds + 1) * (label_seconds + sample_seconds * batch_of(learner)) / 60 / MARGIN
        raise InvalidInputError(
            f"The 'budget' must leave time for one step a round: here at least {needed:.2g} minutes. Got {minutes:g} "
            "instead."
        )
    whole = f"{settings.config.max_rounds} rounds of {_length(learner)}"
    return Cut(rounds, steps, f"{rounds} round{'s' * (rounds > 1)} of {steps:,} steps in place of {whole}")


def check_minutes(minutes: float) -> None:
    """Refuse what is no length of time."""
    if not (math.isfinite(minutes) and minutes > 0):
        raise InvalidInputError(f"The 'budget' must be a number of minutes above 0. Got {minutes:g} instead.")


def measure(settings: RunSettings, data: RunData) -> Speed:
    """Return the speed of a run's network on this machine, compiled and warm; what it trains is thrown away."""
    network = _network(settings)
    learner = network.build(data.task)
    on_gpu = learner.device.type == "cuda"
    learner.training = network.training.replace(steps=200 if on_gpu else 2)
    problem = make_problem(data.labeled, data.unlabeled, data.task, len(data.classes))
    pool = problem.pool if on_gpu else Subset(problem.pool, np.arange(min(len(problem.pool), 64)))
    training_set = problem.training_set(None)
    _, samples = samples_trained_on(problem.num_labeled, 0, 0, learner.training)
    times = []
    for seed in range(2):  # the first round compiles
        started = time.perf_counter()
        learner.fit(training_set, seed=seed)
        trained = time.perf_counter()
        for prediction in learner.predict(pool, seed=seed):
            to_numpy(prediction.p)  # waits for the device
        times.append((trained - started, time.perf_counter() - trained))
    return Speed(learner.uncertainty.members * samples / times[1][0], len(pool) / times[1][1])


def batch_of(learner: TorchLearnerSettings) -> int:
    """Return how many samples a step sees at most: without a number, there are as many negatives as labels at most."""
    training = learner.training
    return training.batch_size + training.labeled_batch_size + (training.negative_batch_size or training.batch_size)


def _length(learner: TorchLearnerSettings) -> str:
    training = learner.training
    return f"{training.epochs:,} epochs" if training.steps is None else f"{training.steps:,} steps"


def _network(settings: RunSettings) -> TorchLearnerSettings:
    assert isinstance(settings.learner, TorchLearnerSettings)
    return settings.learner
