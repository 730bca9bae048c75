"""The bench of a group of one measures before, in and after it, and its row has the results' form."""

import csv
from pathlib import Path

import pytest
from torch import distributed as dist

from benchmarks import one_process as experiment


def test_a_row_says_how_fast_training_is_in_a_group_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--device", "cpu", "--repeats", "1", "--steps", "2", "--batch", "2"]
    experiment.main([*words, "--results", str(tmp_path / "bench.csv")])
    with (tmp_path / "bench.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["what"] == "training, one process in a group, beside no group"
    ratio = float(row["per_second"]) / float(row["plain_per_second"])
    assert float(row["ratio"]) == pytest.approx(ratio, rel=0.01)
    assert "before and after" in capsys.readouterr().out
    assert not dist.is_initialized()
