"""RandAugment: a branch-free step does to each image what its drawn operation does alone, with the stated strengths."""

from collections.abc import Callable

import augment_support as alone
import numpy as np
import pytest
import torch
from augment_support import all_pictures, batch, draws_of, pictures, with_pillow
from PIL import Image, ImageEnhance, ImageOps

from surelabel.augment import color, geometry
from surelabel.augment.randaugment import (
    Operation,
    Step,
    Strengths,
    apply_step,
    draw_step,
    published_strengths,
    rand_augment,
    random_strengths,
)
from surelabel.errors import InvalidInputError

Alone = Callable[[torch.Tensor, Step], torch.Tensor]

# What each operation is as a function of its own.
ALONE: dict[Operation, Alone] = {
    Operation.IDENTITY: lambda x, s: x,
    Operation.AUTO_CONTRAST: lambda x, s: alone.auto_contrast(x),
    Operation.EQUALIZE: lambda x, s: alone.equalize(x),
    Operation.INVERT: lambda x, s: 255 - x,
    Operation.ROTATE: lambda x, s: alone.rotate(x, s.strengths.degrees),
    Operation.POSTERIZE: lambda x, s: color.posterize(x, s.strengths.bits),
    Operation.SOLARIZE: lambda x, s: color.solarize(x, s.strengths.threshold),
    Operation.SOLARIZE_ADD: lambda x, s: color.solarize_add(x, s.strengths.addition),
    Operation.COLOR: lambda x, s: color.color(x, s.strengths.factor),
    Operation.CONTRAST: lambda x, s: color.contrast(x, s.strengths.factor),
    Operation.BRIGHTNESS: lambda x, s: color.brightness(x, s.strengths.factor),
    Operation.SHARPNESS: lambda x, s: alone.sharpness(x, s.strengths.factor),
    Operation.SHEAR_X: lambda x, s: alone.shear_x(x, s.strengths.shear),
    Operation.SHEAR_Y: lambda x, s: alone.shear_y(x, s.strengths.shear),
    Operation.TRANSLATE_X: lambda x, s: alone.translate_x(x, s.strengths.shift_x),
    Operation.TRANSLATE_Y: lambda x, s: alone.translate_y(x, s.strengths.shift_y),
    Operation.CUT_OUT: lambda x, s: geometry.cut_out(x, s.strengths.side, s.center_x, s.center_y),
}


@pytest.mark.parametrize("grey", [False, True], ids=["colored", "grey"])
@pytest.mark.parametrize("operation", Operation)
def test_a_step_does_what_the_drawn_operation_does_alone(operation: Operation, grey: bool) -> None:
    images = batch(*all_pictures(grey=grey) * 4).to(torch.float32)
    drawn = draw_step(images, draws_of(np.arange(len(images))), 0, None)
    step = drawn._replace(operation=torch.full((len(images),), int(operation)))
    assert torch.equal(apply_step(images, step), ALONE[operation](images, step))


def test_every_image_of_a_mixed_batch_has_its_own_operation() -> None:
    images = batch(*[pictures()["photograph 1"]] * 400).to(torch.float32)
    step = draw_step(images, draws_of(np.arange(400)), 1, None)
    result = apply_step(images, step)
    for operation in Operation:
        rows = step.operation == operation
        assert rows.any()
        assert torch.equal(result[rows], ALONE[operation](images, step)[rows])


def _published_pillow(image: Image.Image, operation: Operation, sign: float, magnitude: int) -> Image.Image:
    """The published operations, written from their ranges: minimum + m / 30 of the range."""
    s = magnitude / 30
    factor = 0.1 + 1.8 * s
    enhancers = {
        Operation.COLOR: ImageEnhance.Color,
        Operation.CONTRAST: ImageEnhance.Contrast,
        Operation.BRIGHTNESS: ImageEnhance.Brightness,
        Operation.SHARPNESS: ImageEnhance.Sharpness,
    }
    matrices = {
        Operation.SHEAR_X: (1, sign * 0.3 * s, 0, 0, 1, 0),
        Operation.SHEAR_Y: (1, 0, 0, sign * 0.3 * s, 1, 0),
        Operation.TRANSLATE_X: (1, 0, sign * 100 * s, 0, 1, 0),
        Operation.TRANSLATE_Y: (1, 0, 0, 0, 1, sign * 100 * s),
    }
    if operation in enhancers:
        return enhancers[operation](image).enhance(factor)
    if operation in matrices:
        return image.transform(image.size, Image.Transform.AFFINE, matrices[operation])
    if operation == Operation.ROTATE:
        return image.rotate(sign * 30 * s)
    if operation == Operation.POSTERIZE:
        bits = int(4 * s)
        return ImageOps.posterize(image, bits) if bits else Image.new("RGB", image.size)
    if operation == Operation.SOLARIZE:
        return ImageOps.solarize(image, 256 * s)
    if operation == Operation.SOLARIZE_ADD:
        lighter = np.clip(np.asarray(image).astype(float) + 110 * s, 0, 255).astype(np.uint8)
        return ImageOps.solarize(Image.fromarray(lighter), 128)
    simple = {
        Operation.AUTO_CONTRAST: ImageOps.autocontrast,
        Operation.EQUALIZE: ImageOps.equalize,
        Operation.INVERT: ImageOps.invert,
    }
    return simple[operation](image)


