"""`torchrun -m surelabel fit`: processes that are killed, another number of them, and what is refused at the door."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import LOGISTIC, Command, blobs, write_blobs
from small_runs import difference

from surelabel.base.together import Alone
from surelabel.cli._errors import describe
from surelabel.cluster import torchrun
from surelabel.runs import RunFolder

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


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # With these numbers, two processes can divide every batch.
    write_blobs(Path("pets.csv"), **blobs(num_rows=400, num_labeled=60))
    Path("net.py").write_text(NETWORK)


def test_killed_runs_go_on_also_in_one_process_and_end_as_one_process_would(command: Command) -> None:
    assert command(*FIT, "--out", "whole").code == 0
    # Round 0 and round 1 take 200 steps each: two starts of two processes end in round 1, 70 steps apart.
    words = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "-m", "surelabel", *FIT, "--out", "killed"]
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


def test_a_restarted_command_goes_on_with_its_own_run_only(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(*FIT, "--out", "run", "--quiet").code == 0
    exists = command.fails(1, *FIT, "--out", "run")
    assert exists.startswith("The folder 'run' holds a run already.")
    start(monkeypatch, TORCHELASTIC_RESTART_COUNT=1)
    assert command(*FIT, "--out", "run", "--quiet").code == 0
    other = command(*FIT, "--seed", "1", "--out", "run", "--quiet")
    assert (other.code, other.err) == (1, f"error: {exists}\n")


def test_commands_that_do_not_train_are_refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, WORLD_SIZE=2)
    message = "torchrun starts commands that train (fit, resume, reproduce); start predict without it."
    assert command.fails(1, "predict", "run", "pets.csv", "--out", "out.csv") == message


def test_other_processes_tell_only_what_the_first_one_cannot(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, RANK=3)
    wrong = command("fit", "pets.csv", "--label", "pet", "--out", "run", "--nonsense")
    assert (wrong.code, wrong.out, wrong.err) == (2, "", "")
    missing = command("fit", "pets.csv", "--label", "cat", "--out", "run")
    assert missing.err.startswith("error in process 3: File 'pets.csv' has no label column 'cat'")


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
