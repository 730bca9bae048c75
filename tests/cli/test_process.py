"""Signals, pipes and terminals: an interrupted run goes on, and only a terminal gets bars and colors."""

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import write_blobs
from rich.console import Console

import surelabel
from surelabel.cli._rounds import SECONDS_BETWEEN_LINES, RoundsDisplay, bars
from surelabel.runs import RunFolder, files

STOPS_ITSELF = """
import os
from torch import nn

class Network(nn.Module):
    steps = 0

    def __init__(self, shape, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(*shape, 4), nn.ReLU(), nn.Dropout(0.3), nn.Linear(4, classes))

    def forward(self, x):
        if self.training:
            Network.steps += 1
            if Network.steps == int(os.environ.get("STOP_AT_STEP", "0")):
                os.kill(os.getpid(), int(os.environ["STOP_BY"]))
        return self.layers(x)
"""

TWICE = """
import signal, sys

class Twice(Network):
    def forward(self, x):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            print("caught", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        return super().forward(x)
"""


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_blobs(Path("pets.csv"))
    Path("net.py").write_text(STOPS_ITSELF)


def fit(out: str) -> list[str]:
    """Round 0 takes 200 steps, round 1 takes 200 more."""
    words = ["fit", "pets.csv", "--label", "pet", "--id", "id", "--model", "net.py:Network", "--rounds", "1"]
    return [*words, "--epochs", "1", "--no-compare", "--out", out]


def test_an_interrupted_run_tells_how_to_go_on_and_ends_as_if_uninterrupted(command):
    # Ctrl-C in the middle of round 1's training, given by the network itself at its 300th step
    variables = {**os.environ, "STOP_AT_STEP": "300", "STOP_BY": str(int(signal.SIGINT)), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "surelabel", *fit("broken")]
    broken = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
    assert broken.returncode == 130
    rounds = [
        line.split() for line in broken.stdout.splitlines() if not line.startswith("round 0: ")
    ]  # on busy machines
    assert [words[0] for words in rounds] == ["Found", "Classes,", "Used", "round", "0"]
    assert "\x1b" not in broken.stdout + broken.stderr, "a pipe gets no color and no bars"
    assert broken.stderr.splitlines() == [
        "error: interrupted.",
        "note: round 0 is done and kept, round 1 is kept up to its last checkpoint; "
        "go on with: surelabel resume broken",
    ]
    assert RunFolder.open("broken").num_rounds == 1

    resumed = command(*broken.stderr.rpartition("go on with: surelabel ")[2].split())
    assert (resumed.code, resumed.err) == (0, "")
    assert command(*fit("whole")).code == 0
    assert RunFolder.open("broken").model_bytes() == RunFolder.open("whole").model_bytes()


