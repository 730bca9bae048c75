"""A folder may come from someone else: what a link in it points to is neither written, truncated nor removed."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from loopback import serving
from small_runs import contents, small_settings
from video_support import numbered, write_video

from surelabel.base.processes import locked
from surelabel.data.decoding import decode_files
from surelabel.data.sets.download import download, get_dataset
from surelabel.data.video import ClipSettings
from surelabel.errors import DamagedFileError, DataError, RunError
from surelabel.runs import RunFolder
from surelabel.runs.files import write_file
from surelabel.runs.rows import alone, append
from surelabel.runs.session import resume, start
from surelabel.runs.tracking import trackers

NAMES = ("notes.txt", ".notes.json.tmp", "model.safetensors")
LINK = "it is a symbolic link, which is not followed"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds."""
    folder = tmp_path_factory.mktemp("finished")
    list(start(folder / "run", small_settings(folder, max_rounds=1)))
    return folder / "run"


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder of somebody's own files, unchanged at the end."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text("mine")
    yield folder
    assert contents(folder) == dict.fromkeys(NAMES, b"mine")


# Run folders


def test_a_lock_that_is_a_link_is_refused(copy: Path, outside: Path) -> None:
    (copy / ".lock").unlink()
    (copy / ".lock").symlink_to(outside / "notes.txt")
    with pytest.raises(RunError, match=rf"\.lock' cannot be opened for writing \({LINK}\); remove it"):
        list(resume(copy, max_rounds=2))


def test_a_lock_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(RunError, match=r"\.lock' cannot be opened for writing \(it is not a plain file\); remove it"):
        locked(tmp_path / ".lock").__enter__()


@pytest.mark.parametrize("name", ["rounds/x", "rounds/002", "rounds"])
def test_a_folder_of_rounds_that_is_a_link_is_refused_before_anything_is_removed(
    copy: Path, outside: Path, name: str
) -> None:
    if name == "rounds":  # moved elsewhere, with all that is in it
        shutil.copytree(copy / name, outside.parent / "elsewhere")
        shutil.rmtree(copy / name)
        outside = outside.parent / "elsewhere"
    before = contents(outside)
    (copy / name).symlink_to(outside)
    with pytest.raises(RunError, match=rf"{name}' is a symbolic link; put the folder that it points to"):
        list(resume(copy, max_rounds=2))
    assert contents(outside) == before
    assert RunFolder.open(copy).num_rounds == 2


@pytest.mark.parametrize("name", [".history.json.tmp", "rounds/001/.pool.parquet.tmp"])
def test_a_link_under_a_temporary_name_is_removed_not_followed(copy: Path, outside: Path, name: str) -> None:
    (copy / name).symlink_to(outside / "notes.txt")
    assert [record.round for record in resume(copy, max_rounds=2)] == [2]
    assert not (copy / name).is_symlink()


def test_a_write_does_not_follow_a_link_under_its_temporary_name(tmp_path: Path, outside: Path) -> None:
    (tmp_path / ".rows.csv.tmp").symlink_to(outside / "notes.txt")
    append(tmp_path / "rows.csv", ["what"], [{"what": "select"}])
    assert (tmp_path / "rows.csv").read_text() == "what\nselect\n"
    assert not (tmp_path / "rows.csv").is_symlink()


def test_a_file_that_is_a_link_is_replaced_not_followed(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "table.csv").symlink_to(outside / "notes.txt")
    write_file(tmp_path / "table.csv", b"ours")
    assert not (tmp_path / "table.csv").is_symlink()


@pytest.mark.parametrize("parts", ["rounds/002/parts", "rounds/001/parts"])
def test_parts_that_are_a_link_are_refused(copy: Path, outside: Path, parts: str) -> None:
    (copy / parts).parent.mkdir(exist_ok=True)
    (copy / parts).symlink_to(outside)
    with pytest.raises(RunError, match=rf"{parts}' is a symbolic link"):
        list(resume(copy, max_rounds=2))


@pytest.mark.parametrize("link", ["tracking", "tracking/mlflow.db"])
def test_nothing_is_tracked_through_a_link(copy: Path, outside: Path, link: str) -> None:
    (copy / link).parent.mkdir(exist_ok=True)
    (copy / link).symlink_to(outside)
    with pytest.raises(RunError, match=rf"{link}' is a symbolic link; remove it, or name another .*--track-dir"):
        trackers(["tensorboard"], copy, RunFolder.open(copy).settings, done=2)


def test_a_folder_under_a_temporary_name_is_named(copy: Path) -> None:
    (copy / ".run.json.tmp").mkdir()
    with pytest.raises(RunError, match=r"\.run\.json\.tmp' .* could not be removed .*Remove it"):
        list(resume(copy, max_rounds=2))


@pytest.mark.parametrize("name", ["run.json", "history.json", "split.json", "rounds/001/pool.parquet"])
def test_a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for(copy: Path, name: str) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with pytest.raises(DamagedFileError, match=rf"{name}' cannot be read \(it is not a plain file\)"):
        resume(copy, max_rounds=2)


# Locks beside files, caches and downloads


def test_the_lock_of_a_results_file_is_not_a_link(tmp_path: Path, outside: Path) -> None:
    (tmp_path / ".rows.csv.lock").symlink_to(outside / "new")
    with pytest.raises(RunError, match=LINK):
        alone(tmp_path / "rows.csv").__enter__()


def test_the_lock_of_rounds_that_runs_share_is_not_a_link(tmp_path: Path, outside: Path) -> None:
    shared, settings = tmp_path / "shared", small_settings(tmp_path, max_rounds=0)
    list(start(tmp_path / "first", settings, shared=shared))
    (lock,) = shared.glob("*.lock")
    lock.unlink()
    lock.symlink_to(outside / "notes.txt")
    with pytest.raises(RunError, match=LINK):
        list(start(tmp_path / "second", settings, shared=shared))


def test_the_lock_of_a_data_set_is_not_a_link(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / ".lock").symlink_to(outside / "notes.txt")
    with pytest.raises(RunError, match=LINK):
        get_dataset("cifar10", tmp_path)


@pytest.mark.parametrize("number", [0, 1])
def test_the_files_of_decoded_clips_are_not_links(tmp_path: Path, outside: Path, number: int) -> None:
    settings = ClipSettings(passages=1, frames=2, height=16, width=16)
    videos = {name: write_video(tmp_path / f"{name}.avi", numbered(4)) for name in ("a", "b")}
    decode_files({"a": videos["a"]}, tmp_path / "cache", settings, names=("a", "b"), workers=0)
    file = sorted(path for path in (tmp_path / "cache").rglob("*") if path.suffix in (".npy", ".jsonl"))[number]
    moved = file.rename(tmp_path / file.name)
    before = moved.read_bytes()
    file.symlink_to(moved)
    with pytest.raises(DataError, match=rf"Decoded files cannot be written to .*{LINK}"):
        decode_files(videos, tmp_path / "cache", settings, workers=0)
    assert moved.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"mine"])
def test_what_came_of_a_download_is_not_a_link(tmp_path: Path, content: bytes) -> None:
    victim, data = tmp_path / "victim", np.arange(20, dtype=np.uint8).tobytes()
    victim.write_bytes(content)
    (tmp_path / "file.part").symlink_to(victim)
    with serving(data) as server, pytest.raises(OSError, match=LINK):
        download(server.url("file"), tmp_path / "file", "", lambda *numbers: None)
    assert victim.read_bytes() == content
