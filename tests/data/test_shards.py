"""A pool in many files: which files a path, a pattern or an address names, and how they are read and written."""

import os
import pickle
from pathlib import Path

import pytest

from surelabel.data.shards import Place, Shard, find_shards, place_of
from surelabel.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.parquet",
        "a.parquet",
        "more/c.parquet",
        "d.tar",
        "notes.txt",
        ".e.parquet",
        "_temporary/f.parquet",
    ):
        path = tmp_path / "pool" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "pool"


def names(text: str) -> list[str]:
    return [shard.name for shard in find_shards(text)[1]]


UNFINISHED = "ignore:.*begin with '_' are left out"


@pytest.mark.filterwarnings(UNFINISHED)
def test_a_folder_has_its_shards_in_the_order_of_their_names_without_hidden_ones(folder: Path) -> None:
    assert names(f"{folder}") == names(f"{folder}/") == ["a.parquet", "b.parquet", "d.tar", "more/c.parquet"]


def test_what_a_job_has_not_finished_is_left_out_with_a_warning_unless_it_is_named(folder: Path) -> None:
    (folder / "_part.parquet").touch()
    (folder / "_MG_1.png").touch()
    with pytest.warns(UserWarning, match=r"begin with '_' are left out: '_part.parquet', '_temporary/f.parquet'"):
        assert "_part.parquet" not in names(f"{folder}")
    assert names(f"{folder}/_*.parquet") == ["_part.parquet"]
    assert names(f"{folder}/_temporary/*") == ["f.parquet"]
    assert [shard.name for shard in find_shards(str(folder), [".png"])[1]] == ["_MG_1.png"]


def test_links_to_folders_are_not_followed_with_a_warning(tmp_path: Path) -> None:
    pool, outside = tmp_path / "pool", tmp_path / "outside"
    for path in (pool / "more" / "a.tar", outside / "b.tar"):
        path.parent.mkdir(parents=True)
        path.touch()
    for name, target in (("loop", "."), ("again", "more"), ("out", outside)):
        (pool / name).symlink_to(target)
    with pytest.warns(UserWarning, match="not followed: 'again', 'loop', 'out'"):
        assert names(str(pool)) == ["more/a.tar"]
    (tmp_path / "link").symlink_to(pool / "more")
    assert names(str(tmp_path / "link")) == ["a.tar"]  # the user has named this one


