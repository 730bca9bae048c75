"""How a report shows samples: pictures, clips and spectrograms as pictures, rows of a table by their cells."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.text import shown
from surelabel.data.packed import open_packed
from surelabel.data.pictures import decode_picture
from surelabel.data.run_data import TableData
from surelabel.data.source import Source
from surelabel.data.tables import read_cells
from surelabel.kinds.packed import PackedData
from surelabel.report.drawing import Picture
from surelabel.report.figures import ReportFigure
from surelabel.report.pictures import SHOWN_SIDE, Pixels, looks_like_picture, to_pixels
from surelabel.report.tables import TextTable
from surelabel.runs import RunFolder

_MOST_COLUMNS, _MOST_LETTERS = 6, 240
"""The most columns of a table, and letters of a cell, that are shown."""


class Chosen(NamedTuple):
    """Samples to show under one heading.

    Attributes:
        title: the heading.
        caption: what they are.
        path: the file or folder that has them; None: they are in the shards of a pool.
        samples: the source that contains them.
        rows: their positions in it.
        said: the text for each.
    """

    title: str
    caption: str
    path: Path | None
    samples: Source
    rows: npt.NDArray[np.int64]
    said: Sequence[str]

    @property
    def ids(self) -> list[str]:
        """The names of the samples."""
        return [str(name) for name in self.samples.ids[self.rows].tolist()]


def show_samples(run: RunFolder, chosen: Sequence[Chosen]) -> list[ReportFigure]:
    """Return a section for each choice of samples."""
    data, settings = run.settings.data, run.settings
    if isinstance(data, TableData) and data.path.suffix.lower() not in (".npy", ".npz"):
        names = [column.name for column in data.columns or ()] or list(settings.feature_names or ())
        in_file = [one for one in chosen if one.path is not None]
        in_shards = [_as_numbers(one, settings.feature_names or ()) for one in chosen if one.path is None]
        return [*in_shards, *_as_rows(in_file, names, data.id_column)]
    if looks_like_picture(settings.sample_shape):
        return [_as_pictures(one, data) for one in chosen]
    in_files = bool(getattr(data, "backbones", ()))
    return [_as_pictures(one, data) if in_files and one.path is not None else _as_numbers(one) for one in chosen]


def _as_rows(chosen: Sequence[Chosen], names: Sequence[str], id_column: str | None) -> list[ReportFigure]:
    """Show rows by the cells of the file; each file is read once."""
    columns, more = list(names[:_MOST_COLUMNS]), len(names) - _MOST_COLUMNS
    wanted: dict[Path | None, list[str]] = {}
    for one in chosen:
        wanted.setdefault(one.path, []).extend(one.ids)
    found: dict[Path | None, dict[str, list[str | None]]] = {
        path: read_cells(path, columns, ids, id_column) for path, ids in wanted.items() if path is not None
    }
    left_out = f" The other {more} columns are not shown." if more > 0 else ""
    return [_table(one, columns, [found[one.path][name] for name in one.ids], left_out) for one in chosen]


def _as_numbers(one: Chosen, names: Sequence[str] = ()) -> ReportFigure:
    """Show arrays, whose files have no names or words, and rows of shards, by their first numbers."""
    rows = [np.asarray(one.samples[np.array([row])]).ravel() for row in one.rows.tolist()]
    columns = list(names or [f"x[{place}]" for place in range(rows[0].size)])[:_MOST_COLUMNS]
    return _table(one, columns, [[f"{value:.4g}" for value in row[: len(columns)].tolist()] for row in rows])


def _table(one: Chosen, columns: list[str], rows: Sequence[Sequence[str | None]], more: str = "") -> ReportFigure:
    names = [shown(name, quote=False) for name in one.ids]
    lines = [[name, what, *map(_cell, row)] for name, what, row in zip(names, one.said, rows, strict=True)]
    header = ["id", "label", *(shown(name, quote=False) for name in columns)]
    return ReportFigure(one.title, one.caption + more, tables=[TextTable(header, lines)])


def _cell(text: str | None) -> str:
    """Return a cell on one line, shortened; a dash where it is empty."""
    return "–" if text is None else shown(text, quote=False, limit=_MOST_LETTERS) or "–"


def _as_pictures(one: Chosen, data: Any) -> ReportFigure:
    pixels = _from_files(one, data) if getattr(data, "backbones", ()) else _from_samples(one)
    said = [f"{what} ({shown(name, quote=False)})" for what, name in zip(one.said, one.ids, strict=True)]
    return ReportFigure(one.title, one.caption, pictures=list(map(Picture, pixels, said)))


def _from_samples(one: Chosen) -> list[Pixels]:
    return [to_pixels(np.asarray(one.samples[np.array([row])])[0]) for row in one.rows.tolist()]


def _from_files(one: Chosen, data: Any) -> list[Pixels]:
    """Return the pictures of samples that are features of a backbone."""
    assert one.path is not None
    if isinstance(data, PackedData):
        packed = open_packed(one.path, data.labels[0] if data.labels else None, data.id_column)
        place = {str(name): row for row, name in enumerate(packed.ids.tolist())}
        files: list[Any] = [io.BytesIO(packed.read(place[name])) for name in one.ids]
    else:
        files = [one.path / name for name in one.ids]
    pairs = zip(files, one.ids, strict=True)
    return [to_pixels(decode_picture(file, SHOWN_SIDE, name=name)) for file, name in pairs]
