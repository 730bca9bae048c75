"""Equation 6: expected calibration error; and how well uncertainty finds the wrong labels.

ECE = sum_l (1 / |D|) |sum_{i in I_l} max_c p_c - sum_{i in I_l} 1[argmax_c p_c = y]|             (equation 6)

I_l are the samples whose confidence max_c p_c lies in the l-th of L equal bins (lo, hi]; the first bin holds
0 too.
"""

from typing import Any, NamedTuple

from surelabel.core.arrays import (
    Array,
    alike,
    as_boolean,
    as_probabilities,
    as_uncertainties,
    bad_argument,
    namespace,
    require_count,
    widened,
)
from surelabel.core.labels import as_truth


class ReliabilityBins(NamedTuple):
    """A reliability diagram as arrays (L,): the bins (lower, upper] and their content."""

    lower: Array
    upper: Array
    count: Array
    confidence: Array
    """Mean confidence; NaN if the bin is empty."""
    accuracy: Array
    """Share of right predictions; NaN if the bin is empty."""


class RiskCoverage(NamedTuple):
    """The risk-coverage curve as arrays (K,): how many labels have u <= threshold, and how many of these are wrong."""

    threshold: Array
    """The distinct uncertainties, ascending."""
    coverage: Array
    """Share of the samples with u <= threshold."""
    risk: Array
    """Share of wrong labels among them."""

    @property
    def area(self) -> float:
        """Area under the curve as a step function of coverage: the mean risk over all samples' thresholds."""
        xp = namespace(coverage=self.coverage)
        before = xp.concat([xp.zeros_like(self.coverage[:1]), self.coverage[:-1]])
        return float(xp.sum(self.risk * (self.coverage - before)))


def expected_calibration_error(p: Any, y: Any, bins: int = 15) -> float:
    """Return the mean gap between confidence and accuracy over equal bins of confidence (equation 6).

    Args:
        p: Probabilities (N, C).
        y: True class indices (N,), of p's kind.
        bins: Number of bins L; an edge k / L is rounded to p's dtype.

    Returns:
        A number in [0, 1]; 0 is calibrated.

    Example:
        >>> round(expected_calibration_error([[0.75, 0.25], [0.25, 0.75]], [0, 0]), 4)
        0.25
    """
    p = as_probabilities("p", p)
    y = as_truth(y, p)
    xp = namespace(p=p)
    return calibration_error(xp.max(p, axis=1), xp.argmax(p, axis=1) == y, bins)


def calibration_error(confidence: Any, correct: Any, bins: int = 15) -> float:
    """Return equation 6 for confidences and whether each prediction is right.

    Args:
        confidence: Confidences (N,) in [0, 1].
        correct: Boolean (N,): the prediction is right.
        bins: Number of bins L; an edge k / L is rounded to the confidences' dtype.

    Returns:
        A number in [0, 1]; 0 is calibrated.

    Example:
        >>> round(calibration_error([0.75, 0.75], [True, False]), 4)
        0.25
    """
    _, count, confidence_sum, correct_sum = _bin_sums(confidence, correct, bins)
    xp = namespace(count=count)
    return float(xp.sum(xp.abs(confidence_sum - correct_sum))) / int(xp.sum(count))


def reliability_bins(confidence: Any, correct: Any, bins: int = 15) -> ReliabilityBins:
    """Return number, mean confidence and accuracy in each equal bin (lo, hi]; the first bin holds 0 too.

    Args:
        confidence: Confidences (N,) in [0, 1].
        correct: Boolean (N,): the prediction is right.
        bins: Number of bins L; an edge k / L is rounded to the confidences' dtype.

    Returns:
        ReliabilityBins of arrays (L,).

    Example:
        >>> reliability_bins([0.25, 0.5, 0.75], [False, True, True], bins=2).count
        array([2, 1])
    """
    edges, count, confidence_sum, correct_sum = _bin_sums(confidence, correct, bins)
    number = namespace(count=count).where(count > 0, widened(count), float("nan"))
    return ReliabilityBins(edges[:-1], edges[1:], count, confidence_sum / number, correct_sum / number)


