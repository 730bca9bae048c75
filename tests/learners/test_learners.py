import copy
import dataclasses
import pickle
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import surelabel as sl
from surelabel.augment.chain import Augment
from surelabel.augment.settings import AugmentSettings
from surelabel.base.references import resolve
from surelabel.base.trust import CLASSIFIERS
from surelabel.core.selection import Selection
from surelabel.data.source import ArraySource
from surelabel.data.training_set import make_problem
from surelabel.engine.train import Trainer
from surelabel.learners.loaded_models import check_indices
from surelabel.learners.sklearn import expand, resample, soften
from surelabel.models.table import table_network

X, Y = load_iris(return_X_y=True)
LABELED = np.arange(len(X)) % 10 == 0
QUICK = sl.TrainingSettings(epochs=1, min_steps=60, optimizer="adamw", learning_rate=0.01)


def problem(task: str = "single") -> object:
    labels = Y[LABELED] if task == "single" else np.eye(3, dtype=int)[Y[LABELED]]
    return make_problem((X[LABELED], labels), X[~LABELED], task)


def predict(learner: object, x: object = X) -> sl.Prediction:
    chunks = list(learner.predict(ArraySource(x), seed=3))
    return sl.Prediction(*[np.concatenate([np.asarray(chunk[i]) for chunk in chunks]) for i in range(5)])


def torch_learner(**rest: object) -> sl.TorchLearner:
    return sl.TorchLearner(**{"training": QUICK, "device": "cpu", **rest})


def fitted(learner: object, task: str = "single", seed: int = 0) -> object:
    learner.fit(problem(task).training_set(None), seed=seed)
    return learner


LEARNERS = [
    torch_learner,
    lambda **rest: sl.SklearnLearner(RandomForestClassifier(20), members=4, **rest),
    lambda **rest: sl.SklearnLearner(LogisticRegression(), members=4, **rest),
    lambda **rest: sl.SklearnLearner(
        HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=1), members=3, **rest
    ),
    lambda **rest: sl.SklearnLearner(make_pipeline(StandardScaler(), GaussianNB()), members=4, **rest),
]


@pytest.mark.parametrize("make", LEARNERS)
@pytest.mark.parametrize("task", ["single", "multi"])
def test_a_learner_learns_and_says_how_sure_it_is(make: object, task: str) -> None:
    learner = make(task=task)
    prediction = predict(fitted(learner, task))
    assert (prediction.p.argmax(1) == Y).mean() > 0.7
    assert prediction.p.shape == prediction.u.shape == (150, 3)
    assert (prediction.u >= 0).all()
    assert prediction.u.max() > 0
    assert np.abs(prediction.p_soft - 0.5).mean() < np.abs(prediction.p - 0.5).mean()
    assert (learner.predict_proba(ArraySource(X)).argmax(1) == Y).mean() > 0.75


@pytest.mark.parametrize("make", LEARNERS)
def test_the_same_seed_gives_the_same_model_and_the_same_uncertainty(make: object) -> None:
    first, second, other = (predict(fitted(make(), seed=seed)) for seed in (1, 1, 2))
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a, b)
    assert not np.array_equal(first.p, other.p)


@pytest.mark.parametrize("make", LEARNERS)
def test_a_saved_model_predicts_the_same(make: object) -> None:
    learner = fitted(make())
    again = make()
    again.from_bytes(learner.to_bytes(), sample_shape=(4,), num_classes=3)
    assert np.array_equal(learner.predict_proba(ArraySource(X)), again.predict_proba(ArraySource(X)))
    assert np.array_equal(predict(learner).u, predict(again).u)


@pytest.mark.parametrize("make", LEARNERS)
def test_a_learner_without_a_model_says_so(make: object) -> None:
    with pytest.raises(ValueError, match="call fit first"):
        next(iter(make().predict(ArraySource(X), seed=0)))


