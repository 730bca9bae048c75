"""The bench of the networks for pictures and clips: what it times is right, and its rows have the results' form."""

import csv
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import resnet as experiment
from benchmarks.results import COLUMNS

CASES = experiment.cases
SMALL = ("surelabel.models.resnet:ResNet", "surelabel.models.resnet3d:ResNet3d")


def small_cases(tiny: bool = True) -> list[Any]:
    def narrow(case: Any, model: str) -> Any:
        learner = case.recipe.learner.replace(model=model, model_parameters={"width": 2})
        return dataclasses.replace(case, recipe=case.recipe.replace(learner=learner))

    return [narrow(case, model) for case, model in zip(CASES(tiny), SMALL, strict=True)]


def test_the_full_cases_are_the_recipes_networks_and_shapes() -> None:
    pictures, clips = experiment.cases(tiny=False)
    assert pictures.name == "resnet50, 128 px"
    assert pictures.recipe.learner.model == "surelabel.models.resnet:resnet50"
    assert clips.name == "resnet3d18, 16 x 112 x 112"
    assert clips.recipe.learner.model == "surelabel.models.resnet3d:resnet3d18"
    settings = [experiment._settings(case, torch.device("cpu")) for case in (pictures, clips)]
    assert pictures.shape == (3, 128, 128)
    assert clips.shape == (3, 60, 128, 128)
    assert (settings[1].training.augment.side, settings[1].training.augment.window) == (112, 16)
    assert settings[0].training.augment.operations > 0, "training is timed with augmentation"
    assert all(one.training.channels_last and one.passes == 10 for one in settings)


@pytest.mark.parametrize("number", [0, 1])
def test_both_ways_show_the_network_the_same(number: int) -> None:
    case = small_cases()[number]
    bench = experiment.Bench(case, torch.device("cpu"))
    shape = ((3, 32, 32), (3, 16, 32, 32))[number]
    assert bench.fixed.shape == (2, *shape)
    seen: list[torch.Size] = []
    first = next(layer for layer in bench.network.modules() if isinstance(layer, (torch.nn.Conv2d, torch.nn.Conv3d)))
    first.register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0].shape))
    before = [parameter.clone() for parameter in bench.network.parameters()]
    assert bench.train_alone() > 0
    assert any(not torch.equal(one, other) for one, other in zip(before, bench.network.parameters(), strict=True))
    assert bench.label_alone() > 0
    passes = case.batch * case.batches // case.pass_batch
    assert seen == [(2, *shape)] * (case.steps - 1) + [(case.pass_batch, *shape)] * passes
    assert bench.label() > 0
    assert bench.train() > 0


def test_rows_are_appended_for_both_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(experiment, "cases", small_cases)
    path = tmp_path / "bench.csv"
    experiment.main(["--device", "cpu", "--tiny", "--repeats", "1", "--results", str(path)])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["what"].partition(",")[0] for row in rows] == ["training", "labeling"] * 2
    assert [row["model"] for row in rows[::2]] == ["resnet50, 32 px", "resnet3d18, 16 x 32 x 32"]
    for row in rows:
        assert float(row["ratio"]) == pytest.approx(float(row["per_second"]) / float(row["plain_per_second"]), rel=0.01)
    assert "aimed at: 1.3" in capsys.readouterr().out


def test_a_file_of_another_form_is_refused_before_anything_is_timed(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="other.csv"):
        experiment.main(["--tiny", "--results", str(path)])
