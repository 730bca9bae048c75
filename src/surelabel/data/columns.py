"""Columns of a table that are not all plain numbers: what is learned from them, and how cells become features.

What is learned from a column, such as its median or its categories, is in settings, which a run keeps. Labels are not
used for it. How a column is used is decided in `surelabel.data.recognition`.
"""

import datetime
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field, FiniteFloat

from surelabel.base.settings import Settings
from surelabel.base.text import shown
from surelabel.data._values import GAPS, Place, class_name
from surelabel.data.encoding import NUMBER

Floats: TypeAlias = npt.NDArray[np.float32]
Use = Literal["number", "category", "date", "text"]
USES: tuple[Use, ...] = get_args(Use)
"""The values of `--use COLUMN=...`; a boolean is only recognized, or used as a category."""

MOST_CATEGORIES = 100
"""The most categories of a column; less frequent ones become one category, "other"."""
_LEAST_OFTEN = 2
"""Rarer categories are "other" too."""
_YES_AND_NO = (("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"), ("on", "off"))
_DATE = re.compile(r"[0-9]{4}([-/])[0-9]{1,2}\1[0-9]{1,2}([T ].+)?")
_WANTED_DATE = "a date with the year first, such as 2024-02-29"
_EPOCH = datetime.datetime(1970, 1, 1)


class Words(NamedTuple):
    """The cells of a column as text, each distinct one once.

    Attributes:
        place: the file and the column.
        texts: the distinct cells; None is a gap.
        codes: the index of each row's text, (N,).
    """

    place: Place
    texts: Sequence[str | None]
    codes: npt.NDArray[np.integer[Any]]

    @classmethod
    def of(cls, place: Place, cells: Sequence[str | None], codes: npt.NDArray[np.integer[Any]]) -> Self:
        """Return cells without the spaces around them, and with None for marks of gaps."""
        stripped = [None if cell is None or cell.strip().lower() in GAPS else cell.strip() for cell in cells]
        place_of: dict[str | None, int] = {}
        joined = np.array([place_of.setdefault(cell, len(place_of)) for cell in stripped], dtype=np.int64)
        return cls(place, list(place_of), joined[codes])

    def counts(self) -> dict[str, int]:
        """Return how many rows have each distinct cell, gaps left out; the most frequent first."""
        numbers = np.bincount(self.codes, minlength=len(self.texts)).tolist()
        counts = [(text, number) for text, number in zip(self.texts, numbers, strict=True) if text is not None]
        return dict(sorted(counts, key=lambda pair: (-pair[1], pair[0])))

    def numbers(self, meaning: Mapping[str, float], wanted: str, *, new: bool = False) -> npt.NDArray[np.float64]:
        """Return the value of each row's cell, (N,), NaN for gaps; refuse a cell without one.

        Args:
            meaning: the value of each text.
            wanted: what an error says that a cell should be.
            new: whether the column's use is already settled.
        """
        remedy = "correct it, or leave the cell empty" if new else f"correct it{_or_category(self.place)}"
        values = np.full(len(self.texts), math.nan)
        for code, text in enumerate(self.texts):
            if text is None:
                continue
            if text not in meaning:
                row = int(np.argmax(self.codes == code))
                raise self.place.problem(row, f"{shown(text)} is not {wanted}; {remedy}.")
            values[code] = meaning[text]
        return np.asarray(values[self.codes])


class Column(Settings, ABC):
    """A column of a table, how it is used, and what was learned from it.

    Attributes:
        name: of the column.
        gaps: whether some cells were empty; a feature then marks them.
    """

    plural: ClassVar[str]
    name: str
    gaps: bool = False

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """The names of its features."""

    @abstractmethod
    def encode(self, cells: Any) -> Floats:
        """Return the features of cells, shape (N, F)."""

    @property
    def shares_scale(self) -> bool:
        """Whether its features must be scaled alike, because their sizes are compared with each other."""
        return False

    @property
    def note(self) -> str:
        """A note to print after the column's name."""
        return "gaps" if self.gaps else ""


