"""Columns that only count the rows (7, 8, 9, ...): a row's place in a file, not what is known of a sample.

They may be in any order, since the rows may have been shuffled after they were counted.
"""

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.base.text import listed
from surelabel.data._table import Table, unknown_name
from surelabel.errors import DataError

# In fewer rows a feature can look so by chance.
_LEAST_ROWS = 10
# Up to here 32 bits hold every whole number.
_EXACT = 1 << 24


def counting_columns(table: Table, use: Sequence[str]) -> tuple[str, ...]:
    """Return the features that only count the rows, but for those to use, and warn of them."""
    for name in use:
        if name not in table.feature_names:
            raise unknown_name(table.path, "feature column", name, table.feature_names)
    found = tuple(
        name for position, name in enumerate(table.feature_names) if name not in use and _counts(table.x[:, position])
    )
    if len(found) == len(table.feature_names) > 0:
        raise DataError(
            f"File '{table.path}' has no features: {listed(found)} only counts the rows; add some, or say --use "
            f"{shlex.quote(found[0])} if it is one."
        )
    if found:
        warnings.warn(
            f"{listed(found)} of '{table.path}' only counts the rows and is left out; say --use "
            f"{shlex.quote(found[0])} if it is a feature.",
            stacklevel=3,
        )
    return found


def without(table: Table, names: Sequence[str]) -> Table:
    """Return a table without some of its features."""
    kept = [position for position, name in enumerate(table.feature_names) if name not in names]
    return replace(table, x=table.x[:, kept], feature_names=tuple(table.feature_names[position] for position in kept))


def _counts(column: npt.NDArray[Any]) -> bool:
    rows, first, last = len(column), float(column.min()), float(column.max())
    largest = max(abs(first), abs(last))
    rounds = column.dtype == np.float32 and largest > _EXACT
    rounding = float(np.spacing(np.float32(largest))) if rounds else 0.0
    # Most columns are told by their least and largest value; rounding that hides the count says nothing.
    if rows < _LEAST_ROWS or not first.is_integer() or abs(last - first - rows + 1) > rounding or 4 * rounding > rows:
        return False
    return bool((np.abs(np.sort(column) - (first + np.arange(rows))) <= rounding).all())
