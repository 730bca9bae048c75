import numpy as np
import pytest

from surelabel.core.selection import Selection
from surelabel.data.source import ArraySource
from surelabel.data.targets import dense
from surelabel.data.training_set import LABELED, NEGATIVE, POSITIVE, known_targets, make_problem

X = np.arange(10.0).reshape(5, 2)
POOL = np.arange(6.0).reshape(3, 2)


def masks(*rows: str) -> np.ndarray:
    return np.array([[mark == "1" for mark in row] for row in rows])


def test_labels_become_targets_that_may_all_be_learned_from() -> None:
    y, g = dense(known_targets("labeled", np.array([1, 0]), "single", 3), np.arange(2))
    assert np.array_equal(y, masks("010", "100"))
    assert g.all()


def test_unknown_entries_may_not_be_learned_from() -> None:
    y, g = dense(known_targets("labeled", np.array([[1, -1], [0, 1]]), "multi"), np.arange(2))
    assert np.array_equal(y, masks("10", "01"))
    assert np.array_equal(g, masks("10", "11"))


def test_a_selection_adds_rows_of_each_kind() -> None:
    problem = make_problem((X, np.array([0, 1, 2, 0, 1])), POOL, "single")
    selection = Selection(masks("100", "000", "000"), masks("001", "011", "000"))
    training_set = problem.training_set(selection)
    assert training_set.rows.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert training_set.kind.tolist() == [LABELED] * 5 + [POSITIVE, NEGATIVE]
    assert np.array_equal(training_set.y[5:], masks("100", "000", "000"))
    # A sample with a positive does not need its negatives.
    assert np.array_equal(training_set.g[5:], masks("100", "011", "000"))


def test_round_0_learns_from_the_labels_alone() -> None:
    training_set = make_problem((X, np.array([0, 1, 2, 0, 1])), POOL, "single").training_set(None)
    assert training_set.rows.tolist() == [0, 1, 2, 3, 4]
    assert len(training_set.source) == 8


def test_partly_labeled_rows_are_in_the_pool_too() -> None:
    labels = np.array([[1, 0], [0, 1], [1, -1], [0, 1], [1, 0]])
    problem = make_problem((X, labels), POOL, "multi")
    assert problem.pool_rows.tolist() == [2, 5, 6, 7]
    assert np.array_equal(problem.known, masks("10"))
    # The network says of the partly labeled row: not class 0, but class 1. Class 0 is known, so only class 1 counts.
    selection = Selection(masks("01", "00", "00", "00"), masks("10", "00", "00", "00"))
    training_set = problem.training_set(selection)
    assert np.array_equal(training_set.y[2:3], masks("11"))
    assert training_set.g[2].all()


def test_the_pool_is_handed_on_as_it_was_given() -> None:
    pool = ArraySource(POOL, ids=np.array([7, 8, 9]))
    problem = make_problem((ArraySource(X, ids=np.arange(5)), np.array([0, 1, 0, 1, 0])), pool, "single")
    assert problem.pool is pool


def test_default_ids_never_clash() -> None:
    problem = make_problem((X, np.array([0, 1, 0, 1, 0])), POOL, "single")
    assert problem.pool.ids.tolist() == [0, 1, 2]
    assert len(np.unique(problem.source.ids)) == 8


@pytest.mark.parametrize(
    ("labeled", "task", "message"),
    [
        (X, "single", r"must be a pair \(samples, labels\)"),
        ((X, np.array([0, 1, 0, 1])), "single", "got 5 and 4 labels"),
        ((X, np.array([0, 1, 0, 1, -1])), "single", "got -1; unlabeled samples belong into 'unlabeled'"),
        ((X, np.array([0.0, 1, 0, 1, 0])), "single", "must be integers; got float64"),
        ((X, np.array([[0], [1], [0], [1], [0]])), "single", r"class indices of shape \(N,\); got shape \(5, 1\)"),
        ((X, np.array([0, 1, 0, 1, 0])), "multi", r"of shape \(N, C\); got shape \(5,\)"),
        ((X, np.array([0, 2, 0, 2, 0])), "single", "Class 1 has no label"),
        ((X, np.array([0, 0, 0, 0, 0])), "single", "one class only"),
        ((X, np.array([[1, -1]] * 5)), "multi", r"Class 1 has no label \(all of its entries are unknown\)"),
        ((X, np.array([[1, 2]] * 5)), "multi", r"must lie in \[-1, 1\]; got 2"),
        ((X[:0], np.array([], dtype=int)), "single", "got 0 and 0 labels"),
    ],
)
def test_bad_labels_are_named(labeled: object, task: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_problem(labeled, POOL, task)


def test_labels_of_another_number_of_classes_are_refused() -> None:
    labels = np.array([[1, 0, 1]] * 5)
    problem = make_problem((X, labels), POOL, "multi")
    with pytest.raises(ValueError, match="validation must have a column for each of the 3 classes; got 2"):
        problem.held_out("validation", (X, labels[:, :2]))
    with pytest.raises(ValueError, match="truth must have a column for each of the 3 classes; got 2"):
        problem.pool_truth(labels[:3, :2])
    with pytest.raises(ValueError, match="labeled must have a column for each of the 5 classes; got 3"):
        make_problem((X, labels), POOL, "multi", num_classes=5)


def test_samples_of_two_kinds_are_refused() -> None:
    torch = pytest.importorskip("torch")
    both = make_problem((X, np.array([0, 1, 0, 1, 0])), torch.as_tensor(POOL), "single").source
    with pytest.raises(ValueError, match="of one kind; got ndarray and Tensor"):
        both[np.arange(8)]


def test_clashing_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="names 2 samples; give unique ids"):
        make_problem((ArraySource(X, ids=np.arange(5)), np.array([0, 1, 0, 1, 0])), POOL, "single")
