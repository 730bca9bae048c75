"""Sounds become spectrograms as the equations say, whatever their encoding; what cannot be read is one line."""

import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from folder_support import tone, wav_bytes
from scipy.signal import ShortTimeFFT
from scipy.signal.windows import hann

from surelabel.data import sound_files
from surelabel.data.sound_files import read_sound, sound_header
from surelabel.data.sounds import SoundSettings, filter_bank, mel_powers, spectrogram
from surelabel.errors import DataError, SurelabelError

SETTINGS = SoundSettings(highest=4000, mels=20, frames=30, window=0.032, hop=0.01)


def _reference_powers(x: np.ndarray, rate: int, settings: SoundSettings) -> np.ndarray:
    """The equation: scipy's transform of each stretch, then band by band and frequency by frequency."""
    length, hop = round(settings.window * rate), round(settings.hop * rate)
    count = 1 + int(np.ceil(max(0, len(x) - length) / hop))
    centered = np.pad(x - x.mean(), (0, (count - 1) * hop + length - len(x)))
    transform = ShortTimeFFT(hann(length, sym=False), hop=length, fs=rate, fft_mode="onesided", phase_shift=None)
    # Of a stretch alone, the window of which scipy lays the middle on its middle.
    pieces = [centered[t * hop : t * hop + length] for t in range(count)]
    spectra = [np.abs(transform.stft(piece, k_offset=-(length // 2))) ** 2 for piece in pieces]
    spectra = [spectrum[:, spectrum.sum(axis=0).argmax()] for spectrum in spectra]
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + settings.highest / 700), settings.mels + 2) / 2595) - 1)
    powers = np.zeros((settings.mels, count))
    for band in range(settings.mels):
        low, top, high = edges[band : band + 3]
        for k, hertz in enumerate(transform.f):
            weight = np.interp(hertz, [low, top, high], [0, 1, 0])
            powers[band] += weight * np.array([spectrum[k] for spectrum in spectra])
    return powers


def test_powers_are_those_of_the_equation() -> None:
    x = np.random.default_rng(0).normal(size=900).astype(np.float32) + 3
    found = mel_powers(x[:, None], 8000, SETTINGS)
    np.testing.assert_allclose(found, _reference_powers(x.astype(float), 8000, SETTINGS), rtol=1e-4, atol=1e-4)


def test_levels_are_decibels_below_the_loudest_place() -> None:
    x = (tone(0, 0) + 1e-3 * tone(1, 0)).astype(np.float32)[:, None]
    power = mel_powers(x, 8000, SETTINGS)
    levels = spectrogram(x, 8000, SETTINGS)[0]
    expected = np.clip(255 * (1 + 10 * np.log10(np.maximum(power / power.max(), 1e-300)) / 40), 0, 255)
    assert levels.max() == 255
    np.testing.assert_allclose(levels[:, 1 : 1 + power.shape[1]], expected, atol=0.51)
    np.testing.assert_array_equal(spectrogram(0.01 * x, 8000, SETTINGS)[0], levels)  # how loud it is does not matter


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000])
def test_every_band_hears_something_at_every_rate(rate: int) -> None:
    bank = filter_bank(40, 4000.0, rate, round(0.032 * rate))
    assert (bank.sum(axis=1) > 0).all()
    # Between the first and the last top the triangles add up to 1.
    hertz = np.arange(bank.shape[1]) * rate / round(0.032 * rate)
    inside = (hertz > 100) & (hertz < 3500)
    np.testing.assert_allclose(bank.sum(axis=0)[inside], 1)


@pytest.mark.parametrize("rate", [11025, 44100, 96000])
def test_a_sound_looks_alike_at_another_rate(rate: int) -> None:
    one = spectrogram(tone(1, 0).astype(np.float32)[:, None], 8000, SETTINGS).astype(int)
    other = spectrogram(tone(1, 0, rate).astype(np.float32)[:, None], rate, SETTINGS).astype(int)
    loud = one[0, :, 5] > 150
    assert loud.any()
    assert np.abs(one - other)[0, loud, 2:20].max() <= 8


