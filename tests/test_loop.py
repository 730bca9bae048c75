"""Algorithm 1 with a learner whose answers are written down, so that every count can be checked by hand."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import surelabel as sl
from surelabel.data.draws import seed_for
from surelabel.data.training_set import make_problem
from surelabel.loop import rounds
from surelabel.runs.reading import stop_of

X, Y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
POOL = np.zeros((6, 2))


class Scripted:
    """Gives the p and u written for each round; the last ones repeat."""

    def __init__(self, p: Sequence[np.ndarray], u: Sequence[np.ndarray] | None = None, chunk: int = 4) -> None:
        self.p, self.u, self.chunk = p, u, chunk
        self.training_sets: list[sl.TrainingSet] = []
        self.seeds: list[int] = []

    def fit(self, training_set: sl.TrainingSet, *, seed: int) -> None:
        self.training_sets.append(training_set)
        self.seeds.append(seed)

    def predict(self, source: sl.Source, *, seed: int) -> Iterator[sl.Prediction]:
        number = min(len(self.training_sets), len(self.p)) - 1
        for start in range(0, len(source), self.chunk):
            rows = slice(start, min(start + self.chunk, len(source)))
            u = None if self.u is None else self.u[number][rows]
            yield sl.Prediction(source.ids[rows], self.p[number][rows], u)


def two(*confidence: float) -> np.ndarray:
    """Probabilities of two classes from that of class 0."""
    return np.array([[value, 1 - value] for value in confidence])


SURE = two(0.99, 0.98, 0.6, 0.01, 0.4, 0.97)
CERTAIN = np.zeros((6, 2))


def config(**changes: object) -> sl.UPSConfig:
    return sl.UPSConfig(**{"balance": None, "max_rounds": 2, **changes})


def run(learner: object, settings: sl.UPSConfig, **rest: object) -> list[sl.RoundRecord]:
    return list(sl.self_train(learner, (X, Y), POOL, settings, **rest))


def test_round_0_is_supervised_and_later_rounds_learn_from_what_was_selected() -> None:
    learner = Scripted([SURE], [CERTAIN])
    records = run(learner, config())
    assert [record.round for record in records] == [0, 1, 2]
    assert [len(s.rows) for s in learner.training_sets] == [4, 8, 8]
    assert [(record.num_positive, record.num_negative) for record in records] == [(0, 0), (4, 4), (4, 4)]
    assert records[1].class_counts == [3, 1]
    assert records[-1].stop == "max_rounds"
    assert records[0].stop is records[1].stop is None


def test_uncertain_labels_are_kept_out() -> None:
    u = CERTAIN.copy()
    u[0] = 0.2
    learner = Scripted([SURE], [u])
    records = run(learner, config())
    assert records[1].num_positive == 3
    assert not learner.training_sets[1].g[4].any()


def test_a_record_describes_what_its_network_learned_from() -> None:
    p = np.array([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.5, 0.45, 0.05], [0.1, 0.9, 0.0]])
    u = np.full((4, 3), 0.004)
    labels = np.array([0, 1, 2])
    truth = np.array([0, 0, 2, 0])
    learner = Scripted([p], [u], chunk=3)
    records = list(sl.self_train(learner, (np.zeros((3, 2)), labels), np.zeros((4, 2)), config(), truth=truth))
    record = records[1]
    assert (record.num_positive, record.num_negative) == (2, 4)
    assert (record.num_negative_only, record.negatives_per_row) == (2, 1.0)
    assert record.positive_share == 0.5
    assert record.class_counts_before == record.class_counts == [1, 1, 0]
    assert record.mean_confidence == pytest.approx(0.9)
    assert record.mean_uncertainty == pytest.approx(0.004)
    assert record.positive_accuracy == 0.5
    assert record.negative_accuracy == 0.75
    assert record.ece == pytest.approx(0.4)  # both positives have confidence 0.9, one of two is right


def test_nothing_selected_is_recorded_as_such() -> None:
    records = run(Scripted([two(*[0.5] * 6)], [CERTAIN]), config(), truth=np.zeros(6, dtype=int))
    record = records[1]
    assert (record.num_positive, record.num_negative, record.positive_share) == (0, 0, 0.0)
    assert record.ece is record.positive_accuracy is record.negative_accuracy is None
    assert record.mean_confidence is record.mean_uncertainty is record.negatives_per_row is None


def test_everything_selected_and_one_class_selected_are_fine() -> None:
    record = run(Scripted([two(*[0.99] * 6)], [CERTAIN]), config(balance="equal", balance_floor=2))[1]
    assert record.class_counts_before == [6, 0]
    assert record.class_counts == [2, 0]


def test_balanced_rounds_end_after_their_number() -> None:
    learner = Scripted([two(0.99, 0.98, 0.97, 0.96, 0.95, 0.01)], [CERTAIN])
    records = run(learner, config(balance="equal", balance_rounds=1, balance_floor=1))
    assert [record.class_counts for record in records] == [[0, 0], [1, 1], [5, 1]]
    assert [record.balanced for record in records] == [False, True, False]
    assert [record.num_positive_before for record in records] == [0, 6, 6]


def test_a_row_that_loses_its_positive_to_balancing_may_learn_from_its_negatives() -> None:
    learner = Scripted([two(0.99, 0.98, 0.97, 0.96, 0.955, 0.01)], [CERTAIN])
    record = run(learner, config(balance="equal", balance_floor=1))[1]
    assert (record.num_positive, record.num_negative_only) == (2, 4)


def test_balancing_by_the_prior_keeps_the_labeled_proportions() -> None:
    learner = Scripted([two(0.99, 0.98, 0.97, 0.96, 0.01, 0.02)], [CERTAIN])
    labeled = np.zeros((4, 2)), np.array([0, 0, 0, 1])
    settings = config(balance="prior", balance_floor=0)
    records = list(sl.self_train(learner, labeled, POOL, settings))
    assert records[1].class_counts == [4, 1]


def test_without_uncertainties_balancing_keeps_the_most_confident() -> None:
    learner = Scripted([two(0.91, 0.98, 0.92, 0.96, 0.95, 0.01)])
    settings = config(balance="equal", balance_floor=1, kappa_p=math.inf, kappa_n=math.inf)
    pool = run(learner, settings)[0].pool
    assert np.flatnonzero(pool.selection.positive[:, 0]).tolist() == [1]


def test_probabilities_that_round_above_1_are_balanced_too() -> None:
    p = two(1 + 1e-7, 0.98, 0.92, 0.96, 0.95, 0.01)
    settings = config(balance="equal", balance_floor=1, kappa_p=math.inf, kappa_n=math.inf)
    assert np.flatnonzero(run(Scripted([p]), settings)[0].pool.selection.positive[:, 0]).tolist() == [0]


def test_without_uncertainties_finite_kappas_are_refused() -> None:
    with pytest.raises(ValueError, match="'u'"):
        run(Scripted([SURE]), config())


def test_negatives_can_be_switched_off() -> None:
    assert [r.num_negative for r in run(Scripted([SURE], [CERTAIN]), config(negatives=False))] == [0, 0, 0]


@pytest.mark.parametrize(
    ("counts", "changes", "expected"),
    [
        ([0, 100, 100, 100], {}, "converged"),
        ([0, 100, 100], {}, None),  # one change so far
        ([0, 1000, 1009, 1018], {}, "converged"),
        ([0, 1000, 1010, 1010], {}, None),  # 1 % is not less than 1 %
        ([0, 0, 0, 0], {}, "converged"),
        ([0, 100, 100, 100], {"tolerance": None}, None),
        ([0, 0, 0, 5], {}, None),
        ([0, 100, 100, 100], {"balance": "equal", "balance_rounds": 1}, "converged"),
        ([0, 100, 100, 100], {"balance": "equal", "balance_rounds": 2}, None),  # round 2 was still balanced
        ([0, 100, 100, 100, 100], {"balance": "equal", "balance_rounds": 2}, "converged"),
        ([0, 1, 2], {"max_rounds": 2}, "max_rounds"),
    ],
)
def test_rounds_end_when_the_number_selected_stays(counts: list[int], changes: dict, expected: str | None) -> None:
    settings = sl.UPSConfig(**{"balance": None, "max_rounds": 20, **changes})
    assert settings.stop_reason(counts, 2, 0.0) == expected


def test_a_constant_selection_converges_in_round_3() -> None:
    records = run(Scripted([SURE], [CERTAIN]), config(max_rounds=20))
    assert (records[-1].round, records[-1].stop) == (3, "converged")


def test_convergence_is_judged_by_what_was_selected_before_balancing() -> None:
    # Of three positives of class 0 and one of class 1, balancing leaves one each in round 1: were the balanced ones
    # counted, round 2 would seem to select more.
    settings = config(max_rounds=20, balance="equal", balance_rounds=1, balance_floor=0)
    records = run(Scripted([SURE], [CERTAIN]), settings)
    assert [(record.num_positive, record.num_positive_before) for record in records[1:]] == [(2, 4), (4, 4), (4, 4)]
    assert (records[-1].round, records[-1].stop) == (3, "converged")
    assert stop_of(records, settings) == "converged"
    for done in (1, 2, 3):
        rest = run(Scripted([SURE], [CERTAIN]), settings, resume_from=records[:done])
        assert [(record.round, record.stop) for record in rest][-1] == (3, "converged")


def test_no_round_starts_after_max_minutes() -> None:
    records = run(Scripted([SURE], [CERTAIN]), config(max_minutes=0))
    assert [record.stop for record in records] == ["max_minutes"]


def test_the_default_number_of_balanced_rounds_is_the_papers() -> None:
    assert sl.UPSConfig().num_balanced_rounds(20) == 10
    assert sl.UPSConfig().num_balanced_rounds(21) == 0
    assert sl.UPSConfig(task="multi").num_balanced_rounds(100) == 1
    assert sl.UPSConfig(balance=None).num_balanced_rounds(10) == 0
    assert sl.UPSConfig(balance_rounds=3).num_balanced_rounds(100) == 3


def test_a_callback_that_returns_true_ends_the_rounds() -> None:
    seen = []
    records = run(Scripted([SURE], [CERTAIN]), config(), callbacks=[lambda record: record.round == 1, seen.append])
    assert [record.stop for record in records] == [None, "interrupted"]
    assert [record.round for record in seen] == [0, 1]


def test_resuming_gives_the_same_rounds_from_the_previous_selection() -> None:
    p = [two(*np.linspace(0.99, 0.5 - k / 10, 6)) for k in range(4)]
    whole = run(Scripted(p, [CERTAIN] * 4), config(max_rounds=3))
    learner = Scripted(p[2:], [CERTAIN] * 4)
    rest = run(learner, config(max_rounds=3), resume_from=whole[:2])
    assert [record.replace(minutes=0) for record in rest] == [record.replace(minutes=0) for record in whole[2:]]
    assert learner.seeds == [seed_for(0, 2, "fit"), seed_for(0, 3, "fit")]


def test_a_round_has_its_own_seed_whatever_came_before() -> None:
    learner = Scripted([SURE], [CERTAIN])
    run(learner, config(seed=5))
    assert learner.seeds == [seed_for(5, number, "fit") for number in range(3)]


def test_scores_come_from_predict_when_the_learner_has_no_deterministic_pass() -> None:
    truth = np.array([0, 0, 0, 1, 1, 1])
    records = run(Scripted([SURE], [CERTAIN]), config(), validation=(POOL, truth), test=(POOL, 1 - truth))
    assert records[0].validation_score == pytest.approx(5 / 6)
    assert records[0].test_score == pytest.approx(1 / 6)
    assert records[0].validation.label.tolist() == [0, 0, 0, 1, 1, 0]


def test_scores_come_from_the_deterministic_pass_when_there_is_one() -> None:
    class Scoring(Scripted):
        def predict_proba(self, source: sl.Source) -> np.ndarray:
            return two(*[0.9] * len(source))

    records = run(Scoring([SURE], [CERTAIN]), config(), test=(POOL, np.array([0, 0, 0, 0, 1, 1])))
    assert records[0].test_score == pytest.approx(4 / 6)


def test_partly_known_rows_are_labeled_and_scored_by_their_unknown_entries() -> None:
    labels = np.array([[1, 0], [0, 1], [1, -1]])
    p = np.array([[0.01, 0.9], [0.8, 0.01], [0.4, 0.6]])
    learner = Scripted([p], [np.zeros((3, 2))])
    settings = sl.UPSConfig(task="multi", tau_p=0.5, max_rounds=1, balance=None)
    truth = np.array([[1, 0], [0, 1]])
    records = list(sl.self_train(learner, (np.zeros((3, 2)), labels), np.zeros((2, 2)), settings, truth=truth))
    # Row 2 (partly known): class 0 is known and stays, class 1 becomes a positive.
    assert learner.training_sets[1].y[2].tolist() == [True, True]
    assert records[1].num_positive == 3
    assert records[1].num_negative == 1
    assert records[1].positive_accuracy == 1.0
    assert records[1].ece == pytest.approx((0.2 + 0.01 + 0.4) / 3)


def test_uneven_labels_with_equal_balance_warn() -> None:
    labels = np.array([0, 0, 0, 1])
    with pytest.warns(UserWarning, match=r"far from even \(1 to 3 samples\).*balance='prior'"):
        next(sl.self_train(Scripted([SURE], [CERTAIN]), (X, labels), POOL, sl.UPSConfig()))


def test_bad_input_is_refused_before_anything_is_trained() -> None:
    learner = Scripted([SURE], [CERTAIN])
    with pytest.raises(ValueError, match="'unlabeled' argument is empty"):
        sl.self_train(learner, (X, Y), POOL[:0], config())
    with pytest.raises(ValueError, match="test must have samples with a label each; got 6 and 5 labels"):
        sl.self_train(learner, (X, Y), POOL, config(), test=(POOL, np.zeros(5, dtype=int)))
    with pytest.raises(ValueError, match="for each of the 6 unlabeled samples; got 2"):
        sl.self_train(learner, (X, Y), POOL, config(), truth=np.array([0, 1]))
    with pytest.raises(ValueError, match="'resume_from' argument must hold the records of rounds 0, 1, 2"):
        sl.self_train(learner, (X, Y), POOL, config(), resume_from=run(Scripted([SURE], [CERTAIN]), config())[1:])
    assert not learner.training_sets


def test_a_learner_that_shuffles_its_predictions_is_refused() -> None:
    class Shuffled(Scripted):
        def predict(self, source: sl.Source, *, seed: int) -> Iterator[sl.Prediction]:
            for chunk in super().predict(source, seed=seed):
                yield chunk._replace(ids=chunk.ids[::-1])

    class Short(Scripted):
        def predict(self, source: sl.Source, *, seed: int) -> Iterator[sl.Prediction]:
            yield next(super().predict(source, seed=seed))

    with pytest.raises(ValueError, match="do not follow the source"):
        run(Shuffled([SURE], [CERTAIN]), config())
    with pytest.raises(ValueError, match="end after 4 of 6 samples"):
        run(Short([SURE], [CERTAIN]), config())
    with pytest.raises(ValueError, match=r"the shape \(ids, classes\), \(4, 2\); got \(4, 1\)"):
        run(Scripted([SURE[:, :1]], [CERTAIN[:, :1]]), config())


def test_a_finished_run_has_no_further_round() -> None:
    for settings in (config(max_rounds=20), config(max_minutes=0), config()):
        records = run(Scripted([SURE], [CERTAIN]), settings)
        assert run(Scripted([SURE], [CERTAIN]), settings, resume_from=records) == []
    interrupted = run(Scripted([SURE], [CERTAIN]), config(), callbacks=[lambda record: True])
    assert [record.round for record in run(Scripted([SURE], [CERTAIN]), config(), resume_from=interrupted)] == [1, 2]


def test_records_of_another_pool_are_refused() -> None:
    records = run(Scripted([SURE], [CERTAIN]), config())
    with pytest.raises(ValueError, match="of another pool"):
        sl.self_train(Scripted([SURE], [CERTAIN]), (X, Y), POOL[:5], config(), resume_from=records[:1])


def test_settings_may_be_a_dictionary() -> None:
    assert len(list(sl.self_train(Scripted([SURE], [CERTAIN]), (X, Y), POOL, {"max_rounds": 1, "balance": None}))) == 2


def test_an_empty_pool_ends_after_round_0_where_that_is_allowed() -> None:
    problem = make_problem((X, Y), None, "single")
    records = list(rounds(Scripted([SURE], [CERTAIN]), problem, config()))
    assert [(record.round, record.stop) for record in records] == [(0, "no_unlabeled")]


def test_torch_predictions_give_the_same_records() -> None:
    torch = pytest.importorskip("torch")
    from_torch = Scripted([torch.tensor(SURE)], [torch.tensor(CERTAIN)])
    records = zip(run(from_torch, config()), run(Scripted([SURE], [CERTAIN]), config()), strict=True)
    assert all(a.replace(minutes=0) == b.replace(minutes=0) for a, b in records)


class SureOfLowConfidence:
    """Says the same of every pool: labels of class 0, the more certain the less confident."""

    def fit(self, training_set: sl.TrainingSet, *, seed: int) -> None:
        pass

    def predict(self, source: sl.Source, *, seed: int) -> Iterator[sl.Prediction]:
        confidence = np.linspace(0.8, 0.95, len(source))
        confidence[-1] = 0.1  # one label of the other class, so that balancing keeps one of each
        p = np.stack([confidence, 1 - confidence], axis=1)
        yield sl.Prediction(source.ids, p, np.stack([0.04 * p[:, 0]] * 2, axis=1))


@pytest.mark.parametrize(("kappa", "kept"), [(0.05, 0), (math.inf, 4)])
def test_balance_ranks_by_confidence_where_selection_does(kappa: float, kept: int) -> None:
    x = np.zeros((8, 2), dtype=np.float32)
    config = sl.UPSConfig(kappa_p=kappa, kappa_n=math.inf, balance_floor=0, max_rounds=1, negatives=False)
    record = next(iter(sl.self_train(SureOfLowConfidence(), (x[:2], np.array([0, 1])), x[2:], config)))
    assert np.flatnonzero(record.pool.selection.positive[:, 0]).tolist() == [kept]
