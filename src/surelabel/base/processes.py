"""Several processes: one at a time behind a lock file, and workers that end with the process that started them."""

import itertools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from filelock import lock_descriptor

from surelabel.base.system import open_itself
from surelabel.errors import RunError, RunLockedError, SurelabelError

Result = TypeVar("Result")


class WorkerCrashedError(SurelabelError):
    """A worker process ended before it was done, for example by a crash in a C library or for lack of memory."""


_logger = logging.getLogger("surelabel")
_starting = threading.Lock()
"""Held while processes are started, because the main module is replaced meanwhile."""


@contextmanager
def locked(path: Path, seconds: float = 0.0, waiting: str | None = None) -> Iterator[None]:
    """Hold a lock file for a block of code; the system releases it when the process ends, however it ends.

    Args:
        path: the lock file. It stays: removing it would let two processes lock two files.
        seconds: how long to wait for another process that holds it, before `RunLockedError` is raised.
        waiting: logged as a warning if another process has to be waited for.
    """
    try:
        stream = open(path, "a+b", buffering=0, opener=open_itself)  # noqa: SIM115 - closed below
    except OSError as error:
        problem = f"File '{path}' cannot be opened for writing ({error.strerror})"
        raise RunError(f"{problem}; remove it, or choose another folder.") from error
    with stream:
        end = time.monotonic() + seconds
        while not _lock(stream.fileno(), path):
            if time.monotonic() >= end:
                stream.seek(0)
                holder = stream.read(32).decode(errors="replace").strip()
                who = f"Another process (process {holder})" if holder.isdecimal() else "Another process"
                raise RunLockedError(f"{who} is writing in '{path.parent}'; nothing was changed. Wait for it to end.")
            if waiting is not None:
                _logger.warning(waiting)
                waiting = None
            time.sleep(0.01)
        # The holder's number is only information for others: a full disk is reported when something must be written.
        with suppress(OSError):
            stream.truncate(0)
            stream.write(f"{os.getpid()}\n".encode())
        yield


def _lock(descriptor: int, path: Path) -> bool:
    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        problem = f"File '{path}' cannot be locked ({error.strerror})"
        raise RunError(f"{problem}; choose a folder on a file system with locks.") from error


def call_in_workers(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], workers: int
) -> Generator[Result, None, None]:
    """Call a function with each tuple of arguments in worker processes; yield the results in order.

    The workers end at once when the generator is closed, or when this process ends, however it ends. Ctrl-C does not
    reach them. If one of them crashes, `WorkerCrashedError` takes the place of a result.

    Args:
        function: of a module; arguments and results are pickled.
        calls: its arguments.
        workers: how many processes; 0: this one makes the calls.
    """
    if not workers:
        yield from itertools.starmap(function, calls)
        return
    # Not by fork, which can hang if torch has threads.
    context = multiprocessing.get_context("spawn")
    alive, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, _end_with, (alive,))
    try:
        with _starting, _interrupts_blocked(), _without_main():
            futures = [pool.submit(function, *arguments) for arguments in calls]
        for future in futures:
            yield future.result()
    except BrokenProcessPool as error:
        raise WorkerCrashedError("A worker process has crashed; look above for its last words.") from error
    finally:
        held.close()
        pool.shutdown(cancel_futures=True)


def _end_with(alive: Connection) -> None:
    """End this worker once the process that started it has closed the other end of the pipe, or has died."""

    def wait() -> None:
        with suppress(EOFError, OSError):
            alive.recv()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes that Ctrl-C does not end: it reaches the whole group, but their parent decides when they end.

    They inherit the blocked signal from their first instruction on; a Ctrl-C within this block is not lost.
    """
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Start processes that do not run the user's script again, as multiprocessing would do."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
