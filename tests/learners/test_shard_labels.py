"""The labels of a shard: the same however it is cut into blocks, whoever labels it, and beside whatever else."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from surelabel import Prediction, TorchLearner
from surelabel.data.draws import seed_for
from surelabel.data.pool import PoolLabels, join
from surelabel.data.shards import Shard
from surelabel.data.source import ArraySource, Source
from surelabel.errors import InvalidInputError
from surelabel.learners.shard_labels import Labeling, label_shard

X = np.random.default_rng(0).normal(size=(23, 3)).astype(np.float32)
THRESHOLDS = {"tau_p": 0.4, "tau_n": 0.2, "kappa_p": 0.2, "kappa_n": 0.1, "gamma": 0.5}
HOW = Labeling("single", 4, THRESHOLDS, negatives=True, seed=3, network=2)
BY_CONFIDENCE = replace(HOW, thresholds={**THRESHOLDS, "kappa_p": np.inf, "kappa_n": np.inf})
SHARD = Shard("a.parquet", 1)


class Blocks:
    """A reader of rows in memory, cut into blocks."""

    def __init__(self, *rows: int) -> None:
        self.rows = list(rows)

    def blocks(self, shard: Shard) -> list[int]:
        return self.rows

    def read(self, shard: Shard, block: int) -> Source:
        start = sum(self.rows[:block])
        rows = np.arange(start, start + self.rows[block])
        return ArraySource(X[rows], ids=rows)


@pytest.fixture
def learner() -> TorchLearner:
    """A network with dropout that labels eight rows at once."""

    def network(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(*shape, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, classes))

    learner = TorchLearner(network, predict_batch_size=8, device="cpu")
    torch.manual_seed(0)
    learner.network = learner.build((3,), 4)
    return learner


def labels(learner: Any, reader: Blocks, shard: Shard = SHARD) -> PoolLabels:
    return join(list(label_shard(learner, reader, shard, HOW)))


def columns(pool: PoolLabels) -> list[bytes]:
    arrays = (pool.ids, pool.label, pool.confidence, pool.uncertainty, pool.confidence_soft, pool.uncertainty_soft)
    return [np.asarray(array).tobytes() for array in (*arrays, pool.positive, pool.negative[:])]


@pytest.mark.parametrize("rows", [(1,) * 23, (5, 9, 9), (8, 8, 7), (22, 1), (20, 0, 3)])
def test_blocks_of_other_sizes_give_the_same_bits(learner: TorchLearner, rows: tuple[int, ...]) -> None:
    assert columns(labels(learner, Blocks(*rows))) == columns(labels(learner, Blocks(23)))


def test_a_chunk_does_not_depend_on_the_rows_behind_it(learner: TorchLearner) -> None:
    few, all_rows = labels(learner, Blocks(8)), labels(learner, Blocks(23))
    assert few.confidence.tobytes() == all_rows.confidence[:8].tobytes()
    assert labels(learner, Blocks(23), Shard("b.parquet", 1)).confidence.tobytes() != all_rows.confidence.tobytes()


class Recorder:
    """Labels by a rule, in two predictions for each chunk, and notes what it was given."""

    def __init__(self, size: int, short: int = 0) -> None:
        self.size, self.short, self.seen = size, short, list[tuple[list[int], int]]()

    def chunk_size(self, source: Source) -> int:
        return self.size

    def predict(self, source: Source, *, seed: int) -> Iterator[Prediction]:
        self.seen.append((source.ids.tolist(), seed))
        p = np.full((len(source), 4), 0.25)
        half = len(source) // 2
        yield Prediction(source.ids[:half], p[:half], None)
        yield Prediction(source.ids[half : len(source) - self.short], p[half : len(source) - self.short], None)


def test_chunks_cross_blocks_and_the_last_one_is_padded_with_rows_that_are_dropped() -> None:
    recorder = Recorder(10)
    found = list(label_shard(recorder, Blocks(12, 11), SHARD, BY_CONFIDENCE))
    last = [20, 21, 22, 20, 21, 22, 20, 21, 22, 20]
    expected = [list(range(10)), list(range(10, 20)), last]
    assert recorder.seen == [(ids, seed_for(3, 2, "predict", "a.parquet", k)) for k, ids in enumerate(expected)]
    assert np.concatenate([chunk.ids for chunk in found]).tolist() == list(range(23))


def test_predictions_that_end_early_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"end after 9 of the 10 rows"):
        list(label_shard(Recorder(10, short=1), Blocks(23), SHARD, BY_CONFIDENCE))


def test_a_shard_without_rows_has_no_labels(learner: TorchLearner) -> None:
    assert list(label_shard(learner, Blocks(), SHARD, HOW)) == []


def test_the_number_of_threads_is_left_as_it_was(learner: TorchLearner) -> None:
    torch.set_num_threads(2)
    try:
        several = labels(learner, Blocks(23))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert columns(several) == columns(labels(learner, Blocks(23)))


def test_labels_are_computed_with_one_thread() -> None:
    threads = list[int]()

    class Counts(Recorder):
        def predict(self, source: Source, *, seed: int) -> Iterator[Prediction]:
            threads.append(torch.get_num_threads())
            yield from super().predict(source, seed=seed)

    torch.set_num_threads(2)
    try:
        list(label_shard(Counts(10), Blocks(23), SHARD, BY_CONFIDENCE))
    finally:
        torch.set_num_threads(1)
    assert threads == [1, 1, 1]
