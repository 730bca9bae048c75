"""Which model a run keeps, judged on held-out labels: a linear model, that of round 0 or that of the last round.

All are judged on the same held-out samples: the validation set, or in cross-validation the labeled samples, each by
models that have not learned from it. The last round's model is kept unless another is clearly better, by more than the
standard error of the difference. With one label per sample, if only one candidate is right about b of n samples and
only the other about c, the difference is (b - c) / n, and it is clear if (b - c)² > b + c.

The common rule, to keep the simplest model within one standard error, is not used: with five labels per class nearly
every model is within it, and the linear model was kept although networks were better (docs/trust.md).

The labels are those of `surelabel label`: from the stochastic passes, with the run's thresholds and no balancing.
"""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from surelabel.core.metrics import Interval, map_change, map_interval, mean_average_precision, share_interval
from surelabel.core.thresholds import HeldOutLabels, Thresholds
from surelabel.data.pool import PoolLabels, join
from surelabel.data.targets import Codes
from surelabel.runs import layout
from surelabel.runs.files import damaged, read_file
from surelabel.runs.tables import Table, check_table, from_tables, table_bytes, table_from_bytes, to_tables
from surelabel.runs.tables import truth_codes as truth_of
from surelabel.settings import RunSettings

Candidate = Literal["linear", "first", "last"]
"""A linear model of the labels, the network of round 0, and that of the last round."""
CANDIDATES: tuple[Candidate, ...] = get_args(Candidate)
"""The simplest first."""

FEWEST = 20
"""With fewer samples than this, a bootstrap is not informative."""


class Judged(NamedTuple):
    """A candidate's labels of held-out samples, and their truth: (N,), or (N, C) with -1 where unknown."""

    labels: PoolLabels
    truth: Codes

    @property
    def value(self) -> float:
        """The share of right labels, or the mean average precision; 0 if no class has a known positive."""
        labels, truth = self
        if truth.ndim == 1:
            return float((labels.label == truth).mean())
        found = mean_average_precision(labels.confidence, truth == 1, truth >= 0)
        return 0.0 if found is None else found.uninterpolated

    @property
    def score(self) -> Interval:
        """The value with its 95 % interval. With several labels, this is a bootstrap and takes long.

        With fewer than `FEWEST` multi-label samples, or no positive, no interval can be computed: it is 0 to 1.
        """
        labels, truth = self
        if truth.ndim == 1:
            return share_interval(int((labels.label == truth).sum()), len(truth))
        if len(truth) < FEWEST or not (truth == 1).any():
            return Interval(self.value, 0.0, 1.0)
        return map_interval(labels.confidence, truth == 1, truth >= 0)


def choose(judged: Mapping[Candidate, Judged]) -> Candidate:
    """Return the last candidate, which learned from the most samples, or the best of those that are clearly better."""
    last = next(name for name in reversed(CANDIDATES) if name in judged)
    others = [name for name in CANDIDATES if name in judged and name != last]
    better = [name for name in others if is_clear(judged[name], judged[last])]
    return max(better, key=lambda name: (judged[name].value, CANDIDATES.index(name)), default=last)


def is_clear(better: Judged, other: Judged) -> bool:
    """Whether a candidate is better than another by more than the standard error of the difference."""
    truth = better.truth
    if truth.ndim == 1:
        right, wrong = better.labels.label == truth, other.labels.label != truth
        gained, lost = int((wrong & right).sum()), int((~wrong & ~right).sum())
        return gained > lost and (gained - lost) ** 2 > gained + lost
    if not (truth == 1).any():
        return False
    change = map_change(other.labels.confidence, better.labels.confidence, truth == 1, truth >= 0)
    # A normal distribution's 95 % interval is 3.92 standard errors wide.
    return change.mean > (change.high - change.low) / 3.92


