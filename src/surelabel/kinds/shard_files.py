"""Shards of encoded files, pictures above all: in a column, in a tar file, or loose in a folder.

Decoded samples and features are not kept on the disk: a pool is read once, and may be larger than the disk.
"""

import contextlib
import functools
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.text import check_inside, check_size, damage_named
from surelabel.data._arrow_files import open_row_groups
from surelabel.data.arrow_pictures import cell_bytes, ids_of_rows, picture_column
from surelabel.data.decoding import DecodeSettings, OnError
from surelabel.data.pictures import PictureSettings, decode_picture
from surelabel.data.shards import Place, Shard
from surelabel.data.source import ArraySource, Ids, Source
from surelabel.data.tar_shards import TarShards
from surelabel.errors import DataError, UnreachableError
from surelabel.kinds.backbones import BackboneSettings, Takes
from surelabel.kinds.frozen import Features, Frozen, open_backbone

FILES_OF_A_BLOCK = 256
"""How many files of a folder or a tar file are read at once."""
_BATCH = 32
"""Samples that go through a backbone together."""

Read = Callable[[int, Any], npt.NDArray[np.uint8]]
"""(place of a sample, settings of its decoding) to the decoded sample; DataError: it cannot be read."""
Tried = Callable[[int, Any], npt.NDArray[np.uint8] | None]
"""The same; None: the sample is left out."""


class Fault(NamedTuple):
    """A sample that cannot be read: what it is called, and why."""

    name: str
    reason: str


class Decoder:
    """Makes samples from encoded files, as a run does.

    Args:
        settings: how files are decoded; without effect if there are backbones.
        backbones: frozen networks; their outputs, side by side, replace the samples.
        on_error: "stop" raises at the first file that cannot be read; "skip" leaves unreadable files out.
        left_out: what is left out unread: places of samples in a shard, by its name.

    Attributes:
        faults: what was left out because it cannot be read, by the name of its shard and its place in it.
    """

    def __init__(
        self,
        settings: DecodeSettings | None,
        backbones: Sequence[BackboneSettings],
        on_error: OnError,
        left_out: Mapping[str, Collection[int]],
    ) -> None:
        self.settings, self.backbones, self.on_error = settings, tuple(backbones), on_error
        self._left_out, self.faults = left_out, dict[tuple[str, int], Fault]()

    def samples(self, shard: str, start: int, ids: Ids, read: Read) -> Source:
        """Return the samples that can be read, with their ids.

        Args:
            shard: its name.
            start: the first sample's place in it.
            ids: of all samples.
            read: reads one of them.
        """
        left_out = set(self._left_out.get(shard, ()))

        def tried(place: int, settings: Any) -> npt.NDArray[np.uint8] | None:
            if start + place in left_out or (shard, start + place) in self.faults:
                return None
            try:
                return read(place, settings)
            except UnreachableError:  # which says nothing of the file
                raise
            except DataError as error:
                if self.on_error == "stop":
                    raise
                name = ids[place] if ids.dtype.kind == "U" else f"{shard}: {ids[place]}"
                self.faults[shard, start + place] = Fault(str(name), str(error))
                return None

        return self._samples(ids, tried)

    def _samples(self, ids: Ids, read: Tried) -> Source:
        starts = range(0, max(1, len(ids)), FILES_OF_A_BLOCK)
        runs = [self._run(range(start, min(start + FILES_OF_A_BLOCK, len(ids))), read) for start in starts]
        kept = np.array([place for places, _ in runs for place in places], dtype=np.int64)
        return ArraySource(np.concatenate([x for _, x in runs]), ids=ids[kept])

    def _run(self, places: Sequence[int], read: Tried) -> tuple[list[int], npt.NDArray[Any]]:
        """Return those of some places that can be read, and their samples."""
        if not self.backbones:
            assert self.settings is not None
            found = self._decoded(places, self.settings, read)
            empty = np.empty((0, *self.settings.shape), dtype=np.uint8)
            return list(found), np.stack(list(found.values())) if found else empty
        shown = []
        for backbone in self.backbones:
            assert backbone.shown is not None
            settings = PictureSettings(side=backbone.shown.side, fit=backbone.shown.fit)
            shown.append(self._decoded(places, settings, read))
        kept = [place for place in places if all(place in found for found in shown)]
        return kept, backbone_features(
            self.backbones, "pictures", [[found[place] for place in kept] for found in shown]
        )

    def _decoded(
        self, places: Sequence[int], settings: DecodeSettings, read: Tried
    ) -> dict[int, npt.NDArray[np.uint8]]:
        """Return what is at the places that can be read."""
        decoded = ((place, read(place, settings)) for place in places)
        return {place: sample for place, sample in decoded if sample is not None}


