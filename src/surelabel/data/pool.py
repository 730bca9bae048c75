"""The pool as one network labels it: pseudo-labels (eq. 1), what is selected of them (eq. 5), and balance."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import Array, namespace, to_numpy
from surelabel.core.labels import Task, pseudo_labels, top_entries
from surelabel.core.selection import Selection, checked_shares, most_certain, select
from surelabel.data.source import Ids, Index
from surelabel.data.training_set import Mask
from surelabel.errors import InvalidInputError

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


@dataclass(frozen=True)
class Entries:
    """The marked entries of an (N, C) array: eight bytes a row and one or two an entry, where a mask takes C a row.

    Attributes:
        starts: row i has the classes starts[i] to starts[i + 1], shape (N + 1,).
        classes: the marked classes of all rows, rising within a row, in the smallest integers that hold C; shape (K,).
        num_classes: C.

    Example:
        >>> entries = Entries.of(np.array([[False, True, True], [False, False, False], [True, False, False]]))
        >>> entries.classes.tolist(), entries.counts.tolist()
        ([1, 2, 0], [2, 0, 1])
    """

    starts: Index
    classes: npt.NDArray[np.unsignedinteger]
    num_classes: int

    @classmethod
    def of(cls, mask: Mask) -> Self:
        """Return the marked entries of a mask (N, C)."""
        rows, classes = np.nonzero(mask)
        return cls.at(rows, classes, mask.shape)

    @classmethod
    def at(cls, rows: Index, classes: Index, shape: tuple[int, int]) -> Self:
        """Return the entries at these rows and classes, which follow the order of `np.nonzero`."""
        num_rows, num_classes = shape
        counts = np.bincount(rows, minlength=num_rows)
        return cls(_starts(counts), classes.astype(np.min_scalar_type(num_classes)), num_classes)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Put the rows of several together, in order."""
        counts = np.concatenate([part.counts for part in parts])
        return cls(_starts(counts), np.concatenate([part.classes for part in parts]), parts[0].num_classes)

    @property
    def counts(self) -> Index:
        """How many entries each row has, shape (N,)."""
        return np.diff(self.starts)

    @property
    def rows(self) -> Index:
        """The row of each entry, shape (K,)."""
        return np.repeat(np.arange(len(self)), self.counts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: slice) -> Mask:
        """Return the mask of a few rows, as a mask (N, C) would."""
        first, last, _ = rows.indices(len(self))
        starts = self.starts[first : max(first, last) + 1]
        mask = np.zeros((len(starts) - 1, self.num_classes), dtype=bool)
        mask[np.repeat(np.arange(len(mask)), np.diff(starts)), self.classes[starts[0] : starts[-1]]] = True
        return mask

    def only(self, kept: Mask) -> Self:
        """Return the entries that `kept`, shape (K,), marks."""
        starts = np.concatenate([[0], np.cumsum(kept)])[self.starts]
        return type(self)(starts, self.classes[kept], self.num_classes)


@dataclass(frozen=True)
class PoolLabels:
    """What one network says of each sample, and which of it may be learned from.

    For task "single" label, confidence, uncertainty and the softened pair are those of the predicted class, shape
    (N,). For task "multi" they are (N, C): label is 0 or 1 and confidence is the probability of presence. Nothing else
    here has C values a sample: what grows with the pool are these columns and the selected negatives.

    Attributes:
        ids: the samples' ids, shape (N,).
        label: pseudo-labels (eq. 1).
        confidence: p.
        uncertainty: u, or None after one deterministic pass.
        confidence_soft: p at the softened temperature.
        uncertainty_soft: u at the softened temperature, or None.
        positive: the labels that the next round learns from, balanced if that round is; of label's shape.
        positive_before: the same before balancing.
        negative: the classes that samples are taken not to have.
        negative_p: p_soft of every selected negative, in the order of `negative.classes`.
        negative_u: u_soft of every selected negative, or None.
    """

    ids: Ids
    label: npt.NDArray[np.int64]
    confidence: Floats
    uncertainty: Floats | None
    confidence_soft: Floats
    uncertainty_soft: Floats | None
    positive: Mask
    positive_before: Mask
    negative: Entries
    negative_p: Floats
    negative_u: Floats | None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def entries(self) -> Selection:
        """What the next round learns from; each part gives the mask of a slice of rows, (n, C), when indexed by it."""
        return Selection(self._entries(self.positive), self.negative)

    @property
    def selection(self) -> Selection:
        """What the next round learns from, as masks (N, C), made anew each time: for pools that are not large."""
        return Selection(*(part[:] for part in self.entries))

    @property
    def before(self) -> Mask:
        """Positives before balancing, as a mask (N, C), made anew each time: for pools that are not large."""
        return self._entries(self.positive_before)[:]

    @property
    def num_selected_before(self) -> int:
        """Positives plus negatives before balancing: what convergence is judged by."""
        return int(self.positive_before.sum()) + len(self.negative.classes)

    def class_counts(self, marked: Mask) -> npt.NDArray[np.int64]:
        """Return how many of the marked labels, of label's shape, each class has, shape (C,)."""
        if marked.ndim == 2:
            return np.asarray(marked.sum(axis=0))
        return np.bincount(self.label[marked], minlength=self.negative.num_classes)

    def _entries(self, marked: Mask) -> Entries | Mask:
        """Marked labels, of label's shape, by row and class."""
        if marked.ndim == 2:
            return marked
        rows = np.flatnonzero(marked)
        return Entries.at(rows, self.label[rows], (len(self), self.negative.num_classes))