class NumberColumn(Column):
    """Numbers as they are; a gap becomes the median, and 1 in a second feature if the column had gaps.

    >>> NumberColumn(name="age", median=30, gaps=True).encode(np.array([7, np.nan])).tolist()
    [[7.0, 0.0], [30.0, 1.0]]
    """

    plural = "numbers"
    use: Literal["number"] = "number"
    median: FiniteFloat = 0.0

    @property
    def features(self) -> tuple[str, ...]:
        """The column, and whether it is a gap."""
        return (self.name, f"{self.name} is empty") if self.gaps else (self.name,)

    def encode(self, cells: npt.NDArray[np.floating[Any]]) -> Floats:
        """Return the features of numbers (N,), NaN where missing."""
        empty = np.isnan(cells)
        filled = np.where(empty, self.median, cells)
        return np.stack([filled, empty][: 1 + self.gaps], axis=1).astype(np.float32)

    @classmethod
    def learn(cls, name: str, cells: npt.NDArray[np.floating[Any]]) -> Self:
        """Return the column for numbers (N,), NaN where missing."""
        empty = np.isnan(cells)
        return cls(name=name, gaps=bool(empty.any()), median=float(np.median(cells[~empty])))


class BooleanColumn(Column):
    """Yes and no as 1 and 0; a gap becomes the more frequent one, and 1 in a second feature if the column had gaps."""

    plural = "booleans"
    use: Literal["boolean"] = "boolean"
    usual: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """The column, and whether it is a gap."""
        return self._as_number().features

    def encode(self, cells: Words) -> Floats:
        """Return the features of words for yes and no, in any of the known pairs and any capitals."""
        known = {word: float(place == 0) for pair in (*_YES_AND_NO, ("1", "0")) for place, word in enumerate(pair)}
        meaning = {text: known[text.lower()] for text in cells.texts if text and text.lower() in known}
        return self._as_number().encode(cells.numbers(meaning, "yes or no", new=True))

    @classmethod
    def learn(cls, name: str, cells: Words) -> Self:
        """Return the column for words for yes and no."""
        numbers = cells.numbers(yes_and_no(cells.texts), "yes or no")
        number = NumberColumn.learn(name, numbers)
        return cls(name=name, gaps=number.gaps, usual=number.median >= 0.5)

    def _as_number(self) -> NumberColumn:
        return NumberColumn(name=self.name, gaps=self.gaps, median=float(self.usual))


class CategoryColumn(Column):
    """A feature of 0 and 1 for each category, and one each for rare ones and for gaps, if there were any.

    A new category counts as a rare one; if there were no rare ones, all its features are 0.

    Attributes:
        categories: the more frequent ones.
        other: whether there are rare ones.
        whole: whether whole numbers lose their fraction, as classes do, so that 3 and 3.0 are one category; not in
            older runs.

    >>> from pathlib import Path
    >>> cells = Words.of(Place(Path("t.csv"), "pet"), ["cat", "newt"], np.array([0, 1]))
    >>> CategoryColumn(name="pet", categories=("cat", "dog")).encode(cells).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """

    plural = "categories"
    use: Literal["category"] = "category"
    categories: tuple[str, ...]
    other: bool = False
    whole: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """One for each category."""
        names = [f"{self.name} = {category}" for category in self.categories]
        extra = [(self.other, f"{self.name} is another"), (self.gaps, f"{self.name} is empty")]
        return (*names, *(name for there, name in extra if there))

    @property
    def shares_scale(self) -> bool:
        """A rare category must not weigh more than a frequent one."""
        return True

    @property
    def note(self) -> str:
        """How many categories there are."""
        others = " and others" if self.other else ""
        return f"{len(self.categories)}{others}{', gaps' if self.gaps else ''}"

    def encode(self, cells: Words) -> Floats:
        """Return the features of cells."""
        width, place_of = len(self.features), self._finder()
        of_text = np.zeros((len(cells.texts), width), dtype=np.float32)
        for code, text in enumerate(cells.texts):
            if text is None:
                of_text[code, width - 1] = self.gaps
            elif (place := place_of(text)) is not None:
                of_text[code, place] = 1
            elif self.other:
                of_text[code, len(self.categories)] = 1
        return np.asarray(of_text[cells.codes])

    def warn_of_new(self, cells: Words) -> None:
        """Warn if most cells are categories that were not learned, and there is no feature for rare ones."""
        place_of, counts = self._finder(), cells.counts()
        new = [text for text in counts if place_of(text) is None]
        if not self.other and 2 * sum(counts[text] for text in new) > len(cells.codes):
            found = f"most cells of {self.name!r} in '{cells.place.path}' are new categories, such as {shown(new[0])}"
            warnings.warn(f"{found}; the model ignores them. Write them as in the run's file.", stacklevel=3)

    def _finder(self) -> Callable[[str], int | None]:
        """Return what finds the place of a category; a new one has none."""
        known = {name: place for place, name in enumerate(self.categories)}
        return lambda text: known.get(class_name(text) if self.whole else text)

    @classmethod
    def learn(cls, name: str, cells: Words) -> Self:
        """Return the column with its categories: those in at least two rows, if there are any."""
        # Made again, so that cells of one name are counted together.
        names = [text and class_name(text) for text in cells.texts]
        counts = Words.of(cells.place, names, cells.codes).counts()
        often = [text for text, number in counts.items() if number >= _LEAST_OFTEN] or list(counts)
        kept = tuple(often[:MOST_CATEGORIES])
        return cls(name=name, gaps=None in cells.texts, categories=kept, other=len(kept) < len(counts), whole=True)


