"""`surelabel fit`: what it reads, what it prints, and every input that it refuses before it trains."""

import json
import re
import shlex
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from cli_support import LOGISTIC, QUICK, blobs, write_blobs

from surelabel import UPSClassifier
from surelabel.base.defaults import KIND_DEFAULTS
from surelabel.cli.fit import run_settings
from surelabel.core.metrics import paired_change
from surelabel.data.columns import TextColumn
from surelabel.data.run_data import RunData, TableData
from surelabel.data.tables import read_table, write_table
from surelabel.kinds import KINDS
from surelabel.kinds.backbones import BackboneSettings
from surelabel.kinds.folder import FolderData
from surelabel.learners.sklearn import SklearnLearner
from surelabel.runs import RunFolder
from surelabel.settings import RunSettings

FOREST = ("--estimator", "sklearn.ensemble:RandomForestClassifier")


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_blobs(Path("pets.csv"))


def pets(*more: object, data: str = "pets.csv") -> tuple[object, ...]:
    return ("fit", data, "--label", "pet", "--id", "id", "--out", "runs/pets", *more)


def test_a_fit_prints_a_line_a_round_and_the_commands_to_go_on_with(command):
    result = command(*pets(*QUICK, "--validation", "0.5"))
    assert (result.code, result.err) == (0, "")
    found, classes, columns, head, *rounds, blank, done, score, change, selected, _, predict, label, report = (
        result.out.splitlines()
    )
    assert found == "Found rows in pets.csv: 4 labeled, 52 unlabeled, 4 for validation."
    assert classes == "Classes, with their labels: cat 2, dog 2."
    assert columns == "Used as numbers: width, height."
    assert head.split() == ["round", "positives", "negatives", "of", "pool", "confidence", "validation", "time"]
    assert [line.split()[0] for line in rounds] == ["0", "1"]
    assert len({len(line) for line in [head, *rounds]}) == 1, "the columns stand below their heads"
    assert blank == ""
    assert done.startswith("Done after round 1 in ")
    assert score == "Validation accuracy 1.000 (1.000 in round 0) on 4 samples."
    assert change.startswith(
        "By the labels of 'surelabel label', 4 of 4 validation samples are right, and 4 were in round"
    )
    assert selected.startswith("Of the selected labels in the validation set, 100.0 % are right (")
    assert [line.split()[:3] for line in (predict, label, report)] == [
        ["surelabel", name, "runs/pets"] for name in ("predict", "label", "report")
    ]
    assert "\x1b" not in result.out


