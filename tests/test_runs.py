"""What a run folder holds, and that a damaged, foreign, busy or newer folder is named and left as it is."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import CONFIG, LEARNER, blobs, difference, small_settings

import surelabel.runs
from surelabel.data.source import ArraySource
from surelabel.errors import (
    DamagedFileError,
    InvalidInputError,
    NewerRunError,
    RunError,
    RunExistsError,
    RunLockedError,
)
from surelabel.records import RoundRecord
from surelabel.runs import RunData, RunFolder, RunSettings, SklearnLearnerSettings, resume, run, start
from surelabel.runs.files import write_json


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RoundRecord]]:
    """A finished run of three rounds, and its records."""
    folder = tmp_path_factory.mktemp("finished")
    records = list(start(folder / "run", small_settings(folder, with_validation=True, name="UPS")))
    return folder / "run", records


@pytest.fixture
def copy(finished: tuple[Path, list[RoundRecord]], tmp_path: Path) -> Path:
    shutil.copytree(finished[0], tmp_path / "run")
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_folder_has_the_documented_files(finished: tuple[Path, list[RoundRecord]]) -> None:
    tables = ("pool.parquet", "negatives.parquet", "validation.parquet", "validation_negatives.parquet")
    expected = {f"rounds/{number:03d}/{name}" for number in range(3) for name in tables}
    expected |= {".lock", "run.json", "environment.json", "history.json", "rounds/002/model.safetensors"}
    assert set(contents(finished[0])) == expected


def test_records_settings_and_environment_are_read_back(finished: tuple[Path, list[RoundRecord]]) -> None:
    folder = RunFolder.open(finished[0])
    assert folder.records() == finished[1]
    assert folder.finished
    assert (folder.settings.name, folder.settings.classes, folder.settings.sample_shape) == (
        "UPS",
        ("a", "b", "c"),
        (4,),
    )
    assert folder.settings.config == CONFIG.replace(num_classes=3)
    (entry,) = folder.environment
    assert set(entry["versions"]) >= {"python", "surelabel", "torch", "numpy", "scikit-learn"}
    assert entry["device"] == "cpu"


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_pool_and_validation_are_read_back_exactly(finished: tuple[Path, list[RoundRecord]], number: int) -> None:
    folder, records = RunFolder.open(finished[0]), finished[1]
    for got, expected in (
        (folder.pool(number), records[number].pool),
        (folder.validation(number), records[number].validation),
    ):
        for name in expected.__dataclass_fields__:
            left, right = (np.asarray(getattr(labels, name)) for labels in (got, expected))
            np.testing.assert_array_equal(left, right, err_msg=name)
            assert left.dtype == right.dtype, name


def test_the_tables_have_a_row_a_sample_and_a_row_a_negative(finished: tuple[Path, list[RoundRecord]]) -> None:
    folder, records = RunFolder.open(finished[0]), finished[1]
    table, negatives = folder.pool_table(0), folder.negatives_table(0)
    assert table.num_rows == 51
    assert table.column_names[:3] == ["id", "label", "confidence"]
    assert set(table["selected"].to_pylist()) == {"positive", "negative", "none"}
    assert table["selected"].to_pylist().count("positive") == records[1].num_positive
    assert sum(table["before_balancing"].to_pylist()) == records[1].num_positive_before > records[1].num_positive
    assert negatives.num_rows == records[1].num_negative > 0
    np.testing.assert_array_equal(folder.truth, blobs()[1][9:60])
    np.testing.assert_array_equal(folder.validation_truth, blobs()[1][60:])
    right = [
        label == truth for label, truth in zip(*(table[name].to_pylist() for name in ("label", "truth")), strict=True)
    ]
    chosen = [value == "positive" for value in table["selected"].to_pylist()]
    assert np.mean(np.array(right)[chosen]) == records[1].positive_accuracy


def test_the_model_is_loaded_by_reference(finished: tuple[Path, list[RoundRecord]]) -> None:
    folder = RunFolder.open(finished[0])
    source = ArraySource(blobs()[0][60:])
    p = folder.learner().predict_proba(source)
    assert (p.argmax(axis=1) == blobs()[1][60:]).mean() == finished[1][-1].validation_score
    other = LEARNER.build("single")
    folder.load_model(other)
    np.testing.assert_array_equal(other.predict_proba(source), p)


def test_all_models_are_kept_when_asked(tmp_path: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, keep_models="all")))
    folder = RunFolder.open(tmp_path / "run")
    assert len({folder.model_bytes(number) for number in range(3)}) == 3
    folder.verify()


def test_a_model_that_was_not_kept_says_how_to_keep_it(finished: tuple[Path, list[RoundRecord]]) -> None:
    with pytest.raises(RunError, match=r"no model of round 1: only the last round's is kept.*keep_models='all'"):
        RunFolder.open(finished[0]).model_bytes(1)


def test_a_round_that_is_not_there_is_named(finished: tuple[Path, list[RoundRecord]]) -> None:
    with pytest.raises(RunError, match="3 finished rounds, counted from 0. Got round 3"):
        RunFolder.open(finished[0]).pool(3)


def test_a_run_without_validation_says_so(tmp_path: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=0)))
    folder = RunFolder.open(tmp_path / "run")
    assert folder.validation_truth is None
    with pytest.raises(RunError, match=r"no rounds/000/validation.parquet: it was made without a validation set"):
        folder.validation_table()


# Nothing is overwritten.


def test_an_existing_run_is_not_overwritten(copy: Path, tmp_path: Path) -> None:
    before = contents(copy)
    x, y = blobs()
    with pytest.raises(RunExistsError, match=r"holds a run already, and nothing was overwritten. Resume it"):
        start(copy, small_settings(tmp_path))
    with pytest.raises(RunExistsError, match="holds a run already"):
        run(copy, LEARNER.build("single"), (x[:9], y[:9]), x[9:], CONFIG)
    assert contents(copy) == before


@pytest.mark.parametrize("name", ["notes.txt", "environment.json", "run.json", "rounds/x"])
def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(RunExistsError, match="nothing was overwritten"):
        start(tmp_path / "run", small_settings(tmp_path))
    assert contents(tmp_path / "run") == {name: b"mine"}


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


@pytest.mark.parametrize("name", ["run.json", "history.json", *damaged_files()])
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
    with pytest.raises(DamagedFileError, match=rf"File '.*{name}' is missing.*Restore it from a copy"):
        resume(copy, max_rounds=5)


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_text("{}")])
def test_a_damaged_environment_is_named(copy: Path, change: Callable[[Path], Any]) -> None:
    change(copy / "environment.json")
    with pytest.raises(DamagedFileError, match=r"File '.*environment.json' is"):
        list(resume(copy, max_rounds=3))


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
    with pytest.raises(RunError, match="has gone on since it was opened.*open it again"):
        folder.learner()
    rounds.close()
    RunFolder.open(tmp_path / "run").learner()


# Newer, foreign and missing folders.


def rewrite(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    content.pop("checksum")
    write_json(path, {**content, **changes})


def test_a_newer_format_is_refused(copy: Path) -> None:
    rewrite(copy / "run.json", format=2, version="9.0")
    before = contents(copy)
    for read in (RunFolder.open, resume):
        with pytest.raises(NewerRunError, match=r"written by surelabel 9.0 in format 2.*reads up to format 1. Install"):
            read(copy)
    assert contents(copy) == before


def test_settings_of_another_version_are_named(copy: Path) -> None:
    settings = json.loads((copy / "run.json").read_text())["settings"]
    rewrite(copy / "run.json", settings={**settings, "shiny": 1}, version="1.7")
    with pytest.raises(RunError, match=r"(?s)written by surelabel 1.7 and has settings.*install that version.*'shiny'"):
        RunFolder.open(copy)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunError, match="There is no run in"):
        resume(tmp_path)


# One writer.

HOLD = """
import sys
from pathlib import Path
from surelabel.runs.lock import locked
with locked(Path(sys.argv[1])):
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
    with pytest.raises(RunLockedError, match="is writing the run"):
        next(resume(tmp_path / "run"))
    rounds.close()


