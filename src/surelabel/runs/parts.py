"""The labels of a pool in parts: a Parquet file for each shard, written whole or not at all.

A part's metadata name the model, the thresholds and the shard. So missing parts can be found, and a folder holds the
labels of only one model.
"""

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from surelabel._version import __version__
from surelabel.base.text import shown
from surelabel.data.draws import UInt64Array, sample_keys
from surelabel.data.shards import Place, Shard
from surelabel.errors import DataError

_KEY = b"surelabel"
_READ_AT_ONCE = 16
"""Files in an object store that are requested at once, because each request is slow."""


class Labels(NamedTuple):
    """The labels of some samples of a shard.

    Attributes:
        table: a pyarrow.Table.
        rows: how many samples they are for.
        selected: how many of these have a selected label.
    """

    table: Any
    rows: int
    selected: int


@dataclass(frozen=True)
class Part:
    """The description in a part's metadata.

    Attributes:
        shard: the name of its shard.
        rows: samples that are labeled.
        selected: how many of these have a selected label.
        left_out: samples that could not be read.
    """

    shard: str
    rows: int
    selected: int
    left_out: int = 0


@dataclass(frozen=True)
class Parts:
    """The folder of the parts; it can be pickled.

    Attributes:
        place: the folder.
        made_with: what all parts have in common (the model, the thresholds), by its name in errors.
    """

    place: Place
    made_with: Mapping[str, str]

    def finished(self, shards: Sequence[Shard]) -> list[Part]:
        """Return the existing, undamaged parts of these shards; refuse parts of other models or other shards."""
        names: dict[str, Shard] = {}
        for shard in shards:
            if names.setdefault(part_name(shard.name), shard) != shard:
                raise DataError(f"Two shards would have the part '{part_name(shard.name)}'; rename '{shard.name}'.")
        there = [file.name for file in self.place.files() if file.name.endswith(".parquet")]
        with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
            notes = dict(zip(there, threads.map(self._note, there), strict=True))
        found = []
        for name, note in notes.items():
            if note is not None:
                self._check_made_with(name, note["made_with"])
            if name in names:
                found.append(self._part(name, note, names[name]))
        with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
            whole = list(threads.map(self._is_whole, found))
        for part, is_whole in zip(found, whole, strict=True):
            if not is_whole:
                name = part_name(part.shard)
                warnings.warn(f"'{name}' in '{self.place.text}' is damaged; its shard is labeled again.", stacklevel=2)
        return list(compress(found, whole))

    def content(self, shard: Shard, labels: Iterable[Labels], expected: int) -> tuple[Part, Any]:
        """Return a part's description and the content of its file.

        Args:
            shard: its shard.
            labels: of its samples, in order; at least one table, which may be empty.
            expected: the number of samples in the shard.
        """
        rows = selected = 0
        sink, writer = pa.BufferOutputStream(), None
        for some in labels:
            rows, selected = rows + some.rows, selected + some.selected
            writer = writer or pq.ParquetWriter(sink, some.table.schema, write_page_checksum=True)
            writer.write_table(some.table)
        assert writer is not None
        part = Part(shard.name, rows, selected, expected - rows)
        note = {**asdict(part), "of": _identity(shard), "made_with": self.made_with, "version": __version__}
        writer.add_key_value_metadata({_KEY.decode(): json.dumps(note)})
        writer.close()
        return part, sink.getvalue()

    def write(self, part: Part, content: Any) -> None:
        """Write a part, whole."""
        self.place.write(part_name(part.shard), lambda stream: stream.write(content))

    def check_ids(self, parts: Sequence[Part]) -> None:
        """Refuse an id that names two samples, in one part or in two; beside text, numbers count as text.

        An 8-byte hash of each id is in memory. If two hashes are equal, the ids are read again.
        """
        keys, are_numbers = self._keys(parts, as_text=False)
        as_text = len(are_numbers) > 1
        if as_text:
            keys, _ = self._keys(parts, as_text)
        keys.sort()
        twice = np.unique(keys[1:][keys[1:] == keys[:-1]])
        seen: dict[object, str] = {}
        for part in parts if len(twice) else ():
            ids = self._ids(part, as_text)
            for name in ids[np.isin(sample_keys(ids), twice)].tolist():
                if name in seen:
                    others = "twice" if seen[name] == part.shard else f"in '{seen[name]}' and"
                    numbered = "correct the ids, or number the rows of each shard with --id ''"
                    remedy = "rename one of the files" if part.shard.lower().endswith(".tar") else numbered
                    raise DataError(f"The id {shown(name)} is {others} in '{part.shard}'; {remedy}.")
                seen[name] = part.shard

    def _keys(self, parts: Sequence[Part], as_text: bool) -> tuple[UInt64Array, set[bool]]:
        """Return the keys of all ids, and whether these are numbers in some parts (True), and text in some (False)."""
        keys = np.empty(sum(part.rows for part in parts), dtype=np.uint64)
        start, are_numbers = 0, set[bool]()
        for part in (part for part in parts if part.rows):
            ids = self._ids(part, as_text)
            are_numbers.add(ids.dtype.kind in "iu")
            keys[start : start + part.rows] = sample_keys(ids)
            start += part.rows
        return keys, are_numbers

    def _ids(self, part: Part, as_text: bool) -> npt.NDArray[Any]:
        name = part_name(part.shard)
        try:
            with self.place.open(name) as stream:
                table = pq.read_table(stream, columns=["id"], page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            problem = f"'{name}' in '{self.place.text}' cannot be read ({_short(error)})"
            raise DataError(
                f"{problem}; give the same command again: it labels a damaged part's shard anew."
            ) from error
        ids: npt.NDArray[Any] = table["id"].to_numpy()
        # A sample may have a row for each class.
        ids = ids[:: max(1, len(ids) // max(1, part.rows))]
        return ids.astype(str) if as_text and ids.dtype.kind in "iu" else ids

    def _is_whole(self, part: Part) -> bool:
        """Whether all of a part can be read, and has the checksums that were written with it."""
        # From a copy, if it lies elsewhere: a connection that breaks off is no damage.
        with self.place.local(part_name(part.shard)) as path:
            try:
                with pq.ParquetFile(path, page_checksum_verification=True) as file:
                    for group in range(file.num_row_groups):
                        file.read_row_group(group)
            except (pa.ArrowException, OSError):
                return False
        return True

    def _note(self, name: str) -> dict[str, Any] | None:
        """Return the description in a file; None if it is not a part written by surelabel."""
        with self.place.open(name) as stream:
            try:
                note = json.loads((pq.read_metadata(stream).metadata or {}).get(_KEY, b"null"))
            except (pa.ArrowException, OSError, ValueError, RecursionError):
                with self.place.local(name):  # raises where it is out of reach, which says nothing of the file
                    return None
        kinds = {"made_with": dict, "of": str, "rows": int, "selected": int, "left_out": int}
        whole = isinstance(note, dict) and all(isinstance(note.get(key), kind) for key, kind in kinds.items())
        return note if whole else None

    def _check_made_with(self, name: str, theirs: Mapping[str, Any]) -> None:
        for what, ours in self.made_with.items():
            if theirs.get(what) != ours:
                both = f"was made differently: {what} {_short(theirs.get(what))}, not {_short(ours)}"
                remedy = "name another folder with --out, or remove such parts"
                raise DataError(f"'{name}' in '{self.place.text}' {both}; {remedy}.")

    def _part(self, name: str, note: Mapping[str, Any] | None, shard: Shard) -> Part:
        where = f"'{name}' in '{self.place.text}'"
        if note is None:
            problem = f"{where} is no part that surelabel wrote, or is damaged"
            raise DataError(f"{problem}; name another folder with --out, or remove it.")
        if note["of"] != _identity(shard):
            both = f"{_short(note['of'])}, and it has {_identity(shard)} now"
            raise DataError(f"{where} is of another shard '{shard.name}' ({both}); remove it to label the new one.")
        return Part(shard.name, note["rows"], note["selected"], note["left_out"])


def part_name(shard: str) -> str:
    """Return the name of a shard's part.

    >>> part_name("a/b.parquet"), part_name("000.tar")
    ('a/b.parquet', '000.tar.parquet')
    """
    return shard if shard.endswith(".parquet") else f"{shard}.parquet"


def _identity(shard: Shard) -> str:
    """Return what distinguishes a shard from another one with its name."""
    if not shard.files:
        return f"{shard.size} bytes"
    names = json.dumps([[file.name, file.size] for file in shard.files]).encode()
    return f"{len(shard.files)} files of {shard.size} bytes, {hashlib.sha256(names).hexdigest()[:12]}"


def _short(value: object) -> str:
    return shown(value, quote=False, limit=120)
