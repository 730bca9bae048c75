"""UPS as a method of the engine: labels and positives in proportion, negatives on top, and the learning rule."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surelabel.augment import Augment, mixup
from surelabel.data.training_set import NEGATIVE, TrainingSet
from surelabel.engine.layout import channels_last
from surelabel.engine.method import Batch, Stream, check_logits
from surelabel.engine.order import num_steps
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError
from surelabel.labels import Task
from surelabel.losses import masked_binary_cross_entropy, negative_cross_entropy

_NO_LABEL = -100
"""In the place of a label where a row has negatives only."""


class BatchSizes(NamedTuple):
    """How many samples with a label, and with negative labels only, a mini-batch holds."""

    labeled: int
    negative: int


def batch_sizes(num_labeled: int, num_negative: int, settings: TrainingSettings) -> BatchSizes:
    """Return the parts of a mini-batch: `batch_size` rows with a label, and at most as many negatives on top.

    Were the negatives within `batch_size`, they would push the labels out of a round of a given number of steps. Their
    proportion is rounded up to a power of two, so that the rounds of a run, compiled for a shape, have few shapes.

    >>> batch_sizes(100, 50, TrainingSettings(batch_size=32)), batch_sizes(100, 900, TrainingSettings(batch_size=32))
    (BatchSizes(labeled=32, negative=16), BatchSizes(labeled=32, negative=32))
    >>> batch_sizes(100, 0, TrainingSettings(batch_size=32, negative_batch_size=8))
    BatchSizes(labeled=40, negative=0)
    """
    fixed = settings.negative_batch_size
    if num_negative == 0:
        # Of the shape that the rounds with negatives have.
        return BatchSizes(min(settings.batch_size + (fixed or 0), num_labeled), 0)
    labeled = min(settings.batch_size, num_labeled)
    proportion = math.ceil(labeled * num_negative / num_labeled)
    return BatchSizes(labeled, fixed or min(2 ** (proportion - 1).bit_length(), settings.batch_size))


def samples_trained_on(num_labeled: int, num_negative: int, settings: TrainingSettings) -> tuple[int, int]:
    """Return the epochs over the rows with a label, begun ones counted, and the samples that a round sees in all.

    >>> samples_trained_on(100, 50, TrainingSettings(batch_size=32, epochs=10))
    (11, 1536)
    """
    sizes = batch_sizes(num_labeled, num_negative, settings)
    steps = num_steps(num_labeled, sizes.labeled, settings)
    return math.ceil(steps * sizes.labeled / num_labeled), steps * sum(sizes)


@dataclass(frozen=True)
class UPSMethod:
    """Cross-entropy of labels and positives, equation 3 of negatives; several labels a sample: equation 4.

    Args:
        task: "single" or "multi".
        negative_weight: the weight of the negative part.
        settings: batch sizes, augmentation, label smoothing, memory format.
    """

    task: Task
    negative_weight: float
    settings: TrainingSettings
    _augment: Augment | None = field(init=False, compare=False, repr=False)
    _mixup: float = field(init=False, compare=False, repr=False)

    teacher = False

    def __post_init__(self) -> None:
        augment = self.settings.augment
        object.__setattr__(self, "_augment", None if augment is None else Augment(augment))
        object.__setattr__(self, "_mixup", 0.0 if augment is None else augment.mixup)
        if self.task == "multi" and (self._mixup or self.settings.label_smoothing):
            raise InvalidInputError("Mixup and label_smoothing are for one label a sample; set them to 0.")

    def streams(self, training_set: TrainingSet) -> list[Stream]:
        """Return the samples with a label, then those with negative labels only."""
        rows, kind = training_set.rows, training_set.kind
        if self.task == "multi":
            return [Stream(rows, min(self.settings.batch_size, len(rows)), kind)]
        only_negative = kind == NEGATIVE
        if self.negative_weight == 0:
            rows, kind, only_negative = (part[~only_negative] for part in (rows, kind, only_negative))
        if self._mixup and only_negative.any():
            raise InvalidInputError(
                "Mixup mixes the labels of two samples, and samples with negative labels only have none: use "
                "negatives=False with it."
            )
        sizes = batch_sizes(int((~only_negative).sum()), int(only_negative.sum()), self.settings)
        streams = [Stream(rows[~only_negative], sizes.labeled, kind[~only_negative])]
        return streams + ([Stream(rows[only_negative], sizes.negative, joins=True)] if sizes.negative else [])

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss of the learning rule: `surelabel.losses.learning_rule`, with torch's fused cross-entropy."""
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
        loss = loss / has_label.sum().clamp(min=1)
        if self.negative_weight:
            loss = loss + self.negative_weight * negative_cross_entropy(logits, g & ~has_label[:, None])
        return loss
