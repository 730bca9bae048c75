"""Pictures decoded once into .npy files, each with a .json list beside it, and mapped into memory from then on."""

import hashlib
import json
import logging
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from surelabel.base.system import write_whole
from surelabel.base.text import listed, shown
from surelabel.data.decoding import silent, tell
from surelabel.data.images import mapped
from surelabel.data.pictures import (
    Counted,
    Decoded,
    Fit,
    OnError,
    check_names,
    check_options,
    decode_pictures,
    stopped,
)
from surelabel.data.source import Ids, Index
from surelabel.errors import DataError

PART_BYTES = 2**26
"""How much is written at once: what an interruption can lose, and what is in memory meanwhile."""

_logger = logging.getLogger("surelabel")


class CachedPictures:
    """Pictures in .npy files, a `Source` whose rows are read when they are asked for.

    Attributes:
        ids: the name of each picture, shape (n,).
        rows: which of the files that `cached_pictures` was given these are, shape (n,).
        skipped: why each of the others is left out, by its name.
    """

    def __init__(self, parts: Sequence[Path], lists: Sequence[dict[str, Any]], names: Sequence[str], side: int) -> None:
        kept = [name for content in lists for name in content["pictures"]]
        row_of = {name: row for row, name in enumerate(names)}
        self.ids: Ids = np.array(kept, dtype=str)
        self.rows: Index = np.array([row_of[name] for name in kept], dtype=np.int64)
        self.skipped = {name: why for content in lists for name, why in content["skipped"].items()}
        self._parts, self._side = tuple(parts), side
        self._stops = np.cumsum([len(content["pictures"]) for content in lists])

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """(3, S, S)."""
        return (3, self._side, self._side)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Index) -> npt.NDArray[np.uint8]:
        x = np.empty((len(index), *self.sample_shape), dtype=np.uint8)
        part = np.searchsorted(self._stops, index, side="right")
        for number in np.unique(part):
            # Mapped anew each time: that costs little, and the source stays small when it is sent to a process.
            pictures = mapped(self._parts[number], _damaged)
            here = part == number
            x[here] = pictures[index[here] - (self._stops[number] - len(pictures))]
        return x


def cached_pictures(
    folder: Path,
    names: Sequence[str],
    files: Sequence[Path],
    side: int,
    fit: Fit = "squash",
    *,
    on_error: OnError = "stop",
    workers: int | None = None,
    progress: Counted | None = None,
) -> CachedPictures:
    """Decode pictures into .npy files in `folder`, where they are not there yet.

    Each part of 64 MiB is an .npy file (n, 3, S, S) with a .json list of its pictures, named by a hash of the settings
    and of each picture's name, size and time of change: with a changed file or setting it is decoded anew. A part is
    written whole, its list last. So interrupted work goes on after the last whole part, and several processes may do
    the same work. The folder can be removed at any time.

    Args:
        folder: where the parts are; it is made.
        names: what each picture is called, N different names.
        files: their paths, N.
        side: as for `decode_picture`.
        fit: as for `decode_picture`.
        on_error: as for `decode_pictures`; what is skipped is warned about, in every call.
        workers: as for `decode_pictures`.
        progress: as for `decode_pictures`; what is there already is counted at once. Where all of it is, nobody who
            watches is told.
    """
    check_options(side, fit, on_error)
    check_names(names)
    parts = _parts(folder, names, files, side, fit)
    report = progress or (silent if all(map(_is_there, parts)) else tell("pictures"))
    decode = partial(_decode_part, side=side, fit=fit, on_error=on_error, workers=workers, progress=report)
    lists = []
    for path, rows in parts.items():
        if not _is_there(path):
            decode(path, names, files, rows)
        lists.append(_read_list(path, side))
        if on_error == "stop" and lists[-1]["skipped"]:
            raise stopped(next(iter(lists[-1]["skipped"].values())))
        report(rows.stop, len(files))
    pictures = CachedPictures(list(parts), lists, names, side)
    if pictures.skipped:
        first = next(iter(pictures.skipped.values()))
        if not len(pictures):
            raise DataError(f"None of the {len(files)} pictures can be decoded. {first}")
        warnings.warn(
            f"{len(pictures.skipped)} of {len(files)} pictures cannot be decoded and are left out: "
            f"{listed(list(pictures.skipped))}. {first}",
            stacklevel=2,
        )
    return pictures


def _parts(folder: Path, names: Sequence[str], files: Sequence[Path], side: int, fit: Fit) -> dict[Path, slice]:
    """Return the .npy file of each part, and which pictures it holds."""
    count = max(1, PART_BYTES // (3 * side * side))
    slices = [slice(start, min(start + count, len(files))) for start in range(0, len(files), count)]
    return {folder / f"{side}-{fit}-{_key(names[rows], files[rows], side, fit)}.npy": rows for rows in slices}


def _decode_part(
    path: Path, names: Sequence[str], files: Sequence[Path], rows: slice, progress: Counted, **options: Any
) -> None:
    decoded = decode_pictures(
        names[rows], files[rows], progress=lambda done, _: progress(rows.start + done, len(files)), **options
    )
    _write_part(path, names[rows], decoded)
    _logger.info("Decoded %d of %d pictures into '%s'.", rows.stop, len(files), path.parent)


def _key(names: Sequence[str], files: Sequence[Path], side: int, fit: Fit) -> str:
    stamps: list[Any] = [1, side, fit]
    for name, file in zip(names, files, strict=True):
        try:
            stat = file.stat()
        except OSError as error:
            raise DataError(f"Picture '{file}' cannot be found ({error.strerror}); check the path.") from error
        stamps.append([name, stat.st_size, stat.st_mtime_ns])
    return hashlib.sha256(json.dumps(stamps).encode()).hexdigest()[:16]


def _list_of(path: Path) -> Path:
    return path.with_suffix(".json")


def _is_there(path: Path) -> bool:
    return _list_of(path).exists()


def _write_part(path: Path, names: Sequence[str], decoded: Decoded) -> None:
    content = {"pictures": [names[row] for row in decoded.rows], "skipped": decoded.skipped}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, partial(np.save, arr=decoded.x, allow_pickle=False))
        write_whole(_list_of(path), lambda stream: stream.write(text.encode()))
    except OSError as error:
        raise DataError(
            f"Decoded pictures cannot be written to '{path.parent}' ({shown(error, quote=False, limit=120)}); make "
            "room, or name another folder for them."
        ) from error


def _read_list(path: Path, side: int) -> dict[str, Any]:
    """Return a part's list if its array has a picture for each entry."""
    try:
        content = json.loads(_list_of(path).read_bytes())
        pictures, skipped = list(content["pictures"]), dict(content["skipped"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise _damaged(_list_of(path), error) from error
    found, expected = mapped(path, _damaged), (len(pictures), 3, side, side)
    if found.shape != expected or found.dtype != np.uint8:
        raise _damaged(path, f"it holds {found.dtype} {found.shape}, not uint8 {expected}")
    return {"pictures": pictures, "skipped": skipped}


def _damaged(path: Path, reason: object) -> DataError:
    return DataError(
        f"Decoded pictures in '{path}' are damaged ({shown(reason, quote=False, limit=120)}); remove the folder, and "
        "they are decoded again."
    )
