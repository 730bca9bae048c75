"""Wide ResNet (Zagoruyko and Komodakis, 2016): residual blocks of two convolutions, normalized and activated first.

    conv 3 x 3, 16 -> three groups of (depth - 4) / 6 blocks, of 16, 32 and 64 x width channels -> BatchNorm, ReLU
    -> average pool -> linear
    block: x -> BatchNorm, ReLU, conv 3 x 3, dropout -> BatchNorm, ReLU, conv 3 x 3 -> + x

The second and third groups begin with stride 2. Where the number of channels changes, x goes through the block's first
BatchNorm and ReLU and a 1 x 1 convolution. For 32 x 32 color images and 10 classes, WRN-28-2 has 1.47 M parameters.
"""

import math
from typing import Literal, TypeAlias, get_args

from torch import Tensor, nn

from surelabel.core.arrays import bad_argument, require_choice, require_count, require_number
from surelabel.models.image import PictureNetwork, block_shapes, draw_weights

Activation: TypeAlias = Literal["relu", "mish"]


class WideResNet(PictureNetwork):
    """A Wide ResNet: logits from images.

    Convolutions start normal, with standard deviation sqrt(2 / fan_in) (He et al., 2015), the linear layer normal with
    1 / sqrt(fan_in) and zero bias, BatchNorm as the identity plus `norm_bias`.

    The network that the paper's code trains has `activation="mish"`, `norm_momentum=0.001` and `norm_bias=0.1`. The
    defaults are those of the network that the paper cites: with a momentum of 0.001, BatchNorm's statistics need
    thousands of steps, more than a short round has, and its labels come from those statistics.

    Args:
        sample_shape: (channels, height, width) of an image, at least 5 x 5 pixels.
        num_classes: C, the number of logits.
        depth: 6 n + 4 layers, for n blocks per group.
        width: channels of the blocks, in multiples of 16, 32 and 64.
        dropout: the rate between the convolutions of each block: after the first, before the BatchNorm of the second.
            Only these layers are random in MC passes.
        activation: "relu" or "mish".
        norm_momentum: the weight of a batch in BatchNorm's running statistics.
        norm_bias: the initial value of BatchNorm's biases. Without weight decay on them, 0.1 is the published
            BatchNorm + 0.1.

    Example:
        >>> import torch
        >>> WideResNet((3, 32, 32), 10, depth=10, width=1)(torch.zeros(4, 3, 32, 32)).shape
        torch.Size([4, 10])
    """

    smallest_side = 5
    """A smaller image, halved twice, is a single value, around which 3 x 3 convolutions see only padding."""

    def __init__(
        self,
        sample_shape: tuple[int, ...],
        num_classes: int,
        *,
        depth: int = 28,
        width: int = 2,
        dropout: float = 0.3,
        activation: Activation = "relu",
        norm_momentum: float = 0.1,
        norm_bias: float = 0.0,
    ) -> None:
        super().__init__(sample_shape, num_classes, width, dropout)
        remedy = "choose 10, 16, 22 or 28, for example"
        if require_count("depth", depth, 10, remedy=remedy) % 6 != 4:
            raise bad_argument("depth", "be 6 n + 4, for n blocks in each of three groups", repr(depth), remedy)
        require_choice("activation", activation, get_args(Activation))
        make_activation = nn.ReLU if activation == "relu" else nn.Mish
        momentum = require_number("norm_momentum", norm_momentum, 0, 1, ends="(]")
        require_number("norm_bias", norm_bias, -math.inf, math.inf, ends="()")
        shapes = block_shapes(16, 16 * width, (depth - 4) // 6)
        self.layers = nn.Sequential(
            nn.Conv2d(sample_shape[0], 16, 3, padding=1, bias=False),
            *(_Block(*shape, dropout, make_activation(), momentum) for shape in shapes),
            nn.BatchNorm2d(64 * width, momentum=momentum),
            make_activation(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64 * width, num_classes),
        )
        draw_weights(self)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.constant_(layer.bias, norm_bias)


class _Block(nn.Module):
    """Return x + conv2(active(conv1(active(x)))) for x (N, C, H, W), with dropout after conv1."""

    def __init__(
        self, channels: int, wider: int, stride: int, dropout: float, activation: nn.Module, momentum: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels, momentum=momentum)
        self.conv1 = nn.Conv2d(channels, wider, 3, stride=stride, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.norm2 = nn.BatchNorm2d(wider, momentum=momentum)
        self.conv2 = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.activation = activation
        changes = channels != wider
        self.shortcut = nn.Conv2d(channels, wider, 1, stride=stride, bias=False) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        active = self.activation(self.norm1(x))
        around = x if self.shortcut is None else self.shortcut(active)
        inner = self.dropout(self.conv1(active))
        result: Tensor = around + self.conv2(self.activation(self.norm2(inner)))
        return result


wide_resnet = WideResNet
"""The model factory, for settings to refer to: WRN-28-2 by default."""
