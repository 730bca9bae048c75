"""Geometric operations: an affine map gives the old pixel for each new one; nearest sampling, black outside.

Also holes: a square of an image is painted over, so that a network cannot rely on any single part of it.

A matrix (a, b, c, d, e, f) maps the new pixel (x, y) to the old one (a x + b y + c, d x + e y + f), both measured at
pixel centers, as in Pillow's `Image.transform(AFFINE)`. Pillow computes in fixed point, with 16 fractional bits. Ties
between two pixels are common (a shear by 0.04 has a whole row of them every 25 rows), so this code does the same.
"""

import torch
from torch import Tensor

from surelabel.augment.color import per_channel, per_image

Matrix = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""(a, b, c, d, e, f), each of shape (N,)."""

PAINT = (125.0, 123.0, 114.0)
"""What cut-out paints RGB images with: the mean color of photographs, as published."""

GREY_PAINT = 123.0
"""The same for images with any other number of channels."""

_FRACTION_BITS = 16


def affine(images: Tensor, matrix: Matrix) -> Tensor:
    """Return images whose pixel (x, y) is the old one at (a x + b y + c, d x + e y + f), 0 where there is none.

    Args:
        images: shape (N, C, H, W), sides below 2**14.
        matrix: one per image; (1, 0, 0, 0, 1, 0) changes nothing.

    Example:
        >>> one, zero = torch.ones(1), torch.zeros(1)
        >>> affine(torch.tensor([[[[1.0, 2.0, 3.0]]]]), (one, zero, one, zero, one, zero))
        tensor([[[[2., 3., 0.]]]])
    """
    height, width = images.shape[2:]
    a, b, c, d, e, f = matrix
    columns = _positions(a, b, c, height, width)
    rows = _positions(d, e, f, height, width)
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    pixels = _take(images, rows.clamp(0, height - 1), columns.clamp(0, width - 1))
    return torch.where(inside.unsqueeze(1), pixels, 0.0)


def _positions(along_x: Tensor, along_y: Tensor, offset: Tensor, height: int, width: int) -> Tensor:
    """Return floor(along_x x + along_y y + offset) at all pixel centers, int32 of shape (N, H, W)."""
    x = torch.arange(width, dtype=torch.int32, device=offset.device)
    y = torch.arange(height, dtype=torch.int32, device=offset.device)[:, None]
    start = _fixed(offset + 0.5 * along_x + 0.5 * along_y)
    return (start + _fixed(along_x) * x + _fixed(along_y) * y) >> _FRACTION_BITS


def _fixed(values: Tensor) -> Tensor:
    return torch.floor(values * 2.0**_FRACTION_BITS + 0.5).to(torch.int32)[:, None, None]


def _take(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return images[n, c, rows, columns] for rows and columns of shape (N, H, W)."""
    count, channels, height, width = images.shape
    index = (rows * width + columns).long().reshape(count, 1, height * width).expand(-1, channels, -1)
    return images.flatten(2).gather(2, index).reshape(images.shape)


def rotation(degrees: Tensor, height: int, width: int) -> Matrix:
    """Return the matrices that rotate images counterclockwise about their centers by these angles, shape (N,).

    Example:
        >>> [round(float(value), 3) for value in rotation(torch.tensor([90.0]), 4, 4)]
        [-0.0, -1.0, 4.0, 1.0, -0.0, 0.0]
    """
    angle = torch.deg2rad(-degrees)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    x, y = width / 2, height / 2
    return cosine, sine, x - x * cosine - y * sine, -sine, cosine, y + x * sine - y * cosine


def flip_and_crop(images: Tensor, flipped: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Mirror the marked images, then move each crop `right` and `down` by some pixels; reflection fills the outside.

    One gather does both. With random `right` and `down` in [-crop, crop], it is the usual padding and random crop.

    Args:
        images: shape (N, C, H, W).
        flipped: which images are mirrored, bool of shape (N,).
        right: pixels, int64 of shape (N,), less than the width.
        down: pixels, int64 of shape (N,), less than the height.

    Example:
        >>> images = torch.tensor([[[[1.0, 2.0, 3.0]]]])
        >>> flip_and_crop(images, torch.tensor([True]), torch.tensor([1]), torch.tensor([0]))
        tensor([[[[2., 1., 2.]]]])
    """
    height, width = images.shape[2:]
    columns = _reflected(right, width)
    columns = torch.where(flipped[:, None], width - 1 - columns, columns)
    return _take(images, _reflected(down, height)[:, :, None], columns[:, None, :])


def _reflected(shift: Tensor, side: int) -> Tensor:
    """Return the positions 0, ..., side - 1 after a shift, mirrored at the first and the last, shape (N, side)."""
    position = torch.arange(side, device=shift.device) + shift[:, None]
    last = side - 1
    return last - (last - position.abs()).abs()


def cut_out(images: Tensor, side: Tensor, center_x: Tensor, center_y: Tensor) -> Tensor:
    """Paint the pixels from `start = int(max(0, center - side / 2))` to `int(start + side)`, both inclusive.

    That is the published rectangle, which is one pixel wider than its name says.

    Args:
        images: grey levels, shape (N, C, H, W).
        side: of each image's square, in pixels, shape (N,); nothing is painted if it is below 0.
        center_x: of the square, in pixels, in [0, W), shape (N,).
        center_y: of the square, in pixels, in [0, H), shape (N,).

    Example:
        >>> cut_out(torch.zeros(1, 1, 1, 5), torch.tensor([2.0]), torch.tensor([2.5]), torch.tensor([0.5]))
        tensor([[[[  0., 123., 123., 123.,   0.]]]])
    """
    height, width = images.shape[2:]
    columns = _painted(center_x, side, width)[:, None, None, :]
    rows = _painted(center_y, side, height)[:, None, :, None]
    paint = PAINT if images.shape[1] == len(PAINT) else (GREY_PAINT,) * images.shape[1]
    return torch.where(rows & columns & per_image(side >= 0), per_channel(paint, images), images)


def _painted(center: Tensor, side: Tensor, length: int) -> Tensor:
    """Return which positions lie in the span, bool of shape (N, length)."""
    start = torch.floor((center - side / 2).clamp(min=0))
    position = torch.arange(length, device=center.device)
    return (position >= start[:, None]) & (position <= torch.floor(start + side)[:, None])


def hole(images: Tensor, side: Tensor, center_x: Tensor, center_y: Tensor) -> Tensor:
    """Set the pixels from `center - side // 2` to `center + side // 2`, the last one excluded, to 0.

    Args:
        images: normalized, shape (N, C, H, W); 0 is then the mean color.
        side: of each image's square, in pixels, int64 of shape (N,); 1 is no hole, as published.
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
