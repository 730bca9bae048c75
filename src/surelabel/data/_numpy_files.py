"""Numpy's .npz (array `x`, and `y` and `ids` where present) and .npy; nothing in them is ever unpickled."""

import math
import tokenize
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from surelabel.base.text import check_file, damage_named, damaged, listed
from surelabel.data._cells import check_ids, label_sets, multi_labels, single_labels
from surelabel.data._collect import Table
from surelabel.data._columns import Request, choose_columns, no_rows, not_finite, unknown_name
from surelabel.data._limits import check_size
from surelabel.data.source import native
from surelabel.errors import DataError

AnyArray: TypeAlias = npt.NDArray[Any]

# A damaged header, which numpy reads as a Python literal, fails in any of these ways.
_HEADER_FAULTS = (ValueError, TypeError, SyntaxError, RecursionError, tokenize.TokenError)

# How often text lies in memory while it is looked at, sorted and turned into Python's.
_COPIES = 4
# About what a column's name takes, in Python's memory and in its collections.
_NAME = 200


def read_npz(path: Path, request: Request) -> Table:
    """Return the samples in `x` and, where the archive has them, the labels in `y` and the names in `ids`."""
    if len(request.labels) > 1 and not request.labels_if_there:
        raise DataError(
            f"File '{path}': an .npz file keeps all labels in one array; name one, shape (N,) or (N, C), not "
            f"{len(request.labels)}."
        )
    return _table(path, read_arrays(path, lambda members: _parts(path, members, request)), request)


def read_arrays(path: Path, choose: Callable[[Sequence[str]], Mapping[str, str]]) -> dict[str, AnyArray]:
    """Return arrays of an .npz file.

    Args:
        path: the file.
        choose: gets the names of all arrays in it, and returns those to read, each under the name to give it.
    """
    with damage_named(path, "an .npz archive", UnicodeDecodeError), zipfile.ZipFile(path) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
        chosen = choose(list(members))
        infos = {name: archive.getinfo(members[name]) for name in chosen.values()}
        check_size(path, sum(info.file_size for info in infos.values()))
        for name, info in infos.items():
            if info.flag_bits & 1:
                raise DataError(f"File '{path}': array {name!r} is encrypted; save it without a password.")
        arrays = {}
        for part, name in chosen.items():
            with archive.open(infos[name]) as stream:
                arrays[part] = _load(path, name, stream, infos[name].file_size)
    return arrays


def read_npy(path: Path, labels_path: Path | None, request: Request) -> Table:
    """Return the samples in one .npy file, with the labels of another."""
    if (request.labels and not request.labels_if_there) or request.id_column is not None:
        raise DataError(
            f"File '{path}': an .npy file has no label or id column; give the labels as a second .npy file "
            "(--labels-file), or save x, y and ids together with numpy.savez."
        )
    parts = {"x": _load_file(path)}
    if labels_path is not None:
        check_file(labels_path)
        parts["y"] = _load_file(labels_path)
    return _table(path, parts, request)


def _parts(path: Path, members: Sequence[str], request: Request) -> dict[str, str]:
    """Return which array is x, which y and which ids, as far as the archive has them."""
    asked = {"x": None, "y": next(iter(request.labels), None), "ids": request.id_column}
    if request.labels_if_there and (len(request.labels) > 1 or asked["y"] not in (None, *members)):
        del asked["y"]
    found = {part: _find_array(path, members, part, name) for part, name in asked.items()}
    return {part: name for part, name in found.items() if name is not None}


def _find_array(path: Path, members: Sequence[str], part: str, asked: str | None) -> str | None:
    if asked is not None:
        if asked not in members:
            raise unknown_name(path, "array", asked, members)
        return asked
    found = next((name for name in (part, part.upper()) if name in members), None)
    if found is None and part == "x":
        raise DataError(
            f"File '{path}' has no array 'x'; it has {listed(members)}. Call the samples x, the labels y and "
            "names of the rows ids: numpy.savez(file, x=..., y=...) makes such a file."
        )
    return found


