"""UPSClassifier as scikit-learn's users know estimators."""

import pickle
import threading
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import surelabel as sl
from surelabel.data.source import ArraySource
from surelabel.errors import NotStochasticError
from surelabel.learners.network import reproducible

X, Y = load_iris(return_X_y=True)
LABELED = np.arange(len(X)) % 10 == 0
FEW = np.where(LABELED, Y, -1)


def quick(**rest: object) -> sl.UPSClassifier:
    settings = {
        "max_rounds": 2,
        "min_steps": 30,
        "epochs": 1,
        "hidden": (32,),
        "learning_rate": 0.1,
        "random_state": 0,
    }
    return sl.UPSClassifier(**{**settings, "device": "cpu", **rest})


class Net(torch.nn.Module):
    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(num_features, num_classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.float())


# --- scikit-learn's own suite


def failures(unlabeled: object) -> dict[str, str]:
    estimator = quick(unlabeled=unlabeled, max_rounds=1, min_steps=15, hidden=(16,), learning_rate=0.1, passes=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert len(results) > 50
    return {result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"}


def test_scikit_learns_checks_all_pass_when_missing_values_mark_the_unlabeled() -> None:
    assert failures(unlabeled=None) == {}


def test_with_minus_one_only_the_check_that_has_it_as_a_class_fails_and_names_the_remedy() -> None:
    found = failures(unlabeled=-1)
    assert list(found) == ["check_classifiers_classes"]
    assert "use unlabeled=None" in found["check_classifiers_classes"]


# --- labels in every form


def test_integers() -> None:
    classifier = quick().fit(X, FEW)
    assert classifier.score(X, Y) > 0.75
    assert classifier.classes_.tolist() == [0, 1, 2]
    assert classifier.predict(X).dtype == Y.dtype


@pytest.mark.parametrize("missing", [None, np.nan])
def test_strings_with_missing_values(missing: object) -> None:
    names = np.array(["setosa", "versicolor", "virginica"], dtype=object)[Y]
    few = names.copy()
    few[~LABELED] = missing
    classifier = quick(unlabeled=None).fit(X, few)
    assert (classifier.predict(X) == names).mean() > 0.75
    assert classifier.score(X, few) == pytest.approx((classifier.predict(X) == names)[LABELED].mean())
    assert set(classifier.transduction_[LABELED]) == set(names)
    assert all(value is None for value in classifier.transduction_[classifier.labeled_iter_ == -1])


def test_a_string_can_mark_the_unlabeled() -> None:
    few = np.where(LABELED, np.array(["a", "b", "c"])[Y], "?")
    classifier = quick(unlabeled="?").fit(X, few)
    assert classifier.classes_.tolist() == ["a", "b", "c"]
    assert (classifier.transduction_[classifier.labeled_iter_ == -1] == "?").all()


@pytest.mark.parametrize("mark", ["", "-1", "Unlabeled"])
def test_a_class_that_looks_like_a_mark_is_warned_of(mark: str) -> None:
    few = np.where(np.arange(len(X)) % 5 == 0, np.array(["a", "b", "c"])[Y], mark)
    with pytest.warns(UserWarning, match=f"No entry of y is unlabeled, and {mark!r} is a class; .* unlabeled={mark!r}"):
        quick(max_rounds=0).fit(X, few)
    assert quick(max_rounds=1, unlabeled=mark).fit(X, few).classes_.tolist() == ["a", "b", "c"]


def test_floats_with_nan() -> None:
    few = np.where(LABELED, Y.astype(float), np.nan)
    classifier = quick(unlabeled=None).fit(X, few)
    assert classifier.predict(X).dtype == float
    assert np.isnan(classifier.transduction_[classifier.labeled_iter_ == -1]).all()


def test_data_frames_and_series_with_na() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    few = pandas.Series(FEW, dtype="Int64").where(LABELED)
    classifier = quick(unlabeled=None).fit(frame, few)
    assert classifier.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert classifier.score(frame, pandas.Series(Y)) > 0.75
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame[["b", "a", "c", "d"]])


def test_gaps_in_lists_are_gaps() -> None:
    names = [["a", "b", "c"][label] if label >= 0 else float("nan") for label in FEW]
    assert quick(unlabeled=None).fit(X, names).classes_.tolist() == ["a", "b", "c"]
    marked = [["a", "b", "c"][label] if label >= 0 else -1 for label in FEW]
    assert quick().fit(X, marked).classes_.tolist() == ["a", "b", "c"]
    folds = list(sl.LabeledKFold(3, unlabeled=None).split(X, names))
    assert [len(test) for _, test in folds] == [5, 5, 5]


def test_large_integers_with_gaps_stay_apart() -> None:
    pandas = pytest.importorskip("pandas")
    codes = pandas.Series([2**53 + int(label) if label >= 0 else None for label in FEW], dtype="Int64")
    classifier = quick(unlabeled=None).fit(X, codes)
    assert classifier.classes_.tolist() == [2**53, 2**53 + 1, 2**53 + 2]
    assert set(classifier.transduction_) - {None} == {2**53, 2**53 + 1, 2**53 + 2}


def test_float_labels_keep_their_marker() -> None:
    classifier = quick().fit(X, FEW.astype(float))
    assert classifier.transduction_.dtype == float
    assert set(classifier.transduction_) <= {-1.0, 0.0, 1.0, 2.0}


def test_unsigned_labels_keep_their_marker() -> None:
    classifier = quick(unlabeled=255).fit(X, np.where(FEW < 0, 255, FEW).astype(np.uint8))
    assert classifier.transduction_.dtype == np.uint8
    assert set(classifier.transduction_.tolist()) <= {255, 0, 1, 2}


def test_a_negative_marker_stays_beside_unsigned_labels() -> None:
    few = np.array([-1 if label < 0 else np.uint8(label) for label in FEW], dtype=object)
    assert set(quick().fit(X, few).transduction_.tolist()) <= {-1, 0, 1, 2}


def test_columns_that_are_no_numbers_are_named() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    for column in (pandas.Categorical(["u", "v"] * 75), pandas.date_range("2026-01-01", periods=150)):
        with pytest.raises(ValueError, match="Column 'k' of X has dtype .*encode it as numbers"):
            quick().fit(frame.assign(k=column), FEW)


def test_numbers_of_any_width_are_taken() -> None:
    expected = quick().fit(X, FEW).predict(X)
    for samples in (X.astype(">f8"), X.astype(np.longdouble)):
        assert np.array_equal(quick().fit(samples, FEW).predict(samples), expected)


def test_lists() -> None:
    assert quick().fit(X.tolist(), FEW.tolist()).score(X.tolist(), Y.tolist()) > 0.75


@pytest.mark.parametrize("estimator", [None, RandomForestClassifier(10)])
def test_sparse_samples(estimator: object) -> None:
    dense = quick(estimator=estimator, passes=3).fit(X, FEW).predict(X)
    sparse = quick(estimator=estimator, passes=3).fit(csr_matrix(X), FEW).predict(csr_matrix(X))
    assert (dense == sparse).mean() > 0.98


# --- several labels a sample

XM, YM = make_multilabel_classification(200, 10, n_classes=3, random_state=0)


def partly(rate: float = 0.7, marker: float = -1) -> np.ndarray:
    hidden = np.random.default_rng(0).random(YM.shape) < rate
    return np.where(hidden, marker, YM).astype(float if np.isnan(marker) else int)


@pytest.mark.parametrize("estimator", [None, RandomForestClassifier(10)])
def test_partly_known_rows_of_several_labels(estimator: object) -> None:
    known = partly()
    classifier = quick(estimator=estimator, passes=3, max_rounds=2).fit(XM, known)
    assert classifier.predict_proba(XM).shape == classifier.predict(XM).shape == YM.shape
    assert (classifier.predict(XM) == YM).mean() > 0.7
    assert np.array_equal(classifier.transduction_[known >= 0], known[known >= 0])
    assert classifier.labeled_iter_.shape == YM.shape
    assert (classifier.labeled_iter_[known >= 0] == 0).all()
    assert ((classifier.transduction_ == -1) == (classifier.labeled_iter_ == -1)).all()
    assert classifier.history_[1].num_positive > 0


def test_several_labels_are_balanced_in_the_first_round_where_that_is_asked_for() -> None:
    thresholds = {"tau_p": 0.5, "kappa_p": 0.5, "balance_floor": 1}
    plain, even = (quick(max_rounds=2, balance=rule, **thresholds).fit(XM, partly()) for rule in (None, "equal"))
    assert [record.balanced for record in plain.history_] == [False, False, False]
    assert [record.balanced for record in even.history_] == [False, True, False]
    first = even.history_[1]
    assert first.num_positive_before == plain.history_[1].num_positive > first.num_positive


def test_several_labels_with_nan() -> None:
    classifier = quick(unlabeled=None).fit(XM, partly(marker=np.nan))
    assert np.isnan(classifier.transduction_[classifier.labeled_iter_ == -1]).all()


def test_the_papers_thresholds_are_the_defaults_but_for_the_uncertainty_of_positives() -> None:
    single, multi = (sl.UPSClassifier().settings().config(task, 3, 0) for task in ("single", "multi"))
    assert (single.tau_p, single.tau_n, single.kappa_p, single.kappa_n) == (0.7, 0.05, 0.1, 0.005)
    assert (multi.tau_p, multi.tau_n, multi.kappa_p, multi.kappa_n, multi.gamma) == (0.5, 0.05, 0.05, 0.005, 0.5)
    assert sl.UPSClassifier(tau_p=0.9).settings().config("multi", 3, 0).tau_p == 0.9
    assert sl.UPSClassifier(kappa_p=0.2).settings().config("multi", 3, 0).kappa_p == 0.2


def test_several_labels_have_one_round_after_the_first_unless_more_are_asked_for() -> None:
    rounds = {task: sl.UPSClassifier().settings().config(task, 3, 0).max_rounds for task in ("single", "multi")}
    assert rounds == {"single": 5, "multi": 1}
    assert [sl.UPSClassifier(max_rounds=n).settings().config("multi", 3, 0).max_rounds for n in (0, 4)] == [0, 4]
    assert quick(max_rounds=None).fit(XM, partly()).n_iter_ == 1


def test_with_several_labels_a_batch_has_as_many_labeled_samples_as_pseudo_labeled_ones() -> None:
    def apart(task: str, **settings: object) -> int:
        return sl.UPSClassifier(**settings).settings().training(task).labeled_batch_size

    assert (apart("single"), apart("multi"), apart("multi", batch_size=64)) == (0, 256, 64)
    assert (apart("multi", labeled_batch_size=0), apart("single", labeled_batch_size=32)) == (0, 32)
    classifier = quick(max_rounds=0, batch_size=16).fit(XM, partly())
    assert classifier.learner_.training == classifier.settings().training("multi")
    assert classifier.learner_.training.labeled_batch_size == 16
    assert quick(max_rounds=0).fit(X, FEW).learner_.training.labeled_batch_size == 0


def test_labels_drawn_apart_change_what_later_rounds_learn_and_not_the_first() -> None:
    known = np.where(np.arange(len(YM))[:, None] < 40, YM, -1)
    selected = {"tau_p": 0.5, "tau_n": 0.5, "kappa_p": 1.0, "kappa_n": 1.0}

    def probabilities(max_rounds: int, labeled_batch_size: int | None) -> np.ndarray:
        settings = {**selected, "max_rounds": max_rounds, "labeled_batch_size": labeled_batch_size}
        return quick(**settings).fit(XM, known).predict_proba(XM)

    assert np.array_equal(probabilities(0, None), probabilities(0, 0))
    assert np.array_equal(probabilities(1, None), probabilities(1, 256))
    assert not np.allclose(probabilities(1, None), probabilities(1, 0))


def test_two_columns_of_class_indices_are_not_taken_for_several_labels() -> None:
    with pytest.raises(ValueError, match=r"each entry of several .* must be 0, 1 or unlabeled; got 2"):
        quick().fit(X, np.stack([Y, Y], axis=1))


# --- what is learned


def test_transduction_is_what_the_last_model_learned_from() -> None:
    classifier = quick(max_rounds=3).fit(X, FEW)
    assert np.array_equal(classifier.transduction_[LABELED], Y[LABELED])
    assert (classifier.labeled_iter_[LABELED] == 0).all()
    selected = classifier.labeled_iter_ > 0
    assert selected.sum() == classifier.history_[-1].num_positive
    assert (classifier.transduction_[selected] >= 0).all()
    assert (classifier.transduction_[classifier.labeled_iter_ == -1] == -1).all()


def test_a_network_without_randomness_is_refused_before_it_is_trained() -> None:
    calls = []

    class Plain(torch.nn.Module):
        def __init__(self, num_features: int, num_classes: int) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(num_features, num_classes)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(self.training)
            return self.linear(x.float())

    classifier = sl.UPSClassifier(model=lambda shape, num_classes: Plain(shape[0], num_classes), random_state=0)
    state = torch.get_rng_state()
    with pytest.raises(NotStochasticError, match="Dropout"):
        classifier.fit(X, FEW)
    assert len(calls) <= classifier.passes + 1
    assert torch.equal(torch.get_rng_state(), state)
    # Where there is nothing to label, nothing need be random.
    assert classifier.fit(X, Y).termination_condition_ == "no_unlabeled"


def test_without_rounds_a_network_without_randomness_labels_by_one_pass() -> None:
    def plain(shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        norm = torch.nn.BatchNorm1d(8)
        return torch.nn.Sequential(torch.nn.Linear(shape[0], 8), norm, torch.nn.ReLU(), torch.nn.Linear(8, num_classes))

    quick = {"method": "mean-teacher", "max_rounds": 0, "epochs": 1, "min_steps": 20, "random_state": 0}
    pools: list[Any] = []
    told = {**quick, "callbacks": [lambda record: pools.append(record.pool)]}
    for network in ({"model": plain}, {"dropout": 0.0}, {"hidden": ()}):
        classifier = sl.UPSClassifier(**network, **told).fit(X.astype(np.float32), FEW)
        assert pools[-1].uncertainty is None
        np.testing.assert_allclose(pools[-1].confidence, classifier.predict_proba(X)[FEW < 0].max(axis=1), rtol=1e-5)
    sl.UPSClassifier(**told).fit(X, FEW)
    assert (pools[-1].uncertainty > 0).any()
    with pytest.warns(UserWarning, match="Ignored: kappa_p, because the network has no randomness"):
        sl.UPSClassifier(dropout=0.0, kappa_p=0.2, **quick).fit(X, FEW)
    with pytest.raises(NotStochasticError):
        sl.UPSClassifier(model=plain, **{**quick, "max_rounds": 1}).fit(X, FEW)


def test_a_network_is_tried_while_no_other_thread_trains() -> None:
    """Torch's generator belongs to the process: what is drawn for the trial must not be missing elsewhere."""
    made = threading.Event()

    def network(shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        made.set()
        return torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(shape[0], num_classes))

    fit = threading.Thread(target=lambda: quick(model=network, max_rounds=0).fit(X, FEW))
    with reproducible(0, torch.device("cpu")):
        fit.start()
        assert not made.wait(0.5)
    fit.join()
    assert made.is_set()


def test_masked_samples_are_refused_with_what_to_do() -> None:
    masked = np.ma.masked_array(X, mask=X > 7)
    with pytest.raises(ValueError, match=r"X is a masked array with 12 masked entries; fill .*X.filled\(0\)"):
        quick().fit(masked, FEW)
    quick().fit(np.ma.masked_array(X, mask=False), FEW)


def test_a_source_of_samples_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"takes arrays. Got a source of samples \(ArraySource\) instead; train on it"):
        sl.UPSClassifier().fit(ArraySource(X), FEW)


def test_a_classifier_that_takes_gaps_gets_them() -> None:
    gaps = X.copy()
    gaps[::7, 0] = np.nan
    classifier = sl.UPSClassifier(HistGradientBoostingClassifier(max_iter=5), passes=2, max_rounds=1, random_state=0)
    assert classifier.fit(gaps, FEW).predict(gaps).shape == Y.shape
    filled = make_pipeline(SimpleImputer(), LogisticRegression(max_iter=500))
    sl.UPSClassifier(filled, passes=2, max_rounds=1, random_state=0).fit(gaps, FEW)
    with pytest.raises(ValueError, match="contains NaN"):
        sl.UPSClassifier(LogisticRegression()).fit(gaps, FEW)
    with pytest.raises(ValueError, match="contains NaN"):
        sl.UPSClassifier().fit(gaps, FEW)


def test_labels_that_every_row_has_or_lacks_are_warned_of() -> None:
    y = np.full((len(X), 3), -1)
    y[:9] = [[0, 1, 0], [1, 1, 0], [0, 1, -1]] * 3
    with (
        pytest.warns(UserWarning, match="No row is known to lack '1'; label some that do"),
        pytest.warns(UserWarning, match="No row is known to have '2'; label some that do") as told,
    ):
        sl.UPSClassifier(max_rounds=0, epochs=1, min_steps=1, random_state=0).fit(X, y)
    assert {warning.filename for warning in told} == {__file__}


def test_labeled_iter_is_the_start_of_the_unbroken_run() -> None:
    """A row that is selected in rounds 1 and 3, but not in 2, has been labeled since round 3."""
    from surelabel.data.pool import PoolLabels
    from surelabel.data.targets import Marks
    from surelabel.estimator import Transduction

    tracker = Transduction(np.array([0, 1, -1, -1, -1]), np.array([2, 3, 4]))
    selected_by_round = [[1, 1, 0], [0, 1, 0], [1, 1, 0], None]
    for number, selected in enumerate(selected_by_round):
        pool = None
        if selected is not None:
            positive, ones = np.array(selected, dtype=bool), np.ones(3)
            pool = PoolLabels(
                np.arange(3),
                np.ones(3, dtype=int),
                ones,
                ones,
                ones,
                ones,
                positive,
                positive,
                Marks.of(np.zeros((3, 2), dtype=bool)),
            )
        tracker.add(_record(number, pool))
    assert tracker.labeled_iter.tolist() == [0, 0, 3, 1, -1]
    assert tracker.codes.tolist() == [0, 1, 1, 1, -1]


def _record(number: int, pool: object) -> sl.RoundRecord:
    from surelabel.records import describe

    rest = {"balanced": False, "negatives_use": "loss"}
    return describe(number, None, None, num_classes=2, minutes=0.0, stop=None, pool=pool, **rest)


def test_without_unlabeled_rows_it_fits_the_labels_alone() -> None:
    classifier = quick().fit(X, Y)
    assert classifier.termination_condition_ == "no_unlabeled"
    assert len(classifier.history_) == 1
    assert np.array_equal(classifier.transduction_, Y)
    assert classifier.score(X, Y) > 0.75


def test_the_same_random_state_gives_identical_results() -> None:
    first, second = (quick(random_state=7).fit(X, FEW).predict_proba(X) for _ in range(2))
    other = quick(random_state=8).fit(X, FEW).predict_proba(X)
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_score_ignores_unlabeled_rows_and_entries() -> None:
    classifier = quick().fit(X, FEW)
    assert classifier.score(X, FEW) == pytest.approx((classifier.predict(X) == Y)[LABELED].mean())
    multi, known = quick(max_rounds=0).fit(XM, YM), partly(0.5)
    right = (multi.predict(XM) == known) | (known == -1)
    rows = (known >= 0).any(axis=1)
    assert multi.score(XM, known) == pytest.approx(right[rows].all(axis=1).mean())
    with pytest.raises(ValueError, match="no labeled entry to score"):
        classifier.score(X, np.full(len(X), -1))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier.score(X[:10], Y)
    with pytest.raises(ValueError, match="positive on some labeled row"):
        classifier.score(X, Y, sample_weight=np.zeros(len(X)))
    with pytest.raises(ValueError, match=r"shape \(200, 3\). Got shape \(200, 2\)"):
        multi.score(XM, YM[:, :2])


def test_a_network_of_ones_own_takes_images() -> None:
    def model(sample_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.2), torch.nn.Linear(4, num_classes))

    images = X.reshape(-1, 1, 2, 2)
    assert quick(model=model, min_steps=60).fit(images, FEW).score(images, Y) > 0.6


