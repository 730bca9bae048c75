"""Targets (y, g) in a few bytes per sample; they are made dense, (N, C), for a few rows at a time.

A sample with one label is a class index. A sample with only negative labels has these as packed bits, C / 8 bytes. A
sample with several labels has two rows of packed bits: its labels, and which of them may be learned from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from surelabel.core.labels import Task
from surelabel.core.selection import Selection
from surelabel.data.source import Index

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.integer[Any]]
PackedRows = npt.NDArray[np.uint8]
"""Masks (n, C) as bits, shape (n, C / 8 rounded up); the first class of eight is the highest bit."""

_BLOCK = 1 << 17
"""The most entries that are made dense at a time."""

_NOTHING, _FIRST = -1, -2


@dataclass(frozen=True)
class Marks:
    """The marked entries of an (N, C) array: 4 + C / 8 bytes for each row with marks, and nothing for the others.

    Attributes:
        rows: the rows that have a marked entry, ascending, shape (M,).
        bits: the marks of each of them, shape (M, C / 8 rounded up).
        shape: (N, C).

    Example:
        >>> marks = Marks.of(np.array([[False, True, True], [False, False, False], [True, False, False]]))
        >>> marks.rows.tolist(), marks.counts.tolist(), marks[1:].tolist()
        ([0, 2], [2, 1], [[False, False, False], [True, False, False]])
    """

    rows: Codes
    bits: PackedRows
    shape: tuple[int, int]

    @classmethod
    def of(cls, mask: Mask) -> Self:
        """Return the marked entries of a mask (N, C)."""
        bits = np.packbits(mask, axis=1)
        rows = np.flatnonzero(bits.any(axis=1))
        num_rows, num_classes = mask.shape
        return cls.packed(rows, bits[rows], (num_rows, num_classes))

    @classmethod
    def at(cls, rows: Index, classes: Index, shape: tuple[int, int]) -> Self:
        """Return the marks of entries at these rows and classes."""
        kept, place = np.unique(rows, return_inverse=True)
        bits = np.zeros((len(kept), _width(shape[1])), dtype=np.uint8)
        byte, bit = np.divmod(classes, 8)
        np.bitwise_or.at(bits, (place, byte), _single_bit(bit))
        return cls.packed(kept, bits, shape)

    @classmethod
    def packed(cls, rows: Index, bits: PackedRows, shape: tuple[int, int]) -> Self:
        """Return the marks of these rows, ascending, given their bits."""
        return cls(rows.astype(index_type(shape[0])), bits, shape)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the rows of several, in order."""
        lengths = [len(part) for part in parts]
        total = sum(lengths)
        starts = np.cumsum([0, *lengths[:-1]])
        rows = [part.rows.astype(index_type(total)) + start for part, start in zip(parts, starts.tolist(), strict=True)]
        return cls(np.concatenate(rows), np.concatenate([part.bits for part in parts]), (total, parts[0].num_classes))

    @property
    def num_classes(self) -> int:
        """C."""
        return self.shape[1]

    @property
    def counts(self) -> Index:
        """How many marked entries each of `rows` has, shape (M,)."""
        counts = np.empty(len(self.rows), dtype=np.int64)
        for some in blocks(len(counts), self.num_classes):
            np.bitwise_count(self.bits[some]).sum(axis=1, out=counts[some])
        return counts

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Mask:
        """Return the mask of a few rows, indexed like a mask (N, C)."""
        part = self.part(rows)
        mask = np.zeros(part.shape, dtype=bool)
        mask[part.rows] = unpacked(part.bits, self.num_classes)
        return mask

    def part(self, rows: slice) -> "Marks":
        """Return the marks of some consecutive rows."""
        first, last, _ = rows.indices(len(self))
        last = max(first, last)
        some = slice(*np.searchsorted(self.rows, [first, last]).tolist())
        return Marks(self.rows[some] - self.rows.dtype.type(first), self.bits[some], (last - first, self.num_classes))

    def has(self, classes: Codes) -> Mask:
        """Return whether each of `rows` has this class marked, shape (M,); a class below 0 is not marked."""
        byte, bit = np.divmod(np.maximum(classes, 0), 8)
        found = self.bits[np.arange(len(self.rows)), byte] & _single_bit(bit)
        return np.asarray((found != 0) & (classes >= 0))

    def only(self, kept: Mask) -> "Marks":
        """Return the marks of those `rows` where `kept`, shape (M,), is True."""
        return self if kept.all() else Marks(self.rows[kept], self.bits[kept], self.shape)


