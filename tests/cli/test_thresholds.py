"""`surelabel thresholds`: a table of what thresholds select, a choice with a promise, and a figure."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cli_support import LOGISTIC, blobs
from small_runs import small_settings

import surelabel as sl
from surelabel.cli import main
from surelabel.data.tables import write_table
from surelabel.report.held_out import Checked
from surelabel.report.thresholds import Pair, read_labels, select_from, validation_labels
from surelabel.runs import RunFolder
from surelabel.runs.session import start

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one label a sample ("run") and of two ("both"), with 128 and 32 validation samples."""
    folder = tmp_path_factory.mktemp("thresholds")
    write_table(folder / "pets.csv", blobs(200, 160))
    left = [row % 2 for row in range(40)] + [None] * 20
    columns = {**blobs(), "left": left, "right": [None if cell is None else 1 - cell for cell in left]}
    del columns["pet"]
    write_table(folder / "both.csv", columns)
    for table, run, labels in (("pets", "run", ["pet"]), ("both", "both", ["left", "right"])):
        flags = [word for label in labels for word in ("--label", label)]
        words = ["fit", folder / f"{table}.csv", *flags, "--id", "id", "--validation", "0.8", *LOGISTIC, "--quiet"]
        assert main([*map(str, words), "--out", str(folder / run)]) == 0
    return folder


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(path: Path, **changes: object) -> Path:
    """Write an .npz file of 100 samples: the network is right, but about the five that it is least sure of."""
    p = np.linspace(0.99, 0.6, 100)[:, None] * [1, 0] + [0, 0.01]
    arrays = {"p": p, "u": (1 - p) * p, "y": (np.arange(100) >= 95).astype(int), **changes}
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return path


def test_a_runs_validation_set_gives_the_table_the_choice_and_the_figure(command, home):
    result = command("thresholds", home / "run", "--tau-p", "0.7", "--kappa-p", "0.05", "--kappa-p", "inf")
    assert (result.code, result.err) == (0, "")
    run = RunFolder.open(home / "run")
    labels, truth = run.validation(0), run.validation_truth
    chosen = (labels.confidence >= 0.7) & (labels.uncertainty <= 0.05)
    right = (labels.label == truth)[chosen]
    row = next(line.split() for line in result.out.splitlines() if line.split()[:1] == ["0.7"])
    assert row[1:3] == [str(chosen.sum()), f"{right.mean():.2%}"]
    assert row[3] == str((labels.confidence >= 0.7).sum())
    assert result.out.startswith(f"{len(truth)} held-out labels, {(labels.label == truth).mean():.2%} right")
    found = re.search(r"Chosen: tau_p=(\S+) and kappa_p=(\S+) select (\d+) of 128 held-out samples", result.out)
    pair = Pair(float(found[1]), float(found[2]))
    assert select_from(validation_labels(run), pair).number == int(found[3])
    assert f"surelabel fit ... --tau-p {found[1]} --kappa-p {found[2]}" in result.out
    assert "The figure is in thresholds-run.svg." in result.out
    of_the_run = (labels.confidence >= 0.7) & (labels.uncertainty <= 0.1)
    share = Checked(int((labels.label == truth)[of_the_run].sum()), int(of_the_run.sum())).text(" are right")
    assert f"The run's tau_p=0.7 and kappa_p=0.1 select {of_the_run.sum()} labels: {share}." in result.out
    drawing = ElementTree.parse("thresholds-run.svg").getroot()
    assert drawing.tag == f"{SVG}svg"
    assert [panel.get("aria-label") for panel in drawing.findall(f"{SVG}svg")] == [
        "right and wrong labels over confidence",
        "right and wrong labels over uncertainty",
    ]
    texts = " ".join(drawing.itertext())
    assert f"right ({(labels.label == truth).sum()})" in texts
    assert "the run's" in texts
    assert "chosen" in texts


@pytest.mark.usefixtures("undrawn")
def test_a_second_call_prints_the_table_again_and_keeps_the_figure_unless_forced(command, home):
    first = command("thresholds", home / "run", "--max-error", "0.1")
    figure = Path("thresholds-run.svg").read_bytes()
    second = command("thresholds", home / "run", "--max-error", "0.5", "--tau-p", "0.7")
    assert (second.code, second.out.splitlines()[0]) == (0, first.out.splitlines()[0])
    assert "Chosen: " in second.out
    assert second.err.startswith("warning: file 'thresholds-run.svg' exists and is kept; give --force")
    assert Path("thresholds-run.svg").read_bytes() == figure
    Path("thresholds-run.svg").write_text("old")
    assert command("thresholds", home / "run", "--max-error", "0.1", "--force").err == ""
    assert Path("thresholds-run.svg").read_bytes() == figure
    assert command("thresholds", home / "both").err == "", "another run has another figure"


