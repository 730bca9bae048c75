"""What held-out labels show about a run: how often its selected labels are right, and whether its rounds helped.

Both are about the labels of `surelabel label`: from the kept model, with the run's thresholds and no balancing. They
are judged on the samples on which the models were compared, the validation set or cross-validation. Without a
comparison, they are judged on the pool if the run knows its true labels, else on the validation set; a run with none of
these is not checked. Samples are counted, because the labels of one sample are not independent.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import rounded_to
from surelabel.core.metrics import map_change, mean_average_precision, paired_change, share_interval
from surelabel.core.thresholds import Thresholds
from surelabel.data.pool import PoolLabels
from surelabel.data.targets import Codes
from surelabel.report.tables import Row, TextTable
from surelabel.runs import RunFolder
from surelabel.runs.comparison import FEWEST

NOT_CHECKED = (
    "How often selected labels are right was not checked: the run has no validation labels; 'surelabel fit "
    "--validation 0.2' holds some out."
)
FEWEST_OF_CLASS = 10
"""A class with fewer selected labels than this is not reported."""


class Checked(NamedTuple):
    """Samples with selected labels and known truth, and how many of these have no wrong label.

    Example:
        >>> Checked(35, 40).text(" are right")
        '87.5 % are right (35 of 40; 95 % interval 73.2 to 95.8 %)'
    """

    right: int
    number: int

    def text(self, verb: str = "") -> str:
        """Return the share, its total and its interval; the verb comes after the share."""
        share, low, high = (100 * value for value in share_interval(self.right, self.number))
        return f"{share:.1f} %{verb} ({self.right:,} of {self.number:,}; 95 % interval {low:.1f} to {high:.1f} %)"


class CheckedLabels(NamedTuple):
    """The selected labels of a set with known truth: the positive ones, and the ruled-out classes.

    Attributes:
        judged_by: the set.
        positive: selected labels.
        negative: classes that are ruled out.
        classes: selected labels per class.
    """

    judged_by: str
    positive: Checked
    negative: Checked
    classes: tuple[Checked, ...] = ()


def check_selected(run: RunFolder) -> CheckedLabels | None:
    """Return how many of the kept model's selected labels are right; None if no true label is known."""
    found = kept_judged(run)
    if found is None:
        return None
    name, labels, truth, by_class = found
    chosen = labels.positive_before & (truth >= 0)
    positive = by_sample(np.nonzero(chosen)[0], (labels.label != truth)[chosen])
    of_classes = _of_classes(labels, chosen, truth, len(run.settings.classes)) if by_class else ()
    return CheckedLabels(name, positive, _negatives_by_sample(labels, truth), of_classes)


def _negatives_by_sample(labels: PoolLabels, truth: Codes) -> Checked:
    """Return how many samples have negatives, and how many of them have no wrong one."""
    if truth.ndim == 2:
        negative = labels.negative[:] & (truth >= 0)
        number, wrong = negative.any(axis=1).sum(), (negative & (truth == 1)).any(axis=1).sum()
    else:
        true = truth[labels.negative.rows]
        number, wrong = (true >= 0).sum(), labels.negative.has(true).sum()
    number, wrong = int(number) + labels.left_out.samples, int(wrong) + labels.left_out.wrong
    return Checked(number - wrong, number)


def kept_judged(run: RunFolder) -> tuple[str, PoolLabels, Codes, bool] | None:
    """Return a set with known truth, the kept model's labels of it, the truth, and whether to report classes."""
    comparison = run.comparison()
    judged = {} if comparison is None else comparison.judged()
    if comparison is not None and comparison.kept in judged:
        labels, truth = judged[comparison.kept]
        return comparison.judge, reselected(labels, comparison.promise), truth, True
    if (known := run.truth) is not None:
        return "pool", run.pool(), known, False
    if (known := run.validation_truth) is not None:
        return "validation set", run.validation(), known, False
    return None


def reselected(labels: PoolLabels, promise: Thresholds | None) -> PoolLabels:
    """Return labels with those selected that pass the thresholds of a promise, if there is one."""
    if promise is None or promise.tau_p is None or promise.kappa_p is None:
        return labels
    chosen = labels.confidence >= rounded_to(labels.confidence, promise.tau_p)
    if labels.uncertainty is not None:
        chosen &= labels.uncertainty <= rounded_to(labels.uncertainty, promise.kappa_p)
    return dataclasses.replace(labels, positive_before=chosen & (labels.label == 1 if labels.label.ndim == 2 else True))


def _of_classes(labels: PoolLabels, chosen: Any, truth: Any, num_classes: int) -> tuple[Checked, ...]:
    """Return how many labels are selected per class, and how many of these are right."""
    of_class = labels.label[chosen] if truth.ndim == 1 else np.nonzero(chosen)[1]
    right = (labels.label == truth)[chosen]
    numbers, rights = (np.bincount(part, minlength=num_classes) for part in (of_class, of_class[right]))
    return tuple(Checked(*pair) for pair in zip(rights.tolist(), numbers.tolist(), strict=True))


