"""Learners from settings: the same learner as made by hand, by reference where it is code."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from sklearn.ensemble import RandomForestClassifier

from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError, RunError
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.models.table import TableNetwork
from surelabel.uncertainty import Deterministic, MCDropout

NETWORK = """
import torch

class Noise(torch.nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) if self.training else x

def network(sample_shape, num_classes):
    return torch.nn.Sequential(torch.nn.Linear(sample_shape[0], num_classes), Noise())
"""


def test_the_default_network_follows_its_settings() -> None:
    settings = TorchLearnerSettings(hidden=(5, 6), dropout=0.2, noise=0.1, device="cpu")
    network = settings.build("single").build((4,), 3)
    assert isinstance(network, TableNetwork)
    widths = [layer.out_features for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
    rates = [layer.p for layer in network.modules() if isinstance(layer, torch.nn.Dropout)]
    assert (widths, rates, network.noise) == ([5, 6, 3], [0.2, 0.2], 0.1)


def test_everything_else_reaches_the_learner() -> None:
    training = TrainingSettings(epochs=3)
    progress = lambda what, done, total: None  # noqa: E731
    settings = TorchLearnerSettings(
        training=training, passes=4, temperature=1.5, negative_weight=0.5, predict_batch_size=7, device="cpu"
    )
    learner = settings.build("multi", progress)
    assert learner.training == training
    assert learner.uncertainty == MCDropout(passes=4, temperature=1.5, task="multi")
    assert (learner.negative_weight, learner.predict_batch_size, learner.task) == (0.5, 7, "multi")
    assert learner.device == torch.device("cpu")
    assert learner.progress is progress
    plain = settings.replace(uncertainty="none", passes=10).build("single")
    assert plain.uncertainty == Deterministic(temperature=1.5)


def test_a_network_and_its_layers_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NETWORK)
    settings = TorchLearnerSettings(
        model="nets.py:network", stochastic_layers=("nets.py:Noise",), device="cpu"
    ).pinned()
    assert settings.model == f"{tmp_path}/nets.py:network"
    assert settings.stochastic_layers == (f"{tmp_path}/nets.py:Noise",)
    assert settings.layer_hashes == (settings.model_hash,)
    assert settings.pinned() == settings
    learner = settings.build("single")
    network = learner.build((4,), 3)
    u = learner.uncertainty.estimate(network, torch.ones(2, 4), check=True).u
    assert (u > 0).all()
    Path("nets.py").write_text(NETWORK + "# changed")
    with pytest.raises(RunError, match=r"nets.py' has changed since the run began"):
        settings.build("single")
    with pytest.raises(RunError, match=r"nets.py' has changed since the run began"):
        settings.replace(model=None, model_hash=None).build("single")


def test_settings_that_a_network_of_ones_own_ignores_warn(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETWORK)
    settings = TorchLearnerSettings(model=f"{tmp_path}/nets.py:network", hidden=(3,), device="cpu")
    with pytest.warns(UserWarning, match="Ignored: hidden, because model=.* is a network of your own"):
        settings.build("single")
    with pytest.warns(UserWarning, match="Ignored: passes, because uncertainty='none' makes one deterministic pass"):
        TorchLearnerSettings(uncertainty="none", passes=5).build("single")


def test_a_scikit_learn_learner_follows_its_settings() -> None:
    settings = SklearnLearnerSettings(
        estimator="sklearn.ensemble:RandomForestClassifier",
        parameters={"n_estimators": 5, "max_depth": None, "bootstrap": True, "criterion": "entropy", "ccp_alpha": 0.1},
        members=4,
        temperature=3.0,
        negatives="ignore",
        max_copies=2,
        predict_batch_size=9,
    )
    learner = settings.build("single")
    assert isinstance(learner.estimator, RandomForestClassifier)
    assert {name: getattr(learner.estimator, name) for name in settings.parameters} == settings.parameters
    assert (learner.members, learner.temperature, learner.max_copies, learner.predict_batch_size) == (4, 3.0, 0, 9)
    assert settings.replace(negatives="auto").build("single").max_copies == 2


def test_an_estimator_from_a_changed_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from sklearn.naive_bayes import GaussianNB as make\n")
    settings = SklearnLearnerSettings(estimator=f"{file}:make").pinned()
    settings.build("single")
    file.write_text("from sklearn.dummy import DummyClassifier as make\n")
    with pytest.raises(RunError, match=r"mine.py' has changed"):
        settings.build("single")


def test_parameters_that_the_estimator_does_not_take_are_named() -> None:
    settings = SklearnLearnerSettings(estimator="sklearn.naive_bayes:GaussianNB", parameters={"depth": 3})
    with pytest.raises(
        InvalidInputError, match=r"GaussianNB' cannot be made with parameters=\{'depth': 3\}: .*'depth'"
    ):
        settings.build("single")


@pytest.mark.parametrize(
    "settings",
    [
        TorchLearnerSettings(hidden=(), training=TrainingSettings(optimizer="adamw", gradient_clip=1.0)),
        SklearnLearnerSettings(estimator="a:b", parameters={"x": 1, "y": 1.0, "z": True, "w": None, "v": "1"}),
    ],
)
def test_settings_survive_json_with_their_types(settings: Any) -> None:
    again = type(settings).model_validate(json.loads(settings.model_dump_json()))
    assert again == settings
    if isinstance(settings, SklearnLearnerSettings):
        assert [type(value) for value in again.parameters.values()] == [int, float, bool, type(None), str]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"passes": 1}, "greater than or equal to 2"),
        ({"dropout": 1.0}, "less than 1"),
        ({"hiden": (3,)}, "did you mean 'hidden'"),
        ({"uncertainty": "magic"}, "'mc-dropout' or 'none'"),
    ],
)
def test_values_that_cannot_be_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TorchLearnerSettings(**values)
