"""Tables in files are read as written, in bounded memory."""

import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from surelabel.data.tables import content_hash, read_table
from surelabel.errors import DataError

TEXT = "a,b,label\n1,2,cat\n3,4,\n5,6,dog\n"


def file(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(folder, columns, name="t.parquet"):
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def test_csv_gives_float32_features_labels_and_row_numbers(tmp_path):
    table = read_table(file(tmp_path, "t.csv", TEXT), labels=["label"])
    assert table.x.dtype == np.float32
    assert table.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert table.y.dtype == object
    assert table.y.tolist() == ["cat", None, "dog"]
    assert table.ids.dtype == np.int64
    assert table.ids.tolist() == [0, 1, 2]
    assert (table.feature_names, table.label_names) == (("a", "b"), ("label",))
    assert table.path == tmp_path / "t.csv"
    assert len(table) == 3


def test_without_a_label_column_y_is_none(tmp_path):
    table = read_table(file(tmp_path, "t.csv", TEXT), drop=["label"])
    assert table.y is None
    assert table.label_names == ()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.csv", b"\xef\xbb\xbf" + TEXT.encode()),
        ("crlf.csv", TEXT.replace("\n", "\r\n")),
        ("cr.csv", TEXT.replace("\n", "\r")),
        ("no_last_newline.csv", TEXT.rstrip("\n")),
        ("blank_lines.csv", "\n\n" + TEXT.replace("\n", "\n\n")),
        ("spaces.csv", TEXT.replace(",", " , ")),
        ("quoted.csv", '"a","b","label"\n"1","2","cat"\n"3","4",""\n"5","6","dog"\n'),
        ("upper.CSV", TEXT),
        ("t.csv.gz", gzip.compress(TEXT.encode(), mtime=0)),
        ("t.tsv", TEXT.replace(",", "\t")),
        ("t.tsv.gz", gzip.compress(TEXT.replace(",", "\t").encode(), mtime=0)),
        ("mixed_ends.csv", "a,b,label\n1,2,cat\r3,4,\r5,6,dog\r"),
    ],
)
def test_csv_dialects_give_the_same_table(tmp_path, name, content):
    table = read_table(file(tmp_path, name, content), labels=["label"])
    assert table.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert table.y.tolist() == ["cat", None, "dog"]
    assert table.feature_names == ("a", "b")


def test_quoted_cells_may_hold_commas_quotes_and_line_breaks(tmp_path):
    text = '"first\nfeature, wide",note,label\n1,"x, ""y""\nz","big, cat"\n2,,"a\nb"\n'
    table = read_table(file(tmp_path, "t.csv", text), labels=["label"], drop=["note"])
    assert table.x.tolist() == [[1], [2]]
    assert table.y.tolist() == ["big, cat", "a\nb"]
    assert table.feature_names == ("first\nfeature, wide",)


def test_csv_true_and_false_are_one_and_zero(tmp_path):
    table = read_table(file(tmp_path, "t.csv", "a,b\nTrue,1\nFalse,2\n"))
    assert table.x.tolist() == [[1, 1], [0, 2]]


def test_rows_wider_than_a_block_are_read(tmp_path):
    width = 30_000
    row = ",".join(["0.2500000000000000000000000000000000000000"] * width)
    text = ",".join(f"c{i}" for i in range(width)) + f"\n{row}\n{row}\n"
    table = read_table(file(tmp_path, "t.csv", text))
    assert table.x.shape == (2, width)
    assert (table.x == 0.25).all()


def test_a_long_text_far_into_the_file_is_no_obstacle(tmp_path):
    long = '"' + "many words\n" * 100_000 + '"'
    text = "a,note,label\n" + "1,short,cat\n" * 50_000 + f"2,{long},dog\n"
    table = read_table(file(tmp_path, "t.csv", text), labels=["label"], drop=["note"])
    assert len(table) == 50_001
    assert (table.x[-1].tolist(), table.y[-1]) == ([2], "dog")


def test_many_blocks_keep_their_order(tmp_path):
    count = 300_000
    text = "id,a,label\n" + "".join(f"r{i},{i},{i % 3 or ''}\n" for i in range(count))
    assert len(text) > 3 << 20
    table = read_table(file(tmp_path, "t.csv", text), labels=["label"], id_column="id")
    np.testing.assert_array_equal(table.x[:, 0], np.arange(count, dtype=np.float32))
    assert table.y[:4].tolist() == [None, "1", "2", None]
    assert table.y[-1] == str((count - 1) % 3)
    assert table.ids[-1] == f"r{count - 1}"
    assert len(set(map(id, table.y.tolist()))) < 50


