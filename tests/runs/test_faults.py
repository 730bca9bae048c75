"""A damaged, foreign, busy or newer run folder is named and left as it is; nothing is overwritten."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import CONFIG, LEARNER, blobs, contents, small_settings

from surelabel.errors import DamagedFileError, NewerRunError, RunError, RunExistsError, RunLockedError
from surelabel.runs import RunFolder
from surelabel.runs.files import write_json
from surelabel.runs.session import resume, run, start


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three rounds."""
    folder = tmp_path_factory.mktemp("finished")
    list(start(folder / "run", small_settings(folder, with_validation=True)))
    return folder / "run"


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


# Nothing is overwritten.


def test_an_existing_run_is_not_overwritten(copy: Path, tmp_path: Path) -> None:
    before = contents(copy)
    x, y = blobs()
    with pytest.raises(RunExistsError, match=r"holds a run already. Resume it"):
        start(copy, small_settings(tmp_path))
    with pytest.raises(RunExistsError, match="holds a run already"):
        run(copy, LEARNER.build("single"), (x[:9], y[:9]), x[9:], CONFIG)
    assert contents(copy) == before


@pytest.mark.parametrize("name", ["notes.txt", "environment.json", "run.json", "rounds/x"])
def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(RunExistsError, match="holds a run already.*choose another|is not empty .*choose a new"):
        start(tmp_path / "run", small_settings(tmp_path))
    assert contents(tmp_path / "run") == {name: b"mine"}


class FailingLearner:
    def fit(self, training_set: object, *, seed: int) -> None:
        raise RuntimeError("no")

    def predict(self, source: object, *, seed: int) -> None: ...

    def to_bytes(self) -> bytes: ...


def test_what_a_run_without_a_finished_round_left_is_replaced(tmp_path: Path) -> None:
    x, y = blobs()
    with pytest.raises(RuntimeError):
        list(run(tmp_path / "run", FailingLearner(), (x[:9], y[:9]), x[9:], CONFIG))
    assert RunFolder.open(tmp_path / "run").num_rounds == 0
    settings = small_settings(tmp_path, max_rounds=0)
    assert len(list(start(tmp_path / "run", settings))) == 1
    found = RunFolder.open(tmp_path / "run")
    assert (found.settings.learner, len(found.environment)) == (settings.learner, 1)


@pytest.mark.parametrize("spoil", ["history", "notes", "round"])
def test_a_run_without_a_finished_round_is_kept_beside_anything_else(tmp_path: Path, spoil: str) -> None:
    x, y = blobs()
    with pytest.raises(RuntimeError):
        list(run(tmp_path / "run", FailingLearner(), (x[:9], y[:9]), x[9:], CONFIG))
    file = (
        tmp_path / "run" / {"history": "history.json", "notes": "notes.txt", "round": "rounds/000/pool.parquet"}[spoil]
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine")
    before = contents(tmp_path / "run")
    with pytest.raises(RunExistsError, match="holds a run already"):
        start(tmp_path / "run", small_settings(tmp_path))
    assert contents(tmp_path / "run") == before


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(RunExistsError, match="is a file; choose another name"):
        start(tmp_path / "run", small_settings(tmp_path))


def test_an_empty_folder_and_missing_parents_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        assert len(list(start(folder, small_settings(tmp_path, max_rounds=0)))) == 1


def test_nothing_is_written_before_the_first_record_is_asked_for(tmp_path: Path) -> None:
    start(tmp_path / "run", small_settings(tmp_path))
    assert not (tmp_path / "run").exists()


def test_a_folder_made_between_start_and_the_first_round_is_refused(tmp_path: Path) -> None:
    settings = small_settings(tmp_path, max_rounds=0)
    first, second = start(tmp_path / "run", settings), start(tmp_path / "run", settings)
    list(first)
    before = contents(tmp_path / "run")
    with pytest.raises(RunExistsError):
        list(second)
    assert {**contents(tmp_path / "run"), ".lock": b""} == {**before, ".lock": b""}


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"could not be made \(Not a directory"):
        list(start(tmp_path / "file" / "run", small_settings(tmp_path)))


# Damage is named.


def damaged_files() -> list[str]:
    tables = ("pool.parquet", "negatives.parquet", "validation.parquet", "validation_negatives.parquet")
    return [*(f"rounds/00{number}/{name}" for number in (1, 2) for name in tables), "rounds/002/model.safetensors"]


