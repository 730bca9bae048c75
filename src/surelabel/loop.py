"""Algorithm 1: train on the labels, label the pool, keep what is confident and certain, train a fresh model, repeat.

    round 0      train f_0 on the labeled set
    round i      label the pool with f_{i-1} (eq. 1), select (eq. 5), train a fresh f_i on labels and selection

Every round is a pure function of (settings, seed, round, previous selection): the loop resumes from the records of the
rounds that are done, without their weights.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from surelabel.base.together import Alone, processes_of
from surelabel.core.arrays import to_numpy
from surelabel.data.draws import seed_for
from surelabel.data.pool import (
    Balance,
    PoolLabels,
    balanced,
    check_chunk,
    join,
    label_chunk,
    rows_in_memory,
    without_known,
    without_unneeded,
)
from surelabel.data.source import Source
from surelabel.data.training_set import HeldOut, Problem, make_problem
from surelabel.errors import InvalidInputError
from surelabel.learners import Learner
from surelabel.records import RoundRecord, StopReason, Truth, describe, scores
from surelabel.settings import UPSConfig

Callback = Callable[[RoundRecord], object]

PoolLabeler = Callable[[Learner, Source, int, UPSConfig, int], Iterator[PoolLabels]]
"""(learner, pool, C, config, number of the network) to the labels of the pool before balancing, chunk by chunk."""

_CHUNKS_AT_ONCE = 8
"""Chunks that each of several processes labels before an exchange."""

UNEVEN = 2.0
"""Labeled classes count as imbalanced if the largest has more than this many times the smallest."""


def self_train(
    learner: Learner,
    labeled: tuple[Any, Any],
    unlabeled: Any,
    config: UPSConfig | None = None,
    validation: tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    truth: Any = None,
    resume_from: Sequence[RoundRecord] | None = None,
    callbacks: Sequence[Callback] = (),
    label: PoolLabeler | None = None,
) -> Iterator[RoundRecord]:
    """Run Algorithm 1 and yield a record of each round as it ends; the learner then holds that round's model.

    Args:
        learner: what is trained and labels the pool (`Learner`).
        labeled: `(x, y)`: samples and class indices (N,), or for task "multi" 0, 1 and -1 (unknown), (N, C).
        unlabeled: the pool: an array with one row per sample, or a `Source`; with `max_rounds` 0 it may be None.
        config: thresholds, balance and stop rules.
        validation: `(x, y)` whose labels and scores are recorded; nothing is chosen by them.
        test: `(x, y)` whose score is recorded.
        truth: the pool's true labels if known, else -1, only for the records.
        resume_from: records of the rounds that are done, the last one with its `pool`.
        callbacks: called with each record; one that returns True ends the loop ("interrupted").
        label: labels the pool as the learner would, for example in other processes; None: the learner does it here.
    """
    config = UPSConfig.model_validate(config or {})
    problem = make_problem(labeled, unlabeled, config.task, config.num_classes)
    if not problem.num_pool and config.max_rounds:
        raise InvalidInputError("The 'unlabeled' argument is empty; to use the labels alone, fit the learner.")
    done = list(resume_from or ())
    pool = done[-1].pool if done else None
    if done and (pool is None or [record.round for record in done] != list(range(len(done)))):
        wanted = "the records of rounds 0, 1, 2, ..., the last one with its 'pool'"
        raise InvalidInputError(f"The 'resume_from' argument must hold {wanted}.")
    if pool is not None and not np.array_equal(pool.ids, problem.pool.ids):
        raise InvalidInputError("The 'resume_from' argument is of another pool: its ids are not those of 'unlabeled'.")
    pairs = {"validation": validation, "test": test}
    held_out = {name: part for name in pairs if (part := problem.held_out(name, pairs[name])) is not None}
    return rounds(learner, problem, config, held_out, problem.pool_truth(truth), done, callbacks, label)


def rounds(
    learner: Learner,
    problem: Problem,
    config: UPSConfig,
    held_out: Mapping[str, HeldOut] | None = None,
    truth: Truth | None = None,
    done: Sequence[RoundRecord] = (),
    callbacks: Sequence[Callback] = (),
    label: PoolLabeler | None = None,
) -> Iterator[RoundRecord]:
    """Run Algorithm 1 on what `self_train` has checked; an empty pool ends it after round 0.

    Args:
        learner: what is trained and labels the pool.
        problem: labeled samples and the pool.
        config: thresholds, balance and stop rules.
        held_out: samples whose scores are recorded: "validation", "test".
        truth: the pool's labels where known.
        done: records of the rounds that are done, the last one with its `pool`.
        callbacks: called with each record; one that returns True ends the loop.
        label: labels the pool; None: the learner does.
    """
    _warn_when_uneven(problem, config)
    past = _Past(config, problem.num_classes, done)
    pool = done[-1].pool if done else None
    done = ()  # its last record would keep the pool in memory
    for number in past.rounds_left():
        record = describe(
            number,
            pool,
            truth,
            num_classes=problem.num_classes,
            balanced=0 < number <= config.num_balanced_rounds(problem.num_classes),
            negatives_use=getattr(learner, "negatives_use", "loss"),
            minutes=past.minutes,
            stop=None,
        )
        with past.timed(learner):
            training_set = problem.training_set(None if pool is None else pool.selected, number)
            pool = None  # a large pool is in memory only once: as targets while a network trains, then as its labels
            learner.fit(training_set, seed=seed_for(config.seed, number, "fit"))
            del training_set
            pool = label_pool(learner, problem, config, number + 1, truth, label)
            judged = _judged(learner, problem, held_out or {}, config, number)
        stop = past.stop_reason(record) if pool else "no_unlabeled"
        record = record.replace(minutes=past.minutes, stop=stop, pool=pool, **judged)
        answers = [callback(record) for callback in callbacks]
        asked_to_stop = processes_of(learner).by_first(functools.partial(operator.contains, answers, True))
        if asked_to_stop and record.stop is None:
            record = record.replace(stop="interrupted")
        yield record
        if record.stop:
            return


class _Past:
    """The rounds that are done, here or before a resume: how many labels they selected, and how long they took."""

    def __init__(self, config: UPSConfig, num_classes: int, done: Sequence[RoundRecord]) -> None:
        self.config, self.num_classes = config, num_classes
        self.counts = [record.num_selected_before for record in done]
        self.minutes = done[-1].minutes if done else 0.0

    def rounds_left(self) -> range:
        """Return the numbers of the rounds that may follow."""
        over = self.counts and self.config.stop_reason(self.counts, self.num_classes, self.minutes)
        return range(0) if over else range(len(self.counts), self.config.max_rounds + 1)

    def stop_reason(self, record: RoundRecord) -> StopReason | None:
        """Count a round's selection; return why the rounds end with it, or None."""
        self.counts.append(record.num_selected_before)
        return self.config.stop_reason(self.counts, self.num_classes, self.minutes)

    @contextlib.contextmanager
    def timed(self, learner: Learner) -> Iterator[None]:
        """Add the time of a round, including the time of its fit in another run or an earlier process."""
        started = time.monotonic()
        yield
        minutes = (time.monotonic() - started + getattr(learner, "seconds_elsewhere", 0.0)) / 60
        self.minutes += processes_of(learner).by_first(lambda: minutes)


