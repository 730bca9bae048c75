"""Which samples a step sees: streams laid end to end, epoch after epoch, each in an order of its own.

Position k of a stream of n samples is sample k mod n of epoch k div n; step t takes the positions t b … (t + 1) b - 1.
So every batch has the same size, every epoch holds every sample once, and a batch may hold the end of one epoch and the
start of the next. An epoch's order is a hash of (seed, epoch, sample id): nothing depends on where a run was resumed.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from surelabel.data.draws import UInt64Array, proportional_order
from surelabel.data.source import Index
from surelabel.engine.method import Stream, counted
from surelabel.engine.settings import TrainingSettings


class Block(NamedTuple):
    """Some consecutive steps: the rows of each, and the epoch that each row is in; (steps, B) both."""

    rows: Index
    epochs: Index


def num_steps(streams: Sequence[Stream], settings: TrainingSettings, round_number: int = 0) -> int:
    """Return how many steps a round takes: `steps`, or until the longest counted stream has had its epochs.

    At least `min_steps`, and `round_growth` times as many with each round.

    >>> rows = np.arange(100)
    >>> num_steps([Stream(rows, 32), Stream(rows, 8)], TrainingSettings(epochs=10))
    32
    >>> [num_steps([], TrainingSettings(steps=100, round_growth=1.5), number) for number in range(4)]
    [100, 150, 225, 338]
    """
    steps = settings.steps
    if steps is None:
        lengths = [math.ceil(settings.epochs * len(one.rows) / one.size) for one in counted(streams)]
        steps = max(settings.min_steps, *lengths)
    return round(steps * settings.round_growth**round_number)


class BatchOrder:
    """The rows of every step, made block by block.

    Args:
        streams: where each batch's rows come from.
        keys: of all rows of the training set, `sample_keys`, shape (N,).
        seed: of the round.
    """

    def __init__(self, streams: Sequence[Stream], keys: UInt64Array, seed: int) -> None:
        self._parts = [_Endless(stream, keys[stream.rows], seed) for stream in streams]

    def blocks(self, steps: int, length: int = 64, done: int = 0) -> Iterator[Block]:
        """Yield the steps `done` … `steps` - 1, at most `length` at a time; a device works while the next are made."""
        for start in range(done, steps, length):
            parts = [part.steps(start, min(start + length, steps)) for part in self._parts]
            yield Block(*(np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True)))


class _Endless:
    """One stream, epoch after epoch."""

    def __init__(self, stream: Stream, keys: UInt64Array, seed: int) -> None:
        self.stream = stream
        kind = np.zeros(len(keys), dtype=np.int64) if stream.kind is None else stream.kind

        # A block ends within an epoch, whose order the next block needs again.
        @functools.lru_cache(maxsize=1)
        def order(epoch: int) -> Index:
            return proportional_order(keys, kind, seed, "order", epoch)

        self.order = order

    def steps(self, start: int, stop: int) -> Block:
        size, length = self.stream.size, len(self.stream.rows)
        positions = np.arange(start * size, stop * size)
        first, last = int(positions[0]) // length, int(positions[-1]) // length
        orders = np.concatenate([self.order(epoch) for epoch in range(first, last + 1)])
        rows = self.stream.rows[orders[positions - first * length]]
        return Block(rows.reshape(-1, size), (positions // length).reshape(-1, size))
