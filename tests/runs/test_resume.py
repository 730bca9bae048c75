"""Resuming: when a run goes on and when it is finished, by reference and from Python, and what must be the same."""

import gc
import json
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import CONFIG, LEARNER, blobs, difference, history, small_settings

from surelabel.data.pool import Prediction
from surelabel.errors import InvalidInputError, RunError
from surelabel.learners.network import TorchLearner
from surelabel.loop import self_train
from surelabel.records import RoundRecord
from surelabel.runs import RunFolder
from surelabel.runs.session import resume, run, start


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of rounds 0 to 2 that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    list(start(folder / "run", small_settings(folder)))
    return folder / "run"


def same_as(whole: Path, folder: Path) -> bool:
    """Whether the rounds are the same; the settings differ in the path of the data."""
    assert history(folder) == history(whole)
    files = [path.relative_to(whole) for path in (whole / "rounds").rglob("*.*")]
    return all((folder / name).read_bytes() == (whole / name).read_bytes() for name in files)


def test_an_abandoned_run_can_be_resumed(tmp_path: Path, whole: Path) -> None:
    for _ in start(tmp_path / "run", small_settings(tmp_path)):
        break
    assert [record.round for record in resume(tmp_path / "run")] == [1, 2]
    assert same_as(whole, tmp_path / "run")
    assert len(RunFolder.open(tmp_path / "run").environment) == 2


def test_a_resumed_run_lets_go_of_the_labels_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in start(tmp_path / "run", small_settings(tmp_path)):
        break
    read, fit = RunFolder.pool, TorchLearner.fit
    labels: list[weakref.ref[Any]] = []
    fits = []

    def noted(folder: RunFolder, round: int = -1) -> Any:
        pool = read(folder, round)
        labels.append(weakref.ref(pool))
        return pool

    def watched(*arguments: Any, **named: Any) -> None:
        gc.collect()
        fits.append([one for one in labels if one() is not None])
        fit(*arguments, **named)

    monkeypatch.setattr(RunFolder, "pool", noted)
    monkeypatch.setattr(TorchLearner, "fit", watched)
    list(resume(tmp_path / "run"))
    assert labels
    assert fits == [[], []]


def test_an_interrupted_round_is_done_again(tmp_path: Path, whole: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == "label" and (tmp_path / "run" / "rounds" / "000").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(start(tmp_path / "run", small_settings(tmp_path), progress=interrupt))
    folder = RunFolder.open(tmp_path / "run")
    assert (folder.num_rounds, folder.finished) == (1, False)
    list(resume(tmp_path / "run"))
    assert same_as(whole, tmp_path / "run")


def test_progress_and_callbacks_are_called(tmp_path: Path) -> None:
    seen: list[str] = []
    rounds: list[int] = []
    options: dict[str, Any] = {
        "progress": lambda what, done, total: seen.append(what),
        "callbacks": [lambda record: rounds.append(record.round)],
    }
    next(start(tmp_path / "run", small_settings(tmp_path), **options))
    list(resume(tmp_path / "run", **options))
    assert rounds == [0, 1, 2]
    assert set(seen) == {"train", "label"}


def test_a_run_that_a_callback_ended_goes_on(tmp_path: Path, whole: Path) -> None:
    records = list(start(tmp_path / "run", small_settings(tmp_path), callbacks=[lambda record: record.round == 1]))
    assert records[-1].stop == "interrupted"
    folder = RunFolder.open(tmp_path / "run")
    assert folder.records()[-1].stop == "interrupted"
    assert not folder.finished
    list(resume(tmp_path / "run"))
    assert same_as(whole, tmp_path / "run")


def test_a_finished_run_yields_nothing_and_says_so(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    with caplog.at_level(logging.INFO, logger="surelabel"):
        assert list(resume(whole)) == []
    assert f"The run in '{whole}' is finished: max_rounds." in caplog.text
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_a_higher_limit_goes_on_as_if_it_had_been_there_from_the_start(tmp_path: Path, whole: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=1)))
    assert [record.round for record in resume(tmp_path / "run", max_rounds=2)] == [2]
    assert same_as(whole, tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").settings.config.max_rounds == 2


def test_a_higher_limit_is_kept_when_the_run_is_interrupted_again(tmp_path: Path, whole: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=0)))
    next(resume(tmp_path / "run", max_rounds=2))
    assert not RunFolder.open(tmp_path / "run").finished
    list(resume(tmp_path / "run"))
    assert same_as(whole, tmp_path / "run")


