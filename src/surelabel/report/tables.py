"""A report's numbers, from run folders alone: runs grouped into rows, means and deviations, judged labels."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.base.references import portable_settings
from surelabel.base.text import visible
from surelabel.data.pool import Floats, PoolLabels
from surelabel.data.run_data import Codes
from surelabel.errors import InvalidInputError
from surelabel.learners.settings import LATER, TorchLearnerSettings
from surelabel.runs import RunFolder
from surelabel.settings import RunSettings

Mask = npt.NDArray[np.bool_]
Variant = Literal["supervised", "method alone", "no selection", "no UA", "no UA (Cal.)", "no NL", "UPS"]
"""The rows of the paper's table 5; and a method that learns from the pool too, without rounds."""


class Statistic(NamedTuple):
    """Mean and standard deviation (n - 1) over a row's runs; std is None for one run.

    Example:
        >>> f"{Statistic(0.9132, 0.0117, 3):.3f}", f"{Statistic(0.5, None, 1):.0%}"
        ('0.913 ± 0.012', '50%')
    """

    mean: float
    std: float | None
    number: int

    def __format__(self, spec: str) -> str:
        return " ± ".join(format(value, spec) for value in (self.mean, self.std) if value is not None)


@dataclass(frozen=True)
class Row:
    """The runs that share a name, in a table one row: the same settings with other seeds."""

    name: str
    runs: tuple[RunFolder, ...]

    def name_of(self, run: RunFolder) -> str:
        """Return the name of one of the row's runs, for tables with a line for each."""
        if len(self.runs) == 1:
            return self.name
        return f"{self.name}, {run.path.name}" if run.settings.name else str(run.path)

    @property
    def num_rounds(self) -> int:
        """How many rounds every run of the row has finished, round 0 included."""
        return min(run.num_rounds for run in self.runs)

    @property
    def has_truth(self) -> bool:
        """Whether the pool's true labels are known, at least some, in every run."""
        return all(run.truth is not None for run in self.runs)

    @property
    def has_validation_truth(self) -> bool:
        """Whether every run has a validation set whose labels are known."""
        return all(run.validation_truth is not None for run in self.runs)

    @property
    def has_uncertainty(self) -> bool:
        """Whether every run estimated uncertainties."""
        parts = [[(run.pool, run.has_pool), (run.validation, run.has_validation)] for run in self.runs]
        return all(any(there and of(0).uncertainty is not None for of, there in part) for part in parts)


class TextTable(NamedTuple):
    """A table as text: the names of the columns, and a list of cells for each line, its name first."""

    header: list[str]
    lines: list[list[str]]

    def markdown(self) -> str:
        """Return the table in Markdown; a bar or a tag in a cell is shown as it is.

        Example:
            >>> print(TextTable(["row", "labels"], [["UPS", "20"]]).markdown())
            | row | labels |
            |---|---|
            | UPS | 20 |
        """
        lines = ["| " + " | ".join(map(in_markdown, cells)) + " |" for cells in (self.header, *self.lines)]
        return "\n".join([lines[0], "|" + "---|" * len(self.header), *lines[1:]])

    def without_empty(self) -> "TextTable":
        """Return the table without columns that have only dashes, or without lines if nothing is left."""
        kept = [at for at, cells in enumerate(zip(*self.lines, strict=True)) if at == 0 or set(cells) != {"–"}]
        lines = [[line[at] for at in kept] for line in self.lines]
        return TextTable([self.header[at] for at in kept], lines if len(kept) > 1 else [])


class JudgedLabels(NamedTuple):
    """Pseudo-labels whose truth is known, of all runs of a row, shape (N,) each.

    For task "multi" an entry is one class of one sample, and its confidence is max(p, 1 - p).

    Attributes:
        confidence: of the label.
        uncertainty: of the label; None after one deterministic pass.
        right: the label is the true one.
        selected: the next round learns from it.
    """

    confidence: Floats
    uncertainty: Floats | None
    right: Mask
    selected: Mask


def group_runs(runs: Sequence[RunFolder]) -> list[Row]:
    """Return one row per name, in order of first appearance.

    A run without a name has its folder's name, and is in a row with others only if just their seeds differ. Rows whose
    names would be equal are called by their first run's path.
    """
    if not runs:
        raise InvalidInputError("'runs' is empty; give at least one run folder.")
    groups: dict[tuple[str, str], list[RunFolder]] = {}
    for run in runs:
        if not run.num_rounds:
            raise InvalidInputError(f"The run in '{run.path}' has no finished round; resume it, or leave it out.")
        name = run.settings.name
        group = (name, "") if name else (run.path.name, all_but_seed(_of_one_split(run.settings)))
        groups.setdefault(group, []).append(run)
    names = [name for name, _ in groups]
    return [
        Row(name if names.count(name) == 1 else str(members[0].path), tuple(members))
        for (name, _), members in groups.items()
    ]


def _of_one_split(settings: RunSettings) -> RunSettings:
    """Return the settings without the seed of a validation share, which `fit` sets to the run's."""
    data = settings.data
    if data is None or not hasattr(data, "validation_seed"):
        return settings
    return settings.replace(data=data.replace(validation_seed=0))


def main_row(rows: Sequence[Row]) -> Row:
    """Return the row for detailed figures: of those with rounds, the last one with uncertainties."""
    return max(rows, key=lambda row: (row.num_rounds > 1, row.has_uncertainty, rows.index(row)))


