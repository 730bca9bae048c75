"""Pictures in Arrow: a column of bytes, or of {bytes, path} as Hugging Face writes it, in Parquet or a saved dataset.

Of {bytes, path} only the bytes are read: a path could lead to any of the reader's files.
"""

import json
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np

from surelabel.base.text import check_inside, check_size, damage_named, shown
from surelabel.data._arrow_files import text_leaves
from surelabel.data.packed import LONGEST_ID, PackedPictures, as_labels, check_picture_size
from surelabel.errors import DataError

_STATE = "state.json"
_LOOKED_AT = 8
"""Rows that are checked to distinguish pictures from other bytes."""
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF", b"P4", b"P5", b"P6")
"""The first bytes of the supported picture formats."""


class ArrowPictures(PackedPictures):
    """Pictures in a column of a table that is mapped into memory."""

    def __init__(self, path: Path, table: Any, described: dict[str, Any], label: str | None, id_column: str | None):
        column = picture_column(path, table.schema, (label, id_column))
        self.path, self._cells = path, table.column(column)
        self.unused = _unused(table.column_names, column, label, id_column)
        self.ids, self.labels = _ids_and_labels(path, table, described, label, id_column)

    def read(self, place: int) -> bytes:
        """Return the bytes of a picture's file."""
        return cell_bytes(self.called(place), self._cells[place])


class ParquetPictures(PackedPictures):
    """Pictures in a Parquet file; the row group that was read last stays in memory."""

    def __init__(self, path: Path, label: str | None, id_column: str | None) -> None:
        from pyarrow import ArrowException

        self.path, self._lock, self._group, self._cells = path, threading.Lock(), -1, None
        with damage_named(path, "a Parquet file", ArrowException):
            self._file, schema = _opened(path)
            self._column = picture_column(path, schema, (label, id_column))
            self.unused = _unused(schema.names, self._column, label, id_column)
            metadata = self._file.metadata
            for group in range(metadata.num_row_groups):
                check_size(path, metadata.row_group(group).total_byte_size)
            rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            self._starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
            others = [name for name in schema.names if name in (label or "label", id_column)]
            table = self._file.read(columns=others) if others else None
        described = _features((schema.metadata or {}).get(b"huggingface"))
        if table is None:
            missing = label if label is not None else id_column
            if missing is not None:
                raise _no_column(path, missing, schema.names)
            self.ids, self.labels = np.arange(self._starts[-1]), None
        else:
            self.ids, self.labels = _ids_and_labels(path, table, described, label, id_column)

    def read(self, place: int) -> bytes:
        """Return the bytes of a picture's file."""
        from pyarrow import ArrowException

        group = int(np.searchsorted(self._starts, place, side="right")) - 1
        with self._lock, damage_named(self.path, "a Parquet file", ArrowException):
            if group != self._group:
                self._cells = self._file.read_row_group(group, columns=[self._column]).column(0)
                self._group = group
            cell: Any = self._cells
            return cell_bytes(self.called(place), cell[place - int(self._starts[group])])


def _opened(path: Path) -> tuple[Any, Any]:
    """Open a Parquet file; return it and the types of its columns.

    Arrow reads bytes and texts as they are stored, each distinct value once: a kilobyte can hold a large value many
    thousand times.
    """
    from pyarrow.parquet import ParquetFile, read_metadata

    metadata = read_metadata(path)
    file = ParquetFile(path, metadata=metadata, read_dictionary=text_leaves(metadata))
    return file, metadata.schema.to_arrow_schema()


def read_parquet_pictures(path: Path, label: str | None, id_column: str | None) -> PackedPictures:
    """Return the pictures in a Parquet file."""
    return ParquetPictures(path, label, id_column)


def read_saved_dataset(path: Path, label: str | None, id_column: str | None) -> PackedPictures:
    """Return the pictures in a folder that `datasets.Dataset.save_to_disk` wrote; its files are mapped, not read."""
    import pyarrow as pa

    if not (path / _STATE).is_file():
        parts = sorted(file.parent.name for file in path.glob(f"*/{_STATE}"))
        raise DataError(f"Folder '{path}' has several parts; name one of them: {', '.join(parts) or 'none is there'}.")
    with damage_named(path / _STATE, "a saved dataset", ValueError, TypeError, KeyError):
        files = [entry["filename"] for entry in json.loads((path / _STATE).read_text())["_data_files"]]
    tables = []
    for name in files:
        if not isinstance(name, str) or name != Path(name).name or name in ("", ".", ".."):
            raise DataError(f"File '{path / _STATE}' names {shown(name)}, which is not beside it; save it again.")
        check_inside(path, path / name)
        with damage_named(path / name, "an Arrow stream", pa.ArrowException, UnicodeDecodeError):
            _refuse_packing(path / name)
            tables.append(pa.ipc.open_stream(pa.memory_map(str(path / name))).read_all())
    if not tables:
        raise DataError(f"File '{path / _STATE}' names no files; save the dataset again.")
    info = path / "dataset_info.json"
    with damage_named(info, "a description of a dataset", ValueError, AttributeError):
        described = json.loads(info.read_text()).get("features") if info.is_file() else None
    with damage_named(path / files[0], "of the same columns as the other files", pa.ArrowException):
        table = pa.concat_tables(tables)
    return ArrowPictures(path, table, described if isinstance(described, dict) else {}, label, id_column)


def _refuse_packing(path: Path) -> None:
    """Refuse an Arrow stream with compressed buffers: a few bytes could unpack to any size. `datasets` writes none."""
    import pyarrow as pa

    for message in pa.ipc.MessageReader.open_stream(pa.memory_map(str(path))):
        if message.type in ("record batch", "dictionary") and _is_packed(message.metadata.to_pybytes(), message.type):
            raise DataError(f"File '{path}' is a packed Arrow stream; save the dataset again, without compression.")


