"""Tables of 256 values: what a point operation does to an image's channel, worked out once for each grey level.

An image of 32 x 32 pixels has four times as many pixels as grey levels, a larger one far more. So the formulas of
`points` are applied to a table of the levels themselves, shape (N, C, 256, 1), and the pixels are looked up in it.
"""

import torch
from torch import Tensor

from surelabel.augment._batch import LEVELS


def grey_levels(images: Tensor) -> Tensor:
    """Return the levels 0 to 255 as an image of one channel, shape (1, 1, 256, 1)."""
    return torch.arange(LEVELS, dtype=torch.float32, device=images.device).reshape(1, 1, LEVELS, 1)


def histogram(images: Tensor) -> Tensor:
    """Count the pixels of each grey level, float32 of shape (N, C, 256).

    Counts are whole numbers below 2**24, which float32 adds without rounding: the order of the additions, which differs
    from run to run on a GPU, does not matter.

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

    `step` is a 255th of the pixels that are below the channel's highest level. Where it is 0 (one level only, or
    nearly) the table changes nothing.

    Example:
        >>> equalizing_table(torch.arange(256.0).reshape(1, 1, 16, 16).clamp(min=128))[0, 0, [128, 129, 255], 0]
        tensor([  0., 129., 255.])
    """
    counts = histogram(images)
    # Whole numbers, since torch has no deterministic running sum of floating point numbers on a GPU.
    through = counts.to(torch.int32).cumsum(2, dtype=torch.int32)
    below = through.to(torch.float32) - counts
    pixels = images.shape[2] * images.shape[3]
    # Levels above the highest have all pixels below them, so the largest smaller number belongs to the highest.
    below_highest = torch.where(below < pixels, below, 0.0).amax(2, keepdim=True)
    step = torch.floor((below_highest + 0.5) / (LEVELS - 1))
    # Half a pixel more does not change a quotient of whole numbers, and spares it the rounding of the division.
    table = torch.floor((torch.floor(step / 2) + below + 0.5) / step.clamp(min=1)).clamp(max=LEVELS - 1)
    return torch.where(step > 0, table, grey_levels(images).squeeze(3)).unsqueeze(3)
