"""`surelabel label` of a pool in shards: what its parts say, going on, and what is refused."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_support import LOGISTIC, QUICK, Command, blobs, write_blobs
from shards_support import in_store

from surelabel.cli import main
from surelabel.cluster.labeling import LabelJob
from surelabel.data.shards import Place, Shard
from surelabel.errors import DataError
from surelabel.runs import RunFolder
from surelabel.runs.parts import part_name

pytestmark = pytest.mark.usefixtures("short_fits")

NETWORK = """
from torch import nn

def make(shape, classes):
    return nn.Sequential(nn.Linear(*shape, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, classes))
"""
COLUMNS = ["id", "label", "confidence", "uncertainty", "selected", "ruled_out"]


def write_shard(path: Path, rows: int, seed: int, group: int = 7, **changes: Any) -> None:
    columns = {**blobs(num_rows=rows, num_labeled=0, seed=seed), "id": [f"{path.stem}-{row}" for row in range(rows)]}
    del columns["pet"]
    pq.write_table(pa.table({**columns, **changes}), path, row_group_size=group)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a network, one of scikit-learn, and a pool of three shards, of which the last is empty."""
    folder = tmp_path_factory.mktemp("pool")
    write_blobs(folder / "pets.csv", **blobs())
    words = ["fit", folder / "pets.csv", "--label", "pet", "--id", "id", "--quiet"]
    for name, options in (("net", QUICK), ("logistic", LOGISTIC)):
        assert main([str(word) for word in (*words, *options, "--out", folder / name)]) == 0
    (folder / "pool/b").mkdir(parents=True)
    write_shard(folder / "pool/a.parquet", 20, seed=1)
    write_shard(folder / "pool/b/c.parquet", 13, seed=2)
    write_shard(folder / "pool/d.parquet", 0, seed=3, width=pa.array([], pa.float64()))
    return folder


