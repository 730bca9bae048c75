"""How a column of a table is used, decided by all of its cells, gaps left out, by the first of these rules that fits.

1. Numbers alone are a number; two words for yes and no, a boolean; dates with the year first, a date.
2. Where nine of ten are numbers, or dates, the others are refused as mistakes.
3. Where at least half of the cells differ, they are a text if most have three words or more; else the column names the
   rows and is left out.
4. Anything else is a category.
"""

import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from surelabel.base.text import listed
from surelabel.data._table import unknown_name
from surelabel.data.columns import USES, Use, Words, days_of, number_texts, yes_and_no
from surelabel.errors import DataError

_MOSTLY = 0.9
_WORDS_OF_A_TEXT = 3
_LEAST_ROWS = 10
"""In fewer rows, cells that all differ may still be categories."""


def recognized(cells: Words, *, texts: bool = False) -> Use | Literal["boolean"] | None:
    """Return how a column of words is used, by the rules above; None: it names the rows.

    Args:
        cells: of the column.
        texts: what would be a category or name the rows is a text.
    """
    counts = cells.counts()
    rows = sum(counts.values())
    if not rows:
        return None
    if len(number_texts(cells.texts)) == len(counts):
        return "number"
    if len(yes_and_no(cells.texts)) == len(counts):
        return "boolean"
    if len(days_of(cells.texts)) == len(counts):
        return "date"
    if texts:
        return "text"
    _refuse_mistakes(cells, counts)
    if rows < _LEAST_ROWS or 2 * len(counts) < rows:
        return "category"
    return "text" if guessed(cells) == "text" else None


def guessed(cells: Words) -> Literal["text", "category"]:
    """Return whether cells are rather texts, of three words or more, or categories."""
    texts = list(cells.counts())
    wordy = sum(len(text.split()) >= _WORDS_OF_A_TEXT for text in texts)
    return "text" if 2 * wordy >= len(texts) else "category"


def overruled(path: Path, use: Sequence[str], names: Sequence[str]) -> dict[str, Use | None]:
    """Return what `--use COLUMN` and `--use COLUMN=category` say of columns; None: it is a feature, of whatever use.

    >>> overruled(Path("t.csv"), ["zip=category", "day"], ["zip", "day"])
    {'zip': 'category', 'day': None}
    """
    found: dict[str, Use | None] = {}
    for text in use:
        name, _, how = text.rpartition("=")
        if text in names:
            found[text] = None
        elif name in names and how in USES:
            found[name] = how
        else:
            if name in names:
                wanted = f"--use {shlex.quote(f'{name}=')} must end in one of {', '.join(USES)}"
                raise DataError(f"File '{path}': {wanted}; got {how!r}.")
            raise unknown_name(path, "feature column", name if how in USES else text, names)
    return found


def warn_of_unused(path: Path, names: Sequence[str], empty: Sequence[str]) -> None:
    """Warn of columns that are left out because they name the rows, or are empty."""
    if empty:
        warnings.warn(f"{listed(empty)} of '{path}' is empty from top to bottom and is left out.", stacklevel=4)
    if names:
        found = f"{listed(names)} of '{path}' differs in most rows and is left out"
        example = shlex.quote(names[0])
        warnings.warn(f"{found}; say --use {example}=category or --use {example}=text if it matters.", stacklevel=4)


def _refuse_mistakes(cells: Words, counts: Mapping[str, int]) -> None:
    """Refuse a few words among numbers, or among dates: they are mistakes rather than categories."""
    rows = sum(counts.values())
    tests = {
        "a number": number_texts(cells.texts),
        "a date with the year first": days_of(cells.texts),
    }
    for wanted, right in tests.items():
        if sum(counts[text] for text in right) >= _MOSTLY * rows:
            cells.numbers(right, f"{wanted}, as nearly all cells of this column are")
