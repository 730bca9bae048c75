"""Equations 3 and 4 and the learning rule: what a network learns from the selected labels, from its logits.

NCE = -(1 / s) sum_c g_c (1 - y_c) log(1 - p_c)                                                 (equation 3)
BCE = -(1 / s) sum_c g_c [y_c log p_c + (1 - y_c) log(1 - p_c)]                                 (equation 4)

p is the softmax (equation 3) or the sigmoid (equation 4) of the logits, and s the number of selected labels of the
sample. Everything is computed in log space, in float32 or better, without clamps: values and gradients are exact and
finite also for logits of 1e4. Python never reads an array's value, so the losses can be compiled and the host never
waits for the device.
"""

import math
from typing import Any

from surelabel.core.arrays import Array, alike, as_boolean, as_floating, namespace, require_number, require_shape
from surelabel.core.labels import Task, check_task
from surelabel.errors import InvalidInputError


def cross_entropy(logits: Any, labels: Any) -> Array:
    """Return -log p_label of the softmax, averaged over the rows that have a label.

    Args:
        logits: Real numbers (N, C), finite.
        labels: Boolean (N, C), at most one True a row (with several, the row is the mean over them).

    Returns:
        0-d array; 0 with zero gradient when no row has a label.

    Example:
        >>> float(cross_entropy([[0.0, 0.0], [5.0, 0.0]], [[True, False], [False, False]]))
        0.6931471805599453
    """
    logits, labels = _checked(logits, labels=labels)
    _, gaps, odds = _from_top(logits)
    return _mean_over_rows(_minus_log_softmax(gaps, odds), labels)


def negative_cross_entropy(logits: Any, negative: Any) -> Array:
    """Return -(1 / s) sum_{c negative} log(1 - p_c) (equation 3), mean over the rows that have a negative.

    Args:
        logits: Real numbers (N, C), finite, of at least two classes.
        negative: Boolean (N, C): the classes that the sample is taken not to have.

    Returns:
        0-d array; 0 with zero gradient when no row has a negative.

    Example:
        >>> float(negative_cross_entropy([[0.0, 0.0], [5.0, 0.0]], [[True, False], [False, False]]))
        0.6931471805599453
    """
    logits, negative = _checked(logits, negative=negative)
    _require_two_classes(logits)
    return _mean_over_rows(_minus_log_one_minus_softmax(*_from_top(logits)), negative)


def masked_binary_cross_entropy(logits: Any, labels: Any, selected: Any) -> Array:
    """Return the binary cross-entropy of the selected labels (equation 4), mean over the rows that have one.

    Args:
        logits: Real numbers (N, C), finite.
        labels: Boolean (N, C): the class is present.
        selected: Boolean (N, C): the label may be learned from.

    Returns:
        0-d array; 0 with zero gradient when nothing is selected.

    Example:
        >>> float(masked_binary_cross_entropy([[0.0, 9.0]], [[True, False]], [[True, False]]))
        0.6931471805599453
    """
    logits, labels, selected = _checked(logits, labels=labels, selected=selected)
    xp = namespace(logits=logits)
    return _mean_over_rows(_softplus(xp.where(labels, -logits, logits)), selected)


def learning_rule(logits: Any, y: Any, g: Any, *, task: Task = "single", negative_weight: float = 1.0) -> Array:
    """Return the batch loss over targets (y, g): mean CE + negative_weight * mean NCE, or masked BCE.

    Single-label: a row with a selected positive learns it by cross-entropy (CE); a row with selected
    negatives only learns them by equation 3 (NCE). Multi-label: every selected entry learns by equation 4.

    Args:
        logits: Real numbers (N, C), finite.
        y: Boolean labels (N, C).
        g: Boolean (N, C): whether the label may be learned from.
        task: "single" or "multi".
        negative_weight: Weight of the negative part, at least 0; used by "single" only.

    Returns:
        0-d array; 0 with zero gradient when nothing is selected.

    Example:
        >>> y, g = [[True, False], [False, False]], [[True, True], [False, True]]
        >>> float(learning_rule([[0.0, 0.0], [0.0, 0.0]], y, g))
        1.3862943611198906
    """
    check_task(task)
    negative_weight = require_number("negative_weight", negative_weight, 0, math.inf, ends="[)")
    logits, y, g = _checked(logits, y=y, g=g)
    if task == "multi":
        return masked_binary_cross_entropy(logits, y, g)
    positive = y & g
    top, gaps, odds = _from_top(logits)
    loss = _mean_over_rows(_minus_log_softmax(gaps, odds), positive)
    if negative_weight == 0:
        return loss
    _require_two_classes(logits)
    only_negative = g & ~namespace(y=y).any(positive, axis=1, keepdims=True)
    return loss + negative_weight * _mean_over_rows(_minus_log_one_minus_softmax(top, gaps, odds), only_negative)


