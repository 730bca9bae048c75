"""Operations on levels: a pixel's new level follows from its old one, or from a blend with a duller image.

Images are float32 (N, C, H, W) holding whole grey levels 0 to 255; each operation takes one number per image,
shape (N,), and agrees with Pillow's `ImageOps` and `ImageEnhance` within one grey level.

*Point operations* are plain formulas, so they can run on a table of the 256 levels, shape (N, C, 256, 1), in which the
pixels are then looked up. That is less work: even a 32 x 32 image has four times as many pixels as grey levels.

*Enhancements* blend the image with a duller one, `dull + factor (level - dull)`: black (brightness), its mean grey
(contrast), its grey version (color) or a smoothed one (sharpness). A factor of 1 changes nothing, 0 gives the dull
image, and more than 1 moves away from it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from surelabel.augment.draws import Draws
from surelabel.core.arrays import bad_argument

LARGEST = 255.0
"""The brightest grey level."""

LEVELS = 256

SOLARIZE_ADD_BELOW = 128.0
"""Solarize-add lightens the darker half of the levels."""

_HAIR = 2.0**-10


def per_image(values: Tensor) -> Tensor:
    """Return numbers of shape (N,) as (N, 1, 1, 1), to broadcast against images."""
    return values.reshape(-1, 1, 1, 1)


def per_channel(values: Sequence[float], images: Tensor) -> Tensor:
    """Return numbers as (C, 1, 1), or (C, 1, 1, 1) for clips, made on the device: a copy from the host would wait."""
    return torch.cat([images.new_full((1,) * (images.ndim - 1), value) for value in values])


def whole(values: Tensor) -> Tensor:
    """Drop the fraction and clip to grey levels, as Pillow does.

    A product such as 0.34 * 50 may miss a whole number by its last bit, and a fused multiply-add changes that bit. The
    tiny number that is added first gives the same level on every device, eager or compiled.
    """
    return torch.floor(values + _HAIR).clamp(0.0, LARGEST)


def check_color(images: Tensor, what: str) -> None:
    """Refuse images that are neither grey nor RGB, for the operations that depend on it."""
    if images.shape[1] not in (1, 3):
        must, got = f"have 1 (grey) or 3 (red, green, blue) channels for {what}", f"{images.shape[1]} channels"
        raise bad_argument("images", must, got, f"leave {what} out")


def grey_levels(images: Tensor) -> Tensor:
    """Return the levels 0 to 255 as a one-channel image, shape (1, 1, 256, 1)."""
    return torch.arange(LEVELS, dtype=torch.float32, device=images.device).reshape(1, 1, LEVELS, 1)


def histogram(images: Tensor) -> Tensor:
    """Count the pixels of each grey level, float32 of shape (N, C, 256).

    Counts are whole numbers below 2**24, which float32 adds without rounding. So the order of the additions, which
    varies from run to run on a GPU, does not matter.

    Example:
        >>> histogram(torch.tensor([[[[0.0, 255.0, 255.0]]]]))[0, 0, [0, 1, 255]]
        tensor([1., 0., 2.])
    """
    levels = images.flatten(2).long()
    counts = torch.zeros((*images.shape[:2], LEVELS), dtype=torch.float32, device=images.device)
    ones = torch.ones((), dtype=torch.float32, device=images.device).expand(levels.shape)
    return counts.scatter_add(2, levels, ones)


def lookup(images: Tensor, table: Tensor) -> Tensor:
    """Return table[level] for each pixel: images (N, C, H, W), table (N, C, 256, 1).

    Example:
        >>> lookup(torch.tensor([[[[0.0, 255.0]]]]), torch.arange(256.0).flip(0).reshape(1, 1, 256, 1))
        tensor([[[[255.,   0.]]]])
    """
    rows = table.expand(*images.shape[:2], LEVELS, 1).flatten(2)
    return rows.gather(2, images.flatten(2).long()).reshape(images.shape)


def equalizing_table(images: Tensor) -> Tensor:
    """Return level -> (step // 2 + pixels below the level) // step, shape (N, C, 256, 1), Pillow's equalization.

    `step` is a 255th of the pixels that are below the channel's highest level. If it is 0 (only one level, or
    nearly so), the table changes nothing.

    Example:
        >>> equalizing_table(torch.arange(256.0).reshape(1, 1, 16, 16).clamp(min=128))[0, 0, [128, 129, 255], 0]
        tensor([  0., 129., 255.])
    """
    counts = histogram(images)
    # Integers, because torch has no deterministic cumulative sum of floats on a GPU.
    through = counts.to(torch.int32).cumsum(2, dtype=torch.int32)
    below = through.to(torch.float32) - counts
    pixels = images.shape[2] * images.shape[3]
    # Levels above the highest have all pixels below them; the largest count short of that is the highest level's.
    below_highest = torch.where(below < pixels, below, 0.0).amax(2, keepdim=True)
    step = torch.floor((below_highest + 0.5) / (LEVELS - 1))
    # Adding half a pixel does not change the floor of the exact quotient, and keeps it safe from rounding.
    table = torch.floor((torch.floor(step / 2) + below + 0.5) / step.clamp(min=1)).clamp(max=LEVELS - 1)
    return torch.where(step > 0, table, grey_levels(images).squeeze(3)).unsqueeze(3)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels at and above the threshold: `level if level < threshold else 255 - level`.

    Args:
        images: grey levels, shape (N, C, H, W).
        threshold: one per image, shape (N,); 256 changes nothing, 0 inverts everything.

    Example:
        >>> solarize(torch.tensor([[[[10.0, 200.0]]]]), torch.tensor([128.0]))
        tensor([[[[10., 55.]]]])
    """
    return torch.where(images < per_image(threshold), images, LARGEST - images)