@pytest.fixture
def home(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that a test may change, as the current folder."""
    shutil.copytree(made, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def assert_alike(part: pa.Table, file: pa.Table) -> None:
    """The last bits may differ: BLAS adds in another order where the rows are others."""
    for name in part.column_names:
        rounded = pa.types.is_floating(part.schema.field(name).type)
        cells = file[name].to_pylist()
        assert part[name].to_pylist() == (pytest.approx(cells, rel=1e-5) if rounded else cells), name


def content(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*.parquet"))}


def test_each_shard_has_a_part_with_the_labels_that_a_file_of_it_would_have(command: Command, home: Path) -> None:
    result = command("label", "logistic", "pool/", "--out", "labels/")
    assert (result.code, result.out) == (0, "")
    assert "3 shards with 33 samples are labeled and " in result.err
    assert list(content("labels")) == ["a.parquet", "b/c.parquet", "d.parquet"]
    for name in ("a", "b/c"):
        assert command("label", "logistic", f"pool/{name}.parquet", "--out", "one.parquet", "--force").code == 0
        part = pq.read_table(f"labels/{name}.parquet")
        assert part.column_names == COLUMNS
        # A classifier's labels do not depend on chunks.
        assert_alike(part, pq.read_table("one.parquet"))
        assert any(cell == "positive" for cell in part["selected"].to_pylist())
    assert pq.read_table("labels/d.parquet").num_rows == 0


def test_a_part_says_what_made_it(command: Command, home: Path) -> None:
    assert command("label", "net", "pool/*.parquet", "--out", "labels").code == 0
    note = json.loads(pq.read_metadata("labels/a.parquet").metadata[b"surelabel"])
    assert note["made_with"]["model"] == RunFolder.open("net").model_hash
    assert note["made_with"]["thresholds"].startswith("tau_p 0.7, tau_n 0.05, kappa_p 0.1")
    assert (note["shard"], note["rows"], note["of"]) == (
        "a.parquet",
        20,
        f"{Path('pool/a.parquet').stat().st_size} bytes",
    )


def test_two_processes_write_the_same_bytes_as_one(command: Command, home: Path) -> None:
    assert command("label", "net", "pool/", "--out", "one/").code == 0
    assert command("label", "net", "pool/", "--out", "two/", "--workers", 2).code == 0
    assert content("one") == content("two")


def test_the_same_command_makes_only_what_is_missing(command: Command, home: Path) -> None:
    words = ("label", "net", "pool/", "--out", "labels/")
    assert command(*words).code == 0
    whole, kept = content("labels"), os.stat("labels/a.parquet").st_mtime_ns
    Path("labels/b/c.parquet").unlink()
    left, young = (Path(f"labels/b/.c.parquet.{number}abcdef.writing") for number in (10, 20))
    for file in (left, young):  # of writers that were killed, one of them just now
        file.touch()
    os.utime(left, (time.time() - 90_000,) * 2)
    assert "3 shards with 33 samples are labeled, 2 of them before, and " in command(*words).err
    assert content("labels") == whole
    assert os.stat("labels/a.parquet").st_mtime_ns == kept
    assert (left.exists(), young.exists()) == (False, True)
    assert "labeled, 3 of them before, and" in command(*words).err


@pytest.mark.filterwarnings("default:.* is damaged")
@pytest.mark.parametrize("column", COLUMNS)
def test_a_part_that_is_damaged_inside_is_made_again(command: Command, home: Path, column: str) -> None:
    words = ("label", "net", "pool/", "--out", "labels/")
    assert command(*words).code == 0
    whole = content("labels")
    damage(Path("labels/a.parquet"), column)
    result = command(*words)
    assert result.code == 0
    assert "warning: 'a.parquet' in 'labels/' is damaged; its shard is labeled again." in result.err
    assert "3 shards with 33 samples are labeled, 2 of them before," in result.err
    assert content("labels") == whole


def damage(part: Path, column: str) -> None:
    """Change the last byte of a column's first page of values."""
    group = pq.read_metadata(part).row_group(0)
    (place,) = (place for place in range(group.num_columns) if group.column(place).path_in_schema == column)
    found = group.column(place)
    start = found.dictionary_page_offset or found.data_page_offset
    data = bytearray(part.read_bytes())
    data[start + found.total_compressed_size - 1] ^= 1
    part.write_bytes(data)


@pytest.mark.parametrize(
    ("ends_at", "kept", "note"),
    [
        ("b/c.parquet", ["a.parquet"], "The parts that are complete stay in 'labels/'; the same command goes on"),
        ("a.parquet", [], "No part is complete yet; the same command begins again"),
    ],
)
def test_ctrl_c_says_what_stays_and_how_to_go_on(
    command: Command, home: Path, monkeypatch: pytest.MonkeyPatch, ends_at: str, kept: list[str], note: str
) -> None:
    label = LabelJob.__call__

    def interrupted(job: LabelJob, shard: Shard) -> Any:
        if shard.name == ends_at:
            raise KeyboardInterrupt
        return label(job, shard)

    monkeypatch.setattr(LabelJob, "__call__", interrupted)
    result = command("label", "net", "pool/", "--out", "labels/")
    first, second = result.err.splitlines()
    assert (result.code, first) == (130, "error: interrupted.")
    assert second.startswith(f"note: {note}")
    assert list(content("labels")) == kept


def test_parts_of_something_else_are_refused_before_anything_is_labeled(command: Command, home: Path) -> None:
    assert command("label", "net", "pool/a.parquet", "--out", "labels/").code == 0
    models = [RunFolder.open(name).model_hash for name in ("net", "logistic")]
    other = command.fails(1, "label", "logistic", "pool/b/", "--out", "labels/")
    assert other == (
        f"'a.parquet' in 'labels/' was made differently: model {models[0]}, not {models[1]}; "
        "name another folder with --out, or remove such parts."
    )
    numbered = command.fails(1, "label", "net", "pool/", "--id", "", "--out", "labels/")
    assert "was made differently: ids from column 'id', not by number or file; name" in numbered
    write_shard(Path("pool/a.parquet"), 21, seed=1)
    changed = command.fails(1, "label", "net", "pool/", "--out", "labels/")
    assert "'a.parquet' in 'labels/' is of another shard 'a.parquet' (" in changed
    shutil.copy("pool/a.parquet", "labels/a.parquet")
    foreign = command.fails(1, "label", "net", "pool/", "--out", "labels/")
    assert foreign.startswith("'a.parquet' in 'labels/' is no part that surelabel wrote, or is damaged; name another")
    assert list(content("labels")) == ["a.parquet"]


def test_parts_that_cannot_be_reached_are_not_taken_for_others(
    command: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("label", "net", "pool/", "--out", "labels/")
    assert command(*words).code == 0

    def lost(place: Place, name: str) -> None:
        raise DataError(f"'{place.text}' cannot be reached.")

    monkeypatch.setattr(Place, "open", lost)
    assert command.fails(1, *words) == "'labels/' cannot be reached."


def test_a_corrupt_shard_is_named_or_left_out_and_tried_again(command: Command, home: Path) -> None:
    whole = Path("pool/a.parquet").read_bytes()
    Path("pool/a.parquet").write_bytes(whole[:-100])
    words = ("label", "net", "pool/", "--out", "labels/")
    stopped = command.fails(1, *words)
    assert "a.parquet' is damaged or not really Parquet" in stopped
    assert stopped.endswith("Or leave such shards out: --on-error skip.")
    skipped = command(*words, "--on-error", "skip")
    assert skipped.code == 0
    assert "warning: 1 of 3 shards cannot be read and are left out." in skipped.err
    assert "warning: 'a.parquet' is left out: File " in skipped.err
    assert list(content("labels")) == ["b/c.parquet", "d.parquet"]
    Path("pool/a.parquet").write_bytes(whole)
    assert command(*words, "--on-error", "skip").code == 0
    assert list(content("labels")) == ["a.parquet", "b/c.parquet", "d.parquet"]


def test_each_shard_that_is_left_out_has_a_line(command: Command, home: Path) -> None:
    for number in range(5):
        Path(f"pool/{number}.parquet").write_bytes(b"no table" * number)
    lines = command("label", "net", "pool/", "--out", "labels/", "--on-error", "skip").err.splitlines()
    assert lines[0] == "warning: 5 of 8 shards cannot be read and are left out."
    for number, line in enumerate(lines[1:6]):
        assert line.startswith(f"warning: '{number}.parquet' is left out: File '{home}/pool/{number}.parquet' ")


def test_shards_out_of_reach_end_the_command_also_where_others_are_left_out(
    command: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_store(monkeypatch, "open_input_file", "open_input_stream")
    problem = command.fails(1, "label", "net", "pool/", "--out", "labels/", "--on-error", "skip")
    assert problem.startswith("'pool/' cannot be reached (AWS Error NETWORK_CONNECTION")
    assert "--on-error" not in problem


def test_a_pool_of_which_nothing_can_be_read_is_an_error(command: Command, home: Path) -> None:
    Path("bad").mkdir()
    for name in "ab":
        Path(f"bad/{name}.parquet").write_bytes(b"")
    failed = command.fails(1, "label", "net", "bad", "--out", "labels/", "--on-error", "skip")
    assert failed.startswith("None of the 2 shards can be read. File '")


def test_an_id_of_two_samples_is_named_with_its_shards(command: Command, home: Path) -> None:
    ids = [f"c-{row}" for row in range(12)] + ["a-3"]
    write_shard(Path("pool/b/c.parquet"), 13, seed=2, id=ids)
    words = ("label", "net", "pool/", "--out", "labels/")
    result = command(*words)
    remedy = "correct the ids, or number the rows of each shard with --id ''."
    assert (result.code, result.err.splitlines()[-1]) == (
        1,
        f"error: The id 'a-3' is in 'a.parquet' and in 'b/c.parquet'; {remedy}",
    )
    assert command("label", "net", "pool/", "--id", "", "--out", "numbered/").code == 0
    assert pq.read_table("numbered/b/c.parquet")["id"].to_pylist() == list(range(13))
    shutil.rmtree("pool/b")
    write_shard(Path("pool/a.parquet"), 9, seed=2, group=4, id=[1, 2, 3, 4, 1, 6, 7, 8, 9])
    twice = command("label", "net", "pool/", "--out", "more/")
    assert twice.err.splitlines()[-1] == f"error: The id 1 is twice in 'a.parquet'; {remedy}"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("pool/", "--out", "labels/", "--force"), "--force has no effect with a folder as --out; leave it out"),
        (("pool/", "--out", "labels/", "--excel-safe"), "--excel-safe has no effect with a folder as --out"),
        (("pool/", "--out", "labels/", "--entries"), "--entries has no effect: the run has one label a sample"),
        (("pool/", "--out", "pool/"), "Invalid value for '--out': 'pool/' lies in INPUT; name a folder outside of it."),
        (
            ("pool/", "--out", "./net/"),
            "Invalid value for '--out': './net/' is the run's own folder; name another one.",
        ),
        (("pool/", "--out", "pool/b/labels/"), "Invalid value for '--out': 'pool/b/labels/' lies in INPUT"),
        (("pool/*/*.parquet", "--out", "pool/b/"), "Invalid value for '--out': 'pool/b/' lies in INPUT"),
        (("pool/a.parquet", "--out", "a.csv", "--workers", "2"), "--workers has no effect on one file of labels"),
        (("pool/a.parquet", "--engine", "ray"), "--engine has no effect on one file of labels; name a folder"),
        (("pool/*.parquet", "--out", "a.csv"), "Invalid value for 'INPUT': 'pool/*.parquet' names a pool of shards"),
        (
            ("s3://bucket/pool/",),
            "Invalid value for 'INPUT': 's3://bucket/pool/' names a pool of shards; name a folder",
        ),
    ],
)
def test_options_that_do_not_go_together(command: Command, home: Path, words: tuple[str, ...], problem: str) -> None:
    assert command.fails(2, "label", "net", *words).startswith(problem)
    assert not Path("labels").exists()


