"""Two versions in turns: here the same one twice."""

import csv
from pathlib import Path

import pytest

from benchmarks.two_trees import HERE, main

TINY = ["--device", "cpu", "--width", "2", "--images", "64", "--batch", "16", "--label-batch", "32", "--repeats", "1"]


@pytest.mark.slow
def test_training_and_labeling_by_both_are_recorded(tmp_path: Path) -> None:
    results = tmp_path / "bench.csv"
    main([str(HERE), "--name", "itself", "--results", str(results), *TINY])
    rows = list(csv.DictReader(results.read_text().splitlines()))
    assert [row["what"].split(",")[0] for row in rows] == ["training", "labeling"]
    for row in rows:
        assert row["model"] == "cnn13, beside itself"
        speeds = float(row["per_second"]), float(row["plain_per_second"])
        assert float(row["ratio"]) == pytest.approx(speeds[0] / speeds[1], rel=0.01)


@pytest.mark.slow
def test_a_folder_without_the_package_is_told(tmp_path: Path) -> None:
    (tmp_path / "src" / "surelabel").mkdir(parents=True)
    with pytest.raises(SystemExit, match="ended with 1"):
        main([str(tmp_path), *TINY])
