"""A run's pool in shards: found, counted and compared with the pool at the start of the run."""

import dataclasses
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from surelabel.base.text import shown
from surelabel.core.arrays import to_numpy
from surelabel.data.decoding import tell
from surelabel.data.packed import expanded
from surelabel.data.run_data import RunData
from surelabel.data.sharded import PoolShards, ShardedSource
from surelabel.data.shards import BlockReader, Place, Shard
from surelabel.data.source import Ids, as_source, join_ids
from surelabel.data.table_encoding import TEXTS
from surelabel.errors import ChangedFileError, DataError, UnreachableError
from surelabel.kinds.folder import FolderData
from surelabel.kinds.shard_files import Fault
from surelabel.kinds.shard_reading import Reading, ShardReader, find_pool
from surelabel.settings import RunSettings

MIB = 2**20
_READ_AT_ONCE = 16
"""Shards in an object store that are requested at once, because each request is slow."""

Told = Callable[[int, int], None]
"""Called with how many shards are done, and how many there are."""


LeftOut = Mapping[str, Sequence[int]]
"""Places of samples in a shard that are left out, by its name."""


class Counted(NamedTuple):
    """The shards of a pool that can be read.

    Attributes:
        shards: in their order.
        blocks: the rows of each of their blocks, without those that are left out.
        faults: why other shards cannot be read, by name.
        left_out: samples that cannot be read.
    """

    shards: list[Shard]
    blocks: list[list[int]]
    faults: dict[str, str]
    left_out: LeftOut

    @property
    def rows(self) -> list[int]:
        """How many rows each shard has."""
        return [sum(of_shard) for of_shard in self.blocks]

    def without_empty(self) -> "Counted":
        """Leave out shards without rows."""
        filled = [number for number, rows in enumerate(self.rows) if rows]
        return Counted([self.shards[one] for one in filled], [self.blocks[one] for one in filled], {}, {})


