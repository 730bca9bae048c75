"""Which model a run keeps: the folds, the rule, interruptions, damage, and who may use it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import small_settings

from surelabel.core.metrics import share_interval
from surelabel.data.pool import PoolLabels
from surelabel.data.run_data import RunData
from surelabel.data.splits import group_keys
from surelabel.data.targets import Marks
from surelabel.errors import DamagedFileError, UntrustedCodeError
from surelabel.learners.network import TorchLearner
from surelabel.learners.settings import SklearnLearnerSettings
from surelabel.learners.sklearn import SklearnLearner
from surelabel.runs import RunFolder
from surelabel.runs.comparison import CANDIDATES, Judged, choose, is_clear
from surelabel.runs.files import write_json
from surelabel.runs.folds import compare, folds_of
from surelabel.runs.session import resume, start
from surelabel.settings import ComparisonSettings

LINEAR = SklearnLearnerSettings(estimator="surelabel.kinds.linear:LinearOnTable", members=3)


def labels_of(label: Any, confidence: Any = None) -> PoolLabels:
    """Labels by a model, none of them selected."""
    label = np.asarray(label)
    confidence = np.full(label.shape, 0.9) if confidence is None else np.asarray(confidence)
    nothing, classes = np.zeros(label.shape, dtype=bool), 2 if label.ndim == 1 else label.shape[1]
    none = Marks.of(np.zeros((len(label), classes), dtype=bool))
    floats = (confidence, confidence * 0, confidence, confidence * 0)
    return PoolLabels(np.arange(len(label)), label, *floats, nothing, nothing, none)


def judged(right: dict[str, list[int]], number: int = 20) -> dict[Any, Judged]:
    """Candidates by the samples, of `number`, that they are right about; all are of class 1."""
    truth = np.ones(number, dtype=int)
    return {
        name: Judged(labels_of(np.isin(np.arange(number), rows).astype(int)), truth) for name, rows in right.items()
    }


@pytest.mark.parametrize(
    ("linear", "first", "last", "kept"),
    [
        (range(10), range(10), range(10), "last"),  # all are as good
        (range(10), range(12), range(11), "last"),  # b = 1, c = 0: not clear
        (range(10), range(12), range(10), "first"),  # b = 2, c = 0: clear
        (range(14), range(12), range(10), "linear"),
        ([*range(7), *range(10, 16)], range(12), range(10), "first"),  # linear is best, b = 6, c = 3: not clear
        (range(20), range(10), range(5), "linear"),
        (range(5), range(20), range(10), "first"),
    ],
)
def test_the_last_is_kept_unless_another_is_clearly_better(linear, first, last, kept):
    found = judged({"linear": list(linear), "first": list(first), "last": list(last)})
    assert choose(found) == kept
    assert choose(dict(reversed(found.items()))) == kept, "their order does not matter"


@pytest.mark.parametrize(
    ("better", "other", "clear"),
    [
        (range(11), range(10), False),  # b = 1, c = 0: 1 <= 1
        (range(12), range(10), True),  # b = 2, c = 0: 4 > 2
        (range(13), [*range(10), 19], False),  # b = 3, c = 1: 4 <= 4
        (range(14), [*range(10), 19], True),  # b = 4, c = 1: 9 > 5
        (range(10), range(20), False),  # the other is better
    ],
)
def test_a_difference_is_clear_beyond_its_standard_error(better, other, clear):
    found = judged({"last": list(better), "first": list(other)})
    assert is_clear(found["last"], found["first"]) is clear


def test_the_rule_in_whole_numbers_is_that_of_the_standard_error_of_the_mean_difference():
    generator = np.random.default_rng(0)
    for _ in range(300):
        simple, other = (np.flatnonzero(generator.random(15) < share).tolist() for share in (0.6, 0.7))
        difference = np.isin(np.arange(15), other).astype(float) - np.isin(np.arange(15), simple)
        error = difference.std(ddof=1) / np.sqrt(15)
        if abs(difference.mean() - error) < 1e-9:
            continue  # on the border, where rounding decides
        found = judged({"linear": simple, "last": other}, 15)
        assert is_clear(found["last"], found["linear"]) == (difference.mean() > error)


def test_several_labels_are_compared_by_mean_average_precision():
    truth = np.tile([[0, 1], [1, 0], [1, 1]], (10, 1))
    good, bad = np.where(truth == 1, 0.8, 0.2), np.where(truth == 1, 0.2, 0.8)
    made = {"linear": bad, "first": good, "last": good}
    found: dict[Any, Judged] = {name: Judged(labels_of(p > 0.5, p), truth) for name, p in made.items()}
    assert choose(found) == "last"
    assert is_clear(found["first"], found["linear"])
    assert not is_clear(found["last"], found["first"])
    assert found["first"].score == (1.0, 1.0, 1.0)
    few = Judged(labels_of(truth[:6], good[:6]), truth[:6])
    assert few.score == (1.0, 0.0, 1.0), "so few samples have no interval"


def test_held_out_labels_without_a_positive_judge_no_model_better_than_another():
    truth = np.where(np.arange(30)[:, None] % 2, [[0, -1]], [[-1, 0]])
    p = np.random.default_rng(0).random((30, 2))
    made = {"linear": p, "first": 1 - p, "last": p**2}
    for number in (30, 6):
        found: dict[Any, Judged] = {
            name: Judged(labels_of(p[:number] > 0.5, p[:number]), truth[:number]) for name, p in made.items()
        }
        assert {one.score for one in found.values()} == {(0.0, 0.0, 1.0)}
        assert not is_clear(found["first"], found["last"])
        assert choose(found) == "last"


def test_no_model_is_compared_with_itself(monkeypatch):
    calls = []
    monkeypatch.setattr("surelabel.runs.comparison.is_clear", lambda one, other: calls.append(one is other) or False)
    assert choose(judged({"linear": [0], "first": [1], "last": [2]})) == "last"
    assert calls == [False, False]


def test_the_score_is_the_share_of_right_labels_with_its_exact_interval():
    assert judged({"last": list(range(17))})["last"].score == share_interval(17, 20)


def data_of(codes: Any, groups: Any = None) -> RunData:
    codes = np.asarray(codes)
    classes = [str(code) for code in range(codes.max() + 1 if codes.ndim == 1 else codes.shape[1])]
    x = np.zeros((len(codes), 2), dtype=np.float32)
    groups = None if groups is None else np.array(groups, dtype=object)
    return RunData((x, codes), x, classes, "single" if codes.ndim == 1 else "multi", groups=groups)


def test_folds_hold_each_label_out_once_and_leave_every_class_one():
    folds = folds_of(data_of([0, 1, 2] * 10), 5, seed=0)
    assert len(folds) == 5
    assert np.sort(np.concatenate([fold.held_out for fold in folds])).tolist() == list(range(30))
    for fold in folds:
        assert np.bincount(fold.held_out % 3).tolist() == [2, 2, 2], "stratified"
        assert not set(fold.learned) & set(fold.held_out)
    assert [fold.held_out.tolist() for fold in folds_of(data_of([0, 1, 2] * 10), 5, seed=1)] != [
        fold.held_out.tolist() for fold in folds
    ]


@pytest.mark.parametrize(("codes", "number"), [([0] * 9 + [1] * 3, 3), ([0, 0, 1, 1], 2), ([0, 0, 1], 0)])
def test_there_are_fewer_folds_where_a_class_has_few_labels_and_none_with_one(codes, number):
    assert len(folds_of(data_of(codes), 5, seed=0)) == number


def test_groups_are_held_out_whole():
    groups = [f"speaker {row // 4}" for row in range(24)] + [None] * 24
    folds = folds_of(data_of([0, 1] * 12, groups), 5, seed=0)
    keys = group_keys(np.array(groups, dtype=object))
    assert len(folds) == 5
    for fold in folds:
        assert not set(keys[fold.learned]) & set(keys[fold.held_out])
    assert folds_of(data_of([0, 1] * 12, ["one"] * 48), 5, seed=0) == []
    assert folds_of(data_of([0, 1] * 12, ["a"] * 12 + ["b"] * 36), 5, seed=0) != []
    assert folds_of(data_of([0] * 12 + [1] * 12, ["a"] * 12 + ["b"] * 36), 5, seed=0) == [], "no class would be left"


def test_several_labels_need_something_known_of_each_class_in_every_fold():
    codes = np.array([[1, 0], [0, 1]] * 10)
    assert len(folds_of(data_of(codes), 5, seed=0)) == 5
    codes[1:, 1] = -1
    assert folds_of(data_of(codes), 5, seed=0) == []


def note_fits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[int], set[int]]]:
    """Return a list that gets the ids of the labels that each fit learns from, and those of its other samples."""
    seen = []

    def note(learner: Any) -> None:
        fit = learner.fit

        def noting(self: Any, training_set: Any, *, seed: int) -> None:
            ids = training_set.source.ids
            seen.append((set(ids[: training_set.num_labeled]), set(ids[training_set.num_labeled :])))
            fit(self, training_set, seed=seed)

        monkeypatch.setattr(learner, "fit", noting)

    note(TorchLearner)
    note(SklearnLearner)
    return seen


def settings_with(folder: Path, **changes: Any) -> Any:
    values = {"comparison": ComparisonSettings(linear=LINEAR, folds=3), "max_rounds": 1, **changes}
    return small_settings(folder, **values)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose rounds are done, with nine labels and 51 samples in its pool."""
    folder = tmp_path_factory.mktemp("made")
    list(start(folder / "run", settings_with(folder)))
    return folder / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    import shutil

    return Path(shutil.copytree(made, tmp_path / "run"))


