"""Every fault of a file is one line that names the place and the remedy.

Longer than other files, because each message stands here as the user sees it.
"""

import gzip
import io
import re
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surelabel.data.tables import read_table
from surelabel.errors import DataError, InvalidInputError

TEXT = "a,b,label\n1,2,cat\n3,4,\n5,6,dog\n"


def file(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(folder, columns, name="t.parquet"):
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def fault(path, **arguments):
    """Return the message, without the folder; it must be one line."""
    with pytest.raises(DataError) as caught:
        read_table(path, **arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(Path(path).parent) + "/", "")


CSV_FAULTS = {
    "only blank lines": (
        "\n\n",
        {},
        "File 't.csv' is empty; write a table with a header and at least one row to it.",
    ),
    "header only": ("a,b\n", {}, "File 't.csv' has no rows; add at least one sample."),
    "misspelled label": (
        TEXT,
        {"labels": ["lable"]},
        "File 't.csv' has no label column 'lable'; did you mean 'label'? It has 'a', 'b', 'label'.",
    ),
    "unlike any column": (
        ",".join(f"c{i}" for i in range(20)) + "\n" + ",".join("1" * 20) + "\n",
        {"labels": ["target"]},
        "File 't.csv' has no label column 'target'; it has 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7' and 12 more.",
    ),
    "id not there": (
        TEXT,
        {"id_column": "key"},
        "File 't.csv' has no id column 'key'; it has 'a', 'b', 'label'.",
    ),
    "drop not there": (
        TEXT,
        {"drop": ["labels"]},
        "File 't.csv' has no column to drop 'labels'; did you mean 'label'? It has 'a', 'b', 'label'.",
    ),
    "label dropped": (
        TEXT,
        {"labels": ["label"], "drop": ["label"]},
        "File 't.csv': column 'label' is named twice, for two parts; name it once.",
    ),
    "label as feature": (
        TEXT,
        {"labels": ["a"], "features": ["a"]},
        "File 't.csv': column 'a' is named twice, for two parts; name it once.",
    ),
    "duplicate column": (
        "a,b,a\n1,2,3\n",
        {},
        "File 't.csv': columns 1 and 3 are both named 'a'; rename one.",
    ),
    "unnamed column": (
        ",a\n0,1\n",
        {},
        "File 't.csv': column 1 has no name; name it, or drop it with --drop '' (pandas writes "
        "its index so; use index=False).",
    ),
    "text in a feature": (
        "a,home town\n1,2\n3,Rome\n",
        {},
        "File 't.csv', column 'home town', row 2: 'Rome' is not a number; drop the column with --drop 'home "
        "town' or encode it as numbers.",
    ),
    "text of two lines": (
        'a\n1\n"x\ny"\n',
        {},
        "File 't.csv', column 'a', row 2: 'x\\ny' is not a number; drop the column with --drop a or encode "
        "it as numbers.",
    ),
    "text among booleans": (
        "a\nTrue\nmaybe\n",
        {},
        "File 't.csv', column 'a', row 2: 'maybe' is not a number; drop the column with --drop a or encode "
        "it as numbers.",
    ),
    "empty feature cell": (
        "a,b\n1,2\n,3\n",
        {},
        "File 't.csv', column 'a', row 2: the cell is empty or NaN; fill it in or drop the column with --drop a.",
    ),
    "nan feature cell": (
        "a,b\n1,NaN\n2,3\n",
        {},
        "File 't.csv', column 'b', row 1: the cell is empty or NaN; fill it in or drop the column with --drop b.",
    ),
    "infinite": (
        "a,b\n1,2\n1,-inf\n",
        {},
        "File 't.csv', column 'b', row 2: the value is infinite or too large for 32 bits (3.4e38); correct "
        "it or drop the column with --drop b.",
    ),
    "too large": (
        "a\n1e39\n",
        {},
        "File 't.csv', column 'a', row 1: the value is infinite or too large for 32 bits (3.4e38); correct "
        "it or drop the column with --drop a.",
    ),
    "no features left": (
        "id,label\n1,cat\n",
        {"labels": ["label"], "id_column": "id"},
        "File 't.csv' has no features beside labels, ids and dropped columns: 'id', 'label'.",
    ),
    "no features named": (
        TEXT,
        {"features": []},
        "File 't.csv' was to be read with no feature columns; name at least one feature.",
    ),
    "too few cells": (
        "a,b\n1,2\n3\n",
        {},
        "File 't.csv', row 2 has 1 cells where the header has 2, and starts '3'; correct it, and quote cells with ','.",
    ),
    "too many cells": (
        "a,b\n1,2,3\n",
        {},
        "File 't.csv', row 1 has 3 cells where the header has 2, and starts '1'; correct it, and quote cells with ','.",
    ),
    "latin-1 label": (
        "a,label\n1,x\n2,é\n".encode("latin-1"),
        {"labels": ["label"]},
        "File 't.csv', column 'label', row 2: the text is not UTF-8; save the file with the encoding UTF-8.",
    ),
    "latin-1 header": (
        "é\n1\n".encode("latin-1"),
        {},
        "File 't.csv': the header is not UTF-8 text; save the file as UTF-8.",
    ),
    "UTF-16": (
        TEXT.encode("utf-16"),
        {},
        "File 't.csv', line 1 holds a NUL character; save it as UTF-8 text.",
    ),
    "open quote": (
        'a,label\n1,x\n2,"y\n3,z\n',
        {"labels": ["label"]},
        "File 't.csv', row 2: a quoted cell is not closed or goes on after its quote, in line 4 (unexpected "
        "end of data); correct the quotes.",
    ),
    "two open quotes": (
        'a,label\n1,x\n2,"y\n3,z\n4,"x\n5,y\n',
        {"labels": ["label"]},
        "File 't.csv', row 2: a quoted cell is not closed or goes on after its quote, in line 5 (',' expected "
        "after '\"'); correct the quotes.",
    ),
    "two open quotes beside inches": (
        'a,label\n1,5" x\n2,"y\n3,z\n4,"x\n5,6" y\n',
        {"labels": ["label"]},
        "File 't.csv', row 2: a quoted cell is not closed or goes on after its quote, in line 5 (',' expected "
        "after '\"'); correct the quotes.",
    ),
    "duplicate ids": (
        "id,a\nu,1\nv,2\nw,3\nv,4\nu,5\n",
        {"id_column": "id"},
        "File 't.csv', column 'id', row 4: the id 'v' is that of row 2 too; make it unique.",
    ),
    "duplicate integer ids": (
        "id,a\n7,1\n7,2\n",
        {"id_column": "id"},
        "File 't.csv', column 'id', row 2: the id 7 is that of row 1 too; make it unique.",
    ),
    "empty id": (
        "id,a\n7,1\n,2\n",
        {"id_column": "id"},
        "File 't.csv', column 'id', row 2: the id is empty; fill it in or read the file without ids.",
    ),
    "multi-label value": (
        "a,p,q\n1,0,1\n2,1,2\n",
        {"labels": ["p", "q"]},
        "File 't.csv', column 'q', row 2: '2' is not 0, 1, -1 (unknown) or empty, as several label "
        "columns must be; correct it, name its mark with --unlabeled, or give one label column.",
    ),
    "lacks a trained feature": (
        TEXT,
        {"features": ["a", "z", "q"]},
        "File 't.csv' lacks 2 of the 3 feature columns that the model was trained on: 'z', 'q'; add them. It "
        "has 'a', 'b', 'label'.",
    ),
}


@pytest.mark.parametrize("case", CSV_FAULTS)
def test_csv_faults_are_one_line_with_place_and_remedy(tmp_path, case):
    content, arguments, message = CSV_FAULTS[case]
    assert fault(file(tmp_path, "t.csv", content), **arguments) == message


def test_faults_far_into_a_file_name_the_right_row(tmp_path):
    good = "1,2\n" * 300_000
    for cell, words in {"1,x": "'x' is not a number", "1,": "empty or NaN", "1": "has 1 cells"}.items():
        message = fault(file(tmp_path, "t.csv", f"a,b\n{good}{cell}\n{good}"))
        assert "row 300001" in message
        assert words in message


def test_multi_label_faults_far_into_a_file_name_the_right_row(tmp_path):
    good = "1,0,1\n" * 500_000
    message = fault(file(tmp_path, "t.csv", f"a,p,q\n{good}1,5,0\n"), labels=["p", "q"])
    assert "column 'p', row 500001: '5' is not 0, 1, -1 (unknown) or empty" in message


def test_long_values_are_shortened(tmp_path):
    message = fault(file(tmp_path, "t.csv", f"a\n{'word ' * 1000}\n"))
    assert len(message) < 200


def test_files_that_are_not_there_are_named(tmp_path):
    assert fault(tmp_path / "no.csv") == (
        "File 'no.csv' does not exist; check the path and the folder that it starts from."
    )
    assert "'no' does not exist" in fault(tmp_path / "no")
    (tmp_path / "f.csv").mkdir()
    assert fault(tmp_path / "f.csv").endswith("f.csv' is a folder; name a file in it.")
    assert "is empty" in fault(file(tmp_path, "e.csv", ""))
    assert "is empty" in fault(file(tmp_path, "e.parquet", ""))
    assert "is empty" in fault(file(tmp_path, "e.csv.gz", gzip.compress(b"")))
    assert fault(file(tmp_path, "t.xlsx", "x")) == (
        "File 't.xlsx' has an ending that is not known; use one of .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .npz, .npy."
    )


def test_a_file_without_permission_is_named(tmp_path, monkeypatch):
    path = file(tmp_path, "t.csv", TEXT)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert fault(path) == "File 't.csv' may not be read; ask for permission to read it."


# A value changed in an .npy file, or in a Parquet page without checksum, is another value.
DAMAGE = [
    *((name, how) for name in ("t.parquet", "t.npz", "t.npy", "t.csv.gz") for how in ("garbage", "cut")),
    ("t.npz", "flipped"),
    ("t.csv.gz", "flipped"),
]


@pytest.mark.parametrize(("name", "how"), DAMAGE)
def test_damaged_files_are_named(tmp_path, name, how):
    values = np.random.default_rng(0).normal(size=(2000, 4))
    path = tmp_path / name
    if name == "t.parquet":
        parquet(tmp_path, {f"c{i}": values[:, i] for i in range(4)})
    elif name == "t.npz":
        np.savez_compressed(path, x=values)
    elif name == "t.npy":
        np.save(path, values)
    else:
        path.write_bytes(gzip.compress(b"a,b\n" + b"".join(b"%f,%f\n" % (r[0], r[1]) for r in values)))
    assert len(read_table(path)) == 2000
    whole = path.read_bytes()
    half = len(whole) // 2
    changed = {"garbage": b"this is not a table\n" * 10, "cut": whole[:half]}
    path.write_bytes(changed.get(how, whole[:half] + bytes([whole[half] ^ 0xFF] * 50) + whole[half + 50 :]))
    message = fault(path)
    assert re.match(
        rf"File '{name}' is damaged or not really .* \(.*\); get or write it again, or correct its ending\.", message
    )


@pytest.mark.parametrize(("kind", "shape"), [("('<f4',(2,))", "(2,)"), ("'<f4'", f"({'1,' * 70})")])
def test_a_header_that_numpy_cannot_follow_is_named(tmp_path, kind, shape):
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16 if "(" in kind else 4)
    assert "File 't.npy' is damaged or not really a numpy file" in fault(file(tmp_path, "t.npy", content))


