"""The labels of a pool that is too large for memory, in a Parquet file that is read in blocks of rows.

Selection is by row, so each chunk is selected as it comes. Balancing needs the most certain positives of each class:
first the number per class, then the uncertainty at which the quota is reached, then the rows that stay. Only one bit
per sample stays in memory, besides the ids.

The uncertainty at the quota is found digit by digit, as in radix sort: each pass over the file counts the next eight
bits of those uncertainties that match the digits found so far for their class. So it is exact, and ties are noticed.
"""

import contextlib
import itertools
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from surelabel.core.selection import checked_shares, quotas
from surelabel.data.pool import Balance, Floats, LeftOut, PoolLabels, join, ranked_by, without_unneeded
from surelabel.data.source import Ids
from surelabel.data.targets import Codes, Marks, Mask, PackedRows
from surelabel.errors import RunError

_ROWS_OF_A_BLOCK = 1 << 17
_DIGITS = 256
_COLUMNS = ("label", "confidence", "uncertainty", "confidence_soft", "uncertainty_soft", "positive_before")

Ranked = Callable[[], Iterable[tuple[Codes, Floats]]]
"""Reads the classes of all positives and their ranking values, block by block in the order of the pool."""


def _column(name: str) -> Any:
    """Return the attribute of a stored pool that reads a column."""

    def read(pool: "StoredPool") -> Any:
        parts = [part[name] for part in _read(pool._file, (name,))]
        return None if parts[0] is None else np.concatenate(parts)

    return property(read)