@pytest.mark.parametrize("make", [torch_learner, lambda: sl.SklearnLearner(GaussianNB())])
def test_arrays_are_labeled_as_sources_are(make: object) -> None:
    learner = fitted(make())
    np.testing.assert_array_equal(learner.predict_proba(X), learner.predict_proba(ArraySource(X)))
    (first,), (second,) = (list(learner.predict(x, seed=0)) for x in (X, ArraySource(X)))
    np.testing.assert_array_equal(np.asarray(first.p), np.asarray(second.p))


def test_training_leaves_the_users_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    predict(fitted(torch_learner()))
    assert torch.equal(torch.rand(3), expected)


def test_training_leaves_the_number_of_threads_alone() -> None:
    before = torch.get_num_threads()
    fitted(torch_learner())
    assert torch.get_num_threads() == before


def test_a_failed_fit_keeps_the_last_network() -> None:
    learner = fitted(torch_learner())
    network = learner.network
    learner.training = QUICK.replace(learning_rate=1000.0, optimizer="sgd")
    with pytest.raises(ValueError, match="diverged"):
        fitted(learner)
    assert learner.network is network


def test_the_default_network_standardizes_by_all_samples() -> None:
    learner = fitted(torch_learner())
    torch.testing.assert_close(learner.network.mean, torch.as_tensor(X.mean(0)))
    torch.testing.assert_close(learner.network.scale, torch.as_tensor(X.std(0)))


def test_a_small_spread_around_a_large_mean_is_learned_from() -> None:
    """Time stamps: in float32 all of these rows would be the same."""
    task = make_problem((X[LABELED] + 1e9, Y[LABELED]), X[~LABELED] + 1e9, "single")
    learner = torch_learner()
    learner.fit(task.training_set(None), seed=0)
    assert (learner.predict_proba(ArraySource(X + 1e9)).argmax(1) == Y).mean() > 0.75


def test_threads_do_not_mix_up_random_numbers() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda seed: predict(fitted(torch_learner(), seed=seed)).p, (1, 1))
    assert np.array_equal(first, second)
    assert np.array_equal(first, predict(fitted(torch_learner(), seed=1)).p)


def test_missing_values_in_the_pool_are_named() -> None:
    pool = X[~LABELED].copy()
    pool[3, 2] = np.nan
    with pytest.raises(ValueError, match="Feature 2 of the samples has values that are missing"):
        torch_learner().fit(make_problem((X[LABELED], Y[LABELED]), pool, "single").training_set(None), seed=0)


def test_a_learner_that_cannot_work_is_refused_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="'negative_weight' argument must be at least 0. Got -1"):
        torch_learner(negative_weight=-1)
    with pytest.raises(ValueError, match="a function that makes a new network every round.*Got a Linear"):
        torch_learner(model=torch.nn.Linear(4, 3))
    with pytest.raises(ValueError, match="must be a classifier object"):
        sl.SklearnLearner(LogisticRegression)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="use device='cpu'"):
            torch_learner(device="cuda")


def test_chunks_do_not_change_deterministic_predictions() -> None:
    learner = fitted(torch_learner())
    whole = learner.predict_proba(ArraySource(X))
    learner.predict_batch_size = 7
    assert [len(chunk.ids) for chunk in learner.predict(ArraySource(X), seed=0)] == [7] * 21 + [3]
    np.testing.assert_allclose(learner.predict_proba(ArraySource(X)), whole, atol=1e-6)


def test_a_network_of_ones_own_is_trained() -> None:
    shapes = []

    def model(sample_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        shapes.append((sample_shape, num_classes))
        return torch.nn.Sequential(
            torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 3)
        )

    fitted(torch_learner(model=model))
    assert shapes == [((4,), 3)]


