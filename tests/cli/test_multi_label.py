"""`surelabel fit`, `label` and `predict` with several labels a sample: in one cell, or one column for each class."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_support import QUICK, Command, blobs, labels_read, rows

from surelabel.cli import main
from surelabel.data.run_data import TableData
from surelabel.data.tables import read_table, write_table
from surelabel.runs import RunFolder

pytestmark = pytest.mark.usefixtures("short_fits")

CELLS = ["cat | big", "dog", "cat", "dog|big|", "|", "big||dog", "cat", "dog"]
"""What the labeled rows' cells hold; the fifth says that nothing is there."""
SETS = [{"cat", "big"}, {"dog"}, {"cat"}, {"dog", "big"}, set(), {"big", "dog"}, {"cat"}, {"dog"}]
CLASSES = ["big", "cat", "dog"]
LOOSE = ("--tau-n", "0.4", "--kappa-n", "0.3")
"""So that a network which was trained for a moment selects negatives too."""


def write_tags(path: Path, cells: list[Any] = CELLS, **changes: Any) -> Path:
    """Write a table whose first rows have these cells and the others none."""
    columns = {**blobs(), "tags": [*cells, *[None] * (60 - len(cells))], **changes}
    del columns["pet"]
    return write_table(path, columns)


def fit(path: Path, *more: object) -> list[str]:
    words = ["fit", path, "--label", "tags", "--id", "id", *QUICK, *LOOSE, "--quiet", "--out", path.parent / "run"]
    return [str(word) for word in (*words, *more)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a table with several labels a cell, shared by the tests that only read it."""
    folder = tmp_path_factory.mktemp("tags")
    write_tags(folder / "tags.csv")
    assert main(fit(folder / "tags.csv", "--separator", "|")) == 0
    return folder


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same table with a column for each class, and a finished run of it."""
    folder = tmp_path_factory.mktemp("columns")
    known = {name: [int(name in cell) for cell in SETS] + [None] * 52 for name in CLASSES}
    path = write_table(folder / "columns.csv", {**{k: v for k, v in blobs().items() if k != "pet"}, **known})
    words = ["fit", path, "--id", "id", *QUICK, *LOOSE, "--quiet", "--out", folder / "run"]
    assert main([str(word) for word in words] + [word for name in CLASSES for word in ("--label", name)]) == 0
    return folder


# --- reading


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_a_cell_names_all_that_is_there(tmp_path: Path, ending: str) -> None:
    cells = ["cat;dog", "", "cat", ";", "3.0;cat", "?", "none", " dog ; "]
    expected = [("cat", "dog"), None, ("cat",), (), ("3", "cat"), None, (), ("dog",)]
    assert labels_read(tmp_path / f"t.{ending}", cells) == expected


def test_labels_in_cells_become_present_and_absent_classes(tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv")
    data = TableData(path=path, labels=("tags",), id_column="id", separator="|").load()
    assert (list(data.classes), data.task) == (CLASSES, "multi")
    assert data.labeled[1].tolist() == [[int(name in cell) for name in CLASSES] for cell in SETS]
    assert len(data.unlabeled) == 52


def test_both_forms_of_a_table_are_the_same_problem(home: Path, columns: Path) -> None:
    runs = [RunFolder.open(folder / "run") for folder in (home, columns)]
    assert runs[0].settings.classes == runs[1].settings.classes == tuple(CLASSES)
    assert [run.settings.config.task for run in runs] == ["multi", "multi"]
    assert runs[0].settings.fingerprint == runs[1].settings.fingerprint
    assert runs[0].pool_table().equals(runs[1].pool_table())


def test_blanks_may_stand_between_labels_where_a_mark_says_none_of_them(tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv", ["cat  big", "dog", "nothing"])
    data = TableData(path=path, labels=("tags",), id_column="id", separator=" ", none="nothing").load()
    assert data.labeled[1].tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]


# --- writing back


def test_predictions_have_the_form_of_the_table_with_cells(command: Command, home: Path) -> None:
    found = rows(command("predict", home / "run", home / "tags.csv", "--proba").out)
    assert list(found[0]) == ["id", "prediction", "p(big)", "p(cat)", "p(dog)"]
    for row in found:
        present = [name for name in CLASSES if float(row[f"p({name})"]) >= 0.5]
        assert row["prediction"] == ("|".join(present) or "|")
    assert list(rows(command("predict", home / "run", home / "tags.csv").out)[0]) == ["id", "prediction"]


def test_predictions_have_the_form_of_the_table_with_columns(command: Command, home: Path, columns: Path) -> None:
    found = rows(command("predict", columns / "run", columns / "columns.csv").out)
    assert list(found[0]) == ["id", *CLASSES]
    cells = rows(command("predict", home / "run", home / "tags.csv").out)
    for row, cell in zip(found, cells, strict=True):
        assert [row[name] for name in CLASSES] == [str(int(name in cell["prediction"].split("|"))) for name in CLASSES]


def test_labels_say_which_classes_are_taken_to_be_there_and_which_not(
    command: Command, home: Path, columns: Path
) -> None:
    entries = rows(command("label", home / "run", home / "tags.csv", "--entries").out)
    assert list(entries[0]) == ["id", "class", "label", "confidence", "uncertainty", "selected", "round", "given"]
    assert [row["class"] for row in entries] == CLASSES * 60
    cells = rows(command("label", home / "run", home / "tags.csv").out)
    assert list(cells[0]) == ["id", "label", "selected", "ruled_out", "round", "given"]
    wide = rows(command("label", columns / "run", columns / "columns.csv").out)
    assert list(wide[0]) == ["id", *CLASSES, "selected", "ruled_out", "round", "given"]
    assert {row["selected"] for row in entries} == {"positive", "negative", "none"}
    for number, (cell, line) in enumerate(zip(cells, wide, strict=True)):
        own = entries[3 * number : 3 * number + 3]
        present = [row["class"] for row in own if row["label"] == "1"]
        assert cell["label"] == ("|".join(present) or "|")
        assert [line[name] for name in CLASSES] == [row["label"] for row in own]
        for name, kind in (("selected", "positive"), ("ruled_out", "negative")):
            selected = "|".join(row["class"] for row in own if row["selected"] == kind)
            assert cell[name] == line[name] == selected


def test_labels_that_the_table_has_itself_are_told_in_its_form(command: Command, home: Path, columns: Path) -> None:
    expected = ["|".join(sorted(names)) or "|" for names in SETS] + [""] * 52
    for folder, table in ((home, "tags.csv"), (columns, "columns.csv")):
        cells = rows(command("label", folder / "run", folder / table).out)
        assert [row["given"] for row in cells] == expected
        entries = rows(command("label", folder / "run", folder / table, "--entries").out)
        known = [str(int(name in names)) for names in SETS for name in CLASSES]
        assert [row["given"] for row in entries] == known + [""] * 3 * 52


def test_labels_of_the_file_that_are_not_such_as_the_runs_are_left_out_and_told(
    command: Command, home: Path, columns: Path, tmp_path: Path
) -> None:
    features = {name: values for name, values in blobs().items() if name != "pet"}
    plain = command("label", home / "run", write_table(tmp_path / "plain.csv", features))
    pq.write_table(pa.table({**features, "tags": [["cat"]] * 60}), tmp_path / "lists.parquet")
    found = command("label", home / "run", tmp_path / "lists.parquet")
    assert (found.code, found.out) == (0, plain.out)
    assert "the file's own labels are left out" in found.err
    wrong = write_table(tmp_path / "wrong.csv", {**features, "big": ["yes"] * 60, "cat": [1] * 60, "dog": [0] * 60})
    found = command("label", columns / "run", wrong)
    assert found.code == 0
    assert "given" not in rows(found.out)[0]
    assert "the file's own labels are left out" in found.err


def test_nothing_is_said_of_a_row_with_a_class_that_the_run_does_not_know(
    command: Command, home: Path, tmp_path: Path
) -> None:
    path = write_tags(tmp_path / "tags.csv", ["cat|owl", "cat"])
    found = rows(command("label", home / "run", path, "--entries").out)
    assert [row["given"] for row in found[:6]] == ["", "", "", "0", "1", "0"]
    assert rows(command("label", home / "run", path).out)[0]["given"] == "cat|owl"


def test_a_class_that_is_called_given_keeps_its_column(command: Command, tmp_path: Path) -> None:
    known = {"given": [1, 0] * 4 + [None] * 52, "other": [0, 1] * 4 + [None] * 52}
    path = write_table(tmp_path / "t.csv", {**{k: v for k, v in blobs().items() if k != "pet"}, **known})
    words = ("--id", "id", "--label", "given", "--label", "other", *QUICK, *LOOSE, "--quiet")
    assert command("fit", path, *words, "--out", tmp_path / "run").code == 0
    found = command("label", tmp_path / "run", path)
    assert list(rows(found.out)[0]) == ["id", "given", "other", "selected", "ruled_out", "round"]
    assert "a class is called 'given'" in found.err


def test_what_predict_writes_is_read_as_labels_again(command: Command, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    assert command("predict", home / "run", home / "tags.csv", "--proba", "--out", out).code == 0
    table = read_table(out, labels=["prediction"], id_column="id", separator="|")
    expected = [tuple(np.array(CLASSES)[row].tolist()) for row in table.x >= 0.5]
    assert table.y is not None
    assert table.y.tolist() == expected


def test_a_sample_without_a_class_is_written_with_the_mark_of_the_run(command: Command, tmp_path: Path) -> None:
    cells = ["cat", "dog", "cat", "dog", "nothing", "nothing"] * 2
    path = write_tags(tmp_path / "tags.csv", cells)
    assert command(*fit(path, "--separator", ";", "--none", "nothing", "--rounds", "0")).code == 0
    found = rows(command("predict", tmp_path / "run", path, "--proba").out)
    empty = [row for row in found if max(float(row["p(cat)"]), float(row["p(dog)"])) < 0.5]
    assert {row["prediction"] for row in empty} <= {"nothing"}
    assert {row["prediction"] for row in found} <= {"cat", "dog", "cat;dog", "nothing"}


def test_entries_have_a_row_for_each_sample_and_class(command: Command, home: Path) -> None:
    found = rows(command("predict", home / "run", home / "tags.csv", "--entries").out)
    assert list(found[0]) == ["id", "class", "prediction", "confidence"]
    assert [row["class"] for row in found] == CLASSES * 60
    assert all(row["prediction"] == str(int(float(row["confidence"]) >= 0.5)) for row in found)


def test_the_first_round_is_balanced_where_that_is_asked_for(command: Command, tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv")
    assert command(*fit(path, "--separator", "|", "--balance", "equal", "--rounds", "2")) == (0, "", "")
    assert [record.balanced for record in RunFolder.open(tmp_path / "run").records()] == [False, True, False]


def test_gamma_says_from_which_probability_on_a_class_is_present(command: Command, tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv")
    words = fit(path, "--separator", "|", "--gamma", "0.3", "--balance", "equal", "--balance-rounds", "0")
    assert command(*words) == (0, "", "")
    run = RunFolder.open(tmp_path / "run")
    assert (run.settings.config.gamma, run.settings.config.balance_rounds) == (0.3, 0)
    assert not any(record.balanced for record in run.records())
    for row in rows(command("predict", run.path, path, "--proba").out):
        present = [name for name in CLASSES if float(row[f"p({name})"]) >= 0.3]
        assert row["prediction"] == ("|".join(present) or "|")


def test_gamma_is_for_lists_too(command: Command, tmp_path: Path) -> None:
    features = {name: values for name, values in blobs().items() if name != "pet"}
    lists = [sorted(names) for names in SETS] + [None] * 52
    pq.write_table(pa.table({**features, "tags": lists}), tmp_path / "tags.parquet")
    assert command(*fit(tmp_path / "tags.parquet", "--gamma", "0.4", "--rounds", "0")) == (0, "", "")
    assert RunFolder.open(tmp_path / "run").settings.config.gamma == 0.4


def test_a_class_that_is_called_as_another_column_needs_entries(command: Command, tmp_path: Path) -> None:
    known = {"selected": [1, 0, 1, 0] + [None] * 56, "x": [0, 1, 0, 1] + [None] * 56}
    path = write_table(tmp_path / "t.csv", {**{k: v for k, v in blobs().items() if k != "pet"}, **known})
    words = ("fit", path, "--label", "selected", "--label", "x", "--id", "id", *QUICK, "--rounds", "0", "--quiet")
    assert command(*words, "--out", tmp_path / "run").code == 0
    line = command.fails(1, "label", tmp_path / "run", path)
    assert line == "The class 'selected' has the name of another column; give each a row with --entries."
    assert command("label", tmp_path / "run", path, "--entries").code == 0


# --- scores


@pytest.mark.filterwarnings("ignore:.*have the very features of labeled rows")
def test_a_column_of_lists_is_learned_from_as_cells_with_a_separator_are(
    command: Command, home: Path, tmp_path: Path
) -> None:
    features = {name: values for name, values in blobs().items() if name != "pet"}
    lists = [sorted(names) for names in SETS] + [None] * 52
    pq.write_table(pa.table({**features, "tags": lists}), tmp_path / "tags.parquet")
    pq.write_table(pa.table({**features, "tags": [["cat"]] * 60}), tmp_path / "test.parquet")
    words = fit(tmp_path / "tags.parquet", "--test", tmp_path / "test.parquet")
    assert command(*words) == (0, "", "")
    run, same = RunFolder.open(tmp_path / "run"), RunFolder.open(home / "run")
    assert run.settings.classes == same.settings.classes
    for of_lists, of_cells in zip(run.data().labeled, same.data().labeled, strict=True):
        np.testing.assert_array_equal(getattr(of_lists, "x", of_lists), getattr(of_cells, "x", of_cells))
    rows = list(csv.DictReader(io.StringIO(command("predict", tmp_path / "run", tmp_path / "tags.parquet").out)))
    assert set(rows[0]) == {"id", *CLASSES}
    write_tags(tmp_path / "cells.csv")
    message = command.fails(
        1, *fit(tmp_path / "tags.parquet", "--test", tmp_path / "cells.csv", "--out", tmp_path / "b")
    )
    assert "must have labels of the kind and number that" in message


@pytest.mark.filterwarnings("ignore:.*have the very features of labeled rows")
def test_the_end_tells_both_mean_average_precisions_and_what_they_leave_out(command: Command, tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv", [cell.replace("big", "Big") for cell in CELLS])
    test = write_tags(tmp_path / "test.csv", ["cat", "dog", "cat", "dog", "dog|cat"])
    words = [word for word in fit(path, "--separator", "|", "--test", test) if word != "--quiet"]
    result = command(*words)
    assert (result.code, result.err) == (0, "")
    first, *_, record = RunFolder.open(tmp_path / "run").records()
    expected = (
        f"Test mean average precision {record.test_score:.3f} ({record.test_score_11:.3f} over 11 points; "
        f"{first.test_score:.3f} in round 0) on 5 samples, without Big (1 of 3 classes without a positive there)."
    )
    assert expected in result.out
    assert record.test_class_scores is not None
    assert record.test_class_scores[0] is None
    assert "without Big (1 of 3 classes" in command("resume", tmp_path / "run").out


def test_a_run_with_labels_in_cells_is_resumed(command: Command, home: Path, tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv")
    assert command(*fit(path, "--separator", "|", "--rounds", "0")).code == 0
    assert command("resume", tmp_path / "run", "--rounds", "1", "--quiet").code == 0
    assert RunFolder.open(tmp_path / "run").pool_table().equals(RunFolder.open(home / "run").pool_table())


# --- what is refused, and what is warned of


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--separator", "|", "--label", "width"), "A separator ('|') is for one label column; got 2. Leave it out"),
        (("--separator", ""), "The separator between several labels in a cell is empty; give one, such as '|'."),
        (("--separator", " "), "A blank separator (' ') looks like an unlabeled cell; mark none of the classes"),
        (("--none", "x"), "A mark of none of the classes ('x') needs a separator; give one too."),
        (("--separator", "|", "--none", "a|b"), "The mark 'a|b' is empty, holds the separator or means unlabeled;"),
        (("--separator", "|", "--none", "x", "--unlabeled", "x"), "The mark 'x' is empty, holds the separator or"),
    ],
)
def test_a_separator_that_cannot_be_meant_is_wrong_use(
    command: Command, tmp_path: Path, options: tuple[str, ...], problem: str
) -> None:
    path = write_tags(tmp_path / "tags.csv")
    assert command.fails(2, *fit(path, *options)).startswith(problem)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("cells", "options", "problem"),
    [
        (["cat|?", "dog"], ("--unlabeled", "?"), "column 'tags', row 1: 'cat|?' has the mark '?' beside labels"),
        (
            ["cat", "none|dog"],
            ("--none", "none"),
            "row 2: 'none|dog' has the mark 'none' beside labels; write it alone",
        ),
        (["|", "|"], (), "names no class in any labeled row; add rows that have one."),
        ([None] * 8, (), "has no labeled row; fill in the label of some rows of each class."),
        (["cat|dog", "cat"] * 30, (), "has no unlabeled row to self-train on"),
    ],
)
def test_cells_that_cannot_be_learned_from_are_named(
    command: Command, tmp_path: Path, cells: list[Any], options: tuple[str, ...], problem: str
) -> None:
    path = write_tags(tmp_path / "tags.csv", cells)
    line = command.fails(1, *fit(path, "--separator", "|", *options))
    assert str(path) in line
    assert problem in line


def test_a_class_that_only_the_test_file_names_is_refused(command: Command, tmp_path: Path) -> None:
    path, test = write_tags(tmp_path / "tags.csv"), write_tags(tmp_path / "test.csv", ["cat|bird"])
    line = command.fails(1, *fit(path, "--separator", "|", "--test", test))
    assert line.startswith(f"File '{test}' has the label 'bird', which no labeled training row has; label some rows so")


def test_a_separator_for_labels_of_an_array_with_columns_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.zeros((2, 1)), y=np.eye(2, dtype=int))
    with pytest.raises(ValueError, match=r"with a separator, y must hold strings, shape \(N,\). Got int64 of shape"):
        read_table(tmp_path / "t.npz", separator="|")


def test_labels_that_look_like_several_are_warned_of(command: Command, tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv", ["cat|dog", "dog"] * 4)
    result = command(*fit(path))
    assert (result.code, result.err) == (
        0,
        "warning: 'cat|dog' is a class; if it means several, say --separator '|'.\n",
    )


def test_a_separator_that_parts_nothing_is_warned_of(command: Command, tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv", ["cat,dog", "dog"] * 4)
    result = command(*fit(path, "--separator", "|"))
    assert result.code == 0
    assert result.err == "warning: no row has two labels; if '|' does not part them, correct --separator.\n"


def test_labels_that_lack_no_class_are_refused(command: Command, tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv", ["cat"] * 8)
    result = command(*fit(path, "--separator", "|"))
    assert result.code == 1
    problem = "No entry is known to be 0, absent; label some samples that lack a class."
    assert result.err.splitlines()[-1] == f"error: {problem}"


def test_every_entry_can_be_selected(command: Command, tmp_path: Path) -> None:
    path = write_tags(tmp_path / "tags.csv", ["cat|dog", "dog"] * 4)
    every = ("--tau-p", "0.5", "--tau-n", "0.5", "--kappa-p", "inf", "--kappa-n", "inf", "--temperature", "1")
    assert command(*fit(path, "--separator", "|", *every, "--rounds", "1", "--out", tmp_path / "every")).code == 0
    record = RunFolder.open(tmp_path / "every").records()[1]
    assert record.num_positive + record.num_negative == 52 * 2


@pytest.mark.parametrize("name", ["predict", "label"])
def test_entries_of_one_label_a_sample_are_wrong_use(command: Command, tmp_path: Path, name: str) -> None:
    path = write_table(tmp_path / "pets.csv", blobs())
    words = ("fit", path, "--label", "pet", "--id", "id", *QUICK, "--rounds", "0", "--quiet", "--out", tmp_path / "run")
    assert command(*words).code == 0
    line = command.fails(2, name, tmp_path / "run", path, "--entries")
    assert line == "--entries has no effect: the run has one label a sample; leave it out."


def test_proba_beside_entries_is_wrong_use(command: Command, home: Path) -> None:
    line = command.fails(2, "predict", home / "run", home / "tags.csv", "--proba", "--entries")
    assert line == "--proba has no effect: with --entries the confidence is the probability; leave it out."