def _minus_log_softmax(gaps: Array, odds: Array) -> Array:
    """Return -log p_c (N, C)."""
    xp = namespace(gaps=gaps)
    return xp.log1p(xp.sum(odds, axis=1, keepdims=True)) - gaps


def _minus_log_one_minus_softmax(top: Array, gaps: Array, odds: Array) -> Array:
    """Return -log(1 - p_c) (N, C), with full relative precision from p_c = 0 to p_c = 1.

    For the top class it is logsumexp over all minus logsumexp over the others; written with a, the log of its
    odds p / (1 - p), that is softplus(a). The other classes have p <= 1/2, where log1p(-p) is exact.
    """
    xp = namespace(gaps=gaps)
    log_odds_of_top = -_logsumexp(xp.where(top, -math.inf, gaps))
    others = xp.log1p(-odds / (1 + xp.sum(odds, axis=1, keepdims=True)))
    return xp.where(top, _softplus(log_odds_of_top), -others)


def _from_top(logits: Array) -> tuple[Array, Array, Array]:
    """Return the top class (one True a row), z_c - z_top, and p_c / p_top with 0 at the top; all (N, C).

    Gaps to the top stay exact where logits are large, and leaving the top's own 1 out of the odds keeps a
    confident row's log p_top = -log1p(sum of odds) from being rounded to 0. The gradient flows through z_top
    on purpose.
    """
    xp = namespace(logits=logits)
    # Compared rather than set by index: on a GPU that would make the host wait.
    top = xp.arange(logits.shape[1], device=logits.device) == xp.argmax(logits, axis=1, keepdims=True)
    gaps = logits - xp.sum(xp.where(top, logits, 0.0), axis=1, keepdims=True)
    return top, gaps, xp.where(top, 0.0, xp.exp(gaps))


def _logsumexp(values: Array) -> Array:
    xp = namespace(values=values)
    largest = xp.max(values, axis=1, keepdims=True)
    return largest + xp.log(xp.sum(xp.exp(values - largest), axis=1, keepdims=True))


def _softplus(values: Array) -> Array:
    """Return log(1 + exp(values)); `maximum` splits the gradient at a tie, so that it is exactly 1/2 at 0."""
    xp = namespace(values=values)
    return xp.maximum(values, xp.zeros_like(values)) + xp.log1p(xp.exp(-xp.abs(values)))


def _mean_over_rows(values: Array, mask: Array) -> Array:
    """Return the mean over marked rows of the mean over marked entries; 0 when nothing is marked."""
    xp = namespace(values=values)
    marked = xp.sum(xp.astype(mask, values.dtype), axis=1)
    at_least_one = xp.ones_like(marked)
    rows = xp.sum(xp.where(mask, values, 0.0), axis=1) / xp.maximum(marked, at_least_one)
    number = xp.sum(xp.minimum(marked, at_least_one))
    return xp.sum(rows) / xp.maximum(number, xp.ones_like(number))


def _checked(logits: Any, **masks: Any) -> tuple[Array, ...]:
    """Return logits (float32 or better) and the boolean masks, of one kind and shape (N, C)."""
    logits = as_floating("logits", logits)
    require_shape("logits", logits, 2, no_rows=True)
    arrays = {name: as_boolean(name, mask) for name, mask in masks.items()}
    xp = alike(logits=logits, **arrays)
    if xp.finfo(logits.dtype).bits < 32:
        logits = xp.astype(logits, xp.float32)
    return logits, *arrays.values()


def _require_two_classes(logits: Array) -> None:
    if logits.shape[1] < 2:
        raise InvalidInputError("'logits' must have at least two classes; with one, use masked_binary_cross_entropy.")
