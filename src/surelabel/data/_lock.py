"""One process at a time fills a folder; the others wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from surelabel.errors import DataError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and wait until no other process fills it; the kernel lets go of the lock when a process ends."""
    try:
        import fcntl
    except ImportError as error:
        raise DataError(f"'{folder}' is filled on Linux and macOS only: this system has no flock.") from error
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
