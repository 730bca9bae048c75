"""Settings of learners: everything that a learner is made of, as plain text; code is named by reference."""

import functools
import inspect
import os
import warnings
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, FiniteFloat, model_validator

from surelabel.base.references import (
    absolute_reference,
    call,
    changed_file,
    check_call,
    failing,
    file_hash,
    reference_hash,
    resolve,
)
from surelabel.base.settings import (
    MOST_LAYERS,
    MOST_NOISE,
    MOST_PASSES,
    MOST_PROCESSES,
    MOST_SAMPLES,
    MOST_UNITS,
    TEMPERATURES,
    Device,
    Settings,
)
from surelabel.base.system import Progress
from surelabel.base.text import MAX_BYTES, most_bytes
from surelabel.base.trust import CLASSIFIERS, LAYERS, NETWORKS, Reference
from surelabel.base.trust import ESTIMATORS as LISTED_ESTIMATORS
from surelabel.core.labels import Task
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError

if TYPE_CHECKING:
    from torch.nn import Module

    from surelabel.learners.network import MethodFactory, ModelFactory, TorchLearner
    from surelabel.learners.sklearn import SklearnLearner
    from surelabel.uncertainty import UncertaintyEstimator

JSONScalar: TypeAlias = bool | int | FiniteFloat | str | None

ESTIMATORS = {
    "mc-dropout": "surelabel.uncertainty:MCDropout",
    "mc-spatial-dropout": "surelabel.uncertainty:MCSpatialDropout",
    "mc-dropblock": "surelabel.uncertainty:MCDropBlock",
    "augmentation": "surelabel.uncertainty:RandomAugmentation",
    "deep-ensemble": "surelabel.uncertainty:DeepEnsemble",
    "none": "surelabel.uncertainty:Deterministic",
}
"""What settings call our estimators of p and u."""

METHODS = {"ups": "surelabel.methods.ups:UPSMethod"}
"""What settings call our methods."""

LATER: dict[str, Any] = {"method": "ups", "method_hash": None, "method_parameters": {}}
"""Settings that came after the first version, with their defaults; where they have these, runs have the old hashes."""

_OF_ALL_ESTIMATORS = ("passes", "temperature", "stochastic_layers")
"""Settings that reach every estimator that has an argument of this name; so does the task."""


