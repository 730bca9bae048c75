"""Call one job for many tasks: in this process, in several local processes, or in the workers of a Ray cluster."""

import contextlib
import functools
import pickle
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from surelabel.base.processes import WorkerCrashedError, call_in_workers

Engine: TypeAlias = Literal["local", "ray"]

Task = TypeVar("Task")
Result = TypeVar("Result")
Job: TypeAlias = Callable[[Task], Result]
"""What is done for each task. It is pickled and sent to each worker once, so it may keep what it prepares there."""

TRIES = 3
"""How often workers may crash in a row, with no task finished in between, before the work is given up."""


def in_workers(
    job: Job[Task, Result], tasks: Iterable[Task], engine: Engine = "local", workers: int | None = None
) -> Generator[tuple[Task, Result], None, None]:
    """Call a job for each task; yield the tasks with their results, in any order.

    A task is repeated if its worker crashes or is killed, so a job must be safe to call twice. An exception from a job
    ends all work, as does closing the generator.

    Args:
        job: sent to each worker once.
        tasks: each is sent to one worker.
        engine: "local": processes of this machine, or this process if one is enough. "ray": tasks of Ray, each with a
            GPU if the cluster has any, else with a core.
        workers: how many tasks run at once; None: one, or with Ray as many as the cluster has GPUs or cores.
    """
    if engine == "ray":
        from surelabel.cluster.ray_engine import in_ray

        yield from in_ray(job, tasks, workers)
    elif workers is not None and workers > 1:
        yield from _in_processes(job, list(tasks), workers)
    else:
        yield from ((task, job(task)) for task in tasks)


def _in_processes(
    job: Job[Task, Result], tasks: list[Task], workers: int
) -> Generator[tuple[Task, Result], None, None]:
    left, crashes = deque(tasks), 0
    with tempfile.TemporaryDirectory(prefix="surelabel-job-") as folder:
        path = Path(folder, "job")
        path.write_bytes(pickle.dumps(job))
        while left:
            calls = [(path, task) for task in left]
            try:
                with contextlib.closing(call_in_workers(_call, calls, min(workers, len(calls)))) as results:
                    for result in results:
                        yield left.popleft(), result
                        crashes = 0
            except WorkerCrashedError as error:
                crashes += 1
                if crashes == TRIES:
                    problem = (
                        f"Workers have crashed {TRIES} times at '{getattr(left[0], 'name', left[0])}' or behind it"
                    )
                    remedy = "look above for their last words, and whether the memory is full"
                    raise WorkerCrashedError(f"{problem}; {remedy}.") from error
                warnings.warn("a worker process has crashed; what it had is done again.", stacklevel=2)


def _call(path: Path, task: Any) -> Any:
    return _job(path)(task)


@functools.cache
def _job(path: Path) -> Job[Any, Any]:
    job: Job[Any, Any] = pickle.loads(path.read_bytes())  # noqa: S301 - of a folder that only this user can write to
    return job
