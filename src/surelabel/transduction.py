"""Which labels a model learned from, the given ones and those that rounds selected."""

import numpy as np
import numpy.typing as npt

from surelabel.data.pool import PoolLabels
from surelabel.records import RoundRecord


class Transduction:
    """Follows, round by round, which labels the latest model learned from and since when.

    Args:
        codes: the labels that were given, -1 where none was, shape (N,) or (N, C).
        row_of_pool: the row of each sample of the pool.

    Attributes:
        codes: what the latest model learned from, of the same shape.
        labeled_iter: since which round: 0 given, -1 never.
    """

    def __init__(self, codes: npt.NDArray[np.int64], row_of_pool: npt.NDArray[np.int64]) -> None:
        self.given, self.row_of_pool = codes, row_of_pool
        self.codes = codes
        self.labeled_iter = np.where(codes >= 0, 0, -1)
        self._next: PoolLabels | None = None

    def add(self, record: RoundRecord) -> None:
        """Take in a round's record, with its pool."""
        learned_from, self._next = self._next, record.pool
        if learned_from is None:
            return
        labels, selected = _selected_labels(learned_from, multi=self.given.ndim == 2)
        codes, since = self.given.copy(), np.where(self.given >= 0, 0, -1)
        unknown = self.given[self.row_of_pool] < 0
        at_pool = np.where(unknown & selected, labels, codes[self.row_of_pool])
        before = self.labeled_iter[self.row_of_pool]
        began = np.where(before > 0, before, record.round)
        codes[self.row_of_pool] = at_pool
        since[self.row_of_pool] = np.where(unknown & selected, began, since[self.row_of_pool])
        self.codes, self.labeled_iter = codes, since


def _selected_labels(pool: PoolLabels, multi: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The pool's labels and which of them may be learned from, (N,) or (N, C)."""
    positive, negative = pool.selection
    if multi:
        return positive.astype(np.int64), positive | negative
    return pool.label, positive.any(axis=1)