def uncertainty_auroc(u: Any, wrong: Any) -> float:
    """Return P(u of a wrong label > u of a right one) + P(they are equal) / 2: how well u finds wrong labels.

    Args:
        u: Uncertainties (N,).
        wrong: Boolean (N,): the label is wrong.

    Returns:
        A number in [0, 1]: 1 when every wrong label is less certain than every right one, 0.5 when u says
        nothing.

    Example:
        >>> uncertainty_auroc([0.1, 0.2, 0.2, 0.3], [False, False, True, True])
        0.875
    """
    u, wrong, xp = _uncertain_labels(u, wrong)
    u_wrong, u_right = u[wrong], xp.sort(u[~wrong])
    num_wrong, num_right = int(u_wrong.shape[0]), int(u_right.shape[0])
    if num_wrong == 0 or num_right == 0:
        got = f"{num_wrong} wrong and {num_right} right"
        raise bad_argument("wrong", "hold both wrong and right labels", got, "leave the AUROC out, it is undefined")
    # Right labels with smaller u count twice and ties once, so that the sum is an integer.
    below_twice = xp.searchsorted(u_right, u_wrong, side="left") + xp.searchsorted(u_right, u_wrong, side="right")
    return int(xp.sum(below_twice)) / (2 * num_wrong * num_right)


def risk_coverage(u: Any, wrong: Any) -> RiskCoverage:
    """Return the share of wrong labels (risk) among the samples with u <= t (coverage), for each t in u.

    Args:
        u: Uncertainties (N,).
        wrong: Boolean (N,): the label is wrong.

    Returns:
        RiskCoverage of arrays (K,), one entry per distinct uncertainty, ascending.

    Example:
        >>> risk_coverage([0.1, 0.2, 0.2, 0.3], [False, False, True, True]).coverage
        array([0.25, 0.75, 1.  ])
    """
    u, wrong, xp = _uncertain_labels(u, wrong)
    order = xp.argsort(u, stable=True)
    u = u[order]
    num_wrong = xp.cumulative_sum(xp.astype(wrong[order], xp.int64))
    last_of_tie = xp.concat([u[1:] != u[:-1], xp.ones_like(wrong[:1])])
    num_covered = widened(xp.nonzero(last_of_tie)[0] + 1)
    return RiskCoverage(
        threshold=u[last_of_tie],
        coverage=num_covered / u.shape[0],
        risk=widened(num_wrong[last_of_tie]) / num_covered,
    )


def _bin_sums(confidence: Any, correct: Any, bins: int) -> tuple[Array, Array, Array, Array]:
    """Return edges (L + 1,), and per bin (L,) the number, the sum of confidences and the number right."""
    confidence, correct = as_probabilities("confidence", confidence, ndim=1), as_boolean("correct", correct)
    xp = alike(confidence=confidence, correct=correct)
    bins = require_count("bins", bins, 1)
    edges = xp.asarray([k / bins for k in range(bins + 1)], dtype=confidence.dtype, device=confidence.device)
    edges, confidence = widened(edges), widened(confidence)
    # The number of inner edges below a confidence is its bin: on an edge, it belongs to the lower bin.
    index = xp.searchsorted(edges[1:-1], confidence, side="left")
    # One bin after another instead of a scatter, so that the order of summation is fixed on any device.
    members = [index == k for k in range(bins)]
    count = xp.stack([xp.sum(xp.astype(member, xp.int64)) for member in members])
    confidence_sum = xp.stack([xp.sum(xp.where(member, confidence, 0.0)) for member in members])
    correct_sum = xp.stack([xp.sum(xp.astype(member & correct, xp.int64)) for member in members])
    return edges, count, confidence_sum, widened(correct_sum)


def _uncertain_labels(u: Any, wrong: Any) -> tuple[Array, Array, Any]:
    """Return u (widened, which is exact) and the wrong labels, both (N,), and their namespace."""
    u, wrong = as_uncertainties("u", u, ndim=1), as_boolean("wrong", wrong)
    return widened(u), wrong, alike(u=u, wrong=wrong)
