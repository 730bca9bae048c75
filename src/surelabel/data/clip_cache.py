"""Videos decoded once: `clips.npy`, mapped into memory when it is read, and `clips.jsonl`, a line for each clip in it.

A line is appended after its clip is on the disk. So whatever ends the work, the next call goes on where it was, and
decodes again what has changed since. Videos are decoded in processes of their own, which end with the one that started
them: a video that crashes its decoder ends no other.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from surelabel._version import __version__
from surelabel.base.system import cores, interrupts_blocked, open_itself, write_whole
from surelabel.base.text import SKIP, listed, shown
from surelabel.data._lock import locked
from surelabel.data.decoding import tell
from surelabel.data.images import mapped
from surelabel.data.pictures import Counted, OnError
from surelabel.data.source import ArraySource, Ids, Source, Subset
from surelabel.data.video import ClipSettings, import_av, read_clip
from surelabel.errors import DataError, InvalidInputError

_FORMAT = 1
_ARRAY, _LINES, _ABOUT = "clips.npy", "clips.jsonl", "about.json"
_FLUSHED_AT_ONCE = 64
"""Clips that at most have to be decoded again after a power failure."""


class ClipSource(ArraySource):
    """Clips in a file, uint8 (N, 3, T, H, W), mapped into memory; a copy in another process maps the file anew."""

    def __init__(self, path: Path, ids: Ids) -> None:
        super().__init__(mapped(path, _damaged), ids)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return ClipSource, (self.path, self.ids)


class Decoded(NamedTuple):
    """What `decode_clips` returns.

    Attributes:
        clips: those that could be decoded, in their order, with their names as ids.
        faults: why the others could not, by name.
    """

    clips: Source
    faults: dict[str, str]


def decode_clips(
    videos: Mapping[str, Path],
    folder: Path,
    settings: ClipSettings | None = None,
    *,
    names: Sequence[str] | None = None,
    on_error: OnError = "stop",
    workers: int | None = None,
    progress: Counted | None = None,
) -> Decoded:
    """Return clips from the cache in `folder`, after decoding what is not there yet.

    Args:
        videos: the files by the names that clips are known by.
        folder: of the cache; names or settings that differ have a folder of their own in it.
        settings: what is kept of each video.
        names: of all clips that the cache has room for, so that one whose video is missing, or found again, does not
            need another cache; None: those of `videos`.
        on_error: "stop" raises at the first video that cannot be decoded; "skip" warns of such videos and leaves them
            out. The next call tries them again.
        workers: how many processes decode; None: as many as there are cores; 1: this one alone.
        progress: called after each clip: how many are decoded, of how many that were not there; None: who watches is
            told, see `surelabel.data.decoding`.
    """
    settings = settings or ClipSettings()
    names = tuple(videos) if names is None else tuple(names)
    _check(videos, names, on_error, workers)
    cache = _Cache(folder, names, settings)
    faults: dict[str, str] = {}
    if cache.missing(videos):
        with contextlib.ExitStack() as held:
            with _writing(cache.path):
                held.enter_context(locked(cache.path))
            cache.create()
            faults = cache.fill(videos, on_error, workers, progress or tell("videos"))
    if faults:
        told = (
            f"{len(faults)} of {len(videos)} clips are left out: {listed(list(faults))}. {next(iter(faults.values()))}"
        )
        warnings.warn(told, stacklevel=2)
    source = ClipSource(cache.path / _ARRAY, np.array(names))
    decoded = videos.keys() - faults.keys()
    kept = np.array([row for row, name in enumerate(names) if name in decoded], dtype=np.int64)
    return Decoded(Subset(source, kept), faults)


class _Cache:
    """The folder of one list of clips and one way to decode them."""

    def __init__(self, folder: Path, names: tuple[str, ...], settings: ClipSettings) -> None:
        content = json.dumps([_FORMAT, settings.model_dump(mode="json"), names])
        self.path = folder / hashlib.sha256(content.encode()).hexdigest()[:16]
        self.names, self.settings = names, settings

    def missing(self, videos: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
        """Return the lines of the videos that are not decoded as they are now, by name."""
        lines = {name: _line(name, path) for name, path in videos.items()}
        there = self._lines()
        return {name: line for name, line in lines.items() if there.get(name) != line}

    def create(self) -> None:
        """Make the array at its full size, if it is not there; it takes the disk's space as it is filled."""
        array = self.path / _ARRAY
        if array.exists():
            return
        shape = (len(self.names), *self.settings.shape)
        about = {"surelabel": __version__, "av": import_av().__version__, "settings": self.settings.model_dump()}
        with _writing(self.path):
            write_whole(self.path / _ABOUT, lambda stream: stream.write(json.dumps(about, indent=2).encode()))
            (self.path / _LINES).unlink(missing_ok=True)
            write_whole(array, partial(_write_zeros, shape=shape))

    def fill(
        self, videos: Mapping[str, Path], on_error: OnError, workers: int | None, progress: Counted
    ) -> dict[str, str]:
        """Decode what is missing; return why some could not be."""
        import_av()
        # Asked again: another process may have decoded them while this one waited for it.
        missing, faults = self.missing(videos), {}
        self._check_space(len(missing))
        row = {name: number for number, name in enumerate(self.names)}
        start, size = mapped(self.path / _ARRAY, _damaged).offset, math.prod(self.settings.shape)
        jobs = {
            name: [str(videos[name]), str(self.path / _ARRAY), start + row[name] * size, self.settings.model_dump()]
            for name in missing
        }
        waiting: list[dict[str, Any]] = []
        try:
            for done, (name, fault) in enumerate(_faults(jobs, workers), start=1):
                if fault is None:
                    waiting.append(missing[name])
                elif on_error == "stop":
                    raise DataError(f"{fault} Repair the file, or leave such clips out with {SKIP}.")
                else:
                    faults[name] = fault
                if len(waiting) == _FLUSHED_AT_ONCE:
                    self._append(waiting)
                progress(done, len(missing))
        finally:
            self._append(waiting)
        return faults

    def _check_space(self, number: int) -> None:
        """Refuse a disk that has no space for so many more clips."""
        needed, free = number * math.prod(self.settings.shape), shutil.disk_usage(self.path).free
        if needed > free:
            raise DataError(
                f"'{self.path}' needs {needed / 1e9:.1f} GB for {number} decoded clips, and the disk has "
                f"{free / 1e9:.1f} GB free; name a folder on a larger one for the cache, or keep fewer frames."
            )

    def _lines(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each decoded clip; what follows a line that was cut off is not."""
        path = self.path / _LINES
        if not path.exists() or not (self.path / _ARRAY).exists():
            return {}
        try:
            entries = [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()]
            return {entry["name"]: entry for entry in entries}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise _damaged(path, error) from error

    def _append(self, lines: list[dict[str, Any]]) -> None:
        if not lines:
            return
        with _writing(self.path):
            with (self.path / _ARRAY).open("rb") as array:
                os.fsync(array.fileno())
            with open(self.path / _LINES, "a+b", opener=open_itself) as stream:
                stream.seek(0)
                stream.truncate(stream.read().rfind(b"\n") + 1)
                stream.write("".join(json.dumps(line) + "\n" for line in lines).encode())
                stream.flush()
                os.fsync(stream.fileno())
        lines.clear()


def _check(videos: Mapping[str, Path], names: tuple[str, ...], on_error: str, workers: int | None) -> None:
    if not videos:
        raise InvalidInputError("The 'videos' argument must have at least one video. Got none; check the folder.")
    wrong = sorted(videos.keys() - set(names)) or [name for name, count in Counter(names).items() if count > 1]
    if wrong:
        raise InvalidInputError(
            f"The 'names' argument must name each clip once, all those of 'videos' among them. Check {listed(wrong)}."
        )
    if on_error not in ("stop", "skip"):
        raise InvalidInputError(f"The 'on_error' argument must be 'stop' or 'skip'. Got {on_error!r} instead.")
    if workers is not None and workers < 1:
        raise InvalidInputError(f"The 'workers' argument must be at least 1. Got {workers} instead; None: all cores.")
    gone = [path for path in videos.values() if not path.is_file()]
    if gone:
        raise DataError(f"{len(gone)} of {len(videos)} videos do not exist, '{gone[0]}' first; check the paths.")


def _line(name: str, path: Path) -> dict[str, Any]:
    """What tells a video from another version of it, without reading it."""
    status = path.stat()
    return {"name": name, "bytes": status.st_size, "modified": status.st_mtime_ns}


def _write_zeros(stream: BinaryIO, shape: Sequence[int]) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(stream, header)
    stream.truncate(stream.tell() + math.prod(shape))


def _damaged(path: Path, reason: object) -> DataError:
    short = shown(reason, quote=False, limit=120)
    return DataError(f"'{path}' is damaged ({short}); remove its folder, and the clips are decoded again.")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"Decoded clips cannot be written to '{path}' ({error.strerror}); name another folder for the cache."
        ) from error


def _faults(jobs: Mapping[str, Sequence[Any]], workers: int | None) -> Iterator[tuple[str, str | None]]:
    """Decode the videos; yield each one's name, and why it could not be, as they are done."""
    if workers == 1:
        for name, job in jobs.items():
            yield name, _decode(*job)
        return
    decoders = _Decoders()
    threads = ThreadPoolExecutor(min(workers or cores(), len(jobs) or 1))
    try:
        names = {threads.submit(decoders.decode, job): name for name, job in jobs.items()}
        for future in as_completed(names):
            yield names[future], future.result()
    finally:
        # What is being decoded is waited for; what was not begun is not.
        threads.shutdown(cancel_futures=True)
        decoders.end()


def _decode(path: str, array: str, position: int, settings: dict[str, Any]) -> str | None:
    """Write a clip to its place in the array; return why it could not be decoded."""
    try:
        clip = read_clip(path, ClipSettings(**settings))
    except DataError as error:
        return str(error)
    with _writing(Path(array).parent), open(array, "r+b", opener=open_itself) as stream:
        stream.seek(position)
        stream.write(clip.tobytes())
    return None


class _Decoders:
    """A process for each thread that asks: a job goes in as a line of JSON, and a line comes back."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._all: list[subprocess.Popen[str]] = []

    def decode(self, job: Sequence[Any]) -> str | None:
        """Do what `_decode` does, in this thread's process; a new one where the last has crashed."""
        process = getattr(self._mine, "process", None) or self._started()
        answer = _asked(process, json.dumps(job))
        if answer is None:
            self._mine.process = None
            return f"Video '{job[0]}' cannot be read: its decoder ended with code {process.wait()}."
        if "error" in answer:
            raise DataError(answer["error"])
        fault: str | None = answer["fault"]
        return fault

    def _started(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "surelabel.data.clip_cache"]
        with interrupts_blocked():
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._mine.process = process
        self._all.append(process)
        return process

    def end(self) -> None:
        """Let all processes come to their end, which is that of their input."""
        for process in self._all:
            process.communicate()


def _asked(process: subprocess.Popen[str], line: str) -> dict[str, Any] | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except OSError:
        return None
    answer = process.stdout.readline()
    return json.loads(answer) if answer else None


def _work() -> None:
    """Decode the videos that standard input names, until it is closed."""
    # Only answers may go to standard output, whatever else is printed.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            answer = {"fault": _decode(*json.loads(line))}
        except DataError as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _work()
