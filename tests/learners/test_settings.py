"""Learners from settings: the same learner as made by hand, by reference where it is code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sklearn.ensemble import RandomForestClassifier

from surelabel.data.training_set import make_problem
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError, RunError
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.methods.ups import UPSMethod
from surelabel.models.table import TableNetwork
from surelabel.uncertainty import (
    DeepEnsemble,
    Deterministic,
    MCDropBlock,
    MCDropout,
    MCSpatialDropout,
    RandomAugmentation,
    UncertaintyEstimator,
)

NETWORK = """
import torch

class Noise(torch.nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) if self.training else x

def network(sample_shape, num_classes):
    return torch.nn.Sequential(torch.nn.Linear(sample_shape[0], num_classes), Noise())

def wide_network(sample_shape, num_classes, *, width=4, dropout=0.5):
    layers = torch.nn.Linear(sample_shape[0], width), torch.nn.Dropout(dropout), torch.nn.Linear(width, num_classes)
    return torch.nn.Sequential(*layers)
"""

ESTIMATOR = """
from surelabel.uncertainty import Deterministic, MCDropout, UncertaintyEstimator

class Constant(UncertaintyEstimator):
    def __init__(self, value, temperature):
        self.value, self.temperature = value, temperature

    def estimate(self, model, batch, *, check=False):
        estimate = Deterministic(temperature=self.temperature).estimate(model, batch)
        return estimate._replace(u=estimate.p * 0 + self.value)

class Preparing(MCDropout):
    def prepare(self, model):
        model[1].p = self.passes / 100

class Lacking:
    def estimate(self, model, batch, *, check=False):
        return Deterministic().estimate(model, batch)

number = 3
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
    assert (learner.predict_batch_size, learner.task) == (7, "multi")
    assert learner.make_method("multi", training) == UPSMethod("multi", training, 0.5)
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


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("mc-dropout", {"shared": False}, MCDropout(passes=7, temperature=1.5, task="multi", shared=False)),
        ("mc-spatial-dropout", {}, MCSpatialDropout(passes=7, temperature=1.5, task="multi")),
        ("mc-spatial-dropout", {"rate": 0.2}, MCSpatialDropout(passes=7, temperature=1.5, task="multi", rate=0.2)),
        ("mc-dropblock", {"block_size": 3}, MCDropBlock(passes=7, temperature=1.5, task="multi", block_size=3)),
        ("augmentation", {"crop": 2}, RandomAugmentation(passes=7, temperature=1.5, task="multi", crop=2)),
        ("deep-ensemble", {"members": 4}, DeepEnsemble(members=4, temperature=1.5, task="multi")),
        ("none", {}, Deterministic(temperature=1.5, task="multi")),
    ],
)
def test_an_estimator_is_made_by_its_name(
    name: str, parameters: dict[str, Any], expected: UncertaintyEstimator
) -> None:
    passes = getattr(expected, "passes", 10)
    settings = TorchLearnerSettings(
        uncertainty=name, uncertainty_parameters=parameters, passes=passes, temperature=1.5, device="cpu"
    )
    assert settings.build("multi").uncertainty == expected
    assert settings.members == expected.members
    assert settings.pinned() == settings


def test_parameters_that_an_estimator_or_a_model_does_not_take_are_named(tmp_path: Path) -> None:
    settings = TorchLearnerSettings(uncertainty="mc-dropblock", uncertainty_parameters={"rate": 0.3}, device="cpu")
    problem = (
        r"'mc-dropblock' cannot be made with uncertainty_parameters=\{'rate': 0.3\}: .*'rate'. It takes .*block_size"
    )
    with pytest.raises(InvalidInputError, match=problem):
        settings.build("single")
    (tmp_path / "nets.py").write_text(NETWORK)
    settings = TorchLearnerSettings(model=f"{tmp_path}/nets.py:wide_network", model_parameters={"wdith": 3})
    problem = r"wide_network' cannot be made with model_parameters=\{'wdith': 3\}: .*'wdith'. It takes width, dropout"
    with pytest.raises(InvalidInputError, match=problem):
        settings.build("single")
    settings = TorchLearnerSettings(model=f"{tmp_path}/nets.py:network", model_parameters={"width": 3})
    with pytest.raises(InvalidInputError, match=r"'width'. It takes no parameters"):
        settings.build("single")


def test_values_that_an_estimator_refuses_are_named() -> None:
    settings = TorchLearnerSettings(uncertainty="deep-ensemble", uncertainty_parameters={"members": 1}, device="cpu")
    with pytest.raises(InvalidInputError, match="'members' argument must be a whole number of at least 2. Got 1"):
        settings.build("single")