@pytest.mark.parametrize(
    ("cells", "unlabeled", "expected"),
    [
        (["3", "3.0", " 3. ", "3.5", "03"], None, ["3", "3", "3", "3.5", "03"]),
        (["", "  ", "nan", "NA", "-1"], None, [None, None, "nan", "NA", "-1"]),
        (["?", "", "x"], "?", [None, None, "x"]),
        (["-1.0", "-1", "1"], "-1", [None, None, "1"]),
    ],
)
def test_label_cells_become_class_names(tmp_path, cells, unlabeled, expected):
    text = "a,label\n" + "".join(f"1,{cell}\n" for cell in cells)
    table = read_table(file(tmp_path, "t.csv", text), labels=["label"], unlabeled=unlabeled)
    assert table.y.tolist() == expected


def test_several_label_columns_are_multi_label(tmp_path):
    text = "red,a,blue\n1,7,0\n,8,1.0\nTrue,9,?\n"
    table = read_table(file(tmp_path, "t.csv", text), labels=["blue", "red"], unlabeled="?")
    assert table.y.dtype == np.int8
    assert table.y.tolist() == [[0, 1], [1, -1], [-1, 1]]
    assert table.label_names == ("blue", "red")
    assert table.feature_names == ("a",)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["5", "-3", "0"], [5, -3, 0]),
        (["007", "7", "8"], ["007", "7", "8"]),
        (["x", "2", "3"], ["x", "2", "3"]),
        (["9" * 25, "2", "3"], ["9" * 25, "2", "3"]),
    ],
)
def test_ids_are_integers_only_where_all_are_plain_integers(tmp_path, ids, expected):
    text = "a,id\n" + "".join(f"1,{cell}\n" for cell in ids)
    table = read_table(file(tmp_path, "t.csv", text), id_column="id")
    assert table.ids.tolist() == expected
    assert table.ids.dtype == (np.int64 if isinstance(expected[0], int) else object)


def test_features_are_read_in_the_order_of_training_and_others_ignored(tmp_path):
    path = file(tmp_path, "t.csv", "city,c,b,a\nRome,3,2,1\n")
    table = read_table(path, features=["a", "c"], drop=["not there"])
    assert table.x.tolist() == [[1, 3]]
    assert table.feature_names == ("a", "c")


def test_unnamed_columns_can_be_dropped(tmp_path):
    table = read_table(file(tmp_path, "t.csv", ",a,\n0,5,x\n1,6,y\n"), drop=[""])
    assert table.x.tolist() == [[5], [6]]


def test_parquet_takes_integers_booleans_floats_and_decimals(tmp_path):
    columns = {
        "small": pa.array([1, 2, 3], pa.int8()),
        "large": pa.array([2**60 + 1, 0, -5]),
        "flag": pa.array([True, False, True]),
        "half": pa.array(np.array([0.5, 1, 2], np.float16)),
        "a.b": pa.array([1, 2, 3], pa.decimal128(5, 2)),
        "label": pa.array([1.0, None, float("nan")]),
        "__index_level_0__": pa.array(["p", "q", "r"]),
    }
    table = read_table(parquet(tmp_path, columns), labels=["label"])
    assert table.x.dtype == np.float32
    assert table.x.tolist() == [[1, 2.0**60, 1, 0.5, 1], [2, 0, 0, 1, 2], [3, -5, 1, 2, 3]]
    assert table.y.tolist() == ["1", None, None]
    assert table.feature_names == ("small", "large", "flag", "half", "a.b")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pa.array(["cat", None, ""]), ["cat", None, None]),
        (pa.array(["cat", None, "dog"]).dictionary_encode(), ["cat", None, "dog"]),
        (pa.array([3, None, -1]), ["3", None, "-1"]),
        (pa.array([2.5, 3.0, None]), ["2.5", "3", None]),
        (pa.array([True, False, None]), ["True", "False", None]),
    ],
)
def test_parquet_labels_become_class_names(tmp_path, cells, expected):
    table = read_table(parquet(tmp_path, {"label": cells, "a": [1, 2, 3]}), labels=["label"])
    assert table.y.tolist() == expected


def test_parquet_row_groups_and_batches_keep_their_order(tmp_path):
    count = 300_000
    columns = {
        "id": np.arange(count)[::-1],
        "b": np.zeros(count),
        "a": np.arange(count),
        "y": np.arange(count) % 2,
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=70_000)
    table = read_table(tmp_path / "t.parquet", labels=["y"], id_column="id", features=["a", "b"])
    np.testing.assert_array_equal(table.x[:, 0], np.arange(count))
    np.testing.assert_array_equal(table.ids, columns["id"])
    assert table.y[:2].tolist() == ["0", "1"]


