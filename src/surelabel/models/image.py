"""What image networks share, and a small network for small images, with dropout before each linear layer."""

from collections.abc import Iterator

from torch import Tensor, nn

from surelabel.core.arrays import bad_argument, require_count, require_number
from surelabel.models.dropout import Dropout


class PictureNetwork(nn.Module):
    """The base of image networks: layers that run one after another, and checks of their sizes."""

    smallest_side: int
    """The smallest side of an image, in pixels."""
    layers: nn.Sequential

    def __init__(self, sample_shape: tuple[int, ...], num_classes: int, width: int, dropout: float) -> None:
        super().__init__()
        if len(sample_shape) != 3 or min(sample_shape[1:]) < self.smallest_side:
            must = f"be (channels, height, width) with at least {self.smallest_side} pixels per side"
            raise bad_argument("sample_shape", must, tuple(sample_shape), "reshape or enlarge the samples")
        check_sizes(num_classes, width, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for images (N, channels, height, width)."""
        logits: Tensor = self.layers(x)
        return logits


class SmallImageNetwork(PictureNetwork):
    """Logits from images: `convolution -> convolution of stride 2 -> dropout, linear -> dropout, linear`, with ReLUs.

    Args:
        sample_shape: (channels, height, width) of an image, at least 5 x 5 pixels.
        num_classes: C, the number of logits.
        width: channels of the first convolution; the second has twice as many, the hidden layer four times.
        dropout: the rate before each linear layer.

    Example:
        >>> import torch
        >>> SmallImageNetwork((1, 8, 8), 10)(torch.zeros(4, 1, 8, 8)).shape
        torch.Size([4, 10])
    """

    smallest_side = 5
    """Two 3 x 3 convolutions without padding, the second with stride 2, leave nothing of a smaller image."""

    def __init__(
        self, sample_shape: tuple[int, ...], num_classes: int, *, width: int = 16, dropout: float = 0.3
    ) -> None:
        super().__init__(sample_shape, num_classes, width, dropout)
        channels, *sides = sample_shape
        rows, columns = ((side - 3) // 2 for side in sides)
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            Dropout(dropout),
            nn.Linear(2 * width * rows * columns, 4 * width),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(4 * width, num_classes),
        )


small_image_network = SmallImageNetwork
"""The model factory, for settings to refer to."""


def block_shapes(channels: int, width: int, blocks: int) -> Iterator[tuple[int, int, int]]:
    """Yield the input channels, output channels and stride of each block, for three groups that double in width.

    Example:
        >>> list(block_shapes(16, 32, 1))
        [(16, 32, 1), (32, 64, 2), (64, 128, 2)]
    """
    for group in range(3):
        for block in range(blocks):
            yield channels, width * 2**group, 2 if group > 0 and block == 0 else 1
            channels = width * 2**group


def check_sizes(num_classes: int, width: int, dropout: float) -> None:
    """Refuse a network without classes or channels, and a dropout rate that leaves nothing."""
    require_count("num_classes", num_classes, 1, remedy="count the classes again")
    require_count("width", width, 1)
    require_number("dropout", dropout, 0, 1, ends="[)", remedy="0.3 is a common rate")


def draw_weights(network: nn.Module, slope: float = 0.0) -> None:
    """Draw a new network's weights: convolutions as in He et al. (2015), linear layers to keep a signal's scale.

    Convolutions are normal with standard deviation sqrt(2 / ((1 + slope²) fan_in)), linear layers normal with
    1 / sqrt(fan_in). All biases are 0.

    Args:
        network: its convolutions and linear layers are drawn, in order.
        slope: of the activations below 0.

    Example:
        >>> layer = nn.Conv2d(100, 100, 1)
        >>> draw_weights(layer)
        >>> round(layer.weight.std().item(), 2)
        0.14
    """
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            linear = isinstance(layer, nn.Linear)
            nn.init.kaiming_normal_(layer.weight, a=slope, nonlinearity="linear" if linear else "leaky_relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
