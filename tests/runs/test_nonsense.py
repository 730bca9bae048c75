"""A run folder that is whole by its checksums and makes no sense: the file is named by every command that reads it."""

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import skops.io
import torch
from cli_support import LOGISTIC, QUICK, Command, blobs, write_blobs
from sklearn.linear_model import LogisticRegression

from surelabel.cli import main
from surelabel.data.tables import write_table
from surelabel.errors import DamagedFileError, RunError
from surelabel.runs import RunFolder
from surelabel.runs.files import checksum, write_json
from surelabel.runs.tables import table_bytes, table_from_bytes

pytestmark = pytest.mark.usefixtures("short_fits")

RUNS = ("network", "classifier", "several")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two rounds with validation sets: of a network, of a classifier, and of several labels a sample."""
    folder = tmp_path_factory.mktemp("home")
    file = write_blobs(folder / "pets.csv")
    many = ("--validation", "0.5", "--tau-n", "0.6", "--kappa-n", "inf", "--tau-p", "0.6", "--quiet")
    one = ("fit", file, "--label", "pet", "--id", "id", *many)
    present = [[int(row % 2 == code) if row < 8 else None for row in range(60)] for code in (0, 1)]
    columns = {**blobs(), "pet": None, "cat": present[0], "dog": present[1]}
    several = write_table(
        folder / "several.csv", {name: values for name, values in columns.items() if values is not None}
    )
    both = ("fit", several, "--label", "cat", "--label", "dog", "--id", "id", *many)
    for words in (
        (*one, *QUICK, "--out", folder / "network"),
        (*one, *LOGISTIC, "--out", folder / "classifier"),
        (*both, *QUICK, "--out", folder / "several"),
    ):
        assert main([str(word) for word in words]) == 0
    return folder


@pytest.fixture
def run(home: Path, own_folder: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(home / name, own_folder / name))


# Changes, with every checksum made anew


def change_json(folder: Path, name: str, change: Callable[[Any], object]) -> None:
    content = json.loads((folder / name).read_text())
    content.pop("checksum")
    change(content)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))  # write_json would refuse a NaN
    (folder / name).write_text(json.dumps({**content, "checksum": checksum(text.encode())}))


def change_file(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    data = change((folder / name).read_bytes())
    (folder / name).write_bytes(data)
    history = json.loads((folder / "history.json").read_text())
    history.pop("checksum")
    history["rounds"][int(name.split("/")[1])]["files"][name] = checksum(data)
    write_json(folder / "history.json", history)


def change_table(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    change_file(folder, name, lambda data: table_bytes(change(table_from_bytes(data))))


def commands(folder: Path, home: Path, only: str = "") -> list[tuple[object, ...]]:
    file = home / ("several.csv" if folder.name == "several" else "pets.csv")
    every = {
        "predict": ("predict", folder, file),
        "label": ("label", folder, file),
        "thresholds": ("thresholds", folder, "--round", "-1"),
        "report": ("report", folder, "--out", "report.html"),
        "resume": ("resume", folder, "--rounds", "2"),
    }
    return [every[name] for name in only.split()] if only else list(every.values())


# history.json, environment.json, split.json and run.json


def last(**changes: Any) -> Callable[[Any], None]:
    return lambda content: content["rounds"][-1].update(changes)


def without(key: str) -> Callable[[Any], None]:
    return lambda content: content["rounds"][0].pop(key)


HISTORIES: dict[str, tuple[Callable[[Any], object], str]] = {
    "no rounds": (lambda content: content.pop("rounds"), "'rounds': Field required"),
    "rounds that are a text": (lambda content: content.update(rounds="two"), "'rounds': Input should be a valid list"),
    "a round that is a number": (lambda content: content["rounds"].append(2), "'rounds.2': "),
    "a number that is none": (last(minutes=float("nan")), "it is not JSON (Out of range float"),
    "an infinite number": (last(minutes=float("inf")), "it is not JSON (Out of range float"),
    "a missing key": (without("num_negative"), "'rounds.0.num_negative': Field required"),
    "missing files": (without("files"), "'rounds.0.files': Field required"),
    "a text for a number": (last(num_positive="12"), "'rounds.1.num_positive': Input should be a valid integer"),
    "a negative count": (last(num_negative=-1), "'rounds.1.num_negative': Input should be greater than or equal to 0"),
    "a share above 1": (last(positive_share=7.5), "'rounds.1.positive_share': Input should be less than"),
    "minutes without end": (last(minutes=1e300), "'rounds.1.minutes': Input should be less than"),
    "an unknown reason": (last(stop="tired"), "'rounds.1.stop': Input should be 'converged'"),
    "other classes": (last(class_counts=[1, 2, 3]), "round 1 does not count 2 classes"),
    "another order": (lambda content: content["rounds"].reverse(), "entry 0 is not that of round 0"),
    "files elsewhere": (last(files={"../../secret": "0" * 64}), "'rounds.1.files.../../secret.[key]': String should"),
    "files of another round": (last(files={"rounds/000/pool.parquet": "0" * 64}), "entry 1 is not that of round 1"),
    "no checksum of a file": (last(files={"rounds/001/pool.parquet": 7}), "'rounds.1.files.rounds/001/pool.parquet'"),
}


@pytest.mark.parametrize("what", HISTORIES)
def test_a_history_that_makes_no_sense_is_named_by_every_command(
    command: Command, run: Callable[[str], Path], home: Path, what: str
) -> None:
    folder = run("network")
    change, problem = HISTORIES[what]
    change_json(folder, "history.json", change)
    with pytest.raises(DamagedFileError, match="Restore it from a copy") as error:
        RunFolder.open(folder)
    assert f"File '{folder}/history.json' is damaged: {problem}" in str(error.value)
    for words in commands(folder, home):
        assert f"File '{folder}/history.json' is damaged: " in command.fails(1, *words)


@pytest.mark.parametrize("levels", [990, 100_000])
@pytest.mark.parametrize("name", ["run.json", "history.json"])
def test_more_levels_than_can_be_read_are_named(
    command: Command, run: Callable[[str], Path], home: Path, name: str, levels: int
) -> None:
    folder = run("network")
    nested = "[" * levels + "]" * levels
    (folder / name).write_text(f'{{"format": 1, "rounds": {nested}, "checksum": ""}}')
    for words in commands(folder, home):
        assert f"File '{folder}/{name}' is damaged: " in command.fails(1, *words)


def test_rounds_of_a_newer_version_are_not_called_damaged(run: Callable[[str], Path]) -> None:
    folder = run("network")
    change_json(folder, "history.json", last(shiny=1))
    with pytest.raises(
        RunError, match=r"does not know what .* holds \('rounds.1.shiny': .*Install the version that wrote it"
    ) as error:
        RunFolder.open(folder)
    assert not isinstance(error.value, DamagedFileError)


ENVIRONMENTS: dict[str, Callable[[Any], object]] = {
    "no entries": lambda content: content.pop("entries"),
    "an empty list": lambda content: content.update(entries=[]),
    "a text": lambda content: content.update(entries=["linux"]),
    "no versions": lambda content: content["entries"][0].pop("versions"),
    "versions of another type": lambda content: content["entries"][0].update(versions={"torch": 2}),
    "a device of another type": lambda content: content["entries"][0].update(device=["cpu"]),
    "a lone surrogate": lambda content: content["entries"][0].update(platform="\ud800"),
}


@pytest.mark.parametrize("what", ENVIRONMENTS)
def test_an_environment_that_makes_no_sense_is_named(
    command: Command, run: Callable[[str], Path], home: Path, what: str
) -> None:
    folder = run("classifier")
    change_json(folder, "environment.json", ENVIRONMENTS[what])
    for words in commands(folder, home, "report resume"):
        line = command.fails(1, *words)
        assert f"File '{folder}/environment.json' is damaged: " in line
        assert "'entries" in line or "surrogates not allowed" in line


SPLITS: dict[str, Callable[[Any], object]] = {
    "labeled": lambda content: content.pop("labeled"),
    "validation": lambda content: content.update(validation=[[1]]),
    "hash": lambda content: content.update(hash=7),
}


@pytest.mark.parametrize("what", SPLITS)
def test_a_split_that_makes_no_sense_is_named(
    command: Command, run: Callable[[str], Path], home: Path, what: str
) -> None:
    folder = run("classifier")
    change_json(folder, "split.json", SPLITS[what])
    for words in commands(folder, home, "resume"):
        assert f"File '{folder}/split.json' is damaged: '{what}" in command.fails(1, *words)


SETTINGS: dict[str, tuple[Callable[[Any], object], str]] = {
    "no settings": (lambda content: content.pop("settings"), "has settings that"),
    "a list": (lambda content: content.update(settings=[1]), "has settings that"),
    "a number out of range": (lambda content: content["settings"]["config"].update(tau_p=7), "'config.tau_p': "),
    "no classes": (lambda content: content["settings"].update(classes=[]), "is damaged: its classes are []"),
    "classes of one name": (lambda content: content["settings"].update(classes=["a", "a"]), "is damaged: its classes"),
    "another number": (lambda content: content["settings"]["config"].update(num_classes=3), "num_classes is 3"),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_settings_that_make_no_sense_are_named(
    command: Command, run: Callable[[str], Path], home: Path, what: str
) -> None:
    folder = run("classifier")
    change, problem = SETTINGS[what]
    change_json(folder, "run.json", change)
    for words in commands(folder, home):
        line = command.fails(1, *words)
        assert line.startswith(f"File '{folder}/run.json' ")
        assert problem in line


# Tables


def column(name: str, values: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda table: table.set_column(table.column_names.index(name), name, values(table[name]))


def first(name: str, value: object) -> Callable[[Any], Any]:
    return column(name, lambda old: pa.array([value, *old.to_pylist()[1:]], old.type))


def upside_down(table: Any) -> Any:
    return table.take(list(range(len(table)))[::-1])


def about(**changes: object) -> Callable[[Any], Any]:
    def changed(table: Any) -> Any:
        known = json.loads(table.schema.metadata[b"surelabel"])
        return table.replace_schema_metadata({b"surelabel": json.dumps({**known, **changes}).encode()})

    return changed


TABLES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a column less": (lambda table: table.drop_columns(["truth"]), "its columns must be id, "),
    "a column more": (lambda table: table.append_column("more", table["id"]), "they are id, "),
    "another order of columns": (lambda table: table.select(table.column_names[::-1]), "its columns must be id, "),
    "labels that are numbers": (
        column("selected", lambda old: pa.array(range(len(old)))),
        "of another type: int64",
    ),
    "floats that are text": (
        column("confidence", lambda old: old.cast(pa.string())),
        "of another type: string",
    ),
    "a label of no class": (column("label", lambda old: pa.array(["ox"] * len(old))), "'label'"),
    "an unknown selection": (first("selected", "perhaps"), "'selected' has values other than 'none', 'negative'"),
    "an empty cell": (first("before_balancing", None), "'before_balancing' has 1 empty cells"),
    "a confidence above 1": (first("confidence", 1.5), "'confidence' has numbers that are no confidence"),
    "a confidence that is no number": (first("confidence_soft", float("nan")), "'confidence_soft' has numbers"),
    "an uncertainty below 0": (first("uncertainty", -0.1), "'uncertainty' has numbers that are no uncertainty"),
    "an uncertainty that is missing": (first("uncertainty_soft", None), "'uncertainty_soft' has 1 empty cells"),
    "no metadata": (lambda table: table.replace_schema_metadata(None), "its metadata are not those of the run"),
    "metadata of other classes": (about(classes=["a", "b"]), "its metadata are not those of the run's task"),
    "metadata of another task": (about(task="neither"), "its metadata are not those of the run's task"),
    "metadata of many levels": (
        lambda table: table.replace_schema_metadata({b"surelabel": b"[" * 100_000}),
        "maximum recursion depth",
    ),
    "ids of another type": (about(ids="<i8"), "its metadata call its ids '<i8'; they are string"),
    "ids without end": (about(ids="<U100000000"), "its metadata call its ids '<U100000000'"),
    "ids cut short": (about(ids="<U1"), "its metadata call its ids '<U1'"),
    "ids of no type": (about(ids=7), "its metadata call its ids 7"),
    "ids of structures": (about(ids="i4,i4"), "its metadata call its ids 'i4,i4'"),
    "ids of lists": (column("id", lambda old: pa.array([[1]] * len(old))), "'id' is of another type: list"),
}


@pytest.mark.parametrize("name", ["network", "several"])
@pytest.mark.parametrize("what", TABLES)
def test_a_table_that_makes_no_sense_is_named(run: Callable[[str], Path], what: str, name: str) -> None:
    folder = run(name)
    change, problem = TABLES[what]
    for file in ("pool", "validation"):
        change_table(folder, f"rounds/001/{file}.parquet", change)
    read = RunFolder.open(folder)
    for file, labels in (("pool", read.pool), ("validation", read.validation)):
        with pytest.raises(DamagedFileError, match="Restore it from a copy") as error:
            labels(1)
        assert f"File '{folder}/rounds/001/{file}.parquet' is damaged: " in str(error.value)
        assert problem in str(error.value)


TOGETHER: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "negatives of unknown ids": ("negatives", first("id", "nobody"), "its ids are not those of the pool, in"),
    "negatives in another order": ("negatives", upside_down, "in their order"),
    "negatives twice": ("negatives", lambda table: pa.concat_tables([table, table]), "not those of the pool, in their"),
    "negatives whose ids are numbers": (
        "negatives",
        column("id", lambda old: pa.array(range(len(old)))),
        "its ids are of another type than those of the pool",
    ),
    "negatives of no class": ("negatives", first("classes", b"\x00"), "'classes' has rows without a class"),
    "negatives of more classes": ("negatives", first("classes", b"\x01"), "or classes that are not there"),
    "a sample less": ("pool", lambda table: table.slice(2), "its ids are not those of"),
}


@pytest.mark.parametrize("name", ["network", "several"])
@pytest.mark.parametrize("what", TOGETHER)
def test_tables_that_do_not_go_together_are_named(run: Callable[[str], Path], what: str, name: str) -> None:
    folder = run(name)
    file, change, problem = TOGETHER[what]
    assert RunFolder.open(folder).table("negatives.parquet", 1).num_rows > 2
    change_table(folder, f"rounds/001/{file}.parquet", change)
    read = RunFolder.open(folder)
    read.pool(0)
    with pytest.raises(
        DamagedFileError, match=rf"File '{folder}/rounds/001/(pool|negatives).parquet' is damaged"
    ) as error:
        read.pool(1)
    assert problem in str(error.value)


def test_several_labels_have_a_row_for_each_class(run: Callable[[str], Path]) -> None:
    folder = run("several")
    for change in (lambda table: table.slice(1), upside_down):
        change_table(folder, "rounds/000/pool.parquet", change)
        with pytest.raises(DamagedFileError, match="it has not, sample by sample, a row for each class"):
            RunFolder.open(folder).pool(0)


@pytest.mark.parametrize(("file", "readers"), [("validation", "thresholds label report"), ("pool", "label resume")])
@pytest.mark.parametrize("name", RUNS)
def test_a_table_that_makes_no_sense_is_named_by_every_command_that_reads_it(
    command: Command, run: Callable[[str], Path], home: Path, name: str, file: str, readers: str
) -> None:
    folder = run(name)
    change_table(folder, f"rounds/001/{file}.parquet", lambda table: table.drop_columns(["label"]))
    for words in commands(folder, home, readers):
        line = command.fails(1, *words)
        assert line.startswith(f"File '{folder}/rounds/001/{file}.parquet' is damaged: its columns must be id")
    (words,) = commands(folder, home, "predict")
    assert command(*words).code == 0, "it reads no table"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no table at all"])
def test_what_is_no_table_is_named(run: Callable[[str], Path], content: bytes) -> None:
    folder = run("network")
    change_file(folder, "rounds/001/pool.parquet", lambda data: content)
    with pytest.raises(DamagedFileError, match=r"rounds/001/pool.parquet' is damaged: it is not Parquet"):
        RunFolder.open(folder).pool()


# Models


def repacked(change: Callable[[dict[str, bytes]], object]) -> Callable[[bytes], bytes]:
    """Change the members of a skops file."""

    def changed(data: bytes) -> bytes:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        change(members)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return out.getvalue()

    return changed


def padded(data: bytes) -> bytes:
    """Let the schema of a skops file unpack to 32 MB of nothing."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            with archive.open(name, "w", force_zip64=True) as stream:
                stream.write(content)
                if name == "schema.json":
                    for _ in range(2):
                        stream.write(b" " * (1 << 24))
    return out.getvalue()


