"""What a label or id cell means: a label is a string; an empty cell, or -1 among several columns, is unlabeled.

With a separator one cell holds several labels, "cat|dog". What it does not name is absent. A question mark says that
it is unknown whether a class is there: "cat|?dog" is a cat, perhaps with a dog, and nothing else. The separator alone,
or a mark of one's own, is none of the classes; an empty cell is unlabeled.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from surelabel.base.text import shown
from surelabel.data._columns import Request
from surelabel.errors import DataError

Codes: TypeAlias = npt.NDArray[np.integer[Any]]
Objects: TypeAlias = npt.NDArray[np.object_]

_WHOLE = re.compile(r"([+-]?[0-9]+)\.0*")
_STATED = {"0": 0, "1": 1, "-1": -1, "false": 0, "true": 1}
UNKNOWN = "?"
"""Before the name of a class, among several labels in a cell: whether it is there is unknown."""


def class_name(cell: object) -> str:
    """Return the class that a cell names: a whole number loses its fraction, as in a float column with gaps.

    Zero loses its sign with it.

    The rule looks at one cell alone, so that a class has one name in every file.

    >>> class_name(3), class_name("3.0"), class_name(-0.0), class_name(2.5), class_name(" cat ")
    ('3', '3', '0', '2.5', 'cat')
    """
    text = str(cell).strip()
    whole = _WHOLE.fullmatch(text)
    if whole:
        return "0" if whole[1] in ("-0", "+0") else whole[1]
    return text


def single_labels(cells: Sequence[object], codes: Codes, unlabeled: str | None) -> Objects:
    """Return the class of each row or None, shape (N,): row i holds `cells[codes[i]]`.

    Equal cells share one string, so that a label costs the eight bytes of a reference.
    """
    marker = None if unlabeled is None else class_name(unlabeled)
    classes: list[str | None] = [None if _is_missing(cell) else class_name(cell) for cell in cells]
    values = np.array([None if name == marker else name for name in classes], dtype=object)
    return values[codes]


def multi_labels(
    path: Path, name: str, cells: Sequence[object], codes: Codes, unlabeled: str | None, first_row: int = 0
) -> npt.NDArray[np.int8]:
    """Return 1, 0 or -1 (unknown) for each row of one class's column, (N,); `first_row` counts from 0."""
    values = np.empty(len(cells), dtype=np.int8)
    for index, cell in enumerate(cells):
        if _is_missing(cell) or (unlabeled is not None and class_name(cell) == class_name(unlabeled)):
            values[index] = -1
            continue
        stated = _STATED.get(class_name(cell).lower())
        rows = np.flatnonzero(codes == index) if stated is None else codes[:0]
        if rows.size:
            raise DataError(
                f"File '{path}', label column {name!r}, row {first_row + int(rows[0]) + 1}: "
                f"{shown(str(cell))} is not 0, 1, -1 (unknown) or empty, as each of several label columns must "
                "be; correct it, name the mark of an unknown cell with --unlabeled, or give one label column."
            )
        values[index] = 0 if stated is None else stated
    return values[codes]


def label_sets(
    path: Path, name: str, cells: Sequence[object], codes: Codes, request: Request, first_row: int = 0
) -> Objects:
    """Return the classes that each row's cell names, () for none of them, or None (unlabeled), shape (N,).

    One of which it is unknown whether it is there keeps its question mark; `stated` tells them apart.

    Args:
        path: The file.
        name: The label column.
        cells: The distinct cells.
        codes: Row i holds `cells[codes[i]]`, shape (N,).
        request: The separator and the marks.
        first_row: The first row's number in the file, from 0.
    """
    marks = [mark for mark in (class_name(text or "") for text in (request.unlabeled, request.none)) if mark]
    values = np.empty(len(cells), dtype=object)
    for index, cell in enumerate(cells):
        values[index] = names = _names_in(cell, request)
        problem = _problem(cell, names or (), marks)
        rows = codes[:0] if problem is None else np.flatnonzero(codes == index)
        if rows.size:
            raise DataError(f"File '{path}', label column {name!r}, row {first_row + int(rows[0]) + 1}: {problem}")
    return values[codes]


def stated(names: Iterable[str]) -> dict[str, int]:
    """Return what a cell says of the classes that it names: 1, or -1 where it is unknown whether one is there.

    >>> stated(("cat", "?dog"))
    {'cat': 1, 'dog': -1}
    """
    return {name.removeprefix(UNKNOWN): -1 if name.startswith(UNKNOWN) else 1 for name in names}


def _names_in(cell: object, request: Request) -> tuple[str, ...] | None:
    if _is_missing(cell) or (request.unlabeled is not None and class_name(cell) == class_name(request.unlabeled)):
        return None
    if request.none is not None and class_name(cell) == class_name(request.none):
        return ()
    # "cat|" and "cat||dog" name no class between their separators.
    names = {_marked_name(part) for part in str(cell).split(request.separator)} - {""}
    return tuple(sorted(names, key=lambda name: name.removeprefix(UNKNOWN)))


def _marked_name(part: str) -> str:
    name = class_name(part)
    return UNKNOWN + class_name(name[1:]) if name.startswith(UNKNOWN) else name


def _problem(cell: object, names: Sequence[str], marks: Sequence[str]) -> str | None:
    beside = next((mark for mark in marks if mark in names or UNKNOWN + mark in names), None)
    if beside is not None:
        return f"{shown(str(cell))} has the mark {beside!r} beside labels; a mark stands alone in its cell."
    lone = next((name for name in names if name == UNKNOWN or name.startswith(2 * UNKNOWN)), None)
    if lone is not None:
        return (
            f"{shown(lone)} is no class; one question mark stands before the name of a class that may be there, as in "
            "?cat. If it alone means unlabeled, say --unlabeled '?'."
        )
    twice = next((name for name in names if UNKNOWN + name in names), None)
    if twice is not None:
        return f"it has {twice!r} with and without a question mark; leave out one of them."
    return None


def check_ids(path: Path, ids: npt.NDArray[Any]) -> None:
    """Refuse an id that names two rows."""
    if not _has_duplicates(ids):
        return
    seen: dict[Any, int] = {}
    for row, value in enumerate(ids.tolist(), start=1):
        first = seen.setdefault(value, row)
        if first != row:
            raise DataError(
                f"File '{path}': rows {first} and {row} have the same id {shown(value)}; give every row an "
                "id of its own, or read it without an id column."
            )


def _has_duplicates(ids: npt.NDArray[Any]) -> bool:
    if ids.dtype.kind in "OU":
        return len(set(ids.tolist())) < len(ids)
    ordered = np.sort(ids)
    return bool((ordered[1:] == ordered[:-1]).any())


def _is_missing(cell: object) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())