GEOMETRIC = {
    Operation.ROTATE,
    Operation.SHEAR_X,
    Operation.SHEAR_Y,
    Operation.TRANSLATE_X,
    Operation.TRANSLATE_Y,
}


@pytest.mark.parametrize("magnitude", [0, 4, 10, 19, 30])
def test_a_fixed_magnitude_does_what_the_published_code_does(magnitude: int) -> None:
    chosen = all_pictures() * 12
    images = batch(*chosen).to(torch.float32)
    draws = draws_of(np.arange(len(images)))
    step = draw_step(images, draws, 0, magnitude)
    signs = draws.sign("randaugment 0 sign").tolist()
    result = apply_step(images, step)
    assert set(step.operation.tolist()) == set(Operation) - {Operation.IDENTITY}
    for row, image, drawn, sign in zip(result, chosen, step.operation.tolist(), signs, strict=True):
        operation = Operation(drawn)
        if operation == Operation.CUT_OUT:
            continue  # its center is drawn; the tests of holes compare it
        expected = with_pillow(lambda i, o=operation, s=sign: _published_pillow(i, o, s, magnitude), image)
        if operation in GEOMETRIC:
            assert (row == expected).all(0).to(torch.float32).mean() >= 0.995, operation
        else:
            assert (row - expected).abs().max() <= 1, operation


def test_published_cut_out_is_forty_pixels_at_the_highest_magnitude() -> None:
    one = torch.ones(1)
    assert [published_strengths(m, one).side for m in (0, 15, 30)] == [0, 20, 40]


def test_three_published_draws_leave_a_sixth_of_the_images_black_at_some_point() -> None:
    # One of the sixteen operations keeps no bits at a magnitude of 4: 1 - (15 / 16)^3 = 17.6 % of the images meet it.
    draws = draws_of(np.arange(20_000))
    nothing = torch.zeros(20_000, 1, 1, 1)
    drawn = torch.stack([draw_step(nothing, draws, index, 4).operation for index in range(3)])
    assert abs((drawn == Operation.POSTERIZE).any(0).double().mean() - 0.176) < 0.009  # 3.3 standard errors
    images = batch(*all_pictures() * 8).to(torch.float32)
    step = draw_step(images, draws_of(np.arange(len(images))), 0, 4)
    black = step.operation == Operation.POSTERIZE
    assert black.any()
    assert not apply_step(images, step)[black].any()


@pytest.mark.parametrize("magnitude", [None, 4])
def test_operations_are_drawn_evenly(magnitude: int | None) -> None:
    images = torch.zeros(34_000, 1, 1, 1)
    step = draw_step(images, draws_of(np.arange(34_000)), 0, magnitude)
    counts = np.bincount(step.operation.numpy(), minlength=17)
    drawn = counts if magnitude is None else counts[1:]
    expected = 34_000 / len(drawn)
    assert ((drawn - expected) ** 2 / expected).sum() < (39.3 if magnitude is None else 37.7)  # p = 0.001


def test_the_steps_of_an_image_are_drawn_independently() -> None:
    images = torch.zeros(20_000, 1, 1, 1)
    draws = draws_of(np.arange(20_000))
    first, second = (draw_step(images, draws, index, None).operation for index in (0, 1))
    table = np.histogram2d(first.numpy(), second.numpy(), bins=17, range=[[0, 17], [0, 17]])[0]
    expected = 20_000 / 17**2
    assert ((table - expected) ** 2 / expected).sum() < 366  # chi-square, 288 degrees of freedom, p = 0.001


def test_random_strengths_grow_from_nothing_to_their_bounds() -> None:
    one = torch.ones(1)
    weakest: Strengths = random_strengths(0 * one, one, 32, 40)
    values = {name: float(value) for name, value in weakest._asdict().items()}
    assert values == {
        "degrees": 0,
        "shear": 0,
        "shift_x": 0,
        "shift_y": 0,
        "bits": 8,
        "threshold": 256,
        "addition": 0,
        "add_below": 128,
        "add_threshold": 256,
        "factor": 1,
        "side": 0,
    }
    strongest = random_strengths(one * (1 - 2**-24), -one, 32, 40)
    expected = {"degrees": -30, "shear": -0.3, "shift_x": -12, "shift_y": -9.6, "bits": 4, "factor": 0.1, "side": 16}
    for name, value in expected.items():
        assert float(getattr(strongest, name)) == pytest.approx(value, abs=1e-4)


def test_each_number_of_bits_is_as_likely_as_another() -> None:
    strengths = random_strengths(draws_of(np.arange(50_000)).uniform("m"), torch.ones(50_000), 32, 32)
    assert isinstance(strengths.bits, torch.Tensor)
    counts = np.bincount(strengths.bits.numpy().astype(int), minlength=9)
    assert counts[:4].sum() == 0
    assert ((counts[4:] - 10_000) ** 2 / 10_000).sum() < 18.5  # chi-square, 4 degrees of freedom, p = 0.001


def test_images_without_color_channels_are_refused() -> None:
    with pytest.raises(
        InvalidInputError, match="channels for RandAugment. Got 4 channels instead; leave RandAugment out"
    ):
        rand_augment(torch.zeros(2, 4, 8, 8), draws_of(np.arange(2)), 1)
