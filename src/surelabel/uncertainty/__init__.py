"""A network and a batch in, mean probabilities p and uncertainty u out; one estimator a file."""

from typing import Protocol

from torch import Tensor, nn

from surelabel.uncertainty.deterministic import Deterministic, Uncertainty, predict_proba
from surelabel.uncertainty.mc_dropout import MCDropout
from surelabel.uncertainty.moments import RunningMoments
from surelabel.uncertainty.plan import Plan
from surelabel.uncertainty.sharing import Way


class UncertaintyEstimator(Protocol):
    """What a learner asks of an estimator; a new one needs no more than this method."""

    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C); with `check`, raise where u could not mean anything."""
        ...


__all__ = [
    "Deterministic",
    "MCDropout",
    "Plan",
    "RunningMoments",
    "Uncertainty",
    "UncertaintyEstimator",
    "Way",
    "predict_proba",
]
