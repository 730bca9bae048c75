"""A pool in many files, local or in an object store: its shards in a fixed order, each read and written as a whole.

A place is a folder, a pattern of names or the address of either: "pool/", "pool/*.parquet", "s3://bucket/pool/". Any
file system of pyarrow can be used: local files, s3://, gs:// and others.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from surelabel.base.text import listed, shown
from surelabel.data.source import Source
from surelabel.errors import DataError, UnreachableError

FORMS = (".parquet", ".tar")
"""The endings of files that are shards."""

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_MAGIC = re.compile(r"[*?[]")
_TEMPORARY = ".writing"
_WRITTEN = re.compile(r"\..+\.[0-9a-f]{8}\.writing")
_DAY = 24 * 60 * 60 * 10**9  # nanoseconds
_MARKED_BYTES = 1 << 16


class Shard(NamedTuple):
    """A file of a pool, or several files that are read as one.

    Attributes:
        name: its path below the place, with / between folders.
        size: in bytes.
        files: the files, where there are several.
    """

    name: str
    size: int
    files: "tuple[Shard, ...]" = ()


class BlockReader(Protocol):
    """Reads the samples of shards, block by block; it can be pickled, for other processes."""

    def blocks(self, shard: Shard) -> list[int]:
        """Return how many rows each block of a shard has; empty for a shard without rows. It reads little."""

    def read(self, shard: Shard, block: int) -> Source:
        """Return the samples of a block, with their ids; unreadable ones may be left out."""


@dataclass(frozen=True)
class Place:
    """A folder, here or in an object store; it can be pickled.

    Attributes:
        text: as the user wrote it, for messages.
        system: a `pyarrow.fs.FileSystem`.
        root: the folder's path there.
    """

    text: str
    system: Any
    root: str

    @property
    def is_local(self) -> bool:
        """Whether the folder is a local one."""
        return str(self.system.type_name) == "local"

    def path(self, name: str) -> str:
        """Return a file's path in the file system."""
        return f"{self.root.rstrip('/')}/{name}"

    def files(self, recursive: bool = True) -> list[Shard]:
        """Return all files in the folder, sorted by name, without hidden ones; none if there is no folder.

        Links to folders are not followed, with a warning.

        Args:
            recursive: whether to include subfolders.
        """
        with _reached(self.text):
            named = [(str(PurePosixPath(one.path).relative_to(self.root)), one) for one in self._found(recursive)]
        visible = [(name, one) for name, one in named if not any(part.startswith(".") for part in name.split("/"))]
        links = sorted(name for name, one in visible if recursive and self._is_link(one))
        if links:
            text = f"links to folders are not followed: {listed(links, 3)}; copy what is in them."
            warnings.warn(f"In '{self.text}', {text}", stacklevel=3)
        return sorted(Shard(name, one.size) for name, one in visible if one.is_file)

    def _found(self, recursive: bool) -> Iterator[Any]:
        """Yield pyarrow's description of each file and folder in it; pyarrow would follow links, also in circles."""
        from pyarrow import fs

        folders = [self.root]
        for folder in folders:
            selector = fs.FileSelector(folder, recursive=recursive and not self.is_local, allow_not_found=True)
            found = self.system.get_file_info(selector)
            if self.is_local and recursive:
                of_folder = [one for one in found if one.type == fs.FileType.Directory]
                folders += [one.path for one in of_folder if not self._is_link(one)]
            yield from found

    def _is_link(self, one: Any) -> bool:
        """Whether a folder of this machine is a link."""
        return self.is_local and not one.is_file and os.path.islink(one.path)

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """Yield a local file; a remote one is copied, and the copy removed afterwards."""
        if self.is_local:
            yield Path(self.path(name))
            return
        with tempfile.TemporaryDirectory(prefix="surelabel-shard-") as folder:
            copy = Path(folder, PurePosixPath(name).name)
            with _reached(self.text), self.system.open_input_stream(self.path(name)) as stream, copy.open("wb") as file:
                shutil.copyfileobj(stream, file, 2**20)
            yield copy

    def open(self, name: str) -> Any:
        """Open a file for random access."""
        with _reached(self.text):
            return self.system.open_input_file(self.path(name))

    def mark(self, shard: Shard) -> str:
        """Return a hash that distinguishes a shard from most others with its name and size.

        It is the hash of the last 64 KiB, where a Parquet file has the size and the value range of each column. For
        several files, it is the hash of their names and sizes.
        """
        if shard.files:
            content = json.dumps([[file.name, file.size] for file in shard.files]).encode()
        else:
            with self.open(shard.name) as stream, _reached(self.text):
                stream.seek(max(0, stream.size() - _MARKED_BYTES))
                content = stream.read()
        return hashlib.sha256(content).hexdigest()[:16]

    def write(self, name: str, write: Callable[[Any], object]) -> None:
        """Rename a file into its place once `write`, which takes a stream, has written all of it."""
        path = self.path(name)
        folder, last = path.rsplit("/", 1)
        if self.is_local and not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(self.root)):
            raise DataError(f"'{folder}' is a link that leads out of '{self.text}'; remove it, or name another folder.")
        # If two workers write the same file, because one was wrongly taken for dead, the last one wins. Only a part of
        # the name: the whole of a long name would become too long.
        temporary = f"{folder}/.{last[:40]}.{secrets.token_hex(4)}{_TEMPORARY}"
        with _reached(self.text):
            self.system.create_dir(folder, recursive=True)
            try:
                with self.system.open_output_stream(temporary) as stream:
                    write(stream)
                self.system.move(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.system.delete_file(temporary)
                raise

    def tidy(self) -> None:
        """Remove files that killed writers have left here; those younger than a day may still be in use."""
        with _reached(self.text):
            for file in self._found(recursive=True):
                ours = file.is_file and _WRITTEN.fullmatch(file.base_name)
                if ours and file.mtime_ns is not None and time.time_ns() - file.mtime_ns > _DAY:
                    with contextlib.suppress(FileNotFoundError):  # another command has just removed it
                        self.system.delete_file(file.path)


def is_address(text: str) -> bool:
    """Whether a text is an address such as "s3://bucket/pool/", not a path.

    >>> is_address("s3://bucket/pool/"), is_address("pool/")
    (True, False)
    """
    return _ADDRESS.match(text) is not None


def place_of(text: str) -> Place:
    """Return the folder that a path or an address names; it need not exist yet."""
    from pyarrow import ArrowException, fs

    if not is_address(text):
        return Place(text, fs.LocalFileSystem(), str(Path(text).absolute()))
    try:
        system, root = fs.FileSystem.from_uri(text)
    except (ArrowException, OSError, ValueError) as error:
        problem = " ".join(str(error).split())[:300]
        raise DataError(f"'{text}' is no address that can be read ({problem}); correct it.") from error
    return Place(text, system, root)


def find_shards(text: str, forms: Sequence[str] = FORMS) -> tuple[Place, list[Shard]]:
    """Return the folder and the shards that a path, a pattern or an address names, sorted by name.

    Args:
        text: a folder (with subfolders), one file, or a pattern of names in a folder: "pool/*.parquet"; `**` matches
            folders of any depth.
        forms: the endings of files to take from a folder.

    Parquet files whose names, or whose folders' names, begin with "_" are usually unfinished output of other jobs. They
    are left out with a warning, unless the pattern names them.
    """
    if not text:
        raise DataError("The place of the shards is empty; name a folder, a pattern or an address.")
    address, mark, query = text.partition("?") if is_address(text) else (text, "", "")
    steps = address.split("/")
    depth = next((number for number, step in enumerate(steps) if _MAGIC.search(step)), len(steps))
    if not is_address(text) and Path(text).exists():
        depth = len(steps)  # brackets in a name are no pattern
    pattern = "/".join(steps[depth:])
    place = place_of(("/".join(steps[:depth]) or ("/" if depth and not steps[0] else ".")) + mark + query)
    if not pattern and _is_file(place, address, forms):
        folder, pattern = place.root.rsplit("/", 1)
        place = Place(text, place.system, folder)
        shards = [shard for shard in place.files(recursive=False) if shard.name == pattern]
    else:
        place = Place(text, place.system, place.root)
        below = place.files(recursive=not pattern or "/" in pattern or pattern == "**")
        matching = [shard for shard in below if _matches(shard.name, pattern, forms)]
        unfinished = [] if "/_" in f"/{pattern}" else [shard for shard in matching if _is_unfinished(shard.name)]
        if unfinished:
            left_out = f"Parquet files that begin with '_' are left out: {listed([one.name for one in unfinished], 3)}"
            remedy = "if they are samples, name them by a pattern, or rename them"
            warnings.warn(f"In '{text}', {left_out}; {remedy}.", stacklevel=2)
        shards = sorted({*matching} - {*unfinished}) if unfinished else matching
    if not shards:
        kinds = " or ".join(f"*{form}" for form in forms)
        raise DataError(f"No shard is in '{text}' ({kinds}); check the path and the pattern.")
    return place, shards


def _is_file(place: Place, address: str, forms: Sequence[str]) -> bool:
    """Whether a place without a pattern is one file; for a remote one its name must show it."""
    if place.is_local and Path(place.root).exists():
        return Path(place.root).is_file()
    return address.lower().endswith(tuple(forms))


def cut_into_shards(files: Sequence[Shard], size: int) -> list[Shard]:
    """Return shards of this many files each, in order.

    >>> [(shard.name, shard.size) for shard in cut_into_shards([Shard("a", 2), Shard("b", 3), Shard("c", 4)], 2)]
    [('files-000000', 5), ('files-000001', 4)]
    """
    parts = [tuple(files[start : start + size]) for start in range(0, len(files), size)]
    return [Shard(f"files-{number:06d}", sum(file.size for file in part), part) for number, part in enumerate(parts)]


def _matches(name: str, pattern: str, forms: Sequence[str]) -> bool:
    if not pattern:
        return name.lower().endswith(tuple(forms))
    return _fits(name.split("/"), pattern.split("/"))


def _fits(parts: Sequence[str], steps: Sequence[str]) -> bool:
    """Whether the parts of a path fit the steps of a pattern.

    >>> _fits(["a", "b", "c.tar"], ["**", "*.tar"]), _fits(["c.tar"], ["**", "*.tar"]), _fits(["a", "c.tar"], ["*.tar"])
    (True, True, False)
    """
    if not steps:
        return not parts
    if steps[0] == "**":
        return any(_fits(parts[start:], steps[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], steps[0]) and _fits(parts[1:], steps[1:])


def _is_unfinished(name: str) -> bool:
    return name.lower().endswith(".parquet") and any(part.startswith("_") for part in name.split("/"))


@contextlib.contextmanager
def _reached(text: str) -> Iterator[None]:
    """Name the place if it cannot be reached, read or written."""
    from pyarrow import ArrowException

    try:
        yield
    except UnicodeDecodeError as error:
        name = shown(PurePosixPath(error.object.decode("utf-8", "backslashreplace")).name)
        raise DataError(f"'{text}' has a file whose name is no UTF-8, {name}; rename it.") from error
    except (OSError, ArrowException) as error:
        problem = " ".join(str(error).split())[:300]
        raise UnreachableError(
            f"'{text}' cannot be reached ({problem}); check the address, your rights and the free space there."
        ) from error
