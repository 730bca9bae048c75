"""A small network for pictures and spectrograms that a CPU trains in seconds.

    conv 3 x 3 -> conv 3 x 3, stride 2 -> conv 3 x 3, stride 2 -> average pool to a few rows and columns
    -> dropout, linear -> dropout, linear

BatchNorm and ReLU follow every convolution; each has twice the channels of the one before it. For 32 x 32 pictures in
color and 10 classes it has 50,000 parameters and 3 M multiply-adds.
"""

from torch import nn

from surelabel.core.arrays import require_count
from surelabel.models.dropout import Dropout
from surelabel.models.image import PictureNetwork, draw_weights


class PooledNetwork(PictureNetwork):
    """Logits from pictures of any size; the cost grows with the number of pixels.

    Args:
        sample_shape: (channels, height, width) of a picture, at least 5 x 5 pixels.
        num_classes: C, the number of logits.
        width: channels of the first convolution.
        rows: how many are left of a picture's height before the linear layers; with 1, vertical positions are lost.
        columns: how many are left of its width.
        stride: of the first convolution; 2 takes a quarter of the time, but loses small details.
        dropout: the rate before each linear layer. Only these layers are random in MC passes.

    Example:
        >>> import torch
        >>> PooledNetwork((1, 40, 64), 10, rows=4, columns=1)(torch.zeros(2, 1, 40, 64)).shape
        torch.Size([2, 10])
    """

    smallest_side = 5
    """Halved twice, a smaller picture leaves a single value."""

    def __init__(
        self,
        sample_shape: tuple[int, ...],
        num_classes: int,
        *,
        width: int = 16,
        rows: int = 2,
        columns: int = 2,
        stride: int = 1,
        dropout: float = 0.3,
    ) -> None:
        super().__init__(sample_shape, num_classes, width, dropout)
        require_count("rows", rows, 1)
        require_count("columns", columns, 1)
        require_count("stride", stride, 1)
        hidden = 4 * width
        self.layers = nn.Sequential(
            *_convolution(sample_shape[0], width, stride),
            *_convolution(width, 2 * width, 2),
            *_convolution(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d((rows, columns)),
            nn.Flatten(),
            Dropout(dropout),
            nn.Linear(4 * width * rows * columns, hidden),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(hidden, num_classes),
        )
        draw_weights(self)


pooled_network = PooledNetwork
"""A model factory by reference."""


def _convolution(channels: int, wider: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, wider, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