HEADERS = [b"(10, 1 ", b"(10, 1'", b"(10, -)", b"(1O, 1)", b"(99, 9)", b"(-1, 1)", b"(True,)", b"(5, 1) ", b"(8e9,1)"]


@pytest.mark.parametrize("shape", HEADERS)
def test_a_damaged_npy_header_is_named(tmp_path, shape):
    np.save(tmp_path / "t.npy", np.zeros((10, 1)))
    content = (tmp_path / "t.npy").read_bytes().replace(b"(10, 1)", shape)
    assert "File 't.npy' is damaged or not really a numpy file" in fault(file(tmp_path, "t.npy", content))
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("x.npy", content)
    assert "File 't.npz' is damaged or not really a numpy file" in fault(tmp_path / "t.npz")


def test_a_header_that_claims_more_than_the_file_has_takes_no_memory(tmp_path):
    np.save(tmp_path / "t.npy", np.zeros((10, 1)))
    content = (tmp_path / "t.npy").read_bytes()
    huge = content.replace(b"(10, 1), }" + b" " * 15, b"(10, 1000000000000000), }")
    assert len(huge) == len(content)
    line = fault(file(tmp_path, "t.npy", huge))
    assert "array 't' should take 80000000000000128 bytes, and it takes 208" in line


def test_a_table_larger_than_memory_is_named(tmp_path, monkeypatch):
    def full(*_, **__):
        raise MemoryError("Unable to allocate")

    np.save(tmp_path / "t.npy", np.zeros((10, 1)))
    monkeypatch.setattr(np.lib.format, "read_array", full)
    message = fault(tmp_path / "t.npy")
    assert message.startswith("File 't.npy' does not fit into memory, or is damaged and claims so")
    assert message.endswith("; free memory, or give fewer rows or columns.")


