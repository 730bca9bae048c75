"""Rounds over a pool in shards, undisturbed and with kills: rows a second, memory, and how much work is done twice.

    OMP_NUM_THREADS=1 python -m benchmarks.rounds_at_scale --samples 1000000 --engine ray --workers 2 --results results

`surelabel fit --pool` runs over made-up Parquet shards. Then it runs again, and in each of its rounds two workers and
the driver are killed (SIGKILL), once a quarter, a half and three quarters of the shards are labeled; `surelabel resume`
goes on. Both must end with the same labels in every round and the same model, bit for bit.

A network that counts the rows that workers label tells how many of them were labeled twice. Memory is the peak of a
process, told apart as driver, worker and helpers, such as the servers of Ray.
"""

import argparse
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pool_at_scale import COLUMNS
from surelabel.data.tables import write_table
from surelabel.runs.environment import describe_environment
from surelabel.runs.rows import append

FEATURES, CLASSES, LABELED = 64, 10, 1000
NETWORK = '''
import math, os
from surelabel.models.table import TableNetwork

class Counting(TableNetwork):
    """The network for tables; a process writes down how many rows it labels."""

    def __init__(self, shape, classes):
        super().__init__(math.prod(shape), classes)

    def forward(self, x):
        if not self.training and "COUNTED" in os.environ:
            with open(f"{os.environ['COUNTED']}/{os.getpid()}", "a") as file:
                file.write(f"{len(x)}\\n")
        return super().forward(x)
'''
POINTS = {0.25: "worker", 0.5: "worker", 0.75: "driver"}
"""Who is killed in each round, and once which share of the shards is labeled."""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2, help="after round 0")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--engine", choices=["local", "ray"], default="local")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where shards and runs are made, and stay; else they are removed")
    parser.add_argument("--results", type=Path, help="append to scale.csv in this folder")
    options = parser.parse_args(words)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="surelabel-rounds-"))
    try:
        rows = measure(Soak(folder.absolute(), options), options)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    if options.results:
        append(options.results / "scale.csv", COLUMNS, rows)


