"""Pictures and videos are decoded once, again when a file changed, never half, and one that cannot be is named."""

import json
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from video_support import numbered, write_video

from surelabel.data.decoding import DecodeSettings, decode_files, watched
from surelabel.data.pictures import PictureSettings
from surelabel.data.source import Source, as_source
from surelabel.data.video import ClipSettings
from surelabel.errors import DataError, InvalidInputError

CLIPS = ClipSettings(passages=2, frames=3, height=16, width=16)
PICTURES = PictureSettings(side=4)
ALL = np.arange(7)
Files = dict[str, Path]


@pytest.fixture(params=[PICTURES, CLIPS], ids=["pictures", "clips"])
def settings(request: pytest.FixtureRequest) -> DecodeSettings:
    return request.param


@pytest.fixture
def files(tmp_path: Path, settings: DecodeSettings) -> Files:
    files = {f"v{i}": tmp_path / f"v{i}.{'avi' if settings.in_processes else 'png'}" for i in range(7)}
    for number, path in enumerate(files.values()):
        write(path, number)
    return files


@pytest.fixture
def videos(tmp_path: Path) -> Files:
    return {f"v{i}": write_video(tmp_path / f"v{i}.avi", numbered(6 + i)) for i in range(7)}


def write(path: Path, number: int) -> None:
    if path.suffix == ".avi":
        write_video(path, numbered(6 + number))
    else:
        Image.new("L", (12 + number, 8), 10 * number + 5).save(path)


def same(samples: Source, files: Files, settings: DecodeSettings) -> bool:
    """Whether samples are what the files hold."""
    return np.array_equal(samples[np.arange(len(samples))], np.stack([settings.read(path) for path in files.values()]))


def decoded_now(files: Files, folder: Path, settings: DecodeSettings, **options: object) -> int:
    """How many files a call decodes."""
    totals = [0]
    with watched(lambda what, done, total: totals.append(total)):
        decode_files(files, folder, settings, workers=0, **options)
    return max(totals)


@pytest.mark.parametrize("workers", [0, 2])
def test_files_are_decoded_once(tmp_path: Path, files: Files, settings: DecodeSettings, workers: int) -> None:
    seen: list[tuple[str, int, int]] = []
    with watched(lambda *at: seen.append(at)):
        samples, faults = decode_files(files, tmp_path / "cache", settings, workers=workers)
    assert seen == [(settings.kind, done, 7) for done in range(1, 8)]
    assert not faults
    assert samples.ids.tolist() == list(files)
    assert samples.sample_shape == settings.shape
    assert as_source("unlabeled", samples) is samples
    assert same(samples, files, settings)
    assert decoded_now(files, tmp_path / "cache", settings) == 0