def test_ctrl_c_keeps_the_last_finished_round() -> None:
    def interrupt(record: sl.RoundRecord) -> None:
        if record.round == 1:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted by user"):
        classifier = quick(callbacks=[interrupt]).fit(X, FEW)
    assert classifier.termination_condition_ == "interrupted"
    assert classifier.n_iter_ == 0
    assert classifier.predict(X).shape == Y.shape


def test_ctrl_c_while_the_pool_is_labeled_keeps_the_model_that_the_history_describes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, calls = sl.TorchLearner.predict, []

    def predict(self: sl.TorchLearner, source: sl.Source, *, seed: int) -> object:
        calls.append(seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain(self, source, seed=seed)

    monkeypatch.setattr(sl.TorchLearner, "predict", predict)
    with pytest.warns(UserWarning, match="interrupted by user"):
        interrupted = quick().fit(X, FEW)
    supervised = quick(max_rounds=0).fit(X, FEW)
    assert np.array_equal(interrupted.predict_proba(X), supervised.predict_proba(X))


def test_it_can_be_cloned_and_pickled() -> None:
    classifier = quick().fit(X, FEW)
    assert clone(classifier).get_params() == classifier.get_params()
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))


# --- with the rest of scikit-learn


def test_in_a_pipeline_and_a_grid_search_with_labeled_folds() -> None:
    pipeline = make_pipeline(StandardScaler(), quick(max_rounds=1))
    search = GridSearchCV(pipeline, {"upsclassifier__tau_p": [0.6, 0.8]}, cv=sl.LabeledKFold(3)).fit(X, FEW)
    assert 0.6 < search.best_score_ <= 1
    assert search.predict(X).shape == Y.shape


