"""Columns become a table: which are features, labels and ids, and what their cells say.

Readers give names and columns. Here is all that holds for every kind of file, and the errors that name a file, a column
and a row (counted from 1, without the header).
"""

import difflib
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from surelabel.base.text import check_size, is_text, listed, shown
from surelabel.data.encoding import NUMBER, LabelMarks
from surelabel.errors import DataError

Array: TypeAlias = npt.NDArray[Any]
Column: TypeAlias = Any
"""A pyarrow Array; pyarrow is loaded only when a table is read."""
Encoded: TypeAlias = tuple[Sequence[Any], Array]
"""The distinct cells of a column, and each row's place among them, (N,)."""

# An integer that is written as Python writes it; "007" is a name, not the number 7.
_PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_BOOLEANS = {"true": 1.0, "false": 0.0}
# What joins the labels of a list until they are parted again; no name may have it, and it is no white space.
BETWEEN_LABELS = "\0"
# About what a label in a list takes in Python's memory beside its text, and how often text is copied there.
_LABEL_IN_LIST, _COPIES = 64, 4
# What people write into a cell of a feature that has no value.
_MISSING = frozenset({"", "nan", "-nan", "na", "n/a", "null", "none", "#n/a", "#na"})


@dataclass(frozen=True)
class Request:
    """What the caller asks of a table; `features` is None when every other column is a feature.

    With `labels_if_there` the labels are left out where the file lacks one of their columns.
    """

    labels: tuple[str, ...]
    id_column: str | None
    drop: tuple[str, ...]
    features: tuple[str, ...] | None
    marks: LabelMarks
    labels_if_there: bool


@dataclass(frozen=True, eq=False)
class Table:
    """Samples read from a file.

    Attributes:
        path: The file.
        x: Features (N, F), float32; arrays from .npy and .npz keep their shape (N, ...), and uint8 or floats.
        y: None without labels; one label column: str or None (unlabeled), object (N,), with a separator, or of lists,
            tuples of str ("?dog": a dog may be there) or None; several: int8 (N, C) with 1, 0 and -1 (unknown).
        ids: Name of each row, (N,): row numbers from 0, or the id column's integers or strings.
        feature_names: Names of x's columns; empty where x has more than two dimensions.
        label_names: The label columns' names; for several columns these are the classes.
        several: Whether a label is a tuple of classes.
    """

    path: Path
    x: Array
    y: Array | None
    ids: Array
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]
    several: bool = False

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Columns:
    """Positions in the file of the columns to read.

    Attributes:
        names: of all columns.
        features: positions, in the order of x's columns.
        labels: positions, in the order asked for.
        id: position, if there is one.
        droppable: whether a feature may be left out; a trained model needs all of its features.
    """

    names: tuple[str, ...]
    features: tuple[int, ...]
    labels: tuple[int, ...]
    id: int | None
    droppable: bool

    @property
    def used(self) -> tuple[int, ...]:
        """Positions of the features, then of the labels, then of the id."""
        return self.features + self.labels + (() if self.id is None else (self.id,))

    def named(self, positions: Iterable[int]) -> tuple[str, ...]:
        """Return the names of some columns."""
        return tuple(self.names[position] for position in positions)


def choose_columns(path: Path, names: Sequence[str], request: Request) -> Columns:
    """Return which columns play which part; every column that is not named for another part is a feature."""
    _check_names(path, names)
    wanted = () if request.labels_if_there and not set(request.labels) <= set(names) else request.labels
    labels = tuple(_find(path, names, name, "label column") for name in wanted)
    id_position = None if request.id_column is None else _find(path, names, request.id_column, "id column")
    taken = [*labels, *([] if id_position is None else [id_position])]
    if request.features is None:
        dropped = [_find(path, names, name, "column to drop") for name in request.drop]
        _check_one_part_each(path, names, [*taken, *dropped])
        features = _other_columns(path, names, request.drop, taken)
    else:
        features = _trained_features(path, names, request.features)
        _check_one_part_each(path, names, [*taken, *features])
    return Columns(tuple(names), features, labels, id_position, request.features is None)


