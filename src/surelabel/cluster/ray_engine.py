"""Run a job as Ray tasks, on the cluster that RAY_ADDRESS names or on a cluster of this machine alone.

Ray sends tasks to its workers, and repeats a task if its worker dies. Only as many tasks are in flight as there are
workers, so that neither tasks nor results pile up.
"""

import contextlib
import logging
import os
import pickle
import signal
import socket
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from surelabel._version import __version__
from surelabel.errors import SurelabelError

Task = TypeVar("Task")

RETRIES = 10
"""How often a task is repeated after its worker, or the whole machine, has died."""
_OBJECT_STORE = 1 << 29
"""Bytes of memory that a cluster of this machine alone reserves for objects sent between its processes. Ray's default
is a third of the memory, but a job and its results are small."""
_SECONDS_TO_ANSWER = 10.0
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}

_jobs: dict[str, Any] = {}
"""The job of this worker process, by Ray's name for it."""


class RayError(SurelabelError):
    """Ray is not installed, cannot be started or reached, or has given up a task."""


def in_ray(job: Any, tasks: Iterable[Task], workers: int | None) -> Generator[tuple[Task, Any], None, None]:
    """Do what `surelabel.cluster.workers.in_workers` does, with Ray."""
    ray = _imported()
    with _cluster(ray, workers) as ends_with_us:
        there = ray.cluster_resources()
        unit = "GPU" if there.get("GPU", 0) >= 1 else "CPU"
        workers = workers or max(1, int(there.get(unit, 1)))
        options = {"num_gpus": 1} if unit == "GPU" else {"num_cpus": 1}
        remote = ray.remote(_call).options(max_retries=RETRIES, retry_exceptions=False, **options)
        # In a list, so that Ray passes on the reference instead of sending the job with each task.
        sent = [ray.put(pickle.dumps(job))]
        todo = iter(tasks)

        def begun(number: int) -> dict[Any, Task]:
            """Send the next tasks; return them by the references to their results."""
            return {remote.remote(__version__, sent, pickle.dumps(task)): task for task in islice(todo, number)}

        waiting = begun(workers)
        try:
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                task = waiting.pop(done[0])
                result = _result(ray, done[0], task)
                waiting |= begun(1)
                yield task, result
        finally:
            # Ray ends the tasks of a driver that leaves. To cancel one that is just ending can abort this process.
            for reference in () if ends_with_us else waiting:
                ray.cancel(reference)


def _call(version: str, sent: list[Any], task: bytes) -> Any:
    """Run a task in a worker, with the job that it keeps for all tasks of the same command."""
    import ray

    if version != __version__:
        both = f"{__version__} is installed where Ray's workers are, and {version} where they are started"
        raise RayError(f"surelabel {both}; install the same version.")
    key = sent[0].hex()
    if key not in _jobs:
        _jobs.clear()
        _jobs[key] = pickle.loads(ray.get(sent[0]))  # noqa: S301 - sent by the command that has started this worker
    return _jobs[key](pickle.loads(task))  # noqa: S301


def _imported() -> Any:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)  # read when it is imported
    try:
        import ray
    except ImportError as error:
        raise RayError("--engine ray needs the package ray; pip install 'surelabel[ray]'.") from error
    return ray


@contextlib.contextmanager
def _cluster(ray: Any, workers: int | None) -> Iterator[bool]:
    """Connect to the cluster that RAY_ADDRESS names, else start one on this machine; disconnect or stop it afterwards.

    A cluster that already runs here is not used unless named: another command may have started it, and will stop it.

    Yields:
        Whether this call connects, and so disconnects, which ends the tasks.
    """
    if ray.is_initialized():
        yield False
        return
    address = os.environ.get("RAY_ADDRESS")
    here = {"object_store_memory": _OBJECT_STORE, "include_dashboard": False, "num_cpus": workers}
    before = signal.getsignal(signal.SIGTERM)
    started = contextlib.ExitStack()
    try:
        if address:
            _check_reached(address)
        more = {"address": address} if address else {"address": "local", **here}
        # Ray's workers import first from the folder in which it is started, which may be a stranger's run folder.
        empty = started.enter_context(tempfile.TemporaryDirectory(prefix="surelabel-ray-"))
        with contextlib.chdir(empty):
            ray.init(**more, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # anything can fail when several servers start
        started.close()
        problem = " ".join(str(error).split())[:300] or type(error).__name__
        if address:
            remedy = "check RAY_ADDRESS, and set RAY_AUTH_MODE=token if it asks for a token"
            raise RayError(f"The Ray cluster at '{address}' cannot be reached ({problem}); {remedy}.") from error
        raise RayError(f"Ray cannot be started ({problem}); try again, or leave --engine ray out.") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)  # Ray has put its own there
    with started:
        try:
            yield True
        finally:
            ray.shutdown()


def _check_reached(address: str) -> None:
    """Raise OSError if nothing answers at an address; Ray would take minutes to notice."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()


def _result(ray: Any, reference: Any, task: object) -> Any:
    """Return a result, or raise the job's own exception; a failure of Ray itself becomes one line."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, Exception) and not isinstance(cause, ray.exceptions.RayError):
            raise cause from error
        problem = " ".join(str(cause or error).split())[:300]
        name = getattr(task, "name", task)
        raise RayError(f"Ray has given '{name}' up ({problem}); check 'ray status' and the workers' memory.") from error
