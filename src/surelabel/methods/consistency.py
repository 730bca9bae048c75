"""What consistency methods share: labeled rows and rows of the pool, weak and strong views, and what a round selected.

They learn the labels, and that two views of one sample of the pool should get the same answer. Views of pictures and
spectrograms are augmented (`TrainingSettings.augment`; the weak ones without RandAugment, jitter, holes and masks).
Views of other samples differ by the network's own noise and dropout.

Selected labels replace answers: a positive becomes the whole answer, and a negative sets its class to 0. The labeled
rows are only those that came with a label.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from surelabel.augment.chain import Augment
from surelabel.augment.settings import AugmentSettings
from surelabel.base.settings import MOST_SAMPLES
from surelabel.core.arrays import require_count, require_number
from surelabel.core.labels import Task
from surelabel.data.source import Index
from surelabel.data.training_set import TrainingSet
from surelabel.engine.feed import channels_last
from surelabel.engine.method import Batch, Method, Stream, check_logits
from surelabel.engine.order import num_steps
from surelabel.engine.parallel import over_all
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError

_STRONG = {
    "operations": 0,
    "magnitude": None,
    "jitter": 0.0,
    "hole": 0,
    "mask_rows": 0,
    "mask_columns": 0,
}
"""What a weak view leaves out."""

LEAST = 1e-8
"""The least value of a probability that is a divisor or the argument of a logarithm."""


@dataclass(frozen=True)
class ConsistencyMethod(Method):
    """The base of the methods that learn from all samples of the pool.

    Args:
        task: "single" or "multi".
        settings: batch sizes, augmentation, label smoothing, memory format.
        weight: of the part of the loss that needs no labels; None: from `usual_weights`.
        ratio: how many rows of the pool there are for each labeled row; `batch_size` rows come from the pool. None:
            `labeled_batch_size` is the number of labeled rows, or if that is 0, `usual_ratio` is used.
        ramp: the share of the round in which the weight rises from 0; 0: it is the same from the start.
    """

    task: Task
    settings: TrainingSettings
    weight: float | None = None
    ratio: int | None = None
    ramp: float = 0.4
    _weak: Augment | None = field(init=False, compare=False, repr=False)
    _strong: Augment | None = field(init=False, compare=False, repr=False)

    usual_weights: ClassVar[tuple[float, float]] = (1.0, 1.0)
    """For samples that are augmented (as published), and for others (docs/methods.md says how it was chosen)."""

    usual_ratio: ClassVar[int] = 1

    mixes: ClassVar[bool] = False
    """Whether samples are mixed with each other."""

    parts: ClassVar[Sequence[str]] = ("labeled", "unlabeled")

    def __post_init__(self) -> None:
        require_number("weight", self._weight, 0, 1e6)
        if self.ratio is not None:
            require_count("ratio", self.ratio, 1, MOST_SAMPLES)
        require_number("ramp", self.ramp, 0, 1)
        augment = self.settings.augment
        if augment is not None and augment.mixup:
            mixing = "methods that mix samples do so by their own rule"
            raise InvalidInputError(f"{type(self).__name__} takes no mixup in the augmentation: {mixing}; set it to 0.")
        if self.task == "multi" and self.settings.label_smoothing:
            raise InvalidInputError("label_smoothing is for single-label data; set it to 0.")
        for name, view in zip(("_weak", "_strong"), weak_and_strong(augment), strict=True):
            object.__setattr__(self, name, view)

    def streams(self, training_set: TrainingSet) -> list[Stream]:
        """Return the rows that came with a label, and those with an unknown entry, or all rows if there are none.

        With several labels, rows that are known in part are both.
        """
        return self._streams(np.arange(training_set.num_labeled), training_set.pool_rows)

    def _streams(self, labeled: Index, unlabeled: Index) -> list[Stream]:
        pool = unlabeled if len(unlabeled) else labeled
        labels = Stream(labeled, min(self._labeled_batch_size, len(labeled)))
        return [labels, Stream(pool, min(self.settings.batch_size, len(pool)), counted=True)]

    @property
    def _weight(self) -> float:
        return self.usual_weights[self.settings.augment is None] if self.weight is None else self.weight

    @property
    def _labeled_batch_size(self) -> int:
        if self.ratio is None and self.settings.labeled_batch_size:
            return self.settings.labeled_batch_size
        return math.ceil(self.settings.batch_size / (self.ratio or self.usual_ratio))

    def samples_in_step(self, max_rounds: int) -> int:
        """Return how many rows a step takes at most."""
        return self.settings.batch_size + self._labeled_batch_size

    def samples_in_round(
        self,
        num_labeled: int,
        num_positive: int,
        num_negative: int | None,
        round_number: int,
        num_unlabeled: int,
    ) -> tuple[int, int]:
        """Return the epochs over the labeled rows, unfinished ones counted, and all rows that a round takes."""
        streams = self._streams(np.arange(num_labeled), np.arange(num_unlabeled))
        steps, first = num_steps(streams, self.settings, round_number), streams[0]
        return math.ceil(steps * first.size / len(first.rows)), steps * sum(stream.size for stream in streams)

    def weak(self, batch: Batch, name: str) -> Tensor:
        """Return a weak view of the samples; views with other names have other draws."""
        return batch.view(self._weak, name)

    def strong(self, batch: Batch, name: str) -> Tensor:
        """Return a strong view of the samples."""
        return batch.view(self._strong, name)

    def check_samples(self, x: Tensor) -> None:
        """Refuse samples that cannot be mixed: a mean of two word codes has no meaning."""
        if self.mixes and not x.is_floating_point():
            remedy = 'give float32, such as x / 255; for codes of words choose "mean-teacher"'
            raise InvalidInputError(f"{type(self).__name__} mixes samples of floats; got {x.dtype}: {remedy}.")

    def logits(self, network: nn.Module, x: Tensor, batch: Batch) -> Tensor:
        """Return the logits of views, float32 of shape (N, C)."""
        x = channels_last(x) if self.settings.channels_last else x
        return check_logits(network(x), len(x), batch.y.shape[1]).float()

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the softmax; multi-label: the sigmoid."""
        return logits.softmax(dim=1) if self.task == "single" else logits.sigmoid()

    def supervised(self, logits: Tensor, y: Tensor, g: Tensor) -> Tensor:
        """Return the cross-entropy with labels; multi-label: the binary one of the known entries, as in equation 4.

        Args:
            logits: shape (N, C).
            y: labels, or mixtures of labels, shape (N, C).
            g: which entries are known, shape (N, C); only for multi-label.
        """
        y, g = y.to(logits.dtype), g.to(logits.dtype)
        if self.task == "single":
            return cross_entropy(logits, y, label_smoothing=self.settings.label_smoothing)
        entries = g * binary_cross_entropy_with_logits(logits, y, reduction="none")
        known = g.sum(dim=1)
        number = (known > 0).sum()
        return over_all((entries.sum(dim=1) / known.clamp(min=1)).sum() / number.clamp(min=1), number)

    def with_selected(self, q: Tensor, pool: Batch) -> Tensor:
        """Return the answers q (N, C) with the selected labels in place of them."""
        if self.task == "multi":
            return torch.where(pool.g, pool.y.to(q.dtype), q)
        positive = pool.y & pool.g
        return torch.where(positive.any(dim=1, keepdim=True), positive.to(q.dtype), without_negatives(q, pool))

    def total(self, batch: Batch, labeled: Tensor, unlabeled: Tensor, *more: Tensor) -> Tensor:
        """Return the loss from its two parts, and note these and `more` values of `parts`."""
        batch.note(labeled, unlabeled, *more)
        return labeled + self._weight * self.risen(batch.progress) * unlabeled

    def risen(self, progress: Tensor) -> Tensor:
        """Return r(t), the share of the weight that counts at this moment of the round."""
        return sigmoid_ramp(progress, self.ramp)