def test_nothing_is_removed_or_written_through_a_link(tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    (out / "sub").symlink_to(outside)
    left = outside / ".mine.0123abcd.writing"
    left.touch()
    os.utime(left, (0, 0))
    place = place_of(str(out))
    place.tidy()
    with pytest.raises(DataError, match="is a link that leads out of"):
        place.write("sub/a.parquet", lambda stream: stream.write(b"x"))
    assert list(outside.iterdir()) == [left]
    own = out / left.name
    own.touch()
    os.utime(own, (0, 0))
    place.tidy()
    assert not own.exists()


@pytest.mark.filterwarnings(UNFINISHED)
def test_a_pattern_names_files_of_one_depth_or_of_any(folder: Path) -> None:
    assert names(f"{folder}/*.parquet") == ["a.parquet", "b.parquet"]
    assert names(f"{folder}/**/*.parquet") == ["a.parquet", "b.parquet", "more/c.parquet"]
    assert names(f"{folder}/[bd].*") == ["b.parquet", "d.tar"]
    assert names(f"{folder}/*/*.parquet") == ["more/c.parquet"]


def test_a_path_with_brackets_that_is_there_is_no_pattern(tmp_path: Path) -> None:
    for name in ("[1].parquet", "1.parquet"):
        (tmp_path / "pool[a]" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "pool[a]" / name).touch()
    assert names(f"{tmp_path}/pool[a]") == ["1.parquet", "[1].parquet"]
    assert names(f"{tmp_path}/pool[a]/[1].parquet") == ["[1].parquet"]


@pytest.mark.parametrize("text", ["*.parquet", "a.parquet"])
def test_folders_that_a_name_does_not_lead_to_are_not_listed(
    folder: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, files = list[bool](), Place.files
    monkeypatch.setattr(Place, "files", lambda self, recursive=True: listed.append(recursive) or files(self, recursive))
    assert "a.parquet" in names(f"{folder}/{text}")
    assert listed == [False]


def test_paths_may_be_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert names("*.tar") == ["d.tar"]
    assert names("more") == names("more/c.parquet") == ["c.parquet"]


def test_an_address_is_read_as_a_path_is(folder: Path) -> None:
    assert names(f"file://{folder}/*.parquet") == ["a.parquet", "b.parquet"]


def test_sizes_are_told_and_files_are_given_as_local_ones(folder: Path) -> None:
    place, shards = find_shards(f"{folder}/a.parquet")
    assert shards[0].size == len("a.parquet")
    with place.local("a.parquet") as path:
        assert path.read_bytes() == b"a.parquet"
    with place.open("a.parquet") as stream:
        assert stream.read() == b"a.parquet"


def test_a_file_of_another_system_is_copied_and_the_copy_removed(folder: Path) -> None:
    from pyarrow import fs

    elsewhere = Place("x", fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()), "more")
    with elsewhere.local("c.parquet") as path:
        assert path.read_bytes() == b"more/c.parquet"
        assert folder not in path.parents
    assert not path.exists()


def test_a_file_is_in_its_place_whole_or_not_at_all(tmp_path: Path) -> None:
    place = place_of(str(tmp_path / "out"))
    place.write("deep/a.parquet", lambda stream: stream.write(b"new"))
    assert (tmp_path / "out/deep/a.parquet").read_bytes() == b"new"

    def fails(stream: object) -> None:
        stream.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.write("deep/a.parquet", fails)
    assert [path.name for path in (tmp_path / "out/deep").iterdir()] == ["a.parquet"]
    assert (tmp_path / "out/deep/a.parquet").read_bytes() == b"new"


def test_a_mark_tells_files_of_one_size_apart(tmp_path: Path) -> None:
    place, marks = place_of(str(tmp_path)), []
    for content in (b"a" * 100_000, b"a" * 99_999 + b"b"):
        (tmp_path / "x").write_bytes(content)
        marks.append(place.mark(place.files()[0]))
    assert len({*marks}) == 2
    loose = [Shard("files-000000", 2, (Shard(name, 1), Shard("c", 1))) for name in "ab"]
    assert place.mark(loose[0]) != place.mark(loose[1])


def test_a_name_may_be_as_long_as_a_name_can_be(tmp_path: Path) -> None:
    name = "a" * 247 + ".parquet"
    place_of(str(tmp_path)).write(name, lambda stream: stream.write(b"new"))
    assert (tmp_path / name).read_bytes() == b"new"


def test_a_name_that_is_no_text_is_shown(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.parquet")).touch()
    except OSError:
        pytest.skip("this file system takes names in UTF-8 alone")
    with pytest.raises(DataError, match=r"has a file whose name is no UTF-8, '.*xff.parquet'; rename it"):
        find_shards(str(tmp_path))


def test_a_place_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    place = pickle.loads(pickle.dumps(place_of(str(tmp_path))))
    assert place.root == str(tmp_path)


def test_what_cannot_be_used_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No shard is in '.*x\*\.parquet'.*check the path"):
        find_shards(f"{folder}/x*.parquet")
    with pytest.raises(DataError, match="No shard is in"):
        find_shards(f"{tmp_path}/nowhere/")
    with pytest.raises(DataError, match="place of the shards is empty; name a folder"):
        find_shards("")
    with pytest.raises(DataError, match=r"'nosuch://bucket/pool' is no address"):
        find_shards("nosuch://bucket/pool")
