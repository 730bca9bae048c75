"""Settings of learners: everything that defines a learner, as plain text; code is named by reference."""

import errno
import functools
import inspect
import os
import warnings
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from surelabel.base import settings as limits
from surelabel.base import trust
from surelabel.base.defaults import MAX_COPIES, PREDICT_BATCH_SIZE, FitDefaults
from surelabel.base.references import call, changed_file, check_call, failing, file_hash, pin, resolve
from surelabel.base.settings import Device, JSONScalar, Settings
from surelabel.base.system import Progress
from surelabel.base.text import MAX_BYTES, SUFFIXES, most_bytes
from surelabel.base.trust import Reference
from surelabel.core.labels import Task
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError

if TYPE_CHECKING:
    from surelabel.learners.network import MethodFactory, ModelFactory, TorchLearner
    from surelabel.learners.sklearn import SklearnLearner
    from surelabel.uncertainty import UncertaintyEstimator

JSONValue: TypeAlias = JSONScalar | tuple[int, ...]
Units = Annotated[int, Field(ge=1, le=limits.MOST_UNITS)]
Passes = Annotated[int, Field(ge=2, le=limits.MOST_PASSES)]
Temperature = Annotated[float, Field(ge=limits.TEMPERATURES[0], le=limits.TEMPERATURES[1])]

OF_TABLES = ["hidden", "dropout", "noise", "together"]
"""Settings of the default network alone."""
ESTIMATORS = {
    "mc-dropout": "surelabel.uncertainty:MCDropout",
    "mc-spatial-dropout": "surelabel.uncertainty:MCSpatialDropout",
    "mc-dropblock": "surelabel.uncertainty:MCDropBlock",
    "augmentation": "surelabel.uncertainty:RandomAugmentation",
    "deep-ensemble": "surelabel.uncertainty:DeepEnsemble",
    "none": "surelabel.uncertainty:Deterministic",
}
"""The names of our estimators of p and u in settings."""

METHODS = {
    "ups": "surelabel.methods.ups:UPSMethod",
    "pi-model": "surelabel.methods.pi_model:PiModel",
    "mean-teacher": "surelabel.methods.mean_teacher:MeanTeacher",
    "ict": "surelabel.methods.ict:ICT",
    "mixmatch": "surelabel.methods.mixmatch:MixMatch",
    "fixmatch": "surelabel.methods.fixmatch:FixMatch",
    "flexmatch": "surelabel.methods.flexmatch:FlexMatch",
    "freematch": "surelabel.methods.freematch:FreeMatch",
    "softmatch": "surelabel.methods.softmatch:SoftMatch",
    "teacher-match": "surelabel.methods.teacher_match:TeacherMatch",
}
"""The names of our methods in settings."""

LATER: dict[str, Any] = {"method": "ups", "method_hash": None, "method_parameters": {}}
"""Settings that came after the first version, with their defaults, for which runs keep their old hashes."""

_OF_ALL_ESTIMATORS = ("passes", "temperature", "stochastic_layers")
"""Settings that are passed to every estimator with an argument of this name, as is the task."""


