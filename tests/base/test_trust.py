"""A run folder from someone else runs no code; one's own runs are signed, and just work."""

import ast
import hashlib
import hmac
import importlib
import inspect
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import joblib
import pytest
import torch
from cli_support import LOGISTIC, QUICK, Command, rows, write_blobs
from small_runs import LEARNER, blobs, small_settings

from surelabel.base import trust
from surelabel.base.references import resolve
from surelabel.base.settings import Settings
from surelabel.cli import main
from surelabel.data.run_data import FunctionData, TableData
from surelabel.data.video import ClipSettings
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import RunError, UnsignedRunWarning, UntrustedCodeError
from surelabel.kinds import linear
from surelabel.kinds.backbones import BackboneSettings
from surelabel.kinds.frozen import open_backbone
from surelabel.learners.network import TorchLearner
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.reproduce.digits import Job, run_jobs
from surelabel.reproduce.experiment import _rounds
from surelabel.reproduce.results import record_runs
from surelabel.runs import RunFolder
from surelabel.runs.files import write_json
from surelabel.runs.session import resume as go_on
from surelabel.runs.session import run as run_in_memory
from surelabel.runs.session import start
from surelabel.settings import RunSettings

pytestmark = pytest.mark.usefixtures("short_fits")

FIT = ("--label", "pet", "--id", "id", "--quiet", "--no-compare")
NETWORK = """
import torch

def make(sample_shape, num_classes):
    first, last = torch.nn.Linear(sample_shape[0], 8), torch.nn.Linear(8, num_classes)
    return torch.nn.Sequential(first, torch.nn.Dropout(0.3), last)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table and finished runs of it: a network, a classifier, and a network of the user's own."""
    folder = tmp_path_factory.mktemp("runs")
    write_blobs(folder / "pets.csv")
    (folder / "nets.py").write_text(NETWORK)
    own = ("--model", folder / "nets.py:make", "--rounds", "1", "--epochs", "1", "--passes", "3")
    for name, options in {"network": QUICK, "classifier": LOGISTIC, "own": own}.items():
        words = ["fit", folder / "pets.csv", *FIT, *options, "--out", folder / name]
        assert main([str(word) for word in words]) == 0
    return folder


@pytest.fixture
def another_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURELABEL_CONFIG", str(tmp_path / "another account"))


def settings_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())["settings"]


def rewrite(run: Path, **changes: Any) -> None:
    """Change run.json and redo its checksum; None removes a part."""
    content = {**json.loads((run / "run.json").read_text()), **changes}
    content.pop("checksum")
    write_json(run / "run.json", {name: value for name, value in content.items() if value is not None})


# Attacks: what a stranger writes into the settings, with a file that must not come to be.


def shell(mark: Path) -> dict[str, str]:
    return {"command": f"touch '{mark}'"}


def by_estimator(reference: str) -> Callable[[dict[str, Any], Path], str]:
    def attack(settings: dict[str, Any], mark: Path) -> str:
        settings["learner"] = {"kind": "sklearn", "estimator": reference, "parameters": shell(mark)}
        return reference

    return attack


def by_function(settings: dict[str, Any], mark: Path) -> str:
    settings["data"] = {"kind": "function", "function": "os:system", "arguments": shell(mark)}
    return "os:system"


def by_place(settings: dict[str, Any], mark: Path) -> str:
    function = "surelabel.data.sets:voc2007"
    settings["data"] = {"kind": "function", "function": function, "arguments": {"cache": str(mark)}}
    return f"{function} with cache="


def by_size(name: str, argument: str) -> Callable[[dict[str, Any], Path], str]:
    def attack(settings: dict[str, Any], mark: Path) -> str:
        function = f"surelabel.data.sets:{name}"
        settings["data"] = {"kind": "function", "function": function, "arguments": {argument: 4000}}
        return f"{function} with {argument}=4000"

    return attack


def by_another_list(settings: dict[str, Any], mark: Path) -> str:
    function = "surelabel.data.sets:voc2007"
    settings["learner"] = {"kind": "sklearn", "estimator": function, "parameters": {"cache": str(mark)}}
    return function


