"""Geometric operations against Pillow: the same pixel in at least 99.5 % of the places of every image."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from augment_support import (
    all_pictures,
    batch,
    pictures,
    rotate,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
    with_pillow,
)
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from surelabel.augment import geometry


def transformed(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


# (ours, Pillow's, parameters); the published magnitude 4 of 30 among them: 4 degrees, 0.04, 13.33 pixels
OPERATIONS: dict[str, tuple[Callable, Callable, list[float]]] = {
    "rotate": (rotate, Image.Image.rotate, [0, 4.0, -4.0, 7.3, -19.1, 30.0, -30.0, 45.0, 90.0, 180.0]),
    "shear x": (shear_x, lambda i, v: transformed(i, 1, v, 0, 0, 1, 0), [0, 0.04, -0.04, 0.1, 0.25, -0.3]),
    "shear y": (shear_y, lambda i, v: transformed(i, 1, 0, 0, v, 1, 0), [0, 0.04, -0.04, 0.1, 0.25, -0.3]),
    "translate x": (
        translate_x,
        lambda i, v: transformed(i, 1, 0, v, 0, 1, 0),
        [0, 13.333333, -13.333333, 0.4, 0.5, -0.5, 1.5, -9.6, 100.0],
    ),
    "translate y": (
        translate_y,
        lambda i, v: transformed(i, 1, 0, 0, 0, 1, v),
        [0, 13.333333, -13.333333, 0.4, 0.5, -0.5, 1.5, -9.6, 100.0],
    ),
}


def share_equal(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The share of pixels that agree in all channels."""
    return float((ours == theirs).all(0).to(torch.float32).mean())


@pytest.mark.parametrize("grey", [False, True], ids=["colored", "grey"])
@pytest.mark.parametrize("side", [32, 45])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_takes_the_same_pixels_as_pillow(name: str, side: int, grey: bool) -> None:
    ours, theirs, parameters = OPERATIONS[name]
    chosen = [(image, value) for image in all_pictures(side, grey) for value in parameters]
    images = batch(*(image for image, _ in chosen)).to(torch.float32)
    result = ours(images, torch.tensor([value for _, value in chosen]))
    for row, (image, value) in zip(result, chosen, strict=True):
        expected = with_pillow(lambda i, value=value: theirs(i, value), image)
        assert share_equal(row, expected) >= 0.995, (name, value)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_thousand_random_strengths_agree_with_pillow(name: str) -> None:
    ours, theirs, parameters = OPERATIONS[name]
    reach = {"rotate": 30.0}.get(name, max(parameters) if "translate" in name else 0.3)
    values = np.random.default_rng(1).uniform(-reach, reach, 1000).astype(np.float32)
    noise = pictures()["noise"]
    result = ours(batch(noise).to(torch.float32).expand(1000, -1, -1, -1), torch.from_numpy(values))
    shares = [
        share_equal(row, with_pillow(lambda i, v=float(value): theirs(i, v), noise))
        for row, value in zip(result, values, strict=True)
    ]
    assert min(shares) >= 0.995


def test_images_that_are_not_square_turn_about_their_middle() -> None:
    image = np.ascontiguousarray(pictures(45)["noise"][:20])
    for degrees in (10.0, -30.0, 77.0):
        result = rotate(batch(image).to(torch.float32), torch.tensor([degrees]))[0]
        assert share_equal(result, with_pillow(lambda i, v=degrees: i.rotate(v), image)) >= 0.995


def test_large_photographs_agree_too() -> None:
    image = pictures(224)["photograph 0"]
    images = batch(image).to(torch.float32)
    for name, value in (("rotate", 17.3), ("shear x", 0.04), ("shear y", -0.21), ("translate x", 33.4)):
        ours, theirs, _ = OPERATIONS[name]
        expected = with_pillow(lambda i, t=theirs, v=value: t(i, v), image)
        assert share_equal(ours(images, torch.tensor([value]))[0], expected) >= 0.995


