"""The samples in a sound file. WAV with plain numbers is read here; FLAC and other encodings with soundfile, an extra.

A file that is empty, truncated or damaged, or holds values that are not numbers, is refused; it never becomes silence.
Damage that does not change a WAV file's length cannot be detected.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.text import shown
from surelabel.errors import DataError, SurelabelError

Samples = npt.NDArray[np.float32]
"""Shape (N, channels), in -1 to 1."""

MOST_SAMPLES = 100_000_000
"""The most samples of a file, over all channels: 400 MB as float32, 19 minutes of stereo at 44.1 kHz."""
MOST_SECONDS, MOST_CHANNELS, HIGHEST_RATE = 6 * 60 * 60, 64, 1_000_000
"""Larger values mean a damaged file, or would make a spectrogram that fills the memory."""

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_UNKNOWN_LENGTH = 0x7FFFF000
"""Programs that write to a pipe cannot go back to the header, and claim this length or more."""
_NUMBERS = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "u1",  # three bytes each, see `_to_floats`
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}


class SoundHeader(NamedTuple):
    """The header of a sound file.

    Attributes:
        length: samples in each channel.
        rate: samples per second.
        channels: one, two, ...
    """

    length: int
    rate: int
    channels: int

    @property
    def seconds(self) -> float:
        """How long the sound is."""
        return self.length / self.rate


class _Wav(NamedTuple):
    """Where a WAV file has its samples, and their type, a key of `_NUMBERS`."""

    header: SoundHeader
    numbers: tuple[int, int]
    start: int


def sound_header(path: Path) -> SoundHeader:
    """Return a file's length, rate and channels, from its header."""
    with _opened(path) as stream:
        wav = _wav(path, stream)
    if wav is not None:
        return wav.header
    with _faults_named(path), import_soundfile().SoundFile(path) as file:
        return _checked(path, SoundHeader(file.frames, file.samplerate, file.channels))


def read_sound(path: Path) -> tuple[Samples, int]:
    """Return the samples of a file, (N, channels), and the samples per second.

    >>> import tempfile, wave
    >>> path = Path(tempfile.mkdtemp(), "tone.wav")
    >>> with wave.open(str(path), "wb") as file:
    ...     file.setparams((1, 2, 8000, 0, "NONE", ""))
    ...     file.writeframes(np.array([0, 16384, -32768], dtype="<i2").tobytes())
    >>> samples, rate = read_sound(path)
    >>> samples.ravel().tolist(), rate
    ([0.0, 0.5, -1.0], 8000)
    """
    with _opened(path) as stream:
        wav = _wav(path, stream)
        if wav is not None:
            stream.seek(wav.start)
            size = wav.header.length * wav.header.channels * wav.numbers[1] // 8
            samples = _to_floats(stream.read(size), wav.numbers).reshape(-1, wav.header.channels)
            return _finite(path, samples, wav.header), wav.header.rate
    with _faults_named(path), import_soundfile().SoundFile(path) as file:
        header = _checked(path, SoundHeader(file.frames, file.samplerate, file.channels))
        samples = file.read(dtype="float32", always_2d=True)
    return _finite(path, samples, header), header.rate


