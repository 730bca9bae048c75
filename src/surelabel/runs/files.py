"""Files that are written whole or not at all: under a temporary name, flushed, renamed, with a SHA-256.

So a reader sees the old content or the new one, never a part of it; and a file that was changed later does not match
its checksum.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from surelabel.base.system import flush_folder
from surelabel.base.text import shown
from surelabel.errors import DamagedFileError, RunError

# The names that `temporary_name` makes for a run's files; a user's own files may end in .tmp too.
_TEMPORARY = re.compile(r"\..+\.(bin|json|npz|parquet|safetensors|skops)\.tmp")

RESTORE = "Restore it from a copy, or start the run anew in another folder."


def checksum(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal.

    >>> checksum(b"abc")[:16]
    'ba7816bf8f01cfea'
    """
    return hashlib.sha256(data).hexdigest()


def write_file(path: Path, data: bytes) -> str:
    """Write `data` to `path`, whole or not at all, even after a power failure; return its checksum."""
    write_files({path: data})
    return checksum(data)


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Rename several files into their places, once all of them are on the disk under temporary names."""
    path = next(iter(contents))
    try:
        for path, data in contents.items():
            _write(temporary_name(path), data)
        for path in contents:
            temporary_name(path).replace(path)
            flush_folder(path.parent)
    except OSError as error:
        for written in contents:
            with contextlib.suppress(OSError):
                temporary_name(written).unlink(missing_ok=True)
        raise _not_written(path, error) from error


def write_streams(paths: Sequence[Path], write: Callable[..., object]) -> list[str]:
    """Rename files into their places once `write`, given a stream for each, has written them; return checksums."""
    temporary = [temporary_name(path) for path in paths]
    try:
        with contextlib.ExitStack() as stack:
            for path in temporary:
                path.unlink(missing_ok=True)  # as in `_write`
            streams = [stack.enter_context(path.open("x+b")) for path in temporary]
            write(*streams)
            for stream in streams:
                stream.flush()
                os.fsync(stream.fileno())
                stream.seek(0)
            checksums = [hashlib.file_digest(stream, "sha256").hexdigest() for stream in streams]
        for path, written in zip(paths, temporary, strict=True):
            written.replace(path)
            flush_folder(path.parent)
        return checksums
    except OSError as error:
        raise _not_written(paths[0], error) from error
    finally:
        for written in temporary:
            with contextlib.suppress(OSError):
                written.unlink(missing_ok=True)


def _not_written(path: Path, error: OSError) -> RunError:
    remedy = "Nothing is lost: free some space or allow writing, then try again"
    return RunError(f"File '{path}' could not be written ({error.strerror or error}). {remedy}.")


def damaged(path: Path, reason: object, remedy: str = RESTORE) -> DamagedFileError:
    """Return the error for a file that is not as it was written."""
    return DamagedFileError(f"File '{path}' is damaged: {shown(reason, quote=False, limit=300).rstrip('.')}. {remedy}")


def check_plain(path: Path, remedy: str = RESTORE) -> None:
    """Refuse a folder, and a pipe or a device, which could be read forever."""
    if path.exists() and not path.is_file():
        raise DamagedFileError(f"File '{path}' cannot be read (it is not a plain file). {remedy}")


def read_file(path: Path, expected: str | None = None, remedy: str = RESTORE) -> bytes:
    """Return a file's bytes; name it if it is missing or does not match the checksum."""
    check_plain(path, remedy)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedFileError(f"File '{path}' cannot be read ({error.strerror}). {remedy}") from error
    if expected is not None and checksum(data) != expected:
        raise damaged(path, f"its SHA-256 should be {expected} and is {checksum(data)}", remedy)
    return data


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write content and its checksum as readable JSON."""
    full = {**content, "checksum": checksum(_canonical(content))}
    text = json.dumps(full, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_file(path, text.encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file that `write_json` wrote, without its checksum; name a file that does not match."""
    try:
        content = json.loads(read_file(path))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}")
        matches = content.pop("checksum", None) == checksum(_canonical(content))
        json.dumps(content, ensure_ascii=False).encode()  # text that could not be written again
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is not JSON ({error})") from error
    if not matches:
        raise damaged(path, "its content does not match its checksum")
    return content


def make_folder(path: Path) -> None:
    """Make a folder and its parents, so that they survive a power failure."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            flush_folder(folder.parent)
    except OSError as error:
        problem = f"{error.strerror}: '{error.filename or path}'"
        raise RunError(f"The folder '{path}' could not be made ({problem}). Choose another place.") from error


def remove_file(path: Path) -> None:
    """Remove a file that is not needed any more."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        problem = f"could not be removed ({error.strerror})"
        raise RunError(f"File '{path}' is no longer needed and {problem}. Remove it, then try again.") from error


def temporary_name(path: Path) -> Path:
    """The name under which a file is written; one writer holds the run's lock, so it need not be random."""
    return path.with_name(f".{path.name}.tmp")


def is_temporary(path: Path) -> bool:
    """Whether a file was left by an interrupted write."""
    return _TEMPORARY.fullmatch(path.name) is not None


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)  # left by an interrupted write, or a link that someone has put there
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
