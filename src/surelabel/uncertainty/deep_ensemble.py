"""Deep ensemble: p is the mean, u the standard deviation (n - 1) of the probabilities over separately trained networks.

Lakshminarayanan, Pritzel and Blundell, "Simple and scalable predictive uncertainty estimation using deep ensembles",
2017. The paper's own estimators need only one network; this one goes beyond the paper.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surelabel.base.defaults import FitDefaults
from surelabel.base.settings import MOST_PASSES
from surelabel.core.arrays import bad_argument, require_count
from surelabel.core.labels import Task
from surelabel.models.ensemble import Ensemble
from surelabel.models.stochastic import evaluation_mode
from surelabel.uncertainty.deterministic import Uncertainty, UncertaintyEstimator, check_settings, logits
from surelabel.uncertainty.moments import summarize


@dataclass(frozen=True)
class DeepEnsemble(UncertaintyEstimator):
    """Mean and spread over networks that differ by their seed: initial weights, sample order, augmentation, dropout.

    A learner trains `members` networks per round, so a round takes that many times as long. That is why the default is
    5, as in Lakshminarayanan et al., and not 10 like the passes of the other estimators, which slow down only labeling.

    Args:
        members: how many networks, at least 2.
        temperature: T of the softened probabilities.
        task: "single" for softmax, "multi" for a sigmoid per class.

    Example:
        >>> networks = Ensemble([nn.Identity(), nn.Hardtanh()])
        >>> p, u, _, _ = DeepEnsemble(members=2).estimate(networks, torch.tensor([[100.0, 1.0]]))
        >>> p, u
        (tensor([[0.7500, 0.2500]]), tensor([[0.3536, 0.3536]]))
    """

    members: int = 5
    temperature: float = FitDefaults.temperature
    task: Task = "single"

    def __post_init__(self) -> None:
        require_count("members", self.members, 2, MOST_PASSES)
        check_settings(self.temperature, self.task)

    @torch.no_grad()
    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C) for a batch (N, ...), each network in evaluation mode.

        Args:
            model: an `Ensemble`. Each module's mode is restored afterwards, even after an exception.
            batch: samples, on the networks' device. It is not changed.
            check: raise NotStochasticError if the logits of all networks are identical, so that u would silently be 0.
        """
        if not isinstance(model, Ensemble) or len(model.networks) != self.members:
            given = f"one of {len(model.networks)}" if isinstance(model, Ensemble) else type(model).__name__
            must = f"be an Ensemble of {self.members} networks"
            raise bad_argument("model", must, given, "train the learner with this estimator before it labels")
        with evaluation_mode(model):
            passes = (logits(network, batch).unsqueeze(0) for network in model.networks)
            found = summarize(passes, self.task, self.temperature)
        remedy = "The 'model' function must return a new network, with newly drawn weights, each time it is called."
        return found.checked(f"{self.members} networks", remedy) if check else found.uncertainty()
