"""Videos become stretches of frames of one size, whatever file they come in; what cannot be decoded is named."""

import json
import math
import pickle
import shutil
import signal
import subprocess
import sys
import wave
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_images
from video_support import numbered, quadrants, show, turn, write_video

from surelabel.data.clip_cache import decode_clips
from surelabel.data.images import data_folder
from surelabel.data.video import ClipSettings, kept_frames, read_clip
from surelabel.errors import DataError, InvalidInputError, SurelabelError

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
        decode_clips({"a": path}, tmp_path / "cache", SMALL)


@pytest.mark.parametrize("name", ["frames", "passages", "stride", "height"])
def test_settings_that_keep_nothing_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        ClipSettings(**{name: 0})


# Decoded once


@pytest.fixture
def videos(tmp_path: Path) -> dict[str, Path]:
    return {f"v{i}": write_video(tmp_path / f"v{i}.avi", numbered(6 + i)) for i in range(7)}


def decoded_now(videos: dict[str, Path], folder: Path, **options: object) -> int:
    """How many clips a call decodes."""
    totals = [0]
    decode_clips(videos, folder, SMALL, progress=lambda done, total: totals.append(total), workers=1, **options)
    return max(totals)


@pytest.mark.parametrize("workers", [1, 2])
def test_clips_are_decoded_once(tmp_path: Path, videos: dict[str, Path], workers: int) -> None:
    seen: list[tuple[int, int]] = []
    clips, faults = decode_clips(
        videos, tmp_path / "cache", SMALL, workers=workers, progress=lambda *at: seen.append(at)
    )
    assert seen == [(done, 7) for done in range(1, 8)]
    assert not faults
    assert clips.ids.tolist() == list(videos)
    assert clips.sample_shape == SMALL.shape
    assert np.array_equal(clips[np.arange(7)], np.stack([read_clip(path, SMALL) for path in videos.values()]))
    assert decoded_now(videos, tmp_path / "cache") == 0


