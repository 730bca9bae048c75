"""`surelabel fit` with its comparison: the table, what is kept and served, interruptions, promises about labels."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_support import blobs, rows, write_blobs
from PIL import Image

from surelabel.cli import main
from surelabel.core.metrics import share_interval
from surelabel.core.thresholds import Thresholds, choose
from surelabel.data.tables import write_table
from surelabel.learners.sklearn import SklearnLearner
from surelabel.report.comparison import comparison_lines
from surelabel.report.held_out import check_selected
from surelabel.report.html import write_report
from surelabel.runs import RunFolder
from surelabel.runs.comparison import all_known, as_held_out
from surelabel.runs.files import write_json

STUMP = ("--estimator", "sklearn.tree:DecisionTreeClassifier", "--rounds", "1", "--passes", "3")
"""Quick, and as good as a linear model on far groups of points."""
SMALL_FOREST = """
from sklearn.ensemble import RandomForestClassifier

def forest():
    return RandomForestClassifier(n_estimators=5)
"""


def fit(*more: object, data: object = "pets.csv", label: str = "pet") -> tuple[object, ...]:
    return ("fit", data, "--label", label, "--id", "id", "--out", "run", *STUMP, *more)


@pytest.fixture(autouse=True)
def in_a_new_folder(own_folder: Path) -> None:
    write_blobs(Path("pets.csv"))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by cross-validation that keeps its linear model."""
    folder = tmp_path_factory.mktemp("compared")
    write_table(folder / "pets.csv", blobs(80, 40))
    words = fit("--quiet", data=folder / "pets.csv")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("surelabel.runs.folds.choose", lambda judged: "linear")
        assert main([str(folder / "run" if word == "run" else word) for word in words]) == 0
    return folder / "run"


def test_a_fit_ends_with_a_table_of_three_models_and_says_that_none_is_clearly_better(command):
    write_table(Path("many.csv"), blobs(80, 40))
    result = command(*fit(data="many.csv"))
    assert (result.code, result.err) == (0, "")
    table = [
        line.split() for line in result.out.splitlines() if line.lstrip().startswith(("linear", "round 0,", "round 1,"))
    ]
    low, high = (f"{100 * value:.1f}" for value in share_interval(40, 40)[1:])
    assert table[0] == ["linear", "model", "of", "the", "labels", "100.0", low, "to", high, "40"]
    assert [line[0:2] for line in table] == [["linear", "model"], ["round", "0,"], ["round", "1,"]]
    assert table[-1][-1] == "kept"
    assert (
        "By cross-validation (5 folds), self-training is level with the next best (+0.0 points, within the standard "
        "error). Kept, because it has learned from the most samples: round 1, self-training."
    ) in result.out.splitlines()
    assert re.search(r"Of the selected labels in the cross-validation \(5 folds\), 100\.0 % are right \(", result.out)
    assert re.search(r"By class, where 10 or more are selected: cat 100\.0 % .*; dog 100\.0 %", result.out)
    assert "not checked" not in result.out


def test_a_kept_linear_model_serves_predict_label_and_report(command, compared, tmp_path):
    file = compared.parent / "pets.csv"
    assert RunFolder.open(compared).kept == "linear"
    found = rows(command("predict", compared, file).out)
    assert [row["prediction"] for row in found] == ["cat" if row % 2 else "dog" for row in range(80)]
    result = command("label", compared, file)
    labels = rows(result.out)
    assert {row["selected"] for row in labels} >= {"positive"}
    assert max(float(row["uncertainty"]) for row in labels) > 0, "by the spread of the bootstrap"
    assert "Of the selected labels in the cross-validation (5 folds), " in result.err
    text = write_report([RunFolder.open(compared)], tmp_path / "report.html").read_text()
    for expected in (
        "linear model of the labels",
        "self-training did not help",
        "cross-validation (5 folds)",
        "By class",
    ):
        assert expected in text


def test_only_the_kept_model_and_those_of_round_0_and_the_last_round_are_in_the_folder(compared):
    models = {str(file.relative_to(compared)) for file in compared.rglob("*.skops")}
    assert models == {"linear.skops", "rounds/000/model.skops", "rounds/001/model.skops"}


