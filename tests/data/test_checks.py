"""What goes into a file comes out of it, a small one takes little memory, and what looks wrong in it is named.

Longer than other files, because each check is tried in every kind of file that it holds for.
"""

import gzip
import json
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_support import QUICK, blobs, rows, write_blobs

from surelabel.data import _arrow_files
from surelabel.data.run_data import TableData
from surelabel.data.source import ArraySource, Concatenation
from surelabel.data.tables import read_table, write_table
from surelabel.errors import DataError, InvalidInputError
from surelabel.runs import RunFolder
from surelabel.runs.files import checksum

pytestmark = pytest.mark.usefixtures("own_folder", "short_fits")


def fault(path, **arguments):
    with pytest.raises(DataError) as caught:
        read_table(path, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def save(name, content):
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return Path(name)


def arrays(name, columns=3, num_rows=40, labeled=12, **changes):
    """Two groups of points in an .npz file; the first rows are labeled."""
    kind = np.arange(num_rows) % 2
    x = np.random.default_rng(columns).normal(size=(num_rows, columns)) + 4 * kind[:, None]
    np.savez(name, **{"x": x, "y": np.where(np.arange(num_rows) < labeled, kind, -1), **changes})
    return Path(name)


# --- rows


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("p,q\0,y\n1,2,a\n3,4,b\n5,6,\n", 1),
        ("p,q,y\n1,2,a\n3,4,\0b\n5,6,\n", 3),
        ('p,q,y\n1,2,a\n3,4,"b\0"\n5,6,\n', 3),
    ],
)
def test_a_nul_character_is_named_by_its_line(text, line):
    for path in (save("t.csv", text), save("t.csv.gz", gzip.compress(text.encode()))):
        assert f"'{path}', line {line} holds a NUL character" in fault(path, labels=["y"])


def test_rows_that_a_parser_loses_or_adds_are_noticed(monkeypatch):
    path, batches = save("t.csv", "a,y\n1,u\n2,v\n3,w\n"), _arrow_files._batches
    assert len(read_table(path, labels=["y"])) == 3
    fewer, more = lambda batch: [[column[1:] for column in batch]], lambda batch: [batch, batch]
    for change, count in ((fewer, 2), (more, 6)):
        monkeypatch.setattr(_arrow_files, "_batches", lambda *given, change=change: change(next(batches(*given))))
        assert f"'t.csv' has 3 rows, and {count} came out when it was read" in fault(path, labels=["y"])


def test_a_parquet_file_has_the_rows_that_it_announces(monkeypatch):
    write_table("t.parquet", {"a": [1.0, 2.0, 3.0]})
    batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *given, **more: [next(batches(*given, **more))[1:]])
    assert "has 3 rows, and 2 came out" in fault("t.parquet")


def test_gzip_members_are_read_to_the_last():
    parts = ["a,y\n1,u\n", "2,v\n3,", "w\n"]
    path = save("t.csv.gz", b"".join(gzip.compress(part.encode()) for part in parts))
    assert read_table(path, labels=["y"]).y.tolist() == ["u", "v", "w"]


@pytest.mark.parametrize("text", ["\ufeff\na,y\n1,u\n\n2,v\n", '\ufeff\n"a",y\n1,u\n\n2,"v"\n', 'a,y\r\r1,x"y\r2,z"w'])
def test_empty_lines_marks_and_lone_quotes_do_not_change_the_count(text):
    assert read_table(save("t.csv", text), labels=["y"]).x.tolist() == [[1], [2]]


@pytest.mark.parametrize("block", [1, 7, 16])
def test_rows_are_counted_the_same_whatever_the_blocks(monkeypatch, block):
    text = '\ufeffa,"y"\r\n1,"x\n""x"", \r\n"\r\n\r\n2,\n3,"a ""b"""\n4,5" wide'
    path = save("t.csv", text)
    monkeypatch.setattr(_arrow_files, "_BLOCK", block)
    assert read_table(path, labels=["y"]).y.tolist() == ['x\n"x",', None, 'a "b"', '5" wide']
    assert _arrow_files.survey_text(path).rows == 4