@pytest.mark.usefixtures("undrawn")
def test_another_rounds_network_can_be_asked(command, home):
    run = RunFolder.open(home / "run")
    confidence = [validation_labels(run, network).confidence for network in (0, 1)]
    assert (confidence[0] != confidence[1]).any()
    last = command("thresholds", home / "run", "--round", "-1", "--tau-p", "0.9", "--kappa-p", "inf").out
    assert f" {(confidence[1] >= 0.9).sum()} " in last
    assert "2 finished rounds and no round 7" in command.fails(1, "thresholds", home / "run", "--round", 7, "--force")


@pytest.mark.usefixtures("undrawn")
def test_what_limits_the_promise_is_said_beside_it(command, home):
    whole = command("thresholds", home / "run", "--max-error", "0.5").out
    assert "approximate" not in whole
    assert "has learned from the pool" not in whole
    later = command("thresholds", home / "run", "--max-error", "0.5", "--round", "-1").out
    assert "This network has learned from the pool" in later
    save(Path("held_out.npz"))
    assert "The probability is approximate" in command("thresholds", "held_out.npz").out


def test_low_thresholds_come_with_one_for_negatives_that_fits(command):
    p = np.full((200, 40), 0.96 / 39)
    p[:, 0] = 0.04
    save(Path("many.npz"), p=p, u=None, y=np.zeros(200, dtype=int))
    assert "--tau-p 0.04 --kappa-p inf --tau-n 0.04" in command("thresholds", "many.npz").out


@pytest.mark.usefixtures("undrawn")
def test_infinite_uncertainties_are_counted_in_the_figure(command):
    u = np.full((200, 2), 0.02)
    u[:3] = np.inf
    save(Path("some.npz"), p=np.tile([0.9, 0.1], (200, 1)), u=u, y=np.zeros(200, dtype=int))
    result = command("thresholds", "some.npz")
    assert (result.code, result.err) == (0, "")
    assert "right (200, 3 infinite)" in " ".join(ElementTree.parse("thresholds-some.svg").getroot().itertext())


def test_a_column_that_is_there_twice_is_named(command):
    Path("twice.csv").write_text("confidence,confidence,label,truth\n0.9,0.8,a,a\n")
    assert "more than one column 'confidence'" in command.fails(1, "thresholds", "twice.csv")


@pytest.mark.usefixtures("undrawn")
def test_the_table_fits_into_80_columns(command, home):
    lines = command("thresholds", home / "run").out.splitlines()
    table = [line for line in lines if line.strip() and line.split()[0] in ("tau_p", "0.5", "0.95")]
    assert len(table) == 3
    assert max(map(len, table)) <= 80
    assert "…" not in "".join(table)


def test_a_table_has_the_same_labels_as_the_run_that_it_comes_from(home):
    expected = validation_labels(RunFolder.open(home / "run"), 1)
    table = pyarrow.parquet.read_table(home / "run" / "rounds" / "001" / "validation.parquet")
    pyarrow.parquet.write_table(table, "labels.parquet")
    pyarrow.csv.write_csv(table.select(["label", "truth", "confidence", "uncertainty"]), "labels.csv")
    for name in ("labels.parquet", "labels.csv"):
        for found, known in zip(read_labels(Path(name)), expected, strict=True):
            np.testing.assert_allclose(found, known, rtol=1e-6)


def test_arrays_in_a_file_are_judged_as_by_the_function(command):
    save(Path("held_out.npz"))
    arrays = np.load("held_out.npz")
    expected = sl.thresholds(arrays["p"], arrays["u"], arrays["y"])
    assert expected.num_selected == 93
    assert f"Chosen: {expected}\n" in command("thresholds", "held_out.npz").out
    save(Path("gaps.npz"), y=np.where(np.arange(100) < 95, 0, -1))
    labels = read_labels(Path("gaps.npz"))
    assert (len(labels.label), labels.wrong.any()) == (95, False)


