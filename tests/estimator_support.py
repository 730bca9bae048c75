"""Small pictures, a small network for them, and a learner with each estimator."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from torch import nn

from surelabel.core.labels import Task
from surelabel.core.selection import Selection
from surelabel.data.source import ArraySource
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.network import TorchLearner
from surelabel.uncertainty import (
    DeepEnsemble,
    MCDropBlock,
    MCDropout,
    MCSpatialDropout,
    RandomAugmentation,
    UncertaintyEstimator,
)

SIDE, STEPS = 8, 12


def softmax(z: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Softmax over the last axis from the formula, independent of torch's."""
    powers = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def sigmoid(z: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(1 / (1 + np.exp(-z)))


ESTIMATORS: dict[str, Callable[..., UncertaintyEstimator]] = {
    "mc-dropout": MCDropout,
    "mc-spatial-dropout": MCSpatialDropout,
    "mc-dropblock": lambda **rest: MCDropBlock(block_size=2, keep_probability=0.7, **rest),
    "augmentation": lambda **rest: RandomAugmentation(crop=1, **rest),
    "deep-ensemble": lambda **rest: DeepEnsemble(members=3, **rest),
}
each = pytest.mark.parametrize("make", ESTIMATORS.values(), ids=ESTIMATORS)
links = pytest.mark.parametrize(("task", "link"), [("single", softmax), ("multi", sigmoid)])

QUICK = TrainingSettings(epochs=1, min_steps=STEPS, batch_size=30, learning_rate=0.1)


def pictures(count: int = 60) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Pictures (N, 1, 8, 8) of a bright bar at the top, in the middle or at the bottom; flips change no label."""
    y = np.arange(count) % 3
    x = np.random.default_rng(0).normal(size=(count, 1, SIDE, SIDE))
    for row in range(2):
        x[np.arange(count), 0, 3 * y + row] += 1.0
    return x.astype(np.float32), y


def small_network(sample_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(sample_shape[0], 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.4),
        nn.Flatten(),
        nn.Linear(4 * (SIDE - 2) ** 2, num_classes),
    )


def training_set(task: Task = "single", selection: Selection | None = None) -> TrainingSet:
    x, y = pictures()
    labels = y if task == "single" else np.eye(3, dtype=int)[y]
    return make_problem((x[:30], labels[:30]), x[30:], task).training_set(selection)


def pseudo_labels() -> Selection:
    positive = np.zeros((30, 3), dtype=bool)
    positive[np.arange(10), pictures()[1][30:40]] = True
    return Selection(positive, np.zeros_like(positive))


def learner(uncertainty: UncertaintyEstimator, task: Task = "single", **rest: Any) -> TorchLearner:
    return TorchLearner(
        **{"model": small_network, "training": QUICK, "device": "cpu", "uncertainty": uncertainty, "task": task, **rest}
    )


def fitted(uncertainty: UncertaintyEstimator, task: Task = "single", seed: int = 0, **rest: Any) -> TorchLearner:
    made = learner(uncertainty, task, **rest)
    made.fit(training_set(task), seed=seed)
    return made


@functools.cache
def fitted_once(make: Callable[..., UncertaintyEstimator], task: Task = "single", seed: int = 0) -> TorchLearner:
    """For tests that do not change what they get."""
    return fitted(make(task=task), task, seed)


def labeled(made: TorchLearner, seed: int = 3) -> list[npt.NDArray[Any]]:
    """Return p, u, p_soft and u_soft of all pictures."""
    chunks = list(made.predict(ArraySource(pictures()[0]), seed=seed))
    return [np.concatenate([np.asarray(chunk[part]) for chunk in chunks]) for part in range(1, 5)]
