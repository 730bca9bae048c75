"""The pool as one network labels it: pseudo-labels (eq. 1), their selection (eq. 5), and balancing."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import Array, namespace, to_numpy
from surelabel.core.labels import Task, pseudo_labels, top_entries
from surelabel.core.selection import Selection, checked_shares, most_certain, select
from surelabel.data.source import Ids, Index
from surelabel.data.targets import Codes, Marks, Mask, Selected
from surelabel.errors import InvalidInputError

ROWS_OF_A_BLOCK = 1 << 20
"""Samples whose labels are written to a file at once."""

ROWS_IN_MEMORY = "SURELABEL_ROWS_IN_MEMORY"
"""The environment variable that says how many rows of a pool stay in memory; a larger pool is kept in a file."""

_USUAL_ROWS_IN_MEMORY = 4_000_000

Floats = npt.NDArray[np.floating[Any]]


class Prediction(NamedTuple):
    """One chunk of a source, in its order. Arrays are (N, C), numpy or torch.

    Attributes:
        ids: the samples' ids, shape (N,).
        p: probabilities (the mean over stochastic passes).
        u: their standard deviation over the passes; None when there was one deterministic pass.
        p_soft: as p, softened by the temperature.
        u_soft: as u, softened by the temperature.
    """

    ids: Ids
    p: Array
    u: Array | None
    p_soft: Array | None = None
    u_soft: Array | None = None


class LeftOut(NamedTuple):
    """Counts of selected negatives of samples with a positive, which do not learn from their negatives.

    Attributes:
        number: all of them.
        judged: of samples whose label was known when they were selected.
        wrong: those whose class was the sample's true class.
        samples: how many samples are in `judged`.
    """

    number: int = 0
    judged: int = 0
    wrong: int = 0
    samples: int = 0


NONE_LEFT_OUT = LeftOut()


@dataclass(frozen=True)
class PoolLabels:
    """One network's labels for each sample, and which of them may be learned from.

    For task "single" label, confidence, uncertainty and the softened pair are those of the predicted class, shape (N,).
    For task "multi" they are (N, C): label is 0 or 1 and confidence is the probability of presence. Nothing else here
    has C values per sample: only these columns grow with the pool, and C / 8 bytes for a row with negatives.

    Attributes:
        ids: the samples' ids, shape (N,).
        label: pseudo-labels (eq. 1).
        confidence: p.
        uncertainty: u, or None after one deterministic pass.
        confidence_soft: p at the softened temperature.
        uncertainty_soft: u at the softened temperature, or None.
        positive: the labels that the next round learns from, balanced if that round is; shaped like `label`.
        positive_before: the same before balancing.
        negative: the classes that samples are taken not to have; for task "single", only of samples without a positive.
        left_out: the counts of the other negatives.
    """

    ids: Ids
    label: Codes
    confidence: Floats
    uncertainty: Floats | None
    confidence_soft: Floats
    uncertainty_soft: Floats | None
    positive: Mask
    positive_before: Mask
    negative: Marks
    left_out: LeftOut = NONE_LEFT_OUT

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def selected(self) -> Selected:
        """What the next round learns from."""
        positive = (
            self.positive if self.label.ndim == 2 else np.where(self.positive, self.label, self.label.dtype.type(-1))
        )
        return Selected(positive, self.negative)

    @property
    def selection(self) -> Selection:
        """What the next round learns from, as masks (N, C), built at each access: not for large pools."""
        return Selection(self._mask(self.positive), self.negative[:])

    @property
    def before(self) -> Mask:
        """Positives before balancing, as a mask (N, C), built at each access: not for large pools."""
        return self._mask(self.positive_before)

    @property
    def num_classes(self) -> int:
        """C."""
        return self.negative.num_classes

    @property
    def num_samples_selected(self) -> int:
        """How many samples have a positive label."""
        return int((self.positive if self.label.ndim == 1 else self.positive.any(axis=1)).sum())

    @property
    def num_negative(self) -> int:
        """How many negatives were selected."""
        return int(self.negative.counts.sum()) + self.left_out.number

    @property
    def num_selected_before(self) -> int:
        """Positives plus negatives before balancing, by which convergence is judged."""
        return int(self.positive_before.sum()) + self.num_negative

    def class_counts(self, marked: Mask) -> npt.NDArray[np.int64]:
        """Return how many of the marked labels each class has, shape (C,); `marked` is shaped like `label`."""
        if marked.ndim == 2:
            return np.asarray(marked.sum(axis=0))
        return np.bincount(self.label[marked], minlength=self.num_classes)

    def blocks(self) -> Iterator["PoolLabels"]:
        """Yield the labels of consecutive samples, few enough to be written at once."""
        return (self.part(slice(start, start + ROWS_OF_A_BLOCK)) for start in range(0, len(self), ROWS_OF_A_BLOCK))

    def part(self, rows: slice) -> "PoolLabels":
        """Return the labels of consecutive samples, without the counts of left-out negatives."""
        names = [item.name for item in fields(PoolLabels) if item.name not in ("negative", "left_out")]
        columns: dict[str, Any] = {name: getattr(self, name) for name in names}
        columns = {name: None if column is None else column[rows] for name, column in columns.items()}
        return PoolLabels(**columns, negative=self.negative.part(rows))

    def _mask(self, marked: Mask) -> Mask:
        """Return marked labels, shaped like `label`, as a mask (N, C)."""
        if marked.ndim == 2:
            return marked
        mask = np.zeros(self.negative.shape, dtype=bool)
        mask[marked, self.label[marked]] = True
        return mask


def label_chunk(prediction: Prediction, task: Task, thresholds: dict[str, float], negatives: bool) -> PoolLabels:
    """Label and select one chunk; the arrays stay on their device, and only the results leave it."""
    p, u = prediction.p, prediction.u
    p_soft = p if prediction.p_soft is None else prediction.p_soft
    u_soft = u if prediction.u_soft is None else prediction.u_soft
    positive, negative = select(p, u, task=task, p_soft=p_soft, u_soft=u_soft, **thresholds)
    if not negatives:
        negative = namespace(negative=negative).zeros_like(negative)
    of_label: Any = ...  # several labels: every class's value; one: the predicted class's
    if task == "single":
        of_label = top_entries(p)
        label = of_label[1]
    else:
        label = pseudo_labels(p, task, thresholds["gamma"])

    def kept(values: Array | None, at: Any) -> Any:
        return None if values is None else to_numpy(values[at])

    selected = kept(positive, of_label)
    return PoolLabels(
        ids=np.asarray(prediction.ids),
        label=to_numpy(label).astype(np.int32 if task == "single" else np.int8),
        confidence=kept(p, of_label),
        uncertainty=kept(u, of_label),
        confidence_soft=kept(p_soft, of_label),
        uncertainty_soft=kept(u_soft, of_label),
        positive=selected,
        positive_before=selected,
        negative=Marks.of(to_numpy(negative)),
    )


def no_labels(task: Task, num_classes: int) -> PoolLabels:
    """Return an empty set of labels."""
    shape = (0,) if task == "single" else (0, num_classes)
    floats, mask = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.bool_)
    label = np.empty(shape, dtype=np.int32 if task == "single" else np.int8)
    negative = Marks.of(np.empty((0, num_classes), dtype=np.bool_))
    return PoolLabels(np.arange(0), label, floats, floats, floats, floats, mask, mask, negative)


def join(chunks: list[PoolLabels]) -> PoolLabels:
    """Put chunks together, in order."""

    def cat(name: str) -> Any:
        parts = [getattr(chunk, name) for chunk in chunks]
        return None if parts[0] is None else np.concatenate(parts)

    names = [item.name for item in fields(PoolLabels) if item.name not in ("negative", "left_out")]
    left_out = LeftOut(*(sum(numbers) for numbers in zip(*(chunk.left_out for chunk in chunks), strict=True)))
    negative = Marks.join([chunk.negative for chunk in chunks])
    return PoolLabels(**{name: cat(name) for name in names}, negative=negative, left_out=left_out)


def without_known(pool: PoolLabels, known: Mask) -> PoolLabels:
    """Unselect entries whose truth is already known; `known` marks them for the first rows, (n, C).

    These rows are partly labeled, which is possible only for task "multi".
    """
    if not known.any():
        return pool
    positive, before = pool.positive.copy(), pool.positive_before.copy()
    positive[: len(known)] &= ~known
    before[: len(known)] &= ~known
    first, others = pool.negative[: len(known)], pool.negative.part(slice(len(known), None))
    negative = Marks.join([Marks.of(first & ~known), others])
    return replace(pool, positive=positive, positive_before=before, negative=negative)


def without_unneeded(pool: PoolLabels, truth: npt.NDArray[np.int64] | None = None) -> PoolLabels:
    """Count the negatives of samples with a positive, and leave them out; not for task "multi".

    Args:
        pool: with a final selection, since a sample that loses its positive to balancing learns from its negatives.
        truth: class indices (N,) where known, else -1.
    """
    if pool.label.ndim == 2:
        return pool
    needed = ~pool.positive[pool.negative.rows]
    others = pool.negative.only(~needed)
    counts = others.counts
    known = np.full(len(counts), -1) if truth is None else truth[others.rows]
    found = counts.sum(), counts[known >= 0].sum(), others.has(known).sum(), (known >= 0).sum()
    left_out = LeftOut(*(before + int(more) for before, more in zip(pool.left_out, found, strict=True)))
    return replace(pool, negative=pool.negative.only(needed), left_out=left_out)


class Balance(NamedTuple):
    """How a pool is balanced: the arguments of `balanced`."""

    floor: int
    shares: Floats | None = None
    by_confidence: bool = False


def rows_in_memory() -> int:
    """Return how many rows of a pool are kept in memory."""
    text = os.environ.get(ROWS_IN_MEMORY, str(_USUAL_ROWS_IN_MEMORY))
    if not (text.isdecimal() and len(text) < 16):
        raise InvalidInputError(f"{ROWS_IN_MEMORY} must be a whole number of rows. Got {text!r} instead; correct it.")
    return int(text)


def ranked_by(confidence: Floats, uncertainty: Floats | None, by_confidence: bool) -> Floats:
    """Return what balancing ranks labels by, the smallest first: u; by confidence or without uncertainties, 1 - p."""
    return 1.0 - confidence if by_confidence or uncertainty is None else uncertainty


def balanced(pool: PoolLabels, floor: int, shares: Floats | None, by_confidence: bool = False) -> PoolLabels:
    """Keep the most certain positives of each class; by confidence, or without uncertainties, the most confident."""
    u = ranked_by(pool.confidence, pool.uncertainty, by_confidence)
    num_classes = pool.num_classes
    shares = None if shares is None else checked_shares(shares, num_classes)
    at = np.nonzero(pool.positive)
    classes = at[1] if pool.label.ndim == 2 else pool.label[at]
    kept = most_certain(classes, u[at], num_classes, floor, shares)
    positive = np.zeros_like(pool.positive)
    positive[tuple(index[kept] for index in at)] = True
    return replace(pool, positive=positive)


def selected_since(since: Index, selected: Mask, round: int) -> Index:
    """Return the round since which labels have been selected without a break; -1: not selected now.

    Args:
        since: the same, one round earlier; 0 or -1: not selected then.
        selected: whether this round learned from the label, shaped like `since`.
        round: its number.

    >>> selected_since(np.array([-1, 1, 1]), np.array([True, True, False]), 2).tolist()
    [2, 1, -1]
    """
    return np.where(selected, np.where(since > 0, since, round), -1)


def check_chunk(prediction: Prediction, ids: Ids, num_classes: int) -> None:
    """Refuse a chunk that is not for these samples, in order: labels would go to the wrong ones."""
    shape = (len(ids), num_classes)
    if tuple(prediction.p.shape) != shape:
        got = tuple(prediction.p.shape)
        raise InvalidInputError(f"The learner's p must have the shape (ids, classes), {shape}; got {got}.")
    if not np.array_equal(ids, np.asarray(prediction.ids)):
        raise InvalidInputError("The learner's predictions do not follow the source: give its ids, in order.")
