"""The rows of the paper's ablation (table 5): each a function from UPS's settings to the complete settings of its row.

| row | positive labels | negative labels | passes |
|---|---|---|---|
| Supervised | none | none | – |
| Pseudo-labeling | every argmax; multi-label: every class with p >= gamma | none; multi-label: all others | one |
| Confidence-based | eq. 2, balanced | eq. 2 | one |
| Confidence-based, calibrated | eq. 2, balanced | eq. 2 | stochastic |
| UPS, no negatives | eq. 5, balanced | none | stochastic |
| UPS | eq. 5, balanced | eq. 5 | stochastic |

Also the paper's other changes: class balance, temperature, Mixup, augmentation, the estimator, one threshold.
"""

import math
from collections.abc import Callable

from surelabel.augment.settings import AugmentSettings
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.settings import RunSettings

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
    """Every pseudo-label is learned from: no thresholds, no balance, no negatives ("UPS, no selection").

    In multi-label data every entry is a label: present if p is at least gamma, else absent. A network that learned only
    from present classes would find every class everywhere. Every round selects the same number, so this number does not
    end the rounds.

    Example:
        >>> pseudo_labeling(RunSettings()).config.tau_p
        0.0
    """
    config = ups.config.replace(kappa_p=math.inf, kappa_n=math.inf, balance=None, tolerance=None)
    learner = _one_pass(ups)
    if config.task == "single":
        config = config.replace(tau_p=0.0, tau_n=0.0, negatives=False)
    else:
        config = config.replace(tau_p=config.gamma, tau_n=config.gamma, negatives=True)
        # At another temperature, p < gamma does not mean p_soft < gamma.
        learner = None if learner is None else learner.replace(temperature=1.0)
    return ups.replace(name="Pseudo-labeling", config=config, learner=learner)


def confidence_based(ups: RunSettings) -> RunSettings:
    """Selection by confidence alone (eq. 2), else as UPS ("UPS, no UA").

    Example:
        >>> confidence_based(RunSettings()).config.kappa_p
        inf
    """
    config = ups.config.replace(kappa_p=math.inf, kappa_n=math.inf)
    return ups.replace(name="Confidence-based", config=config, learner=_one_pass(ups))


def one_network(ups: RunSettings) -> RunSettings:
    """Round 0 alone, labeled by one pass: nothing is selected, so no uncertainties are needed.

    Example:
        >>> one_network(RunSettings()).config.max_rounds
        0
    """
    return supervised(confidence_based(ups))


def confidence_based_calibrated(ups: RunSettings) -> RunSettings:
    """Selection by the mean confidence of the stochastic passes (eq. 2), else as UPS ("UPS, no UA (Cal.)").

    Example:
        >>> confidence_based_calibrated(RunSettings()).config.kappa_n
        inf
    """
    config = ups.config.replace(kappa_p=math.inf, kappa_n=math.inf)
    return ups.replace(name="Confidence-based, calibrated", config=config)


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


def without_balance(ups: RunSettings) -> RunSettings:
    """All selected positives are kept, whatever their classes.

    Example:
        >>> without_balance(RunSettings()).config.balance is None
        True
    """
    return ups.replace(name="UPS, no class balance", config=ups.config.replace(balance=None))


def with_mixup(ups: RunSettings) -> RunSettings:
    """UPS without negatives, trained with Mixup: alpha 0.5, tau_p 0.5, kappa_p 0.1 ("UPS+Mixup, no NL").

    Example:
        >>> with_mixup(RunSettings(learner=TorchLearnerSettings())).learner.training.augment.mixup
        0.5
    """
    augment = (ups.network.training.augment or AugmentSettings()).replace(mixup=0.5)
    config = ups.config.replace(tau_p=0.5, kappa_p=0.1, negatives=False)
    return ups.with_training(augment=augment).replace(name="UPS+Mixup, no negatives", config=config)


def without_augmentation(ups: RunSettings) -> RunSettings:
    """UPS on the samples as they are, normalized only.

    Example:
        >>> without_augmentation(RunSettings(learner=TorchLearnerSettings())).learner.training.augment is None
        True
    """
    before = ups.network.training.augment
    plain = None if before is None else AugmentSettings(mean=before.mean, std=before.std)
    return ups.with_training(augment=plain).replace(name="UPS, no augmentation")


WITH_RATES = ("mc-spatial-dropout", "mc-dropblock")
"""Estimators that replace the network's dropout by layers with the paper's rates, whatever its own rate."""


def with_estimator(ups: RunSettings, uncertainty: str) -> RunSettings:
    """UPS with another estimator of p and u, by its name.

    Example:
        >>> with_estimator(RunSettings(learner=TorchLearnerSettings()), "augmentation").learner.uncertainty
        'augmentation'
    """
    learner = ups.network.replace(uncertainty=uncertainty, uncertainty_parameters={})
    if uncertainty in WITH_RATES:
        parameters = {name: value for name, value in learner.model_parameters.items() if name != "dropout"}
        learner = learner.replace(model_parameters=parameters)
    return ups.replace(name=f"UPS, {uncertainty}", learner=learner)


def with_temperature(ups: RunSettings, value: float) -> RunSettings:
    """UPS whose negatives are judged at another temperature.

    Example:
        >>> with_temperature(RunSettings(learner=TorchLearnerSettings()), 1.0).name
        'UPS, temperature 1'
    """
    return ups.replace(name=f"UPS, temperature {value:g}", learner=ups.network.replace(temperature=value))


def with_threshold(ups: RunSettings, name: str, value: float) -> RunSettings:
    """UPS with one other threshold.

    Example:
        >>> with_threshold(RunSettings(), "kappa_p", 0.1).name
        'UPS, kappa_p 0.1'
    """
    return ups.replace(name=f"UPS, {name} {value:g}", config=ups.config.replace(**{name: value}))


def _one_pass(ups: RunSettings) -> TorchLearnerSettings | SklearnLearnerSettings | None:
    """One deterministic pass of a network, as no uncertainties are needed; other learners are not changed."""
    if isinstance(ups.learner, TorchLearnerSettings):
        return ups.learner.replace(uncertainty="none", uncertainty_parameters={})
    return ups.learner
