"""The first selection: what round 0's network selects, compared with the paper's numbers and with confidence alone.

"Confidence" is one deterministic pass, "confidence (Cal.)" the mean of the stochastic passes. Both are of the same
network as UPS, so they need a pair of runs.

At equal counts, confidence selects its most confident labels of each class, as many as UPS selects. The remaining
difference is how well each of them ranks labels. The interval is a paired bootstrap over the pool: samples are drawn
with replacement, and the accuracies of the fixed selections are recomputed.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import rounded_to
from surelabel.core.metrics import Interval
from surelabel.data.run_data import FunctionData
from surelabel.data.sets.cifar import CIFAR10_CLASSES
from surelabel.learners.settings import ESTIMATORS, TorchLearnerSettings
from surelabel.report.classes import first_selection
from surelabel.report.tables import Mask
from surelabel.reproduce.results import Figure
from surelabel.runs import RunFolder

TAUS = (0.0, 0.7, 0.8, 0.9)
"""No threshold, and those of the appendix's table."""
METHODS = ("confidence", "confidence (Cal.)", "UPS")
RESAMPLES = 2000

PAPER: dict[str, Any] = {
    # Appendix, "Effect of Class Balancing": CIFAR-10, positives of each class in the first round, by number of labels.
    "class_counts": {
        1000: (2707, 3734, 1929, 1065, 2145, 1924, 3224, 3266, 3083, 3214),
        4000: (3274, 3900, 2377, 1658, 2898, 2273, 3468, 3403, 3538, 3920),
    },
    # The same: largest over smallest class.
    "imbalance": {1000: 3.5, 4000: 2.35},
    # Section 4.4: UPS on CIFAR-10 with 1000 labels.
    "positives": 20217,
    # Appendix, "Hyperparameter Selection": CIFAR-10, 1000 for validation; how many labels the network had is not said.
    "validation_choice": {"tau_p": 0.7, "kappa_p": 0.05, "selected": 531, "of": 1000, "accuracy": 0.9228},
    # By tau_p, where 0 is no threshold. Section 4.4, and the appendix, "Calibration and Threshold Selection".
    "accuracy": {
        ("cifar10", 1000): {"confidence": {0: 0.7203, 0.7: 0.7744}, "UPS": {0.7: 0.9487}},
        ("cifar100", 4000): {
            "confidence": {0.7: 0.5492, 0.8: 0.5875, 0.9: 0.6418},
            "confidence (Cal.)": {0.7: 0.6475, 0.8: 0.7048, 0.9: 0.7718},
            "UPS": {0.7: 0.8316, 0.8: 0.8337, 0.9: 0.8309},
        },
    },
    # Section 4.4: CIFAR-10 with 1000 labels, after 10 rounds.
    "pool_use": (93.12, 90.29, 3371, 2988, 6.57),
}
"""What the paper says about selections."""

USE_ROUND = 10

_DATA = "surelabel.data.sets:"
_LABELS = {"cifar10": 1000, "cifar100": 4000}
"""The default numbers of labels of the functions in `surelabel.data.sets`."""

_PAPER_NETWORK = ("surelabel.models.cnn13:cnn13", "mc-dropout")
"""The network of the paper's selections, and its estimator of uncertainty."""


class NetworkPair(NamedTuple):
    """Two runs whose round 0 is the same network.

    Attributes:
        deterministic: labels the pool in one pass ("UPS, no UA").
        stochastic: labels it with uncertainties (UPS).
    """

    deterministic: RunFolder
    stochastic: RunFolder


def find_pairs(runs: Sequence[RunFolder], others: Sequence[RunFolder]) -> list[NetworkPair]:
    """Return, for each run that selects by uncertainty, the pair with the first run that labels its network plainly.

    A plain label comes from one deterministic pass. Runs without a partner, multi-label runs and those with unknown
    truth are left out.
    """
    pairs = []
    for run in runs:
        network = _first_network(run)
        if network is None or run.settings.config.kappa_p == math.inf or run.pool(0).uncertainty is None:
            continue
        same = (other for other in others if _first_network(other) == network)
        plain = next((other for other in same if other.pool(0).uncertainty is None), None)
        if plain is not None:
            pairs.append(NetworkPair(plain, run))
    return pairs


