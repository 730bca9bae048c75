"""Labels the pool of a run shard by shard, in this process or in others; a crash loses only unfinished shards.

A sample's label depends only on the network, the shard and the sample's position in it, not on which process labels it
or on the number of processes.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from surelabel._version import __version__
from surelabel.base.system import Progress
from surelabel.base.together import Alone, processes_of
from surelabel.data.pool import PoolLabels, join
from surelabel.data.sharded import ShardedSource
from surelabel.data.shards import BlockReader, Shard
from surelabel.data.source import Source
from surelabel.learners import Learner
from surelabel.learners.shard_labels import Labeling, label_shard
from surelabel.runs.layout import round_file
from surelabel.runs.model import Model
from surelabel.runs.round_parts import FOLDER, LabelParts, made_by
from surelabel.settings import RunSettings, UPSConfig

Results = Generator[tuple[int, PoolLabels], None, None]
InWorkers = Callable[[Callable[[int], PoolLabels], Sequence[int]], Results]
"""(job, tasks) to each task and its result, in any order; the job is pickled for other processes."""


@dataclass
class ShardLabeler:
    """A `PoolLabeler` for samples in shards.

    Attributes:
        path: the run's folder, where the labels of finished shards are kept until the round is recorded.
        settings: of the run.
        in_workers: calls a job for each shard in other processes; None: this process labels all.
        progress: called with the number of labeled samples.
    """

    path: Path
    settings: RunSettings
    in_workers: InWorkers | None = None
    progress: Progress | None = None

    def __call__(
        self, learner: Learner, pool: Source, num_classes: int, config: UPSConfig, network: int
    ) -> Iterator[PoolLabels]:
        """Yield the labels of each shard, in their order."""
        assert isinstance(pool, ShardedSource)
        how = Labeling(config.task, num_classes, config.thresholds, config.negatives, config.seed, network)
        job = LabelShard(learner, self._model(learner, network), pool.reader, pool.shards, how)
        group = processes_of(learner)
        with _silent(learner):
            yield from self._shared(group, job, pool) if group.size > 1 else self._kept(job, pool)

    def _model(self, learner: Any, network: int) -> Model:
        path = self.path / round_file(network, learner.model_file)
        return Model(self.settings.network.for_trained_network(), learner.to_bytes(), path, self.settings)

    def _kept(self, job: "LabelShard", pool: ShardedSource) -> Iterator[PoolLabels]:
        """Label the shards without a part from before a crash; then yield all parts."""
        folder = self.path / round_file(job.how.network, FOLDER)
        versions = __version__, str(torch.__version__)
        ids = [pool.ids[pool.rows_of(number)] for number in range(len(pool.shards))]
        by = made_by(job.model.content, dataclasses.asdict(job.how), versions)
        parts = LabelParts(folder, by, pool.shards, ids, job.how.num_classes, job.how.task)
        missing = parts.missing()
        done = len(pool) - sum(_length(pool.rows_of(number)) for number in missing)
        call = self.in_workers if self.in_workers is not None and missing else _here
        with contextlib.closing(call(job, missing)) as results:
            for number, labels in results:
                parts.write(number, labels)
                done += len(labels)
                self._tell(done, pool)
        for number in range(len(pool.shards)):
            yield parts.read(number)

    def _shared(self, group: Alone, job: "LabelShard", pool: ShardedSource) -> Iterator[PoolLabels]:
        """Label a share of the shards, as one of several processes that train together; all get all labels."""
        for first in range(0, len(pool.shards), group.size):
            some = range(len(pool.shards))[first : first + group.size]
            mine = some[group.rank : group.rank + 1]
            of_all: list[list[PoolLabels]] = group.in_all(functools.partial(list, map(job, mine)))
            yield from itertools.chain(*of_all)
            self._tell(pool.rows_of(some[-1]).stop, pool)

    def _tell(self, done: int, pool: ShardedSource) -> None:
        if self.progress is not None:
            self.progress("label", done, len(pool))


@dataclass
class LabelShard:
    """Labels a shard, given its number. A copy in another process builds the network there, once.

    Attributes:
        learner: with the network; None in a copy, until it is built.
        model: what the network is built from.
        reader: reads the shards.
        shards: of the pool.
        how: thresholds and seed.
    """

    learner: Any
    model: Model
    reader: BlockReader
    shards: Sequence[Shard]
    how: Labeling

    def __call__(self, number: int) -> PoolLabels:
        """Return the labels of a shard, before balancing."""
        self.learner = self.learner or self.model.learner()
        return join(list(label_shard(self.learner, self.reader, self.shards[number], self.how)))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the learner, which belongs to this process."""
        return {**self.__dict__, "learner": None}


def _here(job: Callable[[int], PoolLabels], numbers: Sequence[int]) -> Results:
    return ((number, job(number)) for number in numbers)


def _length(rows: slice) -> int:
    return int(rows.stop - rows.start)


@contextlib.contextmanager
def _silent(learner: Any) -> Iterator[None]:
    """Turn off a learner's progress reports, which would be about chunks of a shard."""
    before, learner.progress = learner.progress, None
    try:
        yield
    finally:
        learner.progress = before
