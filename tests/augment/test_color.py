"""Point operations and enhancements against Pillow: at most one grey level apart, on every pixel of every image."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from augment_support import all_pictures, auto_contrast, batch, equalize, sharpness, with_pillow
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image, ImageEnhance, ImageOps

from surelabel.augment import color

FACTORS = [0.0, 0.1, 0.34, 0.5, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 1.9, 3.0]

# (ours, Pillow's, parameters)
OPERATIONS: dict[str, tuple[Callable, Callable, list[float]]] = {
    "auto-contrast": (lambda x, _: auto_contrast(x), lambda i, _: ImageOps.autocontrast(i), [0.0]),
    "equalize": (lambda x, _: equalize(x), lambda i, _: ImageOps.equalize(i), [0.0]),
    "invert": (lambda x, _: 255 - x, lambda i, _: ImageOps.invert(i), [0.0]),
    "posterize": (color.posterize, lambda i, v: ImageOps.posterize(i, int(v)), [1, 2, 3, 4, 5, 6, 7, 8]),
    "solarize": (color.solarize, ImageOps.solarize, [0.0, 34.1, 64.0, 127.5, 128.0, 255.0, 256.0]),
    "brightness": (color.brightness, lambda i, v: ImageEnhance.Brightness(i).enhance(v), FACTORS),
    "contrast": (color.contrast, lambda i, v: ImageEnhance.Contrast(i).enhance(v), FACTORS),
    "color": (color.color, lambda i, v: ImageEnhance.Color(i).enhance(v), FACTORS),
    "sharpness": (sharpness, lambda i, v: ImageEnhance.Sharpness(i).enhance(v), FACTORS),
}


def largest_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs.to(torch.float32)).abs().max())


@pytest.mark.parametrize("grey", [False, True], ids=["colored", "grey"])
@pytest.mark.parametrize("side", [32, 45])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_within_one_grey_level_of_pillow(name: str, side: int, grey: bool) -> None:
    ours, theirs, parameters = OPERATIONS[name]
    pictures = [(image, value) for image in all_pictures(side, grey) for value in parameters]
    images = batch(*(image for image, _ in pictures)).to(torch.float32)
    result = ours(images, torch.tensor([value for _, value in pictures]))
    assert torch.equal(result, result.round().clamp(0, 255))
    for row, (image, value) in zip(result, pictures, strict=True):
        expected = with_pillow(lambda i, value=value: theirs(i, value), image)
        assert largest_difference(row, expected) <= 1, (name, value)


@pytest.mark.parametrize("name", ["equalize", "invert", "posterize", "solarize"])
def test_operations_on_whole_numbers_are_pillows_exactly(name: str) -> None:
    ours, theirs, parameters = OPERATIONS[name]
    for value in parameters:
        for image in all_pictures():
            result = ours(batch(image).to(torch.float32), torch.tensor([value]))[0]
            assert largest_difference(result, with_pillow(lambda i, v=value: theirs(i, v), image)) == 0


small_images = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=24))


@given(small_images)
def test_any_image_is_equalized_as_pillow_does_it(image: np.ndarray) -> None:
    result = equalize(batch(image).to(torch.float32))[0]
    assert largest_difference(result, with_pillow(ImageOps.equalize, image)) == 0


@given(small_images, st.sampled_from(FACTORS))
def test_any_image_is_sharpened_within_one_level_of_pillow(image: np.ndarray, factor: float) -> None:
    if min(image.shape) < 3:
        return  # Pillow filters only what has an inside
    result = sharpness(batch(image).to(torch.float32), torch.tensor([factor]))[0]
    expected = with_pillow(lambda i: ImageEnhance.Sharpness(i).enhance(factor), image)
    assert largest_difference(result, expected) <= 1


def test_grey_is_pillows_luma_for_every_corner_of_the_color_cube() -> None:
    levels = np.array([0, 1, 17, 64, 100, 127, 128, 200, 254, 255], dtype=np.uint8)
    cube = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(10, 100, 3)
    luma = color.grey(batch(cube).to(torch.float32))[0]
    assert largest_difference(luma, with_pillow(lambda i: i.convert("L"), cube)) == 0


def _reference_solarize_add(image: np.ndarray, addition: float, below: float) -> np.ndarray:
    result = image.copy()
    for position in np.ndindex(*image.shape):
        level = int(image[position])
        if level < below:
            result[position] = min(255, int(level + addition))
    return result


@pytest.mark.parametrize("addition", [0.0, 14.5, 14.7, 55.0, 110.0])
@pytest.mark.parametrize("below", [128.0, 256.0])
def test_solarize_add_is_its_reference(addition: float, below: float) -> None:
    chosen = all_pictures(9)
    result = color.solarize_add(batch(*chosen).to(torch.float32), torch.full((len(chosen),), addition), below)
    expected = batch(*(_reference_solarize_add(image, addition, below) for image in chosen))
    assert largest_difference(result, expected) == 0


def test_each_image_of_a_batch_has_its_own_parameter() -> None:
    images = torch.full((3, 1, 2, 2), 100.0)
    assert color.brightness(images, torch.tensor([0.5, 1.0, 2.0]))[:, 0, 0, 0].tolist() == [50, 100, 200]
    assert color.posterize(images, torch.tensor([0, 2, 8]))[:, 0, 0, 0].tolist() == [0, 64, 100]
    assert color.solarize(images, torch.tensor([0.0, 100.0, 101.0]))[:, 0, 0, 0].tolist() == [155, 155, 100]


def test_keeping_no_bits_leaves_black() -> None:
    # Pillow once did the same and refuses it today; the published code relies on it at low magnitudes.
    images = batch(*all_pictures()).to(torch.float32)
    assert not color.posterize(images, torch.zeros(len(images))).any()


def test_channels_are_stretched_and_equalized_one_by_one() -> None:
    image = np.zeros((16, 16, 3), dtype=np.uint8)
    image[..., 0] = np.arange(256).reshape(16, 16)
    image[..., 1] = np.arange(256).reshape(16, 16) // 4
    image[..., 2] = 9
    images = batch(image).to(torch.float32)
    assert auto_contrast(images).amax((2, 3)).tolist() == [[255, 255, 9]]
    assert equalize(images)[:, 2].unique().tolist() == [9]


def test_a_table_of_levels_looked_up_is_the_formula_on_the_image() -> None:
    images = batch(*all_pictures()).to(torch.float32)
    threshold = torch.linspace(0, 256, len(images))
    table = color.solarize(color.grey_levels(images), threshold)
    assert torch.equal(color.lookup(images, table), color.solarize(images, threshold))


def test_the_histogram_counts_every_pixel() -> None:
    images = batch(*all_pictures()).to(torch.float32)
    counts = color.histogram(images).numpy()
    for image, rows in zip(images.numpy().astype(int), counts, strict=True):
        assert np.array_equal(rows, [np.bincount(channel.ravel(), minlength=256) for channel in image])


def test_operations_that_need_no_color_take_any_number_of_channels() -> None:
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 5), dtype=np.uint8)
    images = batch(image).to(torch.float32)
    for name in ("auto-contrast", "equalize", "invert", "posterize", "solarize", "brightness", "sharpness"):
        ours, theirs, parameters = OPERATIONS[name]
        value = parameters[len(parameters) // 3]
        result = ours(images, torch.tensor([value]))
        for channel in range(5):
            expected = with_pillow(lambda i, v=value, t=theirs: t(i, v), np.ascontiguousarray(image[..., channel]))
            assert largest_difference(result[:, channel], expected) <= 1, name


def test_color_leaves_grey_images_as_they_are() -> None:
    images = batch(*all_pictures(grey=True)).to(torch.float32)
    assert torch.equal(color.color(images, torch.full((len(images),), 0.3)), images)


def test_pillow_and_the_tests_agree_on_what_a_batch_is() -> None:
    image = all_pictures()[0]
    assert torch.equal(with_pillow(lambda i: i, image), batch(image)[0])
    assert Image.fromarray(image).getpixel((3, 5)) == tuple(batch(image)[0, :, 5, 3].tolist())
