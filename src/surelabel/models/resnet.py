"""ResNet-50 (He et al., 2016), the network of the paper's VOC2007 table: residual blocks of three convolutions.

    conv 7 x 7, 64, stride 2 -> max pool 3 x 3, stride 2 -> four groups of 3, 4, 6 and 3 blocks, of 256, 512, 1024 and
    2048 channels -> average pool -> dropout -> linear
    block: x -> conv 1 x 1 -> conv 3 x 3 -> conv 1 x 1 -> + x -> ReLU

BatchNorm follows every convolution, and ReLU follows every BatchNorm except those right before + x. The second, third
and fourth groups begin with stride 2, in the 3 x 3 convolution ("v1.5"; originally in the 1 x 1 convolution before it).
Where the size or the number of channels changes, x goes through a 1 x 1 convolution and BatchNorm. Parameters are named
as in torchvision, and the same weights give the same logits. For color images and 1000 classes it has 25,557,032
parameters.
"""

import os

from torch import Tensor, nn

from surelabel.core.arrays import require_count
from surelabel.models.image import PictureNetwork
from surelabel.models.pretrained import load_pretrained

EXPANSION = 4
"""A block has this many times the channels of its 3 x 3 convolution."""


class ResNet(PictureNetwork):
    """A residual network of bottleneck blocks: logits from images.

    Weights start as in torchvision: convolutions normal with standard deviation sqrt(2 / fan_out) (He et al., 2015),
    the linear layer with torch's default, uniform within 1 / sqrt(fan_in) of 0, BatchNorm as the identity.

    Args:
        sample_shape: (channels, height, width) of an image, at least 32 x 32 pixels.
        num_classes: C, the number of logits.
        blocks: in each of the four groups; ResNet-101 has 3, 4, 23 and 3.
        width: channels of the first convolution, and of the 3 x 3 convolutions of the first group.
        dropout: the rate after the average pool. Only this layer is random in MC passes, so they share everything
            before it.
        pretrained: a weights file to start from, such as torchvision's, see `load_pretrained`; None: random weights.

    Example:
        >>> import torch
        >>> ResNet((3, 64, 64), 20, blocks=(1, 1, 1, 1), width=8)(torch.zeros(4, 3, 64, 64)).shape
        torch.Size([4, 20])
    """

    smallest_side = 32
    """The network halves an image five times: less than one value would be left of a smaller one."""

    def __init__(
        self,
        sample_shape: tuple[int, ...],
        num_classes: int,
        *,
        blocks: tuple[int, int, int, int] = (3, 4, 6, 3),
        width: int = 64,
        dropout: float = 0.3,
        pretrained: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(sample_shape, num_classes, width, dropout)
        first, second, third, fourth = blocks
        self.conv1 = nn.Conv2d(sample_shape[0], width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _group(width, width, first, stride=1)
        self.layer2 = _group(EXPANSION * width, 2 * width, second, stride=2)
        self.layer3 = _group(EXPANSION * 2 * width, 4 * width, third, stride=2)
        self.layer4 = _group(EXPANSION * 4 * width, 8 * width, fourth, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(EXPANSION * 8 * width, num_classes)
        draw_residual_weights(self)
        if pretrained is not None:
            load_pretrained(self, pretrained)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for images (N, channels, height, width)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.dropout(self.avgpool(x)).flatten(1))
        return logits


class _Bottleneck(nn.Module):
    """Return ReLU(x + conv3(ReLU(conv2(ReLU(conv1(x)))))) for x (N, C, H, W), BatchNorm after each convolution."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        wider = EXPANSION * inner
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, wider, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wider)
        # Not in place: x is needed again.
        self.relu = nn.ReLU()
        changes = stride != 1 or channels != wider
        around = [nn.Conv2d(channels, wider, 1, stride=stride, bias=False), nn.BatchNorm2d(wider)] if changes else []
        self.downsample = nn.Sequential(*around)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(x)))
        inner = self.relu(self.bn2(self.conv2(inner)))
        result: Tensor = self.relu(self.bn3(self.conv3(inner)) + self.downsample(x))
        return result


resnet50 = ResNet
"""The model factory, for settings to refer to."""


def draw_residual_weights(network: nn.Module) -> None:
    """Draw a new network's weights: convolutions normal with sqrt(2 / fan_out), linear layers by torch's default.

    fan_out is the number of a convolution's output channels times the number of values in its kernel.

    Example:
        >>> layer = nn.Conv2d(50, 200, 1, bias=False)
        >>> draw_residual_weights(layer)
        >>> round(layer.weight.std().item(), 1)
        0.1
    """
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Conv3d)):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            layer.reset_parameters()


def _group(channels: int, inner: int, count: int, stride: int) -> nn.Sequential:
    require_count("blocks", count, 1)
    rest = (_Bottleneck(EXPANSION * inner, inner, 1) for _ in range(count - 1))
    return nn.Sequential(_Bottleneck(channels, inner, stride), *rest)
