"""Features of samples, computed once: a backbone's outputs in a growing file that is memory-mapped for reading.

A folder has the features of one backbone. Row i of `features.f32` belongs to the sample whose content hash is line i of
`contents.txt`, which is appended after the row is on the disk. So after any interruption the next call continues; and a
known sample, under another name or in another folder, is not computed again.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel._version import __version__
from surelabel.base.processes import locked
from surelabel.base.system import cores, open_itself, write_whole
from surelabel.base.text import most_bytes, shown
from surelabel.data.decoding import OnError, tell, writing
from surelabel.data.images import data_folder
from surelabel.data.pictures import decode_picture
from surelabel.data.source import Ids, Index
from surelabel.errors import DataError, InvalidInputError
from surelabel.kinds.backbones import BackboneSettings, PictureInput, Takes
from surelabel.kinds.frozen import Features, Frozen, open_backbone

Reader = Callable[[int, PictureInput], Any]
"""(index of a sample, how pictures are prepared) to the input of a backbone; DataError: it cannot be read."""

_BATCH = 32
"""The batch size of backbones, which is also the most samples that are computed again after a crash."""
_LINE = 65
"""Bytes of a line: a hexadecimal SHA-256 and the line end."""


class Part(NamedTuple):
    """Where the features of some samples are.

    Attributes:
        path: of the file.
        width: F.
        rows: of the samples, in their order.
    """

    path: Path
    width: int
    rows: Index


class FeatureSource:
    """Features of samples from one backbone, or from several side by side; read from the disk on demand."""

    def __init__(self, ids: Ids, parts: Sequence[Part]) -> None:
        self.ids, self.parts = ids, tuple(parts)
        self.sample_shape = (sum(part.width for part in parts),)
        self._maps = [_mapped(part.path, part.width) for part in parts]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Index) -> Features:
        found = [rows[part.rows[index]] for rows, part in zip(self._maps, self.parts, strict=True)]
        return np.concatenate(found, axis=1)

    def __reduce__(self) -> tuple[Any, ...]:
        return FeatureSource, (self.ids, self.parts)


class Computed(NamedTuple):
    """What `compute_features` returns.

    Attributes:
        samples: features of those that could be read, in their order.
        faults: why the others could not, by id.
        backbones: the settings with what was learned: how pictures are prepared, and the number of features.
    """

    samples: FeatureSource
    faults: dict[str, str]
    backbones: tuple[BackboneSettings, ...]


def compute_features(
    backbones: Sequence[BackboneSettings],
    takes: Takes,
    ids: Ids,
    contents: Sequence[str],
    read: Reader,
    on_error: OnError = "stop",
) -> Computed:
    """Return the features of samples, after computing those that are missing.

    Args:
        backbones: pinned or not; files that have changed are refused.
        takes: what the samples are.
        ids: of the samples, (N,).
        contents: a hash of each sample's content, N of them.
        read: reads a sample.
        on_error: "stop" raises at the first sample that cannot be read; "skip" leaves unreadable samples out.
    """
    found, faults, settled = [], dict[int, str](), []
    for backbone in backbones:
        cache = FeatureCache.open(backbone, takes)
        faults |= cache.fill(contents, read, on_error)
        found.append(cache)
        settled.append(cache.settings)
    kept = np.array([place for place in range(len(ids)) if place not in faults], dtype=np.int64)
    if not len(kept):
        raise DataError(f"None of the {len(ids)} {takes} can be read. {next(iter(faults.values()), '')}".rstrip())
    parts = [cache.part([contents[place] for place in kept]) for cache in found]
    named = {str(ids[place]): fault for place, fault in sorted(faults.items())}
    return Computed(FeatureSource(ids[kept], parts), named, tuple(settled))


def text_features(backbones: Sequence[BackboneSettings], texts: Sequence[str], ids: Ids) -> Computed:
    """Return the features of texts, (N, F)."""
    contents = [hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest() for text in texts]
    return compute_features(backbones, "texts", ids, contents, lambda place, _: texts[place])


def picture_features(
    backbones: Sequence[BackboneSettings], paths: Sequence[Path], ids: Ids, contents: Sequence[str], on_error: OnError
) -> Computed:
    """Return the features of pictures in files whose content hashes are known, (N, F)."""

    def read(place: int, shown: PictureInput) -> npt.NDArray[np.uint8]:
        path = paths[place]
        if path.stat().st_size > most_bytes(0):
            raise DataError(f"File '{path}' has {path.stat().st_size:,} bytes, too many for a picture; remove it.")
        with path.open("rb") as stream:
            # The hash is the key of the features, so the decoded bytes must be those that were hashed.
            if hashlib.file_digest(stream, "sha256").hexdigest() != contents[place]:
                raise DataError(f"File '{path}' has changed while it was read; try again when nothing writes to it.")
            stream.seek(0)
            return decode_picture(stream, shown.side, shown.fit, name=str(path))

    return compute_features(backbones, "pictures", ids, contents, read, on_error)


class FeatureCache:
    """The folder with the features of one backbone; it can be removed at any time."""

    def __init__(self, settings: BackboneSettings, takes: Takes, frozen: Frozen | None = None) -> None:
        self.settings, self.takes, self._frozen = settings, takes, frozen
        self.path = data_folder() / "features" / settings.key(takes)
        self.features, self.contents = self.path / "features.f32", self.path / "contents.txt"

    @classmethod
    def open(cls, settings: BackboneSettings, takes: Takes) -> "FeatureCache":
        """Return the cache of a backbone; the network says how pictures are prepared, unless the settings do."""
        settings, frozen = settings.pinned(), None
        if settings.shown is None:
            frozen = open_backbone(settings, takes)
            settings = settings.replace(shown=frozen.shown)
        return cls(settings, takes, frozen)

    def part(self, contents: Sequence[str]) -> Part:
        """Return where the features of samples with these contents are; they must have been computed."""
        place = {content: row for row, content in enumerate(self._there())}
        assert self.settings.width is not None
        rows = np.array([place[content] for content in contents], dtype=np.int64)
        return Part(self.features, self.settings.width, rows)

    def fill(self, contents: Sequence[str], read: Reader, on_error: OnError) -> dict[int, str]:
        """Compute missing features; return why some samples could not be read, by index."""
        faults: dict[str, str] = {}
        if self._missing(contents):
            with writing(self.path, "Features"):
                self.path.mkdir(parents=True, exist_ok=True)
            told = f"Another process fills '{self.path}'; this one waits for it."
            with locked(self.path / ".lock", math.inf, told):
                # Checked again: another process may have computed them while this one waited for the lock.
                faults = self._compute(self._missing(contents), read, on_error)
        width = self._width()
        if None not in (width, self.settings.width) and width != self.settings.width:
            numbers = f"{width} features, and the run learned from {self.settings.width}"
            raise DataError(
                f"The backbone {self.settings.name} has {numbers}; use the network that the run began with."
            )
        self.settings = self.settings.replace(width=width)
        return {place: faults[content] for place, content in enumerate(contents) if content in faults}

    def _missing(self, contents: Sequence[str]) -> dict[str, int]:
        """Return the contents without features, each with the index of a sample that has it."""
        there = set(self._there())
        return {content: place for place, content in enumerate(contents) if content not in there}

    def _compute(self, missing: dict[str, int], read: Reader, on_error: OnError) -> dict[str, str]:
        """Compute and append features batch by batch; return why some contents could not be read."""
        faults: dict[str, str] = {}
        if not missing:
            return faults
        frozen = self._frozen or open_backbone(self.settings, self.takes)
        shown_as, done = self.settings.shown, 0
        assert shown_as is not None
        progress = tell(f"features by {self.settings.name}")
        self._cut_off()
        for batch in _read_ahead(missing, lambda place: read(place, shown_as)):
            for content, sample in batch:
                if isinstance(sample, DataError):
                    if on_error == "stop":
                        raise DataError(f"{sample} Or leave such {self.takes} out: --on-error skip.") from sample
                    faults[content] = str(sample)
            good = [(content, sample) for content, sample in batch if content not in faults]
            if good:
                self._append([content for content, _ in good], frozen.compute([sample for _, sample in good]))
            done += len(batch)
            progress(done, len(missing))
        return faults

    def _width(self) -> int | None:
        """Return how many features the file has; None before the first."""
        path = self.path / "about.json"
        if not path.exists():
            return None
        try:
            width = json.loads(path.read_text())["width"]
            if isinstance(width, int) and width > 0:
                return width
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise _damaged(path, error) from error
        raise _damaged(path, f"its width is {width!r}")

    def _there(self) -> list[str]:
        """Return the contents that have features, in the order of the rows; a truncated line is ignored."""
        if not self.contents.exists() or self._width() is None:
            return []
        text = self.contents.read_bytes()
        lines = text[: len(text) // _LINE * _LINE].decode("ascii", errors="replace").splitlines()
        if any(len(line) != _LINE - 1 for line in lines):
            raise _damaged(self.contents, "it has lines that are no content hashes")
        return lines

    def _cut_off(self) -> None:
        """Remove a truncated line, and rows without a line."""
        lines, width = len(self._there()), self._width() or 0
        with writing(self.path, "Features"):
            for path, size in ((self.contents, _LINE * lines), (self.features, 4 * width * lines)):
                if path.exists():
                    with open(path, "r+b", opener=open_itself) as stream:
                        found = stream.seek(0, os.SEEK_END)
                        if found < size:
                            raise _damaged(path, f"it has {found} bytes, not {size}")
                        stream.truncate(size)

    def _append(self, contents: Sequence[str], features: Features) -> None:
        width = self._width()
        with writing(self.path, "Features"):
            if width is None:
                values = {"surelabel": __version__, **self.settings.model_dump(mode="json")}
                about = json.dumps(values | {"width": features.shape[1]}, indent=2)
                write_whole(self.path / "about.json", lambda stream: stream.write(about.encode()))
            elif features.shape[1] != width:
                numbers = f"{features.shape[1]} features for some samples, and {width} for others"
                raise InvalidInputError(f"The backbone {self.settings.name} returns {numbers}; let it return as many.")
            lines = "".join(f"{content}\n" for content in contents).encode()
            for path, data in ((self.features, features.astype("<f4").tobytes()), (self.contents, lines)):
                with open(path, "ab", opener=open_itself) as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())


def _read_ahead(missing: dict[str, int], read: Callable[[int], Any]) -> Iterator[list[tuple[str, Any]]]:
    """Yield contents and their samples in batches; several threads read the next batch while one is computed."""

    def attempt(content: str) -> tuple[str, Any]:
        try:
            return content, read(missing[content])
        except DataError as error:
            return content, error

    contents = list(missing)
    with ThreadPoolExecutor(cores()) as threads:
        ahead: Iterator[tuple[str, Any]] = iter(())
        for first in range(0, len(contents) + _BATCH, _BATCH):
            now, ahead = ahead, threads.map(attempt, contents[first : first + _BATCH])
            if batch := list(now):
                yield batch


def _mapped(path: Path, width: int) -> "np.memmap[Any, np.dtype[np.float32]]":
    if path.stat().st_size < 4 * width:
        raise _damaged(path, "it is cut off")
    rows = path.stat().st_size // (4 * width)  # a row that is still being written is not requested
    return np.memmap(path, dtype="<f4", mode="r", shape=(rows, width))


def _damaged(path: Path, reason: object) -> DataError:
    short = shown(reason, quote=False, limit=120)
    return DataError(f"'{path}' is damaged ({short}); remove its folder, and the features are computed again.")
