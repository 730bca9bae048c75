"""Columns become a table of features, labels and ids; this is common to all kinds of files."""

import difflib
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from surelabel.base.text import check_size, listed
from surelabel.data._values import (
    GAPS,
    Array,
    Cells,
    Encoded,
    LabelMarks,
    Place,
    encoded,
    ids_in,
    labels_in,
    numbers_in,
    text_in,
    words_in,
)
from surelabel.data.row_groups import RowGroup
from surelabel.data.source import ArraySource, Index, Source
from surelabel.errors import DataError

# With fewer rows, a feature can count them by chance.
_LEAST_ROWS = 10
_ALIKE = 0.75  # How alike names must be, from 0 to 1, so that one may be meant for the other.
# Up to here 32 bits hold every whole number.
_EXACT = 1 << 24


@dataclass(frozen=True)
class Request:
    """What the caller wants to read from a table; `features` is None if every other column is a feature.

    With `labels_if_there` the labels are left out if the file lacks one of their columns. `labels_path` is the .npy
    file with the labels of another .npy file. `group` is the column that says which rows belong together. `words` are
    features to read as text; None: there are none, and gaps in numbers are refused too. With `tolerant`, columns that
    are not numbers are listed instead of refused. With `part` only a group of rows is read.
    """

    labels: tuple[str, ...]
    id_column: str | None
    drop: tuple[str, ...]
    features: tuple[str, ...] | None
    marks: LabelMarks
    labels_if_there: bool = False
    labels_path: Path | None = None
    group: str | None = None
    words: tuple[str, ...] | None = None
    tolerant: bool = False
    part: RowGroup | None = None


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
        groups: The group of each row, object (N,); None where none was asked for.
        words: The features that were asked for as text, each stored by its distinct cells; they are not in x.
        no_numbers: Features that are not numbers, with the error for the first bad cell; they are not in x.
    """

    path: Path
    x: Array
    y: Array | None
    ids: Array
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]
    several: bool = False
    groups: Array | None = None
    words: Mapping[str, Encoded] = field(default_factory=dict)
    no_numbers: Mapping[str, DataError] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def samples(self, rows: "Index | slice") -> Source:
        """Return the features of some rows."""
        return ArraySource(self.x[rows], ids=self.ids[rows])


@dataclass(frozen=True)
class Columns:
    """Positions in the file of the columns to read.

    Attributes:
        names: of all columns.
        features: positions, in the order of x's columns.
        labels: positions, in the order asked for.
        id: position, if there is one.
        droppable: whether a feature may be left out; a trained model needs all of its features.
        group: position, if there is one.
        words: positions of features that are read as text.
        gaps: whether numbers may be missing.
        tolerant: whether features that are not numbers are listed instead of refused.
    """

    names: tuple[str, ...]
    features: tuple[int, ...]
    labels: tuple[int, ...]
    id: int | None
    droppable: bool
    group: int | None = None
    words: tuple[int, ...] = ()
    gaps: bool = False
    tolerant: bool = False

    @property
    def used(self) -> tuple[int, ...]:
        """Positions of the features, then of the labels, of the id, of the group, and of features that are text."""
        single = tuple(position for position in (self.id, self.group) if position is not None)
        return self.features + self.labels + single + self.words

    def named(self, positions: Iterable[int]) -> tuple[str, ...]:
        """Return the names of some columns."""
        return tuple(self.names[position] for position in positions)


def choose_columns(path: Path, names: Sequence[str], request: Request) -> Columns:
    """Return the role of each column; every column without another role is a feature."""
    _check_names(path, names)

    def remedy(part: str) -> str:
        if request.features is None:
            return ""
        new = request.labels_if_there or not request.labels
        return "Name another one, or number the rows: --id ''." if new and part == "id column" else "Add it."

    def find(part: str, name: str) -> int:
        if name not in names:
            raise unknown_name(path, part, name, names, remedy(part))
        return names.index(name)

    wanted = () if request.labels_if_there and not set(request.labels) <= set(names) else request.labels
    labels = tuple(find("label column", name) for name in wanted)
    id_position = None if request.id_column is None else find("id column", request.id_column)
    group = None if request.group is None else find("group column", request.group)
    taken = [*labels, *(position for position in (id_position, group) if position is not None)]
    if request.features is None:
        named = [*taken, *(find("column to drop", name) for name in request.drop)]
        features = _other_columns(path, names, {*request.drop, *(names[position] for position in taken)})
    else:
        features = _trained_features(path, names, request.features)
        named = [*taken, *features]
    if len(set(named)) < len(named):
        twice = next(position for position in named if named.count(position) > 1)
        raise DataError(f"File '{path}': column {names[twice]!r} is named twice, for two parts; name it once.")
    words = tuple(position for position in features if names[position] in (request.words or ()))
    numbers = tuple(position for position in features if position not in words)
    gaps = request.tolerant or request.words is not None
    droppable = request.features is None
    return Columns(tuple(names), numbers, labels, id_position, droppable, group, words, gaps, request.tolerant)


def build_table(
    path: Path,
    columns: Columns,
    marks: LabelMarks,
    rows: int,
    batches: Iterable[Sequence[Cells]],
    group: RowGroup | None = None,
) -> Table:
    """Return the table that batches of columns make up.

    Memory is reserved once, for the known number of rows; each batch is copied into place and released.

    Args:
        path: The file.
        columns: What was chosen.
        marks: How label cells are read.
        rows: How many there are; batches with more or fewer are refused.
        batches: Columns in the order of `columns.used`; numbers may be text.
        group: The row group that is read, if it is not the whole file.
    """
    before = 0 if group is None else group.before
    num_features, num_labels = len(columns.features), len(columns.labels)
    # A label or an id is a reference to a string; without ids, rows are numbered in 64 bits.
    check_size(path, rows * (4 * num_features + 8 * num_labels + 8))
    x = np.empty((rows, num_features), dtype=np.float32)
    y, done, size = [], 0, 0
    ids, groups = list[Cells](), list[Cells]()
    words: list[list[Cells]] = [[] for _ in columns.words]
    no_numbers: dict[str, DataError] = {}
    for batch in batches:
        if not len(batch[0]):
            continue  # a block of empty lines
        start, done = done, done + len(batch[0])
        if done > rows:
            raise rows_differ(path, rows, done)
        places = [Place(path, name, before + start) for name in columns.named(columns.used)]
        behind = num_features + num_labels
        for part, position in ((ids, columns.id), (groups, columns.group)):
            if position is not None:
                part.append(text_in(places[behind], batch[behind]))
                size += 2 * part[-1].nbytes  # it is in memory twice, as Arrow's and as Python's
                behind += 1
        for part, place, cells in zip(words, places[behind:], batch[behind:], strict=True):
            part.append(words_in(place, cells))
            size += 2 * part[-1].nbytes
        cells_of_labels = batch[num_features : num_features + num_labels]
        texts = [
            text_in(*pair, lists=num_labels == 1) for pair in zip(places[num_features:], cells_of_labels, strict=False)
        ]
        labels = [encoded(cells) for cells in texts]
        size += sum(len(cell or "") for cells, _ in labels for cell in cells)
        check_size(path, size)
        if labels:
            y.append(labels_in(places[num_features : num_features + num_labels], labels, marks))
        _fill_numbers(x, slice(start, done), columns, places, batch, no_numbers)
        check_finite(
            path, x[start:done], columns.named(columns.features), columns.droppable, before + start, gaps=columns.gaps
        )
    if done != rows:
        raise rows_differ(path, rows, done)
    row_ids = np.arange(before, before + rows) if columns.id is None else _ids(path, columns, ids, group)
    several = num_labels > 0 and marks.separator is not None
    kept = [position for position, name in enumerate(columns.named(columns.features)) if name not in no_numbers]
    names = columns.named(columns.features[position] for position in kept), columns.named(columns.labels)
    belongs = (
        None
        if columns.group is None
        else np.array([cell for part in groups for cell in part.to_pylist()], dtype=np.object_)
    )
    return Table(
        path,
        x if not no_numbers else x[:, kept],
        np.concatenate(y) if y else None,
        row_ids,
        *names,
        several,
        belongs,
        {name: _encoded_parts(part) for name, part in zip(columns.named(columns.words), words, strict=True)},
        no_numbers,
    )


def _ids(path: Path, columns: Columns, cells: Sequence[Cells], group: RowGroup | None) -> Array:
    assert columns.id is not None
    name = columns.names[columns.id]
    if group is None:
        return ids_in(Place(path, name), cells)
    # For a part of a file, only the column's type tells whether all ids of the file are integers.
    kind = group.type_of_ids(name)
    ids = ids_in(Place(path, name, group.before), [some.cast(kind) for some in cells], parse=False)
    return ids.astype(np.uint64) if str(kind) == "uint64" else ids


def _fill_numbers(
    x: Array,
    rows: slice,
    columns: Columns,
    places: Sequence[Place],
    batch: Sequence[Cells],
    no_numbers: dict[str, DataError],
) -> None:
    """Put a batch's numbers into some rows of x; columns with other values go to `no_numbers`, if allowed."""
    missing = {"missing": GAPS} if columns.gaps else {}
    for position in range(len(columns.features)):
        place = places[position]
        if place.column in no_numbers:
            continue
        try:
            x[rows, position] = numbers_in(place, batch[position], columns.droppable, **missing)
        except DataError as error:
            if not columns.tolerant:
                raise
            no_numbers[place.column] = error
            x[:, position] = 0


