"""Is this version slower than an older one? Training and labeling by both, in turns, in one run.

    git worktree add ../older a8a665b
    python -m benchmarks.two_trees ../older --results results/bench.csv

Each tree has a process of its own, with that tree's package in front. It is warmed up once, and then does a piece of
work when it is told to, while the other one waits.
"""

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.results import append_rows, check_file, describe_device, origin
from benchmarks.timing import medians

HERE = Path(__file__).parents[1]
SERVE = """
import functools, sys, torch
try:
    from benchmarks.engine_way import Engine
    from benchmarks.work import make_work
except ModuleNotFoundError:  # before benchmarks/ left the package
    from surelabel.bench.engine_way import Engine
    from surelabel.bench.work import make_work
from surelabel.models.cnn13 import cnn13

device, width, images, batch, label_batch = sys.argv[1], *map(int, sys.argv[2:])
sizes = {"num_images": images, "batch": batch, "label_batch": label_batch, "passes": 10, "workers": 0}
engine = Engine(make_work(functools.partial(cnn13, width=width), **sizes, device=torch.device(device)))
for what in sys.stdin:
    print(getattr(engine, what.strip() + "_seconds")(), flush=True)
"""


class Tree:
    """The engine of a tree in a process of its own."""

    def __init__(self, path: Path, arguments: Sequence[str]) -> None:
        places = os.pathsep.join([str(path / "src"), str(path), os.environ.get("PYTHONPATH", "")])
        self._path = path
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=path,
            env={**os.environ, "PYTHONPATH": places},
        )

    def seconds(self, what: str) -> float:
        """Return the seconds for each image of one piece of work."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and gives no answer
            print(what, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"The engine in '{self._path}' ended with {self._process.wait()}; its error is above.")
        return float(answer)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def trees(paths: Sequence[Path], arguments: Sequence[str]) -> Iterator[list[Tree]]:
    """Yield a tree for each path, and end their processes."""
    opened: list[Tree] = []
    try:
        opened += [Tree(path, arguments) for path in paths]
        yield opened
    finally:
        for tree in opened:
            tree.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", type=Path, help="a checkout of another version")
    parser.add_argument("--name", help="what to call that version in the row; its folder's name unless given")
    parser.add_argument("--results", type=Path, help="append the rows to this CSV file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--width", type=int, default=128, help="of CNN-13")
    parser.add_argument("--images", type=int, default=51_200)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--label-batch", type=int, default=20_480)
    options = parser.parse_args(arguments)
    if options.results is not None:
        check_file(options.results)
    device = torch.device(options.device)
    sizes = [str(size) for size in (options.width, options.images, options.batch, options.label_batch)]
    older = options.older.resolve()
    rows = []
    with trees([HERE, older], [options.device, *sizes]) as (this, that):
        for what, name, batch in (
            ("train", "training", options.batch),
            ("label", "labeling, 10 passes", options.label_batch),
        ):
            ways = {"this": lambda what=what: this.seconds(what), "that": lambda what=what: that.seconds(what)}
            found = medians(ways, options.repeats)
            ratio = found["that"] / found["this"]
            print(f"{what}: {1 / found['this']:,.0f} and {1 / found['that']:,.0f} images a second, ratio {ratio:.3f}")
            rows.append(
                {
                    "what": f"{name}, beside an older version",
                    "model": f"cnn13, beside {options.name or older.name}",
                    "batch": batch,
                    "per_second": 1 / found["this"],
                    "plain_per_second": 1 / found["that"],
                    "ratio": ratio,
                    **origin(device),
                }
            )
    print(describe_device(device))
    if options.results is not None:
        append_rows(options.results, rows)


if __name__ == "__main__":
    main()
