"""surelabel: semi-supervised learning by uncertainty-aware pseudo-label selection (UPS).

Names are loaded when they are first used, so that `import surelabel` stays light: torch only comes with a torch name.
"""

import importlib

from surelabel._version import __version__ as __version__

TYPE_CHECKING = False
"""As type checkers define it; importing `typing` takes time, during which Ctrl-C would show a traceback."""

# Type checkers want the names once more, below; a test compares the two.
_NAMES = {
    "core.calibration": "calibration_error expected_calibration_error reliability_bins risk_coverage uncertainty_auroc",
    "core.labels": "pseudo_labels",
    "core.selection": "Selection balance select",
    "core.thresholds": "thresholds",
    "data.pool": "Prediction",
    "data.source": "ArraySource Source",
    "data.splits": "LabeledKFold",
    "data.training_set": "TrainingSet",
    "engine.settings": "TrainingSettings",
    "estimator": "UPSClassifier",
    "learners": "Learner",
    "learners.network": "TorchLearner",
    "learners.sklearn": "SklearnLearner",
    "loop": "self_train",
    "records": "RoundRecord",
    "runs": "RunFolder",
    "runs.session": "resume run",
    "settings": "UPSConfig",
    "uncertainty": "DeepEnsemble Deterministic MCDropBlock MCDropout MCSpatialDropout RandomAugmentation",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
_MODULES = {"calibration": "core.calibration", "errors": "errors", "losses": "core.losses"}
_PUBLIC = sorted([*_HOMES, *_MODULES, "__version__"])

if TYPE_CHECKING:
    from typing import Any

    from surelabel import errors as errors
    from surelabel.core import calibration as calibration
    from surelabel.core import losses as losses
    from surelabel.core.calibration import calibration_error as calibration_error
    from surelabel.core.calibration import expected_calibration_error as expected_calibration_error
    from surelabel.core.calibration import reliability_bins as reliability_bins
    from surelabel.core.calibration import risk_coverage as risk_coverage
    from surelabel.core.calibration import uncertainty_auroc as uncertainty_auroc
    from surelabel.core.labels import pseudo_labels as pseudo_labels
    from surelabel.core.selection import Selection as Selection
    from surelabel.core.selection import balance as balance
    from surelabel.core.selection import select as select
    from surelabel.core.thresholds import thresholds as thresholds
    from surelabel.data.pool import Prediction as Prediction
    from surelabel.data.source import ArraySource as ArraySource
    from surelabel.data.source import Source as Source
    from surelabel.data.splits import LabeledKFold as LabeledKFold
    from surelabel.data.training_set import TrainingSet as TrainingSet
    from surelabel.engine.settings import TrainingSettings as TrainingSettings
    from surelabel.estimator import UPSClassifier as UPSClassifier
    from surelabel.learners import Learner as Learner
    from surelabel.learners.network import TorchLearner as TorchLearner
    from surelabel.learners.sklearn import SklearnLearner as SklearnLearner
    from surelabel.loop import self_train as self_train
    from surelabel.records import RoundRecord as RoundRecord
    from surelabel.runs import RunFolder as RunFolder
    from surelabel.runs.session import resume as resume
    from surelabel.runs.session import run as run
    from surelabel.settings import UPSConfig as UPSConfig
    from surelabel.uncertainty import DeepEnsemble as DeepEnsemble
    from surelabel.uncertainty import Deterministic as Deterministic
    from surelabel.uncertainty import MCDropBlock as MCDropBlock
    from surelabel.uncertainty import MCDropout as MCDropout
    from surelabel.uncertainty import MCSpatialDropout as MCSpatialDropout
    from surelabel.uncertainty import RandomAugmentation as RandomAugmentation
else:
    __all__ = _PUBLIC


def __getattr__(name: str) -> "Any":
    if name in _HOMES:
        return getattr(importlib.import_module(f"surelabel.{_HOMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"surelabel.{_MODULES[name]}")
    raise AttributeError(f"module 'surelabel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return _PUBLIC
