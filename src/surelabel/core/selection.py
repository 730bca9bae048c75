"""Equations 2 and 5: which pseudo-labels to learn from, and how to balance their classes.

g_c = 1[u_c <= kappa_p] 1[p_c >= tau_p] + 1[u_c <= kappa_n] 1[p_c <= tau_n]                     (equation 5)

The first term selects positive labels, the second negative ones. With both kappas infinite it is equation 2,
selection by confidence alone.
"""

import math
from typing import Any, NamedTuple

from surelabel.core.arrays import (
    Array,
    alike,
    as_boolean,
    as_floating,
    as_uncertainties,
    as_values,
    bad_argument,
    namespace,
    require_count,
    require_number,
    require_probabilities,
    require_shape,
    require_uncertainties,
    rounded_to,
    row_blocks,
    widened,
)
from surelabel.core.labels import Task, check_task, hard_labels, top_entries


class Selection(NamedTuple):
    """The pseudo-labels that may be learned from, as boolean masks (N, C) that share no entry."""

    positive: Array
    """Classes that the sample is taken to have."""
    negative: Array
    """Classes that the sample is taken not to have."""


def select(
    p: Any,
    u: Any,
    tau_p: float = 0.7,
    tau_n: float = 0.05,
    kappa_p: float = 0.05,
    kappa_n: float = 0.005,
    task: Task = "single",
    gamma: float = 0.5,
    p_soft: Any = None,
    u_soft: Any = None,
) -> Selection:
    """Select the pseudo-labels that are both confident and certain (equation 5).

    positive = label & (p >= tau_p) & (u <= kappa_p)
    negative = ~label & (p_soft <= tau_n) & (u_soft <= kappa_n)

    Here label = pseudo_labels(p, task, gamma). Each threshold is rounded to the dtype of the array it meets.

    Args:
        p: Probabilities (N, C).
        u: Their uncertainties (N, C); may be None where no finite kappa needs them.
        tau_p: Smallest probability of a positive label, in [0, 1].
        tau_n: Largest probability of a negative label, in [0, 1], not above tau_p.
        kappa_p: Largest uncertainty of a positive label; infinite for selection by confidence (equation 2).
        kappa_n: Largest uncertainty of a negative label; infinite for selection by confidence (equation 2).
        task: "single" or "multi", as in `pseudo_labels`.
        gamma: As in `pseudo_labels`.
        p_soft: Probabilities (N, C) of the softened pass, for the negatives; p when None.
        u_soft: Uncertainties (N, C) of the softened pass, for the negatives; u when None.

    Returns:
        Selection of two boolean (N, C), of p's kind and on p's device.

    Example:
        >>> select([[0.9, 0.1, 0.0]], [[0.04, 0.04, 0.0]]).positive
        array([[ True, False, False]])
    """
    check_task(task)
    gamma = require_number("gamma", gamma, 0, 1, ends="()")
    _check_thresholds(tau_p, tau_n, kappa_p, kappa_n)
    probabilities = {"p": as_values("p", p)}
    if p_soft is not None:
        probabilities["p_soft"] = as_values("p_soft", p_soft)
    uncertainties = {
        name: as_values(name, value) for name, value in (("u", u), ("u_soft", u_soft)) if value is not None
    }
    xp = alike(**probabilities, **uncertainties)
    p, u = probabilities["p"], uncertainties.get("u")
    p_soft, u_soft = probabilities.get("p_soft", p), uncertainties.get("u_soft", u)
    for name, values, kappa_name, kappa in (("u", u, "kappa_p", kappa_p), ("u_soft", u_soft, "kappa_n", kappa_n)):
        if values is None and kappa < math.inf:
            got, remedy = f"None and {kappa_name}={kappa}", f"pass it, or {kappa_name}=math.inf"
            raise bad_argument(name, f"be given while '{kappa_name}' is finite", got, remedy)

    tau_p, tau_n = rounded_to(p, tau_p), rounded_to(p_soft, tau_n)
    positive, negative = (xp.zeros(p.shape, dtype=xp.bool, device=p.device) for _ in range(2))
    for rows in row_blocks(p):
        # Values are checked where they are compared, so that a large array is read from memory only once.
        for name, values in probabilities.items():
            require_probabilities(name, values[rows])
        for name, values in uncertainties.items():
            require_uncertainties(name, values[rows])
        negative[rows] = (p_soft[rows] <= tau_n) & _certain(u_soft, rows, kappa_n)
        if task == "single":
            # The first term is computed only at the row's label, which takes half the time.
            label = top_entries(p[rows])
            positive[rows][label] = (p[rows][label] >= tau_p) & _certain(u, rows, kappa_p, at=label)
            negative[rows][label] = False
        else:
            label = hard_labels(p[rows], task, gamma)
            positive[rows] = label & (p[rows] >= tau_p) & _certain(u, rows, kappa_p)
            negative[rows] &= ~label
    return Selection(positive, negative)


