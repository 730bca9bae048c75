import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from strategies import KINDS, LOW_PRECISION, masks, neighbors, probabilities, shapes, uncertainties
from torchmetrics.functional.classification import multiclass_calibration_error

from surelabel.core.calibration import (
    calibration_error,
    expected_calibration_error,
    reliability_bins,
    risk_coverage,
    uncertainty_auroc,
)
from surelabel.errors import InvalidInputError

NAN = float("nan")


def _bin_of(confidence: float, bins: int, dtype: type) -> int:
    """The bin (lo, hi] of a confidence; the first bin holds 0, the last what rounding puts above 1."""
    for k in range(bins - 1):
        if confidence <= float(dtype((k + 1) / bins)):
            return k
    return bins - 1


def _reference_calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    """Equation 6, sample by sample."""
    gaps = [[] for _ in range(bins)]
    for value, right in zip(confidence.tolist(), correct.tolist(), strict=True):
        gaps[_bin_of(value, bins, confidence.dtype.type)].append(value - right)
    return sum(abs(math.fsum(members)) for members in gaps) / len(confidence)


def _reference_auroc(u: np.ndarray, wrong: np.ndarray) -> float:
    pairs = [(a, b) for a in u[wrong].tolist() for b in u[~wrong].tolist()]
    return sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)


def _reference_risk_coverage(u: np.ndarray, wrong: np.ndarray) -> list[tuple[float, float, float]]:
    points = []
    for threshold in sorted(set(u.tolist())):
        covered = [w for value, w in zip(u.tolist(), wrong.tolist(), strict=True) if value <= threshold]
        points.append((threshold, len(covered) / len(u), sum(covered) / len(covered)))
    return points


@pytest.mark.parametrize("kind", KINDS)
def test_expected_calibration_error_by_hand(kind):
    p = KINDS[kind](np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.45, 0.55]]))
    y = KINDS[kind](np.array([0, 1, 1, 1]))
    # Two bins: all confidences are in (0.5, 1]: |0.9 + 0.8 + 0.7 + 0.55 - 3| / 4.
    assert expected_calibration_error(p, y, bins=2) == pytest.approx(0.05 / 4)
    # Five bins: (0.4, 0.6] 0.55 right; (0.6, 0.8] 0.8 wrong and 0.7 right; (0.8, 1] 0.9 right.
    assert expected_calibration_error(p, y, bins=5) == pytest.approx((0.45 + 0.5 + 0.1) / 4)
    assert isinstance(expected_calibration_error(p, y), float)


@pytest.mark.parametrize("kind", KINDS)
def test_reliability_bins_by_hand(kind):
    confidence = KINDS[kind](np.array([0.0, 0.25, 0.3, 0.5, 1.0]))
    bins = reliability_bins(confidence, KINDS[kind](np.array([True, False, True, True, False])), bins=4)
    assert bins.lower.tolist() == [0, 0.25, 0.5, 0.75]
    assert bins.upper.tolist() == [0.25, 0.5, 0.75, 1]
    # 0 and the edge 0.25 are in the first bin, the edge 0.5 in the second, 1 in the last; the third is empty.
    assert bins.count.tolist() == [2, 2, 0, 1]
    np.testing.assert_allclose(bins.confidence, [0.125, 0.4, NAN, 1.0])
    np.testing.assert_allclose(bins.accuracy, [0.5, 1.0, NAN, 0.0])
    assert type(bins.count) is type(confidence)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *LOW_PRECISION])
@pytest.mark.parametrize("k", [1, 3, 7, 10, 14])
def test_an_edge_is_rounded_to_the_dtype_and_belongs_to_the_lower_bin(dtype, k):
    confidence = torch.stack(neighbors(k / 15, dtype))
    correct = torch.tensor([True, True, True])
    for kind in [lambda a: a] + ([] if dtype is torch.bfloat16 else [lambda a: a.numpy()]):
        count = reliability_bins(kind(confidence), kind(correct)).count.tolist()
        assert (count[k - 1], count[k], sum(count)) == (2, 1, 3)


def test_confidence_at_and_beyond_the_ends_falls_into_the_outer_bins():
    confidence = np.array([-5e-7, 0.0, 1.0, 1 + 5e-7])
    assert reliability_bins(confidence, np.ones(4, bool), bins=3).count.tolist() == [2, 0, 2]
    assert reliability_bins(confidence, np.ones(4, bool), bins=1).count.tolist() == [4]


