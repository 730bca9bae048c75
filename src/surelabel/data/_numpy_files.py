"""Numpy's .npz (array `x`, and `y` and `ids` if present) and .npy; nothing in them is ever unpickled."""

import math
import tokenize
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from surelabel.base.text import check_file, check_size, damage_named, damaged, listed
from surelabel.data._table import Request, Table, check_finite, choose_columns, no_rows, unknown_name
from surelabel.data._values import Array, Encoded, Place, ids_in, labels_in
from surelabel.data.source import native
from surelabel.errors import DataError

# A damaged header, which numpy reads as a Python literal, fails in any of these ways.
_HEADER_FAULTS = (ValueError, TypeError, SyntaxError, RecursionError, tokenize.TokenError)

# How many copies of text are in memory while it is checked, sorted and turned into Python strings.
_COPIES = 4
# About how many bytes a column's name takes in Python, collections included.
_NAME = 200


def read_npz(path: Path, request: Request) -> Table:
    """Return the samples in `x` and, if the archive has them, the labels in `y` and the names in `ids`."""
    if len(request.labels) > 1 and not request.labels_if_there:
        raise DataError(f"File '{path}' has all labels in one array; name one, not {len(request.labels)}.")

    def choose(members: Sequence[str]) -> dict[str, str]:
        asked = {"x": None, "y": next(iter(request.labels), None), "ids": request.id_column}
        if request.labels_if_there and (len(request.labels) > 1 or asked["y"] not in (None, *members)):
            del asked["y"]
        found = {part: _find_array(path, members, part, name) for part, name in asked.items()}
        return {part: name for part, name in found.items() if name is not None}

    return _table(path, read_arrays(path, choose), request)


def read_npy(path: Path, request: Request) -> Table:
    """Return the samples in one .npy file, with the labels of another."""
    if (request.labels and not request.labels_if_there) or request.id_column is not None:
        remedy = "give the labels as a second .npy file (--labels-file), or save x, y and ids with numpy.savez"
        raise DataError(f"File '{path}': an .npy file has no label or id column; {remedy}.")
    parts = {}
    for part, file in (("x", path), ("y", request.labels_path)):
        if file is not None:
            check_file(file)
            with damage_named(file, "a .npy array"), file.open("rb") as stream:
                parts[part] = _load(file, file.stem, stream, file.stat().st_size)
    return _table(path, parts, request)


def read_arrays(path: Path, choose: Callable[[Sequence[str]], Mapping[str, str]]) -> dict[str, Array]:
    """Return arrays of an .npz file.

    Args:
        path: the file.
        choose: gets the names of all arrays in it, and returns those to read, each under the name to give it.
    """
    arrays = {}
    with damage_named(path, "an .npz archive", UnicodeDecodeError), zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        members = {info.filename.removesuffix(".npy"): info for info in infos}
        if len(members) < len(infos):
            twice = next(info.filename for info in infos if members[info.filename.removesuffix(".npy")] is not info)
            raise DataError(f"File '{path}' has the array {twice!r} twice; save it again with one of them.")
        chosen = {part: (name, members[name]) for part, name in choose(list(members)).items()}
        check_size(path, sum(info.file_size for _, info in chosen.values()))
        for part, (name, info) in chosen.items():
            if info.flag_bits & 1:
                raise DataError(f"File '{path}': array {name!r} is encrypted; save it without a password.")
            with archive.open(info) as stream:
                arrays[part] = _load(path, name, stream, info.file_size)
    return arrays


def _find_array(path: Path, members: Sequence[str], part: str, asked: str | None) -> str | None:
    if asked is not None and asked not in members:
        raise unknown_name(path, "array", asked, members)
    found = asked or next((name for name in (part, part.upper()) if name in members), None)
    if found is None and part == "x":
        remedy = "save samples, labels and names of rows with numpy.savez(file, x=..., y=..., ids=...)"
        raise DataError(f"File '{path}' has no array 'x', but {listed(members)}; {remedy}.")
    return found


def _load(path: Path, name: str, stream: IO[bytes], size: int) -> Array:
    """Return the array in a stream of `size` bytes; its header is checked first and must account for all of them."""
    with damage_named(path, "a numpy file", *_HEADER_FAULTS):
        version = np.lib.format.read_magic(stream)
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"version {version} of the format, which is neither for numbers nor for text")
        shape, _, kind = readers[version](stream)
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"shape {shape}")
    if kind.hasobject:
        problem = f"array {name!r} holds Python objects, which could run code"
        raise DataError(f"File '{path}': {problem}; save it as numbers, or as strings with astype(str).")
    expected = stream.tell() + math.prod(shape) * kind.itemsize
    if expected != size:
        raise damaged(path, "a numpy file", f"array {name!r} should take {expected} bytes, and it takes {size}")
    if kind.kind == "U":
        check_size(path, _COPIES * size)
    stream.seek(0)
    # Numpy itself checks more, such as the number of dimensions.
    with damage_named(path, "a numpy file", *_HEADER_FAULTS):
        return native(np.lib.format.read_array(stream, allow_pickle=False))