class CodeSettings(Settings):
    """Settings that name code: by a short name, or by a reference, with the content hash of its file beside it."""

    _LISTED: ClassVar[Mapping[str, Container[str]]]
    """The settings that name code, and which references a run of anyone's may have there."""

    def _code(self) -> dict[str, str]:
        """The references among the settings that name code."""
        named = {name: getattr(self, name) for name in self._LISTED}
        return {name: value for name, value in named.items() if value not in (None, *ESTIMATORS, *METHODS)}

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name."""
        yield from (Reference(reference, self._LISTED[name]) for name, reference in self._code().items())

    def pinned(self) -> Self:
        """Return the settings with absolute paths and the content hash of each file that has none yet."""
        changes: dict[str, Any] = {}
        for name, reference in self._code().items():
            sha256 = getattr(self, f"{name}_hash") or reference_hash(reference)
            changes |= {name: absolute_reference(reference), f"{name}_hash": sha256}
        return self.replace(**changes)

    def _resolved(self, name: str) -> Any:
        """Return the code that a setting names; refuse a file.py whose content has changed."""
        named = getattr(self, name)
        return resolve({**ESTIMATORS, **METHODS}.get(named, named), getattr(self, f"{name}_hash"))


class TorchLearnerSettings(CodeSettings):
    """What a `TorchLearner` is made of.

    Attributes:
        model: "module:function" or "file.py:function", `(sample_shape, num_classes) -> nn.Module`; None: the default
            network for tables.
        model_hash: content hash of file.py; `pinned` fills it in, and `build` refuses a file that differs.
        model_parameters: what the function is called with besides, by name. Where "pretrained" names a file of weights
            (.safetensors, .pth, .pt), the run depends on its content too.
        pretrained_hash: content hash of that file; a network is not made from a file that differs.
        hidden: widths of the default network's hidden layers.
        dropout: rate after each hidden layer of the default network.
        noise: on the standardized features of the default network in training, in units of their typical difference to
            the nearest row; 0: none.
        training: how a network is trained.
        uncertainty: "mc-dropout", "mc-spatial-dropout", "mc-dropblock", "augmentation", "deep-ensemble"; "none" for
            selection by confidence alone; or an `UncertaintyEstimator` of your own, "file.py:Class".
        uncertainty_hash: content hash of that file.
        uncertainty_parameters: what the estimator alone is made with, by name: {"block_size": 5}, {"members": 10}.
        passes: stochastic passes.
        temperature: of the softened probabilities.
        stochastic_layers: references to layer classes, besides dropout, that are random in training mode.
        layer_hashes: content hashes of their files, None for a module's.
        negative_weight: the weight of the negative learning term, of UPS's learning rule.
        method: how a network learns within a round: "ups", or a `Method` of your own, "file.py:Class".
        method_hash: content hash of that file.
        method_parameters: what the method alone is made with, by name.
        predict_batch_size: samples in one chunk of a prediction; None: 1024, and on a GPU as many as fill it.
        device: where the network lives; None: the GPU if there is one.
        threads: of a CPU; None: one for the default network, else as torch is set.
    """

    _LISTED: ClassVar = {"model": NETWORKS, "uncertainty": LISTED_ESTIMATORS, "method": ()}

    kind: Literal["torch"] = "torch"
    model: str | None = None
    model_hash: str | None = None
    model_parameters: dict[str, JSONScalar] = Field(default_factory=dict)
    pretrained_hash: str | None = None
    hidden: tuple[Annotated[int, Field(ge=1, le=MOST_UNITS)], ...] = Field((128, 128), max_length=MOST_LAYERS)
    dropout: float = Field(0.3, ge=0, lt=1)
    noise: float = Field(0.0, ge=0, le=MOST_NOISE)
    training: TrainingSettings = TrainingSettings()
    uncertainty: str = "mc-dropout"
    uncertainty_hash: str | None = None
    uncertainty_parameters: dict[str, JSONScalar] = Field(default_factory=dict)
    passes: int = Field(10, ge=2, le=MOST_PASSES)
    temperature: float = Field(2.0, ge=TEMPERATURES[0], le=TEMPERATURES[1])
    stochastic_layers: tuple[str, ...] = ()
    layer_hashes: tuple[str | None, ...] = ()
    negative_weight: float = Field(1.0, ge=0, le=1e6)
    method: str = "ups"
    method_hash: str | None = None
    method_parameters: dict[str, JSONScalar] = Field(default_factory=dict)
    predict_batch_size: int | None = Field(None, ge=1, le=MOST_SAMPLES)
    device: Device | None = None
    threads: int | None = Field(None, ge=1, le=MOST_PROCESSES)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name, kind, known in (("uncertainty", "estimator", ESTIMATORS), ("method", "method", METHODS)):
            value = getattr(self, name)
            if value not in known and ":" not in value:
                raise ValueError(
                    f"The '{name}' setting must be one of {', '.join(map(repr, known))}, or the reference "
                    f"'file.py:Class' of your own {kind}. Got {value!r} instead"
                )
        shared = [name for name in (*_OF_ALL_ESTIMATORS, "task") if name in self.uncertainty_parameters]
        if shared:
            raise ValueError(
                f"The 'uncertainty_parameters' setting holds what the estimator alone is made with. Got "
                f"{', '.join(shared)} instead, which every estimator gets from other settings; leave them out there"
            )
        if self.layer_hashes and len(self.layer_hashes) != len(self.stochastic_layers):
            raise ValueError(
                f"The 'layer_hashes' setting must have one entry for each of the {len(self.stochastic_layers)} "
                f"stochastic_layers. Got {len(self.layer_hashes)} instead; leave it out, and it is filled in"
            )
        if self.model is None and self.model_parameters:
            raise ValueError(
                f"The 'model_parameters' setting is for a 'model' that is named. Got {self.model_parameters} for the "
                f"default network instead; that one has the settings hidden, dropout and noise"
            )
        if self.method in METHODS and self.method_parameters:
            raise ValueError(
                f"The 'method_parameters' setting is for a method of your own. Got {self.method_parameters} for "
                f"{self.method!r} instead; its weight of negative labels is the setting negative_weight"
            )
        return self

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name."""
        yield from super().references()
        yield from (Reference(layer, LAYERS) for layer in self.stochastic_layers)

    def pinned(self) -> Self:
        """Return the settings with absolute paths and the content hash of each file that has none yet."""
        changes: dict[str, Any] = {}
        if self._pretrained is not None:
            changes["model_parameters"] = {**self.model_parameters, "pretrained": os.path.abspath(self._pretrained)}
            changes["pretrained_hash"] = self.pretrained_hash or _weights_hash(self._pretrained)
        changes["stochastic_layers"] = tuple(absolute_reference(layer) for layer in self.stochastic_layers)
        changes["layer_hashes"] = self.layer_hashes or tuple(reference_hash(layer) for layer in self.stochastic_layers)
        return super().pinned().replace(**changes)

    def fit_settings(self) -> dict[str, Any]:
        """Return what a trained network depends on, as JSON; how it labels is left out.

        The estimator plays no part unless it prepares networks or trains several. One of your own may do so by any of
        its arguments; ours do so by their own parameters.
        """
        from surelabel.uncertainty import UncertaintyEstimator

        estimator = self._estimator("single")
        trains = estimator.members > 1 or type(estimator).prepare is not UncertaintyEstimator.prepare
        labeling = {"predict_batch_size"}
        if not trains:
            labeling |= {"uncertainty", "uncertainty_hash", "uncertainty_parameters"}
        if not trains or self.uncertainty in ESTIMATORS:
            labeling |= {*_OF_ALL_ESTIMATORS, "layer_hashes"}
        return self.model_dump(mode="json", exclude=labeling | {name for name in LATER if self.method == "ups"})

    @property
    def members(self) -> int:
        """How many networks a round trains: one, or the members of an ensemble."""
        return self._estimator("single", ()).members

    def build(
        self,
        task: Task,
        progress: Progress | None = None,
        *,
        make: "ModelFactory | None" = None,
        layers: tuple[type, ...] | None = None,
    ) -> "TorchLearner":
        """Return the learner; refuse a file.py, or a file of weights, whose content has changed.

        Args:
            task: "single" or "multi".
            progress: called as training and labeling go on.
            make: a factory in memory, in place of the network that the settings name.
            layers: types in memory, in place of the stochastic layers that they name.
        """
        from surelabel.learners.network import TorchLearner

        self._warn_of_ignored()
        return TorchLearner(
            make or self._factory(),
            training=self.training,
            uncertainty=self._estimator(task, layers),
            method=self.make_method(),
            **self.model_dump(include={"predict_batch_size", "device", "threads"}),
            progress=progress,
            task=task,
        )

    def make_method(self) -> "MethodFactory":
        """Return what makes the method of (task, training settings)."""
        from surelabel.engine.method import Method

        found = self._resolved("method")
        if not (isinstance(found, type) and issubclass(found, Method)):
            raise InvalidInputError(
                f"The 'method' setting must name a class of methods. Got {self.method!r} instead, which is {found!r}; "
                "derive a class from surelabel.engine.method.Method, and name that."
            )
        given = {"negative_weight": self.negative_weight} if self.method == "ups" else self.method_parameters
        made = f"The method {self.method!r} cannot be made with method_parameters={self.method_parameters}"
        return functools.partial(_make_method, made, found, given)

    def for_trained_network(self) -> Self:
        """Return the settings for a network that gets trained weights, so that no file of initial weights is read."""
        if self.model is None or self._pretrained is None:
            return self
        parameter = inspect.signature(resolve(self.model, self.model_hash)).parameters.get("pretrained")
        if parameter is None or parameter.default is parameter.empty:
            return self
        rest = {name: value for name, value in self.model_parameters.items() if name != "pretrained"}
        return self.replace(model_parameters=rest, pretrained_hash=None)

    def check_size(self, sample_shape: tuple[int, ...], num_classes: int) -> None:
        """Refuse a listed network whose weights would take more memory than a file may, before it is made.

        For runs of other people: a few digits in their settings can ask for any amount.
        """
        import torch

        make = self.for_trained_network()._factory()
        with failing(f"The network cannot be made for samples of shape {sample_shape}"), torch.device("meta"):
            weights = make(sample_shape, num_classes).state_dict().values()
        size, most = self.members * sum(tensor.nbytes for tensor in weights), most_bytes(0)
        if size > most:
            raise InvalidInputError(
                f"The network for samples of shape {sample_shape} would take {size:,} bytes of memory, and at most "
                f"{most:,} are allowed; if that is what it should be, set {MAX_BYTES} to a larger number."
            )

    def _factory(self) -> "ModelFactory":
        from surelabel.models.table import table_network

        if self.model is None:
            return functools.partial(table_network, hidden=self.hidden, dropout=self.dropout, noise=self.noise)
        factory: ModelFactory = self._resolved("model")
        if not self.model_parameters:
            return factory
        made = f"The model {self.model!r} cannot be made with model_parameters={self.model_parameters}"
        check_call(made, factory, self.model_parameters, ((), 0))
        weights = None if self._pretrained is None else (self._pretrained, self.pretrained_hash)
        if weights is not None:
            _weights_hash(*weights)
        return functools.partial(_make_network, factory, self.model_parameters, made, weights)

    @property
    def _pretrained(self) -> str | None:
        """The file of weights that networks begin with; a factory of your own may mean something else by the name."""
        path = self.model_parameters.get("pretrained")
        if not isinstance(path, str):
            return None

        from surelabel.models.pretrained import SUFFIXES

        return path if path.endswith(SUFFIXES) else None

    def _estimator(self, task: Task, layers: tuple[type, ...] | None = None) -> "UncertaintyEstimator":
        from surelabel.uncertainty import check_estimator

        make = self._estimator_class()
        shared: dict[str, Any] = {"task": task, "passes": self.passes, "temperature": self.temperature}
        takes = inspect.signature(make).parameters
        told = {name: value for name, value in shared.items() if name in takes}
        if "stochastic_layers" in takes:
            told["stochastic_layers"] = self._layers() if layers is None else layers
        given = self.uncertainty_parameters
        made = f"The estimator {self.uncertainty!r} cannot be made with uncertainty_parameters={given}"
        estimator: UncertaintyEstimator = call(made, make, given, told=told)
        check_estimator(estimator, task)
        return estimator

    def _estimator_class(self) -> "type[UncertaintyEstimator]":
        found = self._resolved("uncertainty")
        if not (isinstance(found, type) and hasattr(found, "estimate")):
            raise InvalidInputError(
                f"The 'uncertainty' setting must name a class of estimators. Got {self.uncertainty!r} instead, which "
                f"is {found!r}; derive a class from surelabel.uncertainty.UncertaintyEstimator, and name that."
            )
        return found

    def _layers(self) -> tuple[Any, ...]:
        hashes = self.layer_hashes or (None,) * len(self.stochastic_layers)
        return tuple(map(resolve, self.stochastic_layers, hashes))

    def _warn_of_ignored(self) -> None:
        if self.model is not None:
            ignored = ["hidden", "dropout", "noise"]
            warn_of_changed(self, ignored, f"model={self.model!r} is a network of your own")
        takes = inspect.signature(self._estimator_class()).parameters
        ignored = [name for name in _OF_ALL_ESTIMATORS if name not in takes]
        warn_of_changed(self, ignored, f"uncertainty={self.uncertainty!r} does without")


