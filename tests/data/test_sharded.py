"""Samples in shards: read as an array would be, in bounded memory, and drawn so that an epoch reads each block once."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharded_support import ArrayReader, pickled, sharded

from surelabel.data.draws import proportional_order, sample_keys
from surelabel.data.sharded import Windows, windows_of
from surelabel.data.source import ArraySource, Concatenation, Subset
from surelabel.engine.method import Stream
from surelabel.engine.order import batch_order
from surelabel.errors import DataError

LENGTHS = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=4), min_size=1, max_size=4)


def numbers(lengths: list[list[int]]) -> Any:
    return np.arange(sum(map(sum, lengths)), dtype=np.float32).reshape(-1, 1)


@given(lengths=LENGTHS, window=st.integers(1, 20), data=st.data())
def test_rows_are_those_of_the_array(lengths: list[list[int]], window: int, data: Any) -> None:
    x = numbers(lengths)
    source = sharded(x, lengths, window)
    index = np.array(data.draw(st.lists(st.integers(0, len(x) - 1), max_size=30)), dtype=np.int64)
    np.testing.assert_array_equal(source[index], x[index])
    np.testing.assert_array_equal(pickled(source)[index], x[index])
    assert source.ids.tolist() == list(range(len(x)))
    whole = [row for number in range(len(lengths)) for row in range(len(x))[source.rows_of(number)]]
    assert whole == list(range(len(x)))


def test_a_pass_in_order_reads_each_block_once_and_keeps_few() -> None:
    lengths = [[10] * 20, [10] * 30]
    source = sharded(numbers(lengths), lengths, window=40)
    for start in range(0, 500, 7):
        _ = source[np.arange(start, min(start + 7, 500))]
        assert sum(map(len, source._cache.values())) <= 3 * (40 + 10)
    assert source.num_reads == 50


def test_a_block_larger_than_all_that_is_kept_can_be_read() -> None:
    source = sharded(numbers([[500]]), [[500]], window=1)
    assert source[np.array([499, 3])].tolist() == [[499], [3]]
    assert source.num_reads == 1


def test_a_block_that_has_changed_is_named() -> None:
    source = sharded(numbers([[5]]), [[5]])
    assert isinstance(source.reader, ArrayReader)
    source.reader.lengths = [[4]]
    with pytest.raises(DataError, match="shard '0' has a block with 4 rows .* not 5 .* restore it"):
        _ = source[np.array([0])]


def order_of(source: Any, epoch: int = 0, seed: int = 0) -> Any:
    """Return the order of an epoch over all rows."""
    windows, rows, keys = windows_of(source), np.arange(len(source)), sample_keys(source.ids)
    parts = seed, "order", epoch
    window = None if windows is None else windows.of(rows, keys, *parts)
    return proportional_order(keys, np.zeros(len(rows)), *parts, window=window)


@given(lengths=LENGTHS, window=st.integers(1, 30), epoch=st.integers(0, 3))
def test_an_epoch_has_every_sample_once_and_reads_every_block_once(
    lengths: list[list[int]], window: int, epoch: int
) -> None:
    source = sharded(numbers(lengths), lengths, window)
    order = order_of(source, epoch)
    assert sorted(order.tolist()) == list(range(len(source)))
    for start in range(0, len(order), 3):
        _ = source[order[start : start + 3]]
    assert source.num_reads == sum(map(len, lengths))


def test_a_pool_of_one_window_has_the_order_that_it_would_have_in_memory() -> None:
    """So small pools in shards train as tables do, whatever their row groups are."""
    x = numbers([[100]])
    expected = order_of(ArraySource(x), 3)
    for lengths in ([[100]], [[30, 20], [50]], [[1] * 100]):
        assert order_of(sharded(x, lengths, window=100), 3).tolist() == expected.tolist()


def test_neighbors_of_a_shard_end_up_apart() -> None:
    """Rows of a block are spread over a whole window, and windows mix blocks from all over the pool."""
    lengths = [[20] * 25] * 20  # 10,000 rows, and windows of 50 of 500 blocks
    source = sharded(numbers(lengths), lengths, window=1000)
    order = order_of(source)
    place = np.argsort(order)
    apart = np.abs(np.diff(place))
    # Of two neighbors in a block, drawn at random places of a window of 1000 rows, the distance is a third on average.
    within = apart[np.arange(len(apart)) % 20 != 19]
    assert 280 < within.mean() < 390
    assert (within < 1020).all()
    for start in range(0, 10_000, 1000):
        shards = Counter((order[start : start + 1000] // 500).tolist())
        assert len(shards) > 15
        assert max(shards.values()) <= 200
    assert not np.array_equal(order, order_of(source, epoch=1))
    assert not np.array_equal(order, order_of(source, seed=1))


def test_rows_in_memory_are_spread_over_an_epoch() -> None:
    lengths = [[50] * 10] * 10
    pool = sharded(numbers(lengths), lengths, window=500)
    source = Concatenation(ArraySource(np.zeros((1000, 1), np.float32), first_id=5000), pool)
    order = order_of(source)
    in_memory = order < 1000
    assert (
        30
        < min(part.sum() for part in np.split(in_memory, 12))
        <= max(part.sum() for part in np.split(in_memory, 12))
        < 180
    )
    for start in range(0, len(order), 60):
        _ = source[order[start : start + 60]]
    assert pool.num_reads == 100


def test_windows_have_at_most_a_block_more_than_their_size() -> None:
    windows = Windows(np.cumsum([0, *[7, 3, 11, 5] * 20]), 30)
    number = windows.of(np.arange(26 * 20), sample_keys(np.arange(26 * 20)), 0)
    assert np.bincount(number).max() <= 30 + 11


def test_only_some_rows_of_a_pool_read_no_block_twice() -> None:
    """As where few samples are selected: a window counts whole blocks, so that these can stay in memory."""
    lengths = [[100] * 50]
    source = sharded(numbers(lengths), lengths, window=1000)
    rows = np.arange(0, 5000, 10)
    for block in batch_order([Stream(rows, 8)], sample_keys(source.ids), 0, 62, windows=windows_of(source)):
        for batch in block.rows:
            _ = source[batch]
    assert source.num_reads == 50


def test_two_streams_of_a_training_read_no_block_again() -> None:
    """A window's blocks stay while they are needed, although a batch touches few of them.

    Both streams go through the blocks in one order, so where they are equally far they even share them.
    """
    lengths = [[5] * 400]
    source, rows = sharded(numbers(lengths), lengths, window=400), np.arange(2000)
    streams = [Stream(rows[rows % 5 < 3], 6), Stream(rows[rows % 5 >= 3], 3)]
    for block in batch_order(streams, sample_keys(source.ids), 0, 200, windows=windows_of(source)):
        for batch in block.rows:
            _ = source[batch]
    assert source.num_reads == 400


def test_other_sources_have_no_windows() -> None:
    source = ArraySource(np.zeros((3, 1)))
    assert windows_of(source) is None
    assert windows_of(Concatenation(source, Subset(source, np.array([0])))) is None


def test_batches_do_not_depend_on_where_a_round_was_resumed() -> None:
    lengths = [[10] * 10] * 3
    source = sharded(numbers(lengths), lengths, window=50)
    streams, keys = [Stream(np.arange(300), 8), Stream(np.arange(150), 4)], sample_keys(source.ids)

    def rows(done: int) -> Any:
        found = batch_order(streams, keys, 5, 100, done, windows=windows_of(source))
        return np.concatenate([block.rows for block in found])

    np.testing.assert_array_equal(rows(0)[37:], rows(37))


def test_windows_differ_by_epoch_and_seed_and_are_drawn_from_all_blocks() -> None:
    windows, rows = Windows(np.arange(0, 2001, 20), 200), np.arange(2000)
    drawn = {parts: windows.of(rows, sample_keys(rows), *parts) for parts in [(0, 1), (0, 2), (1, 1)]}
    for one, other in [((0, 1), (0, 2)), ((0, 1), (1, 1))]:
        # Of ten windows each, two that are independent agree at about one row in ten.
        assert (drawn[one] == drawn[other]).mean() < 0.35


def test_a_training_goes_through_the_blocks_in_another_order_in_each_epoch() -> None:
    lengths = [[20] * 100]
    source = sharded(numbers(lengths), lengths, window=200)

    def blocks_of(seed: int, epoch: int) -> set[int]:
        """Return the blocks that the first 200 rows of an epoch are of."""
        made = batch_order(
            [Stream(np.arange(2000), 200)], sample_keys(source.ids), seed, 30, windows=windows_of(source)
        )
        return set((np.concatenate([block.rows for block in made])[10 * epoch] // 20).tolist())

    first = blocks_of(0, 0)
    assert len(first) == 10
    assert len(first & blocks_of(0, 1)) < 6
    assert len(first & blocks_of(1, 0)) < 6


def test_each_kind_of_rows_goes_through_the_windows_in_their_order() -> None:
    keys, window = sample_keys(np.arange(400)), np.arange(400, dtype=np.int32) % 4
    kind = np.arange(400) % 3 == 0
    order = proportional_order(keys, kind.astype(np.int8), 0, window=window)
    for rows in (order[kind[order]], order[~kind[order]]):
        assert (np.diff(window[rows]) >= 0).all()


def test_a_block_that_is_used_stays_in_memory() -> None:
    lengths = [[10] * 20]
    source = sharded(numbers(lengths), lengths, window=10)  # six blocks are kept
    for block in range(1, 20):
        _ = source[np.array([0, 10 * block])]
    assert source.num_reads == 20


def test_blocks_in_memory_are_not_sent_to_other_processes() -> None:
    source = sharded(numbers([[500]]), [[500]])
    _ = source[np.arange(500)]
    assert not pickled(source)._cache