# Other learners, other tasks, other ids.


@pytest.mark.parametrize(
    ("estimator", "parameters"),
    [
        ("sklearn.ensemble:RandomForestClassifier", {"n_estimators": 5, "max_depth": 3}),
        ("sklearn.linear_model:LogisticRegression", {"C": 0.5}),
    ],
)
def test_a_scikit_learn_run_is_kept_with_skops_and_resumed(
    tmp_path: Path, estimator: str, parameters: dict[str, Any]
) -> None:
    learner = SklearnLearnerSettings(estimator=estimator, parameters=parameters, members=3)
    settings = small_settings(tmp_path, learner=learner)
    list(start(tmp_path / "whole", settings))
    next(start(tmp_path / "run", settings))
    assert [record.round for record in resume(tmp_path / "run")] == [1, 2]
    assert difference(tmp_path / "run", tmp_path / "whole") == ""
    assert (tmp_path / "run" / "rounds" / "002" / "model.skops").exists()
    source = ArraySource(blobs()[0][60:])
    p, q = (RunFolder.open(tmp_path / name).learner().predict_proba(source) for name in ("run", "whole"))
    np.testing.assert_array_equal(p, q)
    assert (p.argmax(axis=1) == blobs()[1][60:]).mean() > 0.5


ESTIMATOR = """
from sklearn.linear_model import LogisticRegression

class Mine(LogisticRegression):
    pass
"""