def test_parquet_faults_are_one_line_with_place_and_remedy(tmp_path):
    path = parquet(tmp_path, {"a": [1.0, None], "b": ["Rome", "Oslo"], "y": ["u", "v"], "l": [[1.0], [2.0]]})
    assert fault(path, labels=["y"], drop=["l"]) == (
        "File 't.parquet', column 'b', row 1: its type string is not a number; drop the column "
        "with --drop b or encode it as numbers."
    )
    assert "column 'a', row 2: the cell is empty or NaN" in fault(path, labels=["y"], drop=["b", "l"])
    assert "column 'l', row 1: its type list<element: double> cannot hold labels" in fault(
        path, labels=["l"], features=["a"]
    )
    assert "did you mean 'y'" in fault(path, labels=["Y"])
    path = parquet(tmp_path, {"a": [1.0, float("inf")]})
    assert "column 'a', row 2: the value is infinite" in fault(path)
    assert "has no rows" in fault(parquet(tmp_path, {"a": pa.array([], pa.float32())}))
    assert "row 2: the id 4 is that of row 1 too" in fault(parquet(tmp_path, {"a": [1, 2], "i": [4, 4]}), id_column="i")
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    assert "columns 1 and 2 are both named 'a'" in fault(path)


@pytest.mark.parametrize("labels", [["cat", None], ["cat", "cat"], [""], ["cat", " "], ["cat\0dog"]])
def test_a_list_names_each_of_its_classes_once(tmp_path, labels):
    path = parquet(tmp_path, {"a": [1.0, 2.0], "tags": [["cat"], labels]})
    assert fault(path, labels=["tags"]) == (
        f"File 't.parquet', column 'tags', row 2: {labels!r} must name each of its classes once, without a "
        "NUL; correct it (0 and 1 go into a column for each class)."
    )
    assert "need no separator; leave the separator out" in fault(path, labels=["tags"], separator="|")


