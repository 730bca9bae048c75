"""Try a few samples on a fresh network, so that what cannot work is reported before a run's folder is made."""

import numpy as np
from torch.nn.init import normal_

from surelabel.data.run_data import RunData
from surelabel.data.source import Source, Subset, as_source
from surelabel.learners.network import TorchLearner, reproducible
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.models.ensemble import Ensemble
from surelabel.models.stochastic import stochastic_layers
from surelabel.uncertainty import Deterministic, UncertaintyEstimator

_FEW = 8
"""How many samples show whether a network without dropout layers is random; an estimator may compare them."""


def try_network(settings: TorchLearnerSettings, data: RunData) -> None:
    """Make the network on the CPU, with the weights that it begins with, and let it label a few of the labeled samples.

    A network in which nothing is random is refused where the estimator needs that.

    Args:
        settings: of the learner; files that do not fit the network are refused as they are in a run.
        data: what the run will learn from.
    """
    training = settings.training.replace(precision="float32", cuda_graph=None, workers=0)
    learner = settings.replace(device="cpu", training=training).build(data.task)
    check_random(learner, as_source("labeled", data.labeled[0]), len(data.classes))


def check_random(learner: TorchLearner, source: Source, num_classes: int) -> None:
    """Refuse a learner whose network or estimator could not label what it will have trained, before it is trained.

    That is one that does not take such samples, or needs a network in which something is random.

    Args:
        learner: not trained yet; its network is another one afterwards.
        source: samples of the kind that it will learn from.
        num_classes: C.
    """
    estimator = learner.uncertainty
    own_layers = getattr(estimator, "stochastic_layers", None)  # of estimators that need a random network
    with reproducible(0, learner.device):
        learner.network = network = learner.build(source.sample_shape, num_classes).eval()
        _label(learner, Deterministic(task=learner.task), source, 1)
        if own_layers is None:
            if estimator.members > 1:
                learner.network = Ensemble([network] * estimator.members, learner.task)
            # Unchecked: the uncertainty of an untrained network need not mean anything.
            _label(learner, estimator, source, _FEW, check=False)
        # With dropout layers untrained passes may well agree, and trained ones differ.
        elif not stochastic_layers(network, own_layers):
            for weights in network.parameters():
                # A head that begins with zeros would hide what is random before it.
                if weights.is_floating_point() and not weights.any():
                    normal_(weights, std=0.1)
            _label(learner, estimator, source, _FEW)


def _label(learner: TorchLearner, by: UncertaintyEstimator, source: Source, rows: int, check: bool = True) -> None:
    # Spread over the source: the first samples may be all alike.
    chosen = np.unique(np.linspace(0, len(source) - 1, rows).astype(np.int64))
    for _ in learner.predict(Subset(source, chosen), seed=0, by=by, check=check):
        pass
