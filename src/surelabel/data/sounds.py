"""Sounds as pictures: log-mel spectrograms, uint8 (1, mels, frames).

Windows of `window` seconds, `hop` seconds apart, are weighted by the Hann function and Fourier transformed. The power
of each frequency is summed in triangular bands of equal width in mel(f) = 2595 log10(1 + f / 700):

    P[m, t] = sum_f triangle_m(f) |sum_n hann(n) x(t hop + n) exp(-2 pi i f n)|²
    level[m, t] = 255 (1 + log10(P[m, t] / max P) / 4), at least 0

So 255 is the loudest point of a sound, and 0 is 40 dB below it: background noise or silence. The overall loudness of a
recording is removed on purpose. Window and hop are in seconds and bands in Hertz, so a sound of another rate is not
resampled; bands above half its rate are silent. The powers of several channels are averaged, so that channels cannot
cancel each other.

The silence before and after a sound (columns far below its loudest one) can be cut off, because when a recording starts
is not informative. A shorter sound is then padded with silence on both sides. Of a longer one, the stretch with the
most sound is kept.
"""

from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from surelabel.base.settings import Settings
from surelabel.data.sound_files import Samples, read_sound

Floats = npt.NDArray[np.floating]

DECIBELS = 40.0
"""Decibels from the loudest point of a sound to what counts as silence."""
_AT_ONCE = 2**22
"""Values that are transformed together."""


class SoundSettings(Settings):
    """What is kept of a sound: (1, mels, frames) bytes.

    Attributes:
        highest: the upper end of the highest band, Hertz.
        mels: how many bands, the lowest frequencies first.
        frames: how many columns.
        window: seconds that a column is made of.
        hop: seconds from one column to the next.
        quiet: decibels; the first and last columns that are further than this below the loudest are cut off. None: all
            columns are kept.

    Example:
        >>> SoundSettings(highest=4000, mels=40, frames=64).shape
        (1, 40, 64)
    """

    kind: ClassVar = "sounds"
    in_processes: ClassVar = False
    """Fourier transforms release the interpreter lock, so threads run in parallel."""

    highest: float = Field(gt=0, le=1e6)
    mels: int = Field(40, ge=1, le=4096)
    frames: int = Field(64, ge=1, le=65_536)
    window: float = Field(0.032, ge=0.001, le=60)
    hop: float = Field(0.01, ge=0.001, le=60)
    quiet: float | None = Field(None, gt=0, le=1000)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of a decoded sound."""
        return 1, self.mels, self.frames

    def read(self, path: Path) -> npt.NDArray[np.uint8]:
        """Decode a file."""
        return spectrogram(*read_sound(path), self)


def spectrogram(samples: Samples, rate: int, settings: SoundSettings) -> npt.NDArray[np.uint8]:
    """Return the levels of a sound, uint8 (1, mels, frames).

    Args:
        samples: shape (N, channels), N > 0.
        rate: samples per second.
        settings: what is kept.

    >>> tone = np.sin(2 * np.pi * 1000 * np.arange(8000) / 8000)[:, None].astype(np.float32)
    >>> x = spectrogram(tone, 8000, SoundSettings(highest=4000, frames=50))
    >>> x.shape, int(x[0, :, 20].argmax())  # 1000 Hz are 1000 mel, of 2146
    ((1, 40, 50), 18)
    """
    power = mel_powers(samples, rate, settings)
    loudest = power.max()
    if loudest <= 0:
        return np.zeros(settings.shape, dtype=np.uint8)
    if settings.quiet is not None:
        column = power.sum(axis=0)
        heard = np.flatnonzero(column >= column.max() * 10 ** (-settings.quiet / 10))
        power = power[:, heard[0] : heard[-1] + 1]
    relative = np.maximum(power / loudest, 10 ** (-DECIBELS / 10))
    levels = np.rint(255 * (1 + 10 * np.log10(relative) / DECIBELS)).astype(np.uint8)
    return _fitted(levels, settings.frames)[None]


def mel_powers(samples: Samples, rate: int, settings: SoundSettings) -> Floats:
    """Return the power in each band over time, float64 (mels, T): the mean over channels.

    The mean of a channel's samples is subtracted. The last window is padded with silence.
    """
    length, hop = max(2, round(settings.window * rate)), max(1.0, settings.hop * rate)
    count = 1 + max(0, int(np.ceil((len(samples) - length) / hop)))
    starts = np.rint(hop * np.arange(count)).astype(np.int64)
    missing = max(0, int(starts[-1]) + length - len(samples))
    centered = np.pad(samples - samples.mean(axis=0), ((0, missing), (0, 0)))
    bank = filter_bank(settings.mels, settings.highest, rate, length)
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)).astype(np.float32)
    powers = np.empty((settings.mels, count))
    step = max(1, _AT_ONCE // (length * centered.shape[1]))
    for first in range(0, count, step):
        index = starts[first : first + step, None] + np.arange(length)
        stretches = centered[index] * hann[:, None]  # (t, length, channels)
        spectrum = np.fft.rfft(stretches, axis=1)
        powers[:, first : first + step] = bank @ (np.abs(spectrum) ** 2).mean(axis=2).T
    return powers


@lru_cache(maxsize=16)
def filter_bank(mels: int, highest: float, rate: int, length: int) -> Floats:
    """Return the weight of each frequency in each band, float64 (mels, length // 2 + 1).

    The edges of the bands are equally spaced in mel, from 0 to `highest`; band m rises from edge m to 1 at edge m + 1
    and falls to 0 at edge m + 2.

    >>> filter_bank(2, 2000.0, 8000, 8).round(2)  # frequencies 0, 1000, ..., 4000
    array([[0.  , 0.03, 0.  , 0.  , 0.  ],
           [0.  , 0.97, 0.  , 0.  , 0.  ]])
    """
    frequencies = np.arange(length // 2 + 1) * rate / length
    edges = 700 * (10 ** (np.linspace(0, _mel(highest), mels + 2) / 2595) - 1)
    left, top, right = (edges[start : start + mels, None] for start in range(3))
    rising, falling = (frequencies - left) / (top - left), (right - frequencies) / (right - top)
    bank = np.maximum(0.0, np.minimum(rising, falling))
    bank.flags.writeable = False
    return bank


def _mel(hertz: float) -> float:
    return 2595 * float(np.log10(1 + hertz / 700))


def _fitted(levels: npt.NDArray[np.uint8], frames: int) -> npt.NDArray[np.uint8]:
    """Return the given number of columns: the stretch with the most sound, or all, padded with silence."""
    count = levels.shape[1]
    if count <= frames:
        before = (frames - count) // 2
        return np.pad(levels, ((0, 0), (before, frames - count - before)))
    sums = np.cumsum(np.concatenate([[0], levels.sum(axis=0, dtype=np.int64)]))
    start = int(np.argmax(sums[frames:] - sums[:-frames]))
    return np.ascontiguousarray(levels[:, start : start + frames])
