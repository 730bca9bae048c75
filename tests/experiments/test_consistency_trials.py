"""The trials of consistency, on made-up pictures."""

import subprocess
import sys
from pathlib import Path

import gates
import numpy as np
import pytest
from consistency_trials import CHANGES, FACTORS, SEARCH, halved, main, trial_of

from surelabel.reproduce.results import read_rows


@pytest.mark.slow
def test_each_trial_is_run_once_and_recorded_once(tmp_path: Path) -> None:
    for _ in range(2):
        main(["--tiny", "--out", str(tmp_path), *CHANGES, "search"])
        rows = read_rows(tmp_path / "results" / "runs.csv")
        assert [row["row"] for row in rows if row["metric"] == "validation error %"] == [*CHANGES, *SEARCH]
    assert all((tmp_path / "results" / row["settings"]).exists() for row in rows)
    for _ in range(2):
        subprocess.run([sys.executable, gates.__file__, tmp_path, "--results", tmp_path / "results"], check=True)
    judged = [row for row in read_rows(tmp_path / "results" / "runs.csv") if row["experiment"] == gates.EXPERIMENT]
    assert len(judged) == 13 * 5 * len(gates.AFTER)
    visits = [np.load(tmp_path / f"study-{number}.npz")["visits"].sum() for number in gates.AFTER]
    assert 0 < visits[0] < visits[1] < visits[2]


def test_the_search_has_each_change_in_half_of_its_trials_and_each_two_in_a_quarter() -> None:
    there = np.array([[change in trial.split(", ") for change in FACTORS] for trial in SEARCH])
    assert (there.T.astype(int) @ there == 2 + 2 * np.eye(len(FACTORS))).all()
    trial = trial_of("260 s, soft labels, memory")
    assert (trial.seconds, trial.method) == (260.0, {"soft": 0.5, "memory": 0.7})
    assert trial_of("small, 260 s").small


def test_pictures_of_half_the_side_have_the_means_of_four_pixels() -> None:
    x = np.arange(2 * 1 * 4 * 4, dtype=np.uint8).reshape(2, 1, 4, 4)
    assert halved(x)[1, 0].tolist() == [[18, 20], [26, 28]]  # of 18.5, 20.5, 26.5 and 28.5, rounded to even
    assert (halved(np.full((1, 3, 32, 32), 255, dtype=np.uint8)) == 255).all()


def test_scores_judge_the_label_of_a_weak_view_by_each_source() -> None:
    """Six pictures of two classes; the memory of the second one is sure, and that of the first one is not."""
    p = np.array([0.9, 0.6, 0.8, 0.7, 0.1, 0.4])
    weak = np.stack([p, 1 - p], axis=1)
    spread = np.array([0.3, 0.1, 0.2, 0.05, 0.0, 0.1])[:, None]
    other = np.full((6, 2), 0.5)
    generator = np.random.default_rng(0)
    labeled_y = np.tile([0, 1], 4 * gates.LABELED_VIEWS)
    features = generator.normal(size=(len(labeled_y), 3)) + 5 * labeled_y[:, None]
    arrays = {
        **{"weak": weak, "second": other, "student": weak, "plain": weak, "classes": np.ones(2)},
        **{"answers": weak, "squares": weak**2 + spread**2, "dropout": other, "dropout_squares": other**2},
        **{"features": features[[0, 0, 0, 0, 1, 1]], "labeled_features": features, "labeled_y": labeled_y},
    }
    label, found = gates.scores(arrays)
    assert label.tolist() == [0, 0, 0, 0, 1, 1]
    close = {name: score.round(3).tolist() for name, score in found.items()}
    assert close["confidence"] == close["plain"] == close["student"] == [0.9, 0.6, 0.8, 0.7, 0.9, 0.6]
    assert close["second view"] == [0.7, 0.55, 0.65, 0.6, 0.7, 0.55]
    assert close["second view, spread"] == [-0.2, -0.05, -0.15, -0.1, -0.2, -0.05]
    assert close["memory, spread"] == [-0.3, -0.1, -0.2, -0.05, 0.0, -0.1]
    assert close["dropout"] == [0.5] * 6
    assert min(close["heads"]) > 0.9
    assert set(close["student, spread"]) == {0.0}

    figures = gates.judged({**arrays, "y": np.array([1, 0, 0, 0, 1, 1])})
    assert figures["confidence"][gates.RIGHT] == pytest.approx(100 * 2 / 3)
    assert figures["memory, spread"][gates.RIGHT] == 100
    assert figures["memory, spread"][gates.DIFFERENCE] == pytest.approx(100 / 3)
    assert figures["confidence"][gates.DIFFERENCE] == 0