def backbone_features(
    backbones: Sequence[BackboneSettings], takes: Takes, samples: Sequence[Sequence[Any]]
) -> Features:
    """Return the features of samples from backbones, side by side, (N, F); they are not kept on the disk.

    Args:
        backbones: as a run has learned them.
        takes: what the samples are.
        samples: N inputs for each backbone.
    """
    parts = []
    for backbone, shown in zip(backbones, samples, strict=True):
        frozen = _opened(backbone, takes)
        batches = [frozen.compute(shown[start : start + _BATCH]) for start in range(0, len(shown), _BATCH)]
        parts.append(np.concatenate(batches) if batches else np.empty((0, backbone.width or 0), dtype=np.float32))
    return np.concatenate(parts, axis=1)


@functools.cache
def _opened(backbone: BackboneSettings, takes: Takes) -> Frozen:
    """Return a backbone, which is opened once per process."""
    return open_backbone(backbone, takes)


class PackedTable:
    """A Parquet file with a column of pictures, read from a stream."""

    def __init__(
        self, place: Place, shard: Shard, stream: Any, decoder: Decoder, id_column: str | None, label: str | None
    ) -> None:
        from pyarrow import ArrowException

        self._name, self._path = shard.name, Path(place.path(shard.name))
        self._decoder, self._id_column = decoder, id_column
        self._file = open_row_groups(self._path, stream)
        metadata = self._file.metadata
        with damage_named(self._path, "a Parquet file", ArrowException):
            self._column = picture_column(self._path, metadata.schema.to_arrow_schema(), (label, id_column))
        rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self._before = np.cumsum([0, *rows]).tolist()
        self._groups = [number for number, some in enumerate(rows) if some]
        self.rows = [some for some in rows if some]

    def read(self, block: int) -> Source:
        """Return the samples of a row group."""
        from pyarrow import ArrowException

        group = self._groups[block]
        check_size(self._path, self._file.metadata.row_group(group).total_byte_size)
        names = [self._column, *([] if self._id_column is None else [self._id_column])]
        with damage_named(self._path, "a Parquet file", ArrowException):
            table = self._file.read_row_group(group, columns=names)
        ids = ids_of_rows(self._path, table, self._id_column, self._before[group])
        cells = table.column(self._column)

        def decoded(place: int, settings: PictureSettings) -> npt.NDArray[np.uint8]:
            called = f"{self._path}: {ids[place]}"
            return decode_picture(
                io.BytesIO(cell_bytes(called, cells[place])), settings.side, settings.fit, name=called
            )

        return self._decoder.samples(self._name, self._before[group], ids, decoded)

    def close(self) -> None:
        """Close the file."""
        self._file.close(force=True)


class TarShard:
    """A tar file of pictures; a remote one is copied here while it is open."""

    def __init__(self, place: Place, shard: Shard, decoder: Decoder) -> None:
        self._name, self._decoder = shard.name, decoder
        with contextlib.ExitStack() as stack:
            path = stack.enter_context(place.local(shard.name))
            self._pictures = TarShards(path, [path])
            self._copy = stack.pop_all()
        self.rows = _runs(len(self._pictures))

    def read(self, block: int) -> Source:
        """Return the samples of a block of pictures."""
        start = block * FILES_OF_A_BLOCK

        def decoded(place: int, settings: PictureSettings) -> npt.NDArray[np.uint8]:
            data, called = self._pictures.read(start + place), self._pictures.called(start + place)
            return decode_picture(io.BytesIO(data), settings.side, settings.fit, name=called)

        ids = self._pictures.ids[start : start + FILES_OF_A_BLOCK]
        return self._decoder.samples(self._name, start, ids, decoded)

    def close(self) -> None:
        """Remove the copy, if there is one."""
        self._copy.close()


class FilesShard:
    """Files in a folder that are read as one shard."""

    def __init__(self, place: Place, shard: Shard, decoder: Decoder) -> None:
        self._name, self._place, self._decoder = shard.name, place, decoder
        self._names = [file.name for file in shard.files]
        self.rows = _runs(len(self._names))

    def read(self, block: int) -> Source:
        """Return the samples of a block of files."""
        start = block * FILES_OF_A_BLOCK
        names = self._names[start : start + FILES_OF_A_BLOCK]

        def decoded(place: int, settings: DecodeSettings) -> npt.NDArray[np.uint8]:
            with self._place.local(names[place]) as path:
                if self._place.is_local:
                    check_inside(Path(self._place.root), path)
                return settings.read(path)

        return self._decoder.samples(self._name, start, np.array(names), decoded)

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _runs(number: int) -> list[int]:
    return [min(FILES_OF_A_BLOCK, number - start) for start in range(0, number, FILES_OF_A_BLOCK)]
