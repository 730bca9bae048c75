"""Rows with several labels that are known in part: `cat|?dog` in a cell, -1 or nothing in a column for each class."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_support import QUICK, Command, blobs, labels_read, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from surelabel.cli._samples import given_column
from surelabel.data._values import class_name
from surelabel.data.run_data import TableData
from surelabel.data.tables import read_table, write_table
from surelabel.report.thresholds import validation_labels
from surelabel.runs import RunFolder

pytestmark = pytest.mark.usefixtures("short_fits")

CLASSES = ["big", "cat", "dog"]
CELLS = ["cat | ?big", "dog", "cat|?dog", "dog|big", "?big|?cat|?dog", "|", "? big|cat", "dog|?cat", "?cat"]
CODES = [[-1, 1, 0], [0, 0, 1], [0, 1, -1], [1, 0, 1], [-1, -1, -1], [0, 0, 0], [-1, 1, 0], [0, -1, 1], [0, -1, 0]]
"""What the cells say of each class; of the fifth nothing is known."""
LABELED = [codes for codes in CODES if max(codes) >= 0]
FEATURES = {name: values for name, values in blobs().items() if name != "pet"}
FORMS = ("cells", "columns", "lists")
OPTIONS = {
    "cells": ("--label", "tags", "--separator", "|"),
    "columns": tuple(word for name in CLASSES for word in ("--label", name)),
    "lists": ("--label", "tags"),
}


def write(folder: Path, form: str, name: str = "t") -> Path:
    """Write the same labels as cells, as a column for each class or as lists; the other rows have none."""
    rest = 60 - len(CELLS)
    if form == "columns":
        codes = np.array(CODES + [[-1] * 3] * rest)
        return write_table(folder / f"{name}.csv", {**FEATURES, **dict(zip(CLASSES, codes.T.tolist(), strict=True))})
    if form == "cells":
        return write_table(folder / f"{name}.csv", {**FEATURES, "tags": CELLS + [None] * rest})
    lists = [[part for part in cell.split("|") if part] for cell in CELLS]
    pq.write_table(pa.table({**FEATURES, "tags": lists + [None] * rest}), folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


def fit(path: Path, form: str, *more: object) -> tuple[object, ...]:
    words = ("fit", path, *OPTIONS[form], "--id", "id", *QUICK, "--tau-n", "0.4", "--kappa-n", "0.3", "--quiet")
    return (*words, "--out", path.parent / "run", *more)


# --- reading


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_a_question_mark_says_that_a_class_may_be_there(tmp_path: Path, ending: str) -> None:
    cells = ["cat;?dog", "", "?cat", ";", " ? 3.0;cat;", "?", "none", "?b;?a;c"]
    expected = [("cat", "?dog"), None, ("?cat",), (), ("?3", "cat"), None, (), ("?a", "?b", "c")]
    assert labels_read(tmp_path / f"t.{ending}", cells) == expected


@pytest.mark.filterwarnings("ignore:.*have the very features of labeled rows")
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_a_table_say_the_same(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form)
    labels, separator = tuple(CLASSES) if form == "columns" else ("tags",), "|" if form == "cells" else None
    data = TableData(path=path, labels=labels, id_column="id", separator=separator, test_path=path).load()
    assert (list(data.classes), data.task) == (CLASSES, "multi")
    assert data.labeled[1].tolist() == LABELED
    # Nothing is known of r4, so that it is in the pool and is not scored.
    assert data.unlabeled.ids.tolist() == ["r4", *(f"r{row}" for row in range(len(CELLS), 60))]
    assert data.test is not None
    assert data.test[1].tolist() == LABELED


def test_a_class_that_has_only_question_marks_is_a_class_and_numbers_keep_their_order(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"x": [0.0] * 4, "y": ["9|?10", "2", "?10", None]})
    data = TableData(path=path, labels=("y",), separator="|").load()
    assert list(data.classes) == ["2", "9", "10"]
    assert data.labeled[1].tolist() == [[0, 1, -1], [1, 0, 0], [0, 0, -1]]


def test_a_separator_may_hold_a_question_mark(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"x": [0.0] * 2, "y": ["cat?dog", "?"]})
    table = read_table(path, labels=["y"], separator="?")
    assert table.y is not None
    assert table.y.tolist() == [("cat", "dog"), ()]


def test_one_label_a_cell_may_begin_with_a_question_mark(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"x": [0.0] * 2, "y": ["?dog", "?"]})
    table = read_table(path, labels=["y"])
    assert table.y is not None
    assert table.y.tolist() == ["?dog", "?"]


@pytest.mark.parametrize(
    ("cell", "options", "problem"),
    [
        ("?", {}, "'?' is no class; write ?cat for a cat that may be there"),
        ("cat| ? ", {}, "'?' is no class; write ?cat"),
        ("??cat", {}, "'??cat' is no class; write ?cat"),
        ("?cat|dog|cat", {}, "it has 'cat' with and without a question mark; leave out one of them."),
        ("cat|?NA", {"unlabeled": "NA"}, "'cat|?NA' has the mark 'NA' beside labels; write it alone in its cell."),
        ("?", {"unlabeled": ""}, "or --unlabeled '?'."),
    ],
)
def test_question_marks_that_cannot_be_meant_are_told_with_their_place(
    tmp_path: Path, cell: str, options: dict[str, Any], problem: str
) -> None:
    # The cell is far behind the block that is read first.
    path = write_table(tmp_path / "t.csv", {"x": [0.0] * 100_001, "y": ["cat|?dog"] * 100_000 + [cell]})
    with pytest.raises(ValueError, match=r"^File '.*', column 'y', row 100001: ") as error:
        read_table(path, labels=["y"], separator="|", **options)
    assert str(path) in str(error.value)
    assert problem in str(error.value)


@pytest.mark.parametrize(("labels", "problem"), [(["?"], "'?' is no class"), (["a", "?a"], "it has 'a' with and")])
def test_question_marks_in_lists_are_told_with_their_place(tmp_path: Path, labels: list[str], problem: str) -> None:
    pq.write_table(pa.table({"x": [0.0] * 2, "y": [["a", "?b"], labels]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t.parquet', column 'y', row 2: ") as error:
        read_table(tmp_path / "t.parquet", labels=["y"])
    assert problem in str(error.value)


# --- runs


@pytest.mark.filterwarnings("ignore:.*have the very features of labeled rows")
def test_a_run_is_the_same_in_all_forms_and_leaves_unknown_entries_out_of_scores(
    command: Command, tmp_path: Path
) -> None:
    runs = []
    for form in FORMS:
        (tmp_path / form).mkdir()
        path, test = write(tmp_path / form, form), write(tmp_path / form, form, "test")
        assert command(*fit(path, form, "--test", test, "--validation", test)) == (0, "", "")
        runs.append(RunFolder.open(tmp_path / form / "run"))
    assert len({run.settings.fingerprint for run in runs}) == 1
    assert len({record.test_score for run in runs for record in run.records()[-1:]}) == 1
    assert all(run.pool_table().equals(runs[0].pool_table()) for run in runs)
    # Only the samples that are known as a whole are judged.
    assert "held-out labels" in command("thresholds", runs[0].path, "--out", tmp_path / "t.svg").out
    assert len(runs[0].data().validation[1]) == len(LABELED)
    assert len(validation_labels(runs[0]).label) == sum(min(codes) >= 0 for codes in LABELED) == 3


def test_unknown_entries_are_enough_to_learn_from_and_a_run_is_resumed(command: Command, tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {**FEATURES, "tags": ["cat|?big", "dog|big", "cat", "?big|dog"] * 15})
    assert command(*fit(path, "cells", "--rounds", "0")) == (0, "", "")
    assert command("resume", tmp_path / "run", "--rounds", "1", "--quiet").code == 0
    run = RunFolder.open(tmp_path / "run")
    assert run.data().unlabeled is None
    assert len(run.records()) == 2
    assert len(rows(command("predict", run.path, path).out)) == 60


def test_names_with_a_question_mark_are_parted_labels(command: Command, tmp_path: Path) -> None:
    cells = ["cat|?dog", "dog", "|"] * 4 + [None] * 48
    path = write_table(tmp_path / "t.csv", {**FEATURES, "tags": cells})
    assert command(*fit(path, "cells")) == (0, "", "")


def test_classes_that_are_always_or_never_there_are_warned_of(command: Command, tmp_path: Path) -> None:
    cells = ["cat|owl|?dog", "cat|?owl|?dog", "cat|owl"] * 4 + [None] * 48
    path = write_table(tmp_path / "t.csv", {**FEATURES, "tags": cells})
    result = command(*fit(path, "cells"))
    assert result.code == 0
    assert result.err.splitlines() == [
        "warning: No row is known to lack 'cat', 'owl'; label some that do.",
        "warning: No row is known to have 'dog'; label some that do.",
    ]


def test_a_class_of_which_nothing_is_known_is_refused(command: Command, tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {**FEATURES, "tags": ["cat|?dog", "?dog|owl"] * 4 + [None] * 52})
    assert "has no labeled row left for class 'dog'" in command.fails(1, *fit(path, "cells"))


def test_a_class_that_the_test_file_alone_marks_is_refused(command: Command, tmp_path: Path) -> None:
    path = write(tmp_path, "cells")
    test = write_table(tmp_path / "test.csv", {**FEATURES, "tags": ["cat|?owl"] * 60})
    line = command.fails(1, *fit(path, "cells", "--test", test))
    assert line.startswith(f"File '{test}' has the label 'owl', which no labeled training row has")


@pytest.mark.parametrize("form", FORMS)
def test_entries_tell_what_the_file_says_of_each_class(command: Command, tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form)
    assert command(*fit(path, form, "--rounds", "0")) == (0, "", "")
    found = rows(command("label", tmp_path / "run", path, "--entries").out)
    known = ["" if code < 0 else str(code) for codes in CODES for code in codes]
    assert [row["given"] for row in found] == known + [""] * 3 * (60 - len(CELLS))


# --- writing back


@pytest.mark.parametrize("form", FORMS)
def test_given_has_the_notation_of_cells_and_is_empty_where_nothing_is_known(
    command: Command, tmp_path: Path, form: str
) -> None:
    path = write(tmp_path, form)
    assert command(*fit(path, form, "--rounds", "0")) == (0, "", "")
    found = rows(command("label", tmp_path / "run", path).out)
    expected = ["?big|cat", "dog", "cat|?dog", "big|dog", "", "|", "?big|cat", "?cat|dog", "?cat"]
    assert [row["given"] for row in found] == expected + [""] * (60 - len(CELLS))


def test_names_of_columns_that_no_cell_can_hold_are_told_apart() -> None:
    run: Any = SimpleNamespace(classes=("?dog", "a|b", "dog"), data=None)
    found = given_column(np.array([[1, 1, 0], [-1, -1, 1], [-1, -1, -1]]), run, entries=False)
    assert found == {"given": [r"\?dog|a\|b", r"?\?dog|?a\|b|dog", None]}


names = st.text(st.characters(codec="utf-8", exclude_characters="\0|;"), min_size=1, max_size=4).map(class_name)
classes = st.lists(names.filter(lambda name: name and name[0] != "?" and name != "NONE"), min_size=2, unique=True)


@settings(max_examples=80, deadline=None)
@given(classes=classes, form=st.sampled_from(["|", ";", None]), none=st.sampled_from(["NONE", None]), data=st.data())
def test_what_given_says_is_read_back_as_the_same(
    classes: list[str], form: str | None, none: str | None, data: st.DataObject
) -> None:
    codes = data.draw(st.lists(st.lists(st.sampled_from([1, 0, -1]), min_size=len(classes), max_size=len(classes))))
    y: Any = np.array([*codes, [-1] * len(classes)])
    if form is not None:
        stated = [tuple("?" * (c < 0) + n for n, c in zip(classes, row, strict=True) if c) for row in y.tolist()]
        y = np.fromiter([*stated, None], dtype=object)
    marks = {"labels": ("given",), "separator": form or "|", "none": none if form else None}
    of_run = TableData(path=Path("t.csv"), **marks) if form else TableData(path=Path("t.csv"), labels=tuple(classes))
    run: Any = SimpleNamespace(classes=tuple(classes), data=of_run)
    with tempfile.TemporaryDirectory() as folder:
        written = write_table(Path(folder, "t.csv"), {"x": [0.0] * len(y), **given_column(y, run, entries=False)})
        table = read_table(written, **marks)
    assert given_column(table.y, run, entries=True) == given_column(y, run, entries=True)