@given(data=st.data(), size=st.integers(1, 30), bins=st.integers(1, 20))
def test_calibration_error_agrees_with_plain_loops(data, size, bins):
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    confidence, correct = data.draw(probabilities(size, dtype)), data.draw(masks(size))
    expected = pytest.approx(_reference_calibration_error(confidence, correct, bins), rel=1e-12, abs=1e-15)
    assert calibration_error(confidence, correct, bins) == expected
    assert calibration_error(torch.from_numpy(confidence), torch.from_numpy(correct), bins) == expected


@given(seed=st.integers(0, 10_000), num_classes=st.integers(2, 6), bins=st.sampled_from([5, 10, 15]))
def test_agrees_with_torchmetrics_off_the_edges_and_below_one(seed, num_classes, bins):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(num_classes, 0.5), size=40).astype(np.float32)
    y = rng.integers(0, num_classes, size=40)
    confidence = p.max(axis=1)
    edges = np.arange(bins + 1) / bins
    assume(np.abs(confidence[:, None] - edges).min() > 1e-6)
    tensors = torch.from_numpy(p), torch.from_numpy(y)
    expected = multiclass_calibration_error(*tensors, num_classes=num_classes, n_bins=bins, norm="l1")
    assert expected_calibration_error(*tensors, bins) == pytest.approx(float(expected), abs=1e-6)
    assert expected_calibration_error(p, y, bins) == pytest.approx(float(expected), abs=1e-6)


