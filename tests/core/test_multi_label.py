"""Several labels a sample: selection, balance, plain pseudo-labeling, both scores, and the report of classes."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import surelabel as sl
from surelabel.data.run_data import RunData
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.report.classes import class_reports, classes_table
from surelabel.report.figures import ece_by_uncertainty
from surelabel.report.html import summary_table, write_report
from surelabel.report.tables import Row, group_runs, judged_labels, variant_of
from surelabel.reproduce.results import samples_seen
from surelabel.reproduce.variants import VARIANTS, pseudo_labeling
from surelabel.runs import RunFolder
from surelabel.runs.files import write_json
from surelabel.runs.session import run, start
from surelabel.settings import RunSettings

X, Y = np.zeros((2, 1)), np.array([[1, 0, 1], [0, 1, 0]])


class Scripted:
    """Gives the p and u written for the pool in each round, the last ones again and again, and one p for scoring."""

    model_file = "model.safetensors"

    def __init__(self, p: Sequence[Any], u: Sequence[Any], scored: Any = None) -> None:
        self.p, self.u, self.scored = [np.asarray(one) for one in p], [np.asarray(one) for one in u], scored
        self.training_sets: list[sl.TrainingSet] = []

    def fit(self, training_set: sl.TrainingSet, *, seed: int) -> None:
        self.training_sets.append(training_set)

    def predict(self, source: sl.Source, *, seed: int) -> Iterator[sl.Prediction]:
        number = min(len(self.training_sets), len(self.p)) - 1
        yield sl.Prediction(source.ids, self.p[number], self.u[number])

    def predict_proba(self, source: sl.Source) -> np.ndarray:
        return np.asarray(self.scored)[: len(source)]

    def to_bytes(self) -> bytes:
        return b"nothing"


def config(**changes: Any) -> sl.UPSConfig:
    return sl.UPSConfig(**{"task": "multi", "tau_p": 0.5, "max_rounds": 1, "balance": None, **changes})


def learned(learner: Scripted, settings: sl.UPSConfig, round: int = 1, **rest: Any) -> tuple[np.ndarray, np.ndarray]:
    """Run and return what round 1 learned of the pool: y and g, shape (N, C)."""
    pool = np.zeros((len(learner.p[0]), 1))
    list(sl.self_train(learner, (X, Y), pool, settings, **rest))
    targets = learner.training_sets[round]
    return targets.y[len(X) :], targets.g[len(X) :]


# --- selection and balance


def test_positives_and_negatives_are_selected_per_class() -> None:
    p = [[0.9, 0.02, 0.5], [0.49, 0.06, 0.04]]
    u = [[0.01, 0.001, 0.06], [0.0, 0.0, 0.006]]
    y, g = learned(Scripted([p], [u]), config())
    # 0.5 is too uncertain, 0.49 is present nowhere and absent nowhere, 0.06 is above tau_n, 0.04 too uncertain.
    assert y.tolist() == [[True, False, False], [False, False, False]]
    assert g.tolist() == [[True, True, False], [False, False, False]]


def test_the_first_round_is_balanced_class_by_class_and_the_second_is_not() -> None:
    # Class 0 has four positives, class 1 two, class 2 one; rows 0 and 1 have two classes each.
    p = np.full((5, 3), 0.2)
    u = np.full((5, 3), 0.04)
    for row, code, uncertainty in ((0, 0, 3), (1, 0, 1), (2, 0, 2), (3, 0, 4), (0, 1, 1), (1, 1, 2), (4, 2, 4)):
        p[row, code], u[row, code] = 0.9, uncertainty / 100
    learner = Scripted([p], [u])
    rest = {"balance": "equal", "balance_floor": 1, "max_rounds": 2}
    labeled = (np.zeros((3, 1)), np.array([[1, 1, 1], [1, 0, 0], [1, 0, 0]]))
    with pytest.warns(UserWarning, match="far from even"):
        records = list(sl.self_train(learner, labeled, np.zeros((5, 1)), config(**rest)))
    first, second = (part.y[3:] & part.g[3:] for part in learner.training_sets[1:])
    # Of each class the most certain one stays, also of a row that loses another class.
    assert np.argwhere(first).tolist() == [[0, 1], [1, 0], [4, 2]]
    assert np.array_equal(second, p > 0.5)
    assert not (learner.training_sets[1].g[3:] & ~first).any(), "what balancing takes away is not learned from"
    assert [record.balanced for record in records] == [False, True, False]
    assert (records[1].class_counts_before, records[1].class_counts) == ([4, 2, 1], [1, 1, 1])


def test_balance_in_the_labels_shares_works_class_by_class() -> None:
    p, u = np.full((6, 2), 0.9), np.arange(12).reshape(6, 2) / 1000
    learner = Scripted([p], [u])
    labels = np.array([[1, 0], [1, 0], [1, 1]])
    settings = config(balance="prior", balance_floor=0)
    list(sl.self_train(learner, (np.zeros((3, 1)), labels), np.zeros((6, 1)), settings))
    assert learner.training_sets[1].g[3:].sum(axis=0).tolist() == [6, 2]


# --- plain pseudo-labeling


@pytest.mark.parametrize("gamma", [0.3, 0.5, 0.8])
@pytest.mark.parametrize(
    "learner",
    [
        TorchLearnerSettings(hidden=(4,), training=sl.TrainingSettings(epochs=60, learning_rate=0.3), device="cpu"),
        SklearnLearnerSettings(estimator="sklearn.linear_model:LogisticRegression", members=3),
    ],
    ids=["network", "scikit-learn"],
)
def test_plain_pseudo_labeling_learns_from_every_entry(gamma: float, learner: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3)).astype(np.float32)
    y = (x[:, :2] + 0.3 * rng.normal(size=(120, 2)) > 0.2).astype(int)
    y[5:10, 0] = -1  # partly known
    plain = pseudo_labeling(RunSettings(config=sl.UPSConfig(task="multi", gamma=gamma, max_rounds=1), learner=learner))
    assert plain.learner is not None
    data = [(x[:20], y[:20]), x[20:], plain.config]
    first, second = sl.self_train(plain.learner.build("multi"), *data)
    assert second.num_positive + second.num_negative == 2 * 100 + 5
    assert 0 < second.num_positive < 205
    pool = first.pool
    assert pool is not None
    unknown = np.concatenate([y[5:10] < 0, np.ones((100, 2), dtype=bool)])
    assert np.array_equal(pool.selection.positive, (pool.confidence >= pool.confidence.dtype.type(gamma)) & unknown)
    assert np.array_equal(pool.selection.positive ^ pool.selection.negative, unknown)


def test_the_variants_of_several_labels_are_told_apart(tmp_path: Path) -> None:
    learner = TorchLearnerSettings(hidden=(4,), training=sl.TrainingSettings(epochs=1), device="cpu")
    ups = RunSettings(config=config(max_rounds=1, num_classes=3), learner=learner)
    found = []
    for variant in VARIANTS:
        folder = tmp_path / variant.__name__
        list(start(folder, variant(ups), data=RunData((X, Y), np.eye(4)[:, :1], ["a", "b", "c"], "multi")))
        found.append(variant_of(RunFolder.open(folder)))
    assert found == ["supervised", "no selection", "no UA", "no NL", "UPS"]


# --- scores and records

SCORED = np.array([[0.9, 0.2, 0.6], [0.8, 0.4, 0.5], [0.7, 0.3, 0.4], [0.6, 0.1, 0.3]])
TEST = np.array([[1, 0, 0], [0, 0, 0], [1, 0, 1], [-1, 0, 0]])


def scored_run(folder: Path, **rest: Any) -> RunFolder:
    """Make a run of three classes: of class 1 the test has no positive."""
    p = [[0.9, 0.01, 0.9], [0.9, 0.02, 0.02], [0.3, 0.01, 0.01]]
    learner = Scripted([p], [np.zeros((3, 3))], SCORED)
    truth = np.array([[1, 0, 0], [0, 1, 0], [1, 0, -1]])
    rest = {"test": (np.zeros((4, 1)), TEST), **rest}
    list(run(folder, learner, (X, Y), np.zeros((3, 1)), config(), truth=truth, classes=["cat", "dog", "owl"], **rest))
    return RunFolder.open(folder)


def test_a_record_has_both_means_and_the_scores_of_each_class(tmp_path: Path) -> None:
    record = scored_run(tmp_path / "run").records()[0]
    of_cat, of_owl = (average_precision_score(TEST[rows, c], SCORED[rows, c]) for c, rows in ((0, slice(3)), (2, ...)))
    assert record.test_score == pytest.approx((of_cat + of_owl) / 2)
    assert record.test_class_scores is not None
    assert [one and one[0] for one in record.test_class_scores] == [pytest.approx(of_cat), None, pytest.approx(of_owl)]
    # Class 0: precision 1 up to a recall of 0.5, then 2/3; class 2: 1/3 everywhere.
    assert [one and one[1] for one in record.test_class_scores] == [
        pytest.approx((6 * 1 + 5 * 2 / 3) / 11),
        None,
        pytest.approx(1 / 3),
    ]
    assert record.test_score_11 == pytest.approx(((6 * 1 + 5 * 2 / 3) / 11 + 1 / 3) / 2)
    assert (record.validation_score, record.validation_score_11, record.validation_class_scores) == (None, None, None)


def test_entries_are_calibrated_by_the_larger_of_p_and_its_complement() -> None:
    p, truth = np.array([[0.8, 0.04, 0.4], [0.6, 0.9, 0.02]]), np.array([[1, 0, 0], [0, -1, 1]])
    learner = Scripted([p], [np.zeros((2, 3))])
    (_, record) = sl.self_train(learner, (X, Y), np.zeros((2, 1)), config(), truth=truth)
    # Selected and known: 0.8 and 0.96 are right, 0.6 and 0.98 are not; 0.96 and 0.98 share a bin.
    assert record.ece == pytest.approx((0.2 + 0.6 + abs(0.96 + 0.98 - 1)) / 4)


def test_entries_are_judged_by_their_own_confidence_and_uncertainty(tmp_path: Path) -> None:
    p, u = np.array([[0.8, 0.1, 0.4], [0.6, 0.9, 0.3]]), np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    truth = np.array([[1, 0, 1], [0, -1, 1]])
    list(run(tmp_path, Scripted([p], [u]), (X, Y), np.zeros((2, 1)), config(), truth=truth, classes=["a", "b", "c"]))
    found = judged_labels(Row("UPS", (RunFolder.open(tmp_path),)), 0)
    assert found.uncertainty is not None
    # The fifth entry is not known.
    assert found.confidence.tolist() == pytest.approx([0.8, 0.9, 0.6, 0.6, 0.7])
    assert found.uncertainty.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.6])
    assert found.right.tolist() == [True, True, False, False, False]
    # Up to an uncertainty of 0.2: 0.8 and 0.9, both right; up to 0.3 also 0.6, which is wrong.
    assert ece_by_uncertainty(found, np.array([0.25, 0.35])) == pytest.approx([0.3 / 2, 0.9 / 3])


@pytest.mark.usefixtures("undrawn")
def test_a_run_from_before_there_were_two_scores_is_read(tmp_path: Path) -> None:
    folder = scored_run(tmp_path / "run")
    old = []
    for entry in json.loads((folder.path / "history.json").read_text())["rounds"]:
        scores = {"test_score": entry.pop("scores")["test mAP"], "validation_score": None}
        old.append({**scores, **{name: value for name, value in entry.items() if not name.endswith("_class_scores")}})
    write_json(folder.path / "history.json", {"rounds": old})
    again = RunFolder.open(folder.path)
    assert [record.test_score for record in again.records()] == [record.test_score for record in folder.records()]
    assert again.records()[0].test_score_11 is None
    page = write_report([again], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "test mAP (%)" in page
    assert "11 points" not in page


def test_the_samples_of_a_round_are_counted_once_whatever_their_entries(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    y = (x > 0).astype(int)
    training = sl.TrainingSettings(epochs=7, batch_size=10)
    learner = TorchLearnerSettings(hidden=(4,), training=training, uncertainty="none", device="cpu")
    plain = pseudo_labeling(RunSettings(config=config(), learner=learner))
    list(start(tmp_path / "run", plain, data=RunData((x[:20], y[:20]), x[20:], ["a", "b", "c"], "multi")))
    folder = RunFolder.open(tmp_path / "run")
    assert [samples_seen(record, 20, folder) for record in folder.records()] == [(7, 7 * 20), (7, 7 * 60)]


# --- the report


@pytest.mark.usefixtures("undrawn")
def test_the_report_has_a_line_for_each_class_and_names_those_left_out(tmp_path: Path) -> None:
    folder = scored_run(tmp_path / "run")
    cat, dog, owl = class_reports(folder)
    # Selected: cat in rows 0 and 1 (right, wrong); dog nowhere, absent in all (right, wrong, right); owl in row 0
    # (wrong), absent in rows 1 and 2 (right, unknown).
    assert cat[2:] == (2, 0.5, 0, None)
    assert dog == (None, None, 0, None, 3, 2 / 3)
    assert owl[2:] == (1, 0.0, 2, 1.0)
    (row,) = group_runs([folder])
    assert classes_table(row).lines[1] == ["dog", "–", "–", "0", "–", "3", "66.67"]
    summary = summary_table([row])
    assert dict(zip(summary.header, summary.lines[0], strict=True))["test mAP, 11 points (%)"] == (
        f"{100 * folder.records()[-1].test_score_11:.2f}"
    )
    page = write_report([folder], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h2>Classes of the last network</h2>" in page
    assert "test mAP, 11 points (%)" in page
    assert "Left out of the mean, without a known positive to score by: dog." in page


def test_the_report_of_classes_does_with_what_there_is(tmp_path: Path) -> None:
    learner = Scripted([np.full((3, 3), 0.9)], [np.zeros((3, 3))], SCORED)
    parts = (X, Y), np.zeros((3, 1)), config(max_rounds=0)
    list(run(tmp_path / "plain", learner, *parts))
    (row,) = group_runs([RunFolder.open(tmp_path / "plain")])
    assert classes_table(row).lines == []
    assert "Classes of the last network" not in write_report(row.runs, tmp_path / "report.html").read_text()
    selected = ["positives selected", "right (%)", "negatives selected", "right (%)"]
    (row,) = group_runs([scored_run(tmp_path / "without", test=None)])
    assert classes_table(row).header == ["class", *selected]
    held_out = (np.zeros((3, 1)), TEST[:3])
    (row,) = group_runs([scored_run(tmp_path / "validation", test=None, validation=held_out)])
    assert classes_table(row).header == ["class", "validation AP (%)", "validation AP, 11 points (%)", *selected]


def test_the_thresholds_of_the_paper_for_several_labels_are_the_defaults_of_the_classifier() -> None:
    found = sl.UPSClassifier().settings().config("multi", 20, 0)
    assert (found.gamma, found.tau_p, found.tau_n, found.kappa_p, found.kappa_n) == (0.5, 0.5, 0.05, 0.05, 0.005)
    assert math.isclose(sl.UPSClassifier().temperature, 2.0)
    assert sl.UPSClassifier().passes == 10
