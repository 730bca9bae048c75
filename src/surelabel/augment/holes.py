"""Holes: a square of an image is painted over, so that a network cannot rely on any one part of it."""

import torch
from torch import Tensor

from surelabel.augment._batch import per_image

PAINT = (125.0, 123.0, 114.0)
"""What cut-out paints colored images with: the mean color of photographs, as published."""

GREY_PAINT = 123.0
"""The same for images of one channel, or of another number."""


def cut_out(images: Tensor, side: Tensor, center_x: Tensor, center_y: Tensor) -> Tensor:
    """Paint the pixels from `start = int(max(0, center - side / 2))` to `int(start + side)`, both included.

    That is the published rectangle, which is one pixel wider than its name says.

    Args:
        images: grey levels, shape (N, C, H, W).
        side: of each image's square in pixels, shape (N,); below 0 paints nothing.
        center_x: of the square in pixels, in [0, W), shape (N,).
        center_y: of the square in pixels, in [0, H), shape (N,).

    Example:
        >>> cut_out(torch.zeros(1, 1, 1, 5), torch.tensor([2.0]), torch.tensor([2.5]), torch.tensor([0.5]))
        tensor([[[[  0., 123., 123., 123.,   0.]]]])
    """
    height, width = images.shape[2:]
    columns = _painted(center_x, side, width)[:, None, None, :]
    rows = _painted(center_y, side, height)[:, None, :, None]
    return torch.where(rows & columns & per_image(side >= 0), _paint(images), images)


def _painted(center: Tensor, side: Tensor, length: int) -> Tensor:
    """Return which positions lie in the span, bool of shape (N, length)."""
    start = torch.floor((center - side / 2).clamp(min=0))
    position = torch.arange(length, device=center.device)
    return (position >= start[:, None]) & (position <= torch.floor(start + side)[:, None])


def _paint(images: Tensor) -> Tensor:
    """Return the paint of each channel, shape (C, 1, 1), made on the device: a copy from the host would synchronize."""
    channels = images.shape[1]
    paint = PAINT if channels == len(PAINT) else (GREY_PAINT,) * channels
    return torch.cat([images.new_full((1, 1, 1), level) for level in paint])


def hole(images: Tensor, side: Tensor, center_x: Tensor, center_y: Tensor) -> Tensor:
    """Set the pixels from `center - side // 2` up to `center + side // 2`, that one not included, to 0.

    Args:
        images: normalized, shape (N, C, H, W); 0 is then the mean color.
        side: of each image's square in pixels, int64 of shape (N,); 1 is no hole, as published.
        center_x: of the square, int64 of shape (N,).
        center_y: of the square, int64 of shape (N,).

    Example:
        >>> hole(torch.ones(1, 1, 2, 5), torch.tensor([3]), torch.tensor([2]), torch.tensor([0]))
        tensor([[[[1., 0., 0., 1., 1.],
                  [1., 1., 1., 1., 1.]]]])
    """
    columns = _covered(center_x, side, images.shape[3])[:, None, None, :]
    rows = _covered(center_y, side, images.shape[2])[:, None, :, None]
    return torch.where(rows & columns, 0.0, images)


def _covered(center: Tensor, side: Tensor, length: int) -> Tensor:
    away = torch.arange(length, device=center.device) - center[:, None]
    half = (side // 2)[:, None]
    return (away >= -half) & (away < half)
