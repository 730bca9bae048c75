"""Runs over a pool in shards that take some ten milliseconds a round: three blobs in Parquet files."""

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from small_runs import CONFIG, LEARNER

from surelabel.data.pool import PoolLabels
from surelabel.data.run_data import TableData
from surelabel.data.sharded import PoolShards
from surelabel.data.shards import FORMS, Place, Shard, find_shards
from surelabel.data.tables import write_table
from surelabel.runs.labeling import LabelShard
from surelabel.settings import RunSettings

NAMES = [f"x{place}" for place in range(4)]


def blobs(number: int, seed: int) -> tuple[Any, Any]:
    """Return samples and their classes."""
    y = np.arange(number) % 3
    x = np.random.default_rng(seed).normal(size=(number, 4)) + 2.0 * np.eye(3, 4)[y]
    return x.astype(np.float32), y


def write_shard(path: Path, x: Any, row_group_size: int = 20, **columns: Any) -> None:
    """Write samples, and other columns, as a shard."""
    path.parent.mkdir(parents=True, exist_ok=True)
    features = dict(zip(NAMES, x.T, strict=True))
    pq.write_table(pa.table({**columns, **features}), path, row_group_size=row_group_size)


def write_labeled(path: Path, **columns: Any) -> Path:
    """Write nine labeled samples as a table."""
    x, y = blobs(9, 0)
    return write_table(path, {**columns, **dict(zip(NAMES, x.T, strict=True)), "label": np.array(["a", "b", "c"])[y]})


def write_pool(folder: Path, sizes: Sequence[int] = (47, 20, 33), row_group_size: int = 20) -> Path:
    """Write the shards 0.parquet, 1.parquet, ... of the same samples, however they are cut into groups of rows."""
    x, _ = blobs(sum(sizes), 1)
    for number, part in enumerate(np.split(x, np.cumsum(sizes)[:-1])):
        write_shard(folder / f"{number}.parquet", part, row_group_size)
    return folder


def pool_settings(folder: Path, **changes: Any) -> RunSettings:
    """Return the settings of a run on a table and a pool in `folder`; write what is not there."""
    table, pool = folder / "labeled.csv", folder / "pool"
    if not table.exists():
        write_labeled(table)
    if not pool.exists():
        write_pool(pool)
    data = TableData(path=table, labels=("label",))
    values = {"data": data, "pool": PoolShards(place=str(pool)), "learner": LEARNER, "config": CONFIG}
    return RunSettings(**{**values, **changes})


class ObjectStore:
    """A file system of this machine's files that says it is another one, whose connection breaks off.

    Attributes:
        broken: how a stream is opened whose reads fail: "open_input_file", "open_input_stream".
    """

    type_name = "elsewhere"

    def __init__(self, *broken: str) -> None:
        self.broken, self._files = broken, fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_input_file(self, path: str) -> Any:
        return (
            _BrokenOff(Path(path).read_bytes())
            if "open_input_file" in self.broken
            else self._files.open_input_file(path)
        )

    def open_input_stream(self, path: str) -> Any:
        return (
            _BrokenOff(Path(path).read_bytes())
            if "open_input_stream" in self.broken
            else self._files.open_input_stream(path)
        )


class _BrokenOff(io.BytesIO):
    def read(self, size: int = -1) -> bytes:
        raise OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 52")


def in_store(monkeypatch: pytest.MonkeyPatch, *broken: str) -> None:
    """Let shards that are found from now on be in an `ObjectStore`."""

    def find(text: str, forms: Sequence[str] = FORMS) -> tuple[Place, list[Shard]]:
        place, shards = find_shards(text, forms)
        return replace(place, system=ObjectStore(*broken)), shards

    monkeypatch.setattr("surelabel.kinds.shard_reading.find_shards", find)


class Workers:
    """Calls a job as other processes would, with a copy of it, the last task first.

    Attributes:
        done: the numbers of the shards that were labeled.
        ends_after: raises KeyboardInterrupt once so many were.
    """

    def __init__(self, ends_after: int | None = None) -> None:
        self.done: list[int] = []
        self.ends_after = ends_after

    def __call__(self, job: Callable[[int], PoolLabels], tasks: Sequence[int]) -> Iterator[tuple[int, PoolLabels]]:
        copy = pickle.loads(pickle.dumps(job))
        assert isinstance(copy, LabelShard)
        for task in reversed(tasks):
            if len(self.done) == self.ends_after:
                raise KeyboardInterrupt
            self.done.append(task)
            yield task, pickle.loads(pickle.dumps(copy(task)))