class StoredPool(PoolLabels):
    """The labels of a pool with one label per sample, in a temporary file without a name.

    The system frees its space when the object is deleted, or when the process ends, however it ends. Columns are read
    at each access, and not kept.

    Args:
        chunks: the labels in the order of the pool, before balancing.
        ids: of the pool.
        num_classes: C.
        balance: how it is balanced; None: it is not.
        truth: class indices (N,) if known, else -1, for the counts of left-out negatives.
    """

    _file: Any
    _num_classes: int
    _num_negative: int
    _num_marked: int
    _kept: npt.NDArray[np.uint8] | None

    def __init__(
        self,
        chunks: Iterable[PoolLabels],
        ids: Ids,
        num_classes: int,
        balance: Balance | None = None,
        truth: npt.NDArray[np.int64] | None = None,
    ) -> None:
        with _in_temporary_folder("written"):
            file: Any = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the object
        # The raw file: a buffer would try to write again, on closing, what a full disk could not take.
        weakref.finalize(self, file.raw.close)
        # The base is a frozen dataclass, whose other fields are properties here.
        self.__dict__.update(ids=ids, _file=file, _num_classes=num_classes, _kept=None)
        found = [_write(file, chunks)]
        if balance is not None:
            self.__dict__["_kept"] = np.packbits(self._balanced(balance))
        marked = number = start = 0
        for block in self._blocks():
            known = None if truth is None else truth[start : start + len(block)]
            settled, start = without_unneeded(block, known), start + len(block)
            found.append(settled.left_out)
            marked, number = marked + len(settled.negative.rows), number + int(settled.negative.counts.sum())
        left_out = LeftOut(*(sum(counts) for counts in zip(*found, strict=True)))
        self.__dict__.update(left_out=left_out, _num_marked=marked, _num_negative=number + left_out.number)

    def blocks(self) -> Iterator[PoolLabels]:
        """Yield the labels of consecutive samples, few enough to be written at once."""
        return (without_unneeded(block) for block in self._blocks())

    @property
    def num_classes(self) -> int:
        """C."""
        return self._num_classes

    @property
    def num_negative(self) -> int:
        """How many negatives were selected."""
        return self._num_negative

    label = _column("label")
    confidence = _column("confidence")
    uncertainty = _column("uncertainty")
    confidence_soft = _column("confidence_soft")
    uncertainty_soft = _column("uncertainty_soft")
    positive_before = _column("positive_before")

    @property
    def positive(self) -> Mask:
        """The labels that the next round learns from."""
        kept = self._kept
        return self.positive_before if kept is None else np.unpackbits(kept, count=len(self)).view(bool)

    @property
    def negative(self) -> Marks:
        """The classes that samples without a positive are taken not to have."""
        shape = len(self), self.num_classes
        rows, bits = np.empty(self._num_marked, np.int64), np.empty((self._num_marked, -(-shape[1] // 8)), np.uint8)
        filled = start = 0
        for block in self._blocks():
            part = without_unneeded(block).negative
            some = slice(filled, filled + len(part.rows))
            rows[some], bits[some] = part.rows + np.int64(start), part.bits
            filled, start = some.stop, start + len(block)
        return Marks.packed(rows, bits, shape)

    def _blocks(self) -> Iterator[PoolLabels]:
        """Yield blocks as they are after balancing, with all negatives."""
        start = 0
        for columns in _read(self._file, (*_COLUMNS, "negative")):
            bits, positive = columns.pop("negative"), columns["positive_before"]
            stop = start + len(bits)
            if self._kept is not None:  # blocks begin at whole bytes
                positive = np.unpackbits(self._kept[start // 8 : -(-stop // 8)], count=stop - start).view(bool)
            rows = np.flatnonzero(bits.any(axis=1))
            negative = Marks.packed(rows, bits[rows], (stop - start, self.num_classes))
            yield PoolLabels(self.ids[start:stop], positive=positive, negative=negative, **columns)
            start = stop

    def _balanced(self, balance: Balance) -> Mask:
        """Return which positives stay, shape (N,)."""
        shares = None if balance.shares is None else checked_shares(balance.shares, self.num_classes)

        def ranked() -> Iterator[tuple[Codes, Floats]]:
            for part in _read(self._file, ("label", "confidence", "uncertainty", "positive_before")):
                before = part["positive_before"]
                u = ranked_by(part["confidence"], part["uncertainty"], balance.by_confidence)
                yield part["label"][before], u[before]

        kept: Mask = self.positive_before
        of_blocks = most_certain_in_blocks(ranked, self.num_classes, balance.floor, shares)
        kept[np.flatnonzero(kept)] = np.concatenate(list(of_blocks))
        return kept


def most_certain_in_blocks(ranked: Ranked, num_classes: int, floor: int, shares: Floats | None) -> Iterator[Mask]:
    """Yield which positives of each block `balance` keeps: the same as `core.selection.most_certain`.

    Args:
        ranked: reads the positives from the start each time it is called.
        num_classes: C.
        floor: as in `balance`.
        shares: as in `balance`, checked by `checked_shares`.
    """
    counts, bits = np.zeros(num_classes, dtype=np.int64), 0
    for classes, values in ranked():
        counts += np.bincount(classes, minlength=num_classes)
        bits = 8 * values.dtype.itemsize
    # For each class, how many are still to be kept among those that match the digits of the cut-off found so far.
    left = np.minimum(quotas(counts, floor, shares), counts)
    cut_off = np.zeros(num_classes, dtype=np.uint64)
    for shift in range(bits - 8, -1, -8):
        found = np.zeros((num_classes, _DIGITS), dtype=np.int64)
        for classes, values in ranked():
            digits = _sortable(values) >> np.uint64(shift)
            agree = digits // np.uint64(_DIGITS) == cut_off[classes]
            np.add.at(found, (classes[agree], (digits[agree] % np.uint64(_DIGITS)).astype(np.int64)), 1)
        up_to = found.cumsum(axis=1)
        digit = (up_to < left[:, None]).sum(axis=1)
        left -= np.where(digit > 0, np.take_along_axis(up_to, np.maximum(digit - 1, 0)[:, None], axis=1)[:, 0], 0)
        cut_off = cut_off * np.uint64(_DIGITS) + digit.astype(np.uint64)
    for classes, values in ranked():
        keys = _sortable(values)
        at_cut_off = np.flatnonzero(keys == cut_off[classes])
        kept = keys < cut_off[classes]
        kept[at_cut_off] = _place_in_class(classes[at_cut_off]) < left[classes[at_cut_off]]
        left = np.maximum(left - np.bincount(classes[at_cut_off], minlength=num_classes), 0)
        yield kept


def _sortable(values: Floats) -> npt.NDArray[np.uint64]:
    """Return integers in the same order as the numbers; -0 equals 0."""
    width = 8 * values.dtype.itemsize
    bits = (values + values.dtype.type(0)).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    highest = np.uint64(1 << (width - 1))
    return np.where(bits & highest, np.uint64((1 << width) - 1) - bits, bits | highest)


def _place_in_class(classes: Codes) -> npt.NDArray[np.int64]:
    """Return for each entry how many of its class come before it."""
    order = np.argsort(classes, kind="stable")
    in_order = classes[order]
    place = np.empty(len(classes), dtype=np.int64)
    place[order] = np.arange(len(classes)) - np.searchsorted(in_order, in_order)
    return place


@contextlib.contextmanager
def _in_temporary_folder(done: str) -> Iterator[None]:
    """Name the folder for temporary files if labels cannot be written to it or read from it."""
    try:
        yield
    except OSError as error:
        problem = f"The labels of the pool could not be {done} in the folder for temporary files, '{tempfile.tempdir}'"
        reason, remedy = error.strerror or " ".join(str(error).split()), "Free some space there, or name another folder"
        raise RunError(f"{problem} ({reason}). {remedy}: TMPDIR=FOLDER.") from error


def _write(file: Any, chunks: Iterable[PoolLabels]) -> LeftOut:
    """Write chunks of any size as blocks of one size; return how many negatives they left out."""
    left_out, waiting, writer = np.zeros(4, dtype=np.int64), list[PoolLabels](), None
    try:
        for chunk in itertools.chain(chunks, [None]):
            if chunk is not None:
                left_out += chunk.left_out
                waiting.append(chunk)
            if waiting and (chunk is None or sum(map(len, waiting)) >= _ROWS_OF_A_BLOCK):
                whole = join(waiting)
                stop = len(whole) if chunk is None else len(whole) - len(whole) % _ROWS_OF_A_BLOCK
                table = _table(whole.part(slice(stop)))
                with _in_temporary_folder("written"):
                    writer = writer or pq.ParquetWriter(file, table.schema, compression="lz4", use_dictionary=False)
                    writer.write_table(table, row_group_size=_ROWS_OF_A_BLOCK)
                    file.flush()  # the buffer's content would be written twice if a loader process were forked now
                waiting = [whole.part(slice(stop, None))] if stop < len(whole) else []
    finally:
        if writer is not None:
            with _in_temporary_folder("written"):
                writer.close()
                file.flush()
    return LeftOut(*left_out.tolist())


def _table(labels: PoolLabels) -> Any:
    columns = {name: pa.array(value) for name in _COLUMNS if (value := getattr(labels, name)) is not None}
    bits = np.zeros((len(labels), labels.negative.bits.shape[1]), dtype=np.uint8)
    bits[labels.negative.rows] = labels.negative.bits
    return pa.table({**columns, "negative": bits_column(bits)})


def _read(stored: Any, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield some columns, block by block; None for one that is not there."""
    with _in_temporary_folder("read"), pq.ParquetFile(stored) as file:
        there = [name for name in names if name in file.schema_arrow.names]
        for number in range(file.num_row_groups):
            table = file.read_row_group(number, columns=there, use_threads=False)
            arrays = {name: table[name].combine_chunks() for name in there}
            read = {name: bits_of(array) if name == "negative" else np.asarray(array) for name, array in arrays.items()}
            yield {**dict.fromkeys(names), **read}
    pa.default_memory_pool().release_unused()


def bits_column(bits: PackedRows) -> Any:
    """Return packed rows as an Arrow array, without a copy."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(bits))]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(bits.shape[1]), len(bits), buffers)


def bits_of(array: Any) -> PackedRows:
    """Return the packed rows in an Arrow array."""
    width, buffer = array.type.byte_width, array.buffers()[1]
    flat = np.frombuffer(b"" if buffer is None else buffer, dtype=np.uint8)
    return flat[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)
