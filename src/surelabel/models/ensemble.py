"""Several networks as one, which predicts the mean of their probabilities: softmax(z) = Σ_m softmax(z_m) / M.

For multi-label data, sigmoid(z) = Σ_m sigmoid(z_m) / M. Both are computed in log space, so that probabilities close to
0 or 1 keep their precision.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, logsigmoid

from surelabel.core.labels import Task
from surelabel.errors import InvalidInputError


class Ensemble(nn.Module):
    """Logits of the mean probability of several networks, in float32 (or float64, if theirs are).

    Args:
        networks: each returns logits (N, C).
        task: "single" for the mean of softmaxes, "multi" for the mean of sigmoids.

    Example:
        >>> certain, undecided = nn.Identity(), nn.Hardtanh()
        >>> torch.softmax(Ensemble([certain, undecided])(torch.tensor([[100.0, 1.0]])), dim=1)
        tensor([[0.7500, 0.2500]])
    """

    def __init__(self, networks: Sequence[nn.Module], task: Task = "single") -> None:
        super().__init__()
        if not networks:
            raise InvalidInputError("The 'networks' argument is empty; give at least one network.")
        self.networks = nn.ModuleList(networks)
        self.task: Task = task

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) of the mean probability for samples (N, ...)."""
        # A copy for each: a first layer with inplace=True would overwrite the input of the next network.
        z = torch.stack([network(x.clone()) for network in self.networks])
        z = z if z.dtype == torch.float64 else z.float()
        if self.task == "single":
            return torch.logsumexp(log_softmax(z, dim=2), dim=0) - math.log(len(self.networks))
        # log p - log(1 - p); the number of networks cancels.
        return torch.logsumexp(logsigmoid(z), dim=0) - torch.logsumexp(logsigmoid(-z), dim=0)