class Selected(NamedTuple):
    """What a round selected of N samples.

    Attributes:
        positive: the class of each sample, -1 for none, shape (N,); for task "multi" a mask (N, C).
        negative: the classes that samples are taken not to have.
    """

    positive: Codes | Mask
    negative: Marks

    @classmethod
    def of(cls, selection: Selection, task: Task) -> Self:
        """Return the selection of two masks (N, C)."""
        positive = np.asarray(selection.positive)
        if task == "single":
            positive = np.where(positive.any(axis=1), positive.argmax(axis=1), _NOTHING)
        return cls(positive, Marks.of(np.asarray(selection.negative)))


@dataclass(frozen=True)
class OneLabel:
    """Targets of samples with at most one label.

    Attributes:
        code: the class of each sample; -1: nothing is known; -2 - k: it has none of the classes in row k of `bits`.
        bits: packed negatives, shape (M, C / 8 rounded up).
        num_classes: C.
        num_labeled: how many of the first samples have ground truth: g marks all their classes. For the label of
            another sample, g marks only its class.
    """

    code: Codes
    bits: PackedRows
    num_classes: int
    num_labeled: int

    @classmethod
    def of(cls, labels: Codes, num_classes: int) -> Self:
        """Return the targets of ground truth, class indices (N,)."""
        code = labels.astype(index_type(max(len(labels), num_classes)))
        return cls(code, np.empty((0, _width(num_classes)), dtype=np.uint8), num_classes, len(labels))

    def __len__(self) -> int:
        return len(self.code)

    def packed(self, rows: Index) -> tuple[PackedRows, PackedRows]:
        """Return y and g of some rows."""
        code = self.code[rows]
        y = np.zeros((len(code), self.bits.shape[1]), dtype=np.uint8)
        labeled = np.flatnonzero(code >= 0)
        byte, bit = np.divmod(code[labeled], 8)
        y[labeled, byte] = _single_bit(bit)
        g = y.copy()
        negative = np.flatnonzero(code <= _FIRST)
        g[negative] = self.bits[_FIRST - code[negative]]
        g[rows < self.num_labeled] = _all_classes(self.num_classes)
        return y, g

    def arrays(self) -> list[npt.NDArray[Any]]:
        """Return the arrays of these targets."""
        return [self.code, self.bits]

    @property
    def learned(self) -> Mask:
        """Which samples have something to learn from, shape (N,)."""
        return np.asarray(self.code != _NOTHING)

    @property
    def positive(self) -> Mask:
        """Which samples have a label, shape (N,)."""
        return np.asarray(self.code >= 0)

    @property
    def complete(self) -> Mask:
        """Which samples have ground truth, shape (N,)."""
        complete = np.zeros(len(self), dtype=np.bool_)
        complete[: self.num_labeled] = True
        return complete

    @property
    def class_counts(self) -> npt.NDArray[np.int64]:
        """How many samples have each class as their label, shape (C,)."""
        return np.bincount(self.code[self.positive], minlength=self.num_classes)

    def with_unknown(self, number: int) -> "OneLabel":
        """Return the targets with this many unknown samples appended."""
        length = len(self) + number
        code = np.full(length, _NOTHING, dtype=index_type(max(length, self.num_classes)))
        code[: len(self)] = self.code
        return OneLabel(code, self.bits, self.num_classes, self.num_labeled)

    def with_selected(self, selected: Selected) -> "OneLabel":
        """Return the targets with the selection's labels; a sample with a positive does not need its negatives."""
        positive, negative = selected
        negative = negative.only(positive[negative.rows] < 0)
        code = self.code.copy()
        of_pool = code[self.num_labeled :]
        of_pool[:] = positive
        of_pool[negative.rows] = _FIRST - np.arange(len(negative.rows), dtype=code.dtype)
        return OneLabel(code, negative.bits, self.num_classes, self.num_labeled)


