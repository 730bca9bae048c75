"""Pictures from files: every kind becomes RGB in a defined way, a broken one is named and never read as zeros."""

import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from surelabel.data.pictures import decode_picture
from surelabel.errors import DataError, InvalidInputError

SIDE = 4
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> io.BytesIO:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream


def photograph() -> Image.Image:
    """Something that compresses as photographs do: blocks with noise, 64 x 48."""
    generator = np.random.default_rng(0)
    blocks = np.kron(generator.integers(20, 236, (6, 8, 3)), np.ones((8, 8, 1), int))
    return Image.fromarray((blocks + generator.integers(-20, 20, blocks.shape)).astype(np.uint8))


def constant(color: tuple[int, ...]) -> np.ndarray:
    return np.tile(np.array(color, np.uint8)[:, None, None], (1, SIDE, SIDE))


def palette(transparent: int | None) -> io.BytesIO:
    image = Image.new("P", (9, 7), 1)
    image.putpalette([0, 0, 0, *GREEN])
    return saved(image, **({} if transparent is None else {"transparency": transparent}))


SIXTEEN = Image.fromarray(np.full((7, 9), 0x12FF, np.uint16))


@pytest.mark.parametrize(
    ("stream", "color"),
    [
        (saved(Image.new("RGB", (9, 7), (1, 2, 3))), (1, 2, 3)),
        (saved(Image.new("L", (9, 7), 90)), (90, 90, 90)),
        (saved(Image.new("L", (9, 7), 90), "JPEG"), (90, 90, 90)),
        (saved(Image.new("1", (9, 7), 1)), WHITE),
        (palette(None), GREEN),
        (palette(0), GREEN),
        (palette(1), WHITE),
        (saved(Image.new("LA", (9, 7), (90, 255))), (90, 90, 90)),
        (saved(Image.new("RGBA", (9, 7), (*RED, 0))), WHITE),
        (saved(Image.new("RGBA", (9, 7), (*RED, 51))), (255, 204, 204)),
        (saved(Image.new("CMYK", (9, 7), (0, 255, 255, 0)), "TIFF"), RED),
        (saved(Image.new("YCbCr", (9, 7), (76, 85, 255)), "TIFF"), (254, 0, 0)),
        (saved(SIXTEEN), (0x12,) * 3),
        (saved(SIXTEEN, "TIFF"), (0x12,) * 3),
        (io.BytesIO(b"P5 3 2 65535\n" + b"\x12\xff" * 6), (0x12,) * 3),
        (io.BytesIO(b"P6 3 2 255\n" + bytes((1, 2, 3)) * 6), (1, 2, 3)),
    ],
)
def test_every_kind_of_pixels_becomes_rgb(stream: io.BytesIO, color: tuple[int, ...]) -> None:
    x = decode_picture(stream, SIDE)
    assert x.dtype == np.uint8
    assert x.flags.c_contiguous
    assert np.array_equal(x, constant(color))


def test_a_cmyk_jpeg_has_the_colors_that_it_was_saved_with() -> None:
    # JPEGs of this kind hold inverted values.
    x = decode_picture(saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=100), SIDE)
    assert abs(x.astype(int) - constant(RED)).max() <= 3


def test_sixteen_bits_of_color_keep_the_upper_eight() -> None:
    row = b"\0" + struct.pack(">3H", 0x12FF, 0x8000, 0xFF00)
    x = decode_picture(io.BytesIO(png(1, 1, 16, 2, zlib.compress(row))), SIDE)
    assert np.array_equal(x, constant((0x12, 0x80, 0xFF)))


def png(width: int, height: int, bits: int, color: int, data: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


# How a camera that was turned stores the rows and columns of an upright picture, by the EXIF standard's table.
STORED_AS = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.transpose(1, 0, 2),
    6: lambda upright: upright.transpose(1, 0, 2)[::-1],
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),
    8: lambda upright: upright.transpose(1, 0, 2)[:, ::-1],
}


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", STORED_AS)
def test_a_turned_picture_is_set_upright(orientation: int, kind: str) -> None:
    upright = np.array([[RED, GREEN], [BLUE, WHITE]], np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(STORED_AS[orientation](upright)))
    assert np.array_equal(decode_picture(saved(stored, kind, exif=exif), 2), upright.transpose(2, 0, 1))


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_an_animation_the_first_frame_is_taken(kind: str) -> None:
    first, second = Image.new("RGB", (9, 7), RED), Image.new("RGB", (9, 7), BLUE)
    options = {"lossless": True} if kind == "WEBP" else {}
    stream = saved(first, kind, save_all=True, append_images=[second], **options)
    with Image.open(stream) as image:
        assert image.n_frames == 2
    assert np.array_equal(decode_picture(stream, SIDE), constant(RED))


def test_squash_keeps_the_borders_and_crop_keeps_the_aspect() -> None:
    thirds = Image.fromarray(np.repeat(np.array([[RED, GREEN, BLUE]], np.uint8), 8, axis=1).repeat(8, axis=0))
    assert thirds.size == (24, 8)
    squashed = decode_picture(saved(thirds), 3, "squash")
    assert squashed.argmax(axis=0).tolist() == [[0, 1, 2]] * 3
    assert np.array_equal(decode_picture(saved(thirds), 4, "crop"), constant(GREEN))
    high = thirds.transpose(Image.Transpose.TRANSPOSE)
    assert np.array_equal(decode_picture(saved(high), 4, "crop"), constant(GREEN))