def test_parquet_multi_label(tmp_path):
    columns = {"a": [1.0, 2.0], "p": pa.array([True, None]), "q": pa.array([0, 1])}
    assert read_table(parquet(tmp_path, columns), labels=["p", "q"]).y.tolist() == [[1, 0], [-1, 1]]


def test_minus_one_is_unknown_in_each_of_several_label_columns(tmp_path):
    whole, float_with_gap = pa.array([-1, 0, 1]), pa.array([1.0, -1.0, None])
    for unlabeled in (None, "?"):
        text = file(tmp_path, "t.csv", "a,p,q\n1,-1,1\n2,0,-1.0\n3,1,\n")
        stored = parquet(tmp_path, {"a": [1.0, 2.0, 3.0], "p": whole, "q": float_with_gap})
        for path in (text, stored):
            table = read_table(path, labels=["p", "q"], unlabeled=unlabeled)
            assert table.y.tolist() == [[-1, 1], [0, -1], [1, -1]]


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.int64())])
def test_a_parquet_column_of_lists_has_several_labels_a_cell(tmp_path, kind):
    cat, dog = (7, 11) if pa.types.is_integer(kind.value_type) else ("cat|", "dog")
    lists = pa.array([[dog, cat], [], None, [cat]], kind)
    table = read_table(parquet(tmp_path, {"a": [1.0, 2.0, 3.0, 4.0], "tags": lists}), labels=["tags"])
    assert table.several
    assert table.y.tolist() == [tuple(sorted((str(cat), str(dog)))), (), None, (str(cat),)]


@pytest.mark.parametrize("kind", [pa.list_(pa.null()), pa.list_(pa.dictionary(pa.int8(), pa.string()))])
def test_lists_may_all_be_empty(tmp_path, kind):
    table = read_table(parquet(tmp_path, {"a": [1.0, 2.0], "tags": pa.array([[], None], kind)}), labels=["tags"])
    assert table.y.tolist() == [(), None]


def test_labels_may_be_asked_for_where_the_file_has_them(tmp_path):
    x = np.eye(2, dtype=np.float32)
    np.save(tmp_path / "t.npy", x)
    np.savez(tmp_path / "t.npz", x=x, y=["u", "v"], pet=["cat", "dog"])
    both = file(tmp_path, "t.csv", "x0,x1,pet,y\n1,0,cat,u\n0,1,dog,v\n")
    lists = parquet(tmp_path, {"x0": [1, 0], "x1": [0, 1], "pet": [["cat"], []]})
    for path, found in ((both, ["cat", "dog"]), (lists, [("cat",), ()]), (tmp_path / "t.npz", ["cat", "dog"])):
        table = read_table(path, labels=["pet"], features=["x0", "x1"], labels_if_there=True)
        assert table.y.tolist() == found
    for path in (both, lists, tmp_path / "t.npz", tmp_path / "t.npy"):
        for labels in (["bird"], ["pet", "bird"]):
            assert read_table(path, labels=labels, features=["x0", "x1"], labels_if_there=True).y is None


@pytest.mark.parametrize("names", [("x", "y", "ids"), ("X", "Y", "IDS")])
def test_npz_holds_samples_labels_and_ids(tmp_path, names):
    arrays = dict(zip(names, (np.eye(3), np.array([3, -1, 4]), np.array(["u", "v", "w"])), strict=True))
    np.savez(tmp_path / "t.npz", **arrays)
    table = read_table(tmp_path / "t.npz")
    assert table.x.dtype == np.float64
    assert table.y.tolist() == ["3", None, "4"]
    assert table.ids.tolist() == ["u", "v", "w"]
    assert (table.feature_names, table.label_names) == (("x0", "x1", "x2"), ("y",))


def test_npz_arrays_may_have_other_names(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.eye(2), target=["a", ""], y=[0, 1], key=[8, 9])
    table = read_table(tmp_path / "t.npz", labels=["target"], id_column="key", drop=["x0"])
    assert (table.y.tolist(), table.ids.tolist(), table.label_names) == (["a", None], [8, 9], ("target",))
    assert (table.x.tolist(), table.feature_names) == ([[0], [1]], ("x1",))


