"""Pictures in Arrow: a column of bytes, or of {bytes, path} as Hugging Face writes it, in Parquet or a saved dataset.

Of {bytes, path} only the bytes are read: a path could lead to any file of the reader's.
"""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np

from surelabel.base.text import check_size, damage_named, shown
from surelabel.data.packed import PackedPictures, as_labels, check_picture_size
from surelabel.errors import DataError

_STATE = "state.json"
_LOOKED_AT = 8
"""Rows that tell a column of pictures from one of other bytes."""
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF", b"P4", b"P5", b"P6")
"""Of the formats that pictures are read in."""


class ArrowPictures(PackedPictures):
    """Pictures in a column of a table that is mapped into memory."""

    def __init__(self, path: Path, table: Any, described: dict[str, Any], label: str | None, id_column: str | None):
        self.path, self._cells = path, table.column(picture_column(path, table.schema, (label, id_column)))
        self.ids, self.labels = _ids_and_labels(path, table, described, label, id_column)

    def read(self, place: int) -> bytes:
        """Return the bytes of a picture's file."""
        return _bytes(self.called(place), self._cells[place])


class ParquetPictures(PackedPictures):
    """Pictures in a Parquet file; the row group that was read last is kept."""

    def __init__(self, path: Path, label: str | None, id_column: str | None) -> None:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        self.path, self._lock, self._group, self._cells = path, threading.Lock(), -1, None
        with damage_named(path, "a Parquet file", ArrowException):
            self._file = ParquetFile(path)
            self._column = picture_column(path, self._file.schema_arrow, (label, id_column))
            metadata = self._file.metadata
            for group in range(metadata.num_row_groups):
                check_size(path, metadata.row_group(group).total_byte_size)
            rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
            self._starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
            others = [name for name in self._file.schema_arrow.names if name in (label or "label", id_column)]
            table = self._file.read(columns=others) if others else None
        described = _features((self._file.schema_arrow.metadata or {}).get(b"huggingface"))
        if table is None:
            missing = label if label is not None else id_column
            if missing is not None:
                raise _no_column(path, missing, self._file.schema_arrow.names)
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
            return _bytes(self.called(place), cell[place - int(self._starts[group])])


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
        with damage_named(path / name, "an Arrow stream", pa.ArrowException):
            tables.append(pa.ipc.open_stream(pa.memory_map(str(path / name))).read_all())
    if not tables:
        raise DataError(f"File '{path / _STATE}' names no files; save the dataset again.")
    info = path / "dataset_info.json"
    with damage_named(info, "a description of a dataset", ValueError, TypeError):
        described = json.loads(info.read_text()).get("features") if info.is_file() else None
    return ArrowPictures(path, pa.concat_tables(tables), described or {}, label, id_column)


def is_saved_dataset(path: Path) -> bool:
    """Whether a folder was written by `save_to_disk`, of one part or of several."""
    return (path / _STATE).is_file() or (path / "dataset_dict.json").is_file()


def has_pictures(path: Path) -> bool:
    """Whether a Parquet file has a column of pictures: its first rows say so, as ids may be bytes too.

    A damaged file has none; whoever reads it next tells what is wrong.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
        columns = _byte_columns(file.schema_arrow)
        first = next(file.iter_batches(batch_size=_LOOKED_AT, columns=columns), None) if columns else None
    except (OSError, pa.ArrowException, ValueError):
        return False
    return first is not None and any(_begins_as_picture(column) for column in first.columns)


def _begins_as_picture(column: Any) -> bool:
    values = [value.get("bytes") if isinstance(value, dict) else value for value in column.to_pylist()]
    return any(value.startswith(_BEGINNINGS) for value in values if value)


def picture_column(path: Path, schema: Any, others: tuple[str | None, ...]) -> str:
    """Return the one column that has pictures, beside others that are known to have something else."""
    found = [name for name in _byte_columns(schema) if name not in others]
    if len(found) != 1:
        problem = f"has {len(found)} columns of pictures ({', '.join(found) or 'bytes, or bytes and path'})"
        raise DataError(f"'{path}' {problem}; write it with one.")
    return found[0]


def _byte_columns(schema: Any) -> list[str]:
    return [field.name for field in schema if _holds_bytes(field.type)]


def _holds_bytes(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(kind.field(place).name == "bytes" for place in range(kind.num_fields))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _ids_and_labels(
    path: Path, table: Any, described: dict[str, Any], label: str | None, id_column: str | None
) -> tuple[Any, Any]:
    for name in (label, id_column):
        if name is not None and name not in table.column_names:
            raise _no_column(path, name, table.column_names)
    ids = np.arange(table.num_rows) if id_column is None else np.array(table.column(id_column).to_pylist())
    if ids.dtype.kind not in "iuU":
        raise DataError(f"'{path}': the ids in {id_column!r} must all be text, or all whole numbers; correct them.")
    label = label or ("label" if "label" in table.column_names else None)
    if label is None:
        return ids, None
    feature = described.get(label)
    names = feature.get("names") if isinstance(feature, dict) else None
    values = table.column(label).to_pylist()
    odd = next((value for value in values if not isinstance(value, int | str | None)), None)
    if odd is not None:
        raise DataError(f"'{path}': labels in {label!r} must be text or whole numbers; got {shown(odd)}.")
    return ids, as_labels(values, names)


def _features(text: bytes | None) -> dict[str, Any]:
    """Return what Hugging Face notes about columns; a note that cannot be read says nothing."""
    try:
        found = json.loads(text or b"{}")["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _bytes(called: str, cell: Any) -> bytes:
    value = cell.as_py()
    value = value.get("bytes") if isinstance(value, dict) else value
    if value is None:
        raise DataError(f"Picture '{called}' has no bytes in the file; write them into it.")
    check_picture_size(called, len(value))
    return bytes(value)


def _no_column(path: Path, name: str, known: list[str]) -> DataError:
    return DataError(f"'{path}' has no column {name!r}; it has {', '.join(map(repr, known[:8]))}.")