@pytest.mark.parametrize("name", ["run.json", "history.json", "split.json", *damaged_files()])
def test_a_changed_byte_is_found_and_the_file_is_named(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    before = contents(copy)
    with pytest.raises(DamagedFileError, match=rf"File '.*{name}' is damaged: .*[Rr]estore it from a copy"):
        resume(copy, max_rounds=5)
    assert contents(copy) == before


@pytest.mark.parametrize("name", ["run.json", "history.json", *damaged_files()])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(DamagedFileError, match=rf"File '.*{name}' cannot be read .No such file.*Restore it"):
        resume(copy, max_rounds=5)


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_text("{}")])
def test_a_damaged_environment_is_named(copy: Path, change: Callable[[Path], Any]) -> None:
    change(copy / "environment.json")
    before = contents(copy)
    with pytest.raises(DamagedFileError, match=r"File '.*environment.json' (is|cannot be read)"):
        list(resume(copy, max_rounds=3))
    assert {**contents(copy), ".lock": b""} == {**before, ".lock": b""}, "the new limit is not kept either"


@pytest.mark.parametrize(
    ("text", "problem"), [("", "not JSON"), ("[]", "holds a list"), ('{"rounds": []}', "checksum")]
)
def test_json_that_is_no_history_is_named(copy: Path, text: str, problem: str) -> None:
    (copy / "history.json").write_text(text)
    with pytest.raises(DamagedFileError, match=rf"history.json' is damaged: .*{problem}"):
        RunFolder.open(copy)


def test_a_table_is_checked_when_it_is_read(copy: Path) -> None:
    folder = RunFolder.open(copy)
    (copy / "rounds/001/pool.parquet").write_bytes(b"")
    with pytest.raises(DamagedFileError, match=r"rounds/001/pool.parquet' is damaged: its SHA-256 should be"):
        folder.pool_table(1)
    folder.pool_table(2)


def test_a_run_that_has_gone_on_since_it_was_opened_says_so(tmp_path: Path) -> None:
    rounds = start(tmp_path / "run", small_settings(tmp_path))
    next(rounds)
    folder = RunFolder.open(tmp_path / "run")
    next(rounds)
    with pytest.raises(RunError, match="has gone on.*model.safetensors'; open it again"):
        folder.learner()
    rounds.close()
    RunFolder.open(tmp_path / "run").learner()


# Newer, foreign and missing folders.


def rewrite(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    content.pop("checksum")
    write_json(path, {**content, **changes})


def test_a_newer_format_is_refused(copy: Path) -> None:
    rewrite(copy / "run.json", format=3, version="9.0")
    before = contents(copy)
    for read in (RunFolder.open, resume):
        with pytest.raises(NewerRunError, match=r"written by surelabel 9.0 in format 3; install it.*reads format 2"):
            read(copy)
    assert contents(copy) == before


def test_a_run_of_the_first_format_is_read_and_has_this_one_once_it_goes_on(copy: Path) -> None:
    rewrite(copy / "run.json", format=1)
    before = contents(copy)
    RunFolder.open(copy).pool()
    assert contents(copy) == before
    list(resume(copy))
    content = json.loads((copy / "run.json").read_text())
    assert (content["format"], content["settings"]["format"], RunFolder.open(copy).signed) == (2, 1, True)


def test_settings_of_another_version_are_named(copy: Path) -> None:
    settings = json.loads((copy / "run.json").read_text())["settings"]
    rewrite(copy / "run.json", settings={**settings, "shiny": 1}, version="1.7")
    with pytest.raises(RunError, match=r"(?s)surelabel 1.7 has settings.*'shiny'.*Install that version"):
        RunFolder.open(copy)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="which is not there. Check the name"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match="There is no run in"):
        resume(tmp_path)


# One writer.

HOLD = """
import sys
from pathlib import Path
from surelabel.base.processes import locked
with locked(Path(sys.argv[1]) / ".lock"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(copy: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes the copied run."""
    command = [sys.executable, "-c", HOLD, str(copy)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_two_processes_cannot_write_one_run(copy: Path, holder: subprocess.Popen[str]) -> None:
    before = contents(copy)
    with pytest.raises(
        RunLockedError, match=rf"Another process \(process {holder.pid}\) is writing .*nothing was changed"
    ):
        list(resume(copy, max_rounds=3))
    assert contents(copy) == before
    assert RunFolder.open(copy).finished  # reading goes on
    holder.kill()
    holder.wait()
    assert [record.round for record in resume(copy, max_rounds=3)] == [3]


def test_one_process_cannot_write_a_run_twice_at_once(tmp_path: Path) -> None:
    rounds = start(tmp_path / "run", small_settings(tmp_path))
    next(rounds)
    with pytest.raises(RunLockedError, match="is writing"):
        next(resume(tmp_path / "run"))
    rounds.close()
