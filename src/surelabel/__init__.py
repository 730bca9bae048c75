"""surelabel: semi-supervised learning by uncertainty-aware pseudo-label selection (UPS).

Names are loaded when they are first used, so that `import surelabel` stays light: torch only comes with a torch name.
"""

import importlib
from typing import TYPE_CHECKING, Any

from surelabel._version import __version__

if TYPE_CHECKING:
    from surelabel import errors
    from surelabel.core import calibration, losses
    from surelabel.core.calibration import (
        calibration_error,
        expected_calibration_error,
        reliability_bins,
        risk_coverage,
        uncertainty_auroc,
    )
    from surelabel.core.labels import pseudo_labels
    from surelabel.core.selection import Selection, balance, select
    from surelabel.core.thresholds import thresholds
    from surelabel.data.pool import Prediction
    from surelabel.data.source import ArraySource, Source
    from surelabel.data.splits import LabeledKFold
    from surelabel.data.training_set import TrainingSet
    from surelabel.engine.settings import TrainingSettings
    from surelabel.estimator import UPSClassifier
    from surelabel.learners import Learner
    from surelabel.learners.network import TorchLearner
    from surelabel.learners.sklearn import SklearnLearner
    from surelabel.loop import self_train
    from surelabel.records import RoundRecord
    from surelabel.runs import RunFolder
    from surelabel.runs.session import resume, run
    from surelabel.settings import UPSConfig
    from surelabel.uncertainty import (
        DeepEnsemble,
        Deterministic,
        MCDropBlock,
        MCDropout,
        MCSpatialDropout,
        RandomAugmentation,
    )

_HOMES = {
    "ArraySource": "data.source",
    "DeepEnsemble": "uncertainty",
    "Deterministic": "uncertainty",
    "LabeledKFold": "data.splits",
    "Learner": "learners",
    "MCDropBlock": "uncertainty",
    "MCDropout": "uncertainty",
    "MCSpatialDropout": "uncertainty",
    "Prediction": "data.pool",
    "RandomAugmentation": "uncertainty",
    "RoundRecord": "records",
    "RunFolder": "runs",
    "Selection": "core.selection",
    "SklearnLearner": "learners.sklearn",
    "Source": "data.source",
    "TorchLearner": "learners.network",
    "TrainingSet": "data.training_set",
    "TrainingSettings": "engine.settings",
    "UPSClassifier": "estimator",
    "UPSConfig": "settings",
    "balance": "core.selection",
    "calibration_error": "core.calibration",
    "expected_calibration_error": "core.calibration",
    "pseudo_labels": "core.labels",
    "reliability_bins": "core.calibration",
    "resume": "runs.session",
    "risk_coverage": "core.calibration",
    "run": "runs.session",
    "select": "core.selection",
    "self_train": "loop",
    "thresholds": "core.thresholds",
    "uncertainty_auroc": "core.calibration",
}
_MODULES = {"calibration": "core.calibration", "errors": "errors", "losses": "core.losses"}

__all__ = [
    "ArraySource",
    "DeepEnsemble",
    "Deterministic",
    "LabeledKFold",
    "Learner",
    "MCDropBlock",
    "MCDropout",
    "MCSpatialDropout",
    "Prediction",
    "RandomAugmentation",
    "RoundRecord",
    "RunFolder",
    "Selection",
    "SklearnLearner",
    "Source",
    "TorchLearner",
    "TrainingSet",
    "TrainingSettings",
    "UPSClassifier",
    "UPSConfig",
    "__version__",
    "balance",
    "calibration",
    "calibration_error",
    "errors",
    "expected_calibration_error",
    "losses",
    "pseudo_labels",
    "reliability_bins",
    "resume",
    "risk_coverage",
    "run",
    "select",
    "self_train",
    "thresholds",
    "uncertainty_auroc",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"surelabel.{_HOMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"surelabel.{_MODULES[name]}")
    raise AttributeError(f"module 'surelabel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