def steps(path: Path, **options: Any) -> list[tuple[int, int]]:
    return [tuple(step) for step in compare(RunFolder.open(path), **options)]


def content(path: Path) -> dict[str, Any]:
    """comparison.json without times and checksum."""
    found = json.loads((path / "comparison.json").read_text())
    found.pop("checksum")
    return {**found, "folds": [fold["files"] for fold in found["folds"]]}


def test_no_held_out_label_is_learned_from_and_the_samples_join_the_pool(run, monkeypatch):
    seen = note_fits(monkeypatch)
    assert steps(run) == [(0, 3), (1, 3), (2, 3), (3, 3)]
    judged_ids = [
        set(
            RunFolder.open(run)
            .comparison()
            ._table(k, f"comparison/{k}/last.parquet", negatives=False)["id"]
            .to_pylist()
        )
        for k in range(3)
    ]
    assert set.union(*judged_ids) == set(range(51, 60)), "the labeled samples"
    assert len(seen) == 9, "a linear model and two rounds in each of three folds"
    for place, (labeled, pool) in enumerate(seen):
        held_out = judged_ids[place // 3]
        assert labeled == set(range(51, 60)) - held_out
        assert pool == set(range(51)) | held_out


def test_the_comparison_goes_on_after_an_interruption_with_the_same_outcome(run, made, tmp_path):
    import shutil

    other = Path(shutil.copytree(made, tmp_path / "other"))
    assert steps(other)[-1] == (3, 3)
    going = compare(RunFolder.open(run))
    assert [tuple(next(going)) for _ in range(2)] == [(0, 3), (1, 3)]
    going.close()
    assert RunFolder.open(run).comparison().kept is None
    assert RunFolder.open(run).kept == "last", "until it is chosen"
    assert steps(run) == [(1, 3), (2, 3), (3, 3)]
    assert content(run) == content(other)
    assert steps(run) == [], "it is done"


def test_more_rounds_make_the_comparison_begin_anew(run):
    steps(run)
    list(resume(run, max_rounds=2))
    opened = RunFolder.open(run)
    assert opened.comparison() is None
    assert opened.kept == "last"
    assert steps(run)[0] == (0, 3)
    assert RunFolder.open(run).comparison().content["round"] == 2


def test_folds_that_would_not_end_in_time_do_not_start_and_more_time_goes_on(run):
    opened = RunFolder.open(run)
    minutes = opened.records()[-1].minutes
    settings = opened.settings.replace(comparison=opened.settings.comparison.replace(max_minutes=1.5 * minutes))
    from surelabel.runs.writing import write_settings

    write_settings(run, settings)
    assert steps(run) == [(0, 3)]
    found = RunFolder.open(run).comparison()
    assert (found.kept, found.num_folds, found.judged()) == ("last", 0, {})
    assert steps(run) == []
    write_settings(run, settings.limited(None, 60.0))
    assert steps(run)[-1] == (3, 3)


def test_time_that_the_command_has_taken_before_counts(run):
    from surelabel.runs.writing import write_settings

    write_settings(run, RunFolder.open(run).settings.limited(None, 60.0))
    assert steps(run, minutes_before=60.0) == [(0, 3)]


def test_the_tables_of_a_comparison_are_read_once_until_it_goes_on(run):
    going, opened = compare(RunFolder.open(run)), RunFolder.open(run)
    assert opened.comparison() is None
    next(going)
    for planned in (3, 6, 9):
        next(going)
        assert len(opened.comparison().judged()["last"].truth) == planned
    assert list(going) == []
    found = opened.comparison().judged()
    (run / "comparison" / "0" / "last.parquet").unlink()
    assert opened.comparison().judged() is found
    for again in (opened.verify, lambda: RunFolder.open(run).comparison().judged()):
        with pytest.raises(DamagedFileError, match=r"last\.parquet"):
            again()


def test_the_true_labels_are_read_once(tmp_path):
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=0, with_validation=True)))
    opened = RunFolder.open(tmp_path / "run")
    assert (len(opened.truth), len(opened.validation_truth)) == (51, 12)
    for name in ("pool", "validation"):
        (tmp_path / "run" / "rounds" / "000" / f"{name}.parquet").unlink()
    assert (len(opened.truth), len(opened.validation_truth)) == (51, 12)