def spoil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every network but the first take each class for the other."""
    fits, methods = [], {name: getattr(SklearnLearner, name) for name in ("fit", "predict", "predict_proba")}

    def fit(self, *arguments, **more):
        fits.append(self)
        methods["fit"](self, *arguments, **more)

    def predict(self, *arguments, **more):
        for chunk in methods["predict"](self, *arguments, **more):
            yield chunk if len(fits) == 1 else chunk._replace(p=1 - chunk.p, p_soft=1 - chunk.p_soft)

    def predict_proba(self, *arguments):
        p = methods["predict_proba"](self, *arguments)
        return p if len(fits) == 1 else 1 - p

    for method in (fit, predict, predict_proba):
        monkeypatch.setattr(SklearnLearner, method.__name__, method)


def test_a_last_round_that_is_worse_than_round_0_is_told_with_both_figures_and_an_interval(command, monkeypatch):
    write_table(Path("held.csv"), blobs(num_labeled=60, seed=1))
    spoil(monkeypatch)
    result = command(*pets(*LOGISTIC, "--validation", "held.csv"))
    assert (result.code, result.err) == (0, "")
    end = result.out.partition("Done after round 1")[2].splitlines()
    assert end[1] == "Validation accuracy 0.000 (1.000 in round 0) on 60 samples."
    low, high = (f"{100 * value:+.1f}" for value in paired_change(np.ones(60, bool), np.zeros(60, bool))[1:])
    assert end[2] == (
        "By the validation score the last round is worse than round 0. By the labels of 'surelabel label', 0 of 60 "
        f"validation samples are right, and 60 were in round 0: -100.0 points (paired 95 % interval {low} to {high})."
    )
    assert re.fullmatch(
        r"Of the selected labels in the validation set, 0\.0 % are right \(0 of .* 0\.0 to .* %\)\.", end[3]
    )
    assert command("resume", "runs/pets").out.splitlines()[3:5] == end[2:4]


def test_a_quiet_fit_still_warns_of_a_last_round_that_is_worse(command, monkeypatch):
    write_table(Path("held.csv"), blobs(num_labeled=60, seed=1))
    spoil(monkeypatch)
    result = command(*pets(*LOGISTIC, "--validation", "held.csv", "--quiet"))
    assert (result.code, result.out) == (0, "")
    assert "warning: By the validation score the last round is worse than round 0." in " ".join(result.err.split())


def test_without_a_validation_set_a_fit_says_that_selected_labels_were_not_checked(command):
    lines = command(*pets(*LOGISTIC)).out.splitlines()
    assert (
        "How often selected labels are right was not checked: the run has no validation labels; 'surelabel fit "
        "--validation 0.2' holds some out."
    ) in lines
    assert not any("worse" in line or "in round 0" in line for line in lines)


def test_a_fit_keeps_a_run_with_the_settings_asked_for(command):
    options = ("--tau-p", "0.8", "--kappa-n", "0.01", "--balance", "none", "--seed", "7", "--learning-rate", "0.01")
    assert command(*pets(*QUICK, *options)).code == 0
    settings = RunFolder.open("runs/pets").settings
    config, learner = settings.config, settings.learner
    assert (config.tau_p, config.kappa_n, config.balance, config.seed) == (0.8, 0.01, None, 7)
    assert (config.max_rounds, learner.hidden, learner.passes) == (1, (8,), 3)
    assert (learner.training.epochs, learner.training.learning_rate) == (1, 0.01)
    assert settings.feature_names == ("width", "height")
    assert settings.classes == ("cat", "dog")


@pytest.mark.parametrize("task", ["single", "multi"])
def test_without_options_the_settings_are_those_of_the_estimator(task):
    settings = run_settings({}, TableData(path="d.csv"), task, 3)
    learner, config = settings.network, settings.config
    parameters = UPSClassifier().get_params(deep=False)
    by_task = {"single": (0.7, 0.1, 5), "multi": (0.5, 0.05, 1)}[task]
    assert (config.tau_p, config.kappa_p, config.max_rounds) == by_task
    for name in ("tau_n", "kappa_n", "gamma", "negatives", "balance", "balance_rounds", "balance_floor", "tolerance"):
        assert getattr(config, name) == parameters[name], name
    for name in ("hidden", "dropout", "noise", "passes", "temperature", "negative_weight", "device"):
        assert getattr(learner, name) == parameters[name], name
    for name in ("optimizer", "learning_rate", "weight_decay", "batch_size", "epochs", "min_steps"):
        assert getattr(learner.training, name) == parameters[name], name
    assert learner.training == UPSClassifier().settings().training(task)


def settings_of(kind: str, task: str) -> RunSettings:
    """What `fit` would train with if no option but the data, and a backbone where the kind says so, was given."""
    x, y = np.zeros((4, 2), dtype=np.float32), np.array([0, 1, 0, 1])
    learned = {"columns": (TextColumn(name="text", width=2),)} if "texts" in kind else {}
    loaded = RunData(labeled=(x, y), unlabeled=x, classes=["a", "b"], learned=learned)
    if kind in KINDS:
        return run_settings({}, FolderData(path="files", of=kind), task, 2)
    given = {"backbone": ["nets.py:make"]} if "backbones" in kind else {}
    if kind == "pictures by backbones":
        backbone = BackboneSettings(reference="nets.py:make")
        return run_settings(given, FolderData(path="files", of="pictures", backbones=[backbone]), task, 2, loaded)
    return run_settings(given, TableData(path="d.csv"), task, 2, loaded)


@pytest.mark.parametrize(("task", "labels"), [("single", "one label"), ("multi", "several labels")])
@pytest.mark.parametrize("kind", ["tables", *KIND_DEFAULTS])
def test_help_says_the_defaults_of_each_kind_of_data(command, kind, task, labels):
    text = " ".join(command("fit", "--help").out.replace("│", " ").split())
    settings = settings_of(kind, task)
    training, config = settings.network.training, settings.config
    used = {
        "tau-p": config.tau_p,
        "kappa-p": config.kappa_p,
        "rounds": config.max_rounds,
        "dropout": settings.network.dropout,
        "epochs": training.epochs,
        "learning-rate": training.learning_rate,
    }
    for option, value in used.items():
        default, *others = re.search(rf" --{option} .*?\[default: (.*?)\]", text)[1].split("; ")
        said = {
            name: number for names, _, number in (one.partition(": ") for one in others) for name in names.split(", ")
        }
        assert value == float(said.get(labels, said.get(kind, default))), option


def test_a_table_and_its_arrays_end_with_the_same_network(command):
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)  # as UPSClassifier draws it
    quick = ("--rounds", "2", "--epochs", "1", "--passes", "3", "--no-compare", "--device", "cpu", "--seed", seed)
    assert command("fit", "pets.csv", "--label", "pet", "--drop", "id", *quick, "--out", "run").code == 0
    table = read_table("pets.csv", labels=["pet"], drop=["id"])
    options = {"max_rounds": 2, "epochs": 1, "passes": 3, "device": "cpu", "random_state": 0, "unlabeled": None}
    fitted = UPSClassifier(**options).fit(table.x, table.y)
    run = RunFolder.open("run")
    assert [record.num_positive for record in fitted.history_] == [record.num_positive for record in run.records()]
    assert fitted.history_[-1].num_positive
    p = run.learner().predict_proba(table.samples(slice(None)))
    assert p.tolist() == fitted.predict_proba(table.x).tolist()


def test_every_option_changes_a_setting():
    given = {"tau_p": 0.9, "tau_n": 0.1, "kappa_p": 0.2, "kappa_n": 0.1, "rounds": 3, "max_minutes": 2.0, "seed": 5}
    given |= {"gamma": 0.4, "balance": "prior", "balance_rounds": 0}
    network = {"dropout": 0.1, "epochs": 3, "learning_rate": 0.1, "passes": 4, "hidden": "5,6", "device": "cpu"}
    given = {**given, **network, "no_negatives": True, "max_label_error": 0.1}
    settings = run_settings(given, TableData(path="d.csv", validation=0.2), "single", 2)
    learner, config = settings.network, settings.config
    assert (config.tau_p, config.tau_n, config.kappa_p, config.kappa_n) == (0.9, 0.1, 0.2, 0.1)
    assert (config.max_rounds, config.max_minutes, config.seed, config.negatives) == (3, 2.0, 5, False)
    assert (config.gamma, config.balance, config.balance_rounds) == (0.4, "prior", 0)
    assert (learner.dropout, learner.passes, learner.hidden, learner.device) == (0.1, 4, (5, 6), "cpu")
    assert (learner.training.epochs, learner.training.learning_rate) == (3, 0.1)
    comparison = settings.comparison
    assert (comparison.max_minutes, comparison.max_label_error, comparison.linear.members) == (2.0, 0.1, 4)
    assert run_settings({**given, "no_compare": True}, TableData(path="d.csv"), "single", 2).comparison is None


def test_rounds_have_half_of_the_time_where_cross_validation_follows():
    limits = {
        name: run_settings({"max_minutes": 8.0, **given}, TableData(path="d.csv", **data), "single", 2)
        for name, given, data in (
            ("folds", {}, {}),
            ("validation", {}, {"validation": 0.2}),
            ("alone", {"no_compare": True}, {}),
        )
    }
    assert {name: settings.config.max_minutes for name, settings in limits.items()} == {
        "folds": 4.0,
        "validation": 8.0,
        "alone": 8.0,
    }
    after_reading = run_settings({"max_minutes": 8.0}, TableData(path="d.csv"), "single", 2, minutes_before=3.0)
    assert (after_reading.config.max_minutes, after_reading.comparison.max_minutes) == (2.5, 8.0)
    assert limits["alone"].limited(None, 8.0, 9.0).config.max_minutes == 0
    again = limits["folds"].limited(None, 20.0)
    assert (again.config.max_minutes, again.comparison.max_minutes) == (10.0, 20.0)


def test_the_time_for_reading_counts_where_it_is_limited(command, monkeypatch):
    load = TableData.load

    def slow(self, *arguments):
        monkeypatch.setattr("time.monotonic", lambda now=time.monotonic: now() + 600)
        return load(self, *arguments)

    monkeypatch.setattr(TableData, "load", slow)
    result = command(*pets("--rounds", "3", *QUICK[2:], "--max-minutes", "9"))
    assert result.code == 0
    assert "Done after round 0 in" in result.out
    assert "the time given is used up" in result.out


def test_quiet_prints_nothing(command):
    assert command(*pets(*LOGISTIC, "--quiet")) == (0, "", "")
    assert RunFolder.open("runs/pets").num_rounds == 2


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_a_run_that_selects_no_positive_label_says_so_and_what_loosens_that(command, quiet):
    result = command(*pets(*QUICK, "--tau-p", "1", "--kappa-p", "0", "--learning-rate", "1e-6", *quiet))
    assert result.code == 0
    assert result.err.startswith("warning: no round selected a positive label by tau_p=1 and kappa_p=0; ")
    assert "lower --tau-p or raise --kappa-p ('surelabel thresholds' shows" in result.err
    assert command("resume", "runs/pets", "--rounds", "2", *quiet).err == result.err


def test_a_run_of_round_0_alone_says_nothing_of_labels_that_it_does_not_select(command):
    assert command(*pets(*QUICK, "--rounds", "0")).err == ""


def test_several_label_columns_are_several_labels_a_sample(command):
    present = [1, 0, 1, 0, 1, 0] + [None] * 54
    columns = {**blobs(), "left": present, "right": [1, 1, 0, 0, None, 1] + [None] * 54, "pet": [None] * 60}
    write_table("both.csv", columns)
    words = ("fit", "both.csv", "--label", "left", "--label", "right", "--id", "id", "--drop", "pet")
    result = command(*words, *QUICK, "--out", "runs/both")
    assert (result.code, result.err) == (0, "")
    settings = RunFolder.open("runs/both").settings
    assert (settings.config.task, settings.classes) == ("multi", ("left", "right"))


def test_a_scikit_learn_estimator_takes_the_place_of_the_network(command):
    assert command(*pets(*LOGISTIC)).code == 0
    learner = RunFolder.open("runs/pets").settings.learner
    assert (learner.kind, learner.members) == ("sklearn", 3)


def test_a_network_of_ones_own_is_named_by_file_and_function(command):
    Path("net.py").write_text(
        "from torch import nn\n"
        "def make(shape, classes):\n"
        "    return nn.Sequential(nn.Linear(*shape, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, classes))\n"
    )
    assert command(*pets("--model", "net.py:make", "--rounds", "0", "--epochs", "1", "--no-compare")).code == 0
    learner = RunFolder.open("runs/pets").settings.learner
    assert learner.model == f"{Path.cwd()}/net.py:make"
    assert learner.model_hash is not None


NETWORKS = """
import torch
from torch import nn
from torch.nn.functional import dropout