def _is_packed(data: bytes, kind: str) -> bool:
    """Whether a message's metadata, a flatbuffer in Arrow's format, names a compression of its buffers.

    Message has its header as field 2, DictionaryBatch its RecordBatch as field 1, and that its compression as field 3.
    """

    def field(table: int, number: int) -> int:
        """Return where a field of a table begins; 0 if it is missing."""
        vtable = table - struct.unpack_from("<i", data, table)[0]
        (length,) = struct.unpack_from("<H", data, vtable)
        if 4 + 2 * number >= length:
            return 0
        (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * number)
        return table + offset if offset else 0

    def follow(place: int) -> int:
        return place + int(struct.unpack_from("<I", data, place)[0])

    batch = follow(field(follow(0), 2))
    return field(follow(field(batch, 1)) if kind == "dictionary" else batch, 3) != 0


def is_saved_dataset(path: Path) -> bool:
    """Whether a folder was written by `save_to_disk`, of one part or of several."""
    return (path / _STATE).is_file() or (path / "dataset_dict.json").is_file()


def has_pictures(path: Path) -> bool:
    """Whether a Parquet file has a column of pictures, judged by its first rows, because ids may be bytes too.

    A damaged file has none; its error is raised when it is read later.
    """
    import pyarrow as pa

    try:
        file, schema = _opened(path)
        columns = _byte_columns(schema)
        if not columns or not file.num_row_groups:
            return False
        first = next(file.iter_batches(batch_size=_LOOKED_AT, row_groups=[0], columns=columns), None)
    except (OSError, pa.ArrowException, ValueError):
        return False
    return first is not None and any(_begins_as_picture(column) for column in first.columns)


def _begins_as_picture(column: Any) -> bool:
    values = [value.get("bytes") if isinstance(value, dict) else value for value in column.to_pylist()]
    return any(value.startswith(_BEGINNINGS) for value in values if value)


def picture_column(path: Path, schema: Any, others: tuple[str | None, ...]) -> str:
    """Return the only column that has pictures, apart from columns with a known role."""
    found = [name for name in _byte_columns(schema) if name not in others]
    if len(found) != 1:
        problem = f"has {len(found)} columns of pictures ({', '.join(found) or 'bytes, or bytes and path'})"
        raise DataError(f"'{path}' {problem}; write it with one.")
    return found[0]


def _unused(names: list[str], pictures: str, label: str | None, id_column: str | None) -> tuple[str, ...]:
    return tuple(name for name in names if name not in (pictures, label or "label", id_column))


def _byte_columns(schema: Any) -> list[str]:
    return [field.name for field in schema if _holds_bytes(field.type)]


def _holds_bytes(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(kind.field(place).name == "bytes" for place in range(kind.num_fields))
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _ids_and_labels(
    path: Path, table: Any, described: dict[str, Any], label: str | None, id_column: str | None
) -> tuple[Any, Any]:
    for name in (label, id_column):
        if name is not None and name not in table.column_names:
            raise _no_column(path, name, table.column_names)
    ids = ids_of_rows(path, table, id_column)
    label = label or ("label" if "label" in table.column_names else None)
    if label is None:
        return ids, None
    feature = described.get(label)
    names = feature.get("names") if isinstance(feature, dict) else None
    if not isinstance(names, list | None) or not all(isinstance(name, str) for name in names or ()):
        raise DataError(f"'{path}': the names of the classes of {label!r} must be texts; got {shown(names)}.")
    values = _values(table.column(label))
    odd = next((value for value in values if not isinstance(value, int | str | None)), None)
    if odd is not None:
        raise DataError(f"'{path}': labels in {label!r} must be text or whole numbers; got {shown(odd)}.")
    try:
        return ids, as_labels(values, names)
    except DataError as error:
        raise DataError(f"'{path}': {error}") from error


def ids_of_rows(path: Path, table: Any, id_column: str | None, before: int = 0) -> Any:
    """Return the ids of rows, (N,): the cells of a column, or row numbers that start at `before`."""
    if id_column is None:
        return np.arange(before, before + table.num_rows)
    if id_column not in table.column_names:
        raise _no_column(path, id_column, table.column_names)
    given = _values(table.column(id_column))
    if any(isinstance(name, str) and len(name) > LONGEST_ID for name in given):
        raise DataError(f"'{path}' has ids in {id_column!r} of more than {LONGEST_ID:,} characters; shorten them.")
    ids = np.array(given)
    if ids.dtype.kind not in "iuU":
        raise DataError(f"'{path}': the ids in {id_column!r} must all be text, or all whole numbers; correct them.")
    return ids


def _values(column: Any) -> list[Any]:
    """Return the cells of a column; equal values that are stored once become one object."""
    import pyarrow as pa

    values: list[Any] = []
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            distinct = chunk.dictionary.to_pylist()
            values += [None if code is None else distinct[code] for code in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


def _features(text: bytes | None) -> dict[str, Any]:
    """Return Hugging Face's notes about columns; a note that cannot be read is ignored."""
    try:
        found = json.loads(text or b"{}")["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def cell_bytes(called: str, cell: Any) -> bytes:
    """Return the bytes of a picture's file in a cell."""
    value = cell.as_py()
    value = value.get("bytes") if isinstance(value, dict) else value
    if value is None:
        raise DataError(f"Picture '{called}' has no bytes in the file; write them into it.")
    check_picture_size(called, len(value))
    return bytes(value)


def _no_column(path: Path, name: str, known: list[str]) -> DataError:
    return DataError(f"'{path}' has no column {name!r}; it has {', '.join(map(repr, known[:8]))}.")
