"""A network and a batch in, mean probabilities p and uncertainty u out; one estimator a file.

A new estimator is a class that derives from `UncertaintyEstimator` and has its `estimate`. Settings name it as
"file.py:Class", or by a short name where it has one in `ESTIMATORS`.
"""

from surelabel.uncertainty.augmentation import RandomAugmentation
from surelabel.uncertainty.deep_ensemble import DeepEnsemble
from surelabel.uncertainty.deterministic import (
    Deterministic,
    Uncertainty,
    UncertaintyEstimator,
    check_estimator,
    predict_proba,
)
from surelabel.uncertainty.mc_dropblock import MCDropBlock
from surelabel.uncertainty.mc_dropout import MCDropout
from surelabel.uncertainty.mc_spatial_dropout import MCSpatialDropout
from surelabel.uncertainty.moments import RunningMoments
from surelabel.uncertainty.plan import Plan
from surelabel.uncertainty.sharing import Way

ESTIMATORS: dict[str, type[UncertaintyEstimator]] = {
    "mc-dropout": MCDropout,
    "mc-spatial-dropout": MCSpatialDropout,
    "mc-dropblock": MCDropBlock,
    "augmentation": RandomAugmentation,
    "deep-ensemble": DeepEnsemble,
    "none": Deterministic,
}
"""What settings call the estimators."""

__all__ = [
    "ESTIMATORS",
    "DeepEnsemble",
    "Deterministic",
    "MCDropBlock",
    "MCDropout",
    "MCSpatialDropout",
    "Plan",
    "RandomAugmentation",
    "RunningMoments",
    "Uncertainty",
    "UncertaintyEstimator",
    "Way",
    "check_estimator",
    "predict_proba",
]
