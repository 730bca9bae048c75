"""A network and a batch in, mean probabilities p and uncertainty u out; one estimator a file.

A new estimator is a class that derives from `UncertaintyEstimator` and has its `estimate`. Settings name it as
"file.py:Class", or by a short name where it has one (`surelabel.learners.settings.ESTIMATORS`).
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
from surelabel.uncertainty.plan import PassPlan
from surelabel.uncertainty.sharing import Way

__all__ = [
    "DeepEnsemble",
    "Deterministic",
    "MCDropBlock",
    "MCDropout",
    "MCSpatialDropout",
    "PassPlan",
    "RandomAugmentation",
    "RunningMoments",
    "Uncertainty",
    "UncertaintyEstimator",
    "Way",
    "check_estimator",
    "predict_proba",
]