@pytest.mark.parametrize(
    ("y", "unlabeled", "expected"),
    [
        (np.array([1.0, np.nan, 2.5]), None, ["1", None, "2.5"]),
        (np.array([-1.0, 1.0, np.nan]), None, ["-1", "1", None]),
        (np.array([0, 7, 1], np.uint8), "7", ["0", None, "1"]),
        (np.array([True, False, True]), None, ["True", "False", "True"]),
        (np.array([["b"], [""], ["c"]]), None, ["b", None, "c"]),
        (np.array([[0, 1], [-1, 1], [1, -1]]), None, [[0, 1], [-1, 1], [1, -1]]),
        (np.array([[0, np.nan], [-1, 1], [1, 0]]), None, [[0, -1], [-1, 1], [1, 0]]),
        (np.array([[True, False], [True, True], [False, False]]), None, [[1, 0], [1, 1], [0, 0]]),
    ],
)
def test_numpy_labels_become_class_names_or_zero_and_one(tmp_path, y, unlabeled, expected):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    np.save(tmp_path / "y.npy", y)
    table = read_table(tmp_path / "x.npy", labels_path=tmp_path / "y.npy", unlabeled=unlabeled)
    assert table.y.tolist() == expected
    np.savez_compressed(tmp_path / "t.npz", x=np.zeros((3, 2)), y=y)
    assert read_table(tmp_path / "t.npz", unlabeled=unlabeled).y.tolist() == expected


@pytest.mark.parametrize(
    ("kind", "kept"), [("uint8", "uint8"), ("float16", "float16"), ("int64", "float32"), ("bool", "float32")]
)
def test_numpy_samples_keep_shape_and_bytes_or_floats(tmp_path, kind, kept):
    np.save(tmp_path / "x.npy", np.ones((2, 3, 4, 4), dtype=kind))
    table = read_table(tmp_path / "x.npy", features=())
    assert (table.x.shape, table.x.dtype, table.feature_names, table.y) == ((2, 3, 4, 4), kept, (), None)


def test_the_content_hash_is_sha256(tmp_path):
    content = b"surelabel" * 1_000_000
    assert content_hash(file(tmp_path, "t", content)) == hashlib.sha256(content).hexdigest()
    with pytest.raises(DataError, match="is empty"):
        content_hash(file(tmp_path, "e", b""))
    with pytest.raises(DataError, match="does not exist"):
        content_hash(tmp_path / "no")


MEASURE = """
import sys
from surelabel.data.tables import read_table

def memory(field):
    # Of this program alone: ru_maxrss would start at the size of the process that launched it.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024

read_table(sys.argv[1], labels=["label"])
before = memory("VmRSS:")
table = read_table(sys.argv[2], labels=["label"])
print(memory("VmHWM:") - before, len(table), table.x.nbytes)
"""


def memory_to_read(folder, line, megabytes):
    """Return the size of a CSV of equal lines, and the extra memory at the peak of reading it."""
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory of one program is read from /proc")
    width = line.count(",")
    header = ",".join(f"c{i}" for i in range(width)) + ",label\n"
    count = (1 << 20) // len(line)
    with (folder / "large.csv").open("w") as stream:
        stream.write(header)
        for _ in range(megabytes):
            stream.write(line * count)
    small = file(folder, "small.csv", header + line * 10)
    command = [sys.executable, "-c", MEASURE, str(small), str(folder / "large.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    extra, rows, used = map(int, done.stdout.split())
    assert rows == count * megabytes
    assert extra > 0.95 * used
    size = (folder / "large.csv").stat().st_size
    (folder / "large.csv").unlink()
    return size, extra


# One digit a cell is the worst case: two bytes of text become four of float32.
SHAPES = {"one digit a cell": "7," * 31 + "cat\n", "few columns": "0.123456,-1.5,cat\n"}


@pytest.mark.parametrize("shape", ["one digit a cell", pytest.param("few columns", marks=pytest.mark.slow)])
def test_reading_64_megabytes_takes_at_most_three_times_as_much_memory(tmp_path, shape):
    size, extra = memory_to_read(tmp_path, SHAPES[shape], 64)
    assert extra <= 3 * size


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_reading_a_gigabyte_takes_at_most_three_times_as_much_memory(tmp_path, shape):
    size, extra = memory_to_read(tmp_path, SHAPES[shape], 1024)
    print(f"{shape}: {size >> 20} MiB on disk, {extra >> 20} MiB extra at the peak, {extra / size:.2f} times")
    assert extra <= 3 * size


def test_pyarrow_is_loaded_only_when_a_table_is_read():
    code = "import sys, surelabel.data.tables; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
