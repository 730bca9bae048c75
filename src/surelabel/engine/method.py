"""What the engine trains: a method says how batches are drawn and what the loss is; the engine knows no more of it.

UPS draws labeled, positive and negative samples and learns by one rule over their targets. A consistency method would
draw unlabeled samples as a stream of their own, ask its batch for a weak and a strong view of them, and a teacher, the
average of the network's weights, for their labels.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.base.text import shown
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
        rows: of the training set, shape (B,): the places in tensors of the method's own that have one for each sample.
        state: the method's own tensors (`Method.tensors`), which its loss may change in place.
    """

    samples: Tensor
    y: Tensor
    g: Tensor
    draws: Draws
    progress: Tensor
    sizes: tuple[int, ...]
    rows: Tensor
    state: Mapping[str, Tensor]

    def view(self, augment: Augment | None, name: str = "") -> Tensor:
        """Return the samples, each augmented by its own draws; views of other names are drawn independently."""
        return self.samples if augment is None else augment(self.samples, self.draws.named(name))

    def stream(self, number: int) -> "Batch":
        """Return the part of the batch that one stream has."""
        start = sum(self.sizes[:number])
        part = slice(start, start + self.sizes[number])
        samples, y, g, rows = (whole[part] for whole in (self.samples, self.y, self.g, self.rows))
        draws, sizes = self.draws.rows(part), (self.sizes[number],)
        return self._replace(samples=samples, y=y, g=g, rows=rows, draws=draws, sizes=sizes)


Look: TypeAlias = Callable[[Index], Tensor]
"""Rows of the training set to their logits, (N, C), by the average of the weights or else the network, as it is now."""


class Method(ABC):
    """How one network learns within a round: which samples a step takes, and what the loss is.

    A method of your own derives from this one, is called with (task, training settings, parameters of its own by name),
    and is named by settings as "file.py:Class", or handed to `TorchLearner(method=...)`.

    On a GPU, rounds share a step that was compiled and captured for one method: a method that is made anew each round
    has to be equal (==) to the last one, as frozen dataclasses of equal fields are, or the step is made again.
    """

    teacher: bool = False
    """Whether the loss asks a teacher: the average of the weights (`ema_decay`), in evaluation mode."""

    looks: int = 0
    """How many times in a round the method looks at samples, at equal distances, first before step 0."""

    @abstractmethod
    def streams(self, training_set: TrainingSet) -> Sequence[Stream]:
        """Return where each batch's samples come from; epochs are passes over the first stream, and all `counted`."""

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the scalar loss of a batch; compiled, so free of anything that looks at a tensor's values."""

    def tensors(self, num_rows: int, num_classes: int) -> Mapping[str, Tensor]:
        """Return what the method keeps between steps, as it is when a round begins; per sample, class, or as it likes.

        The engine owns copies on the device: set back for each round, kept in checkpoints, in `Batch.state`.
        """
        return {}

    def look(self, look: Look, training_set: TrainingSet, state: Mapping[str, Tensor]) -> None:
        """Ask the network about any samples, and change the method's own tensors in place; for `looks` above 0."""
        raise NotImplementedError

    def prepare(self, network: nn.Module) -> nn.Module:
        """Return what is trained instead of a fresh network: with a second head, or a second network beside it.

        Called as a plain network, it returns the logits that predictions are made from.
        """
        return network

    def for_round(self, training_set: TrainingSet, shared: bool) -> "Method":
        """Return the method of a round; `shared` rounds should have an equal one, as making a step takes long."""
        return self

    @abstractmethod
    def samples_in_step(self, max_rounds: int) -> int:
        """Return how many samples a step takes at most in a run of so many rounds; budgets are planned by it."""

    @abstractmethod
    def samples_in_round(
        self, num_labeled: int, num_positive: int, num_negative: int | None, round_number: int
    ) -> tuple[int, int]:
        """Return the epochs over the first stream, begun ones counted, and the samples that a round takes in all.

        Args:
            num_labeled: samples with a label.
            num_positive: samples with a selected positive.
            num_negative: samples with negatives only; None for multi-label, where they count among the positives.
            round_number: of the round.
        """


def expect(right: bool, hook: str, wanted: str, got: object) -> None:
    """Refuse what a hook of a method returned, unless it is right."""
    if not right:
        raise InvalidInputError(f"The method's {hook} must {wanted}. Got {shown(got)} instead; correct the method.")


def check_streams(streams: Sequence[Stream], num_rows: int) -> None:
    """Refuse streams that no batch can be drawn from, by a method of the user's own."""
    wanted = f"return streams of row numbers, an integer array of values from 0 to {num_rows - 1}, and a size above 0"
    expect(isinstance(streams, Sequence) and len(streams) > 0, "streams()", wanted, streams)
    for stream in streams:
        right = isinstance(stream, Stream) and isinstance(stream.rows, np.ndarray) and stream.rows.dtype.kind in "iu"
        right = right and len(stream.rows) > 0 and stream.rows.min() >= 0 and stream.rows.max() < num_rows
        expect(right and isinstance(stream.size, int) and stream.size > 0, "streams()", wanted, stream)


def check_logits(logits: Tensor, num_rows: int, num_classes: int) -> Tensor:
    """Return the logits, refused when they are not (B, C)."""
    if not isinstance(logits, torch.Tensor) or logits.shape != (num_rows, num_classes):
        shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        wanted = f"one logit for each of the {num_classes} classes, shape {(num_rows, num_classes)}"
        raise InvalidInputError(f"The network must return {wanted}. Got {shape} instead.")
    return logits
