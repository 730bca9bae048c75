"""The bench of checkpoints writes them, and its row has the results' form."""

import csv
from pathlib import Path

import pytest

from benchmarks import checkpoints as experiment


def test_a_row_says_how_fast_training_is_with_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--device", "cpu", "--repeats", "1", "--steps", "2", "--batch", "2", "--seconds", "0"]
    experiment.main([*words, "--results", str(tmp_path / "bench.csv")])
    with (tmp_path / "bench.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["what"] == "training, a checkpoint every 0 s, beside none"
    ratio = float(row["per_second"]) / float(row["plain_per_second"])
    assert float(row["ratio"]) == pytest.approx(ratio, rel=0.01)
    assert "a checkpoint has" in capsys.readouterr().out