@pytest.mark.parametrize("block", [1, 7, 16])
def test_text_behind_a_closing_quote_is_found_whatever_the_blocks(monkeypatch, block):
    monkeypatch.setattr(_arrow_files, "_BLOCK", block)
    for shift in range(20):
        path = save("t.csv", f'a{"a" * shift},y\n1,"u\n2,v\n3,"w\n4,x\n')
        assert "row 1: a quoted cell is not closed or goes on after its quote, in line 4" in fault(path)


def test_line_ends_within_quotes_stay_whole_whatever_the_blocks(monkeypatch):
    monkeypatch.setattr(_arrow_files, "_BLOCK", 16)
    for shift in range(30):
        text = f"a{'a' * shift},y\r\n" + '1,"two\r\r\nlines"\r\n' * 20
        for path in (save("t.csv", text), save("t.csv.gz", gzip.compress(text.encode()))):
            assert set(read_table(path, labels=["y"]).y.tolist()) == {"two\r\r\nlines"}


# --- memory

MEASURE = """
import sys
import pyarrow.csv, pyarrow.parquet
from surelabel.data.tables import read_table

def peak():
    # Of this program alone: ru_maxrss would start at the size of the process that launched it.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024

before = peak()
try:
    read_table(sys.argv[1], labels=["y"] if sys.argv[1] != "t.npz" else ())
    print("read")
except ValueError as error:
    print(error)
print(peak() - before)
"""


def megabytes_to_refuse(path):
    """Return the refusal of a file and how far the peak memory grew by it."""
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory of one program is read from /proc")
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    message, megabytes = done.stdout.splitlines()
    return message, int(megabytes)


@pytest.mark.parametrize("place", ["cell", "header", "rows"])
def test_a_small_csv_file_does_not_fill_the_memory(monkeypatch, place):
    ends = {"cell": (b"a,b,y\n1,2,u\n1,", b",u\n"), "header": (b"a,b", b",y\n1,2,u\n"), "rows": (b"a,b,y\n", b"")}
    many = gzip.compress(b"x" * 1_000_000) * 1200
    if place == "rows":  # of five bytes; in memory they take 24
        monkeypatch.setenv("SURELABEL_MAX_BYTES", "300000000")
        many = gzip.compress(b"1,1,\n" * 200_000) * 70
    path = save("t.csv.gz", gzip.compress(ends[place][0]) + many + gzip.compress(ends[place][1]))
    assert path.stat().st_size < 5_000_000
    message, grown = megabytes_to_refuse(path)
    assert "set SURELABEL_MAX_BYTES to" in message
    assert {"cell": "line 3 is longer than", "header": "line 1 is longer", "rows": "or more, and at most"}[
        place
    ] in message
    assert grown < 200