def test_a_column_that_a_trained_model_needs_is_not_to_be_dropped(tmp_path):
    text = parquet(tmp_path, {"a": ["Rome"]})
    line = fault(text, features=["a"])
    assert line.endswith("its type string is not a number; the model needs this column: encode it as numbers.")
    line = fault(file(tmp_path, "t.csv", "a\nRome\n"), features=["a"])
    assert line.endswith("'Rome' is not a number; the model needs this column: encode it as numbers.")
    line = fault(file(tmp_path, "t.csv", "a,b\n1,2\n,3\n"), features=["a"])
    assert line.endswith("row 2: the cell is empty or NaN; fill it in or leave the row out.")
    np.savez(tmp_path / "t.npz", x=np.array([[np.nan]]))
    assert fault(tmp_path / "t.npz", features=["x0"]).endswith("fill it in or leave the row out.")


@pytest.mark.parametrize(
    ("name", "mark", "remedy"),
    [
        ("t.csv", ";", "write it with ',', and numbers with a decimal point."),
        ("t.csv", "\t", "write it with ',', and numbers with a decimal point, or end its name in .tsv."),
        ("t.tsv", ",", "write it with '\\t', and numbers with a decimal point."),
    ],
)
def test_another_delimiter_is_named(tmp_path, name, mark, remedy):
    path = file(tmp_path, name, f"a{mark}b{mark}cls\n1{mark}2{mark}x\n")
    line = fault(path, labels=["cls"])
    assert line.startswith(f"File '{name}' has {mark!r} between its cells, not ")
    assert line.endswith(remedy)


