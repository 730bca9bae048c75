"""What the engine trains: a method says how batches are drawn and what the loss is; the engine knows no more of it.

UPS draws labeled, positive and negative samples and learns by one rule over their targets. A consistency method would
draw unlabeled samples as a stream of their own, ask its batch for a weak and a strong view of them, and a teacher, the
average of the network's weights, for their labels.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.data.source import Index
from surelabel.data.training_set import TrainingSet
from surelabel.errors import InvalidInputError


class Stream(NamedTuple):
    """Samples that every mini-batch takes the same number of, epoch after epoch.

    Attributes:
        rows: which rows of the training set, shape (n,).
        size: how many of them a mini-batch takes.
        kind: the kind of each, shape (n,); every stretch of the stream holds each kind in proportion. None: one kind.
        joins: the loss does not tell its rows from those of the stream before: `Batch.sizes` counts both as one, and a
            compiled step serves all batches of one length, however they are divided between the two.
        counted: a round's epochs are passes over its rows too, as they are over those of the first stream.
    """

    rows: Index
    size: int
    kind: npt.NDArray[np.integer] | None = None
    joins: bool = False
    counted: bool = False


def sizes_of(streams: Sequence[Stream]) -> tuple[int, ...]:
    """Return how many rows of a mini-batch each stream has; one that joins another counts with it.

    >>> rows = np.arange(100)
    >>> sizes_of([Stream(rows, 32), Stream(rows, 64)]), sizes_of([Stream(rows, 32), Stream(rows, 8, joins=True)])
    ((32, 64), (40,))
    """
    sizes: list[int] = []
    for stream in streams:
        if stream.joins and sizes:
            sizes[-1] += stream.size
        else:
            sizes.append(stream.size)
    return tuple(sizes)


def counted(streams: Sequence[Stream]) -> list[Stream]:
    """Return the streams that a round's epochs are passes over: the first, and those that say so.

    >>> rows = np.arange(100)
    >>> [stream.size for stream in counted([Stream(rows, 32), Stream(rows, 64), Stream(rows, 8, counted=True)])]
    [32, 8]
    """
    return [streams[0], *(stream for stream in streams[1:] if stream.counted)]


class Batch(NamedTuple):
    """A mini-batch on the device: the rows of the first stream, then those of the second, and so on.

    Attributes:
        samples: as they are stored, shape (B, ...).
        y: labels, shape (B, C).
        g: which labels may be learned from, shape (B, C).
        draws: the random numbers of each sample, for its augmentation.
        progress: the share of the round's steps that are done, in [0, 1), 0-d: for what grows or falls in a round.
        sizes: how many rows each stream has: `torch.split(logits, batch.sizes)` is the logits of each.
    """

    samples: Tensor
    y: Tensor
    g: Tensor
    draws: Draws
    progress: Tensor
    sizes: tuple[int, ...]

    def view(self, augment: Augment | None, name: str = "") -> Tensor:
        """Return the samples, each augmented by its own draws; views of other names are drawn independently."""
        return self.samples if augment is None else augment(self.samples, self.draws.named(name))


class Method(Protocol):
    """What `train` asks of a method.

    On a GPU, rounds share a step that was compiled and captured for one method: a method that is made anew each round
    has to be equal (==) to the last one, as frozen dataclasses of equal fields are, or the step is made again. Making
    it takes trial steps, after which network, average and optimizer are set anew; tensors of the method's own are not,
    and a loss that changes some finds them changed.
    """

    teacher: bool
    """Whether the loss asks a teacher: the average of the weights (`ema_decay`), in evaluation mode."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the tensors that steps change beside the network, for checkpoints; they stay where they are."""

    def streams(self, training_set: TrainingSet) -> Sequence[Stream]:
        """Return where each batch's samples come from; epochs are passes over the first stream, and all `counted`."""

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the scalar loss of a batch; compiled, so free of anything that looks at a tensor's values."""


def check_logits(logits: Tensor, num_rows: int, num_classes: int) -> Tensor:
    """Return the logits, refused when they are not (B, C)."""
    if not isinstance(logits, torch.Tensor) or logits.shape != (num_rows, num_classes):
        shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise InvalidInputError(
            f"The network must return one logit for each of the {num_classes} classes, shape {(num_rows, num_classes)} "
            f"for this batch. Got {shape} instead."
        )
    return logits
