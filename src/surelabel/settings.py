"""A run's whole settings: how labels are selected and when rounds end, what learns, and from which data."""

import dataclasses
import json
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticSerializationError

from surelabel.base.defaults import BY_LABELS, FitDefaults
from surelabel.base.settings import Seed, Settings
from surelabel.base.trust import Reference
from surelabel.core.labels import Task
from surelabel.data.run_data import FunctionData, TableData
from surelabel.data.sharded import PoolShards
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError
from surelabel.kinds.folder import FolderData
from surelabel.kinds.kind import Network
from surelabel.kinds.packed import PackedData
from surelabel.kinds.texts import TextData
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.records import StopReason

EMA_DECAY = 0.99
"""Decay of the average of the weights, for methods other than UPS's."""


class UPSConfig(Settings):
    """How pseudo-labels are selected and when the rounds end. The defaults are the paper's.

    Attributes:
        task: "single" (one label per sample) or "multi" (several).
        num_classes: C, where the labels alone do not say.
        tau_p: least confidence of a positive label (the paper: 0.7, for multi-label 0.5).
        tau_n: largest confidence of a negative label.
        kappa_p: largest uncertainty of a positive label; infinite: selection by confidence alone (eq. 2).
        kappa_n: largest uncertainty of a negative label.
        gamma: multi-label: the least probability at which a class counts as present (eq. 1).
        negatives: whether negative labels are used at all.
        balance: "equal" keeps equally many positives of each class, "prior" keeps the labeled set's proportions, None
            keeps all.
        balance_rounds: how many rounds are balanced; None: 10 for single-label with at most 20 classes, 1 for
            multi-label, else 0.
        balance_floor: balancing leaves each class at least this many positives, if it has them.
        max_rounds: the most rounds after round 0.
        tolerance: the rounds have converged when the number selected changes by less than this share, twice; None:
            never, for example if everything is always selected.
        max_minutes: no round starts after this many minutes.
        seed: everything random follows from it.
    """

    task: Task = "single"
    num_classes: int | None = Field(None, ge=1, le=10**9)
    tau_p: float = Field(0.7, ge=0, le=1)
    tau_n: float = Field(FitDefaults.tau_n, ge=0, le=1)
    kappa_p: float = Field(0.05, ge=0)
    kappa_n: float = Field(FitDefaults.kappa_n, ge=0)
    gamma: float = Field(FitDefaults.gamma, gt=0, lt=1)
    negatives: bool = FitDefaults.negatives
    balance: Literal["equal", "prior"] | None = "equal"
    balance_rounds: int | None = Field(FitDefaults.balance_rounds, ge=0, lt=2**63)
    balance_floor: int = Field(FitDefaults.balance_floor, ge=0, lt=2**63)
    max_rounds: int = Field(20, ge=0, le=1_000_000)
    tolerance: float | None = Field(FitDefaults.tolerance, ge=0)
    max_minutes: float | None = Field(FitDefaults.max_minutes, ge=0)
    seed: Seed = 0

    @model_validator(mode="after")
    def _check_order_of_thresholds(self) -> Self:
        if self.tau_n > self.tau_p:
            raise ValueError(f"tau_n ({self.tau_n}) must not be larger than tau_p ({self.tau_p}).")
        return self

    @property
    def thresholds(self) -> dict[str, float]:
        """The arguments of `select`."""
        return {name: getattr(self, name) for name in ("tau_p", "tau_n", "kappa_p", "kappa_n", "gamma")}

    def num_balanced_rounds(self, num_classes: int) -> int:
        """How many of the first rounds are balanced."""
        if self.balance is None:
            return 0
        if self.balance_rounds is not None:
            return self.balance_rounds
        if self.task == "multi":
            return 1
        return 10 if num_classes <= 20 else 0

    def stop_reason(self, counts: Sequence[int], num_classes: int, minutes: float) -> StopReason | None:
        """Say why the rounds end after the last of these, or None.

        Args:
            counts: of each round so far, positives plus negatives before balancing.
            num_classes: C.
            minutes: how long the run has taken.
        """
        last = len(counts) - 1
        both_unbalanced = last - 1 > self.num_balanced_rounds(num_classes)
        if last >= 3 and both_unbalanced and self._unchanged(counts[-3], counts[-2]) and self._unchanged(*counts[-2:]):
            return "converged"
        if last >= self.max_rounds:
            return "max_rounds"
        if self.max_minutes is not None and minutes >= self.max_minutes:
            return "max_minutes"
        return None

    def by_confidence(self, given: Sequence[str] = ()) -> Self:
        """Return the settings for a network without randomness, whose labels have no uncertainty.

        Args:
            given: the user's names of settings of the uncertainty that are then of no use.
        """
        if given:
            why = "the network has no randomness, so its labels have no uncertainty"
            warnings.warn(f"Ignored: {', '.join(given)}, because {why}.", UserWarning, stacklevel=3)
        return self.replace(kappa_p=math.inf, kappa_n=math.inf)

    def _unchanged(self, before: int, after: int) -> bool:
        if self.tolerance is None:
            return False
        return before == after or abs(after - before) < self.tolerance * before


