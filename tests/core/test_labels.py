import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import KINDS, LOW_PRECISION, neighbors, probabilities, shapes

from surelabel.core.arrays import to_numpy
from surelabel.core.labels import pseudo_labels
from surelabel.errors import InvalidInputError

DTYPES = [torch.float32, torch.float64, *LOW_PRECISION]


def _reference_pseudo_labels(p: np.ndarray, task: str, gamma: float) -> list[list[bool]]:
    rounded = float(p.dtype.type(gamma))
    rows = []
    for row in p.tolist():
        best = row.index(max(row))
        rows.append([value >= rounded if task == "multi" else c == best for c, value in enumerate(row)])
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_single_label_marks_the_largest_probability_and_the_lowest_class_of_a_tie(kind):
    p = KINDS[kind](np.array([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [0.0, 0.0, 0.0]]))
    expected = [[False, True, False], [True, False, False], [True, False, False]]
    assert pseudo_labels(p).tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_multi_label_marks_every_class_from_gamma_on(kind):
    p = KINDS[kind](np.array([[0.2, 0.5, 0.9], [0.1, 0.2, 0.3]]))
    assert pseudo_labels(p, task="multi").tolist() == [[False, True, True], [False, False, False]]
    assert pseudo_labels(p, "multi", 0.25).tolist() == [[False, True, True], [False, False, True]]


@given(data=st.data(), shape=shapes(), task=st.sampled_from(["single", "multi"]), gamma=st.floats(0.01, 0.99))
def test_agrees_with_plain_loops_for_numpy_and_torch(data, shape, task, gamma):
    p = data.draw(probabilities(shape, data.draw(st.sampled_from([np.float32, np.float64]))))
    expected = _reference_pseudo_labels(p, task, gamma)
    assert pseudo_labels(p, task, gamma).tolist() == expected
    assert pseudo_labels(torch.from_numpy(p), task, gamma).tolist() == expected


@given(data=st.data(), shape=shapes())
def test_single_label_rows_have_exactly_one_label_and_multi_label_shrinks_with_gamma(data, shape):
    p = data.draw(probabilities(shape))
    single = pseudo_labels(p)
    assert (single.sum(axis=1) == 1).all()
    assert (p[single] == p.max(axis=1)).all()
    low, high = sorted(data.draw(st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99))))
    assert not (pseudo_labels(p, "multi", high) & ~pseudo_labels(p, "multi", low)).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gamma", [0.5, 0.3, 0.7, 1 / 3])
def test_gamma_is_rounded_to_the_dtype_of_p_and_included(dtype, gamma):
    p = torch.stack(neighbors(gamma, dtype)).reshape(1, 3)
    assert pseudo_labels(p, "multi", gamma).tolist() == [[False, True, True]]
    if dtype is not torch.bfloat16:
        assert pseudo_labels(p.numpy(), "multi", gamma).tolist() == [[False, True, True]]


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_low_precision_ties_go_to_the_lowest_class(dtype):
    p = torch.tensor([[0.25, 0.375, 0.375], [0.5, 0.25, 0.5]], dtype=dtype)
    assert pseudo_labels(p).tolist() == [[False, True, False], [True, False, False]]


def test_keeps_the_kind_and_the_shape_and_returns_booleans():
    p = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    labels = pseudo_labels(p)
    assert isinstance(labels, torch.Tensor)
    assert (labels.dtype, labels.shape, labels.requires_grad) == (torch.bool, p.shape, False)
    assert pseudo_labels([[0, 1], [1, 0]]).tolist() == [[False, True], [True, False]]
    assert pseudo_labels(torch.tensor([[0, 1]])).tolist() == [[False, True]]
    assert pseudo_labels(to_numpy(p).T).shape == (3, 4)


def test_values_within_rounding_of_the_interval_are_accepted():
    assert pseudo_labels([[-5e-7, 1 + 5e-7]]).tolist() == [[False, True]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([[0.5, 1.1]], r"'p' argument must hold probabilities in \[0, 1\].*to 1.1 instead; take the softmax"),
        ([[-0.1, 0.5]], r"'p' argument must hold probabilities.*from -0.1"),
        ([[1.0 + 2e-6, 0.5]], "'p' argument must hold probabilities"),
        ([[float("nan"), 0.5]], "'p' argument must hold probabilities.*without NaN.*nan"),
        ([[float("inf"), 0.5]], "'p' argument must hold probabilities.*inf"),
        ([0.5, 0.5], r"'p' argument must have shape \(N, C\).*\(2,\)"),
        ([[[0.5]]], r"'p' argument must have shape \(N, C\).*\(1, 1, 1\)"),
        (np.empty((0, 3)), r"'p' argument must not be empty.*\(0, 3\)"),
        (np.empty((3, 0)), r"'p' argument must not be empty.*\(3, 0\)"),
    ],
)
def test_bad_probabilities_are_named(kind, p, message):
    with pytest.raises(InvalidInputError, match=message):
        pseudo_labels(KINDS[kind](np.array(p)))


def test_bad_settings_and_foreign_arrays_are_named():
    with pytest.raises(ValueError, match=r"'task' argument must be one of 'single', 'multi'.*Got 'both'"):
        pseudo_labels([[0.5]], task="both")
    for gamma in (0, 1, -0.5, float("nan"), "0.5", None):
        with pytest.raises(ValueError, match=r"'gamma' argument must be a number in \(0, 1\)"):
            pseudo_labels([[0.5]], task="multi", gamma=gamma)
    with pytest.raises(ValueError, match=r"'p' argument must be a numpy array or a torch tensor.*Got dict"):
        pseudo_labels({"a": 1})
    with pytest.raises(ValueError, match=r"'p' argument must hold real numbers.*complex128"):
        pseudo_labels([[1j]])
    with pytest.raises(ValueError, match=r"'p' argument must hold real numbers.*<U1"):
        pseudo_labels([["a"]])
