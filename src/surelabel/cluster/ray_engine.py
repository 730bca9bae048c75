"""Work for many things as tasks of Ray: on the cluster that there is, or on one of this machine alone.

Ray sends tasks to its workers, and does those again whose worker has ended. Here only as many tasks are in flight as
there are workers, so that neither tasks nor results pile up.
"""

import contextlib
import itertools
import logging
import os
from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

from surelabel.errors import SurelabelError

Task = TypeVar("Task")

RETRIES = 10
"""How often a task is done again whose worker, or the whole machine that it was on, has ended."""
_OBJECT_STORE = 1 << 29
"""Bytes of memory that a cluster of this machine alone keeps for what is sent between its processes; Ray's own share
would be a third of the memory, and a job and its results are small."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}

_jobs: dict[str, Any] = {}
"""The job of this worker process, by the name that Ray has for it."""


class RayError(SurelabelError):
    """Ray is not installed, cannot be started or reached, or has given a task up."""


def in_ray(job: Any, tasks: Iterable[Task], workers: int | None) -> Generator[tuple[Task, Any], None, None]:
    """Do what `surelabel.cluster.workers.in_workers` does, with Ray."""
    ray = _imported()
    with _cluster(ray, workers), _faults_named(ray):
        there = ray.cluster_resources()
        unit = "GPU" if there.get("GPU", 0) >= 1 else "CPU"
        workers = workers or max(1, int(there.get(unit, 1)))
        options = {"num_gpus": 1} if unit == "GPU" else {"num_cpus": 1}
        # In a list, Ray hands on the reference and not, for each task, the job.
        sent = [ray.put(job)]
        call = ray.remote(_call).options(max_retries=RETRIES, retry_exceptions=False, **options)
        todo = iter(tasks)
        waiting = {call.remote(sent, task): task for task in itertools.islice(todo, workers)}
        try:
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                task = waiting.pop(done[0])
                result = ray.get(done[0])
                waiting |= {call.remote(sent, another): another for another in itertools.islice(todo, 1)}
                yield task, result
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)


def _call(sent: list[Any], task: Any) -> Any:
    """Do a task in a worker, with the job that it keeps for all tasks of the same command."""
    import ray

    key = sent[0].hex()
    if key not in _jobs:
        _jobs.clear()
        _jobs[key] = ray.get(sent[0])
    return _jobs[key](task)


def _imported() -> Any:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)  # read when it is imported
    try:
        import ray
    except ImportError as error:
        raise RayError("--engine ray needs the package ray; pip install 'surelabel[ray]'.") from error
    return ray


@contextlib.contextmanager
def _cluster(ray: Any, workers: int | None) -> Iterator[None]:
    """Connect to the cluster that RAY_ADDRESS names or that runs here, or start one; leave it as it was."""
    if ray.is_initialized():
        yield
        return
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError:
            if "RAY_ADDRESS" in os.environ:
                raise
            here = {"object_store_memory": _OBJECT_STORE, "include_dashboard": False}
            ray.init(address="local", num_cpus=workers, **here, **quiet)
    except Exception as error:  # whatever a start of several servers can meet
        problem = " ".join(str(error).split())[:300] or type(error).__name__
        where = os.environ.get("RAY_ADDRESS")
        what = f"The Ray cluster at '{where}' cannot be reached" if where else "Ray cannot be started"
        raise RayError(f"{what} ({problem}); check 'ray status', or use --workers without --engine ray.") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _faults_named(ray: Any) -> Iterator[None]:
    """Raise what a job has raised as it was, and what befell Ray itself in one line."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        problem = " ".join(str(error).split())[:300]
        raise RayError(f"Ray has given up ({problem}); check 'ray status' and the workers' memory.") from error