def _judged(
    learner: Learner, problem: Problem, held_out: Mapping[str, HeldOut], config: UPSConfig, number: int
) -> dict[str, Any]:
    """Return a round's results on held-out samples, by their names in the record."""
    found: dict[str, Any] = {"scores": {}}
    for name, part in held_out.items():
        if hasattr(learner, "predict_proba"):  # one deterministic pass
            p = np.asarray(learner.predict_proba(part.source))
        else:
            chunks = learner.predict(part.source, seed=seed_for(config.seed, number, "score"))
            p = np.concatenate([to_numpy(chunk.p) for chunk in chunks])
        judged = scores(name, p, part.y, part.g, config.task)
        found |= {**judged, "scores": {**found["scores"], **judged["scores"]}}
    if "validation" in held_out:
        source = held_out["validation"].source
        labeled = _all_of(source, _labels(learner, source, problem.num_classes, config, number))
        found["validation"] = join(list(labeled))
    return found


def label_pool(
    learner: Learner,
    problem: Problem,
    config: UPSConfig,
    round: int,
    truth: Truth | None = None,
    label: PoolLabeler | None = None,
) -> PoolLabels | None:
    """Label the whole pool and select what `round` will learn from; None when there is no pool."""
    if not problem.num_pool:
        return None
    source, num_classes = problem.pool, problem.num_classes
    shares = problem.class_counts / problem.class_counts.sum() if config.balance == "prior" else None
    # Selection by confidence alone (eq. 2) must not depend on u through the balancing.
    balance = Balance(config.balance_floor, shares, by_confidence=math.isinf(config.kappa_p))
    balances = round <= config.num_balanced_rounds(num_classes)
    labels = _labels if label is None else label
    chunks = _all_of(source, labels(learner, source, num_classes, config, round - 1))
    if not balances:
        chunks = _settled(chunks, truth)
    if config.task == "single" and len(source) > rows_in_memory():
        from surelabel.data.stored_pool import StoredPool

        return StoredPool(chunks, source.ids, num_classes, balance if balances else None, truth)
    pool = dataclasses.replace(without_known(join(list(chunks)), problem.known), ids=source.ids)
    return without_unneeded(balanced(pool, *balance), truth) if balances else pool