def test_a_limit_that_ends_the_run_where_it_is_finishes_it(tmp_path: Path) -> None:
    next(start(tmp_path / "run", small_settings(tmp_path)))
    assert list(resume(tmp_path / "run", max_rounds=0)) == []
    folder = RunFolder.open(tmp_path / "run")
    assert folder.finished
    assert folder.records()[-1].stop == "max_rounds"


def test_a_run_whose_settings_changed_before_its_turn_came_is_left_as_it_is(tmp_path: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=0)))
    waiting = [resume(tmp_path / "run", max_rounds=1), resume(tmp_path / "run")]  # to go on, and to close
    list(resume(tmp_path / "run", max_rounds=2))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.json")}
    for records in waiting:
        with pytest.raises(RunError, match="settings of the run in .* have changed since it was opened. Try again"):
            list(records)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.json")} == before


def test_more_rounds_that_are_done_when_the_turn_comes_are_taken_into_account(tmp_path: Path, whole: Path) -> None:
    next(start(tmp_path / "run", small_settings(tmp_path)))
    later, too_low = resume(tmp_path / "run"), resume(tmp_path / "run", max_rounds=0)
    next(resume(tmp_path / "run"))
    with pytest.raises(InvalidInputError, match="must be at least 1: that round is done. Got 0"):
        list(too_low)
    assert [record.round for record in later] == [2]
    assert same_as(whole, tmp_path / "run")


def test_a_limit_below_what_is_done_is_refused(whole: Path) -> None:
    with pytest.raises(InvalidInputError, match="'max_rounds' must be at least 2: that round is done. Got 1"):
        resume(whole, max_rounds=1)


def test_minutes_of_all_parts_count(tmp_path: Path) -> None:
    first = next(start(tmp_path / "run", small_settings(tmp_path)))
    second = next(resume(tmp_path / "run"))
    assert second.minutes > first.minutes > 0
    assert list(resume(tmp_path / "run", max_minutes=second.minutes / 2)) == []
    assert RunFolder.open(tmp_path / "run").records()[-1].stop == "max_minutes"
    assert [record.round for record in resume(tmp_path / "run", max_minutes=1000)] == [2]


def test_a_run_that_has_converged_does_not_go_on(tmp_path: Path) -> None:
    config = CONFIG.replace(balance=None, tolerance=1e9, max_rounds=9)
    records = list(start(tmp_path / "run", small_settings(tmp_path, config=config)))
    assert records[-1].stop == "converged"
    assert list(resume(tmp_path / "run", max_rounds=20)) == []


def test_what_a_crash_left_behind_is_cleared_away_and_nothing_else(tmp_path: Path, whole: Path) -> None:
    next(start(tmp_path / "run", small_settings(tmp_path)))
    left = ["run/.history.json.tmp", "run/rounds/000/.pool.parquet.tmp", "run/rounds/000/model.skops"]
    mine = ["run/notes.txt", "run/rounds/000/picture.png"]
    for name in (*left, *mine):
        (tmp_path / name).write_text("half")
    list(resume(tmp_path / "run"))
    assert not any((tmp_path / name).exists() for name in left)
    assert all((tmp_path / name).read_text() == "half" for name in mine)
    assert same_as(whole, tmp_path / "run")


def test_files_of_a_round_that_was_not_committed_are_replaced(tmp_path: Path, whole: Path) -> None:
    next(start(tmp_path / "run", small_settings(tmp_path)))
    (tmp_path / "run/rounds/001").mkdir()
    (tmp_path / "run/rounds/001/pool.parquet").write_text("torn")
    list(resume(tmp_path / "run"))
    assert same_as(whole, tmp_path / "run")


def test_a_start_that_was_broken_off_at_once_can_be_started_again(tmp_path: Path, whole: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=0)))
    for name in ("run.json", "rounds/000/pool.parquet", "rounds/000/negatives.parquet", "rounds/000/model.safetensors"):
        (tmp_path / "run" / name).unlink()
    (tmp_path / "run/rounds/000").rmdir()
    (tmp_path / "run/rounds").rmdir()
    (tmp_path / "run/.run.json.tmp").write_text("{")
    with pytest.raises(RunError, match="a folder without run.json. Check the name, or start a run there"):
        resume(tmp_path / "run")
    list(start(tmp_path / "run", small_settings(tmp_path)))
    assert same_as(whole, tmp_path / "run")


def test_a_file_of_somebody_elses_is_not_taken_for_a_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.mine.tmp").write_text("mine")
    with pytest.raises(RunError, match=r"is not empty \('.mine.tmp'\)"):
        list(start(tmp_path / "run", small_settings(tmp_path)))
    assert (tmp_path / "run/.mine.tmp").read_text() == "mine"


# What the run was made from must be the same.