def test_without_uncertainties_there_is_one_column_and_one_panel(command):
    save(Path("held_out.npz"), u=None)
    result = command("thresholds", "held_out.npz")
    assert "kappa_p inf" in result.out
    assert "kappa_p 0.05" not in result.out
    assert len(ElementTree.parse("thresholds-held_out.svg").getroot().findall(f"{SVG}svg")) == 1


def test_too_few_labels_are_told_with_how_many_more_it_takes(command):
    save(Path("few.npz"), p=np.tile([0.9, 0.1], (20, 1)), u=None, y=np.zeros(20, dtype=int))
    result = command("thresholds", "few.npz")
    assert (result.code, result.err) == (0, "")
    assert re.search(r"With 20 held-out samples, no thresholds can promise .* About \d+ more would", result.out)
    assert "A smaller --min-coverage begins with surer labels" in result.out
    assert "surelabel fit" not in result.out


@pytest.mark.usefixtures("undrawn")
def test_several_labels_a_sample_are_counted_by_samples(command, home):
    result = command("thresholds", home / "both", "--max-error", "0.3")
    assert (result.code, result.err) == (0, "")
    run = RunFolder.open(home / "both")
    labels = run.validation(0)
    assert result.out.startswith(f"{(labels.label == 1).sum()} held-out labels")
    chosen = labels.positive
    samples = [row for row in zip(chosen, run.validation_truth, strict=True) if row[0].any()]
    share = Checked(sum(truth[mine].all() for mine, truth in samples), len(samples)).text(" of these have no wrong one")
    assert f"select {chosen.sum()} labels of {len(samples)} samples: {share}." in result.out
    pool = run.pool(0).confidence, run.pool(0).uncertainty
    held_out = labels.confidence, labels.uncertainty, run.validation_truth
    expected = sl.thresholds(*held_out, 0.3, task="multi", pool=pool)
    assert str(expected) in result.out


def test_a_network_that_labels_nothing_is_named(command):
    save(Path("none.npz"), p=np.full((20, 2), 0.1), u=None, y=np.ones((20, 2), dtype=int))
    line = command("thresholds", "none.npz").err
    assert line == "error: The network gives no held-out sample a positive label, so there is nothing to choose from.\n"


def test_labels_that_are_numbers_in_one_column_and_decimals_in_the_other_are_the_same():
    Path("a.csv").write_text("label,truth,confidence\n1,1.0,0.9\n0,1.0,0.8\n0,,0.8\n")
    assert read_labels(Path("a.csv")).wrong.tolist() == [[False], [True]]
    Path("b.csv").write_text("label,truth,confidence\nNA,NA,0.9\nnull,NA,0.8\n")
    assert read_labels(Path("b.csv")).wrong.tolist() == [[False], [True]]


