import numpy as np
import pytest
import torch
from augment_support import draws_of
from hypothesis import given
from hypothesis import strategies as st

from surelabel.augment.draws import Draws
from surelabel.data.draws import draw, sample_keys

NAMES = ["flip", "crop x", "randaugment 1 magnitude", "", "größe"]


def as_unsigned(bits: torch.Tensor) -> np.ndarray:
    return bits.numpy().view(np.uint64)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ids", [np.arange(300), np.array([f"image {i}.png" for i in range(300)])], ids=["int", "str"])
def test_the_bits_are_those_of_the_numpy_hash(ids: np.ndarray, name: str) -> None:
    keys = sample_keys(ids)
    assert np.array_equal(as_unsigned(draws_of(ids, 7, 3).bits(name)), draw(7, 3, keys, name))


@given(
    st.integers(-(2**63), 2**64 - 1),
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**40)), min_size=1, max_size=8),
    st.text(max_size=12),
)
def test_any_seed_key_and_epoch_of_its_own_gives_the_numpy_hash(
    seed: int, rows: list[tuple[int, int]], name: str
) -> None:
    keys = np.array([key for key, _ in rows], dtype=np.uint64)
    epochs = np.array([epoch for _, epoch in rows], dtype=np.uint64)
    signed = torch.tensor(np.array(seed % 2**64, dtype=np.uint64).view(np.int64))
    draws = Draws(signed, torch.from_numpy(keys.view(np.int64)), torch.from_numpy(epochs.view(np.int64)))
    assert np.array_equal(as_unsigned(draws.bits(name)), draw(seed, epochs, keys, name))


def test_uniform_numbers_are_the_topmost_bits_and_stay_below_one() -> None:
    keys = sample_keys(np.arange(100_000))
    values = draws_of(np.arange(100_000), 1, 2).uniform("flip")
    assert values.dtype == torch.float32
    assert np.array_equal(values.numpy(), (draw(1, 2, keys, "flip") >> np.uint64(40)) / 2.0**24)
    assert values.min() >= 0
    assert values.max() < 1


def test_uniform_numbers_are_uniform() -> None:
    values = draws_of(np.arange(100_000)).uniform("flip").numpy()
    counts, _ = np.histogram(values, bins=20, range=(0, 1))
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001


@pytest.mark.parametrize(("count", "limit"), [(2, 10.8), (9, 26.1), (17, 39.3)])
def test_integers_are_even_over_their_range(count: int, limit: float) -> None:
    values = draws_of(np.arange(90_000)).integer("crop x", count)
    counts = np.bincount(values.numpy(), minlength=count)
    assert len(counts) == count
    expected = 90_000 / count
    assert ((counts - expected) ** 2 / expected).sum() < limit  # p = 0.001


def test_integers_are_the_hash_times_the_count() -> None:
    keys = sample_keys(np.arange(1000))
    top = draw(0, 0, keys, "x") >> np.uint64(32)
    assert np.array_equal(draws_of(np.arange(1000)).integer("x", 17).numpy(), (top * np.uint64(17)) >> np.uint64(32))


def test_signs_are_minus_one_and_one() -> None:
    signs = draws_of(np.arange(1000)).sign("shear")
    assert sorted(signs.unique().tolist()) == [-1.0, 1.0]
    assert 440 < (signs > 0).sum() < 560


def test_two_names_are_not_correlated() -> None:
    draws = draws_of(np.arange(100_000))
    both = np.corrcoef(draws.uniform("crop x").numpy(), draws.uniform("crop y").numpy())
    assert abs(both[0, 1]) < 0.0105  # 3.3 standard errors


def test_a_number_depends_on_the_sample_alone_and_not_on_its_batch() -> None:
    among = draws_of(np.arange(100)).uniform("flip")
    alone = draws_of(np.array([42])).uniform("flip")
    shuffled = np.random.default_rng(0).permutation(100)
    assert alone[0] == among[42]
    assert torch.equal(draws_of(shuffled).uniform("flip"), among[shuffled])


def test_rows_of_one_batch_may_be_in_different_epochs() -> None:
    ids = np.arange(6)
    epochs = torch.tensor([0, 0, 0, 1, 1, 1])
    mixed = Draws(torch.tensor(0), torch.arange(6), epochs).bits("flip")
    assert torch.equal(mixed[:3], draws_of(ids).bits("flip")[:3])
    assert torch.equal(mixed[3:], draws_of(ids, epoch=1).bits("flip")[3:])


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": torch.tensor([1])},
        {"seed": torch.tensor(1.0)},
        {"keys": torch.zeros(3, 1, dtype=torch.int64)},
        {"keys": torch.zeros(3)},
        {"epochs": torch.tensor(3)},
    ],
)
def test_what_cannot_be_hashed_is_no_draw(changed: dict[str, torch.Tensor]) -> None:
    good = {"seed": torch.tensor(1), "keys": torch.arange(3), "epochs": torch.zeros(3, dtype=torch.int64)}
    with pytest.raises(AssertionError):
        Draws(**{**good, **changed})
