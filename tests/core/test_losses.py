import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import KINDS, LOW_PRECISION, logits, masks, shapes
from torch.nn import functional

from surelabel.core.losses import (
    cross_entropy,
    learning_rule,
    masked_binary_cross_entropy,
    negative_cross_entropy,
)
from surelabel.errors import InvalidInputError

LOG2 = math.log(2)


def _decimal_softmax(row: list[float]) -> list[Decimal]:
    weights = [Decimal(value).exp() for value in row]
    return [weight / sum(weights) for weight in weights]


def _mean(values: list[Decimal]) -> Decimal:
    return sum(values, Decimal(0)) / len(values) if values else Decimal(0)


def _reference(z: np.ndarray, mask: np.ndarray, entry_loss) -> float:
    """Mean over rows with a marked entry of the mean of `entry_loss(row, c)` over them, in 60 digits."""
    with localcontext(prec=60):
        rows = []
        for i, row in enumerate(z.tolist()):
            marked = [entry_loss(row, i, c) for c in range(len(row)) if mask[i, c]]
            if marked:
                rows.append(_mean(marked))
        return float(_mean(rows))


def _reference_cross_entropy(z: np.ndarray, labels: np.ndarray) -> float:
    return _reference(z, labels, lambda row, i, c: -_decimal_softmax(row)[c].ln())


def _reference_negative(z: np.ndarray, negative: np.ndarray) -> float:
    def entry(row, i, c):
        others = [value for k, value in enumerate(_decimal_softmax(row)) if k != c]
        return -sum(others).ln()

    return _reference(z, negative, entry)


def _reference_binary(z: np.ndarray, labels: np.ndarray, selected: np.ndarray) -> float:
    def entry(row, i, c):
        sign = -1 if labels[i, c] else 1
        return (1 + (sign * Decimal(row[c])).exp()).ln()

    return _reference(z, selected, entry)


def _naive_negative(z: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    """Equation 3 as it is written, for moderate logits in float64."""
    terms = torch.log(1 - torch.softmax(z, dim=1)) * negative
    rows = -terms.sum(1) / negative.sum(1).clamp(min=1)
    return rows.sum() / negative.any(1).sum().clamp(min=1)


def _naive_binary(z: torch.Tensor, labels: torch.Tensor, selected: torch.Tensor) -> torch.Tensor:
    """Equation 4 as it is written, for moderate logits in float64."""
    p = torch.sigmoid(z)
    terms = (labels * torch.log(p) + ~labels * torch.log(1 - p)) * selected
    rows = -terms.sum(1) / selected.sum(1).clamp(min=1)
    return rows.sum() / selected.any(1).sum().clamp(min=1)


def _gradient(loss, z: torch.Tensor) -> torch.Tensor:
    z = z.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(z), z)
    return gradient


def _one_hot(classes: np.ndarray, num_classes: int) -> np.ndarray:
    """One label a row, none where the class is -1."""
    return classes[:, None] == np.arange(num_classes)