def test_a_network_without_dropout_is_refused_when_it_labels() -> None:
    learner = fitted(torch_learner(model=lambda shape, classes: torch.nn.Linear(4, classes)))
    with pytest.raises(sl.errors.NotStochasticError, match="nn.Dropout"):
        predict(learner)
    learner.uncertainty = sl.Deterministic()
    assert next(learner.predict(ArraySource(X), seed=0)).u is None


def test_a_factory_that_returns_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must return a torch.nn.Module. Got int"):
        fitted(torch_learner(model=lambda shape, classes: 3))


def test_a_network_with_the_wrong_number_of_outputs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one logit for each of the 3 classes.*Got \(15, 2\)"):
        fitted(torch_learner(model=lambda shape, classes: torch.nn.Linear(4, 2)))


def test_a_training_set_of_the_other_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="made for task='single'"):
        fitted(torch_learner(), "multi")


def test_negative_labels_move_probability_away() -> None:
    """Rows that are known not to be of class 2 lower its probability, though they have no positive label."""
    task = problem()
    negative = np.zeros((135, 3), dtype=bool)
    negative[Y[~LABELED] == 1, 2] = True
    learner = torch_learner()
    learner.fit(task.training_set(Selection(np.zeros_like(negative), negative)), seed=0)
    with_negatives = learner.predict_proba(ArraySource(X[Y == 1]))[:, 2].mean()
    without = fitted(torch_learner()).predict_proba(ArraySource(X[Y == 1]))[:, 2].mean()
    assert with_negatives < without


def test_weights_that_are_shared_can_be_saved() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.second = torch.nn.Linear(4, 4)
            self.out = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(4, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.second(self.first(x)))

    learner = fitted(torch_learner(model=lambda shape, classes: Tied()))
    again = torch_learner(model=lambda shape, classes: Tied())
    again.from_bytes(learner.to_bytes(), sample_shape=(4,), num_classes=3)
    assert np.array_equal(learner.predict_proba(ArraySource(X)), again.predict_proba(ArraySource(X)))


def selection_of(positive: list[list[int]], negative: list[list[int]]) -> Selection:
    return Selection(np.array(positive, dtype=bool), np.array(negative, dtype=bool))


def test_expansion_stands_a_negative_row_once_for_each_class_left() -> None:
    small = make_problem((np.zeros((3, 1)), np.array([0, 1, 2])), np.zeros((4, 1)), "single")
    selection = selection_of([[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]], [[0, 0, 1], [0, 1, 1], [0, 1, 1], [0, 0, 0]])
    rows, labels, weights = expand(small.training_set(selection), max_copies=4)
    assert list(zip(rows.tolist(), labels.tolist(), weights.tolist(), strict=True)) == [
        (0, 0, 1.0),
        (1, 1, 1.0),
        (2, 2, 1.0),
        (3, 0, 0.5),
        (3, 1, 0.5),
        (4, 0, 1.0),
        (5, 0, 1.0),
    ]
    rows, _, _ = expand(small.training_set(selection), max_copies=0)
    assert rows.tolist() == [0, 1, 2, 5]


def test_the_record_says_how_negatives_were_used() -> None:
    for estimator, expected in [(LogisticRegression(), "expansion"), (KNeighborsClassifier(3), "left out")]:
        learner = sl.SklearnLearner(estimator, members=2)
        config = sl.UPSConfig(max_rounds=0, kappa_p=1)
        (record,) = sl.self_train(learner, (X[LABELED], Y[LABELED]), X[~LABELED], config)
        assert record.negatives_use == expected
    assert sl.SklearnLearner(LogisticRegression(), negatives="ignore").negatives_use == "left out"


def test_resamples_keep_every_class() -> None:
    labels = np.array([0] * 50 + [1] * 2 + [2])
    for seed in range(20):
        assert np.bincount(labels[resample(labels, seed)]).tolist() == [50, 2, 1]


