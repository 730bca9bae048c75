"""The trials of consistency, on made-up pictures."""

import subprocess
import sys
from pathlib import Path

import gates
import numpy as np
import pytest
from consistency_trials import TRIALS, main

from surelabel.reproduce.results import read_rows

GATES = Path(gates.__file__)


@pytest.mark.slow
def test_each_trial_is_run_once_and_recorded_once(tmp_path: Path) -> None:
    for _ in range(2):
        main(["--tiny", "--out", str(tmp_path)])
        rows = read_rows(tmp_path / "results" / "runs.csv")
        assert [row["row"] for row in rows if row["metric"] == "validation error %"] == list(TRIALS)
    assert all((tmp_path / "results" / row["settings"]).exists() for row in rows)
    told = subprocess.run([sys.executable, GATES, tmp_path / "study.npz"], capture_output=True, text=True, check=True)
    assert told.stdout.count("mean - spread") == 7
    with np.load(tmp_path / "study.npz") as study:
        visits = [study[f"visits.{moment}"].sum() for moment in range(8)]
    assert visits == sorted(visits)
    assert visits[-1] > 0


def test_a_gate_takes_the_best_half_of_each_class() -> None:
    answers = np.array([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [0.7, 0.3], [0.1, 0.9], [0.4, 0.6]])
    spread = np.array([0.3, 0.1, 0.2, 0.05, 0.0, 0.1])
    found = gates.scores(answers, answers, answers**2 + spread[:, None] ** 2, np.ones(6), answers)
    best = {name: sorted(gates.taken(*found[name]).tolist()) for name in ("last", "spread")}
    assert best == {"last": [0, 2, 4], "spread": [1, 3, 4]}
