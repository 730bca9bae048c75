"""Numpy arrays and torch tensors through one door: the array API, without importing torch.

The equations are written once against the array API standard (`array_api_compat`), so that a torch tensor stays on
its device and a numpy array stays numpy.
"""

from typing import Any, TypeAlias

import array_api_compat
import numpy as np

from surelabel.errors import InvalidInputError

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""


def as_array(name: str, value: Any) -> Array:
    """Return `value` as it is when it is a numpy array or torch tensor; lists become numpy arrays."""
    if array_api_compat.is_numpy_array(value) or array_api_compat.is_torch_array(value):
        return value
    if isinstance(value, (list, tuple, float, int)):
        return np.asarray(value)
    raise InvalidInputError(
        f"The '{name}' argument must be a numpy array or a torch tensor. Got {type(value).__name__} instead; "
        f"convert it with numpy.asarray."
    )


def namespace(**arrays: Array) -> Any:
    """Return the array API namespace that the named arrays share; refuse a mixture of kinds or devices."""
    present = {name: value for name, value in arrays.items() if value is not None}
    kinds = {name: _kind(value) for name, value in present.items()}
    if len(set(kinds.values())) > 1:
        described = ", ".join(f"'{name}' is a {kind}" for name, kind in kinds.items())
        raise InvalidInputError(
            f"All arrays must be of one kind and on one device: {described}. Convert them before the call."
        )
    return array_api_compat.array_namespace(*present.values())


def to_numpy(value: Array) -> np.ndarray:
    """Return a numpy array with the same values, copied from the device where needed."""
    if array_api_compat.is_torch_array(value):
        value = value.detach().cpu()
        if not value.dtype.is_floating_point or value.element_size() > 2:
            return np.asarray(value)
        return np.asarray(value.float())
    return np.asarray(value)


def _kind(value: Array) -> str:
    if array_api_compat.is_torch_array(value):
        return f"torch tensor on {value.device}"
    return "numpy array"
