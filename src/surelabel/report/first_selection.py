"""The first selection: positives of each class, and how many are right, by uncertainty and by confidence alone.

All of it is what round 0's network says of the pool. "Confidence" is one deterministic pass, "confidence (Cal.)" the
mean of the stochastic passes, and both are of the same network as UPS.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import rounded_to
from surelabel.data.pool import PoolLabels
from surelabel.data.run_data import FunctionData
from surelabel.data.sets.cifar import CIFAR10_CLASSES
from surelabel.errors import InvalidInputError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.report.tables import Mask, Row, Statistic, TextTable, percent, statistic
from surelabel.runs import RunFolder

TAUS = (0.0, 0.7, 0.8, 0.9)
"""No threshold, and those of the appendix's table."""
STAGES = ("before", "after")
METHODS = ("confidence", "confidence (Cal.)", "UPS")

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
}
"""What the paper says of first selections."""

_DATA = "surelabel.data.sets:"
_LABELS = {"cifar10": 1000, "cifar100": 4000}
"""How many labels the functions in `surelabel.data.sets` give where a run does not say."""

_PAPER_NETWORK = ("surelabel.models.cnn13:cnn13", "mc-dropout")
"""The network of the paper's selections, and what its uncertainties come from."""

_ONE_NETWORK = ("mc-dropout", "augmentation", "none")
"""Estimators that label with one network as it is trained without them."""
_LABELING = {
    "uncertainty",
    "uncertainty_hash",
    "uncertainty_parameters",
    "passes",
    "temperature",
    "stochastic_layers",
    "layer_hashes",
    "predict_batch_size",
}
"""Settings of how a network labels, on which its weights do not depend."""


class Positives(NamedTuple):
    """Positive labels of one selection.

    Attributes:
        counts: of each class, C numbers.
        accuracy: the share that is right, where the truth is known; None where it is not known of any.
    """

    counts: tuple[int, ...]
    accuracy: float | None

    @property
    def number(self) -> int:
        """How many they are."""
        return sum(self.counts)

    @property
    def imbalance(self) -> float | None:
        """Largest over smallest class; infinite where a class has none, None of nothing.

        Example:
            >>> round(Positives(PAPER["class_counts"][1000], None).imbalance, 2)
            3.51
        """
        if not self.number:
            return None
        return max(self.counts) / min(self.counts) if min(self.counts) else math.inf


class FirstSelection(NamedTuple):
    """The positives that round 0's network selects, before and after balancing (the same without it)."""

    before: Positives
    after: Positives


class Accuracy(NamedTuple):
    """How many labels there are, and the share that is right (None of none)."""

    number: int
    accuracy: float | None


class NetworkPair(NamedTuple):
    """Two runs whose round 0 is the same network.

    Attributes:
        deterministic: labels the pool in one pass ("UPS, no UA").
        stochastic: labels it with uncertainties (UPS).
    """

    deterministic: RunFolder
    stochastic: RunFolder


def first_selection(run: RunFolder) -> FirstSelection:
    """Return what round 0's network selects, whether or not a round has learned from it yet."""
    pool, truth = run.pool(0), run.truth
    return FirstSelection(_positives(pool, pool.positive_before, truth), _positives(pool, pool.positive, truth))


def first_round_accuracy(pair: NetworkPair, taus: Sequence[float] = TAUS) -> dict[str, list[Accuracy]]:
    """Return number and accuracy of the labels with p >= tau, for each of METHODS and each tau, before balancing.

    UPS also asks for u <= kappa_p, the threshold of the stochastic run. Labels whose truth is not known are left out.
    """
    check_pair(pair)
    plain, spread, truth = pair.deterministic.pool(0), pair.stochastic.pool(0), pair.stochastic.truth
    assert truth is not None
    assert spread.uncertainty is not None
    certain = spread.uncertainty <= rounded_to(spread.uncertainty, pair.stochastic.settings.config.kappa_p)
    found = {}
    for method, pool, allowed in zip(METHODS, (plain, spread, spread), (True, True, certain), strict=True):
        masks = [(pool.confidence >= rounded_to(pool.confidence, tau)) & allowed & (truth >= 0) for tau in taus]
        right = pool.label == truth
        found[method] = [Accuracy(int(mask.sum()), share(right[mask])) for mask in masks]
    return found