def label_chunk(prediction: Prediction, task: Task, thresholds: dict[str, float], negatives: bool) -> PoolLabels:
    """Label and select one chunk; the arrays stay on their device, and only what is kept of them leaves it."""
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
        label=to_numpy(label).astype(np.int64),
        confidence=kept(p, of_label),
        uncertainty=kept(u, of_label),
        confidence_soft=kept(p_soft, of_label),
        uncertainty_soft=kept(u_soft, of_label),
        positive=selected,
        positive_before=selected,
        negative=Entries.of(to_numpy(negative)),
        negative_p=kept(p_soft, negative),
        negative_u=kept(u_soft, negative),
    )


def join(chunks: list[PoolLabels]) -> PoolLabels:
    """Put chunks together, in order."""

    def cat(name: str) -> Any:
        parts = [getattr(chunk, name) for chunk in chunks]
        return None if parts[0] is None else np.concatenate(parts)

    names = [item.name for item in fields(PoolLabels) if item.name != "negative"]
    return PoolLabels(**{name: cat(name) for name in names}, negative=Entries.join([c.negative for c in chunks]))


def without_known(pool: PoolLabels, known: Mask) -> PoolLabels:
    """Take back what was selected of entries whose truth is known already; `known` is of the first rows, (n, C).

    These are partly labeled rows, which only task "multi" has.
    """
    if not known.any():
        return pool
    positive, before = pool.positive.copy(), pool.positive_before.copy()
    positive[: len(known)] &= ~known
    before[: len(known)] &= ~known
    negative = pool.negative
    kept = np.ones(len(negative.classes), dtype=bool)
    kept[: negative.starts[len(known)]] = ~known[negative[: len(known)]]
    return replace(
        pool,
        positive=positive,
        positive_before=before,
        negative=negative.only(kept),
        negative_p=pool.negative_p[kept],
        negative_u=None if pool.negative_u is None else pool.negative_u[kept],
    )


def balanced(pool: PoolLabels, floor: int, shares: Floats | None, by_confidence: bool = False) -> PoolLabels:
    """Keep of each class the most certain positives; by confidence, or without uncertainties, the most confident."""
    u = 1.0 - pool.confidence if by_confidence or pool.uncertainty is None else pool.uncertainty
    num_classes = pool.negative.num_classes
    shares = None if shares is None else checked_shares(shares, num_classes)
    at = np.nonzero(pool.positive)
    classes = at[1] if pool.label.ndim == 2 else pool.label[at]
    kept = most_certain(classes, u[at], num_classes, floor, shares)
    positive = np.zeros_like(pool.positive)
    positive[tuple(index[kept] for index in at)] = True
    return replace(pool, positive=positive)


def selected_since(since: Index, selected: Mask, round: int) -> Index:
    """Return since which round labels are selected without a break; -1: not now.

    Args:
        since: the same one round earlier; 0 or -1: not then.
        selected: whether this round learned from the label, of since's shape.
        round: its number.

    >>> selected_since(np.array([-1, 1, 1]), np.array([True, True, False]), 2).tolist()
    [2, 1, -1]
    """
    return np.where(selected, np.where(since > 0, since, round), -1)


def check_chunk(prediction: Prediction, ids: Ids, num_classes: int) -> None:
    """Refuse a chunk that is not of these samples, in order: labels would go to the wrong ones."""
    shape = (len(ids), num_classes)
    if tuple(prediction.p.shape) != shape:
        got = tuple(prediction.p.shape)
        raise InvalidInputError(f"The learner's p must have the shape (ids, classes), {shape}; got {got}.")
    if not np.array_equal(ids, np.asarray(prediction.ids)):
        raise InvalidInputError("The learner's predictions do not follow the source: give its ids, in order.")


def _starts(counts: npt.NDArray[np.integer]) -> Index:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])
