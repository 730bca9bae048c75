import csv
import math
import os
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surelabel.core.metrics import paired_difference
from surelabel.errors import InvalidInputError, RunError
from surelabel.reproduce.results import COLUMNS, append_rows, read_rows


def row(**values: Any) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), **values}


def test_the_columns_are_those_that_the_design_names() -> None:
    assert ", ".join(COLUMNS) == (
        "experiment, row, dataset, labels, validation_labels, split_hash, seed, metric, value, paper, rounds, epochs, "
        "images_seen, minutes, device, torch, commit, settings"
    )


def test_a_missing_file_is_made_with_its_folder_and_header(tmp_path: Path) -> None:
    path = tmp_path / "results" / "runs.csv"
    append_rows(path, [row(experiment="tables", seed=3, value=91.25)])
    lines = path.read_text().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert lines[1] == "tables,,,,,,3,,91.25,,,,,,,,,"
    assert [file.name for file in path.parent.iterdir()] == ["runs.csv"]


def test_rows_are_appended_behind_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    append_rows(path, [row(row="first")])
    before = path.read_bytes()
    append_rows(str(path), [row(row="second"), row(row="third")])
    assert path.read_bytes().startswith(before)
    assert [entry["row"] for entry in read_rows(path)] == ["first", "second", "third"]


def test_commas_quotes_and_line_breaks_survive(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    device = 'cpu (2 threads, "Xeon, 2.1 GHz")\nsecond line'
    append_rows(path, [row(device=device), row(device="plain")])
    append_rows(path, [row(device=device)])
    assert [entry["device"] for entry in read_rows(path)] == [device, "plain", device]


def test_a_file_whose_last_line_has_no_end_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    append_rows(path, [row(row="first")])
    path.write_text(path.read_text().rstrip("\n"))
    append_rows(path, [row(row="second")])
    assert [entry["row"] for entry in read_rows(path)] == ["first", "second"]


def test_nothing_to_append_still_makes_a_readable_file(tmp_path: Path) -> None:
    append_rows(tmp_path / "runs.csv", [])
    append_rows(tmp_path / "runs.csv", [row(row="only")])
    assert [entry["row"] for entry in read_rows(tmp_path / "runs.csv")] == ["only"]


def test_a_missing_file_has_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "runs.csv") == []


def test_another_header_is_refused_and_the_file_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bench.csv"
    path.write_text("what,model\nspeed,CNN-13\n")
    with pytest.raises(InvalidInputError, match=r"bench.csv' must have the columns .* Got what, model instead. Move"):
        append_rows(path, [row()])
    with pytest.raises(InvalidInputError, match="must have the columns"):
        read_rows(path)
    assert path.read_text() == "what,model\nspeed,CNN-13\n"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a" * 200_000])
def test_what_is_no_table_of_results_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="runs.csv' is not a CSV file of results .* append to another file"):
        read_rows(path)
    assert path.read_bytes() == content


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs.csv")
    with pytest.raises(RunError, match="runs.csv' cannot be read .it is not a plain file"):
        read_rows(tmp_path / "runs.csv")


def test_rows_with_other_columns_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    incomplete = {name: 1 for name in COLUMNS if name != "seed"}
    with pytest.raises(AssertionError):
        append_rows(tmp_path / "runs.csv", [row(), {**incomplete, "speed": 1}])
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_replaced_whole_so_a_reader_keeps_what_it_opened(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    append_rows(path, [row(row="first")])
    with path.open() as reader:
        append_rows(path, [row(row="second")])
        assert [entry["row"] for entry in csv.DictReader(reader)] == ["first"]


def test_the_interval_of_a_hand_worked_example() -> None:
    # d = 1, 2, 3: mean 2, standard deviation 1, t(2) = 4.30265, half width 4.30265 / sqrt(3).
    mean, low, high = paired_difference([3.0, 5.0, 7.0], [2.0, 3.0, 4.0])
    assert mean == pytest.approx(2.0)
    assert low == pytest.approx(2.0 - 2.484138, abs=1e-5)
    assert high == pytest.approx(2.0 + 2.484138, abs=1e-5)


# Quantiles of Student's t at 97.5 %, from a printed table.
@pytest.mark.parametrize(("number", "t"), [(2, 12.706), (5, 2.776), (10, 2.262), (20, 2.093), (30, 2.045)])
def test_the_width_follows_the_printed_quantiles(number: int, t: float) -> None:
    a = [float(value * value % 7) for value in range(number)]
    b = [float(value % 3) for value in range(number)]
    difference = [x - y for x, y in zip(a, b, strict=True)]
    interval = paired_difference(a, b)
    half = t * statistics.stdev(difference) / math.sqrt(number)
    assert interval.high - interval.mean == pytest.approx(half, rel=1e-3, abs=1e-12)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=2, max_size=30))
def test_swapping_the_two_mirrors_the_interval(pairs: list[tuple[float, float]]) -> None:
    a, b = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    one, other = paired_difference(a, b), paired_difference(b, a)
    assert one.low <= one.mean <= one.high
    assert (one.mean, one.low, one.high) == pytest.approx((-other.mean, -other.high, -other.low))


def test_a_constant_difference_has_no_width() -> None:
    assert paired_difference([2.0, 3.0, 4.0], [1.0, 2.0, 3.0]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("a", "b"), [([1.0], [2.0]), ([1.0, 2.0], [1.0, 2.0, 3.0]), ([[1.0, 2.0]], [[1.0, 2.0]])])
def test_unpaired_values_are_refused(a: Any, b: Any) -> None:
    with pytest.raises(InvalidInputError, match="must be paired values of at least two seeds. Got shapes"):
        paired_difference(a, b)


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="must be finite"):
        paired_difference([1.0, math.nan], [1.0, 2.0])
