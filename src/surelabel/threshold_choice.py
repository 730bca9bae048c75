"""Thresholds chosen on held-out labels: a fixed sequence of exact binomial tests.

H_m: P(wrong | p >= tau_m, u <= kappa_m) >= max_error,  rejected if P(Bin(n_m, max_error) <= w_m) <= delta

Of the labels that (tau_m, kappa_m) select, n_m are held out and w_m of these are wrong. tau_m is the m-th largest
confidence and kappa_m the m-th smallest uncertainty, so both loosen in step and the order does not depend on y. The
tests are made in this order and end with the first that does not reject. To reject a true hypothesis, the sequence must
first of all reject the first true one, which has a chance of delta at most: no test costs another any delta. So with
probability 1 - delta no rejected hypothesis is true, and the last of them gives the thresholds.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.arrays import (
    Array,
    as_array,
    as_probabilities,
    as_uncertainties,
    namespace,
    require_number,
    require_same_shape,
    to_numpy,
)
from surelabel.errors import InvalidInputError
from surelabel.labels import Task, check_task, hard_labels, top_entries

Floats = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

MOST_LABELS = 10_000_000
"""A need of more labels than this is reported as one that no number of labels meets."""


class Thresholds(NamedTuple):
    """Thresholds for positive labels, what they select of the held-out samples, and what is promised; printable."""

    tau_p: float | None
    """Smallest confidence; None where no thresholds passed."""
    kappa_p: float | None
    """Largest uncertainty, infinite where there were no uncertainties; None where no thresholds passed."""
    num_selected: int
    """Held-out samples with a selected label; 0 where no thresholds passed."""
    num_wrong: int
    """How many of these have a wrong one."""
    num_samples: int
    """Held-out samples in all."""
    max_error: float
    """The error stays below this ..."""
    delta: float
    """... but for a chance of this."""
    more_labels: int | None
    """About how many more held-out labels a pass needs: 0 after a pass, None where no number would do."""

    @property
    def coverage(self) -> float:
        """Share of the held-out samples with a selected label."""
        return self.num_selected / self.num_samples

    def __str__(self) -> str:
        promise = f"an error below {self.max_error:.4g} with probability {1 - self.delta:.4g}"
        if self.tau_p is not None:
            return (
                f"tau_p={self.tau_p:.9g} and kappa_p={self.kappa_p:.9g} select {self.num_selected} of "
                f"{self.num_samples} held-out samples ({self.coverage:.1%}), {self.num_wrong} of them wrong "
                f"({self.num_wrong / self.num_selected:.2%}): {promise}."
            )
        if self.more_labels is None:
            remedy = "More labels would not show it either, unless a smaller share of the surest were wrong."
        else:
            remedy = f"About {self.more_labels} more labels would, if the share of wrong ones stays as it is."
        return (
            f"No thresholds are shown by {self.num_samples} held-out samples to have {promise}. {remedy} A smaller "
            "min_coverage begins with surer ones; set it before looking, as every further try costs certainty."
        )


class HeldOutLabels(NamedTuple):
    """Positive labels whose truth is known, as numpy arrays (N, K): K is 1, or C for several labels a sample."""

    confidence: Floats
    uncertainty: Floats | None
    label: Mask
    """Which entries the network labels; for one label a sample all of them."""
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
) -> Thresholds:
    """Return the tau_p and kappa_p of largest coverage whose error is below max_error with probability 1 - delta.

    The error is the share of wrong labels among those that equation 5 selects. Both thresholds loosen in step, from
    those that select `min_coverage` of the samples on, while an exact binomial test of each pair rejects an error of
    max_error or more. Without any error that takes log(delta) / log(1 - max_error) selected samples (59 for 0.05 and
    0.05); networks that err need several times as many.

    The promise holds under three conditions. The held-out samples are exchangeable with those that the thresholds
    will be used on: drawn the same way, labeled by the same network; a network of a later round is another one. No
    network was trained, stopped or chosen by their labels. And the choice is made once: whoever tries several
    arguments and keeps the best has a higher chance of error than delta. It is a promise about all labels together,
    before balancing, not about each class.

    Proven is, for any network, that given p and u the expected error of the held-out selection is below max_error
    (samples that are not equally likely to be wrong make a binomial test more careful: Hoeffding, 1956, here for delta
    up to 0.4 and max_error up to 0.5). That it carries over to new samples, whose p and u fall differently, is shown by
    simulation only.

    Args:
        p: Probabilities (N, C) of held-out samples.
        u: Their uncertainties (N, C); None where there are none, and then kappa_p is infinite.
        y: True class indices (N,); for several labels a sample 0 and 1, (N, C). Of p's kind.
        max_error: The error to stay below, in (0, 1).
        delta: The chance that it does not, in (0, 1).
        task: "single" or "multi", as in `pseudo_labels`. The labels of one sample are not independent, so with "multi"
            samples are counted: selected if any of its labels is, wrong if any of its selected labels is.
        gamma: As in `pseudo_labels`.
        min_coverage: Share of the samples at which the tests begin, in (0, 1]. Smaller ones are for networks that are
            right about few samples only; the test is then made on few.

    Returns:
        Thresholds; its tau_p and kappa_p are None where no pair passed, and more_labels then estimates the need, as if
        (wrong + 1/2) / (selected + 1) were the error of each pair, and 0 if no label is wrong.

    Example:
        >>> import numpy as np
        >>> p, u, y = np.tile([0.9, 0.1], (200, 1)), np.tile([0.02, 0.02], (200, 1)), np.arange(200) // 196
        >>> print(thresholds(p, u, y))
        tau_p=0.9 and kappa_p=0.02 select 200 of 200 held-out samples (100.0%), 4 of them wrong (2.00%): an error below
        0.05 with probability 0.95.
    """
    return choose(judge(p, u, y, task, gamma), max_error, delta, min_coverage)


def judge(p: Any, u: Any, y: Any, task: Task = "single", gamma: float = 0.5) -> HeldOutLabels:
    """Return the positive labels of equation 1, and which of them are wrong; the arguments are those of `thresholds`.

    Example:
        >>> judge([[0.9, 0.1], [0.3, 0.7]], None, [0, 0]).wrong.tolist()
        [[False], [True]]
    """
    check_task(task)
    gamma = require_number("gamma", gamma, 0, 1, ends="()")
    p = as_probabilities("p", p)
    u = None if u is None else as_uncertainties("u", u)
    y = as_array("y", y)
    namespace(p=p, u=u, y=y)
    require_same_shape(p=p, u=u)
    _check_truth(y, p, task)
    if task == "multi":
        label = to_numpy(hard_labels(p, task, gamma))
        return HeldOutLabels(to_numpy(p), None if u is None else to_numpy(u), label, label & (to_numpy(y) == 0))
    entries = top_entries(p)
    wrong = to_numpy(entries[1] != y)[:, None]
    u = None if u is None else to_numpy(u[entries])[:, None]
    return HeldOutLabels(to_numpy(p[entries])[:, None], u, np.ones_like(wrong), wrong)


def choose(
    labels: HeldOutLabels, max_error: float = 0.05, delta: float = 0.05, min_coverage: float = 0.2
) -> Thresholds:
    """Return `thresholds` for labels that have been made and judged already.

    Example:
        >>> surest = np.linspace(1.0, 0.5, 500)[:, None]
        >>> choose(HeldOutLabels(surest, None, surest > 0, surest < 0.6)).num_selected
        410
    """
    max_error = require_number("max_error", max_error, 0, 1, ends="()")
    delta = require_number("delta", delta, 0, 1, ends="()")
    min_coverage = require_number("min_coverage", min_coverage, 0, 1, ends="(]")
    tau, kappa, selected, wrong = _candidates(labels)
    num_samples = len(labels.label)
    allowed = _allowed(selected, max_error, delta)
    # Where one more wrong label than before is allowed a test has most power; tests in between could only fail earlier.
    eased = np.diff(allowed, prepend=-1) > 0
    eased[-1:] = True
    wide = selected >= min_coverage * num_samples
    tests = np.flatnonzero(wide & eased & (allowed >= 0))
    rejects = wrong[tests] <= allowed[tests]
    num_passed = len(tests) if rejects.all() else int(rejects.argmin())
    if not num_passed:
        wide[tests[0] + 1 if len(tests) else len(wide) :] = False
        more = _more_labels(selected[wide], wrong[wide], num_samples, max_error, delta)
        return Thresholds(None, None, 0, 0, num_samples, max_error, delta, more)
    last = tests[num_passed - 1]
    counts = int(selected[last]), int(wrong[last]), num_samples
    return Thresholds(float(tau[last]), float(kappa[last]), *counts, max_error, delta, more_labels=0)


def _candidates(labels: HeldOutLabels) -> tuple[Floats, Floats, Counts, Counts]:
    """Return tau_m and kappa_m, and how many samples they select and have wrong, shape (M,) each for M labels."""
    confidence, uncertainty, label, wrong = labels
    confidence = np.clip(confidence, 0, 1)  # rounding beyond 1 would be a tau_p that `select` refuses
    tau = np.sort(confidence[label])[::-1]
    # An entry is selected from candidate `place` on: as many labels are surer (ties: alike).
    place = np.searchsorted(-tau, -confidence)
    kappa = np.full(len(tau), np.inf)
    if uncertainty is not None:
        kappa = np.sort(uncertainty[label])
        place = np.maximum(place, np.searchsorted(kappa, uncertainty))
    selected, failed = (
        np.bincount(np.where(which, place, len(tau)).min(axis=1), minlength=len(tau) + 1)[:-1].cumsum()
        for which in (label, wrong)
    )
    return tau, kappa, selected, failed


def _allowed(selected: Counts, max_error: float, delta: float) -> Counts:
    """Return the largest w with P(Bin(n, max_error) <= w) <= delta for each number n; -1 where there is none."""
    from scipy.special import bdtr, bdtrik

    number = np.maximum(selected, 1)
    wrong = np.floor(bdtrik(delta, number, max_error))
    # The inverse knows no w below 0, and may be rounded up.
    return np.asarray(np.where(bdtr(wrong, number, max_error) <= delta, wrong, wrong - 1), dtype=np.int64)


def _more_labels(selected: Counts, wrong: Counts, num_samples: int, max_error: float, delta: float) -> int | None:
    """Return the fewest labels, beyond those at hand, with which one of these candidates passes; None where none does.

    Each is taken to keep its coverage, and to be wrong as often as (wrong + 1/2) / (selected + 1); never, if no label
    is wrong in any of them.
    """
    few, many = np.arange(1, 1000), np.geomspace(1000, MOST_LABELS, 400).round().astype(np.int64)
    sizes = np.concatenate([few, many])  # exact, then in steps of about 2 %
    allowed = _allowed(sizes, max_error, delta)
    halves, need = int(wrong.any()), math.inf
    for count, number in zip(selected.tolist(), wrong.tolist(), strict=True):
        expected = -(-(2 * number + halves) * sizes // (2 * (count + 1)))  # rounded up
        passes = expected <= allowed
        if passes.any():
            need = min(need, sizes[passes.argmax()] * num_samples / count)
    return None if need > MOST_LABELS else max(1, math.ceil(need) - num_samples)


def _check_truth(y: Array, p: Array, task: Task) -> None:
    xp = namespace(y=y)
    shape = tuple(p.shape)[: 1 if task == "single" else 2]
    kinds = "integral" if task == "single" else ("bool", "integral")
    largest = p.shape[1] - 1 if task == "single" else 1
    if not xp.isdtype(y.dtype, kinds) or tuple(y.shape) != shape:
        what = "one class index per sample, integers" if task == "single" else "0 and 1 for each sample and class,"
        raise InvalidInputError(
            f"The 'y' argument must hold {what} of shape {shape} for task '{task}'. Got {y.dtype} of shape "
            f"{tuple(y.shape)} instead; convert it."
        )
    low, high = int(xp.min(xp.astype(y, xp.int64))), int(xp.max(xp.astype(y, xp.int64)))
    if low < 0 or high > largest:
        raise InvalidInputError(
            f"The 'y' argument must hold values from 0 to {largest}. Got values from {low} to {high} instead; leave "
            "out samples whose label is unknown."
        )
