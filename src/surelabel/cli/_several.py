"""Several labels a sample, written back in the form that the run's own table has them in."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surelabel.cli._errors import WrongUse
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.settings import RunSettings

Entries = Annotated[
    bool,
    typer.Option(
        "--entries",
        help="With several labels a sample: a row for each sample and class, with all that is known of it.",
    ),
]


def check_entries(entries: bool, settings: "RunSettings") -> None:
    """Refuse --entries where a sample has one label."""
    if entries and settings.config.task == "single":
        raise WrongUse("--entries has no effect: the run has one label a sample; leave it out.")


def present_columns(name: str, present: Any, settings: "RunSettings") -> dict[str, Any]:
    """Return the classes that are present: in one column of cells if the run's table has such, else one for each class.

    Args:
        name: of the one column.
        present: whether a class is there, boolean, shape (N, C).
        settings: the run's.
    """
    if _marks(settings)[0] is None:
        return {class_name: present[:, code].astype("int8") for code, class_name in enumerate(settings.classes)}
    return {name: [_labels_text(_marked(row, settings), settings) for row in present]}


def given_column(y: Any, settings: "RunSettings", entries: bool) -> dict[str, Any]:
    r"""Return the labels that a file has itself as the column `given`, empty where it has none; nothing without labels.

    A cell has the form that `read_table` reads: "cat|?dog" where it is unknown whether there is a dog. The names of
    columns may be such that no cell can hold them: | in them, and ? before them, are written \| and \?.

    Args:
        y: as `read_table` gives them: a class, a tuple of classes or None for each row, (N,); or 1, 0 and -1, (N, C).
        settings: the run's.
        entries: whether each sample and class has a row.
    """
    if y is None:
        return {}
    if entries:
        rows = y.tolist() if y.ndim == 2 else [_entries(label, settings.classes) for label in y]
        return {"given": [None if code < 0 else code for row in rows for code in row]}
    labels = y if y.ndim == 1 else [_named(codes, settings.classes) for codes in y.tolist()]
    nothing = set(_named([-1] * len(settings.classes), settings.classes))
    known = [None if isinstance(label, tuple) and set(label) == nothing else label for label in labels]
    return {"given": [_labels_text(label, settings) if isinstance(label, tuple) else label for label in known]}


def name_cells(marked: Any, settings: "RunSettings") -> list[str]:
    """Return the names of each row's marked classes, shape (N, C), in one cell; empty without one."""
    return [_joined(_marked(row, settings), settings) for row in marked]


def together(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns side by side; refuse a class that is called as another column is."""
    names: Sequence[str] = [name for part in parts for name in part]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"The class {twice!r} is called as another column is; write a row for each with --entries.")
    return {name: values for part in parts for name, values in part.items()}


def _entries(label: str | tuple[str, ...] | None, classes: Sequence[str]) -> list[int]:
    """Return what a row's label says of each class: 1, 0 or -1 (unknown)."""
    from surelabel.data._cells import stated

    found = {label: 1} if isinstance(label, str) else stated(label or ())
    # Of a row with a class that the run does not know, nothing is said.
    known = label is not None and set(found) <= set(classes)
    return [found.get(name, 0) if known else -1 for name in classes]


def _named(codes: Sequence[int], classes: Sequence[str]) -> tuple[str, ...]:
    """Return the names that say of each class what its code does: 1, 0 or -1 (unknown)."""
    from surelabel.data._cells import UNKNOWN

    names = [f"\\{name}" if name.startswith(UNKNOWN) else name for name in classes]
    return tuple((UNKNOWN if code < 0 else "") + name for name, code in zip(names, codes, strict=True) if code)


def _marked(row: Any, settings: "RunSettings") -> list[str]:
    return [settings.classes[code] for code in row.nonzero()[0]]


def _joined(names: Sequence[str], settings: "RunSettings") -> str:
    separator, _ = _marks(settings)
    return "|".join(name.replace("|", r"\|") for name in names) if separator is None else separator.join(names)


def _labels_text(names: Sequence[str], settings: "RunSettings") -> str:
    """Return names in a cell; none of them are a mark, as an empty cell would mean unlabeled."""
    separator, none = _marks(settings)
    return _joined(names, settings) or none or separator or "|"


def _marks(settings: "RunSettings") -> tuple[str | None, str | None]:
    from surelabel.data.run_data import TableData

    data = settings.data
    return (data.separator, data.none) if isinstance(data, TableData) else (None, None)