def find_pairs(runs: Sequence[RunFolder], others: Sequence[RunFolder]) -> list[NetworkPair]:
    """Return, for each run that selects by uncertainty, the pair with the first other that labels its network plainly.

    Runs that have no such other, have several labels a sample or an unknown truth are left out.
    """
    plain = [other for other in others if _usable(other) and other.pool(0).uncertainty is None]
    pairs = []
    for run in runs:
        if _usable(run) and run.settings.config.kappa_p < math.inf and run.pool(0).uncertainty is not None:
            pairs += [NetworkPair(other, run) for other in plain if not why_not_same(NetworkPair(other, run))][:1]
    return pairs


def check_pair(pair: NetworkPair) -> None:
    """Refuse runs that cannot be compared sample by sample."""
    for run in pair:
        if not _usable(run):
            raise InvalidInputError(
                f"The run in '{run.path}' must have one label a sample, a finished round and a pool whose truth is "
                "known; give another run."
            )
    if pair.deterministic.pool(0).uncertainty is not None or pair.stochastic.pool(0).uncertainty is None:
        raise InvalidInputError(
            f"The 'pair' argument must be a run of one deterministic pass and one with uncertainties. Got "
            f"'{pair.deterministic.path}' and '{pair.stochastic.path}' instead; give them in this order."
        )
    if problem := why_not_same(pair):
        raise InvalidInputError(
            f"The runs in '{pair.deterministic.path}' and '{pair.stochastic.path}' must begin with the same network, "
            f"and {problem}; give runs of one recipe and one seed."
        )


def why_not_same(pair: NetworkPair) -> str:
    """Say what tells two runs' first networks apart; empty: nothing that the folders know of."""
    one, other = (run.settings for run in pair)
    if one.fingerprint != other.fingerprint or one.data != other.data:
        return "their data differ"
    if one.config.seed != other.config.seed:
        return "their seeds differ"
    trained = [_trained_as(run) for run in pair]
    if None in trained:
        return "not both are runs by reference whose estimator labels with one network as it is trained without it"
    if trained[0] != trained[1]:
        return "their networks are trained in different ways"
    scores = [(run.records()[0].test_score, run.records()[0].validation_score) for run in pair]
    return "" if scores[0] == scores[1] else "their networks' scores differ"


def paper_experiment(run: RunFolder) -> tuple[str, int] | None:
    """Return data set and number of labels of a run on CIFAR, ("cifar10", 1000); None for other data."""
    data = run.settings.data
    if not isinstance(data, FunctionData) or not data.function.startswith(_DATA):
        return None
    name = data.function.removeprefix(_DATA)
    return (name, int(data.arguments.get("labels") or _LABELS[name])) if name in _LABELS else None


def has_paper_thresholds(run: RunFolder) -> bool:
    """Whether a run selects positives by the paper's thresholds for CIFAR."""
    config, choice = run.settings.config, PAPER["validation_choice"]
    return (config.tau_p, config.kappa_p) == (choice["tau_p"], choice["kappa_p"])


def paper_selection(run: RunFolder) -> tuple[str, int]:
    """Return data set and number of labels where the paper's figures of selections are of runs like this one.

    Their network is CNN-13, its passes are MC-dropout's, and the thresholds 0.7 and 0.05; ("", 0) for other runs.
    """
    learner = run.settings.learner
    alike = isinstance(learner, TorchLearnerSettings) and (learner.model, learner.uncertainty) == _PAPER_NETWORK
    return (paper_experiment(run) or ("", 0)) if alike and has_paper_thresholds(run) else ("", 0)


def paper_counts(run: RunFolder) -> dict[str, int]:
    """Return the positives of each class in the paper's first selection, by its name; empty where it has no such."""
    name, labels = paper_selection(run)
    counts = PAPER["class_counts"].get(labels) if name == "cifar10" else None
    return {} if counts is None else dict(zip(CIFAR10_CLASSES, counts, strict=True))


def paper_accuracy(run: RunFolder, method: str, tau: float) -> float | None:
    """Return the share of the paper's first labels that is right; None where it has none for a run like this one."""
    name, labels = paper_selection(run)
    found: float | None = PAPER["accuracy"].get((name, labels), {}).get(method, {}).get(tau)
    return found


def share(right: Mask) -> float | None:
    """Return the share of True; None of nothing."""
    return float(right.mean()) if len(right) else None


