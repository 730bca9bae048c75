"""The parameters of a fit and their defaults, for `UPSClassifier` and `surelabel fit` alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MAX_COPIES, PREDICT_BATCH_SIZE = 4, 4096
"""Of an ensemble of scikit-learn classifiers."""


@dataclass(kw_only=True, eq=False)
class FitDefaults:
    """The arguments of `UPSClassifier` that are plain values, which describes them.

    None where the default follows from the kind of labels: `surelabel.settings.FitSettings` says which it is. The
    settings and classes of the rooms above take their defaults from here, unless they have the paper's.

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
    negative_weight: float = 1.0
    optimizer: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 0.01
    weight_decay: float = 0.01
    batch_size: int = 256
    labeled_batch_size: int | None = None
    epochs: int = 20
    min_steps: int = 200
    device: str | None = None