def test_a_column_may_have_another_delimiter_in_its_name(tmp_path):
    assert read_table(file(tmp_path, "t.csv", "a;b\n1\n"), features=["a;b"]).x.tolist() == [[1.0]]
    assert read_table(file(tmp_path, "u.csv", "a;b,c\n1,2\n")).feature_names == ("a;b", "c")


NPZ_FAULTS = {
    "no x": (
        {"features": np.eye(2)},
        {},
        "File 't.npz' has no array 'x', but 'features'; save samples, labels and names of rows with "
        "numpy.savez(file, x=..., y=..., ids=...).",
    ),
    "label array not there": (
        {"x": np.eye(2), "target": [0, 1]},
        {"labels": ["targets"]},
        "File 't.npz' has no array 'targets'; did you mean 'target'? It has 'x', 'target'.",
    ),
    "several label arrays": (
        {"x": np.eye(2)},
        {"labels": ["p", "q"]},
        "File 't.npz' has all labels in one array; name one, not 2.",
    ),
    "lengths": (
        {"x": np.eye(2), "y": [0, 1, 0]},
        {},
        "File 't.npz': x has 2 rows and y has shape (3,); give one entry a row.",
    ),
    "object labels": (
        {"x": np.eye(2), "y": np.array(["a", None], dtype=object)},
        {},
        "File 't.npz': array 'y' holds Python objects, which could run code; save it "
        "as numbers, or as strings with astype(str).",
    ),
    "one dimension": (
        {"x": np.ones(3)},
        {},
        "File 't.npz': x must hold numbers, one row a sample, shape (N, F) or (N, ...). Got float64 of shape "
        "(3,) instead; convert it.",
    ),
    "text": (
        {"x": np.array([["a"]])},
        {},
        "File 't.npz': x must hold numbers, one row a sample, shape (N, F) or (N, ...). Got <U1 of shape (1, "
        "1) instead; convert it.",
    ),
    "no rows": ({"x": np.ones((0, 3))}, {}, "File 't.npz' has no rows; add at least one sample."),
    "no columns": (
        {"x": np.ones((3, 0))},
        {},
        "File 't.npz' has no feature columns: x has shape (3, 0); give each row a feature.",
    ),
    "nan": (
        {"x": np.array([[1, 2], [3, np.nan]])},
        {},
        "File 't.npz', column 'x1', row 2: the cell is empty or NaN; fill it in or drop the column with --drop x1.",
    ),
    "infinite pixel": (
        {"x": np.array([[[1.0]], [[np.inf]]])},
        {},
        "File 't.npz', column 'x[0, 0]', row 2: the value is infinite or too large for 32 bits (3.4e38); "
        "correct it or leave the row out.",
    ),
    "drop from images": (
        {"x": np.zeros((2, 3, 3))},
        {"drop": ["x0"]},
        "File 't.npz': to choose or drop columns, x must have some, shape (N, F). Got float64 of shape (2, 3, 3) "
        "instead; convert it.",
    ),
    "other width": (
        {"x": np.eye(2)},
        {"features": ["x0", "x1", "x2"]},
        "File 't.npz' lacks 1 of the 3 feature columns that the model was trained on: 'x2'; add them. It has "
        "'x0', 'x1'.",
    ),
    "multi-label value": (
        {"x": np.eye(2), "y": [[0, 1], [3, 1]]},
        {},
        "File 't.npz', column 'y[:, 0]', row 2: '3' is not 0, 1, -1 (unknown) or empty, as several "
        "label columns must be; correct it, name its mark with --unlabeled, or give one "
        "label column.",
    ),
    "three dimensions of labels": (
        {"x": np.eye(2), "y": np.zeros((2, 2, 2))},
        {},
        "File 't.npz': y must hold numbers or strings, shape (N,) or (N, C). Got float64 of shape (2, 2, 2) "
        "instead; convert it.",
    ),
    "duplicate ids": (
        {"x": np.eye(3), "ids": [4, 5, 4]},
        {},
        "File 't.npz', column 'ids', row 3: the id 4 is that of row 1 too; make it unique.",
    ),
    "float ids": (
        {"x": np.eye(2), "ids": [0.5, 1.5]},
        {},
        "File 't.npz': ids must be integers or strings, shape (N,). Got float64 of shape (2,) instead; convert it.",
    ),
}