def variant_of(run: RunFolder) -> Variant:
    """Return which variant of the method (table 5) a run is, judged by its settings, not by its name."""
    config = run.settings.config
    if config.max_rounds == 0:
        return "supervised" if method_of(run) in ("ups", None) else "method alone"
    if config.kappa_p < math.inf:
        return "UPS" if config.negatives else "no NL"
    if config.tau_p == 0 or (config.task == "multi" and config.tau_p <= config.gamma <= config.tau_n):
        return "no selection"
    return "no UA" if run.pool(0).uncertainty is None else "no UA (Cal.)"


def method_of(run: RunFolder) -> str | None:
    """Return the name of the method by which a run's network learns within a round; None for a learner in memory."""
    learner = run.settings.learner
    if learner is None:
        return None
    # A scikit-learn classifier learns from labels and selected labels alone, as a network by the rule of UPS does.
    return learner.method.rpartition(":")[2] if isinstance(learner, TorchLearnerSettings) else "ups"


def trained_with(runs: Sequence[RunFolder]) -> str:
    """Return what the model of round 0 was trained with, before any label was selected.

    By the rule of UPS these are "the labels alone". Other methods also learn from the pool: "flexmatch alone". Of
    different methods, or a learner in memory, it is only known that there was "no selected label".
    """
    methods = {method_of(run) for run in runs}
    method = methods.pop() if len(methods) == 1 else None
    if method is None:
        return "no selected label"
    return "the labels alone" if method == "ups" else f"{method} alone"


def all_but_seed(settings: RunSettings, *others: str) -> str:
    """Return all settings as text, except the name, the seed, what follows from it, and these settings of the config.

    Code and weights in files are given by name, so that they are the same in another copy of a repository.
    """
    values = portable_settings(settings.to_json())
    for name in ("name", "fingerprint", "keep_models", "checkpoint_minutes"):
        values.pop(name)
    for name in ("seed", *others):
        values["config"].pop(name)
    if (values["learner"] or {}).get("method") == LATER["method"]:
        values["learner"] = {name: value for name, value in values["learner"].items() if name not in LATER}
    ((values["data"] or {}).get("arguments") or {}).pop("seed", None)
    return json.dumps(values, sort_keys=True)


def statistic(values: Sequence[float | None]) -> Statistic | None:
    """Return mean and standard deviation of the values that are not None; None if all are.

    Example:
        >>> statistic([1.0, None, 3.0])
        Statistic(mean=2.0, std=1.4142135623730951, number=2)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    std = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return Statistic(float(np.mean(known)), std, len(known))


def share_text(values: Sequence[float | None]) -> str:
    """Return mean ± standard deviation of shares in percent; a dash where there is none.

    Example:
        >>> share_text([0.5, 0.75]), share_text([None])
        ('62.50 ± 17.68', '–')
    """
    return number_text([None if value is None else 100 * value for value in values], ".2f")


def number_text(values: Sequence[float | None], spec: str = ",.0f") -> str:
    """Return mean ± standard deviation of numbers, by default counts; a dash where there is none."""
    found = statistic(values)
    return "–" if found is None else format(found, spec)


def by_round(row: Row, name: str) -> list[Statistic | None]:
    """Return a number of the records, round by round, for the rounds that every run has finished."""
    histories = [run.records() for run in row.runs]
    return [statistic([getattr(history[round], name) for history in histories]) for round in range(row.num_rounds)]


def judged_labels(row: Row, network: int, validation: bool = False) -> JudgedLabels:
    """Return the labels that a round's network gives the pool (or the validation set), where the truth is known.

    Args:
        row: its runs are concatenated.
        network: the round; -1 is each run's last.
        validation: judge the validation set instead.
    """
    return join_judged([_judge(run, network, validation) for run in row.runs])


def join_judged(parts: Sequence[JudgedLabels]) -> JudgedLabels:
    """Concatenate the labels of several runs."""
    together: Any = zip(*parts, strict=True)
    joined: Any = (None if any(part is None for part in of) else np.concatenate(of) for of in together)
    return JudgedLabels(*joined)


def labels_and_truth(run: RunFolder, network: int, validation: bool = False) -> tuple[PoolLabels, Codes]:
    """Return the labels that a round's network gives the pool (or the validation set), and the true ones."""
    labels = run.validation(network) if validation else run.pool(network)
    truth = run.validation_truth if validation else run.truth
    assert truth is not None
    return labels, truth


def _judge(run: RunFolder, network: int, validation: bool) -> JudgedLabels:
    labels, truth = labels_and_truth(run, network, validation)
    multi = labels.label.ndim == 2
    return judge(labels, truth, labels.positive | labels.selection.negative if multi else labels.positive)


def judge(labels: PoolLabels, truth: Codes, selected: Mask) -> JudgedLabels:
    """Return labels, and which of them are selected, where the truth is known."""
    known, confidence = truth >= 0, labels.confidence
    if labels.label.ndim == 2:
        confidence = np.maximum(confidence, 1 - confidence)
    uncertainty = None if labels.uncertainty is None else labels.uncertainty[known]
    return JudgedLabels(confidence[known], uncertainty, (labels.label == truth)[known], selected[known])


def in_markdown(text: str) -> str:
    """Return text that Markdown shows unchanged, even dollars, which GitHub reads as mathematics."""
    return re.sub(r"[\\|<$*`\[]", r"\\\g<0>", visible(" ".join(text.split())))
