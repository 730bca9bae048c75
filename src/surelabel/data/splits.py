"""Which samples are labeled, and cross-validation when few are."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import KFold, StratifiedKFold

from surelabel.data.draws import draw
from surelabel.data.encoding import encode_labels
from surelabel.data.source import Index
from surelabel.errors import InvalidInputError


def few_labels(y: npt.NDArray[np.integer], per_class: int, seed: int) -> tuple[Index, Index]:
    """Draw `per_class` labeled samples of each class by a hash of (seed, sample); return (labeled, the rest).

    >>> labeled, rest = few_labels(np.array([0, 0, 0, 1, 1, 1]), per_class=1, seed=0)
    >>> len(labeled), len(rest)
    (2, 4)
    """
    drawn = draw(seed, "labels", np.arange(len(y), dtype=np.uint64))
    chosen = []
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        if len(rows) < per_class:
            raise InvalidInputError(f"Class {label} has {len(rows)} samples; {per_class} were to be labeled.")
        chosen.append(rows[np.argsort(drawn[rows], kind="stable")[:per_class]])
    labeled = np.sort(np.concatenate(chosen))
    return labeled, np.setdiff1d(np.arange(len(y)), labeled)


class LabeledKFold:
    """Cross-validation for partly labeled data: test folds hold labeled rows only, training folds all the others.

    Unlabeled rows are in every training fold. Folds are stratified by the label; with several labels a sample they are
    not. Pass it as `cv` to `GridSearchCV` or `cross_val_score`.

    Args:
        n_splits: how many folds.
        unlabeled: what marks an unlabeled entry, as for `UPSClassifier`.
        shuffle: whether labeled rows are shuffled first.
        random_state: the seed of the shuffle.

    >>> y = np.array([0, 1, 0, 1, -1, -1])
    >>> [(train.tolist(), test.tolist()) for train, test in LabeledKFold(2).split(y[:, None], y)]
    [([2, 3, 4, 5], [0, 1]), ([0, 1, 4, 5], [2, 3])]
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        unlabeled: Any = -1,
        shuffle: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.n_splits, self.unlabeled = n_splits, unlabeled
        self.shuffle, self.random_state = shuffle, random_state

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[Index, Index]]:
        """Yield (train, test) row numbers."""
        encoded = encode_labels(y, self.unlabeled)
        labeled = np.flatnonzero(encoded.labeled)
        unlabeled = np.flatnonzero(~encoded.labeled)
        fold = StratifiedKFold if encoded.task == "single" else KFold
        folds = fold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        for train, test in folds.split(np.zeros(len(labeled)), encoded.codes[labeled]):
            yield np.sort(np.concatenate([labeled[train], unlabeled])), labeled[test]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits
