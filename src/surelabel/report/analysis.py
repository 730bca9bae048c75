"""How much of the pool is used after some rounds: the figures in the paper's analysis (section 4.4).

"After 10 pseudo-labeling iterations, UPS selects about 93.12 % of the positive pseudo-labels with an accuracy of
90.29 %. Of the remaining 3371 samples ... negative pseudo-labels are selected for 2988 samples, with an average of 6.57
negative pseudo-labels per sample."
"""

from typing import NamedTuple

import numpy as np

from surelabel.errors import InvalidInputError
from surelabel.report.first_selection import share
from surelabel.report.tables import Row, TextTable, percent, statistic
from surelabel.runs import RunFolder

ROUND = 10


class PoolUse(NamedTuple):
    """What a round's network learned from. One label a sample.

    Attributes:
        positive_share: share of the pool with a positive label.
        positive_accuracy: share of these that is right; None where the truth is not known of any.
        without_positive: samples without one.
        with_negatives: how many of those have negative labels.
        negatives_per_sample: mean number of these labels; None without one.
    """

    positive_share: float
    positive_accuracy: float | None
    without_positive: float
    with_negatives: float
    negatives_per_sample: float | None


PAPER = PoolUse(0.9312, 0.9029, 3371, 2988, 6.57)
"""Section 4.4, CIFAR-10 with 1000 labels, after 10 rounds."""

_NAMES = {
    "positive_share": "share of the pool with a positive label (%)",
    "positive_accuracy": "of these right (%)",
    "without_positive": "samples without a positive label",
    "with_negatives": "of these with negative labels",
    "negatives_per_sample": "negative labels of each of these",
}


def reached_round(run: RunFolder, round: int = ROUND) -> int:
    """Return the round, or the last that the run has finished if that is an earlier one."""
    if run.num_rounds < 2 or round < 1:
        raise InvalidInputError(
            f"The 'round' argument must be at least 1, and the run must have finished a round after round 0. Got round "
            f"{round} of the run in '{run.path}', which has {run.num_rounds}; resume it, or give another."
        )
    return min(round, run.num_rounds - 1)


def analysis_text(run: RunFolder, round: int = ROUND, *, before_balancing: bool = False) -> PoolUse:
    """Return what the network of this round, or of the last one if there are fewer, learned from.

    Args:
        run: one label a sample.
        round: the selection after so many rounds.
        before_balancing: count the positives that balancing took away too.
    """
    if run.settings.config.task == "multi":
        raise InvalidInputError(
            f"The run in '{run.path}' must have one label a sample; with several, a sample has positives and negatives."
        )
    pool, truth = run.pool(reached_round(run, round) - 1), run.truth
    positive = pool.positive_before if before_balancing else pool.positive
    negatives = pool.negative.counts[~positive]
    used = negatives > 0
    return PoolUse(
        positive_share=float(positive.mean()),
        positive_accuracy=None if truth is None else share((pool.label == truth)[positive & (truth >= 0)]),
        without_positive=int((~positive).sum()),
        with_negatives=int(used.sum()),
        negatives_per_sample=float(np.mean(negatives[used])) if used.any() else None,
    )


def analysis_table(row: Row, paper: PoolUse | None = None, round: int = ROUND) -> TextTable:
    """Return the figures of a row's runs, mean ± standard deviation, beside the paper's if given."""
    reached = min(reached_round(run, round) for run in row.runs)
    columns = {f"learned from in round {reached}": [analysis_text(run, reached) for run in row.runs]}
    if any(run.records()[reached].balanced for run in row.runs):
        columns["before balancing"] = [analysis_text(run, reached, before_balancing=True) for run in row.runs]
    if paper is not None:
        columns[f"paper, round {ROUND}"] = [paper]
    lines = [[text, *(_use_text(name, uses) for uses in columns.values())] for name, text in _NAMES.items()]
    return TextTable(["", *columns], lines)


def _use_text(name: str, uses: list[PoolUse]) -> str:
    value = statistic([getattr(use, name) for use in uses])
    if value is None:
        return "–"
    if "(%)" in _NAMES[name]:
        return f"{percent(value):.2f}"
    return f"{value:.2f}" if name == "negatives_per_sample" else f"{value:,.0f}"