def test_test_folds_hold_labeled_rows_only() -> None:
    folds = list(sl.LabeledKFold(3, shuffle=True, random_state=0).split(X, FEW))
    assert sorted(np.concatenate([test for _, test in folds])) == np.flatnonzero(LABELED).tolist()
    for train, test in folds:
        assert set(train) | set(test) == set(range(len(X)))
        assert not set(train) & set(test)
        assert np.bincount(FEW[test]).max() - np.bincount(FEW[test]).min() <= 1
    assert len(cross_val_score(quick(max_rounds=0), XM, partly(), cv=sl.LabeledKFold(3))) == 3


# --- bad input


def as_objects(values: list) -> np.ndarray:
    """As pandas has a column of any objects."""
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


@pytest.mark.parametrize(
    ("y", "settings", "message"),
    [
        (np.where(LABELED, Y, np.nan), {}, "contains NaN or None.*use unlabeled=None"),
        (np.full(150, -1), {}, "no label at all"),
        (np.where(LABELED, 1, -1), {}, r"one class only .*135 entries count as unlabeled.*unlabeled=None"),
        (Y[:10], {}, r"inconsistent numbers of samples: \[150, 10\]"),
        (np.linspace(0, 1, 150), {}, "Unknown label type: continuous. y holds 0.0067.*sort values into ranges"),
        (np.where(LABELED, Y / 2, np.nan), {"unlabeled": None}, "continuous. y holds 0.5; sort values into ranges"),
        (np.where(LABELED, np.inf, 0.0), {}, "continuous. y holds inf; sort values into ranges"),
        ([2**63, 2**63 + 1, 3] * 50, {}, r"continuous. y holds 9.22337e\+18"),
        ([10**5000, 2] * 75, {}, "Unknown label type: y holds int; give a string or a whole number of 64"),
        (Y.astype(complex), {}, "Unknown label type: y holds complex128; give a string"),
        (Y.astype("S1"), {}, r"Unknown label type: y holds \|S1; give a string"),
        (np.array([b"a", b"b"] * 75, dtype=object), {}, r"Unknown label type: y holds \|S1"),
        (
            as_objects([(1,), (2,)] * 75),
            {},
            "Unknown label type: y holds tuple; give a string or a whole number",
        ),
        (as_objects([np.zeros(2), np.ones(2)] * 75), {}, "y holds ndarray; give a string"),
        (np.ma.masked_array(Y, mask=~LABELED), {}, r"y is a masked array with 135 masked entries; .*y.filled\(-1\)"),
        (np.zeros(150, "V4"), {}, r"Unknown label type: y holds \|V4"),
        (None, {}, "y is None"),
        (FEW, {"tau_p": 0.01}, "tau_n"),
        (FEW, {"kappa_p": -1}, r"^Invalid value for 'kappa_p': .* Got -1.$"),
        (FEW, {"balance": "even"}, "balance"),
        (FEW, {"passes": 1}, "passes"),
        (FEW, {"dropout": 0.0}, "nn.Dropout"),
        (FEW, {"optimizer": "adam"}, "optimizer"),
        (FEW, {"labeled_batch_size": -1}, r"^Invalid value for 'labeled_batch_size': .* Got -1.$"),
        (FEW, {"estimator": RandomForestClassifier(), "model": len}, "either 'estimator' or 'model'"),
        (np.array([1, "a", None] * 50, dtype=object), {"unlabeled": None}, "mix types"),
    ],
)
def test_bad_input_is_named(y: object, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**settings).fit(X, y)


