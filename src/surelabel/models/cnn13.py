"""CNN-13, the network of the paper's CIFAR tables: nine convolutions in three blocks, then one linear layer.

    3 x (conv 3 x 3, 128) -> max pool 2 -> dropout -> 3 x (conv 3 x 3, 256) -> max pool 2 -> dropout
    -> conv 3 x 3 valid, 512 -> conv 1 x 1, 256 -> conv 1 x 1, 128 -> average pool -> linear

Every convolution is followed by BatchNorm and LeakyReLU(0.1), and has no bias, because BatchNorm has one.
For 32 x 32 color images and 10 classes it has 3.12 M parameters and 731 M multiply-adds.
"""

from torch import nn
from torch.nn.utils import parametrizations

from surelabel.models.image import PictureNetwork, draw_weights

SLOPE = 0.1
"""The slope of LeakyReLU below 0."""


class CNN13(PictureNetwork):
    """CNN-13: logits from images.

    Convolutions start as in He et al. (2015): normal, with standard deviation sqrt(2 / ((1 + 0.1²) fan_in)), which
    preserves the scale of a signal through LeakyReLU(0.1). The linear layer starts normal, with standard deviation
    1 / sqrt(fan_in) and zero bias, and BatchNorm starts as the identity.

    Args:
        sample_shape: (channels, height, width) of an image, at least 12 x 12 pixels.
        num_classes: C, the number of logits.
        width: channels of the first block; the second has twice as many, the third 4, 2 and 1 times as many.
        dropout: the rate after each max pool. Only these two layers are random in MC passes.
        weight_norm: train the norm and the direction of each layer's weights separately, as published.

    Example:
        >>> import torch
        >>> CNN13((3, 32, 32), 10, width=8)(torch.zeros(4, 3, 32, 32)).shape
        torch.Size([4, 10])
    """

    smallest_side = 12
    """A smaller image, halved twice, leaves nothing for the 3 x 3 convolution without padding."""

    def __init__(
        self,
        sample_shape: tuple[int, ...],
        num_classes: int,
        *,
        width: int = 128,
        dropout: float = 0.3,
        weight_norm: bool = False,
    ) -> None:
        super().__init__(sample_shape, num_classes, width, dropout)
        self.layers = nn.Sequential(
            *_convolution(sample_shape[0], width, 3),
            *_convolution(width, width, 3),
            *_convolution(width, width, 3),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            *_convolution(width, 2 * width, 3),
            *_convolution(2 * width, 2 * width, 3),
            *_convolution(2 * width, 2 * width, 3),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            *_convolution(2 * width, 4 * width, 3, padding=0),
            *_convolution(4 * width, 2 * width, 1),
            *_convolution(2 * width, width, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, num_classes),
        )
        draw_weights(self, SLOPE)
        if weight_norm:
            for layer in self.layers:
                if isinstance(layer, (nn.Conv2d, nn.Linear)):
                    parametrizations.weight_norm(layer)


cnn13 = CNN13
"""The model factory, for settings to refer to."""


def _convolution(channels_in: int, channels_out: int, side: int, padding: int | None = None) -> list[nn.Module]:
    """Return convolution, BatchNorm and LeakyReLU; unless `padding` is given, the image keeps its size."""
    return [
        nn.Conv2d(channels_in, channels_out, side, padding=side // 2 if padding is None else padding, bias=False),
        nn.BatchNorm2d(channels_out),
        # Not in place: torch.func.vmap refuses to write a batch of passes into a tensor that all of them share.
        nn.LeakyReLU(SLOPE),
    ]