def test_without_a_comparison_everything_is_as_before(command):
    result = command(*fit("--no-compare"))
    assert "How often selected labels are right was not checked" in result.out
    assert "linear" not in result.out
    assert "comparison" not in json.loads(Path("run/run.json").read_text())["settings"]
    assert not Path("run/comparison.json").exists()
    assert [str(file) for file in Path("run").rglob("*.skops")] == ["run/rounds/001/model.skops"]


def test_where_a_class_has_one_label_the_models_are_not_compared_and_it_says_so(command):
    write_blobs(Path("few.csv"), pet=["dog", "cat", "dog", *[None] * 57])
    result = command(*fit(data="few.csv"))
    assert result.code == 0
    assert "The models were not compared: a class has too few labels to hold one out of them." in result.out
    assert RunFolder.open("run").kept == "last"


def test_two_labels_of_each_class_leave_the_linear_model_out(command):
    write_blobs(Path("few.csv"), pet=["dog", "cat", "dog", "cat", *[None] * 56])
    Path("own.py").write_text(SMALL_FOREST)
    result = command(*fit("--estimator", "own.py:forest", data="few.csv"))
    assert "A linear model was left out: with one label of each class to learn from" in result.out
    found = RunFolder.open("run").comparison()
    assert (found.num_folds, list(found.judged())) == (2, ["first", "last"])


def test_two_labels_of_each_class_are_too_few_for_an_estimator_that_is_not_random(command):
    write_blobs(Path("few.csv"), pet=["dog", "cat", "dog", "cat", *[None] * 56])
    result = command(*fit("--estimator", "sklearn.linear_model:LogisticRegression", data="few.csv"))
    assert (result.code, result.err) == (0, "")
    assert "The models were not compared: a class has too few labels to hold one out of them." in result.out
    assert RunFolder.open("run").kept == "last"
    assert command("resume", "run").code == 0


