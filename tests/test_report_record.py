"""Finished runs as rows of the results table."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from surelabel.data.splits import split_hash
from surelabel.recipes.demo import demo_settings
from surelabel.recipes.variants import ups_without_negatives
from surelabel.recipes.workers import Job, run_jobs
from surelabel.report.record import record_runs, samples_seen
from surelabel.report.results import COLUMNS, read_rows
from surelabel.runs import RunFolder, SklearnLearnerSettings


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    settings = ups_without_negatives(demo_settings(seed=4))
    assert settings.learner is not None
    training = settings.learner.training.replace(min_steps=40, batch_size=32)
    folder: Path = tmp_path_factory.mktemp("runs") / "run"
    changed = settings.replace(
        config=settings.config.replace(max_rounds=1), learner=settings.learner.replace(training=training)
    )
    run_jobs([Job(folder, changed)], workers=1)
    return RunFolder.open(folder)


def test_a_run_is_one_row_and_its_settings_lie_beside(finished: RunFolder, tmp_path: Path) -> None:
    for _ in range(2):
        record_runs(tmp_path / "runs.csv", [finished], experiment="demo", dataset="digits", num_labels=40)
    row, again = read_rows(tmp_path / "runs.csv")
    assert row == again
    assert tuple(row) == COLUMNS
    assert float(row["value"]) == finished.records()[-1].test_score
    assert (row["row"], row["seed"], row["rounds"], row["labels"]) == ("UPS, no negatives", "4", "1", "40")
    assert row["split_hash"] == split_hash(finished.data().labeled[0].ids)
    kept = json.loads((tmp_path / row["settings"]).read_text())["UPS, no negatives"]
    assert kept["config"]["kappa_p"] == finished.settings.config.kappa_p
    assert "seed" not in kept["config"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_without_its_split_is_told_by_its_data(finished: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    (tmp_path / "run" / "split.json").unlink()
    older = RunFolder.open(tmp_path / "run")
    record_runs(tmp_path / "runs.csv", [older], experiment="demo", dataset="digits", num_labels=40)
    assert read_rows(tmp_path / "runs.csv")[0]["split_hash"] == finished.settings.fingerprint != ""


def test_epochs_and_samples_follow_from_the_training_settings(finished: RunFolder) -> None:
    first, second = finished.records()
    # 40 steps of 32 are 1280 samples, 32 times each of the 40 labels.
    assert samples_seen(first, 40, finished) == (32, 1280)
    rows = 40 + second.num_positive
    assert samples_seen(second, 40, finished) == (-(-1280 // rows), 1280)
    learner = SklearnLearnerSettings(estimator="sklearn.naive_bayes:GaussianNB")
    other = SimpleNamespace(settings=finished.settings.replace(learner=learner))
    assert samples_seen(first, 40, other) == (0, 0)  # type: ignore[arg-type]