def measure(soak: "Soak", options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run both, compare them, and return the rows of `results/scale.csv`."""
    make_samples(soak.folder, options.samples, options.shards)
    labeled = options.samples * (options.rounds + 1)
    how = f"{options.rounds + 1} rounds over shards, {options.workers} {options.engine} workers"
    rows: list[dict[str, Any]] = []
    environment = describe_environment()
    about = {"classes": CLASSES, "python": environment["versions"]["python"], "numpy": np.__version__}
    about |= {"machine": f"{environment['processor']}, {environment['cores']} cores", "commit": environment["commit"]}

    def add(what: str, samples: int, **values: Any) -> None:
        rows.append({**about, "what": what, "samples": samples, **values})
        print(f"{what:78s}{samples:12,}  {values}", flush=True)

    for name, run in {"undisturbed": soak.undisturbed, "killed": soak.killed}.items():
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        add(f"{how}, {name}", labeled, seconds=f"{seconds:.4g}", per_second=f"{labeled / seconds:.4g}")
        for role, peak in sorted(soak.peaks.items()):
            add(f"{how}, {name}: memory of a {role}", labeled, peak_mib=f"{peak / 1024:.0f}")
        soak.peaks.clear()
    twice = round(labeled * (soak.counted("killed") / soak.counted("undisturbed") - 1))
    add(f"{how}: rows labeled twice after {soak.kills} kills", twice)
    soak.check_alike(options.rounds)
    print("The labels of every round and the model are the same, bit for bit.")
    return rows


def make_samples(folder: Path, number: int, shards: int) -> None:
    """Write a table of labels and the shards of a pool."""
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    names = [f"x{place}" for place in range(FEATURES)]

    def drawn(count: int) -> tuple[dict[str, Any], Any]:
        y = np.arange(count) % CLASSES
        x = 0.5 * centers[y] + generator.normal(size=(count, FEATURES)).astype(np.float32)
        return dict(zip(names, x.T, strict=True)), y

    x, y = drawn(LABELED)
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "labeled.csv", {**x, "label": np.array([f"class {one}" for one in y])}, overwrite=True)
    (folder / "net.py").write_text(NETWORK)
    (folder / "pool").mkdir(exist_ok=True)
    for shard, rows in enumerate(np.array_split(np.arange(number), shards)):
        pq.write_table(pa.table(drawn(len(rows))[0]), folder / "pool" / f"{shard:04d}.parquet", row_group_size=10_000)


class Soak:
    """One pool, and runs over it.

    Attributes:
        folder: of the samples and the runs.
        peaks: the largest memory of a process, in KiB, by what it is.
        kills: how many processes were killed.
    """

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.peaks: dict[str, int] = defaultdict(int)
        self.kills = 0

    def undisturbed(self) -> None:
        """Run without kills."""
        self._begin("undisturbed", self._fit("undisturbed"), lambda driver: None)

    def killed(self) -> None:
        """Run with kills, and resume after those of the driver."""
        words = self._fit("killed")
        for number in range(self.options.rounds + 1):
            self._begin("killed", words, functools.partial(self._disturb, number))
            words = ["resume", "killed", *self._workers()]
        self._begin("killed", words, lambda driver: None)

    def counted(self, name: str) -> int:
        """Return how many rows workers have labeled in a run, times the passes that the network is called for."""
        files = (self.folder / f"counted {name}").iterdir()
        return sum(int(line) for file in files for line in file.read_text().splitlines())

    def check_alike(self, last: int) -> None:
        """Refuse runs that do not end alike."""
        files = [f"rounds/{number:03d}/{name}" for number in range(last + 1) for name in TABLES]
        for name in (*files, f"rounds/{last:03d}/model.safetensors"):
            one, other = ((self.folder / run / name).read_bytes() for run in ("undisturbed", "killed"))
            if one != other:
                raise SystemExit(f"{name} differs between the two runs, in {self.folder}.")

    def _fit(self, name: str) -> list[str]:
        words = ["fit", "labeled.csv", "--label", "label", "--pool", "pool/", "--model", "net.py:Counting"]
        words += ["--rounds", str(self.options.rounds), "--epochs", str(self.options.epochs), "--out", name]
        return [*words, *self._workers()]

    def _workers(self) -> list[str]:
        return ["--engine", self.options.engine, "--workers", str(self.options.workers), "--quiet"]

    def _begin(self, name: str, words: list[str], disturb: Callable[[subprocess.Popen[bytes]], None]) -> None:
        """Start a driver, watch and disturb it, and wait for its end."""
        counted = self.folder / f"counted {name}"
        counted.mkdir(exist_ok=True)
        variables = {**os.environ, "COUNTED": str(counted), "PYTHONPATH": os.pathsep.join(sys.path)}
        driver = subprocess.Popen([sys.executable, "-m", "surelabel", *words], cwd=self.folder, env=variables)
        watch = threading.Thread(target=self._watch, args=(driver,))
        watch.start()
        disturb(driver)
        code = driver.wait()
        watch.join()
        (counted / str(driver.pid)).unlink(missing_ok=True)  # what it has tried and scored is no labeling of the pool
        if code not in (0, -signal.SIGKILL):
            raise SystemExit(f"'surelabel {' '.join(words)}' ended with {code}, in {self.folder}.")

    def _disturb(self, number: int, driver: subprocess.Popen[bytes]) -> None:
        """Kill in one round what `POINTS` says."""
        parts = self.folder / "killed" / "rounds" / f"{number:03d}" / "parts"
        for share, role in POINTS.items():
            killed = None
            while killed is None and driver.poll() is None:
                time.sleep(0.02)
                if len(list(parts.glob("[0-9]*"))) >= share * self.options.shards:
                    # After one was killed, it takes some seconds until there are workers again.
                    killed = driver.pid if role == "driver" else next(_workers_of(driver.pid), None)
            if killed is None:
                raise SystemExit(f"Round {number} was over before a {role} could be killed; take more samples.")
            with_it = _descendants(driver.pid) if role == "driver" else []
            os.kill(killed, signal.SIGKILL)
            self.kills += 1
            driver.poll()
            while any(Path(f"/proc/{process}").exists() for process in with_it):
                time.sleep(0.1)  # a cluster of Ray that is about to end may still be found by the next driver

    def _watch(self, driver: subprocess.Popen[bytes]) -> None:
        while driver.poll() is None:
            for process in (driver.pid, *_descendants(driver.pid)):
                role = "driver" if process == driver.pid else "worker" if _is_worker(process) else "helper"
                self.peaks[role] = max(self.peaks[role], _peak(process))
            time.sleep(0.2)


TABLES = ("pool.parquet", "negatives.parquet")


def _workers_of(driver: int) -> Iterator[int]:
    return filter(_is_worker, _descendants(driver))


def _is_worker(process: int) -> bool:
    """Whether a process labels: one that Python has spawned, or one of Ray that has a task."""
    return any(mark in _said(process, "cmdline") for mark in ("spawn_main", "ray::_call"))


def _descendants(process: int) -> list[int]:
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        # The name of a program, in brackets, may hold blanks.
        fields = _said(int(folder.name), "stat").rpartition(")")[2].split()
        if fields:
            children[int(fields[1])].append(int(folder.name))
    found, todo = list[int](), [process]
    while todo:
        below = children[todo.pop()]
        found += below
        todo += below
    return found


def _peak(process: int) -> int:
    """Return the largest memory that a process has had, in KiB; 0 where it has ended."""
    lines = (line.split() for line in _said(process, "status").splitlines())
    return next((int(words[1]) for words in lines if words[0] == "VmHWM:"), 0)


def _said(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text(errors="replace")
    except OSError:  # it has ended meanwhile
        return ""


if __name__ == "__main__":
    main()
