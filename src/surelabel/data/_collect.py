"""Record batches, from CSV or Parquet, become one table: each batch is copied into place and let go."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from surelabel.data._cells import check_ids, label_sets, multi_labels, single_labels
from surelabel.data._columns import Columns, Request, not_finite, rows_differ
from surelabel.data._limits import check_size
from surelabel.errors import DataError

Batch: TypeAlias = Any
"""A pyarrow RecordBatch; pyarrow is loaded only when a table is read."""

# An integer that is written as Python writes it; "007" is a name, not the number 7.
_PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"


@dataclass(frozen=True, eq=False)
class Table:
    """Samples read from a file.

    Attributes:
        path: The file.
        x: Features (N, F), float32; arrays from .npy and .npz keep their shape (N, ...), and uint8 or floats.
        y: None without labels; one label column: str or None (unlabeled), object (N,), with a separator, or of lists,
            tuples of str ("?dog": a dog may be there) or None; several: int8 (N, C) with 1, 0 and -1 (unknown).
        ids: Name of each row, (N,): row numbers from 0, or the id column's integers or strings.
        feature_names: Names of x's columns; empty where x has more than two dimensions.
        label_names: The label columns' names; for several columns these are the classes.
        several: Whether a label is a tuple of classes.
    """

    path: Path
    x: npt.NDArray[Any]
    y: npt.NDArray[Any] | None
    ids: npt.NDArray[Any]
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]
    several: bool = False

    def __len__(self) -> int:
        return len(self.ids)


class Collector:
    """Grows a table batch by batch, in memory reserved once for the `expected` rows; refuses any other number."""

    def __init__(self, path: Path, columns: Columns, expected: int, request: Request) -> None:
        self.path, self.columns, self.request, self.expected = path, columns, request, expected
        # A label is a reference to a string, and so is an id; without ids rows are numbered in 64 bits.
        check_size(path, expected * (4 * len(columns.features) + 8 * len(columns.labels) + 8))
        self._x = np.empty((expected, len(columns.features)), dtype=np.float32)
        self._labels: list[npt.NDArray[Any]] = []
        self._ids: list[Any] = []
        self._text = 0
        self.rows = 0

    def add(self, batch: Batch) -> None:
        """Take over a batch whose columns are in the order of `columns.used`: numbers first, then strings."""
        count = len(self.columns.features)
        if self.rows + batch.num_rows > self.expected:
            raise rows_differ(self.path, self.expected, self.rows + batch.num_rows)
        self._add_features(batch.select(list(range(count))))
        if self.columns.labels:
            cells = batch.columns[count : count + len(self.columns.labels)]
            self._labels.append(self._label_block(cells))
        if self.columns.id is not None:
            # In the end they lie in memory twice, as Arrow's and as Python's.
            self._count_text(2 * batch.columns[-1].nbytes)
            self._ids.append(self._id_block(batch.columns[-1]))
        self.rows += batch.num_rows

    def table(self) -> Table:
        """Return what was collected."""
        if self.rows != self.expected:
            raise rows_differ(self.path, self.expected, self.rows)
        ids: npt.NDArray[Any] = np.arange(self.rows, dtype=np.int64)
        if self.columns.id is not None:
            ids = _join_ids(self._ids)
            check_ids(self.path, ids)
        y = np.concatenate(self._labels) if self._labels else None
        names = self.columns
        several = y is not None and self.request.separator is not None
        return Table(self.path, self._x[: self.rows], y, ids, names.feature_names, names.label_names, several)

    def _add_features(self, batch: Batch) -> None:
        import pyarrow as pa

        columns = [column.cast(pa.float32(), safe=False) for column in batch.columns]
        floats = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        block = floats.to_tensor(null_to_nan=True, row_major=True).to_numpy()
        self._x[self.rows : self.rows + len(block)] = block
        self._check_finite(block)

    def _check_finite(self, block: npt.NDArray[np.float32]) -> None:
        finite = np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            name = self.columns.feature_names[column]
            place = (self.path, name, self.rows + int(row) + 1)
            raise not_finite(*place, float(block[row, column]), droppable=not self.columns.trained)

    def _label_block(self, cells: list[Any]) -> npt.NDArray[Any]:
        encoded = [cell.dictionary_encode(null_encoding="encode") for cell in cells]
        self._count_text(sum(part.dictionary.nbytes for part in encoded))
        pairs = [(part.dictionary.to_pylist(), part.indices.to_numpy()) for part in encoded]
        names, unlabeled = self.columns.label_names, self.request.unlabeled
        if self.request.separator is not None:
            return label_sets(self.path, names[0], *pairs[0], self.request, self.rows)
        if len(pairs) == 1:
            return single_labels(*pairs[0], unlabeled)
        parts = [
            multi_labels(self.path, name, unique, codes, unlabeled, self.rows)
            for name, (unique, codes) in zip(names, pairs, strict=True)
        ]
        return np.stack(parts, axis=1)

    def _count_text(self, size: int) -> None:
        """Refuse labels and ids that together take too much, however little each batch of them does."""
        self._text += size
        check_size(self.path, self._text)

    def _id_block(self, cells: Any) -> Any:
        import pyarrow.compute as pc

        empty = pc.fill_null(pc.equal(cells, ""), True).to_numpy(zero_copy_only=False)
        if empty.any():
            assert self.columns.id is not None
            raise DataError(
                f"File '{self.path}', id column {self.columns.names[self.columns.id]!r}, row "
                f"{self.rows + int(empty.argmax()) + 1}: the id is empty; fill it in or read the file "
                "without an id column."
            )
        return cells


def _join_ids(blocks: list[Any]) -> npt.NDArray[Any]:
    """Return integers where every id is a plain integer, else strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if all(pc.all(pc.match_substring_regex(block, _PLAIN_INTEGER)).as_py() for block in blocks):
        return np.concatenate([block.cast(pa.int64()).to_numpy() for block in blocks])
    return np.concatenate([np.array(block.to_pylist(), dtype=object) for block in blocks])