def test_the_cache_is_an_npy_file_and_lines_of_json(tmp_path: Path, files: Files, settings: DecodeSettings) -> None:
    decode_files(files, tmp_path / "cache", settings, workers=0)
    (folder,) = (tmp_path / "cache").iterdir()
    assert np.load(folder / f"{settings.kind}.npy").shape == (7, *settings.shape)
    lines = [json.loads(line) for line in (folder / f"{settings.kind}.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == list(files)
    assert json.loads((folder / "about.json").read_text())["settings"] == settings.model_dump()


def test_the_cache_of_clips_keeps_its_name(tmp_path: Path, videos: Files) -> None:
    """Decoding UCF-101 takes hours: another name would have it decoded again."""
    decode_files(videos, tmp_path / "cache", CLIPS, workers=0)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["79d0f635e10f77d4"]


def test_other_settings_and_other_files_have_a_cache_of_their_own(tmp_path: Path, videos: Files) -> None:
    cache = tmp_path / "cache"
    assert decoded_now(videos, cache, CLIPS) == 7
    clips, _ = decode_files(videos, cache, CLIPS.replace(frames=2), workers=0)
    assert clips.sample_shape == (3, 4, 16, 16)
    fewer = {name: path for name, path in videos.items() if name != "v0"}
    assert decoded_now(fewer, cache, CLIPS) == 6
    assert decoded_now(videos, cache, CLIPS) == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_interrupted_work_goes_on_where_it_was(
    tmp_path: Path, files: Files, settings: DecodeSettings, workers: int
) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    cache = tmp_path / "cache"
    with watched(interrupt), pytest.raises(KeyboardInterrupt):
        decode_files(files, cache, settings, workers=workers)
    assert decoded_now(files, cache, settings) == 4
    assert same(decode_files(files, cache, settings).samples, files, settings)


KILLED = """
import os, signal
from pathlib import Path
from surelabel.data import decoding
from surelabel.data.video import ClipSettings

decoding._FLUSHED_AT_ONCE = 2
videos = {{f"v{{i}}": Path({folder!r}) / f"v{{i}}.avi" for i in range(7)}}
kill = lambda what, done, total: done == 5 and os.kill(os.getpid(), signal.SIGKILL)
settings = ClipSettings.model_validate_json({settings!r})
with decoding.watched(kill):
    decoding.decode_files(videos, Path({cache!r}), settings, workers=2)
"""


def test_a_killed_process_loses_little_and_damages_nothing(tmp_path: Path, videos: Files) -> None:
    cache = tmp_path / "cache"
    code = KILLED.format(folder=str(tmp_path), cache=str(cache), settings=CLIPS.model_dump_json())
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -signal.SIGKILL
    lines = next(cache.iterdir()) / "clips.jsonl"
    assert len(lines.read_text().splitlines()) == 4
    with lines.open("a") as stream:
        stream.write('{"name": "v6", "by')  # as a power failure would leave it
    assert decoded_now(videos, cache, CLIPS) == 3
    assert same(decode_files(videos, cache, CLIPS).samples, videos, CLIPS)


def test_a_file_that_has_changed_is_decoded_again(tmp_path: Path, files: Files, settings: DecodeSettings) -> None:
    decode_files(files, tmp_path / "cache", settings, workers=0)
    write(files["v2"], 20)
    os.utime(files["v5"], ns=(1, 1))  # of the same size
    assert decoded_now(files, tmp_path / "cache", settings) == 2
    assert same(decode_files(files, tmp_path / "cache", settings).samples, files, settings)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_cannot_be_decoded_stops_the_work_or_is_left_out(
    tmp_path: Path, files: Files, settings: DecodeSettings, workers: int
) -> None:
    cache, whole = tmp_path / "cache", files["v3"].read_bytes()
    files["v3"].write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"'.*v3\..*' .* leave such (clips|pictures) out: --on-error skip"):
        decode_files(files, cache, settings, workers=workers)
    told = r"1 of 7 (clips|pictures) cannot be decoded and are left out: 'v3'. .*v3\."
    for _ in range(2):
        with pytest.warns(UserWarning, match=told):
            samples, faults = decode_files(files, cache, settings, workers=workers, on_error="skip")
        assert samples.ids.tolist() == ["v0", "v1", "v2", "v4", "v5", "v6"]
        assert samples.index.tolist() == [0, 1, 2, 4, 5, 6]
        assert list(faults) == ["v3"]
        assert samples[np.arange(6)].reshape(6, -1).any(axis=1).all()
    files["v3"].write_bytes(whole)
    assert decoded_now(files, cache, settings) == 1
    assert len(decode_files(files, cache, settings).samples) == 7


def test_not_all_files_may_be_left_out(tmp_path: Path, files: Files, settings: DecodeSettings) -> None:
    for path in files.values():
        path.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"None of the 7 (clips|pictures) can be decoded. .*v0"):
        decode_files(files, tmp_path / "cache", settings, workers=0, on_error="skip")