def by_sample(rows: npt.NDArray[Any], wrong: npt.NDArray[np.bool_]) -> Checked:
    """Return how many samples there are, and how many without a wrong label, from the row of each label, (K,)."""
    number = len(np.unique(rows))
    return Checked(number - len(np.unique(rows[wrong])), number)


def selected_lines(run: RunFolder) -> list[str]:
    """Return lines on how often selected labels are right, as far as known."""
    found = check_selected(run)
    if found is None:
        return [NOT_CHECKED]
    name, positive, negative, _ = found
    if not positive.number:
        line = f"No label in the {name} is selected, so how often selected labels are right was not checked."
    elif run.settings.config.task == "multi":
        line = f"Of the samples in the {name} with a selected label, {positive.text(' have no wrong one')}."
    else:
        line = f"Of the selected labels in the {name}, {positive.text(' are right')}."
    lines = [line, *class_lines(found, run.settings.classes), *promise_lines(run)]
    if not negative.number:
        return lines
    return [*lines, f"Where classes are ruled out, {negative.text(' of the samples have none ruled out wrongly')}."]


def class_lines(found: CheckedLabels, classes: Sequence[str]) -> list[str]:
    """Return a line on how often the selected labels of each class are right, for classes with enough of them."""
    enough = [
        f"{name} {part.text()}"
        for name, part in zip(classes, found.classes, strict=False)
        if part.number >= FEWEST_OF_CLASS
    ]
    return [f"By class, where {FEWEST_OF_CLASS} or more are selected: {'; '.join(enough)}."] if enough else []


def promise_lines(run: RunFolder) -> list[str]:
    """Return lines on the thresholds chosen for the labels, and the promise; none if it was not asked for."""
    comparison = run.comparison()
    promise = None if comparison is None else comparison.promise
    if promise is None:
        return []
    if promise.tau_p is None:
        return [f"{promise} So labels are selected by the thresholds of the rounds."]
    return [f"Labels are selected so that few are wrong: {promise}"]


class RoundsChange(NamedTuple):
    """The results on the validation set in the last round and in round 0.

    Attributes:
        worse: a sentence if the last round is worse, by its score or else by its labels; else "".
        text: the figures.
    """

    worse: str
    text: str


def rounds_change(run: RunFolder) -> RoundsChange | None:
    """Return the results on the validation set in the last round and in round 0; None without rounds or a score."""
    records = run.records()
    first, last = records[0].validation_score, records[-1].validation_score
    if first is None or last is None or len(records) < 2:
        return None
    labels_worse, text = labels_change(run)
    judge = "the validation score" if last < first else "its labels of the validation set" if labels_worse else ""
    return RoundsChange(f"By {judge} the last round is worse than round 0." if judge else "", text)


def labels_change(run: RunFolder) -> tuple[bool, str]:
    """Return whether the validation set's labels are worse in the last round than in round 0, and by how much.

    The score is from one plain pass, of which a run keeps nothing else. The labels of each sample, which it does keep,
    are from the stochastic passes, as in `surelabel label`.
    """
    before, after, truth = run.validation(0), run.validation(), run.validation_truth
    assert truth is not None
    if truth.ndim == 1:
        right = before.label == truth, after.label == truth
        change = paired_change(*right)
        points, low, high = (f"{100 * value:+.1f}" for value in change)
        found = (
            f"{right[1].sum():,} of {len(truth):,} validation samples are right, and {right[0].sum():,} were in round 0"
        )
        interval = f"{points} points (paired 95 % interval {low} to {high})"
        return change.mean < 0, f"By the labels of 'surelabel label', {found}: {interval}."
    first, last = (mean_average_precision(labels.confidence, truth == 1, truth >= 0) for labels in (before, after))
    assert first is not None
    assert last is not None
    was, now = first.uninterpolated, last.uninterpolated
    interval = f"; {len(truth)} samples are too few for an interval"
    if len(truth) >= FEWEST:
        change = map_change(before.confidence, after.confidence, truth == 1, truth >= 0)
        points, low, high = (f"{value:+.3f}" for value in change)
        interval = f": {points} (95 % interval {low} to {high}, a bootstrap over {len(truth):,} samples)"
    found = f"the mean average precision is {now:.3f}, and was {was:.3f} in round 0"
    return now < was, f"By the probabilities of 'surelabel label', {found}{interval}."


def checked_table(rows: Sequence[Row]) -> TextTable:
    """Return how often the selected labels of each run are right; no lines if no run has labels to check with."""
    lines, any_checked = [], False
    for name, run in [(row.name_of(run), run) for row in rows for run in row.runs]:
        checked = check_selected(run)
        cells = ["–", "not checked", "–"]
        if checked is not None:
            right, without = (part.text() if part.number else "" for part in checked[1:3])
            any_checked, cells = True, [checked.judged_by, right or "none selected", without or "–"]
        lines.append([name, *cells])
    header = ["row", "judged by the", "selected labels right", "samples without a wrongly ruled-out class"]
    return TextTable(header, lines if any_checked else []).without_empty()