@pytest.mark.parametrize("case", NPZ_FAULTS)
def test_npz_faults_are_one_line_with_place_and_remedy(tmp_path, case):
    arrays, arguments, message = NPZ_FAULTS[case]
    np.savez(tmp_path / "t.npz", **arrays)
    assert fault(tmp_path / "t.npz", **arguments) == message


TAKEN = ["<f2", ">f2", "<f4", ">f4", ">f8", "g", "|i1", "|u1", ">i2", ">i8", "<u8", "|b1"]
REFUSED = ["<c8", "<M8[s]", "<m8[s]", "|S3", "|V4", [("a", "<f4")]]


@pytest.mark.parametrize("kind", TAKEN)
def test_numbers_of_every_kind_are_taken(tmp_path, kind):
    values = np.array([[1, 0], [0, 1], [1, 1]]).astype(kind)
    np.savez(tmp_path / "t.npz", x=values, y=values[:, 0])
    table = read_table(tmp_path / "t.npz")
    assert table.x.dtype in (np.uint8, np.float16, np.float32, np.float64)
    assert table.x.dtype.isnative
    assert table.x.tolist() == values.astype(float).tolist()
    assert table.y.tolist() == (["True", "False", "True"] if kind == "|b1" else ["1", "0", "1"])


@pytest.mark.parametrize("part", ["x", "y", "ids"])
@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_arrays_of_other_kinds_are_named(tmp_path, kind, part):
    arrays = {"x": np.eye(2), "y": np.array([0, 1]), "ids": np.array([5, 6])}
    arrays[part] = np.zeros(arrays[part].shape, kind)
    np.savez(tmp_path / "t.npz", **arrays)
    assert re.match(rf"File 't.npz': {part} must (hold|be) .*Got .* of shape .*convert", fault(tmp_path / "t.npz"))


@pytest.mark.parametrize("kind", ["float64", "g"])
def test_numbers_too_large_for_32_bits_are_named_in_arrays_too(tmp_path, kind):
    np.savez(tmp_path / "t.npz", x=np.array([["1"], ["1e300" if kind == "float64" else "1e4000"]]).astype(kind))
    assert "column 'x0', row 2: the value is infinite or too large for 32 bits" in fault(tmp_path / "t.npz")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_there_twice_is_named(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.eye(2))
    with zipfile.ZipFile(tmp_path / "t.npz", "a") as archive:
        archive.writestr("x.npy", archive.read("x.npy"))
    assert fault(tmp_path / "t.npz") == "File 't.npz' has the array 'x.npy' twice; save it again with one of them."


