"""`torchrun -m surelabel fit`: processes that are killed, another number of them, and what is refused at the door."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_support import LOGISTIC, Command, blobs, write_blobs
from small_runs import difference
from torch import distributed as dist

from surelabel._version import __version__
from surelabel.base.together import Alone
from surelabel.cli import main
from surelabel.cli._errors import SECONDS_FOR_THE_FIRST, describe, report_error
from surelabel.cluster import torchrun
from surelabel.errors import DataError, ElsewhereError, InvalidInputError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.runs import RunFolder, session
from surelabel.runs.tracking import trackers
from surelabel.settings import RunSettings

NETWORK = """
import os, signal
import torch
from torch import nn

class Network(nn.Module):
    '''Random only where it labels, in double precision; the second process is killed at a step of each start.'''

    steps = 0

    def __init__(self, shape, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(*shape, 4), nn.ReLU(), nn.Linear(4, classes)).double()
        self.drop = nn.Dropout(0.02)

    def forward(self, x):
        if self.training:
            Network.steps += 1
            now = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT')}:{Network.steps}"
            if now in os.environ.get("KILLED_AT", "").split():
                if os.environ["RANK"] == "1":
                    os.kill(os.getpid(), signal.SIGKILL)
            return self.layers(x.double())
        return self.layers(self.drop(x.double()))
"""

FIT = ["fit", "pets.csv", "--label", "pet", "--id", "id", "--model", "net.py:Network", "--rounds", "1", "--epochs", "1"]
FIT += ["--no-compare", "--kappa-p", "0.01", "--checkpoint-minutes", "0.0001"]
LIMITED = ["--max-minutes", "60"]


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # With these numbers, two processes can divide every batch.
    write_blobs(Path("pets.csv"), **blobs(num_rows=400, num_labeled=60))
    Path("net.py").write_text(NETWORK)


@pytest.mark.slow  # `make test-cluster` runs it too
def test_killed_runs_go_on_also_in_one_process_and_end_as_one_process_would(command: Command) -> None:
    assert command(*FIT, "--out", "whole").code == 0
    # Round 0 and round 1 take 200 steps each: two starts of two processes end in round 1, 70 steps apart.
    words = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "-m", "surelabel", *FIT, *LIMITED]
    words += ["--out", "killed"]
    variables = {**os.environ, "KILLED_AT": "0:250 1:70"}
    killed = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
    )
    assert killed.returncode == 1
    assert "cannot be divided" not in killed.stderr
    assert [line.split()[0] for line in killed.stdout.splitlines() if line.split()[0].isdecimal()] == ["0"]
    environment = json.loads(Path("killed/environment.json").read_text())["entries"]
    assert [entry.get("processes") for entry in environment] == [2, 2]
    assert environment[0]["torchrun"] == environment[1]["torchrun"]
    assert Path("killed/rounds/001/checkpoint.bin").exists()
    assert command("resume", "killed").code == 0
    for name in ("rounds/000/pool.parquet", "rounds/001/pool.parquet", "rounds/001/negatives.parquet"):
        assert read(f"killed/{name}") == pytest.approx(read(f"whole/{name}"), abs=1e-9), name


def read(file: str) -> dict[object, object]:
    """Return a table's values by row and column."""
    import pyarrow.parquet as pq

    return {
        (name, row): value
        for name, column in pq.read_table(file).to_pydict().items()
        for row, value in enumerate(column)
    }


