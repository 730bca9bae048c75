"""The meaning of a file's cells: numbers, text, ids and labels, with errors that name a file, a column and a row.

A label is a string; an empty cell, or -1 among several columns, is unlabeled. With a separator one cell holds several
labels, "cat|dog". Classes that it does not name are absent. A question mark means that it is unknown whether a class is
present: "cat|?dog" is a cat, perhaps with a dog, and nothing else. The separator alone, or a mark that the user chose,
is none of the classes; an empty cell is unlabeled.
"""

import functools
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from surelabel.base.text import check_size, is_text, shown
from surelabel.data.encoding import NUMBER
from surelabel.errors import DataError, InvalidInputError

Array: TypeAlias = npt.NDArray[Any]
Cells: TypeAlias = Any
"""A pyarrow Array; pyarrow is loaded only when a table is read."""
Unlabeled: TypeAlias = str | tuple[str, ...] | None
"""A label that means unlabeled, like the empty cell, or several."""
Encoded: TypeAlias = tuple[Sequence[Any], Array]
"""The distinct cells of a column, and each row's index into them, (N,)."""

UNKNOWN = "?"
"""Before the name of a class, among several labels in a cell: it is unknown whether the class is present."""
BETWEEN_LABELS = "\0"
"""Joins the labels of a list until they are split again; no name may contain it, and it is not white space."""
# About how many bytes a label in a list takes in Python besides its text, and how often its text is copied.
_LABEL_IN_LIST, _COPIES = 64, 4
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0*")
_STATES = {"0": 0, "1": 1, "-1": -1, "false": 0, "true": 1}
# An integer that is written as Python writes it; "007" is a name, not the number 7.
_PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
# Non-numeric values in a column of numbers.
_NUMBERS = {"true": 1.0, "false": 0.0, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf}
_MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none"})
GAPS = _MISSING | {"?", "-", "--", "<na>", "nat", "#na", "missing"}
"""What people write into a cell whose value is unknown, in lower case."""


class Place(NamedTuple):
    """The place of cells: the file, the column, and how many rows come before them."""

    path: Path
    column: str
    before: int = 0

    def problem(self, row: int, text: str) -> DataError:
        """The error for one of the cells."""
        return DataError(f"File '{self.path}', column {self.column!r}, row {self.before + row + 1}: {text}")

    @property
    def quoted(self) -> str:
        """The column as a word of a command."""
        return shlex.quote(self.column) if self.column.isprintable() else repr(self.column)

    def drop(self) -> str:
        """Say how to leave the column out."""
        return f"drop the column with --drop {self.quoted}"


