"""What a round learns from: all samples, and the paper's targets (y, g).

`y` is the label and `g` says whether it may be learned from. Ground truth has g = 1. An unlabeled sample, or an
unknown entry of a partly labeled one, has g = 0 until a round selects it.

They are stored as in `data.targets`, in a few bytes per sample, and masks (N, C) are made for a batch of rows.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import to_numpy
from surelabel.core.labels import Task
from surelabel.core.selection import Selection
from surelabel.data.sharded import ShardedSource
from surelabel.data.source import (
    Concatenation,
    Index,
    Renamed,
    Source,
    Subset,
    as_source,
    check_columns,
    check_unique_ids,
)
from surelabel.data.targets import DenseView, Mask, OneLabel, Selected, SeveralLabels, Targets, dense
from surelabel.errors import InvalidInputError

LABELED, POSITIVE, NEGATIVE = 0, 1, 2
"""The kinds of rows that a mini-batch mixes in proportion."""


@dataclass(frozen=True)
class TrainingSet:
    """All samples of a run with this round's targets.

    Attributes:
        source: every sample, labeled ones first, including those without targets in this round.
        targets: the labels, and which of them may be learned from.
        num_labeled: how many rows came with a label.
        task: "single" or "multi".
        round: its number; from 1 on the targets include a selection.
        given: the targets without the selection; None: they include none.
    """

    source: Source
    targets: Targets
    num_labeled: int
    task: Task
    round: int = 0
    given: Targets | None = None

    @property
    def num_classes(self) -> int:
        """C."""
        return self.targets.num_classes

    @property
    def y(self) -> DenseView:
        """The labels, shape (N, C); masks are made for the rows that are asked for."""
        return DenseView(self.targets, "y")

    @property
    def g(self) -> DenseView:
        """Which labels may be learned from, shape (N, C); masks are made for the rows that are asked for.

        With one label per sample: all classes for ground truth, the class of a selected positive, else the negatives.
        """
        return DenseView(self.targets, "g")

    @property
    def rows(self) -> Index:
        """The rows that have something to learn from."""
        return np.flatnonzero(self.targets.learned)

    @property
    def pool_rows(self) -> Index:
        """The rows that came with an unknown entry, in every round the same."""
        given = self.targets if self.given is None else self.given
        return np.flatnonzero(~given.complete)

    @functools.cached_property
    def kind(self) -> npt.NDArray[np.int8]:
        """The kind of each of `rows`: LABELED, POSITIVE (a positive was selected) or NEGATIVE (negatives only)."""
        rows, positive = self.rows, self.targets.positive
        kind = np.where(positive[rows], np.int8(POSITIVE), np.int8(NEGATIVE))
        kind[rows < self.num_labeled] = LABELED
        return kind


class HeldOut(NamedTuple):
    """Samples whose labels are known and not learned from; y and g are (N, C)."""

    source: Source
    y: Mask
    g: Mask


@dataclass(frozen=True)
class Problem:
    """Labeled and unlabeled samples, checked and ordered; the same in every round.

    Attributes:
        source: labeled rows, then unlabeled rows.
        targets: ground truth, where it is known.
        num_labeled: how many rows came with a label.
        num_pool: how many rows have an unknown entry; such entries are pseudo-labeled.
        task: "single" or "multi".
    """

    source: Source
    targets: Targets
    num_labeled: int
    num_pool: int
    task: Task

    @property
    def num_classes(self) -> int:
        """C."""
        return self.targets.num_classes

    @property
    def pool_rows(self) -> Index:
        """The rows with an unknown entry, built at each access."""
        return np.flatnonzero(~self.targets.complete)

    @property
    def pool(self) -> Source:
        """The samples that every round labels."""
        if self.num_pool == len(self.source) - self.num_labeled and isinstance(self.source, Concatenation):
            return self.source.second
        return Subset(self.source, self.pool_rows)

    @property
    def known(self) -> Mask:
        """Which entries of the partly labeled rows, the pool's first n, are ground truth already, shape (n, C)."""
        return dense(self.targets, np.flatnonzero(~self.targets.complete[: self.num_labeled]))[1]

    @property
    def class_counts(self) -> npt.NDArray[np.int64]:
        """How many labeled samples each class has, shape (C,)."""
        return self.targets.class_counts

    def training_set(self, selection: Selection | Selected | None, round: int = 1) -> TrainingSet:
        """Return the targets of a round: ground truth if known, else the selection's labels.

        Args:
            selection: of the pool (`PoolLabels.selected`), or as masks (N, C); None: there is none yet, in round 0.
            round: the number of a round with a selection.
        """
        if selection is None:
            return TrainingSet(self.source, self.targets, self.num_labeled, self.task)
        selected = selection if isinstance(selection, Selected) else Selected.of(selection, self.task)
        targets = self.targets.with_selected(selected)
        return TrainingSet(self.source, targets, self.num_labeled, self.task, round, given=self.targets)

    def held_out(self, name: str, pair: Any) -> HeldOut | None:
        """Check samples and labels `(x, y)` that are scored and not learned from."""
        if pair is None:
            return None
        source, targets = _labeled(name, pair, self.task, self.num_classes)
        check_columns(name, source, self.source)
        return HeldOut(source, *dense(targets, np.arange(len(source))))

    def pool_truth(self, truth: Any) -> npt.NDArray[np.int64] | None:
        """Check the unlabeled samples' true labels and return those of the pool in the same form; -1 is unknown."""
        if truth is None:
            return None
        values = to_numpy(truth)
        num_unlabeled = len(self.source) - self.num_labeled
        if len(values) != num_unlabeled:
            expected = f"a label, or -1, for each of the {num_unlabeled} unlabeled samples"
            raise InvalidInputError(f"truth must have {expected}; got {len(values)}.")
        at_least_0 = np.maximum(values, 0) if self.task == "single" else values
        _check_labels("truth", at_least_0, self.task, self.num_classes)
        # Partly labeled rows come first in the pool; their unknown entries are not judged.
        unknown = np.full((self.num_pool - num_unlabeled, *values.shape[1:]), -1)
        return np.concatenate([unknown, values], dtype=np.int64)


