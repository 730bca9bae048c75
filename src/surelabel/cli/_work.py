"""Work of many steps, for commands without rounds of their own: a bar on a terminal, else a line now and then."""

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from surelabel.cli._console import out, say

if TYPE_CHECKING:
    from surelabel.learners.protocol import Progress as Report

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
        yield lambda what, done, total: bars.update(task, description=what, completed=done, total=total)


class _Lines:
    def __init__(self, steps: str) -> None:
        self.steps, self._said = steps, time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            say(f"{done}/{total} {self.steps}: {what}")
