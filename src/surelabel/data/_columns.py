"""Which columns are features, labels and ids, and the one-line errors that name a file, column and row."""

import difflib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surelabel.base.text import listed, shown
from surelabel.errors import DataError, InvalidInputError


@dataclass(frozen=True)
class Request:
    """What the caller asks of a table; `features` is None when every other column is a feature.

    With `labels_if_there` the labels are left out where the file lacks one of their columns.
    """

    labels: tuple[str, ...]
    id_column: str | None
    drop: tuple[str, ...]
    unlabeled: str | None
    features: tuple[str, ...] | None
    separator: str | None = None
    none: str | None = None
    labels_if_there: bool = False


@dataclass(frozen=True)
class Columns:
    """Positions in the file of the columns to read; `names` are those of all columns.

    `trained` says that the features are those of a trained model, so that none can be dropped.
    """

    names: tuple[str, ...]
    features: tuple[int, ...]
    labels: tuple[int, ...]
    id: int | None
    trained: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order of x's columns."""
        return tuple(self.names[position] for position in self.features)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the label columns, in the order asked for."""
        return tuple(self.names[position] for position in self.labels)

    @property
    def used(self) -> tuple[int, ...]:
        """Positions of the features, then of the labels, then of the id."""
        return self.features + self.labels + (() if self.id is None else (self.id,))


def choose_columns(path: Path, names: Sequence[str], request: Request) -> Columns:
    """Return which columns play which part; every column that is not named for another part is a feature."""
    _check_names(path, names)
    wanted = () if request.labels_if_there and not set(request.labels) <= set(names) else request.labels
    labels = tuple(_find(path, names, name, "label") for name in wanted)
    id_position = None if request.id_column is None else _find(path, names, request.id_column, "id")
    special = [*labels, *([] if id_position is None else [id_position])]
    if request.features is not None:
        features = _trained_features(path, names, request.features)
        _check_one_part_each(path, names, [*special, *features])
    else:
        dropped = [_find(path, names, name, "drop") for name in request.drop]
        _check_one_part_each(path, names, [*special, *dropped])
        features = _remaining_features(path, names, request.drop, special)
    return Columns(tuple(names), features, labels, id_position, request.features is not None)


def check_names(argument: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return column names as a tuple; a lone string would be taken apart into letters, so it is refused."""
    if isinstance(names, str):
        raise InvalidInputError(
            f"The '{argument}' argument must be a list of column names. Got the string {names!r} instead; "
            f"write [{names!r}]."
        )
    return tuple(names)


def check_separator(labels: Sequence[str], separator: str | None, none: str | None, unlabeled: str | None) -> None:
    """Refuse a separator, or a mark of none of the classes, that could not be told from something else."""
    if separator is None:
        if none is not None:
            raise InvalidInputError(f"A mark of none of the classes ({none!r}) needs a separator; give one too.")
        return
    if not separator:
        raise InvalidInputError("The separator between several labels in a cell is empty; give one, such as '|'.")
    if len(labels) > 1:
        raise InvalidInputError(
            f"A separator ({separator!r}) is for one label column that holds several labels a cell. Got "
            f"{len(labels)} label columns instead; leave the separator out, or name one column."
        )
    if not separator.strip() and none is None:
        raise InvalidInputError(
            f"The separator {separator!r} is blank, and so is a cell without labels, which is unlabeled; say with a "
            "mark (none, --none) which cells mean none of the classes."
        )
    if none is not None and (not none.strip() or separator in none or none.strip() == (unlabeled or "").strip()):
        raise InvalidInputError(
            f"The mark of none of the classes must not be empty, hold the separator or mean unlabeled. Got {none!r} "
            "instead; choose another."
        )


def not_a_number(path: Path, name: str, row: int, value: object, *, droppable: bool, kind: object = None) -> DataError:
    """The error for a feature cell that is not a number.

    Args:
        path: the file.
        name: the column.
        row: its number, counted from 1.
        value: the cell's.
        droppable: whether the column may be left out; a trained model needs all of its features.
        kind: the type of the whole column, where it has one.
    """
    remedy = (
        f"{_drop(name)} or encode it as numbers" if droppable else "the model needs this column: encode it as numbers"
    )
    of_type = "" if kind is None else f" (its type is {kind})"
    return DataError(f"{_place(path, name, row)}: {shown(value)} is not a number{of_type}; {remedy}.")


def not_finite(path: Path, name: str, row: int, value: float, *, droppable: bool) -> DataError:
    """The error for a feature cell that is empty, NaN or infinite; the arguments are those of `not_a_number`."""
    problem, remedy = (
        ("the cell is empty or NaN", "fill it in")
        if value != value
        else ("the value is infinite or too large for 32 bits (3.4e38)", "correct it")
    )
    return DataError(
        f"{_place(path, name, row)}: {problem}; {remedy} or {_drop(name) if droppable else 'leave the row out'}."
    )


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


def _find(path: Path, names: Sequence[str], name: str, part: str) -> int:
    if name not in names:
        raise unknown_name(path, f"{part} column" if part != "drop" else "column to drop", name, names)
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
    seen: set[int] = set()
    for position in positions:
        if position in seen:
            raise DataError(
                f"File '{path}': column {names[position]!r} is named more than once among the label, id, "
                "feature and dropped columns; name it once."
            )
        seen.add(position)


def _remaining_features(
    path: Path, names: Sequence[str], drop: Sequence[str], special: Sequence[int]
) -> tuple[int, ...]:
    taken = set(special) | {position for position, name in enumerate(names) if name in drop}
    features = tuple(position for position in range(len(names)) if position not in taken)
    unnamed = next((position for position in features if not names[position]), None)
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


def _place(path: Path, name: str, row: int) -> str:
    return f"File '{path}', column {name!r}, row {row}"
