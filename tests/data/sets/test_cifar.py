"""CIFAR: every official format gives the same arrays, files that are not whole are named, no code is run."""

import gzip
import io
import lzma
import os
import pickle
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cifar_support import (
    cifar10_python,
    cifar100_python,
    npm_package,
    packed,
    python2_pickle,
    same,
    small_set,
    write_folder,
)
from PIL import Image

from surelabel.data.images import VARIABLE, ImageSet, data_folder, is_stored, open_stored, store
from surelabel.data.run_data import FunctionData
from surelabel.data.sets import cifar10, cifar100
from surelabel.data.sets.cifar import read_cifar, unpickle
from surelabel.data.sets.download import DATASETS, array_hashes
from surelabel.data.splits import split_hash
from surelabel.errors import DataError, InvalidInputError
from surelabel.runs.checks import fingerprint

TEN, HUNDRED = small_set(), small_set(per_batch=100, num_classes=100)
FORMATS = {
    "python": ("cifar10", "cifar-10-batches-py", cifar10_python(TEN)),
    "python by column": ("cifar10", "cifar-10-batches-py", cifar10_python(TEN, order="F")),
    "npm": ("cifar10", "package", npm_package(TEN)),
    "100 python": ("cifar100", "cifar-100-python", cifar100_python(HUNDRED)),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_arrays_packed_or_not(kind: str, tmp_path: Path) -> None:
    name, folder, files = FORMATS[kind]
    expected = TEN if name == "cifar10" else HUNDRED
    inner = write_folder(tmp_path / folder, files)
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(packed(folder, files))
    for path in (inner, tmp_path, archive):
        found = read_cifar(path, name)
        assert same(found, expected)
        assert found.train.x.flags.c_contiguous


def test_pickles_of_protocol_0_are_read_as_batches_meta_is_one() -> None:
    meta = (
        b"(dp1\nS'num_cases_per_batch'\np2\nI10000\nsS'label_names'\np3\n(lp4\nS'airplane'\np5\naS'automobile'\np6\nas."
    )
    assert unpickle("batches.meta", meta) == {
        "num_cases_per_batch": 10000,
        "label_names": ["airplane", "automobile"],
    }
    with pytest.raises(DataError, match="a key that is no text"):
        unpickle("batches.meta", b"((I1\ntI2\nd.")


def test_the_small_files_are_pickles_of_python_2() -> None:
    data = FORMATS["python"][2]["data_batch_2"]
    official = pickle.loads(data, encoding="bytes")
    assert set(official) == {b"batch_label", b"labels", b"data", b"filenames"}
    assert np.array_equal(official[b"data"], TEN.train.x[20:40].reshape(20, 3072))
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in data
    assert data[:2] == b"\x80\x02"


NESTED, DOUBLED = b")" + b"\x85" * 200_000, b")" + b"2\x86" * 60


@pytest.mark.parametrize(
    "attack",
    [
        b"}" + NESTED + b"K\x01s.",  # as a key of a dictionary, in each of three ways
        b"}(" + NESTED + b"K\x01u.",
        b"(" + NESTED + b"K\x01d.",
        b"\x8f(" + NESTED + b"\x90.",  # in a set
        b"(" + NESTED + b"\x91.",
        b"})" + b"\x85" * 2000 + b"K\x01s.",
        b"}" + DOUBLED + b"K\x01s.",
        b"}(" + b")q\0" + b"h\0h\0\x86q\0" * 60 + b"K\x01u.",
    ],
)
def test_pickles_that_would_exhaust_the_machine_are_refused(attack: bytes) -> None:
    with pytest.raises(DataError, match="File 'meta' is damaged or not a pickle"):
        unpickle("meta", b"\x80\x02" + attack)


@pytest.mark.parametrize(
    "attack",
    [
        b"\x96" + (2**30).to_bytes(8, "little") + b"abc.",  # a bytearray, a text, a string, a place in the memo
        b"X" + (2**30).to_bytes(4, "little") + b"abc.",
        b"T" + (2**30).to_bytes(4, "little") + b"abc.",
        b"]r" + (2**30).to_bytes(4, "little") + b"0.",
    ],
)
def test_nothing_is_as_large_as_a_number_claims(attack: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(DataError, match="File 'meta' is damaged or not a pickle"):
        unpickle("meta", b"\x80\x02" + attack)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


class Runs:
    """Asks to be unpickled by a call."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize(
    ("function", "named"),
    [(os.mkdir, "posix.mkdir"), (eval, "__builtin__.eval"), (getattr, "__builtin__.getattr"), (np.load, "numpy.load")],
)
def test_a_pickle_that_calls_a_function_is_refused_and_nothing_is_run(
    function: Any, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    attack = pickle.dumps({"labels": [], "data": Runs(function, "made")}, protocol=2)
    folder = write_folder(tmp_path / "cifar-10-batches-py", {**FORMATS["python"][2], "data_batch_4": attack})
    with pytest.raises(DataError, match=rf"data_batch_4' is damaged .* names '{named}', which could run code"):
        read_cifar(folder)
    assert not Path("made").exists()


@pytest.mark.parametrize(
    "attack",
    [
        b"cnumpy\ndtype\n}(S'name'\nS'encode'\nub.",  # a state for a name itself
        b"cnumpy\nndarray\n(S'x'\ntR.",
        b"cnumpy\nndarray\n)\x81.",
        b"c_codecs\nencode\n(V1\nVrot13\ntR.",
        b"Pid\n.",
        b"]\x94.",
    ],
)
def test_odd_uses_of_the_known_names_are_refused(attack: bytes) -> None:
    with pytest.raises(DataError, match="File 'meta' (is damaged or not a pickle|must hold a dictionary)"):
        unpickle("meta", attack)


@pytest.mark.parametrize("array", [np.zeros((2, 3072)), np.array([None]), np.zeros(2, dtype=[("a", "u1")])])
def test_arrays_of_other_things_than_bytes_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    batch = python2_pickle({"labels": [0, 1], "data": array})
    write_folder(tmp_path, {**FORMATS["python"][2], "data_batch_1": batch})
    with pytest.raises(DataError, match="data_batch_1'"):
        read_cifar(tmp_path)


def test_a_pickle_cut_or_changed_anywhere_is_read_or_named() -> None:
    content = {"labels": [3, 4], "data": np.arange(12, dtype=np.uint8).reshape(2, 6), "filenames": ["a.png"]}
    whole = python2_pickle(content)
    for length in range(len(whole)):
        with pytest.raises(DataError, match="File 'cut' is damaged or not a pickle"):
            unpickle("cut", whole[:length])
    generator = np.random.default_rng(0)
    for _ in range(3000):
        changed = bytearray(whole)
        for _ in range(generator.integers(1, 4)):
            changed[generator.integers(len(whole))] = generator.integers(256)
        try:
            unpickle("changed", bytes(changed))
        except DataError as error:
            assert "'changed'" in str(error)  # noqa: PT017 - many changes leave a readable pickle


def test_broken_files_are_named(tmp_path: Path) -> None:
    def read(changes: dict[str, bytes | None], kind: str = "python") -> None:
        name, folder, files = FORMATS[kind]
        files = {key: data for key, data in {**files, **changes}.items() if data is not None}
        (tmp_path / "a.tgz").write_bytes(packed(folder, files))
        read_cifar(tmp_path / "a.tgz", name)

    python, npm = FORMATS["python"][2], FORMATS["npm"][2]
    row = {"data": np.zeros((20, 3072), np.uint8), "labels": [0] * 20}
    for changes, kind, problem in (
        ({"data_batch_3": None}, "python", r"a.tgz' lacks 'data_batch_3' of 'cifar-10-batches-py'"),
        ({"data_batch_3": python["data_batch_3"][:-9]}, "python", r"a.tgz: data_batch_3' is damaged or not a pickle"),
        ({"test_batch": python2_pickle({"data": row["data"]})}, "python", r"test_batch' must have a list of 20 labels"),
        (
            {"test_batch": python2_pickle({**row, "labels": ["cat"]})},
            "python",
            r"test_batch' must have a list of 20 labels",
        ),
        ({"test_batch": python2_pickle({**row, "data": row["data"][:, 1:]})}, "python", "'data' must be an array of"),
        (
            {"test_batch": python2_pickle({**row, "labels": [1]})},
            "python",
            r"test_batch' must have a list of 20 labels .* got 1",
        ),
        (
            {"test_batch": python2_pickle({**row, "labels": [10] * 20})},
            "python",
            r"from 0 to 9; got 20 labels",
        ),
        ({"batches.meta": python2_pickle({"label_names": "cat"})}, "python", r"'label_names' must be a list of names"),
        ({"test_batch.png": npm["test_batch.png"][:9000]}, "npm", r"test_batch.png' is damaged or not really a PNG"),
        ({"test_batch.png": png(64, 64)}, "npm", r"test_batch.png' must be a color picture, 1024 x .* got 64 x 64"),
        ({"test_lables.json": b"[1, 2"}, "npm", r"test_lables.json' is damaged or not really a JSON list"),
        ({"test_lables.json": b"[" * 100_000}, "npm", r"test_lables.json' is damaged or not really a JSON list"),
        ({"test_lables.json": b"[1, true]"}, "npm", r"test_lables.json' must have a list of 20 labels .* got 2"),
    ):
        with pytest.raises(DataError, match=problem):
            read(changes, kind)


def png(width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height)).save(stream, "PNG")
    return stream.getvalue()


def test_archives_that_are_not_whole_or_not_cifar_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cifar.tar.gz"
    whole = packed("cifar-10-batches-py", FORMATS["python"][2])
    for data, problem in (
        (whole[: len(whole) // 2], "cifar.tar.gz' is damaged or not really a .tar.gz archive"),
        (whole[:-8] + bytes(4) + whole[-4:], r"cifar.tar.gz' is damaged .* \(CRC check failed"),
        (
            lzma.compress(gzip.decompress(whole))[:90_000] + bytes(9000),
            "cifar.tar.gz' is damaged or not really a .tar.gz archive",
        ),
        (b"<html>not found</html>", "cifar.tar.gz' is damaged or not really a .tar.gz archive"),
        (packed("cifar-100-python", FORMATS["100 python"][2]), "holds no file of 'cifar-10-batches-py', 'package'"),
    ):
        path.write_bytes(data)
        with pytest.raises(DataError, match=problem):
            read_cifar(path)
    with pytest.raises(DataError, match="holds no file of"):
        read_cifar(tmp_path, "cifar100")
    with pytest.raises(InvalidInputError, match="name must be one of 'cifar10', 'cifar100'; got 'cifar'"):
        read_cifar(tmp_path, "cifar")


def test_a_file_larger_than_any_of_cifar_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cifar.tar.gz").write_bytes(packed("cifar-10-batches-py", FORMATS["python"][2]))
    largest = max(map(len, FORMATS["python"][2].values()))
    monkeypatch.setattr("surelabel.data.sets.cifar._LARGEST_FILE", largest)
    read_cifar(tmp_path / "cifar.tar.gz")
    monkeypatch.setattr("surelabel.data.sets.cifar._LARGEST_FILE", largest - 1)
    with pytest.raises(DataError, match=rf"'cifar-10-batches-py/\w+' has {largest} bytes, more than any file"):
        read_cifar(tmp_path / "cifar.tar.gz")


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "cifar.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("cifar-10-batches-py/batches.meta")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(DataError, match="holds no file of"):
        read_cifar(path)


def test_a_stored_set_is_mapped_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10"
    assert not is_stored(folder)
    store(folder, TEN)
    found = open_stored(folder, verify=True)
    assert same(found, TEN)
    assert isinstance(found.train.x, np.memmap)
    data = (folder / "train_x.npy").read_bytes()
    (folder / "train_x.npy").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    open_stored(folder)
    with pytest.raises(
        DataError, match=r"train_x.npy' is damaged \(its SHA-256 should be [0-9a-f]{64} and is [0-9a-f]"
    ):
        open_stored(folder, verify=True)
    for content in (data[:-1], b"\x93NUMPY\x01\x00v\x00{'descr", b"", None):
        (folder / "train_x.npy").unlink()
        if content is not None:
            (folder / "train_x.npy").write_bytes(content)
        with pytest.raises(
            DataError, match=r"train_x.npy' is damaged .*; remove its folder and get the data set again"
        ):
            open_stored(folder)
    np.save(folder / "train_x.npy", TEN.train.x.astype(np.float32))
    with pytest.raises(DataError, match="pictures are float32"):
        open_stored(folder)
    for text in ('{"classes": []}', "[" * 100_000):
        (folder / "dataset.json").write_text(text)
        with pytest.raises(DataError, match=r"dataset.json' is damaged"):
            open_stored(folder)


@pytest.mark.parametrize("name", ["train_x.npy", "dataset.json"])
def test_a_pipe_in_a_stored_set_is_not_waited_for(tmp_path: Path, name: str) -> None:
    store(tmp_path / "cifar10", TEN)
    (tmp_path / "cifar10" / name).unlink()
    os.mkfifo(tmp_path / "cifar10" / name)
    with pytest.raises(DataError, match=rf"{name}' is damaged .it is not a plain file"):
        open_stored(tmp_path / "cifar10")


def test_a_set_whose_writing_broke_off_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, TEN)

    def full(*arguments: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        store(tmp_path, TEN)
    assert not is_stored(tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_the_data_folder_follows_the_variable_then_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/data/sets")
    assert data_folder() == Path("/data/sets")
    assert data_folder("other") == Path("other")
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    monkeypatch.setattr("sys.platform", "linux")
    assert data_folder() == Path("/var/caches/surelabel")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "surelabel"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_folder() == Path.home() / "Library" / "Caches" / "surelabel"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert data_folder() == Path("/local/surelabel")


@pytest.mark.parametrize(("name", "function", "images"), [("cifar10", cifar10, TEN), ("cifar100", cifar100, HUNDRED)])
def test_a_recipe_has_labels_pool_and_test_set(name: str, function: Any, images: ImageSet, tmp_path: Path) -> None:
    num_classes = len(images.classes)
    store(tmp_path / name, images)
    data = function(seed=3, labels=2 * num_classes, num_validation=num_classes, folder=str(tmp_path))
    parts = (data.labeled, (data.unlabeled, data.truth), data.validation)
    for source, y in parts:
        assert np.array_equal(source.x, images.train.x[source.ids])
        assert np.array_equal(y, images.train.y[source.ids])
        assert source.x.dtype == np.uint8
    assert sorted(np.concatenate([source.ids for source, _ in parts])) == list(range(len(images.train.y)))
    assert np.bincount(data.labeled[1]).tolist() == [2] * num_classes
    assert np.bincount(data.validation[1]).tolist() == [1] * num_classes
    assert np.array_equal(data.test[0].x, images.test.x)
    assert np.array_equal(data.test[1], images.test.y)
    assert tuple(data.classes) == images.classes
    per_class = {"cifar10": 100, "cifar100": 40}[name]
    with pytest.raises(InvalidInputError, match=rf"; {per_class} were to be drawn for labels"):
        function(folder=str(tmp_path))  # as many labels as in the first column of the paper's table


def test_a_run_names_a_recipe_and_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path / "cifar10", TEN)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    settings = FunctionData(function="surelabel.data.sets:cifar10", arguments={"seed": 1, "labels": 20})
    data = settings.pinned().load()
    assert data.validation is None
    assert fingerprint(data) == fingerprint(cifar10(seed=1, labels=20))
    assert fingerprint(data) != fingerprint(cifar10(seed=2, labels=20))
    assert split_hash(data.labeled[0].ids) != split_hash(cifar10(seed=2, labels=20).labeled[0].ids)


def test_missing_data_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(
        DataError, match=rf"CIFAR-10 is not in '{tmp_path}/cifar10'; get it with: surelabel data get cifar10"
    ):
        cifar10()
    with pytest.raises(
        DataError, match=r"CIFAR-100 is not in 'my data/cifar100'; .* surelabel data get cifar100 --to 'my data'"
    ):
        cifar100(folder="my data")


def test_the_real_cifar10_is_the_official_one() -> None:
    folder = data_folder() / "cifar10"
    if not is_stored(folder):
        pytest.skip(f"CIFAR-10 is not in {folder}")
    images = open_stored(folder, verify=True)
    assert array_hashes(images) == DATASETS["cifar10"].sha256
    assert np.bincount(images.train.y).tolist() == [5000] * 10
    assert np.bincount(images.test.y).tolist() == [1000] * 10
    means = images.train.x.mean(axis=(0, 2, 3))
    assert np.abs(means - [125.307, 122.950, 113.865]).max() < 5e-4
