"""Runs that are killed with SIGKILL and resumed: each in a child forked from this process, which has torch loaded.

`python killing.py SCENARIO FOLDER [SEED] [KILLS]` prints a JSON list with an outcome for every killed run. The tests start
it as a process of its own, so that no thread of the test runner is lost in a fork.
"""

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

import pyarrow.compute
import pyarrow.parquet
import safetensors.torch
import torch

# Training loads these when it first needs them; here once for all children.
import torch._dynamo

import surelabel.learners.network
from surelabel.engine.train import TrainingSettings
from surelabel.rules import UPSConfig
from surelabel.runs import FunctionData, RunSettings, TorchLearnerSettings, environment, files, resume, start

torch.set_num_threads(1)

DATA = """
import numpy as np
from surelabel.runs import RunData

def blobs(with_validation=False):
    generator = np.random.default_rng(0)
    y = np.arange(72) % 3
    x = (generator.normal(size=(72, 4)) + 2.0 * np.eye(3, 4)[y]).astype(np.float32)
    validation = (x[60:], y[60:]) if with_validation else None
    return RunData((x[:9], y[:9]), x[9:60], ["a", "b", "c"], validation=validation, truth=y[9:60])
"""


def make_settings(folder: Path, *, with_validation: bool, max_rounds: int) -> RunSettings:
    """Write the data's function to a file and return the settings of a run that takes some ten milliseconds a round."""
    file = folder / "blobs.py"
    file.write_text(DATA)
    training = TrainingSettings(epochs=4, learning_rate=0.3, batch_size=32)
    return RunSettings(
        learner=TorchLearnerSettings(hidden=(8,), passes=3, training=training, device="cpu"),
        data=FunctionData(function=f"{file}:blobs", arguments={"with_validation": with_validation}),
        config=UPSConfig(tau_p=0.5, tau_n=0.2, kappa_p=0.3, kappa_n=0.3, max_rounds=max_rounds, balance_rounds=1),
    )


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
    """Ends this process at the n-th step of writing: before a write, halfway through it, before a flush, a rename or a
    removal. It notes each step first."""

    def __init__(self, at: int, log: Path) -> None:
        self.at, self.steps, self.log = at, 0, log
        for name in ("_write", "_flush", "_rename", "_remove"):
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
            self.log.write_text(f"{name[1:]} {Path(target).name if isinstance(target, Path) else ''}".strip())
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at(step: int, folder: Path, settings: RunSettings) -> None:
    Killer(step, folder.with_suffix(".step"))
    finish(folder, settings)


def killed_after_round(number: int, folder: Path, settings: RunSettings) -> None:
    for record in go(folder, settings):
        if record.round == number:
            os.kill(os.getpid(), signal.SIGKILL)


def difference(folder: Path, expected: Path) -> str:
    """Say how a run differs from one that was never interrupted, but for the time it took; empty: not at all."""
    names = [{str(path.relative_to(root)) for path in root.rglob("*")} for root in (folder, expected)]
    if names[0] != names[1]:
        return f"other files: {sorted(names[0] ^ names[1])}"
    for name in sorted(names[0]):
        if name.startswith("rounds/") and (folder / name).is_file():
            if (folder / name).read_bytes() != (expected / name).read_bytes():
                return f"{name} differs"
    if history(folder) != history(expected):
        return "history.json differs"
    if (folder / "run.json").read_bytes() != (expected / "run.json").read_bytes():
        return "run.json differs"
    return ""


def history(folder: Path) -> list[dict[str, Any]]:
    rounds = json.loads((folder / "history.json").read_text())["rounds"]
    return [{key: value for key, value in entry.items() if key != "minutes"} for entry in rounds]


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


def every_step_of_resuming(folder: Path, settings: RunSettings, expected: Path) -> list[dict[str, str]]:
    """Kill a run halfway through round 1's first file, and then, resumed, at each step up to the commit of round 1."""
    outcomes: list[dict[str, str]] = []
    while not outcomes or "remove model.safetensors" != outcomes[-1]["killed"]:
        path, at = folder / f"resumed{len(outcomes)}", len(outcomes) + 1
        in_child(lambda path=path: killed_at(41, path, settings))
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


def main(scenario: str, folder: Path, seed: int = 0, kills: int = 5) -> list[dict[str, str]]:
    slow = scenario == "many"
    settings = make_settings(folder, with_validation=slow, max_rounds=4 if slow else 2).pinned()
    environment.describe_environment()  # asks git once for all children
    expected, began = folder / "expected", time.monotonic()
    in_child(lambda: finish(expected, settings))
    seconds = time.monotonic() - began
    if slow:
        return random_moments(folder, settings, expected, seconds, seed, kills)
    return [
        *every_step(folder, settings, expected),
        *every_step_of_resuming(folder, settings, expected),
        *every_round(folder, settings, expected),
        *random_moments(folder, settings, expected, seconds, seed, kills),
    ]


if __name__ == "__main__":
    scenario, folder, *numbers = sys.argv[1:]
    json.dump(main(scenario, Path(folder), *map(int, numbers)), sys.stdout)
