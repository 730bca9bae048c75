"""`surelabel predict`, `label` and `resume`: what a run's folder is good for afterwards."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from cli_support import LOGISTIC, QUICK, blobs, write_blobs
from scipy.stats import binomtest

import surelabel
from surelabel.cli import main
from surelabel.data.tables import read_table, write_table
from surelabel.learners.network import TorchLearner
from surelabel.runs import RunFolder
from surelabel.runs.session import run

pytestmark = pytest.mark.usefixtures("short_fits")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table and a finished run of it, shared by the tests that only read it."""
    folder = tmp_path_factory.mktemp("runs")
    write_blobs(folder / "pets.csv")
    words = ["fit", folder / "pets.csv", "--label", "pet", "--id", "id", *QUICK, "--quiet", "--out", folder / "pets"]
    assert main([str(word) for word in words]) == 0
    return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with several labels a sample."""
    folder = tmp_path_factory.mktemp("both")
    left = [row % 2 for row in range(20)] + [None] * 40
    columns = {**blobs(), "left": left, "right": [None if cell is None else 1 - cell for cell in left]}
    del columns["pet"]
    write_table(folder / "both.csv", columns)
    words = ["fit", folder / "both.csv", "--label", "left", "--label", "right", "--id", "id", *QUICK, "--quiet"]
    assert main([*map(str, words), "--out", str(folder / "run")]) == 0
    return folder


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_predictions_are_the_most_probable_class_of_one_deterministic_pass(command, home):
    result = command("predict", home / "pets", home / "pets.csv", "--proba")
    assert (result.code, result.err) == (0, "")
    found = rows(result.out)
    assert list(found[0]) == ["id", "prediction", "confidence", "p(cat)", "p(dog)"]
    assert [row["id"] for row in found] == blobs()["id"]
    assert [row["prediction"] for row in found] == ["cat" if row % 2 else "dog" for row in range(60)]
    table = read_table(home / "pets.csv", labels=["pet"], id_column="id")
    expected = RunFolder.open(home / "pets").learner().predict_proba(surelabel.ArraySource(table.x))
    np.testing.assert_allclose([[float(row["p(cat)"]), float(row["p(dog)"])] for row in found], expected, rtol=1e-6)
    assert all(float(row["confidence"]) == max(float(row["p(cat)"]), float(row["p(dog)"])) for row in found)


def test_text_that_a_spreadsheet_takes_as_a_formula_is_quoted_where_asked(command, home, tmp_path):
    path = write_table(tmp_path / "new.csv", {**blobs(), "id": [f"=A{row}" for row in range(60)]})
    for name in ("predict", "label"):
        printed = rows(command(name, home / "pets", path, "--excel-safe").out)
        assert (printed[5]["id"], rows(command(name, home / "pets", path).out)[5]["id"]) == ("'=A5", "=A5")
        out = tmp_path / f"{name}.csv"
        assert command(name, home / "pets", path, "--excel-safe", "--out", out).code == 0
        assert rows(out.read_text()) == printed
        words = (name, home / "pets", path, "--excel-safe", "--out", tmp_path / "t.parquet")
        assert command.fails(2, *words).startswith("--excel-safe has no effect: ")


def test_columns_may_stand_in_another_order_beside_others(command, home, tmp_path):
    columns = blobs()
    other = {name: columns[name] for name in ("height", "id", "width")}
    path = write_table(tmp_path / "new.csv", {"note": ["new"] * 60, **other})
    assert command("predict", home / "pets", path).out == command("predict", home / "pets", home / "pets.csv").out


def test_rows_are_numbered_when_asked(command, home, tmp_path):
    path = write_blobs(tmp_path / "nameless.csv", id=None)
    assert "has no id column 'id'" in command.fails(1, "predict", home / "pets", path)
    result = command("predict", home / "pets", path, "--id", "")
    assert [row["id"] for row in rows(result.out)] == [str(number) for number in range(60)]


def test_labels_agree_with_what_the_run_says_of_its_pool(command, home):
    result = command("label", home / "pets", home / "pets.csv")
    found = rows(result.out)
    assert list(found[0]) == ["id", "label", "confidence", "uncertainty", "selected", "ruled_out", "round", "given"]
    folder = RunFolder.open(home / "pets")
    config = folder.settings.config
    for row in found:
        passes = float(row["confidence"]) >= config.tau_p and float(row["uncertainty"]) <= config.kappa_p
        assert (row["selected"] == "positive") == passes
        assert (row["selected"] != "none") or not row["ruled_out"]
        assert row["label"] not in row["ruled_out"].split("|")
    assert {"positive"} <= {row["selected"] for row in found}


def test_label_says_how_many_labels_are_selected_and_that_they_were_not_checked(command, home):
    result = command("label", home / "pets", home / "pets.csv")
    number = sum(row["selected"] == "positive" for row in rows(result.out))
    assert result.err == (
        f"{number} of 60 labels are selected.\nHow often selected labels are right was not checked: the run has no "
        "validation labels; 'surelabel fit --validation 0.2' holds some out.\n"
    )


def test_label_says_how_often_selected_labels_of_the_validation_set_are_right(command, tmp_path):
    columns = blobs(num_labeled=60, seed=1)
    columns["pet"][:2] = columns["pet"][1::-1]  # two are called otherwise than they look
    path, held = write_blobs(tmp_path / "pets.csv"), write_table(tmp_path / "held.csv", columns)
    fit = ("fit", path, "--label", "pet", "--id", "id", *LOGISTIC, "--quiet", "--out", tmp_path / "run")
    assert command(*fit, "--validation", held).code == 0
    table = RunFolder.open(tmp_path / "run").table("validation.parquet")
    chosen = [row for row in table.to_pylist() if row["selected"] == "positive"]
    right = sum(row["label"] == row["truth"] for row in chosen)
    assert 0 < right < len(chosen)
    interval = binomtest(right, len(chosen)).proportion_ci(method="exact")
    lines = command("label", tmp_path / "run", path).err.splitlines()
    assert lines[1] == (
        f"Of the selected labels in the validation set, {100 * right / len(chosen):.1f} % are right ({right} of "
        f"{len(chosen)}; 95 % interval {100 * interval.low:.1f} to {100 * interval.high:.1f} %)."
    )
    assert lines[2].startswith("Where classes are ruled out, ")


def test_labels_that_the_file_has_itself_are_told_beside_the_models(command, home, tmp_path):
    given = [None, "bird", *blobs()["pet"][2:]]
    path = write_table(tmp_path / "pets.csv", {**blobs(), "pet": given})
    found = rows(command("label", home / "pets", path).out)
    assert [row.pop("given") or None for row in found] == given
    without = write_table(tmp_path / "new.csv", {name: values for name, values in blobs().items() if name != "pet"})
    assert found == rows(command("label", home / "pets", without).out)


def test_labeling_the_pool_again_gives_the_numbers_of_the_last_round(command, home, tmp_path):
    pool = {name: values[8:] for name, values in blobs().items()}  # the rows without a label, as the run saw them
    path = write_table(tmp_path / "pool.csv", {name: pool[name] for name in ("id", "width", "height")})
    out = tmp_path / "labels.parquet"
    assert command("label", home / "pets", path, "--out", out).code == 0
    import pyarrow.parquet as pq

    found, kept = pq.read_table(out), RunFolder.open(home / "pets").pool_table()
    for name in ("id", "label", "confidence", "uncertainty"):
        assert found[name].to_pylist() == kept[name].to_pylist(), name
    ruled_out = {id for id, cell in zip(found["id"].to_pylist(), found["ruled_out"].to_pylist(), strict=True) if cell}
    negatives = RunFolder.open(home / "pets").table("negatives.parquet")["id"].to_pylist()
    selected = [value == "positive" for value in kept["selected"].to_pylist()]
    assert ruled_out - set(np.array(kept["id"])[selected].tolist()) == set(negatives)


def test_several_labels_have_a_column_for_each_class_as_in_the_table(command, both):
    predicted = rows(command("predict", both / "run", both / "both.csv").out)
    assert list(predicted[0]) == ["id", "left", "right"]
    assert [(row["left"], row["right"]) for row in predicted[:2]] == [("0", "1"), ("1", "0")]
    labeled = rows(command("label", both / "run", both / "both.csv", "--entries").out)
    assert list(labeled[0]) == ["id", "class", "label", "confidence", "uncertainty", "selected", "round", "given"]
    assert [row["class"] for row in labeled] == ["left", "right"] * 60
    assert {(row["label"], row["selected"]) for row in labeled} <= {
        (label, selected) for label, selected in (("1", "positive"), ("0", "negative"), ("1", "none"), ("0", "none"))
    }


@pytest.mark.parametrize("name", ["predict", "label"])
def test_an_existing_file_is_replaced_only_when_forced(command, home, tmp_path, name):
    out = tmp_path / "result.csv"
    out.write_text("mine")
    line = command.fails(1, name, home / "pets", home / "pets.csv", "--out", out)
    assert line == f"File '{out}' exists and is kept; choose another name, or give --force to replace it."
    assert out.read_text() == "mine"
    result = command(name, home / "pets", home / "pets.csv", "--out", out, "--force")
    assert (result.code, result.out, result.err.splitlines()[0]) == (0, "", f"60 rows are in {out}.")
    assert len(rows(out.read_text())) == 60


@pytest.mark.parametrize(
    ("out", "problem"),
    [
        ("result.txt", "must end in .csv or .parquet."),
        ("mine/a/b.csv", "cannot be made (Not a directory); choose another."),
    ],
)
def test_an_output_that_cannot_be_written_is_wrong_use(command, home, tmp_path, out, problem):
    (tmp_path / "mine").touch()
    line = command.fails(2, "predict", home / "pets", home / "pets.csv", "--out", tmp_path / out)
    assert line.startswith("Invalid value for '--out': ")
    assert line.endswith(problem)


@pytest.mark.parametrize(("name", "out"), [("predict", "p.csv"), ("export", "m.pt2"), ("report", "r.html")])
def test_the_folders_of_an_output_are_made(command, home, tmp_path, name, out):
    file = (home / "pets.csv",) if name == "predict" else ()
    assert command(name, home / "pets", *file, "--out", tmp_path / "a/b" / out).code == 0
    assert (tmp_path / "a/b" / out).exists()


@pytest.mark.parametrize("name", ["predict", "label", "resume", "report"])
def test_a_missing_run_is_wrong_use(command, tmp_path, name):
    file = () if name in ("resume", "report") else (write_blobs(tmp_path / "pets.csv"),)
    out = ("--out", tmp_path / "report.html") if name == "report" else ()
    line = command.fails(2, name, tmp_path / "gone", *file, *out)
    assert (
        line
        == f"Invalid value for 'RUN': folder '{tmp_path}/gone' does not exist; name the --out of a 'surelabel fit'."
    )


def test_a_folder_without_a_run_is_a_failure(command, tmp_path):
    assert "There is no run in" in command.fails(1, "resume", tmp_path)


def test_a_missing_file_is_wrong_use(command, home):
    line = command.fails(2, "predict", home / "pets", "gone.csv")
    assert line == "Invalid value for 'INPUT': there is no file or folder 'gone.csv'; check the path."


@pytest.mark.parametrize("name", ["predict", "label"])
def test_a_file_without_ids_is_told_how_to_be_numbered(command, home, tmp_path, name):
    path = write_blobs(tmp_path / "new.csv", id=None)
    problem = f"File '{path}' has no id column 'id'; it has 'width', 'height', 'pet'. Name another one, or number the"
    assert command.fails(1, name, home / "pets", path) == f"{problem} rows: --id ''."
    assert command(name, home / "pets", path, "--id", "").code == 0


def test_samples_without_a_feature_of_the_run_are_refused(command, home, tmp_path):
    path = write_blobs(tmp_path / "narrow.csv", height=None)
    line = command.fails(1, "predict", home / "pets", path)
    assert "narrow.csv" in line
    assert "'height'" in line


def test_a_damaged_run_is_named(command, home, tmp_path):
    import shutil

    shutil.copytree(home / "pets", tmp_path / "pets")
    model = next((tmp_path / "pets").rglob("model.safetensors"))
    model.write_bytes(model.read_bytes()[:-1] + b"?")
    assert str(model) in command.fails(1, "predict", tmp_path / "pets", home / "pets.csv")


def test_resuming_a_finished_run_changes_nothing_and_says_so(command, home):
    before = (home / "pets" / "history.json").read_bytes()
    result = command("resume", home / "pets")
    assert (result.code, result.err) == (0, "")
    assert re.search(r"Done after round 1 in [\d:]+: the last round asked for is done\.", result.out)
    assert "positives" not in result.out, "no round was done, so there is no table"
    assert (home / "pets" / "history.json").read_bytes() == before


def test_resume_with_more_rounds_goes_on(command, tmp_path):
    path = write_blobs(tmp_path / "pets.csv")
    words = ("--label", "pet", "--id", "id", "--estimator", "sklearn.linear_model:LogisticRegression", "--passes", "3")
    assert command("fit", path, *words, "--rounds", "0", "--out", tmp_path / "run").code == 0
    result = command("resume", tmp_path / "run", "--rounds", "2")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()[:3]] == ["round", "1", "2"]
    assert RunFolder.open(tmp_path / "run").num_rounds == 3
    assert "must be at least 2: that round is done" in command.fails(1, "resume", tmp_path / "run", "--rounds", "0")


def test_resume_finds_data_that_have_moved(command, tmp_path):
    path = write_blobs(tmp_path / "pets.csv")
    assert command("fit", path, "--label", "pet", "--id", "id", *LOGISTIC, "--out", tmp_path / "run").code == 0
    moved = path.rename(tmp_path / "moved.csv")
    more = ("resume", tmp_path / "run", "--rounds", "2")
    assert "is not there any more" in command.fails(1, *more)
    assert "'--data': there is no file" in command.fails(2, *more, "--data", path)
    assert "has changed since the run began" in command.fails(1, *more, "--data", write_blobs(path, width=[0.0] * 60))
    assert command(*more, "--data", moved).code == 0
    assert command("resume", tmp_path / "run", "--rounds", "3").code == 0


def test_a_run_from_objects_in_memory_is_resumed_from_python(command, tmp_path):
    columns = blobs()
    x = np.array([columns["width"], columns["height"]], dtype=np.float32).T
    y = np.array([row % 2 for row in range(8)])
    config = surelabel.UPSConfig(max_rounds=1)
    next(run(tmp_path / "run", TorchLearner(), (x[:8], y), x[8:], config))
    line = command.fails(1, "resume", tmp_path / "run")
    assert f"surelabel.run('{tmp_path}/run', learner, labeled, unlabeled, resume=True)" in line
    path = write_blobs(tmp_path / "pets.csv")
    assert "load_model(learner)" in command.fails(1, "predict", tmp_path / "run", path)