def dumped(value: object) -> Callable[[bytes], bytes]:
    return lambda data: skops.io.dumps(value)


def fitted(num_features: int, num_classes: int) -> LogisticRegression:
    x = np.random.default_rng(0).normal(size=(12, num_features))
    return LogisticRegression().fit(x, np.arange(12) % num_classes)


def wrong_arrays(members: dict[str, bytes]) -> None:
    """Give every array of floats a shape that fits none of the others."""
    for name in [name for name in members if name.endswith(".npy")]:
        array = np.load(io.BytesIO(members[name]))
        if array.dtype.kind == "f":
            stream = io.BytesIO()
            np.save(stream, np.zeros((1, 7)))
            members[name] = stream.getvalue()


NO_SKOPS = "it is not the learner's model. The content is no skops file of models"
CLASSIFIERS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda data: b"", NO_SKOPS),
    "a half": (lambda data: data[: len(data) // 2], NO_SKOPS),
    "no archive": (lambda data: b"weights", NO_SKOPS),
    "no schema": (repacked(lambda members: members.pop("schema.json")), NO_SKOPS),
    "a schema that is a number": (repacked(lambda members: members.update({"schema.json": b"7"})), NO_SKOPS),
    "a schema of many levels": (repacked(lambda members: members.update({"schema.json": b"[" * 10**5})), NO_SKOPS),
    "a schema of 32 megabytes": (padded, "bytes of memory or more, and at most 16,777,216 are allowed"),
    "a text": (dumped("model"), "The content must be 4 models for samples of shape (2,) and 2 classes"),
    "too few": (dumped([fitted(2, 2)]), "The content must be 4 models"),
    "other objects": (dumped([1.0] * 4), "The content must be 4 models"),
    "other features": (dumped([fitted(3, 2)] * 4), "The content must be 4 models for samples of shape (2,)"),
    "other classes": (dumped([fitted(2, 3)] * 4), "The content must be 4 models"),
}


@pytest.mark.parametrize("what", CLASSIFIERS)
def test_a_broken_classifier_is_named(
    command: Command, run: Callable[[str], Path], home: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURELABEL_MAX_BYTES", str(1 << 24))
    folder = run("classifier")
    change, problem = CLASSIFIERS[what]
    change_file(folder, "rounds/001/model.skops", change)
    for words in commands(folder, home, "predict label"):
        line = command.fails(1, *words)
        assert line.startswith(f"File '{folder}/rounds/001/model.skops' is damaged: ")
        assert problem in line


def test_a_classifier_that_fails_on_the_samples_is_one_line(
    command: Command, run: Callable[[str], Path], home: Path
) -> None:
    folder = run("classifier")
    change_file(folder, "rounds/001/model.skops", repacked(wrong_arrays))
    for words in commands(folder, home, "predict label"):
        assert command.fails(1, *words).startswith("The classifier LogisticRegression fails on these samples (ValueErr")


def test_a_classifier_that_cannot_be_exported_is_one_line(
    command: Command, run: Callable[[str], Path], own_folder: Path
) -> None:
    folder, broken = run("classifier"), fitted(2, 2)
    del broken.coef_
    change_file(folder, "rounds/001/model.skops", dumped([broken] * 4))
    line = command.fails(1, "export", folder, "--out", own_folder / "model.pt2")
    assert line.startswith("The LogisticRegression cannot be exported (AttributeError: ")


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        tensors = safetensors.torch.load(data)
        change(tensors)
        return safetensors.torch.save(tensors)

    return changed


NETWORKS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda data: b"", "must be the content of a safetensors file"),
    "a half": (lambda data: data[: len(data) // 2], "must be the content of a safetensors file"),
    "a tensor less": (weights(lambda tensors: tensors.pop("mean")), "do not fit the network"),
    "another shape": (weights(lambda tensors: tensors.update(mean=torch.zeros(5))), "do not fit the network"),
}


@pytest.mark.parametrize("what", NETWORKS)
def test_broken_weights_are_named(command: Command, run: Callable[[str], Path], home: Path, what: str) -> None:
    folder = run("network")
    change, problem = NETWORKS[what]
    change_file(folder, "rounds/001/model.safetensors", change)
    for words in commands(folder, home, "predict label"):
        line = command.fails(1, *words)
        assert line.startswith(
            f"File '{folder}/rounds/001/model.safetensors' is damaged: it is not the learner's model"
        )
        assert problem in line


def test_weights_that_are_no_numbers_predict_nothing(command: Command, run: Callable[[str], Path], home: Path) -> None:
    folder = run("network")
    change_file(
        folder,
        "rounds/001/model.safetensors",
        weights(lambda tensors: tensors.update({name: value * torch.nan for name, value in tensors.items()})),
    )
    (words,) = commands(folder, home, "predict")
    assert "The network's output is not finite for 60 of 60 samples" in command.fails(1, *words)
