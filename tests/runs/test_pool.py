"""Rounds over a pool in shards: the same labels however they come about, and one line for what cannot be used."""

import hashlib
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shards_support import NAMES, Workers, blobs, in_store, pool_settings, write_labeled, write_pool, write_shard
from small_runs import CONFIG, assert_same_pool, difference

from surelabel.base.together import Alone
from surelabel.data.pool import ROWS_IN_MEMORY
from surelabel.data.run_data import TableData
from surelabel.data.sharded import PoolShards, ShardedSource
from surelabel.data.tables import write_table
from surelabel.errors import (
    ChangedFileError,
    DataError,
    InvalidInputError,
    UnreachableError,
    UntrustedCodeError,
)
from surelabel.runs import RunFolder
from surelabel.runs.labeling import ShardLabeler
from surelabel.runs.pool import with_pool
from surelabel.runs.session import resume, start
from surelabel.runs.writing import write_settings
from surelabel.settings import ComparisonSettings, SklearnLearnerSettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a pool, and a run of rounds 0 to 2 that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    list(start(folder / "run", pool_settings(folder)))
    return folder


def test_a_run_keeps_labels_of_all_samples_in_the_order_of_the_shards(folder: Path) -> None:
    run = RunFolder.open(folder / "run")
    assert [record.round for record in run.records()] == [0, 1, 2]
    assert run.records()[-1].num_positive > 20
    assert run.pool().ids.tolist() == list(range(100))
    assert run.settings.pool is not None
    sizes = [(folder / "pool" / f"{number}.parquet").stat().st_size for number in range(3)]
    assert run.settings.pool.shards == tuple(
        zip(["0.parquet", "1.parquet", "2.parquet"], sizes, [47, 20, 33], strict=True)
    )
    assert not list((folder / "run").rglob("parts"))


def test_workers_say_the_same(folder: Path, tmp_path: Path) -> None:
    workers = Workers()
    list(start(tmp_path / "run", pool_settings(folder), in_workers=workers))
    assert sorted(workers.done) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert difference(tmp_path / "run", folder / "run") == ""


@pytest.mark.parametrize("ends_after", [0, 1, 4])
def test_a_run_that_was_killed_while_it_labels_does_what_is_missing(
    folder: Path, tmp_path: Path, ends_after: int
) -> None:
    first, second = Workers(ends_after), Workers()
    with pytest.raises(KeyboardInterrupt):
        list(start(tmp_path / "run", pool_settings(folder), in_workers=first))
    list(resume(tmp_path / "run", in_workers=second))
    assert sorted(first.done + second.done) == [0, 0, 0, 1, 1, 1, 2, 2, 2]  # none twice
    assert difference(tmp_path / "run", folder / "run") == ""


def test_a_trained_network_is_not_trained_again_after_a_kill_while_it_labels(tmp_path: Path) -> None:
    """Labeling may take hours, and on a GPU another training would make the parts another network's."""
    with pytest.raises(KeyboardInterrupt):
        list(start(tmp_path / "run", pool_settings(tmp_path), in_workers=Workers(1)))
    done: list[str] = []
    following = resume(tmp_path / "run", progress=lambda what, *_: done.append(what))
    assert next(following).round == 0
    assert set(done) == {"label"}


