"""Estimators: a network and a batch in, mean probabilities p and uncertainty u out.

A new estimator is a class that derives from `UncertaintyEstimator` and defines `estimate`. Settings name it as
"file.py:Class", or by a short name if it has one (`surelabel.learners.settings.ESTIMATORS`).
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
from surelabel.uncertainty.mc_dropout import MCDropBlock, MCDropout, MCSpatialDropout
from surelabel.uncertainty.moments import RunningMoments
from surelabel.uncertainty.plan import PassPlan

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
    "check_estimator",
    "predict_proba",
]