def first_selection_table(row: Row) -> TextTable:
    """Return the first selections of a row's runs, before and after balancing, beside the paper's where it has them."""
    selections = [first_selection(run) for run in row.runs]
    header = ["", "positive labels", "largest / smallest class", "right (%)"]
    lines = []
    for stage in STAGES:
        found: list[Positives] = [getattr(selection, stage) for selection in selections]
        number, accuracy = statistic([one.number for one in found]), statistic([one.accuracy for one in found])
        assert number is not None
        right = "–" if accuracy is None else f"{percent(accuracy):.2f}"
        lines.append([f"{stage} balancing", f"{number:,.0f}", _ratio([one.imbalance for one in found]), right])
    name, labels = paper_selection(row.runs[0])
    if counts := paper_counts(row.runs[0]):
        ratio = PAPER["imbalance"][labels]
        lines.append(["paper, table of classes", f"{sum(counts.values()):,}", f"{ratio:g}", "–"])
    if (name, labels) == ("cifar10", 1000):
        accuracy = PAPER["accuracy"][name, labels]["UPS"][0.7]
        lines.append(["paper, text", f"{PAPER['positives']:,}", "–", f"{100 * accuracy:.2f}"])
    return TextTable(header, lines)


def class_counts_table(row: Row) -> TextTable:
    """Return the first selections of a row's runs class by class, and largest over smallest class in the last line."""
    selections = [first_selection(run) for run in row.runs]
    names = [*row.runs[0].settings.classes, "largest / smallest class"]
    columns = {"class": names}
    for stage in STAGES:
        found: list[Positives] = [getattr(selection, stage) for selection in selections]
        cells = [f"{statistic(of_class):,.0f}" for of_class in zip(*(one.counts for one in found), strict=True)]
        columns[f"{stage} balancing"] = [*cells, _ratio([one.imbalance for one in found])]
    _, labels = paper_selection(row.runs[0])
    if counts := paper_counts(row.runs[0]):
        cells = [f"{counts[name]:,}" if name in counts else "–" for name in names[:-1]]
        columns["paper"] = [*cells, f"{PAPER['imbalance'][labels]:g}"]
    return TextTable(list(columns), [list(line) for line in zip(*columns.values(), strict=True)])


def first_round_table(pairs: Sequence[NetworkPair], taus: Sequence[float] = TAUS) -> TextTable:
    """Return the accuracy of the first labels over tau and method and their numbers; the paper's follow."""
    found = [first_round_accuracy(pair, taus) for pair in pairs]
    lines = []
    for method in METHODS:
        cells = [[one[method][index] for one in found] for index in range(len(taus))]
        lines.append([method, *map(_accuracy_cell, cells)])
    name, labels = paper_selection(pairs[0].stochastic)
    paper = PAPER["accuracy"].get((name, labels), {})
    for method, shares in paper.items():
        lines.append([f"paper: {method}", *(f"{100 * shares[tau]:.2f}" if tau in shares else "–" for tau in taus)])
    header = ["right (%), of how many", *(f"τ_p = {tau:g}" if tau else "no τ_p" for tau in taus)]
    return TextTable(header, lines)


def _accuracy_cell(found: Sequence[Accuracy]) -> str:
    number, accuracy = statistic([one.number for one in found]), statistic([one.accuracy for one in found])
    assert number is not None
    return "none" if accuracy is None else f"{percent(accuracy):.2f}, of {number.mean:,.0f}"


def _ratio(values: Sequence[float | None]) -> str:
    if math.inf in values:
        return "∞"
    ratio: Statistic | None = statistic(values)
    return "–" if ratio is None else f"{ratio:.2f}"


def _positives(pool: PoolLabels, positive: Mask, truth: npt.NDArray[np.integer[Any]] | None) -> Positives:
    """Count marked labels by class, and judge them where the truth is known; all are of one shape, (N,) or (N, C)."""
    counts = tuple(pool.class_counts(positive).tolist())
    if truth is None:
        return Positives(counts, None)
    return Positives(counts, share((pool.label == truth)[positive & (truth >= 0)]))


def _usable(run: RunFolder) -> bool:
    return run.settings.config.task == "single" and run.truth is not None


def _trained_as(run: RunFolder) -> dict[str, Any] | None:
    """What a run's networks are trained by; None where labeling changes that, or code would have to be asked."""
    learner = run.settings.learner
    if not isinstance(learner, TorchLearnerSettings) or learner.uncertainty not in _ONE_NETWORK:
        return None
    return learner.model_dump(mode="json", exclude=_LABELING)