def without_dropout(shape, classes):
    return nn.Sequential(nn.Linear(*shape, 8), nn.ReLU(), nn.Linear(8, classes))

class AlwaysRandom(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.first, self.last = nn.Linear(*shape, 8), nn.Linear(8, classes)
        nn.init.zeros_(self.last.weight)
        self.counter = nn.Parameter(torch.zeros(1, dtype=torch.int64), requires_grad=False)

    def forward(self, x):
        return self.last(dropout(self.first(x), 0.5))

def zero_head(shape, classes):
    last = nn.Linear(*shape, classes)
    nn.init.zeros_(last.weight)
    return nn.Sequential(nn.Dropout(0.5), last)
"""


@pytest.mark.parametrize("options", [("--model", "net.py:without_dropout"), ("--dropout", "0")])
def test_a_network_in_which_nothing_is_random_is_refused_before_there_is_a_folder(command, options):
    Path("net.py").write_text(NETWORKS)
    assert "nn.Dropout" in command.fails(1, *pets(*options))
    assert not Path("runs").exists()


@pytest.mark.parametrize("network", ["AlwaysRandom", "zero_head"])
def test_a_head_of_zeros_does_not_make_a_network_look_like_one_without_dropout(command, network):
    Path("net.py").write_text(NETWORKS)
    assert command(*pets("--model", f"net.py:{network}", "--rounds", "0", "--epochs", "1", "--no-compare")).code == 0


def test_pictures_without_a_network_for_them_are_told_to_be_taken_as_rows(command):
    x = np.random.default_rng(0).random((30, 1, 6, 6), dtype=np.float32)
    np.savez("pictures.npz", x=x, y=np.array([0, 1] * 5 + [-1] * 20))
    words = ("fit", "pictures.npz", "--rounds", "0", "--epochs", "1", "--quiet", "--no-compare")
    result = command(*words, "--out", "runs/rows")
    network = "surelabel.models.image:small_image_network"
    assert result.err.startswith("warning: samples of shape (1, 6, 6) are taken as rows of 36 numbers; ")
    assert f"--model {network}" in result.err
    assert command(*words, "--model", network, "--out", "runs/pictures") == (0, "", "")


@pytest.mark.parametrize("kind", ["parquet", "npz", "npy", "tsv"])
def test_other_kinds_of_files_are_read(command, kind):
    columns = blobs()
    x = np.array([columns["width"], columns["height"]]).T
    y = np.array([-1 if name is None else int(name == "cat") for name in columns["pet"]])
    words = ["fit", f"pets.{kind}", *LOGISTIC, "--out", "runs/pets"]
    if kind == "npz":
        np.savez("pets.npz", x=x, y=y)
    elif kind == "npy":
        np.save("pets.npy", x)
        np.save("labels.npy", y)
        words += ["--labels-file", "labels.npy"]
    else:
        write_table("other.parquet", columns)
        Path("other.parquet").rename("pets.parquet")
        Path("pets.tsv").write_text(Path("pets.csv").read_text().replace(",", "\t"))
        words += ["--label", "pet", "--id", "id"]
    result = command(*words)
    assert (result.code, result.err) == (0, "")
    assert RunFolder.open("runs/pets").records()[1].num_positive > 0


def test_a_label_can_mean_unlabeled(command):
    names = [name or "unknown" for name in blobs()["pet"]]
    write_blobs(Path("marked.csv"), pet=names)
    assert command(*pets(*LOGISTIC, "--unlabeled", "unknown", data="marked.csv")).code == 0
    settings = RunFolder.open("runs/pets").settings
    assert settings.classes == ("cat", "dog")
    assert settings.data.unlabeled == "unknown"  # as in runs of older versions


def test_all_marks_of_unlabeled_rows_are_named_and_may_be_given(command):
    marks = ["?", "NA", "nan", "None", "unknown", "-1", ""]
    write_blobs(Path("marked.csv"), pet=[name or marks[row % 7] for row, name in enumerate(blobs()["pet"])])
    result = command(*pets(*LOGISTIC, "--rounds", "0", data="marked.csv"))
    remedy = "--unlabeled -1 --unlabeled '?' --unlabeled NA --unlabeled None --unlabeled nan --unlabeled unknown"
    assert result.err.splitlines()[0] == (
        f"warning: '-1', '?', 'NA', 'None', 'nan', 'unknown' are classes; if they mean unlabeled, say {remedy}."
    )
    remedied = pets(*LOGISTIC, *shlex.split(remedy), data="marked.csv")
    result = command(*remedied, "--out", "runs/remedied")
    assert (result.code, result.err) == (0, "")
    assert RunFolder.open("runs/remedied").settings.classes == ("cat", "dog")
    assert command("resume", "runs/remedied", "--rounds", "2").code == 0


@pytest.mark.filterwarnings("always::UserWarning")
def test_rows_without_any_value_are_told(command):
    columns = {name: values for name, values in blobs().items() if name != "id"}
    path = write_table(Path("sheet.csv"), columns)
    path.write_text(path.read_text() + ",,\n" * 3)
    result = command("fit", path, "--label", "pet", *LOGISTIC, "--out", "runs/sheet")
    found = "File 'sheet.csv' has 3 rows without any value; they count as unlabeled samples: remove them."
    assert result.err.count(f"warning: {found}\n") == 1
    assert "8 labeled, 55 unlabeled" in result.out


@pytest.mark.filterwarnings("ignore:.*have the very features of labeled rows")
def test_a_test_file_is_scored(command):
    write_blobs(Path("test.csv"), pet=["cat" if row % 2 else "dog" for row in range(60)])
    result = command(*pets(*LOGISTIC, "--test", "test.csv"))
    assert result.code == 0
    assert "Test accuracy 1.000 (1.000 in round 0) on 60 samples." in result.out


# What is refused, each by one line that names the problem and the remedy.


def with_cell(column: str, row: int, value: object) -> dict[str, list[object]]:
    return {column: [*blobs()[column][:row], value, *blobs()[column][row + 1 :]]}


@pytest.mark.parametrize(
    ("changes", "problem", "remedy"),
    [
        ({"pet": [None] * 60}, "no labeled row", "fill in the label"),
        ({"pet": ["cat"] * 5 + [None] * 55}, "the class 'cat' alone", "label some rows of another class"),
        ({"pet": ["cat", "dog"] * 30}, "no unlabeled row", "leave some label cells empty"),
        ({"id": ["same"] * 60}, "the id 'same' is that of row 1 too", "make it unique"),
        (with_cell("width", 4, "wide"), "column 'width', row 5", "'wide'"),
        (with_cell("width", 4, float("inf")), "column 'width', row 5", "inf"),
        ({"pet": None}, "has no label column 'pet'", "it has"),
        ({"id": None}, "has no id column 'id'", "it has"),
        ({"width": None, "height": None}, "has no features", ""),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_refused(command, changes, problem, remedy):
    write_blobs(
        Path("bad.csv"),
        **{name: None if v is None else [str(c) if c is not None else None for c in v] for name, v in changes.items()},
    )
    line = command.fails(1, *pets(data="bad.csv"))
    assert "bad.csv" in line
    assert problem in line
    assert remedy in line
    assert not Path("runs").exists(), "nothing is written"


def test_an_empty_file_is_refused(command):
    Path("empty.csv").write_text("")
    assert "File 'empty.csv' is empty" in command.fails(1, *pets(data="empty.csv"))


def test_a_file_with_a_head_only_is_refused(command):
    Path("head.csv").write_text("id,width,height,pet\n")
    assert "File 'head.csv' has no rows" in command.fails(1, *pets(data="head.csv"))


def test_a_missing_file_is_wrong_use(command):
    line = command.fails(2, *pets(data="gone.csv"))
    assert line == "Invalid value for 'DATA': there is no file or folder 'gone.csv'; check the path."
    assert "'--test': file 'gone.csv'" in command.fails(2, *pets("--test", "gone.csv"))
    assert "'--validation': file 'gone.csv'" in command.fails(2, *pets("--validation", "gone.csv"))


@pytest.mark.parametrize(
    ("column", "hint"),
    [("island", "it has"), ("Pet", "did you mean 'Pet'? It has"), ("pets", "did you mean 'pets'? It")],
)
def test_a_test_file_without_labels_is_refused_and_only_a_similar_name_is_suggested(command, column, hint):
    write_blobs(Path("test.csv"), pet=None, **{column: blobs()["pet"]})
    line = command.fails(1, *pets(*LOGISTIC, "--test", "test.csv"))
    assert line.startswith(f"File 'test.csv' has no label column 'pet'; {hint}")
    assert line.endswith(f"'width', 'height', {column!r}. Add it.")


def test_a_class_that_only_the_test_file_has_is_refused(command):
    write_blobs(Path("test.csv"), pet=["bird"] * 60)
    line = command.fails(1, *pets("--test", "test.csv"))
    assert line.startswith("File 'test.csv' has the label 'bird', which no labeled training row has; label some")


def test_fewer_labels_than_classes_are_refused(command):
    columns = {**blobs(), "left": [1, 0] + [None] * 58, "right": [None] * 60, "pet": None}
    write_table("both.csv", {name: values for name, values in columns.items() if values is not None})
    line = command.fails(1, "fit", "both.csv", "--label", "left", "--label", "right", "--id", "id", "--out", "runs/b")
    assert "no labeled row left for class 'right'; label some, or leave it out" in line


def test_a_folder_with_something_in_it_is_kept(command):
    Path("runs/pets").mkdir(parents=True)
    Path("runs/pets/notes.txt").write_text("mine")
    line = command.fails(1, *pets())
    assert line.startswith("The folder 'runs/pets' is not empty ('notes.txt'); choose a new")
    assert [path.name for path in Path("runs/pets").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--tau-p", "2"), "Invalid value for '--tau-p': Input should be less than or equal to 1. Got 2.0."),
        (("--tau-p", "0.1", "--tau-n", "0.5"), "tau_n (0.5) must not be larger than tau_p (0.1)."),
        (("--kappa-p", "-1"), "Invalid value for '--kappa-p': Input should be greater than or equal to 0. Got -1.0."),
        (("--rounds", "-1"), "Invalid value for '--rounds': "),
        (("--passes", "1"), "Invalid value for '--passes': Input should be greater than or equal to 2. Got 1."),
        (("--epochs", "0"), "Invalid value for '--epochs': "),
        (("--learning-rate", "0"), "Invalid value for '--learning-rate': "),
        (("--dropout", "1"), "Invalid value for '--dropout': "),
        (("--seed", "-1"), "Invalid value for '--seed': "),
        (("--hidden", "12;4"), "Invalid value for '--hidden': Input should be a valid integer"),
        (("--hidden", "0"), "Invalid value for '--hidden': "),
        (("--validation", "1.5"), "Invalid value for '--validation': Input should be less than 1. Got '1.5'."),
        (("--device", "abacus"), "Invalid value for '--device': there is no 'abacus' here; use one of cpu"),
        (("--balance", "odd"), "Invalid value for '--balance': "),
        (("--gamma", "1"), "Invalid value for '--gamma': Input should be less than 1. Got 1.0."),
        (("--gamma", "0.4"), "--gamma has no effect: the table has one label a sample; leave it out."),
        (("--balance", "equal", "--balance-rounds", "-1"), "Invalid value for '--balance-rounds': "),
        (("--balance-rounds", "0"), "--balance-rounds has no effect without --balance equal or prior;"),
        (("--balance", "none", "--balance-rounds", "2"), "--balance-rounds has no effect without --balance"),
        ((*FOREST, "--epochs", "3"), "--epochs has no effect together with --estimator; leave one of them out."),
        ((*FOREST, "--sync-batchnorm"), "--sync-batchnorm has no effect together with --estimator;"),
        (("--model", "net.py:make", "--dropout", "0.1"), "--dropout has no effect together with --model;"),
        (("--no-negatives", "--tau-n", "0.1"), "--tau-n has no effect together with --no-negatives;"),
    ],
)
def test_a_wrong_option_is_wrong_use(command, options, problem):
    assert command.fails(2, *pets(*options)).startswith(problem)
    assert not Path("runs").exists(), "nothing is written"


def test_each_wrong_option_has_its_line(command):
    result = command(*pets("--tau-p", "2", "--kappa-p", "-1"))
    assert result.code == 2
    assert [line.split("'")[1] for line in result.err.splitlines()] == ["--tau-p", "--kappa-p"]


def test_a_table_without_a_named_label_is_wrong_use(command):
    line = command.fails(2, "fit", "pets.csv", "--out", "runs/pets")
    assert line == "Missing option '--label'; name the column that holds the labels, such as --label species."


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--model", "net.py:make"), "net.py', which does not exist"),
        (("--model", "no colon"), "A reference must be 'module:name' or 'path/file.py:name'."),
        (("--estimator", "sklearn.ensemble:Forest"), "'sklearn.ensemble' has no 'Forest'"),
        (("--estimator", "sklearn.svm:LinearSVC"), "must be a classifier with predict_proba"),
    ],
)
def test_a_model_that_cannot_be_found_or_used_is_named(command, options, problem):
    assert problem in command.fails(1, *pets(*options))
    assert not Path("runs/pets/run.json").exists()


def test_an_uneven_labeled_set_is_warned_of_on_one_line(command):
    write_blobs(Path("uneven.csv"), pet=["cat" if row % 2 else "dog" for row in range(8)] + ["cat"] * 8 + [None] * 44)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = command(*pets(*LOGISTIC, "--balance", "equal", data="uneven.csv"))
    assert result.code == 0
    assert result.err.startswith("warning: The labeled classes are far from even")
    assert result.err.count("\n") == 1


def test_history_is_what_was_printed(command):
    result = command(*pets(*LOGISTIC))
    rounds = json.loads(Path("runs/pets/history.json").read_text())["rounds"]
    printed = [line.split()[:3] for line in result.out.splitlines()[4:6]]
    assert printed == [[str(r["round"]), str(r["num_positive"]), str(r["num_negative"])] for r in rounds]