class SklearnLearnerSettings(CodeSettings):
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

    _LISTED: ClassVar = {"estimator": CLASSIFIERS}

    kind: Literal["sklearn"] = "sklearn"
    estimator: str
    estimator_hash: str | None = None
    parameters: dict[str, JSONScalar] = Field(default_factory=dict)
    members: int = Field(10, ge=2, le=MOST_PASSES)
    temperature: float = Field(2.0, ge=TEMPERATURES[0], le=TEMPERATURES[1])
    negatives: Literal["auto", "expand", "ignore"] = "auto"
    max_copies: int = Field(4, ge=0, le=MOST_SAMPLES)
    predict_batch_size: int = Field(4096, ge=1, le=MOST_SAMPLES)

    @model_validator(mode="after")
    def _check_processes(self) -> Self:
        asked = self.parameters.get("n_jobs")
        if isinstance(asked, int | float) and asked > MOST_PROCESSES:
            raise ValueError(f"The 'n_jobs' parameter must be at most {MOST_PROCESSES}. Got {asked} instead")
        return self

    def build(self, task: Task, progress: Progress | None = None) -> "SklearnLearner":
        """Return the learner; refuse a file.py whose content has changed."""
        from surelabel.learners.sklearn import SklearnLearner

        made = f"The estimator {self.estimator!r} cannot be made with parameters={self.parameters}"
        return SklearnLearner(
            call(made, self._resolved("estimator"), self.parameters),
            **self.model_dump(include={"members", "temperature", "negatives", "max_copies", "predict_batch_size"}),
            progress=progress,
            task=task,
        )


