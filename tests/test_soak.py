"""A short soak finds nothing, and one of a surelabel with a fault put into it finds the fault.

`make soak` is the long one. All of it runs in a process of its own, so that no thread of the test runner is lost in a
fork.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from soak import bases
from soak.children import FAULTS

TESTS = Path(__file__).parent
pytestmark = pytest.mark.timeout(1800)  # half a minute of work, which a busy machine may do in ten

SCRIPT = """
import dataclasses, functools, json, random, sys, time
from pathlib import Path
from soak import bases, children, inputs, readers
from soak.__main__ import Soak
import typer
from surelabel import settings
from surelabel.cli._app import app
from surelabel.report.drawing import Panel
from surelabel.runs import files, reading

@dataclasses.dataclass(kw_only=True, eq=False)
class ShortFits(settings.FitSettings):
    min_steps: int = 20

settings.FitSettings = ShortFits
bases.CHECKPOINTS = ("--checkpoint-minutes", "0.00002")  # many in a round all the same
inputs.STEPS, children.PICTURE_STEPS = 30, 10
typer.main.get_command = functools.cache(typer.main.get_command)  # which otherwise takes longer than most commands
typer.main.get_command(app)
Panel._rendered = lambda panel, form, **options: b'<svg viewBox="0 0 1 1"/>'  # drawing takes most of a report's time
results = Path(sys.argv[1])
soak = Soak(children.Scratch(results / "scratch"), 0, time.monotonic() + 900)
children.prepare()

def kept(name):
    (results / f"{name}.json").write_text(json.dumps(soak.rows()))
    soak.tallies.clear()

soak.kills(10)
soak.changes(stride=30)
soak.damages(random.Random(0).sample(range(len(soak.damaged.cases)), 32))
soak.inputs(range(500))
kept("right")

whole, files.temporary_name = files.temporary_name, lambda path: path
soak.changes(stride=3, name="history.json")
kept("files are written in place")
files.temporary_name = whole

checked, reading.read_file = reading.read_file, lambda path, *expected: path.read_bytes()
flipped = [
    index
    for index, case in enumerate(soak.damaged.cases)
    if (case.run, case.damage, case.command) == ("network", "a bit flipped", "resume")
    and case.file.endswith("tives.parquet")
]
soak.damages(flipped)
kept("checksums are not compared")
reading.read_file = checked

def without_its_last_row(path, **options):
    table = read(path, **options)
    object.__setattr__(table, "x", table.x[:-1])
    return table

read, readers.read_table = readers.read_table, without_its_last_row
soak.inputs(range(40))
kept("a reader drops a row")

def broken(seed, index, base):
    if index == 1:
        raise RuntimeError("a fault")
    if index == 2:
        time.sleep(1e6)
    if index == 3:
        (base / "../../home/left.txt").write_text("left")
    return children.Verdict("inputs", "accepted")

inputs.check, children.PATIENCE = broken, 1.5
soak.inputs(range(5))
kept("a command dies, hangs or writes elsewhere")
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The rows of each soak in SCRIPT; what it prints tells of each fault what makes it again."""
    folder = tmp_path_factory.mktemp("soak")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-c", SCRIPT, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}


def total(rows: list[dict[str, Any]], name: str, area: str = "") -> int:
    return sum(row[name] for row in rows if row["what"].startswith(area))


def test_kills_inputs_and_damaged_files_leave_nothing_wrong(found: dict[str, list[dict[str, Any]]]) -> None:
    rows = found["right"]
    assert {name: total(rows, name) for name in FAULTS} == dict.fromkeys(FAULTS, 0)
    random_kills = [row for row in rows if row["what"].startswith(("kills: fit", "kills: resume", "kills: label"))]
    details = [detail for row in random_kills for detail in row["details"].split("; ")]
    trains = sum(int(detail.split()[0]) for detail in details if "while a network trains" in detail)
    assert 2 * trains >= total(random_kills, "count") >= 10
    assert {kind for kind in bases.KILLED if any(row["what"].endswith(kind) for row in random_kills)} == {*bases.KILLED}
    assert total(rows, "count", "kills: at each change of a file") >= 5
    assert total(rows, "count", "damage") == 32
    assert sum(total(rows, "count", area) for area in ("files", "options", "run folders")) == 500


@pytest.mark.parametrize(
    ("fault", "counted"),
    [
        ("files are written in place", {"unexpected"}),
        ("checksums are not compared", {"differences"}),
        ("a reader drops a row", {"differences"}),
        ("a command dies, hangs or writes elsewhere", {"tracebacks", "hangs", "outside"}),
    ],
)
def test_a_fault_that_is_put_in_is_counted(
    found: dict[str, list[dict[str, Any]]], fault: str, counted: set[str]
) -> None:
    assert {name for name in FAULTS if total(found[fault], name)} >= counted
