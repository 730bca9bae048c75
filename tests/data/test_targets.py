"""Targets in few bytes: the same labels, masks and rows as with dense masks y and g."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import masks, probabilities, shapes, uncertainties

import surelabel as sl
from surelabel.core.labels import Task
from surelabel.core.selection import Selection, balance, select
from surelabel.data.pool import balanced, join, label_chunk, without_known, without_unneeded
from surelabel.data.targets import Marks, OneLabel, SeveralLabels, blocks, dense
from surelabel.data.training_set import LABELED, NEGATIVE, POSITIVE, Problem, TrainingSet, make_problem

Dense = tuple[np.ndarray, np.ndarray]


@settings(max_examples=60)
@given(data=st.data(), shape=st.tuples(st.integers(1, 12), st.integers(1, 20)))
def test_marks_are_those_of_a_mask(data: Any, shape: tuple[int, int]) -> None:
    mask = data.draw(masks(shape))
    marks = Marks.of(mask)
    assert len(marks) == len(mask)
    assert marks.num_classes == shape[1]
    np.testing.assert_array_equal(marks.rows, np.flatnonzero(mask.any(axis=1)))
    np.testing.assert_array_equal(marks.counts, mask.sum(axis=1)[marks.rows])
    start, stop = data.draw(st.integers(0, shape[0])), data.draw(st.integers(0, shape[0] + 3))
    np.testing.assert_array_equal(marks[start:stop], mask[start:stop])
    cut = data.draw(st.integers(0, shape[0]))
    np.testing.assert_array_equal(Marks.join([Marks.of(mask[:cut]), Marks.of(mask[cut:])])[:], mask)
    np.testing.assert_array_equal(Marks.at(*np.nonzero(mask), shape)[:], mask)
    classes = data.draw(st.lists(st.integers(-1, shape[1] - 1), min_size=len(marks.rows), max_size=len(marks.rows)))
    wanted = [code >= 0 and mask[row, code] for row, code in zip(marks.rows, classes, strict=True)]
    assert marks.has(np.array(classes, dtype=np.int64)).tolist() == wanted
    kept = data.draw(masks(len(marks.rows)))
    mask[marks.rows[~kept]] = False
    np.testing.assert_array_equal(marks.only(kept)[:], mask)


def known(task: Task, labels: np.ndarray, num_classes: int, num_unlabeled: int) -> Dense:
    """The dense masks (y, g) of labels, as docs/DESIGN has them."""
    y, g = (np.zeros((len(labels) + num_unlabeled, num_classes), dtype=bool) for _ in "yg")
    if task == "multi":
        y[: len(labels)], g[: len(labels)] = labels == 1, labels >= 0
    else:
        y[np.arange(len(labels)), labels], g[: len(labels)] = True, True
    return y, g


def learned(task: Task, truth: Dense, pool_rows: np.ndarray, selection: Selection) -> Dense:
    """The dense masks of a round; with one label a sample, a row with a positive does without its negatives."""
    y, g = (part.copy() for part in truth)
    unknown = ~g[pool_rows]
    positive, negative = (part & unknown for part in selection)
    if task == "single":
        negative &= ~positive.any(axis=1, keepdims=True)
    y[pool_rows] |= positive
    g[pool_rows] |= positive | negative
    return y, g


def labels_of(task: Task, num_classes: int) -> np.ndarray:
    """Labels that a problem may have: every class, and for several labels unknown entries too."""
    if task == "single":
        return np.arange(num_classes)
    return np.concatenate(
        [np.eye(num_classes, dtype=int), np.ones((1, num_classes), int) - 2 * np.eye(num_classes, dtype=int)[:1]]
    )


def problem_of(task: Task, num_classes: int, num_unlabeled: int) -> tuple[Problem, Dense]:
    labels = labels_of(task, num_classes)
    problem = make_problem((np.zeros((len(labels), 1)), labels), np.zeros((num_unlabeled, 1)), task)
    return problem, known(task, labels, num_classes, num_unlabeled)


def assert_targets(training_set: TrainingSet, y: np.ndarray, g: np.ndarray) -> None:
    """Compare all that methods and learners ask of a training set."""
    everything = np.arange(len(y))
    for got, expected in ((training_set.y, y), (training_set.g, g)):
        assert (got.shape, len(got)) == (expected.shape, len(expected))
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(got[::2], expected[::2])
        np.testing.assert_array_equal(got[everything[::-1]], expected[::-1])
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_array_equal(got[expected.any(axis=1)], expected[expected.any(axis=1)])
        for reduced in ("any", "all"):
            for axis in (0, 1, None):
                wanted = getattr(expected, reduced)(axis=axis)
                np.testing.assert_array_equal(getattr(got, reduced)(axis=axis), wanted)
    np.testing.assert_array_equal(training_set.g & ~training_set.y, g & ~y)
    np.testing.assert_array_equal(training_set.rows, np.flatnonzero(g.any(axis=1)))
    kind = np.where(everything < training_set.num_labeled, LABELED, np.where((y & g).any(axis=1), POSITIVE, NEGATIVE))
    np.testing.assert_array_equal(training_set.kind, kind[training_set.rows])
    np.testing.assert_array_equal(training_set.targets.class_counts, (y & g).sum(axis=0))


@settings(max_examples=80)
@given(data=st.data(), shape=shapes(min_classes=2), task=st.sampled_from(["single", "multi"]))
def test_a_round_learns_from_the_targets_that_dense_masks_give(data: Any, shape: tuple[int, int], task: Task) -> None:
    """From p and u with many ties, thresholds that select nothing, some or all, balanced or not, in chunks."""
    num_rows, num_classes = shape
    problem, truth = problem_of(task, num_classes, num_rows)
    wide = (len(problem.pool_rows), num_classes)
    p, u = data.draw(probabilities(wide)), data.draw(uncertainties(wide))
    tau_n = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    thresholds = {"tau_p": max(tau_n, data.draw(st.sampled_from([0.0, 0.5]))), "tau_n": tau_n, "gamma": 0.5}
    thresholds |= {"kappa_p": data.draw(st.sampled_from([0.0, 0.05, np.inf])), "kappa_n": 0.1}
    cut = data.draw(st.integers(0, wide[0]))
    parts = [sl.Prediction(problem.pool.ids[some], p[some], u[some]) for some in (slice(cut), slice(cut, None))]
    pool = join([label_chunk(part, task, thresholds, negatives=True) for part in parts if len(part.ids)])
    selection = select(p, u, task=task, **thresholds)
    not_known = ~problem.known
    for part in selection:
        part[: len(not_known)] &= not_known
    pool = without_known(pool, problem.known)
    if data.draw(st.booleans()):
        pool, selection = balanced(pool, 1, None), balance(selection, u, floor=1)
    assert pool.num_negative == selection.negative.sum()
    np.testing.assert_array_equal(pool.selection.positive, selection.positive)
    np.testing.assert_array_equal(pool.selection.negative, selection.negative)
    expected = learned(task, truth, problem.pool_rows, selection)
    for chosen in (pool.selected, without_unneeded(pool).selected, selection):
        assert_targets(problem.training_set(chosen), *expected)
    assert without_unneeded(pool).num_negative == selection.negative.sum()


@pytest.mark.parametrize("task", ["single", "multi"])
@pytest.mark.parametrize("mark", ["nothing", "everything", "one class", "negatives only"])
def test_degenerate_rounds(task: Task, mark: str) -> None:
    problem, truth = problem_of(task, 9, 5)
    positive, negative = (np.zeros((len(problem.pool_rows), 9), dtype=bool) for _ in range(2))
    positive[:, 8] = mark in ("everything", "one class")
    negative[:, :8] = mark in ("everything", "negatives only")
    selection = Selection(positive, negative)
    assert_targets(problem.training_set(selection), *learned(task, truth, problem.pool_rows, selection))
    assert_targets(problem.training_set(None), *truth)


@pytest.mark.parametrize("num_classes", [2, 7, 8, 9, 300])
def test_a_label_is_found_in_its_byte(num_classes: int) -> None:
    labels = np.arange(num_classes)
    y, g = dense(OneLabel.of(labels, num_classes), labels)
    np.testing.assert_array_equal(y, np.eye(num_classes, dtype=bool))
    assert g.all()
    several = SeveralLabels.of(np.eye(num_classes, dtype=int) * 2 - 1)
    for code in range(num_classes):
        np.testing.assert_array_equal(several.of_class(code), [labels == code, labels == code])


def test_blocks_cover_all_rows_and_are_small() -> None:
    assert [(rows.start, rows.stop) for rows in blocks(3, 1 << 17)] == [(0, 1), (1, 2), (2, 3)]
    assert [(rows.start, rows.stop) for rows in blocks(5, 1 << 16)] == [(0, 2), (2, 4), (4, 5)]
    assert list(blocks(0, 4)) == []


def test_what_is_left_out_is_counted_and_judged() -> None:
    p = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.5, 0.45, 0.05]])
    thresholds = {"tau_p": 0.7, "tau_n": 0.1, "kappa_p": np.inf, "kappa_n": np.inf, "gamma": 0.5}
    pool = label_chunk(sl.Prediction(np.arange(3), p, None), "single", thresholds, negatives=True)
    kept = without_unneeded(pool, np.array([1, -1, 2]))
    assert pool.negative.rows.tolist() == [0, 1, 2]
    assert kept.negative.rows.tolist() == [2]
    assert kept.left_out == (4, 2, 1, 1)  # of samples 0 and 1; of sample 0, which is of class 1, one of two is wrong
    assert kept.num_negative == pool.num_negative == 5
    assert without_unneeded(kept, np.array([1, -1, 2])).left_out == kept.left_out
