"""Learners as settings: everything that a learner is made of, as plain text, by reference where it is code."""

import functools
import warnings
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from pydantic import Field, FiniteFloat, NonNegativeFloat, NonNegativeInt, PositiveInt

from surelabel.config import Settings
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError
from surelabel.labels import Task
from surelabel.learners.protocol import Progress
from surelabel.references import absolute_reference, check_unchanged, reference_hash, resolve

if TYPE_CHECKING:
    from surelabel.learners.ensemble import SklearnLearner
    from surelabel.learners.network import ModelFactory, TorchLearner
    from surelabel.uncertainty import UncertaintyEstimator

JSONScalar: TypeAlias = bool | int | FiniteFloat | str | None


class TorchLearnerSettings(Settings):
    """What a `TorchLearner` is made of.

    Attributes:
        model: "module:function" or "file.py:function", `(sample_shape, num_classes) -> nn.Module`; None: the default
            network for tables.
        model_hash: content hash of file.py; `pinned` fills it in, and `build` refuses a file that differs.
        hidden: widths of the default network's hidden layers.
        dropout: rate after each hidden layer of the default network.
        noise: on the standardized features of the default network in training, in units of their typical difference to
            the nearest row; 0: none.
        training: how a network is trained.
        uncertainty: "mc-dropout", or "none" for selection by confidence alone.
        passes: stochastic passes.
        temperature: of the softened probabilities.
        stochastic_layers: references to layer classes, beside dropout, that are random in training mode.
        layer_hashes: content hashes of their files, None for a module's.
        negative_weight: the weight of the negative learning term.
        predict_batch_size: samples in one chunk of a prediction; None: 1024, and on a GPU as many as fill it.
        device: where the network lives; None: the GPU if there is one.
        threads: of a CPU; None: one for the default network, else as torch is set.
    """

    kind: Literal["torch"] = "torch"
    model: str | None = None
    model_hash: str | None = None
    hidden: tuple[PositiveInt, ...] = (128, 128)
    dropout: float = Field(0.3, ge=0, lt=1)
    noise: float = Field(0.0, ge=0, allow_inf_nan=False)
    training: TrainingSettings = TrainingSettings()
    uncertainty: Literal["mc-dropout", "none"] = "mc-dropout"
    passes: int = Field(10, ge=2)
    temperature: float = Field(2.0, gt=0)
    stochastic_layers: tuple[str, ...] = ()
    layer_hashes: tuple[str | None, ...] = ()
    negative_weight: NonNegativeFloat = 1.0
    predict_batch_size: PositiveInt | None = None
    device: str | None = None
    threads: PositiveInt | None = None

    def pinned(self) -> Self:
        """Return the settings with absolute paths and the content hash of each file that has none yet."""
        changes: dict[str, Any] = {}
        if self.model is not None:
            changes["model"] = absolute_reference(self.model)
            changes["model_hash"] = self.model_hash or reference_hash(self.model)
        changes["stochastic_layers"] = tuple(absolute_reference(layer) for layer in self.stochastic_layers)
        changes["layer_hashes"] = self.layer_hashes or tuple(reference_hash(layer) for layer in self.stochastic_layers)
        return self.replace(**changes)

    def fit_settings(self) -> dict[str, Any]:
        """Return what a trained network depends on, as JSON; how it labels is left out."""
        labeling = {"uncertainty", "passes", "temperature", "stochastic_layers", "layer_hashes", "predict_batch_size"}
        return self.model_dump(mode="json", exclude=labeling)

    def build(self, task: Task, progress: Progress | None = None) -> "TorchLearner":
        """Return the learner; refuse a file.py whose content has changed."""
        from surelabel.learners.network import TorchLearner

        self._warn_of_ignored()
        return TorchLearner(
            self._factory(),
            training=self.training,
            uncertainty=self._estimator(task),
            negative_weight=self.negative_weight,
            predict_batch_size=self.predict_batch_size,
            device=self.device,
            threads=self.threads,
            progress=progress,
            task=task,
        )

    def _factory(self) -> "ModelFactory":
        from surelabel.models.table import table_network

        if self.model is None:
            return functools.partial(table_network, hidden=self.hidden, dropout=self.dropout, noise=self.noise)
        check_unchanged(self.model, self.model_hash)
        factory: ModelFactory = resolve(self.model)
        return factory

    def _estimator(self, task: Task) -> "UncertaintyEstimator":
        from surelabel.uncertainty import Deterministic, MCDropout

        if self.uncertainty == "none":
            return Deterministic(temperature=self.temperature, task=task)
        hashes = self.layer_hashes or (None,) * len(self.stochastic_layers)
        for layer, expected in zip(self.stochastic_layers, hashes, strict=True):
            check_unchanged(layer, expected)
        layers = tuple(resolve(layer) for layer in self.stochastic_layers)
        return MCDropout(passes=self.passes, temperature=self.temperature, stochastic_layers=layers, task=task)

    def _warn_of_ignored(self) -> None:
        ignored = [] if self.model is None else ["hidden", "dropout", "noise"]
        why = f"model={self.model!r} is a network of your own"
        if self.uncertainty == "none":
            warn_of_changed(self, ["passes", "stochastic_layers"], "uncertainty='none' makes one deterministic pass")
        warn_of_changed(self, ignored, why)