def test_a_termination_signal_is_an_interruption_too(command, monkeypatch):
    monkeypatch.setenv("STOP_AT_STEP", "10")
    monkeypatch.setenv("STOP_BY", str(int(signal.SIGTERM)))
    before = [signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)]
    result = command(*fit("my runs"), "--quiet")
    assert result == (
        143,
        "",
        "error: interrupted.\n"
        "note: round 0 is kept up to its last checkpoint; go on with: surelabel resume 'my runs'\n",
    )
    assert RunFolder.open("my runs").num_rounds == 0
    assert [signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(
    ("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=lambda value: getattr(value, "name", "")
)
def test_a_command_that_has_nothing_to_go_on_with_ends_by_the_signal_too(command, monkeypatch, kind, code):
    monkeypatch.setattr("surelabel.cli.env.environment", lambda: os.kill(os.getpid(), kind))
    assert command("env") == (code, "", "error: interrupted.\n")


STARTS = {
    "surelabel": ["-c", "import sys; from surelabel.cli import main; sys.exit(main())"],  # as the installed script does
    "python -m surelabel": ["-m", "surelabel"],
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize(
    ("kind", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=lambda value: getattr(value, "name", "")
)
def test_a_signal_before_the_command_has_begun_is_one_line(tmp_path, start, kind, code):
    (tmp_path / "typer.py").write_text(f"import os\nos.kill(os.getpid(), {int(kind)})\n")  # the first large import
    path = os.pathsep.join([str(tmp_path), str(Path(surelabel.__file__).parents[1])])
    words = [sys.executable, *start, "env"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "error: interrupted.\n")


def test_a_second_signal_ends_a_command_at_once(tmp_path):
    Path("net.py").write_text(STOPS_ITSELF + TWICE)
    words = [sys.executable, "-m", "surelabel", *fit("runs")]
    words[words.index("net.py:Network")] = "net.py:Twice"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "caught\n")


def test_a_full_disk_in_a_round_leaves_a_run_that_goes_on(command, monkeypatch):
    def full(*arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device", "rounds/000/pool.parquet")

    monkeypatch.setattr("surelabel.runs.writing.RunWriter.keep", full)
    result = command(*fit("runs"))
    assert (result.code, len(result.out.splitlines())) == (1, 3)  # what was found
    assert result.err.splitlines() == [
        "error: No space left on device: 'rounds/000/pool.parquet'; free some space, or write to another disk.",
        "note: no round is done yet; go on with: surelabel resume runs",
    ]


@pytest.mark.parametrize("name", ["environment.json", "run.json"])
def test_a_disk_that_is_full_before_the_run_has_begun_advises_to_begin_it_again(command, monkeypatch, name):
    write = files._write

    def full(path: Path, data: bytes) -> None:
        if path.name == f".{name}.tmp":
            raise OSError(28, "No space left on device")
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_write", full)
        result = command(*fit("runs"))
    assert (result.code, len(result.out.splitlines())) == (1, 3)  # what was found
    assert result.err.splitlines() == [
        f"error: File 'runs/{name}' could not be written (No space left on device). Nothing is lost: "
        "free some space or allow writing, then try again.",
        "note: the run has not begun; the same command begins it",
    ]
    assert command(*fit("runs")).code == 0


def test_a_disk_without_a_byte_left_keeps_no_parts_of_files(command, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        patch.setattr(Path, "replace", full)
        result = command(*fit("runs"))
    assert result.err.splitlines()[0].startswith("error: File 'runs/")
    assert result.err.splitlines()[1:] == ["note: the run has not begun; the same command begins it"]
    assert [path.name for path in Path("runs").rglob("*") if path.is_file()] == [".lock"]
    assert command(*fit("runs")).code == 0


def test_a_terminal_gets_bars_and_colors(command, monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, color_system="standard", highlight=False)
    monkeypatch.setattr("surelabel.cli._rounds.out", screen)
    monkeypatch.setattr("surelabel.cli._console.out", screen)
    words = ("--estimator", "sklearn.linear_model:LogisticRegression", "--passes", "3", "--rounds", "1", "--no-compare")
    assert command("fit", "pets.csv", "--label", "pet", "--id", "id", *words, "--out", "runs").code == 0
    shown = screen.file.getvalue()
    assert "\x1b[1m" in shown, "the head of the table is bold"
    assert "round 0 of 1 at most" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown)
    assert re.search(r" 0 +0 +0 +0%.*\n(.*\n)*.* 1 +\d+ +\d+ +\d+%", plain), "the rounds stay on the screen"


def test_the_bars_show_round_step_and_time_left(monkeypatch):
    now = 0.0
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None, get_time=lambda: now)
    monkeypatch.setattr("surelabel.cli._rounds.out", screen)
    display = RoundsDisplay(0, 4)
    for number in range(3):
        display.round = number
        display.begin()
        for done in range(0, 51, 10):
            display.step("train", done, 100)
            now += 1.0
    screen.print(display.bars)
    upper, lower = screen.file.getvalue().splitlines()[:2]
    assert re.fullmatch(r"round 2 of 4 at most +━.* 2/5 +rounds +0:00:\d\d *", upper)
    assert re.fullmatch(r"training +━.* 50/100 +steps +0:00:05 *", lower)


PARTS = "labeled 0.00044, unlabeled 0.00051, used 0.97"


@pytest.mark.parametrize("width", [80, 60, 40])
def test_the_counter_and_the_time_left_are_whole_in_a_narrow_window(monkeypatch, width):
    now = 0.0
    screen = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None, get_time=lambda: now)
    monkeypatch.setattr("surelabel.cli._rounds.out", screen)
    display = RoundsDisplay(0, 5)
    for done in range(0, 198_001, 19_800):
        display.step(f"train: {PARTS}", done, 200_000)
        now += 1.0
    screen.print(display.bars)
    upper, lower, parts = (line.rstrip() for line in screen.file.getvalue().splitlines())
    assert re.fullmatch(r"round 0( of 5 at most|…) .* 0/6 +rounds -:--:--", upper)
    assert re.fullmatch(r"training +[━╸]+ 198000/200000 steps  0:00:\d\d", lower)
    assert parts == (PARTS if width > len(PARTS) else f"{PARTS[: width - 1]}…")
    display.step("label", 1, 2)
    screen.print(display.bars)
    assert screen.file.getvalue().splitlines()[-1].startswith("labeling"), "without a line of parts"


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("comparing, fold 3 of 5: training 1980/2000", "comparing, fold 3 of 5: training 1980/2000"),
        ("features of timm:vit_large_patch14_reg4_dinov2 12/3000", "features of timm:vit_large_patch14_reg4_dinov2 …"),
    ],
)
def test_work_is_named_in_full_while_there_is_room_for_a_bar(monkeypatch, what, shown):
    screen = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("surelabel.cli._rounds.out", screen)
    progress = bars()
    progress.add_task(what, total=5000, completed=4321, unit="files")
    screen.print(progress)
    (line,) = screen.file.getvalue().splitlines()
    assert re.fullmatch(rf"{shown} +━+╸? +4321/5000 files -:--:-- *", line)


def test_without_a_terminal_a_long_round_says_now_and_then_where_it_stands(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr("surelabel.cli._rounds.time.monotonic", lambda: now)
    monkeypatch.setattr("surelabel.cli._rounds.SECONDS_BETWEEN_LINES", SECONDS_BETWEEN_LINES)
    monkeypatch.setattr("surelabel.cli._rounds.out", Console(get_time=lambda: now))
    display = RoundsDisplay(3, 9)
    for done in range(1, 71):
        display.step("train", done, 100)
        now += 1.0
    said = capsys.readouterr().out.splitlines()
    assert SECONDS_BETWEEN_LINES == 30.0
    assert said == [
        "round 3: training 31/100, 1.0 steps/s, 1:09 left",
        "round 3: training 61/100, 1.0 steps/s, 0:39 left",
    ]


def test_an_interrupted_demo_tells_what_is_kept(command, monkeypatch):
    def interrupted(out, seeds, **options):
        run = out / "full-ups-0"
        run.mkdir(parents=True)
        (run / "run.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("surelabel.reproduce.demo.run_demo", interrupted)
    result = command("demo", "--out", "shown")
    assert (result.code, result.err.splitlines()) == (
        130,
        [
            "error: interrupted.",
            "note: finished rounds are kept in shown; go on with one of its runs by: surelabel resume shown/full-ups-0",
        ],
    )