def test_any_affine_map_agrees_with_pillow() -> None:
    random = np.random.default_rng(2)
    noise = pictures()["noise"]
    for _ in range(100):
        linear = np.eye(2) + random.uniform(-0.5, 0.5, (2, 2))
        offset = random.uniform(-8, 8, 2)
        values = np.array([*linear[0], offset[0], *linear[1], offset[1]], dtype=np.float32)
        matrix = tuple(torch.tensor([value]) for value in values)
        result = geometry.affine(batch(noise).to(torch.float32), matrix)[0]
        expected = with_pillow(lambda i, v=values: transformed(i, *map(float, v)), noise)
        assert share_equal(result, expected) >= 0.995


def _reference_flip_and_crop(image: np.ndarray, flipped: bool, right: int, down: int, pad: int) -> np.ndarray:
    turned = image[:, ::-1] if flipped else image
    padded = np.pad(turned, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    height, width = image.shape[:2]
    return padded[pad + down : pad + down + height, pad + right : pad + right + width]


@given(st.booleans(), st.integers(-4, 4), st.integers(-4, 4), st.integers(5, 9), st.integers(5, 9))
def test_flip_and_crop_is_a_flip_then_a_crop_of_the_reflected_image(
    flipped: bool, right: int, down: int, height: int, width: int
) -> None:
    image = np.random.default_rng(0).integers(0, 256, (height, width, 2), dtype=np.uint8)
    result = geometry.flip_and_crop(batch(image), torch.tensor([flipped]), torch.tensor([right]), torch.tensor([down]))
    assert torch.equal(result, batch(_reference_flip_and_crop(image, flipped, right, down, 4)))


def _reference_cut_out(image: np.ndarray, side: float, center_x: float, center_y: float) -> np.ndarray:
    result = image.copy()
    if side < 0:
        return result
    height, width, channels = image.shape
    left, top = int(max(0.0, center_x - side / 2)), int(max(0.0, center_y - side / 2))
    paint = [125, 123, 114] if channels == 3 else [123] * channels
    for y in range(height):
        for x in range(width):
            if left <= x <= left + side and top <= y <= top + side:
                result[y, x] = paint
    return result


boxes = st.tuples(st.floats(-1, 20, width=32), st.floats(0, 11.875, width=32), st.floats(0, 8.875, width=32))


@given(boxes, st.sampled_from([1, 2, 3]))
def test_cut_out_is_its_reference(box: tuple[float, float, float], channels: int) -> None:
    side, center_x, center_y = box
    image = np.random.default_rng(0).integers(0, 256, (9, 12, channels), dtype=np.uint8)
    result = geometry.cut_out(
        batch(image).to(torch.float32), torch.tensor([side]), torch.tensor([center_x]), torch.tensor([center_y])
    )
    assert torch.equal(result, batch(_reference_cut_out(image, *box)).to(torch.float32))


@given(boxes)
def test_cut_out_paints_the_rectangle_that_pillow_draws(box: tuple[float, float, float]) -> None:
    side, center_x, center_y = (float(value) for value in box)
    if side < 0:
        return
    image = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    left, top = int(max(0.0, center_x - side / 2)), int(max(0.0, center_y - side / 2))

    def painted(picture: Image.Image) -> Image.Image:
        corners = (left, top, min(12, int(left + side)), min(9, int(top + side)))
        ImageDraw.Draw(picture).rectangle(corners, (125, 123, 114))
        return picture

    result = geometry.cut_out(
        batch(image).to(torch.float32), torch.tensor([side]), torch.tensor([center_x]), torch.tensor([center_y])
    )[0]
    assert share_equal(result, with_pillow(painted, image)) == 1


@given(st.integers(1, 16), st.integers(0, 11), st.integers(0, 8))
def test_a_hole_is_the_clipped_square_of_zeros(side: int, center_x: int, center_y: int) -> None:
    expected = torch.ones(1, 4, 9, 12)
    half = side // 2
    expected[:, :, max(0, center_y - half) : center_y + half, max(0, center_x - half) : center_x + half] = 0
    result = geometry.hole(
        torch.ones(1, 4, 9, 12), torch.tensor([side]), torch.tensor([center_x]), torch.tensor([center_y])
    )
    assert torch.equal(result, expected)
