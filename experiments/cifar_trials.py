"""Trials for the fast recipe for CIFAR-10: changes to it, scored on 5,000 held-out training pictures.

    surelabel reproduce experiments/cifar_trials.py:ALL_LABELS
    surelabel reproduce experiments/cifar_trials.py:TRIALS --labels 4000

ALL_LABELS trains one network on all other pictures, TRIALS a few rounds with few labels. Rows differ only in what their
name says; the labels of the held-out pictures are additional.
"""

import functools

from surelabel.reproduce import variants
from surelabel.reproduce.cifar import CIFAR10
from surelabel.reproduce.entries import Experiment, rows
from surelabel.reproduce.variants import Variant
from surelabel.settings import RunSettings

ROUNDS, STEPS = 2, 10_000


def trial(*changes: Variant, rounds: int = ROUNDS, steps: int = STEPS, growth: float = 1.0) -> Variant:
    """Return the variant of UPS with these changes and this many rounds, with a fixed number of steps or growing."""
    changes = (*changes, config(max_rounds=rounds), training(steps=steps, round_growth=growth))
    return lambda ups: functools.reduce(lambda settings, change: change(settings), changes, ups)


def training(**settings: float | str) -> Variant:
    """Return the variant whose networks are trained by these settings."""
    return lambda ups: ups.with_training(**settings)


def config(**settings: float) -> Variant:
    """Return the variant that selects by these settings."""
    return lambda ups: ups.replace(config=ups.config.replace(**settings))


def dropout(rate: float) -> Variant:
    """Return the variant with another dropout, in training and in the passes."""
    return lambda ups: ups.replace(learner=ups.network.replace(model_parameters={"dropout": rate}))


def augmentation(operations: int, magnitude: int | None) -> Variant:
    """Return the variant with this many RandAugment operations, of a fixed magnitude or random ones."""

    def change(ups: RunSettings) -> RunSettings:
        augment = ups.network.training.augment
        assert augment is not None
        return ups.with_training(augment=augment.replace(operations=operations, magnitude=magnitude))

    return change


one_network = functools.partial(trial, rounds=0, steps=4000)
ALL_LABELS = Experiment(
    "cifar10-all-labels",
    "Trials of the fast recipe's training, CIFAR-10, all labels",
    rows(
        CIFAR10,
        45_000,
        ("4,000 steps", one_network()),
        ("peak rate 0.3", one_network(training(learning_rate=0.3))),
        ("peak rate 1.6", one_network(training(learning_rate=1.6))),
        ("cosine", one_network(training(schedule="cosine"))),
        ("dropout 0.3", one_network(dropout(0.3))),
        ("3 operations of magnitude 4", one_network(augmentation(3, 4))),
        num_validation=5000,
    ),
    "validation error",
)

CHANGES: tuple[tuple[str, Variant], ...] = (
    (f"{ROUNDS} rounds of {STEPS:,} steps", trial()),
    ("dropout 0.3", trial(dropout(0.3))),
    ("balance in the first round alone", trial(config(balance_rounds=1))),
    ("kappa_p 0.1", trial(config(kappa_p=0.1))),
    ("no NL", trial(variants.ups_without_negatives)),
    ("Mixup", trial(variants.with_mixup)),
    ("128 labels in every batch", trial(training(batch_size=384, labeled_batch_size=128))),
    ("weight decay 1e-3", trial(training(weight_decay=1e-3))),
    ("average of the weights", trial(training(ema_decay=0.998))),
    ("4 rounds of 4,500 steps", trial(rounds=4, steps=4500)),
    # Together as many steps as 2 rounds of 10,000.
    ("2 rounds that grow by half", trial(steps=6316, growth=1.5)),
)
TRIALS = Experiment(
    "cifar10-trials",
    "Trials of the fast recipe, CIFAR-10",
    tuple(entry for labels in (1000, 4000) for entry in rows(CIFAR10, labels, *CHANGES, num_validation=5000)),
    "validation error",
)
