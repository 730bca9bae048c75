"""The shards of a pool, read block by block as a run reads its own data.

| a shard | its blocks |
|---|---|
| a Parquet file of a table | its row groups, of which only the needed columns are read |
| a Parquet file with a column of pictures | its row groups |
| a tar file of pictures | consecutive pictures, in the order of the file |
| a few thousand files in a folder | consecutive files, in the order of their names |
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from surelabel.base.text import listed
from surelabel.data._arrow_files import open_row_groups
from surelabel.data._table import Request, choose_columns
from surelabel.data._values import LabelMarks
from surelabel.data.decoding import OnError
from surelabel.data.run_data import TableData
from surelabel.data.shards import FORMS, Place, Shard, cut_into_shards, find_shards
from surelabel.data.source import ArraySource, Source
from surelabel.data.table_encoding import words_of
from surelabel.data.tables import RowGroup, read_table
from surelabel.errors import DataError
from surelabel.kinds import KINDS
from surelabel.kinds.folder import FolderData
from surelabel.kinds.packed import PackedData
from surelabel.kinds.shard_files import Decoder, Fault, FilesShard, PackedTable, TarShard, backbone_features
from surelabel.kinds.texts import TextData

FILES_OF_A_SHARD = 4096
"""How many files of a folder are read as one shard. Another number would change their labels."""
_OPEN_AT_ONCE = 8

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Reading:
    """How a run reads samples.

    Attributes:
        data: the settings of the run's data; None: the run was made from data in memory.
        sample_shape: of one sample.
        feature_names: names of a table's columns.
        texts: what the run has learned from texts, `RunFolder.texts`.
        id_column: the column that names each row; None: as in the run; "": rows are numbered within their shard.
        on_error: whether a picture or another file that cannot be read stops the reading of its shard, or is skipped.
        left_out: pictures and other files that are skipped unread: their places in a shard, by its name.
    """

    data: Any
    sample_shape: tuple[int, ...]
    feature_names: Sequence[str] | None = None
    texts: bytes | None = None
    id_column: str | None = None
    on_error: OnError = "stop"
    left_out: Mapping[str, Collection[int]] = field(default_factory=dict)

    @property
    def named_by(self) -> str | None:
        """The column that names each row; None: rows are numbered."""
        own = getattr(self.data, "id_column", None)
        return (own if self.id_column is None else self.id_column) or None

    @property
    def kind(self) -> str:
        """What the run learned from: "tables", or the files' kind in `KINDS`."""
        return str(self.data.of) if isinstance(self.data, FolderData | PackedData) else "tables"

    @property
    def forms(self) -> tuple[str, ...]:
        """The endings of files that the run can read."""
        packed = {"tables": (".parquet",), "pictures": FORMS}.get(self.kind, ())
        return packed if self.kind == "tables" else (*packed, *KINDS[self.kind].endings)


class OpenShard(Protocol):
    """A shard whose blocks are known.

    Attributes:
        rows: of each block.
    """

    rows: list[int]

    def read(self, block: int) -> Source:
        """Return the samples of a block."""

    def close(self) -> None:
        """Close the shard."""