@dataclass(frozen=True)
class LabelMarks:
    """How the label cells of a file are read.

    Attributes:
        unlabeled: a label that means unlabeled, like the empty cell, or several.
        separator: the text between several labels in a cell; None: a cell is one label.
        none: a label that means none of the classes, like the separator alone.
    """

    unlabeled: Unlabeled = None
    separator: str | None = None
    none: str | None = None

    @functools.cached_property
    def empty(self) -> frozenset[str]:
        """The cells that mean unlabeled, as `class_name` gives them."""
        given = (self.unlabeled,) if isinstance(self.unlabeled, str) else self.unlabeled or ()
        return frozenset({"", *map(class_name, given)})

    def check(self, labels: Sequence[str]) -> None:
        """Refuse a separator, or a mark for none of the classes, that could be confused with something else."""
        separator, none, problem = self.separator, self.none, ""
        if none is not None and separator is None:
            problem = f"A mark of none of the classes ({none!r}) needs a separator; give one too."
        elif separator == "":
            problem = "The separator between several labels in a cell is empty; give one, such as '|'."
        elif separator is not None and len(labels) > 1:
            problem = f"A separator ({separator!r}) is for one label column; got {len(labels)}. Leave it out."
        elif separator is not None and not separator.strip() and none is None:
            problem = (
                f"A blank separator ({separator!r}) looks like an unlabeled cell; mark none of the classes (--none)."
            )
        elif none is not None and (class_name(none) in self.empty or str(separator) in none):
            problem = f"The mark {none!r} is empty, holds the separator or means unlabeled; choose another."
        if problem:
            raise InvalidInputError(problem)

    def class_of(self, cell: object) -> str | None:
        """Return the class in a cell, None where it is unlabeled.

        >>> LabelMarks(unlabeled="?").class_of(" cat"), LabelMarks(unlabeled="?").class_of("?")
        ('cat', None)
        """
        name = None if cell is None or cell != cell else class_name(cell)
        return None if name in self.empty else name

    def state_of(self, cell: object) -> int:
        """Return what a cell in one of several label columns says about its class: 1, 0 or -1 (unknown)."""
        name = self.class_of(cell)
        state = -1 if name is None else _STATES.get(name.lower())
        if state is None:
            problem = f"{shown(str(cell))} is not 0, 1, -1 (unknown) or empty, as several label columns must be"
            raise DataError(f"{problem}; correct it, name its mark with --unlabeled, or give one label column.")
        return state

    def classes_of(self, cell: object) -> tuple[str, ...] | None:
        """Return the classes in a cell of several labels, () for none of them, None where it is unlabeled.

        A class that may or may not be present keeps its question mark; `stated` interprets it.

        >>> LabelMarks(separator="|").classes_of("dog|?cat"), LabelMarks(separator="|").classes_of("|")
        (('?cat', 'dog'), ())
        """
        name = self.class_of(cell)
        if name is None or name == class_name(self.none or ""):
            return None if name is None else ()
        # "cat|" and "cat||dog" name no class between their separators.
        names = {_marked_name(part) for part in str(cell).split(self.separator)} - {""}
        marks = {*self.empty, class_name(self.none or "")} - {""}
        beside = [mark for mark in marks if mark in names or UNKNOWN + mark in names]
        if beside:
            raise DataError(f"{shown(str(cell))} has the mark {beside[0]!r} beside labels; write it alone in its cell.")
        lone = [name for name in names if name == UNKNOWN or name.startswith(2 * UNKNOWN)]
        if lone:
            raise DataError(
                f"{shown(lone[0])} is no class; write ?cat for a cat that may be there, or --unlabeled '?'."
            )
        twice = [name for name in names if UNKNOWN + name in names]
        if twice:
            raise DataError(f"it has {twice[0]!r} with and without a question mark; leave out one of them.")
        return tuple(sorted(names, key=lambda name: name.removeprefix(UNKNOWN)))


def class_name(cell: object) -> str:
    """Return the class that a cell names: a whole number loses its fraction, as in a float column with gaps.

    Zero loses its sign too. The rule uses only the one cell, so that a class has the same name in every file.

    >>> class_name(3), class_name("3.0"), class_name(-0.0), class_name(2.5), class_name(" cat ")
    ('3', '3', '0', '2.5', 'cat')
    """
    text = str(cell).strip()
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return text
    return "0" if whole[1] in ("-0", "+0") else whole[1]


def stated(names: Iterable[str]) -> dict[str, int]:
    """Return what a cell says about the classes that it names: 1, or -1 if it is unknown whether one is present.

    >>> stated(("cat", "?dog"))
    {'cat': 1, 'dog': -1}
    """
    return {name.removeprefix(UNKNOWN): -1 if name.startswith(UNKNOWN) else 1 for name in names}


def labels_in(places: Sequence[Place], columns: Sequence[Encoded], marks: LabelMarks) -> Array:
    """Return the labels in one or several columns, as `Table.y` has them."""
    one = marks.class_of if marks.separator is None else marks.classes_of
    meaning = one if len(places) == 1 else marks.state_of
    values = [_values(place, cells, meaning) for place, cells in zip(places, columns, strict=True)]
    return values[0] if len(places) == 1 else np.stack(values, axis=1).astype(np.int8)


