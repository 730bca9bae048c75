"""Tables with words, dates and gaps become arrays of numbers, in the same way for a run and for new files."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np

from surelabel.base.text import listed
from surelabel.data import texts
from surelabel.data._table import Table, rows_differ, without_counts
from surelabel.data._values import Place
from surelabel.data.columns import (
    AnyColumn,
    BooleanColumn,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    TextColumn,
    Use,
    Words,
    number_texts,
)
from surelabel.data.recognition import guessed, overruled, recognized, warn_of_forms, warn_of_unused
from surelabel.data.tables import ARRAYS, read_table
from surelabel.errors import DataError

TEXTS = "texts.safetensors"
"""The file in a run's folder with what was learned from texts."""


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """How the columns of a table become features.

    Attributes:
        columns: in the order of the file that they were learned from.
        models: what was learned from texts, by column name.
    """

    columns: Sequence[AnyColumn]
    models: Mapping[str, texts.TextModel] = field(default_factory=dict)

    @classmethod
    def kept(cls, columns: Sequence[AnyColumn], data: bytes | None) -> Self:
        """Return the encoder of a run, from the columns in its settings and the content of its file of texts."""
        models = {} if data is None else texts.from_bytes(data)
        for column in columns:
            if isinstance(column, TextColumn) and (
                column.name not in models or models[column.name].directions.shape[1] != column.width
            ):
                raise DataError(
                    f"The run has nothing that it learned of the texts in {column.name!r}; restore its {TEXTS}."
                )
        return cls(columns, models)

    @property
    def files(self) -> dict[str, bytes]:
        """The files that a run keeps in addition to its settings, by name."""
        return {TEXTS: texts.to_bytes(self.models)} if self.models else {}

    def settings(self) -> dict[str, Any]:
        """Return what a run keeps in the settings of its data."""
        hashes = [sha256(content).hexdigest() for content in self.files.values()]
        return {"columns": tuple(self.columns), "texts_sha256": hashes[0] if hashes else None}

    def read(self, path: Path, **options: Any) -> Table:
        """Return the samples, labels and ids in a file; `options` as for `read_table`."""
        names = [column.name for column in self.columns]
        words = [column.name for column in self.columns if not isinstance(column, NumberColumn)]
        table = read_table(path, features=names, words=words, **options)
        if "part" not in options:
            for column in self.columns:
                if isinstance(column, CategoryColumn):
                    column.warn_of_new(words_of(table, column.name))
        return self.encode(table)

    def encode(self, table: Table) -> Table:
        """Return a table with the features of numbers in `x` and of the cells in `words`."""
        if all(isinstance(column, NumberColumn) and not column.gaps for column in self.columns):
            return self._filled(table)
        place = {name: number for number, name in enumerate(table.feature_names)}
        parts = [column.encode(self._cells(table, column, place)) for column in self.columns]
        names = tuple(name for column in self.columns for name in column.features)
        return dataclasses.replace(table, x=np.concatenate(parts, axis=1), feature_names=names, words={})

    def _filled(self, table: Table) -> Table:
        """Return a table of numbers unchanged, except that new gaps are filled in columns that had none."""
        gaps = np.isnan(table.x)
        if not gaps.any():
            return table
        medians = [column.median for column in self.columns if isinstance(column, NumberColumn)]
        return dataclasses.replace(table, x=np.where(gaps, np.array(medians, dtype=np.float32), table.x))

    def _cells(self, table: Table, column: AnyColumn, place: Mapping[str, int]) -> Any:
        if isinstance(column, NumberColumn):
            return table.x[:, place[column.name]]
        cells = words_of(table, column.name)
        if isinstance(column, TextColumn):
            return self.models[column.name].encode(cells.texts)[cells.codes]
        return cells


