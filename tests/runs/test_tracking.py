"""TensorBoard and MLflow hear of each round once, also of a resumed run; it is read back by the packages' own code."""

import re
import shlex
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from cli_support import LOGISTIC, QUICK, write_blobs

from surelabel.records import RoundRecord
from surelabel.runs import RunFolder
from surelabel.runs.tracking import metrics, parameters, trackers

DOCUMENT = Path(__file__).parents[2] / "docs" / "runs.md"


def fit(command: Any, folder: Path, *options: object) -> Path:
    words = ("--label", "pet", "--id", "id", *LOGISTIC, "--validation", 0.5, "--quiet", *options)
    assert command("fit", write_blobs(folder / "pets.csv"), *words, "--out", folder / "run").code == 0
    return folder / "run"


def expected(run: Path) -> list[dict[str, float]]:
    found = [metrics(record) for record in RunFolder.open(run).records()]
    assert all({"positives", "negatives", "minutes", "validation_accuracy"} <= set(one) for one in found)
    return found


def assert_told(found: dict[str, list[tuple[int, float]]], run: Path) -> None:
    """Compare (step, value) by metric with the run's records."""
    records = expected(run)
    for name in {name for one in records for name in one}:
        told = [(round, one[name]) for round, one in enumerate(records) if name in one]
        assert [step for step, _ in found[name]] == [step for step, _ in told], name
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in told], rel=1e-6), name


def scalars(folder: Path) -> tuple[dict[str, list[tuple[int, float]]], str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(folder)).Reload()
    (text,) = events.Tensors("settings/text_summary")
    found = {name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]}
    return found, text.tensor_proto.string_val[0].decode()


def mlflow_runs(folder: Path) -> list[tuple[Any, dict[str, list[tuple[int, float]]]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    (experiment,) = [one for one in client.search_experiments() if one.name == "surelabel"]
    found = []
    for run in client.search_runs([experiment.experiment_id]):
        histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        found.append((run, {name: sorted((one.step, one.value) for one in of) for name, of in histories.items()}))
    return found


def test_tensorboard_has_a_step_for_each_round_also_after_a_resume(command, tmp_path):
    pytest.importorskip("tensorboard")
    run = fit(command, tmp_path, "--track", "tensorboard")
    found, settings = scalars(run / "tracking" / "run")
    assert_told(found, run)
    assert "| config.tau_p | 0.7 |" in settings
    assert "| learner.estimator | sklearn.linear_model:LogisticRegression |" in settings
    assert command("resume", run, "--rounds", 3, "--track", "tensorboard", "--quiet").code == 0
    assert RunFolder.open(run).num_rounds == 4
    found, _ = scalars(run / "tracking" / "run")
    assert_told(found, run)


def test_a_round_that_was_told_of_and_not_kept_is_told_of_once(command, tmp_path):
    pytest.importorskip("tensorboard")
    run = fit(command, tmp_path, "--track", "tensorboard", "--track-dir", tmp_path / "told")
    opened = RunFolder.open(run)
    (lost,) = trackers(["tensorboard"], run, opened.settings, tmp_path / "told", done=2)
    lost(opened.records()[1].replace(round=2, num_positive=12345, stop=None))  # as before a crash
    assert command("resume", run, "--rounds", 2, "--track", "tensorboard", "--track-dir", tmp_path / "told").code == 0
    assert_told(scalars(tmp_path / "told" / "run")[0], run)


@pytest.mark.slow
def test_mlflow_has_one_run_with_a_step_for_each_round_also_after_a_resume(command, tmp_path):
    pytest.importorskip("mlflow")
    run = fit(command, tmp_path, "--track", "mlflow")
    ((told, found),) = mlflow_runs(run / "tracking")
    assert_told(found, run)
    assert (told.info.run_name, told.info.status) == ("run", "FINISHED")
    assert told.data.params == parameters(RunFolder.open(run).settings.replace(data=None)) | {
        name: value for name, value in told.data.params.items() if name.startswith("data.")
    }
    assert command("resume", run, "--rounds", 3, "--track", "mlflow", "--quiet").code == 0
    ((told, found),) = mlflow_runs(run / "tracking")
    assert_told(found, run)
    assert told.info.status == "FINISHED"


def test_runs_of_one_folder_stand_side_by_side(command, tmp_path):
    pytest.importorskip("tensorboard")
    both = ("--track", "tensorboard", "--track", "tensorboard", "--track-dir", tmp_path / "all")
    run = fit(command, tmp_path, *both)
    words = ("fit", tmp_path / "pets.csv", "--label", "pet", "--id", "id", *LOGISTIC, *both, "--quiet")
    assert command(*words, "--out", tmp_path / "second").code == 0
    assert_told(scalars(tmp_path / "all" / "run")[0], run)
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["run", "second"]
    error = command.fails(1, *words, "--out", tmp_path / "elsewhere" / "second")
    assert error == f"The folder '{tmp_path}/all/second' holds another run's events; give another --track-dir."
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_named_before_any_training(command, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    words = ("fit", write_blobs(tmp_path / "pets.csv"), "--label", "pet", "--out", tmp_path / "run", "--track", name)
    install = 'pip install "surelabel[track]"'
    assert command.fails(1, *words) == f"--track {name} needs the package {name!r}; install it with: {install}."
    assert not (tmp_path / "run").exists()


def test_a_place_without_a_tracker_and_a_tracker_that_is_unknown_are_refused(command, tmp_path):
    words = ("fit", write_blobs(tmp_path / "pets.csv"), "--label", "pet", "--out", tmp_path / "run")
    error = command.fails(2, *words, "--track-dir", tmp_path)
    assert error.startswith("--track-dir has no effect without --track tensorboard or mlflow; ")
    error = command.fails(2, *words, "--track", "wandb")
    assert error == "Invalid value for '--track': 'wandb' must be tensorboard or mlflow."


def test_the_guide_does_what_it_says(command, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    write_blobs(Path("pets.csv"))
    (line,) = re.findall(r"^surelabel (fit .*--track .*)$", DOCUMENT.read_text(), flags=re.MULTILINE)
    assert command(*shlex.split(line), *QUICK).code == 0
    run = Path("runs/pets")
    told = scalars(run / "tracking" / "pets")[0]["positives"]
    assert told == [(one.round, one.num_positive) for one in RunFolder.open(run).records()]


def test_what_is_not_known_of_a_round_is_left_out():
    counts: dict[str, Any] = dict.fromkeys(("num_positive_before", "num_negative_only"), 0)
    unknown: dict[str, Any] = dict.fromkeys(("negatives_per_row", "mean_uncertainty", "ece", "stop"))
    judged: dict[str, Any] = dict.fromkeys(("positive_accuracy", "negative_accuracy"))
    shares: dict[str, Any] = {"positive_share": 0.5, "mean_confidence": 0.9, "minutes": 0.25}
    classes: dict[str, Any] = {"class_counts": [3], "class_counts_before": [3], "balanced": False}
    more = {**counts, **unknown, **judged, **shares, **classes, "negatives_use": "loss"}
    record = RoundRecord(1, 3, 4, **more, scores={"test mAP, 11 points": 0.75})
    assert metrics(record) == {
        "positives": 3,
        "negatives": 4,
        "minutes": 0.25,
        "positive_share": 0.5,
        "mean_confidence": 0.9,
        "test_mAP_11_points": 0.75,
    }