def with_kept(run: Path, kept: str) -> RunFolder:
    """Compare, and let the choice be another."""
    steps(run)
    found = json.loads((run / "comparison.json").read_text())
    found.pop("checksum")
    found["kept"] = kept
    write_json(run / "comparison.json", found)
    return RunFolder.open(run)


def test_the_kept_model_is_the_one_that_is_served(run):
    x = RunFolder.open(run).data().unlabeled
    networks = {}
    for kept, round in (("first", 0), ("last", 1)):
        opened = with_kept(run, kept)
        fresh = opened.settings.learner.build("single")
        opened.load_model(fresh, round=round)
        networks[kept] = opened.learner().predict_proba(x)
        np.testing.assert_array_equal(networks[kept], fresh.predict_proba(x))
    assert np.abs(networks["first"] - networks["last"]).max() > 1e-3


def test_a_kept_linear_model_learns_from_all_labels_and_has_uncertainties(run, keeps_linear):
    opened, data = RunFolder.open(run), RunFolder.open(run).data()
    steps(run)
    learner = RunFolder.open(run).learner()
    expected = LINEAR.build("single")
    from surelabel.data.draws import seed_for
    from surelabel.data.training_set import make_problem

    problem = make_problem(data.labeled, data.unlabeled, "single")
    expected.fit(problem.training_set(None), seed=seed_for(opened.settings.config.seed, "linear"))
    np.testing.assert_array_equal(learner.predict_proba(data.unlabeled), expected.predict_proba(data.unlabeled))
    (chunk,) = learner.predict(problem.pool, seed=0)
    assert chunk.u.max() > 0