@pytest.mark.parametrize("kind", KINDS)
def test_cross_entropy_by_hand(kind):
    z = KINDS[kind](np.array([[0.0, 0.0], [math.log(3), 0.0], [7.0, 1.0]]))
    labels = KINDS[kind](np.array([[True, False], [False, True], [False, False]]))
    # p = 1/2 and 1/4; the third row has no label.
    assert float(cross_entropy(z, labels)) == pytest.approx((LOG2 + math.log(4)) / 2, rel=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_negative_cross_entropy_by_hand(kind):
    z = KINDS[kind](np.log(np.array([[1.0, 1.0, 2.0], [1.0, 3.0, 6.0], [1.0, 1.0, 1.0]])))
    negative = KINDS[kind](np.array([[True, False, True], [True, False, False], [False, False, False]]))
    # Row 0: -(log 3/4 + log 1/2) / 2; row 1: -log 9/10; row 2 has no negative.
    expected = (-(math.log(3 / 4) + math.log(1 / 2)) / 2 - math.log(9 / 10)) / 2
    assert float(negative_cross_entropy(z, negative)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_masked_binary_cross_entropy_by_hand(kind):
    z = KINDS[kind](np.array([[0.0, math.log(3), math.log(3)], [0.0, 0.0, 0.0]]))
    labels = KINDS[kind](np.array([[True, True, False], [True, True, True]]))
    selected = KINDS[kind](np.array([[False, True, True], [False, False, False]]))
    # Sigmoids 3/4: -(log 3/4 + log 1/4) / 2; the second row has nothing selected.
    expected = -(math.log(3 / 4) + math.log(1 / 4)) / 2
    assert float(masked_binary_cross_entropy(z, labels, selected)) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_learning_rule_by_hand(kind):
    z = KINDS[kind](np.log(np.array([[1.0, 1.0, 2.0]] * 4)))
    y = KINDS[kind](np.array([[True, False, False], [True, False, False], [False] * 3, [False] * 3]))
    g = KINDS[kind](np.array([[True, True, True], [False, True, False], [False, False, True], [False] * 3]))
    # Row 0 learns its positive only (-log 1/4); row 1 lost its positive and learns that it is not class 1
    # (-log 3/4); row 2 that it is not class 2 (-log 1/2); row 3 nothing.
    positive, negative = math.log(4), (-math.log(3 / 4) - math.log(1 / 2)) / 2
    assert float(learning_rule(z, y, g)) == pytest.approx(positive + negative, rel=1e-14)
    assert float(learning_rule(z, y, g, negative_weight=0.5)) == pytest.approx(positive + negative / 2, rel=1e-14)
    assert float(learning_rule(z, y, g, negative_weight=0)) == pytest.approx(positive, rel=1e-14)
    multi = learning_rule(z, y, g, task="multi", negative_weight=7)
    assert float(multi) == float(masked_binary_cross_entropy(z, y, g))


@given(data=st.data(), shape=shapes(2))
def test_single_label_losses_agree_with_sixty_digit_arithmetic(data, shape):
    z, negative = data.draw(logits(shape)), data.draw(masks(shape))
    classes = np.array(data.draw(st.lists(st.integers(-1, shape[1] - 1), min_size=shape[0], max_size=shape[0])))
    labels = _one_hot(classes, shape[1])
    cases = [
        (cross_entropy, labels, _reference_cross_entropy),
        (negative_cross_entropy, negative, _reference_negative),
    ]
    for dtype, precision in ((np.float64, 1e-13), (np.float32, 5e-6)):
        rounded = z.astype(dtype)
        for loss, mask, reference in cases:
            expected = pytest.approx(reference(rounded, mask), rel=precision, abs=0)
            assert float(loss(rounded, mask)) == expected
            assert float(loss(torch.from_numpy(rounded), torch.from_numpy(mask))) == expected


@given(data=st.data(), shape=shapes())
def test_binary_loss_agrees_with_sixty_digit_arithmetic(data, shape):
    z, labels, selected = data.draw(logits(shape)), data.draw(masks(shape)), data.draw(masks(shape))
    for dtype, precision in ((np.float64, 1e-13), (np.float32, 5e-6)):
        rounded = z.astype(dtype)
        expected = pytest.approx(_reference_binary(rounded, labels, selected), rel=precision, abs=0)
        assert float(masked_binary_cross_entropy(rounded, labels, selected)) == expected
        tensors = [torch.from_numpy(a) for a in (rounded, labels, selected)]
        assert float(masked_binary_cross_entropy(*tensors)) == expected


@given(data=st.data(), shape=shapes(2))
def test_losses_agree_with_torch_in_value_and_gradient(data, shape):
    z = torch.from_numpy(data.draw(logits(shape, size=15)))
    labels, selected = (torch.from_numpy(data.draw(masks(shape))) for _ in range(2))
    classes = torch.tensor(data.draw(st.lists(st.integers(0, shape[1] - 1), min_size=len(z), max_size=len(z))))
    pairs = [
        (
            lambda x: cross_entropy(x, functional.one_hot(classes, shape[1]).bool()),
            lambda x: functional.cross_entropy(x, classes),
        ),
        (
            lambda x: masked_binary_cross_entropy(x, labels, torch.ones_like(labels)),
            lambda x: functional.binary_cross_entropy_with_logits(x, labels.double()),
        ),
        (lambda x: negative_cross_entropy(x, labels), lambda x: _naive_negative(x, labels)),
        (
            lambda x: masked_binary_cross_entropy(x, labels, selected),
            lambda x: _naive_binary(x, labels, selected),
        ),
    ]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours(z), theirs(z), rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(_gradient(ours, z), _gradient(theirs, z), rtol=1e-7, atol=1e-9)
        exact = _gradient(ours, z)
        torch.testing.assert_close(_gradient(ours, z.float()).double(), exact, rtol=1e-4, atol=1e-6)


@given(data=st.data(), shape=shapes(2), shift=st.floats(-5, 5))
def test_losses_are_non_negative_shift_free_and_blind_to_what_is_not_selected(data, shape, shift):
    z, y, g = data.draw(logits(shape)), data.draw(masks(shape)), data.draw(masks(shape))
    for mask, loss in ((g, negative_cross_entropy), (y, cross_entropy)):
        assert loss(z, mask) >= 0
        assert float(loss(z + shift, mask)) == pytest.approx(float(loss(z, mask)), rel=1e-9, abs=1e-13)
        other = np.where(mask.any(axis=1, keepdims=True), z, 123.0)
        assert float(loss(other, mask)) == float(loss(z, mask))
    assert masked_binary_cross_entropy(z, y, g) >= 0
    assert float(masked_binary_cross_entropy(np.where(g, z, 99.0), y, g)) == float(masked_binary_cross_entropy(z, y, g))
    two = z[:, :2]
    label = _one_hot(np.zeros(len(z), int), 2)
    assert float(negative_cross_entropy(two, ~label)) == pytest.approx(float(cross_entropy(two, label)), rel=1e-9)


@given(data=st.data(), shape=shapes(2))
def test_learning_rule_is_its_two_parts(data, shape):
    z, g = data.draw(logits(shape)), data.draw(masks(shape))
    y = _one_hot(np.argmax(z, axis=1), shape[1])
    rows_with_positive = [i for i in range(len(z)) if any(y[i, c] and g[i, c] for c in range(shape[1]))]
    positive, negative = np.zeros(shape, bool), g & ~y
    for i in rows_with_positive:
        positive[i] = y[i] & g[i]
        negative[i] = False
    expected = _reference_cross_entropy(z, positive) + 0.5 * _reference_negative(z, negative)
    assert float(learning_rule(z, y, g, negative_weight=0.5)) == pytest.approx(expected, rel=1e-12)


def test_ground_truth_with_everything_known_is_plain_cross_entropy():
    z = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    classes = torch.arange(8) % 5
    y = functional.one_hot(classes, 5).bool()
    torch.testing.assert_close(learning_rule(z, y, torch.ones_like(y)), functional.cross_entropy(z, classes))


def test_small_losses_keep_their_relative_precision_in_float32():
    z = np.array([[0.0, -20.0, -25.0]], np.float32)
    tiny = math.exp(-20) + math.exp(-25)
    assert float(cross_entropy(z, np.array([[True, False, False]]))) == pytest.approx(tiny, rel=1e-6)
    last = np.array([[False, False, True]])
    assert float(negative_cross_entropy(z, last)) == pytest.approx(math.exp(-25), rel=1e-6)
    uniform = np.zeros((1, 1000), np.float32)
    for c in (0, 999):
        one = _one_hot(np.array([c]), 1000)
        assert float(negative_cross_entropy(uniform, one)) == pytest.approx(-math.log1p(-1e-3), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *LOW_PRECISION])
def test_logits_of_ten_thousand_have_exact_losses_and_gradients(dtype):
    size = float(torch.tensor(1e4, dtype=dtype))
    z = torch.tensor([[size, 0.0, -size]], dtype=dtype)
    top, middle = (torch.tensor([[c == k for c in range(3)]]) for k in (0, 1))
    cases = [
        (lambda x: cross_entropy(x, top), 0.0, [0.0, 0.0, 0.0]),
        (lambda x: cross_entropy(x, middle), size, [1.0, -1.0, 0.0]),
        (lambda x: negative_cross_entropy(x, top), size, [1.0, -1.0, 0.0]),
        (lambda x: negative_cross_entropy(x, middle), 0.0, [0.0, 0.0, 0.0]),
        (lambda x: learning_rule(x, middle, middle), size, [1.0, -1.0, 0.0]),
        (lambda x: masked_binary_cross_entropy(x, middle, top), size, [1.0, 0.0, 0.0]),
        (lambda x: masked_binary_cross_entropy(x, middle, middle), LOG2, [0.0, -0.5, 0.0]),
    ]
    for loss, value, gradient in cases:
        assert float(loss(z)) == pytest.approx(value, rel=1e-6)
        assert _gradient(loss, z).tolist() == [gradient]


@given(data=st.data(), shape=shapes(2), size=st.sampled_from([1.0, 100.0, 1e4]))
def test_gradients_are_finite_everywhere(data, shape, size):
    z = torch.from_numpy(data.draw(logits(shape, size=size, dtype=np.float32)))
    y, g = (torch.from_numpy(data.draw(masks(shape))) for _ in range(2))
    for dtype in (torch.float32, torch.float64, *LOW_PRECISION):
        for task in ("single", "multi"):
            x = z.detach().to(dtype, copy=True).requires_grad_()
            loss = learning_rule(x, y, g, task=task)
            loss.backward()
            assert torch.isfinite(loss)
            assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_low_precision_logits_are_computed_in_float32_also_under_autocast(dtype):
    generator = torch.Generator().manual_seed(0)
    z = (torch.randn(6, 4, generator=generator) * 5).to(dtype)
    y = functional.one_hot(torch.arange(6) % 4, 4).bool()
    g = torch.rand(6, 4, generator=generator) > 0.4
    for task in ("single", "multi"):
        expected = learning_rule(z.float(), y, g, task=task)
        gradient = _gradient(lambda x, task=task: learning_rule(x, y, g, task=task), z.float())
        assert expected.dtype == torch.float32
        assert torch.equal(learning_rule(z, y, g, task=task), expected)
        with torch.autocast("cpu", dtype=dtype):
            assert torch.equal(learning_rule(z, y, g, task=task), expected)
            assert torch.equal(_gradient(lambda x, task=task: learning_rule(x, y, g, task=task), z), gradient.to(dtype))
    assert learning_rule(z.double(), y, g).dtype == torch.float64
    assert learning_rule(z.float().numpy(), y.numpy(), g.numpy()).dtype == np.float32


def test_autocast_network_learns_in_float32():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(3, 4), torch.randn(5, 3)
    y = functional.one_hot(torch.arange(5) % 4, 4).bool()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = layer(x)
        loss = learning_rule(z, y, torch.ones_like(y))
    loss.backward()
    assert (z.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    assert torch.isfinite(layer.weight.grad).all()
    assert layer.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("rows", [0, 3])
def test_nothing_selected_is_zero_with_zero_gradient_that_stays_in_the_graph(rows):
    z = torch.full((rows, 2), 1e4, requires_grad=True)
    nothing = torch.zeros(rows, 2, dtype=torch.bool)
    losses = [
        cross_entropy(z, nothing),
        negative_cross_entropy(z, nothing),
        masked_binary_cross_entropy(z, nothing, nothing),
        learning_rule(z, ~nothing, nothing),
        learning_rule(z, ~nothing, nothing, task="multi"),
    ]
    for loss in losses:
        assert (loss.item(), loss.ndim, loss.requires_grad) == (0.0, 0, True)
        (gradient,) = torch.autograd.grad(loss, z, retain_graph=True)
        assert torch.equal(gradient, torch.zeros(rows, 2))


def test_equal_logits_share_the_gradient_as_the_formula_says():
    z = torch.zeros(1, 4, dtype=torch.float64)
    for c in range(4):
        negative = torch.tensor([[k == c for k in range(4)]])
        # -log(1 - p_c) with p = 1/4: p_c for class c itself, minus p_c p_k / (1 - p_c) = 1/12 for each other.
        expected = [[0.25 if k == c else -1 / 12 for k in range(4)]]
        gradient = _gradient(lambda x, negative=negative: negative_cross_entropy(x, negative), z)
        torch.testing.assert_close(gradient, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("task", ["single", "multi"])
def test_compiles_without_a_graph_break(task):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(6, 4, generator=generator)
    y = functional.one_hot(torch.arange(6) % 4, 4).bool()
    g = torch.rand(6, 4, generator=generator) > 0.4
    compiled = torch.compile(learning_rule, fullgraph=True, backend="aot_eager")
    z.requires_grad_()
    values = [rule(z, y, g, task=task) for rule in (compiled, learning_rule)]
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, z) for value in values))


