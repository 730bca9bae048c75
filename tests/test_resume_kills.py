"""A run that is killed at any moment and resumed ends bit for bit as one that never was (on a CPU)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killing.py")


def kill(scenario: str, folder: Path, seed: int, kills: int) -> list[dict[str, str]]:
    command = [sys.executable, str(SCRIPT), scenario, str(folder), str(seed), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes: list[dict[str, str]] = json.loads(done.stdout)
    return outcomes


def test_a_run_killed_at_any_write_rename_or_round_resumes_to_the_same_end(tmp_path: Path) -> None:
    outcomes = kill("steps", tmp_path, seed=0, kills=5)
    assert {outcome["difference"] for outcome in outcomes} == {""}
    killed = [outcome["killed"] for outcome in outcomes]
    settings = ("run.json", "environment.json", "split.json")
    for name in ("pool.parquet", "negatives.parquet", "model.safetensors", "history.json", *settings):
        assert {f"write .{name}.tmp", f"half .{name}.tmp", f"rename {name}"} <= set(killed)
    assert killed.count("rename history.json") >= 4  # at the start and in each of three rounds
    assert {"never", "remove model.safetensors", "after round 0", "after round 1", "after round 2"} <= set(killed)
    assert sum(int(what.split()[0]) for what in killed if what.endswith("times")) == 5


@pytest.mark.slow
def test_two_hundred_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    outcomes = kill("many", tmp_path, seed=1, kills=200)
    assert {outcome["difference"] for outcome in outcomes} == {""}
    assert sum(int(outcome["killed"].split()[0]) for outcome in outcomes) == 200
