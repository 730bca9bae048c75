"""What the engine trains: a method says how batches are drawn and what the loss is, which is all that the engine uses.

UPS draws labeled, positive and negative samples and has one loss over their targets. A consistency method draws
unlabeled samples as a separate stream, asks its batch for a weak and a strong view of them, and may get their labels
from a teacher, the average of the network's weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

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

PARTS = "parts"
"""The name of the tensor with the values of a method's `parts`."""


class Stream(NamedTuple):
    """Samples from which every mini-batch takes the same number, epoch after epoch.

    Attributes:
        rows: which rows of the training set, shape (n,).
        size: how many of them a mini-batch takes.
        kind: the kind of each, shape (n,); every part of the stream holds the kinds in proportion. None: one kind.
        joins: the loss treats its rows like those of the previous stream: `Batch.sizes` counts both as one, and one
            compiled step works for all batches of the same length, however the two share it.
        counted: a round's epochs are passes over its rows too, not only over those of the first stream.
    """

    rows: Index
    size: int
    kind: npt.NDArray[np.integer] | None = None
    joins: bool = False
    counted: bool = False


def sizes_of(streams: Sequence[Stream]) -> tuple[int, ...]:
    """Return how many rows of a mini-batch come from each stream; one that joins another counts with it.

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
    """Return the streams that a round's epochs are passes over: the first, and those marked as `counted`.

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
        g: which labels to learn from, shape (B, C).
        draws: the random numbers of each sample, for its augmentation.
        progress: the share of the round's steps that are done, in [0, 1), 0-d: for ramps within a round.
        sizes: how many rows each stream has: `torch.split(logits, batch.sizes)` gives the logits of each.
        rows: of the training set, shape (B,): indices into the method's own tensors that have a row per sample.
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
        """Return the samples, each augmented with its own draws; views with different names are drawn independently."""
        return self.samples if augment is None else augment(self.samples, self.draws.named(name))

    def note(self, *values: Tensor) -> None:
        """Keep the values of `Method.parts`, to be shown during training."""
        self.state[PARTS].copy_(torch.stack([value.detach().float() for value in values]))

    def stream(self, number: int) -> "Batch":
        """Return the part of the batch that comes from one stream."""
        start = sum(self.sizes[:number])
        part = slice(start, start + self.sizes[number])
        samples, y, g, rows = (whole[part] for whole in (self.samples, self.y, self.g, self.rows))
        draws, sizes = self.draws.rows(part), (self.sizes[number],)
        return self._replace(samples=samples, y=y, g=g, rows=rows, draws=draws, sizes=sizes)


Look: TypeAlias = Callable[[Index], Tensor]
"""From rows of the training set to their current logits (N, C), by the average of the weights or else the network."""


class Method(ABC):
    """How one network learns within a round: which samples a step takes, and what the loss is.

    Your own method derives from this class and is called with (task, training settings, its own parameters by name).
    Settings name it as "file.py:Class", or you pass it to `TorchLearner(method=...)`.

    On a GPU, rounds share a step that was compiled and captured for one method. A method that is created again for each
    round must be equal (==) to the last one, as frozen dataclasses with equal fields are, or the step is made again.
    """

    teacher: bool = False
    """Whether the loss uses a teacher: the average of the weights (`ema_decay`), in evaluation mode."""

    own_statistics: bool = False
    """Whether the teacher's BatchNorm uses its own batches, and keeps statistics of these instead of the network's."""

    looks: int = 0
    """How many times per round the method looks at samples, at equal intervals, the first time before step 0."""

    parts: ClassVar[Sequence[str]] = ()
    """Names of the values that the loss notes (`Batch.note`), such as its parts, to be shown during training."""

    @abstractmethod
    def streams(self, training_set: TrainingSet) -> Sequence[Stream]:
        """Return where each batch's samples come from; epochs are passes over the first and all `counted` ones."""

    @abstractmethod
    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the scalar loss of a batch; it is compiled, so it must not look at the values of tensors."""

    def tensors(self, num_rows: int, num_classes: int) -> Mapping[str, Tensor]:
        """Return the tensors that the method keeps between steps, as they are when a round begins; any shape will do.

        The engine has copies of them on the device, in `Batch.state`. It resets them for each round and saves them in
        checkpoints.
        """
        return {}

    def look(self, look: Look, training_set: TrainingSet, state: Mapping[str, Tensor]) -> None:
        """Run the network on any samples and change the method's own tensors in place; only if `looks` is above 0."""
        raise NotImplementedError

    def check_samples(self, x: Tensor) -> None:
        """Refuse samples that the method cannot learn from; called with one, as a network sees it, before a run."""
        return

    def prepare(self, network: nn.Module) -> nn.Module:
        """Return what is trained instead of a fresh network: one with a second head, or two networks in one.

        Called like a plain network, it must return the logits for predictions.
        """
        return network

    def for_round(self, training_set: TrainingSet, shared: bool) -> "Method":
        """Return the method for a round; an equal one each time if rounds are `shared`, since making a step is slow."""
        return self

    @abstractmethod
    def samples_in_step(self, max_rounds: int) -> int:
        """Return the most samples that a step takes in a run of this many rounds, for planning budgets."""

    @abstractmethod
    def samples_in_round(
        self,
        num_labeled: int,
        num_positive: int,
        num_negative: int | None,
        round_number: int,
        num_unlabeled: int,
    ) -> tuple[int, int]:
        """Return the epochs over the first stream, counting unfinished ones, and all samples that a round takes.

        Args:
            num_labeled: samples with a label.
            num_positive: samples with a selected positive.
            num_negative: samples with negatives only; None for multi-label, where they count among the positives.
            round_number: the number of the round.
            num_unlabeled: samples that came without a label.
        """


def expect(right: bool, hook: str, wanted: str, got: object) -> None:
    """Refuse a wrong result of a method's hook."""
    if not right:
        raise InvalidInputError(f"The method's {hook} must {wanted}. Got {shown(got)} instead; correct the method.")


def check_streams(streams: Sequence[Stream], num_rows: int) -> None:
    """Refuse streams of a user's method that no batch can be drawn from."""
    wanted = f"return streams of row numbers, an integer array of values from 0 to {num_rows - 1}, and a size above 0"
    expect(isinstance(streams, Sequence) and len(streams) > 0, "streams()", wanted, streams)
    for stream in streams:
        right = isinstance(stream, Stream) and isinstance(stream.rows, np.ndarray) and stream.rows.dtype.kind in "iu"
        right = right and len(stream.rows) > 0 and stream.rows.min() >= 0 and stream.rows.max() < num_rows
        expect(right and isinstance(stream.size, int) and stream.size > 0, "streams()", wanted, stream)


def check_logits(logits: Tensor, num_rows: int, num_classes: int) -> Tensor:
    """Return the logits; refuse them if they are not (B, C)."""
    if not isinstance(logits, torch.Tensor) or logits.shape != (num_rows, num_classes):
        shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        wanted = f"one logit for each of the {num_classes} classes, shape {(num_rows, num_classes)}"
        raise InvalidInputError(f"The network must return {wanted}. Got {shape} instead.")
    return logits
