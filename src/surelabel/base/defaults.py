"""The parameters of a fit and their defaults, for `UPSClassifier` and `surelabel fit` alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

MAX_COPIES, PREDICT_BATCH_SIZE = 4, 4096
"""Of an ensemble of scikit-learn classifiers."""


@dataclass(kw_only=True, eq=False)
class FitDefaults:
    """The arguments of `UPSClassifier` that are plain values; its docstring describes them.

    None means that the default depends on the kind of labels: `BY_LABELS` has most of these, and
    `surelabel.settings.FitSettings` chooses. Other settings and classes take their defaults from here, unless they use
    the paper's.

    >>> FitDefaults().tau_n, FitDefaults(tau_n=0.1).tau_n
    (0.05, 0.1)
    """

    tau_p: float | None = None
    tau_n: float = 0.05
    kappa_p: float | None = None
    kappa_n: float = 0.005
    gamma: float = 0.5
    negatives: bool = True
    balance: Literal["equal", "prior"] | None = None
    balance_rounds: int | None = None
    balance_floor: int = 25
    max_rounds: int | None = None
    tolerance: float | None = 0.01
    max_minutes: float | None = None
    passes: int = 10
    temperature: float = 2.0
    hidden: Sequence[int] = (128, 128)
    dropout: float = 0.5
    noise: float = 0.5
    method: str = "ups"
    method_parameters: Mapping[str, bool | int | float | str | None] | None = None
    negative_weight: float = 1.0
    optimizer: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 0.01
    weight_decay: float = 0.01
    batch_size: int = 256
    labeled_batch_size: int | None = None
    epochs: int = 20
    min_steps: int = 200
    sync_batchnorm: bool = False
    device: str | None = None


BY_LABELS: Mapping[str, tuple[Any, Any]] = {"tau_p": (0.7, 0.5), "kappa_p": (0.1, 0.05), "max_rounds": (5, 1)}
"""Defaults that depend on the kind of labels: with one label per sample, and with several."""

_PICTURES: Mapping[str, Any] = {
    "learning_rate": 0.003,
    "batch_size": 64,
    "min_steps": 1000,
    "epochs": 20,
    "dropout": 0.3,
    "labeled_batch_size": 32,
    "tau_p": 0.5,
    "kappa_p": 0.3,
    "max_rounds": 2,
}
KIND_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "pictures": _PICTURES,
    "sounds": {**_PICTURES, "min_steps": 400, "epochs": 50, "max_rounds": 1},
    "video": {
        "learning_rate": 0.003,
        "batch_size": 16,
        "min_steps": 150,
        "epochs": 10,
        "dropout": 0.3,
        "kappa_p": 0.2,
        "max_rounds": 3,
    },
    "pictures by backbones": {"learning_rate": 0.002, "tau_p": 0.5, "kappa_p": 0.3},
    "texts": {"learning_rate": 0.002},
    "texts by backbones": {"learning_rate": 0.0005, "labeled_batch_size": 32},
}
"""Values that suit a kind of data better than those for tables; here, so that `surelabel fit --help` can show them."""
