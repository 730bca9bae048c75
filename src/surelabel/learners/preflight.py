"""Try a few samples on a fresh network, so that errors are reported before a run's folder is made."""

import numpy as np
from torch.nn.init import normal_

from surelabel.data.run_data import RunData
from surelabel.data.source import Source, Subset, as_source
from surelabel.engine.feed import as_tensor, shown
from surelabel.learners.network import TorchLearner, reproducible
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.models.ensemble import Ensemble
from surelabel.models.stochastic import stochastic_layers
from surelabel.uncertainty import Deterministic, UncertaintyEstimator

_FEW = 8
"""How many samples are used to find out whether a network without dropout layers is random."""


def try_network(settings: TorchLearnerSettings, data: RunData) -> None:
    """Make the network on the CPU, with its initial weights, and let it label a few of the labeled samples.

    A network without randomness is refused if the estimator needs it.

    Args:
        settings: of the learner; files that do not fit the network are refused, as in a run.
        data: what the run will learn from.
    """
    training = settings.training.replace(precision="float32", cuda_graph=None, workers=0)
    learner = settings.replace(device="cpu", training=training).build(data.task)
    check_random(learner, as_source("labeled", data.labeled[0]), len(data.classes))


def check_random(learner: TorchLearner, source: Source, num_classes: int) -> None:
    """Before training, refuse a learner whose network or estimator could not label afterwards.

    This is one that does not take these samples, or needs a network with randomness that is missing. A method that
    does not take the samples is refused too.

    Args:
        learner: not trained yet; its network is replaced.
        source: samples of the kind that it will learn from.
        num_classes: C.
    """
    estimator = learner.uncertainty
    own_layers = getattr(estimator, "stochastic_layers", None)  # from estimators that need a random network
    learner.make_method(learner.task, learner.training).check_samples(
        shown(as_tensor(source[np.array([0])]), learner.training)
    )
    with reproducible(0, learner.device):
        learner.network = network = learner.build(source.sample_shape, num_classes).eval()
        _label(learner, Deterministic(task=learner.task), source, 1)
        if own_layers is None:
            if estimator.members > 1:
                learner.network = Ensemble([network] * estimator.members, learner.task)
            # Unchecked: the uncertainty of an untrained network means nothing.
            _label(learner, estimator, source, _FEW, check=False)
        # With dropout layers, passes may agree before training and differ afterwards.
        elif not stochastic_layers(network, own_layers):
            for weights in network.parameters():
                # A head that starts with zeros would hide randomness before it.
                if weights.is_floating_point() and not weights.any():
                    normal_(weights, std=0.1)
            _label(learner, estimator, source, _FEW)


def _label(learner: TorchLearner, by: UncertaintyEstimator, source: Source, rows: int, check: bool = True) -> None:
    # Spread over the source: the first samples may all be alike.
    chosen = np.unique(np.linspace(0, len(source) - 1, rows).astype(np.int64))
    for _ in learner.predict(Subset(source, chosen), seed=0, by=by, check=check):
        pass
