"""Accuracy, and average precision by both definitions, each against a reference of its own."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from surelabel.core.metrics import (
    AveragePrecision,
    accuracy,
    average_precision,
    class_average_precisions,
    mean_average_precision,
)

RANKINGS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40).filter(
    lambda rows: any(present for _, present in rows)
)
"""Scores (few, so that many are equal) and whether the class is there."""


def columns(rows: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([score for score, _ in rows]) / 5, np.array([present for _, present in rows])


def devkit_average_precision(rows: list[tuple[int, bool]]) -> Fraction:
    """VOC2007's definition: over t = 0, 0.1, ..., 1, the mean of the largest precision at a recall of at least t."""
    number = sum(present for _, present in rows)
    points = []
    for threshold in {score for score, _ in rows}:
        found = [present for score, present in rows if score >= threshold]
        points.append((Fraction(sum(found), number), Fraction(sum(found), len(found))))
    return sum((max(p for r, p in points if r >= Fraction(t, 10)) for t in range(11)), Fraction()) / 11


def test_accuracy_counts_rows_whose_largest_p_is_right() -> None:
    p = np.array([[0.5, 0.5], [0.1, 0.9], [0.8, 0.2]])
    assert accuracy(p, np.array([[True, False], [False, True], [False, True]])) == pytest.approx(2 / 3)


def test_average_precision_by_hand() -> None:
    # Precision 1, 1/2, 2/3, 1/2, 3/5 at recall 1/3, 1/3, 2/3, 2/3, 1: the points 0 to 0.3 see 1, to 0.6 2/3, to 1 3/5.
    present = np.array([True, False, True, False, True])
    found = average_precision(np.array([0.9, 0.8, 0.7, 0.6, 0.5]), present)
    assert found.uninterpolated == pytest.approx((1 + 2 / 3 + 3 / 5) / 3)
    assert found.eleven_point == pytest.approx((4 * 1 + 3 * 2 / 3 + 4 * 3 / 5) / 11)


@given(RANKINGS)
def test_uninterpolated_average_precision_agrees_with_scikit_learn_also_at_ties(rows: list[tuple[int, bool]]) -> None:
    score, present = columns(rows)
    assert average_precision(score, present).uninterpolated == pytest.approx(average_precision_score(present, score))


@given(RANKINGS)
def test_eleven_points_agree_with_the_definition_of_voc2007(rows: list[tuple[int, bool]]) -> None:
    assert average_precision(*columns(rows)).eleven_point == pytest.approx(float(devkit_average_precision(rows)))


@pytest.mark.parametrize("number", [10, 20, 30, 70])
def test_a_recall_of_exactly_a_tenth_reaches_its_point(number: int) -> None:
    # A positive and then nine negatives, again and again: at each tenth of the recall a float may fall short of it.
    rows = [(10 * number - place, place % 10 == 0) for place in range(10 * number)]
    assert average_precision(*columns(rows)).eleven_point == pytest.approx(float(devkit_average_precision(rows)))


@given(RANKINGS, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(rows: list[tuple[int, bool]], random: object) -> None:
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert average_precision(*columns(rows)) == average_precision(*columns(shuffled))


def test_unknown_entries_and_classes_without_a_positive_are_left_out() -> None:
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]])
    y = np.array([[True, False], [False, False], [True, False]])
    g = np.array([[True, True], [False, True], [True, True]])
    assert class_average_precisions(p, y, g) == [AveragePrecision(1.0, 1.0), None]
    assert mean_average_precision(p, y, g) == AveragePrecision(1.0, 1.0)
    assert mean_average_precision(p, np.zeros_like(y), g) is None


def test_the_mean_is_over_the_classes_that_are_scored() -> None:
    rng = np.random.default_rng(0)
    p, y, g = rng.random((40, 4)), rng.random((40, 4)) < 0.3, rng.random((40, 4)) < 0.8
    y[:, 2] = False
    found = class_average_precisions(p, y, g)
    assert [one is None for one in found] == [False, False, True, False]
    expected = [average_precision_score(y[g[:, c], c], p[g[:, c], c]) for c in (0, 1, 3)]
    mean = mean_average_precision(p, y, g)
    assert mean is not None
    assert mean.uninterpolated == pytest.approx(np.mean(expected))
    assert mean.eleven_point == pytest.approx(np.mean([found[c].eleven_point for c in (0, 1, 3)]))  # type: ignore[union-attr]