def _encoded_parts(parts: Sequence[Cells]) -> Encoded:
    import pyarrow as pa

    return encoded(pa.chunked_array(parts).combine_chunks())


def check_finite(
    path: Path, x: Array, names: Sequence[str], droppable: bool, before: int = 0, gaps: bool = False
) -> None:
    """Refuse features that are infinite, too large for 32 bits or, unless gaps are allowed, missing.

    A few rows are checked at a time.
    """
    rows = max(1, (1 << 20) // max(1, x.size // len(x)))
    for start in range(0, len(x), rows):
        with np.errstate(over="ignore", invalid="ignore"):
            values = x[start : start + rows].astype(np.float32, copy=False)
            finite = ~np.isinf(values) if gaps else np.isfinite(values)
        if not finite.all():
            row, *index = np.argwhere(~finite)[0].tolist()
            place = Place(path, names[index[0]] if names else f"x[{', '.join(map(str, index))}]", before + start)
            problem = "the value is infinite or too large for 32 bits (3.4e38); correct it"
            if np.isnan(x[start + row][tuple(index)]):
                problem = "the cell is empty or NaN; fill it in"
            raise place.problem(row, f"{problem} or {place.drop() if droppable else 'leave the row out'}.")


def without_counts(table: Table, use: Sequence[str], others: bool = False) -> tuple[Table, tuple[str, ...]]:
    """Return a table without features that only count its rows (7, 8, 9, ...), and the names of these features.

    Such a column is a row's position in a file, not information about a sample. It may be in any order, since the rows
    may have been shuffled after they were counted.

    Args:
        table: The table to check.
        use: Features to keep although they count the rows.
        others: Whether there are other features.
    """
    names = table.feature_names
    for name in use:
        if name not in names:
            raise unknown_name(table.path, "feature column", name, names)
    counts = np.array([name not in use and _counts(table.x[:, place]) for place, name in enumerate(names)], dtype=bool)
    found = tuple(name for name, is_count in zip(names, counts, strict=True) if is_count)
    if not found:
        return table, ()
    remedy = f"say --use {shlex.quote(found[0])} if it is a feature."
    if counts.all() and not others:
        raise DataError(f"File '{table.path}' has no features: {listed(found)} only counts the rows; {remedy}")
    warnings.warn(f"{listed(found)} of '{table.path}' only counts the rows and is left out; {remedy}", stacklevel=3)
    kept = tuple(name for name in names if name not in found)
    return replace(table, x=table.x[:, ~counts], feature_names=kept), found


def no_rows(path: Path) -> DataError:
    """The error for a table without rows."""
    return DataError(f"File '{path}' has no rows; add at least one sample.")


def rows_differ(path: Path, expected: int, read: int) -> DataError:
    """The error for a reader that returns a number of rows other than the file's."""
    return DataError(f"File '{path}' has {expected} rows, and {read} came out when it was read; write it again.")


def unknown_name(path: Path, kind: str, name: str, known: Sequence[str], remedy: str = "") -> DataError:
    """The error for a name that is not in the file, with the nearest one that is, if there is a similar one."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=_ALIKE)
    hint = f"did you mean {lower[close[0]]!r}? It has" if close else "it has"
    return DataError(f"File '{path}' has no {kind} {name!r}; {hint} {listed(known)}. {remedy}".rstrip())


def _check_names(path: Path, names: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for position, name in enumerate(names):
        if "\0" in name:
            raise DataError(f"File '{path}': the name of column {position + 1} holds a NUL character; rename it.")
        first = seen.setdefault(name, position)
        # Several columns may lack a name: they can only be dropped, so that they are never confused.
        if first != position and name:
            both = f"columns {first + 1} and {position + 1}"
            raise DataError(f"File '{path}': {both} are both named {name!r}; rename one.")


def _other_columns(path: Path, names: Sequence[str], taken: set[str]) -> tuple[int, ...]:
    features = tuple(position for position, name in enumerate(names) if name not in taken)
    unnamed = next((position for position in features if not names[position]), None)
    if unnamed is not None:
        # A column without a name is most often a data frame's index; it must not be learned from by accident.
        remedy = "name it, or drop it with --drop '' (pandas writes its index so; use index=False)"
        raise DataError(f"File '{path}': column {unnamed + 1} has no name; {remedy}.")
    if not features:
        raise DataError(f"File '{path}' has no features beside labels, ids and dropped columns: {listed(names)}.")
    return features


def _trained_features(path: Path, names: Sequence[str], features: Sequence[str]) -> tuple[int, ...]:
    position = {name: index for index, name in enumerate(names)}
    missing = [name for name in features if name not in position]
    if missing:
        lacks = f"{len(missing)} of the {len(features)} feature columns that the model was trained on"
        raise DataError(f"File '{path}' lacks {lacks}: {listed(missing)}; add them. It has {listed(names)}.")
    return tuple(position[name] for name in features)


def _counts(column: Array) -> bool:
    rows, first, last = len(column), float(column.min()), float(column.max())
    largest = max(abs(first), abs(last))
    rounds = column.dtype == np.float32 and largest > _EXACT
    rounding = float(np.spacing(np.float32(largest))) if rounds else 0.0
    # The smallest and the largest value rule out most columns; a count that rounding hides is not searched for.
    if rows < _LEAST_ROWS or not first.is_integer() or abs(last - first - rows + 1) > rounding or 4 * rounding > rows:
        return False
    return bool((np.abs(np.sort(column) - (first + np.arange(rows))) <= rounding).all())
