"""The samples themselves: which labels the last network is surest of, which it selects barely, which it leaves out.

Pictures, frames of clips and spectrograms are shown as pictures, rows of a table by their values. They are read from
the run's data.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.base.text import shown
from surelabel.data.pool import PoolLabels
from surelabel.data.run_data import RunData
from surelabel.data.source import as_source
from surelabel.errors import SurelabelError
from surelabel.report.drawing import Picture
from surelabel.report.figures import NOT_DRAWN, ReportFigure
from surelabel.report.pictures import looks_like_picture, to_pixels
from surelabel.report.tables import Row, TextTable
from surelabel.runs import RunFolder

LIMIT = 12
_FEATURES = 6
"""Values of a row that are shown."""

Rows = npt.NDArray[np.int64]


def samples_figures(row: Row) -> list[ReportFigure]:
    """Show samples of the pool of a row's first run: surest and least sure of those selected, and those left out."""
    run = row.runs[0]
    if not run.has_pool:
        return []
    labels = run.pool()  # first: a damaged table of the run's is an error, and no reason to leave samples out
    try:
        data = run.data()
        show = _shower(run, data, labels)
    except Exception as error:  # a function of the user's may fail in any way, and the report has more to say
        reason = error if isinstance(error, SurelabelError) else f"{type(error).__name__}: {error}"
        return [ReportFigure("Samples", note=f"{NOT_DRAWN}the run's data cannot be read. {reason}")]
    chosen = chosen_samples(labels)
    captions = {
        "The surest labels": "The selected labels with the least uncertainty. A wrong one among them is a warning.",
        "Selected, but barely": "The selected labels with the largest uncertainty. The first ones to check by eye.",
        "Left out, and worth labeling next": (
            "The network is least confident of these samples, taken in turn from each class that it takes them for. "
            "Label some of them by hand: they are the ones that it can learn most from."
        ),
    }
    figures = [show(title, captions[title], rows) for title, rows in chosen.items() if len(rows)]
    if (doubts := doubts_figure(run, data)) is not None:
        figures.append(doubts)
    if (gained := classes_figure(row, data)) is not None:
        figures.insert(0, gained)
    return figures


def chosen_samples(labels: PoolLabels, limit: int = LIMIT) -> dict[str, Rows]:
    """Return which rows of the pool to show, by the title of their section.

    In multi-label data a sample's confidence is that of its least certain class, |2 p - 1|.
    """
    multi = labels.label.ndim == 2
    selected = labels.positive_before.any(axis=1) if multi else labels.positive_before
    confidence = np.abs(2 * labels.confidence - 1).min(axis=1) if multi else labels.confidence
    u = 1 - labels.confidence if labels.uncertainty is None else labels.uncertainty
    u = u.max(axis=1) if multi else u
    inside = np.flatnonzero(selected)
    by_u = inside[np.argsort(u[inside], kind="stable")]
    outside = np.flatnonzero(~selected)
    least = outside[np.argsort(confidence[outside], kind="stable")]
    label = labels.confidence.argmax(axis=1) if multi else labels.label
    return {
        "The surest labels": by_u[:limit],
        "Selected, but barely": by_u[limit:][::-1][:limit],
        "Left out, and worth labeling next": in_turn(least, label[least])[:limit],
    }


def in_turn(rows: Rows, classes: npt.NDArray[Any]) -> Rows:
    """Return rows in an order that takes one of each class in turn, and those of a class as they came.

    >>> in_turn(np.array([7, 8, 9, 5]), np.array([0, 0, 1, 1])).tolist()
    [7, 9, 8, 5]
    """
    place = np.empty(len(rows), dtype=np.int64)
    for value in np.unique(classes):
        members = np.flatnonzero(classes == value)
        place[members] = np.arange(len(members))
    return rows[np.argsort(place, kind="stable")]


def classes_figure(row: Row, data: RunData) -> ReportFigure | None:
    """Show each class of a single-label run: its labels, what was selected, and what held-out labels say of both."""
    run = row.runs[0]
    if run.settings.config.task == "multi":
        return None  # it has a table of its own
    last, names = run.pool(), run.settings.classes
    selected = last.class_counts(last.positive_before)
    given = np.bincount(data.labeled[1], minlength=len(names))
    columns = [[str(count) for count in given], [f"{count:,}" for count in selected]]
    header = ["class", "labels given", "labels selected"]
    if (truth := run.validation_truth) is not None:
        for title, labels in (("round 0", run.validation(0)), ("last round", run.validation())):
            header.append(f"validation right, {title}")
            columns.append([_share(labels.label[truth == code] == code) for code in range(len(names))])
    lines = [list(line) for line in zip(names, *columns, strict=True)]
    caption = "What you gave, what the last network would select, and how held-out samples of each class fare."
    return ReportFigure("By class", caption, tables=[TextTable(header, lines)])