def by_file(setting: str) -> Callable[[dict[str, Any], Path], str]:
    def attack(settings: dict[str, Any], mark: Path) -> str:
        file = mark.with_name("evil.py")
        file.write_text(f"open({str(mark)!r}, 'w')\nclass C: pass\n")
        reference = f"{file}:C"
        settings["learner"][setting] = [reference] if setting == "stochastic_layers" else reference
        return reference

    return attack


def by_module(settings: dict[str, Any], mark: Path) -> str:
    mark.with_name("surelabel_evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    settings["learner"]["model"] = "surelabel_evil:make"
    return "surelabel_evil:make"


ATTACKS: dict[str, tuple[str, Callable[[dict[str, Any], Path], str]]] = {
    "any function": ("classifier", by_estimator("os:system")),
    "a walk through modules": ("classifier", by_estimator("surelabel.base.references:os.system")),
    "a layer": ("network", by_file("stochastic_layers")),
    "data": ("network", by_function),
    "an estimator of uncertainty": ("network", by_file("uncertainty")),
    "a network": ("network", by_file("model")),
    "a method": ("network", by_file("method")),
    "an import": ("network", by_module),
    "a place to write to": ("network", by_place),
    "large pictures": ("network", by_size("voc2007", "side")),
    "large clips": ("network", by_size("ucf101", "height")),
    "what is listed for another setting": ("classifier", by_another_list),
}


@pytest.fixture(params=ATTACKS)
def attacked(
    request: pytest.FixtureRequest, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path, str]:
    """A run folder, its checksum redone; the file that shows that code was run; and the name of that code."""
    base, attack = ATTACKS[request.param]
    run, mark = tmp_path / "run", tmp_path / "mark"
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(home / base, run)
    settings = settings_of(run)
    name = attack(settings, mark)
    rewrite(run, settings=settings)
    return run, mark, name


@pytest.mark.parametrize("words", [("predict", "pets.csv"), ("label", "pets.csv"), ("resume", "--rounds", "9")])
def test_a_strangers_run_is_refused_in_one_line_and_runs_nothing(
    command: Command, home: Path, attacked: tuple[Path, Path, str], words: tuple[str, ...]
) -> None:
    run, mark, name = attacked
    name_of_command, *more = (home / word if word == "pets.csv" else word for word in words)
    line = command.fails(1, name_of_command, run, *more)
    assert f"File '{run / 'run.json'}' names the code" in line
    assert name in line
    assert "with --trust-code (trust_code=True in Python)" in line
    assert not mark.exists()
    assert "surelabel_evil" not in sys.modules


@pytest.mark.usefixtures("undrawn")
def test_a_strangers_run_is_opened_reported_and_recorded_without_its_code(
    command: Command, attacked: tuple[Path, Path, str], tmp_path: Path
) -> None:
    run, mark, _ = attacked
    assert command("report", run, "--out", tmp_path / "report.html").code == 0
    folder = RunFolder.open(run)
    for use in (folder.learner, folder.data):
        with pytest.raises(UntrustedCodeError):
            use()
    learner = folder.settings.learner
    usual = not isinstance(learner, TorchLearnerSettings) or (learner.uncertainty, learner.method) == (
        "mc-dropout",
        "ups",
    )
    with nullcontext() if usual else pytest.raises(UntrustedCodeError):
        record_runs(tmp_path / "runs.csv", [(folder, [])], experiment="x", dataset="x", num_labels=1)
    assert not mark.exists()


TRAP = "open({mark!r}, 'a').write(__file__)"
COMMAND = (sys.executable, "-P", "-c", "import sys; from surelabel.cli import main; sys.exit(main())")


def test_a_strangers_run_is_no_place_to_import_from(home: Path, tmp_path: Path) -> None:
    """Processes that scikit-learn starts would find a joblib.py in the current folder first."""
    run, mark = tmp_path / "run", tmp_path / "mark"
    bagging = SklearnLearnerSettings(
        estimator="sklearn.ensemble:BaggingClassifier", parameters={"n_jobs": 2, "n_estimators": 2}, members=2
    )
    settings = RunFolder.open(home / "classifier").settings
    with joblib.parallel_config("threading"):  # processes are for the command alone: they take seconds
        next(start(run, settings.replace(learner=bagging, config=settings.config.replace(max_rounds=0))))
    rewrite(run, signature=None)
    for module in ("joblib", "typer"):
        (run / f"{module}.py").write_text(TRAP.format(mark=str(mark)))
    words = [*COMMAND, "predict", ".", home / "pets.csv", "--out", tmp_path / "predictions.csv"]
    done = subprocess.run(words, cwd=run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "predictions.csv").exists()
    assert not mark.exists()


def test_python_m_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(TRAP.format(mark=str(tmp_path / "mark")))
    words = [sys.executable, "-m", "surelabel", "--version"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "mark").exists()


MANY = {"uncertainty": "deep-ensemble", "uncertainty_parameters": {"members": 10_000}, "hidden": [500, 500]}


@pytest.mark.parametrize(
    ("shape", "learner"),
    [([10**9], {}), ([2], {"hidden": [30_000, 40_000]}), ([2], MANY)],
    ids=["wide", "deep", "many"],
)
def test_a_strangers_network_is_not_made_when_it_would_fill_the_memory(
    command: Command, home: Path, tmp_path: Path, shape: list[int], learner: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / "network", run)
    settings = settings_of(run)
    rewrite(run, settings={**settings, "sample_shape": shape, "learner": {**settings["learner"], **learner}})
    for words in (("predict", run, home / "pets.csv"), ("resume", run, "--rounds", "9")):
        line = command.fails(1, *words)
        assert "bytes of memory, and at most 1,073,741,824 are allowed" in line
        assert "set SURELABEL_MAX_BYTES" in line


def test_new_limits_and_objects_in_memory_sign_nobody_elses_code(tmp_path: Path) -> None:
    list(start(tmp_path / "run", small_settings(tmp_path, max_rounds=1)))
    settings = settings_of(tmp_path / "run")
    settings["learner"]["model"] = "elsewhere:make"
    rewrite(tmp_path / "run", settings=settings, signature="0" * 64)
    list(go_on(tmp_path / "run", max_minutes=0))  # it has ended, and nothing of it is run
    x, y = blobs()
    config = RunFolder.open(tmp_path / "run").settings.config.replace(max_rounds=2, max_minutes=None)
    learner = LEARNER.build("single")
    parts = {"truth": y[9:60], "classes": ["a", "b", "c"], "resume": True}
    assert list(run_in_memory(tmp_path / "run", learner, (x[:9], y[:9]), x[9:60], config, **parts))
    assert settings_of(tmp_path / "run")["config"]["max_rounds"] == 2
    with pytest.raises(UntrustedCodeError, match="elsewhere:make"):
        RunFolder.open(tmp_path / "run").learner()


def test_settings_that_were_read_unsigned_are_not_signed_for_a_signature_that_comes_later(
    home: Path, tmp_path: Path
) -> None:
    shutil.copytree(home / "network", tmp_path / "run")
    content = (tmp_path / "run" / "run.json").read_bytes()
    rewrite(tmp_path / "run", signature=None)
    records = go_on(tmp_path / "run", max_rounds=2)
    (tmp_path / "run" / "run.json").write_bytes(content)
    list(records)
    assert not RunFolder.open(tmp_path / "run").signed


def test_what_reproduce_was_asked_for_is_what_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small_settings(tmp_path, max_rounds=1).pinned()
    next(start(tmp_path / "run", settings))
    rewrite(tmp_path / "run", signature=None)
    asked_for = RunFolder.asked_for

    def then_changed(run: RunFolder, settings: RunSettings) -> RunFolder:
        found = asked_for(run, settings)
        values = settings_of(run.path)
        values["learner"]["model"] = "os:system"
        rewrite(run.path, settings=values)
        return found

    monkeypatch.setattr(RunFolder, "asked_for", then_changed)
    with pytest.raises(RunError, match="have changed since it was opened"):
        list(_rounds(tmp_path / "run", settings, tmp_path / "shared", lambda what, done, total: None))


# Runs that just work.


def test_an_ordinary_run_from_before_signatures_works(command: Command, home: Path, tmp_path: Path) -> None:
    for name in ("network", "classifier"):
        run = tmp_path / name
        shutil.copytree(home / name, run)
        rewrite(run, signature=None)
        assert not RunFolder.open(run).trust_code
        expected = command("predict", home / name, home / "pets.csv")
        assert command("predict", run, home / "pets.csv") == expected
        assert command("label", run, home / "pets.csv").code == 0
        assert command("resume", run, "--rounds", "2", "--quiet") == (0, "", "")
        assert RunFolder.open(run).num_rounds == 3


def test_ones_own_code_just_works_and_other_limits_are_signed_too(command: Command, home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / "own", run)
    assert RunFolder.open(run).trust_code
    for _ in range(2):
        for name in ("predict", "label"):
            result = command(name, run, home / "pets.csv")
            assert (result.code, len(rows(result.out))) == (0, 60)
        assert command("resume", run, "--rounds", "2", "--quiet") == (0, "", "")
    assert RunFolder.open(run).num_rounds == 3


def test_the_signature_is_an_hmac_of_the_settings_with_their_content_hashes(home: Path) -> None:
    content = json.loads((home / "own" / "run.json").read_text())
    assert content["settings"]["learner"]["model_hash"] == hashlib.sha256(NETWORK.encode()).hexdigest()
    key = bytes.fromhex(Path(os.environ["SURELABEL_CONFIG"], "key").read_text())
    text = json.dumps(content["settings"], sort_keys=True, separators=(",", ":"))
    assert content["signature"] == hmac.new(key, b"surelabel run\n" + text.encode(), "sha256").hexdigest()


@pytest.mark.usefixtures("another_account")
def test_in_another_account_a_run_of_own_code_waits_for_leave(command: Command, home: Path, tmp_path: Path) -> None:
    run, table = tmp_path / "run", home / "pets.csv"
    shutil.copytree(home / "own", run)
    for words in (("predict", run, table), ("label", run, table), ("resume", run, "--rounds", "2")):
        assert f"'{home / 'nets.py:make'}', and the run is not signed by you" in command.fails(1, *words)
        assert command(*words, "--trust-code").code == 0
    assert RunFolder.open(run).num_rounds == 3
    # It was allowed, not signed: the next command asks again.
    assert "--trust-code" in command.fails(1, "predict", run, table)
    assert isinstance(RunFolder.open(run, trust_code=True).learner(), TorchLearner)


@pytest.mark.parametrize("signature", [None, "", "0" * 64, "ü", 7, ["a"], {"a": 1}])
def test_what_is_no_signature_signs_nothing(home: Path, tmp_path: Path, signature: object) -> None:
    shutil.copytree(home / "own", tmp_path / "run")
    rewrite(tmp_path / "run", signature=signature)
    assert not RunFolder.open(tmp_path / "run").trust_code


def test_a_signature_of_other_settings_signs_nothing(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "own", tmp_path / "run")
    settings = settings_of(home / "own")
    settings["learner"]["model_hash"] = None
    rewrite(tmp_path / "run", settings=settings)
    assert not RunFolder.open(tmp_path / "run").trust_code


def test_a_changed_file_of_a_signed_run_is_refused(command: Command, tmp_path: Path) -> None:
    nets, table, run = tmp_path / "nets.py", write_blobs(tmp_path / "pets.csv"), tmp_path / "run"
    nets.write_text(NETWORK)
    options = ("--model", f"{nets}:make", "--rounds", "0", "--epochs", "1", "--passes", "3")
    assert command("fit", table, *FIT, *options, "--out", run).code == 0
    nets.write_text(f"{NETWORK}\n# changed")
    for words in (("predict", run, table), ("predict", run, table, "--trust-code"), ("resume", run, "--rounds", "1")):
        assert f"File '{nets}' has changed since the run began" in command.fails(1, *words)


# The key.


def test_the_key_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURELABEL_CONFIG", str(tmp_path / "new" / "folder"))
    key = trust.user_key()
    assert key is not None
    path = tmp_path / "new" / "folder" / "key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (len(key), path.read_text()) == (32, f"{key.hex()}\n")
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]
    assert trust.user_key() == key