TABLE = "label,truth,confidence,uncertainty\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "has an ending that is not known here; use .npz, .csv or .parquet"),
        ("a.npz", "nonsense", "File 'a.npz' is damaged or not really an .npz archive"),
        ("a.parquet", "nonsense", "File 'a.parquet' is damaged or not really a parquet table"),
        ("a.csv", "label,truth\n1,1\n", "has no column 'confidence'; it has label, truth"),
        ("a.csv", "class,label,truth,confidence\na,1,1,0.5\n", "has a row for each sample and class"),
        ("a.csv", f"{TABLE}1,1,0.5\n", "row 1 has 3 cells where the header has 4"),
        ("a.csv", "label,truth,conf\0idence\n1,1,0.5\n1,1,0.6\n", "line 1 holds a NUL character"),
        ("a.csv", f"{TABLE}1,1,high,0.1\n", "column 'confidence' must hold numbers"),
        ("a.csv", f"{TABLE}1,1,1.5,0.1\n", "column 'confidence' must hold numbers from 0 to 1. Got 1.5"),
        ("a.csv", f"{TABLE}1,1,0.5,-0.1\n", "column 'uncertainty' must hold numbers from 0 to inf. Got -0.1"),
        ("a.csv", f"{TABLE}1,1,0.5,\n1,1,0.5,0.1\n", "column 'uncertainty' must hold numbers from 0 to inf. Got nan"),
        ("a.csv", f"{TABLE}1,,0.5,0.1\n", "File 'a.csv' has no sample whose true label is known"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(command, name, content, message):
    Path(name).write_text(content)
    assert message in command.fails(1, "thresholds", name)
    assert not list(Path().glob("*.svg"))


def test_labels_in_parquet_are_the_same_as_text_numbers_or_categories():
    names = pa.array(["cat", "dog", "cat", None])
    kinds = {"text": names, "category": names.dictionary_encode(), "large": names.cast(pa.large_string())}
    for name, truth in {**kinds, "numbers": pa.array([0, 1, 0, None])}.items():
        label = pa.array([0, 0, 0.0, 1]) if name == "numbers" else pa.array(["cat", "cat", None, "dog"])
        table = {"id": list("abcd"), "label": label, "truth": truth, "confidence": [0.9, 0.8, 0.7, 0.6]}
        pa.parquet.write_table(pa.table(table), f"{name}.parquet")
        wrong = [[False], [True], [name != "numbers"]]
        assert read_labels(Path(f"{name}.parquet")).wrong.tolist() == wrong


MANY = 1_000_000


def many_rows(label: pa.Array) -> Path:
    table = pa.table({"confidence": np.full(MANY, 0.9), "label": label, "truth": label})
    pa.parquet.write_table(table, "a.parquet", compression="zstd")
    assert Path("a.parquet").stat().st_size < 100_000
    return Path("a.parquet")


def test_a_small_file_of_many_equal_rows_does_not_fill_the_memory(command, monkeypatch):
    many_rows(pa.array(np.zeros(MANY, dtype=int)))
    monkeypatch.setenv("SURELABEL_MAX_BYTES", str(23 * MANY))
    line = command.fails(1, "thresholds", "a.parquet")
    assert "File 'a.parquet' of " in line
    assert "set SURELABEL_MAX_BYTES to a larger number" in line


def test_a_long_text_in_many_rows_is_kept_once(monkeypatch):
    path = many_rows(pa.DictionaryArray.from_arrays(np.zeros(MANY, "i4"), ["a" * 20_000]))
    before = pa.default_memory_pool().max_memory()
    assert not read_labels(path).wrong.any()
    assert pa.default_memory_pool().max_memory() < max(before, 200 * MANY), "20 GB, if it were written out"


def test_labels_of_several_row_groups_are_compared_by_their_text():
    table = pa.table({"label": list("abba"), "truth": list("baba"), "confidence": [0.9] * 4})
    pa.parquet.write_table(table, "groups.parquet", row_group_size=1)
    assert read_labels(Path("groups.parquet")).wrong[:, 0].tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, "File 'a.npz' has no array 'y'; it has p, u"),
        ({"y": np.zeros(99, dtype=int)}, "p, u and y differ in their number of rows"),
        ({"y": np.full(100, -1)}, "File 'a.npz' has no sample whose true label is known"),
        (
            {"y": np.array(["a"] * 100)},
            "array 'y' must hold numbers, a row a sample; convert it. Got <U1 of shape (100,)",
        ),
        ({"y": np.array([None] * 100)}, "array 'y' holds Python objects, which could run code"),
        ({"p": np.array(0.5)}, "array 'p' must hold numbers, a row a sample; convert it. Got float64 of shape ()"),
        ({"p": np.ones((100, 2)) * 2}, "'p' argument must hold probabilities"),
    ],
)
def test_arrays_that_cannot_be_used_are_named(command, changes, message):
    save(Path("a.npz"), **changes)
    assert message in command.fails(1, "thresholds", "a.npz")


def test_wrong_use_is_named(command, home, tmp_path):
    assert "'nowhere' does not exist" in command.fails(2, "thresholds", "nowhere")
    assert "must end in .svg" in command.fails(2, "thresholds", home / "run", "--out", "a.png")
    assert "--round has no effect" in command.fails(2, "thresholds", save(Path("a.npz")), "--round", "1")
    assert "--max-error" in command.fails(2, "thresholds", "a.npz", "--max-error", "2")
    assert "'delta' argument must be a number in (0, 1)" in command.fails(1, "thresholds", "a.npz", "--delta", "0")
    Path("mine.svg").write_text("kept")
    assert "exists and is kept" in command.fails(1, "thresholds", home / "run", "--out", "mine.svg")
    assert Path("mine.svg").read_text() == "kept"


def test_a_run_without_validation_set_is_named(command, tmp_path):
    for _ in start(tmp_path / "run", small_settings(tmp_path, max_rounds=0)):
        pass
    line = command.fails(1, "thresholds", tmp_path / "run")
    assert "has no validation set with labels" in line
    assert "surelabel fit --validation" in line
