import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surelabel.data.draws import draw, proportional_order, sample_keys, seed_for


def test_a_draw_depends_on_the_sample_and_not_on_its_neighbors() -> None:
    alone = draw(7, "crop", 3, sample_keys(np.array([42])))
    among = draw(7, "crop", 3, sample_keys(np.arange(100)))
    assert alone[0] == among[42]


def test_draws_differ_by_seed_epoch_purpose_and_sample() -> None:
    keys = sample_keys(np.arange(1000))
    draws = [draw(seed, what, epoch, keys) for seed in (0, 1) for what in ("a", "b") for epoch in (0, 1)]
    assert len(np.unique(np.concatenate(draws))) == 8000


def test_draws_are_uniform() -> None:
    values = draw(0, sample_keys(np.arange(100_000))) / 2.0**64
    counts, _ = np.histogram(values, bins=20, range=(0, 1))
    expected = 5000
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001


def test_the_hash_never_changes() -> None:
    # A changed hash would change every split and batch order of every run: resumed runs would no longer agree.
    assert int(draw(0, "order", 1)) == 0xE5BB12E013F4FBA0


def test_seeds_of_numpy_draw_what_pythons_do() -> None:
    for kind in (np.int64, np.uint64, np.int32):
        assert draw(kind(7), "order") == draw(7, "order")
    assert draw(np.int64(-7), "order") == draw(-7, "order")


def test_string_ids_have_keys() -> None:
    keys = sample_keys(np.array(["a", "b", "a"]))
    assert keys[0] == keys[2] != keys[1]


def test_seeds_fit_every_generator() -> None:
    assert all(0 <= seed_for(seed, "fit") < 2**31 for seed in range(100))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(0, 5), st.integers(1, 16))
def test_every_stretch_holds_the_kinds_in_proportion(kinds: list[int], seed: int, size: int) -> None:
    kind = np.array(kinds)
    order = proportional_order(sample_keys(np.arange(len(kind))), kind, seed)
    assert sorted(order) == list(range(len(kind)))
    for start in range(0, len(kind), size):
        part = kind[order[start : start + size]]
        for value in np.unique(kind):
            share = (kind == value).mean()
            # Each kind is spread evenly, so a stretch misses its share by at most one at either end.
            assert abs((part == value).sum() - share * len(part)) <= 2


def test_the_order_does_not_depend_on_the_rows_around() -> None:
    ids = np.arange(50)
    order = proportional_order(sample_keys(ids), np.zeros(50, dtype=int), 3)
    shuffled = np.random.default_rng(0).permutation(50)
    again = proportional_order(sample_keys(ids[shuffled]), np.zeros(50, dtype=int), 3)
    assert np.array_equal(ids[order], ids[shuffled][again])


def test_orders_differ_by_epoch() -> None:
    keys, kind = sample_keys(np.arange(50)), np.zeros(50, dtype=int)
    assert not np.array_equal(proportional_order(keys, kind, 0, 1), proportional_order(keys, kind, 0, 2))


@pytest.mark.parametrize("ids", [np.array([], dtype=str), np.array([], dtype=int)])
def test_no_samples_have_no_keys(ids: np.ndarray) -> None:
    assert len(sample_keys(ids)) == 0
