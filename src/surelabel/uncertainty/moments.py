"""What is kept of passes: the mean and spread of softmax(z) and softmax(z / T) (multi-label: sigmoid), not the logits.

Mean m = Σ x / n and standard deviation s = sqrt(Σ (x - m)² / (n - 1)) come from Welford's recurrence:
m_n = m_{n-1} + (x - m_{n-1}) / n; the sum of squares grows by (x - m_{n-1})(x - m_n). The rounded m_n lies between
m_{n-1} and x, so both factors have the same sign: the sum never decreases, s is never negative, and the mean never
leaves the range of the values.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from surelabel.core.labels import Task
from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.uncertainty.deterministic import Uncertainty, check_finite, probabilities


class RunningMoments:
    """Element-wise mean and unbiased standard deviation of tensors of one shape, in float32 (float64 stays float64).

    Squared differences must not overflow; probabilities and logits are far from that.

    Example:
        >>> moments = RunningMoments()
        >>> for value in (1.0, 2.0, 6.0):
        ...     moments.add(torch.tensor([value, 5.0]))
        >>> moments.mean
        tensor([3., 5.])
        >>> moments.std
        tensor([2.6458, 0.0000])
    """

    def __init__(self) -> None:
        self.count = 0
        self._mean = self._squares = torch.empty(0)

    def add(self, x: Tensor) -> None:
        """Add one more tensor, of the same shape as the first."""
        x = x.detach()
        x = x if x.dtype == torch.float64 else x.float()
        if self.count == 0:
            self._mean, self._squares = x.clone(), torch.zeros_like(x)
        elif x.shape != self._mean.shape:
            shapes = f"{tuple(self._mean.shape)} and {tuple(x.shape)}"
            raise InvalidInputError(f"All passes need the same shape. Got {shapes}; give each pass the same batch.")
        self.count += 1
        before = x - self._mean
        self._mean += before / self.count
        self._squares += before * (x - self._mean)

    @property
    def mean(self) -> Tensor:
        """The mean so far; empty before the first tensor."""
        return self._mean.clone()

    @property
    def std(self) -> Tensor:
        """The standard deviation so far (n - 1), at least 0; needs at least two tensors."""
        if self.count < 2:
            raise InvalidInputError(f"The spread over fewer than two passes is undefined. Got {self.count}; add more.")
        return (self._squares / (self.count - 1)).sqrt()


class Summary(NamedTuple):
    """What is kept of the passes over a batch, as tensors, so that a compiled function can return it."""

    p: Tensor
    u: Tensor
    p_soft: Tensor
    u_soft: Tensor
    finite: Tensor
    """Whether all logits of a row were finite, (N,)."""
    differs: Tensor
    """Whether any two passes over a row differed, (N,)."""

    def uncertainty(self) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C); raise if any logits were not finite."""
        check_finite(self.finite)
        return Uncertainty(self.p, self.u, self.p_soft, self.u_soft)

    def checked(self, passes: str, remedy: str) -> Uncertainty:
        """Return p, u, p_soft and u_soft; raise if the passes do not differ, so that u would be 0 everywhere."""
        estimate = self.uncertainty()
        if len(self.p) == 0:
            raise InvalidInputError("The 'batch' argument has no samples to check the network on; pass at least one.")
        if not self.differs.any():
            raise NotStochasticError(f"All {passes} gave the same output: the uncertainty would be 0. {remedy}")
        return estimate


def summarize(passes: Iterable[Tensor], task: Task, temperature: float) -> Summary:
    """Return the summary of passes, given as logits (P, N, C), P passes at a time; nothing waits for the device.

    Operations over the classes run on P passes at once: pass by pass, the compiler would fuse the sums of all passes
    into one kernel, which takes minutes to compile with 100 classes.

    Example:
        >>> found = summarize([torch.tensor([[[0.0, 2.0]], [[0.0, -2.0]]])], "multi", 2.0)
        >>> found.p, found.differs
        (tensor([[0.5000, 0.5000]]), tensor([True]))
    """
    plain, soft = RunningMoments(), RunningMoments()
    first: Tensor | None = None
    finite = differs = torch.empty(0)
    for z in passes:
        all_finite = torch.isfinite(z).all(dim=2).all(dim=0)
        if first is None:
            # A copy, because a network may write its next output into the same memory.
            first, finite = z[0].clone(), all_finite
            differs = torch.zeros_like(finite)
        finite = finite & all_finite
        differs = differs | (z != first).any(dim=2).any(dim=0)
        p, p_soft = probabilities(z, task), probabilities(z / temperature, task)
        for one, one_soft in zip(p.unbind(), p_soft.unbind(), strict=True):
            plain.add(one)
            soft.add(one_soft)
    return Summary(plain.mean, plain.std, soft.mean, soft.std, finite, differs)
