"""Thresholds chosen on held-out labels: a fixed sequence of exact binomial tests.

H_m: P(wrong | p >= tau_m, u <= kappa_m) >= max_error,  rejected if P(Bin(n_m, max_error) <= w_m) <= delta

Of the labels that (tau_m, kappa_m) select, n_m are held out and w_m of these are wrong. tau_m is the m-th largest
confidence and kappa_m the m-th smallest uncertainty of the pool's labels, so both loosen in step, and the pairs do not
depend on the held-out samples. The tests are made in this order and end with the first that does not reject. To reject
any true hypothesis, the sequence must reject the first true one, which has a chance of at most delta: so each test can
use the full delta. So with probability 1 - delta no rejected hypothesis is true, and the last of them gives the
thresholds. If no pool is given, the held-out samples replace it, and the probability is approximate.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.core.arrays import alike, as_probabilities, as_uncertainties, bad_argument, require_number, to_numpy
from surelabel.core.labels import Task, as_truth, check_task, hard_labels, top_entries
from surelabel.errors import InvalidInputError

Floats = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

MOST_LABELS = 10_000_000
"""If more labels than this are needed, the report says that no number of labels is enough."""


class Thresholds(NamedTuple):
    """Thresholds for positive labels, what they select of the held-out samples, and what is promised; printable."""

    tau_p: float | None
    """Smallest confidence; None if no thresholds passed."""
    kappa_p: float | None
    """Largest uncertainty, infinite if there were no uncertainties; None if no thresholds passed."""
    num_selected: int
    """Held-out samples with a selected label; 0 if no thresholds passed."""
    num_wrong: int
    """How many of these have a wrong one selected."""
    num_samples: int
    """Held-out samples in all."""
    max_error: float
    """The error is below this ..."""
    delta: float
    """... except with this probability."""
    more_labels: int | None
    """About how many more held-out labels are needed to pass: 0 after a pass, None if no number would be enough."""

    @property
    def coverage(self) -> float:
        """Share of the held-out samples with a selected label."""
        return self.num_selected / self.num_samples

    def __str__(self) -> str:
        promise = f"an error below {self.max_error:.4g} with probability {1 - self.delta:.4g}"
        if self.tau_p is not None:
            return (
                f"tau_p={self.tau_p!r} and kappa_p={self.kappa_p!r} select {self.num_selected} of "
                f"{self.num_samples} held-out samples ({self.coverage:.1%}), {self.num_wrong} of them wrong "
                f"({self.num_wrong / self.num_selected:.2%}): {promise}."
            )
        remedy = "More samples would not help, unless a smaller share of the surest labels were wrong."
        if self.more_labels is not None:
            remedy = f"About {self.more_labels} more would be enough, if the share of wrong labels stays as it is."
        return f"With {self.num_samples} held-out samples, no thresholds can promise {promise}. {remedy}"


class HeldOutLabels(NamedTuple):
    """Positive labels, and their truth, as numpy arrays (N, K): K is 1, or C with several labels per sample."""

    confidence: Floats
    uncertainty: Floats | None
    label: Mask
    """Which entries the network labels; with one label per sample, all of them."""
    wrong: Mask
    """Which of these labels are wrong."""


def thresholds(
    p: Any,
    u: Any,
    y: Any,
    max_error: float = 0.05,
    delta: float = 0.05,
    task: Task = "single",
    gamma: float = 0.5,
    min_coverage: float = 0.2,
    pool: tuple[Any, Any] | None = None,
) -> Thresholds:
    """Return the tau_p and kappa_p of largest coverage whose error is below max_error with probability 1 - delta.

    The error is the chance that a sample with a label selected by equation 5 has a wrong one selected. This is the
    expected value for new samples; the share in a small pool varies around it. Both thresholds loosen in step, from
    those that select `min_coverage` of the samples on, while an exact binomial test of each pair rejects an error of
    max_error or more. Without any wrong label this takes log(delta) / log(1 - max_error) selected samples (59 for 0.05
    and 0.05); with some wrong ones, several times as many.

    The promise holds under three conditions. The held-out samples are exchangeable with those that the thresholds will
    be used on: drawn the same way, labeled by the same network, which was trained on neither. The network of a later
    round is a different one, and has learned from the pool. No network was trained, stopped or chosen by the held-out
    labels. And the choice is made once: trying several arguments and keeping the best has a higher chance of error than
    delta. It is a promise about all labels together, before balancing, not about each class.

    With `pool`, the pairs are taken from the pool's p and u, and the promise is proven except for ties (see
    docs/thresholds.md). Without it they are taken from the held-out samples themselves. What is proven then is that,
    given p and u, the expected error of the held-out selection is below max_error (a binomial test is more conservative
    if samples are not equally likely to be wrong: Hoeffding, 1956, here for delta up to 0.3 and max_error up to 0.5).
    For new samples it fails in simulations with a chance of delta, and of up to 1.5 delta in cases designed to break
    it, with few values of p and u.

    Args:
        p: Probabilities (N, C) of held-out samples.
        u: Their uncertainties (N, C); None if there are none, and then kappa_p is infinite.
        y: True class indices (N,); with several labels per sample 0 and 1, (N, C). Of p's kind.
        max_error: The error to stay below, in (0, 1).
        delta: The chance that it does not, in (0, 1).
        task: "single" or "multi", as in `pseudo_labels`. The labels of one sample are not independent, so with "multi"
            samples are counted: selected if any of its labels is, wrong if any of its selected labels is.
        gamma: As in `pseudo_labels`.
        min_coverage: Share of the samples at which the tests begin, in (0, 1]. Smaller values are for networks that are
            right only about a few samples; the first test then has few samples.
        pool: p and u (or None) of unlabeled samples like the held-out ones, as many as possible; preferably those that
            the thresholds will be used on.

    Returns:
        Thresholds; its tau_p and kappa_p are None if no pair passed, and more_labels then estimates how many more
        samples let the first test pass in half of all cases. The estimate takes each pair's error to be its median
        given the counts, or 0 if no label is wrong, and assumes that more confident labels are not wrong more often.

    Example:
        >>> import numpy as np
        >>> p, u, y = np.tile([0.9, 0.1], (200, 1)), np.tile([0.02, 0.02], (200, 1)), np.arange(200) // 196
        >>> print(thresholds(p, u, y))
        tau_p=0.9 and kappa_p=0.02 select 200 of 200 held-out samples (100.0%), 4 of them wrong (2.00%): an error below
        0.05 with probability 0.95.
    """
    labels = judge(p, u, y, task, gamma)
    of_pool = None if pool is None else _of_pool(pool, np.shape(p)[1], u is not None, task, gamma)
    return choose(labels, max_error, delta, min_coverage, of_pool)


def judge(p: Any, u: Any, y: Any, task: Task = "single", gamma: float = 0.5) -> HeldOutLabels:
    """Return the positive labels of equation 1, and which of them are wrong; the arguments are those of `thresholds`.

    Example:
        >>> judge([[0.9, 0.1], [0.3, 0.7]], None, [0, 0]).wrong.tolist()
        [[False], [True]]
    """
    check_task(task)
    gamma = require_number("gamma", gamma, 0, 1, ends="()")
    p, u = as_probabilities("p", p), None if u is None else as_uncertainties("u", u)
    alike(p=p, u=u)
    y = as_truth(y, p, task)
    if task == "multi":
        label = to_numpy(hard_labels(p, task, gamma))
        return HeldOutLabels(to_numpy(p), None if u is None else to_numpy(u), label, label & (to_numpy(y) == 0))
    entries = top_entries(p)
    wrong = to_numpy(entries[1] != y)[:, None]
    u = None if u is None else to_numpy(u[entries])[:, None]
    return HeldOutLabels(to_numpy(p[entries])[:, None], u, np.ones_like(wrong), wrong)


def _of_pool(pool: Any, num_classes: int, with_uncertainty: bool, task: Task, gamma: float) -> HeldOutLabels:
    """Return the positive labels of a pool; none is marked as wrong."""
    if not isinstance(pool, tuple | list) or len(pool) != 2:
        raise bad_argument("pool", "be a pair (p, u)", type(pool).__name__, "pass both")
    p, u = as_probabilities("pool", pool[0]), None if pool[1] is None else as_uncertainties("pool", pool[1])
    if (u is not None) != with_uncertainty:
        raise InvalidInputError("The 'pool' argument must have uncertainties if 'u' is given, and only then.")
    if p.shape[1] != num_classes:
        raise InvalidInputError(f"The 'pool' must have the classes of 'p'. Got {p.shape[1]} and {num_classes}.")
    truth = hard_labels(p, task, gamma) if task == "multi" else top_entries(p)[1]
    return judge(p, u, truth, task, gamma)


def choose(
    labels: HeldOutLabels,
    max_error: float = 0.05,
    delta: float = 0.05,
    min_coverage: float = 0.2,
    pool: HeldOutLabels | None = None,
) -> Thresholds:
    """Return `thresholds` for labels that are already judged.

    Example:
        >>> surest = np.linspace(1.0, 0.5, 500)[:, None]
        >>> choose(HeldOutLabels(surest, None, surest > 0, surest < 0.6)).num_selected
        410
    """
    max_error = require_number("max_error", max_error, 0, 1, ends="()")
    delta = require_number("delta", delta, 0, 1, ends="()")
    min_coverage = require_number("min_coverage", min_coverage, 0, 1, ends="(]")
    num_samples, path = len(labels.label), labels if pool is None else pool
    tau, kappa = _pairs(path)
    nothing = Thresholds(None, None, 0, 0, num_samples, max_error, delta, None)
    if not len(tau):
        return nothing
    selected, wrong = (_counts(labels, which, tau, kappa) for which in (labels.label, labels.wrong))
    coverage = _counts(path, path.label, tau, kappa) / len(path.label)
    allowed = _allowed_up_to(num_samples, max_error, delta)[selected]
    # A test has the most power where one more wrong label becomes allowed; tests in between could only fail earlier.
    eased = np.diff(allowed, prepend=-1) > 0
    eased[-1] = allowed[-1] >= 0
    tests = _from(np.flatnonzero(eased), coverage, min_coverage)
    rejects = wrong[tests] <= allowed[tests]
    num_passed = len(tests) if rejects.all() else int(rejects.argmin())
    if not num_passed:
        first = tests[0] if len(tests) else len(tau) - 1
        up_to_first = slice(np.searchsorted(coverage, min(min_coverage, coverage[first])), first + 1)
        shares = np.maximum(selected[up_to_first], 0.5) / num_samples
        errors = _errors(selected[up_to_first], wrong[up_to_first]) * labels.wrong.any()
        need = _needed(errors, shares, min(min_coverage, shares[-1]), num_samples, max_error, delta)
        return nothing._replace(more_labels=None if need > MOST_LABELS else max(1, math.ceil(need) - num_samples))
    last = tests[num_passed - 1]
    counts = int(selected[last]), int(wrong[last]), num_samples
    return Thresholds(float(tau[last]), float(kappa[last]), *counts, max_error, delta, more_labels=0)


def _from(tests: Counts, coverage: Floats, least: float) -> Counts:
    """Return the tests from the one nearest to the least coverage on, but not below half of it."""
    wide = tests[coverage[tests] >= least / 2]
    return wide[np.abs(coverage[wide] - least).argmin() :] if len(wide) else tests[-1:]


def _pairs(path: HeldOutLabels) -> tuple[Floats, Floats]:
    """Return tau_m and kappa_m, shape (M,) each for M labels."""
    tau = np.sort(np.clip(path.confidence[path.label], 0, 1))[::-1]  # `select` refuses a tau_p beyond 1
    kappa = np.full(len(tau), np.inf) if path.uncertainty is None else np.sort(path.uncertainty[path.label])
    return tau, kappa


def _counts(labels: HeldOutLabels, which: Mask, tau: Floats, kappa: Floats) -> Counts:
    """Return how many samples have one of these labels selected by each pair, shape (M,)."""
    # A label is selected from the first pair on that has tau <= its confidence and kappa >= its uncertainty.
    place = np.searchsorted(-tau, -np.clip(labels.confidence, 0, 1))
    if labels.uncertainty is not None:
        place = np.maximum(place, np.searchsorted(kappa, labels.uncertainty))
    first = np.where(which, place, len(tau)).min(axis=1)
    return np.asarray(np.bincount(first, minlength=len(tau) + 1)[:-1].cumsum())


def _allowed(selected: Counts, max_error: float, delta: float) -> Counts:
    """Return the largest w with P(Bin(n, max_error) <= w) <= delta for each number n; -1 where there is none."""
    from scipy.special import bdtr, bdtrik

    number = np.maximum(selected, 1)
    wrong = np.floor(bdtrik(delta, number, max_error))
    # The inverse knows no w below 0, and may be rounded up.
    wrong = np.where(bdtr(wrong, number, max_error) <= delta, wrong, wrong - 1)
    # For an error near 0 it is not a number: even w = 0 is then too likely.
    return np.asarray(np.where((selected > 0) & ~np.isnan(wrong), wrong, -1), dtype=np.int64)


@functools.lru_cache(maxsize=8)
def _allowed_up_to(most: int, max_error: float, delta: float) -> Counts:
    """Return `_allowed` for all numbers from 0 on, once for many choices."""
    # In parts, because a signal waits for the end of compiled code, which takes a second for 100,000 numbers.
    parts = (np.arange(start, min(start + 100_000, most + 1)) for start in range(0, most + 1, 100_000))
    return np.concatenate([_allowed(part, max_error, delta) for part in parts])


@functools.lru_cache(maxsize=8)
def _sizes(max_error: float, delta: float) -> tuple[Counts, Counts]:
    """Return numbers of samples, all of them at first and then in steps of about 2 %, and `_allowed` for each."""
    few, many = np.arange(1, 1000), np.geomspace(1000, MOST_LABELS, 400).round().astype(np.int64)
    sizes = np.concatenate([few, many])
    return sizes, _allowed(sizes, max_error, delta)


def _errors(selected: Counts, wrong: Counts) -> Floats:
    """Return each pair's error, the median given its counts (Jeffreys' prior), and at most that of a looser pair."""
    from scipy.special import betaincinv

    median = betaincinv(wrong + 0.5, selected - wrong + 0.5, 0.5)
    return np.asarray(np.minimum.accumulate(median[::-1])[::-1])


def _needed(errors: Floats, coverage: Floats, least: float, num_samples: int, max_error: float, delta: float) -> float:
    """Return the fewest samples with which the first test passes in half of all cases, or infinity.

    The first test is at the least coverage or, with few samples, at that of the fewest samples that a test needs.
    """
    from scipy.special import bdtr

    sizes, allowed = _sizes(max_error, delta)
    fewest = sizes[(allowed >= 0).argmax()]
    few = fewest / coverage[(bdtr(0, fewest, errors) >= 0.5) & (coverage * num_samples < fewest)]
    if len(few):
        return float(few.min())
    tested = (np.diff(allowed, prepend=-1) > 0) & (sizes > least * num_samples)
    passes = tested & (bdtr(np.maximum(allowed, 0), sizes, errors[0]) >= 0.5)
    return float(sizes[passes.argmax()] / least) if passes.any() else math.inf