def test_a_video_that_crashes_its_decoder_ends_no_other(
    tmp_path: Path, videos: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A decoder as no test can wish for: the process that reads v3 or v5 dies as by a fault in a C library.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\nfrom surelabel.data import video\nread = video.read_clip\n"
        "video.read_clip = lambda path, *rest: "
        "os.kill(os.getpid(), signal.SIGSEGV) if path.stem in ('v3', 'v5') else read(path, *rest)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with pytest.warns(UserWarning, match=r"left out: 'v3', 'v5'. File '.*v3.avi' crashes its decoder"):
        clips, _ = decode_files(videos, tmp_path / "cache", CLIPS, workers=2, on_error="skip")
    assert len(clips) == 5


def test_processes_that_want_the_same_clips_decode_them_once(tmp_path: Path, videos: Files) -> None:
    code = (
        "from pathlib import Path\n"
        "from surelabel.data.decoding import decode_files, watched; from surelabel.data.video import ClipSettings\n"
        f"videos = {{f'v{{i}}': Path({str(tmp_path)!r}) / f'v{{i}}.avi' for i in range(7)}}\n"
        "totals = [0]\n"
        "with watched(lambda what, done, total: totals.append(total)):\n"
        f"    decode_files(videos, Path({str(tmp_path / 'cache')!r}), "
        f"ClipSettings.model_validate_json({CLIPS.model_dump_json()!r}), workers=0)\n"
        "print(max(totals))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(process.communicate()[0].strip() for process in both) == ["0", "7"]


def test_samples_in_another_process_are_mapped_anew_and_not_sent(
    tmp_path: Path, files: Files, settings: DecodeSettings
) -> None:
    samples, _ = decode_files(files, tmp_path / "cache", settings, workers=0)
    sent = pickle.dumps(samples)
    assert len(sent) < 2000
    assert np.array_equal(pickle.loads(sent)[ALL], samples[ALL])


def test_a_damaged_cache_is_named(tmp_path: Path, files: Files, settings: DecodeSettings) -> None:
    decode_files(files, tmp_path / "cache", settings, workers=0)
    (folder,) = (tmp_path / "cache").iterdir()
    path, lines = folder / f"{settings.kind}.npy", folder / f"{settings.kind}.jsonl"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"\x93NUMPY\x01\x00v\x00{'descr", b""):
        path.write_bytes(content)
        with pytest.raises(
            DataError, match=rf"{path}' is damaged .*; remove its folder, and the files are decoded again"
        ):
            decode_files(files, tmp_path / "cache", settings)
    np.save(path, np.zeros((2, 3), np.uint8))
    with pytest.raises(DataError, match=r"holds uint8 \(2, 3\), not uint8 \(7, 3, "):
        decode_files(files, tmp_path / "cache", settings)
    lines.write_bytes(b"{]\n" + lines.read_bytes())
    with pytest.raises(DataError, match=rf"{lines}' is damaged .*; remove its folder"):
        decode_files(files, tmp_path / "cache", settings)
    path.unlink()
    assert decoded_now(files, tmp_path / "cache", settings) == 7


def test_a_disk_that_is_too_small_is_told_before_anything_is_decoded(
    tmp_path: Path, videos: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 1000))
    with pytest.raises(DataError, match=r"needs 0.0 GB for 7 decoded clips, and 0.0 GB are free; name another folder"):
        decode_files(videos, tmp_path / "cache", CLIPS)


FULL = """
import resource
from pathlib import Path
from surelabel.data.decoding import decode_files
from surelabel.data.video import ClipSettings
from surelabel.errors import DataError

# Longer files cannot be written, neither here nor in the processes that are started.
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
videos = {{f"v{{i}}": Path({folder!r}) / f"v{{i}}.avi" for i in range(7)}}
settings = ClipSettings.model_validate_json({settings!r})
for workers in (0, 2):
    try:
        decode_files(videos, Path({cache!r}), settings, on_error="skip", workers=workers)
    except DataError as error:
        print(error)
"""


def test_a_disk_that_becomes_full_stops_the_work_whatever_on_error_says(tmp_path: Path, videos: Files) -> None:
    cache = tmp_path / "cache"
    decode_files(videos, cache, CLIPS, workers=0)
    (next(cache.iterdir()) / "clips.jsonl").unlink()
    code = FULL.format(folder=str(tmp_path), cache=str(cache), settings=CLIPS.model_dump_json())
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert (
        said.count("Decoded files cannot be written to")
        == said.count("(File too large); free space, or name another folder")
        == 2
    )


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, videos: Files) -> None:
    with pytest.raises(
        DataError,
        match=r"cannot be written to '.*v0.avi/cache.* or name another folder for the cache with SURELABEL_DATA",
    ):
        decode_files(videos, videos["v0"] / "cache", CLIPS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, "on_error must be 'stop' or 'skip'; got 'ignore'"),
        ({"workers": -1}, "workers must be at least 0, .* got -1"),
        ({"names": ["v1", "v2"]}, "name each sample once, all of files among them; check 'v0', 'v3'"),
        ({"names": [*"aab", "v0"]}, "check 'v1', 'v2'"),
        ({"names": [*(f"v{i}" for i in range(7)), "v0"]}, "check 'v0'"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, videos: Files, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        decode_files(videos, tmp_path / "cache", CLIPS, **options)


def test_space_is_needed_for_what_is_decoded_and_not_for_what_is_listed(
    tmp_path: Path, videos: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = namedtuple("Usage", "free")(8 * math.prod(CLIPS.shape))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    names = [*videos, *(f"other{number}" for number in range(1000))]
    assert len(decode_files(videos, tmp_path / "cache", CLIPS, names=names, workers=0).samples) == 7


def test_no_files_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="files must have at least one file"):
        decode_files({}, tmp_path / "cache", CLIPS)
    with pytest.raises(DataError, match=r"1 of 1 files do not exist, '.*gone.avi' first; check the paths"):
        decode_files({"gone": tmp_path / "gone.avi"}, tmp_path / "cache", CLIPS)