@dataclass(frozen=True)
class SeveralLabels:
    """Targets of samples with several labels, as packed bits.

    Attributes:
        y: the labels, shape (N, C / 8 rounded up).
        g: which labels may be learned from, of the same shape.
        num_classes: C.
    """

    y: PackedRows
    g: PackedRows
    num_classes: int

    @classmethod
    def of(cls, labels: Codes) -> Self:
        """Return the targets of ground truth: 1, 0 or -1 (unknown), (N, C)."""
        return cls(np.packbits(labels == 1, axis=1), np.packbits(labels >= 0, axis=1), labels.shape[1])

    def __len__(self) -> int:
        return len(self.y)

    def packed(self, rows: Index) -> tuple[PackedRows, PackedRows]:
        """Return y and g of some rows."""
        return self.y[rows], self.g[rows]

    def arrays(self) -> list[npt.NDArray[Any]]:
        """Return the arrays of these targets."""
        return [self.y, self.g]

    @property
    def learned(self) -> Mask:
        """Which samples have something to learn from, shape (N,)."""
        return np.asarray(self.g.any(axis=1))

    @property
    def positive(self) -> Mask:
        """Which samples have a positive label, shape (N,)."""
        return np.asarray(self.y.any(axis=1))

    @property
    def complete(self) -> Mask:
        """Which samples have only known entries, shape (N,)."""
        return np.asarray((self.g == _all_classes(self.num_classes)).all(axis=1))

    @property
    def class_counts(self) -> npt.NDArray[np.int64]:
        """How many samples have each class, shape (C,)."""
        counts = np.zeros(self.num_classes, dtype=np.int64)
        for rows in blocks(len(self), self.num_classes):
            counts += unpacked(self.y[rows], self.num_classes).sum(axis=0)
        return counts

    def of_class(self, number: int) -> tuple[Mask, Mask]:
        """Return y and g of one class, shape (N,) each."""
        byte, bit = divmod(number, 8)
        y, g = ((part[:, byte] & np.uint8(128 >> bit)) != 0 for part in (self.y, self.g))
        return y, g

    def with_unknown(self, number: int) -> "SeveralLabels":
        """Return the targets with this many unknown samples appended."""
        nothing = np.zeros((number, self.y.shape[1]), dtype=np.uint8)
        y, g = (np.concatenate([part, nothing]) for part in (self.y, self.g))
        return SeveralLabels(y, g, self.num_classes)

    def with_selected(self, selected: Selected) -> "SeveralLabels":
        """Return the targets with the selection's labels for unknown entries."""
        y, g, pool_rows = self.y.copy(), self.g.copy(), np.flatnonzero(~self.complete)
        positive = np.packbits(selected.positive, axis=1) & ~self.g[pool_rows]
        y[pool_rows] |= positive
        g[pool_rows] |= positive
        negative, rows = selected.negative, pool_rows[selected.negative.rows]
        g[rows] |= negative.bits
        return SeveralLabels(y, g, self.num_classes)


Targets: TypeAlias = OneLabel | SeveralLabels


class DenseView(np.lib.mixins.NDArrayOperatorsMixin):
    """y or g of a round, used like a mask (N, C): it is made dense only for the rows that are asked for.

    `any` and `all` of each row make nothing dense; `numpy.asarray` and operators make all of it, a byte for each sample
    and class.

    >>> view = DenseView(OneLabel.of(np.array([1, 0]), 3).with_unknown(1), "g")
    >>> view.shape, view.all(axis=1).tolist(), view[np.array([0, 2])].tolist()
    ((3, 3), [True, True, False], [[True, True, True], [False, False, False]])
    """

    def __init__(self, targets: Targets, name: str) -> None:
        self.targets, self._which = targets, "yg".index(name)
        self.shape = len(targets), targets.num_classes

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Mask:
        """Return the mask of some rows: a slice, a mask (N,), a number or an array of numbers."""
        index = np.arange(len(self))[rows]
        return dense(self.targets, np.atleast_1d(index))[self._which].reshape(*np.shape(index), -1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        made = (np.asarray(value) if isinstance(value, DenseView) else value for value in inputs)
        return getattr(ufunc, method)(*made, **options)

    def any(self, axis: int | None = None) -> Any:
        """Return which rows have a marked entry, shape (N,), or what numpy's `any` returns for other arguments."""
        if axis == 1:
            return self.targets.learned if self._which else self.targets.positive
        return np.asarray(self).any(axis=axis)

    def all(self, axis: int | None = None) -> Any:
        """Return which rows have only marked entries, shape (N,), or what numpy's `all` returns for other arguments."""
        if axis == 1 and self._which:
            return self.targets.complete
        return np.asarray(self).all(axis=axis)


def dense(targets: Targets, rows: Index) -> tuple[Mask, Mask]:
    """Return y and g of some rows as masks (n, C)."""
    y, g = (unpacked(part, targets.num_classes) for part in targets.packed(rows))
    return y, g


def unpacked(bits: PackedRows, num_classes: int) -> Mask:
    """Return packed rows as a mask (n, C)."""
    return np.unpackbits(bits, axis=1, count=num_classes).view(bool)


def blocks(num_rows: int, num_classes: int) -> Iterator[slice]:
    """Yield stretches of consecutive rows, short enough that their masks are small."""
    step = max(1, _BLOCK // num_classes)
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def _single_bit(number: Codes) -> npt.NDArray[np.uint8]:
    return np.uint8(128) >> number.astype(np.uint8)


def _all_classes(num_classes: int) -> PackedRows:
    return np.packbits(np.ones(num_classes, dtype=bool))


def _width(num_classes: int) -> int:
    return -(-num_classes // 8)


def index_type(largest: int) -> type[np.signedinteger[Any]]:
    """Return a signed integer type that holds numbers up to this one and down to its negative."""
    return np.int32 if largest < 2**31 - 2 else np.int64
