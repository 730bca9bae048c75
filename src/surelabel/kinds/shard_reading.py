"""The shards of a pool, read block by block as a run reads its own data.

| a shard | its blocks |
|---|---|
| a Parquet file | its groups of rows, of which only the columns that are needed are read |
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from surelabel.data._arrow_files import open_row_groups
from surelabel.data.decoding import OnError
from surelabel.data.run_data import TableData
from surelabel.data.shards import Place, Shard
from surelabel.data.source import Source
from surelabel.data.tables import RowGroup, Table, read_table
from surelabel.errors import DataError

_OPEN_AT_ONCE = 8


@dataclass(frozen=True)
class Reading:
    """How a run reads samples.

    Attributes:
        data: the settings of the run's data; None: it was made from data in memory.
        sample_shape: of one sample.
        feature_names: names of a table's columns.
        texts: what the run has learned of texts, `RunFolder.texts`.
        id_column: the column that names each row; None: as in the run; "": rows are numbered within their shard.
        on_error: whether a picture or another file that cannot be read stops the reading of its shard, or is skipped.
    """

    data: Any
    sample_shape: tuple[int, ...]
    feature_names: Sequence[str] | None = None
    texts: bytes | None = None
    id_column: str | None = None
    on_error: OnError = "stop"

    @property
    def named_by(self) -> str | None:
        """The column that names each row; None: rows are numbered."""
        own = getattr(self.data, "id_column", None)
        return (own if self.id_column is None else self.id_column) or None


class OpenShard(Protocol):
    """A shard whose blocks are known.

    Attributes:
        rows: of each block.
    """

    rows: list[int]

    def read(self, block: int) -> Source:
        """Return the samples of a block."""

    def close(self) -> None:
        """Let go of the shard."""


class ShardReader:
    """Reads the shards of a pool as a run reads its own data; it can be pickled.

    Args:
        place: where the shards are.
        reading: how the run reads samples.
    """

    def __init__(self, place: Place, reading: Reading) -> None:
        self.place, self.reading = place, reading
        self._open: OrderedDict[Shard, OpenShard] = OrderedDict()

    def blocks(self, shard: Shard) -> list[int]:
        """Return how many rows each block of a shard has; none where the shard has no rows."""
        return self._opened(shard).rows

    def read(self, shard: Shard, block: int) -> Source:
        """Return the samples of a block, with their ids."""
        return self._opened(shard).read(block)

    def close(self) -> None:
        """Let go of the shards that are open."""
        while self._open:
            self._open.popitem()[1].close()

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the open shards, which belong to this process."""
        return {**self.__dict__, "_open": OrderedDict()}

    def _opened(self, shard: Shard) -> OpenShard:
        """Return a shard, open; the last few stay so."""
        if shard in self._open:
            self._open.move_to_end(shard)
            return self._open[shard]
        self._open[shard] = found = self._open_anew(shard)
        if len(self._open) > _OPEN_AT_ONCE:
            self._open.popitem(last=False)[1].close()
        return found

    def _open_anew(self, shard: Shard) -> OpenShard:
        if not shard.name.lower().endswith(".parquet"):
            raise DataError(f"The run learned from a table, and '{shard.name}' is none; give .parquet files.")
        return TableShard(self.place, shard, self.reading)


class TableShard:
    """A Parquet file with the columns that a run has learned from."""

    def __init__(self, place: Place, shard: Shard, reading: Reading) -> None:
        self._path, self._reading = Path(place.path(shard.name)), reading
        data, names = reading.data if isinstance(reading.data, TableData) else None, reading.feature_names
        self._drop = data.drop if data is not None and names is not None else ()
        self._encoder = None if data is None else data.encoder(reading.texts)
        self._file = open_row_groups(self._path, place.open(shard.name))
        metadata = self._file.metadata
        rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        before = np.cumsum([0, *rows]).tolist()
        self._groups = [RowGroup(self._file, number, before[number]) for number, some in enumerate(rows) if some]
        self.rows = [some for some in rows if some]

    def read(self, block: int) -> Source:
        """Return the samples of a group of rows."""
        samples = self._table(self._groups[block]).samples(slice(None))
        if samples.sample_shape != self._reading.sample_shape:
            shapes = f"samples of shape {samples.sample_shape}, and the run learned from {self._reading.sample_shape}"
            raise DataError(f"File '{self._path}' has {shapes}; give samples of that shape.")
        return samples

    def close(self) -> None:
        """Close the file."""
        self._file.close(force=True)

    def _table(self, group: RowGroup) -> Table:
        options: dict[str, Any] = {"id_column": self._reading.named_by, "drop": self._drop, "part": group}
        if self._encoder is None:
            return read_table(self._path, features=self._reading.feature_names, **options)
        return self._encoder.read(self._path, **options)