def with_pool(settings: RunSettings, data: RunData) -> RunData:
    """Return a run's data with the pool in shards that its settings name; unchanged if they name none.

    Shards that are missing, new or changed since the run began are refused.

    Args:
        settings: of the run; once it has begun, they describe the pool at that time.
        data: the labeled samples, and those for validation and test.
    """
    pool = settings.pool
    if pool is None:
        return data
    assert settings.data is not None
    _check_labeled(data)
    labeled = as_source("labeled", data.labeled[0])
    shape = labeled.sample_shape
    read_as = settings.data.replace(**data.learned)
    reading = Reading(read_as, shape, data.feature_names, data.files.get(TEXTS), on_error=pool.on_error)
    reader, found = find_pool(pool.place, reading)
    _check_apart(pool, settings.data, reader.place, found)
    counted = _counted_again(pool, found, reader) if pool.shards else _counted(pool, found, reader, tell("shards"))
    # From now on the same samples are left out, whatever becomes of their files, and no others.
    reader = ShardReader(reader.place, dataclasses.replace(reading, on_error="stop", left_out=counted.left_out))
    filled = counted.without_empty()
    if not filled.shards:
        raise DataError(f"The pool '{pool.place}' has no rows; check the path and the pattern.")
    with_rows = next(block for block, rows in enumerate(filled.blocks[0]) if rows)
    first = np.asarray(reader.read(filled.shards[0], with_rows)[np.arange(1)])
    window = max(1, pool.window_mib * MIB // first.nbytes)
    ids = None if reading.named_by is None else _ids(pool, filled, reader, labeled.ids)
    source = ShardedSource(reader, filled.shards, filled.blocks, shape, ids, window)
    known = tuple((shard.name, shard.size, rows) for shard, rows in zip(counted.shards, counted.rows, strict=True))
    marks = _marks(reader.place, counted.shards)
    for shard, mark, before in zip(counted.shards, marks, pool.marks, strict=False):  # a new run has none yet
        if mark != before:
            raise _changed(pool, shard.name, "its content is not what it was when the run began")
    left_out = tuple((name, tuple(places)) for name, places in counted.left_out.items())
    learned = {"shards": known, "marks": marks, "skipped": (*pool.skipped, *counted.faults), "left_out": left_out}
    return dataclasses.replace(data, unlabeled=source, shards=learned)


def _check_labeled(data: RunData) -> None:
    """With a pool in shards, refuse unlabeled samples elsewhere."""
    remedy = "with --pool the samples to label are in its shards: leave these out, or write them as a shard"
    if data.unlabeled is not None:
        raise DataError(f"{len(data.unlabeled):,} of the samples beside the pool have no label; {remedy}.")
    codes = to_numpy(data.labeled[1])
    unknown = int((codes < 0).any(axis=1).sum()) if codes.ndim == 2 else 0
    if unknown:
        raise DataError(f"{unknown:,} of the labeled samples have classes of which nothing is known; {remedy}.")


def _check_apart(pool: PoolShards, data: Any, place: Place, found: Sequence[Shard]) -> None:
    """Refuse a pool that includes the labeled samples, which would be labeled too."""
    given = [getattr(data, name, None) for name in ("path", "validation_path", "test_path")]
    own = {os.path.realpath(path) for named in given if named is not None for path in expanded(named)}
    root = os.path.realpath(place.root)
    # In a folder of files, the files within a shard are compared; for packed pictures and tables, the shards.
    of_folder = isinstance(data, FolderData)
    files = [file.name for shard in found for file in (shard.files if of_folder else (shard,))]
    both = next((name for name in files if place.is_local and _lies_in(f"{root}/{name}", own)), None)
    if both is not None:
        problem = f"The pool '{pool.place}' has the file '{both}', which is given with its labels"
        raise DataError(f"{problem}; move it, or name the shards by a pattern: 'pool/part-*.parquet'.")


def _lies_in(path: str, places: Collection[str]) -> bool:
    """Whether a file is one of these files, or in one of these folders."""
    return path in places or any(path.startswith(f"{place}/") for place in places)


def _counted(pool: PoolShards, found: Sequence[Shard], reader: ShardReader, progress: Told) -> Counted:
    """Count the rows of a new run's pool; what cannot be read is refused, or left out."""
    left_out = dict[str, list[int]]()
    counted = Counted([], [], {}, left_out)
    for number, shard in enumerate(found):
        try:
            rows = reader.blocks(shard)
            if pool.on_error == "skip":  # damage inside a shard is only found when all of it is read
                rows = [len(reader.read(shard, block)) for block in range(len(rows))]
        except UnreachableError:  # which says nothing of the shard
            raise
        except DataError as error:
            if pool.on_error == "stop":
                raise DataError(f"{error} Or leave such shards out: --on-error skip.") from error
            counted.faults[shard.name] = str(error)
        else:
            counted.shards.append(shard)
            counted.blocks.append(rows)
        progress(number + 1, len(found))
    for shard_name, place in sorted(reader.faults):
        if shard_name not in counted.faults:
            left_out.setdefault(shard_name, []).append(place)
    faults = [reader.faults[name, place] for name, places in left_out.items() for place in places]
    _warn(pool, "shards", len(found), [Fault(*fault) for fault in counted.faults.items()])
    _warn(pool, "samples", sum(counted.rows) + len(faults), faults)
    return counted


def _warn(pool: PoolShards, what: str, number: int, faults: Sequence[Fault]) -> None:
    """Warn of what is left out, if anything is."""
    if faults:
        problem = f"{len(faults)} of {number:,} {what} in '{pool.place}' cannot be read and are left out"
        names = ", ".join(f"'{fault.name}'" for fault in faults)
        warnings.warn(f"{problem}: {names}. {faults[0].reason}", stacklevel=5)


def _counted_again(pool: PoolShards, found: Sequence[Shard], reader: BlockReader) -> Counted:
    """Count the rows of a run's pool, which must not have changed since the run began."""
    found, left_out = [shard for shard in found if shard.name not in pool.skipped], dict(pool.left_out)
    _check_known(pool, found)
    blocks = [_without(reader.blocks(shard), left_out.get(shard.name, ())) for shard in found]
    for rows, (name, _, before) in zip(blocks, pool.shards, strict=True):
        if sum(rows) != before:
            raise _changed(pool, name, _both(f"{before:,} rows", f"{sum(rows):,}"))
    return Counted(list(found), blocks, {}, left_out)


def _without(blocks: Sequence[int], places: Sequence[int]) -> list[int]:
    """Return how many rows blocks have without some places.

    >>> _without([3, 2, 2], [0, 2, 5])
    [1, 2, 1]
    """
    ends = np.cumsum(blocks, dtype=np.int64)
    gone = np.bincount(np.searchsorted(ends, places, side="right"), minlength=len(ends))
    return [rows - int(less) for rows, less in zip(blocks, gone, strict=False)]


def _check_known(pool: PoolShards, found: Sequence[Shard]) -> None:
    """Refuse shards that are not those of the run's start, without opening any."""
    sizes, before = {shard.name: shard.size for shard in found}, {name: size for name, size, _ in pool.shards}
    for name in sorted({*sizes, *before}):
        if name not in sizes:
            gone = f"The shard '{name}' of the pool '{pool.place}', which the run began with, is not there any more"
            raise ChangedFileError(f"{gone}; put it back, or name its new place: surelabel resume RUN --pool PLACE.")
        if name not in before:
            remedy = "move it away, or start another run with it"
            raise ChangedFileError(f"The pool '{pool.place}' had no shard '{name}' when the run began; {remedy}.")
        if sizes[name] != before[name]:
            raise _changed(pool, name, _both(f"{before[name]:,} bytes", f"{sizes[name]:,}"))


def _marks(place: Place, shards: Sequence[Shard]) -> tuple[str, ...]:
    with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
        return tuple(threads.map(place.mark, shards))


def _both(before: str, now: str) -> str:
    return f"it had {before} when the run began, and has {now}"


def _changed(pool: PoolShards, name: str, how: str) -> ChangedFileError:
    return ChangedFileError(f"The shard '{name}' of the pool '{pool.place}' has changed: {how}; restore it.")


def _ids(pool: PoolShards, counted: Counted, reader: BlockReader, labeled: Ids) -> Ids:
    """Return the ids of all samples; refuse ids that name two samples.

    Args:
        pool: for errors.
        counted: the shards, and the rows of each of their blocks.
        reader: of the shards.
        labeled: the ids of the labeled samples; if these are text, numbers in shards become text.
    """
    ids = join_ids([_beside(labeled, shard, some) for shard, some in _ids_of_shards(counted, reader)])
    order = np.argsort(ids, kind="stable")
    twice = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if len(twice):
        ends, rows = np.cumsum(counted.rows), order[[twice[0], twice[0] + 1]]
        first, second = (counted.shards[one].name for one in np.searchsorted(ends, rows, side="right"))
        where = f"'{first}' and '{second}'" if first != second else f"'{first}' twice"
        name, _ = ids[rows].tolist()
        raise DataError(f"The id {shown(name)} of the pool '{pool.place}' is in {where}; correct one.")
    return ids


def _ids_of_shards(counted: Counted, reader: BlockReader) -> Iterator[tuple[Shard, Ids]]:
    """Yield each shard, and the ids in it."""
    for shard, blocks in zip(counted.shards, counted.blocks, strict=True):
        yield shard, join_ids([reader.read(shard, block).ids for block in range(len(blocks))])


def _beside(labeled: Ids, shard: Shard, ids: Ids) -> Ids:
    """Return the ids of a shard, as text if those of the labeled samples are."""
    labeled_count, these_count = (some.dtype.kind in "iu" for some in (labeled, ids))
    if labeled_count and not these_count:
        problem = f"The ids in the shard '{shard.name}' are text, and those of the labeled samples are numbers"
        raise DataError(f"{problem}; write both as numbers, or both as text.")
    return ids.astype(str).astype(object) if these_count and not labeled_count else ids
