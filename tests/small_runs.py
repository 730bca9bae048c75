"""Runs that take some ten milliseconds a round: three blobs, a tiny network, some of everything selected."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from surelabel.data.pool import PoolLabels
from surelabel.data.run_data import FunctionData
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.settings import RunSettings, UPSConfig

FUNCTION = '''
import numpy as np
from surelabel.data.run_data import RunData

def blobs(with_validation=False):
    """Nine labeled, 51 unlabeled and perhaps twelve validation samples of three classes."""
    y = np.arange(72) % 3
    x = (np.random.default_rng(0).normal(size=(72, 4)) + 2.0 * np.eye(3, 4)[y]).astype(np.float32)
    validation = (x[60:], y[60:]) if with_validation else None
    return RunData((x[:9], y[:9]), x[9:60], ["a", "b", "c"], validation=validation, truth=y[9:60])
'''

CONFIG = UPSConfig(tau_p=0.6, tau_n=0.2, kappa_p=0.15, kappa_n=0.1, max_rounds=2, balance_rounds=1, balance_floor=2)
LEARNER = TorchLearnerSettings(
    hidden=(8,), passes=3, training=TrainingSettings(epochs=6, learning_rate=0.3, batch_size=32), device="cpu"
)


def blobs() -> tuple[Any, Any]:
    """Return 72 samples and their classes, those of FUNCTION."""
    y = np.arange(72) % 3
    return (np.random.default_rng(0).normal(size=(72, 4)) + 2.0 * np.eye(3, 4)[y]).astype(np.float32), y


def small_settings(folder: Path, *, with_validation: bool = False, max_rounds: int = 2, **changes: Any) -> RunSettings:
    """Write FUNCTION to a file in `folder` and return settings that name it."""
    file = folder / "blobs.py"
    file.write_text(FUNCTION)
    values = {
        "learner": LEARNER,
        "data": FunctionData(function=f"{file}:blobs", arguments={"with_validation": with_validation}),
        "config": CONFIG.replace(max_rounds=max_rounds),
    }
    return RunSettings(**{**values, **changes})


def assert_same_pool(got: PoolLabels, expected: PoolLabels) -> None:
    """Compare every column, with its dtype and shape, and the selected negatives."""
    for part, other in ((got, expected), (got.negative, expected.negative)):
        for name in vars(other).keys() - {"negative"}:
            left, right = getattr(part, name), getattr(other, name)
            np.testing.assert_array_equal(left, right, err_msg=name)
            assert (np.asarray(left).dtype, np.shape(left)) == (np.asarray(right).dtype, np.shape(right)), name


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file's content by its name within the folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def history(folder: Path) -> list[dict[str, Any]]:
    """Return the rounds in history.json without the time that they took."""
    rounds = json.loads((folder / "history.json").read_text())["rounds"]
    return [{key: value for key, value in entry.items() if key != "minutes"} for entry in rounds]


def comparison(folder: Path) -> dict[str, Any] | None:
    """Return what comparison.json says without the time that the folds took; None: there is none."""
    path = folder / "comparison.json"
    content = json.loads(path.read_text()) if path.exists() else None
    if content is not None:
        del content["checksum"]
        content["folds"] = [fold["files"] for fold in content["folds"]]
    return content


def difference(folder: Path, expected: Path) -> str:
    """Say how a run differs from one that was never interrupted, but for the time it took; empty: not at all."""
    files, others = contents(folder), contents(expected)
    if set(files) != set(others):
        return f"other files: {sorted(set(files) ^ set(others))}"
    whole = ("run.json", "split.json", "linear.skops")
    fixed = [name for name in sorted(files) if name.startswith(("rounds/", "comparison/")) or name in whole]
    differing = [name for name in fixed if files[name] != others[name]]
    if comparison(folder) != comparison(expected):
        differing.append("comparison.json")
    if history(folder) != history(expected):
        differing.append("history.json")
    return ", ".join(differing)
