"""The record of a round: what its network learned from, how accurate that was if the truth is known, and its scores."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from surelabel.core.arrays import ROUNDING
from surelabel.core.calibration import calibration_error
from surelabel.core.labels import Task
from surelabel.core.metrics import accuracy, class_average_precisions, mean_average_precision
from surelabel.data.pool import Floats, PoolLabels
from surelabel.data.targets import Mask, blocks

Truth = npt.NDArray[np.int64]
"""The pool's labels: class indices (N,), or 0 and 1, (N, C); -1 where unknown."""

# The content of a record is checked when it is read from a file.
Count = Annotated[int, Field(ge=0, lt=2**53)]
Amount = Annotated[float, Field(ge=0, lt=2**53)]
Share = Annotated[float, Field(ge=-ROUNDING, le=1 + ROUNDING)]
"""A mean of shares may be rounded beyond 0 and 1."""

Metric: TypeAlias = Callable[[Floats, Mask, Mask], float | None]

ClassScores = list[Annotated[list[Share], Field(min_length=2, max_length=2)] | None]
"""Each class's average precision, uninterpolated and over eleven points; None if it has no known positive."""

StopReason = Literal["converged", "max_rounds", "max_minutes", "no_unlabeled", "interrupted"]


@dataclass(frozen=True)
class RoundRecord:
    """One round of Algorithm 1. Counts and accuracies are of the labels that this round's network learned from.

    Attributes:
        round: 0 is the network before any selected label.
        num_positive: selected positive labels, after balancing.
        num_negative: selected negative labels (entries).
        num_positive_before: positives before balancing.
        num_negative_only: rows that learn from negatives only.
        negatives_per_row: negatives per such row; None without one.
        positive_share: share of the pool with a positive.
        class_counts_before: positives per class before balancing.
        class_counts: positives per class after balancing.
        balanced: whether this round was balanced.
        negatives_use: how the learner uses negatives: by its "loss", by "expansion", or "left out".
        mean_confidence: mean p of the selected positives; None without one.
        mean_uncertainty: mean u of the selected positives; None without one, or without uncertainties.
        ece: expected calibration error of the selected labels, where the truth is known; None without one.
        positive_accuracy: share of the positives that are right, where the truth is known.
        negative_accuracy: share of the negatives that are right, where the truth is known.
        minutes: time since the run began.
        stop: why the rounds end here, or None.
        scores: of this round's network on the held-out sets, such as "validation accuracy" and "test accuracy"; see
            `METRICS` for their names.
        validation_class_scores: multi-label: both average precisions of each class; None for a class that has no
            known positive, which the means leave out.
        test_class_scores: the same on the test set.
        pool: the pool as labeled by this round's network, with the next round's selection.
        validation: the validation set as labeled by this round's network.
    """

    round: Count
    num_positive: Count
    num_negative: Count
    num_positive_before: Count
    num_negative_only: Count
    negatives_per_row: Amount | None
    positive_share: Share
    class_counts_before: list[Count]
    class_counts: list[Count]
    balanced: bool
    negatives_use: str
    mean_confidence: Share | None
    mean_uncertainty: Amount | None
    ece: Share | None
    positive_accuracy: Share | None
    negative_accuracy: Share | None
    minutes: Amount
    stop: StopReason | None
    scores: dict[str, Share] = field(default_factory=dict)
    validation_class_scores: ClassScores | None = None
    test_class_scores: ClassScores | None = None
    pool: PoolLabels | None = field(default=None, repr=False, compare=False)
    validation: PoolLabels | None = field(default=None, repr=False, compare=False)

    @property
    def validation_score(self) -> float | None:
        """The accuracy on the validation set; multi-label: the mean average precision, uninterpolated."""
        return self._score("validation", "accuracy", "mAP")

    @property
    def test_score(self) -> float | None:
        """The same on the test set."""
        return self._score("test", "accuracy", "mAP")

    @property
    def validation_score_11(self) -> float | None:
        """Multi-label: the mean average precision on the validation set over eleven points, as VOC2007 has it."""
        return self._score("validation", "mAP, 11 points")

    @property
    def test_score_11(self) -> float | None:
        """The same on the test set."""
        return self._score("test", "mAP, 11 points")

    def _score(self, part: str, *metrics: str) -> float | None:
        names = (f"{part} {metric}" for metric in metrics)
        return next((self.scores[name] for name in names if name in self.scores), None)

    @property
    def num_selected_before(self) -> int:
        """Positives plus negatives before balancing: what convergence is judged by."""
        return self.num_positive_before + self.num_negative

    def replace(self, **changes: Any) -> "RoundRecord":
        """Return a copy with these values changed."""
        return dataclasses.replace(self, **changes)

    def numbers(self) -> dict[str, Any]:
        """Return everything but the tables, ready for JSON."""
        fields = (item.name for item in dataclasses.fields(self))
        return {name: getattr(self, name) for name in fields if name not in ("pool", "validation")}


def scores(part: str, p: Floats, y: Mask, g: Mask, task: Task) -> dict[str, Any]:
    """Return the scores of a held-out part, and for task "multi" those of its classes, as the record has them.

    Args:
        part: "validation" or "test".
        p: probabilities, shape (N, C).
        y: the truth, shape (N, C).
        g: where it is known, shape (N, C).
        task: "single" or "multi".

    >>> scores("test", np.array([[0.9, 0.1]]), np.array([[True, False]]), np.array([[True, True]]), "multi")
    {'scores': {'test mAP': 1.0, 'test mAP, 11 points': 1.0}, 'test_class_scores': [[1.0, 1.0], None]}
    """
    found = {f"{part} {name}": metric(p, y, g) for name, metric in METRICS[task].items()}
    known = {"scores": {name: value for name, value in found.items() if value is not None}}
    if task == "single":
        return known
    classes = class_average_precisions(p, y, g)
    return {**known, f"{part}_class_scores": [None if one is None else list(one) for one in classes]}