def test_the_cache_is_an_npy_file_and_lines_of_json(tmp_path: Path, videos: dict[str, Path]) -> None:
    decode_clips(videos, tmp_path / "cache", SMALL, workers=1)
    (folder,) = (tmp_path / "cache").iterdir()
    assert np.load(folder / "clips.npy").shape == (7, *SMALL.shape)
    lines = [json.loads(line) for line in (folder / "clips.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == list(videos)
    assert json.loads((folder / "about.json").read_text())["settings"] == SMALL.model_dump()


def test_other_settings_and_other_videos_have_a_cache_of_their_own(tmp_path: Path, videos: dict[str, Path]) -> None:
    cache = tmp_path / "cache"
    assert decoded_now(videos, cache) == 7
    clips, _ = decode_clips(videos, cache, SMALL.replace(frames=2), workers=1)
    assert clips.sample_shape == (3, 4, 16, 16)
    fewer = {name: path for name, path in videos.items() if name != "v0"}
    assert decoded_now(fewer, cache) == 6
    assert decoded_now(videos, cache) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_work_goes_on_where_it_was(tmp_path: Path, videos: dict[str, Path], workers: int) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    cache = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        decode_clips(videos, cache, SMALL, workers=workers, progress=interrupt)
    assert decoded_now(videos, cache) == 4
    clips, _ = decode_clips(videos, cache, SMALL)
    assert np.array_equal(clips[np.arange(7)], np.stack([read_clip(path, SMALL) for path in videos.values()]))


KILLED = """
import os, signal, sys
from pathlib import Path
from surelabel.data import clip_cache
from surelabel.data.video import ClipSettings

clip_cache._FLUSHED_AT_ONCE = 2
videos = {{f"v{{i}}": Path({folder!r}) / f"v{{i}}.avi" for i in range(7)}}
kill = lambda done, total: done == 5 and os.kill(os.getpid(), signal.SIGKILL)
settings = ClipSettings.model_validate_json({settings!r})
clip_cache.decode_clips(videos, Path({cache!r}), settings, progress=kill, workers=2)
"""


def test_a_killed_process_loses_little_and_damages_nothing(tmp_path: Path, videos: dict[str, Path]) -> None:
    cache = tmp_path / "cache"
    code = KILLED.format(folder=str(tmp_path), cache=str(cache), settings=SMALL.model_dump_json())
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -signal.SIGKILL
    lines = next(cache.iterdir()) / "clips.jsonl"
    assert len(lines.read_text().splitlines()) == 4
    with lines.open("a") as stream:
        stream.write('{"name": "v6", "by')  # as a power failure would leave it
    assert decoded_now(videos, cache) == 3
    clips, _ = decode_clips(videos, cache, SMALL)
    assert np.array_equal(clips[np.arange(7)], np.stack([read_clip(path, SMALL) for path in videos.values()]))


def test_a_video_that_has_changed_is_decoded_again(tmp_path: Path, videos: dict[str, Path]) -> None:
    decode_clips(videos, tmp_path / "cache", SMALL, workers=1)
    write_video(videos["v2"], numbered(30, step=3))
    assert decoded_now(videos, tmp_path / "cache") == 1
    clips, _ = decode_clips(videos, tmp_path / "cache", SMALL)
    assert levels(clips[np.array([2])][0]) == [3, 6, 9, 84, 87, 90]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_video_that_cannot_be_decoded_stops_the_work_or_is_left_out(
    tmp_path: Path, videos: dict[str, Path], workers: int
) -> None:
    cache, whole = tmp_path / "cache", videos["v3"].read_bytes()
    videos["v3"].write_bytes(b"nothing")
    with pytest.raises(
        DataError, match=r"Video '.*v3.avi' cannot be read: .* leave such clips out with on_error='skip'"
    ):
        decode_clips(videos, cache, SMALL, workers=workers)
    with pytest.warns(UserWarning, match=r"1 of 7 clips are left out: 'v3'. Video '.*v3.avi' cannot be read"):
        clips, faults = decode_clips(videos, cache, SMALL, workers=workers, on_error="skip")
    assert clips.ids.tolist() == ["v0", "v1", "v2", "v4", "v5", "v6"]
    assert list(faults) == ["v3"]
    assert clips[np.arange(6)].any(axis=(1, 2, 3, 4)).all()
    videos["v3"].write_bytes(whole)
    assert decoded_now(videos, cache) == 1
    assert len(decode_clips(videos, cache, SMALL).clips) == 7


def test_a_video_that_crashes_its_decoder_ends_no_other(
    tmp_path: Path, videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A decoder as no test can wish for: the process that reads v3 dies as by a fault in a C library.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\nfrom surelabel.data import video\nread = video.read_clip\n"
        "video.read_clip = lambda path, *rest: "
        "os.kill(os.getpid(), signal.SIGSEGV) if 'v3' in path else read(path, *rest)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.warns(UserWarning, match=r"Video '.*v3.avi' cannot be read: its decoder ended with code -11"):
        clips, _ = decode_clips(videos, tmp_path / "cache", SMALL, workers=2, on_error="skip")
    assert len(clips) == 6


def test_processes_that_want_the_same_clips_decode_them_once(tmp_path: Path, videos: dict[str, Path]) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from surelabel.data.clip_cache import decode_clips; from surelabel.data.video import ClipSettings\n"
        f"videos = {{f'v{{i}}': Path({str(tmp_path)!r}) / f'v{{i}}.avi' for i in range(7)}}\n"
        "totals = [0]\n"
        f"decode_clips(videos, Path({str(tmp_path / 'cache')!r}), "
        f"ClipSettings.model_validate_json({SMALL.model_dump_json()!r}), "
        "workers=1, progress=lambda done, total: totals.append(total))\n"
        "print(max(totals))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(process.communicate()[0].strip() for process in both) == ["0", "7"]


def test_clips_in_another_process_are_mapped_anew_and_not_sent(tmp_path: Path, videos: dict[str, Path]) -> None:
    clips, _ = decode_clips(videos, tmp_path / "cache", SMALL)
    sent = pickle.dumps(clips)
    assert len(sent) < 2000
    assert np.array_equal(pickle.loads(sent)[np.arange(7)], clips[np.arange(7)])


def test_a_damaged_cache_is_named(tmp_path: Path, videos: dict[str, Path]) -> None:
    decode_clips(videos, tmp_path / "cache", SMALL, workers=1)
    (folder,) = (tmp_path / "cache").iterdir()
    array, lines = (folder / "clips.npy").read_bytes(), (folder / "clips.jsonl").read_bytes()
    (folder / "clips.npy").write_bytes(array[: len(array) // 2])
    with pytest.raises(
        DataError, match=r"clips.npy' is damaged .*; remove its folder, and the clips are decoded again"
    ):
        decode_clips(videos, tmp_path / "cache", SMALL)
    (folder / "clips.jsonl").write_bytes(b"{]\n" + lines)
    with pytest.raises(DataError, match=r"clips.jsonl' is damaged .*; remove its folder"):
        decode_clips(videos, tmp_path / "cache", SMALL)
    (folder / "clips.npy").unlink()
    assert decoded_now(videos, tmp_path / "cache") == 7


def test_a_disk_that_is_too_small_is_told_before_anything_is_decoded(
    tmp_path: Path, videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 1000))
    with pytest.raises(
        DataError, match=r"needs 0.0 GB for 7 decoded clips, and the disk has 0.0 GB free; name a folder"
    ):
        decode_clips(videos, tmp_path / "cache", SMALL)


FULL = """
import resource
from pathlib import Path
from surelabel.data.clip_cache import decode_clips
from surelabel.data.video import ClipSettings
from surelabel.errors import DataError

# Longer files cannot be written, neither here nor in the processes that are started.
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
videos = {{f"v{{i}}": Path({folder!r}) / f"v{{i}}.avi" for i in range(7)}}
settings = ClipSettings.model_validate_json({settings!r})
for workers in (1, 2):
    try:
        decode_clips(videos, Path({cache!r}), settings, on_error="skip", workers=workers)
    except DataError as error:
        print(error)
"""


def test_a_disk_that_becomes_full_stops_the_work_whatever_on_error_says(
    tmp_path: Path, videos: dict[str, Path]
) -> None:
    cache = tmp_path / "cache"
    decode_clips(videos, cache, SMALL, workers=1)
    (next(cache.iterdir()) / "clips.jsonl").unlink()
    code = FULL.format(folder=str(tmp_path), cache=str(cache), settings=SMALL.model_dump_json())
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.count("Decoded clips cannot be written to") == said.count("(File too large); name another folder") == 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, videos: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=r"cannot be written to '.*v0.avi/cache.* name another folder for the cache"):
        decode_clips(videos, videos["v0"] / "cache", SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, "'on_error' argument must be 'stop' or 'skip'. Got 'ignore' instead"),
        ({"workers": 0}, "'workers' argument must be at least 1. Got 0 instead"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, videos: dict[str, Path], options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        decode_clips(videos, tmp_path / "cache", SMALL, **options)


@pytest.mark.parametrize(("names", "wrong"), [(["v1", "v2"], "'v0', 'v3'"), ([*"aab", "v0"], "'v1', 'v2'")])
def test_names_that_do_not_fit_the_videos_are_refused(
    tmp_path: Path, videos: dict[str, Path], names: list[str], wrong: str
) -> None:
    with pytest.raises(
        InvalidInputError, match=rf"name each clip once, all those of 'videos' among them. Check {wrong}"
    ):
        decode_clips(videos, tmp_path / "cache", SMALL, names=names)
    with pytest.raises(InvalidInputError, match="Check 'v0'"):
        decode_clips(videos, tmp_path / "cache", SMALL, names=[*videos, "v0"])


def test_space_is_needed_for_what_is_decoded_and_not_for_what_is_listed(
    tmp_path: Path, videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = namedtuple("Usage", "free")(8 * math.prod(SMALL.shape))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    names = [*videos, *(f"other{number}" for number in range(1000))]
    assert len(decode_clips(videos, tmp_path / "cache", SMALL, names=names, workers=1).clips) == 7


def test_no_videos_and_missing_videos_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="'videos' argument must have at least one video"):
        decode_clips({}, tmp_path / "cache")
    with pytest.raises(DataError, match=r"1 of 1 videos do not exist, '.*gone.avi' first; check the paths"):
        decode_clips({"gone": tmp_path / "gone.avi"}, tmp_path / "cache")


def test_original_clips_of_ucf101_and_their_smaller_copies_look_alike() -> None:
    folder = data_folder() / "ucf3"
    if not folder.is_dir():
        pytest.skip(f"ucf3 is not in '{folder}'")
    for original in sorted((folder / "avi_samples").glob("*.avi"))[::3]:
        smaller = folder / original.stem.split("_")[1] / f"{original.stem}.mp4"
        first, second = (read_clip(path).astype(float) for path in (original, smaller))
        assert first.shape == (3, 60, 128, 128)
        assert np.corrcoef(first.ravel(), second.ravel())[0, 1] > 0.98
