"""The linear models that networks are compared with, against scikit-learn's own parts."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from surelabel.base.trust import CLASSIFIERS
from surelabel.data.source import ArraySource
from surelabel.data.training_set import make_problem
from surelabel.kinds import KINDS
from surelabel.kinds.linear import LinearOnPixels, LinearOnTable
from surelabel.learners.settings import SklearnLearnerSettings
from surelabel.learners.sklearn import SklearnLearner

Y = np.arange(60) % 3
NUMBERS = np.random.default_rng(0).normal(size=(60, 4)) * [1.0, 10.0, 100.0, 0.0] + 3 * np.eye(3, 4)[Y]
PICTURES = np.random.default_rng(0).integers(0, 200, size=(60, 3, 4, 4)).astype(np.uint8)
PICTURES[np.arange(60), Y] += 55


def test_rows_are_standardized_and_fitted_as_scikit_learn_would():
    expected = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(NUMBERS, Y).predict_proba(NUMBERS)
    np.testing.assert_array_equal(LinearOnTable().fit(NUMBERS, Y).predict_proba(NUMBERS), expected)


@pytest.mark.parametrize(("model", "scale"), [(LinearOnTable(), NUMBERS.std(axis=0)), (LinearOnPixels(), None)])
def test_a_learner_shows_it_all_samples_before_it_learns_from_some(model, scale):
    few = SklearnLearner(model, members=2)
    problem = make_problem((NUMBERS[:12], Y[:12]), NUMBERS[12:], "single", 3)
    few.fit(problem.training_set(None), seed=0)
    scale = np.full(4, NUMBERS.std(axis=0).mean()) if scale is None else np.where(scale > 0, scale, 1)
    rows = NUMBERS / scale
    expected = LogisticRegression(max_iter=300).fit(rows[:12] - rows[:12].mean(axis=0), Y[:12])
    p = expected.predict_proba(rows - rows[:12].mean(axis=0))
    np.testing.assert_allclose(few.predict_proba(ArraySource(NUMBERS)), p, atol=1e-6)


def test_a_flag_of_someone_elses_classifier_is_left_alone_and_so_is_the_object():
    class Flagged(LogisticRegression):
        standardize = True

    for model in (Flagged(max_iter=10_000), LinearOnTable()):
        before = dict(vars(model))
        problem = make_problem((NUMBERS[:12], Y[:12]), NUMBERS[12:], "single", 3)
        SklearnLearner(model, members=2).fit(problem.training_set(None), seed=0)
        assert vars(model) == before


def test_sparse_rows_stay_sparse_and_give_probabilities():
    p = LinearOnTable().fit(csr_array(NUMBERS), Y).predict_proba(csr_array(NUMBERS))
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p.argmax(axis=1) == Y).mean() > 0.6


def test_pixels_share_one_scale():
    rows = PICTURES.reshape(60, -1).astype(float)
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0).mean()
    expected = LogisticRegression(max_iter=300).fit(scaled, Y).predict_proba(scaled)
    model = LinearOnPixels().fit(PICTURES, Y)
    np.testing.assert_allclose(model.predict_proba(PICTURES), expected)
    assert (model.predict(PICTURES) == Y).all()


def test_pictures_of_one_color_do_no_harm():
    p = LinearOnPixels().fit(np.zeros((6, 1, 2, 2), dtype=np.uint8), [0, 1] * 3).predict_proba(np.zeros((2, 1, 2, 2)))
    np.testing.assert_allclose(p, 0.5)


@pytest.mark.parametrize("estimator", ["LinearOnTable", "LinearOnPixels"])
@pytest.mark.parametrize("task", ["single", "multi"])
def test_a_model_comes_back_from_its_file_without_any_type_named_as_trusted(estimator, task):
    settings = SklearnLearnerSettings(estimator=f"surelabel.kinds.linear:{estimator}", members=3)
    labels = Y if task == "single" else np.eye(3, dtype=int)[Y]
    learner, other = settings.build(task), settings.build(task)
    learner.fit(make_problem((PICTURES, labels), None, task).training_set(None), seed=0)
    other.from_bytes(learner.to_bytes(), sample_shape=(3, 4, 4), num_classes=3)
    source = ArraySource(PICTURES)
    np.testing.assert_array_equal(other.predict_proba(source), learner.predict_proba(source))
    (chunk,) = other.predict(source, seed=0)
    assert chunk.u.max() > 0, "resamples differ"


def test_everybodys_runs_may_name_them():
    assert {kind.linear for kind in KINDS.values()} <= CLASSIFIERS
    assert "surelabel.kinds.linear:LinearOnTable" in CLASSIFIERS
