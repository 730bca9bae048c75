"""Shake-Shake (Gastaldi, 2017): residual blocks of two randomly mixed branches; 26 2x96d has 26 layers, 96 channels.

    conv 3 x 3, 16, BatchNorm -> three groups of four blocks, of 1, 2 and 4 x width channels -> ReLU -> average pool
    -> linear
    block: x -> alpha · branch 1 + (1 - alpha) · branch 2 + x
    branch: ReLU, conv 3 x 3, BatchNorm -> ReLU, dropout, conv 3 x 3, BatchNorm

alpha is drawn for each image, and again for the backward pass ("Shake-Shake-Image"); in evaluation mode it is 0.5.
The second and third groups begin with stride 2. For 32 x 32 color images and 10 classes it has 26.2 M parameters.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from surelabel.core.arrays import bad_argument
from surelabel.models.image import PictureNetwork, block_shapes, draw_weights

BLOCKS = 4
"""Per group: three groups of two-convolution blocks, the first convolution and the linear layer make 26 layers."""


class ShakeShake(PictureNetwork):
    """Shake-Shake with 26 layers: logits from images.

    Convolutions start normal, with standard deviation sqrt(2 / fan_in) (He et al., 2015), the linear layer normal with
    1 / sqrt(fan_in) and zero bias, BatchNorm as the identity.

    Args:
        sample_shape: (channels, height, width) of an image, at least 5 x 5 pixels.
        num_classes: C, the number of logits.
        width: channels of the first group, an even number; the second has twice as many, the third four times.
        dropout: the rate before the second convolution of each branch. Only these layers are random in MC passes: the
            branches are mixed as in evaluation mode.

    Example:
        >>> ShakeShake((3, 32, 32), 10, width=4)(torch.zeros(4, 3, 32, 32)).shape
        torch.Size([4, 10])
    """

    smallest_side = 5
    """A smaller image, halved twice, is a single value, around which 3 x 3 convolutions see only padding."""

    def __init__(
        self, sample_shape: tuple[int, ...], num_classes: int, *, width: int = 96, dropout: float = 0.3
    ) -> None:
        super().__init__(sample_shape, num_classes, width, dropout)
        if width % 2 != 0:
            # The two convolutions of a shortcut make half of its channels each.
            raise bad_argument("width", "be even", repr(width), "the published width is 96")
        self.layers = nn.Sequential(
            nn.Conv2d(sample_shape[0], 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            *(_Block(*shape, dropout) for shape in block_shapes(16, width, BLOCKS)),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, num_classes),
        )
        draw_weights(self)


def shake(first: Tensor, second: Tensor, training: bool) -> Tensor:
    """Return alpha · first + (1 - alpha) · second; the gradients are those of beta · first + (1 - beta) · second.

    In training, alpha and beta are drawn for each row, uniform in [0, 1); otherwise both are 0.5.

    Args:
        first: shape (N, C, H, W).
        second: of the same shape.
        training: whether to draw.

    Example:
        >>> shake(torch.ones(1, 1, 1, 2), torch.zeros(1, 1, 1, 2), training=False)
        tensor([[[[0.5000, 0.5000]]]])
    """
    if not training:
        return (first + second) / 2
    alpha, beta = torch.rand(2, len(first), 1, 1, 1, device=first.device).unbind()
    difference = first - second
    # The gradient sees only beta; the detached term turns it into alpha in the forward pass.
    mixed = second + beta * difference + (alpha - beta) * difference.detach()
    return mixed.to(first.dtype)


class _Block(nn.Module):
    """Return shortcut(x) + shake(branch 1(x), branch 2(x)) for x (N, C, H, W)."""

    def __init__(self, channels: int, wider: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = (_branch(channels, wider, stride, dropout) for _ in range(2))
        self.shortcut = nn.Identity() if channels == wider else _Shortcut(channels, wider, stride)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.shortcut(x) + shake(self.first(x), self.second(x), self.training)
        return result


class _Shortcut(nn.Module):
    """Change the channels of x: half come from every stride-th pixel, half from the one up and to the left of it."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.here = nn.Conv2d(channels, wider // 2, 1, bias=False)
        self.beside = nn.Conv2d(channels, wider // 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(wider)

    def forward(self, x: Tensor) -> Tensor:
        active = functional.relu(x)
        shifted = functional.pad(active, (1, -1, 1, -1))
        step = self.stride
        halves = self.here(active[..., ::step, ::step]), self.beside(shifted[..., ::step, ::step])
        result: Tensor = self.norm(torch.cat(halves, dim=1))
        return result


shake_shake = ShakeShake
"""The model factory, for settings to refer to."""


def _branch(channels: int, wider: int, stride: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        # Not in place: x also goes through the other branch and the shortcut.
        nn.ReLU(),
        nn.Conv2d(channels, wider, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(wider),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Conv2d(wider, wider, 3, padding=1, bias=False),
        nn.BatchNorm2d(wider),
    )