class CodeSettings(Settings):
    """Settings that name code: by a short name, or by a reference, with the content hash of its file beside it."""

    _LISTED: ClassVar[Mapping[str, Container[str]]]
    """The settings that name code, and the references that anyone's run may have there."""

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
            changes[name], changes[f"{name}_hash"] = pin(reference, getattr(self, f"{name}_hash"))
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
        model_parameters: further arguments of the function, by name. If "pretrained" names a file of weights
            (.safetensors, .pth, .pt), the run depends on its content too.
        pretrained_hash: content hash of that file; a network is not made from a file that differs.
        hidden: widths of the default network's hidden layers.
        dropout: rate after each hidden layer of the default network.
        noise: on the standardized features of the default network in training, in units of their typical difference to
            the nearest row; 0: none.
        together: ranges of the default network's features, (first, last + 1), that share one scale.
        training: how a network is trained.
        uncertainty: "mc-dropout", "mc-spatial-dropout", "mc-dropblock", "augmentation", "deep-ensemble"; "none" for
            selection by confidence alone; or an `UncertaintyEstimator` of your own, "file.py:Class".
        uncertainty_hash: content hash of that file.
        uncertainty_parameters: the estimator's own arguments, by name: {"block_size": 5}, {"members": 10}.
        passes: stochastic passes.
        temperature: of the softened probabilities.
        stochastic_layers: references to layer classes, besides dropout, that are random in training mode.
        layer_hashes: content hashes of their files, None for a module's.
        negative_weight: the weight of the negative learning term in UPS's learning rule.
        method: how a network learns within a round: "ups", another name of `METHODS`, or a `Method` of your own,
            "file.py:Class".
        method_hash: content hash of that file.
        method_parameters: the method's own arguments, by name.
        predict_batch_size: samples in one chunk of a prediction; None: 1024, or on a GPU as many as fill it.
        device: where the network lives; None: the GPU if there is one.
        threads: of a CPU; None: one for the default network, else torch's setting.
    """

    _LISTED: ClassVar = {"model": trust.NETWORKS, "uncertainty": trust.ESTIMATORS, "method": ()}

    kind: Literal["torch"] = "torch"
    model: str | None = None
    model_hash: str | None = None
    model_parameters: dict[str, JSONValue] = Field(default_factory=dict)
    pretrained_hash: str | None = None
    hidden: tuple[Units, ...] = Field(tuple(FitDefaults.hidden), max_length=limits.MOST_LAYERS)
    dropout: float = Field(0.3, ge=0, lt=1)
    noise: float = Field(0.0, ge=0, le=limits.MOST_NOISE)
    together: tuple[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]], ...] = ()
    training: TrainingSettings = TrainingSettings()
    uncertainty: str = "mc-dropout"
    uncertainty_hash: str | None = None
    uncertainty_parameters: dict[str, JSONScalar] = Field(default_factory=dict)
    passes: Passes = FitDefaults.passes
    temperature: Temperature = FitDefaults.temperature
    stochastic_layers: tuple[str, ...] = ()
    layer_hashes: tuple[str | None, ...] = ()
    negative_weight: float = Field(FitDefaults.negative_weight, ge=0, le=1e6)
    method: str = FitDefaults.method
    method_hash: str | None = None
    method_parameters: dict[str, JSONScalar] = Field(default_factory=dict)
    predict_batch_size: int | None = Field(None, ge=1, le=limits.MOST_SAMPLES)
    device: Device | None = FitDefaults.device
    threads: int | None = Field(None, ge=1, le=limits.MOST_PROCESSES)

    @model_serializer(mode="wrap")
    def _without_later(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out later settings that are not used, so that old runs keep their hashes."""
        values: dict[str, Any] = write(self)
        return {name: value for name, value in values.items() if name != "together" or value}

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for name, known in (("uncertainty", ESTIMATORS), ("method", METHODS)):
            value = getattr(self, name)
            if value not in known and ":" not in value:
                names = ", ".join(map(repr, known))
                raise ValueError(f"'{name}' must be one of {names}, or your own 'file.py:Class'; got {value!r}")
        shared = [name for name in (*_OF_ALL_ESTIMATORS, "task") if name in self.uncertainty_parameters]
        if shared:
            names = ", ".join(shared)
            raise ValueError(f"'uncertainty_parameters' must leave out {names}, which every estimator is given anyway")
        if self.layer_hashes and len(self.layer_hashes) != len(self.stochastic_layers):
            numbers = f"{len(self.stochastic_layers)} layers and {len(self.layer_hashes)} hashes"
            raise ValueError(f"'layer_hashes' must have one entry per layer; got {numbers}. Leave it out")
        if self.model is None and self.model_parameters:
            given = f"'model_parameters' are for a named 'model'; got {self.model_parameters}"
            raise ValueError(f"{given}. The default network has the settings hidden, dropout and noise")
        return self

    def references(self) -> Iterator[Reference]:
        """Yield all code that the settings name."""
        yield from super().references()
        yield from (Reference(layer, trust.LAYERS) for layer in self.stochastic_layers)

    def pinned(self) -> Self:
        """Return the settings with absolute paths and the content hash of each file that has none yet."""
        changes: dict[str, Any] = {}
        if self._pretrained is not None:
            changes["model_parameters"] = {**self.model_parameters, "pretrained": os.path.abspath(self._pretrained)}
            changes["pretrained_hash"] = self.pretrained_hash or _weights_hash(self._pretrained)
        hashes = self.layer_hashes or [None] * len(self.stochastic_layers)
        layers = [pin(*pair) for pair in zip(self.stochastic_layers, hashes, strict=True)]
        changes["stochastic_layers"], changes["layer_hashes"] = zip(*layers, strict=True) if layers else ((), ())
        return super().pinned().replace(**changes)

    def fit_settings(self) -> dict[str, Any]:
        """Return what a trained network depends on, as JSON; how it labels is left out.

        The estimator is ignored unless it prepares networks or trains several. For your own estimator, any of its
        arguments may do so; for ours, only their own parameters.
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
            make: a factory in memory, instead of the network that the settings name.
            layers: types in memory, instead of the stochastic layers that the settings name.
        """
        from surelabel.learners.network import TorchLearner

        estimator = self._estimator(task, layers)
        self._warn_of_ignored(type(estimator))
        return TorchLearner(
            make or self._factory(),
            training=self.training,
            uncertainty=estimator,
            method=self.make_method(),
            **self.model_dump(include={"predict_batch_size", "device", "threads"}),
            progress=progress,
            task=task,
        )

    def make_method(self) -> "MethodFactory":
        """Return the function of (task, training settings) that makes the method."""
        from surelabel.engine.method import Method

        found = self._resolved("method")
        if not (isinstance(found, type) and issubclass(found, Method)):
            wanted = "'method' must name a class derived from surelabel.engine.method.Method"
            raise InvalidInputError(f"{wanted}; got {self.method!r}, which is {found!r}.")
        if self.method == "ups" and self.method_parameters:
            problem = f"'method_parameters' are for other methods than 'ups'; got {self.method_parameters}"
            raise InvalidInputError(f"{problem}. The method 'ups' has the setting negative_weight.")
        given = {"negative_weight": self.negative_weight} if self.method == "ups" else self.method_parameters
        made = f"The method {self.method!r} cannot be made with method_parameters={self.method_parameters}"
        return functools.partial(call, made, found, given)

    def for_trained_network(self) -> Self:
        """Return the settings for a network that gets trained weights, so that no file of initial weights is read."""
        if self.model is None or self._pretrained is None:
            return self
        parameter = inspect.signature(self._resolved("model")).parameters.get("pretrained")
        if parameter is None or parameter.default is parameter.empty:
            return self
        rest = {name: value for name, value in self.model_parameters.items() if name != "pretrained"}
        return self.replace(model_parameters=rest, pretrained_hash=None)

    def check_size(self, sample_shape: tuple[int, ...], num_classes: int) -> None:
        """Refuse a listed network whose weights would take more memory than a file may, before it is made.

        This is for runs of other people: a few digits in their settings can ask for any amount.
        """
        import torch

        make = self.for_trained_network()._factory()
        with failing(f"The network cannot be made for samples of shape {sample_shape}"), torch.device("meta"):
            network = make(sample_shape, num_classes)
        # A list has all members of an ensemble.
        copies = 1 if isinstance(network, torch.nn.ModuleList) else self.members
        size, most = copies * sum(tensor.nbytes for tensor in network.state_dict().values()), most_bytes(0)
        if size > most:
            problem = f"The network for samples of shape {sample_shape} would take {size:,} bytes of memory"
            raise InvalidInputError(f"{problem}, and at most {most:,} are allowed; else set {MAX_BYTES} higher.")

    def _factory(self) -> "ModelFactory":
        from surelabel.models.table import table_network

        if self.model is None:
            return functools.partial(table_network, **{name: getattr(self, name) for name in OF_TABLES})
        factory: ModelFactory = self._resolved("model")
        if not self.model_parameters:
            return factory
        made = f"The model {self.model!r} cannot be made with model_parameters={self.model_parameters}"
        check_call(made, factory, self.model_parameters, (), 0)
        make = functools.partial(call, made, factory, self.model_parameters)
        if self._pretrained is None:
            return make
        _weights_hash(self._pretrained, self.pretrained_hash)
        return functools.partial(_make_with_weights, self._pretrained, self.pretrained_hash, make)

    @property
    def _pretrained(self) -> str | None:
        """The file of initial weights; your own factory may use the name "pretrained" for something else."""
        path = self.model_parameters.get("pretrained")
        return path if isinstance(path, str) and path.endswith(SUFFIXES) else None

    def _estimator(self, task: Task, layers: tuple[type, ...] | None = None) -> "UncertaintyEstimator":
        from surelabel.uncertainty import check_estimator

        make = self._resolved("uncertainty")
        if not (isinstance(make, type) and hasattr(make, "estimate")):
            wanted = "'uncertainty' must name a class derived from surelabel.uncertainty.UncertaintyEstimator"
            raise InvalidInputError(f"{wanted}; got {self.uncertainty!r}, which is {make!r}.")
        if layers is None:
            hashes = self.layer_hashes or [None] * len(self.stochastic_layers)
            layers = tuple(map(resolve, self.stochastic_layers, hashes))
        shared = {"task": task, "passes": self.passes, "temperature": self.temperature, "stochastic_layers": layers}
        takes = inspect.signature(make).parameters
        told = {name: value for name, value in shared.items() if name in takes}
        given = self.uncertainty_parameters
        made = f"The estimator {self.uncertainty!r} cannot be made with uncertainty_parameters={given}"
        estimator: UncertaintyEstimator = call(made, make, given, **told)
        check_estimator(estimator, task)
        return estimator

    def _warn_of_ignored(self, estimator: type) -> None:
        if self.model is not None:
            warn_of_changed(self, OF_TABLES, f"model={self.model!r} is a network of your own")
        if self.method != "ups":
            why = f"method={self.method!r} is not UPS's learning rule"
            warn_of_changed(self, ["negative_weight"], why)
            if self.method in METHODS:
                warn_of_changed(self.training, ["negative_batch_size"], why)
        takes = inspect.signature(estimator).parameters
        ignored = [name for name in _OF_ALL_ESTIMATORS if name not in takes]
        warn_of_changed(self, ignored, f"uncertainty={self.uncertainty!r} does without")


