"""A report's numbers, from run folders alone: runs grouped into rows, means and deviations, judged labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.data.pool import Floats, PoolLabels
from surelabel.errors import InvalidInputError
from surelabel.records import RoundRecord
from surelabel.runs import RunFolder

Mask = npt.NDArray[np.bool_]


class Statistic(NamedTuple):
    """Mean and standard deviation (n - 1) over a row's runs; std is None for one run.

    Example:
        >>> str(Statistic(0.9132, 0.0117, 3)), f"{Statistic(0.5, None, 1):.0%}"
        ('0.913 ± 0.012', '50%')
    """

    mean: float
    std: float | None
    number: int

    def __format__(self, spec: str) -> str:
        if self.std is None:
            return format(self.mean, spec)
        return f"{self.mean:{spec}} ± {self.std:{spec}}"

    def __str__(self) -> str:
        return format(self, ".3f")


@dataclass(frozen=True)
class Row:
    """The runs that share a name, in a table one row: the same settings with other seeds."""

    name: str
    runs: tuple[RunFolder, ...]

    @property
    def num_rounds(self) -> int:
        """How many rounds every run of the row has finished, round 0 included."""
        return min(run.num_rounds for run in self.runs)

    @property
    def has_truth(self) -> bool:
        """Whether the pool's true labels are known, at least some, in every run."""
        return all(run.truth is not None for run in self.runs)

    @property
    def has_uncertainty(self) -> bool:
        """Whether every run estimated uncertainties."""
        return all(run.pool(0).uncertainty is not None for run in self.runs)


class SummaryRow(NamedTuple):
    """What the last network of each run learned from and scored; None where no run has the number."""

    name: str
    seeds: int
    rounds: Statistic
    test_score: Statistic | None
    validation_score: Statistic | None
    num_positive: Statistic | None
    positive_accuracy: Statistic | None
    num_negative: Statistic | None
    negative_accuracy: Statistic | None
    minutes: Statistic


@dataclass(frozen=True)
class JudgedLabels:
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
    """Return one row per name, in the order in which the names first come; a nameless run is its folder's name."""
    if not runs:
        raise InvalidInputError("The 'runs' argument is empty: a report needs at least one run folder.")
    for run in runs:
        if not run.num_rounds:
            raise InvalidInputError(
                f"The run in '{run.path}' has no finished round yet; resume it first, or leave it out of the report."
            )
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(run.settings.name or run.path.name, []).append(run)
    return [Row(name, tuple(members)) for name, members in groups.items()]


def summarize(row: Row) -> SummaryRow:
    """Return mean ± standard deviation over the row's runs, of each run's last round."""
    last = [run.records()[-1] for run in row.runs]
    learned = [record for record in last if record.round > 0]

    def over(name: str, records: Sequence[RoundRecord] = last) -> Statistic | None:
        return statistic([getattr(record, name) for record in records])

    rounds, minutes = over("round"), over("minutes")
    assert rounds is not None
    assert minutes is not None
    return SummaryRow(
        name=row.name,
        seeds=len(last),
        rounds=rounds,
        test_score=over("test_score"),
        validation_score=over("validation_score"),
        num_positive=over("num_positive", learned),
        positive_accuracy=over("positive_accuracy"),
        num_negative=over("num_negative", learned),
        negative_accuracy=over("negative_accuracy"),
        minutes=minutes,
    )


def statistic(values: Sequence[float | None]) -> Statistic | None:
    """Return mean and standard deviation of the values that are there; None when none is.

    Example:
        >>> statistic([1.0, None, 3.0])
        Statistic(mean=2.0, std=1.4142135623730951, number=2)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    std = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return Statistic(float(np.mean(known)), std, len(known))


def by_round(row: Row, name: str) -> list[Statistic | None]:
    """Return a number of the records, round by round, over the rounds that every run has finished."""
    histories = [run.records() for run in row.runs]
    return [statistic([getattr(history[round], name) for history in histories]) for round in range(row.num_rounds)]


def judged_labels(row: Row, network: int, validation: bool = False) -> JudgedLabels:
    """Return the labels that a round's network gives the pool (or the validation set), where the truth is known.

    Args:
        row: its runs are put one after the other.
        network: the round; -1 is each run's last.
        validation: judge the validation set instead.
    """
    parts = [_judge(run, network, validation) for run in row.runs]

    def cat(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if any(array is None for array in arrays) else np.concatenate(arrays)

    return JudgedLabels(**{name: cat(name) for name in ("confidence", "uncertainty", "right", "selected")})


def _judge(run: RunFolder, network: int, validation: bool) -> JudgedLabels:
    labels = run.validation(network) if validation else run.pool(network)
    truth = run.validation_truth if validation else run.truth
    assert truth is not None
    known = truth >= 0
    confidence, selected = labels.confidence, labels.selection.positive.any(axis=1)
    if labels.label.ndim == 2:
        confidence = np.maximum(confidence, 1 - confidence)
        selected = labels.selection.positive | labels.selection.negative
    return JudgedLabels(
        confidence=confidence[known],
        uncertainty=None if labels.uncertainty is None else labels.uncertainty[known],
        right=(labels.label == truth)[known],
        selected=selected[known],
    )


def wrong_and_kept_out(labels: PoolLabels, truth: npt.NDArray[Any], kappa_p: float, above: float = 0.9) -> Any:
    """Return the samples (indices) of confidence > `above` that are wrong and whose u > kappa_p keeps them out.

    The most confident comes first. Task "single" only.
    """
    assert labels.uncertainty is not None
    wrong = (truth >= 0) & (labels.label != truth)
    kept_out = wrong & (labels.confidence > above) & (labels.uncertainty > kappa_p)
    found = np.flatnonzero(kept_out)
    return found[np.argsort(-labels.confidence[found], kind="stable")]
