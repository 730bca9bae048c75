"""What a pool keeps, and what labeling it needs, does not grow with samples times classes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from pool_support import CHUNK, Chunked, problem_of, traced

import surelabel as sl
from surelabel.data.pool import PoolLabels, label_chunk
from surelabel.data.targets import OneLabel
from surelabel.data.training_set import make_problem
from surelabel.loop import label_pool, rounds
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
    """All that stays: the problem, the selection, the targets, and the record of what was learned from."""
    num_rows, num_classes = 6000, 800
    config = sl.UPSConfig(balance=balance, balance_rounds=1, balance_floor=num_rows)
    problem, learner, truth = problem_of(num_rows, num_classes), sure(num_classes), np.arange(num_rows) % num_classes
    label_pool(learner, problem, config, 1, truth)
    pool, kept, _ = traced(lambda: label_pool(learner, problem, config, 1, truth))
    assert len(pool.negative.rows) == pool.positive.sum() == num_rows / 2
    packed = num_rows / 2 * num_classes / 8
    ids = problem.pool.ids.nbytes / num_rows
    training_set, of_round, peak = traced(lambda: problem.training_set(pool.selected))
    assert ids + (kept + of_round - packed) / num_rows < 40
    assert peak < 20 * num_rows
    assert training_set.targets.bits.base is pool.negative.bits or training_set.targets.bits is pool.negative.bits


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
