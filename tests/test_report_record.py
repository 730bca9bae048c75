"""Finished runs as rows of the results table."""

from pathlib import Path

import pytest

from surelabel.recipes.demo import demo_settings
from surelabel.recipes.variants import ups_without_negatives
from surelabel.recipes.workers import Job, run_jobs
from surelabel.report.record import result_rows, samples_seen
from surelabel.runs import RunFolder, SklearnLearnerSettings

COLUMNS = (
    "experiment, row, dataset, labels, validation_labels, split_hash, seed, metric, value, paper, rounds, epochs, "
    "images_seen, minutes, device, torch, commit, settings"
)


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


def test_a_run_is_one_row_with_the_columns_of_the_design(finished: RunFolder) -> None:
    (row,) = result_rows([finished], experiment="demo", dataset="digits", num_labels=40, settings="demo.json")
    assert ", ".join(row) == COLUMNS
    assert row["value"] == finished.records()[-1].test_score
    assert (row["row"], row["seed"], row["rounds"]) == ("UPS, no negatives", 4, 1)
    assert row["split_hash"] == finished.settings.fingerprint != ""


def test_epochs_and_samples_follow_from_the_training_settings(finished: RunFolder) -> None:
    first, second = finished.records()
    # 40 labels are two batches of 20; 40 steps are 20 epochs.
    assert samples_seen(first, 40, finished.settings.learner) == (20, 800)
    rows = 40 + second.num_positive
    batches = -(-rows // 32)
    epochs = -(-40 // batches)
    assert samples_seen(second, 40, finished.settings.learner) == (epochs, epochs * rows)
    assert samples_seen(first, 40, SklearnLearnerSettings(estimator="sklearn.naive_bayes:GaussianNB")) == (0, 0)
