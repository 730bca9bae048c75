"""What the operations share: images are float32 (N, C, H, W) holding whole grey levels 0 to 255."""

import torch
from torch import Tensor

from surelabel.errors import InvalidInputError

LARGEST = 255.0
"""The brightest grey level."""

LEVELS = 256

_HAIR = 2.0**-10


def per_image(values: Tensor) -> Tensor:
    """Return numbers of shape (N,) as (N, 1, 1, 1), to broadcast against images."""
    return values.reshape(-1, 1, 1, 1)


def whole(values: Tensor) -> Tensor:
    """Cut off what is behind the point and clip to grey levels, as Pillow does.

    A product such as 0.34 * 50 is a whole number but for its last bit, and a fused multiply-add moves that bit. The
    hair that is added keeps the level the same on every device, eager or compiled.
    """
    return torch.floor(values + _HAIR).clamp(0.0, LARGEST)


def check_color(images: Tensor, what: str) -> None:
    """Refuse images that are neither grey nor red, green and blue: only for operations that need to know."""
    if images.shape[1] not in (1, 3):
        raise InvalidInputError(
            f"The 'images' argument must have 1 (grey) or 3 (red, green, blue) channels for {what}. Got "
            f"{images.shape[1]} channels instead; leave {what} out (flip, crop and hole take any number of channels)."
        )
