"""Rounds that several runs share are trained once: a fit is stored under the hash of everything that it depends on.

The rows of a table begin with the same supervised network. A round is a pure function of its inputs, so other runs
would train the same weights, bit for bit.
"""

import contextlib
import hashlib
import json
import logging
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from surelabel.base.processes import locked
from surelabel.base.together import processes_of
from surelabel.data.training_set import TrainingSet
from surelabel.errors import DamagedFileError
from surelabel.runs.environment import code_hash, describe_environment
from surelabel.runs.files import make_folder, read_file, read_json, write_file, write_json
from surelabel.settings import RunSettings

_logger = logging.getLogger("surelabel")


class SharedFits:
    """A network learner that stores its fits in a folder, and reuses those of other runs.

    Args:
        learner: trains what is not there yet.
        settings: the complete ones of the run, on which its fits depend besides the targets and the seed.
        folder: shared by the runs; a run that needs another run's unfinished fit waits for it.

    Attributes:
        seconds_elsewhere: seconds that the last fit took in the run that made it, or before this process resumed it.
    """

    def __init__(self, learner: Any, settings: RunSettings, folder: Path) -> None:
        self.learner, self.folder = learner, folder
        data = None if settings.data is None else settings.data.model_dump(mode="json")
        code = code_hash(), describe_environment()["versions"]["torch"]
        text = json.dumps([settings.network.fit_settings(), settings.fingerprint, data, code], sort_keys=True)
        self._inputs = hashlib.sha256(text.encode())
        self.seconds_elsewhere = 0.0
        self._shapes = {"sample_shape": settings.sample_shape, "num_classes": len(settings.classes)}

    def fit(self, training_set: TrainingSet, *, seed: int) -> None:
        """Train, or take the weights of an equal fit."""
        key = self._inputs.copy()
        key.update(f"{seed}:{training_set.num_labeled}".encode())
        for part in training_set.targets.arrays():
            key.update(np.ascontiguousarray(part).data)
        group = processes_of(self.learner)
        if group.size > 1:  # with dropout or BatchNorm, a different number of processes trains a different network
            key.update(f":{group.size}".encode())
        path = self.folder / f"{key.hexdigest()}.safetensors"
        with contextlib.ExitStack() as held:

            def hold() -> None:
                make_folder(self.folder)
                held.enter_context(locked(path.with_suffix(".lock"), math.inf))

            group.only_first(hold)
            taken = group.in_all(lambda: self._take(path))
            self.seconds_elsewhere = taken[0] if all(taken) else 0.0
            if not self.seconds_elsewhere:
                started = time.monotonic()
                self.learner.fit(training_set, seed=seed)
                self.seconds_elsewhere = self.learner.seconds_elsewhere
                seconds = time.monotonic() - started + self.seconds_elsewhere
                group.only_first(lambda: self._keep(path, seconds))

    def __getattr__(self, name: str) -> Any:
        """Use the learner for everything else, such as labeling and saving."""
        return getattr(self.learner, name)

    @property
    def checkpoints(self) -> Any:
        """Where the learner keeps the state of a network in training."""
        return self.learner.checkpoints

    @checkpoints.setter
    def checkpoints(self, store: Any) -> None:
        self.learner.checkpoints = store

    def _keep(self, path: Path, seconds: float) -> None:
        checksum = write_file(path, self.learner.to_bytes())
        write_json(path.with_suffix(".json"), {"sha256": checksum, "seconds": seconds})

    def _take(self, path: Path) -> float:
        """Load the weights of a finished fit, and return its seconds; 0 if there is no complete one."""
        if not path.with_suffix(".json").exists():
            return 0.0
        try:
            made = read_json(path.with_suffix(".json"))
            seconds = float(made["seconds"])
            self.learner.from_bytes(read_file(path, str(made["sha256"])), **self._shapes)
        except (DamagedFileError, KeyError, TypeError, ValueError) as error:
            _logger.warning("A network that runs share is trained again: %s", error)
            return 0.0
        return max(seconds, 0.0)
