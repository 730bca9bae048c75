"""Rounds over pools of pictures in shards: in a column, in tar files and loose, read as the labeled ones are."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
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


def damaged(file: bytes) -> bytes:
    """Return a file of the same length that is no picture."""
    return bytes(len(file))


def columns_with_damage(pool: Path) -> list[str]:
    files = pictures(17, 1)
    pool.mkdir()
    cells = [damaged(file) if place in (3, 16) else file for place, file in enumerate(files)]
    write_parquet(pool / "a.parquet", cells, None)
    return ["a.parquet: 3", "a.parquet: 16"]


def tars_with_damage(pool: Path) -> list[str]:
    files = pictures(17, 1)
    write_shards(pool, [damaged(file) if place == 4 else file for place, file in enumerate(files)], classes(17, 0))
    return ["000.tar/004"]


def files_with_damage(pool: Path) -> list[str]:
    """All of the first block cannot be read."""
    write_folder(pool, labeled=5, pool=7, first=50)
    names = [f"cat/{number}.png" for number in range(3)] + ["unlabeled/6.png"]
    for name in names:
        (pool / name).write_bytes(damaged((pool / name).read_bytes()))
    return names


@pytest.mark.filterwarnings("default:.* left out")
@pytest.mark.parametrize("write", [columns_with_damage, tars_with_damage, files_with_damage])
def test_pictures_that_cannot_be_read_are_left_out_one_by_one(
    command: Command, write: Callable[[Path], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surelabel.kinds.shard_files.FILES_OF_A_BLOCK", 3)
    write_parquet(Path("labeled.parquet"), pictures(8), classes(8))
    names = write(Path("pool"))
    skip = ("--on-error", "skip")
    fitted = command("fit", "labeled.parquet", "--label", "y", "--pool", "pool", "--out", "run", *QUICK, *skip)
    assert fitted.code == 0
    listed = ", ".join(f"'{name}'" for name in names)
    assert f"{len(names)} of 17 samples in '" in fitted.err
    assert f"cannot be read and are left out: {listed}. Picture '" in fitted.err
    assert f"{17 - len(names)} rows to label" in fitted.out
    assert len(RunFolder.open("run").pool()) == 17 - len(names)
    resumed = command("resume", "run", "--rounds", "2")
    assert (resumed.code, resumed.err) == (0, "")
    assert command("label", "run", "pool", "--out", "labels/", *skip).code == 0
    parts = [pq.read_table(part) for part in sorted(Path("labels").iterdir())]
    labels = [confidence for part in parts for confidence in part["confidence"].to_pylist()]
    assert labels == RunFolder.open("run").pool().confidence.tolist()


@pytest.mark.filterwarnings("default:.* left out")
def test_what_was_left_out_stays_out_and_nothing_else_is(command: Command) -> None:
    write_parquet(Path("labeled.parquet"), pictures(8), classes(8))
    files_with_damage(Path("pool"))
    words = ("labeled.parquet", "--label", "y", "--pool", "pool", "--out", "run", *QUICK, "--on-error", "skip")
    assert command("fit", *words).code == 0
    write_folder(Path("whole"), labeled=5, pool=7, first=50)
    shutil.copy("whole/cat/0.png", "pool/cat/0.png")
    assert command("resume", "run", "--rounds", "2").code == 0
    assert len(RunFolder.open("run").pool()) == 13
    whole = Path("pool/dog/1.png").read_bytes()
    Path("pool/dog/1.png").write_bytes(damaged(whole))
    assert "dog/1.png' is " in command.fails(1, "resume", "run", "--rounds", "3")


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
