"""Numpy arrays and torch tensors through one interface, the array API, without importing torch.

The equations are written once against the array API standard (`array_api_compat`), so that a torch tensor
stays on its device and a numpy array stays numpy.
"""

import math
import operator
import sys
from numbers import Real
from typing import Any, TypeAlias

import array_api_compat.numpy as numpy_namespace
import numpy as np

from surelabel.errors import InvalidInputError

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""

ROUNDING = 1e-6
"""Probabilities this far outside [0, 1] are rounding, not a mistake."""


def bad_argument(name: str, must: str, got: object, remedy: str) -> InvalidInputError:
    """Return the error for an argument that cannot be used, worded like all such messages."""
    return InvalidInputError(f"The '{name}' argument must {must}. Got {got} instead; {remedy}.")


def as_array(name: str, value: Any) -> Array:
    """Return `value` as it is when it is a numpy array or torch tensor; lists become numpy arrays."""
    if is_torch(value) or isinstance(value, (np.ndarray, np.generic)):
        return value
    if isinstance(value, (list, tuple, float, int)):
        return np.asarray(value)
    raise bad_argument(name, "be a numpy array or a torch tensor", type(value).__name__, "convert it by numpy.asarray")


def is_torch(value: Any) -> bool:
    """Tell whether `value` is a torch tensor; while torch is not loaded, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def namespace(**arrays: Array) -> Any:
    """Return the array API namespace that the named arrays share; refuse a mixture of kinds or devices."""
    present = {name: value for name, value in arrays.items() if value is not None}
    kinds = {
        name: f"torch tensor on {value.device}" if is_torch(value) else "numpy array" for name, value in present.items()
    }
    if len(set(kinds.values())) > 1:
        described = ", ".join(f"'{name}' is a {kind}" for name, kind in kinds.items())
        raise InvalidInputError(f"All arrays must be of one kind and on one device: {described}; convert them.")
    if any(is_torch(value) for value in present.values()):
        import array_api_compat.torch as torch_namespace

        return torch_namespace
    return numpy_namespace


def to_numpy(value: Array) -> np.ndarray:
    """Return a numpy array with the same values, copied from the device where needed."""
    if is_torch(value):
        value = value.detach().cpu()
        # Numpy knows no bfloat16, and computes slowly with float16.
        value = value.float() if value.is_floating_point() and value.element_size() == 2 else value
    return np.asarray(value)


def as_floating(name: str, value: Any) -> Array:
    """Return `value` as an array of real floats; integers and booleans take the library's default float."""
    array = as_array(name, value)
    xp = namespace(array=array)
    if xp.isdtype(array.dtype, "real floating"):
        return array
    if xp.isdtype(array.dtype, ("bool", "integral")):
        return xp.astype(array, xp.asarray(0.0).dtype)
    raise bad_argument(name, "hold real numbers", f"dtype {array.dtype}", "convert it to a float")


def as_boolean(name: str, value: Any) -> Array:
    """Return `value` as a boolean array; numbers are refused: masks of 0 and 1 look like class indices."""
    array = as_array(name, value)
    if not namespace(array=array).isdtype(array.dtype, "bool"):
        raise bad_argument(name, "be boolean", f"dtype {array.dtype}", f"pass '{name} == 1' for values of 0 and 1")
    return array


def as_values(name: str, value: Any, ndim: int = 2) -> Array:
    """Return `value` as floats without gradient, of `ndim` dimensions and not empty; their values are not checked."""
    array = as_floating(name, value)
    require_shape(name, array, ndim)
    return array.detach() if is_torch(array) else array


def as_probabilities(name: str, value: Any, ndim: int = 2) -> Array:
    """Return `value` as floats, checked to be probabilities: not empty, no NaN, in [0, 1] up to `ROUNDING`."""
    array = as_values(name, value, ndim)
    require_probabilities(name, array)
    return array


def as_uncertainties(name: str, value: Any, ndim: int = 2) -> Array:
    """Return `value` as floats, checked to be uncertainties: not empty, no NaN, none below 0."""
    array = as_values(name, value, ndim)
    require_uncertainties(name, array)
    return array


