"""Several runs beside each other: worker processes of one thread each, which end with the process that started them.

On small networks two processes with a thread each are faster than one process with two threads. A worker reads jobs
from its standard input, a line of JSON each, and answers with a line for every finished round.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from surelabel.base.system import Progress, interrupts_blocked
from surelabel.base.trust import user_key
from surelabel.errors import RunError, SurelabelError, UnsignedRunWarning
from surelabel.runs.session import start
from surelabel.settings import RunSettings


class Job(NamedTuple):
    """A run to be made.

    Attributes:
        folder: a new one.
        settings: that name their learner and data.
        shared: a folder of what jobs have in common (`surelabel.runs.start`); None: each makes all of its own.
    """

    folder: Path
    settings: RunSettings
    shared: Path | None = None

    @property
    def num_rounds(self) -> int:
        """How many rounds it has at most, round 0 included."""
        return self.settings.config.max_rounds + 1


def run_jobs(jobs: Sequence[Job], workers: int = 2, progress: Progress | None = None) -> None:
    """Make all runs; an exception, Ctrl-C too, ends the workers, and every finished round is kept.

    Args:
        jobs: taken up in this order.
        workers: how many processes; 1 makes the runs in this one.
        progress: called after each round with what it was, how many rounds are done and how many there are at most.
    """
    report = _Counter(jobs, progress)
    if min(workers, len(jobs)) <= 1:
        for job in jobs:
            for round in _rounds(job):
                report.add(job, round)
            report.finish(job)
        return
    user_key()  # where there can be none, this process says so, once for all workers
    answers: queue.Queue[tuple[Job, dict[str, Any]]] = queue.Queue()
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    with _processes(min(workers, len(jobs))) as processes:
        for process in processes:
            threading.Thread(target=_feed, args=(process, waiting, answers), daemon=True).start()
        while report.unfinished:
            job, answer = answers.get()
            if "error" in answer:
                raise RunError(answer["error"])
            if answer["round"] is None:
                report.finish(job)
            else:
                report.add(job, answer["round"])


class _Counter:
    """Counts rounds over all jobs; a run that ends early counts as all its rounds."""

    def __init__(self, jobs: Sequence[Job], progress: Progress | None) -> None:
        self.progress, self.total = progress, sum(job.num_rounds for job in jobs)
        self.done = dict.fromkeys((job.folder for job in jobs), 0)
        self.unfinished = len(jobs)

    def add(self, job: Job, round: int) -> None:
        self.done[job.folder] = round + 1
        self._tell(f"{job.settings.name}, seed {job.settings.config.seed}, round {round}")

    def finish(self, job: Job) -> None:
        self.unfinished -= 1
        self.done[job.folder] = job.num_rounds
        self._tell(f"{job.settings.name}, seed {job.settings.config.seed}, done")

    def _tell(self, what: str) -> None:
        if self.progress is not None:
            self.progress(what, sum(self.done.values()), self.total)


def _rounds(job: Job) -> Iterator[int]:
    import torch

    # One thread, here as in a worker: the same sums, so the same networks.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for record in start(job.folder, job.settings, shared=job.shared):
            yield record.round
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _processes(number: int) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "surelabel.reproduce.workers"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes: list[subprocess.Popen[str]] = []
    try:
        for _ in range(number):
            with interrupts_blocked():
                processes.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
                )
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _feed(
    process: subprocess.Popen[str],
    waiting: "queue.SimpleQueue[Job]",
    answers: "queue.Queue[tuple[Job, dict[str, Any]]]",
) -> None:
    """Give a worker one job after another and pass its answers on, until no job waits."""
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        while True:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            for answer in _answers(process.stdin, process.stdout, job):
                answers.put((job, answer))
                if "error" in answer:
                    return


def _answers(stdin: IO[str], stdout: IO[str], job: Job) -> Iterator[dict[str, Any]]:
    try:
        shared = None if job.shared is None else str(job.shared)
        stdin.write(json.dumps([str(job.folder), job.settings.to_json(), shared]) + "\n")
        stdin.flush()
    except OSError:
        yield _lost(job)
        return
    for line in stdout:
        answer: dict[str, Any] = json.loads(line)
        yield answer
        if answer.get("round") is None:
            return
    yield _lost(job)


def _lost(job: Job) -> dict[str, Any]:
    return {"error": f"The worker process that made the run in '{job.folder}' has ended; look above for its message."}


def _work() -> None:
    """Make the runs that standard input names, until it is closed."""
    warnings.simplefilter("ignore", UnsignedRunWarning)
    # Only answers may go to standard output, whatever else is printed.
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    for line in sys.stdin:
        folder, settings, shared = json.loads(line)
        job = Job(Path(folder), RunSettings.model_validate(settings), None if shared is None else Path(shared))
        try:
            for round in _rounds(job):
                answer(round=round)
            answer(round=None)
        except SurelabelError as error:
            answer(error=str(error))


if __name__ == "__main__":
    try:
        _work()
    except BrokenPipeError:
        # Nobody is left to answer to. Standard output is closed, and Python would complain about that at its end.
        os._exit(1)
