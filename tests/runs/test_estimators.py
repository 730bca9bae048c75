"""Runs with each estimator: resumed bit for bit, their trainings shared where, and only where, they are the same."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimator_support import ESTIMATORS, QUICK, STEPS, pictures
from small_runs import CONFIG, LEARNER, blobs, contents, difference, small_settings

from surelabel.base.together import Alone
from surelabel.data.run_data import FunctionData
from surelabel.data.source import ArraySource
from surelabel.data.training_set import make_problem
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.runs import RunFolder
from surelabel.runs.checks import complete
from surelabel.runs.files import write_json
from surelabel.runs.session import resume, start
from surelabel.runs.shared_fits import SharedFits
from surelabel.settings import RunSettings

FUNCTION = '''
from surelabel.data.run_data import RunData
from estimator_support import pictures, small_network

def data():
    """Fifteen labeled and 45 unlabeled pictures of three classes."""
    x, y = pictures()
    return RunData((x[:15], y[:15]), x[15:], ["a", "b", "c"], truth=y[15:])
'''

PARAMETERS = {"mc-dropblock": {"block_size": 2}, "augmentation": {"crop": 1}, "deep-ensemble": {"members": 2}}


def run_settings(folder: Path, uncertainty: str, **changes: Any) -> RunSettings:
    file = folder / "pictures.py"
    file.write_text(FUNCTION)
    values = {
        "model": f"{file}:small_network",
        "uncertainty": uncertainty,
        "uncertainty_parameters": PARAMETERS.get(uncertainty, {}),
        "training": QUICK,
        "device": "cpu",
    }
    learner_settings = TorchLearnerSettings(**{**values, **changes})
    data = FunctionData(function=f"{file}:data", arguments={})
    return RunSettings(learner=learner_settings, data=data, config=CONFIG.replace(kappa_p=1.0, kappa_n=1.0))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_run_goes_on_after_a_crash_as_if_there_had_been_none(tmp_path: Path, name: str) -> None:
    settings = run_settings(tmp_path, name)
    list(start(tmp_path / "whole", settings))
    rounds = start(tmp_path / "run", settings)
    next(rounds)
    rounds.close()
    list(resume(tmp_path / "run"))
    assert difference(tmp_path / "run", tmp_path / "whole") == ""
    made = RunFolder.open(tmp_path / "run").learner()
    assert made.to_bytes() == RunFolder.open(tmp_path / "whole").model_bytes()
    assert next(made.predict(ArraySource(pictures()[0]), seed=0)).u is not None


def test_a_run_with_warm_members_goes_on_with_the_weights_of_each(tmp_path: Path) -> None:
    settings = run_settings(tmp_path, "deep-ensemble", training=QUICK.replace(warm_start=True))
    list(start(tmp_path / "whole", settings))
    rounds = start(tmp_path / "run", settings)
    for _ in range(2):
        next(rounds)
    rounds.close()
    list(resume(tmp_path / "run"))
    assert difference(tmp_path / "run", tmp_path / "whole") == ""


@pytest.mark.parametrize("name", ["mc-spatial-dropout", "mc-dropblock", "deep-ensemble"])
def test_shared_fits_give_the_weights_that_training_would(tmp_path: Path, name: str) -> None:
    settings = run_settings(tmp_path, name)
    assert settings.learner is not None
    assert settings.data is not None
    data = settings.data.load()
    problem = make_problem(data.labeled, data.unlabeled, "single")
    steps: list[str] = []
    weights, spreads = [], []
    for _ in range(2):
        made = settings.learner.build("single", progress=lambda what, done, total: steps.append(what))
        shared = SharedFits(made, complete(settings, data), tmp_path / "fits")
        shared.fit(problem.training_set(None), seed=0)
        weights.append(shared.to_bytes())
        chunks = shared.predict(ArraySource(pictures()[0]), seed=0)
        spreads.append(np.concatenate([np.asarray(chunk.u) for chunk in chunks]))
    assert steps.count("train") == STEPS * settings.learner.members
    assert weights[0] == weights[1]
    assert np.array_equal(*spreads)


def test_estimators_share_exactly_the_networks_that_are_the_same(tmp_path: Path) -> None:
    began: list[str] = []
    names = ["mc-dropout", "none", "augmentation", "mc-spatial-dropout", "mc-dropblock", "deep-ensemble"]
    for name in names:
        kappa = math.inf if name == "none" else 1.0
        config = CONFIG.replace(max_rounds=0, kappa_p=kappa, kappa_n=kappa)

        def note(what: str, done: int, total: int, name: str = name) -> None:
            if (what, done) == ("train", 1):
                began.append(name)

        settings = run_settings(tmp_path, name).replace(config=config)
        list(start(tmp_path / name, settings, progress=note, shared=tmp_path / "fits"))
    assert began == ["mc-dropout", *names[3:]]


class Two(Alone):
    size = 2


class Counting:
    """A learner that counts its fits."""

    seconds_elsewhere, num_fits = 0.0, 0

    def __init__(self, processes: Alone) -> None:
        self.processes = processes

    def fit(self, training_set: Any, *, seed: int) -> None:
        self.num_fits += 1
        self.seconds_elsewhere = 1.0

    def to_bytes(self) -> bytes:
        return b"weights"

    def from_bytes(self, data: bytes, **shapes: Any) -> None:
        assert data == b"weights"


def test_a_fit_of_other_processes_is_not_shared(tmp_path: Path) -> None:
    x, y = blobs()
    training_set = make_problem((x[:9], y[:9]), x[9:], "single", 3).training_set(None, 0)
    fits = []
    for group in (Alone(), Alone(), Two(), Two()):
        learner = Counting(group)
        SharedFits(learner, small_settings(tmp_path), tmp_path / "fits").fit(training_set, seed=0)
        fits.append(learner.num_fits)
    assert fits == [1, 0, 1, 0]


def test_a_run_of_an_earlier_version_is_read_and_goes_on(tmp_path: Path) -> None:
    """Its settings do not have what this version can be told besides."""
    list(start(tmp_path / "whole", small_settings(tmp_path)))
    rounds = start(tmp_path / "run", small_settings(tmp_path))
    next(rounds)
    rounds.close()
    file = tmp_path / "run" / "run.json"
    content = {
        key: value for key, value in json.loads(file.read_text()).items() if key in ("format", "version", "settings")
    }
    for name in ("model_parameters", "uncertainty_hash", "uncertainty_parameters"):
        del content["settings"]["learner"][name]
    write_json(file, content)
    before = contents(tmp_path / "run")["run.json"]
    assert RunFolder.open(tmp_path / "run").settings.learner == LEARNER.pinned()
    list(resume(tmp_path / "run", trust_code=True))  # it has a function of its own as its data, and no signature
    assert contents(tmp_path / "run")["run.json"] == before
    (tmp_path / "whole" / "run.json").write_bytes(before)
    assert difference(tmp_path / "run", tmp_path / "whole") == ""
