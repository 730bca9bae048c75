"""Mixup: x = lambda x_i + (1 - lambda) x_j and the same for the targets, with lambda from Beta(alpha, alpha).

Zhang et al., "mixup: Beyond empirical risk minimization", 2018. Here each sample has its own lambda, a hash like every
other draw, and its partner is the next row of the batch.
"""

import math

import torch
from torch import Tensor

from surelabel.augment.draws import Draws


def mixup_coefficients(draws: Draws, alpha: float) -> Tensor:
    """Return each sample's lambda, drawn from Beta(alpha, alpha), float32 of shape (N,).

    Bailey's polar method gives Student's t with 2 alpha degrees of freedom from two uniform numbers, and
    1/2 + t / (2 sqrt(2 alpha + t^2)) is then Beta(alpha, alpha): with w = U^(1/alpha) and c = cos(2 pi V),

        lambda = 1/2 + sign(c)/2 * sqrt((1 - w) c^2 / (w + (1 - w) c^2)).

    Nothing is rejected, so there is no loop whose length depends on the numbers drawn.

    Args:
        draws: for the samples.
        alpha: above 0; 1 is uniform, small values give coefficients near 0 and 1.

    Example:
        >>> mixup_coefficients(Draws(torch.tensor(0), torch.arange(3), torch.zeros(3, dtype=torch.int64)), 0.5)
        tensor([0.1343, 0.0437, 0.5303])
    """
    # Half a step away from 0 and 1, where the logarithm of U or the square root's argument would be undefined.
    half_step = 2.0**-25
    w = torch.exp(torch.log(draws.uniform("mixup radius") + half_step) / alpha)
    c = torch.cos(2 * math.pi * (draws.uniform("mixup angle") + half_step))
    spread = (1 - w) * c * c
    return 0.5 + 0.5 * torch.sign(c) * torch.sqrt(spread / (w + spread))


def mix(values: Tensor, coefficients: Tensor) -> Tensor:
    """Return `lambda values_i + (1 - lambda) values_(i+1)`; the last row is mixed with the first.

    Args:
        values: images, targets or weights, floating point of shape (N, ...).
        coefficients: one lambda per row, shape (N,).

    Example:
        >>> mix(torch.tensor([[0.0], [8.0]]), torch.tensor([0.75, 0.5]))
        tensor([[2.],
                [4.]])
    """
    assert values.is_floating_point()
    weight = coefficients.to(values.dtype).reshape(-1, *(1,) * (values.ndim - 1))
    return weight * values + (1 - weight) * values.roll(-1, 0)


def mixup(images: Tensor, targets: Tensor, draws: Draws, alpha: float) -> tuple[Tensor, Tensor]:
    """Return images and targets, each row mixed with the next one with its own lambda from Beta(alpha, alpha).

    Args:
        images: floating point, shape (N, C, H, W).
        targets: floating point, shape (N, ...), one row per image.
        draws: for the samples.
        alpha: of the Beta distribution; 0 changes nothing.

    Example:
        >>> draws = Draws(torch.tensor(0), torch.arange(2), torch.zeros(2, dtype=torch.int64))
        >>> mixup(torch.zeros(2, 1, 1, 1), torch.eye(2), draws, 0.5)[1]
        tensor([[0.1343, 0.8657],
                [0.9563, 0.0437]])
    """
    if alpha == 0:
        return images, targets
    coefficients = mixup_coefficients(draws, alpha)
    return mix(images, coefficients), mix(targets, coefficients)
