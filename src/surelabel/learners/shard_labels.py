"""The labels of a shard, which do not depend on the worker, the time, or other shards.

Chunk k is rows k * size to (k + 1) * size of the shard, across its blocks; the last one is padded to the same size.
Labeling is seeded by (the run's seed, the network's number, "predict", the shard's name, k). A CPU labels with one
thread, because sums over several threads may round differently, unless the run sets another number.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from surelabel.core.labels import Task
from surelabel.data.draws import seed_for
from surelabel.data.pool import PoolLabels, Prediction, check_chunk, label_chunk
from surelabel.data.shards import BlockReader, Shard
from surelabel.data.source import ArraySource, Concatenation, Ids, Source
from surelabel.errors import InvalidInputError
from surelabel.learners import Learner

_USUAL_SIZE = 1024
"""Rows of a chunk, if a learner does not define its own number."""


@dataclass(frozen=True)
class Labeling:
    """How a run labels samples.

    Attributes:
        task: "single" or "multi".
        num_classes: C.
        thresholds: what `surelabel.core.selection.select` takes.
        negatives: whether negative labels are selected.
        seed: the run's.
        network: the number of the round whose network labels.
    """

    task: Task
    num_classes: int
    thresholds: dict[str, float]
    negatives: bool
    seed: int
    network: int


def label_shard(learner: Learner, reader: BlockReader, shard: Shard, how: Labeling) -> Iterator[PoolLabels]:
    """Yield the labels of a shard's rows, chunk by chunk, in their order."""
    pools: ThreadpoolController | None = None
    for number, (chunk, size) in enumerate(_chunks(learner, reader, shard)):
        rows = len(chunk)
        padded = chunk if rows == size else _rows(chunk, chunk.ids, np.arange(size) % rows)
        seed, start = seed_for(how.seed, how.network, "predict", shard.name, number), 0
        pools = pools or ThreadpoolController()  # by now all libraries that compute are loaded
        with _one_thread(pools):
            predictions = list(learner.predict(padded, seed=seed))
        for prediction in predictions:
            end = min(start + len(prediction.ids), rows)
            if end > start:
                kept = prediction if end - start == len(prediction.ids) else _first(prediction, end - start)
                check_chunk(kept, chunk.ids[start:end], how.num_classes)
                yield label_chunk(kept, how.task, how.thresholds, how.negatives)
            start = end
        if start < rows:
            raise InvalidInputError(f"The learner's predictions end after {start} of the {rows} rows of a chunk.")


def _chunks(learner: Learner, reader: BlockReader, shard: Shard) -> Iterator[tuple[Source, int]]:
    """Yield a shard's samples in chunks, with the size of all chunks but the last."""
    rest: Source | None = None
    size = 0
    for block in range(len(reader.blocks(shard))):
        read = reader.read(shard, block)
        both = read if rest is None else Concatenation(rest, read)
        ids = both.ids  # made again at each access
        size = size or _size(learner, read)
        whole = len(both) // size * size
        for start in range(0, whole, size):
            yield _rows(both, ids, np.arange(start, start + size)), size
        rest = _rows(both, ids, np.arange(whole, len(both))) if whole < len(both) else None
    if rest is not None:
        yield rest, size


def _size(learner: Any, source: Source) -> int:
    return int(learner.chunk_size(source)) if hasattr(learner, "chunk_size") else _USUAL_SIZE


def _first(prediction: Prediction, number: int) -> Prediction:
    """Return the first samples of a prediction."""
    parts: Any = (None if part is None else part[:number] for part in prediction)
    return Prediction(*parts)


def _rows(source: Source, ids: Ids, index: Any) -> Source:
    """Return some rows as a separate source, which does not keep the others in memory."""
    return ArraySource(source[index], ids=ids[index])


@contextlib.contextmanager
def _one_thread(pools: ThreadpoolController) -> Iterator[None]:
    """Use one CPU thread in a block of code."""
    torch = sys.modules.get("torch")  # if it is not loaded, nothing here computes with torch
    before = torch.get_num_threads() if torch else 1
    with pools.limit(limits=1):
        try:
            if torch:
                torch.set_num_threads(1)
            yield
        finally:
            if torch:
                torch.set_num_threads(before)