def test_an_encrypted_array_is_named(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.eye(2))
    content = bytearray((tmp_path / "t.npz").read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of the member, in both of its headers
        content[content.index(mark) + place] |= 1
    line = fault(file(tmp_path, "t.npz", bytes(content)))
    assert line == "File 't.npz': array 'x' is encrypted; save it without a password."


@pytest.mark.parametrize("part", ["y", "ids"])
def test_what_is_no_character_is_named(tmp_path, part):
    np.savez(tmp_path / "t.npz", x=np.eye(2), **{part: np.array(["ok", "no\ud800"])})
    assert fault(tmp_path / "t.npz") == (
        f"File 't.npz', column '{part}', row 2: U+D800 is no character; correct the text."
    )


def test_text_in_parquet_that_is_not_utf_8_is_named(tmp_path):
    text = pa.array([b"cat", b"d\xffg"]).view(pa.string())
    lists = pa.ListArray.from_arrays([0, 1, 2], text)
    for part in ({"labels": ["y"]}, {"id_column": "y"}):
        line = fault(parquet(tmp_path, {"a": [1.0, 2.0], "y": text}), **part)
        assert (
            "File 't.parquet', column 'y', row 2: the text is not UTF-8; save the file with the encoding UTF-8" in line
        )
    line = fault(parquet(tmp_path, {"a": [1.0, 2.0], "y": lists}), labels=["y"])
    assert "File 't.parquet' is damaged or not really Parquet ('utf-8' codec can't decode byte 0xff" in line


def test_a_file_whose_name_is_not_utf_8_is_named(tmp_path):
    path = file(tmp_path, "caf\udce9.csv", TEXT)
    assert fault(path).endswith("caf\\udce9.csv' is not UTF-8 text; rename it.")


def test_npy_faults_are_one_line_with_place_and_remedy(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(2))
    np.save(tmp_path / "y.npy", np.zeros(3))
    np.save(tmp_path / "o.npy", np.array([[{}], [None]], dtype=object))
    assert fault(tmp_path / "x.npy", labels=["y"]) == (
        "File 'x.npy': an .npy file has no label or id column; give the labels as a second .npy file "
        "(--labels-file), or save x, y and ids with numpy.savez."
    )
    assert "x has 2 rows and y has shape (3,)" in fault(tmp_path / "x.npy", labels_path=tmp_path / "y.npy")
    assert "'z.npy' does not exist" in fault(tmp_path / "x.npy", labels_path=tmp_path / "z.npy")
    assert "array 'o' holds Python objects" in fault(tmp_path / "o.npy")


def test_arguments_of_the_wrong_kind_are_named(tmp_path):
    path = file(tmp_path, "t.csv", TEXT)
    for argument in ("labels", "drop", "features"):
        with pytest.raises(InvalidInputError, match=rf"{argument} must be a list .* write \['label'\]"):
            read_table(path, **{argument: "label"})
    with pytest.raises(InvalidInputError, match=r"t.csv' is no \.npy file, .* \(labels_path, --labels-file\)"):
        read_table(path, labels_path=tmp_path / "y.npy")


@pytest.fixture(scope="module")
def whole_files():
    """A table of every kind, as bytes, by the ending of its name."""
    x, labels = np.arange(12).reshape(6, 2) / 8, ["cat", "dög", "", "cat", "", "eel"]
    packed, array, columns = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez_compressed(packed, x=x, y=labels)
    np.save(array, x)
    pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "y": labels}), columns, row_group_size=4)
    text = "a,b,y\n" + "".join(f"{row[0]},{row[1]},{label}\n" for row, label in zip(x, labels, strict=True))
    parts = {"npz": packed.getvalue(), "npy": array.getvalue(), "parquet": columns.getvalue(), "csv": text.encode()}
    return {**parts, "csv.gz": gzip.compress(text.encode())}


@settings(max_examples=300)
@given(
    st.sampled_from(["npz", "npy", "parquet", "csv", "csv.gz"]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3),
    st.sampled_from([1.0, 1.0, 1.0, 0.9, 0.5]),
)
def test_damaged_bytes_are_a_table_of_the_same_length_or_one_line(whole_files, ending, changes, share):
    content = bytearray(whole_files[ending])
    for place, value in changes:
        content[int(place * len(content))] = value
    with tempfile.TemporaryDirectory() as folder:
        path = file(Path(folder), f"t.{ending}", bytes(content[: int(share * len(content))]))
        try:
            table = read_table(path, labels=[] if ending in ("npz", "npy") else ["y"])
        except DataError as error:
            table, message = None, str(error)
    if table is None:
        assert "\n" not in message
    else:
        assert np.isfinite(table.x.astype(np.float32)).all()
        assert len(table) == 6 or ending == "csv", "only in plain text a line more or less is another table"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([b"a", b"1", b"2.5", b",", b",", b"\n", b"\r", b'"', b" ", b"\xff", b"inf"]),
        max_size=25,
    )
)
def test_any_text_is_a_table_or_one_line(parts):
    with tempfile.TemporaryDirectory() as folder:
        path = file(Path(folder), "t.csv", b"a,label\n" + b"".join(parts))
        try:
            table = read_table(path, labels=["label"])
        except DataError as error:
            table, message = None, str(error)
    if table is None:
        assert "\n" not in message
    else:
        assert table.x.shape == (len(table.y), 1)
        assert np.isfinite(table.x).all()
