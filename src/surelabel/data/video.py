"""A video as a few stretches of consecutive frames of one size, read with PyAV.

In the works that the paper follows, a network gets 16 consecutive frames of 112 x 112 pixels, in training from anywhere
in a video, and shorter videos are looped (Hara et al., 2018). All frames of UCF-101 would be 120 GB at that size, too
much to keep. So `passages` stretches of `frames` consecutive frames are kept of each video, spread evenly from its
beginning to its end, and slightly larger: training draws a window of 16 frames within a stretch, and a square within
the frames; a test takes the middle.

Frames are used in sequence, even if their rate varies. Pixels are treated as square.
"""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import PositiveInt

from surelabel.base.settings import Settings
from surelabel.base.text import shown
from surelabel.errors import DataError, SurelabelError

if TYPE_CHECKING:
    from av import VideoFrame

Clip = npt.NDArray[np.uint8]
"""Red, green and blue, (3, T, H, W)."""

COMPLETE = 0.9
"""The least share of the announced frames, or seconds, that a file must have; some announce one too many."""


class ClipSettings(Settings):
    """What is kept of a video: (3, passages * frames, height, width) bytes, 2.9 MB by default, 39 GB of UCF-101.

    Attributes:
        passages: how many stretches of consecutive frames, the first at the beginning and the last at the end; a single
            one is the middle. An odd number includes the video's middle, which a test uses.
        frames: of a passage; more than the 16 that a network gets leave room for temporal jitter.
        stride: keep every frame (1), every second one (2), and so on.
        height: of a frame, which is scaled until it covers height x width; its middle is kept.
        width: of a frame.

    Example:
        >>> ClipSettings(passages=2, frames=16).shape
        (3, 32, 128, 128)
    """

    kind: ClassVar = "clips"
    in_processes: ClassVar = True
    """A video can crash its decoder, so decoding runs in separate processes."""

    passages: PositiveInt = 3
    frames: PositiveInt = 20
    stride: PositiveInt = 1
    height: PositiveInt = 128
    width: PositiveInt = 128

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of a clip."""
        return 3, self.passages * self.frames, self.height, self.width

    def read(self, path: Path) -> Clip:
        """Decode a file."""
        return read_clip(path, self)


def kept_frames(count: int, settings: ClipSettings) -> npt.NDArray[np.int64]:
    """Return which of a video's frames are kept, passage after passage, shape (passages * frames,).

    A video that is shorter than a passage is looped: its first frame follows its last one.

    Args:
        count: how many frames the video has.
        settings: what is kept.

    >>> kept_frames(10, ClipSettings(passages=3, frames=2)).tolist()
    [0, 1, 4, 5, 8, 9]
    >>> kept_frames(3, ClipSettings(passages=1, frames=5)).tolist()
    [0, 1, 2, 0, 1]
    """
    within = settings.stride * np.arange(settings.frames)
    last = max(0, count - 1 - int(within[-1]))
    starts = np.array([last // 2]) if settings.passages == 1 else np.linspace(0, last, settings.passages).astype(int)
    return np.asarray((starts[:, None] + within).ravel() % count)


def read_clip(path: str | os.PathLike[str], settings: ClipSettings | None = None) -> Clip:
    """Return what is kept of a video, uint8 (3, T, H, W).

    A video that its metadata rotate or mirror is set upright, to the nearest quarter turn. It is refused if it has no
    video stream, cannot be decoded to its end, has damaged frames, or lacks a tenth of the announced frames (for
    Matroska and WebM, which announce none: of the seconds).

    Args:
        path: a file that FFmpeg reads: .avi, .mp4, .mkv, .webm, ...
        settings: what is kept of it.

    >>> read_clip("nowhere.avi")
    Traceback (most recent call last):
    surelabel.errors.DataError: Video 'nowhere.avi' cannot be read: it does not exist.
    """
    settings = settings or ClipSettings()
    path = Path(path)
    if not path.is_file():
        raise _unreadable(path, "it does not exist")
    kept, count, expected = _decode(path, settings)
    if count != expected:
        kept, count, _ = _decode(path, settings, count)
    frames = [kept[index] for index in kept_frames(count, settings).tolist()]
    return np.ascontiguousarray(np.stack(frames).transpose(3, 0, 1, 2))


def import_av() -> Any:
    """Return PyAV, which is an extra."""
    try:
        import av
    except ImportError as error:
        install = 'pip install "surelabel[video]"'
        raise SurelabelError(f"Videos need PyAV, which is not here ({error}); install it: {install}") from error
    return av


def _decode(
    path: Path, settings: ClipSettings, expected: int | None = None
) -> tuple[dict[int, npt.NDArray[np.uint8]], int, int]:
    """Return the frames to keep by their numbers, how many the video has, and how many were expected.

    Which frames to keep depends on their number, which is certain only at the end. Scaling all of them takes longer
    than decoding. So the announced number is used first; it is nearly always right.
    """
    av, kept, count, times, end = import_av(), {}, 0, list[float](), 0.0
    try:
        with av.open(str(path.absolute()), **_options(av.__version__)) as container:
            if not container.streams.video:
                raise _unreadable(path, "it has no video stream")
            stream = container.streams.video[0]
            stream.thread_count = 1  # several videos are decoded in parallel
            expected = stream.frames if expected is None else expected
            wanted = set(kept_frames(expected, settings).tolist()) if expected else set()
            # Formats other than Matroska and WebM may only estimate their length.
            is_announced = container.duration and "matroska" in container.format.name
            seconds = container.duration / av.time_base if is_announced else 0.0
            one_frame = 1 / float(stream.average_rate or 25)
            for packet in container.demux():
                is_video = packet.stream.index == stream.index
                # Sound may continue after the last frame: a truncated file ends early in all of its streams.
                if packet.pts is not None:
                    end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
                    if is_video:
                        times.append(float(packet.pts * packet.time_base))
                if not is_video:
                    continue
                for frame in packet.decode():
                    if frame.is_corrupt:
                        raise _unreadable(path, f"its frame {count + 1} is damaged")
                    if count in wanted:
                        kept[count] = _fitted(frame, settings)
                    count += 1
    except (av.FFmpegError, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = shown(getattr(error, "strerror", None) or error, quote=False, limit=120)
        raise _unreadable(path, f"{reason}, after {count} frames") from error
    if not count or count < COMPLETE * expected:
        raise _unreadable(path, f"it has {count} of the {expected} frames that it announces")
    # Some files do not give the duration of the last frame: the longest one before it is used.
    end = max(end, max(times, default=0.0) + max(np.diff(sorted(times)), default=one_frame))
    if end < COMPLETE * seconds:
        raise _unreadable(path, f"it has {end:.2f} of the {seconds:.2f} seconds that it announces")
    return kept, count, expected


def _options(version: str) -> dict[str, Any]:
    # Files only: a playlist must not make the decoder fetch what it names.
    options: dict[str, Any] = {"container_options": {"protocol_whitelist": "file"}}
    if int(version.partition(".")[0]) < 19:  # which reads titles in any encoding
        options["metadata_errors"] = "replace"
    return options


def _fitted(frame: "VideoFrame", settings: ClipSettings) -> npt.NDArray[np.uint8]:
    """Return a frame's middle at the size of the settings, (height, width, 3), upright."""
    mirrored, quarters = _display(frame)
    across = (settings.width, settings.height) if quarters % 2 == 0 else (settings.height, settings.width)
    scale = max(across[0] / frame.width, across[1] / frame.height)
    # Rounding must not leave a side too short.
    width, height = (
        max(round(scale * side), part) for side, part in zip((frame.width, frame.height), across, strict=True)
    )
    pixels = frame.to_ndarray(width=width, height=height, format="rgb24")
    left, top = (width - across[0]) // 2, (height - across[1]) // 2
    middle = pixels[top : top + across[1], left : left + across[0]]
    return np.rot90(middle[:, ::-1] if mirrored else middle, quarters)


def _display(frame: "VideoFrame") -> tuple[bool, int]:
    """Return whether to mirror a frame, left to right, and then how many quarter turns to the left."""
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return False, 0
    # A point (x, y), y downwards, is shown at (a x + c y, b x + d y).
    a, b, _, c, d = np.frombuffer(matrix, dtype=np.int32)[:5].tolist()  # type: ignore[call-overload]
    area = a * d - b * c
    if not area:  # shows nothing at all, so it is ignored
        return False, 0
    if area < 0:
        a, b = -a, -b
    return area < 0, round(-math.atan2(b, a) / (math.pi / 2))


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(f"Video '{path}' cannot be read: {reason}.")
