"""A learner that labels by what it is given, and what memory work takes."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import surelabel as sl
from surelabel.data.training_set import Problem, make_problem

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
