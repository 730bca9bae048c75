"""A pool that does not fit in memory: samples in the blocks of many shards, read on demand.

Positions count the rows of all shards, in the order of the shards' names. Random access would read a block for every
sample. So an epoch is drawn in windows: the blocks are shuffled by a hash and cut into windows of about `window` rows,
and the rows of each window are shuffled by a hash. While a window is trained on, its blocks are in memory. A pool of
one window has exactly the order that it would have in memory.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from surelabel.base.settings import Settings
from surelabel.data.decoding import OnError
from surelabel.data.draws import UInt64Array, draw
from surelabel.data.shards import BlockReader, Shard
from surelabel.data.source import Concatenation, Ids, Index, Source
from surelabel.errors import DataError

_WINDOWS = 3
"""How many windows stay in memory: positives and negatives each have their own position in the pool, and one of them
may be moving to its next window."""


class PoolShards(Settings):
    """The shards that a run's pool is in.

    Attributes:
        place: a folder, a pattern of names in it or an address, as `find_shards` takes them.
        shards: the name, the bytes and the rows of each; learned when the run begins. A pool that differs is refused.
        marks: the `Place.mark` of each; learned and compared in the same way. Runs of earlier versions have none.
        on_error: "stop" refuses a shard that cannot be read; "skip" leaves it out.
        skipped: names of shards that could not be read when the run began.
        left_out: pictures and other files in the other shards that could not be read then: the name of the shard, and
            their places in it.
        window_mib: the size of a window in MiB of samples, see `Windows`.
    """

    place: str = Field(min_length=1)
    shards: tuple[tuple[str, int, int], ...] = ()
    marks: tuple[str, ...] = ()
    on_error: OnError = "stop"
    skipped: tuple[str, ...] = ()
    left_out: tuple[tuple[str, tuple[int, ...]], ...] = ()
    window_mib: int = Field(256, ge=1, le=2**20)

    def pinned(self) -> Self:
        """Return the settings with an absolute path, if it is a local one."""
        return self if "://" in self.place else self.replace(place=str(Path.cwd() / self.place))


class ShardedSource:
    """Samples in the blocks of shards; the most recently used blocks stay in memory.

    Args:
        reader: reads a block.
        shards: in their order.
        blocks: how many rows each block of each shard has.
        sample_shape: of one sample.
        ids: of all samples, shape (N,); None: their positions.
        window: how many rows an epoch draws from at a time. About three times as many are kept in memory.

    Attributes:
        starts: where each block begins, and where the last one ends.
        counts_rows: whether the ids are positions.
        num_reads: how many blocks were read so far.
    """

    def __init__(
        self,
        reader: BlockReader,
        shards: Sequence[Shard],
        blocks: Sequence[Sequence[int]],
        sample_shape: tuple[int, ...],
        ids: Ids | None = None,
        window: int = 1 << 16,
    ) -> None:
        self.reader, self.shards, self.sample_shape, self.window = reader, list(shards), sample_shape, window
        lengths = np.array([rows for of_shard in blocks for rows in of_shard], dtype=np.int64)
        self.starts: Index = np.concatenate([[0], np.cumsum(lengths)])
        self._first_block = np.cumsum([0, *map(len, blocks)])
        self.ids: Ids = np.arange(self.starts[-1]) if ids is None else ids
        self.counts_rows = ids is None
        self._most_rows = _WINDOWS * (window + int(lengths.max(initial=0)))
        self._cache: OrderedDict[int, npt.NDArray[Any]] = OrderedDict()
        self.num_reads = 0

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, index: Index) -> npt.NDArray[Any]:
        index = np.asarray(index)
        of_block = np.searchsorted(self.starts, index, side="right") - 1
        found: npt.NDArray[Any] | None = None
        for block in np.unique(of_block).tolist():
            samples, here = self._block(block), of_block == block
            if found is None:
                found = np.empty((len(index), *self.sample_shape), dtype=samples.dtype)
            found[here] = samples[index[here] - self.starts[block]]
        return self._block(0)[:0] if found is None else found

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the blocks in memory, which another process reads for itself."""
        return {**self.__dict__, "_cache": OrderedDict()}

    def rows_of(self, shard: int) -> slice:
        """Return the positions of a shard's rows."""
        first, last = self._first_block[[shard, shard + 1]]
        return slice(int(self.starts[first]), int(self.starts[last]))

    def _block(self, block: int) -> npt.NDArray[Any]:
        """Return the samples of a block, and drop the blocks that were not used for the longest time."""
        samples = self._cache.get(block)
        if samples is None:
            samples = self._read(block)
            kept = sum(map(len, self._cache.values()))
            while self._cache and kept + len(samples) > self._most_rows:
                kept -= len(self._cache.popitem(last=False)[1])
            self._cache[block] = samples
        self._cache.move_to_end(block)
        return samples

    def _read(self, block: int) -> npt.NDArray[Any]:
        self.num_reads += 1
        number = int(np.searchsorted(self._first_block, block, side="right")) - 1
        shard, expected = self.shards[number], int(self.starts[block + 1] - self.starts[block])
        source = self.reader.read(shard, block - int(self._first_block[number]))
        if (len(source), source.sample_shape) != (expected, self.sample_shape):
            found = f"{len(source)} rows of shape {source.sample_shape}"
            problem = f"The shard '{shard.name}' has a block with {found}, and not {expected} of {self.sample_shape}"
            raise DataError(f"{problem}; it was changed: restore it.")
        return np.asarray(source[np.arange(expected)])


@dataclass(frozen=True)
class Windows:
    """How an epoch goes through rows, some of which are in the blocks of shards.

    Attributes:
        starts: where each block begins, and where the last one ends, among the rows of a training set.
        size: rows of a window, which may have up to one block more.
    """

    starts: Index
    size: int

    def of(self, rows: Index, keys: UInt64Array, *parts: int | str) -> npt.NDArray[np.int32]:
        """Return the window of each row in an epoch, shape (N,).

        A row outside the blocks is in memory. It counts as a separate block of size 0, so that these rows are spread
        over all windows.

        Args:
            rows: of the training set.
            keys: the samples' keys.
            *parts: what the draw is for: seed, purpose, epoch.
        """
        number = len(self.starts) - 1
        drawn = draw(*parts, "blocks", np.arange(number, dtype=np.uint64))
        order = np.argsort(drawn, kind="stable")
        before = np.cumsum(np.diff(self.starts)[order]) - np.diff(self.starts)[order]
        window = np.empty(number, dtype=np.int32)
        window[order] = before // self.size
        block = np.searchsorted(self.starts, rows, side="right") - 1
        alone = np.flatnonzero((block < 0) | (block >= number))
        following = np.searchsorted(drawn[order], draw(*parts, "blocks", keys[alone]))
        block[alone] = order[np.minimum(following, number - 1)]
        return window[block]


def windows_of(source: Source) -> Windows | None:
    """Return how an epoch goes through a training set's samples; None if all are in memory."""
    if isinstance(source, Concatenation) and isinstance(source.second, ShardedSource):
        return Windows(source.second.starts + len(source.first), source.second.window)
    return Windows(source.starts, source.window) if isinstance(source, ShardedSource) else None
