"""Pictures packed into files: a column of a Parquet file, a folder of Hugging Face datasets, tar shards.

Each reader knows the ids and labels of all pictures, and returns the bytes of a single picture. Nothing is unpacked to
the disk, and names inside a file are never used as paths.
"""

import glob
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.base.text import most_bytes
from surelabel.errors import DataError

_RANGE = re.compile(r"\{([0-9]+)\.\.([0-9]+)\}")
_MOST_SHARDS = 100_000
LONGEST_ID = 1000
"""Characters; numpy stores all texts of an array at the length of the longest."""


class PackedPictures(ABC):
    """The pictures in some files.

    Attributes:
        path: their name in errors.
        ids: shape (N,), unique.
        labels: a class or None (unlabeled) for each, shape (N,), or None where the files have no label.
        unused: columns that are neither pictures, labels nor ids.
    """

    path: Path
    ids: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None
    unused: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @abstractmethod
    def read(self, place: int) -> bytes:
        """Return the bytes of a picture's file."""

    def called(self, place: int) -> str:
        """Return a picture's name for errors."""
        return f"{self.path}: {self.ids[place]}"


def is_packed(path: Path) -> bool:
    """Whether a path or pattern names packed pictures, judged by names, and for a Parquet file by its columns."""
    from surelabel.data.arrow_pictures import has_pictures, is_saved_dataset

    if path.suffix.lower() == ".parquet" and path.is_file():
        return has_pictures(path)
    if path.is_dir():
        return is_saved_dataset(path) or any(path.glob("*.tar"))
    return path.name.lower().endswith(".tar")


def open_packed(path: Path, label: str | None = None, id_column: str | None = None) -> PackedPictures:
    """Open packed pictures.

    Args:
        path: a .parquet file, a folder that `datasets` saved, a .tar file, a folder of .tar files, or a pattern of
            their names: "shards/{000..009}.tar", "shards/*.tar".
        label: the label column; None: `label`, if there is one. Tar shards have files instead, key.cls.
        id_column: the column that names the rows; None: their numbers.
    """
    from surelabel.data.arrow_pictures import is_saved_dataset, read_parquet_pictures, read_saved_dataset
    from surelabel.data.tar_shards import TarShards

    if path.suffix.lower() == ".parquet":
        return read_parquet_pictures(path, label, id_column)
    if path.is_dir() and is_saved_dataset(path):
        return read_saved_dataset(path, label, id_column)
    if label is not None or id_column is not None:
        raise DataError(f"'{path}' is of tar shards, which have no column {label or id_column!r}; leave it out.")
    shards = sorted(path.glob("*.tar")) if path.is_dir() else expanded(path)
    return TarShards(path, shards)


def unused_columns(path: Path, label: str | None, id_column: str | None) -> tuple[str, ...]:
    """Return the columns that nothing is read from; tar shards have none. The arguments are those of `open_packed`."""
    from surelabel.data.arrow_pictures import is_saved_dataset

    has_columns = path.suffix.lower() == ".parquet" or is_saved_dataset(path)
    return open_packed(path, label, id_column).unused if has_columns else ()


def expanded(pattern: Path) -> list[Path]:
    """Return the files that a pattern names: {000..009} counts, and *, ? and [] match names.

    >>> [path.name for path in expanded(Path("s-{08..10}.tar"))]
    ['s-08.tar', 's-09.tar', 's-10.tar']
    """
    if Path(pattern).exists():
        return [pattern]
    names = list(_counted(str(pattern)))
    if len(names) == 1 and glob.has_magic(names[0]):
        found = sorted(glob.glob(names[0]))
        if not found:
            raise DataError(f"No file matches '{pattern}'; check the path.")
        return [Path(name) for name in found]
    return [Path(name) for name in names]


def _counted(text: str) -> Iterator[str]:
    found = _RANGE.search(text)
    if found is None:
        yield text
        return
    first, last = int(found[1]), int(found[2])
    if not first <= last < first + _MOST_SHARDS:
        raise DataError(f"'{found[0]}' in '{text}' must count up, over {_MOST_SHARDS:,} files at most; correct it.")
    for number in range(first, last + 1):
        yield from _counted(text[: found.start()] + str(number).zfill(len(found[1])) + text[found.end() :])


def check_picture_size(name: str, size: int) -> None:
    """Refuse a picture whose bytes are more than the limit for a file's content."""
    if size > most_bytes(0):
        raise DataError(f"{name} has {size:,} bytes, and at most {most_bytes(0):,} are allowed; remove it.")


def as_labels(values: list[Any], names: list[str] | None) -> npt.NDArray[Any]:
    """Return a class or None for each value; None, "" and -1 are unlabeled.

    Args:
        values: texts or whole numbers.
        names: of the classes, where values are their numbers.

    Example:
        >>> as_labels([1, -1, None], ["cat", "dog"]).tolist()
        ['dog', None, None]
    """
    labels = np.full(len(values), None, dtype=object)
    for row, value in enumerate(values):
        if value is None or value == -1 or str(value).strip() == "":
            continue
        if names is not None and not (isinstance(value, int) and 0 <= value < len(names)):
            raise DataError(f"Row {row} has the label {value!r}, and there are {len(names)} classes; correct it.")
        labels[row] = str(value).strip() if names is None else names[value]
    return labels
