"""The parts of an experiment: data sets with their recipes, cells with the paper's numbers, tables of cells.

`--set split=2` sets an argument of the recipe or of the function that makes the data; what can be set is checked here.
"""

import contextlib
import inspect
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from surelabel.base.references import resolve
from surelabel.base.settings import JSONScalar, mistakes
from surelabel.data.run_data import FunctionData
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.reproduce.variants import Variant
from surelabel.settings import RunSettings, UPSConfig

Channels: TypeAlias = tuple[float, float, float]

Labels: TypeAlias = int | float
"""How much is labeled: a number of samples or, as a float, a share of them; 0.2 is 20 %."""

PLACES = ("folder", "cache")
"""Arguments of data sets that say where files are, and do not change the data."""

Paper: TypeAlias = tuple[float, float | None] | None
"""The paper's mean and standard deviation, None where it gives none."""

Arguments: TypeAlias = Mapping[str, JSONScalar]
"""Arguments for a data set's recipe or its function, by name."""

RecipeName = Literal["paper", "fast", "best"]
RECIPES: tuple[RecipeName, ...] = ("fast", "paper")
"""The recipes of the paper's rows; "best" is only for our own row."""

Metric = Literal["error", "accuracy", "mAP", "validation error"]
ELEVEN = "mAP, 11 points"
"""The other mean average precision: the paper does not say which of the two it reports."""


@dataclass(frozen=True)
class DataSet:
    """A data set and the recipes that learn from it.

    Attributes:
        name: in tables.
        function: reference to the function that makes a run's data.
        mean: of the channels over the training samples, of values in 0 to 1.
        std: their standard deviation.
        paper: `(data set, labels, seed, **more)`: the complete settings of UPS as in the paper; `more` is
            `num_validation`, a `network` if the data set has several, and other arguments of the recipe.
        fast: the same for the fast recipe.
        best: the settings of UPS with consistency; None: there are none.
    """

    name: str
    function: str
    mean: Channels
    std: Channels
    paper: Callable[..., RunSettings]
    fast: Callable[..., RunSettings]
    best: Callable[..., RunSettings] | None = None

    def ups(
        self, config: UPSConfig, model: str, parameters: Arguments, training: TrainingSettings, **arguments: JSONScalar
    ) -> RunSettings:
        """Return the settings of UPS on this data set.

        Args:
            config: how labels are selected.
            model: reference to the network.
            parameters: what the network is made with.
            training: how it is trained; the augmentation's mean and std are the data set's.
            arguments: of the function that makes the data, except the seed.
        """
        assert training.augment is not None
        training = training.replace(augment=training.augment.replace(mean=self.mean, std=self.std))
        return RunSettings(
            name="UPS",
            config=config,
            learner=TorchLearnerSettings(model=model, model_parameters=dict(parameters), training=training),
            data=FunctionData(function=self.function, arguments={"seed": config.seed, **arguments}),
        )