def test_processes_that_make_a_key_at_once_get_the_same(tmp_path: Path) -> None:
    code = "import sys, surelabel.base.trust as trust; sys.stdin.read(); print(trust.user_key().hex())"
    variables = {**os.environ, "SURELABEL_CONFIG": str(tmp_path / "config")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        )
        for _ in range(6)
    ]
    for process in processes:
        process.stdin.close()
    found = set()
    for process in processes:
        with process.stdout:
            found.add(process.stdout.read())
        assert process.wait() == 0
    assert found == {(tmp_path / "config" / "key").read_text()}
    assert [entry.name for entry in (tmp_path / "config").iterdir()] == ["key"]


def test_who_is_second_takes_the_key_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def after_another(source: Path, target: Path) -> None:
        target.touch(0o600)
        target.write_text("ab" * 32 + "\n")
        link(source, target)

    link = os.link
    monkeypatch.setenv("SURELABEL_CONFIG", str(tmp_path))
    monkeypatch.setattr(os, "link", after_another)
    assert trust.user_key() == b"\xab" * 32
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def link_to_a_key(path: Path) -> None:
    target = path.with_name("planted")
    target.touch(0o600)
    target.write_text("ab" * 32 + "\n")
    path.symlink_to(target)


def known_to_others(path: Path) -> None:
    path.write_text("ab" * 32 + "\n")
    path.chmod(0o640)


