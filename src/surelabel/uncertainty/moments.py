"""Mean m = Σ x / n and standard deviation s = sqrt(Σ (x - m)² / (n - 1)) over passes, without keeping them.

Welford's recurrence: m_n = m_{n-1} + (x - m_{n-1}) / n; the sum of squares grows by (x - m_{n-1})(x - m_n).
The rounded m_n lies between m_{n-1} and x, so both factors have one sign: the sum never falls, s is never
negative, and the mean never leaves the range of the values.
"""

import torch
from torch import Tensor

from surelabel.errors import InvalidInputError


class RunningMoments:
    """Element-wise mean and unbiased standard deviation of tensors of one shape, in float32 (float64 stays).

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
        self._mean = torch.empty(0)
        self._squares = torch.empty(0)

    def add(self, x: Tensor) -> None:
        """Take in one more tensor, of the shape of the first."""
        x = x.detach()
        x = x if x.dtype == torch.float64 else x.float()
        if self.count == 0:
            self._mean, self._squares = x.clone(), torch.zeros_like(x)
        elif x.shape != self._mean.shape:
            raise InvalidInputError(
                f"Every pass must have the shape of the first, {tuple(self._mean.shape)}. Got "
                f"{tuple(x.shape)} instead; give each pass the same batch."
            )
        self.count += 1
        before = x - self._mean
        self._mean += before / self.count
        self._squares += before * (x - self._mean)

    @property
    def mean(self) -> Tensor:
        """The mean so far; needs at least one tensor."""
        if self.count < 1:
            raise InvalidInputError("The mean of no passes is undefined; add at least one.")
        return self._mean.clone()

    @property
    def std(self) -> Tensor:
        """The standard deviation so far (n - 1), at least 0; needs at least two tensors."""
        if self.count < 2:
            raise InvalidInputError(
                f"The spread over fewer than two passes is undefined. Got {self.count} instead; add at least two."
            )
        return (self._squares / (self.count - 1)).sqrt()