def _table(path: Path, parts: Mapping[str, Array], request: Request) -> Table:
    x, features = _features(path, parts["x"], request)
    for name, array in parts.items():
        if array.ndim == 0 or len(array) != len(x):
            shapes = f"x has {len(x)} rows and {name} has shape {array.shape}"
            raise DataError(f"File '{path}': {shapes}; give one entry a row.")
    ids = _ids(path, parts["ids"]) if "ids" in parts else np.arange(len(x))
    if "y" not in parts:
        return Table(path, x, None, ids, features, ())
    y, names = _labels(path, parts["y"], request)
    return Table(path, x, y, ids, features, names, request.marks.separator is not None)


def _features(path: Path, x: Array, request: Request) -> tuple[Array, tuple[str, ...]]:
    if x.ndim < 2 or x.dtype.kind not in "fiub":
        raise _wrong_kind(path, "x must hold numbers, one row a sample, shape (N, F) or (N, ...)", x)
    if len(x) == 0:
        raise no_rows(path)
    if x.size == 0:
        raise DataError(f"File '{path}' has no feature columns: x has shape {x.shape}; give each row a feature.")
    names: tuple[str, ...] = ()
    if x.ndim == 2:
        check_size(path, _NAME * x.shape[1])
        all_names = tuple(f"x{column}" for column in range(x.shape[1]))
        columns = choose_columns(path, all_names, replace(request, labels=(), id_column=None))
        names = columns.named(columns.features)
        # Without names, columns are matched by position, which may differ in a wider array.
        known = {*(request.features or all_names), *request.drop}
        if not set(all_names) <= known:
            problem = f"x has {len(all_names)} columns, and the model was trained on arrays of {len(known)}"
            raise DataError(f"File '{path}': {problem}; give the same columns, in the same order.")
        x = x if names == all_names else x[:, list(columns.features)]
    elif request.features or request.drop:
        raise _wrong_kind(path, "to choose or drop columns, x must have some, shape (N, F)", x)
    if x.dtype.kind != "f" and x.dtype != np.uint8:
        check_size(path, x.size * np.dtype(np.float32).itemsize)
        x = x.astype(np.float32)
    if x.dtype.kind == "f":
        check_finite(path, x, names, droppable=x.ndim == 2 and request.features is None)
    return x, names


def _ids(path: Path, ids: Array) -> Array:
    import pyarrow as pa

    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise _wrong_kind(path, "ids must be integers or strings, shape (N,)", ids)
    place = Place(path, "ids")
    if ids.dtype.kind == "U":
        _check_text(place, ids)
    cells = pa.array(ids.tolist(), pa.large_string()) if ids.dtype.kind == "U" else pa.array(ids)
    return ids_in(place, [cells], parse=False)


def _labels(path: Path, y: Array, request: Request) -> tuple[Array, tuple[str, ...]]:
    name = next(iter(request.labels), "y")
    if y.ndim > 2 or y.dtype.kind not in "fiubU" or y.size == 0:
        raise _wrong_kind(path, "y must hold numbers or strings, shape (N,) or (N, C)", y)
    columns = y.reshape(len(y), -1)
    if columns.shape[1] == 1:
        place = Place(path, name)
        return labels_in([place], [_encode(place, columns[:, 0])], request.marks), (name,)
    if request.marks.separator is not None:
        raise _wrong_kind(path, "with a separator, y must hold strings, shape (N,)", y)
    check_size(path, _NAME * columns.shape[1])
    names = tuple(map(str, range(columns.shape[1])))
    places = [Place(path, f"{name}[:, {column}]") for column in names]
    return labels_in(places, list(map(_encode, places, columns.T)), request.marks), names


def _wrong_kind(path: Path, expected: str, array: Array) -> DataError:
    return DataError(f"File '{path}': {expected}. Got {array.dtype} of shape {array.shape} instead; convert it.")


def _encode(place: Place, y: Array) -> Encoded:
    """Return the distinct cells and each row's index into them; an integer -1 (and NaN) is missing."""
    if y.dtype.kind == "U":
        _check_text(place, y)
    values, codes = np.unique(y, return_inverse=True)
    # A single float label of -1 may be a class.
    return [None if y.dtype.kind == "i" and value == -1 else value for value in values.tolist()], codes


def _check_text(place: Place, texts: Array) -> None:
    """Refuse what is not a character, such as half a surrogate pair: no file or screen can show it."""
    codes = np.ascontiguousarray(texts).view(np.uint32).reshape(len(texts), -1)
    wrong = ((codes >= 0xD800) & (codes < 0xE000)) | (codes > 0x10FFFF)
    # A text is padded with 0; a NUL within it cannot be written to a text file.
    wrong[:, :-1] |= (codes[:, :-1] == 0) & (codes[:, 1:] != 0)
    if wrong.any():
        row, letter = np.argwhere(wrong)[0].tolist()
        raise place.problem(row, f"U+{codes[row, letter]:04X} is no character; correct the text.")