class SklearnLearnerSettings(Settings):
    """What a `SklearnLearner` is made of.

    Attributes:
        estimator: reference to a classifier's class, "sklearn.ensemble:RandomForestClassifier", or to a function that
            returns a classifier.
        estimator_hash: content hash of file.py; `pinned` fills it in, and `build` refuses a file that differs.
        parameters: what it is called with.
        members: how many resamples the ensemble is trained on.
        temperature: of the softened probabilities.
        negatives: "auto", "expand" or "ignore", see `SklearnLearner`.
        max_copies: rows with more classes left than this are left out.
        predict_batch_size: samples in one chunk of a prediction.
    """

    kind: Literal["sklearn"] = "sklearn"
    estimator: str
    estimator_hash: str | None = None
    parameters: dict[str, JSONScalar] = Field(default_factory=dict)
    members: int = Field(10, ge=2)
    temperature: float = Field(2.0, gt=0)
    negatives: Literal["auto", "expand", "ignore"] = "auto"
    max_copies: NonNegativeInt = 4
    predict_batch_size: PositiveInt = 4096

    def pinned(self) -> Self:
        """Return the settings with an absolute path and the file's content hash, if it has none yet."""
        sha256 = self.estimator_hash or reference_hash(self.estimator)
        return self.replace(estimator=absolute_reference(self.estimator), estimator_hash=sha256)

    def build(self, task: Task, progress: Progress | None = None) -> "SklearnLearner":
        """Return the learner; refuse a file.py whose content has changed."""
        from surelabel.learners.ensemble import SklearnLearner

        check_unchanged(self.estimator, self.estimator_hash)
        try:
            estimator = resolve(self.estimator)(**self.parameters)
        except TypeError as error:
            raise InvalidInputError(
                f"The estimator {self.estimator!r} cannot be made with parameters={self.parameters}: {error}."
            ) from error
        return SklearnLearner(
            estimator,
            members=self.members,
            temperature=self.temperature,
            negatives=self.negatives,
            max_copies=self.max_copies,
            predict_batch_size=self.predict_batch_size,
            progress=progress,
            task=task,
        )


def warn_of_changed(settings: Settings, names: list[str], why: str) -> None:
    """Warn of settings that were changed from their defaults and are not used."""
    fields = type(settings).model_fields
    changed = [name for name in names if getattr(settings, name) != fields[name].get_default()]
    if changed:
        warnings.warn(f"Ignored: {', '.join(changed)}, because {why}.", UserWarning, stacklevel=4)