def build_table(
    path: Path, columns: Columns, marks: LabelMarks, rows: int, batches: Iterable[Sequence[Column]]
) -> Table:
    """Return the table that batches of columns make up.

    Memory is reserved once, for the rows that the file is known to have; each batch is copied into place and let go.

    Args:
        path: The file.
        columns: What was chosen.
        marks: How label cells are read.
        rows: How many there are; batches with more or fewer are refused.
        batches: Columns in the order of `columns.used`; numbers may be text.
    """
    features, labels = columns.named(columns.features), columns.named(columns.labels)
    # A label is a reference to a string, and so is an id; without ids rows are numbered in 64 bits.
    check_size(path, rows * (4 * len(features) + 8 * len(labels) + 8))
    x = np.empty((rows, len(features)), dtype=np.float32)
    y, ids, done, size = [], [], 0, 0
    for batch in batches:
        start, done = done, done + len(batch[0])
        if done > rows:
            raise rows_differ(path, rows, done)
        named = zip(columns.named(columns.used), batch, strict=True)
        texts = [_text(path, name, cells, start) for name, cells in list(named)[len(features) :]]
        if columns.id is not None:
            ids.append(texts.pop())
            size += 2 * ids[-1].nbytes  # they lie in memory twice, as Arrow's and as Python's
        encoded = [cells.dictionary_encode(null_encoding="encode") for cells in texts]
        size += sum(cells.dictionary.nbytes for cells in encoded)
        check_size(path, size)
        if labels:
            cells = [(column.dictionary.to_pylist(), column.indices.to_numpy()) for column in encoded]
            y.append(label_values(path, labels, cells, marks, start))
        for place, cells in enumerate(batch[: len(features)]):
            x[start:done, place] = _numbers(path, features[place], cells, start, columns.droppable)
        check_finite(path, x[start:done], features, columns.droppable, start)
    if done != rows:
        raise rows_differ(path, rows, done)
    row_names = np.arange(rows) if columns.id is None else _ids(path, columns.names[columns.id], ids)
    several = bool(labels) and marks.separator is not None
    return Table(path, x, np.concatenate(y) if y else None, row_names, features, labels, several)


def label_values(
    path: Path, names: Sequence[str], columns: Sequence[Encoded], marks: LabelMarks, first_row: int = 0
) -> Array:
    """Return the labels in one or several columns, as `Table.y` has them.

    Args:
        path: The file.
        names: The label columns.
        columns: Their cells.
        marks: How label cells are read.
        first_row: The first row's number, from 0.
    """
    one = marks.class_of if marks.separator is None else marks.classes_of
    values = [
        _values(f"File '{path}', label column {name!r}", cells, one if len(names) == 1 else marks.state_of, first_row)
        for name, cells in zip(names, columns, strict=True)
    ]
    return values[0] if len(names) == 1 else np.stack(values, axis=1).astype(np.int8)


def check_ids(path: Path, ids: Array) -> None:
    """Refuse an id that names two rows."""
    first: dict[Any, int] = {}
    values = ids.tolist()
    if len(set(values)) == len(values):
        return
    for row, value in enumerate(values, start=1):
        if first.setdefault(value, row) != row:
            raise DataError(
                f"File '{path}': rows {first[value]} and {row} have the same id {shown(value)}; give every row an id "
                "of its own, or read it without an id column."
            )


