"""One writer a run: the kernel holds the lock for a process until the process ends, however it ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from surelabel.base.system import open_itself
from surelabel.errors import RunError, RunLockedError

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock for a block of code; raise `RunLockedError` at once when another process has it."""
    try:
        import fcntl
    except ImportError as error:
        raise RunError("Run folders are written on Linux and macOS only: this system has no flock.") from error
    path = folder / LOCK_FILE
    try:
        descriptor = open_itself(str(path), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise RunError(
            f"File '{path}' cannot be opened for writing ({error.strerror}); remove it, allow writing, or choose "
            "another folder."
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunLockedError(
                f"Another process{_holder(descriptor)} is writing the run in '{folder}'. Wait for it to end or stop "
                "it; nothing was changed."
            ) from None
        # Who holds it is only told to others: a full disk comes up where something must be written.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # Closing lets go of the lock; the file stays, since removing it would let two processes lock two files.
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return f" (process {text})" if text.isdecimal() else ""
