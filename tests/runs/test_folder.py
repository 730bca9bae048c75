"""What a run folder holds, for every kind of learner, task and ids."""

import json
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import CONFIG, LEARNER, assert_same_pool, blobs, contents, difference, history, small_settings

import surelabel.runs
import surelabel.runs.shared_fits
from surelabel.data.run_data import FunctionData, RunData
from surelabel.data.source import ArraySource
from surelabel.data.splits import split_hash
from surelabel.errors import InvalidInputError, RunError
from surelabel.learners.settings import SklearnLearnerSettings
from surelabel.records import RoundRecord
from surelabel.report.html import write_report
from surelabel.runs import RunFolder, environment
from surelabel.runs.checks import split_of
from surelabel.runs.files import read_json, write_json
from surelabel.runs.layout import HISTORY, RUN
from surelabel.runs.session import resume, run, start
from surelabel.settings import RunSettings


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RoundRecord]]:
    """A finished run of three rounds, and its records."""
    folder = tmp_path_factory.mktemp("finished")
    records = list(start(folder / "run", small_settings(folder, with_validation=True, name="UPS")))
    return folder / "run", records


def test_a_run_folder_has_the_documented_files(finished: tuple[Path, list[RoundRecord]]) -> None:
    tables = ("pool.parquet", "negatives.parquet", "validation.parquet", "validation_negatives.parquet")
    expected = {f"rounds/{number:03d}/{name}" for number in range(3) for name in tables}
    expected |= {".lock", "run.json", "environment.json", "split.json", "history.json", "rounds/002/model.safetensors"}
    assert set(contents(finished[0])) == expected


def test_records_settings_and_environment_are_read_back(finished: tuple[Path, list[RoundRecord]]) -> None:
    folder = RunFolder.open(finished[0])
    assert folder.records() == finished[1]
    assert folder.finished
    assert (folder.settings.name, folder.settings.classes, folder.settings.sample_shape) == (
        "UPS",
        ("a", "b", "c"),
        (4,),
    )
    assert folder.settings.config == CONFIG.replace(num_classes=3)
    (entry,) = folder.environment
    assert set(entry["versions"]) >= {"python", "surelabel", "torch", "numpy", "scikit-learn"}
    assert entry["device"] == "cpu"


@pytest.mark.usefixtures("undrawn")
def test_a_folder_of_the_first_version_is_read_resumed_and_shown(tmp_path: Path) -> None:
    """Its scores were fields of a round, its data function had another name, it was not signed."""
    data = FunctionData(function="surelabel.reproduce.digits:digits", arguments={"labels_per_class": 4})
    settings = small_settings(tmp_path).replace(data=data, config=CONFIG.replace(max_rounds=1, num_classes=None))
    made = list(start(tmp_path / "run", settings))
    for name, change in ((HISTORY, _as_first_history), (RUN, _as_first_settings)):
        write_json(tmp_path / "run" / name, change(read_json(tmp_path / "run" / name)))
    folder = RunFolder.open(tmp_path / "run")
    assert [record.test_score for record in folder.records()] == [record.test_score for record in made]
    assert made[0].test_score is not None
    assert folder.settings.data == data
    assert [record.round for record in resume(tmp_path / "run", max_rounds=2)] == [2]
    write_report([RunFolder.open(tmp_path / "run")], tmp_path / "report.html")


def _as_first_history(content: dict[str, Any]) -> dict[str, Any]:
    rounds = []
    for entry in content["rounds"]:
        scores = entry.pop("scores")
        none = dict.fromkeys(("validation_score", "validation_score_11", "test_score_11"))
        rounds.append({**entry, **none, "test_score": scores["test accuracy"]})
    return {"rounds": rounds}


def _as_first_settings(content: dict[str, Any]) -> dict[str, Any]:
    content.pop("signature")
    content["settings"]["data"]["function"] = "surelabel.recipes.demo:digits"
    content["settings"].pop("checkpoint_minutes")
    return {name: value for name, value in content.items() if name != "checksum"}


