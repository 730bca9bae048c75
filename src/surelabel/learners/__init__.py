"""What the loop drives: something that learns from a training set and labels samples with their uncertainty."""

from collections.abc import Iterator
from typing import Literal, Protocol

from surelabel.data.pool import Prediction
from surelabel.data.source import Source
from surelabel.data.training_set import TrainingSet

NegativesUse = Literal["loss", "expansion", "left out"]
"""How a learner uses negative labels: by eq. 3, by one weighted copy for each remaining class, or not at all."""


class Learner(Protocol):
    """Anything that `self_train` can drive.

    A learner may also have `predict_proba(source) -> (N, C)`, one deterministic pass, which then gives the
    validation and test scores (else they come from `predict`), and `negatives_use`, which the records repeat.
    """

    def fit(self, training_set: TrainingSet, *, seed: int) -> None:
        """Train a fresh model; the old one stays in place until the new one is ready."""

    def predict(self, source: Source, *, seed: int) -> Iterator[Prediction]:
        """Label the source chunk by chunk, in its order."""
