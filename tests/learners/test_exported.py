"""A trained model as one torch module: the same probabilities as `predict_proba`, from samples as they are stored."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PolynomialFeatures, StandardScaler
from small_runs import blobs

from surelabel.augment.settings import AugmentSettings
from surelabel.data.source import ArraySource
from surelabel.data.training_set import make_problem
from surelabel.engine.feed import as_tensor
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError
from surelabel.learners.exported import exported
from surelabel.learners.network import TorchLearner
from surelabel.learners.sklearn import SklearnLearner
from surelabel.models.image import small_image_network
from surelabel.uncertainty import DeepEnsemble

X, Y = blobs()
X = X * np.array([1, 1000, 1, 1e-3], dtype=np.float32) + np.array([0, 1e4, 5, 0], dtype=np.float32)
ONE_OF_TWO = np.stack([Y == 0, Y == 1], axis=1).astype(np.int64)
STEPS = TrainingSettings(steps=5, batch_size=16, learning_rate=0.1)


def trained(learner: Any, x: Any, y: Any) -> Any:
    learner.fit(make_problem((x[:20], y[:20]), x[20:], learner.task).training_set(None), seed=0)
    return learner


def assert_same(learner: Any, x: Any) -> None:
    expected = learner.predict_proba(ArraySource(x))
    assert np.ptp(expected) > 0.01, "a model that says the same of all samples would prove nothing"
    found = exported(learner)(as_tensor(x, exact=True))
    assert (found.dtype, tuple(found.shape)) == (torch.float32, expected.shape)
    # float32: logits of features around 10,000 are rounded differently on different processors.
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(("task", "y"), [("single", Y), ("multi", ONE_OF_TWO)])
@pytest.mark.parametrize("members", [1, 2])
def test_a_network_for_tables_takes_raw_rows(task, y, members):
    uncertainty = DeepEnsemble(members=members, task=task) if members > 1 else None
    assert_same(trained(TorchLearner(task=task, training=STEPS, uncertainty=uncertainty, device="cpu"), X, y), X)


def test_pictures_are_normalized_inside():
    x = np.random.default_rng(0).integers(0, 256, (30, 3, 8, 8), dtype=np.uint8)
    augment = AugmentSettings(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1), flip=True, crop=1)
    training = STEPS.replace(augment=augment, channels_last=True)
    assert_same(trained(TorchLearner(small_image_network, training=training, device="cpu"), x, np.arange(30) % 3), x)


def test_clips_are_cut_and_averaged_inside():
    x = np.random.default_rng(0).integers(0, 256, (24, 3, 8, 8, 8), dtype=np.uint8)
    augment = AugmentSettings(window=2, passages=4, side=6, test_windows=2)
    training = STEPS.replace(augment=augment, steps=1, batch_size=4)
    layers = torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(3 * 2 * 6 * 6, 2)
    learner = TorchLearner(lambda shape, num_classes: torch.nn.Sequential(*layers), training=training, device="cpu")
    assert_same(trained(learner, x, np.arange(24) % 2), x)


@pytest.mark.parametrize("before", [[], [StandardScaler()], [MinMaxScaler(), MaxAbsScaler()], ["passthrough"]])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_logistic_regression_behind_scalers(before, num_classes):
    model = make_pipeline(*before, LogisticRegression(max_iter=5000, C=1e-3 if not before else 1.0))
    rows = num_classes > Y
    learner = trained(SklearnLearner(model, members=2), X[rows], Y[rows])
    assert_same(learner, X[rows])


def test_a_model_for_each_class_and_a_class_that_is_always_there():
    y = np.stack([Y == 0, np.ones_like(Y), Y == 1], axis=1).astype(np.int64)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    learner = trained(SklearnLearner(model, members=2, task="multi"), X, y)
    assert_same(learner, X)
    assert exported(learner)(torch.as_tensor(X))[:, 1].tolist() == [1.0] * len(X)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (RandomForestClassifier(n_estimators=2), "RandomForestClassifier"),
        (make_pipeline(PolynomialFeatures(), LogisticRegression()), "PolynomialFeatures"),
        (make_pipeline(MinMaxScaler(clip=True), LogisticRegression()), "MinMaxScaler"),
    ],
)
@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
def test_other_classifiers_are_refused_by_name(model, name):
    learner = trained(SklearnLearner(model, members=2), X, Y)
    with pytest.raises(
        InvalidInputError, match=f"A scikit-learn {name} cannot be exported; networks can, and logistic"
    ):
        exported(learner)
