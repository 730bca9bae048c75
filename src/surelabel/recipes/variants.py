"""The rows of the paper's ablation (table 5): each a function from UPS's settings to the complete settings of its row.

| row | positive labels | negative labels | passes |
|---|---|---|---|
| Supervised | none | none | one |
| Pseudo-labeling | every argmax | none | one |
| Confidence-based | eq. 2, balanced | eq. 2 | one |
| UPS, no negatives | eq. 5, balanced | none | stochastic |
| UPS | eq. 5, balanced | eq. 5 | stochastic |
"""

import math
from collections.abc import Callable

from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.runs import RunSettings

Variant = Callable[[RunSettings], RunSettings]
"""Takes the settings of UPS and returns those of a row."""


def supervised(ups: RunSettings) -> RunSettings:
    """Round 0 alone: the network that learns from the labels.

    Example:
        >>> supervised(RunSettings()).config.max_rounds
        0
    """
    return ups.replace(name="Supervised", config=ups.config.replace(max_rounds=0))


def pseudo_labeling(ups: RunSettings) -> RunSettings:
    """Every argmax is a label: no thresholds, no balance, no negatives ("UPS, no selection").

    Example:
        >>> pseudo_labeling(RunSettings()).config.tau_p
        0.0
    """
    config = ups.config.replace(tau_p=0.0, tau_n=0.0, kappa_p=math.inf, kappa_n=math.inf, negatives=False, balance=None)
    return ups.replace(name="Pseudo-labeling", config=config, learner=_one_pass(ups))


def confidence_based(ups: RunSettings) -> RunSettings:
    """Selection by confidence alone (eq. 2), else as UPS ("UPS, no UA").

    Example:
        >>> confidence_based(RunSettings()).config.kappa_p
        inf
    """
    config = ups.config.replace(kappa_p=math.inf, kappa_n=math.inf)
    return ups.replace(name="Confidence-based", config=config, learner=_one_pass(ups))


def ups_without_negatives(ups: RunSettings) -> RunSettings:
    """UPS that learns from positive labels only ("UPS, no NL").

    Example:
        >>> ups_without_negatives(RunSettings()).config.negatives
        False
    """
    return ups.replace(name="UPS, no negatives", config=ups.config.replace(negatives=False))


def full_ups(ups: RunSettings) -> RunSettings:
    """The full method (eq. 5).

    Example:
        >>> full_ups(RunSettings()).name
        'UPS'
    """
    return ups.replace(name="UPS")


VARIANTS: tuple[Variant, ...] = (supervised, pseudo_labeling, confidence_based, ups_without_negatives, full_ups)
"""The rows in the order of the paper's table."""


def _one_pass(ups: RunSettings) -> TorchLearnerSettings | SklearnLearnerSettings | None:
    """One deterministic pass of a network, as nothing asks for uncertainties; other learners stay as they are."""
    if isinstance(ups.learner, TorchLearnerSettings):
        return ups.learner.replace(uncertainty="none")
    return ups.learner
