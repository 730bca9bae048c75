"""The record of a round: what its network learned from, how good that was where the truth is known, its scores."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from surelabel.calibration import calibration_error
from surelabel.data.pool import PoolLabels
from surelabel.data.training_set import Mask

StopReason = Literal["converged", "max_rounds", "max_minutes", "no_unlabeled", "interrupted"]


@dataclass(frozen=True)
class RoundRecord:
    """One round of Algorithm 1. Counts and qualities are of the labels that this round's network learned from.

    Attributes:
        round: 0 is the supervised network.
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
        validation_score: accuracy (multi-label: mean average precision) of this round's network.
        test_score: the same on the test set.
        minutes: time since the run began.
        stop: why the rounds end here, or None.
        pool: the pool as this round's network labels it, with the next round's selection.
        validation: the validation set as this round's network labels it.
    """

    round: int
    num_positive: int
    num_negative: int
    num_positive_before: int
    num_negative_only: int
    negatives_per_row: float | None
    positive_share: float
    class_counts_before: list[int]
    class_counts: list[int]
    balanced: bool
    negatives_use: str
    mean_confidence: float | None
    mean_uncertainty: float | None
    ece: float | None
    positive_accuracy: float | None
    negative_accuracy: float | None
    validation_score: float | None
    test_score: float | None
    minutes: float
    stop: StopReason | None
    pool: PoolLabels | None = field(default=None, repr=False, compare=False)
    validation: PoolLabels | None = field(default=None, repr=False, compare=False)

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


def describe(
    round: int,
    learned_from: PoolLabels | None,
    truth: tuple[Mask, Mask] | None,
    *,
    num_classes: int,
    **rest: Any,
) -> RoundRecord:
    """Make the record of a round from the labels that its network learned from."""
    if learned_from is None:
        return RoundRecord(round, **_nothing(num_classes), **rest)
    positive, negative = learned_from.selection
    only_negative = negative.any(axis=1) & ~positive.any(axis=1)
    confidence = _at_positives(learned_from.confidence, positive)
    uncertainty = None if learned_from.uncertainty is None else _at_positives(learned_from.uncertainty, positive)
    return RoundRecord(
        round,
        num_positive=int(positive.sum()),
        num_negative=int(negative.sum()),
        num_positive_before=int(learned_from.before.sum()),
        num_negative_only=int(only_negative.sum()),
        negatives_per_row=_mean(negative[only_negative].sum(axis=1)),
        positive_share=float(positive.any(axis=1).mean()),
        class_counts_before=learned_from.before.sum(axis=0).tolist(),
        class_counts=positive.sum(axis=0).tolist(),
        mean_confidence=_mean(confidence),
        mean_uncertainty=None if uncertainty is None else _mean(uncertainty),
        ece=None if truth is None else _ece(learned_from, *truth),
        positive_accuracy=None if truth is None else _mean(truth[0][positive & truth[1]]),
        negative_accuracy=None if truth is None else _mean(~truth[0][negative & truth[1]]),
        **rest,
    )


def _nothing(num_classes: int) -> dict[str, Any]:
    counts = dict.fromkeys(("num_positive", "num_negative", "num_positive_before", "num_negative_only"), 0)
    means = (
        "negatives_per_row",
        "mean_confidence",
        "mean_uncertainty",
        "ece",
        "positive_accuracy",
        "negative_accuracy",
    )
    per_class = {name: [0] * num_classes for name in ("class_counts_before", "class_counts")}
    return {**counts, **dict.fromkeys(means), **per_class, "positive_share": 0.0}


def _at_positives(values: Any, positive: Mask) -> Any:
    return values[positive] if values.ndim == 2 else values[positive.any(axis=1)]


def _mean(values: Any) -> float | None:
    return float(np.mean(values, dtype=np.float64)) if len(values) else None


def _ece(pool: PoolLabels, y: Mask, g: Mask) -> float | None:
    """Eq. 6 over the selected labels: single-label the positives, multi-label every selected entry."""
    positive, negative = pool.selection
    if pool.confidence.ndim == 1:
        chosen = positive & g
        rows = chosen.any(axis=1)
        confidence, correct = pool.confidence[rows], y[chosen]
    else:
        chosen = (positive | negative) & g
        confidence = np.maximum(pool.confidence, 1 - pool.confidence)[chosen]
        correct = (y == (pool.label == 1))[chosen]
    return float(calibration_error(confidence, correct)) if len(confidence) else None
