"""Sets of pictures with a training and a test part, kept as .npy files that are memory-mapped for reading."""

import io
import json
import os
import struct
import sys
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.references import file_hash
from surelabel.base.system import write_whole
from surelabel.base.text import damage_named, shown
from surelabel.errors import DataError

VARIABLE = "SURELABEL_DATA"
"""The environment variable that names the folder of data sets."""

_LIST = "dataset.json"
"""Written last: a folder without it is not complete."""

_PARTS = ("train_x.npy", "train_y.npy", "test_x.npy", "test_y.npy")


class Pictures(NamedTuple):
    """Pictures and their classes.

    Attributes:
        x: uint8, shape (N, 3, H, W).
        y: class indices, int64, shape (N,).
    """

    x: npt.NDArray[np.uint8]
    y: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A training and a test part, and what the class indices stand for.

    Attributes:
        train: the training pictures in their official order; a picture's index is its id.
        test: the test pictures.
        classes: C names.
        origin: where it came from.
    """

    train: Pictures
    test: Pictures
    classes: tuple[str, ...]
    origin: str = ""


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return `folder`, else the folder that $SURELABEL_DATA names, else `surelabel` in the user's cache.

    >>> data_folder("here").name
    'here'
    """
    chosen = folder or os.environ.get(VARIABLE)
    return Path(chosen).expanduser() if chosen else _caches() / "surelabel"


def is_stored(path: Path) -> bool:
    """Tell whether a folder holds a data set that `store` has finished writing."""
    return (path / _LIST).is_file()


def store(path: Path, images: ImageSet) -> None:
    """Write a data set into the folder `path`, each file whole or not at all, the list of them last."""
    path.mkdir(parents=True, exist_ok=True)
    (path / _LIST).unlink(missing_ok=True)
    arrays: tuple[npt.NDArray[Any], ...] = (*images.train, *images.test)
    for name, array in zip(_PARTS, arrays, strict=True):
        write_whole(path / name, partial(np.save, arr=array, allow_pickle=False))
    sha256 = {name: file_hash(path / name) for name in _PARTS}
    content = {"origin": images.origin, "classes": list(images.classes), "sha256": sha256}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_whole(path / _LIST, lambda stream: stream.write(text.encode()))


def open_stored(path: Path, *, verify: bool = False) -> ImageSet:
    """Return the data set in the folder `path`, with memory-mapped arrays.

    Args:
        path: a folder that `store` wrote.
        verify: whether to compare every file with its SHA-256.

    >>> import tempfile
    >>> one = Pictures(np.zeros((1, 3, 2, 2), np.uint8), np.zeros(1, np.int64))
    >>> path = Path(tempfile.mkdtemp())
    >>> store(path, ImageSet(one, one, ("cat",)))
    >>> open_stored(path, verify=True).train.x.shape
    (1, 3, 2, 2)
    """
    content = _read_list(path / _LIST)
    for name, expected in content["sha256"].items() if verify else ():
        found = file_hash(path / name) if (path / name).is_file() else "missing"
        if found != expected:
            raise _damaged(path / name, f"its SHA-256 should be {expected} and is {found}")
    train_x, train_y, test_x, test_y = (mapped(path / name, _damaged) for name in _PARTS)
    for x, y in ((train_x, train_y), (test_x, test_y)):
        if x.ndim != 4 or x.dtype != np.uint8 or y.shape != x.shape[:1] or y.dtype != np.int64:
            raise _damaged(path, f"pictures are {x.dtype} {x.shape}, labels {y.dtype} {y.shape}")
    train, test = Pictures(train_x, train_y), Pictures(test_x, test_y)
    return ImageSet(train, test, tuple(content["classes"]), content["origin"])


def mapped(path: Path, damaged: Callable[[Path, str], DataError]) -> "np.memmap[Any, np.dtype[Any]]":
    """Memory-map an .npy file; `damaged` makes the error from the path and the reason if this fails."""
    _check_plain(path, damaged)
    try:
        array: np.memmap[Any, np.dtype[Any]] = np.load(path, mmap_mode="r", allow_pickle=False)
    # A damaged header, which numpy reads as a Python literal, fails in any of these ways.
    except (OSError, ValueError, OverflowError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise damaged(path, shown(error, quote=False, limit=120)) from error
    return array


def _check_plain(path: Path, damaged: Callable[[Path, str], DataError]) -> None:
    """Refuse a pipe or a device, which could be read forever."""
    if path.exists() and not path.is_file():
        raise damaged(path, "it is not a plain file")


def read_pixels(name: str, data: bytes, kind: str, *, width: int, most_rows: int) -> npt.NDArray[np.uint8]:
    """Return the pixels of a color picture, uint8 (H, W, 3); refuse a wrong width or too large a height.

    Args:
        name: what the file is called in an error.
        data: its bytes.
        kind: "PNG" or "JPEG"; nothing else is tried.
        width: W.
        most_rows: the largest H.
    """
    from PIL import Image

    damage = (SyntaxError, ValueError, struct.error, Image.DecompressionBombError)
    with (
        damage_named(Path(name), f"a {kind} picture", *damage),
        Image.open(io.BytesIO(data), formats=(kind,)) as image,
    ):
        # Checked before the pixels are read: a damaged header may claim any size.
        if image.mode == "RGB" and image.width == width and image.height <= most_rows:
            return np.asarray(image)
    got = f"{image.width} x {image.height}, {image.mode}"
    raise DataError(f"File '{name}' must be a color picture, {width} x {most_rows} at most; got {got}. Get it again.")


def _caches() -> Path:
    """The folder for caches, by each system's convention."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _read_list(path: Path) -> dict[str, Any]:
    _check_plain(path, _damaged)
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        names, parts, _ = content["classes"], content["sha256"], content["origin"]
        if set(parts) != set(_PARTS) or not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise ValueError("an entry is of another kind")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(path, shown(error, quote=False, limit=120)) from error
    return content


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(f"'{path}' is damaged ({reason}); remove its folder and get the data set again.")