def test_channels_are_averaged_and_cannot_cancel_each_other() -> None:
    x = tone(0, 0).astype(np.float32)
    mono = spectrogram(x[:, None], 8000, SETTINGS)
    np.testing.assert_array_equal(spectrogram(np.stack([x, x], axis=1), 8000, SETTINGS), mono)
    np.testing.assert_array_equal(spectrogram(np.stack([x, -x], axis=1), 8000, SETTINGS), mono)


def test_short_sounds_have_silence_around_them_and_of_long_ones_the_most_is_kept() -> None:
    x = tone(0, 0, seconds=0.1).astype(np.float32)
    short = spectrogram(x[:, None], 8000, SETTINGS)[0]
    assert short[:, 15].max() > 200
    assert not short[:, :11].any()
    assert not short[:, -11:].any()
    noise = 1e-6 * np.random.default_rng(0).normal(size=16000)
    noise[9000:11000] += tone(1, 0, seconds=0.25)
    long = spectrogram(noise.astype(np.float32)[:, None], 8000, SETTINGS)[0]
    assert long.shape == (20, 30)
    assert (long.max(axis=0) > 150).sum() >= 25


def test_the_quiet_around_a_sound_is_cut_off_where_it_is_asked_for() -> None:
    loud = np.sin(2 * np.pi * 1000 * np.arange(800) / 8000)
    hiss = 0.01 * np.random.default_rng(0).standard_normal(800)  # about 37 dB below the tone
    trimmed = SETTINGS.replace(quiet=30.0)
    first = {
        settings.quiet: [
            int(np.flatnonzero(spectrogram(np.concatenate(parts)[:, None], 8000, settings)[0].max(axis=0) > 100)[0])
            for parts in ((loud, hiss), (hiss, loud))
        ]
        for settings in (SETTINGS, trimmed)
    }
    assert abs(first[None][0] - first[None][1]) > 5, "the tone is where the recording has it"
    assert abs(first[30.0][0] - first[30.0][1]) <= 1, "it is in the middle"
    assert not spectrogram(np.zeros((4000, 1), np.float32), 8000, trimmed).any()


def test_silence_and_single_samples_are_sounds() -> None:
    assert not spectrogram(np.zeros((4000, 1), np.float32), 8000, SETTINGS).any()
    assert not spectrogram(np.full((4000, 2), 0.5, np.float32), 8000, SETTINGS).any()  # a constant is silence
    assert spectrogram(np.ones((1, 1), np.float32), 8000, SETTINGS).shape == (1, 20, 30)


def test_a_long_sound_is_transformed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(20_000, 2)).astype(np.float32)
    whole = mel_powers(x, 8000, SETTINGS)
    monkeypatch.setattr("surelabel.data.sounds._AT_ONCE", 4096)
    np.testing.assert_allclose(mel_powers(x, 8000, SETTINGS), whole)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_encoding_of_wav_is_read_as_soundfile_reads_it(tmp_path: Path, subtype: str, channels: int) -> None:
    x = np.stack([tone(channel, 0, 11025) for channel in range(channels)], axis=1)
    path = tmp_path / "sound.wav"
    soundfile.write(path, x, 11025, subtype=subtype)
    samples, rate = read_sound(path)
    expected, _ = soundfile.read(path, dtype="float32", always_2d=True)
    assert (rate, sound_header(path)) == (11025, (len(x), 11025, channels))
    np.testing.assert_allclose(samples, expected, atol=1e-7)


@pytest.mark.parametrize(("format", "subtype"), [("WAVEX", "PCM_24"), ("FLAC", "PCM_16"), ("FLAC", "PCM_24")])
def test_other_formats_are_read(tmp_path: Path, format: str, subtype: str) -> None:
    path = tmp_path / ("sound.flac" if format == "FLAC" else "sound.wav")
    soundfile.write(path, tone(0, 0, 96000), 96000, format=format, subtype=subtype)
    samples, rate = read_sound(path)
    assert rate == 96000
    np.testing.assert_allclose(samples[:, 0], tone(0, 0, 96000), atol=1e-4)