def test_the_split_is_kept_with_its_hash(finished: tuple[Path, list[RoundRecord]]) -> None:
    folder = RunFolder.open(finished[0])
    split = folder.split()
    # Arrays without ids: the samples of each part are counted from 0, which says nothing about the split.
    expected = {"labeled": list(range(9)), "validation": list(range(12))}
    assert split == {**expected, "hash": folder.settings.fingerprint}
    kept = json.loads((finished[0] / "split.json").read_text())
    assert (kept["labeled"], kept["hash"]) == (expected["labeled"], split["hash"])


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (np.arange(9, dtype=np.uint64) + np.uint64(2**63), [2**63 + number for number in range(9)]),
        (np.arange(9).astype(object), list(range(9))),
        (np.arange(9) / 2, [number / 2 for number in range(9)]),
        (np.array([f"é {number}" for number in range(9)]), [f"é {number}" for number in range(9)]),
        (np.array([b"%d" % number for number in range(9)]), [f"b'{number}'" for number in range(9)]),
    ],
    ids=["uint64", "objects", "floats", "text", "bytes"],
)
def test_a_split_has_numbers_and_text_as_they_are(ids: Any, kept: list[int | float | str]) -> None:
    x, y = blobs()
    split = split_of(RunData((ArraySource(x[:9], ids=ids), y[:9]), None, ["a", "b", "c"]))
    assert split == {"labeled": kept, "validation": [], "hash": split_hash(ids)}
    assert json.loads(json.dumps(split, allow_nan=False)) == split


@pytest.mark.parametrize("named", [False, True])
def test_another_split_has_another_hash(named: bool) -> None:
    x, y = blobs()
    orders = [np.arange(len(x)), np.roll(np.arange(len(x)), 3)]
    parts = [
        [ArraySource(x[rows], ids=rows) if named else x[rows] for rows in (order[:9], order[9:])] for order in orders
    ]
    splits = [
        split_of(RunData((few, y[order[:9]]), rest, ["a", "b", "c"]))
        for (few, rest), order in zip(parts, orders, strict=True)
    ]
    assert splits[0]["hash"] != splits[1]["hash"]
    assert (splits[0]["hash"] == split_hash(np.arange(9))) == named


def test_a_run_without_its_split_is_resumed(tmp_path: Path) -> None:
    settings = small_settings(tmp_path)
    list(start(tmp_path / "whole", settings))
    next(start(tmp_path / "run", settings))
    for name in ("whole", "run"):
        (tmp_path / name / "split.json").unlink()
    assert RunFolder.open(tmp_path / "run").split() is None
    list(resume(tmp_path / "run"))
    assert difference(tmp_path / "run", tmp_path / "whole") == ""


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_pool_and_validation_are_read_back_exactly(finished: tuple[Path, list[RoundRecord]], number: int) -> None:
    folder, records = RunFolder.open(finished[0]), finished[1]
    for got, expected in (
        (folder.pool(number), records[number].pool),
        (folder.validation(number), records[number].validation),
    ):
        assert_same_pool(got, expected)


def test_the_tables_have_a_row_a_sample_and_a_row_for_each_with_negatives_only(
    finished: tuple[Path, list[RoundRecord]],
) -> None:
    folder, records = RunFolder.open(finished[0]), finished[1]
    table, negatives = folder.pool_table(0), folder.table("negatives.parquet", 0)
    assert table.num_rows == 51
    assert table.column_names[:3] == ["id", "label", "confidence"]
    assert set(table["selected"].to_pylist()) == {"positive", "negative", "none"}
    assert table["selected"].to_pylist().count("positive") == records[1].num_positive
    assert sum(table["before_balancing"].to_pylist()) == records[1].num_positive_before > records[1].num_positive
    assert negatives.num_rows == records[1].num_negative_only == table["selected"].to_pylist().count("negative") > 0
    np.testing.assert_array_equal(folder.truth, blobs()[1][9:60])
    np.testing.assert_array_equal(folder.validation_truth, blobs()[1][60:])
    right = [
        label == truth for label, truth in zip(*(table[name].to_pylist() for name in ("label", "truth")), strict=True)
    ]
    chosen = [value == "positive" for value in table["selected"].to_pylist()]
    assert np.mean(np.array(right)[chosen]) == records[1].positive_accuracy


