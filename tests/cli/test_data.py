"""`surelabel data`: get and list, and Ctrl-C in the middle of a download."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from cifar_support import cifar10_python, packed, small_set, write_folder
from cli_support import Command
from loopback import Server, serving

from surelabel.base.system import Progress
from surelabel.data.images import VARIABLE
from surelabel.data.sets.download import DATASETS, array_hashes
from tests.data.sets.test_download import md5

IMAGES = small_set()
ARCHIVE = packed("cifar-10-batches-py", cifar10_python(IMAGES))
NAME = "cifar-10-python.tar.gz"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Offers a small set as CIFAR-10; data sets go to a folder of their own."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "data"))
    with serving(ARCHIVE) as server:
        small = dataclasses.replace(
            DATASETS["cifar10"],
            url=server.url(NAME),
            md5=md5(ARCHIVE),
            per_class=(10, 2),
            sha256=array_hashes(IMAGES),
        )
        monkeypatch.setitem(DATASETS, "cifar10", small)
        yield server


def test_a_data_set_is_got_and_listed(command: Command, server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    listed = command("data", "list").out.splitlines()
    assert listed == [
        f"Data sets in {folder}:",
        "  cifar10   not there; get it with: surelabel data get cifar10",
        "  cifar100  not there; get it with: surelabel data get cifar100",
    ]
    what = f"CIFAR-10 is in {folder}/cifar10: 100 training and 20 test pictures of 10 classes"
    assert command("data", "get", "cifar10") == (0, f"{what}; from {server.url(NAME)}; checksums verified.\n", "")
    assert command("data", "get", "cifar10") == (0, f"{what}; was there already; checksums verified.\n", "")
    listed = command("data", "list").out.splitlines()
    assert listed[1] == f"  cifar10   100 training and 20 test pictures of 10 classes, from {server.url(NAME)}"


def test_only_what_was_compared_with_a_checksum_is_said_to_be(command: Command, server: Server, tmp_path: Path) -> None:
    """CIFAR-100's arrays have no known checksum, its archive has one."""
    without = dataclasses.replace(DATASETS["cifar10"], sha256=None)
    (tmp_path / "official.tar.gz").write_bytes(ARCHIVE)
    folder = write_folder(tmp_path / "mine", cifar10_python(IMAGES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "cifar10", without)
        counted = command("data", "get", "cifar10", "--from", folder).out
        again = command("data", "get", "cifar10").out
        official = command("data", "get", "cifar10", "--from", tmp_path / "official.tar.gz").out
    assert counted.endswith(
        f"from {folder}; not the official archive, so only the pictures of each class were counted.\n"
    )
    assert again.endswith("was there already; unchanged since it was stored.\n")
    assert official.endswith("official.tar.gz; checksums verified.\n")


def test_another_folder_and_a_file_at_hand_can_be_named(command: Command, server: Server, tmp_path: Path) -> None:
    (tmp_path / "mine.tar.gz").write_bytes(ARCHIVE)
    to = tmp_path / "my data"
    result = command("data", "get", "cifar10", "--to", to, "--from", tmp_path / "mine.tar.gz")
    assert result.out.startswith(f"CIFAR-10 is in {to}/cifar10: 100 training")
    assert server.asked == []
    assert f"surelabel data get cifar100 --to '{to}'" in command("data", "list", "--to", to).out
    line = command.fails(1, "data", "get", "cifar10", "--from", tmp_path / "yours.tar.gz")
    assert line == f"'{tmp_path}/yours.tar.gz' does not exist; check the path."


def test_ctrl_c_leaves_a_part_that_the_next_call_goes_on_with(
    command: Command, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "data" / "cifar10" / f"{NAME}.part"

    @contextlib.contextmanager
    def interrupted(unit: str) -> Iterator[Progress]:
        def interrupt(what: str, done: int, total: int) -> None:
            if done:
                raise KeyboardInterrupt

        yield interrupt

    monkeypatch.setattr("surelabel.data.sets.download._CHUNK", 100_000)
    with monkeypatch.context() as patch:
        patch.setattr("surelabel.cli.data._MEGABYTE", 10**5)
        patch.setattr("surelabel.cli.data.shown_work", interrupted)
        result = command("data", "get", "cifar10")
    assert (result.code, result.out) == (130, "")
    assert result.err.splitlines() == [
        "error: interrupted.",
        f"note: 1.0 MB are kept in {part}; go on with: surelabel data get cifar10",
    ]
    assert part.read_bytes() == ARCHIVE[:100_000]
    assert command("data", "get", "cifar10").code == 0
    assert server.asked == [None, "bytes=100000-"]


def test_wrong_names_are_wrong_use(command: Command) -> None:
    line = command.fails(2, "data", "get", "tin100")
    assert line == "Invalid value for 'NAME': 'tin100' is not one of cifar10, cifar100."
    assert command.fails(2, "data", "put").startswith("No such command 'put'")
    assert command.fails(2, "data") == "Missing command; see 'surelabel data --help'."


@pytest.mark.parametrize("words", [("data",), ("data", "get"), ("data", "list")])
def test_help_shows_examples_that_fit_on_a_line(command: Command, words: tuple[str, ...]) -> None:
    result = command(*words, "--help")
    assert result.code == 0
    examples = result.out.partition("Example")[2]
    lines = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
    assert lines
    assert all(line.startswith("surelabel data") for line in lines)


def test_help_says_where_data_sets_are(command: Command) -> None:
    shown = " ".join(command("data", "--help").out.split())
    assert "the folder that SURELABEL_DATA names, else among the user's caches: in ~/.cache/surelabel (Linux)" in shown
    assert " data " in command("--help").out
