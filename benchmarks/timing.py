"""Times that can be compared: every way is warmed up, then all take turns, and the median of each counts.

A machine's speed drifts (clocks, neighbors, caches). Ways that take turns share the drift, so their ratio does not.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping

import torch

Measure = Callable[[], float]
"""Does a piece of work and returns the seconds of the part that counts."""


class Deadline:
    """When to stop: this many minutes after it was made.

    >>> Deadline(0.0).passed, Deadline(1.0).passed
    (True, False)
    """

    def __init__(self, minutes: float) -> None:
        self._end = time.monotonic() + 60 * minutes

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._end


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return how long some work takes; the device is idle before and after.

    >>> seconds(lambda: None, torch.device("cpu")) < 1
    True
    """
    synchronize(device)
    started = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - started


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was queued; a CPU queues nothing."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def fastest_convolutions() -> Iterator[None]:
    """Let cuDNN try its algorithms and keep the fastest for each shape; leave the flag as it was."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def medians(
    ways: Mapping[str, Measure],
    repeats: int,
    deadline: Deadline | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> dict[str, float]:
    """Return the median seconds of each way: one warm-up each, then `repeats` times each in turns.

    Args:
        ways: what to measure, by name.
        repeats: how often each is measured.
        deadline: nothing new is begun after it; a way without a measurement is left out.
        progress: called with a way's name before each of its measurements.

    Example:
        >>> times = iter([9.0, 9.0, 1.0, 5.0, 3.0, 5.0, 2.0, 5.0])
        >>> medians({"a": lambda: next(times), "b": lambda: next(times)}, 3)
        {'a': 2.0, 'b': 5.0}
    """
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, measure in ways.items():
            if deadline is not None and deadline.passed:
                break
            progress(name)
            value = measure()
            if turn > 0:
                measured[name].append(value)
    return {name: statistics.median(values) for name, values in measured.items() if values}