class DateColumn(Column):
    """Days since the first date; season, day of the week and, if there are times, time of day as points on a circle.

    A gap becomes the median, the middle of each circle, and 1 in a last feature if the column had gaps.

    Attributes:
        first: the first date, in days since 1970.
        median: in days since the first.
        times: whether some dates have a time of day.
    """

    plural = "dates"
    use: Literal["date"] = "date"
    first: FiniteFloat
    median: FiniteFloat
    times: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """Days, and two for each circle."""
        circles = ["season", "weekday", *(["time of day"] if self.times else [])]
        names = [f"{self.name}: {circle} ({part})" for circle in circles for part in ("cosine", "sine")]
        return (f"{self.name}: days", *names, *([f"{self.name} is empty"] if self.gaps else []))

    def encode(self, cells: Words) -> Floats:
        """Return the features of dates."""
        days = cells.numbers(days_of(cells.texts), _WANTED_DATE, new=True)
        empty = np.isnan(days)
        # 1970 began on a Thursday; months differ little from thirtieths of a year.
        circles = [days / 365.2425, (np.floor(days) + 3) / 7, *([days] if self.times else [])]
        points = [np.where(empty, 0, turn(2 * np.pi * part)) for part in circles for turn in (np.cos, np.sin)]
        elapsed = np.where(empty, self.median, days - self.first)
        return np.stack([elapsed, *points, *([empty] if self.gaps else [])], axis=1).astype(np.float32)

    @classmethod
    def learn(cls, name: str, cells: Words) -> Self:
        """Return the column for dates."""
        days = cells.numbers(days_of(cells.texts), _WANTED_DATE)
        there = days[~np.isnan(days)]
        first, times = float(there.min()), bool((there % 1 != 0).any())
        gaps = len(there) < len(days)
        return cls(name=name, gaps=gaps, first=first, median=float(np.median(there)) - first, times=times)


class TextColumn(Column):
    """Numbers that say what a text is about, by `surelabel.data.texts` or by backbones.

    Attributes:
        width: how many.
    """

    plural = "texts"
    use: Literal["text"] = "text"
    width: int = Field(ge=1, le=10**6)

    @property
    def features(self) -> tuple[str, ...]:
        """One for each direction."""
        return tuple(f"{self.name}: {number}" for number in range(self.width))

    @property
    def shares_scale(self) -> bool:
        """Directions in which texts differ little must not weigh as much as those in which they differ most."""
        return True

    def encode(self, cells: Any) -> Floats:
        """Return the features that the model of the column's texts makes; `surelabel.data.table_encoding` has it."""
        return np.asarray(cells, dtype=np.float32)


AnyColumn = Annotated[
    NumberColumn | BooleanColumn | CategoryColumn | DateColumn | TextColumn, Field(discriminator="use")
]


def number_texts(texts: Sequence[str | None]) -> dict[str, float]:
    """Return the numbers of those texts that are numbers."""
    return {text: float(text) for text in texts if text is not None and NUMBER.fullmatch(text.lower())}


def _or_category(place: Place) -> str:
    return f", say --use {place.quoted}=category, or {place.drop()}"


def yes_and_no(texts: Sequence[str | None]) -> dict[str, float]:
    """Return 1 and 0 for texts that are yes and no; nothing if they are not a single pair."""
    words = {text: text.lower() for text in texts if text is not None}
    for yes, no in _YES_AND_NO:
        if set(words.values()) <= {yes, no}:
            return {text: float(word == yes) for text, word in words.items()}
    return {}


def days_of(texts: Sequence[str | None]) -> dict[str, float]:
    """Return the days since 1970, with their fraction, of texts that are dates."""
    return {text: days for text in texts if text is not None and (days := _day(text)) is not None}


def _day(text: str) -> float | None:
    if not _DATE.fullmatch(text):
        return None
    date, _, time = text.replace("/", "-").replace("T", " ").partition(" ")
    padded = "-".join(part.zfill(2) for part in date.split("-"))
    try:
        moment = datetime.datetime.fromisoformat(f"{padded} {time.strip()}".strip())
        if moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return (moment - _EPOCH) / datetime.timedelta(days=1)