def selection_figures(run: RunFolder, by_class: bool = True) -> Iterator[Figure]:
    """Yield how many labels round 0's network selects, in total and per class, and the share that is right."""
    in_paper = paper_counts(run)
    for stage, positives in first_selection(run).items():
        yield Figure(f"first selection, positives {stage} balancing", positives.number)
        for name, count in zip(run.settings.classes, positives.counts, strict=True) if by_class else ():
            what = f"first selection, positives of {name} {stage} balancing"
            yield Figure(what, count, in_paper.get(name) if stage == "before" else None)
        if positives.accuracy is not None:
            yield Figure(f"first selection, accuracy % {stage} balancing", 100 * positives.accuracy)


def label_figures(pair: NetworkPair) -> Iterator[Figure]:
    """Yield number and accuracy of the first labels by method and tau_p, and UPS against confidence at equal counts.

    Labels are counted before balancing. UPS also asks for u <= kappa_p. Labels of unknown truth are left out.
    """
    plain, spread, truth = pair.deterministic.pool(0), pair.stochastic.pool(0), pair.stochastic.truth
    assert truth is not None
    assert spread.uncertainty is not None
    certain = spread.uncertainty <= rounded_to(spread.uncertainty, pair.stochastic.settings.config.kappa_p)
    in_paper = PAPER["accuracy"].get(paper_selection(pair.stochastic), {})
    for method, pool, allowed in zip(METHODS, (plain, spread, spread), (True, True, certain), strict=True):
        for tau in TAUS:
            marked = (pool.confidence >= rounded_to(pool.confidence, tau)) & allowed & (truth >= 0)
            what = f"first labels by {method}, {f'tau_p {tau:g}' if tau else 'no tau_p'}"
            yield Figure(f"{what}, number", int(marked.sum()))
            if marked.any():
                known = in_paper.get(method, {}).get(tau)
                accuracy = 100 * float((pool.label == truth)[marked].mean())
                yield Figure(f"{what}, accuracy %", accuracy, None if known is None else 100 * known)
    for balanced, other in itertools.product((False, True), METHODS[:2]):
        difference = difference_at_equal_counts(pair, other, balanced=balanced)
        if difference is not None:
            stage = "after" if balanced else "before"
            what = f"first selection {stage} balancing, points above {other} at equal counts"
            for name, value in difference._asdict().items():
                yield Figure(what if name == "mean" else f"{what}, 95 % {name}", 100 * value)


def pool_use(run: RunFolder) -> list[Figure]:
    """Return what a run's network learned from after 10 rounds, or after the last: the numbers of section 4.4."""
    record = run.records()[min(USE_ROUND, run.num_rounds - 1)]
    found = {
        "samples with a positive label, %": 100 * record.positive_share,
        "positive labels right, %": None if record.positive_accuracy is None else 100 * record.positive_accuracy,
        "samples without a positive label": round((1 - record.positive_share) * len(run.pool(0))),
        "of these, with negative labels": record.num_negative_only,
        "negative labels of each of these": record.negatives_per_row,
    }
    paper = PAPER["pool_use"] if paper_selection(run) == ("cifar10", 1000) else (None,) * len(found)
    pairs = zip(found.items(), paper, strict=True)
    return [Figure(name, value, known) for (name, value), known in pairs if value is not None]


