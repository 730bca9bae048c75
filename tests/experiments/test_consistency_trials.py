"""The trials of consistency, on made-up pictures."""

from pathlib import Path

import numpy as np
import pytest
from consistency_trials import TRIALS, main

from surelabel.reproduce.results import read_rows


@pytest.mark.slow
def test_each_trial_is_run_once_and_recorded_once(tmp_path: Path) -> None:
    for _ in range(2):
        main(["--tiny", "--out", str(tmp_path)])
        rows = read_rows(tmp_path / "results" / "runs.csv")
        assert [row["row"] for row in rows if row["metric"] == "validation error %"] == list(TRIALS)
    assert all((tmp_path / "results" / row["settings"]).exists() for row in rows)
    with np.load(tmp_path / "study.npz") as study:
        visits = [study[f"visits.{moment}"].sum() for moment in range(8)]
    assert visits == sorted(visits)
    assert visits[-1] > 0
