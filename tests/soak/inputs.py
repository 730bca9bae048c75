"""Generated inputs: files for every reader, options for every command, run folders that somebody has edited.

Each follows from the seed and its number alone.
"""

import os
import random
import shutil
from pathlib import Path

from soak import bases, folders, options, readers
from soak.children import Verdict
from surelabel.cli import _rounds
from surelabel.cli._rounds import RoundsDisplay

STEPS = 210
"""After so many steps of training a command is interrupted, which is an end that is right; round 0 takes 200."""


class Counted(RoundsDisplay):
    """Interrupts a command that trains for long, as Ctrl-C does."""

    steps = 0

    def step(self, what: str, done: int, total: int) -> None:
        Counted.steps += 1
        if Counted.steps > STEPS:
            raise KeyboardInterrupt
        super().step(what, done, total)


def prepare(base: Path) -> Path:
    """Make the data and the runs that inputs begin with."""
    base.mkdir()
    os.chdir(base)
    bases.write_data(base)
    bases.make(base)
    return base


def check(seed: int, index: int, base: Path) -> Verdict:
    """Make the input, hand it over, look at what comes of it, and remove it."""
    rng, folder = random.Random(f"{seed}/{index}"), base.with_name(f"input{index}")
    kind = rng.choices((readers, options, folders), (8, 1, 1))[0]
    Counted.steps, _rounds.RoundsDisplay = 0, Counted
    if kind is readers:
        folder.mkdir()
    else:
        shutil.copytree(base, folder)
    os.chdir(folder)
    try:
        return kind.check(rng, folder)
    finally:
        os.chdir(base)
        shutil.rmtree(folder)
