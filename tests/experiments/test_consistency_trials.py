"""The trials of consistency, on made-up pictures."""

from pathlib import Path

import pytest
import torch
from consistency_trials import TRIALS, Consistency, Trial, main

from surelabel.reproduce.results import read_rows


@pytest.mark.slow
def test_each_trial_is_run_once_and_recorded_once(tmp_path: Path) -> None:
    for _ in range(2):
        main(["--tiny", "--out", str(tmp_path)])
        rows = read_rows(tmp_path / "results" / "runs.csv")
        assert [row["row"] for row in rows if row["metric"] == "validation error %"] == list(TRIALS)
    assert all((tmp_path / "results" / row["settings"]).exists() for row in rows)


@pytest.mark.parametrize(("gate", "weights"), [("fixed", [1, 0, 0]), ("free", [1, 1, 0])])
def test_a_gate_lets_confident_answers_through(gate: str, weights: list[int]) -> None:
    method = Consistency(Trial(gate=gate))
    state = method.tensors(3, 2) | {"mean": torch.tensor(0.7)}
    weight, label = method.judged(torch.tensor([[0.98, 0.02], [0.2, 0.8], [0.6, 0.4]]), state)
    assert weight.tolist() == weights
    assert label.tolist() == [0, 1, 0]


def test_the_soft_gate_weighs_answers_below_the_mean() -> None:
    method = Consistency(Trial(gate="soft"))
    state = method.tensors(2, 2) | {"mean": torch.tensor(0.8), "variance": torch.tensor(0.04)}
    weight, _ = method.judged(torch.tensor([[0.9, 0.1], [0.7, 0.3]]), state)
    mean, variance = state["mean"].item(), state["variance"].item()
    assert weight[0] == 1
    assert weight[1].item() == pytest.approx(torch.tensor(-((0.7 - mean) ** 2) / (2 * variance / 4)).exp().item())
