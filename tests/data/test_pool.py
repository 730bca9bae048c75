"""What a pool keeps, and what labeling it needs, does not grow with samples times classes."""

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pool_support import CHUNK, Chunked, problem_of, traced
from small_runs import assert_same_pool

import surelabel as sl
from surelabel.base.together import Alone
from surelabel.data.draws import sample_keys
from surelabel.data.pool import PoolLabels, label_chunk
from surelabel.data.targets import OneLabel
from surelabel.data.training_set import make_problem
from surelabel.engine.order import batch_order
from surelabel.loop import label_pool, rounds
from surelabel.methods.ups import UPSMethod
from surelabel.runs.tables import from_tables, to_tables


def nothing_selected(num_classes: int) -> Chunked:
    return Chunked(np.full(num_classes, 1 / num_classes), u=0.5)


def a_positive_each(num_classes: int) -> Chunked:
    """Class 0 is sure; the others are ruled out, or with tau_n = 0 nothing is."""
    return Chunked([0.9, *[0.1 / (num_classes - 1)] * (num_classes - 1)], u=0.0)


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


class Sure(Chunked):
    """Each sample is of class 0 for sure; of every other chunk only that it is of no class but the first two."""

    def predict(self, source: sl.Source, *, seed: int) -> Iterator[sl.Prediction]:
        for number, chunk in enumerate(super().predict(source, seed=seed)):
            p = np.asarray(chunk.p)
            if number % 2:
                p[:, :2] = p[:, :2].mean(axis=1, keepdims=True)
            yield chunk._replace(p=p, p_soft=p.copy())


def sure(num_classes: int) -> Chunked:
    return Sure(np.array([0.9, *[0.1 / (num_classes - 1)] * (num_classes - 1)]), u=0.0)


@pytest.mark.parametrize("balance", [None, "equal"])
def test_a_round_keeps_40_bytes_a_sample_and_an_eighth_for_each_class_of_a_sample_with_negatives_only(
    balance: Any,
) -> None:
    """All that stays, ids included: the labels of a pool, or what a network learns from in their place.

    Samples are not counted, nor the interpreter's own few kilobytes.
    """
    num_rows, num_classes = 30_000, 80
    config = sl.UPSConfig(balance=balance, balance_rounds=1, balance_floor=num_rows)
    labeled = np.zeros((num_classes, 1), np.float32), np.arange(num_classes)
    x, learner = np.zeros((num_rows, 1), np.float32), sure(num_classes)
    few = problem_of(100, num_classes)  # what is made once a process is no part of a pool
    first_batch(few.training_set(label_pool(learner, few, config, 1).selected))
    problem, of_problem, _ = traced(lambda: make_problem(labeled, x, "single"))
    pool, of_labels, _ = traced(lambda: label_pool(learner, problem, config, 1))
    assert len(pool.negative.rows) == pool.positive.sum() == num_rows / 2
    packed = num_rows / 2 * num_classes / 8
    most = 40 * num_rows + 30_000
    assert of_problem + of_labels - packed < most
    training_set, of_targets, peak = traced(lambda: problem.training_set(pool.selected))
    assert peak < 20 * num_rows
    assert training_set.targets.bits.base is pool.negative.bits or training_set.targets.bits is pool.negative.bits
    _, of_order, _ = traced(lambda: first_batch(training_set))
    assert of_problem + of_targets + of_order < most


def first_batch(training_set: sl.TrainingSet) -> Any:
    """Return all that is kept while the batches of an epoch are drawn."""
    streams = UPSMethod("single", sl.TrainingSettings()).streams(training_set)
    blocks = batch_order(streams, sample_keys(training_set.source.ids), 0, 1000, length=1)
    return next(blocks), blocks


class Watching(Chunked):
    """Notes how many labels of earlier rounds are in memory while it trains."""

    def __init__(self, num_classes: int) -> None:
        super().__init__([0.9, *[0.1 / (num_classes - 1)] * (num_classes - 1)], u=0.0)
        self.pools = list[weakref.ref[Any]]()
        self.there: list[int] = []

    def fit(self, training_set: sl.TrainingSet, *, seed: int) -> None:
        self.there.append(sum(pool() is not None for pool in self.pools))


def test_the_labels_of_a_round_are_let_go_while_the_next_network_trains() -> None:
    """Whoever goes through the rounds decides how long a record lives."""
    learner = Watching(4)
    of_rounds = rounds(learner, problem_of(200, 4), sl.UPSConfig(balance=None, max_rounds=2))
    while (record := next(of_rounds, None)) is not None:
        assert record.pool is not None
        learner.pools.append(weakref.ref(record.pool))
        del record
    assert learner.there == [0, 0, 0]


