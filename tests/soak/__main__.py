"""Kill, feed and damage surelabel many times, and count what came of it; a fault is printed with what makes it again.

python -m soak                      # all of it, at most 40 minutes on two cores
python -m soak --seed 3 --input 17  # one generated input again
"""

import argparse
import functools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from soak import inputs
from soak.children import FAULTS, Scratch, Tally, Verdict, in_batches, prepare
from soak.damage import Case, Damages
from soak.kills import every_change, random_moments
from surelabel.runs.rows import append

COLUMNS = ("what", "count", "details", *FAULTS, "seconds", "seed", "commit", "machine", "python", "torch")


class Soak:
    """Runs the parts and counts; `tallies` are by area."""

    def __init__(self, scratch: Scratch, seed: int, end: float) -> None:
        self.scratch, self.seed, self.end, self.tallies = scratch, seed, end, dict[str, Tally]()

    def kills(self, number: int) -> None:
        """Kill commands at random moments."""
        self.count("kill", enumerate(random_moments(self.scratch, number, self.seed, self.end)))

    def changes(self, stride: int = 1, name: str = "") -> None:
        """Kill a run at every `stride`-th change of a file with such a name."""
        self.count("change", enumerate(every_change(self.scratch, self.end, stride, name)))

    def inputs(self, indices: Iterable[int]) -> None:
        """Hand over generated inputs."""
        base = self.base
        check = lambda index: inputs.check(self.seed, index, base)  # noqa: E731
        self.count("input", in_batches(check, indices, self.scratch, self.end))

    def damages(self, number: int = sys.maxsize, wanted: Callable[[Case], bool] = lambda case: True) -> None:
        """Damage run folders in all ways that are wanted, or in this many of them."""
        damaged = self.damaged
        chosen = [index for index, case in enumerate(damaged.cases) if wanted(case)]
        random.Random(self.seed).shuffle(chosen)
        self.count("damage", in_batches(damaged.check, chosen[:number], self.scratch, self.end))

    @functools.cached_property
    def base(self) -> Path:
        """The folder that generated inputs begin with."""
        return inputs.prepare(self.scratch.work / "base")

    @functools.cached_property
    def damaged(self) -> Damages:
        """The runs whose files are damaged."""
        return Damages(self.scratch, self.seed)

    def count(self, what: str, verdicts: Iterable[tuple[int, Verdict]]) -> None:
        """Take note of verdicts; print those with a fault."""
        began = time.monotonic()
        for index, verdict in verdicts:
            tally, now = self.tallies.setdefault(verdict.area, Tally()), time.monotonic()
            tally.add(verdict)
            tally.seconds, began = tally.seconds + now - began, now
            if verdict.fault:
                note = " ".join(verdict.note.split())[:400]
                print(f"seed {self.seed}, {what} {index}: {verdict.fault} in {verdict.area}: {note}", flush=True)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each area."""
        from surelabel.runs.environment import describe_environment

        here = describe_environment()
        origin = {
            "seed": self.seed,
            "commit": here["commit"],
            "machine": f"{here['processor']}, {here['cores']} cores",
            "python": here["versions"]["python"],
            "torch": here["versions"]["torch"],
        }
        return [{"what": area, **tally.row(), **origin} for area, tally in sorted(self.tallies.items())]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as text, a line each."""
    shown = ("what", "count", *FAULTS, "seconds", "details")
    lines = [shown, *([str(row[name]) for name in shown] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(shown))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="everything generated follows from it")
    parser.add_argument("--kills", type=int, default=200, help="at random moments")
    parser.add_argument("--inputs", type=int, default=10_000, help="generated inputs")
    parser.add_argument("--input", type=int, action="append", help="only the generated input with this number")
    parser.add_argument("--minutes", type=float, default=38, help="what is not done by then is left out")
    parser.add_argument("--results", type=Path, help="a CSV file to append the counts to")
    options = parser.parse_args(arguments)
    results = options.results and options.results.absolute()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Scratch(Path(folder).resolve()), options.seed, time.monotonic() + 60 * options.minutes)
        prepare()
        if not options.input:
            soak.kills(options.kills)
            soak.changes()
            soak.damages()
        soak.inputs(options.input or range(options.inputs))
        os.chdir("/")
    rows = soak.rows()
    print(table(rows))
    if results:
        append(results, COLUMNS, rows)
    if time.monotonic() > soak.end:
        print(f"Not all was done in {options.minutes:g} minutes.")
    return int(time.monotonic() > soak.end or any(row[name] for row in rows for name in FAULTS))


if __name__ == "__main__":
    sys.exit(main())
