"""What all tests share: one thread a process, a key of their own, and no chance or clock in hypothesis and commands.

Torch and the package are imported where they are used: the process that only hands out tests needs neither.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import gc
import html
import itertools
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")
if "SURELABEL_DATA" in os.environ:  # some tests change the current folder
    os.environ["SURELABEL_DATA"] = os.path.abspath(os.environ["SURELABEL_DATA"])
# Runs of the tests, also those of processes that they start, are not signed with the key of whoever runs them.
if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker has that of the process which started it
    os.environ["SURELABEL_CONFIG"] = tempfile.mkdtemp(prefix="surelabel-config-")
    atexit.register(shutil.rmtree, os.environ["SURELABEL_CONFIG"], ignore_errors=True)

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from cli_support import Command

    from surelabel.report.drawing import Panel

# A shell that starts the tests in the background lets them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(
    "surelabel",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("surelabel")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def commands_made_once() -> Iterator[None]:
    """Typer makes all commands anew at each call, which takes longer than most calls in this process."""
    import typer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def no_lines_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a command that takes long would say where it stands."""
    monkeypatch.setattr("surelabel.cli._rounds.SECONDS_BETWEEN_LINES", math.inf)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a power failure would tell the difference, and a run waits for the disk thirty times."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock for the planning of minutes by which all that is measured takes a second."""
    ticks = itertools.count()
    monkeypatch.setattr("surelabel.reproduce.plans.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))


@pytest.fixture(scope="module")
def short_fits() -> Iterator[None]:
    """Networks of commands that learn in 40 larger steps, in place of 200, where the defaults do not matter."""
    from surelabel import settings

    steps = [("min_steps", int, 40), ("learning_rate", float, 0.05)]
    short = dataclasses.make_dataclass("ShortFits", steps, bases=(settings.FitSettings,), kw_only=True, eq=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "FitSettings", short)
        yield


@pytest.fixture
def seeded() -> Iterator[None]:
    """Torch's generator seeded for a test, and as it was afterwards."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture
def in_a_group_of_one() -> Iterator[None]:
    """A process that torch.distributed connects with itself alone."""
    from torch import distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that read the words of figures and reports: drawing the panels takes most of their time."""

    def words(panel: Panel, form: str, **options: object) -> bytes:
        legend = panel.axes.figure.legends or [panel.axes.get_legend()]
        names = [panel.axes.title, panel.axes.xaxis.label, panel.axes.yaxis.label]
        shown = [*names, *panel.axes.texts, *(text for one in legend if one for text in one.get_texts())]
        lines = "".join(f"<text>{html.escape(text.get_text())}</text>" for text in shown)
        return f'<svg viewBox="0 0 1 1">{lines}</svg>'.encode()

    monkeypatch.setattr("surelabel.report.drawing.Panel._rendered", words)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder that is the test's own, for commands that write beside where they are called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """`surelabel`, called in this process."""
    from cli_support import Command

    return Command(capsys)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none; tests of what only developers run are slow ones."""
    import torch

    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        if item.path.parent.name in ("benchmarks", "experiments"):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through all modules and tests again and again, and call it less often."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def keeps_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every comparison keep the linear model."""
    monkeypatch.setattr("surelabel.runs.folds.choose", lambda judged: "linear")