def test_a_run_that_was_killed_while_it_trains_ends_the_same(folder: Path, tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == "train" and done > 2 and (tmp_path / "run" / "rounds" / "000" / "pool.parquet").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(start(tmp_path / "run", pool_settings(folder), progress=interrupt))
    assert RunFolder.open(tmp_path / "run").num_rounds == 1
    list(resume(tmp_path / "run"))
    assert difference(tmp_path / "run", folder / "run") == ""


def test_parts_that_are_damaged_or_of_another_network_are_not_taken(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        list(start(tmp_path / "run", pool_settings(folder), in_workers=Workers(2)))
    parts = tmp_path / "run" / "rounds" / "000" / "parts"
    made = [(parts / f"00000{number}.bin").read_bytes() for number in (1, 2)]
    other = made[0][32:].replace(b"1.parquet", b"9.parquet")
    (parts / "000001.bin").write_bytes(hashlib.sha256(other).digest() + other)
    (parts / "000002.bin").write_bytes(made[1][:-3] + b"abc")
    workers = Workers()
    list(resume(tmp_path / "run", in_workers=workers))
    assert sorted(workers.done) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert difference(tmp_path / "run", folder / "run") == ""


def test_labels_in_a_file_are_those_in_memory(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROWS_IN_MEMORY, "0")
    list(start(tmp_path / "run", pool_settings(folder)))
    assert difference(tmp_path / "run", folder / "run") == ""


def test_processes_that_train_together_share_the_shards(folder: Path) -> None:
    """Each labels every second shard, and all get the labels of all in the order of the shards."""
    labels = [list(labeled_by(rank, 2, folder)) for rank in range(2)]
    alone = list(labeled_by(0, 1, folder))
    for rank in range(2):
        mine, expected = labels[rank], alone[rank::2]
        assert [len(part) for part in mine] == [len(part) for part in expected]
        for part, other in zip(mine, expected, strict=True):
            np.testing.assert_array_equal(part.confidence, other.confidence)


def labeled_by(rank: int, size: int, folder: Path) -> Any:
    """Return the labels that one of several processes makes; of the others there is none."""
    run = RunFolder.open(folder / "run")
    pool, learner = run.data().unlabeled, run.learner()
    group = Alone()
    group.rank, group.size = rank, size
    labeler = ShardLabeler(folder / f"labels {rank} {size}", run.settings)
    with mock.patch("surelabel.runs.labeling.processes_of", return_value=group):
        return list(labeler(learner, pool, 3, run.settings.config, 2))


def test_several_labels_a_sample(folder: Path, tmp_path: Path) -> None:
    x, y = blobs(9, 0)
    columns = {name: (y == code).astype(int) for code, name in enumerate("abc")}
    write_table(tmp_path / "labeled.csv", {**dict(zip(NAMES, x.T, strict=True)), **columns})
    config = CONFIG.replace(task="multi", max_rounds=1, tau_p=0.6, tau_n=0.4)
    data = TableData(path=tmp_path / "labeled.csv", labels=("a", "b", "c"))
    shutil.copytree(folder / "pool", tmp_path / "pool")
    settings = pool_settings(tmp_path, data=data, config=config)
    list(start(tmp_path / "here", settings))
    list(start(tmp_path / "workers", settings, in_workers=Workers()))
    assert RunFolder.open(tmp_path / "here").pool().label.shape == (100, 3)
    assert difference(tmp_path / "workers", tmp_path / "here") == ""


def test_rows_that_are_labeled_in_part_are_refused_beside_a_pool(folder: Path, tmp_path: Path) -> None:
    x, y = blobs(9, 0)
    columns = {name: (y == code).astype(int) for code, name in enumerate("abc")}
    columns["a"][3] = -1
    write_table(tmp_path / "labeled.csv", {**dict(zip(NAMES, x.T, strict=True)), **columns})
    with pytest.raises(DataError, match="1 of the labeled samples have classes of which nothing is known; with --pool"):
        loaded(tmp_path, data=TableData(path=tmp_path / "labeled.csv", labels=("a", "b", "c")))


def test_groups_of_rows_do_not_matter_in_a_pool_of_one_window(folder: Path, tmp_path: Path) -> None:
    write_pool(tmp_path / "pool", row_group_size=7)
    list(start(tmp_path / "run", pool_settings(tmp_path)))
    for number in range(3):
        assert_same_pool(RunFolder.open(tmp_path / "run").pool(number), RunFolder.open(folder / "run").pool(number))


def test_a_pool_larger_than_its_window_trains_and_resumes(tmp_path: Path) -> None:
    """Bytes in a window: 16 rows of it are a block less than what is drawn from at a time."""
    settings = pool_settings(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("surelabel.runs.pool.MIB", 16)  # a window of one row
        list(start(tmp_path / "whole", settings))
        with pytest.raises(KeyboardInterrupt):
            list(start(tmp_path / "run", settings, in_workers=Workers(4)))
        list(resume(tmp_path / "run"))
    assert difference(tmp_path / "run", tmp_path / "whole") == ""


def test_ids_of_a_column_name_the_samples(tmp_path: Path) -> None:
    write_labeled(tmp_path / "labeled.csv", name=[f"l{row}" for row in range(9)])
    x, _ = blobs(30, 1)
    write_shard(tmp_path / "pool" / "b.parquet", x[:10], name=[f"b{row}" for row in range(10)])
    write_shard(tmp_path / "pool" / "a.parquet", x[10:], name=[f"a{row}" for row in range(20)])
    settings = pool_settings(tmp_path)
    assert isinstance(settings.data, TableData)
    list(start(tmp_path / "run", settings.replace(data=settings.data.replace(id_column="name"))))
    expected = [f"a{row}" for row in range(20)] + [f"b{row}" for row in range(10)]
    assert RunFolder.open(tmp_path / "run").pool().ids.tolist() == expected


def loaded(folder: Path, **changes: Any) -> Any:
    """Return the data of a run in `folder`, as `start` loads them."""
    settings = pool_settings(folder, **changes)
    assert settings.data is not None
    return with_pool(settings, settings.data.load())


def test_how_columns_are_read_is_learned_from_the_labeled_samples_alone(tmp_path: Path) -> None:
    kinds = ["x", "y", "x"] * 3
    write_labeled(tmp_path / "labeled.csv", kind=kinds)
    x, _ = blobs(30, 1)
    x[5, 0] = np.nan
    x[:, 1] += 1000
    write_shard(tmp_path / "pool" / "0.parquet", x, kind=["z"] * 30)
    data = loaded(tmp_path)
    columns = {column.name: column for column in data.learned["columns"]}
    assert columns["kind"].categories == ("x", "y")
    assert abs(columns["x1"].median) < 10
    row = data.unlabeled[np.array([5])][0]
    names = list(data.feature_names)
    assert row[names.index("x0")] == np.float32(columns["x0"].median)
    assert not row[[names.index(name) for name in names if name.startswith("kind")]].any()
    list(start(tmp_path / "run", pool_settings(tmp_path)))


def test_an_id_that_two_shards_have_is_refused(tmp_path: Path) -> None:
    table = write_labeled(tmp_path / "labeled.csv", name=[f"l{row}" for row in range(9)])
    x, _ = blobs(6, 1)
    write_shard(tmp_path / "pool" / "a.parquet", x[:3], name=["a", "b", "c"])
    write_shard(tmp_path / "pool" / "b.parquet", x[3:], name=["d", "b", "e"])
    with pytest.raises(DataError, match=r"id 'b' of the pool '.*' is in 'a.parquet' and 'b.parquet'; correct one"):
        loaded(tmp_path, data=TableData(path=table, labels=("label",), id_column="name"))
    table = write_labeled(tmp_path / "numbers.csv", name=list(range(9)))
    for name in "ab":
        write_shard(tmp_path / "pool" / f"{name}.parquet", x[:3], name=[10, 11, ord(name)])
    with pytest.raises(DataError, match=r"The id 10 of the pool '.*' is in 'a.parquet' and 'b.parquet'; correct one"):
        loaded(tmp_path, data=TableData(path=table, labels=("label",), id_column="name"))


def test_ids_that_need_64_bits_are_kept(tmp_path: Path) -> None:
    table = write_labeled(tmp_path / "labeled.csv", name=list(range(9)))
    large = [2**53 + 1, 2**64 - 1]
    for name, ids in (("a", np.array([9, 2**53])), ("b", np.array(large, dtype=np.uint64))):
        write_shard(tmp_path / "pool" / f"{name}.parquet", blobs(2, 1)[0], name=ids)
    data = loaded(tmp_path, data=TableData(path=table, labels=("label",), id_column="name"))
    assert data.unlabeled.ids.tolist() == [9, 2**53, *large]


def test_numbers_beside_ids_of_text_are_text(tmp_path: Path) -> None:
    table = write_labeled(tmp_path / "labeled.csv", name=[f"l{row}" for row in range(9)])
    write_shard(tmp_path / "pool" / "a.parquet", blobs(2, 1)[0], name=["x", "10"])
    write_shard(tmp_path / "pool" / "b.parquet", blobs(2, 1)[0], name=[20, 21])
    data = loaded(tmp_path, data=TableData(path=table, labels=("label",), id_column="name"))
    assert data.unlabeled.ids.tolist() == ["x", "10", "20", "21"]


def test_ids_of_text_beside_numbers_are_refused(tmp_path: Path) -> None:
    table = write_labeled(tmp_path / "labeled.csv", name=list(range(9)))
    write_shard(tmp_path / "pool" / "a.parquet", blobs(2, 1)[0], name=["20", "21"])
    with pytest.raises(
        DataError, match=r"ids in the shard 'a.parquet' are text, and .* numbers; write both as numbers"
    ):
        loaded(tmp_path, data=TableData(path=table, labels=("label",), id_column="name"))


def test_a_window_has_as_many_rows_as_its_size_holds(tmp_path: Path) -> None:
    pool = PoolShards(place=str(tmp_path / "pool"), window_mib=3)
    assert loaded(tmp_path, pool=pool).unlabeled.window == 3 * 2**20 // (4 * 4)


def test_progress_counts_the_samples_that_are_labeled(tmp_path: Path) -> None:
    told = list[tuple[int, int]]()
    settings = pool_settings(tmp_path, config=CONFIG.replace(max_rounds=0))

    def note(stage: str, done: int, total: int) -> None:
        if stage == "label":
            told.append((done, total))

    list(start(tmp_path / "run", settings, progress=note))
    assert told == [(47, 100), (67, 100), (100, 100)]


def test_a_shard_without_a_feature_is_named(tmp_path: Path) -> None:
    settings = pool_settings(tmp_path)
    x, _ = blobs(6, 1)
    path = tmp_path / "pool" / "bad.parquet"
    write_shard(path, x)
    pq.write_table(pq.read_table(path).drop(["x2"]), path)
    assert settings.data is not None
    with pytest.raises(DataError, match=r"bad.parquet' lacks 1 of the 4 feature columns .* 'x2'"):
        with_pool(settings, settings.data.load())


def test_a_damaged_shard_stops_or_is_left_out(tmp_path: Path) -> None:
    settings = pool_settings(tmp_path)
    (tmp_path / "pool" / "1.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"1.parquet' .* Or leave such shards out: --on-error skip"):
        loaded(tmp_path)
    assert settings.pool is not None
    skipping = settings.replace(pool=settings.pool.replace(on_error="skip"))
    with pytest.warns(UserWarning, match=r"1 of 3 shards in '.*' cannot be read and are left out: '1.parquet'"):
        list(start(tmp_path / "run", skipping.replace(config=CONFIG.replace(max_rounds=0))))
    run = RunFolder.open(tmp_path / "run")
    assert run.settings.pool is not None
    assert run.settings.pool.skipped == ("1.parquet",)
    assert len(run.pool()) == 80
    assert [record.round for record in resume(tmp_path / "run", max_rounds=1)] == [1]


def test_shards_out_of_reach_are_not_left_out_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pool(tmp_path / "pool")
    in_store(monkeypatch, "open_input_file", "open_input_stream")
    with pytest.raises(UnreachableError, match="cannot be reached"):
        loaded(tmp_path, pool=PoolShards(place=str(tmp_path / "pool"), on_error="skip"))


def test_damage_inside_of_a_shard_is_found_before_the_run_begins(tmp_path: Path) -> None:
    write_pool(tmp_path / "pool")
    path = tmp_path / "pool" / "0.parquet"
    content = bytearray(path.read_bytes())
    content[4:400] = b"\xff" * 396
    path.write_bytes(content)
    with pytest.warns(UserWarning, match="1 of 3 shards"):
        data = loaded(tmp_path, pool=PoolShards(place=str(tmp_path / "pool"), on_error="skip"))
    assert data.shards["skipped"] == ("0.parquet",)


def _remove(pool: Path) -> None:
    (pool / "1.parquet").unlink()


def _add(pool: Path) -> None:
    shutil.copy(pool / "1.parquet", pool / "3.parquet")


def _change(pool: Path) -> None:
    write_shard(pool / "1.parquet", blobs(21, 5)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_remove, "The shard '1.parquet' of the pool .* is not there any more; put it back, or name its new"),
        (_add, "The pool .* had no shard '3.parquet' when the run began; move it away"),
        (_change, r"The shard '1.parquet' of the pool .* has changed: it had [\d,]+ bytes .* restore it"),
    ],
)
def test_a_pool_that_has_changed_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    list(start(tmp_path / "run", pool_settings(tmp_path, config=CONFIG.replace(max_rounds=0))))
    change(tmp_path / "pool")
    with pytest.raises(ChangedFileError, match=message):
        list(resume(tmp_path / "run", max_rounds=1))


def test_a_shard_with_other_values_in_the_same_number_of_bytes_and_rows_is_refused(tmp_path: Path) -> None:
    settings, path = pool_settings(tmp_path, config=CONFIG.replace(max_rounds=0)), tmp_path / "pool" / "1.parquet"
    sizes = []
    for seed in (5, 6):
        features = dict(zip(NAMES, blobs(20, seed)[0].T, strict=True))
        pq.write_table(pa.table(features), path, compression="none", use_dictionary=False)
        sizes.append(path.stat().st_size)
        if seed == 5:
            list(start(tmp_path / "run", settings))
    assert sizes[0] == sizes[1]
    with pytest.raises(ChangedFileError, match=r"The shard '1.parquet' .* its content is not what it was .*; restore"):
        list(resume(tmp_path / "run", max_rounds=1))


def test_a_run_of_an_earlier_version_knows_no_marks_of_its_shards(tmp_path: Path) -> None:
    list(start(tmp_path / "run", pool_settings(tmp_path, config=CONFIG.replace(max_rounds=0))))
    settings = RunFolder.open(tmp_path / "run").settings
    assert settings.pool is not None
    assert len(settings.pool.marks) == 3
    write_settings(tmp_path / "run", settings.replace(pool=settings.pool.replace(marks=())))
    assert [record.round for record in resume(tmp_path / "run", max_rounds=1)] == [1]


def test_samples_without_a_label_beside_a_pool_are_refused(tmp_path: Path) -> None:
    table = write_labeled(tmp_path / "labeled.csv")
    table.write_text(table.read_text() + "1,2,3,4,\n")
    with pytest.raises(DataError, match="1 of the samples beside the pool have no label; with --pool"):
        loaded(tmp_path)


def test_a_pool_that_has_the_labeled_file_in_it_is_refused(tmp_path: Path) -> None:
    write_pool(tmp_path / "pool")
    x, y = blobs(9, 0)
    write_shard(tmp_path / "pool" / "labeled.parquet", x, label=np.array(["a", "b", "c"])[y])
    (tmp_path / "link").symlink_to("pool")
    for folder in ("pool", "link"):
        data = TableData(path=tmp_path / folder / "labeled.parquet", labels=("label",))
        with pytest.raises(DataError, match="has the file 'labeled.parquet', which is given with its labels; move it"):
            loaded(tmp_path, data=data)


def test_a_pool_that_has_moved_is_found_again(tmp_path: Path) -> None:
    list(start(tmp_path / "run", pool_settings(tmp_path, config=CONFIG.replace(max_rounds=0))))
    shutil.move(tmp_path / "pool", tmp_path / "elsewhere")
    with pytest.raises(DataError, match="No shard is in"):
        list(resume(tmp_path / "run", max_rounds=1))
    assert [record.round for record in resume(tmp_path / "run", max_rounds=1, pool=str(tmp_path / "elsewhere"))] == [1]
    settings = RunFolder.open(tmp_path / "run").settings
    assert settings.pool is not None
    assert settings.pool.place == str(tmp_path / "elsewhere")


def test_a_pool_without_rows_is_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "pool" / "0.parquet", blobs(3, 1)[0][:0])
    with pytest.raises(DataError, match="has no rows; check the path"):
        loaded(tmp_path)


def test_a_cross_validation_is_refused(tmp_path: Path) -> None:
    linear = SklearnLearnerSettings(estimator="sklearn.linear_model:LogisticRegression")
    settings = pool_settings(tmp_path, comparison=ComparisonSettings(linear=linear))
    with pytest.raises(InvalidInputError, match="cross-validation would label the pool .* validation"):
        list(start(tmp_path / "run", settings))


def test_rounds_read_a_block_about_once_for_each_pass(tmp_path: Path) -> None:
    """A round: a pass to standardize and for each epoch of both streams; not a block for every batch."""
    data = loaded(tmp_path)
    assert isinstance(data.unlabeled, ShardedSource)
    list(start(tmp_path / "run", pool_settings(tmp_path), data=data))
    assert data.unlabeled.num_reads <= 7  # all six blocks stay in memory


def test_a_stranger_cannot_have_a_pool_asked_for_with_this_users_rights(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    run = RunFolder.open(tmp_path / "copy" / "run")
    assert run.settings.pool is not None
    address = "s3://bucket/pool?endpoint_override=127.0.0.1:1"
    changed = run.settings.replace(pool=run.settings.pool.replace(place=address))
    write_settings(run.path, changed, signed=False)
    for ask in (lambda: resume(run.path, max_rounds=3), RunFolder.open(run.path).data):
        with pytest.raises(
            UntrustedCodeError, match=r"run.json' names the pool 's3://bucket.*--pool PLACE.*--trust-code"
        ):
            ask()
    here = tmp_path / "copy" / "pool"
    assert list(resume(run.path, max_rounds=3, pool=f"file://{here}"))
    assert list(resume(run.path, max_rounds=4))  # by then it is a pool on this machine
