"""Algorithm 1: train on the labels, label the pool, keep what is confident and certain, train anew, repeat.

    round 0      train f_0 on the labeled set
    round i      label the pool with f_{i-1} (eq. 1), select (eq. 5), train a fresh f_i on labels and selection

Every round is a pure function of (settings, seed, round, previous selection): the loop resumes from the records of the
rounds that are done, without their weights.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from surelabel.core.arrays import to_numpy
from surelabel.data.draws import seed_for
from surelabel.data.pool import PoolLabels, balanced, check_chunk, join, label_chunk, without_known
from surelabel.data.source import Source
from surelabel.data.training_set import HeldOut, Problem, make_problem
from surelabel.errors import InvalidInputError
from surelabel.learners.protocol import Learner, ScoringLearner
from surelabel.records import RoundRecord, describe, scores
from surelabel.settings import UPSConfig

Callback = Callable[[RoundRecord], object]

UNEVEN = 2.0
"""Labeled classes count as far from even when the largest has more than this many times the smallest."""


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
) -> Iterator[RoundRecord]:
    """Run Algorithm 1 and yield a record of each round as it ends; the learner then holds that round's model.

    Args:
        learner: what is trained and labels the pool (`Learner`).
        labeled: `(x, y)`: samples and class indices (N,), or for task "multi" 0, 1 and -1 (unknown), (N, C).
        unlabeled: the pool: an array with one row a sample, or a `Source`; with `max_rounds` 0 it may be None.
        config: thresholds, balance and stop rules.
        validation: `(x, y)` whose labels and scores are recorded; nothing is chosen by them.
        test: `(x, y)` whose score is recorded.
        truth: the pool's labels where known (-1 where not), for the records alone.
        resume_from: records of the rounds that are done, the last one with its `pool`.
        callbacks: called with each record; one that returns True ends the loop ("interrupted").
    """
    config = UPSConfig.model_validate(config or {})
    problem = make_problem(labeled, unlabeled, config.task, config.num_classes)
    if not len(problem.pool_rows) and config.max_rounds:
        raise InvalidInputError(
            "The 'unlabeled' argument is empty: self-training needs a pool. To use the labels alone, fit the learner."
        )
    return rounds(learner, problem, config, validation, test, truth, resume_from, callbacks)


def rounds(
    learner: Learner,
    problem: Problem,
    config: UPSConfig,
    validation: tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    truth: Any = None,
    resume_from: Sequence[RoundRecord] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Iterator[RoundRecord]:
    """Do what `self_train` does for a problem that is made already; an empty pool ends it after round 0."""
    done = list(resume_from or ())
    if done and (done[-1].pool is None or [record.round for record in done] != list(range(len(done)))):
        raise InvalidInputError(
            "The 'resume_from' argument must hold the records of rounds 0, 1, 2, ..., the last one with its 'pool'."
        )
    if done and done[-1].pool is not None and not np.array_equal(done[-1].pool.ids, problem.pool.ids):
        raise InvalidInputError("The 'resume_from' argument is of another pool: its ids are not those of 'unlabeled'.")
    held_out = problem.held_out("validation", validation), problem.held_out("test", test)
    pool_truth = problem.pool_truth(truth)
    _warn_when_uneven(problem, config)

    def loop() -> Iterator[RoundRecord]:
        counts = [record.num_selected_before for record in done]
        minutes, pool = (done[-1].minutes, done[-1].pool) if done else (0.0, None)
        if done and config.stop_reason(counts, problem.num_classes, minutes):
            return
        for number in range(len(done), config.max_rounds + 1):
            started = time.monotonic()
            # Not kept in a name: labeling needs the memory of the targets.
            entries, seed = pool.entries if pool else None, seed_for(config.seed, number, "fit")
            learner.fit(problem.training_set(entries, number), seed=seed)
            learned_from, pool = pool, label_pool(learner, problem, config, number + 1)
            parts = zip(("validation", "test"), held_out, strict=True)
            held_out_scores = [_scores(learner, name, part, config, number) for name, part in parts]
            validation_labels = None
            if held_out[0]:
                validation_labels = _label(learner, held_out[0].source, problem.num_classes, config, number)
            counts.append(learned_from.num_selected_before if learned_from else 0)
            # A fit that another run has made took its time there.
            minutes += (time.monotonic() - started + getattr(learner, "seconds_elsewhere", 0.0)) / 60
            record = describe(
                number,
                learned_from,
                pool_truth,
                num_classes=problem.num_classes,
                balanced=0 < number <= config.num_balanced_rounds(problem.num_classes),
                negatives_use=getattr(learner, "negatives_use", "loss"),
                minutes=minutes,
                stop=config.stop_reason(counts, problem.num_classes, minutes) if pool else "no_unlabeled",
                pool=pool,
                validation=validation_labels,
                **held_out_scores[0],
                **held_out_scores[1],
            )
            answers = [callback(record) for callback in callbacks]
            if True in answers and record.stop is None:
                record = record.replace(stop="interrupted")
            yield record
            if record.stop:
                return

    return loop()


def label_pool(learner: Learner, problem: Problem, config: UPSConfig, round: int) -> PoolLabels | None:
    """Label the whole pool and select what `round` will learn from; None when there is no pool."""
    if not len(problem.pool_rows):
        return None
    pool = without_known(_label(learner, problem.pool, problem.num_classes, config, round - 1), problem.known)
    if round > config.num_balanced_rounds(problem.num_classes):
        return pool
    shares = problem.class_counts / problem.class_counts.sum() if config.balance == "prior" else None
    # Selection by confidence alone (eq. 2) must not come to depend on u by way of the balance.
    return balanced(pool, config.balance_floor, shares, by_confidence=math.isinf(config.kappa_p))


def _label(learner: Learner, source: Source, num_classes: int, config: UPSConfig, network: int) -> PoolLabels:
    chunks, start, ids = [], 0, source.ids
    for prediction in learner.predict(source, seed=seed_for(config.seed, network, "predict")):
        check_chunk(prediction, ids[start : start + len(prediction.ids)], num_classes)
        chunks.append(label_chunk(prediction, config.task, config.thresholds, config.negatives))
        start += len(prediction.ids)
    if start != len(ids):
        raise InvalidInputError(f"The learner's predictions end after {start} of {len(ids)} samples.")
    return join(chunks)


def _scores(learner: Learner, name: str, part: HeldOut | None, config: UPSConfig, number: int) -> dict[str, Any]:
    if part is None:
        return {f"{name}_score": None}
    if isinstance(learner, ScoringLearner):
        p = np.asarray(learner.predict_proba(part.source))
    else:
        chunks = learner.predict(part.source, seed=seed_for(config.seed, number, "score"))
        p = np.concatenate([to_numpy(chunk.p) for chunk in chunks])
    return scores(name, p, part.y, part.g, config.task)


def _warn_when_uneven(problem: Problem, config: UPSConfig) -> None:
    counts = problem.class_counts
    if config.balance != "equal" or not config.num_balanced_rounds(problem.num_classes) or not len(problem.pool_rows):
        return
    if counts.max() > UNEVEN * max(counts.min(), 1):
        warnings.warn(
            f"The labeled classes are far from even ({counts.min()} to {counts.max()} samples), and balance='equal' "
            "selects as many pseudo-labels of each. If the pool is as uneven, use balance='prior' or balance=None.",
            UserWarning,
            stacklevel=3,
        )