def test_softening_is_the_softmax_of_half_the_logits() -> None:
    z = np.array([[1.0, -2.0, 0.5]])
    p = np.exp(z) / np.exp(z).sum()
    np.testing.assert_allclose(soften(p, 2.0, "single"), np.exp(z / 2) / np.exp(z / 2).sum())
    q = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(soften(q, 2.0, "multi"), 1 / (1 + np.exp(-z / 2)))
    assert soften(np.array([[1.0, 0.0]]), 2.0, "single").tolist() == [[1.0, 0.0]]


def test_what_cannot_be_an_ensemble_is_refused() -> None:
    with pytest.raises(ValueError, match="classifier with predict_proba; got LinearSVC; wrap it"):
        sl.SklearnLearner(LinearSVC())
    with pytest.raises(ValueError, match="'members' argument must be a whole number of at least 2"):
        sl.SklearnLearner(LogisticRegression(), members=1)
    with pytest.raises(ValueError, match="negatives='expand' needs an estimator whose fit takes sample_weight"):
        sl.SklearnLearner(KNeighborsClassifier(), negatives="expand")


def test_resamples_that_are_all_the_same_are_refused() -> None:
    one_each = make_problem((X[[0, 50, 100]], Y[[0, 50, 100]]), X, "single").training_set(None)
    learner = sl.SklearnLearner(LogisticRegression(), members=2)
    learner.fit(one_each, seed=0)
    with pytest.raises(sl.errors.NotStochasticError, match="every resample is the same"):
        predict(learner)
    learner = sl.SklearnLearner(RandomForestClassifier(5), members=2)
    learner.fit(one_each, seed=0)
    assert predict(learner).u.max() > 0


def test_unknown_types_in_a_saved_model_are_refused() -> None:
    learner = fitted(sl.SklearnLearner(_Own(), members=2))
    again = sl.SklearnLearner(_Own(), members=2)
    with pytest.raises(ValueError, match=r"not known to be safe: .*_Own"):
        again.from_bytes(learner.to_bytes(), sample_shape=(4,), num_classes=3)
    trusted = [f"{_Own.__module__}._Own"]
    again.from_bytes(learner.to_bytes(), sample_shape=(4,), num_classes=3, trusted=trusted)
    assert np.array_equal(learner.predict_proba(ArraySource(X)), again.predict_proba(ArraySource(X)))


class _Own(GaussianNB):
    pass


# Models that someone has made up: compiled code would follow their indices anywhere.


def trees_with(**fields: int) -> Callable[[object], None]:
    def forge(model: object) -> None:
        state = model.tree_.__getstate__()
        nodes = state["nodes"].copy()
        for name, value in fields.items():
            nodes[name][0] = value
        model.tree_.__setstate__({**state, "nodes": nodes})

    return forge


def tree_with_more_nodes(model: object) -> None:
    model.tree_.__setstate__({**model.tree_.__getstate__(), "node_count": 10**12})


def histogram_trees_with(**fields: int) -> Callable[[object], None]:
    def forge(model: object) -> None:
        predictor = model._predictors[0][0]
        predictor.nodes = predictor.nodes.copy()
        for name, value in {"is_leaf": 0, **fields}.items():
            predictor.nodes[name][0] = value

    return forge


def boosted_trees_for_one_class(model: object) -> None:
    model.init_ = DummyClassifier().fit(X, (Y > 0).astype(int))
    model.estimators_ = np.repeat(model.estimators_, 2, axis=1)


def neighbors_with(part: int, field: str | None, value: int) -> Callable[[object], None]:
    def forge(model: object) -> None:
        state = [np.copy(one) if isinstance(one, np.ndarray) else one for one in model._tree.__getstate__()]
        place = state[part] if field is None else state[part][field]
        if isinstance(place, np.ndarray):
            place[...] = value
        else:
            state[part] = value
        model._tree.__setstate__(tuple(state))

    return forge


def with_attribute(name: str, change: Callable[[np.ndarray], object]) -> Callable[[object], None]:
    return lambda model: setattr(model, name, change(getattr(model, name)))