def doubts_figure(run: RunFolder, data: RunData) -> ReportFigure | None:
    """Show given labels that models which had not learned from them contradict, the most confident contradiction first.

    They come from the comparison of models; None where there was none, or no contradiction.
    """
    comparison = run.comparison()
    judged = {} if comparison is None or comparison.kept is None else comparison.judged()
    if comparison is None or comparison.kept not in judged or run.settings.config.task == "multi":
        return None
    labels, truth = judged[comparison.kept]
    wrong = np.flatnonzero(labels.label != truth)
    rows = wrong[np.argsort(-labels.confidence[wrong], kind="stable")][:LIMIT]
    if not len(rows):
        return None
    classes, parts = run.settings.classes, [data.labeled, *([data.validation] if data.validation else [])]
    sources = [as_source("samples", samples) for samples, _ in parts]
    place = {name: (source, row) for source in sources for row, name in enumerate(source.ids.tolist())}

    found = [place[name] for name in labels.ids[rows].tolist()]
    samples = [np.asarray(source[np.array([at])])[0] for source, at in found]
    said = [
        f"given as {classes[truth[row]]}, looks like {classes[labels.label[row]]} {labels.confidence[row]:.2f}"
        for row in rows.tolist()
    ]
    caption = (
        "Labels that you gave and that the kept kind of model, trained without them, contradicts. Check them: some may "
        "be mistakes, others are the hard samples."
    )
    return _section("Given labels to check", caption, samples, said, labels.ids[rows], data)


def _section(
    title: str, caption: str, samples: Sequence[npt.NDArray[Any]], said: Sequence[str], ids: Any, data: RunData
) -> ReportFigure:
    """Return a section of samples as pictures, or as a table of their values."""
    names = [shown(name, quote=False) for name in ids.tolist()]
    if looks_like_picture(samples[0].shape):
        pairs = zip(samples, said, names, strict=True)
        cards = [Picture(to_pixels(sample), f"{what} ({name})") for sample, what, name in pairs]
        return ReportFigure(title, caption, pictures=cards)
    lines = [[name, what, _values(one, data)] for name, what, one in zip(names, said, samples, strict=True)]
    return ReportFigure(title, caption, tables=[TextTable(["id", "label", "sample"], lines)])


def _share(right: npt.NDArray[np.bool_]) -> str:
    return f"{int(right.sum())} of {len(right)}" if len(right) else "–"


def _shower(run: RunFolder, data: RunData, labels: PoolLabels) -> Callable[[str, str, Rows], ReportFigure]:
    """Return what makes a section of some rows of the pool."""
    source = as_source("samples", data.unlabeled)
    # Partly labeled samples come first in the pool.
    first = len(labels) - len(source)
    given = as_source("samples", data.labeled[0])

    def sample(place: int) -> Any:
        if place >= first:
            return np.asarray(source[np.array([place - first])])[0]
        return np.asarray(given[np.flatnonzero(given.ids == labels.ids[place])])[0]

    def show(title: str, caption: str, rows: Rows) -> ReportFigure:
        samples = [sample(row) for row in rows.tolist()]
        return _section(title, caption, samples, list(_said(run, labels, rows)), labels.ids[rows], data)

    return show


def _said(run: RunFolder, labels: PoolLabels, rows: Rows) -> Iterator[str]:
    """Yield what the network says of samples: "cat 0.98, u 0.01"."""
    classes = run.settings.classes
    for row in rows.tolist():
        if labels.label.ndim == 2:
            names = [classes[code] for code in np.flatnonzero(labels.label[row])]
            yield " + ".join(names) or "none"
            continue
        u = "" if labels.uncertainty is None else f", u {labels.uncertainty[row]:.2f}"
        yield f"{classes[labels.label[row]]} {labels.confidence[row]:.2f}{u}"


def _values(sample: npt.NDArray[Any], data: RunData) -> str:
    """Return a row's first values with the names of their columns."""
    names = data.feature_names or [str(place) for place in range(sample.size)]
    pairs = [f"{name} {value:.4g}" for name, value in zip(names, sample.ravel().tolist(), strict=False)]
    return ", ".join(pairs[:_FEATURES]) + (", …" if len(pairs) > _FEATURES else "")