def numbers_in(place: Place, cells: Cells, droppable: bool, missing: Collection[str] = _MISSING) -> Array:
    """Return numbers, or text that says numbers, as float32; NaN where missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_words(cells.type) and not pa.types.is_large_string(cells.type):
        cells = words_in(place, cells)
    is_text = pa.types.is_large_string(cells.type)
    try:
        plain = pc.ascii_trim(cells, characters=" \t") if is_text else cells
        return np.asarray(plain.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:  # cells that are empty, true or false, or not numbers
        check_text(place, cells)
    texts, codes = encoded(cells)
    # A lone "true" among measurements is a mistake, not 1.
    measured = any(NUMBER.fullmatch(text.strip()) and text.strip() not in "01" for text in texts if text)

    def number(cell: str | None) -> float:
        text = (cell or "").strip().lower()
        if text in missing:
            return math.nan
        if (text not in _NUMBERS and not NUMBER.fullmatch(text)) or (measured and text in ("true", "false")):
            raise DataError(f"{shown(cell)} is {no_number(place, droppable)}")
        return _NUMBERS[text] if text in _NUMBERS else float(text)

    return _values(place, (texts, codes), number)


def no_number(place: Place, droppable: bool) -> str:
    """Return the remedy for a feature that is not a number."""
    remedy = f"{place.drop()} or" if droppable else "the model needs this column:"
    return f"not a number; {remedy} encode it as numbers."


def text_in(place: Place, cells: Cells, lists: bool = False) -> Cells:
    """Return label or id cells as text, null where missing; refuse other types, and lists unless they are allowed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = cells.type
    if lists and holds_labels(kind):
        return _joined_labels(place, cells)
    if pa.types.is_dictionary(kind):
        check_size(place.path, text_size(cells))
        cells = cells.dictionary_decode()
    if pa.types.is_fixed_size_binary(kind):
        check_size(place.path, _COPIES * cells.nbytes)
    if pa.types.is_boolean(kind):
        # As Python and pandas write them, so that a class has the same name in every kind of file.
        return pc.if_else(cells, pa.scalar("True", pa.large_string()), pa.scalar("False", pa.large_string()))
    if pa.types.is_floating(kind):
        cells = pc.if_else(pc.is_nan(cells), pa.scalar(None, kind), cells)
    try:
        text = cells.cast(pa.large_string())
    except pa.ArrowException as error:
        raise place.problem(0, f"its type {kind} cannot hold labels or ids; store text or whole numbers.") from error
    check_text(place, text)
    return pc.if_else(pc.equal(text, "-0"), pa.scalar("0", text.type), text) if pa.types.is_floating(kind) else text