def test_the_model_is_loaded_by_reference(finished: tuple[Path, list[RoundRecord]]) -> None:
    folder = RunFolder.open(finished[0])
    source = ArraySource(blobs()[0][60:])
    p = folder.learner().predict_proba(source)
    assert (p.argmax(axis=1) == blobs()[1][60:]).mean() == finished[1][-1].validation_score
    other = LEARNER.build("single")
    folder.load_model(other)
    np.testing.assert_array_equal(other.predict_proba(source), p)


def test_all_models_are_kept_when_asked(tmp_path: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, keep_models="all")))
    folder = RunFolder.open(tmp_path / "run")
    assert len({folder.model_bytes(number) for number in range(3)}) == 3
    folder.verify()


def test_a_model_that_was_not_kept_says_how_to_keep_it(finished: tuple[Path, list[RoundRecord]]) -> None:
    with pytest.raises(RunError, match=r"no model of round 1. Only the last one is kept.*keep_models='all'"):
        RunFolder.open(finished[0]).model_bytes(1)


def test_a_round_that_is_not_there_is_named(finished: tuple[Path, list[RoundRecord]]) -> None:
    with pytest.raises(RunError, match="3 finished rounds and no round 3"):
        RunFolder.open(finished[0]).pool(3)


def test_a_run_without_validation_says_so(tmp_path: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=0)))
    folder = RunFolder.open(tmp_path / "run")
    assert folder.validation_truth is None
    with pytest.raises(RunError, match=r"no rounds/000/validation.parquet: it was made without a validation set"):
        folder.table("validation.parquet")


# Other learners, other tasks, other ids.


@pytest.mark.parametrize(
    ("estimator", "parameters"),
    [
        ("sklearn.ensemble:RandomForestClassifier", {"n_estimators": 5, "max_depth": 3}),
        ("sklearn.linear_model:LogisticRegression", {"C": 0.5}),
    ],
)
def test_a_scikit_learn_run_is_kept_with_skops_and_resumed(
    tmp_path: Path, estimator: str, parameters: dict[str, Any]
) -> None:
    learner = SklearnLearnerSettings(estimator=estimator, parameters=parameters, members=3)
    settings = small_settings(tmp_path, learner=learner)
    list(start(tmp_path / "whole", settings))
    next(start(tmp_path / "run", settings))
    assert [record.round for record in resume(tmp_path / "run")] == [1, 2]
    assert difference(tmp_path / "run", tmp_path / "whole") == ""
    assert (tmp_path / "run" / "rounds" / "002" / "model.skops").exists()
    source = ArraySource(blobs()[0][60:])
    p, q = (RunFolder.open(tmp_path / name).learner().predict_proba(source) for name in ("run", "whole"))
    np.testing.assert_array_equal(p, q)
    assert (p.argmax(axis=1) == blobs()[1][60:]).mean() > 0.5


ESTIMATOR = """
from sklearn.linear_model import LogisticRegression

class Mine(LogisticRegression):
    pass
"""


def test_a_type_that_is_not_known_to_be_safe_must_be_trusted(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ESTIMATOR)
    learner = SklearnLearnerSettings(estimator=f"{tmp_path / 'mine.py'}:Mine", members=2)
    list(start(tmp_path / "run", small_settings(tmp_path, learner=learner, max_rounds=0)))
    folder = RunFolder.open(tmp_path / "run")
    with pytest.raises(InvalidInputError, match=r"types that are not known to be safe: (\S+Mine)\.") as caught:
        folder.learner()
    trusted = str(caught.value).partition("safe: ")[2].split(". ")[0]
    assert folder.learner(trusted=(trusted,)).models


def multi_label_data(string_ids: bool) -> RunData:
    x, y = blobs()
    codes = np.stack([y == 0, y != 1], axis=1).astype(np.int64)
    codes[:9][::4, 1] = -1  # partly labeled rows belong to the pool too
    ids = np.array([f"sample {number}" for number in range(72)], dtype=object) if string_ids else np.arange(72) * 10
    parts = [ArraySource(x[rows], ids=ids[rows]) for rows in (slice(0, 9), slice(9, 60), slice(60, 72))]
    truth = codes[9:60].copy()
    truth[3] = -1
    return RunData((parts[0], codes[:9]), parts[1], ["p", "q"], "multi", (parts[2], codes[60:]), truth=truth)


