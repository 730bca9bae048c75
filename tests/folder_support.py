"""Small folders of files for the tests of `surelabel.kinds`: pictures and sounds that are easy to tell apart."""

import struct
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

QUICK = ("--rounds", "1", "--epochs", "1", "--passes", "3", "--no-compare", "--device", "cpu")
"""Options that make a fit short; `min_steps` is not an option, see the fixture `few_steps`."""
Write = Callable[[Path, int, int], None]
"""Writes a file of class 0 or 1, with this number."""


def write_picture(path: Path, of_class: int, number: int) -> None:
    """A gray picture that is bright on its left or on its right side."""
    pixels = np.random.default_rng(number).integers(0, 80, (12, 12), dtype=np.uint8)
    pixels[:, :6] += np.uint8(150 * (1 - of_class))
    pixels[:, 6:] += np.uint8(150 * of_class)
    Image.fromarray(pixels).save(path, "PNG")


def tone(of_class: int, number: int, rate: int = 8000, seconds: float = 0.3) -> np.ndarray:
    """A low or a high tone with some noise, float64 (N,) in -1 to 1."""
    generator = np.random.default_rng(number)
    time = np.arange(int(seconds * rate)) / rate
    return 0.5 * np.sin(2 * np.pi * (400 + 1600 * of_class + number) * time) + 0.01 * generator.normal(size=len(time))


def write_sound(path: Path, of_class: int, number: int) -> None:
    """A tone as WAV, 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes((32767 * tone(of_class, number)).astype("<i2").tobytes())


def write_folder(
    root: Path, write: Write = write_picture, ending: str = ".png", *, labeled: int = 4, pool: int = 12, first: int = 0
) -> Path:
    """Write root/cat, root/dog and root/unlabeled."""
    for of_class, name in enumerate(("cat", "dog")):
        (root / name).mkdir(parents=True)
        for number in range(labeled):
            write(root / name / f"{number}{ending}", of_class, first + 2 * number + of_class)
    if pool:
        (root / "unlabeled").mkdir()
    for number in range(pool):
        write(root / "unlabeled" / f"{number}{ending}", number % 2, first + 100 + number)
    return root


def wav_bytes(
    data: bytes, *, encoding: int = 1, channels: int = 1, rate: int = 8000, bits: int = 16, announced: int | None = None
) -> bytes:
    """Return a WAV file with these bytes of samples, whose header may announce another number of them."""
    size = channels * bits // 8
    kind = struct.pack("<HHIIHH", encoding, channels, rate, rate * size, size, bits)
    length = len(data) if announced is None else announced
    return b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt " + struct.pack("<I", 16) + kind + _data(length) + data


def _data(length: int) -> bytes:
    return b"data" + struct.pack("<I", length)
