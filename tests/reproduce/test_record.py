"""Finished runs as rows of the results table."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from surelabel.data.splits import split_hash
from surelabel.errors import RunLockedError
from surelabel.learners.settings import SklearnLearnerSettings
from surelabel.reproduce.digits import Job, demo_settings, run_jobs
from surelabel.reproduce.results import COLUMNS, Figure, read_rows, record_runs, samples_seen
from surelabel.reproduce.variants import ups_without_negatives
from surelabel.runs import RunFolder
from surelabel.runs.rows import alone


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
    score = Figure("test accuracy", finished.records()[-1].test_score)
    for _ in range(2):  # what is there is not written again
        record_runs(tmp_path / "runs.csv", [(finished, [score])], experiment="demo", dataset="digits", num_labels=40)
    (row,) = read_rows(tmp_path / "runs.csv")
    assert tuple(row) == COLUMNS
    assert float(row["value"]) == finished.records()[-1].test_score
    assert (row["row"], row["seed"], row["rounds"], row["labels"]) == ("UPS, no negatives", "4", "1", "40")
    assert row["split_hash"] == split_hash(finished.data().labeled[0].ids)
    kept = json.loads((tmp_path / row["settings"]).read_text())["UPS, no negatives"]
    assert kept["config"]["kappa_p"] == finished.settings.config.kappa_p
    assert "seed" not in kept["config"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".runs.csv.lock", row["settings"], "runs.csv"]


APPEND = """
import sys
from surelabel.reproduce.results import Figure, record_runs
from surelabel.runs import RunFolder
folder, path, name = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for number in range(30):
    figures = [Figure(f"{name} {number}", number), Figure(f"both {number}", number)]
    record_runs(path, [(RunFolder.open(folder), figures)], experiment="e", dataset="d", num_labels=4)
"""


def test_two_processes_that_record_at_once_lose_no_row_and_write_none_twice(
    finished: RunFolder, tmp_path: Path
) -> None:
    results = tmp_path / "results" / "runs.csv"
    words = [sys.executable, "-c", APPEND, str(finished.path), str(results)]
    pipe = subprocess.PIPE
    both = [subprocess.Popen([*words, name], stdin=pipe, stdout=pipe, text=True) for name in ("first", "second")]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in both:
        process.communicate()
    assert [process.returncode for process in both] == [0, 0]
    found = sorted(row["metric"] for row in read_rows(results))
    assert found == sorted(f"{name} {number}" for name in ("both", "first", "second") for number in range(30))


def test_a_file_that_another_writes_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    with alone(path):
        began = time.monotonic()
        with pytest.raises(RunLockedError, match=r"process \d+. is writing in .*; nothing was changed"):
            alone(path, seconds=0.1).__enter__()
        assert time.monotonic() - began > 0.1
    with alone(path, seconds=0):
        pass


def test_a_run_without_its_split_is_told_by_its_data(finished: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(finished.path, tmp_path / "run")
    (tmp_path / "run" / "split.json").unlink()
    older = RunFolder.open(tmp_path / "run")
    found = [(older, [Figure("test accuracy", 0.9)])]
    record_runs(tmp_path / "runs.csv", found, experiment="demo", dataset="digits", num_labels=40)
    assert read_rows(tmp_path / "runs.csv")[0]["split_hash"] == finished.settings.fingerprint != ""


def test_epochs_and_samples_follow_from_the_training_settings(finished: RunFolder) -> None:
    first, second = finished.records()
    # 40 steps of 32 are 1280 samples, 32 times each of the 40 labels.
    assert samples_seen(first, 40, finished) == (32, 1280)
    rows = 40 + second.num_positive
    assert samples_seen(second, 40, finished) == (-(-1280 // rows), 1280)
    training = finished.settings.with_training(steps=40, round_growth=1.5)
    growing = SimpleNamespace(settings=training, has_pool=True, pool_table=finished.pool_table)
    assert samples_seen(second, 40, growing) == (-(-1920 // rows), 1920)  # type: ignore[arg-type]
    learner = SklearnLearnerSettings(estimator="sklearn.naive_bayes:GaussianNB")
    other = SimpleNamespace(settings=finished.settings.replace(learner=learner))
    assert samples_seen(first, 40, other) == (0, 0)  # type: ignore[arg-type]