def require_probabilities(name: str, array: Array) -> None:
    """Refuse an array of floats that holds a value outside [0, 1], up to `ROUNDING`, or NaN."""
    low, high = float(array.min()), float(array.max())  # NaN where the array holds NaN
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        must, remedy = "hold probabilities in [0, 1], without NaN", "take the softmax or sigmoid of logits"
        raise bad_argument(name, must, f"values from {low} to {high}", remedy)


def require_uncertainties(name: str, array: Array) -> None:
    """Refuse an array of floats that holds a value below 0, or NaN."""
    low = float(array.min())
    if not low >= 0:  # as it is with NaN
        must, remedy = "hold uncertainties of at least 0, without NaN", "pass standard deviations"
        raise bad_argument(name, must, f"a smallest value of {low}", remedy)


def require_shape(name: str, array: Array, ndim: int, *, no_rows: bool = False) -> None:
    """Refuse an array unless it has `ndim` dimensions and is not empty; with `no_rows`, N may be 0."""
    shape = tuple(array.shape)
    if len(shape) != ndim:
        raise bad_argument(name, f"have shape {'(N,)' if ndim == 1 else '(N, C)'}", shape, "reshape it")
    if 0 in (shape[1:] if no_rows else shape):
        raise bad_argument(name, "not be empty", f"shape {shape}", "pass at least one sample and class")


def alike(**arrays: Array) -> Any:
    """Return the array API namespace of named arrays that must share kind, device and shape; None is skipped."""
    xp = namespace(**arrays)
    shapes = {name: tuple(value.shape) for name, value in arrays.items() if value is not None}
    if len(set(shapes.values())) > 1:
        described = ", ".join(f"'{name}' has {shape}" for name, shape in shapes.items())
        raise InvalidInputError(f"All arrays must have one shape: {described}; pass the same samples and classes.")
    return xp


def require_number(
    name: str, value: Any, low: float, high: float, *, ends: str = "[]", remedy: str = "choose one in that range"
) -> float:
    """Return `value` as a float when it is a number from `low` to `high`; `ends` are the brackets."""
    is_number = isinstance(value, Real) or (getattr(value, "ndim", None) == 0 and value.dtype != object)
    number = float(value) if is_number and not _is_truth(value) else math.nan
    above = number >= low if ends[0] == "[" else number > low
    below = number <= high if ends[1] == "]" else number < high
    if above and below:
        return number
    raise bad_argument(name, f"be a number in {ends[0]}{low:g}, {high:g}{ends[1]}", repr(value), remedy)


def require_count(name: str, value: Any, low: int, high: int | None = None, *, remedy: str = "choose one") -> int:
    """Return `value` as an int when it is a whole number of at least `low`, and at most `high`."""
    try:
        count = low - 1 if _is_truth(value) else operator.index(value)
    except TypeError:
        count = low - 1
    if count < low or (high is not None and count > high):
        limits = f"at least {low}" if high is None or count < low else f"at most {high}"
        raise bad_argument(name, f"be a whole number of {limits}", repr(value), remedy)
    return count


def _is_truth(value: Any) -> bool:
    """Whether this is true or false, which Python counts as 1 and 0."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def require_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise bad_argument(name, f"be one of {', '.join(map(repr, choices))}", repr(value), "choose one of them")


def rounded_to(array: Array, value: float) -> Array:
    """Return `value` as a 0-d array of `array`'s dtype and device: rounded to a value that `array` can hold.

    Libraries disagree on how a Python number is compared with a float16, bfloat16 or float32 array.
    """
    xp = namespace(array=array)
    with np.errstate(over="ignore"):  # beyond the dtype's range a threshold becomes infinite, which is correct
        return xp.asarray(value, dtype=array.dtype, device=array.device)


def widened(array: Array) -> Array:
    """Return `array` in float64, or in float32 on the one device that has no float64 (Apple's)."""
    xp = namespace(array=array)
    has_double = not str(array.device).startswith("mps")
    return xp.astype(array, xp.float64 if has_double else xp.float32)


def row_blocks(array: Array, entries: int = 1 << 17) -> list[slice]:
    """Cut the rows of `array` into blocks of about `entries` values that fit a processor's cache.

    Several passes over a large array then read it from memory only once. Other devices get it whole.
    """
    num_rows = array.shape[0]
    on_cpu = str(array.device).startswith("cpu")
    step = max(1, entries // math.prod(array.shape[1:])) if on_cpu else num_rows
    return [slice(start, start + step) for start in range(0, num_rows, step)]
