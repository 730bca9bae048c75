"""What an experiment is made of: data sets with their recipes, cells with the paper's figures, tables of such cells."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from surelabel.errors import InvalidInputError
from surelabel.recipes.variants import Variant
from surelabel.runs import RunSettings

Channels: TypeAlias = tuple[float, float, float]

Labels: TypeAlias = int | float
"""How much is labeled: a number of samples or, as a float, a share of them; 0.2 is 20 %."""

Paper: TypeAlias = tuple[float, float | None] | None
"""The paper's mean and standard deviation, None where it gives none."""

RecipeName = Literal["paper", "fast"]
RECIPES: tuple[RecipeName, ...] = ("fast", "paper")

Metric = Literal["error", "accuracy", "mAP", "validation error"]
ELEVEN = "mAP, 11 points"
"""The other mean average precision: the paper does not say which of the two it reports."""


@dataclass(frozen=True)
class DataSet:
    """A data set and the two recipes that learn from it.

    Attributes:
        name: what a table calls it.
        function: reference to the function that makes a run's data.
        mean: of the channels over the training samples, of values in 0 to 1.
        std: their standard deviation.
        paper: `(data set, labels, seed, **more)`: the complete settings of UPS as the paper has them; more is
            `num_validation`, and a `network` where the data set has several.
        fast: makes the settings of the fast recipe of them.
    """

    name: str
    function: str
    mean: Channels
    std: Channels
    paper: Callable[..., RunSettings]
    fast: Callable[[RunSettings], RunSettings]


@dataclass(frozen=True)
class Entry:
    """One cell of a table: a row's recipe for one data set and number of labels, and what the paper reports.

    Attributes:
        row: its name, as in the paper.
        dataset: what is learned from.
        labels: how many of its training samples are labeled, or what share of them.
        paper: what the paper reports.
        variant: makes the row of UPS's settings; None: another method, which is not run.
        network: what learns; None: the data set's own.
        num_validation: labels on top.
    """

    row: str
    dataset: DataSet
    labels: Labels
    paper: Paper = None
    variant: Variant | None = None
    network: str | None = None
    num_validation: int = 0

    def base(self, seed: int, recipe: RecipeName) -> RunSettings:
        """Return the complete settings of UPS that the row is made of."""
        more: dict[str, Any] = {"network": self.network, "num_validation": self.num_validation}
        asked = {name: value for name, value in more.items() if value}
        settings = self.dataset.paper(self.dataset, self.labels, seed, **asked)
        return settings if recipe == "paper" else self.dataset.fast(settings)

    def of(self, base: RunSettings) -> RunSettings:
        """Return the complete settings of the row.

        Example:
            >>> from surelabel.recipes import variants
            >>> from surelabel.recipes.cifar import CIFAR10
            >>> entry = Entry("Supervised", CIFAR10, 1000, variant=variants.supervised)
            >>> entry.of(entry.base(0, "paper")).config.max_rounds
            0
        """
        assert self.variant is not None
        return self.variant(base).replace(name=self.row)


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Attributes:
        name: what the command line calls it.
        title: what it shows.
        entries: its cells.
        metric: what the figures are, in percent and on the test set; "validation error": what a recipe is chosen by.
    """

    name: str
    title: str
    entries: tuple[Entry, ...]
    metric: Metric = "error"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What our figures are: the same, and of mean average precisions both.

        Example:
            >>> Experiment("table", "A table", (), "mAP").metrics
            ('mAP', 'mAP, 11 points')
        """
        return ("mAP", ELEVEN) if self.metric == "mAP" else (self.metric,)


def metric_text(metric: str) -> str:
    """Return a metric with the samples that it is of.

    Example:
        >>> metric_text("error"), metric_text("validation error")
        ('test error', 'validation error')
    """
    return metric if metric.startswith("validation") else f"test {metric}"


def rows(dataset: DataSet, labels: Labels, *named: tuple[str, Variant], num_validation: int = 0) -> tuple[Entry, ...]:
    """Return entries that the paper has no figure for."""
    return tuple(Entry(row, dataset, labels, None, variant, num_validation=num_validation) for row, variant in named)


def labels_text(labels: Labels) -> str:
    """Return how much is labeled as a table says it.

    Example:
        >>> labels_text(500), labels_text(0.2)
        ('500', '20 %')
    """
    return f"{100 * labels:g} %" if isinstance(labels, float) else str(labels)


def parse_labels(text: str) -> Labels:
    """Return what `labels_text` has said, with or without the space.

    Example:
        >>> parse_labels("500"), parse_labels("20%")
        (500, 0.2)
    """
    number, percent = text.removesuffix("%").strip(), text.endswith("%")
    try:
        return float(number) / 100 if percent else int(number)
    except ValueError as error:
        raise InvalidInputError(
            f"The labels must be a number of samples, 500, or a share of them, 20%. Got {text!r} instead."
        ) from error