def test_a_type_that_is_not_known_to_be_safe_must_be_trusted(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ESTIMATOR)
    learner = SklearnLearnerSettings(estimator=f"{tmp_path / 'mine.py'}:Mine", members=2)
    list(start(tmp_path / "run", small_settings(tmp_path, learner=learner, max_rounds=0)))
    folder = RunFolder.open(tmp_path / "run")
    with pytest.raises(InvalidInputError, match=r"types that are not known to be safe: (\S+Mine)\.") as caught:
        folder.learner()
    trusted = str(caught.value).partition("safe: ")[2].split(". ")[0]
    assert folder.learner(trusted=(trusted,)).models


def multi_label_data(string_ids: bool) -> RunData:
    x, y = blobs()
    codes = np.stack([y == 0, y != 1], axis=1).astype(np.int64)
    codes[:9][::4, 1] = -1  # partly labeled rows belong to the pool too
    ids = np.array([f"sample {number}" for number in range(72)], dtype=object) if string_ids else np.arange(72) * 10
    parts = [ArraySource(x[rows], ids=ids[rows]) for rows in (slice(0, 9), slice(9, 60), slice(60, 72))]
    truth = codes[9:60].copy()
    truth[3] = -1
    return RunData((parts[0], codes[:9]), parts[1], ["p", "q"], "multi", (parts[2], codes[60:]), truth=truth)


@pytest.mark.parametrize("string_ids", [False, True])
def test_a_multi_label_run_is_read_back_and_resumed(tmp_path: Path, string_ids: bool) -> None:
    data = multi_label_data(string_ids)
    settings = RunSettings(learner=LEARNER, config=CONFIG.replace(task="multi"))
    records = list(start(tmp_path / "whole", settings, data=data))
    folder = RunFolder.open(tmp_path / "whole")
    table = folder.pool_table()
    assert table.num_rows == len(folder.pool()) * 2 == (51 + 3) * 2
    assert table["class"].to_pylist()[:2] == ["p", "q"]
    assert set(folder.pool_table(0)["label"].to_pylist()) == {0, 1}
    np.testing.assert_array_equal(folder.truth, np.concatenate([np.full((3, 2), -1), data.truth]))
    for got, expected in ((folder.pool(), records[-1].pool), (folder.validation(), records[-1].validation)):
        for name in expected.__dataclass_fields__:
            left, right = (np.asarray(getattr(labels, name)) for labels in (got, expected))
            np.testing.assert_array_equal(left, right, err_msg=name)
            assert left.dtype == right.dtype, name
    learner, labeled = LEARNER.build("multi"), data.labeled
    rest = {"validation": data.validation, "truth": data.truth, "classes": data.classes}
    next(start(tmp_path / "run", settings, data=data))
    list(run(tmp_path / "run", learner, labeled, data.unlabeled, resume=True, **rest))
    assert difference(tmp_path / "run", tmp_path / "whole") == ""


def test_ids_that_a_table_cannot_hold_are_refused_before_training(tmp_path: Path) -> None:
    x, y = blobs()
    pool = ArraySource(x[9:11], ids=np.array([1, "b"], dtype=object))
    with pytest.raises(InvalidInputError, match=r"ids must be all integers or all strings.*astype\(str\)"):
        run(tmp_path / "run", LEARNER.build("single"), (x[:9], y[:9]), pool, CONFIG)


def test_a_config_for_other_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="config is for task='multi', the data are for task='single'"):
        start(tmp_path / "run", small_settings(tmp_path, config=CONFIG.replace(task="multi")))
    with pytest.raises(InvalidInputError, match="num_classes is 4, but the data have 3 classes"):
        start(tmp_path / "run", small_settings(tmp_path, config=CONFIG.replace(num_classes=4)))
    x, y = blobs()
    data = RunData((x[:9], y[:9]), x[9:], ["a", "b", "a"])
    with pytest.raises(InvalidInputError, match="classes must have different names"):
        start(tmp_path / "run", RunSettings(learner=LEARNER, config=CONFIG), data=data)


def test_settings_that_name_too_little_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"has no learner; for a learner in memory call surelabel.run"):
        start(tmp_path / "run", small_settings(tmp_path, learner=None))
    with pytest.raises(InvalidInputError, match="names no data; give them as 'data'"):
        start(tmp_path / "run", RunSettings(learner=LEARNER))


def test_a_full_disk_is_named_and_the_run_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(start(tmp_path / "whole", small_settings(tmp_path)))
    rounds = start(tmp_path / "run", small_settings(tmp_path))
    next(rounds)

    def no_space(path: Path, data: bytes) -> None:
        path.write_bytes(data[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(surelabel.runs.files, "_write", no_space)
        with pytest.raises(RunError, match=r"pool.parquet' could not be written \(No space left on device\).*resume"):
            next(rounds)
    list(resume(tmp_path / "run"))
    assert difference(tmp_path / "run", tmp_path / "whole") == ""
