"""The experiment with samples of no class: what it counts, and that it trains on the classes alone."""

import foreign_samples as experiment
import numpy as np

from surelabel.data.pool import PoolLabels
from surelabel.data.targets import Marks


def test_foreign_samples_are_counted_apart_and_a_class_of_their_own_is_none_of_the_five() -> None:
    truth, label = np.array([0, 1, 2, 7, 8, 9]), np.array([0, 2, 2, 3, 5, 1])
    selected, p = np.array([1, 1, 0, 1, 1, 0], dtype=bool), np.full(6, 0.9)
    none = Marks.of(np.zeros((6, 6), dtype=bool))
    pool = PoolLabels(np.arange(6), label, p, p * 0, p, p * 0, selected, selected, none)
    assert experiment.counts(pool, truth) == {
        "known": 3,
        "known_selected": 2,
        "known_right": 1,
        "foreign": 3,
        "foreign_selected": 1,
    }


def test_a_row_has_all_samples_but_the_labeled_ones() -> None:
    for name, labels in (("UPS, the defaults", 50), ("UPS, the defaults, and some labeled as a class “other”", 70)):
        (row,) = experiment.run(name, seed=0, max_rounds=0)
        assert (row["labels"], row["known"] + row["foreign"]) == (labels, 1797 - labels)
        assert row["known_right"] > 0.9 * row["known_selected"] > 0
        assert set(row) | {"torch", "commit"} == set(experiment.COLUMNS)