def solarize_add(images: Tensor, addition: Tensor, below: float = SOLARIZE_ADD_BELOW) -> Tensor:
    """Lighten dark pixels: `min(level + addition, 255) if level < below else level`.

    Args:
        images: grey levels, shape (N, C, H, W).
        addition: one per image, shape (N,), rounded down; 0 changes nothing.
        below: levels below this one are lightened; the same for all images.

    Example:
        >>> solarize_add(torch.tensor([[[[10.0, 200.0]]]]), torch.tensor([100.0]))
        tensor([[[[110., 200.]]]])
    """
    return torch.where(images < below, whole(images + per_image(addition)), images)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits of each level: `level & ~(2 ** (8 - bits) - 1)`.

    Args:
        images: grey levels, shape (N, C, H, W).
        bits: how many per image, whole numbers of shape (N,); 8 changes nothing, 0 gives a black image.

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
        highest: becomes 255, shape (N, C, 1, 1); if it is not above `lowest`, nothing changes.

    Example:
        >>> one = torch.ones(1, 1, 1, 1)
        >>> stretch(torch.tensor([[[[10.0, 20.0, 60.0]]]]), 10 * one, 60 * one)
        tensor([[[[  0.,  51., 255.]]]])
    """
    span = highest - lowest
    # Adding half a unit does not change the floor of the exact quotient, and keeps it safe from rounding.
    spread = torch.floor((LARGEST * (images - lowest) + 0.5) / span.clamp(min=1)).clamp(0.0, LARGEST)
    return torch.where(span > 0, spread, images)


def blend(dull: Tensor | float, images: Tensor, factor: Tensor) -> Tensor:
    """Return `dull + factor (images - dull)`, rounded down to whole levels; the factor has shape (N,).

    Example:
        >>> blend(100.0, torch.tensor([[[[50.0, 200.0]]]]), torch.tensor([1.5]))
        tensor([[[[ 25., 250.]]]])
    """
    return whole(dull + per_image(factor) * (images - dull))


def grey(images: Tensor) -> Tensor:
    """Return `(19595 red + 38470 green + 7471 blue + 32768) // 65536`, Pillow's luma, shape (N, 1, H, W).

    The sum stays below 2**24, so float32 holds it exactly. A one-channel image is its own grey version.

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
    """Return the rounded mean over 3 x 3 pixels, with the middle one counted 5 times; border pixels do not change.

    Example:
        >>> smooth(torch.tensor([[[[0.0, 0, 0], [0, 130, 0], [0, 0, 0]]]]))[0, 0, 1]
        tensor([ 0., 50.,  0.])
    """
    height, width = images.shape[2:]
    padded = functional.pad(images, (1, 1, 1, 1))
    rows = padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4.0 * images
    # The total is a whole number, so with the half it is never near a multiple of 13, however the division rounds.
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
    return blend(mean_grey(images), images, factor)


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey version; a one-channel image does not change.

    Example:
        >>> color(torch.tensor([255.0, 0.0, 0.0]).reshape(1, 3, 1, 1), torch.tensor([0.0])).flatten()
        tensor([76., 76., 76.])
    """
    return blend(grey(images), images, factor)


def jitter(images: Tensor, draws: Draws, amount: float) -> Tensor:
    """Change brightness, contrast and color, in this order, by factors drawn from [1 - amount, 1 + amount].

    The published code also draws the order.

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
