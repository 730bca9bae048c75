"""Mean and spread of passes: the same however they come, and cheap to compile however many there are."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from surelabel.errors import InvalidInputError
from surelabel.uncertainty import RunningMoments
from surelabel.uncertainty.compiled import shared_summary
from surelabel.uncertainty.moments import summarize
from surelabel.uncertainty.plan import repeating


def moments_of(values):
    moments = RunningMoments()
    for value in values:
        moments.add(torch.as_tensor(value))
    return moments


def test_hand_worked_mean_and_standard_deviation_with_n_minus_1():
    moments = moments_of([[2.0], [4.0], [9.0]])
    assert moments.mean.tolist() == [5.0]
    # Squared differences 9 + 1 + 16 = 26, over n - 1 = 2.
    assert moments.std.item() == pytest.approx(13**0.5)


passes = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 20), st.integers(1, 4)),
    elements=st.floats(-1000, 1000, allow_subnormal=False),
)


@given(passes)
def test_agrees_with_numpy_in_float64(values):
    moments = moments_of(values)
    tolerance = 1e-12 * max(1.0, np.abs(values).max())
    np.testing.assert_allclose(moments.mean, values.mean(axis=0), atol=tolerance)
    np.testing.assert_allclose(moments.std, values.std(axis=0, ddof=1), atol=tolerance)


unit_passes = hnp.arrays(
    np.float32, st.tuples(st.integers(2, 20), st.integers(1, 4)), elements=st.floats(0, 1, width=32)
)


@given(unit_passes)
def test_probabilities_in_float32_stay_in_range_and_agree_with_numpy(values):
    moments = moments_of(values)
    assert moments.mean.dtype == moments.std.dtype == torch.float32
    assert (moments.mean.numpy() >= values.min(axis=0)).all()
    assert (moments.mean.numpy() <= values.max(axis=0)).all()
    assert (moments.std >= 0).all()
    exact = values.astype(np.float64)
    np.testing.assert_allclose(moments.mean, exact.mean(axis=0), atol=2e-6)
    np.testing.assert_allclose(moments.std, exact.std(axis=0, ddof=1), atol=2e-6)


@given(st.floats(-(2.0**127), 2.0**127, width=32), st.integers(2, 20))
def test_equal_values_have_a_spread_of_exactly_zero(value, count):
    moments = moments_of([np.float32([value])] * count)
    assert moments.std.item() == 0.0
    assert moments.mean.item() == np.float32(value)


def test_a_small_spread_around_a_large_mean_is_kept():
    # The textbook E[x^2] - E[x]^2 would give 0 or a negative number here.
    assert moments_of([[4096.0], [4096.5], [4097.0]]).std.item() == pytest.approx(0.5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_narrow_floats_are_accumulated_in_float32(dtype):
    moments = moments_of([torch.full((1,), 1.0, dtype=dtype)] * 3 + [torch.full((1,), 1.0078125, dtype=dtype)])
    assert moments.mean.dtype == moments.std.dtype == torch.float32
    assert moments.mean.item() == 1.0 + 0.0078125 / 4


def test_tensors_given_and_tensors_returned_are_not_shared_with_the_accumulator():
    first = torch.zeros(1)
    moments = moments_of([first, torch.ones(1)])
    mean = moments.mean
    moments.add(torch.full((1,), 8.0))
    assert (first.item(), mean.item(), moments.mean.item()) == (0.0, 0.5, 3.0)


def test_no_graph_is_kept_for_tensors_that_require_gradients():
    moments = moments_of([torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)])
    assert not moments.mean.requires_grad
    assert not moments.std.requires_grad


def test_fewer_than_two_passes_have_no_spread():
    with pytest.raises(InvalidInputError, match=r"fewer than two passes is undefined. Got 1; add more"):
        _ = moments_of([[1.0]]).std


def test_a_pass_of_another_shape_is_refused_instead_of_broadcast():
    with pytest.raises(InvalidInputError, match=r"need the same shape. Got \(2, 3\) and \(1, 3\)"):
        moments_of([torch.zeros(2, 3), torch.zeros(1, 3)])


def test_passes_that_come_together_give_what_they_give_one_by_one():
    z = torch.randn(10, 7, 5, generator=torch.Generator().manual_seed(0))
    z[:, 3] = z[0, 3]
    together, one_by_one = summarize([z], "single", 2.0), summarize(z.unsqueeze(1), "single", 2.0)
    # Not bit for bit: a softmax over more rows is vectorized otherwise.
    torch.testing.assert_close(together, one_by_one)
    assert together.differs.tolist() == [True, True, True, False, True, True, True]


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_row_with_one_value_of_one_pass_that_is_not_finite_is_marked(at_once):
    z = torch.zeros(3, 4, 2)
    z[1, 2, 0] = torch.inf
    found = summarize(z.split(at_once), "single", 2.0)
    assert found.finite.tolist() == [True, True, False, True]
    with pytest.raises(InvalidInputError, match=r"not finite for 1 of 4 samples"):
        found.uncertainty()


def test_sums_over_the_classes_are_no_more_for_ten_passes_than_for_two():
    """Else the compiler joins them in one kernel, which takes minutes to make with 100 classes."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3))

    def num_softmax(passes):
        with repeating([model[0]], 4, passes):
            function = make_fx(lambda block: shared_summary(model, block, passes, "repeated", "single", 2.0))
            graph = function(torch.ones(4, 3)).graph
        return sum(node.target is torch.ops.aten._softmax.default for node in graph.nodes)

    assert num_softmax(10) == num_softmax(2) == 2