@dataclass(frozen=True)
class Comparison:
    """A run's comparison, as stored in its folder.

    Attributes:
        path: the run's folder.
        settings: of the run.
        content: of comparison.json.
    """

    path: Path
    settings: RunSettings
    content: dict[str, Any]

    @classmethod
    def read(cls, path: Path, settings: RunSettings, last_round: int) -> "Comparison | None":
        """Return the comparison in a run's folder; None if there is none for the last round."""
        if settings.comparison is None or not (path / layout.COMPARISON).exists():
            return None
        found = cls(path, settings, layout.read_document(path, layout.COMPARISON))
        for number, fold in enumerate(found.content["folds"]):
            if not all(name.startswith(layout.fold_file(number, "")) for name in fold["files"]):
                raise damaged(path / layout.COMPARISON, f"fold {number} has files of another one")
        return found if found.content["round"] == last_round else None

    @property
    def kept(self) -> Candidate | None:
        """Which model is kept; None if it is not chosen yet."""
        kept: Candidate | None = self.content["kept"]
        return kept

    @property
    def num_folds(self) -> int:
        """How many folds are done; a validation set counts as one."""
        return len(self.content["folds"])

    @property
    def judge(self) -> str:
        """Return what the models are judged on, such as "cross-validation (5 folds)"."""
        by_folds = self.content["judged_by"] == "cross-validation"
        folds = "1 fold" if self.num_folds == 1 else f"{self.num_folds} folds"
        return f"cross-validation ({folds})" if by_folds else "validation set"

    @property
    def promise(self) -> Thresholds | None:
        """The thresholds that were chosen for the kept model's labels; None if not asked for."""
        values = self.content["promise"]
        if values is None:
            return None
        infinite = values["tau_p"] is not None and values["kappa_p"] is None
        return Thresholds(**{**values, "kappa_p": np.inf if infinite else values["kappa_p"]})

    def judged(self) -> dict[Candidate, Judged]:
        """Return the held-out labels of each candidate that is in all folds, read once; empty without a fold."""
        return self._labels

    @functools.cached_property
    def _labels(self) -> dict[Candidate, Judged]:
        folds = self.content["folds"]
        names = [
            name for name in CANDIDATES if folds and all(_file(k, name) in f["files"] for k, f in enumerate(folds))
        ]
        return {name: self._judged(name) for name in names}

    def verify(self) -> None:
        """Check every file; raise `DamagedFileError` for the first that is not as it was written."""
        dataclasses.replace(self).judged()  # reads anew
        if self.content["linear"] is not None:
            self.linear_model()

    def linear_model(self) -> bytes:
        """Return the checked content of the linear model's file."""
        return read_file(self.path / layout.LINEAR_MODEL, self.content["linear"])

    def _judged(self, name: Candidate) -> Judged:
        parts, truths = [], []
        for number in range(self.num_folds):
            file, negatives = _file(number, name), _file(number, f"{name}_negatives")
            table = self._table(number, file, negatives=False)
            try:
                parts.append(from_tables(table, self._table(number, negatives, negatives=True)))
            except ValueError as error:
                raise damaged(self.path / negatives, error) from error
            truth = truth_of(table)
            if truth is None:
                raise damaged(self.path / file, "it has no true label")
            truths.append(truth)
        return Judged(join(parts), np.concatenate(truths))

    def _table(self, number: int, name: str, *, negatives: bool) -> Table:
        files = self.content["folds"][number]["files"]
        if name not in files:
            raise damaged(self.path / layout.COMPARISON, f"fold {number} has no '{name}'")
        data = read_file(self.path / name, files[name])
        try:
            table = table_from_bytes(data)
            check_table(table, self.settings.config.task, self.settings.classes, negatives=negatives)
        except (ValueError, RecursionError) as error:
            raise damaged(self.path / name, error) from error
        return table


def fold_contents(number: int, labels: Mapping[Candidate, PoolLabels], truth: Codes, classes: Any) -> dict[str, bytes]:
    """Return the files of a fold, by their names in the run's folder."""
    contents: dict[str, bytes] = {}
    for name, part in labels.items():
        tables = map(table_bytes, to_tables(part, classes, truth))
        contents |= dict(zip((_file(number, name), _file(number, f"{name}_negatives")), tables, strict=True))
    return contents


def as_held_out(labels: PoolLabels, truth: Codes, known: npt.NDArray[np.bool_]) -> HeldOutLabels:
    """Return the positive labels of the known samples, and which of them are wrong."""
    wide = (slice(None), None) if labels.label.ndim == 1 else ()
    label = np.ones_like(labels.label, dtype=bool) if labels.label.ndim == 1 else labels.label == 1
    return HeldOutLabels(
        confidence=labels.confidence[wide][known],
        uncertainty=None if labels.uncertainty is None else labels.uncertainty[wide][known],
        label=label[wide][known],
        wrong=(label & (labels.label != truth))[wide][known],
    )


def pool_as_held_out(labels: PoolLabels) -> HeldOutLabels:
    """Return a pool's positive labels, none of them marked as wrong."""
    return as_held_out(labels, labels.label, np.ones(len(labels), dtype=bool))


def all_known(truth: Codes) -> npt.NDArray[np.bool_]:
    """Which samples have all of their labels known, (N,): a partly labeled one cannot be judged as a whole."""
    return np.asarray((truth.reshape(len(truth), -1) >= 0).all(axis=1))


def _file(number: int, name: str) -> str:
    return layout.fold_file(number, f"{name}.parquet")