NO_KEYS: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: path.touch(0o600),
    "cut off": lambda path: (path.touch(0o600), path.write_text("ab" * 20)),
    "not hexadecimal": lambda path: (path.touch(0o600), path.write_text("xy" * 32 + "\n")),
    "a link": link_to_a_key,
    "a link to nothing": lambda path: path.symlink_to(path.with_name("nothing")),
    "known to others": known_to_others,
    "a folder": lambda path: path.mkdir(0o700),
    "a pipe": lambda path: os.mkfifo(path, 0o600),
}


@pytest.mark.parametrize("kind", NO_KEYS)
def test_what_may_not_be_the_users_key_signs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, settings = tmp_path / "key", {"a": 1}
    NO_KEYS[kind](path)
    monkeypatch.setenv("SURELABEL_CONFIG", str(tmp_path))
    with pytest.warns(UnsignedRunWarning, match=rf"Runs are not signed.*'{path}'.*Let SURELABEL_CONFIG name a folder"):
        assert trust.sign(settings) is None
    by_planted = hmac.new(b"\xab" * 32, b'surelabel run\n{"a":1}', "sha256").hexdigest()
    assert not trust.is_signed(settings, by_planted)


def test_a_key_that_belongs_to_another_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURELABEL_CONFIG", str(tmp_path))
    signature = trust.sign({"a": 1})
    assert trust.is_signed({"a": 1}, signature)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not trust.is_signed({"a": 1}, signature)


