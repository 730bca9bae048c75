"""Texts in a column of a table, for frozen backbones: their features, computed once, replace the rows."""

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from surelabel.base.text import listed
from surelabel.base.trust import Reference
from surelabel.data.columns import TextColumn
from surelabel.data.run_data import TableData
from surelabel.data.source import Index, Source, Subset
from surelabel.data.table_encoding import LearnedTable, RecognizedTable, recognize_table, words_of
from surelabel.data.tables import Table, read_table
from surelabel.errors import DataError
from surelabel.kinds.backbones import BackboneSettings

if TYPE_CHECKING:
    from surelabel.kinds.features import FeatureSource

_ARRAYS = (".npz", ".npy")


class TextData(TableData):
    """A table with one column of texts for backbones; otherwise as `TableData`.

    Attributes:
        backbones: frozen networks; their outputs, side by side, replace the texts. An empty cell becomes "".
    """

    kind: Literal["texts"] = "texts"  # type: ignore[assignment]  # what tells the settings of data apart
    backbones: tuple[BackboneSettings, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_backbones(self) -> Self:
        if self.path.suffix.lower() in _ARRAYS:
            raise ValueError(f"Backbones take pictures or texts, and '{self.path}' has numbers; leave them out")
        for backbone in self.backbones:
            backbone.check_takes("texts")
        return self

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name: that of backbones."""
        for backbone in self.backbones:
            yield from backbone.references()

    def pinned(self) -> Self:
        """Return the settings with absolute paths and content hashes, those of backbones too."""
        return super().pinned().replace(backbones=tuple(backbone.pinned() for backbone in self.backbones))

    def encoder(self, texts: bytes | None) -> "TextEncoder | None":
        """Return how a run makes features from its texts; None if the column is not known yet."""
        if self.columns is None:
            return None
        (column,) = self.columns
        assert isinstance(column, TextColumn)
        return TextEncoder(column, self.backbones)

    def _learned(self, texts: bytes | None) -> LearnedTable:
        encoder = self.encoder(texts)
        if encoder is not None:
            return LearnedTable(self._read(self.path, encoder), encoder, ())
        found = recognize_table(self._read(self.path, tolerant=True), self.use, as_texts=self.as_texts)
        name = only_text(found)
        table, backbones = _with_features(found.table, name, self.backbones)
        width, gaps = table.samples(np.arange(1)).sample_shape[0], None in words_of(found.table, name).texts
        return LearnedTable(
            table, TextEncoder(TextColumn(name=name, gaps=gaps, width=width), backbones), found.left_out
        )


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """How a column of texts becomes features: by backbones.

    Attributes:
        column: of the texts.
        backbones: with what was learned about them.
    """

    column: TextColumn
    backbones: Sequence[BackboneSettings]

    @property
    def files(self) -> dict[str, bytes]:
        """What a run keeps in addition to its settings: nothing."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Return what a run keeps in the settings of its data."""
        return {"columns": (self.column,), "backbones": tuple(self.backbones)}

    def read(self, path: Path, **options: Any) -> Table:
        """Return the samples, labels and ids in a file; `options` as for `read_table`."""
        name = self.column.name
        return _with_features(read_table(path, features=[name], words=[name], **options), name, self.backbones)[0]


@dataclass(frozen=True, eq=False)
class _FeatureTable(Table):
    """A table whose features are on the disk, and not in `x`."""

    features: "FeatureSource | None" = None

    def samples(self, rows: Index | slice) -> Source:
        """Return the features of some rows."""
        assert self.features is not None
        return Subset(self.features, np.arange(len(self.features))[rows])


def only_text(table: RecognizedTable) -> str:
    """Return the name of the only used column, which must be texts; refuse other tables."""
    texts = [name for name, use in table.uses.items() if use == "text"]
    others = {name: use for name, use in table.uses.items() if use != "text"}
    where = f"File '{table.table.path}'"
    if not texts:
        found = ", ".join(f"{name!r} ({use})" for name, use in list(others.items())[:3])
        remedy = "name it with --use COLUMN=text, and leave out the others with --drop"
        raise DataError(f"{where} has no column of texts for a backbone, but {found}; {remedy}.")
    if len(texts) > 1:
        found = f"has {len(texts)} columns of texts, {listed(texts)}, and a backbone takes one"
        raise DataError(f"{where} {found}; leave out the others with --drop.")
    if others:
        drop = " ".join(f"--drop {shlex.quote(name)}" for name in others)
        found = f"has {listed(list(others))} beside the text {texts[0]!r}, and a backbone takes the text alone"
        raise DataError(f"{where} {found}; leave out what is no text: {drop}.")
    return texts[0]


def _with_features(
    table: Table, name: str, backbones: Sequence[BackboneSettings]
) -> tuple[Table, tuple[BackboneSettings, ...]]:
    """Return a table with the features of a column's texts, and the backbones with what was learned about them."""
    from surelabel.kinds.features import text_features

    cells = words_of(table, name)
    computed = text_features(backbones, [cells.texts[code] or "" for code in cells.codes.tolist()], table.ids)
    values = {field.name: getattr(table, field.name) for field in dataclasses.fields(Table)}
    changed = {"x": np.empty((len(table), 0), dtype=np.float32), "feature_names": (), "words": {}}
    return _FeatureTable(**values | changed, features=computed.samples), computed.backbones