def _settled(chunks: Iterator[PoolLabels], truth: Truth | None) -> Iterator[PoolLabels]:
    """Leave out the unneeded negatives chunk by chunk, if nothing is balanced."""
    start = 0
    for chunk in chunks:
        yield without_unneeded(chunk, None if truth is None else truth[start : start + len(chunk)])
        start += len(chunk)


def _labels(
    learner: Learner, source: Source, num_classes: int, config: UPSConfig, network: int
) -> Iterator[PoolLabels]:
    """Yield the labels of a source chunk by chunk; each of several processes labels some, and gets all."""
    group, ids = processes_of(learner), source.ids
    share = {"share": (group.rank, group.size)} if group.size > 1 else {}

    def labeled() -> Iterator[PoolLabels]:
        start = 0
        for prediction in learner.predict(source, seed=seed_for(config.seed, network, "predict"), **share):
            expected = prediction.ids if share else ids[start : start + len(prediction.ids)]
            check_chunk(prediction, expected, num_classes)
            yield label_chunk(prediction, config.task, config.thresholds, config.negatives)
            start += len(prediction.ids)

    yield from _of_all(group, labeled()) if share else labeled()


def _of_all(group: Alone, mine: Iterator[PoolLabels]) -> Iterator[PoolLabels]:
    """Yield the chunks of all processes in the order of the source: each process has every n-th one.

    A few are exchanged at a time, so that no process holds the labels of a large pool.
    """
    more = True
    while more:
        parts = group.in_all(lambda: list(itertools.islice(mine, _CHUNKS_AT_ONCE)))
        more = min(map(len, parts)) == _CHUNKS_AT_ONCE
        yield from (chunk for chunks in itertools.zip_longest(*parts) for chunk in chunks if chunk is not None)


def _all_of(source: Source, chunks: Iterator[PoolLabels]) -> Iterator[PoolLabels]:
    """Yield the chunks; refuse them if they end before the source does."""
    number = 0
    for chunk in chunks:
        yield chunk
        number += len(chunk)
    if number != len(source):
        raise InvalidInputError(f"The learner's predictions end after {number} of {len(source)} samples.")


def _warn_when_uneven(problem: Problem, config: UPSConfig) -> None:
    counts = problem.class_counts
    if config.balance != "equal" or not config.num_balanced_rounds(problem.num_classes) or not problem.num_pool:
        return
    if counts.max() > UNEVEN * max(counts.min(), 1):
        uneven = f"The labeled classes are far from even ({counts.min()} to {counts.max()} samples)"
        warnings.warn(f"{uneven}; if the pool is too, use balance='prior' or balance=None.", stacklevel=3)
