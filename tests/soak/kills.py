"""SIGKILL at any moment: a run that is resumed ends bit for bit as one that was never killed, on a CPU.

A child tells of every step of training, and of every file that it opens for writing, flushes, renames or removes. So it
is known where a kill has met it.
"""

import itertools
import json
import os
import random
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from small_runs import difference, small_settings

from soak import bases
from soak.children import Child, Report, Scratch, Verdict
from surelabel.cli import main
from surelabel.cli._rounds import RoundsDisplay
from surelabel.errors import SurelabelError
from surelabel.runs.session import resume, start

HANGS = 124
WAIT = 0.003
"""Up to so many seconds a kill comes after what it is aimed at: a few steps of training, or a small file."""

Aim = Callable[[str], bool]


class Watch:
    """Reports what happens in this process; may end it at the n-th change of a file, in the middle of the writing."""

    def __init__(self, report: Report, kill_at: int = 0) -> None:
        self.report, self.kill_at, self.changes = report, kill_at, 0
        self.names = {"os.rename": "rename", "os.remove": "remove"}

    def begin(self) -> None:
        """Watch this process for the rest of its life."""
        sys.addaudithook(self.audit)
        os.fsync = self.flush
        RoundsDisplay.step = lambda display, what, done, total: self.report(f"{what} {done} {total}")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of a file that is opened for writing, renamed or removed: Python itself tells of these."""
        writes = event == "open" and arguments[2] & os.O_ACCMODE != os.O_RDONLY and not isinstance(arguments[0], int)
        if writes or event in self.names:
            self.change(self.names.get(event, "open"), os.fsdecode(arguments[event == "os.rename"]))

    def flush(self, descriptor: int) -> None:
        self.change("flush", os.readlink(f"/proc/self/fd/{descriptor}"), descriptor)

    def change(self, what: str, path: str, descriptor: int | None = None) -> None:
        self.changes += 1
        self.report(f"{what} {Path(path).name}")
        if self.changes == self.kill_at:
            if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)


class Killer:
    """Runs children and kills them; `events` are what the last one reported, `inside` the kills while one trained."""

    def __init__(self, scratch: Scratch, seed: int) -> None:
        self.work, self.output, self.rng = scratch.work, scratch.path / "output", random.Random(seed)
        self.events: list[str] = []
        self.kills, self.inside = 0, 0

    def run(self, work: Callable[[Report], int], aim: Aim | None = None, wait: float = 0.0) -> int:
        """Return the exit code, or minus the signal; the kill comes up to `wait` seconds after what it is aimed at."""
        child, self.events = Child(work, self.output), []
        try:
            for event in child.lines():
                self.events.append(event)
                if aim is not None and aim(event):
                    aim = None
                    time.sleep(self.rng.uniform(0, wait))
                    child.kill()
        except TimeoutError:
            child.wait()
            return HANGS
        return child.wait()

    def call(self, *words: object, aim: Aim | None = None, wait: float = 0.0) -> int:
        """Call `surelabel` in a child."""

        def work(report: Report) -> int:
            Watch(report).begin()
            report("begin")
            return main([str(word) for word in words])

        return self.run(work, aim, wait)

    def judged(self, killed: Verdict, code: int, compare: Callable[[], str]) -> Verdict:
        """Return the verdict on a kill after which the work was done again, with this exit code."""
        text = self.output.read_text(errors="replace") if code else compare()
        failed = "hangs" if code == HANGS else "tracebacks" if "Traceback" in text else "unexpected"
        fault = failed if code else "differences" if text else ""
        return killed._replace(fault=fault, note=f"{killed.note} {text[-400:]}")


def random_moments(scratch: Scratch, kills: int, seed: int, end: float) -> Iterator[Verdict]:
    """Kill `fit`, `resume` and `label` at random moments, half of them while a network trains; yield a verdict each."""
    bases.write_data(scratch.work)
    os.chdir(scratch.work)
    killer = Killer(scratch, seed)
    runs = [Runs(killer, kind) for kind in bases.KILLED]
    labels = Labels(killer, runs[0].expected)
    for number in itertools.count():
        yield from runs[number % len(runs)].kill(scratch.work / f"killed{number}", killer.rng.randint(1, 3))
        done = number + 1 >= len(runs) and killer.kills >= kills and 2 * killer.inside >= killer.kills
        if done or time.monotonic() > end:
            return
        if 2 * killer.inside > killer.kills:
            killer.kills += 1
            yield labels.kill()


class Runs:
    """Kills `fit` and `resume` of one of the runs in `bases.KILLED`."""

    def __init__(self, killer: Killer, kind: str) -> None:
        self.killer, self.kind, self.expected = killer, kind, killer.work / f"expected{kind}"
        self.words = (*bases.KILLED[kind], *bases.CHECKPOINTS)
        assert killer.call(*self.words, "--out", self.expected) == 0, killer.output.read_text()
        self.events = killer.events

    def kill(self, path: Path, most: int) -> list[Verdict]:
        """Kill a run up to `most` times, let it come to its end, compare it and remove it."""
        verdicts = list[Verdict]()
        shutil.rmtree(self.killer.work / "cache", ignore_errors=True)
        while True:
            words = ("resume", path) if (path / "run.json").exists() else (*self.words, "--out", path)
            code = self.killer.call(*words, aim=self.aim(path) if len(verdicts) < most else None, wait=WAIT)
            if code != -signal.SIGKILL:
                break
            trains = is_training(next((one for one in reversed(self.killer.events) if one.startswith("train ")), ""))
            where = "while a network trains" if trains else "elsewhere"
            kept = ", with a checkpoint" if [*path.glob("rounds/*/checkpoint.*")] else ""
            verdicts.append(Verdict(f"kills: {words[0]}{self.kind}", where + kept, note=self.killer.events[-1]))
            self.killer.kills, self.killer.inside = self.killer.kills + 1, self.killer.inside + trains
        last = verdicts.pop() if verdicts else Verdict(f"kills: {words[0]}{self.kind}", "missed")
        last = self.killer.judged(last, code, lambda: difference(path, self.expected))
        shutil.rmtree(path)
        return [*verdicts, last] if last.fault or last.ended != "missed" else []

    def aim(self, path: Path) -> Aim | None:
        """Return what is true of one event of those that the run has before it, in training or elsewhere."""
        wanted = self.killer.rng.random() < (0.9 if 2 * self.killer.inside <= self.killer.kills else 0.5)
        events = self.events
        if (path / "run.json").exists():
            rounds = len(json.loads((path / "history.json").read_text())["rounds"])
            events = events[[at for at, event in enumerate(events) if event == "rename history.json"][rounds] :]
        left = [event for event in events if is_training(event) == wanted]
        return nth(self.killer.rng.randrange(len(left)), lambda event: is_training(event) == wanted) if left else None


class Labels:
    """Kills `label`, whose file is whole or not there."""

    def __init__(self, killer: Killer, run: Path) -> None:
        self.killer, self.path = killer, killer.work / "labels.csv"
        self.words, began = ("label", run, "pets.csv", "--out", self.path), time.monotonic()
        assert killer.call(*self.words) == 0, killer.output.read_text()
        self.seconds, self.expected, self.events = time.monotonic() - began, self.path.read_bytes(), len(killer.events)

    def kill(self) -> Verdict:
        """Kill it, look at the file, write it again and compare."""
        code = 0
        while code != -signal.SIGKILL:  # until it is killed before its end
            self.path.unlink(missing_ok=True)
            chosen = self.killer.rng.randrange(self.events)
            code = self.killer.call(*self.words, aim=nth(chosen), wait=WAIT if chosen else self.seconds)
        found = self.path.read_bytes() if self.path.exists() else b""
        where = "with the file" if found else "before the file"
        code = self.killer.call(*self.words, "--force")
        same = found in (b"", self.expected) and self.path.exists() and self.path.read_bytes() == self.expected
        killed = Verdict("kills: label", where, note=self.killer.events[-1])
        return self.killer.judged(killed, code, lambda: "" if same else "another file")


def is_training(event: str) -> bool:
    """Whether a network trains after this event: it has steps to go.

    >>> is_training("train 199 200"), is_training("train 200 200"), is_training("flush run.json")
    (True, False, False)
    """
    return event.startswith("train ") and int(event.split()[1]) < int(event.split()[2])


def nth(number: int, wanted: Aim = lambda event: True) -> Aim:
    """Return what is true of the n-th event that is wanted, counted from 0."""
    count = itertools.count()
    return lambda event: wanted(event) and next(count) == number


def every_change(scratch: Scratch, end: float, stride: int = 1, name: str = "") -> Iterator[Verdict]:
    """Kill a run at every `stride`-th change of a file with such a name; yield a verdict for each."""
    folder = Path(tempfile.mkdtemp(dir=scratch.work))
    killer = Killer(scratch, 0)
    settings = small_settings(folder, with_validation=True, max_rounds=1, checkpoint_minutes=0.0).pinned()

    def run(path: Path, kill_at: int = 0) -> int:
        def work(report: Report) -> int:
            Watch(report, kill_at).begin()
            try:
                list(resume(path) if (path / "run.json").exists() else start(path, settings))
            except SurelabelError as error:
                print(f"error: {error}")
                return 1
            return 0

        return killer.run(work)

    for path in (folder / "first", folder / "expected"):  # only the first run of a user makes a key
        assert run(path) == 0, killer.output.read_text()
    changes = [(at, event) for at, event in enumerate(killer.events, 1) if name in event]
    for at, event in changes[::stride]:
        path = folder / f"killed{at}"
        assert run(path, kill_at=at) == -signal.SIGKILL, killer.output.read_text()
        code = run(path)
        killed = Verdict("kills: at each change of a file", event.split()[0], note=event)
        yield killer.judged(killed, code, lambda path=path: difference(path, folder / "expected"))
        shutil.rmtree(path)
        if time.monotonic() > end:
            return
