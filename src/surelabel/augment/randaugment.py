"""RandAugment: n operations, drawn with replacement for each image, run one after another.

Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space", 2020. A step is
branch-free: operations that an image did not draw get neutral parameters (a factor of 1, a threshold of 256, the
identity matrix). So a step is one table, one lookup, one blend, one gather and one mask, whatever is drawn, and the
host needs nothing back from the device.

| operation | magnitude m of 30, as published (s = m / 30) | random (s uniform in [0, 1)) |
|---|---|---|
| rotate | ± 30 s degrees | the same |
| shear x, y | ± 0.3 s | the same |
| translate x, y | ± 100 s pixels | ± 0.3 s of the side |
| posterize | keeps int(4 s) bits: 0, a black image, below m = 8 | keeps 8 - int(5 s) bits: 4 to 8 |
| solarize | from level 256 s on | from level 256 (1 - s) on |
| solarize-add | adds 110 s to all levels, then inverts from 128 on | adds 110 s to levels below 128 |
| color, contrast, brightness, sharpness | factor 0.1 + 1.8 s | factor 1 ± 0.9 s |
| cut-out | 40 s pixels | 0.5 s of the shorter side |
| auto-contrast, equalize, invert | always in full | the same |
| identity | not drawn | drawn like the others |

A fixed magnitude follows the published code to the letter, including black images, so that its runs can be repeated.
With a random one, every operation with a strength starts at no change (s = 0), and none makes an image black.
"""

from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from surelabel.augment import color
from surelabel.augment.draws import Draws
from surelabel.augment.geometry import Matrix, affine, cut_out, rotation

HIGHEST_MAGNITUDE = 30


class Operation(IntEnum):
    """The operations to draw from; the identity comes first, because the published code leaves it out."""

    IDENTITY = 0
    AUTO_CONTRAST = 1
    EQUALIZE = 2
    INVERT = 3
    ROTATE = 4
    POSTERIZE = 5
    SOLARIZE = 6
    SOLARIZE_ADD = 7
    COLOR = 8
    CONTRAST = 9
    BRIGHTNESS = 10
    SHARPNESS = 11
    SHEAR_X = 12
    SHEAR_Y = 13
    TRANSLATE_X = 14
    TRANSLATE_Y = 15
    CUT_OUT = 16


class Strengths(NamedTuple):
    """The strength of each operation for each image if it were drawn: numbers of shape (N,), or one for all.

    Attributes:
        degrees: of a rotation.
        shear: along either axis.
        shift_x: pixels.
        shift_y: pixels.
        bits: how many posterize keeps.
        threshold: of solarize.
        addition: of solarize-add.
        add_below: the levels that solarize-add lightens.
        add_threshold: the level from which solarize-add inverts after that.
        factor: of color, contrast, brightness and sharpness.
        side: of cut-out, pixels.
    """

    degrees: Tensor
    shear: Tensor
    shift_x: Tensor
    shift_y: Tensor
    bits: Tensor | float
    threshold: Tensor | float
    addition: Tensor | float
    add_below: float
    add_threshold: float
    factor: Tensor | float
    side: Tensor | float


def published_strengths(magnitude: int, sign: Tensor) -> Strengths:
    """Return the published code's strengths for a magnitude (of 30) and a sign per image, shape (N,).

    Example:
        >>> published_strengths(4, torch.tensor([1.0])).bits
        0
    """
    s = magnitude / HIGHEST_MAGNITUDE
    shift = 100.0 * s * sign
    return Strengths(
        degrees=30.0 * s * sign,
        shear=0.3 * s * sign,
        shift_x=shift,
        shift_y=shift,
        bits=int(4 * s),
        threshold=256.0 * s,
        addition=110.0 * s,
        add_below=float(color.LEVELS),
        add_threshold=color.SOLARIZE_ADD_BELOW,
        factor=0.1 + 1.8 * s,
        side=40.0 * s,
    )


def random_strengths(s: Tensor, sign: Tensor, height: int, width: int) -> Strengths:
    """Return the strengths for s in [0, 1) and a sign per image, shape (N,), for images of this size.

    Example:
        >>> random_strengths(torch.tensor([0.5]), torch.tensor([-1.0]), 32, 32).shift_x
        tensor([-4.8000])
    """
    return Strengths(
        degrees=30.0 * s * sign,
        shear=0.3 * s * sign,
        shift_x=0.3 * width * s * sign,
        shift_y=0.3 * height * s * sign,
        bits=8 - torch.floor(5 * s),
        threshold=256.0 * (1 - s),
        addition=110.0 * s,
        add_below=color.SOLARIZE_ADD_BELOW,
        add_threshold=float(color.LEVELS),
        factor=1 + 0.9 * s * sign,
        side=0.5 * min(height, width) * s,
    )


class Step(NamedTuple):
    """One operation for each image of a batch, with its parameters.

    Attributes:
        operation: values of `Operation`, int64 of shape (N,).
        strengths: of all operations; only those of the drawn one are used.
        center_x: of cut-out, pixels, shape (N,).
        center_y: of cut-out, pixels, shape (N,).
    """

    operation: Tensor
    strengths: Strengths
    center_x: Tensor
    center_y: Tensor

    def drew(self, kind: Operation) -> Tensor:
        """Return which images drew this operation, bool of shape (N,)."""
        # torch.compile cannot compare a tensor with an enum member, only with its value.
        return self.operation.eq(kind.value)

    def pick(self, kind: Operation, value: Tensor | float, neutral: Tensor | float) -> Tensor:
        """Return the value for the images that drew this operation and the neutral value for all others, shape (N,)."""
        return torch.where(self.drew(kind), value, neutral)


