"""Runs that are killed with SIGKILL and resumed: each in a child forked from this process, which has torch loaded.

`python killing.py SCENARIO FOLDER [SEED] [KILLS]` prints a JSON list with an outcome for every killed run. The tests
start it as a process of its own, so that no thread of the test runner is lost in a fork.
"""

import gc
import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from small_runs import difference, small_settings

from surelabel.runs import RunSettings, environment, files, resume, start

# What a run loads when it first needs it; here once for all children.
for module in ("torch._dynamo", "pyarrow.parquet", "pyarrow.compute", "surelabel.learners.network"):
    importlib.import_module(module)


def in_child(work: Callable[[], object], kill_after: float | None = None) -> int:
    """Do the work in a forked child; return the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a child failed, see above")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def go(folder: Path, settings: RunSettings) -> Iterator[Any]:
    """Resume a run, or start it if it has not begun: what a user does after a crash."""
    return resume(folder) if (folder / "run.json").exists() else start(folder, settings)


def finish(folder: Path, settings: RunSettings) -> None:
    for _ in go(folder, settings):
        pass


class Killer:
    """Ends this process at the n-th step of writing: before a write, halfway through it, before a rename or a removal.

    Before a flush there is nothing new to see: what a killed process has written is the kernel's already.
    """

    def __init__(self, at: int, log: Path) -> None:
        self.at, self.steps, self.log = at, 0, log
        for name in ("_write", "_rename", "_remove"):
            setattr(files, name, self.wrap(name, getattr(files, name)))

    def wrap(self, name: str, function: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*arguments: Any) -> None:
            self.step(name, arguments)
            if name == "_write" and self.at == self.steps + 1:
                path, data = arguments
                path.write_bytes(data[: len(data) // 2])
            if name == "_write":
                self.step("_half", arguments)
            function(*arguments)

        return wrapped

    def step(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.steps += 1
        if self.steps == self.at:
            target = arguments[-1] if name == "_rename" else arguments[0]
            self.log.write_text(f"{name[1:]} {target.name}")
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at(step: int, folder: Path, settings: RunSettings) -> None:
    Killer(step, folder.with_suffix(".step"))
    finish(folder, settings)


def killed_after_round(number: int, folder: Path, settings: RunSettings) -> None:
    for record in go(folder, settings):
        if record.round == number:
            os.kill(os.getpid(), signal.SIGKILL)


def outcome(folder: Path, settings: RunSettings, expected: Path, what: str) -> dict[str, str]:
    """Resume a killed run to its end, compare it, and remove it."""
    in_child(lambda: finish(folder, settings))
    result = {"killed": what, "difference": difference(folder, expected)}
    shutil.rmtree(folder)
    return result


def every_step(folder: Path, settings: RunSettings, expected: Path) -> list[dict[str, str]]:
    """Kill a run at its first step of writing, at its second, and so on, until one comes to its end."""
    outcomes: list[dict[str, str]] = []
    while True:
        path, at = folder / f"step{len(outcomes)}", len(outcomes) + 1
        if in_child(lambda path=path, at=at: killed_at(at, path, settings)) == 0:
            outcomes.append({"killed": "never", "difference": difference(path, expected)})
            return outcomes
        outcomes.append(outcome(path, settings, expected, path.with_suffix(".step").read_text()))


def every_step_of_resuming(folder: Path, settings: RunSettings, expected: Path, first: int) -> list[dict[str, str]]:
    """Kill a run at the step `first`, and then, resumed, at each step until the commit of that round is past."""
    outcomes: list[dict[str, str]] = []
    killed_once = folder / "killed_once"
    assert in_child(lambda: killed_at(first, killed_once, settings)) == signal.SIGKILL
    while not outcomes or outcomes[-1]["killed"] != "remove model.safetensors":
        path, at = folder / f"resumed{len(outcomes)}", len(outcomes) + 1
        shutil.copytree(killed_once, path)
        assert in_child(lambda path=path, at=at: killed_at(at, path, settings)) == signal.SIGKILL
        outcomes.append(outcome(path, settings, expected, path.with_suffix(".step").read_text()))
    return outcomes


def every_round(folder: Path, settings: RunSettings, expected: Path) -> list[dict[str, str]]:
    """Kill a run as soon as it has handed out the record of a round, for each round."""
    outcomes = []
    for number in range(settings.config.max_rounds + 1):
        path = folder / f"round{number}"
        assert in_child(lambda path=path, n=number: killed_after_round(n, path, settings)) == signal.SIGKILL
        outcomes.append(outcome(path, settings, expected, f"after round {number}"))
    return outcomes


def random_moments(
    folder: Path, settings: RunSettings, expected: Path, seconds: float, seed: int, kills: int
) -> list[dict[str, str]]:
    """Kill runs at random moments, over and over until each has come to its end, `kills` times in all."""
    generator, outcomes, done = random.Random(seed), [], 0
    while done < kills:
        path, here = folder / f"random{done}", 0
        path.mkdir()
        while done < kills and in_child(lambda path=path: finish(path, settings), generator.uniform(0, seconds)):
            done, here = done + 1, here + 1
        outcomes.append(outcome(path, settings, expected, f"{here} times"))
    return outcomes


def prepare() -> None:
    """Make children quick."""
    torch.set_num_threads(1)
    pa.array(np.zeros(1))  # loads pandas
    environment.describe_environment()  # asks git
    os.fsync = lambda descriptor: None  # only a power failure would tell the difference
    gc.collect()
    gc.freeze()


def main(scenario: str, folder: Path, seed: int = 0, kills: int = 5) -> list[dict[str, str]]:
    slow = scenario == "many"
    settings = small_settings(folder, with_validation=slow, max_rounds=4 if slow else 2).pinned()
    prepare()
    expected, began = folder / "expected", time.monotonic()
    in_child(lambda: finish(expected, settings))
    seconds = time.monotonic() - began
    if slow:
        return random_moments(folder, settings, expected, seconds, seed, kills)
    steps = every_step(folder, settings, expected)
    in_round_1 = [number for number, step in enumerate(steps, 1) if step["killed"] == "half .pool.parquet.tmp"][1]
    return [
        *steps,
        *every_step_of_resuming(folder, settings, expected, in_round_1),
        *every_round(folder, settings, expected),
        *random_moments(folder, settings, expected, seconds, seed, kills),
    ]


if __name__ == "__main__":
    scenario, folder, *numbers = sys.argv[1:]
    json.dump(main(scenario, Path(folder), *map(int, numbers)), sys.stdout)
