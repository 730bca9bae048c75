"""Scores of a classifier on samples whose labels are known, and how far chance may have moved them (95 % intervals).

Accuracy is for one label per sample, average precision for several.

Average precision goes down a class's ranking. At each score, P is the share of the samples so far that have the class,
and R the share of all samples with the class that came so far. Samples with equal scores enter together, so that
neither definition depends on their order (VOC2007's devkit uses the order of its list).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.errors import InvalidInputError

Floats = npt.NDArray[np.floating]
Mask = npt.NDArray[np.bool_]

RESAMPLES = 500
"""How many times `map_change` resamples."""
_BLOCK = 1 << 22
_QUANTILE = 1.959963984540054  # of the normal distribution, for 95 %


class Interval(NamedTuple):
    """A figure with its 95 % interval."""

    mean: float
    low: float
    high: float


def accuracy(p: Floats, y: Mask) -> float:
    """Return the share of rows whose largest p is at the true class.

    Args:
        p: probabilities, shape (N, C).
        y: the true class as one True a row, shape (N, C).

    >>> accuracy(np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([[True, False], [False, True]]))
    0.5
    """
    return float(y[np.arange(len(y)), p.argmax(axis=1)].mean())


class AveragePrecision(NamedTuple):
    """One ranking, or the mean over classes, by both definitions."""

    uninterpolated: float
    """The sum over scores of (R_n - R_{n-1}) P_n."""
    eleven_point: float
    """VOC2007's: the mean over t = 0, 0.1, ..., 1 of the largest P where R >= t."""


def average_precision(score: Floats, present: Mask) -> AveragePrecision:
    """Return the average precision of a ranking: sum_n (R_n - R_{n-1}) P_n, and VOC2007's over eleven points.

    Args:
        score: how much each sample looks like the class, shape (N,).
        present: whether the class is there, shape (N,), with at least one True.

    >>> found = average_precision(np.array([0.9, 0.8, 0.7]), np.array([True, False, True]))
    >>> round(found.uninterpolated, 4), round(found.eleven_point, 4)
    (0.8333, 0.8485)
    """
    order = np.argsort(-score, kind="stable")
    last_of_tie = np.append(score[order][1:] != score[order][:-1], True)
    hits = np.cumsum(present[order])[last_of_tie]
    precision = hits / np.flatnonzero(np.append(False, last_of_tie))
    uninterpolated = np.sum(np.diff(hits / hits[-1], prepend=0.0) * precision)
    best_from_here_on = np.maximum.accumulate(precision[::-1])[::-1]
    # R >= k / 10 in integers: 3 of 10 are a recall of 0.3, independent of float rounding.
    first_that_reaches = np.searchsorted(10 * hits, np.arange(11) * hits[-1])
    return AveragePrecision(float(uninterpolated), float(best_from_here_on[first_that_reaches].mean()))


def class_average_precisions(p: Floats, y: Mask, g: Mask) -> list[AveragePrecision | None]:
    """Return the average precision of each of the C classes; None for a class without a known positive.

    Args:
        p: probabilities, shape (N, C).
        y: which classes are there, shape (N, C).
        g: which entries of y are known, shape (N, C); the others are left out.
    """
    known = [(p[rows, c], y[rows, c]) for c, rows in enumerate(g.T)]
    return [average_precision(score, present) if present.any() else None for score, present in known]


def mean_average_precision(p: Floats, y: Mask, g: Mask) -> AveragePrecision | None:
    """Return the mean over the classes that have a known positive, by both definitions; None when none has.

    Args:
        p: probabilities, shape (N, C).
        y: which classes are there, shape (N, C).
        g: which entries of y are known, shape (N, C); the others are left out.

    >>> p, y = np.array([[0.9, 0.1, 0.3], [0.8, 0.2, 0.5]]), np.array([[True, False, False], [False, True, False]])
    >>> mean_average_precision(p, y, np.ones_like(y))
    AveragePrecision(uninterpolated=1.0, eleven_point=1.0)
    """
    scored = [one for one in class_average_precisions(p, y, g) if one is not None]
    return AveragePrecision(*np.mean(scored, axis=0).tolist()) if scored else None


def share_interval(right: int, number: int) -> Interval:
    """Return right / number with its exact 95 % interval (Clopper and Pearson, 1934).

    The shares p that an exact binomial test at 2.5 % on either side does not reject.

    >>> [round(value, 3) for value in share_interval(35, 40)]
    [0.875, 0.732, 0.958]
    """
    from scipy.special import betaincinv

    low = float(betaincinv(right, number - right + 1, 0.025)) if right else 0.0
    high = float(betaincinv(right + 1, number - right, 0.975)) if right < number else 1.0
    return Interval(right / number, low, high)


