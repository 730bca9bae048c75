"""`surelabel fit --pool`: what it prints, and every option and file that it refuses before it trains."""

import shutil
import sys
import warnings
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_support import Command
from shards_support import blobs, write_labeled, write_pool, write_shard

from surelabel.runs import RunFolder

FIT = ("fit", "labeled.csv", "--label", "label", "--pool", "pool", "--out", "run")
SHORT = ("--rounds", "1", "--hidden", "8", "--epochs", "1", "--passes", "3")


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_fits: None) -> None:
    monkeypatch.chdir(tmp_path)
    write_labeled(Path("labeled.csv"))
    write_pool(Path("pool"))


def test_a_fit_says_what_it_found_and_how_to_go_on(command: Command) -> None:
    result = command(*FIT, *SHORT)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "Found rows in labeled.csv: 9 labeled, 100 unlabeled."
    assert lines[3:5] == [
        "Found 3 shards in pool: 100 rows to label.",
        "The last round is kept: a cross-validation would label the pool again in each fold; --validation compares.",
    ]
    assert lines[-2].endswith("label run pool --out labels/")
    assert command("report", "run", "--out", "report.html").code == 0
    report = Path("report.html").read_text()
    assert "The surest labels" in report
    assert "cannot be read" not in report
    assert command("resume", "run", "--rounds", "2").code == 0
    assert RunFolder.open("run").num_rounds == 3


def test_models_are_compared_by_a_validation_set(command: Command) -> None:
    result = command(*FIT, *SHORT, "--validation", "0.34")
    assert result.code == 0
    assert "cross-validation" not in result.out
    comparison = RunFolder.open("run").comparison()
    assert comparison is not None
    assert comparison.judge == "validation set"


def test_labels_of_the_labeled_file_are_not_taken_for_rows_of_the_pool(command: Command) -> None:
    """Both are numbered from 0."""
    assert command(*FIT, *SHORT).code == 0
    result = command("label", "run", "labeled.csv")
    head, *rows = (line.split(",") for line in result.out.splitlines())
    assert {row[head.index("round")] for row in rows} == {""}


def test_label_says_of_the_pool_what_the_run_does(command: Command) -> None:
    assert command(*FIT, *SHORT).code == 0
    assert command("label", "run", "pool", "--out", "labels/").code == 0
    parts = [pq.read_table(f"labels/{number}.parquet") for number in range(3)]
    whole = pq.read_table("run/rounds/001/pool.parquet")
    for name in ("label", "confidence", "uncertainty"):
        assert [value for part in parts for value in part[name].to_pylist()] == whole[name].to_pylist()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--estimator", "sklearn.naive_bayes:GaussianNB"], "--estimator needs all samples in memory, and --pool"),
        (["--workers", "0"], "Invalid value for '--workers'"),
        (["--engine", "slurm"], "Invalid value for '--engine': 'slurm' is not one of 'local', 'ray'"),
        (["--drop", "x0", "--drop", "x1", "--drop", "x2", "--drop", "x3"], "File 'labeled.csv' has no features"),
    ],
)
def test_wrong_use_is_one_line(command: Command, words: list[str], message: str) -> None:
    assert command.fails(2 if "has no features" not in message else 1, *FIT, *words).startswith(message)
    assert not Path("run").exists()


def test_options_about_workers_need_a_pool(command: Command) -> None:
    without = [word for word in FIT if word not in ("--pool", "pool")]
    message = command.fails(2, *without, "--workers", "2")
    assert message == "--workers has no effect without --pool; give one, or leave it out."
    Path("labeled.csv").write_text(Path("labeled.csv").read_text() + "1,2,3,4,\n")
    assert command(*without, *SHORT, "--no-compare").code == 0
    message = command.fails(2, "resume", "run", "--workers", "2")
    assert message == "--workers has no effect: the run has no pool in shards; leave it out."
    message = command.fails(2, "resume", "run", "--pool", "elsewhere")
    assert message == "--pool has no effect: the run has no pool in shards; leave it out."


def test_torchrun_labels_with_its_own_processes(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surelabel.cli._pool.number", lambda: 2)
    assert command.fails(2, *FIT, "--workers", "2").startswith("--workers has no effect under torchrun")


def test_ray_that_is_missing_is_told_before_anything_is_read(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    shutil.rmtree("pool")
    assert "pip install 'surelabel[ray]'" in command.fails(1, *FIT, "--engine", "ray")


def test_a_pool_that_is_not_there_is_one_line(command: Command) -> None:
    shutil.rmtree("pool")
    message = command.fails(1, *FIT)
    assert message.startswith("No shard is in '")
    assert message.endswith("check the path and the pattern.")


def test_a_damaged_shard_is_named_and_left_out_where_that_is_asked_for(command: Command) -> None:
    Path("pool/1.parquet").write_bytes(b"no parquet")
    assert command.fails(1, *FIT).endswith("Or leave such shards out: --on-error skip.")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = command(*FIT, *SHORT, "--on-error", "skip")
    assert result.code == 0
    assert "warning: 1 of 3 shards in" in result.err.replace("\n", " ")
    assert "9 labeled, 80 unlabeled" in result.out


def test_a_shard_that_is_new_is_named_by_resume(command: Command) -> None:
    assert command(*FIT, *SHORT).code == 0
    write_shard(Path("pool/new.parquet"), blobs(5, 3)[0])
    message = command.fails(1, "resume", "run", "--rounds", "2")
    assert "had no shard 'new.parquet' when the run began; move it away" in message