def test_a_small_npz_file_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "300000000")
    archive = zipfile.ZipFile("t.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("x.npy", "w", force_zip64=True) as stream:
        header = {"descr": "|u1", "fortran_order": False, "shape": (40_000_000, 10)}
        np.lib.format.write_array_header_1_0(stream, header)
        for _ in range(400):
            stream.write(bytes(1_000_000))
    message, grown = megabytes_to_refuse("t.npz")
    assert "would take 400,000,128 bytes of memory or more, and at most 300,000,000 are allowed" in message
    assert grown < 200


def test_a_small_parquet_file_does_not_fill_the_memory():
    once = pa.DictionaryArray.from_arrays(np.zeros(4000, np.int32), ["x" * 1_000_000])
    pq.write_table(pa.table({"a": [0.5] * 4000, "y": once}), "t.parquet")
    assert Path("t.parquet").stat().st_size < 100_000
    message, grown = megabytes_to_refuse("t.parquet")
    assert "would take 4,000,000,000 bytes of memory" in message
    assert grown < 200


BOMBS = {
    "text of one length": ({"y": pa.array([bytes(100_000)] * 40, pa.binary(100_000))}, {"labels": ["y"]}, "4,000,160"),
    "text of one length in a batch": ({"y": pa.array([bytes(4000)] * 90, pa.binary(4000))}, {"labels": ["y"]}, "1,4"),
    "ids": ({"y": ["x" * 2000] * 600}, {"id_column": "y"}, "1,"),
    "labels": ({"y": [None if row % 200 else "x" * 150_000 for row in range(2000)]}, {"labels": ["y"]}, "1,05"),
    "lists of numbers": ({"y": [[0] * 90_000]}, {"labels": ["y"]}, "1,080,004"),
    "short lists of numbers": ({"y": [[0] * 20_000]}, {"labels": ["y"]}, "1,280,000"),
    "lists of text": ({"y": [["x" * 10_000] * 30]}, {"labels": ["y"]}, "1,201,920"),
    "numbers": ({"y": np.zeros(130_000)}, {}, "1,560,000"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_what_a_parquet_file_keeps_once_counts_as_often_as_it_is_read(monkeypatch, case):
    columns, arguments, size = BOMBS[case]
    table = pa.table({"a": np.zeros(len(next(iter(columns.values()))), np.float32), **columns})
    pq.write_table(table, "t.parquet", compression="zstd", dictionary_pagesize_limit=1 << 24)
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "1000000")
    monkeypatch.setattr(_arrow_files, "_CELLS_IN_BATCH", 400)
    assert f"would take {size}" in fault("t.parquet", **arguments)


def test_lists_of_a_feature_are_named_without_reading_them(monkeypatch):
    pq.write_table(pa.table({"a": [[0.5] * 1000]}), "t.parquet")
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    assert "column 'a', row 1: its type list<element: double> is not a number; drop the column" in fault("t.parquet")


def test_text_in_arrays_counts_as_often_as_it_is_copied(monkeypatch):
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "1000000")
    for part in ("y", "ids"):
        np.savez_compressed("t.npz", **{"x": np.zeros((4, 2)), part: np.zeros(4, "U20000")})
        assert "would take 1,280,512 bytes of memory" in fault("t.npz")


def test_pixels_are_not_copied_to_look_for_what_is_not_finite():
    np.savez("t.npz", x=np.zeros((1, 2000, 2000), np.uint8))
    tracemalloc.start()
    read_table("t.npz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000


def test_the_limit_is_the_users_to_raise(monkeypatch):
    np.savez("t.npz", x=np.zeros((1000, 2)), y=["u"] * 1000)
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "10000")
    assert "would take 20,256 bytes of memory or more, and at most 10,000 are allowed" in fault("t.npz")
    with pytest.raises(DataError, match="SURELABEL_MAX_BYTES to a larger number"):
        read_table(save("t.csv", "a,y\n" + "1,\n" * 5000), labels=["y"])
    pq.write_table(pa.table({"a": np.zeros(1000, np.float32)}), "rows.parquet")
    assert "would take 12,000 bytes of memory" in fault("rows.parquet")
    pq.write_table(pa.table({"a": np.arange(2000.0)}), "columns.parquet", use_dictionary=False)
    assert "would take 16," in fault("columns.parquet")
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "200000")
    assert len(read_table("t.npz")) == 1000
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "1 GB")
    with pytest.raises(InvalidInputError, match="SURELABEL_MAX_BYTES must be a whole number of bytes. Got '1 GB'"):
        read_table("t.npz")


@pytest.mark.parametrize("x", [np.zeros((1, 30_000)), np.zeros((500, 40), bool)])
def test_names_of_columns_and_wider_numbers_count_too(monkeypatch, x):
    np.savez("t.npz", x=x)
    monkeypatch.setenv("SURELABEL_MAX_BYTES", str(x.nbytes + 1000))
    assert "SURELABEL_MAX_BYTES" in fault("t.npz")


def test_many_columns_and_classes_count_too(monkeypatch):
    wide = save("wide.csv", ",".join(f"c{column}" for column in range(2000)) + "\n" + ",".join("1" * 2000) + "\n")
    tags = save("tags.csv", "a,y\n" + "".join(f"1,t{row}\n" for row in range(2000)))
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "10000000")
    assert "would take 20,000,000 bytes of memory" in fault(wide)
    with pytest.raises(DataError, match="'tags.csv' .* would take 32,000,000 bytes of memory"):
        TableData(path=tags, labels=("y",), separator="|").load()


# --- columns of arrays, and ids