def make_problem(labeled: Any, unlabeled: Any, task: Task, num_classes: int | None = None) -> Problem:
    """Check labeled samples `(x, y)` and unlabeled samples `x` and put them into one order.

    Args:
        labeled: `(x, y)`; x an array or a `Source`; y class indices (N,), or for task "multi" 0, 1 and -1
            (unknown), shape (N, C).
        unlabeled: an array, a `Source`, or None.
        task: "single" or "multi".
        num_classes: C, if the labels do not determine it.
    """
    pool = None if unlabeled is None else as_source("unlabeled", unlabeled)
    source, targets = _labeled("labeled", labeled, task, num_classes, first_id=0 if pool is None else len(pool))
    _check_every_class_has_a_label(targets)
    num_labeled, everything = len(source), source
    if isinstance(pool, ShardedSource) and pool.counts_rows:
        # Either both number their rows from 0, or the labeled ones have names.
        source = Renamed(source, np.arange(len(pool), len(pool) + num_labeled))
    if pool is not None and len(pool):
        check_columns("unlabeled", pool, source)
        everything, targets = Concatenation(source, pool), targets.with_unknown(len(pool))
    check_unique_ids(everything.ids)
    return Problem(everything, targets, num_labeled, int((~targets.complete).sum()), task)


def as_pair(name: str, value: Any) -> tuple[Any, Any]:
    """Return samples and labels; refuse anything but a pair."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return value[0], value[1]
    raise InvalidInputError(f"{name} must be a pair (samples, labels); got {type(value).__name__}.")


def _labeled(name: str, pair: Any, task: Task, num_classes: int | None, first_id: int = 0) -> tuple[Source, Targets]:
    x, labels = as_pair(name, pair)
    source = as_source(name, x, first_id)
    known = known_targets(name, labels, task, num_classes)
    if len(source) != len(known) or not len(known):
        number = len(known)
        raise InvalidInputError(f"{name} must have samples with a label each; got {len(source)} and {number} labels.")
    return source, known


def known_targets(name: str, labels: Any, task: Task, num_classes: int | None = None) -> Targets:
    """Turn class indices, or 0/1/-1 entries (N, C) for task "multi", into targets."""
    values = to_numpy(labels)
    num_classes = _check_labels(name, values, task, num_classes)
    return SeveralLabels.of(values) if task == "multi" else OneLabel.of(values, num_classes)


def _check_labels(name: str, values: npt.NDArray[Any], task: Task, num_classes: int | None) -> int:
    """Refuse labels of another kind, shape or range than the task's; return the number of classes."""
    if not (np.issubdtype(values.dtype, np.integer) or values.dtype == bool):
        raise InvalidInputError(f"The labels of {name} must be integers; got {values.dtype}.")
    single = task == "single"
    if values.ndim != (1 if single else 2):
        shape = "class indices of shape (N,)" if single else "0, 1 or -1 (unknown) of shape (N, C)"
        raise InvalidInputError(f"For task={task!r} the labels of {name} must be {shape}; got shape {values.shape}.")
    found = int(values.max(initial=0)) + 1 if single else int(values.shape[1])
    num_classes = found if num_classes is None else num_classes
    if not single and found != num_classes:
        expected = f"a column for each of the {num_classes} classes"
        raise InvalidInputError(f"The labels of {name} must have {expected}; got {found}.")
    low, high = (0, num_classes - 1) if single else (-1, 1)
    least, largest = (int(values.min()), int(values.max())) if values.size else (low, low)
    if least < low or largest > high:
        worst = least if least < low else largest
        remedy = "; unlabeled samples belong into 'unlabeled'" if worst < 0 else ""
        raise InvalidInputError(f"The labels of {name} must lie in [{low}, {high}]; got {worst}{remedy}.")
    return num_classes


def _check_every_class_has_a_label(targets: Targets) -> None:
    present = targets.class_counts
    several, known = isinstance(targets, SeveralLabels), present
    if isinstance(targets, SeveralLabels):
        known = SeveralLabels(targets.g, targets.g, targets.num_classes).class_counts
    missing = np.flatnonzero(known == 0)
    if len(missing):
        unknown = " (all of its entries are unknown)" if several else ""
        raise InvalidInputError(
            f"Class {missing[0]} has no label{unknown}; label some samples, or leave the class out."
        )
    if several and (known == present).all():
        raise InvalidInputError("No entry is known to be 0, absent; label some samples that lack a class.")
    if not several and targets.num_classes < 2:
        raise InvalidInputError("The labels hold one class only; label samples of at least two classes.")