def most_confident(
    label: npt.NDArray[np.integer[Any]], confidence: npt.NDArray[Any], counts: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Mark the counts[c] most confident of the samples with label c, or all of them if they are fewer.

    Args:
        label: class indices (N,).
        confidence: of these labels (N,); of equal ones the first in order are marked.
        counts: how many of each class, C numbers.

    Returns:
        Boolean (N,).

    Example:
        >>> most_confident(np.array([0, 0, 1, 0]), np.array([0.7, 0.9, 0.6, 0.8]), [2, 1])
        array([False,  True,  True,  True])
    """
    marked = np.zeros(len(label), dtype=bool)
    for index, count in enumerate(counts):
        members = np.flatnonzero(label == index)
        marked[members[np.argsort(-confidence[members], kind="stable")[:count]]] = True
    return marked


def difference_at_equal_counts(pair: NetworkPair, other: str, *, balanced: bool = False) -> Interval | None:
    """Return the accuracy of UPS's first positives minus that of as many by confidence; None without positives.

    Args:
        pair: of one network.
        other: "confidence" (one deterministic pass) or "confidence (Cal.)" (the mean of the stochastic passes).
        balanced: take UPS's positives after balancing.
    """
    spread, truth = pair.stochastic.pool(0), pair.stochastic.truth
    assert truth is not None
    known = truth >= 0
    ups: Mask = (spread.positive if balanced else spread.positive_before) & known
    pool = pair.deterministic.pool(0) if other == METHODS[0] else spread
    ranked = most_confident(pool.label[known], pool.confidence[known], spread.class_counts(ups).tolist())
    if not (ups.any() and ranked.any()):
        return None
    right, right_other = ((part.label == truth)[known] for part in (spread, pool))
    return bootstrap_difference(ups[known], right, ranked, right_other)


def bootstrap_difference(
    ups: Mask, ups_right: Mask, other: Mask, other_right: Mask, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Return acc(UPS) - acc(other), with its 95 % interval over resampled samples.

    Samples with the same marks are alike, so a resample is a draw of how many there are of each kind. A resample
    without any selected label of one side, which only tiny selections have, is left out.

    Args:
        ups: which samples UPS selects (N,).
        ups_right: where its labels are right (N,).
        other: which samples the other method selects (N,).
        other_right: where its labels are right (N,).
        seed: draws the resamples.
        resamples: how many.
    """
    marks = np.stack([ups, ups & ups_right, other, other & other_right], axis=1).astype(np.float64)
    kinds, counts = np.unique(marks, axis=0, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(marks), counts / len(marks), size=resamples)
    num_ups, num_ups_right, num_other, num_other_right = (np.vstack([counts, drawn]) @ kinds).T
    with np.errstate(invalid="ignore"):  # 0 / 0 where one has no label
        difference = num_ups_right / num_ups - num_other_right / num_other
    low, high = np.nanquantile(difference[1:], [0.025, 0.975])
    return Interval(float(difference[0]), float(low), float(high))


def paper_experiment(run: RunFolder) -> tuple[str, int]:
    """Return data set and number of labels of a run on CIFAR, ("cifar10", 1000); ("", 0) for other data."""
    data = run.settings.data
    if not isinstance(data, FunctionData) or data.function.removeprefix(_DATA) not in _LABELS:
        return "", 0
    name = data.function.removeprefix(_DATA)
    return name, int(data.arguments.get("labels") or _LABELS[name])


def has_paper_thresholds(run: RunFolder) -> bool:
    """Whether a run selects positives by the paper's thresholds for CIFAR."""
    config, choice = run.settings.config, PAPER["validation_choice"]
    return (config.tau_p, config.kappa_p) == (choice["tau_p"], choice["kappa_p"])


def paper_selection(run: RunFolder) -> tuple[str, int]:
    """Return data set and number of labels if the paper has numbers on selections for runs like this one.

    Their network is CNN-13, its passes are MC-dropout's, and the thresholds 0.7 and 0.05; ("", 0) for other runs.
    """
    learner = run.settings.learner
    alike = isinstance(learner, TorchLearnerSettings) and (learner.model, learner.uncertainty) == _PAPER_NETWORK
    return paper_experiment(run) if alike and has_paper_thresholds(run) else ("", 0)


def paper_counts(run: RunFolder) -> dict[str, int]:
    """Return the positives per class in the paper's first selection, by class name; empty if it has none."""
    name, labels = paper_selection(run)
    counts = PAPER["class_counts"].get(labels) if name == "cifar10" else None
    return {} if counts is None else dict(zip(CIFAR10_CLASSES, counts, strict=True))


def _first_network(run: RunFolder) -> tuple[Any, ...] | None:
    """Return what distinguishes round 0's network from others, as far as the folder shows.

    None if there is nothing to compare: for multi-label runs, for an unknown truth, and if code in a file would have to
    run.
    """
    settings, learner = run.settings, run.settings.learner
    if settings.config.task != "single" or run.truth is None:
        return None
    if not isinstance(learner, TorchLearnerSettings) or learner.uncertainty not in ESTIMATORS:
        return None
    trained, record = learner.replace(stochastic_layers=(), layer_hashes=()).fit_settings(), run.records()[0]
    scores = record.test_score, record.validation_score
    return settings.fingerprint, settings.data, settings.config.seed, scores, trained
