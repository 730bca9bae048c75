"""Work of many steps, for commands without rounds of their own: a bar on a terminal, else a line now and then.

And the decoding of pictures and videos, which any command may come to: a bar on a terminal alone.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from surelabel.cli._console import out, say
from surelabel.data.decoding import watched

if TYPE_CHECKING:
    from surelabel.base.system import Progress as Report

SECONDS_BETWEEN_LINES = 10.0


@contextlib.contextmanager
def shown_work(steps: str) -> "Iterator[Report]":
    """Yield what to call with (what is done now, steps done, steps in all).

    Args:
        steps: what the steps are called, "rounds".
    """
    if not out.is_terminal:
        yield _Lines(steps)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(steps), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=out, transient=True) as bars:
        task = bars.add_task("starting", total=None)
        # A terminal has room for one display: decoding is told beside this bar.
        with watched(lambda what, done, total: bars.update(task, description=f"decoding {what} {done}/{total}")):
            yield lambda what, done, total: bars.update(task, description=what, completed=done, total=total)


@contextlib.contextmanager
def shown_decoding(quiet: bool = False) -> Iterator[None]:
    """Show a bar while the block decodes pictures or videos; nothing where there is no terminal.

    Args:
        quiet: whether to show nothing at all.
    """
    if quiet or not out.is_terminal:
        with watched(None):
            yield
        return
    bar = _DecodingBar()
    try:
        with watched(bar):
            yield
    finally:
        bar.stop()


class _DecodingBar:
    """There is one as long as something is being decoded."""

    def __init__(self) -> None:
        self._bars: Progress | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._bars is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bars = Progress(*columns, console=out, transient=True)
            self._task = self._bars.add_task(f"decoding {what}")
            self._bars.start()
        self._bars.update(self._task, completed=done, total=total)
        if done >= total:
            self.stop()

    def stop(self) -> None:
        """Take the bar away."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


class _Lines:
    def __init__(self, steps: str) -> None:
        self.steps, self._said = steps, time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            say(f"{done}/{total} {self.steps}: {what}")