def test_lists_and_integers_are_accepted():
    assert float(cross_entropy([[0, 0]], [[True, False]])) == pytest.approx(LOG2)
    assert float(cross_entropy(torch.tensor([[0, 0]]), torch.tensor([[True, False]]))) == pytest.approx(LOG2)


MASK = np.array([[True, False]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: cross_entropy(a([0.0]), a(MASK)), r"'logits' argument must have shape \(N, C\).*\(1,\)"),
        (lambda a: cross_entropy(a([[]]), a(MASK)), r"'logits' argument must not be empty.*\(1, 0\)"),
        (lambda a: cross_entropy(a([[0.0, 1.0]]), a([1])), "'labels' argument must be boolean.*int64"),
        (lambda a: cross_entropy(a([[0.0]]), a(MASK)), r"'logits' has \(1, 1\), 'labels' has \(1, 2\)"),
        (
            lambda a: negative_cross_entropy(a([[0.0, 0.0]]), a([[1, 0]])),
            "'negative' argument must be boolean.*pass 'negative == 1'",
        ),
        (
            lambda a: negative_cross_entropy(a([[0.0]]), a([[True]])),
            "at least two classes.*use masked_binary_cross_entropy",
        ),
        (
            lambda a: masked_binary_cross_entropy(a([[0.0, 0.0]]), a(MASK), a([[True]])),
            r"'selected' has \(1, 1\)",
        ),
        (lambda a: learning_rule(a([[0.0, 0.0]]), a([[1, 0]]), a(MASK)), "'y' argument must be boolean"),
        (lambda a: learning_rule(a([[0.0, 0.0]]), a(MASK), a([[0.5, 1]])), "'g' argument must be boolean"),
        (
            lambda a: learning_rule(a([[0.0, 0.0]]), a(MASK), a(MASK), task="x"),
            "'task' argument must be one of 'single', 'multi'",
        ),
    ],
)
def test_bad_input_is_named(kind, call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(lambda value: KINDS[kind](np.array(value)))


def test_bad_weights_and_mixed_kinds_are_named():
    for weight in (-1, math.nan, math.inf, "1"):
        with pytest.raises(ValueError, match=r"'negative_weight' argument must be a number in \[0, inf\)"):
            learning_rule([[0.0, 0.0]], MASK, MASK, negative_weight=weight)
    with pytest.raises(ValueError, match="'logits' is a torch tensor on cpu, 'labels' is a numpy array"):
        cross_entropy(torch.zeros(1, 2), MASK)