def start(monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
    """Let this process be one that torchrun has started."""
    for name, value in {"TORCHELASTIC_RUN_ID": "test", "RANK": 0, "WORLD_SIZE": 1, **variables}.items():
        monkeypatch.setenv(name, str(value))


def test_one_process_under_torchrun_writes_the_same_run(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(*FIT, "--out", "run").code == 0
    Path("run").rename("without")
    start(monkeypatch)
    assert command(*FIT, "--out", "run", "--batch-per-process").code == 0
    assert difference(Path("run"), Path("without")) == ""


@pytest.mark.parametrize("job", ["test", "none"])  # torchrun's own name for an id that was not given is "none"
def test_a_restarted_command_goes_on_with_its_own_run_only(
    command: Command, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    fit = [*FIT, *LIMITED, "--out", "run", "--quiet"]
    start(monkeypatch, TORCHELASTIC_RUN_ID=job)
    assert command(*fit).code == 0
    exists = command.fails(1, *fit)
    assert exists.startswith("The folder 'run' holds a run already.")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert command(*fit).code == 0
    assert command.fails(1, *fit, "--seed", "1") == exists
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert command.fails(1, *fit) == exists
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", job)
    if job == "none":  # then another torchrun, another parent
        assert command.fails(1, *fit) == exists


def test_a_restarted_command_tells_its_trackers_of_the_rest(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    fit = [*FIT, "--out", "run", "--track", "tensorboard", "--quiet"]
    start(monkeypatch)
    assert command(*fit).code == 0
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert command(*fit).code == 0
    settings = RunFolder.open("run").settings
    trackers(["tensorboard"], Path("run"), settings, done=0)  # killed when it had told of round 0, and not kept it
    with pytest.raises(DataError, match="holds another run's events"):
        trackers(["tensorboard"], Path("run"), settings)


class Elsewhere(Alone):
    """One process of several, which gets from the first one how many minutes have passed there."""

    def by_first(self, function):
        function()
        return 3.0


def test_the_time_that_reading_leaves_is_that_of_the_first_process(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surelabel.engine.parallel.processes", Elsewhere)
    assert command(*FIT, "--max-minutes", "5", "--out", "run", "--quiet").code == 0
    assert RunFolder.open("run").settings.config.max_minutes == 2.0


def test_commands_that_do_not_train_are_refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, WORLD_SIZE=2)
    message = "2 processes can only train (fit, resume, reproduce); start predict without torchrun."
    assert command.fails(1, "predict", "run", "pets.csv", "--out", "out.csv") == message
    start(monkeypatch)
    assert "folder 'run' does not exist" in command.fails(2, "predict", "run", "pets.csv", "--out", "out.csv")


def test_other_processes_tell_only_what_the_first_one_cannot(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, RANK=3)
    asked = []
    monkeypatch.setattr(time, "sleep", asked.append)
    missing = command("fit", "nothere.csv", "--label", "pet", "--out", "run")
    assert missing.err.startswith(
        "error in process 3: Invalid value for 'DATA': there is no file or folder 'nothere.csv'; "
    )
    assert asked == [SECONDS_FOR_THE_FIRST]

    def ended(seconds: float) -> None:
        signal.raise_signal(signal.SIGTERM)  # torchrun's, once the first process has told of it and ended

    monkeypatch.setattr(time, "sleep", ended)
    for words in (["nothere.csv", "--label", "pet"], ["pets.csv", "--label", "cat"]):
        assert command("fit", *words, "--out", "run") == (128 + signal.SIGTERM, "", "")


def test_an_error_of_another_process_is_told_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    error = InvalidInputError("No row.")
    error.__cause__ = ElsewhereError("It came up in process 2.")
    assert report_error(error) == 1
    assert capsys.readouterr().err == "error: No row.\nnote: It came up in process 2.\n"


def test_without_torchrun_variables_of_other_schedulers_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    assert (torchrun.number(), torchrun.rank(), torchrun.restarted()) == (1, 0, False)


def test_a_batch_per_process_is_kept_in_the_runs_settings(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surelabel.cli.fit.number", lambda: 4)
    batches = []
    for more in ([], ["--batch-per-process"]):
        assert command(*FIT, "--out", f"run{len(more)}", *more).code == 0
        training = RunFolder.open(f"run{len(more)}").settings.network.training
        batches.append((training.batch_size, training.learning_rate))
    (size, rate), grown = batches
    assert grown == (4 * size, pytest.approx(4 * rate))


@pytest.mark.filterwarnings("default:Ignored")
def test_synchronized_norms_are_kept_in_the_settings_and_a_network_without_norms_is_named(command: Command) -> None:
    done = command(*FIT, "--out", "run", "--sync-batchnorm")
    assert done.code == 0
    assert RunFolder.open("run").settings.network.training.sync_batchnorm
    assert done.err.count("warning: Ignored: sync_batchnorm, because the network has no BatchNorm.") == 1


class Two(Alone):
    size = 2

    def in_all(self, function):
        return [function(), function()]


def test_a_learner_that_trains_in_one_process_is_refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surelabel.runs.session.processes", Two)
    refused = command("fit", "pets.csv", "--label", "pet", "--id", "id", *LOGISTIC, "--out", "run", "--quiet")
    message = (
        "SklearnLearner trains in one process, and there are 2; start it without torchrun, where it uses all cores."
    )
    assert (refused.code, refused.err) == (1, f"error: {message}\n")


def test_a_lost_process_is_told_in_one_line() -> None:
    lost = RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer")
    assert describe(lost) == ["another process has ended, or cannot be reached; look for its message."]


def test_a_lost_process_is_told_with_the_way_to_go_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(tensors: object) -> None:
        raise RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer")

    monkeypatch.setattr("surelabel.engine.step.average", lose)
    lines = command(*FIT, "--out", "run", "--quiet").err.splitlines()
    assert lines == [
        "error: another process has ended, or cannot be reached; look for its message.",
        "note: no round is done yet; go on with: surelabel resume run",
    ]


def test_one_of_several_processes_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(signal, "signal", lambda *handler: None)
    monkeypatch.setattr(sys, "argv", ["surelabel", "--version"])
    for name in ("PYTHONSAFEPATH", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "1")
    assert main() == 0
    assert ended == []
    start(monkeypatch, WORLD_SIZE=2)
    main()
    assert ended == [0]


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Be the second of two processes on a machine with one GPU; return the backends by which they are joined."""
    backends: list[str] = []
    start(monkeypatch, RANK=1, LOCAL_RANK=1, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2)
    # By `import_module`, as torch.distributed has a function of the module's name.
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    monkeypatch.setattr(rendezvous, "rendezvous", lambda *_, **__: iter([(dist.HashStore(), 1, 2)]))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **named: backends.append(backend))
    monkeypatch.setattr("surelabel.engine.parallel.processes", Two)
    return backends


def test_processes_are_joined_on_the_device_that_is_asked_for(
    joining: list[str], monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    for words in (["--device", "cpu"], ["--device=cpu"]):
        assert "nothere.csv" in command("fit", "nothere.csv", *words, "--out", "run").err
    assert joining == ["gloo", "gloo"]
    refused = command("fit", "nothere.csv", "--out", "run").err
    assert "2 or more processes on a machine with 1 GPUs; set --nproc-per-node to 1 at most" in refused


def test_processes_of_other_versions_are_refused(joining: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun.join("fit")
    other = {"surelabel": __version__, "torch": "1.0", "the command": "fit"}
    monkeypatch.setattr(Two, "in_all", lambda self, function: [function(), other])
    with pytest.raises(InvalidInputError, match=r"Process 1 has torch 1\.0, and process 0 has "):
        torchrun.join("fit")


@pytest.mark.usefixtures("joining")
@pytest.mark.parametrize(
    ("words", "of_first", "problem"),
    [
        (("fit", "pets.csv", "--out", "run"), {"the command": "resume"}, "the command fit, and process 0 has resume"),
        *(
            ((*words, "run"), {"the folder": "/other/run"}, "the folder /.*, and process 0 has /other/run")
            for words in (("fit", "pets.csv", "--out"), ("resume",), ("reproduce", "table5", "--out"))
        ),
    ],
)
def test_processes_with_another_command_or_folder_are_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], of_first: dict[str, str], problem: str
) -> None:
    def in_all(self: Two, function):
        mine = function()
        return [{name: of_first.get(name, value) for name, value in mine.items()}, mine]

    monkeypatch.setattr(Two, "in_all", in_all)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    Path("run").mkdir()
    refused = command(*words)
    assert re.match(f"error in process 1: Process 1 has {problem}; start the same command", refused.err), refused.err


def test_one_gpu_for_several_processes_is_refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surelabel.cli._options.number", lambda: 2)
    refused = command.fails(2, *FIT, "--device", "cuda:0", "--out", "run")
    assert refused == "--device cuda:0 is one GPU for 2 processes; with --device cuda each has its own."
    settings = RunSettings(learner=TorchLearnerSettings(device="cuda:0"))
    monkeypatch.setattr("surelabel.runs.session.processes", Two)
    with pytest.raises(InvalidInputError, match="The device is 'cuda:0', one GPU, and 2 processes train"):
        session._check_processes(settings, None)


def test_processes_that_were_asked_for_other_settings_are_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surelabel.runs.session.processes", Two)
    monkeypatch.setattr(Two, "in_all", lambda self, function: [function(), {**function(), "config.seed": 5}])
    refused = command(*FIT, "--out", "run", "--quiet")
    assert refused.code == 1
    assert refused.err.startswith("error: Process 1 has config.seed 5, and process 0 has 0; start the same command, ")
