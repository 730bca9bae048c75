"""The soak of rounds over shards kills what it says, compares both runs, and its rows have the results' form."""

import csv
from pathlib import Path

import pytest

from benchmarks import rounds_at_scale as soak


@pytest.mark.slow
def test_rows_say_how_fast_it_was_and_how_much_was_done_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--samples", "12000", "--shards", "24", "--rounds", "0", "--folder", str(tmp_path / "soak")]
    soak.main([*words, "--results", str(tmp_path)])
    with (tmp_path / "scale.csv").open(newline="") as file:
        rows = {row["what"].partition("2 local workers")[2]: row for row in csv.DictReader(file)}
    assert {", undisturbed", ", killed", ", killed: memory of a worker", ": rows labeled twice after 3 kills"} < {*rows}
    assert 0 < int(rows[": rows labeled twice after 3 kills"]["samples"]) < 12_000
    assert int(rows[", undisturbed: memory of a driver"]["peak_mib"]) > 50
    assert "the same, bit for bit" in capsys.readouterr().out