def _mean_average_precision(place: int, p: Floats, y: Mask, g: Mask) -> float | None:
    mean = mean_average_precision(p, y, g)
    return None if mean is None else mean[place]


METRICS: dict[Task, dict[str, Metric]] = {
    "single": {"accuracy": lambda p, y, g: accuracy(p, y)},
    "multi": {"mAP": partial(_mean_average_precision, 0), "mAP, 11 points": partial(_mean_average_precision, 1)},
}
"""The scores of held-out sets, from p, y and g, (N, C) each. The first one of a task is *the* score."""


def with_scores(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a record; records of earlier versions had a few scores as fields.

    >>> with_scores({"round": 0, "test_score": 0.5, "validation_score": None, "test_class_scores": None})
    {'round': 0, 'test_class_scores': None, 'scores': {'test accuracy': 0.5}}
    """
    if "scores" in entry:
        return entry
    multi = any(entry.get(f"{part}_class_scores") for part in ("validation", "test"))
    metrics = {"": "mAP" if multi else "accuracy", "_11": "mAP, 11 points"}
    names = {f"{part}_score{end}": f"{part} {metrics[end]}" for part in ("validation", "test") for end in metrics}
    found = {names[key]: value for key, value in entry.items() if key in names and value is not None}
    return {**{key: value for key, value in entry.items() if key not in names}, "scores": found}


def describe(
    round: int, learned_from: PoolLabels | None, truth: Truth | None, *, num_classes: int, **rest: Any
) -> RoundRecord:
    """Make the record of a round from the labels that its network learned from."""
    if learned_from is None:
        counts = ("num_positive", "num_negative", "num_positive_before", "num_negative_only")
        unknown = ("negatives_per_row", "mean_confidence", "mean_uncertainty", *_JUDGED)
        nothing: dict[str, Any] = {**dict.fromkeys(counts, 0), **dict.fromkeys(unknown), "positive_share": 0.0}
        zeros = [0] * num_classes
        return RoundRecord(round, class_counts_before=zeros, class_counts=zeros.copy(), **nothing, **rest)
    judged: dict[str, Any] = {}
    for name, judge in _JUDGED.items():
        judged[name] = None if truth is None else judge(learned_from, truth)
    positive, before = learned_from.positive, learned_from.positive_before
    has_positive = np.asarray(positive if positive.ndim == 1 else positive.any(axis=1))
    of_negative_only = np.concatenate([_of_negative_only(block) for block in learned_from.blocks()])
    return RoundRecord(
        round,
        num_positive=int(positive.sum()),
        num_negative=learned_from.num_negative,
        num_positive_before=int(before.sum()),
        num_negative_only=len(of_negative_only),
        negatives_per_row=_mean(of_negative_only),
        positive_share=float(has_positive.mean()),
        class_counts_before=learned_from.class_counts(before).tolist(),
        class_counts=learned_from.class_counts(positive).tolist(),
        mean_confidence=_mean(learned_from.confidence[positive]),
        mean_uncertainty=None if learned_from.uncertainty is None else _mean(learned_from.uncertainty[positive]),
        **judged,
        **rest,
    )


def _of_negative_only(pool: PoolLabels) -> npt.NDArray[np.int64]:
    """Return the number of negatives of each sample without a positive."""
    has_positive = np.asarray(pool.positive.reshape(len(pool), -1).any(axis=1))
    return pool.negative.counts[~has_positive[pool.negative.rows]]


def _mean(values: Any) -> float | None:
    return float(np.mean(values, dtype=np.float64)) if len(values) else None


def _positive_accuracy(pool: PoolLabels, truth: Truth) -> float | None:
    chosen = pool.positive & (truth >= 0)
    return _mean(pool.label[chosen] == truth[chosen])


def _negative_accuracy(pool: PoolLabels, truth: Truth) -> float | None:
    """A negative is right when the class is not the sample's, or for task "multi" not one of them."""
    _, judged, wrong, _ = pool.left_out
    start = 0
    for block in pool.blocks():
        negative, known = block.negative, truth[start : start + len(block)]
        start += len(block)
        if truth.ndim == 1:
            true_class = known[negative.rows]
            judged += int(negative.counts[true_class >= 0].sum())
            wrong += int(negative.has(true_class).sum())
            continue
        for rows in blocks(len(negative), negative.num_classes):
            of_negative = known[rows][negative[rows]]
            judged += int((of_negative >= 0).sum())
            wrong += int((of_negative == 1).sum())
    return (judged - wrong) / judged if judged else None


def _ece(pool: PoolLabels, truth: Truth) -> float | None:
    """Eq. 6 over the selected labels: single-label the positives, multi-label every selected entry."""
    confidence, chosen = pool.confidence, pool.positive & (truth >= 0)
    if truth.ndim == 2:
        confidence = np.maximum(confidence, 1 - confidence)
        chosen |= pool.negative[:] & (truth >= 0)
    correct = pool.label[chosen] == truth[chosen]
    return float(calibration_error(confidence[chosen], correct)) if len(correct) else None


_JUDGED = {"ece": _ece, "positive_accuracy": _positive_accuracy, "negative_accuracy": _negative_accuracy}
"""The accuracies of selected labels, which need the truth."""
