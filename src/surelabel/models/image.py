"""A small convolutional network for small pictures, with dropout before each linear layer."""

from torch import Tensor, nn

from surelabel.errors import InvalidInputError

SMALLEST_SIDE = 5
"""Two convolutions of 3 x 3 without padding, the second with a stride of 2, leave nothing of a smaller picture."""


class SmallImageNetwork(nn.Module):
    """Logits from pictures: `convolution -> convolution of stride 2 -> dropout, linear -> dropout, linear`, with ReLUs.

    Args:
        sample_shape: (channels, height, width) of a picture, at least 5 x 5 pixels.
        num_classes: C, the number of logits.
        width: channels of the first convolution; the second has twice as many, the hidden layer four times.
        dropout: the rate before each linear layer.

    Example:
        >>> import torch
        >>> SmallImageNetwork((1, 8, 8), 10)(torch.zeros(4, 1, 8, 8)).shape
        torch.Size([4, 10])
    """

    def __init__(
        self, sample_shape: tuple[int, ...], num_classes: int, *, width: int = 16, dropout: float = 0.3
    ) -> None:
        super().__init__()
        if len(sample_shape) != 3 or min(sample_shape[1:]) < SMALLEST_SIDE:
            raise InvalidInputError(
                f"The 'sample_shape' argument must be (channels, height, width) with at least {SMALLEST_SIDE} pixels a "
                f"side. Got {tuple(sample_shape)} instead; reshape the samples, or use a network for tables."
            )
        channels, *sides = sample_shape
        rows, columns = ((side - 3) // 2 for side in sides)
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * width * rows * columns, 4 * width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for pictures (N, channels, height, width)."""
        logits: Tensor = self.layers(x)
        return logits


def small_image_network(sample_shape: tuple[int, ...], num_classes: int) -> SmallImageNetwork:
    """Return a `SmallImageNetwork` for samples of this shape: a model factory by reference."""
    return SmallImageNetwork(sample_shape, num_classes)
