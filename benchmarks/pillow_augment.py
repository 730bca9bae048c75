"""The published chain, one image after another in Pillow: RandAugment(n = 3, m = 4 of 30), flip, crop, jitter, hole.

It is what a loader's worker does in the published-like way. With s = m / 30, an operation's strength is as published:
rotate ± 30 s degrees, shear ± 0.3 s, translate ± 100 s pixels, posterize to int(4 s) bits, solarize from 256 s on,
solarize-add of 110 s, enhance by 0.1 + 1.8 s, cut out 40 s pixels.
"""

import random
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from surelabel.augment.settings import AugmentSettings

Operation = Callable[[Image.Image, float], Image.Image]
"""(image, strength s in [0, 1]) to an image."""

_GREY = (125, 123, 114)
_HIGHEST_MAGNITUDE = 30


def pillow_augment(pixels: np.ndarray, settings: AugmentSettings) -> Tensor:
    """Return one augmented and normalized image, float32 (3, H, W), drawn by Python's `random`.

    Args:
        pixels: uint8 of shape (H, W, 3).
        settings: the chain; its `magnitude` must be a number.

    Example:
        >>> settings = AugmentSettings(operations=3, magnitude=4, flip=True, crop=4, jitter=0.4, hole=16)
        >>> pillow_augment(np.zeros((32, 32, 3), np.uint8), settings).shape
        torch.Size([3, 32, 32])
    """
    assert settings.magnitude is not None
    image = Image.fromarray(pixels)
    for operation in random.choices(OPERATIONS, k=settings.operations):
        image = operation(image, settings.magnitude / _HIGHEST_MAGNITUDE)
    if settings.flip and random.random() < 0.5:
        image = ImageOps.mirror(image)
    image = _jitter(_crop(image, settings.crop), settings.jitter)
    return _hole(normalized(np.asarray(image), settings), settings.hole)


def normalized(pixels: np.ndarray, settings: AugmentSettings) -> Tensor:
    """Return (pixels / 255 - mean) / std as float32 (3, H, W), from uint8 (H, W, 3).

    Example:
        >>> normalized(np.full((1, 1, 3), 255, np.uint8), AugmentSettings(mean=(0.5,) * 3, std=(0.25,) * 3)).flatten()
        tensor([2., 2., 2.])
    """
    mean = torch.tensor(settings.mean or (0.0,) * 3).view(3, 1, 1)
    std = torch.tensor(settings.std or (1.0,) * 3).view(3, 1, 1)
    levels = torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float() / 255
    return (levels - mean) / std


def _sign() -> int:
    return random.choice((-1, 1))


def _enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    return lambda image, s: kind(image).enhance(0.1 + 1.8 * s)


def _affine(*shear: float, shift: tuple[float, float] = (0.0, 0.0)) -> Operation:
    """An affine map whose off-diagonal entries (x by y, y by x) and shifts grow with s, to either side."""
    by_y, by_x = shear or (0.0, 0.0)

    def run(image: Image.Image, s: float) -> Image.Image:
        size = _sign() * s
        matrix = (1, by_y * size, shift[0] * size, by_x * size, 1, shift[1] * size)
        return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=_GREY)

    return run


def _posterize(image: Image.Image, s: float) -> Image.Image:
    # Not ImageOps.posterize, which refuses the 0 bits of the published magnitude.
    dropped = 2 ** (8 - int(4 * s))
    return image.point([level // dropped * dropped for level in range(256)] * 3)


def _solarize_add(image: Image.Image, s: float) -> Image.Image:
    levels = np.asarray(image).astype(np.int64) + int(110 * s)
    return ImageOps.solarize(Image.fromarray(levels.clip(0, 255).astype(np.uint8)), 128)


def _cut_out(image: Image.Image, s: float) -> Image.Image:
    side = int(40 * s)
    x, y = (max(0, int(random.uniform(0, length) - side / 2)) for length in image.size)
    image = image.copy()
    ImageDraw.Draw(image).rectangle((x, y, min(image.width, x + side), min(image.height, y + side)), _GREY)
    return image


OPERATIONS: tuple[Operation, ...] = (
    lambda image, s: ImageOps.autocontrast(image),
    lambda image, s: ImageOps.equalize(image),
    lambda image, s: ImageOps.invert(image),
    lambda image, s: image.rotate(_sign() * 30 * s),
    _posterize,
    lambda image, s: ImageOps.solarize(image, int(256 * s)),
    _solarize_add,
    _enhance(ImageEnhance.Color),
    _enhance(ImageEnhance.Contrast),
    _enhance(ImageEnhance.Brightness),
    _enhance(ImageEnhance.Sharpness),
    _affine(0.3, 0.0),
    _affine(0.0, 0.3),
    _affine(shift=(100.0, 0.0)),
    _affine(shift=(0.0, 100.0)),
    _cut_out,
)
"""All of RandAugment's but the identity, which the published code leaves out."""


def _crop(image: Image.Image, border: int) -> Image.Image:
    if border == 0:
        return image
    padded = np.pad(np.asarray(image), ((border, border), (border, border), (0, 0)), mode="reflect")
    x, y = random.randint(0, 2 * border), random.randint(0, 2 * border)
    return Image.fromarray(padded[y : y + image.height, x : x + image.width])


def _jitter(image: Image.Image, size: float) -> Image.Image:
    if size > 0:
        for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = kind(image).enhance(random.uniform(max(0, 1 - size), 1 + size))
    return image


def _hole(image: Tensor, largest: int) -> Tensor:
    if largest > 0:
        side = random.randint(1, largest)
        height, width = image.shape[1:]
        y, x = random.randrange(height) - side // 2, random.randrange(width) - side // 2
        image[:, max(0, y) : max(0, y + side), max(0, x) : max(0, x + side)] = 0
    return image