def balance(s: Selection, u: Any, floor: int = 25, shares: Any = None) -> Selection:
    """Keep the max(floor, smallest class) most certain positives of each class; negatives do not change.

    A class without any positive counts as the smallest, with size 0. With `shares`, class c keeps max(floor, scale *
    share_c) instead, where scale = min over classes of count_c / share_c: the largest selection in which the classes
    have the proportions of their shares.

    Args:
        s: Selection of boolean masks (N, C).
        u: Uncertainties (N, C): the smaller, the more certain (ties: the lower index stays).
        floor: Number of positives that every class may keep.
        shares: Share of each class (C,), at least 0, of the masks' kind; None for equal shares. A class with
            share 0 keeps `floor`.

    Returns:
        Selection with a new `positive` and the same `negative`.

    Example:
        >>> s = select([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]], [[0.02, 0.0], [0.01, 0.0], [0.03, 0.0]])
        >>> balance(s, [[0.02, 0.0], [0.01, 0.0], [0.03, 0.0]], floor=0).positive
        array([[False, False],
               [ True, False],
               [False,  True]])
    """
    floor = require_count("floor", floor, 0)
    if not isinstance(s, tuple) or len(s) != 2:
        raise bad_argument("s", "be a Selection(positive, negative)", type(s).__name__, "pass what select returned")
    if u is None:
        raise bad_argument("u", "hold uncertainties (N, C)", None, "pass 1 - p to rank by confidence")
    positive, negative = as_boolean("s.positive", s[0]), as_boolean("s.negative", s[1])
    require_shape("s.positive", positive, 2)
    u = as_uncertainties("u", u)
    xp = alike(positive=positive, negative=negative, u=u)
    if shares is not None:
        shares = as_floating("shares", shares)
        namespace(positive=positive, shares=shares)
        shares = checked_shares(shares, positive.shape[1])
    num_classes = positive.shape[1]
    # Only the selected entries are ranked, in the order of rows.
    entry = xp.nonzero(xp.reshape(positive, (-1,)))[0]
    entry_class = entry % num_classes
    entry = entry[most_certain(entry_class, u[entry // num_classes, entry_class], num_classes, floor, shares)]
    kept = xp.zeros((positive.shape[0] * num_classes,), dtype=xp.bool, device=positive.device)
    kept[entry] = True
    return Selection(xp.reshape(kept, positive.shape), negative)


def most_certain(classes: Array, u: Array, num_classes: int, floor: int, shares: Array | None) -> Array:
    """Return which positives `balance` keeps: the most certain of each class (ties: the lower index).

    Args:
        classes: Class of each selected positive (K,), integers that also hold C.
        u: Their uncertainties (K,).
        num_classes: C.
        floor: As in `balance`.
        shares: As in `balance`, checked by `checked_shares`.

    Returns:
        Indices of those that stay, class by class, the most certain first.
    """
    xp = namespace(classes=classes, u=u)
    # By class, then by uncertainty; stable, so ties stay in their order.
    order = xp.argsort(u, stable=True)
    order = order[xp.argsort(classes[order], stable=True)]
    classes = classes[order]
    every_class = xp.arange(num_classes + 1, dtype=classes.dtype, device=classes.device)
    start = xp.searchsorted(classes, every_class)
    quota = quotas(start[1:] - start[:-1], floor, shares)
    rank = xp.arange(order.shape[0], dtype=start.dtype, device=order.device) - start[classes]
    return order[rank < quota[classes]]


def _certain(u: Array | None, rows: slice, kappa: float, at: Any = ...) -> Array | bool:
    """Return u <= kappa for a block of rows, or for the entries of it that the index `at` names."""
    if u is None or kappa == math.inf:
        return True
    return u[rows][at] <= rounded_to(u, kappa)


def quotas(count: Array, floor: int, shares: Array | None) -> Array:
    """Return how many positives each class (C,) may keep."""
    xp = namespace(count=count)
    if shares is None:
        return xp.full_like(count, max(floor, int(xp.min(count))))
    present = shares > 0
    scale = xp.min(widened(count)[present] / shares[present])
    # scale * share is an integer for the class that sets the scale; rounding must not reduce it by one.
    proportional = xp.floor(scale * shares * (1 + 1e-9))
    return xp.maximum(xp.astype(proportional, count.dtype), xp.full_like(count, floor))


def _check_thresholds(tau_p: float, tau_n: float, kappa_p: float, kappa_n: float) -> None:
    for name, tau in (("tau_p", tau_p), ("tau_n", tau_n)):
        require_number(name, tau, 0, 1)
    for name, kappa in (("kappa_p", kappa_p), ("kappa_n", kappa_n)):
        require_number(name, kappa, 0, math.inf)
    if tau_n > tau_p:
        got, remedy = f"tau_n={tau_n} and tau_p={tau_p}", "lower tau_n or raise tau_p"
        raise bad_argument("tau_n", "not be above 'tau_p'", got, remedy)


def checked_shares(shares: Array, num_classes: int) -> Array:
    """Return the shares of the classes (C,), widened, or say what is wrong with them."""
    shares = widened(as_floating("shares", shares))
    if tuple(shares.shape) != (num_classes,):
        raise bad_argument("shares", f"have shape ({num_classes},)", tuple(shares.shape), "pass one per class")
    low, high = float(shares.min()), float(shares.max())
    if not (low >= 0 and 0 < high < math.inf):
        must = "hold finite numbers of at least 0, one of them above 0"
        raise bad_argument("shares", must, f"values from {low} to {high}", "pass class frequencies")
    return shares
