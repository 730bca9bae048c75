"""3-D ResNet-18, the network of the paper's UCF-101 table: residual blocks of two convolutions over time and space.

    stem -> four groups of two blocks, of 64, 128, 256 and 512 channels -> average pool -> dropout -> linear
    block: x -> conv 3 x 3 x 3 -> conv 3 x 3 x 3 -> + x -> ReLU

BatchNorm follows every convolution, and ReLU follows every BatchNorm except those right before + x. The second, third
and fourth groups begin with stride 2 in time and space. There are two stems, each with BatchNorm and ReLU after its
convolution:

- "torchvision": conv 3 x 7 x 7, stride 1 x 2 x 2. Parameters are named as in torchvision's r3d_18 (Tran et al., 2018),
  and the same weights give the same logits. For color clips and 400 classes it has 33,371,472 parameters.
- "paper": conv 7 x 7 x 7, stride 1 x 2 x 2, then max pool 3 x 3 x 3, stride 2, from the work that the paper cites (Hara
  et al., 2018): the blocks see an eighth of the values. The 18-layer network of that work also has shortcuts without
  weights where the shape changes (`shortcut="padded"`), which leaves 33,235,280 parameters for 400 classes.
"""

import os
from typing import Literal, TypeAlias, get_args

from torch import Tensor, nn
from torch.nn import functional

from surelabel.core.arrays import bad_argument, require_choice
from surelabel.models.image import check_sizes
from surelabel.models.pretrained import load_pretrained
from surelabel.models.resnet import draw_residual_weights

Stem: TypeAlias = Literal["torchvision", "paper"]
Shortcut: TypeAlias = Literal["projection", "padded"]

SMALLEST: dict[Stem, tuple[int, int]] = {"torchvision": (8, 16), "paper": (16, 32)}
"""The fewest frames, and pixels per side: the network with this stem would leave nothing of a smaller clip."""


class ResNet3d(nn.Module):
    """A 3-D ResNet with 18 layers: logits from clips.

    Weights start as in torchvision: convolutions normal with standard deviation sqrt(2 / fan_out) (He et al., 2015),
    the linear layer normal with 0.01 and zero bias, BatchNorm as the identity.

    Args:
        sample_shape: (channels, frames, height, width) of a clip, at least 8 frames of 16 x 16 pixels, or 16
            frames of 32 x 32 pixels with the paper's stem.
        num_classes: C, the number of logits.
        stem: "torchvision" or "paper".
        shortcut: what happens to x where its shape changes. "projection": a 1 x 1 x 1 convolution and BatchNorm, as in
            torchvision; "padded": every other value, with channels of 0 appended (type A of He et al.).
        width: channels of the stem and of the first group; the others have twice, four and eight times as many.
        dropout: the rate after the average pool. Only this layer is random in MC passes, so they share everything
            before it.
        pretrained: a weights file to start from, such as torchvision's, see `load_pretrained`; None: random weights.

    Example:
        >>> import torch
        >>> ResNet3d((3, 16, 32, 32), 101, width=4, stem="paper")(torch.zeros(2, 3, 16, 32, 32)).shape
        torch.Size([2, 101])
    """

    def __init__(
        self,
        sample_shape: tuple[int, ...],
        num_classes: int,
        *,
        stem: Stem = "torchvision",
        shortcut: Shortcut = "projection",
        width: int = 64,
        dropout: float = 0.3,
        pretrained: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        require_choice("stem", stem, get_args(Stem))
        require_choice("shortcut", shortcut, get_args(Shortcut))
        _check_clips(sample_shape, stem)
        check_sizes(num_classes, width, dropout)
        self.stem = _stem(stem, sample_shape[0], width)
        self.layer1 = _group(width, width, 1, shortcut)
        self.layer2 = _group(width, 2 * width, 2, shortcut)
        self.layer3 = _group(2 * width, 4 * width, 2, shortcut)
        self.layer4 = _group(4 * width, 8 * width, 2, shortcut)
        self.avgpool = nn.AdaptiveAvgPool3d(1)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(8 * width, num_classes)
        draw_residual_weights(self)
        nn.init.normal_(self.fc.weight, std=0.01)
        nn.init.zeros_(self.fc.bias)
        if pretrained is not None:
            load_pretrained(self, pretrained)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for clips (N, channels, frames, height, width)."""
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        # As maps (N, channels, 1, 1), which every kind of dropout takes.
        logits: Tensor = self.fc(self.dropout(self.avgpool(x).flatten(3)).flatten(1))
        return logits


class _Block(nn.Module):
    """Return ReLU(x + conv2(ReLU(conv1(x)))) for x (N, C, T, H, W), with BatchNorm after each convolution."""

    def __init__(self, channels: int, wider: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(*_convolution(channels, wider, stride), nn.ReLU())
        self.conv2 = nn.Sequential(*_convolution(wider, wider, 1))
        self.relu = nn.ReLU()
        self.downsample = nn.Sequential(*_around(channels, wider, stride, shortcut))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.relu(self.conv2(self.conv1(x)) + self.downsample(x))
        return result


class _Padded(nn.Module):
    """Return every stride-th value of x (N, C, T, H, W), with channels of 0 appended."""

    def __init__(self, more: int, stride: int) -> None:
        super().__init__()
        self.more, self.stride = more, stride

    def forward(self, x: Tensor) -> Tensor:
        step = self.stride
        return functional.pad(x[..., ::step, ::step, ::step], (0, 0, 0, 0, 0, 0, 0, self.more))


resnet3d18 = ResNet3d
"""The model factory, for settings to refer to."""


def _stem(kind: Stem, channels: int, width: int) -> nn.Sequential:
    time = 3 if kind == "torchvision" else 7
    layers: list[nn.Module] = [
        nn.Conv3d(channels, width, (time, 7, 7), stride=(1, 2, 2), padding=(time // 2, 3, 3), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(),
    ]
    if kind == "paper":
        layers.append(nn.MaxPool3d(3, stride=2, padding=1))
    return nn.Sequential(*layers)


def _group(channels: int, wider: int, stride: int, shortcut: Shortcut) -> nn.Sequential:
    return nn.Sequential(_Block(channels, wider, stride, shortcut), _Block(wider, wider, 1, shortcut))


def _convolution(channels: int, wider: int, stride: int) -> list[nn.Module]:
    return [nn.Conv3d(channels, wider, 3, stride=stride, padding=1, bias=False), nn.BatchNorm3d(wider)]


def _around(channels: int, wider: int, stride: int, shortcut: Shortcut) -> list[nn.Module]:
    if stride == 1 and channels == wider:
        return []
    if shortcut == "padded":
        return [_Padded(wider - channels, stride)]
    return [nn.Conv3d(channels, wider, 1, stride=stride, bias=False), nn.BatchNorm3d(wider)]


def _check_clips(sample_shape: tuple[int, ...], stem: Stem) -> None:
    frames, side = SMALLEST[stem]
    if len(sample_shape) != 4 or sample_shape[1] < frames or min(sample_shape[2:]) < side:
        must = f"be (channels, frames, height, width), at least {frames} frames of {side} x {side} for stem '{stem}'"
        remedy = "use longer or larger clips, or resnet50 for images"
        raise bad_argument("sample_shape", must, tuple(sample_shape), remedy)
