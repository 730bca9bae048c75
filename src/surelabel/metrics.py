"""Scores of a classifier on samples whose labels are known: accuracy, and average precision for several labels.

Average precision goes down a class's ranking. At each score, P is the share of the samples so far that have the class
and R the share of those with the class that have been met. Samples of equal score enter together, so that neither
definition depends on their order (VOC2007's devkit takes them in the order of its list).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


def accuracy(p: npt.NDArray[np.floating], y: npt.NDArray[np.bool_]) -> float:
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


def average_precision(score: npt.NDArray[np.floating], present: npt.NDArray[np.bool_]) -> AveragePrecision:
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
    # R >= k / 10 in whole numbers: 3 of 10 are a recall of 0.3, whatever a float makes of it.
    first_that_reaches = np.searchsorted(10 * hits, np.arange(11) * hits[-1])
    return AveragePrecision(float(uninterpolated), float(best_from_here_on[first_that_reaches].mean()))


def class_average_precisions(
    p: npt.NDArray[np.floating], y: npt.NDArray[np.bool_], g: npt.NDArray[np.bool_]
) -> list[AveragePrecision | None]:
    """Return the average precision of each of the C classes; None for a class without a known positive.

    Args:
        p: probabilities, shape (N, C).
        y: which classes are there, shape (N, C).
        g: which entries of y are known, shape (N, C); the others are left out.
    """
    known = [(p[rows, c], y[rows, c]) for c, rows in enumerate(g.T)]
    return [average_precision(score, present) if present.any() else None for score, present in known]


def mean_average_precision(
    p: npt.NDArray[np.floating], y: npt.NDArray[np.bool_], g: npt.NDArray[np.bool_]
) -> AveragePrecision | None:
    """Return the mean over the classes that have a known positive, by both definitions; None when none has.

    Args:
        p: probabilities, shape (N, C).
        y: which classes are there, shape (N, C).
        g: which entries of y are known, shape (N, C); the others are left out.

    >>> p, y = np.array([[0.9, 0.1, 0.3], [0.8, 0.2, 0.5]]), np.array([[True, False, False], [False, True, False]])
    >>> mean_average_precision(p, y, np.ones_like(y))
    AveragePrecision(uninterpolated=1.0, eleven_point=1.0)
    """
    return mean_over_classes(class_average_precisions(p, y, g))


def mean_over_classes(classes: list[AveragePrecision | None]) -> AveragePrecision | None:
    """Return the mean of those that are there, None of none."""
    scored = [one for one in classes if one is not None]
    return AveragePrecision(*np.mean(scored, axis=0).tolist()) if scored else None