TREE, BOOSTING = DecisionTreeClassifier(), GradientBoostingClassifier(n_estimators=2)
HISTOGRAM = HistGradientBoostingClassifier(max_iter=1, min_samples_leaf=1)
NEIGHBORS, BRUTE = KNeighborsClassifier(algorithm="kd_tree", leaf_size=2), KNeighborsClassifier(algorithm="brute")
MADE_UP: dict[str, tuple[object, Callable[[object], None]]] = {
    "a child far away": (TREE, trees_with(left_child=10**9, right_child=10**9)),
    "one child only": (TREE, trees_with(right_child=-1)),
    "a root that is its own child": (TREE, trees_with(left_child=0, right_child=0)),
    "a feature far away": (TREE, trees_with(feature=10**9)),
    "a feature before the first": (TREE, trees_with(feature=-(10**9))),
    "more nodes than there are": (TREE, tree_with_more_nodes),
    "a histogram's child far away": (HISTOGRAM, histogram_trees_with(left=10**9, right=10**9)),
    "a histogram's root that is its own child": (HISTOGRAM, histogram_trees_with(left=0, right=0)),
    "a histogram's feature far away": (HISTOGRAM, histogram_trees_with(feature_idx=10**9)),
    "a category where there is a number": (HISTOGRAM, histogram_trees_with(is_categorical=1)),
    "trees for classes that are not there": (BOOSTING, boosted_trees_for_one_class),
    "a neighbor far away": (NEIGHBORS, neighbors_with(1, None, 10**12)),
    "a node of neighbors far away": (NEIGHBORS, neighbors_with(2, "idx_end", 10**12)),
    "a leaf that goes on": (NEIGHBORS, neighbors_with(2, "is_leaf", 0)),
    "more nodes of neighbors than there are": (NEIGHBORS, neighbors_with(6, None, 10**6)),
    "a neighbor of a class far away": (BRUTE, with_attribute("_y", lambda y: y + 10**9)),
    "support vectors without weights": (SVC(), with_attribute("_dual_coef_", lambda weights: weights[:1])),
    "fewer than no support vectors": (
        SVC(),
        with_attribute("_n_support", lambda counts: counts + np.array([-99, 99, 0], "i")),
    ),
}


@pytest.mark.parametrize("kind", MADE_UP)
def test_a_made_up_model_is_refused_before_it_is_used(kind: str) -> None:
    estimator, forge = MADE_UP[kind]
    model = clone(estimator).fit(X, Y)
    check_indices([model])
    forge(model)
    with pytest.raises(ValueError, match="it holds "):
        check_indices([make_pipeline(StandardScaler(), model)])