class Thread(Alone):
    """One of two threads that stand for processes: each sees what both have made."""

    size = 2
    meeting = threading.Barrier(2, timeout=60)
    made: ClassVar[list[Any]] = [None, None]

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lengths: list[int] = []

    def in_all(self, function: Callable[[], Any]) -> list[Any]:
        self.made[self.rank] = function()
        self.lengths.append(len(self.made[self.rank]))
        self.meeting.wait()
        found = list(self.made)
        self.meeting.wait()
        return found


class OfTwo(Sure):
    """Labels every second chunk of a pool, as one of two processes does."""

    def __init__(self, rank: int) -> None:
        super().__init__([0.4, 0.3, 0.2, 0.1], u=0.0)
        self.processes = Thread(rank)

    def predict(self, source: sl.Source, *, seed: int, share: tuple[int, int] = (0, 1)) -> Iterator[sl.Prediction]:
        return itertools.islice(super().predict(source, seed=seed), share[0], None, share[1])


@pytest.mark.parametrize("num_rows", [50, 1600, 1700, 3150])
def test_several_processes_exchange_a_few_chunks_at_a_time(num_rows: int) -> None:
    problem, config = problem_of(num_rows, 4), sl.UPSConfig(balance=None, tau_p=0.35, tau_n=0.1)
    expected = label_pool(Sure([0.4, 0.3, 0.2, 0.1], u=0.0), problem, config, 1)
    learners = [OfTwo(0), OfTwo(1)]
    with ThreadPoolExecutor(2) as threads:
        pools = list(threads.map(lambda learner: label_pool(learner, problem, config, 1), learners))
    for pool, learner in zip(pools, learners, strict=True):
        assert pool is not None
        assert expected is not None
        assert_same_pool(pool, expected)
        assert max(learner.processes.lengths) <= 8


def test_a_round_makes_no_array_of_samples_times_classes() -> None:
    num_rows, num_classes = 6000, 500
    config = sl.UPSConfig(balance="equal", balance_rounds=1, max_rounds=2, tau_n=0.0)
    problem, learner = problem_of(num_rows, num_classes), a_positive_each(num_classes)
    truth = np.arange(num_rows) % num_classes
    records, _, peak = traced(lambda: list(rounds(learner, problem, config, truth=truth)))
    assert [record.num_positive for record in records] == [0, 25, num_rows]
    chunks = 2 * 4 * 4 * CHUNK * num_classes + 4 * CHUNK * num_classes
    assert peak < chunks + 250 * num_rows < 1.5 * num_rows * num_classes


def test_training_makes_masks_of_a_few_batches_alone() -> None:
    """At 4000 classes, y and g of all samples would be 48 MB; a batch has 64 kB of each."""
    num_rows, num_classes = 6000, 4000
    negative = np.zeros((num_rows - num_classes, num_classes), dtype=bool)
    negative[:, 1:] = True
    labeled = np.zeros((num_classes, 2), np.float32), np.arange(num_classes)
    problem = make_problem(labeled, np.zeros((num_rows - num_classes, 2), np.float32), "single")
    training_set = problem.training_set(sl.Selection(np.zeros_like(negative), negative))
    settings = sl.TrainingSettings(batch_size=16, steps=3, compile=False)
    learner = sl.TorchLearner(lambda shape, classes: torch.nn.Linear(2, classes), training=settings, device="cpu")
    learner.fit(training_set, seed=0)
    asked = []
    packed = OneLabel.packed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneLabel, "packed", lambda targets, rows: asked.append(len(rows)) or packed(targets, rows))
        _, _, peak = traced(lambda: learner.fit(training_set, seed=1))
    assert sum(asked) <= 4 * 32
    assert peak < 0.2 * num_rows * num_classes


def test_tables_are_written_and_read_without_masks() -> None:
    num_rows, num_classes = 6000, 500
    problem = problem_of(num_rows, num_classes)
    pool = label_pool(a_positive_each(num_classes), problem, sl.UPSConfig(balance=None, tau_n=0.0), 1)
    names = [f"class {number}" for number in range(num_classes)]
    from_tables(*to_tables(pool, names, np.arange(num_rows) % num_classes))
    _, _, peak = traced(lambda: from_tables(*to_tables(pool, names, np.arange(num_rows) % num_classes)))
    assert peak < 0.5 * num_rows * num_classes


def test_negatives_take_a_bit_for_each_class() -> None:
    num_rows, num_classes = 2000, 320
    problem = problem_of(num_rows, num_classes)
    config = sl.UPSConfig(balance="equal", balance_rounds=1, balance_floor=0)
    learner = a_positive_each(num_classes)  # one class alone has positives, so balance takes all of them away
    label_pool(learner, problem, config, 1)
    pool, kept, _ = traced(lambda: label_pool(learner, problem, config, 1))
    assert not pool.positive.any()
    assert pool.num_negative == num_rows * (num_classes - 1)
    assert kept < num_rows * (64 + num_classes / 8)


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