def test_an_interrupted_comparison_says_what_is_kept_and_resume_goes_on(command, monkeypatch):
    fits, fit_one = [], SklearnLearner.fit

    def interrupted(self, *arguments, **more):
        fits.append(self)
        if len(fits) == 2 + 3 + 3 + 1:  # two rounds; two folds of a linear model and two rounds; the third begins
            raise KeyboardInterrupt
        fit_one(self, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(SklearnLearner, "fit", interrupted)
        result = command(*fit())
    assert result.code == 130
    kept = "rounds 0 to 1 are done and kept, 2 of 4 folds of the comparison are kept too"
    assert f"{kept}; go on with: surelabel resume run" in result.err
    assert command("resume", "run").code == 0
    assert command(*(("other" if word == "run" else word) for word in fit())).code == 0
    runs = [RunFolder.open(name).comparison() for name in ("run", "other")]
    assert runs[0].kept == runs[1].kept == "last"
    for name, expected in runs[1].judged().items():
        np.testing.assert_array_equal(runs[0].judged()[name].labels.confidence, expected.labels.confidence)


def test_too_little_time_for_all_folds_is_told(command):
    result = command(*fit("--max-minutes", "0"))
    assert result.code == 0
    line = "The time sufficed for no fold of the comparison; 'surelabel resume --max-minutes' goes on."
    assert f"{line} The last round is kept." in result.out
    result = command("resume", "run", "--max-minutes", "10")
    assert "The time sufficed" not in result.out
    assert RunFolder.open("run").comparison().num_folds == 4


def test_several_labels_are_compared_by_mean_average_precision(command, monkeypatch):
    left = [row % 2 for row in range(30)] + [None] * 30
    columns = {**blobs(), "left": left, "right": [None if cell is None else 1 - cell for cell in left]}
    del columns["pet"]
    write_table(Path("both.csv"), columns)
    result = command(*fit("--label", "right", data="both.csv", label="left"))
    assert (result.code, result.err) == (0, "")
    assert re.search(r"linear model of the labels +1\.000 +1\.000 to 1\.000 +30", result.out)
    assert command("predict", "run", "both.csv").code == 0
    monkeypatch.delattr("surelabel.runs.comparison.map_interval")
    (line,) = comparison_lines(RunFolder.open("run"))
    assert "(+0.000, within the standard error)" in line, "told without the intervals, which take long"


def test_groups_are_held_out_whole_and_nothing_of_them_is_learned_from(command, monkeypatch):
    # Each owner has labeled rows and others, and no shift of the rows keeps them together.
    owners = [f"o{row % 13}" for row in range(60)]
    write_table(Path("owned.csv"), {**blobs(60, 24), "owner": owners})
    seen, fit_one = [], SklearnLearner.fit

    def noting(self, training_set, **more):
        seen.append((set(training_set.source.ids[: training_set.num_labeled]), set(training_set.source.ids)))
        fit_one(self, training_set, **more)

    monkeypatch.setattr(SklearnLearner, "fit", noting)
    assert command(*fit("--group", "owner", data="owned.csv")).code == 0
    rounds, folds = seen[:2], seen[2:]
    assert len(folds) == 15, "five folds of a linear model and two rounds"
    everything = rounds[0][1]
    for labeled, samples in folds:
        gone = {name for name in everything if name not in samples}
        assert gone
        held_out = {int(name[1:]) % 13 for name in gone}
        assert gone == {name for name in everything if int(name[1:]) % 13 in held_out}, "whole groups"
        assert not labeled & gone


def test_labels_with_a_promise_are_selected_by_the_chosen_thresholds(command):
    write_table(Path("held.csv"), blobs(400, 400, seed=1))
    result = command(*fit("--validation", "held.csv", "--max-label-error", "0.05"))
    assert result.code == 0
    found = RunFolder.open("run").comparison().promise
    assert found.tau_p is not None
    assert (found.max_error, found.delta, found.num_samples) == (0.05, 0.05, 400)
    assert f"Labels are selected so that few are wrong: {found}" in result.out
    labels = rows(command("label", "run", "pets.csv").out)
    for row in labels:
        passes = float(row["confidence"]) >= found.tau_p and float(row["uncertainty"]) <= found.kappa_p
        assert (row["selected"] == "positive") == passes
    assert f"({found.num_selected} of {found.num_selected}; " in command("label", "run", "pets.csv").err


def test_a_promise_holds_for_each_of_the_models_from_which_the_kept_one_was_chosen(command):
    write_table(Path("held.csv"), blobs(70, 70, seed=1))
    result = command(*fit("--validation", "held.csv", "--max-label-error", "0.05"))
    assert "With 70 held-out samples, no thresholds can promise an error below 0.05" in result.out
    found = RunFolder.open("run").comparison()
    assert len(found.judged()) == 3
    labels, truth = found.judged()["last"]
    assert (labels.label == truth).all()
    held_out = as_held_out(labels, truth, all_known(truth))
    # Without a wrong label it takes log(delta) / log(1 - 0.05) of them: 59 for delta = 0.05, and 80 for 0.05 / 3.
    assert choose(held_out, 0.05, 0.05).num_selected == 70
    assert choose(held_out, 0.05, 0.05 / 3).tau_p is None


def test_how_often_selected_labels_are_right_is_told_of_those_that_the_promise_selects(compared, tmp_path):
    path = Path(shutil.copytree(compared, tmp_path / "run"))
    before, found = check_selected(RunFolder.open(path)), RunFolder.open(path).comparison()
    labels, truth = found.judged()["linear"]
    tau_p, kappa_p = float(np.quantile(labels.confidence, 0.3)), float(np.quantile(labels.uncertainty, 0.8))
    promise = Thresholds(tau_p, kappa_p, 0, 0, len(truth), 0.05, 0.05, 0)
    write_json(path / "comparison.json", {**found.content, "promise": promise._asdict()})
    chosen = (labels.confidence >= tau_p) & (labels.uncertainty <= kappa_p)
    after = check_selected(RunFolder.open(path))
    assert after.positive == ((labels.label == truth)[chosen].sum(), chosen.sum())
    assert 0 < after.positive.number < before.positive.number


def test_too_few_held_out_labels_for_a_promise_tell_how_many_more(command):
    result = command(*fit("--validation", "0.5", "--max-label-error", "0.05"))
    assert result.code == 0
    assert re.search(r"With 4 held-out samples, no thresholds can promise .* About \d+ more would", result.out)
    assert "So labels are selected by the thresholds of the rounds." in result.out
    assert "coverage" not in result.out, "fit has no such option"


def test_a_promise_needs_held_out_labels_and_a_comparison(command):
    line = command.fails(2, *fit("--max-label-error", "0.05"))
    assert line.startswith("--max-label-error needs held-out labels (")
    assert line.endswith("; hold some out: --validation 0.3.")
    line = command.fails(2, *fit("--max-label-error", "0.05", "--validation", "0.3", "--no-compare"))
    assert line == "--max-label-error has no effect together with --no-compare; leave one of them out."
    assert "'--max-label-error'" in command.fails(2, *fit("--max-label-error", "2", "--validation", "0.3"))


def test_a_promise_needs_a_validation_sample_with_all_of_its_labels(command):
    left = [row % 2 for row in range(20)] + [None] * 40
    columns = {**blobs(), "left": left, "right": [None if row % 2 else cell for row, cell in enumerate(left)]}
    write_table(Path("both.csv"), {name: cells for name, cells in columns.items() if name != "pet"})
    others = {**columns, **{name: blobs(seed=1)[name] for name in ("width", "height")}}
    write_table(Path("held.csv"), {name: cells[1:20:2] for name, cells in others.items() if name != "pet"})
    words = fit("--label", "right", data="both.csv", label="left")
    line = command.fails(1, *words, "--validation", "held.csv", "--max-label-error", "0.05")
    assert "no validation sample has all of its labels, so none can be judged; fill in what is unknown" in line


@pytest.mark.filterwarnings("default")
def test_ones_own_code_may_be_compared_without_a_key(command, monkeypatch, tmp_path):
    Path("mine.py").write_text(
        "from sklearn.tree import DecisionTreeClassifier\n\ndef stump():\n    return DecisionTreeClassifier()\n"
    )
    Path("taken").write_text("no folder")
    monkeypatch.setenv("SURELABEL_CONFIG", str(tmp_path / "taken" / "key"))
    result = command(*fit("--estimator", "mine.py:stump"))
    assert result.code == 0, result.err
    assert "Runs are not signed" in result.err
    assert RunFolder.open("run").comparison().num_folds == 4
    assert "mine.py:stump', and the run is not signed by you" in command.fails(1, "predict", "run", "pets.csv")


def test_a_damaged_comparison_is_named_by_the_commands_that_use_it(command):
    assert command(*fit("--quiet")).code == 0
    file = Path("run/comparison.json")
    file.write_text(file.read_text().replace('"linear"', '"last"', 1))
    for words in (("predict", "run", "pets.csv"), ("label", "run", "pets.csv"), ("resume", "run")):
        assert "File 'run/comparison.json' is damaged" in command.fails(1, *words)


def test_pictures_are_compared_with_a_linear_model_of_their_pixels_and_copies_are_held_out_together(
    command, monkeypatch
):
    monkeypatch.setenv("SURELABEL_DATA", str(Path("data").resolve()))
    generator = np.random.default_rng(0)
    for row in range(40):
        kind = ("dark", "light")[row % 2]
        folder = Path("photos", kind if row < 12 else "unlabeled")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 100, size=(8, 8, 3)) + (row % 2) * 150
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{row}.png")
        if row < 4:
            (folder / f"copy of {row}.png").write_bytes((folder / f"{row}.png").read_bytes())
    pixels = ("--estimator", "surelabel.kinds.linear:LinearOnPixels", "--rounds", "1", "--passes", "3")
    result = command("fit", "photos", "--out", "run", *pixels)
    assert (result.code, result.err) == (0, "")
    found = RunFolder.open("run").comparison()
    assert found.settings.comparison.linear.estimator == "surelabel.kinds.linear:LinearOnPixels"
    folds = [
        {name.partition("/")[2].removeprefix("copy of ") for name in table["id"].to_pylist()}
        for table in (found._table(k, f"comparison/{k}/last.parquet", negatives=False) for k in range(found.num_folds))
    ]
    assert sum(map(len, folds)) == 12, "a picture and its copy are in one fold"
    labels = rows(command("label", "run", "photos").out)
    assert all(
        row["label"] == ("light" if int(row["id"].split("/")[1].split()[-1][:-4]) % 2 else "dark") for row in labels
    )