def test_arrays_of_another_width_are_refused_wherever_they_come_in(command):
    arrays("three.npz"), arrays("five.npz", columns=5, labeled=40)
    np.save("five.npy", np.load("five.npz")["x"])
    problem = "x has 5 columns, and the model was trained on arrays of 3"
    for option in ("--test", "--validation"):
        words = ("fit", "three.npz", *QUICK, option, "five.npz", "--out", "run")
        assert f"File 'five.npz': {problem}" in command.fails(1, *words)
    assert command("fit", "three.npz", *QUICK, "--rounds", "0", "--out", "run").code == 0
    for words in (("predict", "run", "five.npz"), ("label", "run", "five.npz"), ("predict", "run", "five.npy")):
        assert f"File '{words[2]}': {problem}" in command.fails(1, *words)
    assert command("predict", "run", "three.npz").code == 0


def test_dropped_columns_of_arrays_keep_their_places(command):
    arrays("a.npz", columns=3)
    assert command("fit", "a.npz", "--drop", "x1", *QUICK, "--rounds", "0", "--out", "run").code == 0
    assert command("predict", "run", "a.npz").code == 0
    arrays("b.npz", columns=4)
    assert "x has 4 columns, and the model was trained on arrays of 3" in command.fails(1, "predict", "run", "b.npz")


def test_held_out_pictures_have_the_shape_of_the_others():
    arrays("a.npz", x=np.random.default_rng(0).normal(size=(40, 2, 2)))
    arrays("b.npz", x=np.zeros((40, 3, 3)))
    with pytest.raises(DataError, match=r"'b.npz' has samples of shape \(3, 3\); give \(2, 2\)"):
        TableData(path=Path("a.npz"), test_path=Path("b.npz")).load()


def test_ids_of_64_bits_come_out_as_they_went_in(command):
    ids = np.arange(40, dtype=np.uint64) * np.uint64(3) + np.uint64(2**64 - 200)
    arrays("a.npz", ids=ids)
    assert read_table("a.npz").ids.tolist() == ids.tolist()
    assert command("fit", "a.npz", *QUICK, "--validation", "0.2", "--out", "run").code == 0
    names = [str(value) for value in ids]
    for name in ("predict", "label"):
        assert [row["id"] for row in rows(command(name, "run", "a.npz").out)] == names
        assert command(name, "run", "a.npz", "--out", f"{name}.parquet").code == 0
        assert pq.read_table(f"{name}.parquet")["id"].to_pylist() == ids.tolist()
    run = RunFolder.open("run")
    split = json.loads(Path("run/split.json").read_text())
    assert sorted([*split["labeled"], *split["validation"], *run.pool().ids.tolist()]) == ids.tolist()
    for path in (save("t.csv", "a,id\n" + "".join(f"1,{name}\n" for name in names)), Path("t.parquet")):
        if path.suffix == ".parquet":
            pq.write_table(pa.table({"a": [0.5] * 40, "id": ids}), path)
        assert [str(value) for value in read_table(path, id_column="id").ids] == names


def test_signed_and_unsigned_ids_together_are_told_apart():
    labeled = ArraySource(np.zeros((2, 1)), ids=np.array([2**63, 2**63 + 1], np.uint64))
    pool = ArraySource(np.zeros((2, 1)), ids=np.array([3, 4]))
    assert Concatenation(labeled, pool).ids.tolist() == [2**63, 2**63 + 1, 3, 4]


# --- columns that count the rows


counting = pytest.mark.filterwarnings("always:.*only counts the rows")


def counted(path, start=1, **changes):
    return write_blobs(path, row=list(range(start, start + 60)), **changes)


@counting
@pytest.mark.parametrize("start", [0, 1, -7])
def test_a_column_that_counts_the_rows_is_left_out_with_a_warning(command, start):
    counted(Path("pets.csv"), start), write_table("new.csv", blobs(seed=1, num_labeled=60))
    result = command("fit", "pets.csv", "--label", "pet", "--id", "id", *QUICK, "--test", "new.csv", "--out", "run")
    assert result.code == 0
    assert "warning: 'row' of 'pets.csv' only counts the rows and is left out; say --use row" in result.err
    settings = RunFolder.open("run").settings
    assert (settings.feature_names, settings.data.drop) == (("width", "height"), ("row",))
    assert command("predict", "run", "new.csv").code == 0
    assert "row" not in command("resume", "run", "--rounds", "2").err


