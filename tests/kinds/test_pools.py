"""Rounds over pools of pictures in shards: in a column, in tar files and loose, read as the labeled ones are."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Command
from folder_support import QUICK, write_folder
from packed_support import classes, pictures, write_parquet, write_shards

from surelabel.runs import RunFolder


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def columns(pool: Path) -> None:
    pool.mkdir()
    write_parquet(pool / "a.parquet", pictures(17, 1), None)
    write_parquet(pool / "b.parquet", pictures(11, 2), None)


def tars(pool: Path) -> None:
    write_shards(pool, pictures(28, 1), classes(28, 0))


@pytest.mark.parametrize("write", [columns, tars])
def test_packed_pictures_are_a_pool(command: Command, write: Callable[[Path], None]) -> None:
    write_parquet(Path("labeled.parquet"), pictures(8), classes(8))
    write(Path("pool"))
    words = ["labeled.parquet", "--label", "y", "--pool", "pool", "--out", "run", *QUICK]
    result = command("fit", *[word for word in words if word != "--no-compare"])
    assert (result.code, result.err) == (0, "")
    assert "8 labeled, 28 unlabeled" in result.out
    pool = RunFolder.open("run").pool()
    assert pool.ids.tolist() == list(range(28))
    assert set(pool.label.tolist()) == {0, 1}
    assert command("resume", "run", "--rounds", "2").code == 0
    assert command("report", "run", "--out", "report.html").code == 0
    assert "cannot be read" not in Path("report.html").read_text()


def test_tar_files_of_one_name_and_content_have_ids_twice(command: Command) -> None:
    write_parquet(Path("labeled.parquet"), pictures(8), classes(8))
    for folder in ("pool/a", "pool/b"):
        write_shards(Path(folder), pictures(4, 1), classes(4, 0))
    assert command("fit", "labeled.parquet", "--label", "y", "--pool", "pool", "--out", "run", *QUICK).code == 0
    result = command("label", "run", "pool", "--out", "labels/")
    assert result.code == 1
    remedy = "rename one of the files."
    assert result.err.splitlines()[-1] == (
        f"error: The id '000.tar/000' is in 'a/000.tar' and in 'b/000.tar'; {remedy}"
    )


def test_loose_files_are_a_pool(command: Command) -> None:
    write_folder(Path("labeled"), pool=0)
    write_folder(Path("pool"), labeled=5, pool=0, first=50)
    result = command("fit", "labeled", "--pool", "pool", "--out", "run", *QUICK)
    assert (result.code, result.err) == (0, "")
    assert len(RunFolder.open("run").pool()) == 10


def test_labeled_pictures_are_no_pool(command: Command) -> None:
    write_folder(Path("labeled"), pool=0)
    write_shards(Path("tars"), pictures(8, 1), classes(8))
    for data in ("labeled", "tars"):
        problem = command.fails(1, "fit", data, "--pool", data, "--out", "run", *QUICK)
        assert problem.startswith(f"The pool '{Path(data).resolve()}' has the file '")
        assert "', which is given with its labels; move it" in problem


def test_a_table_is_no_pool_for_pictures(command: Command) -> None:
    write_folder(Path("labeled"), pool=0)
    Path("pool").mkdir()
    Path("pool/a.csv").write_text("a,b\n1,2\n")
    assert "No shard is in" in command.fails(1, "fit", "labeled", "--pool", "pool", "--out", "run", *QUICK)
