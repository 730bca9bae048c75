"""Small videos, encoded by the tests themselves, whose frames can be told apart."""

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

Frames = np.ndarray
"""uint8 of shape (T, H, W, 3)."""


def numbered(count: int, height: int = 16, width: int = 16, step: int = 7) -> Frames:
    """Frames of one gray level each: step, 2 step, ..."""
    levels = (step * np.arange(1, count + 1)).astype(np.uint8)
    return np.broadcast_to(levels[:, None, None, None], (count, height, width, 3)).copy()


def quadrants(count: int, height: int, width: int) -> Frames:
    """Frames whose quarters are red, green, blue and white, clockwise from the upper left."""
    frame = np.zeros((height, width, 3), dtype=np.uint8)
    middle, center = height // 2, width // 2
    frame[:middle, :center], frame[:middle, center:] = (255, 0, 0), (0, 255, 0)
    frame[middle:, center:], frame[middle:, :center] = (0, 0, 255), (255, 255, 255)
    return np.stack([frame] * count)


def write_video(
    path: Path, frames: Frames, codec: str = "ffv1", times: Sequence[int] | None = None, title: str = ""
) -> Path:
    """Encode frames, 25 a second or at these times of 1/100 s; ffv1 loses nothing and is for .avi and .mkv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        container.metadata["title"] = title
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "bgr0" if codec == "ffv1" else "yuv420p"
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 100)
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[number], Fraction(1, 100)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def write_clip(path: Path, of_class: int, number: int) -> None:
    """Write a few dark or bright frames, of class 0 or 1."""
    frames = np.random.default_rng(number).integers(0, 60, (6 + number % 5, 24, 32, 3)).astype(np.uint8)
    write_video(path, frames + np.uint8(150 * of_class))


def turn(path: Path, cosine: float, sine: float) -> None:
    """Write a rotation into the display matrix of an .mp4 file's track header."""
    show(path, cosine, sine, -sine, cosine)


def show(path: Path, a: float, b: float, c: float, d: float) -> None:
    """Write a display matrix into an .mp4 file's track header: (x, y) is shown at (a x + c y, b x + d y)."""
    data = bytearray(path.read_bytes())
    # Version and flags, two times, the track, its length, gaps, layer and volume come before the matrix.
    place = data.index(b"tkhd") + 44
    fixed = [round(value * 2**16) for value in (a, b, 0, c, d, 0, 0, 0)]
    data[place : place + 36] = struct.pack(">9i", *fixed, 2**30)
    path.write_bytes(data)