def check_finite(path: Path, x: Array, names: Sequence[str], droppable: bool, first_row: int = 0) -> None:
    """Refuse a feature that is missing, infinite or too large for 32 bits; it looks at a few rows at a time."""
    rows = max(1, (1 << 20) // (x.size // len(x)))
    for start in range(0, len(x), rows):
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(x[start : start + rows].astype(np.float32, copy=False))
        if not finite.all():
            row, *index = (int(place) for place in np.argwhere(~finite)[0])
            name = names[index[0]] if names else f"x[{', '.join(map(str, index))}]"
            value = float(x[start + row][tuple(index)])
            problem, remedy = "the value is infinite or too large for 32 bits (3.4e38)", "correct it"
            if value != value:
                problem, remedy = "the cell is empty or NaN", "fill it in"
            other = _drop(name) if droppable else "leave the row out"
            row += first_row + start + 1
            raise DataError(f"File '{path}', column {name!r}, row {row}: {problem}; {remedy} or {other}.")


def not_a_number(value: object, name: str, droppable: bool) -> DataError:
    """The error for a cell of a feature that is not a number, without its place."""
    remedy = f"{_drop(name)} or" if droppable else "the model needs this column:"
    return DataError(f"{shown(value)} is not a number; {remedy} encode it as numbers.")


def has_labels(kind: Any) -> bool:
    """Whether a column of this Arrow type has a list of labels in each cell."""
    from pyarrow import types

    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    of = kind.value_type.value_type if types.is_dictionary(kind.value_type) else kind.value_type
    # All lists are empty where they are of nulls.
    return any(is_kind(of) for is_kind in (types.is_string, types.is_large_string, types.is_integer, types.is_null))


def text_size(cells: Column) -> int:
    """Return how many bytes text takes once its distinct values are written out row by row."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(cells.dictionary).take(cells.indices)).as_py() or 0)


def no_rows(path: Path) -> DataError:
    """The error for a table without rows."""
    return DataError(f"File '{path}' has no rows; add at least one sample.")


def rows_differ(path: Path, expected: int, read: int) -> DataError:
    """The error for a reader that gives another number of rows than the file has."""
    return DataError(
        f"File '{path}' has {expected} rows, and {read} came out when it was read; write it again, or as another kind "
        "of table."
    )


def unknown_name(path: Path, kind: str, name: str, known: Sequence[str]) -> DataError:
    """The error for a name that is not in the file, with the nearest one that is."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? It has" if close else "it has"
    return DataError(f"File '{path}' has no {kind} {name!r}; {hint} {listed(known)}.")


def _values(place: str, column: Encoded, meaning: Callable[[Any], Any], first_row: int) -> Array:
    """Return what each row's cell means, object (N,); a problem is told with its row.

    Equal cells share one object, so that a label costs the eight bytes of a reference.
    """
    cells, codes = column
    values = np.empty(len(cells), dtype=object)
    for code, cell in enumerate(cells):
        try:
            values[code] = meaning(cell)
        except DataError as problem:
            row = first_row + int(np.argmax(codes == code)) + 1
            raise DataError(f"{place}, row {row}: {problem}") from None
    return values[codes]


def _numbers(path: Path, name: str, cells: Column, first_row: int, droppable: bool) -> Array:
    """Return the cells of a feature as float32, NaN where missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_text, place = pa.types.is_large_string(cells.type), f"File '{path}', column {name!r}"
    try:
        if pa.types.is_dictionary(cells.type):
            raise pa.ArrowInvalid("text of a file that keeps numbers as numbers")
        numbers = pc.ascii_trim(cells, characters=" \t") if is_text else cells
        return np.asarray(numbers.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False))
    except pa.ArrowException:
        if not is_text:
            raise DataError(
                f"{place}, row {first_row + 1}: {not_a_number(cells[0].as_py(), name, droppable)}"
            ) from None

    def number(cell: str) -> float:
        text = cell.strip(" \t").lower()
        if text in _MISSING:
            return np.nan
        if text not in _BOOLEANS and not NUMBER.fullmatch(text):
            raise not_a_number(cell, name, droppable)
        return _BOOLEANS[text] if text in _BOOLEANS else float(text)

    encoded = _text(path, name, cells, first_row).dictionary_encode()
    return _values(place, (encoded.dictionary.to_pylist(), encoded.indices.to_numpy()), number, first_row)


def _text(path: Path, name: str, cells: Column, first_row: int) -> Column:
    """Return label or id cells as text, null where missing; refuse what is no text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = cells.type
    if has_labels(kind):
        return _joined_labels(path, name, cells, first_row)
    if pa.types.is_dictionary(kind):
        check_size(path, text_size(cells))
        cells = cells.dictionary_decode()
    if pa.types.is_fixed_size_binary(kind):
        check_size(path, _COPIES * cells.nbytes)
    if pa.types.is_boolean(kind):
        # As Python and pandas write them, so that a class has one name in every kind of file.
        return pc.if_else(cells, pa.scalar("True", pa.large_string()), pa.scalar("False", pa.large_string()))
    if pa.types.is_floating(kind):
        cells = pc.if_else(pc.is_nan(cells), pa.scalar(None, kind), cells)
    try:
        text = cells.cast(pa.large_string())
    except pa.ArrowException as error:
        raise DataError(
            f"File '{path}', column {name!r} of type {kind} cannot hold labels or ids; store it as text or whole "
            "numbers."
        ) from error
    _check_text(path, name, text, first_row)
    return pc.if_else(pc.equal(text, "-0"), pa.scalar("0", text.type), text) if pa.types.is_floating(kind) else text


def _joined_labels(path: Path, name: str, cells: Column, first_row: int) -> Column:
    """Return lists of labels as text with BETWEEN_LABELS between them; it alone is the empty list."""
    import pyarrow as pa

    labels = cells.flatten()
    text = text_size(labels) if pa.types.is_dictionary(labels.type) else 0
    check_size(path, _LABEL_IN_LIST * len(labels) + _COPIES * text)
    lists = cells.to_pylist()
    for row, labels in enumerate(lists, first_row + 1):
        names = [] if labels is None else [None if label is None else str(label).strip() for label in labels]
        if not all(names) or len(set(names)) < len(names) or any(BETWEEN_LABELS in str(label) for label in names):
            raise DataError(
                f"File '{path}', label column {name!r}, row {row}: {shown(labels)} must name each of its classes once, "
                "without a NUL; correct it (0 and 1 for each class go into a column each)."
            )
    texts = [None if labels is None else BETWEEN_LABELS.join(map(str, labels)) or BETWEEN_LABELS for labels in lists]
    return pa.array(texts, pa.large_string())


def _check_text(path: Path, name: str, text: Column, first_row: int) -> None:
    """Refuse text that is not UTF-8 or holds a NUL, which no text file may."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nul = pc.index(pc.match_substring(text, "\0"), True).as_py()
    if nul >= 0:
        raise DataError(f"File '{path}', column {name!r}, row {first_row + nul + 1} holds a NUL character; remove it.")
    try:
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        texts = [(cell or b"").decode(errors="surrogateescape") for cell in text.cast(pa.large_binary()).to_pylist()]
        row = next(row for row, cell in enumerate(texts, first_row + 1) if not is_text(cell))
        raise DataError(
            f"File '{path}', column {name!r}, row {row} is not UTF-8 text; save the file with the encoding UTF-8."
        ) from error


def _ids(path: Path, name: str, blocks: Sequence[Column]) -> Array:
    """Return integers where every id is a plain integer, else strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.chunked_array(blocks)
    empty = pc.index(pc.fill_null(pc.equal(texts, ""), True), True).as_py()
    if empty >= 0:
        raise DataError(
            f"File '{path}', id column {name!r}, row {empty + 1}: the id is empty; fill it in or read the file without "
            "an id column."
        )
    whole = pc.all(pc.match_substring_regex(texts, _PLAIN_INTEGER)).as_py()
    ids = texts.cast(pa.int64()).to_numpy() if whole else np.array(texts.to_pylist(), dtype=object)
    check_ids(path, ids)
    return ids


def _find(path: Path, names: Sequence[str], name: str, part: str) -> int:
    if name not in names:
        raise unknown_name(path, part, name, names)
    return names.index(name)


def _check_names(path: Path, names: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for position, name in enumerate(names):
        if "\0" in name:
            raise DataError(f"File '{path}': the name of column {position + 1} holds a NUL character; rename it.")
        first = seen.setdefault(name, position)
        # Columns without a name may be many: they can only be dropped, so that they are never confused.
        if first != position and name:
            raise DataError(
                f"File '{path}': columns {first + 1} and {position + 1} are both named {name!r}; rename one of them."
            )


def _check_one_part_each(path: Path, names: Sequence[str], positions: Sequence[int]) -> None:
    twice = next((position for position in positions if positions.count(position) > 1), None)
    if twice is not None:
        raise DataError(
            f"File '{path}': column {names[twice]!r} is named more than once among the label, id, feature and dropped "
            "columns; name it once."
        )


def _other_columns(path: Path, names: Sequence[str], drop: Sequence[str], taken: Sequence[int]) -> tuple[int, ...]:
    features = tuple(place for place, name in enumerate(names) if name not in drop and place not in taken)
    unnamed = next((place for place in features if not names[place]), None)
    if unnamed is not None:
        # A column without a name is most often a data frame's index; it must not be learned from by accident.
        raise DataError(
            f"File '{path}': column {unnamed + 1} has no name; name it in the header, or drop it with --drop "
            "'' (pandas writes its index so; use index=False)."
        )
    if not features:
        raise DataError(
            f"File '{path}' has no feature columns left beside the label, id and dropped columns; it has "
            f"{listed(names)}."
        )
    return features


def _trained_features(path: Path, names: Sequence[str], features: Sequence[str]) -> tuple[int, ...]:
    position = {name: index for index, name in enumerate(names)}
    missing = [name for name in features if name not in position]
    if missing:
        raise DataError(
            f"File '{path}' lacks {len(missing)} of the {len(features)} feature columns that the model was "
            f"trained on: {listed(missing)}; add them. It has {listed(names)}."
        )
    if not features:
        raise DataError(f"File '{path}' was to be read with no feature columns; name at least one feature.")
    return tuple(position[name] for name in features)


def _drop(name: str) -> str:
    return f"drop the column with --drop {shlex.quote(name) if name.isprintable() else repr(name)}"