def test_what_is_no_pool_of_the_run_is_named(command: Command, home: Path) -> None:
    one = command.fails(1, "label", "net", "pets.csv", "--out", "labels/")
    assert one == "'pets.csv' names 'pets.csv'; the run learned from tables, and reads .parquet. Name such files."
    assert "No shard is in 'nowhere/' (*.parquet)" in command.fails(1, "label", "net", "nowhere/", "--out", "labels/")
    others = command.fails(1, "label", "net", "*.csv", "--out", "labels/")
    assert others == ("'*.csv' names 'pets.csv'; the run learned from tables, and reads .parquet. Name such files.")
    Path("pool/a.parquet").rename("pool/d.parquet.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("surelabel.runs.parts.part_name", lambda name: part_name(name.removesuffix(".parquet")))
        twice = command.fails(1, "label", "net", "pool/*.parquet", "--out", "labels/")
    assert twice == "Two shards would have the part 'd.parquet'; rename 'd.parquet.parquet'."


def test_a_folder_inside_the_current_one_is_no_part_of_a_pattern_of_it(command: Command, home: Path) -> None:
    os.chdir("pool")
    for _ in range(2):
        assert command("label", "../net", "*.parquet", "--out", "labels/").code == 0
    assert list(content("labels")) == ["a.parquet", "d.parquet"]


def test_code_of_someone_else_is_run_by_no_worker(
    command: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("net.py").write_text(NETWORK)
    words = ("--label", "pet", "--id", "id", "--model", "net.py:make", *QUICK[:2], *QUICK[4:], "--quiet")
    assert command("fit", "pets.csv", *words, "--out", "own").code == 0
    monkeypatch.setenv("SURELABEL_CONFIG", str(home / "someone-else"))
    Path("net.py").write_text("raise SystemExit('this code was run')")
    refused = command.fails(1, "label", "own", "pool/", "--workers", 2, "--out", "labels/")
    assert "net.py:make', and the run is not signed by you" in refused


@pytest.mark.parametrize("entries", [False, True])
def test_several_labels_have_the_columns_of_a_file(command: Command, home: Path, entries: bool) -> None:
    both = [*(cell for row in range(10) for cell in ("cat", "dog|cat")[row % 2 :][:1]), *[None] * 50]
    write_blobs(Path("both.csv"), **{**blobs(), "pet": both})
    words = ("--label", "pet", "--separator", "|", "--id", "id", *LOGISTIC, "--quiet")
    assert command("fit", "both.csv", *words, "--out", "both").code == 0
    more = ("--entries",) if entries else ()
    assert command("label", "both", "pool/", *more, "--out", "labels/").code == 0
    assert command("label", "both", "pool/a.parquet", *more, "--out", "one.parquet").code == 0
    part, one = pq.read_table("labels/a.parquet"), pq.read_table("one.parquet")
    assert_alike(part, one)
    assert part.num_rows == (40 if entries else 20)
    other = command.fails(1, "label", "both", "pool/", *(() if entries else ("--entries",)), "--out", "labels/")
    assert "was made differently: rows one for each sample" in other
