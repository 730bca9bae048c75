"""Splits: balanced, drawn by the seed alone, whole groups on one side, and told apart by a hash."""

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surelabel.data.draws import draw, sample_keys
from surelabel.data.splits import (
    LabeledKFold,
    balanced_split,
    few_labels,
    multi_label_split,
    share_split,
    split_hash,
    split_rows,
)
from surelabel.errors import InvalidInputError

Y = np.random.default_rng(0).permutation(np.arange(5000) % 10)


def test_a_thousand_labels_are_a_hundred_of_each_of_ten_classes() -> None:
    split = balanced_split(Y, labels=1000, seed=0)
    assert np.bincount(Y[split.labeled]).tolist() == [100] * 10
    assert len(split.validation) == 0
    assert len(split.pool) == 4000


@given(
    seed=st.integers(0, 2**40),
    per_class=st.integers(1, 6),
    held_out=st.integers(0, 4),
    y=st.permutations([label for label in range(4) for _ in range(10)]).map(np.array),
)
def test_the_three_parts_are_balanced_and_cover_every_sample_once(
    seed: int, per_class: int, held_out: int, y: np.ndarray
) -> None:
    split = balanced_split(y, 4 * per_class, seed, 4 * held_out)
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(40))
    assert all(np.array_equal(part, np.sort(part)) for part in split)
    assert np.bincount(y[split.labeled], minlength=4).tolist() == [per_class] * 4
    assert np.bincount(y[split.validation], minlength=4).tolist() == [held_out] * 4


def test_a_seed_draws_one_split_and_other_seeds_draw_others() -> None:
    first, again, other = (balanced_split(Y, 100, seed, 50) for seed in (7, 7, 8))
    assert first.hash == again.hash != other.hash
    expected_overlap = 100 * 100 / 5000
    assert len(np.intersect1d(first.labeled, other.labeled)) < 5 * expected_overlap


def test_fewer_labels_are_a_part_of_more_and_validation_leaves_them_alone() -> None:
    few, many = (balanced_split(Y, labels, seed=1) for labels in (100, 400))
    assert set(few.labeled) < set(many.labeled)
    held_out = balanced_split(Y, 100, seed=1, num_validation=200)
    assert np.array_equal(held_out.labeled, few.labeled)
    assert set(held_out.validation) < set(few.pool)


def test_the_labeled_samples_are_those_of_few_labels() -> None:
    labeled, rest = few_labels(Y, per_class=10, seed=3)
    split = balanced_split(Y, 100, seed=3)
    assert np.array_equal(labeled, split.labeled)
    assert np.array_equal(rest, split.pool)


def test_draws_stay_what_they_were() -> None:
    # Recorded: another machine, and a later version, must draw the same.
    split = balanced_split(np.arange(50_000) % 10, labels=1000, seed=0, num_validation=500)
    assert split.labeled[:5].tolist() == [25, 63, 109, 208, 211]
    assert split.hash == "6e1f7fbf853440d3e8f3f4d95db22a4c7051db5eb3969301ece4e4c3d4d9afcb"


def test_the_hash_is_of_the_sorted_ids_a_line_each() -> None:
    expected = hashlib.sha256(b"labeled\n2\n10\nvalidation\n3").hexdigest()
    assert split_hash(np.array([10, 2]), np.array([3])) == expected
    assert split_hash(np.array(["b", "a"])) == hashlib.sha256(b"labeled\na\nb\nvalidation").hexdigest()


