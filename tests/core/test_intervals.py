"""95 % intervals of shares, of paired changes and of mean average precisions, each against a reference of its own."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial

from surelabel.core.metrics import map_change, mean_average_precision, paired_change, share_interval

TABLES = st.tuples(*[st.integers(0, 30)] * 4).filter(lambda table: sum(table) > 0)
"""How many samples are right both times, later only, before only, and never."""


def both_times(table: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([True, False, True, False], table), np.repeat([True, True, False, False], table)


@given(st.integers(1, 200).flatmap(lambda number: st.tuples(st.integers(0, number), st.just(number))))
def test_the_interval_of_a_share_is_the_exact_one(counts: tuple[int, int]) -> None:
    expected = binomtest(*counts).proportion_ci(method="exact")
    found = share_interval(*counts)
    assert found.mean == counts[0] / counts[1]
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_a_paired_change_by_the_textbook() -> None:
    # Altman and others, Statistics with Confidence (2000), table 6.2: 0.122, 95 % interval 0.011 to 0.226.
    found = paired_change(*both_times((14, 5, 0, 22)))
    assert [round(value, 3) for value in found] == [0.122, 0.011, 0.226]


@given(TABLES)
def test_a_paired_change_agrees_with_newcombes_formula(table: tuple[int, ...]) -> None:
    e, f, g, h = table
    n = sum(table)
    p1, p2 = (e + f) / n, (e + g) / n
    one, two = (binomtest(k, n).proportion_ci(method="wilson") for k in (e + f, e + g))
    product, numerator = (e + f) * (g + h) * (e + g) * (f + h), e * h - f * g
    if numerator > 0:
        numerator = max(numerator - n / 2, 0)
    phi = numerator / math.sqrt(product) if product else 0
    a, b, c, d = p1 - one.low, two.high - p2, one.high - p1, p2 - two.low
    low = p1 - p2 - math.sqrt(max(0, a * a - 2 * phi * a * b + b * b))
    high = p1 - p2 + math.sqrt(max(0, c * c - 2 * phi * c * d + d * d))
    assert paired_change(*both_times(table)) == pytest.approx((p1 - p2, low, high), abs=1e-7)


@given(TABLES)
def test_a_change_back_is_the_same_with_the_other_sign(table: tuple[int, ...]) -> None:
    before, after = both_times(table)
    there, back = paired_change(before, after), paired_change(after, before)
    assert there == pytest.approx((-back.mean, -back.high, -back.low))


@pytest.mark.parametrize("chances", [(0.6, 0.1, 0.1, 0.2), (0.8, 0.05, 0.1, 0.05), (0.3, 0.3, 0.1, 0.3)])
def test_the_interval_of_a_paired_change_holds_as_often_as_it_says(chances: tuple[float, ...]) -> None:
    number, held = 12, 0.0
    for counts in itertools.product(range(number + 1), repeat=3):
        table = (*counts, number - sum(counts))
        if table[3] >= 0:
            found = paired_change(*both_times(table))
            inside = found.low <= chances[1] - chances[2] <= found.high
            held += inside * multinomial.pmf(table, number, chances)
    assert held >= 0.95


def test_few_samples_without_a_change_do_not_prove_that_there_is_none() -> None:
    found = paired_change(np.ones(4, dtype=bool), np.ones(4, dtype=bool))
    assert found.mean == 0
    assert found.high == -found.low > 0.4


def drawn(seed: int, number: int = 30) -> tuple[np.ndarray, ...]:
    """Probabilities of two networks with ties, the truth and what is known of it; class 2 is never there."""
    generator = np.random.default_rng(seed)
    y, g = generator.random((number, 3)) < 0.3, generator.random((number, 3)) < 0.8
    y[:, 2] = False
    before, after = (np.round(generator.random((number, 3)) * 0.8 + 0.2 * y * sure, 1) for sure in (0.2, 1))
    return before, after, y, g


def test_a_change_of_the_mean_average_precision_is_that_of_the_means() -> None:
    before, after, y, g = drawn(0)
    means = [mean_average_precision(p, y, g) for p in (before, after)]
    assert means[0] is not None
    assert means[1] is not None
    found = map_change(before, after, y, g)
    assert found.mean == pytest.approx(means[1].uninterpolated - means[0].uninterpolated)
    assert found.low < found.mean < found.high
    assert found == map_change(before, after, y, g), "the same seed draws the same"
    assert found != map_change(before, after, y, g, seed=1)


def test_the_resamples_are_scored_as_samples_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surelabel.core.metrics.RESAMPLES", 40)
    monkeypatch.setattr("surelabel.core.metrics._BLOCK", 90)  # three resamples at a time
    before, after, y, g = drawn(1)
    generator, changes = np.random.default_rng(5), []
    for _ in range(40):
        rows = np.repeat(np.arange(30), generator.multinomial(30, np.full(30, 1 / 30)))
        one, two = (mean_average_precision(p[rows], y[rows], g[rows]) for p in (before, after))
        assert one is not None
        assert two is not None
        changes.append(two.uninterpolated - one.uninterpolated)
    found = map_change(before, after, y, g, seed=5)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(changes, [0.025, 0.975])))


def test_resamples_without_any_positive_are_left_out() -> None:
    y = np.array([[True], [False], [False]])
    found = map_change(np.array([[0.1], [0.5], [0.9]]), np.array([[0.9], [0.5], [0.1]]), y, np.ones_like(y))
    assert found.mean == pytest.approx(1 - 1 / 3)
    assert 0 <= found.low <= found.high <= 1