def draw_step(images: Tensor, draws: Draws, index: int, magnitude: int | None) -> Step:
    """Draw an operation for each image, its sign and, if no magnitude is given, its strength.

    Example:
        >>> draws = Draws(torch.tensor(0), torch.arange(4), torch.zeros(4, dtype=torch.int64))
        >>> draw_step(torch.zeros(4, 3, 32, 32), draws, 0, None).operation
        tensor([10,  4, 15,  7])
    """
    height, width = images.shape[2:]
    name = f"randaugment {index}"
    sign = draws.sign(f"{name} sign")
    if magnitude is None:
        operation = draws.integer(f"{name} operation", len(Operation))
        strengths = random_strengths(draws.uniform(f"{name} magnitude"), sign, height, width)
    else:
        operation = 1 + draws.integer(f"{name} operation", len(Operation) - 1)
        strengths = published_strengths(magnitude, sign)
    center_x, center_y = draws.uniform(f"{name} x") * width, draws.uniform(f"{name} y") * height
    return Step(operation, strengths, center_x, center_y)


def apply_step(images: Tensor, step: Step) -> Tensor:
    """Apply each image's operation: table and lookup, blend, gather, mask.

    Args:
        images: grey levels, shape (N, C, H, W), C = 1 or 3.
        step: what each image drew.

    Example:
        >>> images = torch.full((4, 1, 8, 8), 100.0)
        >>> draws = Draws(torch.tensor(0), torch.arange(4), torch.zeros(4, dtype=torch.int64))
        >>> apply_step(images, draw_step(images, draws, 0, None))[:, 0, 4, 4]  # brighter, turned, shifted, lightened
        tensor([189., 100., 100., 151.])
    """
    color.check_color(images, "RandAugment")
    changed = color.lookup(images, _point_table(images, step))
    sharper = step.drew(Operation.SHARPNESS)
    dull = torch.where(color.per_image(sharper), color.smooth(images), color.grey(images))
    blended = sharper | step.drew(Operation.COLOR)
    changed = color.blend(dull, changed, torch.where(blended, step.strengths.factor, 1.0))
    changed = affine(changed, _matrix(step, *images.shape[2:]))
    side = step.pick(Operation.CUT_OUT, step.strengths.side, -1.0)
    return cut_out(changed, side, step.center_x, step.center_y)


def _point_table(images: Tensor, step: Step) -> Tensor:
    """Return each image's new level for each old one, shape (N, C, 256, 1); the same if it drew no point operation."""
    strengths = step.strengths
    lowest, highest = color.channel_limits(images)
    stretched = color.per_image(step.drew(Operation.AUTO_CONTRAST))
    table = color.stretch(
        color.grey_levels(images), torch.where(stretched, lowest, 0.0), torch.where(stretched, highest, color.LARGEST)
    )
    table = torch.where(color.per_image(step.drew(Operation.EQUALIZE)), color.equalizing_table(images), table)
    addition = step.pick(Operation.SOLARIZE_ADD, strengths.addition, 0.0)
    table = color.solarize_add(table, addition, strengths.add_below)
    table = color.solarize(table, _solarize_threshold(step))
    table = color.posterize(table, step.pick(Operation.POSTERIZE, strengths.bits, 8.0))
    contrasted = step.drew(Operation.CONTRAST)
    toned = contrasted | step.drew(Operation.BRIGHTNESS)
    dull = torch.where(color.per_image(contrasted), color.mean_grey(images), 0.0)
    return color.blend(dull, table, torch.where(toned, strengths.factor, 1.0))


def _solarize_threshold(step: Step) -> Tensor:
    """Return the level from which each image is inverted, shape (N,): to invert is to solarize from 0."""
    threshold = step.pick(Operation.SOLARIZE, step.strengths.threshold, float(color.LEVELS))
    threshold = step.pick(Operation.SOLARIZE_ADD, step.strengths.add_threshold, threshold)
    return step.pick(Operation.INVERT, 0.0, threshold)


def _matrix(step: Step, height: int, width: int) -> Matrix:
    """Return the affine map of each image's operation; the identity if it drew no geometric one."""
    strengths = step.strengths
    a, b, c, d, e, f = rotation(step.pick(Operation.ROTATE, strengths.degrees, 0.0), height, width)
    return (
        a,
        b + step.pick(Operation.SHEAR_X, strengths.shear, 0.0),
        c + step.pick(Operation.TRANSLATE_X, strengths.shift_x, 0.0),
        d + step.pick(Operation.SHEAR_Y, strengths.shear, 0.0),
        e,
        f + step.pick(Operation.TRANSLATE_Y, strengths.shift_y, 0.0),
    )


def rand_augment(images: Tensor, draws: Draws, operations: int, magnitude: int | None = None) -> Tensor:
    """Run n operations on each image, drawn independently for each.

    Args:
        images: grey levels, float32 of shape (N, C, H, W), C = 1 or 3.
        draws: for the samples.
        operations: n, how many to run.
        magnitude: m of 30, with the published ranges; None: drawn for each image and operation.

    Example:
        >>> draws = Draws(torch.tensor(0), torch.arange(4), torch.zeros(4, dtype=torch.int64))
        >>> rand_augment(torch.full((4, 3, 8, 8), 100.0), draws, 2).shape
        torch.Size([4, 3, 8, 8])
    """
    for index in range(operations):
        images = apply_step(images, draw_step(images, draws, index, magnitude))
    return images
