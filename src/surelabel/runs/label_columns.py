"""The columns of a table of labels, as `surelabel label` writes them.

Several labels per sample have the form of the run's own table.
"""

from collections.abc import Sequence
from typing import Any

from surelabel.data.pool import PoolLabels
from surelabel.errors import DataError
from surelabel.runs.tables import to_tables
from surelabel.settings import RunSettings

_OF_ENTRIES = ("id", "class", "label", "confidence", "uncertainty", "selected")


def label_columns(pool: PoolLabels, settings: RunSettings, entries: bool = False) -> dict[str, Any]:
    """Return the columns of the table of labels.

    Args:
        pool: the samples as labeled by the run's network.
        settings: the run's.
        entries: with several labels per sample, whether each sample and class has a row.
    """
    multi = settings.config.task == "multi"
    if multi and not entries:
        labels = present_columns("label", pool.label == 1, settings)
        parts = zip(("selected", "ruled_out"), pool.selection, strict=True)
        selected = {name: name_cells(part, settings) for name, part in parts}
        return together({"id": pool.ids}, labels, selected)
    table, _ = to_tables(pool, settings.classes)
    columns = {name: table[name].combine_chunks() for name in _OF_ENTRIES if name in table.column_names}
    return columns if multi else {**columns, "ruled_out": name_cells(pool.selection.negative, settings)}


def together(*parts: dict[str, Any]) -> dict[str, Any]:
    """Return columns side by side; refuse a class with the name of another column."""
    columns: dict[str, Any] = {}
    for part in parts:
        twice = sorted(part.keys() & columns.keys())
        if twice:
            raise DataError(f"The class {twice[0]!r} has the name of another column; give each a row with --entries.")
        columns |= part
    return columns


def present_columns(name: str, present: Any, settings: RunSettings) -> dict[str, Any]:
    """Return the present classes in the form of the run's table: one column of cells, or one column for each class.

    Args:
        name: of the single column.
        present: whether a class is present, boolean, shape (N, C).
        settings: the run's.
    """
    if marks(settings)[0] is None:
        return {class_name: present[:, code].astype("int8") for code, class_name in enumerate(settings.classes)}
    return {name: name_cells(present, settings, mark_none=True)}


def name_cells(marked: Any, settings: RunSettings, *, mark_none: bool = False) -> list[str]:
    """Return the names of each row's marked classes, shape (N, C), in one cell; `mark_none`: never empty."""
    rows = ([settings.classes[code] for code in row.nonzero()[0]] for row in marked)
    return [cell(names, settings, mark_none=mark_none) for names in rows]


def cell(names: Sequence[str], settings: RunSettings, *, mark_none: bool) -> str:
    """Return names in a cell; `mark_none`: if there are none, return a mark, as an empty cell would mean unlabeled."""
    separator, none = marks(settings)
    text = "|".join(name.replace("|", r"\|") for name in names) if separator is None else separator.join(names)
    return text or ((none or separator or "|") if mark_none else "")


def marks(settings: RunSettings) -> tuple[str | None, str | None]:
    """Return the separator of labels in a cell, and the label that means none; None if the run has no separator."""
    data = settings.data
    return getattr(data, "separator", None), getattr(data, "none", None)