def test_whole_numbers_of_any_kind_and_long_strings_are_classes() -> None:
    for kind in (">f4", "<f2", "g", ">i8", "<u8"):
        assert quick(max_rounds=0).fit(X, Y.astype(kind)).classes_.tolist() == [0, 1, 2]
    names = np.array(["1" * 5000, "2" * 5000, "3"])
    assert quick(max_rounds=0).fit(X, names[Y]).predict(X[:1]).tolist() == ["1" * 5000]


def test_classes_that_are_written_in_several_ways_are_named() -> None:
    with pytest.warns(UserWarning, match=r"^' cat', 'CAT', 'cat' are different classes; if they are one, write them"):
        quick(max_rounds=0).fit(X, np.array(["cat", "CAT", " cat", "dog", "eel"] * 30))


def test_labels_that_are_nearly_all_different_are_warned_of_and_many_classes_are_not() -> None:
    with pytest.warns(UserWarning, match="There are 100 classes for 150 labels; if the labels measure something"):
        quick(max_rounds=0).fit(X, np.arange(150) % 100)
    quick(max_rounds=0).fit(X, np.arange(150) % 50)


@pytest.mark.parametrize("kind", [">f4", ">f8", "g", ">i4", "<f2"])
def test_samples_of_every_kind_of_number_are_taken_by_networks_of_ones_own(kind: str) -> None:
    def model(sample_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        return Net(sample_shape[0], num_classes)

    x = np.round(X)
    expected = quick(model=model, max_rounds=0).fit(x, FEW).predict_proba(x)
    np.testing.assert_allclose(quick(model=model, max_rounds=0).fit(x.astype(kind), FEW).predict_proba(x), expected)


def test_a_class_whose_entries_are_all_unknown_is_named() -> None:
    known = YM.copy()
    known[:, 1] = -1
    with pytest.raises(ValueError, match="Class 1 has no label"):
        quick().fit(XM, known)


def test_bad_samples_are_named() -> None:
    with pytest.raises(ValueError, match=r"X has dtype datetime64\[s\]; make numbers of dates"):
        quick().fit(X.astype("M8[s]"), FEW)
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(np.where(X > 7, np.nan, X), FEW)
    with pytest.raises(ValueError, match="infinity"):
        quick().fit(np.where(X > 7, np.inf, X), FEW)


def frame_and_labels() -> tuple[Any, np.ndarray, np.ndarray]:
    pandas = pytest.importorskip("pandas")
    truth = np.arange(60) % 2
    size = np.random.default_rng(0).normal(size=60) + 3 * truth
    frame = pandas.DataFrame(
        {"color": np.where(truth, "red", "blue"), "size": size}, index=[f"r{n}" for n in range(60)]
    )
    return frame, truth, np.where(np.arange(60) < 16, truth, -1)


def test_a_pipeline_is_given_the_data_frame_as_it_is() -> None:
    frame, truth, few = frame_and_labels()
    encode = ColumnTransformer([("c", OneHotEncoder(), ["color"]), ("s", StandardScaler(), ["size"])])
    classifier = quick(estimator=make_pipeline(encode, LogisticRegression())).fit(frame, few)
    assert classifier.score(frame, truth) == 1
    assert classifier.feature_names_in_.tolist() == ["color", "size"]
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame.rename(columns={"size": "length"}))


def test_a_pipeline_is_given_texts_as_they_are() -> None:
    _, truth, few = frame_and_labels()
    texts = [f"{'win a free prize' if one else 'see you at home'} {row}" for row, one in enumerate(truth)]
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10))
    classifier = quick(estimator=pipeline).fit(texts, few)
    assert classifier.predict(np.array(texts)).tolist() == truth.tolist()
    with pytest.raises(ValueError, match=r"X has texts, such as 'see you at home 0'; give an estimator that takes"):
        quick().fit(texts, few)


def test_words_that_an_estimator_does_not_take_are_told() -> None:
    frame, _, few = frame_and_labels()
    with pytest.raises(ValueError, match="LogisticRegression cannot be trained .*could not convert string"):
        quick(estimator=LogisticRegression()).fit(frame, few)
