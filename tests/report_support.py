"""Run folders whose pools are known by hand: a learner that says what it is told, and runs made with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import surelabel as sl
from surelabel.data.pool import Prediction
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.runs import RunFolder
from surelabel.runs.session import run

# truth (-1: unknown); p of class 0 by the stochastic passes, and its u; p of class 0 by the deterministic pass
SAMPLES = [
    (0, 0.95, 0.01, 0.99),
    (0, 0.90, 0.02, 0.80),
    (1, 0.92, 0.20, 0.97),
    (1, 0.75, 0.04, 0.60),
    (0, 0.72, 0.10, 0.90),
    (1, 0.05, 0.03, 0.30),
    (1, 0.10, 0.01, 0.02),
    (0, 0.08, 0.15, 0.01),
    (1, 0.40, 0.01, 0.55),
    (-1, 0.99, 0.01, 0.98),
]
CONFIG = sl.UPSConfig(tau_p=0.7, kappa_p=0.05, tau_n=0.1, kappa_n=0.03, max_rounds=1, balance_floor=0)
"""Selects samples 0, 1, 3 and 9 for class 0, and 5 and 6 for class 1; balancing keeps 0, 9, 5 and 6."""


class Scripted:
    """A learner of two classes that has nothing to learn: p of class 0 is given, and u.

    Args:
        plain: p of the deterministic pass, which is also what is scored.
        p0: the mean of the stochastic passes; None: the pool is labeled by the deterministic pass.
        u: its uncertainty.
    """

    model_file = "model.safetensors"

    def __init__(self, plain: Any, p0: Any = None, u: Any = None) -> None:
        self.plain = self._both(plain)
        self.p = self.plain if p0 is None else self._both(p0)
        self.u = None if u is None else np.stack([u, u], axis=1).astype(np.float32)

    @staticmethod
    def _both(p0: Any) -> Any:
        return np.stack([p0, 1 - np.asarray(p0)], axis=1).astype(np.float32)

    @staticmethod
    def _rows(source: Any) -> Any:
        """A sample is its own number."""
        return np.asarray(source[np.arange(len(source.ids))])[:, 0].astype(int)

    def fit(self, training_set: Any, *, seed: int) -> None:
        """Do nothing."""

    def predict(self, source: Any, *, seed: int) -> Iterator[Prediction]:
        rows = self._rows(source)
        yield Prediction(source.ids, self.p[rows], None if self.u is None else self.u[rows])

    def predict_proba(self, source: Any) -> Any:
        return self.plain[self._rows(source)]

    def to_bytes(self) -> bytes:
        return self.p.tobytes()


def scripted_run(
    folder: Path,
    samples: Any = SAMPLES,
    *,
    one_pass: bool = False,
    held_out: bool = False,
    name: str = "",
    classes: tuple[str, str] = ("cat", "dog"),
    **changes: Any,
) -> RunFolder:
    """Make a run on these samples.

    Args:
        folder: where.
        samples: the pool, as SAMPLES.
        one_pass: label by the deterministic pass, and select by confidence.
        held_out: the samples whose truth is known are the validation and the test set too.
        name: of the run's row.
        classes: their names.
        changes: to CONFIG.
    """
    truth, p0, u, plain = (np.array(column) for column in zip(*samples, strict=True))
    config = CONFIG.replace(**changes)
    if one_pass:
        config = config.replace(kappa_p=np.inf, kappa_n=np.inf)
    learner = Scripted(plain) if one_pass else Scripted(plain, p0, u)
    rows = np.arange(len(truth))[:, None]
    known = (rows[truth >= 0], truth[truth >= 0]) if held_out else None
    labeled = (np.zeros((2, 1)), np.arange(2))
    list(run(folder, learner, labeled, rows, config, known, known, truth, classes=classes, name=name))
    found = RunFolder.open(folder)
    settings = found.settings.replace(learner=TorchLearnerSettings(uncertainty="none" if one_pass else "mc-dropout"))
    return RunFolder(found.path, settings, found.version, found.entries)
