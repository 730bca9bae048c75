"""Tables are written whole or not at all, and read back as they were."""

import csv
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surelabel.data import tables
from surelabel.data.tables import read_table, write_table
from surelabel.errors import DataError, InvalidInputError


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_written_predictions_are_read_back(tmp_path, name):
    columns = {
        "id": np.array(["u", "v,w", 'x"y'], dtype=object),
        "label": np.array(["cat", None, "dög"], dtype=object),
        "confidence": np.array([0.1, 0.7, 1 / 3], dtype=np.float32),
        "selected": np.array([True, False, True]),
    }
    assert write_table(tmp_path / name, columns) == tmp_path / name
    table = read_table(tmp_path / name, labels=["label"], id_column="id")
    np.testing.assert_array_equal(table.x, np.stack([columns["confidence"], [1, 0, 1]], axis=1).astype(np.float32))
    assert table.y.tolist() == ["cat", None, "dög"]
    assert table.ids.tolist() == ["u", "v,w", 'x"y']
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_line_breaks_and_lone_empty_cells_survive_in_csv(tmp_path):
    cells = ["a\rb", "c\nd", '"', ",", None]
    path = write_table(tmp_path / "t.csv", {"label": cells, "a": [1, 2, 3, 4, 5]})
    assert read_table(path, labels=["label"]).y.tolist() == cells
    assert write_table(tmp_path / "one.csv", {"a": [None, "x"]}).read_text() == 'a\n""\nx\n'


def test_booleans_are_written_as_python_writes_them(tmp_path):
    assert write_table(tmp_path / "t.csv", {"a": [True, None, False]}).read_text() == 'a\nTrue\n""\nFalse\n'


def test_tensors_can_be_written(tmp_path):
    torch = pytest.importorskip("torch")
    write_table(tmp_path / "t.csv", {"a": torch.tensor([0.5, 1.5])})
    assert (tmp_path / "t.csv").read_text() == "a\n0.5\n1.5\n"


def test_an_existing_file_is_kept_unless_asked(tmp_path):
    path = write_table(tmp_path / "t.csv", {"a": [1]})
    with pytest.raises(DataError, match="exists and is kept; choose another name"):
        write_table(path, {"a": [2]})
    assert path.read_text() == "a\n1\n"
    write_table(path, {"a": [2]}, overwrite=True)
    assert path.read_text() == "a\n2\n"


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = write_table(tmp_path / "t.csv", {"a": [1]})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables.os, "fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_table(path, {"a": [2]}, overwrite=True)
    assert path.read_text() == "a\n1\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("t.txt", {"a": [1]}, "cannot be written; end its name in .csv or .parquet"),
        ("no/t.csv", {"a": [1]}, "no' does not exist; make it first"),
        ("t.csv", {}, "at least one, with as many values in each; got none"),
        ("t.csv", {"a": [1], "b": [1, 2]}, "as many values in each; got 1 in 'a', 2 in 'b'"),
        ("t.csv", {"a": np.eye(2)}, r"column 'a' must have values of one kind, shape \(N,\); got "),
        ("t.csv", {"a": [[1], [2]]}, r"column 'a' must have values of one kind, shape \(N,\); got list"),
        ("t.csv", {"a": [1, "x"]}, r"column 'a' must have values of one kind, shape \(N,\); got "),
        (
            "t.csv",
            {"a": ["x", "\ud800"]},
            r"column 'a' must have values of one kind, shape \(N,\); got .*surrogates not allowed",
        ),
        ("t.parquet", {"\udcff": [1]}, r"column '\\udcff' must .*surrogates not allowed"),
        ("t.parquet", {"a": [2**70]}, r"column 'a' must have values of one kind, shape \(N,\); got "),
    ],
)
def test_what_cannot_be_written_is_named(tmp_path, name, columns, message):
    with pytest.raises(InvalidInputError, match=message):
        write_table(tmp_path / name, columns)
    assert list(tmp_path.iterdir()) == []


FORMULAS = ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\rx", "\nx"]


def test_text_that_spreadsheets_take_as_formulas_gets_an_apostrophe_where_asked(tmp_path):
    columns = {"=id": [*FORMULAS, "a=b", None, ""], "p": [-1.5] * 10, "n": [-7] * 10}
    path = write_table(tmp_path / "t.csv", columns, excel_safe=True)
    with path.open(newline="") as stream:
        header, *lines = csv.reader(stream)
    assert header == ["'=id", "p", "n"]
    assert [line[0] for line in lines] == [f"'{text}" for text in FORMULAS] + ["a=b", "", ""]
    assert {tuple(line[1:]) for line in lines} == {("-1.5", "-7")}
    table = read_table(write_table(tmp_path / "plain.csv", columns), drop=["=id"])
    assert table.x.tolist() == [[-1.5, -7]] * 10
    assert "'" not in (tmp_path / "plain.csv").read_text()


label_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
rows = st.lists(
    st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(-(2**24), 2**24), label_text),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(rows)
def test_a_written_csv_is_read_back_exactly(samples):
    first, second, labels = (list(column) for column in zip(*samples, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        columns = {"a": np.array(first, np.float32), "b": second, "label": labels}
        table = read_table(write_table(Path(folder, "t.csv"), columns), labels=["label"])
    np.testing.assert_array_equal(table.x, np.stack([np.array(first, np.float32), np.array(second, np.float32)], 1))
    whole = [re.sub(r"^([+-]?[0-9]+)\.0*$", r"\1", label.strip()) or None for label in labels]
    assert table.y.tolist() == whole
