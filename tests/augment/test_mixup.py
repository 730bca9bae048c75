import numpy as np
import pytest
import torch
from augment_support import draws_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from surelabel.augment.mixup import mix, mixup, mixup_coefficients


def test_three_rows_mixed_by_hand() -> None:
    values = torch.tensor([[0.0, 8.0], [4.0, 0.0], [8.0, 16.0]])
    mixed = mix(values, torch.tensor([0.75, 0.5, 0.0]))
    assert mixed.tolist() == [[1.0, 6.0], [6.0, 8.0], [0.0, 8.0]]


def _reference_mixup(values: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    rows = []
    for index, coefficient in enumerate(coefficients):
        partner = values[(index + 1) % len(values)]
        rows.append(coefficient * values[index] + (1 - coefficient) * partner)
    return np.stack(rows)


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 3, 5, 5)])
def test_images_and_targets_are_mixed_by_the_same_coefficients(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    images, targets = random.normal(size=shape), random.normal(size=(7, 4))
    draws = draws_of(np.arange(7))
    coefficients = mixup_coefficients(draws, 0.5).double().numpy()
    mixed_images, mixed_targets = mixup(torch.from_numpy(images), torch.from_numpy(targets), draws, 0.5)
    np.testing.assert_allclose(mixed_images.numpy(), _reference_mixup(images, coefficients), atol=1e-12)
    np.testing.assert_allclose(mixed_targets.numpy(), _reference_mixup(targets, coefficients), atol=1e-12)


@given(st.integers(1, 12), st.integers(2, 6), st.floats(0.05, 5), st.integers(0, 100))
def test_rows_of_targets_keep_their_sum(rows: int, classes: int, alpha: float, seed: int) -> None:
    targets = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(classes), rows)).to(torch.float32)
    _, mixed = mixup(torch.zeros(rows, 1, 1, 1), targets, draws_of(np.arange(rows), seed), alpha)
    assert (mixed >= 0).all()
    torch.testing.assert_close(mixed.sum(1), torch.ones(rows))


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 0.75, 1.0, 4.0])
def test_coefficients_follow_the_beta_distribution(alpha: float) -> None:
    coefficients = mixup_coefficients(draws_of(np.arange(20_000)), alpha).double().numpy()
    assert ((coefficients >= 0) & (coefficients <= 1)).all()
    # Near 1 float32 has few numbers left, so the ends are counted and the middle is compared.
    inner = coefficients[(coefficients > 1e-4) & (coefficients < 1 - 1e-4)]
    beta = stats.beta(alpha, alpha)
    low, high = beta.cdf([1e-4, 1 - 1e-4])
    assert stats.binomtest(len(inner), 20_000, high - low).pvalue > 0.001
    assert stats.kstest(inner, lambda x: (beta.cdf(x) - low) / (high - low)).pvalue > 0.001


def test_a_coefficient_depends_on_the_sample_and_the_epoch_alone() -> None:
    among = mixup_coefficients(draws_of(np.arange(50)), 0.5)
    assert mixup_coefficients(draws_of(np.array([17])), 0.5)[0] == among[17]
    assert mixup_coefficients(draws_of(np.array([17]), epoch=1), 0.5)[0] != among[17]


def test_an_alpha_of_zero_changes_nothing() -> None:
    images, targets = torch.rand(3, 1, 2, 2), torch.eye(3)
    mixed_images, mixed_targets = mixup(images, targets, draws_of(np.arange(3)), 0.0)
    assert mixed_images is images
    assert mixed_targets is targets


def test_one_row_is_its_own_partner() -> None:
    images, targets = torch.rand(1, 1, 2, 2), torch.eye(1)
    torch.testing.assert_close(mixup(images, targets, draws_of(np.arange(1)), 0.5), (images, targets))


def test_mixup_compiles_without_a_graph_break() -> None:
    images, targets, draws = torch.rand(4, 1, 2, 2), torch.eye(4), draws_of(np.arange(4))
    compiled = torch.compile(mixup, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images, targets, draws, 0.5), mixup(images, targets, draws, 0.5))