def test_a_column_that_counts_the_rows_is_used_where_asked(command):
    words = ("fit", counted(Path("pets.csv")), "--label", "pet", "--id", "id", *QUICK, "--use", "row", "--out", "run")
    result = command(*words)
    assert (result.code, result.err) == (0, "")
    assert RunFolder.open("run").settings.feature_names == ("width", "height", "row")
    line = command.fails(1, *words[:-2], "--use", "rows", "--out", "other")
    assert "no feature column 'rows'; did you mean 'row'?" in line


def test_runs_from_before_keep_the_features_that_they_have(command):
    path = counted(Path("pets.csv"))
    assert command("fit", path, "--label", "pet", "--id", "id", *QUICK, "--use", "row", "--out", "run").code == 0
    content = json.loads(Path("run/run.json").read_text())
    content.pop("checksum"), content["settings"]["data"].pop("use")
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    save("run/run.json", json.dumps({**content, "checksum": checksum(canonical)}))
    result = command("resume", "run", "--rounds", "2")
    assert (result.code, result.err) == (0, "")
    assert command("predict", "run", path).code == 0


@pytest.mark.parametrize(
    ("column", "counts"),
    [
        (np.arange(60) + 0.5, False),
        (np.arange(60)[::-1], True),
        (np.random.default_rng(0).permutation(60) - 7, True),
        (np.r_[np.arange(59), 5], False),
        (np.r_[0, np.arange(58), 59], False),
        (np.r_[np.arange(59), 60], False),
        (np.full(60, 1e9), False),
        (np.arange(60) * 2, False),
        (np.arange(60) + 2**24, True),
        (np.arange(60) + 2**40, False),  # 32 bits do not hold it
    ],
)
def test_only_whole_numbers_without_gaps_count_the_rows(column, counts):
    path = write_blobs(Path("pets.csv"), row=column)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = TableData(path=path, labels=("pet",), id_column="id").load()
    assert ([str(warning.message)[:5] for warning in caught], data.learned["drop"]) == (
        (["'row'"], ("row",)) if counts else ([], ())
    )


def test_a_file_needs_features_beside_the_count(command):
    counted(Path("pets.csv"), width=None, height=None)
    words = ("fit", "pets.csv", "--label", "pet", "--id", "id", "--out", "run")
    assert "has no features: 'row' only counts the rows; say --use row" in command.fails(1, *words)


@counting
def test_columns_of_arrays_that_count_the_rows_are_left_out_by_their_place(command):
    x = np.random.default_rng(0).normal(size=(40, 3))
    arrays("a.npz", x=np.c_[np.arange(40), x])
    result = command("fit", "a.npz", *QUICK, "--rounds", "0", "--test", arrays("b.npz", columns=4), "--out", "run")
    assert "warning: 'x0' of 'a.npz' only counts the rows" in result.err
    assert RunFolder.open("run").settings.feature_names == ("x1", "x2", "x3")
    assert command("predict", "run", "b.npz").code == 0
    assert "'x0'" not in command("resume", "run", "--rounds", "1").err


# --- labels


def fit(command, labels, *more):
    path = write_blobs(Path("pets.csv"), pet=labels)
    return command("fit", path, "--label", "pet", "--id", "id", *QUICK, "--rounds", "0", "--out", "run", *more)


def test_measurements_are_refused_with_what_to_do(command):
    result = fit(command, [row / 8 for row in range(30)] + [None] * 30)
    assert result.code == 1
    assert "labels such as 0.125 measure something and name no class; sort them" in result.err
    assert not Path("run").exists()
    np.savez("a.npz", x=np.zeros((40, 2)), y=np.random.default_rng(0).normal(size=40))
    assert "measure something" in command.fails(1, "fit", "a.npz", "--out", "run")


@pytest.mark.parametrize("mark", ["NA", "?", "-1", "None"])
def test_measurements_beside_a_mark_are_refused(command, mark):
    result = fit(command, [f"{row / 8}" for row in range(29)] + [mark] + [None] * 30)
    assert "labels such as 0.125 measure something" in result.err


