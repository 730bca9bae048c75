"""The role of a process among several that run the same program: here, the only one.

`engine.parallel` is used if torch.distributed connects several. Code without torch asks a learner for its `processes`,
and uses `Alone` if it has none.
"""

import os
import platform
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def job() -> str | None:
    """Return an id for this start of torchrun, which stays the same when torchrun restarts its processes.

    It is None without torchrun.
    """
    given = os.environ.get("TORCHELASTIC_RUN_ID")
    # "none" is the id of every torchrun that was given neither --standalone nor --rdzv-id. Its process 0 stays on one
    # machine.
    return f"{platform.node()}, process {os.getppid()}" if given == "none" else given


class Alone:
    """One process.

    Attributes:
        rank: the number of this process; the first one, 0, writes and prints.
        size: how many processes there are.

    Example:
        >>> Alone().in_all(lambda: "done"), Alone().by_first(lambda: 1)
        (['done'], 1)
    """

    rank, size = 0, 1

    def in_all(self, function: Callable[[], T]) -> list[T]:
        """Call a function in every process; all get all results, or all raise the first error."""
        return [function()]

    def by_first(self, function: Callable[[], T]) -> T:
        """Call a function in the first process; all get its result, or all raise its error."""
        return function()

    def only_first(self, function: Callable[[], T]) -> T | None:
        """Call a function in the first process, which gets the result; the others get None once it is done."""
        return function()


def processes_of(learner: object) -> Alone:
    """Return the processes that train together; this one, if the learner does not define any."""
    found = getattr(learner, "processes", None)
    return found if isinstance(found, Alone) else Alone()
