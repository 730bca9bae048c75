"""UPS as a method of the engine: labels and positives in proportion, added negatives, and the learning rule."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surelabel.augment.chain import Augment
from surelabel.augment.mixup import mixup
from surelabel.base.defaults import FitDefaults
from surelabel.core.labels import Task
from surelabel.core.losses import masked_binary_cross_entropy, negative_cross_entropy
from surelabel.data.source import Index
from surelabel.data.training_set import LABELED, NEGATIVE, TrainingSet
from surelabel.engine.feed import channels_last
from surelabel.engine.method import Batch, Method, Stream, check_logits
from surelabel.engine.order import num_steps
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError

_NO_LABEL = -100
"""The label of a row that has only negatives."""


def batch_sizes(
    num_labeled: int, num_positive: int, num_negative: int | None, settings: TrainingSettings
) -> tuple[int, int, int]:
    """Return how many samples a mini-batch has: with a label, labeled ones drawn separately, with only negative labels.

    If labeled ones are drawn separately, the first number counts only pseudo-labeled ones.

    Negatives within `batch_size` would crowd out the labels in a round with a fixed number of steps. Their number is
    rounded up to a power of two, so that a run's rounds have few shapes to compile for. Multi-label: negatives are not
    drawn separately, and `num_negative` is None.

    >>> together = TrainingSettings(batch_size=32)
    >>> batch_sizes(60, 40, 50, together), batch_sizes(60, 40, 900, together)
    ((32, 0, 16), (32, 0, 32))
    >>> apart = TrainingSettings(batch_size=32, labeled_batch_size=16, negative_batch_size=8)
    >>> batch_sizes(60, 40, 50, apart), batch_sizes(60, 0, 0, apart)
    ((32, 16, 8), (56, 0, 0))
    """
    with_label = num_labeled + num_positive
    labeled = settings.labeled_batch_size if num_positive else 0
    fixed = None if num_negative is None else settings.negative_batch_size
    # Rounds without pseudo-labels, or without negatives, have batches of the same shape as other rounds.
    first = settings.batch_size + settings.labeled_batch_size - labeled + (0 if num_negative else fixed or 0)
    first = min(first, num_positive if labeled else with_label)
    if not num_negative:
        return first, labeled, 0
    proportion = math.ceil((first + labeled) * num_negative / with_label)
    return first, labeled, fixed or min(2 ** (proportion - 1).bit_length(), settings.batch_size)


@dataclass(frozen=True)
class UPSMethod(Method):
    """Cross-entropy of labels and positives, equation 3 of negatives; multi-label: equation 4.

    Args:
        task: "single" or "multi".
        settings: batch sizes, augmentation, label smoothing, memory format.
        negative_weight: the weight of the negative part.

    Example:
        >>> method = UPSMethod("single", TrainingSettings(batch_size=32, epochs=10))
        >>> method.samples_in_round(60, 40, 50, 0)
        (11, 1536)
    """

    task: Task
    settings: TrainingSettings
    negative_weight: float = FitDefaults.negative_weight
    _augment: Augment | None = field(init=False, compare=False, repr=False)
    _mixup: float = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        augment = self.settings.augment
        object.__setattr__(self, "_augment", None if augment is None else Augment(augment))
        object.__setattr__(self, "_mixup", 0.0 if augment is None else augment.mixup)
        if self.task == "multi" and (self._mixup or self.settings.label_smoothing):
            raise InvalidInputError("Mixup and label_smoothing are for single-label data; set them to 0.")

    def for_round(self, training_set: TrainingSet, shared: bool) -> "UPSMethod":
        """Return the method without the negative part if no sample needs it, which saves half the loss's time.

        Not for shared steps, which would have to be made again in a later round that needs it.
        """
        if shared or (training_set.kind == NEGATIVE).any():
            return self
        return replace(self, negative_weight=0.0)

    def samples_in_step(self, max_rounds: int) -> int:
        """Return the most samples of a step: without `negative_batch_size`, as many negatives as labels.

        A run without rounds has no negatives to add, but fills a fixed `negative_batch_size` with labels. Multi-label:
        negatives are learned together with the positives.
        """
        fixed = self.settings.negative_batch_size
        with_label = self.settings.batch_size + self.settings.labeled_batch_size
        if self.task == "multi" or (fixed is None and max_rounds == 0):
            return with_label
        return with_label + (fixed or self.settings.batch_size)

    def samples_in_round(
        self,
        num_labeled: int,
        num_positive: int,
        num_negative: int | None,
        round_number: int,
        num_unlabeled: int = 0,
    ) -> tuple[int, int]:
        """Return the epochs over the first stream, unfinished ones counted, and all samples that a round takes."""
        streams = self._streams(*(np.arange(number or 0) for number in (num_labeled, num_positive, num_negative)))
        steps, first = num_steps(streams, self.settings, round_number), streams[0]
        return math.ceil(steps * first.size / len(first.rows)), steps * sum(stream.size for stream in streams)

    def streams(self, training_set: TrainingSet) -> list[Stream]:
        """Return the samples with a label, or pseudo-labeled and labeled ones separately, then negatives."""
        rows, kind = training_set.rows, training_set.kind
        # Multi-label: all selected labels are learned by one loss.
        only_negative = (kind == NEGATIVE) & (self.task == "single")
        if self.negative_weight == 0:
            rows, kind, only_negative = (part[~only_negative] for part in (rows, kind, only_negative))
        if self._mixup and only_negative.any():
            raise InvalidInputError("Mixup mixes labels; some samples have only negative ones; use negatives=False.")
        labeled = kind == LABELED
        streams = self._streams(rows[labeled], rows[~labeled & ~only_negative], rows[only_negative])
        return [streams[0]._replace(kind=kind[np.searchsorted(rows, streams[0].rows)]), *streams[1:]]

    def _streams(self, labeled: Index, positive: Index, negative: Index) -> list[Stream]:
        num_negative = len(negative) if self.task == "single" else None
        first, apart, with_negatives = batch_sizes(len(labeled), len(positive), num_negative, self.settings)
        # The labeled rows of a training set come first.
        streams = [Stream(positive if apart else np.concatenate([labeled, positive]), first)]
        if apart:
            streams.append(Stream(labeled, apart, joins=True, counted=True))
        if with_negatives:
            streams.append(Stream(negative, with_negatives, joins=True))
        return streams

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss of the learning rule, `core.losses.learning_rule`, with torch's fused cross-entropy."""
        x, y, g = batch.view(self._augment), batch.y, batch.g
        positive = y & g
        targets = positive.float()
        if self._mixup:
            x, targets = mixup(x, targets, batch.draws, self._mixup)
        if self.settings.channels_last:
            x = channels_last(x)
        logits = check_logits(network(x), *y.shape).float()
        if self.task == "multi":
            loss: Tensor = masked_binary_cross_entropy(logits, y, g)
            return loss
        smoothing = self.settings.label_smoothing
        if self._mixup:
            return cross_entropy(logits, targets, label_smoothing=smoothing)
        has_label = positive.any(dim=1)
        labels = torch.where(has_label, targets.argmax(dim=1), _NO_LABEL)
        loss = cross_entropy(logits, labels, ignore_index=_NO_LABEL, reduction="sum", label_smoothing=smoothing)
        # Each stream has rows of one kind, so that several processes have equal counts of them.
        loss = loss / has_label.sum().clamp(min=1)
        if self.negative_weight:
            loss = loss + self.negative_weight * negative_cross_entropy(logits, g & ~has_label[:, None])
        return loss
