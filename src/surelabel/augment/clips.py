"""Windows of clips and squares of frames: "spatial crop and temporal jittering", which the paper uses for video.

A clip is stored as `passages` stretches of consecutive frames, one after another. A window is a run of frames
within one stretch, so it never jumps from one stretch to the next. An image is a clip of one frame.
"""

import torch
from torch import Tensor

from surelabel.augment.draws import Draws
from surelabel.augment.settings import AugmentSettings
from surelabel.core.arrays import bad_argument
from surelabel.errors import InvalidInputError

Place = tuple[Tensor, Tensor, Tensor]
"""Where each cut begins: the first frame, row and column of each sample, int64 of shape (N,) each."""


def cut(clips: Tensor, place: Place, size: tuple[int, int, int]) -> Tensor:
    """Cut frames, rows and columns out of clips, each at its own place.

    Args:
        clips: shape (N, C, T, H, W).
        place: the first frame, row and column for each clip.
        size: how many frames, rows and columns, (t, h, w).

    Returns:
        Shape (N, t, C, h, w): frame by frame, as the image operations expect.

    Example:
        >>> clips = torch.arange(6).reshape(1, 1, 2, 1, 3)
        >>> cut(clips, (torch.tensor([1]), torch.tensor([0]), torch.tensor([1])), (1, 1, 2)).flatten().tolist()
        [4, 5]
    """
    frames, rows, columns = (
        first[:, None] + torch.arange(length, device=clips.device) for first, length in zip(place, size, strict=True)
    )
    samples = torch.arange(len(clips), device=clips.device)[:, None, None, None]
    chosen = clips[samples, :, frames[:, :, None, None], rows[:, None, :, None], columns[:, None, None, :]]
    return chosen.movedim(-1, 2)


def cut_size(shape: torch.Size, settings: AugmentSettings) -> tuple[int, int, int]:
    """Return how many frames, rows and columns are cut out of clips of this shape, (N, C, T, H, W).

    Example:
        >>> cut_size(torch.Size([8, 3, 60, 128, 171]), AugmentSettings(window=16, passages=3, side=112))
        (16, 112, 112)
    """
    frames, height, width = shape[2:]
    passages, window, side = settings.passages, settings.window, settings.side
    if frames % passages or window > frames // passages or (passages > 1 and not window):
        raise InvalidInputError(
            f"Clips of {frames} frames must have 'passages' stretches of equal length, each with room for a 'window'. "
            f"Got passages={passages} and window={window}; use the passages that the clips were stored with, and a "
            "window above 0 if there are several (16 is usual)."
        )
    if side > min(height, width):
        raise bad_argument("side", f"be no larger than the images, {(height, width)}", side, "112 of 128 is usual")
    return window or frames, side or height, side or width


def random_place(shape: torch.Size, size: tuple[int, int, int], passages: int, draws: Draws) -> Place:
    """Draw where each clip is cut: any passage, any window in it, any square."""
    length, frames = shape[2] // passages, size[0]
    first = draws.integer("passage", passages) * length + draws.integer("window", length - frames + 1)
    top, left = (
        draws.integer(f"cut {axis}", whole - part + 1)
        for axis, whole, part in zip("yx", shape[3:], size[1:], strict=True)
    )
    return first, top, left


def middle(clips: Tensor, size: tuple[int, int, int], passages: int, window: int = 0, windows: int = 1) -> Tensor:
    """Cut the middle window and square out of the middle passage of clips, shape (N, C, t, h, w).

    Args:
        clips: shape (N, C, T, H, W).
        size: how many frames, rows and columns, (t, h, w).
        passages: how many passages a clip consists of.
        window: which window, from 0.
        windows: how many windows there are, each in the middle of a passage; these passages are evenly spaced.

    Example:
        >>> clips = torch.arange(12).reshape(1, 1, 12, 1, 1)
        >>> middle(clips, (2, 1, 1), passages=3).flatten().tolist()
        [5, 6]
        >>> middle(clips, (2, 1, 1), passages=3, window=2, windows=3).flatten().tolist()
        [9, 10]
    """
    length = clips.shape[2] // passages
    passage = (2 * window + 1) * passages // (2 * windows)
    starts = (
        passage * length + (length - size[0]) // 2,
        *((whole - part) // 2 for whole, part in zip(clips.shape[3:], size[1:], strict=True)),
    )
    for axis, (start, count) in enumerate(zip(starts, size, strict=True), start=2):
        clips = clips.narrow(axis, start, count)
    return clips