def words_in(place: Place, cells: Cells) -> Cells:
    """Return the cells of a feature as text, null where missing; dates have the form 2024-02-29 12:00:00."""
    import pyarrow as pa

    if pa.types.is_dictionary(cells.type) and not is_words(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_timestamp(cells.type):
        cells = cells.cast(pa.timestamp("us"), safe=False)
    return text_in(place, cells)


def is_words(kind: Any) -> bool:
    """Whether an Arrow type is text, also by its distinct values."""
    from pyarrow import types

    of = kind.value_type if types.is_dictionary(kind) else kind
    return any(is_kind(of) for is_kind in (types.is_string, types.is_large_string, types.is_string_view))


def check_text(place: Place, text: Cells) -> None:
    """Refuse text that is not UTF-8 or holds a NUL, which text files cannot hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nul = pc.index(pc.match_substring(text, "\0"), True).as_py()
    if nul >= 0:
        raise place.problem(nul, "the text holds a NUL character; remove it.")
    try:
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        texts = [(cell or b"").decode(errors="surrogateescape") for cell in text.cast(pa.large_binary()).to_pylist()]
        row = next(row for row, cell in enumerate(texts) if not is_text(cell))
        raise place.problem(row, "the text is not UTF-8; save the file with the encoding UTF-8.") from error


def ids_in(place: Place, blocks: Sequence[Cells], parse: bool = True) -> Array:
    """Return integers if every id is one, or is text for one (`parse`), else strings; refuse empty and repeated ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pa.chunked_array(blocks)
    empty = pc.index(pc.fill_null(pc.equal(column.cast(pa.large_string()), ""), True), True).as_py()
    if empty >= 0:
        raise place.problem(empty, "the id is empty; fill it in or read the file without ids.")
    is_text = not pa.types.is_integer(column.type)
    if parse and is_text and pc.all(pc.match_substring_regex(column, _PLAIN_INTEGER)).as_py():
        column = column.cast(pa.int64())
    first: dict[Any, int] = {}
    unique = pc.count_distinct(column).as_py() == len(column)
    for row, value in enumerate([] if unique else column.to_pylist()):
        if first.setdefault(value, row) != row:
            raise place.problem(row, f"the id {shown(value)} is that of row {first[value] + 1} too; make it unique.")
    if not pa.types.is_integer(column.type):
        return np.array(column.to_pylist(), dtype=object)
    ids: Array = column.to_numpy()
    # Larger ones do not fit into signed numbers.
    return ids.astype(np.int64) if ids.dtype != np.uint64 or ids.max() < 1 << 63 else ids


def encoded(cells: Cells) -> Encoded:
    """Return text as its distinct cells and indices."""
    column = cells.dictionary_encode(null_encoding="encode")
    return column.dictionary.to_pylist(), column.indices.to_numpy()


def holds_labels(kind: Any) -> bool:
    """Whether a column of this Arrow type has a list of labels in each cell."""
    from pyarrow import types

    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    of = kind.value_type.value_type if types.is_dictionary(kind.value_type) else kind.value_type
    # Lists of the type null are all empty.
    return any(is_kind(of) for is_kind in (types.is_string, types.is_large_string, types.is_integer, types.is_null))


def text_size(cells: Cells) -> int:
    """Return how many bytes text takes if its distinct values are repeated for each row."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(cells.dictionary).take(cells.indices)).as_py() or 0)


def written_size(cells: Cells) -> int:
    """Return how many bytes cells of any type take once they are written out, row by row."""
    from pyarrow import types

    if types.is_map(cells.type):
        return written_size(cells.keys) + written_size(cells.items)
    if types.is_nested(cells.type):
        parts = cells.flatten()
        return sum(map(written_size, parts if isinstance(parts, list) else [parts]))
    return text_size(cells) if types.is_dictionary(cells.type) else int(cells.nbytes)


def _values(place: Place, column: Encoded, meaning: Callable[[Any], Any]) -> Array:
    """Return what each row's cell means, object (N,); an error names the row.

    Equal cells share one object, so that a label costs the eight bytes of a reference.
    """
    cells, codes = column
    values = np.empty(len(cells), dtype=object)
    for code, cell in enumerate(cells):
        try:
            values[code] = meaning(cell)
        except DataError as problem:
            raise place.problem(int(np.argmax(codes == code)), str(problem)) from None
    return values[codes]


def _marked_name(part: str) -> str:
    name = class_name(part)
    return UNKNOWN + class_name(name[1:]) if name.startswith(UNKNOWN) else name


def _joined_labels(place: Place, cells: Cells) -> Cells:
    """Return lists of labels as text with BETWEEN_LABELS between them; it alone is the empty list."""
    import pyarrow as pa

    labels = cells.flatten()
    text = text_size(labels) if pa.types.is_dictionary(labels.type) else 0
    check_size(place.path, _LABEL_IN_LIST * len(labels) + _COPIES * text)
    texts: list[str | None] = []
    for row, found in enumerate(cells.to_pylist()):
        names = [] if found is None else ["" if name is None else str(name).strip() for name in found]
        if not all(names) or len(set(names)) < len(names) or BETWEEN_LABELS in "".join(names):
            problem = f"{shown(found)} must name each of its classes once, without a NUL"
            raise place.problem(row, f"{problem}; correct it (0 and 1 go into a column for each class).")
        texts.append(None if found is None else BETWEEN_LABELS.join(names) or BETWEEN_LABELS)
    return pa.array(texts, pa.large_string())
