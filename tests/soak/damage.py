"""Every file of a run folder, damaged in seven ways: a command names it, or its result is right all the same.

The runs have rounds or folds to go, two of them since they were killed, so that `resume` has work to do.
"""

import itertools
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from small_runs import contents, difference

from soak import bases
from soak.children import Scratch, Verdict, call, judge
from soak.kills import Aim, Killer

WORDS: dict[str, tuple[str, ...]] = {
    "resume": ("resume", "run"),
    "predict": ("predict", "run", "INPUT", "--out", "out.csv"),
    "label": ("label", "run", "INPUT", "--out", "out.csv"),
    "report": ("report", "run", "--out", "out.html"),
}
INPUTS = {"network": "pets.csv", "sklearn": "pets.csv", "compared": "few.csv", "folder": "photos"}


def words_for(run: str, command: str) -> list[str]:
    """Return the words of a command; each run has work to do, and a comparison that was killed has folds."""
    words = [INPUTS[run] if word == "INPUT" else word for word in WORDS[command]]
    return [*words, "--rounds", "2"] if command == "resume" and run != "compared" else words


class Case(NamedTuple):
    """A file of a run, what happens to it, and the command that meets it."""

    run: str
    file: str
    damage: str
    command: str


def _flip(rng: random.Random, path: Path) -> bytes:
    data = bytearray(path.read_bytes() or b"\0")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _other(rng: random.Random, path: Path) -> bytes:
    run = next(folder for folder in path.parents if folder.name == "run")
    like = [file for file in run.rglob("*") if file.suffix == path.suffix and file.is_file() and file != path]
    return rng.choice(like or [run / "run.json"]).read_bytes()


DAMAGES: dict[str, Callable[[random.Random, Path], bytes | None]] = {
    "emptied": lambda rng, path: b"",
    "cut in half": lambda rng, path: path.read_bytes()[: path.stat().st_size // 2],
    "a bit flipped": _flip,
    "bytes appended": lambda rng, path: path.read_bytes() + rng.randbytes(rng.randint(1, 64)),
    "random bytes": lambda rng, path: rng.randbytes(max(1, path.stat().st_size)),
    "another file of the run": _other,
    "removed": lambda rng, path: None,
}


class Damages:
    """The runs, what each command makes of them where nothing is damaged, and all cases."""

    def __init__(self, scratch: Scratch, seed: int) -> None:
        self.folder, self.seed, self.runs = scratch.work / "damage", seed, scratch.work / "whole"
        self.folder.mkdir()
        os.chdir(self.folder)
        bases.write_data(self.folder)
        self.made(Killer(scratch, seed))
        self.expected = {(run, command): self.result(run, command) for run in INPUTS for command in WORDS}
        files = [(run.name, name) for run in sorted(self.runs.iterdir()) for name in sorted(contents(run))]
        self.cases = [Case(*file, *rest) for file in files for rest in itertools.product(DAMAGES, WORDS)]

    def made(self, killer: Killer) -> None:
        """Make the runs: one is killed in round 1 after its first checkpoint, one after a fold; two did round 0."""
        seen = Counter[str]()

        def has_checkpoint(event: str) -> bool:
            seen[event] += 1
            if event == "rename history.json":
                seen["rename checkpoint.bin"] = 0
            return seen["rename history.json"] == 2 and seen["rename checkpoint.bin"] == 2

        aims: dict[str, tuple[tuple[str, ...], Aim]] = {
            "network": (bases.FIT, has_checkpoint),
            "compared": (bases.COMPARED, lambda event: event == "rename comparison.json"),
        }
        for name, (words, aim) in aims.items():
            code = killer.call(*words, *bases.CHECKPOINTS, "--out", self.runs / name, aim=aim)
            assert code == -signal.SIGKILL, killer.output.read_text()
        for name, words in {"sklearn": bases.RUNS["sklearn"], "folder": bases.FOLDER}.items():
            code, text = call(*words, "--rounds", "0", "--out", self.runs / name)
            assert code == 0, text

    def fresh(self, run: str) -> Path:
        """Put a copy of a run in its place, and nothing beside it."""
        for name in ("run", "out.csv", "out.html"):
            shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink(missing_ok=True)
        shutil.copytree(self.runs / run, "run")
        return self.folder / "run"

    def result(self, run: str, command: str) -> Path:
        """Return where the right result of a command lies: a folder, or a file."""
        self.fresh(run)
        code, text = call(*words_for(run, command))
        assert code == 0, text
        made, kept = self.made_by(command), self.runs.with_name(f"{run}-{command}")
        made.rename(kept)
        return kept

    def made_by(self, command: str) -> Path:
        """Return the folder or file that a command makes."""
        return self.folder / ("run" if command == "resume" else WORDS[command][-1])

    def check(self, index: int) -> Verdict:
        """Damage a file and call a command."""
        os.chdir(self.folder)
        case = self.cases[index]
        path, rng = self.fresh(case.run) / case.file, random.Random(f"{self.seed}/{index}")
        data = DAMAGES[case.damage](rng, path)
        path.write_bytes(data) if data is not None else path.unlink()
        before = contents(self.folder / "run")
        code, text = call(*words_for(case.run, case.command))
        ended, fault = judge(code, text)
        if not fault and ended == "refused":
            after = contents(self.folder / "run")
            changed = [name for name in before | after if before.get(name) != after.get(name) and name != ".lock"]
            fault = "unexpected" if case.file not in text else "differences" if changed else ""
            text = f"{text} changed: {changed}"
        elif not fault:
            made, expected = self.made_by(case.command), self.expected[case.run, case.command]
            if not path.exists() and (expected / case.file).exists():  # what nothing needs may stay away
                shutil.copy(self.runs / case.run / case.file, path)
            same = not difference(made, expected) if made.is_dir() else made.read_bytes() == expected.read_bytes()
            fault = "" if same else "differences"
        return Verdict(f"damage: {case.command}", ended, fault, f"{case}: {text[-400:]}" if fault else "")