def test_with_a_validation_set_that_is_the_one_fold(tmp_path):
    list(start(tmp_path / "run", settings_with(tmp_path, with_validation=True)))
    assert steps(tmp_path / "run") == [(0, 1), (1, 1)]
    run = RunFolder.open(tmp_path / "run")
    found = run.comparison().judged()
    assert list(found) == list(CANDIDATES)
    for name, round in (("first", 0), ("last", -1)):
        np.testing.assert_array_equal(found[name].labels.confidence, run.validation(round).confidence)
    np.testing.assert_array_equal(found["linear"].truth, run.validation_truth)


def test_without_a_round_of_self_training_two_models_are_compared(tmp_path):
    list(start(tmp_path / "run", settings_with(tmp_path, max_rounds=0)))
    steps(tmp_path / "run")
    assert list(RunFolder.open(tmp_path / "run").comparison().judged()) == ["linear", "first"]


def test_a_run_that_asks_for_none_has_no_comparison_and_its_settings_are_those_of_earlier_versions(tmp_path):
    settings = small_settings(tmp_path, max_rounds=0)
    assert "comparison" not in settings.to_json()
    list(start(tmp_path / "run", settings))
    assert steps(tmp_path / "run") == []
    assert not (tmp_path / "run" / "comparison.json").exists()


@pytest.mark.parametrize("name", ["comparison.json", "comparison/1/last.parquet", "linear.skops"])
def test_a_damaged_file_is_named(run, keeps_linear, name):
    steps(run)
    file = run / name
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)
    with pytest.raises(DamagedFileError, match=name.replace(".", r"\.")):
        RunFolder.open(run).verify()


def test_nonsense_in_the_document_is_refused(run):
    steps(run)
    found = json.loads((run / "comparison.json").read_text())
    found.pop("checksum")
    for change in ({"kept": "best"}, {"kept": "linear", "linear": None}, {"folds": found["folds"][::-1]}):
        write_json(run / "comparison.json", {**found, **change})
        with pytest.raises(DamagedFileError, match=r"comparison\.json"):
            RunFolder.open(run).verify()


def test_a_linear_model_of_someone_elses_code_is_refused_before_it_is_imported(run, keeps_linear, tmp_path):
    steps(run)
    (tmp_path / "theirs.py").write_text("raise SystemExit('was run')\n")
    found = json.loads((run / "run.json").read_text())
    found.pop("checksum")
    found.pop("signature")
    own = {name: value for name, value in found.items() if name != "settings"}
    theirs = {**found["settings"], "data": None, "learner": None}
    theirs["comparison"] = {**theirs["comparison"], "linear": {"estimator": f"{tmp_path}/theirs.py:Model"}}
    write_json(run / "run.json", {**own, "settings": theirs})
    with pytest.raises(UntrustedCodeError, match=r"theirs\.py:Model"):
        RunFolder.open(run).learner()
    theirs["comparison"]["linear"] = {"estimator": LINEAR.estimator, "members": 3}
    write_json(run / "run.json", {**own, "settings": theirs})
    assert RunFolder.open(run).learner().models, "what is listed may be used by all"