def _load_file(path: Path) -> AnyArray:
    with damage_named(path, "a .npy array"), path.open("rb") as stream:
        return _load(path, path.stem, stream, path.stat().st_size)


def _load(path: Path, name: str, stream: IO[bytes], size: int) -> AnyArray:
    """Return the array in a stream of `size` bytes; it must take all of them, by a header that is looked at first."""
    with damage_named(path, "a numpy file", *_HEADER_FAULTS):
        kind, expected = _described(stream)
    if kind.hasobject:
        raise DataError(
            f"File '{path}': array {name!r} holds Python objects, which are not read because they can run code; save "
            "it as numbers, or as strings with astype(str)."
        )
    if expected != size:
        problem = f"by its header array {name!r} should take {expected} bytes, and it takes {size}"
        raise damaged(path, "a numpy file", problem)
    if kind.kind == "U":
        check_size(path, _COPIES * size)
    stream.seek(0)
    # Numpy itself knows of more, such as the number of dimensions.
    with damage_named(path, "a numpy file", *_HEADER_FAULTS):
        return native(np.lib.format.read_array(stream, allow_pickle=False))


def _described(stream: IO[bytes]) -> tuple[np.dtype[Any], int]:
    """Return what an array's header says: the kind, and how many bytes it takes together with the header."""
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the format, which is neither for numbers nor for text")
    shape, _, kind = readers[version](stream)
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"shape {shape}")
    return kind, stream.tell() + math.prod(shape) * kind.itemsize


def _table(path: Path, parts: Mapping[str, AnyArray], request: Request) -> Table:
    x, features = _features(path, parts["x"], request)
    for name, array in parts.items():
        if array.ndim == 0 or len(array) != len(x):
            raise DataError(
                f"File '{path}': x has {len(x)} rows and {name} has shape {array.shape}; give one entry of "
                f"{name} for each row of x."
            )
    ids = _ids(path, parts.get("ids"), len(x))
    table = Table(path, x, None, ids, features, ())
    return table if "y" not in parts else _with_labels(table, parts["y"], request)


def _features(path: Path, x: AnyArray, request: Request) -> tuple[AnyArray, tuple[str, ...]]:
    if x.ndim < 2 or x.dtype.kind not in "fiub":
        raise DataError(
            f"File '{path}': x must hold numbers, one row a sample, shape (N, F) or (N, ...). Got {x.dtype} "
            f"of shape {x.shape} instead; reshape or convert it."
        )
    if len(x) == 0:
        raise no_rows(path)
    if x.size == 0:
        raise DataError(f"File '{path}' has no feature columns: x has shape {x.shape}; give each row a feature.")
    names = _column_names(path, x, "x")
    if x.ndim == 2:
        columns = choose_columns(path, names, replace(request, labels=(), id_column=None))
        _check_width(path, names, request)
        if columns.features != tuple(range(x.shape[1])):
            x, names = x[:, list(columns.features)], columns.feature_names
    elif request.features or request.drop:
        raise DataError(
            f"File '{path}': x has shape {x.shape}, without named columns to choose or drop; give an x of "
            "two dimensions, or samples as the model was trained on."
        )
    if x.dtype.kind != "f" and x.dtype != np.uint8:
        check_size(path, x.size * np.dtype(np.float32).itemsize)
        x = x.astype(np.float32)
    if x.dtype.kind == "f":
        _check_finite(path, x, names, droppable=x.ndim == 2 and request.features is None)
    return x, names


def _column_names(path: Path, array: AnyArray, prefix: str = "") -> tuple[str, ...]:
    """Name the columns of an array of two dimensions by their places."""
    if array.ndim != 2:
        return ()
    check_size(path, _NAME * array.shape[1])
    return tuple(f"{prefix}{column}" for column in range(array.shape[1]))


def _check_width(path: Path, names: tuple[str, ...], request: Request) -> None:
    """Refuse more columns than a model knows of: without names they go by their place, which may be another one."""
    known = {*(request.features or names), *request.drop}
    if not set(names) <= known:
        raise DataError(
            f"File '{path}': x has {len(names)} columns, and the model was trained on arrays of {len(known)}; give "
            f"the same {len(known)} columns, in the same order."
        )


