"""Workers end with the process that started them, however it ends; a lock is held by one process at a time."""

import math
import operator
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from surelabel.base.processes import WorkerCrashedError, call_in_workers, locked
from surelabel.errors import RunLockedError


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_results_come_in_the_order_of_the_calls(workers: int) -> None:
    assert list(call_in_workers(operator.sub, [(5, number) for number in range(5)], workers)) == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_worker_is_raised_here(workers: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(call_in_workers(operator.truediv, [(1, 0)], workers))


def test_a_worker_that_crashes_is_told() -> None:
    results = call_in_workers(os._exit, [(3,)], 1)
    with pytest.raises(WorkerCrashedError, match="has crashed"):
        next(results)


# A script without the usual guard: no worker may run it again.
SCRIPT = """
import threading, time
from multiprocessing import active_children
from surelabel.base.processes import call_in_workers

def tell():
    while len(active_children()) < 2:
        time.sleep(0.01)
    print("begun", *(child.pid for child in active_children()), flush=True)

threading.Thread(target=tell).start()
print("made", *call_in_workers({function}, [({seconds},)] * 2, 2), flush=True)
"""


def started(path: Path, function: str, seconds: float) -> subprocess.Popen[str]:
    path.write_text(SCRIPT.format(function=function, seconds=seconds))
    command = [sys.executable, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize("wait", [0.0, 1.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_process_that_started_it(tmp_path: Path, number: signal.Signals, wait: float) -> None:
    process = started(tmp_path / "script.py", "time.sleep", 1000)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("begun")
    time.sleep(wait)  # while workers start, or later
    # From a terminal Ctrl-C reaches all processes.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    # Workers hold the other ends of these pipes too, so that this waits for them.
    output, errors = process.communicate()
    assert output == ""
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)


def test_a_worker_does_not_hear_ctrl_c_not_even_while_it_starts(tmp_path: Path) -> None:
    process = started(tmp_path / "script.py", "abs", -1)
    assert process.stdout is not None
    for worker in process.stdout.readline().split()[1:]:
        os.kill(int(worker), signal.SIGINT)
    assert process.communicate() == ("made 1 1\n", "")


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    order: list[str] = []

    def second() -> None:
        with locked(tmp_path / ".lock", math.inf, "wait for it"):
            order.append("second")

    with ThreadPoolExecutor(1) as threads, locked(tmp_path / ".lock"):
        with pytest.raises(RunLockedError, match=rf"Another process \(process {os.getpid()}\) is writing"):
            locked(tmp_path / ".lock").__enter__()
        waiting = threads.submit(second)
        while not caplog.text:
            time.sleep(0.01)
        order.append("first")
    waiting.result()
    assert caplog.messages == ["wait for it"]
    assert order == ["first", "second"]
