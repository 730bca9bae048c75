"""Masks of time and frequency: whole rows and whole columns of a spectrogram are painted over.

Park et al., "SpecAugment: A Simple Data Augmentation Method for Automatic Speech Recognition", 2019: the width of a
mask is uniform in 0 to the widest, and its first row or column uniform among those that leave room for it. A network
then cannot rely on one band or one moment alone.
"""

import torch
from torch import Tensor

from surelabel.augment.draws import Draws


def mask_lines(images: Tensor, draws: Draws, rows: int, columns: int, masks: int = 1) -> Tensor:
    """Set rows and columns of each image to 0, drawn separately for each image.

    Args:
        images: normalized, shape (N, C, H, W); 0 is then the mean.
        draws: of the samples.
        rows: the most rows of a mask, which may be all; 0: none.
        columns: the most columns of a mask; 0: none.
        masks: how many of each are drawn; they may overlap.

    Example:
        >>> draws = Draws(torch.tensor(0), torch.arange(1), torch.zeros(1, dtype=torch.int64))
        >>> mask_lines(torch.ones(1, 1, 2, 6), draws, rows=0, columns=4)
        tensor([[[[1., 1., 0., 1., 1., 1.],
                  [1., 1., 0., 1., 1., 1.]]]])
    """
    height, width = images.shape[2:]
    for number in range(masks):
        if rows:
            images = torch.where(_covered(f"mask {number} rows", draws, rows, height)[:, None, :, None], 0.0, images)
        if columns:
            covered = _covered(f"mask {number} columns", draws, columns, width)
            images = torch.where(covered[:, None, None, :], 0.0, images)
    return images


def _covered(name: str, draws: Draws, most: int, length: int) -> Tensor:
    """Draw which of the positions 0, ..., length - 1 each mask covers, bool of shape (N, length)."""
    width = draws.integer(f"{name} width", min(most, length) + 1)
    # Uniform among the length - width + 1 first positions that leave room for the mask.
    first = torch.floor(draws.uniform(f"{name} first") * (length - width + 1)).long()
    position = torch.arange(length, device=draws.device)
    return (position >= first[:, None]) & (position < (first + width)[:, None])
