"""What a round learns from: all samples, and the paper's targets (y, g).

`y` is the label and `g` says whether it may be learned from. Ground truth has g = 1. An unlabeled sample, or an
unknown entry of a partly labeled one, has g = 0 until a round selects it.

Both are dense masks (N, C), two bytes for every sample and class, however little is selected. With one label a sample
they are the only arrays of a round that grow with samples times classes.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import to_numpy
from surelabel.core.labels import Task
from surelabel.core.selection import Selection
from surelabel.data.source import Concatenation, Index, Source, Subset, as_source, check_unique_ids
from surelabel.errors import InvalidInputError

Mask = npt.NDArray[np.bool_]

LABELED, POSITIVE, NEGATIVE = 0, 1, 2
"""The kinds of rows that a mini-batch mixes in proportion."""

BLOCK = 1 << 17
"""Entries of the targets that are written at a time."""


@dataclass(frozen=True)
class TrainingSet:
    """All samples of a run with this round's targets.

    Attributes:
        source: every sample, labeled ones first; also those that have nothing to learn from in this round.
        y: the labels, shape (N, C).
        g: which labels may be learned from, shape (N, C).
        num_labeled: how many rows came with a label.
        task: "single" or "multi".
        round: which one it is for; from 1 on a selection is among the targets.
    """

    source: Source
    y: Mask
    g: Mask
    num_labeled: int
    task: Task
    round: int = 0

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.y.shape[1])

    @functools.cached_property
    def rows(self) -> Index:
        """The rows that have something to learn from."""
        return np.flatnonzero(self.g.any(axis=1))

    @functools.cached_property
    def kind(self) -> npt.NDArray[np.int64]:
        """Of each row of `rows`: LABELED, POSITIVE (a positive was selected) or NEGATIVE (negatives only)."""
        rows = self.rows
        has_positive = np.asarray(self.g.any(axis=1, where=self.y))[rows]
        return np.where(rows < self.num_labeled, LABELED, np.where(has_positive, POSITIVE, NEGATIVE))


class HeldOut(NamedTuple):
    """Samples whose labels are known and not learned from; y and g are (N, C)."""

    source: Source
    y: Mask
    g: Mask


@dataclass(frozen=True)
class Problem:
    """Labeled and unlabeled samples, checked and put into one order; the same in every round.

    Attributes:
        source: labeled rows, then unlabeled rows.
        y: ground truth, False where unknown, shape (N, C).
        g: where ground truth is known, shape (N, C).
        num_labeled: how many rows came with a label.
        pool_rows: the rows with an unknown entry; their unknown entries are pseudo-labeled.
        task: "single" or "multi".
    """

    source: Source
    y: Mask
    g: Mask
    num_labeled: int
    pool_rows: Index
    task: Task

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.y.shape[1])

    @property
    def pool(self) -> Source:
        """The samples that every round labels."""
        if len(self.pool_rows) == len(self.source) - self.num_labeled and isinstance(self.source, Concatenation):
            return self.source.second
        return Subset(self.source, self.pool_rows)

    @property
    def known(self) -> Mask:
        """Which entries of the partly labeled rows, the pool's first n, are ground truth already, shape (n, C)."""
        return self.g[self.pool_rows[self.pool_rows < self.num_labeled]]

    @property
    def class_counts(self) -> npt.NDArray[np.int64]:
        """How many labeled samples each class has, shape (C,)."""
        return np.asarray((self.y[: self.num_labeled] & self.g[: self.num_labeled]).sum(axis=0))

    def training_set(self, selection: Selection | None, round: int = 1) -> TrainingSet:
        """Return the targets of a round: ground truth, and the selection's labels where there is none.

        Args:
            selection: masks (N, C) of the pool, or parts that give the masks of a slice of rows (`PoolLabels.entries`);
                None: there is none yet, in round 0.
            round: the number of a round with a selection.
        """
        y, g = self.y, self.g
        if selection is not None:
            y, g = y.copy(), g.copy()
            # A few rows at a time: nothing else as large as y and g is made.
            step = max(1, BLOCK // self.num_classes)
            for start in range(0, len(self.pool_rows), step):
                rows = slice(start, start + step)
                at = self.pool_rows[rows]
                unknown = ~self.g[at]
                positive, negative = (part[rows] & unknown for part in selection)
                y[at] |= positive
                g[at] |= positive | negative
        return TrainingSet(self.source, y, g, self.num_labeled, self.task, 0 if selection is None else round)

    def held_out(self, name: str, pair: Any) -> HeldOut | None:
        """Check samples and labels `(x, y)` that are scored and not learned from."""
        if pair is None:
            return None
        return HeldOut(*_labeled(name, pair, self.task, self.num_classes))

    def pool_truth(self, truth: Any) -> npt.NDArray[np.int64] | None:
        """Check the unlabeled samples' labels and return the pool's, of the same form; -1 is unknown."""
        if truth is None:
            return None
        values = to_numpy(truth)
        num_unlabeled = len(self.source) - self.num_labeled
        if len(values) != num_unlabeled:
            expected = f"a label, or -1, for each of the {num_unlabeled} unlabeled samples"
            raise InvalidInputError(f"truth must have {expected}; got {len(values)}.")
        at_least_0 = np.maximum(values, 0) if self.task == "single" else values
        _check_labels("truth", at_least_0, self.task, self.num_classes)
        # Partly labeled rows come first in the pool; what is unknown of them is not judged.
        unknown = np.full((len(self.pool_rows) - num_unlabeled, *values.shape[1:]), -1)
        return np.concatenate([unknown, values], dtype=np.int64)


def make_problem(labeled: Any, unlabeled: Any, task: Task, num_classes: int | None = None) -> Problem:
    """Check labeled samples `(x, y)` and unlabeled samples `x` and put them into one order.

    Args:
        labeled: `(x, y)`; x an array or a `Source`; y class indices (N,), or for task "multi" 0, 1 and -1
            (unknown), shape (N, C).
        unlabeled: an array, a `Source`, or None.
        task: "single" or "multi".
        num_classes: C, where the labels do not say.
    """
    pool = None if unlabeled is None else as_source("unlabeled", unlabeled)
    source, y, g = _labeled("labeled", labeled, task, num_classes, first_id=0 if pool is None else len(pool))
    _check_every_class_has_a_label(y, g, task)
    num_labeled, everything = len(source), source
    if pool is not None and len(pool):
        everything = Concatenation(source, pool)
        nothing = np.zeros((len(pool), y.shape[1]), dtype=bool)
        y, g = np.concatenate([y, nothing]), np.concatenate([g, nothing])
    check_unique_ids(everything.ids)
    return Problem(everything, y, g, num_labeled, np.flatnonzero(~g.all(axis=1)), task)


def as_pair(name: str, value: Any) -> tuple[Any, Any]:
    """Return samples and labels; refuse what is no pair."""
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return value[0], value[1]
    raise InvalidInputError(f"{name} must be a pair (samples, labels); got {type(value).__name__}.")


def _labeled(name: str, pair: Any, task: Task, num_classes: int | None, first_id: int = 0) -> tuple[Source, Mask, Mask]:
    x, labels = as_pair(name, pair)
    source = as_source(name, x, first_id)
    y, g = targets(name, labels, task, num_classes)
    if len(source) != len(y) or not len(y):
        raise InvalidInputError(f"{name} must have samples with a label each; got {len(source)} and {len(y)} labels.")
    return source, y, g


def targets(name: str, labels: Any, task: Task, num_classes: int | None = None) -> tuple[Mask, Mask]:
    """Turn class indices, or 0/1/-1 entries for task "multi", into (y, g), shape (N, C) each."""
    values = to_numpy(labels)
    num_classes = _check_labels(name, values, task, num_classes)
    if task == "multi":
        return values == 1, values >= 0
    y = np.zeros((len(values), num_classes), dtype=bool)
    y[np.arange(len(values)), values.astype(np.int64)] = True
    return y, np.ones_like(y)


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


def _check_every_class_has_a_label(y: Mask, g: Mask, task: Task) -> None:
    missing = np.flatnonzero(~((y if task == "single" else g).any(axis=0)))
    if len(missing):
        unknown = " (all of its entries are unknown)" if task == "multi" else ""
        raise InvalidInputError(
            f"Class {missing[0]} has no label{unknown}; label some samples, or leave the class out."
        )
    if task == "multi" and not (g & ~y).any():
        raise InvalidInputError("No entry is known to be 0, absent; label some samples that lack a class.")
    if task == "single" and y.shape[1] < 2:
        raise InvalidInputError("The labels hold one class only; label samples of at least two classes.")