@pytest.mark.parametrize("string_ids", [False, True])
def test_a_multi_label_run_is_read_back_and_resumed(tmp_path: Path, string_ids: bool) -> None:
    data = multi_label_data(string_ids)
    settings = RunSettings(learner=LEARNER, config=CONFIG.replace(task="multi"))
    records = list(start(tmp_path / "whole", settings, data=data))
    folder = RunFolder.open(tmp_path / "whole")
    table = folder.pool_table()
    assert table.num_rows == len(folder.pool()) * 2 == (51 + 3) * 2
    assert table["class"].to_pylist()[:2] == ["p", "q"]
    assert set(folder.pool_table(0)["label"].to_pylist()) == {0, 1}
    np.testing.assert_array_equal(folder.truth, np.concatenate([np.full((3, 2), -1), data.truth]))
    for got, expected in ((folder.pool(), records[-1].pool), (folder.validation(), records[-1].validation)):
        assert_same_pool(got, expected)
    assert folder.split()["labeled"][:2] == (["sample 0", "sample 1"] if string_ids else [0, 10])
    assert folder.split()["hash"] == split_hash(data.labeled[0].ids, data.validation[0].ids)
    learner, labeled = LEARNER.build("multi"), data.labeled
    rest = {"validation": data.validation, "truth": data.truth, "classes": data.classes}
    next(start(tmp_path / "run", settings, data=data))
    list(run(tmp_path / "run", learner, labeled, data.unlabeled, resume=True, **rest))
    assert difference(tmp_path / "run", tmp_path / "whole") == ""


def test_ids_that_a_table_cannot_hold_are_refused_before_training(tmp_path: Path) -> None:
    x, y = blobs()
    pool = ArraySource(x[9:11], ids=np.array([1, "b"], dtype=object))
    with pytest.raises(InvalidInputError, match=r"ids must be all integers or all strings.*astype\(str\)"):
        run(tmp_path / "run", LEARNER.build("single"), (x[:9], y[:9]), pool, CONFIG)


def test_a_config_for_other_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="config.task is 'multi', and the data are for 'single'"):
        start(tmp_path / "run", small_settings(tmp_path, config=CONFIG.replace(task="multi")))
    with pytest.raises(InvalidInputError, match="num_classes is 4; the data have 3 classes"):
        start(tmp_path / "run", small_settings(tmp_path, config=CONFIG.replace(num_classes=4)))
    x, y = blobs()
    data = RunData((x[:9], y[:9]), x[9:], ["a", "b", "a"])
    with pytest.raises(InvalidInputError, match="classes must have different names"):
        start(tmp_path / "run", RunSettings(learner=LEARNER, config=CONFIG), data=data)


def test_thresholds_on_an_uncertainty_that_nothing_estimates_are_refused_before_training(tmp_path: Path) -> None:
    settings = small_settings(tmp_path, learner=LEARNER.replace(uncertainty="none", passes=10))
    with pytest.raises(InvalidInputError, match="nothing for kappa_p and kappa_n to judge .0.15 and 0.1."):
        next(start(tmp_path / "run", settings))
    assert not (tmp_path / "run").exists()
    next(start(tmp_path / "run", settings.replace(config=CONFIG.replace(kappa_p=math.inf, kappa_n=math.inf))))


def test_names_that_are_no_text_are_refused_or_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = os.fsdecode(b"p\xff")
    with pytest.raises(InvalidInputError, match="a name that is not UTF-8; rename"):
        start(tmp_path / "run", small_settings(tmp_path, name=strange))
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr("sys.argv", ["train.py", strange])
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=0)))
    assert RunFolder.open(tmp_path / "run").environment[0]["command"] == ["train.py", "p\ufffd"]


def test_settings_that_name_too_little_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"has no learner; for one in memory call surelabel.run"):
        start(tmp_path / "run", small_settings(tmp_path, learner=None))
    with pytest.raises(InvalidInputError, match="has no data; name or give them"):
        start(tmp_path / "run", RunSettings(learner=LEARNER))


