"""Labels per class: how many the first selection has of each, and the accuracy of a multi-label run's last network."""

import math
from typing import NamedTuple

from surelabel.records import ClassScores, RoundRecord
from surelabel.report.tables import Mask, Row, TextTable, number_text, share_text
from surelabel.runs import RunFolder


class Positives(NamedTuple):
    """Positive labels of one selection.

    Attributes:
        counts: per class, C numbers.
        accuracy: the share of right ones among those with known truth; None if no truth is known.
    """

    counts: tuple[int, ...]
    accuracy: float | None

    @property
    def number(self) -> int:
        """How many they are."""
        return sum(self.counts)

    @property
    def imbalance(self) -> float | None:
        """Largest over smallest class; infinite if a class has none, None if there are none at all.

        Example:
            >>> Positives((6, 3), None).imbalance
            2.0
        """
        if not self.number:
            return None
        return max(self.counts) / min(self.counts) if min(self.counts) else math.inf


def first_selection(run: RunFolder) -> dict[str, Positives]:
    """Return what round 0's network selects "before" and "after" balancing, whether or not a round learned from it."""
    pool, truth = run.pool(0), run.truth
    found = {}
    for stage, marked in (("before", pool.positive_before), ("after", pool.positive)):
        accuracy = None if truth is None else share((pool.label == truth)[marked & (truth >= 0)])
        found[stage] = Positives(tuple(pool.class_counts(marked).tolist()), accuracy)
    return found


def first_selection_table(row: Row) -> TextTable:
    """Return the first selections of a row's runs, before and after balancing."""
    lines = []
    for stage in ("before", "after"):
        found = [first_selection(run)[stage] for run in row.runs]
        ratios = [one.imbalance for one in found]
        ratio = "∞" if math.inf in ratios else number_text(ratios, ".2f")
        number, right = number_text([one.number for one in found]), share_text([one.accuracy for one in found])
        lines.append([f"{stage} balancing", number, ratio, right])
    return TextTable(["", "positive labels", "largest / smallest class", "right (%)"], lines)


def share(right: Mask) -> float | None:
    """Return the share of True; None for an empty array."""
    return float(right.mean()) if len(right) else None


def class_reports(run: RunFolder) -> list[tuple[float | None, ...]]:
    """Return the figures of a finished multi-label run per class, None where unknown.

    These are the average precision on the test set, else on the validation set, and the same over eleven points; then,
    for the labels that the last network learned from, the number of positives and their accuracy, and the same for
    negatives.
    """
    last, truth = run.records()[-1], run.truth
    selection = run.pool(last.round - 1).selection if last.round else None
    reports = []
    for code, score in enumerate(class_scores(last) or [None] * len(run.settings.classes)):
        selected: list[float | None] = []
        for value, marked in ((1, selection.positive), (0, selection.negative)) if selection else ():
            rows = marked[:, code]
            right = None if truth is None else share((truth[:, code] == value)[rows & (truth[:, code] >= 0)])
            selected += [int(rows.sum()), right]
        reports.append((*(score or (None, None)), *(selected or [None] * 4)))
    return reports


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
    selected = ["positives selected", "right (%)", "negatives selected", "right (%)"]
    header = ["class", f"{held_out} AP (%)", f"{held_out} AP, 11 points (%)", *selected]
    lines, reports = [], zip(*(class_reports(run) for run in row.runs), strict=True)
    for name, of_class in zip(row.runs[0].settings.classes, reports, strict=True):
        columns = zip(header[1:], zip(*of_class, strict=True), strict=True)
        lines.append([name, *(share_text(of) if "(%)" in column else number_text(of) for column, of in columns)])
    return TextTable(header, lines).without_empty()
