"""Several labels a sample, written back in the form that the run's own table has them in."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surelabel.cli._errors import WrongUse
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.runs import RunSettings

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
    separator, none = _marks(settings)
    if separator is None:
        return {class_name: present[:, code].astype("int8") for code, class_name in enumerate(settings.classes)}
    # An empty cell would mean unlabeled.
    return {name: [cell or none or separator for cell in name_cells(present, settings)]}


def name_cells(marked: Any, settings: "RunSettings") -> list[str]:
    """Return the names of each row's marked classes, shape (N, C), in one cell; empty without one."""
    separator, _ = _marks(settings)
    names = settings.classes
    if separator is None:
        separator, names = "|", tuple(name.replace("|", r"\|") for name in names)
    return [separator.join(names[code] for code in row.nonzero()[0]) for row in marked]


def together(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns side by side; refuse a class that is called as another column is."""
    names: Sequence[str] = [name for part in parts for name in part]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"The class {twice!r} is called as another column is; write a row for each with --entries.")
    return {name: values for part in parts for name, values in part.items()}


def _marks(settings: "RunSettings") -> tuple[str | None, str | None]:
    from surelabel.data.reference import TableData

    data = settings.data
    return (data.separator, data.none) if isinstance(data, TableData) else (None, None)
