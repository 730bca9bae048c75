"""Mean m = Σ x / n and standard deviation s = sqrt(Σ (x - m)² / (n - 1)) over passes, without keeping them.

Welford's recurrence: m_n = m_{n-1} + (x - m_{n-1}) / n; the sum of squares grows by (x - m_{n-1})(x - m_n).
The rounded m_n lies between m_{n-1} and x, so both factors have one sign: the sum never falls, s is never
negative, and the mean never leaves the range of the values. Chan's update joins two counts a and b, d = m_b - m_a:
m = m_a + d b / (a + b), and the sums of squares add up, with d² a b / (a + b) on top.
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

    @classmethod
    def of(cls, count: int, mean: Tensor, squares: Tensor) -> "RunningMoments":
        """Return the moments of `count` passes from their mean and their sum of squared differences from it."""
        moments = cls()
        moments.count, moments._mean, moments._squares = count, mean, squares
        return moments

    def add(self, x: Tensor) -> None:
        """Take in one more tensor, of the shape of the first."""
        x = x.detach()
        x = x if x.dtype == torch.float64 else x.float()
        if self.count == 0:
            self._mean, self._squares = x.clone(), torch.zeros_like(x)
        else:
            self._check_shape(x)
        self.count += 1
        before = x - self._mean
        self._mean += before / self.count
        self._squares += before * (x - self._mean)

    def merge(self, other: "RunningMoments") -> None:
        """Take in all that `other` has taken in, as if its passes had been added here.

        Example:
            >>> moments, others = RunningMoments(), RunningMoments()
            >>> moments.add(torch.tensor([1.0]))
            >>> others.add(torch.tensor([2.0]))
            >>> others.add(torch.tensor([6.0]))
            >>> moments.merge(others)
            >>> moments.mean, moments.std
            (tensor([3.]), tensor([2.6458]))
        """
        if other.count == 0:
            return
        if self.count == 0:
            self.count, self._mean, self._squares = other.count, other._mean.clone(), other._squares.clone()
            return
        self._check_shape(other._mean)
        total = self.count + other.count
        between = other._mean - self._mean
        self._mean += between * (other.count / total)
        self._squares += other._squares + between.square() * (self.count * other.count / total)
        self.count = total

    @property
    def mean(self) -> Tensor:
        """The mean so far; needs at least one tensor."""
        if self.count < 1:
            raise InvalidInputError("The mean of no passes is undefined; add at least one.")
        return self._mean.clone()

    @property
    def squares(self) -> Tensor:
        """The sum of squared differences from the mean so far, at least 0; needs at least one tensor."""
        if self.count < 1:
            raise InvalidInputError("The squares of no passes are undefined; add at least one.")
        return self._squares.clone()

    @property
    def std(self) -> Tensor:
        """The standard deviation so far (n - 1), at least 0; needs at least two tensors."""
        if self.count < 2:
            raise InvalidInputError(
                f"The spread over fewer than two passes is undefined. Got {self.count} instead; add at least two."
            )
        return (self._squares / (self.count - 1)).sqrt()

    def _check_shape(self, x: Tensor) -> None:
        if x.shape != self._mean.shape:
            raise InvalidInputError(
                f"Every pass must have the shape of the first, {tuple(self._mean.shape)}. Got "
                f"{tuple(x.shape)} instead; give each pass the same batch."
            )
