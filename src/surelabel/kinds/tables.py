"""Tables and texts in a file: their defaults, and the lines that tell how columns are used.

`surelabel.data` reads them: `recognition` decides how a column is used, `columns` and `texts` make its features.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from surelabel.base.defaults import KIND_DEFAULTS
from surelabel.base.text import shown
from surelabel.core.labels import Task
from surelabel.data.columns import AnyColumn, Column, TextColumn
from surelabel.data.table_encoding import blocks
from surelabel.kinds.kind import for_task

_SHOWN = 8


def defaults_for(columns: Sequence[AnyColumn], task: Task, *, of_backbones: bool) -> Mapping[str, Any]:
    """Return the defaults for a table, or for texts if it has a column of texts (docs/texts.md, docs/backbones.md).

    Backbones take texts, or pictures, which have no columns.
    """
    texts = any(isinstance(column, TextColumn) for column in columns)
    if of_backbones:
        return for_task(KIND_DEFAULTS[f"{'texts' if texts else 'pictures'} by backbones"], task)
    return for_task(KIND_DEFAULTS["texts"], task) if texts else {}


def linear_for(columns: Sequence[AnyColumn]) -> str:
    """Return the linear classifier that networks are compared with; for only texts, the one with a single scale."""
    texts = bool(columns) and all(isinstance(column, TextColumn) for column in columns)
    return f"surelabel.kinds.linear:{'LinearOnPixels' if texts else 'LinearOnTable'}"


def scaled_together(columns: Sequence[AnyColumn]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of features, (first, last + 1), that a network scales alike."""
    return blocks(columns)


def described(features: Sequence[str], learned: Mapping[str, Any]) -> list[str]:
    """Return a line for each way in which columns are used, with their names, shortened.

    Args:
        features: names of the features, which are the columns where these are plain numbers.
        learned: the settings that were learned from the table: "columns" and "drop".

    >>> described(["width", "height"], {"drop": ("row",)})
    ['Used as numbers: width, height.', 'Left out: row.']
    """
    columns: Sequence[Column] | None = learned.get("columns")
    if columns is None:
        uses = {"numbers": list(features)}
    else:
        uses = {}
        for column in columns:
            note = f" ({column.note})" if column.note else ""
            uses.setdefault(column.plural, []).append(f"{column.name}{note}")
    lines = [f"Used as {use}: {_listed(names)}." for use, names in uses.items()]
    return lines + ([f"Left out: {_listed(learned['drop'])}."] if learned.get("drop") else [])


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(shown(name, quote=False) for name in names[:_SHOWN])
    return text if len(names) <= _SHOWN else f"{text} and {len(names) - _SHOWN} more"