def test_a_changed_data_function_is_refused(tmp_path: Path) -> None:
    settings = small_settings(tmp_path)
    next(start(tmp_path / "run", settings))
    file = tmp_path / "blobs.py"
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(
        RunError, match=r"File '.*blobs.py' has changed since the run began: its SHA-256 was \w+ and is \w+"
    ):
        resume(tmp_path / "run")


def test_a_function_that_returns_other_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small_settings(tmp_path)
    source = (tmp_path / "blobs.py").read_text()
    (tmp_path / "blobs.py").write_text(
        "import os\n" + source.replace("default_rng(0)", "default_rng(int(os.environ['S']))")
    )
    monkeypatch.setenv("S", "0")
    next(start(tmp_path / "run", settings))
    monkeypatch.setenv("S", "1")
    with pytest.raises(RunError, match="data are not those that the run in '.*' began with"):
        resume(tmp_path / "run")


MODEL = """
import torch

def network(sample_shape, num_classes):
    layers = torch.nn.Linear(sample_shape[0], 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, num_classes)
    return torch.nn.Sequential(*layers)
"""


def test_a_network_in_a_file_is_resumed_and_a_changed_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    changes = {"model": "nets.py:network", "hidden": (128, 128), "dropout": 0.3}
    settings = small_settings(tmp_path, learner=LEARNER.replace(**changes))
    list(start("whole", settings))
    next(start("run", settings))
    monkeypatch.chdir("/")  # paths are absolute in the run's settings
    list(resume(tmp_path / "run"))
    assert difference(tmp_path / "run", tmp_path / "whole") == ""
    (tmp_path / "nets.py").write_text(MODEL.replace("0.3", "0.5"))
    with pytest.raises(RunError, match=r"File '.*nets.py' has changed"):
        resume(tmp_path / "run", max_rounds=5)
    with pytest.raises(RunError, match=r"File '.*nets.py' has changed"):
        RunFolder.open(tmp_path / "run").learner()


# Objects in memory.


def in_memory(folder: Path, **changes: Any) -> Any:
    x, y = blobs()
    values: dict[str, Any] = {
        "learner": LEARNER.build("single"),
        "labeled": (x[:9], y[:9]),
        "unlabeled": x[9:60],
        "truth": y[9:60],
        "classes": ["a", "b", "c"],
        **({} if changes.get("resume") else {"config": CONFIG}),
    }
    return run(folder, **{**values, **changes})


def test_a_run_in_memory_is_resumed_from_python(tmp_path: Path, whole: Path) -> None:
    next(in_memory(tmp_path / "run"))
    assert [record.round for record in in_memory(tmp_path / "run", resume=True)] == [1, 2]
    assert same_as(whole, tmp_path / "run")
    assert list(in_memory(tmp_path / "run", resume=True)) == []
    assert [
        record.round for record in in_memory(tmp_path / "run", resume=True, config=CONFIG.replace(max_rounds=3))
    ] == [3]


def test_the_command_says_how_to_resume_a_run_in_memory(tmp_path: Path) -> None:
    next(in_memory(tmp_path / "run"))
    with pytest.raises(
        RunError, match=r"objects in memory.*surelabel\.run\('.*', learner, labeled, unlabeled, resume=True\)"
    ):
        resume(tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    with pytest.raises(RunError, match=r"learner in memory.*load_model\(learner\)"):
        folder.learner()
    with pytest.raises(RunError, match="made from data in memory"):
        folder.data()


def test_classes_without_names_are_called_by_their_indices(tmp_path: Path) -> None:
    next(in_memory(tmp_path / "run", classes=None))
    assert RunFolder.open(tmp_path / "run").settings.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    "change",
    [
        {"unlabeled": blobs()[0][9:60] + 1},
        {"unlabeled": blobs()[0][9:59], "truth": blobs()[1][9:59]},
        {"labeled": (blobs()[0][:9], (blobs()[1][:9] + 1) % 3)},
        {"truth": None},
        {"test": (blobs()[0][60:], blobs()[1][60:])},
        {"classes": ["a", "b", "d"]},
    ],
    ids=["values", "rows", "labels", "truth", "test", "classes"],
)
def test_a_run_in_memory_with_other_data_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    next(in_memory(tmp_path / "run"))
    with pytest.raises(RunError, match="data are not those that the run in"):
        in_memory(tmp_path / "run", resume=True, **change)


