"""Point operations: a pixel's new level depends on its old one, and on nothing that is beside it.

Each takes images (N, C, H, W) of grey levels and one number for each image, shape (N,), and agrees with Pillow's
`ImageOps` within one grey level. They are plain formulas, so they take a table of the grey levels as well.
"""

import torch
from torch import Tensor

from surelabel.augment._batch import LARGEST, per_image, whole
from surelabel.augment.tables import equalizing_table, lookup

SOLARIZE_ADD_BELOW = 128.0
"""Solarize-add lightens the darker half of the levels."""


def invert(images: Tensor) -> Tensor:
    """Return 255 - level.

    Example:
        >>> invert(torch.tensor([[[[0.0, 100.0]]]]))
        tensor([[[[255., 155.]]]])
    """
    return LARGEST - images


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels from the threshold on: `level if level < threshold else 255 - level`.

    Args:
        images: grey levels, shape (N, C, H, W).
        threshold: of each image, shape (N,); 256 changes nothing, 0 inverts all.

    Example:
        >>> solarize(torch.tensor([[[[10.0, 200.0]]]]), torch.tensor([128.0]))
        tensor([[[[10., 55.]]]])
    """
    return torch.where(images < per_image(threshold), images, LARGEST - images)


def solarize_add(images: Tensor, addition: Tensor, below: float = SOLARIZE_ADD_BELOW) -> Tensor:
    """Lighten dark pixels: `min(level + addition, 255) if level < below else level`.

    Args:
        images: grey levels, shape (N, C, H, W).
        addition: of each image, shape (N,), cut to a whole number; 0 changes nothing.
        below: the levels below this one are lightened, the same in all images.

    Example:
        >>> solarize_add(torch.tensor([[[[10.0, 200.0]]]]), torch.tensor([100.0]))
        tensor([[[[110., 200.]]]])
    """
    return torch.where(images < below, whole(images + per_image(addition)), images)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the topmost bits of each level: `level & ~(2 ** (8 - bits) - 1)`.

    Args:
        images: grey levels, shape (N, C, H, W).
        bits: of each image, whole numbers of shape (N,); 8 changes nothing, 0 leaves black.

    Example:
        >>> posterize(torch.tensor([[[[100.0, 200.0]]]]), torch.tensor([1]))
        tensor([[[[  0., 128.]]]])
    """
    dropped = 8 - per_image(bits).to(torch.int32)
    mask = torch.full_like(dropped, -1) << dropped
    return (images.to(torch.int32) & mask).to(torch.float32)


def channel_limits(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest level of each channel, shape (N, C, 1, 1) each.

    Example:
        >>> channel_limits(torch.tensor([[[[10.0, 20.0, 60.0]]]]))
        (tensor([[[[10.]]]]), tensor([[[[60.]]]]))
    """
    return images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)


def stretch(images: Tensor, lowest: Tensor, highest: Tensor) -> Tensor:
    """Spread the levels from `lowest` to `highest` over 0 to 255: `255 (level - lowest) // (highest - lowest)`.

    Args:
        images: grey levels, shape (N, C, H, W).
        lowest: becomes 0, shape (N, C, 1, 1).
        highest: becomes 255, shape (N, C, 1, 1); where it is not above `lowest`, nothing is changed.

    Example:
        >>> one = torch.ones(1, 1, 1, 1)
        >>> stretch(torch.tensor([[[[10.0, 20.0, 60.0]]]]), 10 * one, 60 * one)
        tensor([[[[  0.,  51., 255.]]]])
    """
    span = highest - lowest
    # Half a unit more does not change a quotient of whole numbers, and spares it the rounding of the division.
    spread = torch.floor((LARGEST * (images - lowest) + 0.5) / span.clamp(min=1)).clamp(0.0, LARGEST)
    return torch.where(span > 0, spread, images)


def auto_contrast(images: Tensor) -> Tensor:
    """Make the darkest pixel of each channel black and the lightest white, Pillow's `autocontrast`.

    Example:
        >>> auto_contrast(torch.tensor([[[[10.0, 20.0, 60.0]]]]))
        tensor([[[[  0.,  51., 255.]]]])
    """
    return stretch(images, *channel_limits(images))


def equalize(images: Tensor) -> Tensor:
    """Spread the pixels of each channel evenly over the levels, Pillow's `equalize`.

    Example:
        >>> equalize(torch.arange(128.0, 256.0).repeat_interleave(4).reshape(1, 1, 16, 32))[0, 0, 0, ::8]
        tensor([ 0.,  8., 16., 24.])
    """
    return lookup(images, equalizing_table(images))
