"""Data by reference: tables with their content hash, and functions."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from small_runs import CONFIG, LEARNER, blobs, difference, small_settings

from surelabel.data.run_data import FunctionData, TableData
from surelabel.data.source import ArraySource
from surelabel.data.tables import write_table
from surelabel.errors import ChangedFileError, DataError, InvalidInputError, RunError
from surelabel.loop import self_train
from surelabel.runs import RunFolder
from surelabel.runs.session import resume, run, start
from surelabel.settings import RunSettings


def write_pets(path: Path, rows: int = 40, **changes: Any) -> Path:
    """Write a table of three classes with every second label empty."""
    codes = np.arange(rows) % 3
    x = np.random.default_rng(1).normal(size=(rows, 2)) + codes[:, None]
    labels = [["cat", "dog", "eel"][code] if row % 2 == 0 else None for row, code in enumerate(codes)]
    columns = {"name": [f"pet {row}" for row in range(rows)], "weight": x[:, 0], "length": x[:, 1], "kind": labels}
    return write_table(path, {**columns, **changes}, overwrite=True)


def test_a_table_is_split_into_labeled_rows_and_the_pool(tmp_path: Path) -> None:
    path = write_pets(tmp_path / "pets.csv")
    data = TableData(path=path, labels=("kind",), id_column="name").load()
    assert (data.classes, data.task, data.feature_names) == (["cat", "dog", "eel"], "single", ["weight", "length"])
    assert data.labeled[0].ids.tolist()[:2] == ["pet 0", "pet 2"]
    assert data.labeled[1].tolist()[:3] == [0, 2, 1]
    assert data.unlabeled.ids.tolist()[:2] == ["pet 1", "pet 3"]
    assert len(data.unlabeled) == 20
    assert data.validation is None
    assert data.test is None


def test_numbered_classes_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"x": [1.0, 2.0, 3.0, 4.0], "y": [10, 9, 100, None]})
    data = TableData(path=path, labels=("y",)).load()
    assert data.classes == ["9", "10", "100"]
    assert data.labeled[1].tolist() == [1, 0, 2]


def test_classes_of_one_number_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    names = [f"{'0' * zeros}1" for zeros in range(9)]
    path = write_table(tmp_path / "t.csv", {"x": [0.5 * row for row in range(10)], "y": [*names, None]})
    assert TableData(path=path, labels=("y",)).load().classes == sorted(names)


def test_a_validation_share_is_held_out_of_each_class(tmp_path: Path) -> None:
    path = write_pets(tmp_path / "pets.csv", rows=60)
    settings = TableData(path=path, labels=("kind",), id_column="name", validation=0.3)
    data, again, other = settings.load(), settings.load(), settings.replace(validation_seed=1).load()
    assert np.bincount(data.validation[1]).tolist() == [3, 3, 3]
    assert np.bincount(data.labeled[1]).tolist() == [7, 7, 7]
    assert not set(data.validation[0].ids) & set(data.labeled[0].ids)
    assert data.validation[0].ids.tolist() == again.validation[0].ids.tolist() != other.validation[0].ids.tolist()


def test_each_class_keeps_a_label_when_rows_are_held_out(tmp_path: Path) -> None:
    path = write_pets(tmp_path / "pets.csv", rows=12)
    data = TableData(path=path, labels=("kind",), id_column="name", validation=0.99).load()
    assert np.bincount(data.labeled[1]).tolist() == [1, 1, 1]
    with pytest.raises(DataError, match="a validation share of 0.1 of 6 labeled rows is no row of any class"):
        TableData(path=path, labels=("kind",), id_column="name", validation=0.1).load()


def test_test_and_validation_files_take_the_training_columns(tmp_path: Path) -> None:
    path = write_pets(tmp_path / "pets.csv")
    columns = {"extra": [5.0, 6.0, 7.0], "kind": ["eel", "cat", None], "length": [1.0, 2.0, 3.0], "name": list("abc")}
    other = write_table(tmp_path / "other.csv", {**columns, "weight": [3.0, 4.0, 5.0]})
    settings = TableData(path=path, labels=("kind",), id_column="name", test_path=other, validation_path=other)
    data = settings.load()
    assert data.test[0].x.tolist() == [[3.0, 1.0], [4.0, 2.0]]
    assert data.test[1].tolist() == data.validation[1].tolist() == [2, 0]
    write_table(other, {**columns, "weight": [3.0, 4.0, 5.0], "kind": ["owl", "cat", None]}, overwrite=True)
    with pytest.raises(DataError, match=r"other.csv' has the label 'owl', which no labeled training row has"):
        settings.load()
    write_table(other, {**columns, "weight": [3.0, 4.0, 5.0], "kind": [None, None, None]}, overwrite=True)
    with pytest.raises(DataError, match=r"other.csv' has no labeled row to score"):
        settings.load()


@pytest.mark.filterwarnings("ignore:.*have the very features of labeled rows")
def test_several_label_columns_are_several_labels(tmp_path: Path) -> None:
    columns = {"x": [1.0, 2.0, 3.0], "wet": [1, 0, None], "cold": [0, None, None]}
    path = write_table(tmp_path / "t.parquet", columns)
    data = TableData(path=path, labels=("wet", "cold"), test_path=path).load()
    assert (data.classes, data.task) == (["wet", "cold"], "multi")
    assert data.labeled[1].tolist() == data.test[1].tolist() == [[1, 0], [0, -1]]
    assert data.unlabeled.ids.tolist() == [2]


def test_groups_are_those_of_the_labeled_rows_and_then_of_the_pool(tmp_path: Path) -> None:
    owners = [f"owner {row % 3}" for row in range(8)]
    columns = {"x": [0.5 * row for row in range(8)], "y": [None, *"aabb", None, None, None], "o": owners}
    path = write_table(tmp_path / "t.csv", columns)
    data = TableData(path=path, labels=("y",), group="o").load()
    ids = [*data.labeled[0].ids.tolist(), *data.unlabeled.ids.tolist()]
    assert ids == [1, 2, 3, 4, 0, 5, 6, 7]
    assert data.groups.tolist() == [owners[row] for row in ids]


def test_held_out_rows_that_are_learned_from_are_warned_of(tmp_path: Path) -> None:
    rows = {"x": [1.0, 2.0, 3.0, 4.0], "y": ["a", "b", "a", None]}
    train = write_table(tmp_path / "train.csv", rows)
    # One labeled row, one of the pool, which is not learned from with a label, and a new one.
    test = write_table(tmp_path / "test.csv", {"x": [2.0, 4.0, 5.0], "y": ["b", "a", "b"]})
    new = write_table(tmp_path / "new.csv", {"x": [4.0, 5.0], "y": ["a", "b"]})
    for name in ("test_path", "validation_path"):
        settings = TableData(path=train, labels=("y",), **{name: test})
        with pytest.warns(UserWarning, match=r"1 of the 3 labeled rows of '.*test.csv' have the very features of"):
            settings.load()
        settings.replace(**{name: new}).load()
    # Features that many samples share do not say which sample it is.
    coarse = write_table(tmp_path / "coarse.csv", {"x": [0.0, 1.0] * 4, "y": ["a", "b"] * 3 + [None] * 2})
    TableData(path=coarse, labels=("y",), test_path=coarse).load()


def test_copies_on_both_sides_of_a_share_are_warned_of(tmp_path: Path) -> None:
    # Rows 0 to 3 are also rows 20 to 23; a row of the pool is not learned from with a label.
    path = write_table(tmp_path / "t.csv", {"x": [*range(5, 25), 5, 6, 7, 8, 5], "y": [*"ab" * 12, None]})
    told = set()
    for seed in range(10):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            data = TableData(path=path, labels=("y",), validation=0.5, validation_seed=seed).load()
        held_out = set(data.validation[0].ids.tolist())
        apart = sum((row in held_out) != (row + 20 in held_out) for row in range(4))
        said = any(f"{apart} of the 12 held-out rows of '" in str(warning.message) for warning in found)
        assert said == (apart >= 3)  # one or two may be alike by chance
        told.add(said)
    assert told == {True, False}


def test_held_out_rows_of_another_dtype_are_recognized(tmp_path: Path) -> None:
    x, y = np.arange(8).reshape(4, 2), np.array([0, 1, 0, -1])
    np.savez(tmp_path / "train.npz", x=x.astype(np.uint8), y=y)
    np.savez(tmp_path / "test.npz", x=x.astype(np.float32), y=y)
    with pytest.warns(UserWarning, match="3 of the 3 labeled rows"):
        TableData(path=tmp_path / "train.npz", test_path=tmp_path / "test.npz").load()


def test_arrays_keep_their_shape(tmp_path: Path) -> None:
    x, y = np.zeros((6, 2, 3), dtype=np.uint8), np.array([0, 1, -1, 0, 1, -1])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", x=x, y=y)
    for settings in (
        TableData(path=tmp_path / "x.npy", labels_path=tmp_path / "y.npy"),
        TableData(path=tmp_path / "both.npz"),
    ):
        data = settings.pinned().load()
        assert data.labeled[0].sample_shape == (2, 3)
        assert data.feature_names is None
        assert len(data.unlabeled) == 2


def test_a_table_without_labels_is_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"x": [1.0, 2.0], "y": [None, None]})
    with pytest.raises(DataError, match=r"t.csv' has no labeled row; fill in the label of some rows"):
        TableData(path=path, labels=("y",)).load()
    with pytest.raises(DataError, match="was read without labels; name its label column"):
        TableData(path=path, drop=("y",)).load()
    np.save(tmp_path / "x.npy", np.eye(2))
    with pytest.raises(DataError, match="was read without labels; .* an .npy file of labels with --labels-file"):
        TableData(path=tmp_path / "x.npy").load()


@pytest.mark.filterwarnings("ignore:.*have the very features of labeled rows")
def test_paths_become_absolute_and_changed_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pets.csv", "more.csv"):
        write_pets(Path(name))
    settings = TableData(path=Path("pets.csv"), labels=("kind",), id_column="name", test_path=Path("more.csv")).pinned()
    assert (settings.path, settings.test_path) == (tmp_path / "pets.csv", tmp_path / "more.csv")
    assert settings.pinned() == settings
    settings.load()
    for name, old in (("more.csv", settings.test_sha256), ("pets.csv", settings.sha256)):
        write_pets(Path(name), rows=41)
        with pytest.raises(RunError, match=rf"File '{tmp_path}/{name}' has changed since the run began: .*{old}"):
            settings.load()


def test_contradicting_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="either validation"):
        TableData(path=tmp_path, validation=0.2, validation_path=tmp_path)
    with pytest.raises(ValidationError, match="test_sha256 is given without the file"):
        TableData(path=tmp_path, test_sha256="0")


def test_a_run_on_a_table_is_resumed_and_a_changed_table_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pets(Path("pets.csv"))
    table = TableData(path=Path("pets.csv"), labels=("kind",), id_column="name", validation=0.2)
    settings = RunSettings(learner=LEARNER, data=table, config=CONFIG)
    list(start("whole", settings))
    next(start("run", settings))
    list(resume("run"))
    assert difference(Path("run"), Path("whole")) == ""
    folder = RunFolder.open("run")
    assert folder.settings.feature_names == ("weight", "length")
    assert folder.pool().ids.tolist()[:2] == ["pet 1", "pet 3"]
    assert folder.pool_table()["label"].to_pylist()[0] in ("cat", "dog", "eel")
    assert folder.truth is None
    assert len(folder.data().unlabeled) == 20
    write_pets(Path("pets.csv"), rows=41)
    with pytest.raises(
        RunError, match=r"File '.*pets.csv' has changed since the run began: its SHA-256 was \w+ and is"
    ):
        resume("run", max_rounds=4)


def test_a_function_gets_its_arguments_and_must_return_run_data(tmp_path: Path) -> None:
    settings = small_settings(tmp_path).data
    assert isinstance(settings, FunctionData)
    assert settings.load().validation is None
    assert settings.replace(arguments={"with_validation": True}).load().validation is not None
    with pytest.raises(InvalidInputError, match=r"'builtins:dict' must return a RunData; got dict"):
        FunctionData(function="builtins:dict").load()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"zzz": 1}, r"arguments=\{'zzz': 1\}: got an unexpected .*'zzz'\. It takes seed, labels_per_class"),
        (
            {"labels_per_class": "a"},
            r"arguments=\{'labels_per_class': 'a'\} \(TypeError: .*\)\. Correct the arguments\.",
        ),
        ({"seed": -1}, r"arguments=\{'seed': -1\} \(InvalidParameterError: .*\)\. Correct the arguments\."),
    ],
)
def test_arguments_that_a_function_refuses_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(
        InvalidInputError, match=rf"'surelabel.reproduce.digits:digits' cannot be called with {message}"
    ):
        FunctionData(function="surelabel.reproduce.digits:digits", arguments=arguments).load()


def test_a_function_of_ones_own_that_fails_tells_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    return 1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        FunctionData(function=f"{tmp_path}/mine.py:make").load()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "b", "\ud800", "d"], r"The id '\\ud800' holds a lone surrogate"),
        (["a", "b", None, "d"], "an id is missing"),
        ([1, 2, 2**70, 4], "ids must be all integers or all strings"),
        ([1, "1", 2, 3], "ids must be all integers or all strings"),
    ],
)
def test_ids_that_a_run_could_not_keep_are_refused_before_it_begins(tmp_path: Path, ids: list, message: str) -> None:
    names = np.array([*ids, *(f"more {row}" for row in range(68))] if isinstance(ids[0], str) else ids, dtype=object)
    x, y = (part[: len(names)] for part in blobs())
    labeled = (ArraySource(x[:2], ids=names[:2]), y[:2])
    with pytest.raises(InvalidInputError, match=message):
        run(tmp_path / "run", LEARNER.build("single"), labeled, ArraySource(x[2:], ids=names[2:]), CONFIG)
    assert not (tmp_path / "run").exists()


def test_ids_that_cannot_be_compared_are_named_without_a_run() -> None:
    pool = ArraySource(np.zeros((2, 1)), ids=np.array(["a", None], dtype=object))
    with pytest.raises(InvalidInputError, match="ids must be all integers or all strings"):
        list(self_train(LEARNER.build("single"), (ArraySource(np.eye(2, 1), ids=["u", "v"]), [0, 1]), pool, CONFIG))


def test_ids_of_the_other_order_of_bytes_are_kept(tmp_path: Path) -> None:
    x, y = blobs()
    ids = (np.arange(72, dtype=np.uint64) + np.uint64(2**63)).astype(">u8")
    parts = (ArraySource(x[:9].astype(">f4"), ids=ids[:9]), y[:9]), ArraySource(x[9:].astype(">f4"), ids=ids[9:])
    list(run(tmp_path / "run", LEARNER.build("single"), *parts, CONFIG))
    assert RunFolder.open(tmp_path / "run").pool().ids.tolist() == ids[9:].tolist()


def test_a_class_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    x, y = blobs()
    with pytest.raises(InvalidInputError, match=r"The class '\\ud800' holds a lone surrogate"):
        run(tmp_path / "run", LEARNER.build("single"), (x[:9], y[:9]), x[9:], CONFIG, classes=["a", "b", "\ud800"])


# Files that have moved


def begun(folder: Path) -> Path:
    """A run of one round in `folder`/run on three files in `folder`/data, to be resumed."""
    (folder / "data").mkdir()
    files = {name: write_pets(folder / "data" / f"{name}.csv", rows=rows) for name, rows in SIZES.items()}
    data = TableData(
        path=files["pets"],
        labels=("kind",),
        id_column="name",
        test_path=files["test"],
        validation_path=files["validation"],
    )
    settings = small_settings(folder, data=data, max_rounds=1, name=folder.name)
    with pytest.warns(UserWarning, match="have the very features of labeled rows"):
        next(start(folder / "run", settings))
    return folder / "run"


SIZES = {"pets": 40, "test": 20, "validation": 30}


@pytest.mark.filterwarnings("ignore:.*have the very features")
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_data_that_are_no_plain_file_any_more_are_refused_unread(tmp_path: Path, kind: str) -> None:
    folder, file = begun(tmp_path), tmp_path / "data" / "pets.csv"
    file.unlink()
    {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": Path.mkdir}[kind](file)
    with pytest.raises(DataError, match=r"pets.csv', which the run began with, is not a plain file.*--data FILE"):
        resume(folder)


@pytest.mark.filterwarnings("ignore:.*have the very features")
def test_files_that_have_moved_are_found_by_the_new_place_of_the_data_and_kept(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"pets.csv', which the run began with, is not there any more.*--data FILE"):
        resume(folder)
    (tmp_path / "elsewhere" / "pets.csv").rename(tmp_path / "elsewhere" / "animals.csv")
    assert len(list(resume(folder, data=tmp_path / "elsewhere" / "animals.csv"))) == 1
    data = RunFolder.open(folder).settings.data
    assert isinstance(data, TableData)
    paths = (data.path, data.test_path, data.validation_path)
    assert paths == tuple(tmp_path / "elsewhere" / f"{name}.csv" for name in ("animals", "test", "validation"))
    assert len(list(resume(folder, max_rounds=2))) == 1, "the next resume needs no path"


@pytest.mark.filterwarnings("ignore:.*have the very features")
def test_a_file_that_is_still_there_is_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun(tmp_path)
    (tmp_path / "new").mkdir()
    (tmp_path / "data" / "pets.csv").rename(tmp_path / "new" / "pets.csv")
    (tmp_path / "new" / "test.csv").write_text("another file of this name")
    monkeypatch.chdir(tmp_path / "new")
    assert len(list(resume(folder, data="pets.csv"))) == 1
    data = RunFolder.open(folder).settings.data
    assert isinstance(data, TableData)
    assert (data.path, data.test_path) == (tmp_path / "new" / "pets.csv", tmp_path / "data" / "test.csv")


@pytest.mark.filterwarnings("ignore:.*have the very features")
@pytest.mark.parametrize("name", SIZES)
def test_another_content_is_refused_and_the_run_stays_as_it_is(tmp_path: Path, name: str) -> None:
    folder = begun(tmp_path)
    (tmp_path / "data").rename(tmp_path / "new")
    write_pets(tmp_path / "new" / f"{name}.csv", rows=SIZES[name], weight=np.zeros(SIZES[name]))
    before = (folder / "run.json").read_bytes()
    with pytest.raises(ChangedFileError, match=rf"new/{name}.csv' has changed since the run began"):
        resume(folder, data=tmp_path / "new" / "pets.csv")
    assert (folder / "run.json").read_bytes() == before


@pytest.mark.filterwarnings("ignore:.*have the very features")
def test_a_finished_run_keeps_the_new_place_too(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    list(resume(folder))
    (tmp_path / "data").rename(tmp_path / "new")
    assert list(resume(folder, data=tmp_path / "new" / "pets.csv")) == []
    RunFolder.open(folder).data()


def test_data_that_are_not_in_a_file_cannot_have_moved(tmp_path: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=0)))
    with pytest.raises(InvalidInputError, match=r"data of the run in .* are not in a file; leave"):
        resume(tmp_path / "run", data=tmp_path / "pets.csv")
