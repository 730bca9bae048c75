"""Work in forked children of one process that has everything loaded, and what is counted of it."""

import contextlib
import gc
import importlib
import io
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

FAULTS = ("unexpected", "tracebacks", "hangs", "differences", "outside")
PATIENCE = 60.0
"""Seconds without a sign of life after which a child hangs; an input takes some milliseconds."""
LOADED = """torch._dynamo pyarrow.parquet pyarrow.compute pyarrow.csv sklearn.linear_model skops.io matplotlib.pyplot
surelabel.cli surelabel.runs surelabel.estimator surelabel.report.html surelabel.report.thresholds
surelabel.learners.network surelabel.learners.preflight surelabel.cli._app surelabel.kinds.packed
surelabel.models.pooled torch.profiler PIL.PngImagePlugin PIL.ImageOps"""
"""What commands load when they first need it."""
PICTURE_STEPS = 60
"""Of a round on pictures, so that it takes some tenths of a second."""
_MEMORY = 3 << 30
_BATCH = 100

Report = Callable[[str], object]


class Verdict(NamedTuple):
    """How one attack ended: in which area, "accepted", "refused" or "killed", and the fault, if any, with a note."""

    area: str
    ended: str
    fault: str = ""
    note: str = ""


class Scratch:
    """A folder with a place to work in, and a home and other files around it that nothing may touch."""

    def __init__(self, path: Path) -> None:
        self.path, self.work = path, path / "work"
        for name in ("work", "home", "outside/below", "temporary"):
            (path / name).mkdir(parents=True)
        (path / "outside/below/.mine.json.tmp").write_text("mine")
        (path / "outside/mine.csv").write_text("a,y\n1.5,cat\n2.5,dog\n3.5,\n")
        (path / "outside/evil.py").write_text("def touch(*words, **more):\n    open('../../outside/touched', 'w')\n")
        os.environ.update(HOME=str(path / "home"), TMPDIR=str(path / "temporary"), MPLCONFIGDIR=str(path / "home/mpl"))
        os.environ.update({f"XDG_{kind}_HOME": str(path / "home" / kind) for kind in ("CONFIG", "DATA", "CACHE")})
        os.environ["SURELABEL_DATA"] = str(self.work / "cache")
        os.environ.pop("SURELABEL_CONFIG", None)
        tempfile.tempdir = None
        os.chdir(self.work)

    def around(self) -> dict[str, tuple[int, int]]:
        """Return size and time of every file and folder beside the place to work in."""
        places = [self.path / name for name in ("home", "outside", "temporary")]
        found = [entry for place in places for entry in (place, *place.rglob("*"))]
        return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in found}


class Child:
    """A forked child; what it reports are lines."""

    def __init__(self, work: Callable[[Report], int], output: Path) -> None:
        self._stream, writing = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_work(work, lambda line: os.write(writing, f"{line}\n".encode()), output))
        os.close(writing)

    def lines(self) -> Iterator[str]:
        """Yield what it reports to its end; `TimeoutError` when it has said nothing for so long."""
        rest = b""
        while select.select([self._stream], [], [], PATIENCE)[0]:
            data = os.read(self._stream, 1 << 16)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from (line.decode() for line in whole)
        self.kill()
        raise TimeoutError

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return the exit code, or minus the signal that ended it."""
        os.close(self._stream)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _work(work: Callable[[Report], int], report: Report, output: Path) -> int:
    target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(target, stream)
    try:
        return work(report)
    except BaseException:
        traceback.print_exc()
        return 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def prepare() -> None:
    """Load and ask once for all children what each would otherwise load and ask for itself."""
    import numpy as np
    import pyarrow as pa
    import torch

    for module in LOADED.split():
        importlib.import_module(module)
    from surelabel.kinds.pictures import Pictures
    from surelabel.runs.environment import describe_environment

    Pictures.defaults = {**Pictures.defaults, "min_steps": PICTURE_STEPS, "batch_size": 8}
    torch.set_num_threads(1)
    pa.array(np.zeros(1))  # loads pandas
    describe_environment()  # asks git
    os.fsync = lambda descriptor: None  # only a power failure would tell the difference
    gc.collect()
    gc.freeze()


def call(*words: object) -> tuple[int, str]:
    """Call `surelabel` in this process; return its exit code and what stands on standard error."""
    from surelabel.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(word) for word in words])
        except BaseException:
            traceback.print_exc()
            code = 70
    return code, err.getvalue()


def judge(code: int, text: str) -> tuple[str, str]:
    """Return how a command ended, and its fault: success, or lines that say what is wrong, and nothing else, are right.

    >>> judge(1, "error: no such file; check the path.")
    ('refused', '')
    >>> judge(1, "error: unexpected KeyError: 'x'")
    ('refused', 'unexpected')
    """
    lines = text.splitlines()
    if "Traceback (most recent" in text:
        return "refused", "tracebacks"
    if code == 0:
        return "accepted", "unexpected" if any(line.startswith("error: ") for line in lines) else ""
    if "error: interrupted." in lines:
        return "accepted", ""
    told = any(line.startswith("error: ") for line in lines) and "error: unexpected" not in text
    plain = all(line.startswith(("error: ", "warning: ", "note: ")) for line in lines)
    return "refused", "" if told and plain and code in (1, 2) else "unexpected"


def in_batches(
    check: Callable[[int], Verdict], indices: Iterable[int], scratch: Scratch, end: float
) -> Iterator[tuple[int, Verdict]]:
    """Yield the verdict on each index, checked in children: one that hangs or dies costs its index alone."""
    todo = list(indices)
    while todo and time.monotonic() < end:
        batch, at, hangs = todo[:_BATCH], 0, False
        child = Child(lambda report, batch=batch: _check_all(check, batch, scratch, report), scratch.path / "output")
        try:
            for line in child.lines():
                yield batch[at], Verdict(*json.loads(line))
                at += 1
                if time.monotonic() > end:
                    child.kill()
        except TimeoutError:
            hangs = True
        code = child.wait()
        if at < len(batch) and time.monotonic() < end:
            output = (scratch.path / "output").read_text(errors="replace")[-600:]
            fault, note = ("hangs", "") if hangs else ("tracebacks", f"the process ended with {code}: {output}")
            yield batch[at], Verdict("without a verdict", "refused", fault, note)
            at += 1
        todo = todo[at:]


def _check_all(check: Callable[[int], Verdict], batch: list[int], scratch: Scratch, report: Report) -> int:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    for index in batch:
        before = scratch.around()
        verdict = check(index)
        after = scratch.around()
        if after != before:
            touched = sorted(path for path in after.keys() | before.keys() if after.get(path) != before.get(path))
            verdict = verdict._replace(fault="outside", note=f"{verdict.note} touched {touched}")
        report(json.dumps(verdict))
    return 0


class Tally:
    """Counts of an area: how many, of these how many ended in which way, and the faults."""

    def __init__(self) -> None:
        self.count, self.details, self.faults, self.seconds = 0, Counter[str](), Counter[str](), 0.0

    def add(self, verdict: Verdict) -> None:
        self.count += 1
        self.details[verdict.ended] += 1
        if verdict.fault:
            self.faults[verdict.fault] += 1

    def row(self) -> dict[str, object]:
        """Return the counts as cells."""
        details = "; ".join(f"{number} {ended}" for ended, number in sorted(self.details.items()))
        faults = {name: self.faults[name] for name in FAULTS}
        return {"count": self.count, "details": details, **faults, "seconds": round(self.seconds)}