def paired_change(before: Mask, after: Mask) -> Interval:
    """Return by how much the share of right labels of the same samples changed (Newcombe, 1998, method 10).

    change - sqrt(a² - 2 phi a b + b²) to change + sqrt(c² - 2 phi c d + d²), where a and c are the distances of the
    later share from the lower and the upper end of its Wilson interval, d and b those of the earlier one, and phi is
    the correlation of being right. Unlike a bootstrap's, the interval is wide where few samples show no change.

    Args:
        before: whether the label was right, shape (N,).
        after: the same for the same samples later, shape (N,).

    >>> [round(value, 3) for value in paired_change(np.arange(20) < 18, np.arange(20) < 15)]
    [-0.15, -0.352, 0.045]
    """
    first, last = (_wilson(int(right.sum()), len(right)) for right in (before, after))
    phi = _correlation(before, after)

    def distance(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one**2 - 2 * phi * one * other + other**2))

    change = last.mean - first.mean
    low = change - distance(last.mean - last.low, first.high - first.mean)
    return Interval(change, low, change + distance(last.high - last.mean, first.mean - first.low))


def _wilson(right: int, number: int) -> Interval:
    share, square = right / number, _QUANTILE**2
    middle = (right + square / 2) / (number + square)
    half = _QUANTILE * math.sqrt(number * share * (1 - share) + square / 4) / (number + square)
    return Interval(share, middle - half, middle + half)


def _correlation(before: Mask, after: Mask) -> float:
    """Newcombe's phi: a positive correlation is corrected for continuity, and 0 where one share is 0 or 1."""
    number, first, last = len(before), int(before.sum()), int(after.sum())
    spread = math.sqrt(first * (number - first) * last * (number - last))
    excess = number * int((before & after).sum()) - first * last
    if not spread:
        return 0.0
    return (max(0.0, excess - number / 2) if excess > 0 else float(excess)) / spread


def map_change(
    before: Floats,
    after: Floats,
    y: Mask,
    g: Mask,
    seed: int = 0,
) -> Interval:
    """Return by how much the mean average precision of the same samples changed, with a paired bootstrap's interval.

    Samples are drawn with replacement, for both at once. A class without a positive in a resample is left out of it.

    Args:
        before: probabilities, shape (N, C).
        after: the same for the same samples later, shape (N, C).
        y: which classes are present, shape (N, C), at least one of them.
        g: which entries of y are known, shape (N, C).
        seed: draws the resamples.
    """
    return _bootstrap(
        lambda times: _resampled_means(after, y, g, times) - _resampled_means(before, y, g, times), y, seed
    )


def map_interval(p: Floats, y: Mask, g: Mask, seed: int = 0) -> Interval:
    """Return the mean average precision, uninterpolated, with a bootstrap's interval; see `map_change`."""
    return _bootstrap(lambda times: _resampled_means(p, y, g, times), y, seed)


def _bootstrap(figure: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float64]], y: Mask, seed: int) -> Interval:
    """Return a figure of N samples, and its interval by resamples, in which sample i is there times[r, i] times."""
    generator, number, found = np.random.default_rng(seed), len(y), []
    step = max(1, _BLOCK // number)
    for start in range(0, RESAMPLES, step):
        times = generator.multinomial(number, np.full(number, 1 / number), size=min(step, RESAMPLES - start))
        found.append(figure(times))
    low, high = np.nanquantile(np.concatenate(found), [0.025, 0.975])
    return Interval(float(figure(np.ones((1, number), dtype=np.int64))[0]), float(low), float(high))


def _resampled_means(p: Floats, y: Mask, g: Mask, times: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the mean average precision of R resamples, in which sample i is there times[r, i] times; NaN of none."""
    total, scored = np.zeros(len(times)), np.zeros(len(times))
    for code in np.flatnonzero((y & g).any(axis=0)):
        order = np.flatnonzero(g[:, code])
        order = order[np.argsort(-p[order, code], kind="stable")]
        last_of_tie = np.append(np.diff(p[order, code]) != 0, True)
        drawn = times[:, order]
        hits = np.cumsum(drawn * y[order, code], axis=1)[:, last_of_tie]
        precision = hits / np.maximum(np.cumsum(drawn, axis=1)[:, last_of_tie], 1)
        # Without a positive in the resample, both sums are 0.
        total += (np.diff(hits, axis=1, prepend=0) * precision).sum(axis=1) / np.maximum(hits[:, -1], 1)
        scored += hits[:, -1] > 0
    return np.where(scored > 0, total / np.maximum(scored, 1), np.nan)


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Return the mean of a − b and its 95 % interval, mean ± t · std / sqrt(n) (Student's t, n − 1).

    Args:
        a: one value for each seed, shape (n,).
        b: the values that it is compared with, for the same seeds in the same order, shape (n,).

    Example:
        >>> tuple(round(value, 3) for value in paired_difference([3.0, 5.0, 7.0], [2.0, 3.0, 4.0]))
        (2.0, -0.484, 4.484)
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        got = f"shapes {first.shape} and {second.shape}"
        raise InvalidInputError(f"'a' and 'b' must be paired values of at least two seeds. Got {got}.")
    difference = first - second
    if not np.isfinite(difference).all():
        raise InvalidInputError(f"'a' - 'b' must be finite. Got {difference.tolist()}; leave out unfinished runs.")
    from scipy.special import stdtrit

    mean = float(difference.mean())
    half = float(stdtrit(len(difference) - 1, 0.975)) * float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return Interval(mean, mean - half, mean + half)