def test_a_full_disk_is_named_and_the_run_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(start(tmp_path / "whole", small_settings(tmp_path)))
    rounds = start(tmp_path / "run", small_settings(tmp_path))
    next(rounds)

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.ParquetWriter.write_table", no_space)
        with pytest.raises(RunError, match=r"pool.parquet' could not be written \(No space left .*then try again"):
            next(rounds)
    list(resume(tmp_path / "run"))
    assert difference(tmp_path / "run", tmp_path / "whole") == ""


def counting(trained: list[str], name: str) -> Callable[[str, int, int], None]:
    """A progress that notes `name` whenever a training begins."""

    def progress(what: str, done: int, total: int) -> None:
        if (what, done) == ("train", 1):
            trained.append(name)

    return progress


def test_runs_that_share_a_round_train_it_once_and_end_with_the_same_bits(tmp_path: Path) -> None:
    for name in ("alone", "shared"):
        (tmp_path / name).mkdir()
    other = LEARNER.replace(uncertainty="none", passes=10)
    config = CONFIG.replace(kappa_p=math.inf, kappa_n=math.inf)
    list(start(tmp_path / "alone" / "run", small_settings(tmp_path / "alone", learner=other, config=config)))
    trained: list[str] = []
    for name, changes in (("first", {}), ("run", {"learner": other, "config": config})):
        settings = small_settings(tmp_path / "shared", **changes)
        folder = tmp_path / "shared" / name
        list(start(folder, settings, progress=counting(trained, name), shared=tmp_path / "fits"))
    assert trained == ["first"] * 3 + ["run"] * 2
    assert history(tmp_path / "shared" / "run") == history(tmp_path / "alone" / "run")


def test_other_settings_share_nothing(tmp_path: Path) -> None:
    trained: list[str] = []
    for epochs in (2, 3):
        learner = LEARNER.replace(training=LEARNER.training.replace(epochs=epochs))
        settings = small_settings(tmp_path, learner=learner, max_rounds=0)
        folder, progress = tmp_path / f"run-{epochs}", counting(trained, str(epochs))
        list(start(folder, settings, progress=progress, shared=tmp_path / "fits"))
    assert trained == ["2", "3"]


def test_other_code_shares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[str] = []
    for code in ("old", "old", "new"):
        monkeypatch.setattr(surelabel.runs.shared_fits, "code_hash", lambda code=code: code)
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        list(
            start(
                folder,
                small_settings(tmp_path, max_rounds=0),
                progress=counting(trained, code),
                shared=tmp_path / "fits",
            )
        )
    assert trained == ["old", "new"]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_the_packages_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of the folder in which somebody works, nor of the one around an installed package."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours" / "src"
    for repository in (theirs, ours):
        repository.mkdir(parents=True)
        git(repository, "init", "-q")
        (repository / "environment.py").write_text("")
    (ours / "results").mkdir()
    (ours / "results" / "runs.csv").write_text("")
    git(ours, "add", ".")
    for repository in (theirs, ours):
        git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    found = {}
    for package in (theirs, ours):
        monkeypatch.chdir(theirs)
        monkeypatch.setattr(environment, "PACKAGE", package)
        monkeypatch.setattr(environment, "__file__", str(package / "environment.py"))
        found[package] = environment._commit.__wrapped__()
    assert found == {theirs: None, ours: git(ours, "rev-parse", "HEAD")}
    (ours / "results" / "runs.csv").write_text("more")  # what runs add is no change of the code
    assert environment._commit.__wrapped__() == git(ours, "rev-parse", "HEAD")
    (ours / "environment.py").write_text("changed")
    assert environment._commit.__wrapped__() == f"{git(ours, 'rev-parse', 'HEAD')}+"


def test_warm_starts_are_not_shared(tmp_path: Path) -> None:
    """A round depends on all that came before it, not on its selection alone."""
    learner = LEARNER.replace(training=LEARNER.training.replace(warm_start=True))
    next(start(tmp_path / "run", small_settings(tmp_path, learner=learner), shared=tmp_path / "fits"))
    assert not (tmp_path / "fits").exists()
