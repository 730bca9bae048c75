"""Muon for convolutions (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024).

The weights W of a convolution are a matrix with a row for each output channel. The momentum M of their gradient G is
replaced by the orthogonal matrix O next to it, so that directions with small gradients are learned as fast as others:

    M <- mu M + G,   O = orthogonal(G + mu M),   W <- |W| unit(W - rate |W| unit(O))

So a step turns W by about the same angle whatever the size of its gradient, and W keeps its size. This is for
convolutions that a norm follows, which makes their size irrelevant; weight decay has nothing to do there. All other
parameters learn by SGD with Nesterov momentum. (As published, W has no fixed size, and weight decay.)
"""

import itertools
from collections.abc import Collection
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
        groups: parameters, with the `weight_decay` of those that are not turned.
        turned: the weights of convolutions.
        rate: the learning rate, 0-d, which may change.
        momentum: mu, for all.
        half: whether orthogonal matrices are found in bfloat16.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        turned: Collection[nn.Parameter],
        rate: Tensor,
        momentum: float,
        half: bool = False,
    ) -> None:
        super().__init__(groups, {"lr": rate, "weight_decay": 0.0})
        self.turned, self.rate, self.momentum = turned, rate, momentum
        self.precision = torch.bfloat16 if half else torch.float32

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step; parameters without a gradient are left as they are."""
        matrices = []
        for group in self.param_groups:
            for parameter in (one for one in group["params"] if one.grad is not None):
                turned, gradient = parameter in self.turned, parameter.grad
                if not turned:
                    gradient = gradient + group["weight_decay"] * parameter
                buffer = self.state[parameter]["momentum_buffer"].mul_(self.momentum).add_(gradient)
                update = gradient + self.momentum * buffer
                if turned:
                    matrices.append((parameter, update.flatten(1)))
                else:
                    parameter.sub_(self.rate * update)
        for _, same in itertools.groupby(sorted(matrices, key=_shape), key=_shape):
            parameters, updates = zip(*same, strict=True)
            weights = torch.stack([parameter.flatten(1) for parameter in parameters])
            directions = orthogonal(torch.stack(updates), self.precision)
            sizes = _norms(weights)
            moved = weights - TURN * self.rate * sizes * directions / _norms(directions)
            for parameter, new in zip(parameters, moved * (sizes / _norms(moved)), strict=True):
                parameter.copy_(new.view(parameter.shape))


def convolutions(network: nn.Module) -> set[nn.Parameter]:
    """Return the trainable weights of a network's convolutions; of weight norm, the directions.

    Those in groups of channels are left out: they are many small matrices.

    >>> [tuple(one.shape) for one in convolutions(nn.Sequential(nn.Conv2d(3, 8, 5), nn.Linear(4, 2)))]
    [(8, 3, 5, 5)]
    """
    layers = (
        one for one in network.modules() if isinstance(one, nn.Conv1d | nn.Conv2d | nn.Conv3d) and one.groups == 1
    )
    return {
        parameter
        for layer in layers
        for parameter in layer.parameters()
        if parameter.requires_grad and parameter.shape == (layer.out_channels, layer.in_channels, *layer.kernel_size)
    }


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
