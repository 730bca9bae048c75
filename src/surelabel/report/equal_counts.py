"""UPS against confidence alone on the same network, at equal numbers of labels of each class.

For each class, as many positives are taken by the highest confidence as UPS selects: what is left is how well each
ranks labels. The interval is a paired bootstrap over the pool's samples: samples are drawn with replacement, and the
accuracies of the fixed selections are computed anew.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surelabel.core.metrics import Interval
from surelabel.errors import InvalidInputError
from surelabel.report.first_selection import METHODS, NetworkPair, check_pair, share
from surelabel.report.tables import Mask, Statistic, TextTable, percent, statistic

RESAMPLES = 2000
_BLOCK = 1 << 22


class Comparison(NamedTuple):
    """UPS and another selection of as many labels of each class.

    Attributes:
        other: "confidence" or "confidence (Cal.)".
        balanced: whether UPS's labels are those after balancing.
        number: of UPS's labels, over the runs.
        number_other: of the other's: fewer where the other has not as many labels of a class in all.
        accuracy: of UPS's labels.
        accuracy_other: of the other's.
        difference: UPS's accuracy minus the other's, the mean over the runs, with its 95 % interval.
    """

    other: str
    balanced: bool
    number: Statistic
    number_other: Statistic
    accuracy: Statistic
    accuracy_other: Statistic
    difference: Interval


class Chosen(NamedTuple):
    """Two selections of one pool, boolean (N,) each: which samples are in them, and where their labels are right."""

    ups: Mask
    ups_right: Mask
    other: Mask
    other_right: Mask


def most_confident(
    label: npt.NDArray[np.int64], confidence: npt.NDArray[Any], counts: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Mark the counts[c] most confident of the samples with label c, or all of them if they are fewer.

    Args:
        label: class indices (N,).
        confidence: of these labels (N,); of equal ones the first in order are marked.
        counts: how many of each class, C numbers.

    Returns:
        Boolean (N,).

    Example:
        >>> most_confident(np.array([0, 0, 1, 0]), np.array([0.7, 0.9, 0.6, 0.8]), [2, 1])
        array([False,  True,  True,  True])
    """
    marked = np.zeros(len(label), dtype=bool)
    for index, count in enumerate(counts):
        members = np.flatnonzero(label == index)
        marked[members[np.argsort(-confidence[members], kind="stable")[:count]]] = True
    return marked


