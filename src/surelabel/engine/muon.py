"""Muon for convolutions (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024).

The weights W of a convolution are a matrix with a row for each output channel. The momentum M of their gradient G is
replaced by the orthogonal matrix next to it, so that directions with small gradients are learned as fast as others:

    M <- mu M + G,   O = orthogonal(G + mu M),   W <- sized(W) - rate sized(O)

`sized` gives a matrix the norm of an orthogonal one, sqrt(min(rows, columns)). So a step turns W by about the same
angle, whatever the size of its gradient. This is for layers that a norm follows, which makes the size of W irrelevant.
All other parameters learn by SGD with Nesterov momentum. (As published, W has no fixed size, and weight decay.)
"""

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn

TURN = 0.1
"""The share of the learning rate by which W turns, so that a rate that suits the other parameters suits W too."""

_ROUNDS, _QUINTIC = 5, (3.4445, -4.7750, 2.0315)
"""a, b and c of x <- a x + b x^3 + c x^5, as published: a few rounds bring all singular values near 1."""

_LEAST = 1e-7


class Muon(torch.optim.Optimizer):
    """Turns the weights of convolutions, and updates all other parameters as SGD does.

    Args:
        groups: parameters, with the `weight_decay` of those that are no convolutions.
        lr: the learning rate, 0-d, which may change.
        momentum: mu, for all.
        half: whether orthogonal matrices are found in bfloat16.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: Tensor, momentum: float, half: bool = False) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})
        self.precision = torch.bfloat16 if half else torch.float32

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step; parameters without a gradient are left as they are."""
        matrices = []
        for group in self.param_groups:
            for parameter in (one for one in group["params"] if one.grad is not None):
                gradient, buffer = parameter.grad, self.state[parameter]["momentum_buffer"]
                convolution = is_convolution(parameter)
                if not convolution:
                    gradient = gradient + group["weight_decay"] * parameter
                buffer.mul_(group["momentum"]).add_(gradient)
                update = gradient + group["momentum"] * buffer
                if convolution:
                    matrices.append((parameter, update.flatten(1)))
                else:
                    parameter.sub_(group["lr"] * update)
        rate = TURN * self.defaults["lr"]
        for _, same in itertools.groupby(sorted(matrices, key=_shape), key=_shape):
            parameters, updates = zip(*same, strict=True)
            weights = torch.stack([parameter.flatten(1) for parameter in parameters])
            orthogonals = orthogonal(torch.stack(updates), self.precision)
            turned = sized(weights) - rate * sized(orthogonals)
            for parameter, new in zip(parameters, turned.to(parameters[0].dtype), strict=True):
                parameter.copy_(new.view(parameter.shape))


def is_convolution(parameter: nn.Parameter) -> bool:
    """Whether a parameter is the weights of a convolution, and not the sizes that weight norm trains beside them.

    >>> [is_convolution(nn.Parameter(torch.zeros(shape))) for shape in [(8, 3, 3, 3), (8, 3), (8, 1, 1, 1)]]
    [True, False, False]
    """
    return parameter.ndim > 2 and parameter[0].numel() > 1


def sized(matrices: Tensor) -> Tensor:
    """Return matrices (B, n, m) with the norm of an orthogonal matrix.

    >>> sized(torch.tensor([[[3.0, 0.0, 4.0]]]))
    tensor([[[0.6000, 0.0000, 0.8000]]])
    """
    return matrices * (math.sqrt(min(matrices.shape[1:])) / _norms(matrices))


def orthogonal(matrices: Tensor, precision: torch.dtype = torch.float32) -> Tensor:
    """Return about U V' of the singular value decomposition U S V' of each matrix (B, n, m).

    It is found by products of matrices alone, in this precision: singular values become 0.7 to 1.2, not 1, which is
    close enough to learn.

    >>> orthogonal(torch.tensor([[[0.0, 2.0], [-0.5, 0.0]]])).round().abs()
    tensor([[[0., 1.],
             [1., 0.]]])
    """
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices if wide else matrices.mT
    x = (x / _norms(x)).to(precision)
    a, b, c = _QUINTIC
    for _ in range(_ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).to(matrices.dtype)


def _norms(matrices: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.matrix_norm(matrices, keepdim=True)
    return norms.clamp(min=_LEAST)


def _shape(found: tuple[nn.Parameter, Tensor]) -> tuple[int, ...]:
    return tuple(found[1].shape)
