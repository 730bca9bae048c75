"""What is kept of the passes: the moments of softmax(z) and softmax(z / T) (multi-label: sigmoid), never the passes."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from surelabel.core.labels import Task
from surelabel.uncertainty.deterministic import Uncertainty, check_finite, probabilities
from surelabel.uncertainty.moments import RunningMoments


class Sums(NamedTuple):
    """A tally as plain tensors, the form in which it leaves a compiled function: `finite` (N,), the others (N, C)."""

    first: Tensor
    finite: Tensor
    differs: Tensor
    mean: Tensor
    squares: Tensor
    mean_soft: Tensor
    squares_soft: Tensor


class Tally:
    """Moments of the probabilities, and whether logits were finite and ever differed; nothing waits for the device.

    Args:
        task: "single" for softmax, "multi" for a sigmoid a class.
        temperature: T of the softened probabilities.

    Example:
        >>> tally = Tally("multi", 2.0)
        >>> tally.add(torch.tensor([[[0.0, 2.0]], [[0.0, -2.0]]]))
        >>> tally.uncertainty().p
        tensor([[0.5000, 0.5000]])
        >>> tally.differs
        tensor([[False,  True]])
    """

    def __init__(self, task: Task, temperature: float) -> None:
        self.task: Task = task
        self.temperature = temperature
        self.plain, self.soft = RunningMoments(), RunningMoments()
        self.first = self.finite = self.differs = torch.empty(0)

    def add(self, z: Tensor) -> None:
        """Take in the logits (P, N, C) of P more passes.

        What goes over the classes is computed for all passes at once: pass by pass, the compiler would put the sums of
        all passes into one kernel, and with 100 classes take minutes to make it.
        """
        finite = torch.isfinite(z).all(dim=2).all(dim=0)
        plain, soft = probabilities(z, self.task), probabilities(z / self.temperature, self.task)
        if self.plain.count == 0:
            # A copy, because a network may write its next output into the same memory.
            self.first, self.finite = z[0].clone(), finite
            self.differs = torch.zeros_like(self.first, dtype=torch.bool)
        else:
            self.finite = self.finite & finite
        for one, p, p_soft in zip(z.unbind(), plain.unbind(), soft.unbind(), strict=True):
            self.differs = self.differs | (one != self.first)
            self.plain.add(p)
            self.soft.add(p_soft)

    def merge(self, other: "Tally") -> None:
        """Take in another tally of the same rows: more passes."""
        if self.plain.count == 0:
            self.first, self.finite, self.differs = other.first, other.finite, other.differs
        else:
            self.finite = self.finite & other.finite
            self.differs = self.differs | other.differs | (other.first != self.first)
        self.plain.merge(other.plain)
        self.soft.merge(other.soft)

    def sums(self) -> Sums:
        """Return the tally as tensors."""
        moments = (self.plain.mean, self.plain.squares, self.soft.mean, self.soft.squares)
        return Sums(self.first, self.finite, self.differs, *moments)

    @classmethod
    def joined(cls, parts: list[Sums], rows: int, passes: int, task: Task, temperature: float) -> "Tally":
        """Return the tally of `passes` passes over the first `rows` rows of the parts, laid below one another."""
        joined = Sums(*(torch.cat(values)[:rows] for values in zip(*parts, strict=True)))
        tally = cls(task, temperature)
        tally.first, tally.finite, tally.differs = joined.first, joined.finite, joined.differs
        tally.plain = RunningMoments.of(passes, joined.mean, joined.squares)
        tally.soft = RunningMoments.of(passes, joined.mean_soft, joined.squares_soft)
        return tally

    def uncertainty(self) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C); needs at least two passes."""
        return Uncertainty(p=self.plain.mean, u=self.plain.std, p_soft=self.soft.mean, u_soft=self.soft.std)


def tallied(passes: Iterable[Tensor], task: Task, temperature: float) -> Tally:
    """Return the tally of each pass's logits (N, C); refuse logits that are not finite."""
    tally = Tally(task, temperature)
    for z in passes:
        tally.add(z.unsqueeze(0))
    check_finite(tally.finite)
    return tally