@pytest.mark.filterwarnings("default")
def test_without_a_place_for_the_key_a_run_says_so_in_one_line_and_works(
    command: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SURELABEL_CONFIG", str(tmp_path / "file" / "config"))
    run, table = tmp_path / "run", home / "pets.csv"
    options = ("--model", home / "nets.py:make", "--rounds", "1", "--epochs", "1", "--passes", "3")
    result = command("fit", table, *FIT, *options, "--out", run)
    assert (result.code, result.out, len(result.err.splitlines())) == (0, "", 1)
    assert result.err.startswith("warning: Runs are not signed")
    assert "Not a directory). Let SURELABEL_CONFIG name a folder that you may write to." in result.err
    assert "signature" not in json.loads((run / "run.json").read_text())
    assert "--trust-code" in command.fails(1, "predict", run, table)
    assert command("predict", run, table, "--trust-code").code == 0


def test_without_a_place_for_the_key_workers_leave_it_to_one_to_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SURELABEL_CONFIG", str(tmp_path / "file"))
    settings = small_settings(tmp_path, max_rounds=0)
    with pytest.warns(UnsignedRunWarning) as told:
        run_jobs([Job(tmp_path / name, settings) for name in "ab"], workers=2)
    assert len(told) == 1
    assert capfd.readouterr().err == ""


def test_the_keys_folder_never_follows_from_the_current_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SURELABEL_CONFIG")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/elsewhere")
    assert trust.key_file() == Path("/elsewhere/surelabel/key")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert trust.key_file() == Path("/home/me/.config/surelabel/key")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where there is no home
    with pytest.warns(UnsignedRunWarning, match="there is no home folder"):
        assert trust.user_key() is None
    assert not trust.is_signed({}, "0" * 64)
    assert list(tmp_path.iterdir()) == []
    known_to_all = tmp_path / "relative" / "key"
    known_to_all.parent.mkdir()
    known_to_all.touch(0o600)
    known_to_all.write_text("ab" * 32 + "\n")
    by_planted = hmac.new(b"\xab" * 32, b"surelabel run\n{}", "sha256").hexdigest()
    for chosen in ("relative", "./relative", "~/relative"):
        monkeypatch.setenv("SURELABEL_CONFIG", chosen)
        with pytest.warns(UnsignedRunWarning, match=rf"'{chosen}': SURELABEL_CONFIG must be an absolute path"):
            assert trust.user_key() is None
        assert not trust.is_signed({}, by_planted)