def import_soundfile() -> Any:
    """Return soundfile, which is an extra."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the library that it wraps is missing
        what = "FLAC, and WAV files that are not plain PCM, need soundfile"
        reason = shown(error, quote=False, limit=120)
        install = 'pip install "surelabel[audio]"'
        raise SurelabelError(f"{what}, which is not here ({reason}); install it: {install}") from error
    return soundfile


def _wav(path: Path, stream: BinaryIO) -> _Wav | None:
    """Find the samples of a WAV file; None for another format or encoding."""
    first = stream.read(12)
    if not first:
        raise _unreadable(path, "it is empty")
    if first[:4] != b"RIFF" or first[8:] != b"WAVE":
        return None
    size, kind = os.fstat(stream.fileno()).st_size, b""
    while len(head := stream.read(8)) == 8:
        name, length = struct.unpack("<4sI", head)
        if name == b"data":
            if len(kind) < 16:
                raise _unreadable(path, "it does not say what its samples are")
            return _found(path, kind, stream.tell(), length, size)
        begin = stream.tell()
        if name == b"fmt ":
            kind = stream.read(min(length, 40))
        stream.seek(begin + length + length % 2)
    raise _unreadable(path, "it ends before its samples")


def _found(path: Path, kind: bytes, start: int, length: int, size: int) -> _Wav | None:
    """Return where the samples are, given their number of bytes in the header and the size of the file."""
    encoding, channels, rate, _, _, bits = struct.unpack("<HHIIHH", kind[:16])
    if encoding == _EXTENSIBLE and len(kind) >= 26:
        (encoding,) = struct.unpack("<H", kind[24:26])
    if (encoding, bits) not in _NUMBERS:
        return None
    if not channels or not rate:
        raise _unreadable(path, f"it announces {channels} channels and {rate} samples a second")
    left = size - start
    if length > left and length < _UNKNOWN_LENGTH:
        raise _unreadable(path, f"it has {left} of the {length} bytes of samples that it announces")
    count = min(length, left) // (channels * bits // 8)
    return _Wav(_checked(path, SoundHeader(count, rate, channels)), (encoding, bits), start)


def _checked(path: Path, header: SoundHeader) -> SoundHeader:
    """Refuse a sound without samples or with too many, before they are read."""
    if header.length < 1:
        raise _unreadable(path, "it has no samples")
    if header.length * header.channels > MOST_SAMPLES:
        total = f"{header.length * header.channels:,} samples, and at most {MOST_SAMPLES:,} are read"
        raise DataError(f"Sound '{path}' has {total}; cut it into shorter ones.")
    if header.channels > MOST_CHANNELS or header.rate > HIGHEST_RATE:
        found = f"{header.channels} channels and {header.rate:,} samples a second"
        most = f"{MOST_CHANNELS} and {HIGHEST_RATE:,}"
        raise DataError(f"Sound '{path}' announces {found}, and at most {most} are read; get or convert it again.")
    if header.seconds > MOST_SECONDS:
        found = f"{header.seconds / 3600:,.1f} hours by its {header.rate:,} samples a second"
        raise DataError(
            f"Sound '{path}' is of {found}, and at most {MOST_SECONDS // 3600} are read; cut it into shorter ones."
        )
    return header


def _to_floats(data: bytes, numbers: tuple[int, int]) -> Samples:
    """Return numbers of a file as float32, integers in -1 to 1."""
    values = np.frombuffer(data, dtype=_NUMBERS[numbers])
    encoding, bits = numbers
    if encoding == _FLOAT:
        with np.errstate(over="ignore"):  # values beyond float32 become infinite, and are refused
            return values.astype(np.float32)
    if bits == 8:
        return np.asarray((values.astype(np.float32) - 128) / 128, dtype=np.float32)
    if bits == 24:
        wide = np.zeros((len(values) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = values.reshape(-1, 3)
        values = wide.view("<i4").ravel()
        bits = 32
    return np.asarray(values.astype(np.float32) / 2 ** (bits - 1), dtype=np.float32)


def _finite(path: Path, samples: Samples, header: SoundHeader) -> Samples:
    """Return the samples; refuse missing ones and those that are not numbers."""
    if len(samples) < header.length:
        raise _unreadable(path, f"it has {len(samples)} of the {header.length} samples that it announces")
    if not np.isfinite(samples).all():
        raise _unreadable(path, "some of its samples are not finite numbers")
    return samples


@contextmanager
def _faults_named(path: Path) -> Iterator[None]:
    """Turn any error of soundfile on a file into one line that names the file."""
    try:
        yield
    except SurelabelError:
        raise
    except RuntimeError as error:  # as LibsndfileError is
        reason = shown(error, quote=False, limit=120)
        raise _unreadable(path, f"it is truncated, damaged or no sound ({reason})") from error


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise DataError(f"Sound '{path}' is not a file; check the path.") from error
    except PermissionError as error:
        raise DataError(f"Sound '{path}' may not be read; ask for permission to read it.") from error


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(f"Sound '{path}' cannot be read: {reason}; get it again.")