def test_shrinking_averages_what_it_covers() -> None:
    board = Image.fromarray((np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8))
    x = decode_picture(saved(board), 8)
    assert abs(x[:, 1:-1, 1:-1].astype(int) - 127).max() <= 1


def test_a_picture_20000_pixels_wide_is_read() -> None:
    gradient = np.linspace(0, 255, 20_000).astype(np.uint8)
    stream = saved(Image.fromarray(np.tile(gradient, (64, 1))), "JPEG", quality=95)
    x = decode_picture(stream, 8)
    expected = gradient.reshape(8, -1).mean(axis=1)
    assert abs(x - expected).max() < 3


@pytest.mark.parametrize("size", [(20_000, 5_000), (20_000, 20_000)])
@pytest.mark.parametrize("action", ["error", "ignore"])
def test_more_pixels_than_the_limit_are_refused_before_they_are_read(size: tuple[int, int], action: Any) -> None:
    # Between once and twice its limit, Pillow only warns.
    stream = io.BytesIO(png(*size, 8, 2, b"never reached"))
    with warnings.catch_warnings():
        warnings.simplefilter(action, Image.DecompressionBombWarning)
        with pytest.raises(
            DataError, match=r"Picture 'wide.png' has more pixels than PIL.Image.MAX_IMAGE_PIXELS, 89478485 "
        ):
            decode_picture(stream, SIDE, name="wide.png")


def test_the_limit_can_be_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(DataError, match=r"MAX_IMAGE_PIXELS, 10 .*raise it"):
        decode_picture(saved(Image.new("RGB", (9, 7))), SIDE)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert decode_picture(saved(Image.new("RGB", (9, 7), RED)), SIDE)[0].min() == 255


@pytest.mark.parametrize(
    ("kind", "options"),
    [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {}), ("BMP", {}), ("WEBP", {}), ("PPM", {})],
)
def test_a_picture_cut_anywhere_is_named_or_was_whole(kind: str, options: dict[str, Any]) -> None:
    data = saved(photograph(), kind, **options).getvalue()
    whole = decode_picture(io.BytesIO(data), 16)
    lengths, refused = range(0, len(data), 1 + len(data) // 500), 0
    for length in lengths:
        try:
            x = decode_picture(io.BytesIO(data[:length]), 16, name="cut")
        except DataError as error:
            assert str(error).startswith("Picture 'cut' is")  # noqa: PT017 - the end of a file may be mere padding
            refused += 1
        else:
            assert np.array_equal(x, whole)
    assert refused > 0.9 * len(lengths)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_a_picture_changed_anywhere_is_read_or_named(kind: str) -> None:
    whole = saved(photograph(), kind).getvalue()
    generator = np.random.default_rng(0)
    for _ in range(100):
        changed = bytearray(whole)
        for _ in range(generator.integers(1, 5)):
            changed[generator.integers(min(len(whole), 600))] = generator.integers(256)
        try:
            x = decode_picture(io.BytesIO(changed), 16, name="changed")
        except DataError as error:
            assert "'changed'" in str(error)  # noqa: PT017 - many changes leave a readable picture
        else:
            assert x.shape == (3, 16, 16)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "page.jpg").write_text("<html>not found</html>")
    (tmp_path / "script.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    Image.fromarray(np.zeros((7, 9), np.float32)).save(tmp_path / "float.tif")
    Image.fromarray(np.full((7, 9), -5, np.int32)).save(tmp_path / "negative.tif")
    Image.new("LAB", (9, 7)).save(tmp_path / "lab.tif")
    for name, problem in (
        ("missing.jpg", "is not a file; check the path"),
        (
            "empty.jpg",
            "is empty, truncated, damaged or none of JPEG, PNG, GIF, BMP, TIFF, WEBP, PPM; get it again or convert it",
        ),
        ("page.jpg", "is empty, truncated, damaged or none of JPEG"),
        ("script.eps", "is empty, truncated, damaged or none of JPEG"),
        (".", "is not a file; check the path"),
        ("float.tif", "has pixels of the kind 'F', whose black and white are not known; save it with 8 or 16 bits"),
        ("negative.tif", "has pixels of the kind 'I'"),
        ("lab.tif", "has pixels of the kind 'LAB'"),
    ):
        with pytest.raises(DataError, match=rf"Picture '{tmp_path / name}' {problem}"):
            decode_picture(tmp_path / name, SIDE)


@pytest.mark.parametrize("fault", [OSError(5, "Input/output error"), MemoryError()])
def test_what_is_no_fault_of_the_picture_is_not_skipped(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise fault

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(type(fault)):
        decode_picture(saved(photograph()), SIDE)


def test_a_program_that_lets_pillow_fill_in_gray_is_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(InvalidInputError, match="LOAD_TRUNCATED_IMAGES .*; switch it off"):
        decode_picture(saved(photograph()), SIDE)


@pytest.mark.parametrize(("options", "name"), [({"side": 0}, "side"), ({"side": 4, "fit": "pad"}, "fit")])
def test_options_are_checked(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        decode_picture(saved(photograph()), **options)