def blocks(columns: Sequence[AnyColumn]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of features, (first, last + 1), that must be scaled alike.

    >>> blocks([NumberColumn(name="age"), CategoryColumn(name="pet", categories=("cat", "dog"))])
    ((1, 3),)
    """
    ends = np.cumsum([0, *(len(column.features) for column in columns)]).tolist()
    pairs = zip(columns, ends[:-1], ends[1:], strict=True)
    return tuple((start, end) for column, start, end in pairs if column.shares_scale)


class Encoder(Protocol):
    """How columns become features, in a run's file and in new ones."""

    @property
    def files(self) -> dict[str, bytes]:
        """The files that a run keeps in addition to its settings, by name."""

    def settings(self) -> dict[str, Any]:
        """Return what a run keeps in the settings of its data."""

    def read(self, path: Path, **options: Any) -> Table:
        """Return the samples, labels and ids in a file; `options` as for `read_table`."""


class LearnedTable(NamedTuple):
    """A table, and what was learned from its columns.

    Attributes:
        table: with all features.
        encoder: None if the features are an array.
        left_out: names of columns that are not features.
    """

    table: Table
    encoder: Encoder | None
    left_out: tuple[str, ...]


class RecognizedTable(NamedTuple):
    """A table, and how its columns are used.

    Attributes:
        table: with the numbers in `x`, and the cells of other columns in `words`.
        uses: how each feature column is used.
        left_out: names of the other columns.
    """

    table: Table
    uses: Mapping[str, Use | Literal["boolean"]]
    left_out: tuple[str, ...]


def recognize_table(table: Table, use: Sequence[str] = (), *, as_texts: bool = False) -> RecognizedTable:
    """Find out how each column is used.

    Args:
        table: read tolerantly.
        use: what the user says about columns, "COLUMN" or "COLUMN=category".
        as_texts: whether columns that would be categories, or name the rows, are texts.
    """
    names = (*table.feature_names, *table.no_numbers)
    asked = overruled(table.path, use, names)
    no_numbers = {*table.no_numbers, *_without_cells(table)}
    wanted = [name for name in names if name in no_numbers or asked.get(name) in ("category", "date", "text")]
    numbers = [name for name in table.feature_names if name not in wanted]
    read = read_table(table.path, features=wanted, words=wanted) if wanted else table
    if len(read) != len(table):
        raise rows_differ(table.path, len(table), len(read))
    table, left_out = without_counts(table, [name for name in asked if name in numbers], others=bool(wanted))
    uses: dict[str, Use | Literal["boolean"]] = {name: "number" for name in numbers if name not in left_out}
    empty: list[str] = []
    guesses: dict[str, tuple[Words, str | None]] = {}
    for name in wanted:
        cells = words_of(read, name)
        if not cells.counts():
            if name in asked:
                raise DataError(f"File '{table.path}', column '{name}': all cells are empty; leave it out of --use.")
            empty.append(name)
            continue
        how = asked.get(name) or recognized(cells, texts=as_texts) or (guessed(cells) if name in asked else None)
        uses |= {} if how is None else {name: how}
        if name not in asked and not as_texts and how in ("category", "text", None):
            guesses[name] = cells, how
    unused = [name for name in wanted if name not in uses]
    if wanted and not uses:
        raise DataError(
            f"File '{table.path}' has no features: {listed(unused)} names the rows or is empty; say --use COLUMN=text."
        )
    told = [*empty, *warn_of_forms(table.path, guesses)]
    warn_of_unused(table.path, [name for name in unused if name not in told], empty)
    whole = dataclasses.replace(table, words=read.words, no_numbers={})
    return RecognizedTable(whole, uses, (*left_out, *unused))


def _without_cells(table: Table) -> list[str]:
    """Return the columns that have only gaps; arrays of other shapes have no columns."""
    if table.x.ndim != 2 or table.x.dtype.kind != "f":
        return []
    return [name for name, x in zip(table.feature_names, table.x.T, strict=True) if np.isnan(x).all()]


def learn_table(table: Table, use: Sequence[str] = (), *, as_texts: bool = False) -> LearnedTable:
    """Find out how each column is used, and make features from them; the arguments are those of `recognize_table`."""
    table, uses, left_out = recognize_table(table, use, as_texts=as_texts)
    if not table.words and not _may_have_gaps(table):
        return LearnedTable(table, None, left_out)
    place = {name: number for number, name in enumerate(table.feature_names)}
    columns: list[AnyColumn] = []
    models: dict[str, texts.TextModel] = {}
    for name, how in uses.items():
        if name not in table.words:
            columns.append(NumberColumn.learn(name, table.x[:, place[name]]))
            continue
        cells = words_of(table, name)
        if how == "text":
            models[name] = texts.learn_texts(name, [cells.texts[code] for code in cells.codes])
        columns.append(_learned(how, cells, models.get(name)))
    encoder = TableEncoder(tuple(columns), models)
    return LearnedTable(encoder.encode(table), encoder, left_out)


def _may_have_gaps(table: Table) -> bool:
    """Whether rows of this table may have gaps; arrays may not."""
    return bool(table.feature_names) and table.path.suffix.lower() not in ARRAYS


def _learned(how: str, cells: Words, model: texts.TextModel | None) -> AnyColumn:
    name = cells.place.column
    if how == "number":
        return NumberColumn.learn(name, cells.numbers(number_texts(cells.texts), "a number"))
    if model is not None:
        return TextColumn(name=name, gaps=None in cells.texts, width=model.directions.shape[1])
    kinds: dict[str, type[BooleanColumn | CategoryColumn | DateColumn]] = {
        "boolean": BooleanColumn,
        "category": CategoryColumn,
        "date": DateColumn,
    }
    return kinds[how].learn(name, cells)


def words_of(table: Table, name: str) -> Words:
    """Return the cells of a column that was read as text."""
    return Words.of(Place(table.path, name), *table.words[name])
