"""What all rooms need of the system: files written whole or not at all, the number of cores, progress calls."""

import errno
import os
import stat
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

Progress = Callable[[str, int, int], None]
"""Called as work goes on: (what, done, total)."""


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill a file under a temporary name, flush it to the disk, and give it its name.

    An interruption, even a power failure, leaves either the old file or the new one.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # the error of a full disk does not name the file
            error.filename = str(path)
        raise
    flush_folder(path.parent)


def open_itself(path: str, flags: int) -> int:
    """Open a plain file, but never follow a link: an `opener` for the built-in `open`.

    A folder may come from someone else, with links to files outside it.
    """
    # Without waiting: on a pipe in the file's place, a process would wait forever.
    itself = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags | itself, 0o666)
    except OSError as error:
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EEXIST, "it is not a plain file", path)
    return descriptor


def flush_folder(folder: Path) -> None:
    """Make renamed and new files in a folder durable, if folders can be flushed (not on Windows)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