# The lists.


LISTED = [*trust.NETWORKS, *trust.ESTIMATORS, *trust.DATA_SETS, *trust.CLASSIFIERS, *trust.LAYERS]


def test_listed_code_is_there_and_is_of_its_own_package() -> None:
    for reference in LISTED:
        module, _, name = reference.partition(":")
        found = getattr(importlib.import_module(module), name)
        assert callable(found), reference
        assert found.__module__.split(".")[0] == module.split(".")[0], reference


ASK_FOR_PROBABILITIES = {
    "SVC": {"probability": True},
    "NuSVC": {"probability": True},
    "SGDClassifier": {"loss": "log_loss"},
}


def test_listed_classifiers_and_layers_are_scikit_learns_torchs_and_our_own() -> None:
    from sklearn.utils import all_estimators

    ours = {"LinearOnPixels": linear.LinearOnPixels, "LinearOnTable": linear.LinearOnTable}
    classifiers = dict(all_estimators(type_filter="classifier")) | ours
    for module, name in (reference.split(":") for reference in trust.CLASSIFIERS):
        assert getattr(importlib.import_module(module), name) is classifiers[name]
        needed = [one for one in inspect.signature(classifiers[name]).parameters.values() if one.default is one.empty]
        assert not needed, name
        assert hasattr(classifiers[name](**ASK_FOR_PROBABILITIES.get(name, {})), "predict_proba"), name
    for layer in trust.LAYERS:
        module, name = layer.split(":")
        assert issubclass(getattr(importlib.import_module(module), name), torch.nn.Module)


def test_listed_networks_are_made_of_a_shape_and_a_number_of_classes() -> None:
    for reference in trust.NETWORKS:
        assert list(inspect.signature(resolve(reference)).parameters)[:2] == ["sample_shape", "num_classes"], reference


def test_nobody_else_says_how_large_clips_are() -> None:
    assert set(ClipSettings.model_fields) <= set(trust.DATA_SETS["surelabel.data.sets:ucf101"])


def test_what_our_own_commands_name_is_listed() -> None:
    from surelabel.reproduce.digits import demo_settings
    from surelabel.reproduce.entries import RECIPES
    from surelabel.reproduce.paper import EXPERIMENTS

    entries = [entry for one in EXPERIMENTS.values() for entry in one.entries if entry.variant is not None]
    made = [demo_settings(), *(entry.of(entry.base(0, recipe)) for entry in entries for recipe in RECIPES)]
    named = {one.name: one.is_listed for settings in made for one in settings.references()}
    assert {"surelabel.models.resnet3d:resnet3d18", "surelabel.data.sets:voc2007"} <= set(named)
    assert all(named.values()), named


# Nothing that is resolved can be forgotten.


