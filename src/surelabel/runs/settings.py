"""A run's whole settings: how labels are selected, what learns, and from which data."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticSerializationError

from surelabel.config import Settings
from surelabel.data.reference import FunctionData, TableData
from surelabel.errors import InvalidInputError
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.rules import UPSConfig
from surelabel.trust import Reference

FORMAT = 1
"""The layout of run folders that this version writes; it reads this one and all before."""


class RunSettings(Settings):
    """Everything that a run folder needs to be continued by another process.

    Paths are absolute, made so from the folder in which the run was started. Classes, sample shape, feature names and
    fingerprint follow from the data; `start` fills them in.

    Attributes:
        format: the folder's layout.
        name: what a table's row calls the run, "UPS".
        config: thresholds, balance, stop rules and seed.
        learner: what learns; None: an object in memory.
        data: where the samples come from; None: objects in memory.
        classes: what the class indices stand for.
        sample_shape: the shape of one sample.
        feature_names: names of a table's columns.
        keep_models: "last" keeps the model of the last round, "all" those of all rounds.
        checkpoint_minutes: how often the state of a network in training is written, so that a run that is killed goes
            on within the round; None: never.
        fingerprint: a hash of ids and labels, and of some rows of arrays in memory; a resumed run must have the same.
    """

    format: int = Field(FORMAT, ge=1, le=FORMAT)
    name: str = ""
    config: UPSConfig = UPSConfig()
    learner: Annotated[TorchLearnerSettings | SklearnLearnerSettings, Field(discriminator="kind")] | None = None
    data: Annotated[TableData | FunctionData, Field(discriminator="kind")] | None = None
    classes: tuple[str, ...] = ()
    sample_shape: tuple[Annotated[int, Field(ge=0, le=10**12)], ...] = ()
    feature_names: tuple[str, ...] | None = None
    keep_models: Literal["last", "all"] = "last"
    checkpoint_minutes: float | None = Field(5.0, ge=0)
    fingerprint: str = ""

    @model_validator(mode="before")
    @classmethod
    def _keep_features_of_older_runs(cls, values: Any) -> Any:
        """A run that knows no `use` began when columns that count the rows were features like all others."""
        data = values.get("data") if isinstance(values, dict) else None
        if isinstance(data, dict) and data.get("kind") == "table" and "use" not in data:
            return {**values, "data": {**data, "use": values.get("feature_names") or ()}}
        return values

    @property
    def network(self) -> TorchLearnerSettings:
        """The learner's settings where it is a network; another learner, or none, is refused."""
        if not isinstance(self.learner, TorchLearnerSettings):
            got = "none" if self.learner is None else type(self.learner).__name__
            raise InvalidInputError(f"The 'learner' of the settings must be a network's. Got {got} instead.")
        return self.learner

    def with_training(self, **changes: Any) -> Self:
        """Return the settings with these values of the network's training changed.

        >>> settings = RunSettings(learner=TorchLearnerSettings())
        >>> settings.with_training(epochs=3).network.training.epochs
        3
        """
        training = self.network.training.replace(**changes)
        return self.replace(learner=self.network.replace(training=training))

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name."""
        for part in (self.learner, self.data):
            if part is not None:
                yield from part.references()

    def pinned(self) -> Self:
        """Return the settings with absolute paths and a content hash for every file."""
        learner = None if self.learner is None else self.learner.pinned()
        data = None if self.data is None else self.data.pinned()
        pinned = self.replace(learner=learner, data=data)
        pinned.to_json()  # raises where a path is no text, before anything is trained
        return pinned

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; infinities are strings."""
        try:
            values: dict[str, Any] = json.loads(self.model_dump_json())
        except PydanticSerializationError as error:
            raise InvalidInputError(
                f"The settings hold a name that is no text in UTF-8, so that a run cannot keep it; rename it ({error})."
            ) from error
        return values
