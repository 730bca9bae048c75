"""How the paper's appendix chooses thresholds: right and wrong held-out labels over confidence and over uncertainty.

The labels come from a run's validation set, or from a file with p, u and y.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.system import write_whole
from surelabel.base.text import check_size, damage_named
from surelabel.core.arrays import rounded_to
from surelabel.core.thresholds import HeldOutLabels, judge
from surelabel.data._arrow_files import survey_text, text_leaves, unpacked_size
from surelabel.data._numpy_files import read_arrays
from surelabel.data._table import rows_differ
from surelabel.errors import DataError, RunError
from surelabel.report.drawing import histogram
from surelabel.report.held_out import Checked, by_sample
from surelabel.runs import RunFolder
from surelabel.runs.comparison import all_known, as_held_out, pool_as_held_out

COLUMNS = ("confidence", "label", "truth", "uncertainty")
"""The columns of a table of labels; `uncertainty` may be missing."""


class Pair(NamedTuple):
    """A threshold for the confidence and one for the uncertainty."""

    tau_p: float
    kappa_p: float


class Selected(NamedTuple):
    """How many labels a pair of thresholds selects, and the share of right ones (None if none are selected)."""

    number: int
    accuracy: float | None


def validation_labels(run: RunFolder, round: int = 0) -> HeldOutLabels:
    """Return the labels that a round's network gives the run's validation set, where the truth is known."""
    truth = run.validation_truth
    if truth is None:
        raise RunError(f"The run in '{run.path}' has no validation set with labels; use surelabel fit --validation.")
    known = all_known(truth)
    _require_some(known, f"The validation set of the run in '{run.path}'")
    return as_held_out(run.validation(round), truth, known)


def pool_labels(run: RunFolder, round: int = 0) -> HeldOutLabels | None:
    """Return the labels that a round's network gives the run's pool, none marked as wrong; None without a pool."""
    return pool_as_held_out(run.pool(round)) if run.has_pool else None


def read_labels(path: Path) -> HeldOutLabels:
    """Return the labels in a file, where the truth is known.

    Args:
        path: An .npz file with the arrays p (N, C), u (N, C; may be missing) and y, (N,) or (N, C), with -1 where
            unknown; or a .csv or .parquet file with the columns confidence, uncertainty (may be missing), label and
            truth (may be empty), as in a run's validation.parquet.
    """
    readers = {".npz": _from_arrays, ".csv": _from_columns, ".parquet": _from_columns}
    if path.suffix.lower() not in readers:
        raise DataError(f"File '{path}' has an ending that is not known here; use .npz, .csv or .parquet.")
    return readers[path.suffix.lower()](path)


def select_from(labels: HeldOutLabels, pair: Pair) -> Selected:
    """Return how many labels the first term of equation 5 selects, and how many of them are right.

    Example:
        >>> surest = np.array([[0.9], [0.8], [0.6]])
        >>> select_from(HeldOutLabels(surest, None, surest > 0, surest < 0.85), Pair(0.7, 0.05))
        Selected(number=2, accuracy=0.5)
    """
    chosen = _chosen(labels, pair)
    number = int(chosen.sum())
    return Selected(number, 1 - float(labels.wrong[chosen].mean()) if number else None)


def check_pair(labels: HeldOutLabels, pair: Pair) -> Checked:
    """Return how many samples have a label selected by these thresholds, and how many of these have no wrong one."""
    chosen = _chosen(labels, pair)
    return by_sample(np.nonzero(chosen)[0], labels.wrong[chosen])


def _chosen(labels: HeldOutLabels, pair: Pair) -> npt.NDArray[np.bool_]:
    chosen: npt.NDArray[np.bool_] = labels.label & (labels.confidence >= rounded_to(labels.confidence, pair.tau_p))
    if labels.uncertainty is not None:
        chosen &= labels.uncertainty <= rounded_to(labels.uncertainty, pair.kappa_p)
    return chosen


def draw_distributions(path: Path, labels: HeldOutLabels, marks: Mapping[str, Pair]) -> None:
    """Write an SVG file: right and wrong labels over confidence and over uncertainty (appendix, figure 3 a and b).

    Args:
        path: an existing file is replaced.
        labels: what to draw; for multi-label data the positive ones.
        marks: thresholds to draw as lines, by their names.
    """
    if not labels.label.any():
        raise DataError("There is nothing to draw: the network gives no held-out sample a positive label.")
    panels = []
    for place, name in enumerate(("confidence", "uncertainty")):
        if (values := getattr(labels, name)) is not None:
            lines = {mark: pair[place] for mark, pair in marks.items()}
            panels.append(histogram(values[labels.label], ~labels.wrong[labels.label], name, lines))
    svg = side_by_side([drawn.svg for drawn in panels])
    write_whole(path, lambda stream: stream.write(svg.encode()))


def side_by_side(panels: Sequence[str]) -> str:
    """Return one SVG file's text with the panels in a row, black on a transparent background.

    Example:
        >>> side_by_side(['<svg viewBox="0 0 30 20"></svg>']).splitlines()[1]
        '<svg x="0" width="30" height="20" viewBox="0 0 30 20"></svg>'
    """
    sizes = [re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', text) for text in panels]
    widths, heights = ([float(size[part]) for size in sizes if size] for part in (1, 2))
    assert len(widths) == len(panels)
    starts = np.cumsum([0.0, *widths])
    placed = [
        text.replace("<svg", f'<svg x="{start:g}" width="{width:g}" height="{height:g}"', 1)
        for text, start, width, height in zip(panels, starts, widths, heights, strict=False)
    ]
    width, height = f"{starts[-1]:g}", f"{max(heights):g}"
    size = f'width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} color="black">', *placed, "</svg>\n"])


def _from_arrays(path: Path) -> HeldOutLabels:
    arrays = read_arrays(path, functools.partial(_wanted, path))
    for name, array in arrays.items():
        if array.ndim == 0 or array.dtype.kind not in "fiub":
            kind = f"{array.dtype} of shape {array.shape}"
            raise DataError(f"File '{path}': array '{name}' must hold numbers, a row a sample; convert it. Got {kind}.")
    p, u, y = arrays["p"], arrays.get("u"), arrays["y"]
    known = np.asarray((y >= 0).all(axis=tuple(range(1, y.ndim))))
    _require_some(known, f"File '{path}'")
    if any(len(part) != len(known) for part in (p, u) if part is not None):
        raise DataError(f"File '{path}': p, u and y differ in their number of rows; give a row for each sample.")
    u = None if u is None else u[known]
    return judge(p[known], u, y[known], "single" if y.ndim == 1 else "multi")


def _wanted(path: Path, names: Sequence[str]) -> dict[str, str]:
    missing = {"p", "y"} - set(names)
    if missing:
        raise DataError(f"File '{path}' has no array '{min(missing)}'; it has {', '.join(names) or 'none'}.")
    return {name: name for name in ("p", "u", "y") if name in names}


def _from_columns(path: Path) -> HeldOutLabels:
    import pyarrow as pa

    with damage_named(path, f"a {path.suffix[1:]} table", pa.ArrowException, UnicodeDecodeError):
        table = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
        known = table["truth"].is_valid()
        _require_some(known.to_numpy(), f"File '{path}'")
        table = table.filter(known)
        wrong = _differ(table["label"], table["truth"])
    confidence = _numbers(path, table, "confidence", 1.0)
    has_uncertainty = "uncertainty" in table.column_names and table["uncertainty"].null_count < len(table)
    uncertainty = _numbers(path, table, "uncertainty", np.inf) if has_uncertainty else None
    return HeldOutLabels(confidence, uncertainty, np.ones_like(wrong), wrong)


def _read_csv(path: Path) -> Any:
    from pyarrow import csv

    rows = survey_text(path).rows
    # Only an empty cell is unknown: "NA" and "null" may be classes.
    options = csv.ConvertOptions(strings_can_be_null=True, null_values=[""])
    table = csv.read_csv(path, csv.ReadOptions(use_threads=False), convert_options=options)
    if len(table) != rows:
        raise rows_differ(path, rows, len(table))
    _check_names(path, table.column_names)
    return table


def _read_parquet(path: Path) -> Any:
    """Return the needed columns. Text stays as it is stored, each distinct value once."""
    from pyarrow.parquet import ParquetFile, read_metadata

    metadata = read_metadata(path)
    check_size(path, unpacked_size(metadata))
    names = metadata.schema.to_arrow_schema().names
    _check_names(path, names)
    wanted = [name for name in COLUMNS if name in names]
    file = ParquetFile(path, metadata=metadata, read_dictionary=text_leaves(metadata))
    table = file.read(columns=wanted, use_threads=False)  # see `runs.tables.table_from_bytes`
    table.validate(full=True)
    return table


def _check_names(path: Path, names: Sequence[str]) -> None:
    for name in COLUMNS:
        if names.count(name) > 1:
            raise DataError(f"File '{path}' has more than one column '{name}'; leave one of them.")
        if name not in names and name != "uncertainty":
            raise DataError(f"File '{path}' has no column '{name}'; it has {', '.join(names)}.")
    if "class" in names:
        raise DataError(f"File '{path}' has a row for each sample and class; give the run, or an .npz with p, u and y.")


def _numbers(path: Path, table: Any, name: str, largest: float) -> npt.NDArray[np.floating[Any]]:
    """Return a column of numbers from 0 on as (N, 1)."""
    import pyarrow as pa

    column = table[name]
    try:
        column = column if pa.types.is_floating(column.type) else column.cast(pa.float64())
    except pa.ArrowException as error:
        raise DataError(f"File '{path}', column '{name}' must hold numbers ({error}).") from error
    values: npt.NDArray[np.floating[Any]] = np.asarray(column.to_numpy())
    wrong = values[~((values >= 0) & (values <= largest))]
    if len(wrong):
        raise DataError(f"File '{path}', column '{name}' must hold numbers from 0 to {largest:g}. Got {wrong[0]}.")
    return values[:, None]


def _differ(labels: Any, truth: Any) -> npt.NDArray[np.bool_]:
    """Where two columns differ, (N, 1): as numbers if both are (1 is 1.0), else as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Distinct values are compared, then their indices, so that long texts are never repeated for each row.
    columns = [column.dictionary_encode().combine_chunks() for column in (labels, truth)]
    kinds = [column.dictionary.type for column in columns]
    numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds)
    values = [column.dictionary.cast(pa.float64() if numbers else pa.large_string()) for column in columns]
    first, second = (
        pc.index_in(of, values[1]).take(column.indices) for of, column in zip(values, columns, strict=True)
    )
    return np.asarray(pc.fill_null(pc.not_equal(first, second), True))[:, None]


def _require_some(known: npt.NDArray[np.bool_], what: str) -> None:
    if not known.any():
        raise DataError(f"{what} has no sample whose true label is known; give some.")
