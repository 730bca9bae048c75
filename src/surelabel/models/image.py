"""A small convolutional network for small pictures: two stages of convolution, pooling and dropout, then a linear layer."""

from torch import Tensor, nn

from surelabel.errors import InvalidInputError


class SmallImageNetwork(nn.Module):
    """Logits from small pictures: `[convolution, ReLU, convolution, ReLU, pool, dropout] x 2 -> linear, ReLU, dropout -> linear`.

    Args:
        sample_shape: (channels, height, width) of a picture, at least 4 x 4.
        num_classes: C, the number of logits.
        width: channels of the first stage; the second has twice as many.
        dropout: the rate of every dropout layer; MC-dropout needs one above 0.

    Example:
        >>> network = SmallImageNetwork((1, 8, 8), 10)
        >>> network(torch.zeros(4, 1, 8, 8)).shape
        torch.Size([4, 10])
    """

    def __init__(
        self, sample_shape: tuple[int, ...], num_classes: int, *, width: int = 16, dropout: float = 0.3
    ) -> None:
        super().__init__()
        if len(sample_shape) != 3 or min(sample_shape[1:]) < 4:
            raise InvalidInputError(
                f"The 'sample_shape' argument must be (channels, height, width), at least 4 x 4 pixels. "
                f"Got {tuple(sample_shape)} instead; reshape the samples, or use a network for tables."
            )
        channels, height, _ = sample_shape
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(2 * width * (height // 4) * (sample_shape[2] // 4), 4 * width),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