@pytest.mark.parametrize(
    ("labels", "num_validation", "problem"),
    [
        (
            1005,
            0,
            r"labels must be a multiple of the 10 classes; got 1005. Take 1000 or 1010",
        ),
        (0, 0, r"'labels' argument must be a whole number of at least 10. Got 0 instead; take a multiple of 10, the n"),
        (-10, 0, r"'labels' argument .* Got -10 instead; take a multiple of 10"),
        (100.0, 0, r"'labels' argument .* Got 100.0 instead; take a multiple of 10"),
        (None, 0, r"'labels' argument .* Got None instead; take a multiple of 10"),
        ("x", 0, r"'labels' argument .* Got 'x' instead; take a multiple of 10"),
        (100, 7, r"num_validation must .* got 7. Take 0 or 10"),
        (6000, 0, r"Class 0 has 500 samples; 600 were to be drawn for labels. Ask for fewer"),
        (4000, 2000, r"Class 0 has 100 samples; 200 were to be drawn for validation. Ask for fewer"),
    ],
)
def test_numbers_that_cannot_be_balanced_are_refused(labels: int, num_validation: int, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        balanced_split(Y, labels, seed=0, num_validation=num_validation)


def test_few_labels_are_one_of_each_class_at_least() -> None:
    for count in (-1, 0, 1.5):
        with pytest.raises(
            InvalidInputError, match=rf"'per_class' argument must be .* at least 1. Got {count} instead"
        ):
            few_labels(Y, count, 0)


def test_no_samples_cannot_be_split() -> None:
    for split in (few_labels, balanced_split, share_split):
        with pytest.raises(InvalidInputError, match="'y' argument must not be empty"):
            split(Y[:0], 1, 0)


# Eight videos of each of ten classes, of one to nine clips.
SIZES = np.random.default_rng(1).integers(1, 10, size=80)
VIDEO = np.repeat(np.arange(80), SIZES)
CLASS = VIDEO % 10
NAMES = np.array([f"v_{video % 10}_g{video // 10}" for video in VIDEO])


def sides(groups: np.ndarray, *parts: np.ndarray) -> list[set[Any]]:
    return [set(groups[part].tolist()) for part in parts]


@pytest.mark.parametrize("seed", range(5))
def test_whole_groups_are_labeled_until_each_class_has_enough(seed: int) -> None:
    labeled, rest = few_labels(CLASS, per_class=6, seed=seed, groups=NAMES)
    assert np.array_equal(np.sort(np.concatenate([labeled, rest])), np.arange(len(CLASS)))
    assert not set.intersection(*sides(NAMES, labeled, rest))
    for label in range(10):
        # Worked out by itself: the class's videos in the order drawn, until there are six clips.
        videos = np.unique(NAMES[label == CLASS])
        order = videos[np.argsort(draw(seed, "labels", sample_keys(videos)))]
        counts = np.cumsum([(video == NAMES).sum() for video in order])
        expected = set(order[: np.searchsorted(counts, 6) + 1].tolist())
        assert set(NAMES[labeled][CLASS[labeled] == label].tolist()) == expected


@given(
    seed=st.integers(0, 2**40),
    y=st.lists(st.integers(0, 2), min_size=30, max_size=60).map(np.array),
    num_groups=st.integers(1, 40),
    per_class=st.integers(1, 4),
    held_out=st.integers(0, 2),
)
def test_no_group_is_on_two_sides(seed: int, y: np.ndarray, num_groups: int, per_class: int, held_out: int) -> None:
    groups = draw(seed, "group", np.arange(len(y), dtype=np.uint64)).astype(np.int64) % num_groups
    num_classes = len(np.unique(y))
    try:
        split = balanced_split(y, num_classes * per_class, seed, num_classes * held_out, groups=groups)
    except InvalidInputError as error:
        assert "were to be drawn for" in str(error)  # noqa: PT017 - large groups may leave nothing to hold out
        return
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(len(y)))
    labeled, validation, pool = sides(groups, *split)
    assert not labeled & validation
    assert not labeled & pool
    assert not validation & pool
    for part, least in ((split.labeled, per_class), (split.validation, held_out)):
        assert np.bincount(y[part], minlength=3)[np.unique(y)].min() >= least


def test_with_groups_of_one_class_fewer_labels_are_a_part_of_more() -> None:
    few, many = (balanced_split(CLASS, labels, seed=1, groups=NAMES) for labels in (40, 150))
    assert set(few.labeled) < set(many.labeled)
    held_out = balanced_split(CLASS, 40, seed=1, num_validation=50, groups=NAMES)
    assert np.array_equal(held_out.labeled, few.labeled)


def test_groups_are_drawn_by_their_names() -> None:
    order = np.random.default_rng(0).permutation(len(CLASS))
    split = balanced_split(CLASS, 40, seed=0, groups=NAMES)
    shuffled = balanced_split(CLASS[order], 40, seed=0, groups=NAMES[order])
    assert set(NAMES[split.labeled]) == set(NAMES[order][shuffled.labeled])
    assert split.hash == balanced_split(CLASS, 40, seed=0, groups=NAMES.tolist()).hash