def test_a_made_up_model_is_refused_when_it_is_loaded() -> None:
    learner = fitted(sl.SklearnLearner(BaggingClassifier(DecisionTreeClassifier(), 2), members=2))
    trees_with(left_child=0, right_child=0)(learner.models[1].estimators_[1])
    with pytest.raises(sl.errors.InvalidInputError, match="no skops file of models .*leads outside its nodes"):
        learner.from_bytes(learner.to_bytes(), sample_shape=(4,), num_classes=3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("samples", [X, csr_matrix(X)], ids=["dense", "sparse"])
def test_models_of_listed_classifiers_pass_the_check(samples: object) -> None:
    passed = set()
    for reference in sorted(CLASSIFIERS):
        try:
            model = resolve(reference)().fit(samples, Y)
        except (TypeError, ValueError):  # takes no sparse samples
            continue
        check_indices([model])
        passed.add(reference)
    assert len(passed) >= (len(CLASSIFIERS) - 2 if samples is X else 10)
    check_indices(HistGradientBoostingClassifier(categorical_features=[0]).fit(np.c_[Y, X], Y))
    check_indices(DecisionTreeClassifier(max_leaf_nodes=5, ccp_alpha=0.01).fit(X, Y))
    check_indices(BaggingClassifier(DecisionTreeClassifier(), max_features=0.5).fit(X, Y))
    check_indices(CalibratedClassifierCV(make_pipeline(PolynomialFeatures(), RandomForestClassifier(3))).fit(X, Y))
    check_indices(KNeighborsClassifier(algorithm="ball_tree").fit(X, Y))
    check_indices(SVC(probability=True).fit(X, Y))


def test_sparse_samples_are_learned_from() -> None:
    for learner in (torch_learner(), sl.SklearnLearner(LogisticRegression(), members=2)):
        task = make_problem((csr_matrix(X[LABELED]), Y[LABELED]), csr_matrix(X[~LABELED]), "single")
        learner.fit(task.training_set(None), seed=0)
        assert (learner.predict_proba(ArraySource(csr_matrix(X))).argmax(1) == Y).mean() > 0.75


def test_the_factory_makes_a_table_network_for_any_shape() -> None:
    assert table_network((2, 3), 4)(torch.zeros(5, 2, 3)).shape == (5, 4)


def standardized(chunks: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    network = table_network((2,), 2)
    network.standardize(lambda: chunks)
    return network.mean, network.scale


def test_statistics_do_not_depend_on_chunks_and_survive_large_offsets() -> None:
    rows = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)) + torch.tensor([1000.0, 0.0])
    mean, scale = standardized(rows.split(7))
    torch.testing.assert_close(mean, rows.double().mean(0))
    torch.testing.assert_close(scale, rows.double().std(0, correction=0))


def test_a_copy_keeps_its_network_when_the_other_learns_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "shares", True)  # as on a GPU, where a network is trained in place
    task = make_problem((X[LABELED], Y[LABELED]), X[~LABELED], "single").training_set(None)
    learner = torch_learner()
    learner.fit(task, seed=0)
    data = learner.to_bytes()
    learner.from_bytes(data, sample_shape=(4,), num_classes=3)
    kept = copy.copy(learner)
    learner.fit(task, seed=1)
    assert kept.to_bytes() == data != learner.to_bytes()
    assert pickle.loads(pickle.dumps(learner)).to_bytes() == learner.to_bytes()


def test_new_settings_are_used_by_the_next_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "shares", True)
    task = make_problem((X[LABELED], Y[LABELED]), X[~LABELED], "single").training_set(None)
    seen: list[int] = []
    learner = torch_learner()
    learner.fit(task, seed=0)
    learner.training = learner.training.replace(min_steps=7, epochs=1)
    learner.progress = lambda what, done, total: seen.append(total)
    learner.fit(task, seed=0)
    assert set(seen) == {7}


def test_loader_processes_bring_the_same_samples_to_label() -> None:
    task = make_problem((X[LABELED], Y[LABELED]), X[~LABELED], "single").training_set(None)
    p = []
    for workers in (0, 1):
        learner = torch_learner()
        learner.training = learner.training.replace(workers=workers)
        learner.predict_batch_size = 40
        learner.fit(task, seed=0)
        p.append(learner.predict_proba(ArraySource(X)))
    assert np.array_equal(*p)


def test_the_average_of_the_weights_can_be_trained_on() -> None:
    learner = fitted(torch_learner(training=QUICK.replace(min_steps=2, ema_decay=0.9)))
    assert all(parameter.requires_grad for parameter in learner.network.parameters())


def test_labeling_is_compiled_where_training_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool | None] = []
    estimate = sl.MCDropout.estimate

    def noted(self: sl.MCDropout, *arguments: object, **options: object) -> object:
        asked.append(self.compile)
        return estimate(dataclasses.replace(self, compile=False), *arguments, **options)

    monkeypatch.setattr(sl.MCDropout, "estimate", noted)
    task = make_problem((X[LABELED], Y[LABELED]), X[~LABELED], "single").training_set(None)
    learner = torch_learner()
    learner.fit(task, seed=0)
    for compile in (None, True):
        learner.training = learner.training.replace(compile=compile)
        list(learner.predict(ArraySource(X), seed=0))
    assert asked == [False, True]


