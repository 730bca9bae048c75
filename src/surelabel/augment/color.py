"""Enhancements: a blend of the image with a duller one, `dull + factor (level - dull)`, as Pillow's `ImageEnhance`.

The dull image is black (brightness), its mean grey (contrast), its grey version (color) or a smoothed one (sharpness).
A factor of 1 changes nothing, 0 leaves the dull image, above 1 goes away from it. Each operation takes images
(N, C, H, W) of grey levels and a factor for each, shape (N,), and agrees with Pillow within one grey level.
"""

import torch
from torch import Tensor
from torch.nn import functional

from surelabel.augment._batch import check_color, per_image, whole
from surelabel.augment.draws import Draws


def blend(dull: Tensor | float, images: Tensor, factor: Tensor) -> Tensor:
    """Return `dull + factor (images - dull)`, cut to whole levels; the factor has shape (N,).

    Example:
        >>> blend(100.0, torch.tensor([[[[50.0, 200.0]]]]), torch.tensor([1.5]))
        tensor([[[[ 25., 250.]]]])
    """
    return whole(dull + per_image(factor) * (images - dull))


def grey(images: Tensor) -> Tensor:
    """Return `(19595 red + 38470 green + 7471 blue + 32768) // 65536`, Pillow's luma, shape (N, 1, H, W).

    The sum stays below 2**24, so float32 holds it exactly. An image of one channel is its own grey version.

    Example:
        >>> grey(torch.tensor([255.0, 0.0, 0.0]).reshape(1, 3, 1, 1)).item()
        76.0
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images[:, :1], images[:, 1:2], images[:, 2:]
    return torch.floor((19595.0 * red + 38470.0 * green + 7471.0 * blue + 32768.0) * 2.0**-16)


def mean_grey(images: Tensor) -> Tensor:
    """Return the mean of each image's grey version, rounded, shape (N, 1, 1, 1).

    Example:
        >>> mean_grey(torch.tensor([[[[10.0, 21.0]]]])).item()
        16.0
    """
    return torch.floor(grey(images).mean((2, 3), keepdim=True) + 0.5)


def smooth(images: Tensor) -> Tensor:
    """Return the mean over 3 x 3 pixels, the middle one counted 5 times, rounded; border pixels stay as they are.

    Example:
        >>> smooth(torch.tensor([[[[0.0, 0, 0], [0, 130, 0], [0, 0, 0]]]]))[0, 0, 1]
        tensor([ 0., 50.,  0.])
    """
    height, width = images.shape[2:]
    padded = functional.pad(images, (1, 1, 1, 1))
    rows = padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4.0 * images
    # The total is a whole number: with the half it is never near a multiple of 13, however the division rounds.
    smoothed = torch.floor((total + 6.5) / 13.0)
    inside = _inside(height, images.device)[:, None] & _inside(width, images.device)
    return torch.where(inside, smoothed, images)


def _inside(side: int, device: torch.device) -> Tensor:
    position = torch.arange(side, device=device)
    return (position > 0) & (position < side - 1)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black.

    Example:
        >>> brightness(torch.tensor([[[[100.0, 200.0]]]]), torch.tensor([1.5]))
        tensor([[[[150., 255.]]]])
    """
    return blend(0.0, images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean grey level.

    Example:
        >>> contrast(torch.tensor([[[[100.0, 200.0]]]]), torch.tensor([0.5]))
        tensor([[[[125., 175.]]]])
    """
    check_color(images, "contrast")
    return blend(mean_grey(images), images, factor)


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey version; an image of one channel stays as it is.

    Example:
        >>> color(torch.tensor([255.0, 0.0, 0.0]).reshape(1, 3, 1, 1), torch.tensor([0.0])).flatten()
        tensor([76., 76., 76.])
    """
    check_color(images, "color")
    return blend(grey(images), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed version.

    Example:
        >>> sharpness(torch.tensor([[[[0.0, 0, 0], [0, 130, 0], [0, 0, 0]]]]), torch.tensor([0.0]))[0, 0, 1]
        tensor([ 0., 50.,  0.])
    """
    return blend(smooth(images), images, factor)


def jitter(images: Tensor, draws: Draws, amount: float) -> Tensor:
    """Change brightness, contrast and color, in this order, by factors drawn from [1 - amount, 1 + amount].

    The published code draws the order as well.

    Example:
        >>> draws = Draws(torch.tensor(0), torch.arange(2), torch.zeros(2, dtype=torch.int64))
        >>> jitter(torch.full((2, 1, 1, 2), 100.0), draws, 0.4)[:, 0, 0, 0]
        tensor([115.,  86.])
    """
    check_color(images, "jitter")
    for name, change in (("brightness", brightness), ("contrast", contrast), ("color", color)):
        lowest = max(0.0, 1.0 - amount)
        images = change(images, lowest + (1.0 + amount - lowest) * draws.uniform(f"jitter {name}"))
    return images
