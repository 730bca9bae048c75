"""The experiment on Mulan's data sets: what it reads, how it splits, and what it hides."""

import lzma
import sys
from pathlib import Path

import comparison
import mulan
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from surelabel import UPSClassifier
from surelabel.data.images import data_folder
from surelabel.errors import DataError
from surelabel.reproduce.results import read_rows

XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="happy"></label>
<label name="so sad"></label>
</labels>"""
ARFF = """@relation music

% a comment
@attribute Tempo numeric
@attribute 'so sad' {0,1}
@ATTRIBUTE "Loud ness" REAL
@attribute happy {0,1}

@data
1.5,0,-2e1,1
% another
3, 1, 4,0
"""


def write(folder: Path, arff: str = ARFF, xml: str = XML) -> Path:
    for name, text in {"emotions.arff.xz": arff, "emotions.xml.xz": xml}.items():
        (folder / name).write_bytes(lzma.compress(text.encode()))
    return folder


def test_labels_and_features_are_told_apart_by_the_list_of_classes(tmp_path: Path) -> None:
    data = mulan.read_mulan("emotions", write(tmp_path))
    assert data.classes == ("happy", "so sad")
    assert data.x.tolist() == [[1.5, -20.0], [3.0, 4.0]]
    assert data.y.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"arff": ARFF.replace("3, 1", "3")}, r"emotions.arff.xz', line 12 must hold 4 numbers. Got '3, 4,0' instead"),
        ({"arff": ARFF.replace("-2e1", "?")}, r"line 10 must hold 4 numbers. Got '1.5,0,\?,1' instead"),
        ({"arff": ARFF.replace("-2e1", "nan")}, "line 10 must hold 4 numbers"),
        ({"arff": ARFF.replace("3, 1, 4,0", "{0 3, 1 1}")}, "line 12 must hold 4 numbers. Got '{0 3, 1 1}' instead"),
        ({"arff": ARFF.replace("1.5,0", "1.5,2")}, "label columns of .* must hold 0 and 1"),
        ({"arff": ARFF.replace("@relation", "@relations of", 1).replace("@rel", "rel")}, "line 1 must hold a column's"),
        ({"arff": ARFF.partition("@data")[0]}, "must hold columns and rows. Got 4 columns and 0 rows"),
        ({"arff": ARFF.replace("happy", "merry")}, "emotions.arff.xz' has no column of the class 'happy'; get"),
        ({"xml": XML.replace("so sad", "happy")}, "emotions.xml.xz' must name each class once. Got 2 names"),
        ({"xml": XML[:-5]}, "is damaged or not really a list of classes in XML"),
        ({"xml": XML.replace("<labels", '<!DOCTYPE a [<!ENTITY b "c">]><labels')}, "it has a document type"),
    ],
)
def test_files_that_are_not_as_they_should_be_are_named(tmp_path: Path, changes: dict[str, str], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        mulan.read_mulan("emotions", write(tmp_path, **changes))


def test_missing_and_damaged_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"Mulan's data sets are not in '.*gone'; put yeast.arff.xz"):
        mulan.read_mulan("emotions", tmp_path / "gone")
    write(tmp_path)
    packed = (tmp_path / "emotions.arff.xz").read_bytes()
    (tmp_path / "emotions.arff.xz").write_bytes(packed[:-20])
    with pytest.raises(DataError, match="emotions.arff.xz' is damaged or not really an ARFF table"):
        mulan.read_mulan("emotions", tmp_path)
    (tmp_path / "emotions.arff.xz").write_bytes(packed)
    monkeypatch.setattr(mulan, "_LARGEST_FILE", 10)
    with pytest.raises(DataError, match="unpacks to more than 10 bytes"):
        mulan.read_mulan("emotions", tmp_path)


def made(num_rows: int = 400, num_classes: int = 5) -> object:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 6))
    return mulan.Mulan(x, (x[:, :num_classes] > 0.8).astype(np.int64), tuple("abcde"))


def test_a_seed_draws_the_test_the_labels_and_what_is_hidden() -> None:
    data = made()
    one, other, again = (mulan.draw_split(data, seed, 0.4) for seed in (0, 1, 0))
    assert one.digest == again.digest != other.digest
    assert np.array_equal(one.y, again.y)
    assert (len(one.y_test), len(one.y), one.num_labels) == (133, 267, 100)
    rows = (one.y >= 0).any(axis=1)
    assert (one.y >= 0).sum() == 300
    whole = mulan.draw_split(data, 0, 0.0)
    assert (whole.y >= 0).all(axis=1).sum() == 100
    assert not rows[(whole.y < 0).all(axis=1)].any(), "the same rows are labeled"
    assert np.array_equal(whole.y[one.y >= 0], one.y[one.y >= 0])
    np.testing.assert_allclose(one.x.mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_every_class_keeps_a_known_positive_and_negative(share: float) -> None:
    y = np.zeros((30, 4), dtype=np.int64)
    y[7, 0] = y[:29, 1] = y[::2, 2] = y[3, 3] = 1
    for seed in range(20):
        hidden = mulan.hide(y, share, seed)
        assert (hidden < 0).sum() == round(share * y.size)
        assert np.array_equal(hidden[hidden >= 0], y[hidden >= 0])
        assert ((hidden == 1).any(axis=0) & (hidden == 0).any(axis=0)).all()


def test_one_vs_rest_learns_each_class_from_its_known_entries() -> None:
    split = mulan.draw_split(made(), 0, 0.4)
    found = mulan.OneVsRest(LogisticRegression()).fit(split.x, split.y).predict_proba(split.x_test)
    for c in range(5):
        known = split.y[:, c] >= 0
        expected = LogisticRegression().fit(split.x[known], split.y[known, c]).predict_proba(split.x_test)[:, 1]
        np.testing.assert_array_equal(found[:, c], expected)


def test_a_fit_is_a_row_for_each_definition_of_average_precision() -> None:
    split = mulan.draw_split(made(), 0, 0.0)
    classifier = mulan.OneVsRest(LogisticRegression())
    rows = comparison.fit_rows("logistic", "made", split, 0, classifier, mulan.mean_precisions)
    assert [row["metric"] for row in rows] == ["test mAP %", "test mAP, 11 points %"]
    assert all(90 < row["value"] <= 100 for row in rows)
    assert {row["labels"] for row in rows} == {100}


def test_the_seeds_asked_for_are_run_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SURELABEL_COMMIT", "abc1234")
    monkeypatch.setattr(mulan, "read_mulan", lambda name: made())
    few = {mulan.UPS: mulan.OneVsRest(LogisticRegression()), mulan.SUPERVISED: mulan.OneVsRest(LogisticRegression(C=9))}
    monkeypatch.setattr(mulan, "methods", lambda seed: few)
    words = ["--datasets", "emotions", "--seeds", "2", "--first-seed", "5", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["mulan.py", *words])
    mulan.main()
    rows = read_rows(tmp_path / "runs.csv")
    assert {(row["experiment"], row["commit"]) for row in rows} == {("mulan", "abc1234")}
    assert {row["seed"] for row in rows} == {"5", "6"}
    assert {row["dataset"] for row in rows} == {"emotions", "emotions, 40% of entries hidden"}
    assert len(rows) == 2 * 2 * 2 * 2, "two seeds, two methods, two metrics, all or some entries known"
    assert "emotions: test mAP %, seeds 5 to 6\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [(("--seeds", "1"), "--seeds must be at least 2"), (("--first-seed", "-1"), "--first-seed must be at least 0")],
)
def test_seeds_that_cannot_be_run_are_refused(
    words: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mulan.py", *words])
    with pytest.raises(SystemExit):
        mulan.main()
    assert problem in capsys.readouterr().err


def test_the_settings_of_a_row_say_what_its_defaults_stand_for() -> None:
    methods = mulan.settings()["methods"]
    ups, plain = methods[mulan.UPS], methods["pseudo-labeling, every entry"]
    assert (ups["tau_p"], ups["kappa_p"], ups["max_rounds"]) == (0.5, 0.05, 1)
    assert (plain["tau_n"], plain["kappa_n"], methods[mulan.SUPERVISED]["max_rounds"]) == (0.5, np.inf, 0)
    assert ups["labeled_batch_size"] == plain["labeled_batch_size"] == ups["batch_size"]
    assert ups["random_state"] == "the row's seed"


def test_the_epochs_of_all_rounds_are_counted() -> None:
    x = np.random.default_rng(0).normal(size=(120, 2))
    y = np.where(np.arange(120) < 20, (x[:, 0] > 0).astype(int), -1)
    rest = {"epochs": 3, "min_steps": 0, "batch_size": 10, "hidden": (8,), "tau_p": 0.5}
    classifier = UPSClassifier(max_rounds=1, kappa_p=1.0, negatives=False, random_state=0, device="cpu", **rest)
    classifier.fit(x, y)
    assert classifier.history_[1].num_positive > 0
    assert comparison.epochs_done(classifier, 20) == 6
    assert comparison.epochs_done(LogisticRegression(), 20) is None


@pytest.mark.parametrize(
    ("name", "shape", "num_classes"),
    [("yeast", (2417, 103), 14), ("scene", (2407, 294), 6), ("emotions", (593, 72), 6)],
)
def test_the_real_data_sets_have_their_published_sizes(name: str, shape: tuple[int, int], num_classes: int) -> None:
    folder = data_folder() / "mulan"
    if not folder.is_dir():
        pytest.skip(f"Mulan's data sets are not in {folder}")
    data = mulan.read_mulan(name, folder)
    assert data.x.shape == shape
    assert data.y.shape == (shape[0], num_classes)
    assert (data.y.sum(axis=0) > 0).all()