def settings_within(kind: Any) -> set[type[Settings]]:
    """The settings that a type is made of, itself included."""
    if isinstance(kind, type) and issubclass(kind, Settings):
        return {kind}.union(*(settings_within(field.annotation) for field in kind.model_fields.values()))
    return set().union(*map(settings_within, get_args(kind)))


def texts_within(kind: Any) -> bool:
    """Whether a value of this type can hold any text."""
    return kind is str or (get_origin(kind) is not Literal and any(map(texts_within, get_args(kind))))


REFERENCES = {"model", "uncertainty", "method", "stochastic_layers", "estimator", "function", "reference"}
PLAIN_TEXTS = {
    *("model_hash", "pretrained_hash", "uncertainty_hash", "method_hash", "layer_hashes", "estimator_hash", "sha256"),
    *("labels_sha256", "test_sha256", "validation_sha256", "fingerprint"),
    *("model_parameters", "uncertainty_parameters", "method_parameters", "parameters", "arguments"),
    *("device", "name", "classes", "feature_names"),
    *("labels", "separator", "none", "id_column", "drop", "use", "unlabeled", "group", "of", "skipped"),
    *("categories", "texts_sha256", "place", "shards", "marks", "left_out"),
}


def test_every_setting_that_holds_text_is_known_to_name_code_or_not() -> None:
    kinds = settings_within(RunSettings)
    assert {TorchLearnerSettings, SklearnLearnerSettings, FunctionData, TableData, TrainingSettings} <= kinds
    texts = {name for kind in kinds for name, field in kind.model_fields.items() if texts_within(field.annotation)}
    assert texts == REFERENCES | PLAIN_TEXTS


OWN = """
import torch
from sklearn.linear_model import LogisticRegression
from surelabel.data.run_data import RunData
from surelabel.methods.ups import UPSMethod
from surelabel.uncertainty import MCDropout

def model(sample_shape, num_classes, pretrained=None):
    pass

def estimator():
    return LogisticRegression()

def function():
    return RunData(([[0.0]], [0]), None, ["a"])

class uncertainty(MCDropout):
    pass

class stochastic_layers(torch.nn.Module):
    pass

class method(UPSMethod):
    pass

def reference():
    return torch.nn.Flatten()
"""


def test_every_reference_that_is_resolved_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(reference: str, *expected: str | None) -> Any:
        resolved.add(reference)
        return resolve(reference, *expected)

    resolved: set[str] = set()
    for module in ("learners.settings", "data.run_data", "kinds.frozen"):
        monkeypatch.setattr(f"surelabel.{module}.resolve", noted)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "weights.pth").touch()
    own = {name: f"{tmp_path}/own.py:{name}" for name in REFERENCES}
    network = TorchLearnerSettings(
        model=own["model"],
        model_parameters={"pretrained": f"{tmp_path}/weights.pth"},
        uncertainty=own["uncertainty"],
        method=own["method"],
        stochastic_layers=(own["stochastic_layers"],),
        device="cpu",
    ).pinned()
    classifier, data = SklearnLearnerSettings(estimator=own["estimator"]), FunctionData(function=own["function"])
    backbone = BackboneSettings(reference=own["reference"]).pinned()
    uses: list[tuple[Any, Any]] = [
        (network, (lambda: network.build("single"), network.fit_settings, network.for_trained_network)),
        (classifier, (lambda: classifier.build("single"),)),
        (data, (data.load,)),
        (backbone, (lambda: open_backbone(backbone, "pictures"),)),
    ]
    for settings, calls in uses:
        resolved.clear()
        for call in calls:
            call()
        assert resolved == {reference.name for reference in settings.references()}
    assert list(TableData(path="a.csv").references()) == []


def test_only_what_is_known_here_resolves_references() -> None:
    """Another place that does must ask who named the code: a user's command, or a run's settings."""
    root = Path(trust.__file__).parents[1]
    importing = [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "surelabel.base.references"
        if any(alias.name == "resolve" for alias in node.names)
    ]
    settings = ["data/run_data.py", "kinds/frozen.py", "learners/settings.py"]
    commands = ["reproduce/entries.py", "reproduce/paper.py"]
    assert sorted(importing) == sorted([*settings, *commands])
