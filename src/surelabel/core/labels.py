"""Equation 1: hard pseudo-labels, y_c = 1[p_c >= gamma].

With one label per sample, gamma is the largest probability of its row, so that exactly one class is labeled. With
several labels per sample, gamma is a constant (0.5 in the paper).
"""

from typing import Any, Literal, TypeAlias, get_args

from surelabel.core.arrays import (
    Array,
    as_array,
    as_probabilities,
    bad_argument,
    namespace,
    require_choice,
    require_number,
    rounded_to,
)

Task: TypeAlias = Literal["single", "multi"]
"""One label per sample, or several."""


def pseudo_labels(p: Any, task: Task = "single", gamma: float = 0.5) -> Array:
    """Turn probabilities into hard pseudo-labels: y_c = 1[p_c >= gamma] (equation 1).

    Args:
        p: Probabilities (N, C), numpy or torch.
        task: "single" labels the most probable class of each row (ties: the lowest class); "multi" labels
            every class with p >= gamma.
        gamma: Threshold in (0, 1), rounded to p's dtype; used by "multi" only.

    Returns:
        Boolean (N, C), of p's kind and on p's device.

    Example:
        >>> pseudo_labels([[0.2, 0.7, 0.1], [0.4, 0.4, 0.2]])
        array([[False,  True, False],
               [ True, False, False]])
    """
    check_task(task)
    gamma = require_number("gamma", gamma, 0, 1, ends="()")
    return hard_labels(as_probabilities("p", p), task, gamma)


def check_task(task: Any) -> None:
    """Refuse an unknown task."""
    require_choice("task", task, get_args(Task))


def as_truth(y: Any, p: Array, task: Task = "single") -> Array:
    """Return true labels that fit p (N, C): class indices (N,), or 0 and 1, (N, C), for several labels per sample."""
    y = as_array("y", y)
    xp = namespace(p=p, y=y)
    single = task == "single"
    shape, largest = (tuple(p.shape)[:1], p.shape[1] - 1) if single else (tuple(p.shape), 1)
    if not xp.isdtype(y.dtype, "integral" if single else ("bool", "integral")) or tuple(y.shape) != shape:
        must = f"hold {'one class index per sample' if single else '0 or 1 per sample and class'}, in shape {shape}"
        remedy = "pass class indices, not one-hot rows" if single else "pass one column per class"
        raise bad_argument("y", must, f"{y.dtype} of shape {tuple(y.shape)}", remedy)
    low, high = int(y.min()), int(y.max())
    if low < 0 or high > largest:
        remedy = "leave out samples whose label is unknown"
        raise bad_argument("y", f"hold values from 0 to {largest}", f"values from {low} to {high}", remedy)
    return y


def hard_labels(p: Array, task: Task, gamma: float) -> Array:
    """Return equation 1 for probabilities (N, C) that have been checked."""
    if task == "multi":
        return p >= rounded_to(p, gamma)
    xp = namespace(p=p)
    label = xp.zeros(p.shape, dtype=xp.bool, device=p.device)
    label[top_entries(p)] = True
    return label


def top_entries(p: Array) -> tuple[Array, Array]:
    """Return the index, (row, class) for each of the N rows, of the largest probability (ties: the lowest class)."""
    xp = namespace(p=p)
    return xp.arange(p.shape[0], device=p.device), xp.argmax(p, axis=1)