def test_a_model_is_made_with_its_parameters(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETWORK)
    settings = TorchLearnerSettings(
        model=f"{tmp_path}/nets.py:wide_network", model_parameters={"width": 7, "dropout": 0.25}, device="cpu"
    )
    network = settings.build("single").build((4,), 3)
    assert isinstance(network, torch.nn.Sequential)
    assert network[0].out_features == 7
    assert network[1].p == 0.25


def test_an_estimator_of_ones_own_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(ESTIMATOR)
    settings = TorchLearnerSettings(
        uncertainty="mine.py:Constant", uncertainty_parameters={"value": 0.25}, temperature=1.5, device="cpu"
    ).pinned()
    assert settings.uncertainty == f"{tmp_path}/mine.py:Constant"
    assert settings.uncertainty_hash is not None
    assert settings.pinned() == settings
    learner = settings.build("single")
    assert learner.uncertainty.temperature == 1.5  # type: ignore[attr-defined]
    u = learner.uncertainty.estimate(learner.build((4,), 3), torch.ones(2, 4)).u
    assert u is not None
    assert (u == 0.25).all()
    with pytest.warns(UserWarning, match="Ignored: passes, because uncertainty='.*mine.py:Constant' does without"):
        settings.replace(passes=5).build("single")
    with pytest.raises(InvalidInputError, match=r"missing a required argument: 'value'. It takes value"):
        settings.replace(uncertainty_parameters={}).build("single")
    Path("mine.py").write_text(ESTIMATOR + "# changed")
    with pytest.raises(RunError, match=r"mine.py' has changed since the run began"):
        settings.build("single")


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("mine.py:number", "must name a class .*UncertaintyEstimator; got 'mine.py:number', which is 3"),
        ("mine.py:nothing", "leads nowhere"),
        ("mine.py:Deterministic.estimate", "must name a class .*, which is <function Deterministic"),
        ("collections:OrderedDict", "must name a class .*, which is <class 'collections.OrderedDict"),
        ("mine.py:Lacking", "'uncertainty' argument must be an estimator, .* with 'estimate', 'prepare' and 'members'"),
    ],
)
def test_references_that_name_no_estimator_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(ESTIMATOR)
    with pytest.raises(InvalidInputError, match=problem):
        TorchLearnerSettings(uncertainty=reference, device="cpu").build("single")


