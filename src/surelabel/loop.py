"""Algorithm 1: train on the labels, label the pool, keep what is confident and certain, train anew, repeat.

    round 0      train f_0 on the labeled set
    round i      label the pool with f_{i-1} (eq. 1), select (eq. 5), train a fresh f_i on labels and selection

Every round is a pure function of (settings, seed, round, previous selection): the loop resumes from the records of the
rounds that are done, without their weights.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from surelabel.arrays import to_numpy
from surelabel.config import Settings
from surelabel.data.draws import seed_for
from surelabel.data.pool import Floats, PoolLabels, balanced, check_order, join, label_chunk, without_known
from surelabel.data.source import Source, as_source
from surelabel.data.training_set import Mask, Problem, make_problem, targets
from surelabel.errors import InvalidInputError
from surelabel.labels import Task
from surelabel.learners.protocol import Learner, ScoringLearner
from surelabel.metrics import accuracy, mean_average_precision
from surelabel.records import RoundRecord, StopReason, describe

Callback = Callable[[RoundRecord], object]

UNEVEN = 2.0
"""Labeled classes count as far from even when the largest has more than this many times the smallest."""


class UPSConfig(Settings):
    """How pseudo-labels are selected and when the rounds end. The defaults are the paper's.

    Attributes:
        task: "single" (one label a sample) or "multi" (several).
        num_classes: C, where the labels alone do not say.
        tau_p: least confidence of a positive label (the paper: 0.7, for multi-label 0.5).
        tau_n: largest confidence of a negative label.
        kappa_p: largest uncertainty of a positive label; infinite: selection by confidence alone (eq. 2).
        kappa_n: largest uncertainty of a negative label.
        gamma: multi-label: from which probability on a class counts as present (eq. 1).
        negatives: whether negative labels are used at all.
        balance: "equal" keeps as many positives of each class, "prior" in the labeled set's proportions, None all.
        balance_rounds: how many rounds are balanced; None: 10 for single-label with at most 20 classes, 1 for
            multi-label, else 0.
        balance_floor: balancing leaves each class at least this many positives, if it has them.
        max_rounds: how many rounds follow round 0 at most.
        tolerance: the rounds have converged when the number selected changes by less than this share, twice.
        max_minutes: no round starts after this many minutes.
        seed: everything random follows from it.
    """

    task: Task = "single"
    num_classes: PositiveInt | None = None
    tau_p: float = Field(0.7, ge=0, le=1)
    tau_n: float = Field(0.05, ge=0, le=1)
    kappa_p: float = Field(0.05, ge=0)
    kappa_n: float = Field(0.005, ge=0)
    gamma: float = Field(0.5, gt=0, lt=1)
    negatives: bool = True
    balance: Literal["equal", "prior"] | None = "equal"
    balance_rounds: NonNegativeInt | None = None
    balance_floor: NonNegativeInt = 25
    max_rounds: NonNegativeInt = 20
    tolerance: float = Field(0.01, ge=0)
    max_minutes: float | None = Field(None, ge=0)
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _check_order_of_thresholds(self) -> "UPSConfig":
        if self.tau_n > self.tau_p:
            raise ValueError(f"tau_n ({self.tau_n}) must not be larger than tau_p ({self.tau_p}).")
        return self

    @property
    def thresholds(self) -> dict[str, float]:
        """The arguments of `select`."""
        return {name: getattr(self, name) for name in ("tau_p", "tau_n", "kappa_p", "kappa_n", "gamma")}

    def num_balanced_rounds(self, num_classes: int) -> int:
        """How many of the first rounds are balanced."""
        if self.balance is None:
            return 0
        if self.balance_rounds is not None:
            return self.balance_rounds
        if self.task == "multi":
            return 1
        return 10 if num_classes <= 20 else 0


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
        unlabeled: the pool: an array with one row a sample, or a `Source`.
        config: thresholds, balance and stop rules.
        validation: `(x, y)` whose labels and scores are recorded; nothing is chosen by them.
        test: `(x, y)` whose score is recorded.
        truth: the pool's labels where known (-1 where not), for the records alone.
        resume_from: records of the rounds that are done, the last one with its `pool`.
        callbacks: called with each record; one that returns True ends the loop ("interrupted").
    """
    config = config or UPSConfig()
    problem = make_problem(labeled, unlabeled, config.task, config.num_classes)
    if not len(problem.pool_rows):
        raise InvalidInputError(
            "The 'unlabeled' argument is empty: self-training needs a pool. Fit the learner on the labels alone instead."
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
    """Check what `self_train` was given beside the problem, and return the loop; an empty pool ends it after round 0."""
    held_out = [_held_out(name, pair, problem) for name, pair in (("validation", validation), ("test", test))]
    known_truth = _truth(truth, problem)
    done = list(resume_from or ())
    if done and (done[-1].pool is None or [record.round for record in done] != list(range(len(done)))):
        raise InvalidInputError(
            "The 'resume_from' argument must hold the records of rounds 0, 1, …, the last one with its 'pool'."
        )
    _warn_when_uneven(problem, config)
    return _loop(learner, problem, config, held_out, known_truth, done, callbacks)


def _loop(
    learner: Learner,
    problem: Problem,
    config: UPSConfig,
    held_out: list[tuple[Source, Mask, Mask] | None],
    truth: tuple[Mask, Mask] | None,
    done: list[RoundRecord],
    callbacks: Sequence[Callback],
) -> Iterator[RoundRecord]:
    counts = [record.num_selected_before for record in done]
    minutes = done[-1].minutes if done else 0.0
    pool = done[-1].pool if done else None
    for number in range(len(done), config.max_rounds + 1):
        started = time.monotonic()
        learner.fit(
            problem.training_set(pool.selection if pool else None), seed=seed_for(config.seed, number, "fit")
        )
        learned_from = pool
        counts.append(learned_from.num_selected_before if learned_from else 0)
        scores = [None if part is None else _score(learner, part, problem.task, config, number) for part in held_out]
        pool = label_pool(learner, problem, config, number + 1) if len(problem.pool_rows) else None
        validation = _label(learner, held_out[0][0], config, number) if held_out[0] else None
        minutes += (time.monotonic() - started) / 60
        record = describe(
            number,
            learned_from,
            truth,
            num_classes=problem.y.shape[1],
            balanced=0 < number <= config.num_balanced_rounds(problem.y.shape[1]),
            negatives_use=getattr(learner, "negatives_use", "loss"),
            validation_score=scores[0],
            test_score=scores[1],
            minutes=minutes,
            stop=_stop(counts, problem, config, minutes),
            pool=pool,
            validation=validation,
        )
        for callback in callbacks:
            if callback(record) is True and record.stop is None:
                record = record.replace(stop="interrupted")
        yield record
        if record.stop:
            return


def label_pool(learner: Learner, problem: Problem, config: UPSConfig, round: int) -> PoolLabels:
    """Label the whole pool and select what `round` will learn from."""
    pool = without_known(_label(learner, problem.pool, config, round - 1), problem.known)
    if round > config.num_balanced_rounds(problem.y.shape[1]):
        return pool
    return balanced(pool, config.balance_floor, _shares(problem, config))


def _label(learner: Learner, source: Source, config: UPSConfig, network: int) -> PoolLabels:
    chunks, start, ids = [], 0, source.ids
    for prediction in learner.predict(source, seed=seed_for(config.seed, network, "predict")):
        check_order(ids[start : start + len(prediction.ids)], np.asarray(prediction.ids))
        chunks.append(label_chunk(prediction, config.task, config.thresholds, config.negatives))
        start += len(prediction.ids)
    check_order(ids[start:], ids[:0])
    return join(chunks)


def _score(
    learner: Learner, part: tuple[Source, Mask, Mask], task: Task, config: UPSConfig, number: int
) -> float | None:
    source, y, g = part
    if isinstance(learner, ScoringLearner):
        p = np.asarray(learner.predict_proba(source))
    else:
        chunks = learner.predict(source, seed=seed_for(config.seed, number, "score"))
        p = np.concatenate([to_numpy(chunk.p) for chunk in chunks])
    return accuracy(p, y) if task == "single" else mean_average_precision(p, y, g)


def _stop(counts: list[int], problem: Problem, config: UPSConfig, minutes: float) -> StopReason | None:
    number = len(counts) - 1
    if not len(problem.pool_rows):
        return "no_unlabeled"
    lifted = number - 1 > config.num_balanced_rounds(problem.y.shape[1])
    if number >= 3 and lifted and all(_unchanged(*counts[i - 1 : i + 1], config.tolerance) for i in (number - 1, number)):
        return "converged"
    if number >= config.max_rounds:
        return "max_rounds"
    if config.max_minutes is not None and minutes >= config.max_minutes:
        return "max_minutes"
    return None


def _unchanged(before: int, after: int, tolerance: float) -> bool:
    return before == after or abs(after - before) < tolerance * before


def _shares(problem: Problem, config: UPSConfig) -> Floats | None:
    counts = problem.class_counts
    return counts / counts.sum() if config.balance == "prior" else None


def _held_out(name: str, pair: tuple[Any, Any] | None, problem: Problem) -> tuple[Source, Mask, Mask] | None:
    if pair is None:
        return None
    source = as_source(name, pair[0])
    y, g = targets(name, pair[1], problem.task, problem.y.shape[1])
    if len(source) != len(y) or not len(y):
        raise InvalidInputError(f"The '{name}' argument has {len(source)} samples and {len(y)} labels.")
    return source, y, g


def _truth(truth: Any, problem: Problem) -> tuple[Mask, Mask] | None:
    """The pool's labels where known: (y, g), shape (N, C) each; partly labeled rows come first and are not judged."""
    if truth is None:
        return None
    values = to_numpy(truth)
    partly = len(problem.pool_rows) - (len(problem.source) - problem.num_labeled)
    if len(values) != len(problem.pool_rows) - partly:
        raise InvalidInputError(
            f"The 'truth' argument must have a label, or -1, for each unlabeled sample: "
            f"{len(problem.pool_rows) - partly}. Got {len(values)}."
        )
    known = values >= 0
    if problem.task == "single":
        y, _ = targets("truth", np.where(known, values, 0), "single", problem.y.shape[1])
        known = np.repeat(known[:, None], problem.y.shape[1], axis=1)
    else:
        y, known = targets("truth", values, "multi")
    nothing = np.zeros((partly, problem.y.shape[1]), dtype=bool)
    return np.concatenate([nothing, y]), np.concatenate([nothing, known])


def _warn_when_uneven(problem: Problem, config: UPSConfig) -> None:
    counts = problem.class_counts
    if config.balance != "equal" or not config.num_balanced_rounds(len(counts)) or not len(problem.pool_rows):
        return
    if counts.max() > UNEVEN * max(counts.min(), 1):
        warnings.warn(
            f"The labeled classes are far from even ({counts.min()} to {counts.max()} samples), and balance='equal' "
            "selects as many pseudo-labels of each. If the pool is as uneven, use balance='prior' or balance=None.",
            UserWarning,
            stacklevel=4,
        )
