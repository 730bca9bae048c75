"""Pictures and videos decoded once, into an .npy file that is memory-mapped for reading.

`pictures.jsonl` or `clips.jsonl` in the same folder has a line of JSON for each sample, appended after the sample is on
the disk. So after any interruption the next call continues, and decodes files again that have changed since.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias

import numpy as np

from surelabel._version import __version__
from surelabel.base.processes import WorkerCrashedError, call_in_workers, locked
from surelabel.base.system import Progress, cores, open_itself, write_whole
from surelabel.base.text import SKIP, listed, shown
from surelabel.data.images import VARIABLE, mapped
from surelabel.data.pictures import PictureSettings
from surelabel.data.sounds import SoundSettings
from surelabel.data.source import ArraySource, Ids, Subset
from surelabel.data.video import ClipSettings
from surelabel.errors import DataError, InvalidInputError

OnError: TypeAlias = Literal["stop", "skip"]
DecodeSettings: TypeAlias = PictureSettings | ClipSettings | SoundSettings
Jobs: TypeAlias = Mapping[str, tuple[Path, Path, int, DecodeSettings]]
"""The arguments of `_decode`, by the names of the samples."""

_FORMAT = 1
_FLUSHED_AT_ONCE = 64
"""The most samples that have to be decoded again after a power failure."""

_watcher: ContextVar[Progress | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watched(watcher: Progress | None) -> Iterator[None]:
    """Report what files the block decodes, how many are done and how many there are, to a function; None: no reports.

    A run only names the function that makes its data, so a display cannot be passed to it.

    Example:
        >>> with watched(print):
        ...     tell("pictures")(3, 10)
        pictures 3 10
    """
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def tell(what: str) -> Callable[[int, int], None]:
    """Return a function of (done, total) that reports to the current watcher, if there is one."""
    watcher = _watcher.get()
    return lambda done, total: None if watcher is None else watcher(what, done, total)


class MappedSource(ArraySource):
    """Samples in a memory-mapped .npy file; a copy in another process maps the file again."""

    def __init__(self, path: Path, ids: Ids) -> None:
        super().__init__(mapped(path, _damaged), ids)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedSource, (self.path, self.ids)


class Decoded(NamedTuple):
    """What `decode_files` returns.

    Attributes:
        samples: those that could be decoded, uint8, in their order, with their names as ids.
        faults: why the others could not, by name.
    """

    samples: Subset
    faults: dict[str, str]


def decode_files(
    files: Mapping[str, Path],
    folder: Path,
    settings: DecodeSettings,
    *,
    names: Sequence[str] | None = None,
    on_error: OnError = "stop",
    workers: int | None = None,
) -> Decoded:
    """Return pictures or clips from the cache in `folder`, after decoding what is not there yet.

    Args:
        files: by the names of the samples.
        folder: of the cache, which can be removed at any time; other names or settings have a separate folder in it.
        settings: what is kept of each file.
        names: of all samples that the cache has room for, so that a missing file, or one found again, does not need
            another cache; None: those of `files`.
        on_error: "stop" raises at the first file that cannot be decoded; "skip" warns about these files and leaves them
            out. The next call tries them again.
        workers: how many threads decode pictures, or processes videos; 0: only this one; None: one for each core.
    """
    names = tuple(files) if names is None else tuple(names)
    _check(files, names, on_error, workers)
    cache = _Cache(folder, names, settings)
    faults: dict[str, str] = {}
    if cache.missing(files):
        with writing(cache.path):
            cache.path.mkdir(parents=True, exist_ok=True)
        told = f"Another process fills '{cache.path}'; this one waits for it."
        with locked(cache.path / ".lock", math.inf, told):
            cache.create()
            faults = cache.fill(files, on_error, workers)
    if faults:
        first = next(iter(faults.values()))
        if len(faults) == len(files):
            raise DataError(f"None of the {len(files)} {settings.kind} can be decoded. {first}")
        found = f"{len(faults)} of {len(files)} {settings.kind} cannot be decoded and are left out"
        warnings.warn(f"{found}: {listed(list(faults))}. {first}", stacklevel=2)
    kept = [row for row, name in enumerate(names) if name in files and name not in faults]
    return Decoded(Subset(MappedSource(cache.array, np.array(names)), np.array(kept, dtype=np.int64)), faults)


class _Cache:
    """The folder of one list of samples and one way to decode them."""

    def __init__(self, folder: Path, names: tuple[str, ...], settings: DecodeSettings) -> None:
        content = json.dumps([_FORMAT, settings.model_dump(mode="json"), names])
        self.path = folder / hashlib.sha256(content.encode()).hexdigest()[:16]
        self.array, self.lines = self.path / f"{settings.kind}.npy", self.path / f"{settings.kind}.jsonl"
        self.names, self.settings, self._end = names, settings, 0

    def missing(self, files: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
        """Return the lines of the files that are not decoded as they are now, by name."""
        there = self._read_lines()
        lines = {name: _line(name, path) for name, path in files.items()}
        return {name: line for name, line in lines.items() if there.get(name) != line}

    def create(self) -> None:
        """Make the array at its full size, if it is not there; it takes disk space only as it is filled."""
        if self.array.exists():
            return
        about = json.dumps({"surelabel": __version__, "settings": self.settings.model_dump()}, indent=2)
        shape = (len(self.names), *self.settings.shape)
        with writing(self.path):
            write_whole(self.path / "about.json", lambda stream: stream.write(about.encode()))
            self.lines.unlink(missing_ok=True)
            write_whole(self.array, partial(_write_zeros, shape=shape))

    def fill(self, files: Mapping[str, Path], on_error: OnError, workers: int | None) -> dict[str, str]:
        """Decode what is missing; return why some could not be."""
        # Checked again: another process may have decoded them while this one waited for the lock.
        missing, faults, waiting = self.missing(files), dict[str, str](), list[dict[str, Any]]()
        self._check_space(len(missing))
        # A process that was killed may have left a truncated line.
        self._end = self.lines.read_bytes().rfind(b"\n") + 1 if self.lines.exists() else 0
        row = {name: number for number, name in enumerate(self.names)}
        start, size = mapped(self.array, _damaged).offset, math.prod(self.settings.shape)
        jobs = {name: (files[name], self.array, start + row[name] * size, self.settings) for name in missing}
        progress, decode = tell(self.settings.kind), _in_processes if self.settings.in_processes else _in_threads
        try:
            for done, (name, fault) in enumerate(decode(jobs, cores() if workers is None else workers), start=1):
                if fault is None:
                    waiting.append(missing[name])
                elif on_error == "stop":
                    raise DataError(f"{fault} Or leave such {self.settings.kind} out: {SKIP}.")
                else:
                    faults[name] = fault
                if len(waiting) == _FLUSHED_AT_ONCE:
                    self._append(waiting)
                progress(done, len(missing))
        finally:
            self._append(waiting)
        return faults

    def _check_space(self, number: int) -> None:
        """Refuse a disk without enough space for this many more samples."""
        needed, free = number * math.prod(self.settings.shape), shutil.disk_usage(self.path).free
        if needed > free:
            sizes = f"{needed / 1e9:.1f} GB for {number} decoded {self.settings.kind}, and {free / 1e9:.1f} GB are free"
            raise DataError(f"'{self.path}' needs {sizes}; name another folder for the cache, or keep less of each.")

    def _read_lines(self) -> dict[str, dict[str, Any]]:
        """Return the line of each decoded sample; a truncated line and what follows it are ignored."""
        if not self.lines.exists() or not self.array.exists():
            return {}
        try:
            entries = [json.loads(line) for line in self.lines.read_text().rpartition("\n")[0].splitlines()]
            lines = {entry["name"]: entry for entry in entries}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise _damaged(self.lines, error) from error
        found, expected = mapped(self.array, _damaged), (len(self.names), *self.settings.shape)
        if found.shape != expected or found.dtype != np.uint8:
            raise _damaged(self.array, f"it holds {found.dtype} {found.shape}, not uint8 {expected}")
        return lines

    def _append(self, lines: list[dict[str, Any]]) -> None:
        if not lines:
            return
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        with writing(self.path):
            with self.array.open("rb") as array:
                os.fsync(array.fileno())
            with open(self.lines, "ab", opener=open_itself) as stream:
                stream.truncate(self._end)
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
        self._end += len(text)
        lines.clear()


def _check(files: Mapping[str, Path], names: tuple[str, ...], on_error: str, workers: int | None) -> None:
    if not files:
        raise InvalidInputError("files must have at least one file; check the folder.")
    wrong = sorted(files.keys() - set(names)) or [name for name, count in Counter(names).items() if count > 1]
    if wrong:
        raise InvalidInputError(f"names must name each sample once, all of files among them; check {listed(wrong)}.")
    if on_error not in ("stop", "skip"):
        raise InvalidInputError(f"on_error must be 'stop' or 'skip'; got {on_error!r}.")
    if workers is not None and workers < 0:
        raise InvalidInputError(f"workers must be at least 0, or None for all cores; got {workers}.")
    gone = [path for path in files.values() if not path.is_file()]
    if gone:
        raise DataError(f"{len(gone)} of {len(files)} files do not exist, '{gone[0]}' first; check the paths.")


def _line(name: str, path: Path) -> dict[str, Any]:
    """What distinguishes versions of a file without reading it."""
    status = path.stat()
    return {"name": name, "bytes": status.st_size, "modified": status.st_mtime_ns}


def _write_zeros(stream: BinaryIO, shape: Sequence[int]) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(stream, header)
    stream.truncate(stream.tell() + math.prod(shape))


def _damaged(path: Path, reason: object) -> DataError:
    short = shown(reason, quote=False, limit=120)
    return DataError(f"'{path}' is damaged ({short}); remove its folder, and the files are decoded again.")


@contextlib.contextmanager
def writing(path: Path, what: str = "Decoded files") -> Iterator[None]:
    """Name the place and the remedy if the disk refuses what the block writes into a cache."""
    try:
        yield
    except OSError as error:
        reason = f"{what} cannot be written to '{path}' ({error.strerror})"
        raise DataError(f"{reason}; free space, or name another folder for the cache with {VARIABLE}.") from error


def _in_threads(jobs: Jobs, workers: int) -> Iterator[tuple[str, str | None]]:
    """Decode files; yield each one's name, and why it could not be decoded."""
    threads = ThreadPoolExecutor(max(1, workers))
    try:
        yield from zip(jobs, threads.map(_decode, *zip(*jobs.values(), strict=True)), strict=True)
    finally:
        threads.shutdown(cancel_futures=True)


def _in_processes(jobs: Jobs, workers: int) -> Iterator[tuple[str, str | None]]:
    """Do the same in worker processes, where a file that crashes its decoder does not stop the others."""
    left = deque(jobs)
    while left:
        calls = [jobs[name] for name in left]
        try:
            with contextlib.closing(call_in_workers(_decode, calls, min(workers, len(left)))) as faults:
                for fault in faults:
                    yield left.popleft(), fault
        except WorkerCrashedError:
            if workers == 1:
                name = left.popleft()
                yield name, f"File '{jobs[name][0]}' crashes its decoder."
            # From now on one process at a time, so that the file that crashes it is known.
            workers = 1


def _decode(path: Path, array: Path, position: int, settings: DecodeSettings) -> str | None:
    """Write a sample to its place in the array; return why it could not be decoded."""
    try:
        sample = settings.read(path)
    except DataError as error:
        return str(error)
    with writing(array.parent), open(array, "r+b", opener=open_itself) as stream:
        stream.seek(position)
        stream.write(sample.tobytes())
    return None