def test_measurements_with_a_separator_are_refused(command):
    result = fit(command, [f"{row / 8}" for row in range(30)] + [None] * 30, "--separator", "|")
    assert "labels such as 0.125 measure something" in result.err


@pytest.mark.parametrize("names", [range(100, 130), [f"name {row}" for row in range(30)]])
def test_labels_that_are_nearly_all_different_are_warned_of(command, names):
    assert (
        "warning: There are 30 classes for 30 labels; if the labels measure" in fit(command, [*names] + [None] * 30).err
    )


@pytest.mark.parametrize("form", ["{}%", "${}", "{},5", "{}0"])
def test_a_few_labels_that_are_all_different_are_warned_of(command, form):
    result = fit(command, [form.format(row) for row in range(15)] + [None] * 45)
    assert "warning: There are 15 classes for 15 labels; if the labels measure" in result.err


def test_classes_that_are_the_same_number_are_named(command):
    labels = ["0", "-0", "+0", "00", "1", "+1", "01", "1e0", "2"] * 3 + [None] * 33
    assert fit(command, labels).err.splitlines() == [
        "warning: '+0', '-0', '0', '00' are different classes; if they are one, write them alike.",
        "warning: '+1', '01', '1', '1e0' are different classes; if they are one, write them alike.",
    ]


def test_zero_has_no_sign_in_any_kind_of_file():
    y = np.array([-0.0, 1.0, np.nan])
    np.savez("t.npz", x=np.eye(3), y=y)
    pq.write_table(pa.table({"a": [0.5, 1, 2], "y": y}), "t.parquet")
    save("t.csv", "a,y\n0.5,-0.0\n1,1.0\n2,\n")
    for name in ("t.npz", "t.parquet", "t.csv"):
        assert read_table(name, labels=["y"]).y.tolist() == ["0", "1", None]


def test_a_nul_is_refused_in_labels_ids_and_names_of_every_kind_of_file():
    for part in ("y", "ids"):
        np.savez("t.npz", **{"x": np.eye(3), part: np.array(["a", "b\0c", "d"])})
        assert f"'{part}', row 2: U+0000 is no character" in fault("t.npz")
    for cells in (pa.array(["a", None, "b\0"]), pa.array([b"a", b"c", b"b\0"])):
        pq.write_table(pa.table({"a": [0.5, 1, 2], "y": cells}), "t.parquet")
        for part in ({"labels": ["y"]}, {"id_column": "y"}):
            assert fault("t.parquet", **part) == (
                "File 't.parquet', column 'y', row 3: the text holds a NUL character; remove it."
            )
    pq.write_table(pa.table({"a": [0.5], "y\0": [1]}), "t.parquet")
    assert fault("t.parquet") == "File 't.parquet': the name of column 2 holds a NUL character; rename it."


def test_an_empty_id_is_refused_in_arrays_too():
    np.savez("t.npz", x=np.eye(3), ids=["a", "", "b"])
    assert "column 'ids', row 2: the id is empty" in fault("t.npz")


def test_classes_that_are_written_in_several_ways_are_named(command):
    result = fit(command, ["cat", "CAT", "dog", " cat", "Dog", "eel"] * 5 + [None] * 30)
    assert result.code == 0
    assert result.err.splitlines() == [
        "warning: 'CAT', 'cat' are different classes; if they are one, write them alike.",
        "warning: 'Dog', 'dog' are different classes; if they are one, write them alike.",
    ]


def test_a_class_that_the_validation_set_lacks_is_named(command):
    labels = ["cat", "dog"] * 5 + ["eel"] + [None] * 49
    assert "the validation set has no label of 'eel'" in fit(command, labels, "--validation", "0.2").err
    assert Path("run/split.json").exists()


def test_labels_of_5000_digits_are_classes(command):
    long = "7" * 5000
    assert fit(command, [long, "3"] * 5 + [None] * 50).code == 0
    assert RunFolder.open("run").settings.classes == ("3", long)


def test_blobs_have_nothing_to_warn_of(command):
    assert fit(command, blobs()["pet"]).err == ""