def test_wav_needs_no_soundfile_and_flac_names_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile.write(tmp_path / "a.flac", tone(0, 0), 8000)
    for subtype in ("PCM_24", "FLOAT"):
        soundfile.write(tmp_path / f"{subtype}.wav", tone(0, 0), 8000, subtype=subtype)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    for subtype in ("PCM_24", "FLOAT"):
        assert len(read_sound(tmp_path / f"{subtype}.wav")[0]) == 2400
    with pytest.raises(SurelabelError, match=r'need soundfile, which is not here .* pip install "surelabel\[audio\]"'):
        read_sound(tmp_path / "a.flac")


def _chunked(data: bytes) -> bytes:
    """A WAV file with a chunk of odd length before its samples."""
    whole = wav_bytes(data)
    return whole[:36] + b"LIST" + struct.pack("<I", 3) + b"abc\0" + whole[36:]


@pytest.mark.parametrize(
    ("content", "length"),
    [
        (wav_bytes(b"\1\0"), 1),
        (wav_bytes(b"\1\0" * 5 + b"\1"), 5),  # half a sample at the end
        (wav_bytes(b"\1\0" * 5, announced=0xFFFFFFFF), 5),  # written to a pipe
        (wav_bytes(b"\1\0" * 5, announced=0x7FFFF000), 5),
        (wav_bytes(b"\1\0" * 5) + b"id3 ", 5),
        (_chunked(b"\1\0" * 5), 5),
    ],
)
def test_unusual_wav_files_are_read(tmp_path: Path, content: bytes, length: int) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(content)
    assert len(read_sound(path)[0]) == length


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"RIFF", "it is truncated, damaged or no sound"),
        (b"hello, this is no sound", "it is truncated, damaged or no sound"),
        (wav_bytes(b"\1\0" * 5)[:36], "it ends before its samples"),
        (wav_bytes(b""), "it has no samples"),
        (wav_bytes(b"\1\0" * 5)[:-4], "it has 6 of the 10 bytes of samples that it announces"),
        (wav_bytes(b"\1\0" * 5, announced=10**9), "it has 10 of the 1000000000 bytes"),
        (wav_bytes(b"\1\0" * 5, rate=0), "it announces 1 channels and 0 samples a second"),
        (wav_bytes(b"\1\0" * 5, channels=0), "it announces 0 channels"),
        (wav_bytes(np.array([0, np.nan], "<f4").tobytes(), encoding=3, bits=32), "not finite numbers"),
        (wav_bytes(np.array([0, np.inf], "<f4").tobytes(), encoding=3, bits=32), "not finite numbers"),
        (wav_bytes(np.array([0, 1e300], "<f8").tobytes(), encoding=3, bits=64), "not finite numbers"),
        (wav_bytes(b"\1\0" * 5)[:12] + b"data" + struct.pack("<I", 2) + b"\0\0", "does not say what its samples are"),
    ],
)
def test_broken_files_are_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_sound(path)
    assert str(error.value).startswith(f"Sound '{path}' cannot be read: {reason.partition(' (')[0]}"[:40])
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert "get it again" in str(error.value)


def test_a_flac_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sound.flac"
    soundfile.write(path, tone(0, 0, seconds=5), 8000)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DataError, match="sound.flac' cannot be read"):
        read_sound(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (wav_bytes(b"\1\0" * 5, rate=1_100_000_000), "1 channels and 1,100,000,000 samples a second, and at most 64"),
        (
            wav_bytes(b"\1\0" * 500, channels=100),
            "100 channels and 8,000 samples a second, and at most 64 and 1,000,000",
        ),
        (wav_bytes(b"\1\0" * 30_000, rate=1), "8.3 hours by its 1 samples a second, and at most 6 are read; cut it"),
    ],
)
def test_headers_that_would_fill_the_memory_are_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(content)
    for read in (read_sound, sound_files.sound_header):
        with pytest.raises(DataError, match=problem):
            read(path)


def test_too_many_samples_and_missing_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound_files, "MOST_SAMPLES", 9)
    path = tmp_path / "sound.wav"
    path.write_bytes(wav_bytes(b"\1\0" * 10))
    with pytest.raises(DataError, match="has 10 samples, and at most 9 are read; cut it into shorter ones"):
        read_sound(path)
    with pytest.raises(DataError, match="is not a file; check the path"):
        read_sound(tmp_path / "nowhere.wav")
