import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from surelabel.metrics import accuracy, average_precision, mean_average_precision


def test_accuracy_counts_rows_whose_largest_p_is_right() -> None:
    p = np.array([[0.5, 0.5], [0.1, 0.9], [0.8, 0.2]])
    assert accuracy(p, np.array([[True, False], [False, True], [False, True]])) == pytest.approx(2 / 3)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_average_precision_agrees_with_scikit_learn_also_at_ties(rows: list[tuple[int, bool]]) -> None:
    score, present = np.array([r[0] for r in rows]) / 5, np.array([r[1] for r in rows])
    if present.any():
        assert average_precision(score, present) == pytest.approx(average_precision_score(present, score))


def test_unknown_entries_and_classes_without_a_positive_are_left_out() -> None:
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]])
    y = np.array([[True, False], [False, False], [True, False]])
    g = np.array([[True, True], [False, True], [True, True]])
    assert mean_average_precision(p, y, g) == 1.0
    assert mean_average_precision(p, np.zeros_like(y), g) is None