class FitSettings(FitDefaults):
    """The arguments of a fit, from `UPSClassifier` or `surelabel fit`, and the settings of its parts that follow.

    Example:
        >>> FitSettings().config("single", 3, seed=0).kappa_p, FitSettings().config("multi", 3, seed=0).kappa_p
        (0.1, 0.05)
    """

    def config(self, task: Task, num_classes: int, seed: int) -> UPSConfig:
        """Return how labels are selected and when the rounds end."""
        values = self._values(UPSConfig, task, **BY_LABELS)
        return UPSConfig(**values, task=task, num_classes=num_classes, seed=seed)

    def training(self, task: Task) -> TrainingSettings:
        """Return how a network is trained; methods other than UPS's may need a teacher."""
        values = self._values(TrainingSettings, task, labeled_batch_size=(0, self.batch_size))
        return TrainingSettings(**values, ema_decay=0.0 if self.method == "ups" else EMA_DECAY)

    def network(
        self, task: Task, suits: Network | None = None, widths: Sequence[int] = (), **named: Any
    ) -> TorchLearnerSettings:
        """Return the settings of a network.

        Args:
            task: "single" or "multi".
            suits: the network that suits the kind of the samples; None: the one for tables.
            widths: how many features each of several backbones has: each gets a small network of its own, and the
                spread over them is the uncertainty.
            named: other settings, such as those of your own network, `model="nets.py:make"`.
        """
        values = self._values(TorchLearnerSettings, task) | named
        values["method_parameters"] = self.method_parameters or {}
        training = self.training(task)
        if suits is not None:
            strong = suits.augment if suits.strong is None else suits.strong
            augment = suits.augment if self.method == "ups" else strong
            training = training.replace(augment=augment, channels_last=True)
            if values.get("model") is None:
                parameters = {**suits.parameters, "dropout": self.dropout}
                values |= {"model": suits.model, "model_parameters": parameters}
        if len(widths) > 1 and values.get("model") is None:
            own = {name: values[name] for name in ("hidden", "dropout", "noise")}
            # Features that are scaled alike are those of a column of texts, which are then all features.
            parameters = {"widths": tuple(widths), "one_scale": bool(values.get("together")), **own}
            values |= {"model": "surelabel.models.heads:heads", "model_parameters": parameters}
            values |= {"uncertainty": "deep-ensemble", "uncertainty_parameters": {"members": len(widths)}}
        if values.get("model") is not None:
            values = {
                name: value for name, value in values.items() if name not in ("hidden", "dropout", "noise", "together")
            }
        return TorchLearnerSettings(training=training, **values)

    def ensemble(self, estimator: str) -> SklearnLearnerSettings:
        """Return the settings of a bootstrap ensemble of a scikit-learn classifier, by its reference."""
        return SklearnLearnerSettings(estimator=estimator, members=self.passes, temperature=self.temperature)

    def _values(self, settings: type[Settings], task: Task, **defaults: tuple[Any, Any]) -> dict[str, Any]:
        """Return the values for these settings; None becomes the default for single-label or for multi-label."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if name in settings.model_fields}
        for name, default in defaults.items():
            values[name] = default[task == "multi"] if values[name] is None else values[name]
        return values


class ComparisonSettings(Settings):
    """How a run chooses which of its models to keep, once its rounds are done.

    Attributes:
        linear: a linear model of the labels alone, which the networks of round 0 and of the last round are compared
            with.
        folds: the most folds of a cross-validation, if there is no validation set.
        max_minutes: a fold starts only if it is expected to end within this many minutes of the run, rounds included.
        max_label_error: thresholds for the kept model's labels are chosen on the validation set so that fewer than this
            share are wrong (docs/thresholds.md); None: those of the rounds.
    """

    linear: SklearnLearnerSettings
    folds: int = Field(5, ge=2, le=100)
    max_minutes: float | None = Field(None, ge=0)
    max_label_error: float | None = Field(None, gt=0, lt=1)


class RunSettings(Settings):
    """Everything that another process needs to continue a run.

    Paths are absolute; relative ones are resolved when the run starts. Classes, sample shape, feature names and
    fingerprint follow from the data; `start` fills them in.

    Attributes:
        format: of these settings; the folder's layout has its own (`runs.layout.FORMAT`).
        name: what a table's row calls the run, "UPS".
        config: thresholds, balance, stop rules and seed.
        learner: what learns; None: an object in memory.
        data: where the samples come from; None: objects in memory.
        pool: the shards of a pool that does not fit in memory; None: the unlabeled samples are in the data.
        classes: what the class indices stand for.
        sample_shape: the shape of one sample.
        feature_names: names of a table's columns.
        keep_models: "last" keeps the model of the last round, "all" those of all rounds.
        checkpoint_minutes: how often the state of a network in training is written, so that a killed run continues
            within the round; None: never.
        comparison: how the model to keep is chosen; None: it is the last round's.
        fingerprint: a hash of ids and labels, and of some rows of arrays in memory, which must be the same in a resumed
            run.
    """

    format: int = Field(1, ge=1, le=1)
    name: str = ""
    config: UPSConfig = UPSConfig()
    learner: Annotated[TorchLearnerSettings | SklearnLearnerSettings, Field(discriminator="kind")] | None = None
    data: (
        Annotated[TableData | TextData | FolderData | PackedData | FunctionData, Field(discriminator="kind")] | None
    ) = None
    pool: PoolShards | None = None
    classes: tuple[str, ...] = ()
    sample_shape: tuple[Annotated[int, Field(ge=0, le=10**12)], ...] = ()
    feature_names: tuple[str, ...] | None = None
    keep_models: Literal["last", "all"] = "last"
    checkpoint_minutes: float | None = Field(5.0, ge=0)
    comparison: ComparisonSettings | None = None
    fingerprint: str = ""

    @model_validator(mode="before")
    @classmethod
    def _keep_features_of_older_runs(cls, values: Any) -> Any:
        """A run without `use` began when columns that count the rows were still features."""
        data = values.get("data") if isinstance(values, dict) else None
        if isinstance(data, dict) and data.get("kind") == "table" and "use" not in data:
            return {**values, "data": {**data, "use": values.get("feature_names") or ()}}
        return values

    @property
    def network(self) -> TorchLearnerSettings:
        """The learner's settings if it is a network; anything else is refused."""
        if not isinstance(self.learner, TorchLearnerSettings):
            raise InvalidInputError(f"The learner must be a network; got {type(self.learner).__name__}.")
        return self.learner

    def with_training(self, **changes: Any) -> Self:
        """Return the settings with these values of the network's training changed.

        >>> settings = RunSettings(learner=TorchLearnerSettings())
        >>> settings.with_training(epochs=3).network.training.epochs
        3
        """
        training = self.network.training.replace(**changes)
        return self.replace(learner=self.network.replace(training=training))

    def limited(self, max_rounds: int | None, max_minutes: float | None, minutes_before: float = 0.0) -> Self:
        """Return the settings with these limits of the whole run, if given.

        The rounds get the time that is left after `minutes_before`, spent on reading the data; half of it if a
        cross-validation follows.

        >>> RunSettings().limited(3, 10).config.max_minutes, RunSettings().limited(3, 10, 4).config.max_minutes
        (10.0, 6.0)
        """
        config, comparison = self.config, self.comparison
        has_validation = any(getattr(self.data, name, None) for name in ("validation", "validation_path"))
        if max_rounds is not None:
            config = config.replace(max_rounds=max_rounds)
        if max_minutes is not None:
            left = max(0.0, max_minutes - minutes_before)
            config = config.replace(max_minutes=left if comparison is None or has_validation else left / 2)
            comparison = comparison and comparison.replace(max_minutes=max_minutes)
        return self.replace(config=config, comparison=comparison)

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name."""
        linear = None if self.comparison is None else self.comparison.linear
        for part in (self.learner, self.data, linear):
            if part is not None:
                yield from part.references()

    def pinned(self) -> Self:
        """Return the settings with absolute paths and a content hash for every file."""
        learner = None if self.learner is None else self.learner.pinned()
        data = None if self.data is None else self.data.pinned()
        comparison = self.comparison and self.comparison.replace(linear=self.comparison.linear.pinned())
        pool = self.pool and self.pool.pinned()
        pinned = self.replace(learner=learner, data=data, pool=pool, comparison=comparison)
        pinned.to_json()  # raises if a path is not text, before anything is trained
        return pinned

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; infinities are strings. Later settings that are not used are left out."""
        try:
            left_out = {name for name in ("comparison", "pool") if getattr(self, name) is None}
            values: dict[str, Any] = json.loads(self.model_dump_json(exclude=left_out))
        except PydanticSerializationError as error:
            raise InvalidInputError(f"The settings hold a name that is not UTF-8; rename it ({error}).") from error
        return values
