"""How far the decoding of files is, told to whoever watches.

A run names the function that makes its data, so nobody can hand that function a display. Decoders that nobody gave a
`progress` tell the one who watches instead; the command line watches with a bar.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from surelabel.base.system import Progress

_watcher: ContextVar[Progress | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watched(watcher: Progress | None) -> Iterator[None]:
    """Let a function watch what files the block decodes, how many are, how many there will be; None: nobody does.

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
    """Return a function of (done, total) that tells the present watcher; where there is none, it does nothing."""
    watcher = _watcher.get()
    return silent if watcher is None else lambda done, total: watcher(what, done, total)


def silent(done: int, total: int) -> None:
    """Tell nobody."""
