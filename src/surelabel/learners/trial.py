"""A few samples through a fresh network: what cannot work is told before there is the folder of a run."""

from typing import TYPE_CHECKING

import numpy as np
from torch.nn.init import normal_

from surelabel.data.reference import RunData
from surelabel.data.source import Source, Subset, as_source
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.models.stochastic import stochastic_layers
from surelabel.uncertainty.deterministic import Deterministic
from surelabel.uncertainty.mc_dropout import MCDropout

if TYPE_CHECKING:
    from surelabel.learners.network import TorchLearner

_FEW = 8
"""How many samples show whether a network without dropout layers is random in another way."""


def try_network(settings: TorchLearnerSettings, data: RunData) -> None:
    """Make the network on the CPU, with the weights that it begins with, and let it label the first labeled sample.

    A network in which nothing is random is refused where the estimator needs that.

    Args:
        settings: of the learner; files that do not fit the network are refused as they are in a run.
        data: what the run will learn from.
    """
    training = settings.training.replace(precision="float32", cuda_graph=None, workers=0)
    learner = settings.replace(device="cpu", training=training).build(data.task)
    source = as_source("labeled", data.labeled[0])
    learner.network = learner.build(source.sample_shape, len(data.classes)).eval()
    estimator, learner.uncertainty = learner.uncertainty, Deterministic(task=data.task)
    _label(learner, source, 1)
    # With dropout layers untrained passes may well agree, and trained ones differ.
    if isinstance(estimator, MCDropout) and not stochastic_layers(learner.network, estimator.stochastic_layers):
        for weights in learner.network.parameters():
            if (
                weights.is_floating_point() and not weights.any()
            ):  # a head that begins with zeros would hide what is random before it
                normal_(weights, std=0.1)
        learner.uncertainty = estimator
        _label(learner, source, _FEW)


def _label(learner: "TorchLearner", source: Source, rows: int) -> None:
    for _ in learner.predict(Subset(source, np.arange(min(rows, len(source)))), seed=0):
        pass
