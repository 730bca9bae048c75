"""Which samples a step sees: streams laid end to end, epoch after epoch, each epoch in its own order.

Position k of a stream of n samples is sample k mod n of epoch k div n; step t takes the positions t b … (t + 1) b - 1.
So every batch has the same size, every epoch holds every sample once, and a batch may hold the end of one epoch and the
start of the next. An epoch is shuffled by a hash of (seed, epoch, sample id): nothing depends on where a run was
resumed. For samples in shards, an epoch goes through the blocks in the order of their hash (`data.sharded`).
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from surelabel.data.draws import UInt64Array, proportional_order
from surelabel.data.sharded import Windows
from surelabel.data.source import Index
from surelabel.data.targets import Codes, index_type
from surelabel.engine.method import Stream, counted
from surelabel.engine.settings import TrainingSettings


class Block(NamedTuple):
    """Some consecutive steps: the rows of each, and the epoch of each row; both (steps, B)."""

    rows: Index
    epochs: Index


def num_steps(streams: Sequence[Stream], settings: TrainingSettings, round_number: int = 0) -> int:
    """Return how many steps a round takes: `steps`, or enough for all epochs of the longest counted stream.

    Epochs give at least `min_steps`. Each round takes `round_growth` times as many steps as the one before.

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


def batch_order(
    streams: Sequence[Stream],
    keys: UInt64Array,
    seed: int,
    steps: int,
    done: int = 0,
    length: int = 64,
    windows: Windows | None = None,
) -> Iterator[Block]:
    """Yield the rows of steps `done` … `steps` - 1, block by block; the device works while the next block is made.

    Args:
        streams: where each batch's rows come from.
        keys: the `sample_keys` of all rows of the training set, shape (N,).
        seed: of the round.
        steps: of the round.
        done: how many of them are done already.
        length: the most steps in a block.
        windows: how an epoch goes through samples in shards; None: all are in memory.
    """
    bounds = [(start, min(start + length, steps)) for start in range(done, steps, length)]
    for parts in zip(*(_blocks(stream, keys, seed, bounds, windows) for stream in streams), strict=True):
        yield Block(*(np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True)))


def divided(streams: Sequence[Stream], processes: int) -> list[Stream]:
    """Return streams from which a mini-batch takes numbers that several processes can divide evenly.

    >>> [stream.size for stream in divided([Stream(np.arange(100), 32), Stream(np.arange(9), 8)], 2)]
    [32, 8]
    """
    sizes = [max(stream.size // processes, 1) * processes for stream in streams]
    changed = [(stream.size, size) for stream, size in zip(streams, sizes, strict=True) if stream.size != size]
    for before, size in changed:
        asked = f"{before} rows of a mini-batch cannot be divided among {processes} processes, and are {size}"
        warnings.warn(f"{asked}; so results differ a little from those of one process.", stacklevel=2)
    return [stream._replace(size=size) for stream, size in zip(streams, sizes, strict=True)]


def columns_of(streams: Sequence[Stream], rank: int, processes: int) -> Index:
    """Return which rows of a mini-batch one of several processes takes: a stretch of each stream's.

    >>> columns_of([Stream(np.arange(100), 4), Stream(np.arange(9), 2)], 1, 2)
    array([2, 3, 5])
    """
    first = np.cumsum([0, *(stream.size for stream in streams)])
    lengths = [stream.size // processes for stream in streams]
    parts = zip(first, lengths, strict=False)
    return np.concatenate([np.arange(start + rank * length, start + (rank + 1) * length) for start, length in parts])


def _blocks(
    stream: Stream, keys: UInt64Array, seed: int, bounds: Sequence[tuple[int, int]], windows: Windows | None
) -> Iterator[Block]:
    """Yield one stream's part of the steps between each pair of bounds."""
    size, length = stream.size, len(stream.rows)

    def order_of(epoch: int) -> Codes:
        own = keys[stream.rows]
        window = None if windows is None else windows.of(stream.rows, own, seed, "order", epoch)
        order = proportional_order(own, kind, seed, "order", epoch, window=window)
        return order.astype(index_type(length))  # a small type, as it is kept for the whole epoch

    kind = np.zeros(length, dtype=np.int8) if stream.kind is None else stream.kind
    orders: dict[int, Codes] = {}
    for start, stop in bounds:
        positions = np.arange(start * size, stop * size)
        epochs = positions // length
        first, last = int(epochs[0]), int(epochs[-1])
        # A block usually ends within an epoch, whose order the next block needs again.
        made, orders = orders, {}
        for epoch in range(first, last + 1):
            orders[epoch] = made[epoch] if epoch in made else order_of(epoch)
        order = orders[first] if first == last else np.concatenate(list(orders.values()))
        rows = stream.rows[order[positions - first * length]]
        yield Block(rows.reshape(-1, size), epochs.reshape(-1, size))
