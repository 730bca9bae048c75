"""What the fast recipe for CIFAR-10 is chosen by: changes of it, scored on 5,000 training pictures held out for that.

    surelabel reproduce experiments/cifar_trials.py:TRIALS --results results/runs.csv

Rows are equal in all but what they are called by; the labels of the held-out pictures come on top of the 1000.
"""

import functools

from surelabel.learners.settings import TorchLearnerSettings
from surelabel.recipes import variants
from surelabel.recipes.cifar import CIFAR10
from surelabel.recipes.entries import Experiment, rows
from surelabel.recipes.variants import Variant
from surelabel.runs import RunSettings

SHORT, LONG = (3, 4500), (2, 12_000)
"""Rounds, and steps of each."""


def trial(ups: RunSettings, variant: Variant = variants.full_ups, length: tuple[int, int] = SHORT) -> RunSettings:
    """Return a variant of UPS with this many rounds of so many steps."""
    settings = variant(ups)
    assert isinstance(settings.learner, TorchLearnerSettings)
    training = settings.learner.training.replace(steps=length[1])
    return settings.replace(
        config=settings.config.replace(max_rounds=length[0]), learner=settings.learner.replace(training=training)
    )


def labels_on_top(ups: RunSettings) -> RunSettings:
    """A quarter of the batch is labeled, whatever number of pseudo-labels there is."""
    assert isinstance(ups.learner, TorchLearnerSettings)
    training = ups.learner.training.replace(batch_size=384, labeled_batch_size=128)
    return ups.replace(learner=ups.learner.replace(training=training))


def less_dropout(ups: RunSettings) -> RunSettings:
    """Half the dropout, in training and in the passes."""
    assert isinstance(ups.learner, TorchLearnerSettings)
    return ups.replace(learner=ups.learner.replace(model_parameters={"dropout": 0.15}))


TRIALS = Experiment(
    "cifar10-trials",
    "Trials of the fast recipe, CIFAR-10",
    rows(
        CIFAR10,
        1000,
        ("3 rounds of 4,500 steps", trial),
        ("the same, no NL", functools.partial(trial, variant=variants.ups_without_negatives)),
        ("the same, Mixup", functools.partial(trial, variant=variants.with_mixup)),
        ("the same, 128 labels in every batch", functools.partial(trial, variant=labels_on_top)),
        ("the same, dropout 0.15", functools.partial(trial, variant=less_dropout)),
        ("2 rounds of 12,000 steps", functools.partial(trial, length=LONG)),
        num_validation=5000,
    ),
    "validation error",
)
