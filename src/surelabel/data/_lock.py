"""One process at a time fills a folder; the others wait for it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from surelabel.base.system import open_itself
from surelabel.errors import DataError

_logger = logging.getLogger("surelabel")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and wait until no other process fills it; the kernel lets go of the lock when a process ends."""
    try:
        import fcntl
    except ImportError as error:
        raise DataError(f"'{folder}' is filled on Linux and macOS only: this system has no flock.") from error
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a", opener=open_itself) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _logger.warning("Another process fills '%s'; this one waits for it.", folder)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