class SklearnLearnerSettings(CodeSettings):
    """What a `SklearnLearner` is made of.

    Attributes:
        estimator: reference to a classifier's class, "sklearn.ensemble:RandomForestClassifier", or to a function that
            returns a classifier.
        estimator_hash: content hash of file.py; `pinned` fills it in, and `build` refuses a file that differs.
        parameters: its arguments.
        members: how many resamples the ensemble is trained on.
        temperature: of the softened probabilities.
        negatives: "auto", "expand" or "ignore", see `SklearnLearner`.
        max_copies: rows with more remaining classes than this are left out.
        predict_batch_size: samples in one chunk of a prediction.
    """

    _LISTED: ClassVar = {"estimator": trust.CLASSIFIERS}

    kind: Literal["sklearn"] = "sklearn"
    estimator: str
    estimator_hash: str | None = None
    parameters: dict[str, JSONScalar] = Field(default_factory=dict)
    members: Passes = FitDefaults.passes
    temperature: Temperature = FitDefaults.temperature
    negatives: Literal["auto", "expand", "ignore"] = "auto"
    max_copies: int = Field(MAX_COPIES, ge=0, le=limits.MOST_SAMPLES)
    predict_batch_size: int = Field(PREDICT_BATCH_SIZE, ge=1, le=limits.MOST_SAMPLES)

    @model_validator(mode="after")
    def _check_processes(self) -> Self:
        asked = self.parameters.get("n_jobs")
        if isinstance(asked, int | float) and asked > limits.MOST_PROCESSES:
            raise ValueError(f"The 'n_jobs' parameter must be at most {limits.MOST_PROCESSES}; got {asked}")
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


def _make_with_weights(path: str, expected: str | None, make: "ModelFactory", *shape: Any) -> Any:
    # At every call: each round reads the file again, and must find the same content.
    _weights_hash(path, expected)
    return make(*shape)


def _weights_hash(path: str, expected: str | None = None) -> str:
    """Return the content hash of a file of weights; refuse an unexpected one."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device would be read forever
            raise OSError(errno.EINVAL, "it is not a plain file")
        found = file_hash(path)
    except OSError as error:
        problem = f"The model's parameter 'pretrained' names the file '{path}', which cannot be read ({error.strerror})"
        raise InvalidInputError(f"{problem}; check the path.") from error
    if expected not in (None, found):
        raise changed_file(path, str(expected), found)
    return found


def warn_of_changed(settings: Settings, names: list[str], why: str) -> None:
    """Warn about settings that differ from their defaults but are not used."""
    fields = type(settings).model_fields
    changed = [name for name in names if getattr(settings, name) != fields[name].get_default()]
    if changed:
        warnings.warn(f"Ignored: {', '.join(changed)}, because {why}.", UserWarning, stacklevel=4)