class ShardReader:
    """Reads the shards of a pool as a run reads its own data; it can be pickled.

    Args:
        place: where the shards are.
        reading: how the run reads samples.
    """

    def __init__(self, place: Place, reading: Reading) -> None:
        self.place, self.reading = place, reading
        self._decoder: Decoder | None = None
        self._open: OrderedDict[Shard, OpenShard] = OrderedDict()

    @property
    def faults(self) -> Mapping[tuple[str, int], Fault]:
        """What was skipped so far, by the name of its shard and its place in it."""
        return {} if self._decoder is None else self._decoder.faults

    def blocks(self, shard: Shard) -> list[int]:
        """Return how many rows each block of a shard has, skipped ones too; none where the shard has no rows."""
        return self._asked(shard, lambda opened: opened.rows)

    def read(self, shard: Shard, block: int) -> Source:
        """Return the samples of a block, with their ids; fewer than `blocks` says where some are skipped."""
        samples, expected = self._asked(shard, lambda opened: opened.read(block)), self.reading.sample_shape
        if samples.sample_shape != expected:
            shapes = f"samples of shape {samples.sample_shape}, and the run learned from {expected}"
            raise DataError(f"File '{self.place.path(shard.name)}' has {shapes}; give samples of that shape.")
        return samples

    def close(self) -> None:
        """Close the open shards."""
        while self._open:
            self._open.popitem()[1].close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what belongs to this process: open shards and networks."""
        return {**self.__dict__, "_open": OrderedDict(), "_decoder": None}

    def _asked(self, shard: Shard, ask: Callable[[OpenShard], Answer]) -> Answer:
        """Return what an open shard answers.

        An object store that breaks off looks like a damaged file. A copy tells them apart: it cannot be made, or it is
        damaged too, or it answers.
        """
        from pyarrow import ArrowException

        try:
            return ask(self._opened(shard))
        except DataError as error:
            from_stream = not self.place.is_local and _is_table(shard)
            if not (from_stream and isinstance(error.__cause__, OSError | ArrowException)):
                raise
        with (
            self.place.local(shard.name) as copy,
            copy.open("rb") as stream,
            contextlib.closing(self._open_table(shard, stream)) as opened,
        ):
            return ask(opened)

    def _opened(self, shard: Shard) -> OpenShard:
        """Return an open shard; the last few stay open."""
        if shard in self._open:
            self._open.move_to_end(shard)
            return self._open[shard]
        self._open[shard] = found = self._open_anew(shard)
        if len(self._open) > _OPEN_AT_ONCE:
            self._open.popitem(last=False)[1].close()
        return found

    def _open_anew(self, shard: Shard) -> OpenShard:
        if _is_table(shard):
            return self._open_table(shard, self.place.open(shard.name))
        of_files = FilesShard if shard.files else TarShard
        return of_files(self.place, shard, self._decodes())

    def _open_table(self, shard: Shard, stream: Any) -> OpenShard:
        """Return a Parquet file that a stream reads."""
        if self.reading.kind == "tables":
            return TableShard(self.place, shard, stream, self.reading)
        data = self.reading.data
        label = data.labels[0] if isinstance(data, PackedData) and data.labels else None
        return PackedTable(self.place, shard, stream, self._decodes(), self.reading.named_by, label)

    def _decodes(self) -> Decoder:
        data = self.reading.data
        how = self.reading.on_error, self.reading.left_out
        self._decoder = self._decoder or Decoder(data.reading, data.backbones, *how)
        return self._decoder


class TableShard:
    """A Parquet file with the columns that a run has learned from, read from a stream."""

    def __init__(self, place: Place, shard: Shard, stream: Any, reading: Reading) -> None:
        self._path, self._reading, data = Path(place.path(shard.name)), reading, reading.data
        self._encoder = data.encoder(reading.texts) if isinstance(data, TableData) else None
        self._file = open_row_groups(self._path, stream)
        metadata = self._file.metadata
        self._check_columns([one.name for one in metadata.schema.to_arrow_schema()])
        rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        before = np.cumsum([0, *rows]).tolist()
        self._groups = [RowGroup(self._file, number, before[number]) for number, some in enumerate(rows) if some]
        self.rows = [some for some in rows if some]

    def read(self, block: int) -> Source:
        """Return the samples of a group of rows."""
        data, names, encoder = self._reading.data, self._reading.feature_names, self._encoder
        options: dict[str, Any] = {"id_column": self._reading.named_by, "part": self._groups[block]}
        if isinstance(data, TextData):
            return self._texts(data, options)
        if encoder is None:
            return read_table(self._path, features=names, **options).samples(slice(None))
        return encoder.read(self._path, **options).samples(slice(None))

    def close(self) -> None:
        """Close the file."""
        self._file.close(force=True)

    def _check_columns(self, there: Sequence[str]) -> None:
        """Refuse a file that lacks a needed column now: its rows may be read only hours later."""
        data = self._reading.data
        if not isinstance(data, TableData):
            return
        if needed := tuple(column.name for column in data.columns or ()) or tuple(self._reading.feature_names or ()):
            choose_columns(self._path, there, Request((), self._reading.named_by, (), needed, LabelMarks()))

    def _texts(self, data: TextData, options: dict[str, Any]) -> Source:
        """Return the features of texts, which are not kept on the disk."""
        assert data.columns is not None
        name = data.columns[0].name
        table = read_table(self._path, features=[name], words=[name], **options)
        cells = words_of(table, name)
        texts = [cells.texts[code] or "" for code in cells.codes.tolist()]
        return ArraySource(backbone_features(data.backbones, "texts", [texts] * len(data.backbones)), ids=table.ids)


def _is_table(shard: Shard) -> bool:
    """Whether a shard is one Parquet file."""
    return not shard.files and not shard.name.lower().endswith(".tar")


def find_pool(text: str, reading: Reading) -> tuple[ShardReader, list[Shard]]:
    """Return a reader for the shards that a path, a pattern or an address names, and the shards, sorted by name.

    Files in a folder that are not shards themselves, such as pictures, are grouped into shards.

    Args:
        text: as for `find_shards`.
        reading: how the run reads samples.
    """
    place, found = find_shards(text, reading.forms)
    others = [shard.name for shard in found if not shard.name.lower().endswith(reading.forms)]
    if others:
        wanted = f"the run learned from {reading.kind}, and reads {', '.join(reading.forms)}"
        raise DataError(f"'{text}' names {listed(others, 3)}; {wanted}. Name such files.")
    packed = [shard for shard in found if shard.name.lower().endswith(FORMS)]
    if packed and len(packed) < len(found):
        lone = next(shard.name for shard in found if not shard.name.lower().endswith(FORMS))
        both = f"has shards, such as '{packed[0].name}', and files beside them, such as '{lone}'"
        raise DataError(f"'{text}' {both}; name the one or the other: '*{Path(packed[0].name).suffix}'.")
    return ShardReader(place, reading), packed or cut_into_shards(found, FILES_OF_A_SHARD)
