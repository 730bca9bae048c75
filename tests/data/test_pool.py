"""What a pool keeps, and what labeling it needs, does not grow with samples times classes."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import masks, shapes

import surelabel as sl
from surelabel.data.pool import Entries, PoolLabels, label_chunk
from surelabel.data.training_set import Problem, make_problem
from surelabel.loop import label_pool, rounds
from surelabel.runs.tables import from_tables, to_tables

CHUNK = 100


class Chunked:
    """Labels a source CHUNK rows at a time, each row like the one it is given, and keeps nothing."""

    def __init__(self, p: Any, u: float) -> None:
        self.p, self.u = np.asarray(p, np.float32), u

    def fit(self, training_set: sl.TrainingSet, *, seed: int) -> None:
        """Nothing is learned."""

    def predict(self, source: sl.Source, *, seed: int) -> Iterator[sl.Prediction]:
        for start in range(0, len(source), CHUNK):
            ids = source.ids[start : start + CHUNK]
            p = np.tile(self.p, (len(ids), 1))
            u = np.full_like(p, self.u)
            yield sl.Prediction(ids, p, u, p.copy(), u.copy())


def nothing_selected(num_classes: int) -> Chunked:
    return Chunked(np.full(num_classes, 1 / num_classes), u=0.5)


def a_positive_each(num_classes: int) -> Chunked:
    """Class 0 is sure; the others are ruled out, or with tau_n = 0 nothing is."""
    return Chunked([0.9, *[0.1 / (num_classes - 1)] * (num_classes - 1)], u=0.0)


def problem_of(num_rows: int, num_classes: int) -> Problem:
    labeled = np.zeros((num_classes, 1), np.float32), np.arange(num_classes)
    return make_problem(labeled, np.zeros((num_rows, 1), np.float32), "single")


def traced(function: Callable[[], Any]) -> tuple[Any, int, int]:
    """Return what a function returns, the bytes that this keeps, and the peak of what it needed."""
    tracemalloc.start()
    try:
        result = function()
        return result, *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("balance", [None, "equal"])
def test_what_is_kept_of_a_sample_does_not_depend_on_the_number_of_classes(balance: Any) -> None:
    num_rows = 4000
    config = sl.UPSConfig(balance=balance, balance_rounds=1)
    kept = {}
    for num_classes in (20, 200, 1000):
        problem, learner = problem_of(num_rows, num_classes), nothing_selected(num_classes)
        label_pool(learner, problem, config, 1)  # what a first call leaves behind is not the pool's
        pool, kept[num_classes], _ = traced(lambda p=problem, x=learner: label_pool(x, p, config, 1))
        assert pool.num_selected_before == 0
    per_sample = {num_classes: value / num_rows for num_classes, value in kept.items()}
    assert max(per_sample.values()) < 64, per_sample  # one dense mask alone: C bytes
    # The interpreter's own few kilobytes come and go; a mask would add 980 bytes from 20 classes to 1000.
    assert max(per_sample.values()) - min(per_sample.values()) < 16, per_sample


@pytest.mark.parametrize("balance", [None, "equal", "prior"])
@pytest.mark.parametrize("make", [nothing_selected, a_positive_each])
def test_the_peak_of_labeling_is_a_few_chunks_however_large_the_pool(make: Any, balance: Any) -> None:
    num_rows, num_classes = 6000, 500
    config = sl.UPSConfig(balance=balance, balance_rounds=1, balance_floor=3000, tau_n=0.0)
    problem, learner = problem_of(num_rows, num_classes), make(num_classes)
    label_pool(learner, problem, config, 1)
    _, _, peak = traced(lambda: label_pool(learner, problem, config, 1))
    # Two predictions of four float32 arrays live side by side while the next is made; masks come on top.
    chunks = 2 * 4 * 4 * CHUNK * num_classes + 4 * CHUNK * num_classes
    assert peak < chunks + 250 * num_rows
    assert chunks + 250 * num_rows < 1.5 * num_rows * num_classes  # three masks, kept or joined, break it


def test_a_round_makes_no_array_of_samples_times_classes_but_its_targets() -> None:
    num_rows, num_classes = 6000, 500
    config = sl.UPSConfig(balance="equal", balance_rounds=1, max_rounds=2, tau_n=0.0)
    problem, learner = problem_of(num_rows, num_classes), a_positive_each(num_classes)
    truth = np.arange(num_rows) % num_classes
    records, _, peak = traced(lambda: list(rounds(learner, problem, config, truth=truth)))
    assert [record.num_positive for record in records] == [0, 25, num_rows]
    targets = problem.y.nbytes + problem.g.nbytes
    assert peak < targets + 0.9 * num_rows * num_classes  # y and g of the round, and less than one more mask


def test_tables_are_written_and_read_without_masks() -> None:
    num_rows, num_classes = 6000, 500
    problem = problem_of(num_rows, num_classes)
    pool = label_pool(a_positive_each(num_classes), problem, sl.UPSConfig(balance=None, tau_n=0.0), 1)
    names = [f"class {number}" for number in range(num_classes)]
    from_tables(*to_tables(pool, names, np.arange(num_rows) % num_classes))
    _, _, peak = traced(lambda: from_tables(*to_tables(pool, names, np.arange(num_rows) % num_classes)))
    assert peak < 0.5 * num_rows * num_classes


def test_many_negatives_take_less_than_masks_did() -> None:
    num_rows, num_classes = 2000, 300
    problem = problem_of(num_rows, num_classes)
    config = sl.UPSConfig(balance=None)
    learner = a_positive_each(num_classes)
    label_pool(learner, problem, config, 1)
    pool, kept, _ = traced(lambda: label_pool(learner, problem, config, 1))
    num_negatives = len(pool.negative.classes)
    assert num_negatives == num_rows * (num_classes - 1)
    values = pool.negative_p.nbytes + pool.negative_u.nbytes
    assert kept - values < 3 * num_rows * num_classes


# --- the entries themselves


@settings(max_examples=40)
@given(data=st.data(), shape=shapes())
def test_entries_are_the_marked_ones_of_a_mask(data: Any, shape: tuple[int, int]) -> None:
    mask = data.draw(masks(shape))
    entries = Entries.of(mask)
    rows, classes = np.nonzero(mask)
    np.testing.assert_array_equal(entries.rows, rows)
    np.testing.assert_array_equal(entries.classes, classes)
    np.testing.assert_array_equal(entries.counts, mask.sum(axis=1))
    np.testing.assert_array_equal(Entries.at(rows, classes, shape)[:], mask)
    start = data.draw(st.integers(0, shape[0]))
    stop = data.draw(st.integers(0, shape[0] + 3))
    np.testing.assert_array_equal(entries[start:stop], mask[start:stop])
    cut = data.draw(st.integers(0, shape[0]))
    np.testing.assert_array_equal(Entries.join([Entries.of(mask[:cut]), Entries.of(mask[cut:])])[:], mask)
    kept = data.draw(masks(shape))
    np.testing.assert_array_equal(entries.only(kept[mask])[:], mask & kept)


@pytest.mark.parametrize(("num_classes", "dtype"), [(255, np.uint8), (256, np.uint16), (70_000, np.uint32)])
def test_classes_are_kept_in_the_smallest_integers_that_hold_them(num_classes: int, dtype: Any) -> None:
    mask = np.zeros((2, num_classes), dtype=bool)
    mask[1, [0, num_classes - 1]] = True
    entries = Entries.of(mask)
    assert entries.classes.dtype == dtype
    assert entries.classes.tolist() == [0, num_classes - 1]
    assert np.array_equal(entries[1:2], mask[1:])


@pytest.mark.parametrize("task", ["single", "multi"])
def test_masks_are_there_for_those_who_need_them(task: Any) -> None:
    generator = np.random.default_rng(0)
    p, u = generator.dirichlet(np.ones(4), 30), generator.random((30, 4)) / 10
    thresholds = {"tau_p": 0.4, "tau_n": 0.2, "kappa_p": 0.08, "kappa_n": 0.05, "gamma": 0.5}
    pool: PoolLabels = label_chunk(sl.Prediction(np.arange(30), p, u), task, thresholds, negatives=True)
    expected = sl.select(p, u, task=task, **thresholds)
    assert expected.positive.any()
    assert expected.negative.any()
    np.testing.assert_array_equal(pool.selection.positive, expected.positive)
    np.testing.assert_array_equal(pool.selection.negative, expected.negative)
    np.testing.assert_array_equal(pool.before, expected.positive)
    np.testing.assert_array_equal(pool.negative_p, p[expected.negative])
    np.testing.assert_array_equal(pool.negative_u, u[expected.negative])