def test_draws_of_groups_and_of_several_labels_stay_what_they_were() -> None:
    # Recorded: another machine, and a later version, must draw the same.
    rows = np.arange(2000)
    split = balanced_split(rows % 10, 100, seed=0, num_validation=50, groups=rows // 50 * 10 + rows % 10)
    assert split.hash == "555c63d9b0e10279a4cb03c93e3aa6026a2dfcd26d4af03c7ad3053d5ab14178"
    y = (rows[:, None] % [2, 3, 97, 999] == 0).astype(np.int8)
    assert (
        multi_label_split(y, 100, seed=0, num_validation=50).hash
        == "312da691e2e5ea2f5b0cb36058dc90575ed8b38841ce3fa593620dcc8750c7ad"
    )
    names = np.array([f"{row:06}" for row in rows])
    split = multi_label_split(y, 100, seed=0, num_validation=50, ids=names)
    assert (
        split_hash(names[split.labeled], names[split.validation])
        == "a946d633c98b8e2f7b2cf9074f05977a46a4b90ff07a0019dfaa7fa39bc55f78"
    )


def test_groups_that_do_not_fit_the_samples_are_refused() -> None:
    y = np.array([0, 0, 1, 1])
    for groups, problem in (
        ([1, 2, 3], r"groups must have shape \(4,\), .* got \(3,\)"),
        ([[1], [2], [3], [4]], r"groups must have shape \(4,\), .* got \(4, 1\)"),
        (["a", None, "b", "c"], r"groups has none for sample 1; give it one of its own"),
        ([1.0, 2.0, np.nan, 4.0], r"groups has none for sample 2"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            few_labels(y, 1, seed=0, groups=groups)
        with pytest.raises(InvalidInputError, match=problem):
            list(LabeledKFold(2).split(y[:, None], y, groups))
    with pytest.raises(InvalidInputError, match=r"Class 0 has 0 samples; 1 were to be drawn for validation"):
        balanced_split(y, 2, seed=0, num_validation=2, groups=["a", "a", "b", "b"])


def several(count: int, rates: tuple[float, ...], seed: int = 0) -> np.ndarray:
    """Labels of several classes, each as frequent as its rate, at least two positives and negatives of each."""
    generator = np.random.default_rng(seed)
    y = (generator.random((count, len(rates))) < rates).astype(np.int64)
    for column in y.T:
        rows = generator.permutation(count)
        column[rows[:2]], column[rows[2:4]] = 1, 0
    return y


MULTI = several(2000, (0.6, 0.3, 0.01, 0.002, 0.999))


def reference_draw(y: np.ndarray, order: list[int], labels: int) -> set[int]:
    """Take the first positive and negative of each class, and then whoever comes first."""
    drawn = {next(row for row in order if y[row, c] == value) for c in range(y.shape[1]) for value in (0, 1)}
    for row in order:
        if len(drawn) < labels:
            drawn.add(row)
    return drawn


@pytest.mark.parametrize("seed", range(5))
def test_the_first_samples_are_labeled_unless_a_class_would_have_none(seed: int) -> None:
    order = np.argsort(draw(seed, "labels", np.arange(2000, dtype=np.uint64))).tolist()
    whole = 0
    for labels in (20, 100, 1000, 1950):
        labeled = multi_label_split(MULTI, labels, seed).labeled
        assert set(labeled.tolist()) == reference_draw(MULTI, order, labels)
        for value in (0, 1):
            assert (MULTI[labeled] == value).any(axis=0).all()
        first = MULTI[order[:labels]]
        if (first == 0).any(axis=0).all() and (first == 1).any(axis=0).all():
            assert sorted(order[:labels]) == labeled.tolist()
            whole += 1
    assert 1 <= whole < 4


@given(
    seed=st.integers(0, 2**40),
    labels=st.integers(12, 30),
    more=st.integers(0, 20),
    held_out=st.integers(0, 10),
    unknown=st.floats(0, 0.6),
)
def test_a_split_of_several_labels_covers_every_sample_once_and_grows(
    seed: int, labels: int, more: int, held_out: int, unknown: float
) -> None:
    y = several(60, (0.5, 0.2, 0.9, 0.05, 0.1, 0.3), seed % 1000)
    hidden = np.random.default_rng(seed).random(y.shape) < unknown
    hidden[:2] = False
    y[0], y[1] = 0, 1
    y[hidden] = -1
    split = multi_label_split(y, labels, seed, held_out)
    assert [len(part) for part in split] == [labels, held_out, 60 - labels - held_out]
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(60))
    assert all(np.array_equal(part, np.sort(part)) for part in split)
    for value in (0, 1):
        assert (y[split.labeled] == value).any(axis=0).all()
    assert set(split.labeled) <= set(multi_label_split(y, labels + more, seed).labeled)
    assert np.array_equal(split.labeled, multi_label_split(y, labels, seed).labeled)


def test_a_sample_is_drawn_by_its_id() -> None:
    names = np.array([f"{number:06}" for number in range(2000)])
    split = multi_label_split(MULTI, 100, seed=0, num_validation=50, ids=names)
    order = np.random.default_rng(0).permutation(2000)
    shuffled = multi_label_split(MULTI[order], 100, seed=0, num_validation=50, ids=names[order])
    assert set(names[split.labeled]) == set(names[order][shuffled.labeled])
    assert set(names[split.validation]) == set(names[order][shuffled.validation])
    assert split.hash != multi_label_split(MULTI, 100, seed=1, num_validation=50, ids=names).hash


def test_groups_with_several_labels_stay_whole() -> None:
    groups = np.arange(2000) // 7
    for seed in range(5):
        split = multi_label_split(MULTI, 200, seed, 100, groups=groups)
        labeled, validation, pool = sides(groups, *split)
        assert not labeled & validation
        assert not labeled & pool
        assert not validation & pool
        assert 200 <= len(split.labeled) < 207
        assert 100 <= len(split.validation) < 107
        for value in (0, 1):
            assert (MULTI[split.labeled] == value).any(axis=0).all()


def test_the_only_row_of_a_class_is_not_held_out_where_rows_have_several_labels() -> None:
    codes = np.stack([np.arange(40) % 2, np.arange(40) == 7], axis=1).astype(int)
    for seed in range(40):
        split = split_rows("t.csv", np.arange(40), codes, 0.3, seed)
        assert 7 in split.labeled
        assert len(split.validation) == 12


def test_a_row_with_a_label_of_its_own_is_held_out_if_every_row_has_one() -> None:
    codes = np.column_stack([np.ones(20, dtype=int), np.eye(20, dtype=int)])
    split = split_rows("t.csv", np.arange(20), codes, 0.3, 0)
    assert (len(split.labeled), len(split.validation)) == (14, 6)


def test_splits_of_several_labels_that_cannot_be_are_refused() -> None:
    y = several(40, (0.5, 0.2))
    for options, problem in (
        ({"labels": 0}, r"'labels' argument must be a whole number of at least 1. Got 0"),
        ({"labels": None}, r"'labels' argument must be a whole number of at least 1. Got None"),
        ({"labels": 41}, r"labels must be at most the number of samples, 40; got 41"),
        ({"labels": 1}, r"labels must be at least \d for each of the 2 classes to have a positive .* got 1"),
        ({"labels": 30, "num_validation": 11}, r"num_validation must be at most 10, .* got 11"),
        ({"labels": 30, "num_validation": -1}, r"'num_validation' argument must be .* at least 0. Got -1"),
        (
            {"labels": 30, "ids": np.arange(39)},
            r"ids must have shape \(40,\), .* got",
        ),
        ({"labels": 30, "y": y[:, 0]}, r"y must hold 1, 0 and -1 .* got int64 of shape \(40,\)"),
        ({"labels": 30, "y": y * 2}, r"y must hold 1, 0 and -1 \(unknown\), shape \(N, C\)"),
        ({"labels": 30, "y": y * [1, 0]}, r"Class 1 has no known positive in 40 samples; leave it out"),
        ({"labels": 30, "y": y - (y == 0)}, r"Class 0 has no known negative in 40 samples"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            multi_label_split(**{"y": y, "seed": 0, **options})


@pytest.mark.parametrize("shuffle", [False, True])
def test_folds_keep_groups_on_one_side_and_their_unlabeled_rows_away(shuffle: bool) -> None:
    generator = np.random.default_rng(0)
    y = np.where(generator.random(len(CLASS)) < 0.5, CLASS % 3, -1)
    folds = LabeledKFold(4, shuffle=shuffle, random_state=0 if shuffle else None)
    seen = []
    for train, test in folds.split(y[:, None], y, NAMES):
        assert (y[test] >= 0).all()
        assert not set.intersection(*sides(NAMES, train, test))
        away = np.isin(NAMES, NAMES[test])
        assert np.array_equal(train, np.flatnonzero(~away))
        assert (y[away] == -1).any()
        assert set(y[train]) == {-1, 0, 1, 2}
        seen += test.tolist()
    assert sorted(seen) == np.flatnonzero(y >= 0).tolist()


def test_folds_of_several_labels_keep_groups_too() -> None:
    y = several(60, (0.5, 0.3))
    y[40:] = -1
    groups = np.arange(60) % 12
    folds = list(LabeledKFold(3).split(y, y, groups))
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(40))
    for train, test in folds:
        assert not set.intersection(*sides(groups, train, test))
        assert len(train) > 0


def test_more_folds_than_groups_are_refused() -> None:
    y = np.array([0, 1, 0, 1, -1])
    with pytest.raises(
        InvalidInputError, match=r"n_splits must be at most 2, the number of groups that have a labeled row"
    ):
        list(LabeledKFold(3).split(y[:, None], y, ["a", "a", "b", "b", "c"]))