def test_trained_networks_depend_on_an_estimator_only_where_it_changes_training(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(ESTIMATOR)
    plain = TorchLearnerSettings()
    same = [
        {"uncertainty": "none"},
        {"uncertainty": "augmentation", "uncertainty_parameters": {"crop": 2}},
        {"uncertainty_parameters": {"shared": False}, "passes": 3, "temperature": 1.0, "predict_batch_size": 5},
        {"uncertainty": f"{file}:Constant", "uncertainty_parameters": {"value": 1}},
    ]
    for changes in same:
        assert plain.replace(**changes).pinned().fit_settings() == plain.fit_settings()
    other: list[dict[str, Any]] = [
        {},
        {"uncertainty": "mc-spatial-dropout"},
        {"uncertainty": "mc-spatial-dropout", "uncertainty_parameters": {"rate": 0.2}},
        {"uncertainty": "mc-dropblock"},
        {"uncertainty": "mc-dropblock", "uncertainty_parameters": {"block_size": 3}},
        {"uncertainty": "deep-ensemble"},
        {"uncertainty": "deep-ensemble", "uncertainty_parameters": {"members": 4}},
        {"uncertainty": f"{file}:Preparing"},
        {"uncertainty": f"{file}:Preparing", "passes": 20},
        {"model": "a:b", "model_parameters": {"width": 3}},
        {"model": "a:b", "model_parameters": {"width": 4}},
        {"dropout": 0.4},
    ]
    texts = [json.dumps(plain.replace(**changes).pinned().fit_settings(), sort_keys=True) for changes in other]
    assert len(set(texts)) == len(texts)
    labeling = {"passes": 3, "temperature": 1.0, "predict_batch_size": 5}
    for name in ("mc-spatial-dropout", "mc-dropblock"):
        settings = plain.replace(uncertainty=name)
        assert settings.replace(**labeling).fit_settings() == settings.fit_settings()


def test_the_file_of_an_estimator_that_prepares_networks_counts(tmp_path: Path) -> None:
    fits = []
    for text in (ESTIMATOR, ESTIMATOR + "# changed"):
        (tmp_path / "mine.py").write_text(text)
        fits.append(TorchLearnerSettings(uncertainty=f"{tmp_path}/mine.py:Preparing").pinned().fit_settings())
    assert fits[0] != fits[1]


def test_settings_of_an_earlier_version_are_read() -> None:
    """As a run folder of 0.1.0 has them, word for word."""
    stored = json.loads(
        '{"kind": "torch", "model": null, "model_hash": null, "hidden": [8], "dropout": 0.3, "noise": 0.0, '
        '"training": {"epochs": 6}, "uncertainty": "none", "passes": 10, "temperature": 2.0, "stochastic_layers": [], '
        '"layer_hashes": [], "negative_weight": 1.0, "predict_batch_size": null, "device": "cpu", "threads": null}'
    )
    settings = TorchLearnerSettings.model_validate(stored)
    training = TrainingSettings(epochs=6)
    assert settings == TorchLearnerSettings(hidden=(8,), training=training, uncertainty="none", device="cpu")


def test_settings_that_a_network_of_ones_own_ignores_warn(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETWORK)
    settings = TorchLearnerSettings(model=f"{tmp_path}/nets.py:network", hidden=(3,), device="cpu")
    with pytest.warns(UserWarning, match="Ignored: hidden, because model=.* is a network of your own"):
        settings.build("single")
    with pytest.warns(UserWarning, match="Ignored: passes, because uncertainty='none' does without"):
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


BAD_PARAMETERS = {
    "tree:DecisionTreeClassifier": (
        {"criterion": "zzz"},
        r"Tree.* cannot be trained \(InvalidParam.*'zzz'.* Correct its",
    ),
    "tree:ExtraTreeClassifier": ({"max_depth": 10**30}, r"cannot be trained \(OverflowError: .*\)\. Correct its param"),
    "ensemble:BaggingClassifier": ({"estimator": "abc"}, r"BaggingClassifier cannot be used \(AttributeError: .*'str'"),
    "ensemble:RandomForestClassifier": ({"n_jobs": 10**6}, "'n_jobs' parameter must be at most 1024; got 1000000"),
}


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_values_that_a_classifier_refuses_are_named(name: str) -> None:
    parameters, problem = BAD_PARAMETERS[name]

    def fit() -> None:
        learner = SklearnLearnerSettings(estimator=f"sklearn.{name}", parameters=parameters).build("single")
        learner.fit(make_problem((np.eye(4), np.array([0, 0, 1, 1])), np.eye(4), "single").training_set(None), seed=0)

    with pytest.raises(ValueError, match=problem):
        fit()


def test_parameters_may_be_scalars_of_numpy() -> None:
    given = {"ratio": np.int64(3), "threshold": np.float64(0.5), "ramp": np.float32(0.25), "weight": np.int32(2)}
    settings = TorchLearnerSettings(method="fixmatch", method_parameters=given)
    assert [repr(value) for value in settings.method_parameters.values()] == ["3", "0.5", "0.25", "2"]
    method = settings.make_method()("single", TrainingSettings(ema_decay=0.9))
    assert (method.ratio, method.threshold) == (3, 0.5)
    assert SklearnLearnerSettings(estimator="a:b", parameters={"c": np.bool_(True)}).parameters == {"c": True}


def test_values_that_a_network_refuses_are_named() -> None:
    settings = TorchLearnerSettings(model="surelabel.models.cnn13:cnn13", model_parameters={"width": 10**30})
    made = r"cnn13' cannot be made with model_parameters=\{'width': 10+\} \(TypeError: .*\)\. Correct the parameters\."
    with pytest.raises(InvalidInputError, match=made):
        settings.build("single").make_model((3, 32, 32), 2)


def test_one_hash_for_each_layer() -> None:
    with pytest.raises(ValueError, match="one entry per layer; got 1 layers and 2 hashes. Leave it out"):
        TorchLearnerSettings(stochastic_layers=("torch.nn:RReLU",), layer_hashes=(None, None))


@pytest.mark.parametrize(
    "settings",
    [
        TorchLearnerSettings(hidden=(), training=TrainingSettings(optimizer="adamw", gradient_clip=1.0)),
        TorchLearnerSettings(model="a:b", model_parameters={"x": 1}, uncertainty_parameters={"y": 1.0, "z": "w"}),
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
        ({"uncertainty": "magic"}, "must be one of 'mc-dropout', .*'none', or your own 'file.py:Class'; got 'magic'"),
        ({"uncertainty_parameters": {"passes": 5, "task": "multi"}}, "must leave out passes, task"),
        ({"uncertainty_parameters": {"rate": float("nan")}}, "finite number"),
        ({"model_parameters": {"width": 3}}, "named 'model'; got {'width': 3}. The default network has .* hidden"),
    ],
)
def test_values_that_cannot_be_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TorchLearnerSettings(**values)