def test_a_run_in_memory_with_another_config_is_refused(tmp_path: Path) -> None:
    next(in_memory(tmp_path / "run"))
    with pytest.raises(RunError, match=r"with tau_p=0.9 instead of 0.6, seed=7 instead of 0. Leave 'config' out"):
        in_memory(tmp_path / "run", resume=True, config=CONFIG.replace(tau_p=0.9, seed=7))
    with pytest.raises(RunError, match="elsewhere', which is not there"):
        in_memory(tmp_path / "elsewhere", resume=True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"labeled": blobs()[0]}, r"labeled must be a pair \(samples, labels\); got ndarray"),
        ({"validation": blobs()[0]}, r"validation must be a pair"),
        ({"labeled": (blobs()[0][:9], list("aabbccabc"))}, "labels of labeled must be integers"),
        ({"unlabeled": blobs()[0][:0], "truth": None}, "'unlabeled' argument is empty"),
        ({"truth": [0, 1]}, "truth must have a label"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    for classes in (None, ["a", "b", "c"]):
        with pytest.raises(InvalidInputError, match=problem):
            in_memory(tmp_path / "run", classes=classes, **change)
    assert not (tmp_path / "run").exists()


class OwnLearner:
    """A learner that can do what the loop asks for and no more: it labels by the nearest mean."""

    def fit(self, training_set: Any, *, seed: int) -> None:
        x, y = training_set.source[training_set.rows], (training_set.y & training_set.g)[training_set.rows]
        self.means = np.stack([x[y[:, c]].mean(axis=0) for c in range(training_set.num_classes)])

    def predict(self, source: Any, *, seed: int) -> Any:
        z = -((source[np.arange(len(source))][:, None] - self.means) ** 2).sum(axis=2)
        p = np.exp(z.astype(np.float64)) / np.exp(z.astype(np.float64)).sum(axis=1, keepdims=True)
        yield Prediction(source.ids, p, None)


def test_a_learner_that_cannot_be_saved_keeps_no_model_and_says_so(tmp_path: Path) -> None:
    config = CONFIG.replace(kappa_p=np.inf, kappa_n=np.inf)
    with pytest.warns(UserWarning, match="keeps no model: OwnLearner has no to_bytes"):
        whole = list(in_memory(tmp_path / "whole", learner=OwnLearner(), config=config))
    with pytest.warns(UserWarning, match="keeps no model"):
        next(in_memory(tmp_path / "run", learner=OwnLearner(), config=config))
    rest: list[RoundRecord] = list(in_memory(tmp_path / "run", learner=OwnLearner(), resume=True))
    assert len(whole) == 1 + len(rest) > 1
    assert difference(tmp_path / "run", tmp_path / "whole") == ""
    folder = RunFolder.open(tmp_path / "run")
    assert folder.pool().uncertainty is None
    assert folder.pool().confidence.dtype == np.float64
    with pytest.raises(RunError, match=r"of a learner without to_bytes none is"):
        folder.model_bytes()


def test_infinite_thresholds_survive_the_settings_file(tmp_path: Path) -> None:
    config = CONFIG.replace(kappa_p=np.inf, max_rounds=0)
    list(start(tmp_path / "run", small_settings(tmp_path, config=config)))
    assert json.loads((tmp_path / "run/run.json").read_text())["settings"]["config"]["kappa_p"] == "Infinity"
    assert RunFolder.open(tmp_path / "run").settings.config.kappa_p == np.inf


@pytest.mark.parametrize("remove", [lambda run: next(run), lambda run: run.close()])
def test_a_generator_that_was_never_used_holds_no_lock(tmp_path: Path, remove: Callable[[Any], Any]) -> None:
    rounds = start(tmp_path / "run", small_settings(tmp_path, max_rounds=0))
    remove(rounds)
    del rounds
    if (tmp_path / "run").exists():
        assert list(resume(tmp_path / "run")) == []
    else:
        assert len(list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=0)))) == 1


def test_a_warm_start_goes_on_from_the_weights_in_the_folder(tmp_path: Path) -> None:
    learner = LEARNER.replace(training=LEARNER.training.replace(warm_start=True))
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    list(start(tmp_path / "whole" / "run", small_settings(tmp_path / "whole", learner=learner)))
    for _ in start(tmp_path / "parts" / "run", small_settings(tmp_path / "parts", learner=learner)):
        break
    list(resume(tmp_path / "parts" / "run"))
    assert same_as(tmp_path / "whole" / "run", tmp_path / "parts" / "run")


def test_a_warm_start_without_weights_says_where_to_get_them(tmp_path: Path) -> None:
    learner = LEARNER.replace(training=LEARNER.training.replace(warm_start=True))
    (first, *_) = start(tmp_path / "run", small_settings(tmp_path, learner=learner))
    data = RunFolder.open(tmp_path / "run").data()
    with pytest.raises(InvalidInputError, match="warm_start=True begins a round with the last round's network"):
        list(self_train(learner.build("single"), data.labeled, data.unlabeled, CONFIG, resume_from=[first]))