@given(data=st.data(), shape=shapes())
def test_calibration_error_is_bounded_and_blind_to_the_order_of_samples(data, shape):
    p = data.draw(probabilities(shape))
    y = np.array(data.draw(st.lists(st.integers(0, shape[1] - 1), min_size=shape[0], max_size=shape[0])))
    order = np.array(data.draw(st.permutations(range(shape[0]))))
    error = expected_calibration_error(p, y)
    assert 0 <= error <= 1
    assert expected_calibration_error(p[order], y[order]) == pytest.approx(error, rel=1e-12, abs=1e-15)
    bins = reliability_bins(p.max(axis=1), p.argmax(axis=1) == y)
    filled = bins.count > 0
    assert bins.count.sum() == shape[0]
    gaps = np.abs(bins.confidence - bins.accuracy)[filled] * bins.count[filled]
    assert gaps.sum() / shape[0] == pytest.approx(error, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_low_precision_is_summed_in_float64(dtype):
    p = torch.tensor([[0.75, 0.25]], dtype=dtype).repeat(5000, 1)
    y = (torch.arange(5000) % 4 == 0).long()
    assert expected_calibration_error(p, y) == 0.0


@pytest.mark.parametrize("y_dtype", [torch.uint8, torch.int32, torch.int64])
def test_any_integer_dtype_is_a_class_index(y_dtype):
    p = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    assert expected_calibration_error(p, torch.tensor([0, 1], dtype=y_dtype)) == pytest.approx(0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_uncertainty_auroc_by_hand(kind):
    u, wrong = np.array([0.1, 0.2, 0.2, 0.3]), np.array([False, False, True, True])
    # Of four pairs three are in order and one is a tie.
    assert uncertainty_auroc(KINDS[kind](u), KINDS[kind](wrong)) == 0.875
    assert uncertainty_auroc(KINDS[kind](u), KINDS[kind](~wrong)) == 0.125
    assert uncertainty_auroc(KINDS[kind](np.zeros(4)), KINDS[kind](wrong)) == 0.5


@given(data=st.data(), size=st.integers(2, 25))
def test_uncertainty_auroc_agrees_with_pairs_and_with_scikit_learn(data, size):
    u, wrong = data.draw(uncertainties(size)), data.draw(masks(size))
    assume(wrong.any() and not wrong.all())
    expected = _reference_auroc(u, wrong)
    assert uncertainty_auroc(u, wrong) == pytest.approx(expected, rel=1e-14)
    assert uncertainty_auroc(torch.from_numpy(u), torch.from_numpy(wrong)) == pytest.approx(expected, rel=1e-14)
    assert roc_auc_score(wrong, u) == pytest.approx(expected, rel=1e-12)
    assert uncertainty_auroc(u, ~wrong) == pytest.approx(1 - expected, abs=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_risk_coverage_by_hand(kind):
    u, wrong = np.array([0.3, 0.1, 0.2, 0.2]), np.array([True, False, False, True])
    curve = risk_coverage(KINDS[kind](u), KINDS[kind](wrong))
    assert curve.threshold.tolist() == [0.1, 0.2, 0.3]
    assert curve.coverage.tolist() == [0.25, 0.75, 1.0]
    np.testing.assert_allclose(curve.risk, [0, 1 / 3, 1 / 2])
    # 0 * 1/4 + 1/3 * 2/4 + 1/2 * 1/4
    assert curve.area == pytest.approx(7 / 24)
    assert isinstance(curve.area, float)


@given(data=st.data(), size=st.integers(1, 25))
def test_risk_coverage_agrees_with_plain_loops_and_ends_at_the_error_rate(data, size):
    u, wrong = data.draw(uncertainties(size)), data.draw(masks(size))
    expected = np.array(_reference_risk_coverage(u, wrong))
    for kind in KINDS.values():
        curve = risk_coverage(kind(u), kind(wrong))
        np.testing.assert_allclose(np.stack([np.asarray(a) for a in curve], axis=1), expected, rtol=1e-14)
    assert curve.coverage[-1] == 1
    assert float(curve.risk[-1]) == pytest.approx(wrong.mean())
    steps = np.diff(expected[:, 1], prepend=0)
    assert curve.area == pytest.approx(float((steps * expected[:, 2]).sum()), abs=1e-14)


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_low_precision_uncertainties_are_ranked(dtype):
    u = torch.tensor([0.125, 0.25, 0.25, 0.5], dtype=dtype)
    wrong = torch.tensor([False, False, True, True])
    assert uncertainty_auroc(u, wrong) == 0.875
    assert risk_coverage(u, wrong).threshold.tolist() == [0.125, 0.25, 0.5]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 2], r"'y' argument must hold values from 0 to 1. Got values from 0 to 2"),
        ([-1, 1], "'y' argument must hold values from 0 to 1.*from -1 to 1 instead; leave out"),
        ([0.0, 1.0], "'y' argument must hold one class index per sample.*float64"),
        ([0], r"'y' argument must hold one class index per sample.*shape \(2,\).*\(1,\)"),
        ([[0, 1], [1, 0]], r"shape \(2, 2\) instead; pass class indices, not one-hot rows"),
        ([True, False], "'y' argument must hold one class index per sample.*bool"),
    ],
)
def test_bad_classes_are_named(kind, y, message):
    p = KINDS[kind](np.array([[0.5, 0.5], [0.9, 0.1]]))
    with pytest.raises(InvalidInputError, match=message):
        expected_calibration_error(p, KINDS[kind](np.array(y)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_calibration_error([[2.0, 0.5]], [0]), "'p' argument must hold probabilities"),
        (lambda: expected_calibration_error(np.empty((0, 2)), []), "'p' argument must not be empty"),
        (lambda: expected_calibration_error([[0.5, 0.5]], [0], bins=0), "'bins' argument.*at least 1. Got 0"),
        (lambda: expected_calibration_error([[0.5, 0.5]], [0], bins=1.5), "'bins' argument.*whole number"),
        (lambda: expected_calibration_error([[0.5, 0.5]], torch.tensor([0])), "'y' is a torch tensor"),
        (lambda: calibration_error([0.5], [1]), "'correct' argument must be boolean"),
        (lambda: calibration_error([[0.5]], [[True]]), r"'confidence' argument must have shape \(N,\)"),
        (lambda: reliability_bins([0.5], [True, False]), r"'correct' has \(2,\)"),
        (lambda: reliability_bins([NAN], [True]), "'confidence' argument must hold probabilities"),
        (lambda: uncertainty_auroc([0.1, 0.2], [True, True]), "both wrong and right.*2 wrong and 0 right"),
        (lambda: uncertainty_auroc([0.1, 0.2], [False, False]), "both wrong and right.*0 wrong and 2 right"),
        (lambda: uncertainty_auroc([-0.1, 0.2], [True, False]), "'u' argument must hold uncertainties"),
        (lambda: uncertainty_auroc([0.1, 0.2], [1, 0]), "'wrong' argument must be boolean"),
        (lambda: risk_coverage([0.1, NAN], [True, False]), "'u' argument must hold uncertainties.*nan"),
        (lambda: risk_coverage([], []), "'u' argument must not be empty"),
        (lambda: risk_coverage([0.1], [True, False]), r"'u' has \(1,\), 'wrong' has \(2,\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
