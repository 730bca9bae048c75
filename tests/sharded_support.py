"""A pool in blocks of shards that lie in memory: what is read of it is counted."""

import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from surelabel.data.sharded import ShardedSource
from surelabel.data.shards import Shard
from surelabel.data.source import ArraySource


@dataclass
class ArrayReader:
    """Reads the rows of an array, cut into the blocks of shards."""

    x: npt.NDArray[Any]
    lengths: list[list[int]]
    read_blocks: list[tuple[str, int]] = field(default_factory=list)

    def blocks(self, shard: Shard) -> list[int]:
        return self.lengths[int(shard.name)]

    def read(self, shard: Shard, block: int) -> ArraySource:
        self.read_blocks.append((shard.name, block))
        before = [rows for lengths in self.lengths[: int(shard.name)] for rows in lengths]
        start = sum(before) + sum(self.lengths[int(shard.name)][:block])
        return ArraySource(self.x[start : start + self.lengths[int(shard.name)][block]])


def sharded(x: npt.NDArray[Any], lengths: list[list[int]], window: int = 1 << 16) -> ShardedSource:
    """Return an array as a source of shards called 0, 1, ..., with blocks of these lengths."""
    shards = [Shard(str(number), 1) for number in range(len(lengths))]
    return ShardedSource(ArrayReader(x, lengths), shards, lengths, x.shape[1:], window=window)


def pickled(source: ShardedSource) -> ShardedSource:
    """Return a source as another process has it."""
    copy = pickle.loads(pickle.dumps(source))
    assert isinstance(copy, ShardedSource)
    return copy
