"""`surelabel fit --pool` with workers in real processes that are killed, and so is the driver: it ends alike."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Command
from shards_support import write_labeled, write_pool
from small_runs import difference

NETWORK = """
import os, pathlib, signal, time
from torch import nn

HERE = pathlib.Path({folder!r})

class Network(nn.Sequential):
    '''Where it labels, it takes its time while there is "slow", waits once four shards are labeled, and a process that
    finds "kill-N" is killed.'''

    def forward(self, x):
        if not self.training and (HERE / "slow").exists():
            time.sleep(0.4)  # longer than the driver takes to write a part
            while (HERE / "slow").exists() and len(list(HERE.glob("killed/rounds/*/parts/[0-9]*"))) > 3:
                time.sleep(0.1)
            for file in HERE.glob("kill-*") if list(HERE.glob("killed/rounds/*/parts/[0-9]*")) else ():
                file.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

def make(shape, classes):
    return Network(nn.Linear(*shape, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, classes))
"""
FIT = ["fit", "labeled.csv", "--label", "label", "--pool", "pool/*.parquet", "--model", "net.py:make", "--rounds", "1"]
FIT += ["--epochs", "1", "--passes", "3", "--kappa-p", "0.2"]


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_labeled(Path("labeled.csv"))
    write_pool(Path("pool"), sizes=[11, 5, 20, 8, 14, 9, 17, 6, 10, 7, 12, 13])
    Path("net.py").write_text(NETWORK.format(folder=str(tmp_path)))


@pytest.mark.slow  # it mostly waits; `make test-cluster` runs it too
def test_killed_workers_and_a_killed_driver_change_nothing(command: Command) -> None:
    assert command(*FIT, "--out", "whole").code == 0
    killed_while_it_labels(["--workers", "2"])
    resumed = command("resume", "killed")  # in this process
    assert (resumed.code, resumed.err) == (0, "")
    assert difference(Path("killed"), Path("whole")) == ""
    assert not parts()


@pytest.mark.ray
def test_killed_workers_and_drivers_of_ray_change_nothing(command: Command) -> None:
    pytest.importorskip("ray", reason="make test-cluster installs Ray")
    assert command(*FIT, "--out", "whole").code == 0
    killed_while_it_labels(["--engine", "ray", "--workers", "2"])
    resumed = command("resume", "killed", "--engine", "ray", "--workers", "2")
    assert resumed.code == 0
    assert difference(Path("killed"), Path("whole")) == ""


def killed_while_it_labels(workers: list[str]) -> None:
    """Kill a worker once a shard is labeled, and the driver once four are."""
    Path("slow").touch()
    Path("kill-1").touch()
    words = [sys.executable, "-m", "surelabel", *FIT, *workers, "--quiet", "--out", "killed"]
    driver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: not Path("kill-1").exists(), driver)
        wait_for(lambda: len(parts()) > 3, driver)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert 3 < len(parts()) < 12
    Path("slow").unlink()


def parts() -> list[Path]:
    return list(Path("killed/rounds/000/parts").glob("[0-9]*.bin"))


def wait_for(what: Callable[[], bool], driver: subprocess.Popen[bytes], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert driver.poll() is None, "the driver has ended before"
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)
