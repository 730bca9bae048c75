"""Which samples are labeled, held out or pool, and cross-validation when few are labeled.

Draws are hashes of (seed, purpose, sample). With `groups=`, whole groups are drawn: clips of one video, or pictures of
one patient, never lie on both sides of a split.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import require_count, require_shape
from surelabel.data.draws import UInt64Array, draw, sample_keys
from surelabel.data.encoding import encode_labels, label_array
from surelabel.data.source import Ids, Index
from surelabel.errors import DataError, InvalidInputError


class Split(NamedTuple):
    """Which samples are labeled, which are held out, and which are the pool: row numbers, each sorted.

    Attributes:
        labeled: samples that come with their labels.
        validation: samples whose labels are used, but not for training; they count as labels too.
        pool: all others.
    """

    labeled: Index
    validation: Index
    pool: Index

    @property
    def hash(self) -> str:
        """A hash that distinguishes this split from others, see `split_hash`."""
        return split_hash(self.labeled, self.validation)


def few_labels(y: npt.NDArray[np.integer], per_class: int, seed: int, groups: Any = None) -> tuple[Index, Index]:
    """Draw `per_class` labeled samples of each class by a hash of (seed, sample); return (labeled, the rest).

    Args:
        y: the class of every sample, shape (N,).
        per_class: how many of each class; with groups at least as many.
        seed: draws them.
        groups: the group of every sample, integers or strings, shape (N,). In the order of a hash of (seed, group), a
            whole group is labeled if a class in it still has fewer than `per_class`.

    >>> labeled, rest = few_labels(np.array([0, 0, 0, 1, 1, 1]), per_class=1, seed=0)
    >>> len(labeled), len(rest)
    (2, 4)
    >>> few_labels(np.array([0, 0, 0, 1, 1, 1]), 1, seed=0, groups=list("aabccd"))[0].tolist()
    [0, 1, 5]
    """
    split = _split_by_class(y, seed, groups, require_count("per_class", per_class, 1), 0)
    return split.labeled, split.pool


def balanced_split(
    y: npt.NDArray[np.integer], labels: int, seed: int, num_validation: int = 0, *, groups: Any = None
) -> Split:
    """Draw as many labeled samples of each class by a hash of (seed, sample), then a validation set in the same way.

    For one seed, a smaller labeled set is part of a larger one, and a validation set does not change the labeled
    samples. With groups the counts are minimums, exceeded at most by the last group of a class. A smaller labeled set
    is then part of a larger one only if every group has a single class.

    Args:
        y: the class of every sample, shape (N,).
        labels: how many labeled samples, of all classes together.
        seed: draws them.
        num_validation: how many samples are held out of the rest; their labels come on top.
        groups: the group of every sample, see `few_labels`; a group is labeled, held out or pool as a whole.

    >>> split = balanced_split(np.arange(20) % 2, labels=4, seed=0, num_validation=2)
    >>> [len(part) for part in split], np.bincount(split.labeled % 2).tolist()
    ([4, 2, 14], [2, 2])
    """
    require_shape("y", np.asarray(y), 1)
    num_classes = len(np.unique(y))
    per_class = _share("labels", labels, num_classes, 1)
    return _split_by_class(y, seed, groups, per_class, _share("num_validation", num_validation, num_classes, 0))


def share_split(
    y: npt.NDArray[np.integer], share: float, seed: int, validation_share: float = 0.0, groups: Any = None
) -> Split:
    """Draw a share of the samples of each class by a hash of (seed, sample), and a validation set of the rest.

    Each class has its share of labeled samples, rounded, and at least one. For one seed, a smaller share is part of a
    larger one.

    Args:
        y: the class of every sample, shape (N,).
        share: of each class, above 0; 1: all are labeled.
        seed: draws them.
        validation_share: of each class, held out of the rest; these labels come on top.
        groups: the group of every sample, see `few_labels`; a group is labeled, held out or pool as a whole, and each
            class has at least its share. A smaller share is then part of a larger one only if every group has a single
            class.

    >>> split = share_split(np.array([0] * 10 + [1] * 20), share=0.2, seed=0)
    >>> [len(part) for part in split], np.bincount(split.labeled // 10).tolist()  # rows 0–9, 10–19, 20–29
    ([6, 0, 24], [2, 1, 3])
    """
    require_shape("y", np.asarray(y), 1)
    if not (0 < share <= 1 and 0 <= validation_share <= 1 - share):
        got = f"{share} and {validation_share}"
        raise InvalidInputError(f"share must be above 0 and, with validation_share, at most 1; got {got}.")
    _, sizes = np.unique(y, return_counts=True)
    labels, validation = (np.maximum(np.round(part * sizes), part > 0) for part in (share, validation_share))
    return _split_by_class(y, seed, groups, labels, validation, or_all=True)


def multi_label_split(
    y: npt.NDArray[np.integer],
    labels: int,
    seed: int,
    num_validation: int = 0,
    *,
    ids: Ids | None = None,
    groups: Any = None,
) -> Split:
    """Draw labeled samples with several labels each, so that every class has a known positive and a known negative.

    Samples are ordered by a hash of (seed, id). In this order, each class's first positive and first negative are
    labeled, then the first of the others until there are enough. So these are the first `labels` samples, unless a
    class has no positive or no negative among them. For one seed, a smaller labeled set is part of a larger one. The
    validation set is drawn from the rest by another hash, regardless of the classes.

    Args:
        y: 1, 0 and -1 (unknown), shape (N, C).
        labels: how many labeled samples.
        seed: draws them.
        num_validation: how many samples are held out of the rest; their labels come on top.
        ids: the name of each sample, from which the hash is made, shape (N,); None: row numbers.
        groups: the group of every sample, shape (N,): whole groups are drawn, by a hash of (seed, group), until there
            are at least as many samples as asked for.

    >>> y = np.eye(4, dtype=int)[np.arange(40) % 4]
    >>> split = multi_label_split(y, labels=6, seed=0, num_validation=2)
    >>> [len(part) for part in split], y[split.labeled].any(axis=0).all()
    ([6, 2, 32], np.True_)
    """
    if y.ndim != 2 or y.dtype.kind not in "iub" or not np.isin(y, (-1, 0, 1)).all():
        got = f"{y.dtype} of shape {y.shape}"
        raise InvalidInputError(f"y must hold 1, 0 and -1 (unknown), shape (N, C); got {got}.")
    if require_count("labels", labels, 1) > len(y):
        raise InvalidInputError(f"labels must be at most the number of samples, {len(y)}; got {labels}.")
    require_count("num_validation", num_validation, 0)
    keys = _keys(groups, len(y)) if ids is None or groups is not None else _keys(ids, len(y), "ids")
    order = np.lexsort((keys, draw(seed, "labels", keys)))
    needed = np.isin(keys[order], keys[order][_first_of_each_class(y[order])])
    labeled = _first_whole_groups(np.concatenate([order[needed], order[~needed]]), keys, labels)
    if len(labeled) < needed.sum():
        why = f"for each of the {y.shape[1]} classes to have a positive and a negative with seed {seed}"
        raise InvalidInputError(f"labels must be at least {needed.sum()} {why}; got {labels}.")
    rest = np.setdiff1d(order, labeled)
    if num_validation > len(rest):
        most = f"{len(rest)}, the samples that are not labeled"
        raise InvalidInputError(f"num_validation must be at most {most}; got {num_validation}.")
    order = rest[np.lexsort((keys[rest], draw(seed, "validation", keys[rest])))]
    validation = _first_whole_groups(order, keys, num_validation)
    return Split(np.sort(labeled), np.sort(validation), np.setdiff1d(rest, validation))


def split_rows(
    where: str,
    ids: npt.NDArray[Any],
    codes: npt.NDArray[np.integer],
    share: float,
    seed: int,
    groups: npt.NDArray[Any] | None = None,
) -> Split:
    """Return the rows that are labeled, held out and pool; the share is held out by a hash of (seed, id).

    The same share of each class is held out, or of all rows if they may have several labels, and at least one row of
    each class stays labeled; with several labels, a class's only row is held out if no other row is left. With groups,
    whole groups are held out by a hash of (seed, group), and unlabeled rows of these groups are in no part.

    Args:
        where: the data's name in errors.
        ids: the rows' names, (N,).
        codes: class indices, or 0, 1 and -1 of each class; -1: unlabeled.
        share: of the labeled rows, held out.
        seed: draws them.
        groups: which rows belong together, (N,); a row with None is a group of its own.
    """
    labeled, pool = np.flatnonzero(has_label(codes)), np.flatnonzero(~has_label(codes))
    if not len(labeled):
        raise DataError(f"{where} has no labeled row; fill in the label of some rows of each class.")
    if not share:
        return Split(labeled, labeled[:0], pool)
    keys = sample_keys(ids) if groups is None else group_keys(groups)
    count = _counts_of(codes[labeled])
    left = count(np.arange(len(labeled)))
    wanted = np.minimum(np.round(share * left), left - 1)
    held_out = np.zeros(len(labeled), dtype=bool)
    drawn = draw(seed, "validation", keys[labeled])
    order = np.argsort(drawn, kind="stable")
    parts, lost = np.split(order, np.flatnonzero(np.diff(drawn[order])) + 1), np.zeros_like(left, dtype=bool)
    if codes.ndim == 2:
        wanted[1:] = 0  # the share is of all rows
        lost = left == 1
        parts.sort(key=lambda members: bool(count(members)[lost].any()))
    for members in parts:
        counts = count(members)
        # A group is held out if one of its classes still has too few, and each of them keeps a labeled row.
        if (wanted[counts > 0] > 0).any() and ((left > counts) | lost)[counts > 0].all():
            held_out[members] = True
            wanted, left = wanted - counts, left - counts
    if not held_out.any():
        problem = f"a validation share of {share} of {len(labeled)} labeled rows is no row of any class"
        raise DataError(f"{where}: {problem}; raise the share or label more rows.")
    validation = labeled[held_out]
    return Split(labeled[~held_out], validation, pool[~np.isin(keys[pool], keys[validation])])


def _counts_of(codes: npt.NDArray[np.integer]) -> Callable[[Index], npt.NDArray[np.integer]]:
    """Return a function that counts some rows by class; with several labels: all rows, then those that have each class.

    >>> _counts_of(np.array([[1, 0], [1, -1], [0, 0]]))(np.array([1, 2])).tolist()
    [2, 1, 0]
    """
    if codes.ndim == 1:
        classes, of_class = np.unique(codes, return_inverse=True)
        return lambda rows: np.bincount(of_class[rows], minlength=len(classes))
    has = np.column_stack([np.ones(len(codes), dtype=bool), codes == 1])
    return lambda rows: has[rows].sum(axis=0)


def group_keys(groups: npt.NDArray[Any]) -> UInt64Array:
    """Return a key for each row, equal within a group, (N,); a row without a group has its own.

    >>> keys = group_keys(np.array(["ann", "bob", "ann", None, None], dtype=object))
    >>> keys[0] == keys[2], len(np.unique(keys))
    (np.True_, 4)
    """
    alone = [f"row {row}" if name is None or name == "" else f"group {name}" for row, name in enumerate(groups)]
    return sample_keys(np.array(alone, dtype=object))


def has_label(codes: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return which rows have a label, or part of one, (N,)."""
    return np.asarray((codes >= 0).reshape(len(codes), -1).any(axis=1))


def split_hash(labeled: Ids, validation: Ids | Sequence[int] = ()) -> str:
    """Return the hexadecimal SHA-256 of the sorted ids of the labeled and the validation samples, one per line.

    >>> split_hash(np.array([2, 1])) == split_hash(np.array([1, 2])) != split_hash(np.array([1]), np.array([2]))
    True
    """
    lines = ["labeled", *np.sort(labeled).tolist(), "validation", *np.sort(validation).tolist()]
    return hashlib.sha256("\n".join(map(str, lines)).encode()).hexdigest()


def _share(name: str, total: int, num_classes: int, least: int) -> int:
    """Return a class's share of a total that is divided evenly among the classes."""
    remedy = f"take a multiple of {num_classes}, the number of classes"
    share, left = divmod(require_count(name, total, least * num_classes, remedy=remedy), num_classes)
    if left:
        near = f"{share * num_classes} or {(share + 1) * num_classes}"
        raise InvalidInputError(f"{name} must be a multiple of the {num_classes} classes; got {total}. Take {near}.")
    return share


def _split_by_class(
    y: npt.NDArray[np.integer],
    seed: int,
    groups: Any,
    labels: int | npt.NDArray[Any],
    validation: int | npt.NDArray[Any],
    or_all: bool = False,
) -> Split:
    """Draw whole groups until the given numbers of samples per class are labeled, and then held out of the rest.

    In the order of a hash of (seed, purpose, group), each group with a class that still has too few is drawn.
    """
    require_shape("y", np.asarray(y), 1)
    keys, rest, parts = _keys(groups, len(y)), np.arange(len(y)), list[Index]()
    classes, label = np.unique(y, return_inverse=True)
    for purpose, per_class in (("labels", labels), ("validation", validation)):
        counts = np.bincount(label[rest], minlength=len(classes))
        short = np.flatnonzero(counts < per_class)
        if len(short) and not or_all:
            too_few = f"Class {classes[short[0]]} has {counts[short[0]]} samples"
            raise InvalidInputError(f"{too_few}; {per_class} were to be drawn for {purpose}. Ask for fewer.")
        order = rest[np.lexsort((keys[rest], draw(seed, purpose, keys[rest])))]
        ends = [*(np.flatnonzero(np.diff(keys[order])) + 1).tolist(), len(order)]
        missing, chosen = np.minimum(counts, per_class), [rest[:0]]
        for start, end in itertools.pairwise([0, *ends]):
            if (missing <= 0).all():
                break
            members = order[start:end]
            if (missing[label[members]] > 0).any():
                chosen.append(members)
                missing = missing - np.bincount(label[members], minlength=len(classes))
        parts.append(np.sort(np.concatenate(chosen)))
        rest = np.setdiff1d(rest, parts[-1])
    return Split(parts[0], parts[1], rest)


def _first_of_each_class(y: npt.NDArray[np.integer]) -> Index:
    """Return the row of the first positive and of the first negative of each class, (2 C,)."""
    places = []
    for value, kind in ((1, "positive"), (0, "negative")):
        found = y == value
        without = np.flatnonzero(~found.any(axis=0))
        if len(without):
            raise InvalidInputError(f"Class {without[0]} has no known {kind} in {len(y)} samples; leave it out.")
        places.append(found.argmax(axis=0))
    return np.concatenate(places)


def _first_whole_groups(order: Index, keys: UInt64Array, count: int) -> Index:
    """Return the first `count` rows, and the next ones that share the last row's key."""
    if not count:
        return order[:0]
    follows = keys[order[count:]] != keys[order[count - 1]]
    return order[: count + int(np.argmax(np.append(follows, True)))]


def _keys(names: Any, count: int, argument: str = "groups") -> UInt64Array:
    """Return a 64-bit key of each sample's group or else its id or else its row, shape (N,)."""
    values = np.arange(count) if names is None else label_array(names)
    if values.shape != (count,):
        raise InvalidInputError(f"{argument} must have shape ({count},), one a sample; got {values.shape}.")
    for row, value in enumerate(values.tolist()):
        if value is None or value != value:
            raise InvalidInputError(f"{argument} has none for sample {row}; give it one of its own.")
    return sample_keys(values)


class LabeledKFold:
    """Cross-validation for partly labeled data: test folds hold only labeled rows, training folds all others.

    Unlabeled rows are in every training fold. Folds are stratified by the label, but not with several labels per
    sample. Pass it as `cv` to `GridSearchCV` or `cross_val_score`.

    With groups, all labeled rows of a group are in one test fold, and no row of that group, labeled or not, is in the
    training fold beside it. Folds are then stratified as far as the groups allow.

    Args:
        n_splits: how many folds.
        unlabeled: what marks an unlabeled entry, as for `UPSClassifier`.
        shuffle: whether labeled rows are shuffled first.
        random_state: the seed of the shuffle.

    >>> y = np.array([0, 1, 0, 1, -1, -1])
    >>> [(train.tolist(), test.tolist()) for train, test in LabeledKFold(2).split(y[:, None], y)]
    [([2, 3, 4, 5], [0, 1]), ([0, 1, 4, 5], [2, 3])]
    >>> folds = LabeledKFold(2).split(y[:, None], y, groups=["a", "a", "b", "b", "b", "c"])
    >>> [(train.tolist(), test.tolist()) for train, test in folds]
    [([2, 3, 4, 5], [0, 1]), ([0, 1, 5], [2, 3])]
    """

    def __init__(
        self, n_splits: int = 5, *, unlabeled: Any = -1, shuffle: bool = False, random_state: int | None = None
    ) -> None:
        self.n_splits, self.unlabeled = n_splits, unlabeled
        self.shuffle, self.random_state = shuffle, random_state

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[Index, Index]]:
        """Yield (train, test) row numbers."""
        encoded = encode_labels(y, self.unlabeled)
        keys, labeled = _keys(groups, len(encoded.codes)), np.flatnonzero(encoded.labeled)
        num_groups = len(np.unique(keys[labeled]))
        if groups is not None and num_groups < self.n_splits:
            most = f"{num_groups}, the number of groups that have a labeled row"
            raise InvalidInputError(f"n_splits must be at most {most}; got {self.n_splits}.")
        # Imported here, because it takes a second and most runs need no folds.
        from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

        single = encoded.task == "single"
        plain, by_group = (StratifiedKFold, StratifiedGroupKFold) if single else (KFold, GroupKFold)
        kind = plain if groups is None else by_group
        folds = kind(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        of_labeled = None if groups is None else keys[labeled]
        for _, places in folds.split(np.zeros(len(labeled)), encoded.codes[labeled], of_labeled):
            test = labeled[places]
            yield np.flatnonzero(~np.isin(keys, keys[test])), test

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits
