"""How a column of a table is used: the first of these rules that fits all of its cells, without gaps.

1. Only numbers are a number; two words for yes and no, a boolean; dates with the year first, a date.
2. If nine of ten are numbers, or dates, the others are refused as mistakes.
3. If at least half of the cells differ, they are texts if most have three words or more; else the column names the rows
   and is left out.
4. Anything else is a category.

Numbers and dates in other forms (`1,234.5 €`, `12,5`, `31.12.2024`) count as words, with a warning.
"""

import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from surelabel.base.text import listed, shown
from surelabel.data._table import unknown_name
from surelabel.data.columns import USES, Use, Words, days_of, number_texts, yes_and_no
from surelabel.errors import DataError

_MOSTLY = 0.9
_WORDS_OF_A_TEXT = 3
_LEAST_ROWS = 10
"""In fewer rows, cells that all differ may still be categories."""
_NUMBER_LIKE = re.compile(
    r"[^\w\s]{0,2}\s?(\d{1,3}([ .,'’]\d{3})+|\d+)([.,]\d+)?\s?(?P<unit>[^\w\s]{0,2}|[^\W\d_]{1,3})"
)
"""Perhaps a number, with a sign or a unit, a decimal comma or marks between thousands."""
_DATE_LIKE = re.compile(r"\d{1,2}([./-])\d{1,2}\1(\d{4}|\d{2})(?P<unit>)([ T,].*)?")
"""Perhaps a date, with the year last."""


def recognized(cells: Words, *, texts: bool = False) -> Use | Literal["boolean"] | None:
    """Return how a column of words is used, by the rules above; None: it names the rows.

    Args:
        cells: of the column.
        texts: use as texts what would be a category or names of rows.
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
    """Guess whether cells are texts, of three words or more, or categories."""
    texts = list(cells.counts())
    wordy = sum(len(text.split()) >= _WORDS_OF_A_TEXT for text in texts)
    return "text" if 2 * wordy >= len(texts) else "category"


def resembled(cells: Words) -> Literal["numbers", "dates"] | None:
    """Return "numbers" or "dates" if nearly all cells look like these in another form; None: words.

    >>> import numpy as np
    >>> from surelabel.data._values import Place
    >>> prices = [f"{euros},50 €" for euros in range(10)]
    >>> resembled(Words.of(Place(Path("t.csv"), "price"), prices, np.arange(10)))
    'numbers'
    """
    counts = cells.counts()
    if len(counts) < _LEAST_ROWS:  # as categories the column is just as useful
        return None
    forms: dict[Literal["numbers", "dates"], re.Pattern[str]] = {"numbers": _NUMBER_LIKE, "dates": _DATE_LIKE}
    for what, form in forms.items():
        found = {text: match["unit"] for text in counts if (match := form.fullmatch(text))}
        units = {unit for unit in found.values() if unit.isalpha()}
        if sum(counts[text] for text in found) >= _MOSTLY * sum(counts.values()) and len(units) < 2:
            return what
    return None


def overruled(path: Path, use: Sequence[str], names: Sequence[str]) -> dict[str, Use | None]:
    """Return how `--use COLUMN` and `--use COLUMN=category` use columns; None: as a feature of any type.

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
    """Warn about columns that are left out because they name the rows, or are empty."""
    if empty:
        verb = "are" if len(empty) > 1 else "is"
        warnings.warn(f"{listed(empty)} of '{path}' {verb} empty from top to bottom and {verb} left out.", stacklevel=4)
    if names:
        verbs = "differ in most rows and are" if len(names) > 1 else "differs in most rows and is"
        example = shlex.quote(names[0])
        remedy = f"say --use {example}=category or --use {example}=text if that matters"
        warnings.warn(f"{listed(names)} of '{path}' {verbs} left out; {remedy}.", stacklevel=4)


def warn_of_forms(path: Path, uses: Mapping[str, tuple[Words, str | None]]) -> list[str]:
    """Warn about columns of words that look like numbers or dates, and return their names; None: they are left out."""
    forms = {"numbers": "plain numbers, such as 1234.5", "dates": "the year first, such as 2024-12-31"}
    found = []
    for name, (cells, use) in uses.items():
        if (what := resembled(cells)) is None:
            continue
        found.append(name)
        taken = "left out" if use is None else f"used as {'texts' if use == 'text' else 'categories'}"
        example = shown(next(iter(cells.counts())))
        remedy = f"write {forms[what]}, or say --use {shlex.quote(name)}=category if that is right"
        warnings.warn(f"{name!r} of '{path}' looks like {what} ({example}) and is {taken}; {remedy}.", stacklevel=4)
    return found


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
