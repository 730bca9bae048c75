"""One sample through a fresh network: what cannot work is told before there is the folder of a run."""

import numpy as np

from surelabel.data.reference import RunData
from surelabel.data.source import Subset, as_source
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.uncertainty.deterministic import Deterministic


def try_network(settings: TorchLearnerSettings, data: RunData) -> None:
    """Make the network on the CPU, with the weights that it begins with, and let it label the first labeled sample.

    Args:
        settings: of the learner; files that do not fit the network are refused as they are in a run.
        data: what the run will learn from.
    """
    training = settings.training.replace(precision="float32", cuda_graph=None, workers=0)
    learner = settings.replace(device="cpu", training=training).build(data.task)
    source = as_source("labeled", data.labeled[0])
    learner.network = learner.build(source.sample_shape, len(data.classes)).eval()
    learner.uncertainty = Deterministic(task=data.task)  # untrained passes may well agree
    for _ in learner.predict(Subset(source, np.array([0])), seed=0):
        pass
