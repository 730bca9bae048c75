"""Videos become stretches of frames of one size, whatever file they come in; what cannot be decoded is named."""

import math
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_images
from video_support import numbered, quadrants, show, turn, write_video

from surelabel.data.decoding import decode_files
from surelabel.data.images import data_folder
from surelabel.data.video import ClipSettings, kept_frames, read_clip
from surelabel.errors import DataError, SurelabelError

SMALL = ClipSettings(passages=2, frames=3, height=16, width=16)
ALL = np.arange(1000)


def levels(clip: np.ndarray) -> list[int]:
    """The gray level of each frame of a clip whose frames are of one level."""
    assert (clip == clip[:1, :, :1, :1]).all()
    return clip[0, :, 0, 0].tolist()


# What is kept of a video


@given(
    count=st.integers(1, 400),
    passages=st.integers(1, 6),
    frames=st.integers(1, 40),
    stride=st.integers(1, 4),
)
def test_passages_are_consecutive_frames_spread_from_the_beginning_to_the_end(
    count: int, passages: int, frames: int, stride: int
) -> None:
    kept = kept_frames(count, ClipSettings(passages=passages, frames=frames, stride=stride)).reshape(passages, frames)
    assert ((kept >= 0) & (kept < count)).all()
    # The frame after the last one is the first.
    assert ((kept[:, 1:] - kept[:, :-1]) % count == stride % count).all()
    span = (frames - 1) * stride + 1
    if count >= span:
        before, after = kept[:, 0], count - 1 - kept[:, -1]
        assert np.array_equal(before + after, [count - span] * passages)
        if passages > 1:
            assert before[0] == 0
            assert after[-1] == 0
            assert np.ptp(np.diff(before)) <= 1
        if passages % 2:
            assert abs(before[passages // 2] - after[passages // 2]) <= 1
    else:
        assert (kept[:, 0] == 0).all()


def test_the_kept_frames_of_a_video_are_its_own(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.avi", numbered(20))
    clip = read_clip(path, SMALL)
    assert clip.shape == (3, 6, 16, 16)
    assert clip.dtype == np.uint8
    assert levels(clip) == [7, 14, 21, 126, 133, 140]
    assert levels(read_clip(path, SMALL.replace(passages=1, stride=4))) == [42, 70, 98]


def test_a_video_that_is_shorter_than_a_window_is_looped(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.avi", numbered(5))
    assert levels(read_clip(path, SMALL.replace(passages=1, frames=16))) == [7, 14, 21, 28, 35] * 3 + [7]
    path = write_video(tmp_path / "one.avi", numbered(1))
    assert levels(read_clip(path, SMALL)) == [7] * 6


def test_a_file_that_does_not_announce_its_frames_gives_the_same(tmp_path: Path) -> None:
    frames = numbered(20)
    announced, silent = (read_clip(write_video(tmp_path / name, frames), SMALL) for name in ("a.avi", "a.mkv"))
    assert np.array_equal(announced, silent)


def test_frames_are_scaled_until_they_cover_the_size_and_the_middle_is_kept(tmp_path: Path) -> None:
    photograph = Image.fromarray(load_sample_images().images[0]).resize((320, 240))
    path = write_video(tmp_path / "a.avi", np.stack([np.asarray(photograph)] * 3))
    for height, width in ((120, 120), (60, 120), (200, 100)):
        clip = read_clip(path, ClipSettings(passages=1, frames=1, height=height, width=width))
        scale = max(height / 240, width / 320)
        scaled = photograph.resize((round(320 * scale), round(240 * scale)), Image.Resampling.BILINEAR)
        left, top = (scaled.width - width) // 2, (scaled.height - height) // 2
        expected = np.asarray(scaled.crop((left, top, left + width, top + height))).transpose(2, 0, 1)
        assert np.abs(clip[:, 0].astype(float) - expected).mean() < 2


@pytest.mark.parametrize("codec", ["mpeg4", "libx264"])
def test_lossy_codecs_are_read(tmp_path: Path, codec: str) -> None:
    path = write_video(tmp_path / "a.mp4", numbered(20, 32, 32), codec)
    clip = read_clip(path, SMALL)
    np.testing.assert_allclose(clip.mean((0, 2, 3)), [7, 14, 21, 126, 133, 140], atol=4)


def test_frames_at_a_variable_rate_are_taken_as_they_come(tmp_path: Path) -> None:
    times = np.cumsum([1, 30, 1, 1, 80, 4, 4, 100, 1, 1]).tolist()
    path = write_video(tmp_path / "a.mkv", numbered(10), times=times)
    assert levels(read_clip(path, ClipSettings(passages=1, frames=10, height=16, width=16))) == list(range(7, 71, 7))


@pytest.mark.parametrize(
    ("degrees", "upright"),
    [(0, 0), (90, 1), (180, 2), (270, 3), (100, 1), (-20, 0)],
)
def test_a_turned_video_is_turned_upright_to_the_nearest_quarter(tmp_path: Path, degrees: int, upright: int) -> None:
    path = write_video(tmp_path / "a.mp4", quadrants(5, 64, 32), "mpeg4")
    turn(path, math.cos(math.radians(degrees)), -math.sin(math.radians(degrees)))
    height, width = (64, 32) if upright % 2 == 0 else (32, 64)
    clip = read_clip(path, ClipSettings(passages=1, frames=2, height=height, width=width))
    expected = np.rot90(quadrants(1, 64, 32)[0], upright).transpose(2, 0, 1)
    assert np.abs(clip[:, 0].astype(float) - expected).mean() < 12


@pytest.mark.parametrize(
    ("matrix", "set_right"),
    [
        ((-1, 0, 0, 1), np.fliplr),
        ((1, 0, 0, -1), np.flipud),
        ((0, 1, 1, 0), lambda frame: frame.transpose(1, 0, 2)),
        ((0, -1, -1, 0), lambda frame: np.rot90(frame.transpose(1, 0, 2), 2)),
        ((0, 0, 0, 0), np.array),
    ],
    ids=["left and right", "up and down", "diagonal", "other diagonal", "a matrix that shows nothing"],
)
def test_a_mirrored_video_is_mirrored_back(tmp_path: Path, matrix: tuple[int, ...], set_right: Callable) -> None:
    path = write_video(tmp_path / "a.mp4", quadrants(5, 64, 32), "mpeg4")
    show(path, *matrix)
    expected = set_right(quadrants(1, 64, 32)[0])
    height, width = expected.shape[:2]
    clip = read_clip(path, ClipSettings(passages=1, frames=2, height=height, width=width))
    assert np.abs(clip[:, 0].astype(float) - expected.transpose(2, 0, 1)).mean() < 12


# What cannot be decoded


def broken(tmp_path: Path, kind: str) -> Path:
    noise = np.random.default_rng(0)
    path = write_video(tmp_path / f"{kind}.avi", noise.integers(0, 256, (60, 64, 64, 3), dtype=np.uint8), "mpeg4")
    data = path.read_bytes()
    if kind == "sound":
        with wave.open(str(path), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(8000)
            sound.writeframes(bytes(16000))
    else:
        half = len(data) // 2
        path.write_bytes(
            {
                "text": b"not a video\n",
                "empty": b"",
                "header": data[: data.index(b"movi")],
                "truncated": data[:half],
                "damaged": data[:half] + noise.bytes(600) + data[half + 600 :],
            }[kind]
        )
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("sound", "it has no video stream"),
        ("text", "Invalid data found when processing input, after 0 frames"),
        ("empty", "Invalid data found when processing input, after 0 frames"),
        ("header", "Invalid data found when processing input, after 0 frames"),
        ("truncated", r"its frame \d+ is damaged|it has \d+ of the 60 frames that it announces"),
        ("damaged", r"its frame \d+ is damaged|after \d+ frames"),
    ],
)
def test_a_video_that_cannot_be_decoded_is_named(tmp_path: Path, kind: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"Video '.*{kind}.avi' cannot be read: ({message})"):
        read_clip(broken(tmp_path, kind), SMALL)


@pytest.mark.parametrize(("share", "seconds"), [(0.6, r"1\.\d\d"), (0.3, r"0\.\d\d")])
def test_a_file_that_announces_seconds_and_not_frames_is_refused_where_it_ends_early(
    tmp_path: Path, share: float, seconds: str
) -> None:
    path = write_video(tmp_path / "cut.mkv", numbered(60, 64, 64, step=4))
    assert levels(read_clip(path, SMALL)) == [4, 8, 12, 232, 236, 240]
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    message = rf"Video '.*cut.mkv' cannot be read: it has {seconds} of the 2.40 seconds that it announces"
    with pytest.raises(DataError, match=message):
        read_clip(path, SMALL)


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_short_file_that_does_not_say_how_long_its_last_frame_is_is_whole(tmp_path: Path, count: int) -> None:
    path = write_video(tmp_path / "short.mkv", numbered(count, 64, 64), "libvpx")
    # An EBML void in the place of DefaultDuration.
    data = path.read_bytes()
    place = data.index(b"\x23\xe3\x83")
    length = 4 + (data[place + 3] & 0x7F)
    path.write_bytes(data[:place] + b"\xec" + bytes([0x80 | (length - 2)]) + bytes(length - 2) + data[place + length :])
    assert read_clip(path, SMALL).shape == (3, *SMALL.shape[1:])


def test_a_playlist_does_not_make_the_decoder_read_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "list.m3u8"
    path.write_text("#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n")
    with pytest.raises(DataError, match=r"Video '.*list.m3u8' cannot be read"):
        read_clip(path, SMALL)


def test_a_title_in_another_encoding_is_no_fault(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.avi", numbered(20), title="Caf\u00e9s")
    clip, data = read_clip(path, SMALL), path.read_bytes()
    path.write_bytes(data.replace("Caf\u00e9s".encode(), b"Caf\xe9ss"))
    assert path.read_bytes() != data
    assert np.array_equal(read_clip(path, SMALL), clip)


def test_without_pyav_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.avi", numbered(3))
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(SurelabelError, match=r'install it: pip install "surelabel\[video\]"'):
        read_clip(path, SMALL)
    with pytest.raises(SurelabelError, match=r'install it: pip install "surelabel\[video\]"'):
        decode_files({"a": path}, tmp_path / "cache", SMALL, workers=0)


@pytest.mark.parametrize("name", ["frames", "passages", "stride", "height"])
def test_settings_that_keep_nothing_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        ClipSettings(**{name: 0})


def test_original_clips_of_ucf101_and_their_smaller_copies_look_alike() -> None:
    folder = data_folder() / "ucf3"
    if not folder.is_dir():
        pytest.skip(f"ucf3 is not in '{folder}'")
    for original in sorted((folder / "avi_samples").glob("*.avi"))[::3]:
        smaller = folder / original.stem.split("_")[1] / f"{original.stem}.mp4"
        first, second = (read_clip(path).astype(float) for path in (original, smaller))
        assert first.shape == (3, 60, 128, 128)
        assert np.corrcoef(first.ravel(), second.ravel())[0, 1] > 0.98
