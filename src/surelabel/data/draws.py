"""Random draws that do not depend on batching: every draw is a hash of (seed, what for, epoch, sample).

A sequential generator gives different numbers when the batch size, the number of workers or the step at which a run was
resumed changes. A hash does not. The mixer is splitmix64's finalizer (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", 2014).
"""

import hashlib
import operator

import numpy as np
import numpy.typing as npt

from surelabel.errors import InvalidInputError

UInt64Array = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _finalize(h: UInt64Array) -> UInt64Array:
    """Mix the bits of each number, in place where it is an array."""
    h ^= h >> np.uint64(30)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(27)
    h *= np.uint64(0x94D049BB133111EB)
    h ^= h >> np.uint64(31)
    return h


def _as_key(part: int | str | UInt64Array) -> UInt64Array:
    if isinstance(part, str):
        part = int.from_bytes(hashlib.blake2b(part.encode(), digest_size=8).digest(), "little")
    if isinstance(part, np.ndarray):
        return part
    return np.asarray(operator.index(part) % 2**64, dtype=np.uint64)


def draw(*parts: int | str | UInt64Array) -> UInt64Array:
    """Hash the parts, broadcast against each other, to uniform 64-bit numbers.

    >>> draw(0, "order", sample_keys(np.arange(3))).shape
    (3,)
    """
    h = np.asarray(0, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            h = h ^ _as_key(part)
            h += _GOLDEN
            h = _finalize(h)
    return h


def seed_for(*parts: int | str) -> int:
    """Return a seed for (seed, round, purpose), small enough for every generator.

    >>> seed_for(0, 1, "fit") == seed_for(0, 1, "fit") != seed_for(0, 2, "fit")
    True
    """
    return int(draw(*parts) >> np.uint64(33))


def sample_keys(ids: npt.NDArray[np.generic]) -> UInt64Array:
    """Return one 64-bit key for each sample id (integers or strings), shape (N,)."""
    if np.issubdtype(ids.dtype, np.integer):
        wide = ids.dtype.itemsize == 8 and ids.dtype.isnative
        return ids.view(np.uint64) if wide else ids.astype(np.uint64)
    try:
        digests = [hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in ids]
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"The id {error.object!r} holds a lone surrogate, no character; correct it.") from None
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def proportional_order(
    keys: UInt64Array,
    kind: npt.NDArray[np.integer],
    *parts: int | str,
    window: npt.NDArray[np.int32] | None = None,
) -> npt.NDArray[np.int64]:
    """Shuffle rows so that every stretch of the order holds each kind in proportion to its count.

    Args:
        keys: the samples' keys, shape (N,).
        kind: the kind of each row (labeled, positive, negative), shape (N,).
        *parts: what the draw is for: seed, purpose, epoch.
        window: rows of a smaller one come before those of a larger one, shape (N,); None: all are in one.

    >>> order = proportional_order(sample_keys(np.arange(8)), np.array([0, 0, 1, 1, 1, 1, 1, 1]), 0)
    >>> sorted(np.array([0, 0, 1, 1, 1, 1, 1, 1])[order[:4]].tolist())
    [0, 1, 1, 1]
    """
    drawn = draw(*parts, keys)
    kinds = np.unique(kind)
    if len(kinds) == 1:
        return _shuffled(drawn, window)
    position = np.empty(len(keys), dtype=np.float64)
    for value in kinds:
        rows = np.flatnonzero(kind == value)
        shuffled = rows[_shuffled(drawn[rows], None if window is None else window[rows])]
        position[shuffled] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.lexsort((drawn, position))


def _shuffled(drawn: UInt64Array, window: npt.NDArray[np.int32] | None) -> npt.NDArray[np.int64]:
    return np.argsort(drawn, kind="stable") if window is None else np.lexsort((drawn, window))