def _check_finite(path: Path, x: AnyArray, names: tuple[str, ...], *, droppable: bool) -> None:
    rows = max(1, (1 << 20) // (x.size // len(x)))
    for start in range(0, len(x), rows):
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(x[start : start + rows].astype(np.float32, copy=False))
        if not finite.all():
            row, *index = (int(place) for place in np.argwhere(~finite)[0])
            name = names[index[0]] if names else f"x[{', '.join(map(str, index))}]"
            value = float(x[start + row][tuple(index)])
            raise not_finite(path, name, start + row + 1, value, droppable=droppable)


def _ids(path: Path, ids: AnyArray | None, rows: int) -> AnyArray:
    if ids is None:
        return np.arange(rows, dtype=np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise DataError(
            f"File '{path}': ids must be integers or strings, shape (N,). Got {ids.dtype} of shape "
            f"{ids.shape}; convert them."
        )
    if ids.dtype.kind == "U":
        _check_text(path, "ids", ids)
        empty = np.flatnonzero(ids == "")
        if empty.size:
            raise DataError(f"File '{path}': row {empty[0] + 1} of ids is empty; fill it in, or save it without ids.")
    check_ids(path, ids)
    if ids.dtype.kind == "U":
        return ids.astype(object)
    # Numbers from 2^63 on do not fit into signed ones.
    return ids if ids.dtype == np.uint64 and ids.max() >= 1 << 63 else ids.astype(np.int64)


def _check_text(path: Path, name: str, texts: AnyArray) -> None:
    """Refuse what is no character, such as half a surrogate pair: no file or screen takes it."""
    codes = np.ascontiguousarray(texts).view(np.uint32).reshape(len(texts), -1)
    wrong = ((codes >= 0xD800) & (codes < 0xE000)) | (codes > 0x10FFFF)
    # Behind its end all of a text is 0; a NUL within it goes into no text file.
    wrong[:, :-1] |= (codes[:, :-1] == 0) & (codes[:, 1:] != 0)
    if wrong.any():
        row, place = np.argwhere(wrong)[0].tolist()
        raise DataError(
            f"File '{path}': row {row + 1} of {name} holds U+{codes[row, place]:04X}, which is no character; correct "
            "the text."
        )


def _with_labels(table: Table, y: AnyArray, request: Request) -> Table:
    name = next(iter(request.labels), "y")
    if y.ndim > 2 or y.dtype.kind not in "fiubU" or y.size == 0:
        raise DataError(
            f"File '{table.path}': y must hold numbers or strings, shape (N,) or (N, C). Got {y.dtype} of "
            f"shape {y.shape} instead; convert it."
        )
    if y.dtype.kind == "U":
        _check_text(table.path, name, y)
    if y.ndim == 1 or y.shape[1] == 1:
        cells, codes = _encode(y.reshape(-1))
        if request.separator is not None:
            sets = label_sets(table.path, name, cells, codes, request)
            return replace(table, y=sets, label_names=(name,), several=True)
        return replace(table, y=single_labels(cells, codes, request.unlabeled), label_names=(name,))
    if request.separator is not None:
        raise DataError(
            f"File '{table.path}': a separator is for labels of shape (N,), several a cell. Got y of shape {y.shape}; "
            "leave the separator out."
        )
    names = _column_names(table.path, y)
    parts = [
        multi_labels(table.path, f"{name}[:, {label}]", *_encode(y[:, int(label)]), request.unlabeled)
        for label in names
    ]
    return replace(table, y=np.stack(parts, axis=1), label_names=names)


def _encode(y: AnyArray) -> tuple[list[object], npt.NDArray[np.intp]]:
    """Return the distinct cells and each row's place among them; an integer -1 (and NaN) is missing."""
    values, codes = np.unique(y, return_inverse=True)
    # Of a single float label, -1 may be a class.
    return [None if y.dtype.kind == "i" and value == -1 else value for value in values.tolist()], codes