@dataclass(frozen=True)
class Entry:
    """One cell of a table: a row's recipe for one data set and number of labels, and what the paper reports.

    Attributes:
        row: its name, as in the paper.
        dataset: what is learned from.
        labels: how many of its training samples are labeled, or what share of them.
        paper: what the paper reports.
        variant: makes the row from UPS's settings; None: another method, which is not run.
        network: its name; None: the data set's own.
        num_validation: additional labels for validation.
        metric: of its figures; None: that of the experiment.
        recipe: its only recipe, whichever is asked for; None: the one asked for.
    """

    row: str
    dataset: DataSet
    labels: Labels
    paper: Paper = None
    variant: Variant | None = None
    network: str | None = None
    num_validation: int = 0
    metric: Metric | None = None
    recipe: RecipeName | None = None

    @property
    def where(self) -> str:
        """Data set and number of labels."""
        return f"{self.dataset.name}-{labels_text(self.labels)}"

    def base(self, seed: int, recipe: RecipeName, arguments: Arguments | None = None) -> RunSettings:
        """Return the complete settings of UPS from which the row is made.

        Args:
            seed: draws the split, and everything random in the run.
            recipe: which is asked for.
            arguments: for the data set; those that equal the default or are not `settable` here are ignored.
        """
        more: dict[str, Any] = {"network": self.network, "num_validation": self.num_validation}
        of_recipe = {name: value for name, value in more.items() if value}
        of_data = self._changed(arguments) if arguments else {}
        for name in _parameters(self.dataset.paper).keys() & of_data.keys():
            of_recipe[name] = of_data.pop(name)
        make: Callable[..., RunSettings] | None = getattr(self.dataset, recipe)
        if make is None:
            raise InvalidInputError(f"The data set {self.dataset.name!r} has no recipe {recipe!r}; leave out the row.")
        settings = make(self.dataset, self.labels, seed, **of_recipe)
        assert isinstance(settings.data, FunctionData)
        return settings.replace(data=settings.data.replace(arguments={**settings.data.arguments, **of_data}))

    def settable(self) -> dict[str, inspect.Parameter]:
        """Return the settable arguments: those of the data set's function, and of its recipe.

        Arguments that the experiment or the recipe sets itself are not among them: seed, labels, network, validation
        samples.

        Example:
            >>> from surelabel.reproduce.ucf101 import UCF101
            >>> list(Entry("UPS", UCF101, 0.2).settable())
            ['split', 'folder', 'groups', 'on_error', 'cache', 'test_windows']
        """
        data = self.base(0, "paper").data
        assert isinstance(data, FunctionData)
        set_here = {"seed", "labels", "share", "network", "num_validation", "validation_share"}
        of_data = _parameters(resolve(data.function))
        free = {name: of_data[name] for name in of_data if name not in set_here | data.arguments.keys()}
        of_recipe = list(_parameters(self.dataset.paper).items())[3:]
        return free | {name: parameter for name, parameter in of_recipe if name not in set_here}

    def defaults(self) -> dict[str, Any]:
        """Return the defaults that settings leave out: arguments of the data's function and of the network's.

        Example:
            >>> from surelabel.reproduce.cifar import CIFAR10
            >>> Entry("UPS", CIFAR10, 1000).defaults()["learner.model_parameters.weight_norm"]
            False
        """
        settings = self.base(0, "paper")
        parts = {"data.arguments": self.dataset.function, "learner.model_parameters": settings.network.model}
        return {
            f"{part}.{name}": parameter.default
            for part, function in parts.items()
            for name, parameter in (_parameters(resolve(function)) if function else {}).items()
            if parameter.default is not inspect.Parameter.empty
        }

    def _changed(self, arguments: Arguments) -> dict[str, JSONScalar]:
        known = self.settable()
        given = {name: value for name, value in arguments.items() if name in known}
        # A run may be opened from another folder.
        paths = {name: os.path.expanduser(str(given[name])) for name in PLACES if given.get(name)}
        given |= {name: os.path.abspath(path) for name, path in paths.items()}
        return {name: value for name, value in given.items() if value != known[name].default}

    def of(self, base: RunSettings) -> RunSettings:
        """Return the complete settings of the row.

        Example:
            >>> from surelabel.reproduce import variants
            >>> from surelabel.reproduce.cifar import CIFAR10
            >>> entry = Entry("Supervised", CIFAR10, 1000, variant=variants.supervised)
            >>> entry.of(entry.base(0, "paper")).config.max_rounds
            0
        """
        assert self.variant is not None
        return self.variant(base).replace(name=self.row)

    def sets_length(self) -> bool:
        """Whether the row sets its own rounds or steps, other than no rounds.

        Example:
            >>> from surelabel.reproduce.cifar import CIFAR10
            >>> Entry("10 steps", CIFAR10, 1000, variant=lambda ups: ups.with_training(steps=10)).sets_length()
            True
        """
        base, number = self.base(0, self.recipe or "fast"), 999_983  # which no row sets
        row = self.of(base.replace(config=base.config.replace(max_rounds=number)).with_training(steps=number))
        return row.config.max_rounds not in (0, number) or row.network.training.steps != number


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes:
        name: on the command line.
        title: what it shows.
        entries: its cells.
        metric: of figures in percent on the test set, unless an entry has its own; "validation error" is for choosing
            recipes.
        equal_minutes: its rows can only be compared at equal minutes, so that it needs a budget.
    """

    name: str
    title: str
    entries: tuple[Entry, ...]
    metric: Metric = "error"
    equal_minutes: bool = False

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of our figures, over all entries.

        Example:
            >>> from surelabel.reproduce.paper import experiment
            >>> experiment("table4").metrics
            ('mAP', 'mAP, 11 points')
        """
        return tuple(dict.fromkeys(metric for entry in self.entries for metric in self.metrics_of(entry)))

    def metrics_of(self, entry: Entry) -> tuple[str, ...]:
        """Return an entry's metrics: its own, else the experiment's; for mean average precision, both versions."""
        metric = entry.metric or self.metric
        return ("mAP", ELEVEN) if metric == "mAP" else (metric,)


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the arguments that a function takes by name."""
    of_names = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters
    return {name: parameter for name, parameter in parameters.items() if parameter.kind in of_names}


def metric_text(metric: str) -> str:
    """Return a metric with the name of its samples.

    Example:
        >>> metric_text("error"), metric_text("validation error")
        ('test error', 'validation error')
    """
    return metric if metric.startswith("validation") else f"test {metric}"


def rows(dataset: DataSet, labels: Labels, *named: tuple[str, Variant], **more: Any) -> tuple[Entry, ...]:
    """Return entries that the paper has no figure for; `more` are other attributes of `Entry`."""
    return tuple(Entry(row, dataset, labels, None, variant, **more) for row, variant in named)


def table(
    columns: Sequence[tuple[DataSet, Labels]], lines: Mapping[str, tuple[Any, ...]], network: str | None = None
) -> tuple[Entry, ...]:
    """Return the cells of a table with the figures that were published, row by row.

    Args:
        columns: data set and number of labels of each column.
        lines: for each row its variant (None: another method, which is not run), then the published number in each
            column: the mean, or the mean and its standard deviation. None: there is none.
        network: what learns, if it is not the data set's own network.
    """
    return tuple(
        Entry(row, *column, (value, None) if isinstance(value, float) else value, variant, network)
        for row, (variant, *values) in lines.items()
        for column, value in zip(columns, values, strict=True)
        if variant is not None or value is not None
    )


def labels_text(labels: Labels) -> str:
    """Return how much is labeled, as in tables.

    Example:
        >>> labels_text(500), labels_text(0.2)
        ('500', '20 %')
    """
    return f"{100 * labels:g} %" if isinstance(labels, float) else str(labels)


def parse_labels(text: str) -> Labels:
    """Return the value for a text of `labels_text`, with or without the space.

    Example:
        >>> parse_labels("500"), parse_labels("20%")
        (500, 0.2)
    """
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else int(text)
    except ValueError as error:
        raise InvalidInputError(f"labels must be a number, 500, or a share, 20%; got {text!r}.") from error


def slug(text: str) -> str:
    """Return a name that is safe for a folder.

    >>> slug("UPS, no UA (Cal.)-0"), slug("ucf101-20 %")
    ('ups-no-ua-cal-0', 'ucf101-20-percent')
    """
    safe = re.sub(r"[^a-z0-9._]+", "-", text.lower().replace("%", "percent"))
    return safe.replace(".-", "-").strip("-.")


def parse_arguments(texts: Sequence[str]) -> dict[str, JSONScalar]:
    """Return the value of each "NAME=VALUE": JSON if it is a number, true, false, null or quoted, else text.

    Example:
        >>> parse_arguments(["split=2", "groups=true", "on_error=skip"])
        {'split': 2, 'groups': True, 'on_error': 'skip'}
    """
    found: dict[str, JSONScalar] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()) or name in found:
            raise InvalidInputError(f"Set an argument once, by NAME=VALUE, such as split=2; got {text!r}.")
        with contextlib.suppress(ValueError):
            parsed = json.loads(value, parse_constant=str)  # NaN and Infinity are not JSON
            value = value if isinstance(parsed, dict | list) else parsed
        found[name] = value
    return found


def check_arguments(entries: Sequence[Entry], arguments: Arguments) -> None:
    """Refuse arguments that cannot be set, for one of these entries or at all.

    Example:
        >>> from surelabel.reproduce.voc2007 import VOC2007
        >>> check_arguments([Entry("UPS", VOC2007, 500)], {"side": 128, "difficult": "absent"})
    """
    for entry in {entry.dataset: entry for entry in entries}.values():
        known, dataset = entry.settable(), entry.dataset.name
        for name, value in arguments.items():
            if name not in known:
                able = f"{', '.join(known) or 'nothing'} can. Choose data sets that take it with --data"
                raise InvalidInputError(f"The argument {name!r} of {dataset} cannot be set; {able}.")
            kind = known[name].annotation
            try:
                if not isinstance(kind, str) and kind is not inspect.Parameter.empty:
                    TypeAdapter(kind).validate_python(value, strict=True)
            except PydanticUserError:  # a type that pydantic does not know
                continue
            except ValidationError as error:
                problem = error.errors()[0]["msg"]
                raise InvalidInputError(f"{name!r} of {dataset} cannot be set so: {problem}. Got {value!r}.") from error
        try:
            entry.base(0, "paper", arguments)
        except ValidationError as error:
            raise InvalidInputError(f"{dataset} cannot be set so. {' '.join(mistakes(error))}") from error
