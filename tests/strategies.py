"""Hypothesis strategies for predictions and targets, and the kinds of array that every equation accepts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

KINDS: dict[str, Callable[[np.ndarray], Any]] = {"numpy": np.asarray, "torch": torch.from_numpy}
LOW_PRECISION = [torch.bfloat16, torch.float16]


def shapes(min_classes: int = 1) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(1, 12), st.integers(min_classes, 6))


def probabilities(shape: Any, dtype: Any = np.float32) -> st.SearchStrategy[np.ndarray]:
    """Any values in [0, 1], and often multiples of 1/20, so that ties and hits on a threshold are common."""
    grid = st.integers(0, 20).map(lambda k: float(dtype(k / 20)))
    anything = st.floats(0, 1, width=np.dtype(dtype).itemsize * 8)
    return hnp.arrays(dtype, shape, elements=grid | anything)


def uncertainties(shape: Any, dtype: Any = np.float32) -> st.SearchStrategy[np.ndarray]:
    """Standard deviations of probabilities, with many ties."""
    grid = st.integers(0, 10).map(lambda k: float(dtype(k / 100)))
    return hnp.arrays(dtype, shape, elements=grid | st.floats(0, 0.5, width=np.dtype(dtype).itemsize * 8))


def masks(shape: Any) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.bool_, shape)


def logits(shape: Any, size: float = 30.0, dtype: Any = np.float64) -> st.SearchStrategy[np.ndarray]:
    whole = st.integers(-3, 3).map(float)
    return hnp.arrays(dtype, shape, elements=whole | st.floats(-size, size, width=np.dtype(dtype).itemsize * 8))


def neighbors(value: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The positive number just below `value` rounded to `dtype`, that number, and the one just above."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    at = torch.tensor(value, dtype=dtype)
    return (at.view(bits) - 1).view(dtype), at, (at.view(bits) + 1).view(dtype)