def compare_at_equal_counts(
    pairs: Sequence[NetworkPair],
    other: str = "confidence",
    *,
    balanced: bool = False,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Comparison | None:
    """Compare UPS's first positives with as many by confidence of each class; None where there are none to compare.

    Args:
        pairs: of one network each; several are seeds of one recipe.
        other: "confidence" (one deterministic pass) or "confidence (Cal.)" (the mean of the stochastic passes).
        balanced: take UPS's positives after balancing.
        seed: draws the resamples.
        resamples: how many.
    """
    if other not in METHODS[:2]:
        raise InvalidInputError(
            f"The 'other' argument must be one of {', '.join(map(repr, METHODS[:2]))}. Got {other!r} instead."
        )
    parts = [_chosen(pair, other, balanced) for pair in pairs]
    if not parts or not all(part.ups.any() and part.other.any() for _, part in parts):
        return None
    chosen = [part for _, part in parts]

    def over(values: Sequence[float | None]) -> Statistic:
        found = statistic(values)
        assert found is not None
        return found

    return Comparison(
        other=other,
        balanced=balanced,
        number=over([int(part.ups.sum()) for part in chosen]),
        number_other=over([int(part.other.sum()) for part in chosen]),
        accuracy=over([share(part.ups_right[part.ups]) for part in chosen]),
        accuracy_other=over([share(part.other_right[part.other]) for part in chosen]),
        difference=bootstrap_difference(parts, seed, resamples),
    )


def bootstrap_difference(
    parts: Sequence[tuple[npt.NDArray[Any], Chosen]], seed: int, resamples: int = RESAMPLES
) -> Interval:
    """Return the mean over runs of acc(UPS) - acc(other), and its 95 % interval over resampled samples.

    Samples with the same marks in all runs are alike, so that a resample is a draw of how many there are of each kind.
    A sample that several runs have is drawn for all of them together. A resample without any selected label of one
    side, which only tiny selections have, is left out.

    Args:
        parts: for each run the ids of its pool (N,), and the two selections.
        seed: draws the resamples.
        resamples: how many.
    """
    kinds, counts = np.unique(_marks_by_sample(parts), axis=0, return_counts=True)
    generator, number = np.random.default_rng(seed), int(counts.sum())
    step, differences = max(1, _BLOCK // len(kinds)), []
    for start in range(0, resamples, step):
        drawn = generator.multinomial(number, counts / number, size=min(step, resamples - start))
        differences.append(_difference(drawn @ kinds))
    low, high = np.nanquantile(np.concatenate(differences), [0.025, 0.975])
    return Interval(float(_difference(counts[None] @ kinds)[0]), float(low), float(high))


def comparison_table(pairs: Sequence[NetworkPair]) -> TextTable:
    """Return UPS against both ways of confidence, before and after balancing where that changes the selection."""
    header = [
        "at equal count and classes",
        "labels",
        "UPS right (%)",
        "confidence right (%)",
        "difference",
        "95 % interval",
    ]
    lines: list[list[str]] = []
    stages = (False, True) if any(_is_balanced(pair) for pair in pairs) else (False,)
    for balanced in stages:
        for other in METHODS[:2]:
            found = compare_at_equal_counts(pairs, other, balanced=balanced)
            if found is not None:
                when = f", {'after' if balanced else 'before'} balancing" if len(stages) > 1 else ""
                lines.append([f"UPS − {other}{when}", *_cells(found)])
    return TextTable(header, lines)


def _cells(found: Comparison) -> list[str]:
    mean, low, high = (100 * value for value in found.difference)
    accuracies = [f"{percent(value):.2f}" for value in (found.accuracy, found.accuracy_other)]
    difference = [text.replace("-", "−") for text in (f"{mean:+.2f}", f"{low:+.2f} to {high:+.2f}")]
    number, other = (f"{value.mean:,.0f}" for value in (found.number, found.number_other))
    return [number if number == other else f"{number} / {other}", *accuracies, *difference]


def _is_balanced(pair: NetworkPair) -> bool:
    pool = pair.stochastic.pool(0)
    return bool((pool.positive_before != pool.positive).any())


def _chosen(pair: NetworkPair, other: str, balanced: bool) -> tuple[npt.NDArray[Any], Chosen]:
    """The ids of the samples whose truth is known, and both selections of them."""
    check_pair(pair)
    spread, truth = pair.stochastic.pool(0), pair.stochastic.truth
    assert truth is not None
    known = truth >= 0
    ups: Mask = (spread.positive if balanced else spread.positive_before) & known
    pool = pair.deterministic.pool(0) if other == METHODS[0] else spread
    ranked = most_confident(pool.label[known], pool.confidence[known], spread.class_counts(ups).tolist())
    right, right_other = (part.label[known] == truth[known] for part in (spread, pool))
    return spread.ids[known], Chosen(ups[known], right, ranked, right_other)


def _marks_by_sample(parts: Sequence[tuple[npt.NDArray[Any], Chosen]]) -> npt.NDArray[np.float64]:
    """For each sample of any run: in UPS, right in UPS, in the other, right in the other; shape (N, 4 * runs)."""
    ids = np.unique(np.concatenate([np.asarray(part_ids) for part_ids, _ in parts]))
    marks = np.zeros((len(ids), 4 * len(parts)))
    for index, (part_ids, chosen) in enumerate(parts):
        columns = [chosen.ups, chosen.ups & chosen.ups_right, chosen.other, chosen.other & chosen.other_right]
        marks[np.searchsorted(ids, part_ids), 4 * index : 4 * index + 4] = np.stack(columns, axis=1)
    return marks


def _difference(sums: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """acc(UPS) - acc(other), the mean over runs, from sums of the marks (B, 4 * runs); NaN where one has no label."""
    ups, ups_right, other, other_right = np.moveaxis(sums.reshape(len(sums), -1, 4), -1, 0)
    with np.errstate(invalid="ignore"):
        means: npt.NDArray[np.float64] = (ups_right / ups - other_right / other).mean(axis=1)
    return means