def _make_method(made: str, create: type, given: dict[str, Any], task: Task, training: TrainingSettings) -> Any:
    return call(made, create, given, told={"task": task, "settings": training})


def _make_network(
    factory: "ModelFactory",
    parameters: dict[str, Any],
    made: str,
    weights: tuple[str, str | None] | None,
    sample_shape: tuple[int, ...],
    num_classes: int,
) -> "Module":
    if weights is not None:
        # Every time: each round reads the file anew, and must find what the first has found.
        _weights_hash(*weights)
    with failing(made, "Correct the parameters."):
        return factory(sample_shape, num_classes, **parameters)


def _weights_hash(path: str, expected: str | None = None) -> str:
    """Return the content hash of a file of weights; refuse another than is expected."""
    plain = os.path.isfile(path) or not os.path.exists(path)  # a pipe or a device would be read for ever
    try:
        found = file_hash(path) if plain else None
    except OSError as error:
        raise InvalidInputError(
            f"The model's parameter 'pretrained' names the file '{path}', which cannot be read ({error.strerror}); "
            "check the path and the folder that it starts from."
        ) from error
    if found is None:
        raise InvalidInputError(
            f"The model's parameter 'pretrained' names '{path}', which is not a plain file; name a file of weights."
        )
    if expected not in (None, found):
        raise changed_file(path, str(expected), found)
    return found


def warn_of_changed(settings: Settings, names: list[str], why: str) -> None:
    """Warn of settings that were changed from their defaults and are not used."""
    fields = type(settings).model_fields
    changed = [name for name in names if getattr(settings, name) != fields[name].get_default()]
    if changed:
        warnings.warn(f"Ignored: {', '.join(changed)}, because {why}.", UserWarning, stacklevel=4)