def weak_and_strong(augment: AugmentSettings | None) -> tuple[Augment | None, Augment | None]:
    """Return what makes the two kinds of views: one and the same where nothing is stronger in the strong ones."""
    if augment is None:
        return None, None
    weak, strong = Augment(augment.replace(**_STRONG)), Augment(augment)
    return weak, weak if augment.replace(magnitude=None) == weak.settings else strong


def without_negatives(q: Tensor, pool: Batch) -> Tensor:
    """Return probabilities (N, C) of a softmax with the selected negatives at 0; the rest sums to 1."""
    negative = pool.g & ~pool.y
    negative = negative & ~negative.all(dim=1, keepdim=True)  # if nothing would be left, the answer is not changed
    left = q.clamp(min=LEAST).masked_fill(negative, 0.0)
    return left / left.sum(dim=1, keepdim=True)


def sigmoid_ramp(progress: Tensor, share: float) -> Tensor:
    """Return exp(-5 (1 - t / T)^2) for t < T, else 1, where T is a share of the round.

    >>> sigmoid_ramp(torch.tensor([0.0, 0.2, 0.4, 1.0]), 0.4)
    tensor([0.0067, 0.2865, 1.0000, 1.0000])
    """
    return torch.exp(-5 * (1 - linear_ramp(progress, share)) ** 2)


def linear_ramp(progress: Tensor, share: float) -> Tensor:
    """Return t / T for t < T, else 1, where T is a share of the round.

    >>> linear_ramp(torch.tensor([0.0, 0.2, 1.0]), 0.4)
    tensor([0.0000, 0.5000, 1.0000])
    """
    return (progress / share).clamp(max=1) if share else torch.ones_like(progress)


def averaging_share(state: Mapping[str, Tensor], momentum: float) -> Tensor:
    """Return how far the moving averages move towards a batch's values, and count the batch in `state["batches"]`.

    At first an average is the mean of all batches so far: otherwise it would stay near its initial value in a short
    round.

    >>> state = {"batches": torch.tensor(0.0)}
    >>> [round(averaging_share(state, 0.7).item(), 4) for _ in range(5)]
    [1.0, 0.5, 0.3333, 0.3, 0.3]
    """
    share = (1 / (state["batches"] + 1)).clamp(min=1 - momentum)
    state["batches"].add_(1)
    return share
