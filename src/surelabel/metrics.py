"""Scores of a classifier on samples whose labels are known: accuracy, and mean average precision for several labels."""

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


def average_precision(score: npt.NDArray[np.floating], present: npt.NDArray[np.bool_]) -> float:
    """Return the sum over thresholds of (R_n - R_{n-1}) P_n, uninterpolated; samples of equal score enter together.

    Args:
        score: how much each sample looks like the class, shape (N,).
        present: whether the class is there, shape (N,), with at least one True.

    >>> round(average_precision(np.array([0.9, 0.8, 0.7]), np.array([True, False, True])), 4)
    0.8333
    """
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(present[order])
    last_of_tie = np.append(score[order][1:] != score[order][:-1], True)
    precision = (hits / np.arange(1, len(score) + 1))[last_of_tie]
    recall = (hits / hits[-1])[last_of_tie]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def mean_average_precision(
    p: npt.NDArray[np.floating], y: npt.NDArray[np.bool_], g: npt.NDArray[np.bool_]
) -> float | None:
    """Return the mean of `average_precision` over the classes that have a known positive; None when none has.

    Args:
        p: probabilities, shape (N, C).
        y: which classes are there, shape (N, C).
        g: which entries of y are known, shape (N, C); the others are left out.
    """
    scored = [c for c in range(y.shape[1]) if (y[:, c] & g[:, c]).any()]
    if not scored:
        return None
    return float(np.mean([average_precision(p[g[:, c], c], y[g[:, c], c]) for c in scored]))
