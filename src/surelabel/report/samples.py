"""The samples themselves: the kept model's most confident labels, those barely selected, and those left out.

Also the labels selected per class, and the given labels that held-out models contradict. All are from the model and
thresholds of `surelabel label`; a linear model labels the pool again, because the run keeps only the networks' labels.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.data.pool import PoolLabels, without_known
from surelabel.data.run_data import RunData
from surelabel.data.source import as_source, positions
from surelabel.data.training_set import make_problem
from surelabel.errors import SurelabelError
from surelabel.report.comparison import judged_models
from surelabel.report.figures import ReportFigure
from surelabel.report.held_out import reselected
from surelabel.report.showing import Chosen, show_samples
from surelabel.report.tables import Row, TextTable
from surelabel.runs import RunFolder

LIMIT = 12
SUREST, BARELY, LEFT_OUT = "The surest labels", "Selected, but barely", "Left out, and worth labeling next"

Rows = npt.NDArray[np.int64]


def samples_figures(row: Row) -> list[ReportFigure]:
    """Show classes and samples of a row's first run: the most and least confident selected ones, and those left out.

    If the data are not those that the run learned from, a note says so instead.
    """
    run, data, labels = row.runs[0], None, None
    if not run.has_pool:
        return []
    run.pool()  # a damaged table of the run is an error, not a reason to leave samples out
    try:
        data = run.data()
        problem = make_problem(data.labeled, data.unlabeled, data.task, len(data.classes))
        labels = _kept_labels(run, problem)
        said = _said(labels, run.settings.classes)
        place, captions = None if run.settings.pool is not None else _path(run), _captions(run)
        chosen = [
            Chosen(title, captions[title], place, problem.pool, rows, [said(row) for row in rows.tolist()])
            for title, rows in chosen_samples(labels).items()
            if len(rows)
        ]
        figures = show_samples(run, [*chosen, *doubts(run, data)])
    except Exception as error:  # the user's function may fail in any way, and the rest of the report is still useful
        reason = error if isinstance(error, SurelabelError) else f"{type(error).__name__}: {error}"
        figures = [ReportFigure("Samples", note=f"The samples are left out: the run's data cannot be read. {reason}")]
    by_class = [] if run.settings.config.task == "multi" else [classes_figure(run, data, labels)]
    return [*by_class, *figures]


def _kept_labels(run: RunFolder, problem: Any) -> PoolLabels:
    """Return the pool as labeled by the kept model, selected by the thresholds of `surelabel label`."""
    if run.kept == "linear":
        return without_known(run.label(run.learner(), problem.pool), problem.known)
    comparison = run.comparison()
    return reselected(run.pool(0 if run.kept == "first" else -1), None if comparison is None else comparison.promise)


def _path(run: RunFolder) -> Any:
    return getattr(run.settings.data, "path", None)


def _kept_model(run: RunFolder) -> str:
    if run.kept == "linear":
        return "the kept linear model"
    network = f"network of round {0 if run.kept == 'first' else run.num_rounds - 1}"
    return f"the {network}" if run.finished_comparison() is None else f"the kept {network}"


def _captions(run: RunFolder) -> Mapping[str, str]:
    model = _kept_model(run)
    return {
        SUREST: (
            f"Of the labels that {model} selects, those with the least uncertainty u. If one of these is wrong, expect "
            "more mistakes among the others."
        ),
        BARELY: f"Of the labels that {model} selects, those with the largest uncertainty u. Check them first.",
        LEFT_OUT: (
            f"The samples of which {model} is least confident, taken in turn from each class that it takes them for. "
            "Label some of them by hand: they are the ones that it can learn most from."
        ),
    }


def chosen_samples(labels: PoolLabels, limit: int = LIMIT) -> dict[str, Rows]:
    """Return the rows of the pool to show, by section title.

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
        SUREST: by_u[:limit],
        BARELY: by_u[limit:][::-1][:limit],
        LEFT_OUT: in_turn(least, label[least])[:limit],
    }


def in_turn(rows: Rows, classes: npt.NDArray[Any]) -> Rows:
    """Return rows in an order that takes one of each class in turn, and keeps the order within a class.

    >>> in_turn(np.array([7, 8, 9, 5]), np.array([0, 0, 1, 1])).tolist()
    [7, 9, 8, 5]
    """
    place = np.empty(len(rows), dtype=np.int64)
    for value in np.unique(classes):
        members = np.flatnonzero(classes == value)
        place[members] = np.arange(len(members))
    return rows[np.argsort(place, kind="stable")]


def classes_figure(run: RunFolder, data: RunData | None, labels: PoolLabels | None) -> ReportFigure:
    """Show each class of a single-label run: its labels, what is selected, and how many held-out ones are right."""
    names, columns = run.settings.classes, dict[str, list[str]]()
    if data is not None:
        columns["labels given"] = [f"{count:,}" for count in np.bincount(data.labeled[1], minlength=len(names))]
    if labels is not None:
        columns["labels selected"] = [f"{count:,}" for count in labels.class_counts(labels.positive_before)]
    for model, (found, truth) in judged_models(run).items():
        right = [found.label[truth == code] == code for code in range(len(names))]
        columns[f"held-out right: {model}"] = [f"{one.sum()} of {len(one)}" if len(one) else "–" for one in right]
    lines = [list(line) for line in zip(names, *columns.values(), strict=True)]
    caption = (
        f"Labels that you gave, labels that {_kept_model(run)} selects among the unlabeled samples, and how many "
        "held-out labels of the class each model gets right."
    )
    return ReportFigure("By class", caption, tables=[TextTable(["class", *columns], lines)])


def doubts(run: RunFolder, data: RunData) -> list[Chosen]:
    """Choose given labels that are contradicted by models that had not learned from them, the most confident first.

    They come from the comparison of models; none without a comparison or a contradiction.
    """
    comparison = run.comparison()
    judged = {} if comparison is None else comparison.judged()
    if comparison is None or comparison.kept not in judged or run.settings.config.task == "multi":
        return []
    labels, truth = judged[comparison.kept]
    wrong = np.flatnonzero(labels.label != truth)
    rows = wrong[np.argsort(-labels.confidence[wrong], kind="stable")][:LIMIT]
    if not len(rows):
        return []
    part, path = data.labeled, _path(run)
    if comparison.judge == "validation set" and data.validation is not None:
        part, path = data.validation, getattr(run.settings.data, "validation_path", None) or path
    samples = as_source("samples", part[0])
    found = positions(samples.ids.tolist(), labels.ids[rows].tolist())
    classes = run.settings.classes
    said = [
        f"given as {classes[truth[row]]}, looks like {classes[labels.label[row]]} {labels.confidence[row]:.2f}"
        for row in rows.tolist()
    ]
    caption = (
        "Labels that you gave, but that a model of the kept kind, trained without them, contradicts. Check them: some "
        "may be mistakes, others are just hard."
    )
    return [Chosen("Given labels to check", caption, path, samples, found, said)]


def _said(labels: PoolLabels, classes: Any) -> Any:
    """Return a function that describes a row of the pool: "cat 0.98, u 0.01"."""

    def said(row: int) -> str:
        if labels.label.ndim == 2:
            return " + ".join(classes[code] for code in np.flatnonzero(labels.label[row])) or "none"
        u = "" if labels.uncertainty is None else f", u {labels.uncertainty[row]:.2f}"
        return f"{classes[labels.label[row]]} {labels.confidence[row]:.2f}{u}"

    return said
