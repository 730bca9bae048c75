"""Rare files: blocks of empty lines, ids that look like numbers, lists where none may be, a lone "true"."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from surelabel.data.tables import read_table
from surelabel.data.training_set import make_problem
from surelabel.errors import DataError


def test_a_block_of_empty_lines_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,pet\n1,cat\n2,dog\n" + "\n" * 1_200_000)
    assert read_table(tmp_path / "a.csv", labels=["pet"]).y.tolist() == ["cat", "dog"]


def test_string_ids_of_an_archive_stay_strings(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((2, 2)), ids=np.array(["1", "2"]))
    assert read_table(tmp_path / "a.npz").ids.tolist() == ["1", "2"]


@pytest.mark.parametrize("options", [{"labels": ["pet"], "id_column": "b"}, {"labels": ["b", "c"], "drop": ["pet"]}])
def test_lists_are_read_as_the_one_label_column_alone(tmp_path: Path, options: dict[str, Any]) -> None:
    columns = {"a": [1.0, 2.0], "pet": ["cat", "dog"], "b": [["1", "0"], ["1"]], "c": [["0"], ["1"]]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    drop = [name for name in ("b", "c") if name not in (*options["labels"], options.get("id_column"))]
    with pytest.raises(DataError, match="column 'b', row 1: its type list.* cannot hold labels or ids"):
        read_table(tmp_path / "a.parquet", **{"drop": drop, **options})


def test_true_is_a_number_among_booleans_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,pet\ntrue,cat\n0,dog\nFalse,\n")
    assert read_table(tmp_path / "a.csv", labels=["pet"]).x.tolist() == [[1.0], [0.0], [0.0]]
    (tmp_path / "b.csv").write_text("a,pet\n0.1,cat\ntrue,dog\n")
    with pytest.raises(DataError, match="column 'a', row 2: 'true' is not a number"):
        read_table(tmp_path / "b.csv", labels=["pet"])


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, bool, np.int8])
def test_labels_of_several_classes_may_be_of_any_integer_kind(kind: Any) -> None:
    problem = make_problem((np.ones((2, 3)), np.array([[1, 0], [0, 1]], kind)), np.ones((1, 3)), "multi")
    assert problem.num_classes == 2
