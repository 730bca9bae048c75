"""Several labels a sample, class by class: average precision, and how much was selected and is right."""

from typing import Any, NamedTuple

from surelabel.records import ClassScores, RoundRecord
from surelabel.report.first_selection import share
from surelabel.report.tables import Row, Statistic, TextTable, percent, statistic
from surelabel.runs import RunFolder


class ClassReport(NamedTuple):
    """One class in one run. The selected labels are those that the last network learned from.

    Attributes:
        score: average precision on the test set, else on the validation set; None without a known positive there.
        score_11: the same over eleven points.
        positives: selected positive labels.
        positive_accuracy: the share of them that is right; None where the truth is not known of any.
        negatives: selected negative labels.
        negative_accuracy: the share of them that is right; None where the truth is not known of any.
    """

    score: float | None
    score_11: float | None
    positives: int | None
    positive_accuracy: float | None
    negatives: int | None
    negative_accuracy: float | None


def class_reports(run: RunFolder) -> list[ClassReport]:
    """Return what a finished run of several labels a sample says of each class."""
    last, num_classes = run.records()[-1], len(run.settings.classes)
    scores = class_scores(last) or [None] * num_classes
    selected = [[None] * 4] * num_classes if last.round == 0 else _selected(run, last.round)
    return [ClassReport(*(one or (None, None)), *cells) for one, cells in zip(scores, selected, strict=True)]


def _selected(run: RunFolder, round: int) -> list[list[Any]]:
    """Return of each class how many positives the round learned from, the share that is right, and so for negatives."""
    selection, truth = run.pool(round - 1).selection, run.truth
    classes: list[list[Any]] = [[] for _ in run.settings.classes]
    for value, marked in ((1, selection.positive), (0, selection.negative)):
        for code, cells in enumerate(classes):
            rows = marked[:, code]
            right = None if truth is None else share((truth[:, code] == value)[rows & (truth[:, code] >= 0)])
            cells += [int(rows.sum()), right]
    return classes


def class_scores(record: RoundRecord) -> ClassScores | None:
    """Return both average precisions of each class on the test set, else on the validation set, else None."""
    return record.test_class_scores or record.validation_class_scores


def left_out(row: Row) -> list[str]:
    """Return the classes without a known positive in the held-out set of some run, which its mean leaves out."""
    scores = [class_scores(run.records()[-1]) or () for run in row.runs]
    names = row.runs[0].settings.classes
    return [name for code, name in enumerate(names) if any(one and one[code] is None for one in scores)]


def classes_table(row: Row) -> TextTable:
    """Return a line for each class, mean ± standard deviation over the row's runs; empty columns are left out."""
    held_out = "test" if row.runs[0].records()[-1].test_class_scores else "validation"
    columns = {
        "score": f"{held_out} AP (%)",
        "score_11": f"{held_out} AP, 11 points (%)",
        "positives": "positives selected",
        "positive_accuracy": "right (%)",
        "negatives": "negatives selected",
        "negative_accuracy": "right (%)",
    }
    reports = zip(*(class_reports(run) for run in row.runs), strict=True)
    found = [{name: statistic([getattr(one, name) for one in of_class]) for name in columns} for of_class in reports]
    kept = [name for name in columns if any(values[name] is not None for values in found)]
    lines = [
        [class_name, *(_score_text(values[name], columns[name]) for name in kept)]
        for class_name, values in zip(row.runs[0].settings.classes, found, strict=True)
    ]
    return TextTable(["class", *(columns[name] for name in kept)], lines if kept else [])


def _score_text(value: Statistic | None, header: str) -> str:
    if value is None:
        return "–"
    return f"{percent(value):.2f}" if "(%)" in header else f"{value:,.0f}"