@pytest.mark.parametrize(
    ("changes", "task", "message"),
    [
        ({"optimizer": "adamw", "momentum": 0.5}, "single", "Ignored: momentum, because they are SGD's"),
        ({"optimizer": "muon", "nesterov": False}, "single", "Ignored: nesterov, because optimizer='muon' always"),
        ({"cuda_graph": True}, "single", "Ignored: cuda_graph, because the network is on a CPU"),
        ({"negative_batch_size": 8}, "multi", "Ignored: negative_batch_size, because with several labels"),
    ],
)
def test_training_settings_that_mean_nothing_here_warn(changes: dict[str, object], task: str, message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        sl.TorchLearner(training=sl.TrainingSettings(**changes), device="cpu", task=task)


def test_the_number_of_threads_is_the_learners_and_is_put_back() -> None:
    seen: list[int] = []

    class Watched(torch.nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return super().forward(x)

    def make(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        return Watched(torch.nn.Linear(*shape, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, classes))

    task = make_problem((X[LABELED], Y[LABELED]), X[~LABELED], "single").training_set(None)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        learner = sl.TorchLearner(make, training=QUICK.replace(min_steps=2), device="cpu", threads=1)
        learner.fit(task, seed=0)
        list(learner.predict(ArraySource(X), seed=0))
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_loading_weights_leaves_the_users_generator_alone() -> None:
    task = make_problem((X[LABELED], Y[LABELED]), X[~LABELED], "single").training_set(None)
    learner = torch_learner()
    learner.fit(task, seed=0)
    state = torch.get_rng_state()
    learner.from_bytes(learner.to_bytes(), sample_shape=(4,), num_classes=3)
    assert torch.equal(torch.get_rng_state(), state)


def test_weights_of_another_network_are_named() -> None:
    task = make_problem((X[LABELED], Y[LABELED]), X[~LABELED], "single").training_set(None)
    learner = torch_learner()
    learner.fit(task, seed=0)
    with pytest.raises(ValueError, match="The weights do not fit the network.*size mismatch"):
        torch_learner().from_bytes(learner.to_bytes(), sample_shape=(5,), num_classes=3)


class TinyClipNetwork(torch.nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv3d(3, 4, 3)
        self.dropout, self.last = torch.nn.Dropout(0.5), torch.nn.Linear(4, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropout(self.convolution(x).mean((2, 3, 4))))


def test_clips_train_channels_last_and_are_tested_on_the_mean_of_their_windows() -> None:
    clips = np.random.default_rng(0).integers(0, 256, size=(12, 3, 12, 10, 10), dtype=np.uint8)
    training_set = make_problem((clips[:6], np.arange(6) % 2), clips[6:], "single").training_set(None)
    augment = AugmentSettings(flip=True, side=8, window=4, passages=3, test_windows=3)
    settings = sl.TrainingSettings(steps=3, batch_size=4, augment=augment, channels_last=True)
    learner = sl.TorchLearner(lambda shape, classes: TinyClipNetwork(classes), training=settings, device="cpu")
    learner.fit(training_set, seed=0)
    network = learner.network
    assert network.convolution.weight.is_contiguous(memory_format=torch.channels_last_3d)
    windows = [Augment(augment).plain(torch.from_numpy(clips), window) for window in range(3)]
    with torch.no_grad():
        expected = torch.stack([network(window).softmax(1) for window in windows]).mean(0)
    np.testing.assert_allclose(learner.predict_proba(ArraySource(clips)), expected, atol=1e-6)


def test_bytes_that_are_no_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="must be the content of a safetensors file"):
        sl.TorchLearner(device="cpu").from_bytes(b"spam", sample_shape=(3,), num_classes=2)
