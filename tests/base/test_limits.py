"""A slip of the keyboard is told before work begins: no number of a setting is without a limit."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_support import QUICK, Command, write_blobs
from pydantic import TypeAdapter, ValidationError
from sklearn.linear_model import LogisticRegression

from benchmarks.run import BenchSettings
from surelabel import DeepEnsemble, MCDropout, TorchLearner, UPSClassifier
from surelabel.augment.settings import AugmentSettings
from surelabel.base.settings import Settings
from surelabel.core.thresholds import thresholds
from surelabel.data.run_data import TableData
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.models.table import table_network
from surelabel.reproduce.paper import EXPERIMENTS
from surelabel.settings import RunSettings, UPSConfig

pytestmark = pytest.mark.usefixtures("short_fits")

FIT = ("fit", "pets.csv", "--label", "pet", "--id", "id")
HUGE = 10**40
KINDS = (
    UPSConfig,
    TrainingSettings,
    AugmentSettings,
    TorchLearnerSettings,
    SklearnLearnerSettings,
    TableData,
    RunSettings,
    BenchSettings,
)
WITHOUT_LIMIT = {
    "kappa_p",
    "kappa_n",
    "tolerance",
    "max_minutes",
    "checkpoint_minutes",
    "gradient_clip",
    "minutes",
    "mean",
    "std",
}
"""Infinity says something there, no threshold, no end, no clipping; or it is the data that decide."""


@pytest.fixture(autouse=True)
def in_a_new_folder(own_folder: Path) -> None:
    write_blobs(Path("pets.csv"))


def takes(kind: type[Settings], name: str, value: object) -> bool:
    """Whether a setting by itself, without what others say of it, may have this value."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind.model_fields[name].rebuild_annotation())
    try:
        adapter.validate_python(value, strict=isinstance(value, bool))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_a_limit(kind: type[Settings]) -> None:
    numbers = [name for name in kind.model_fields if takes(kind, name, 1) and not takes(kind, name, True)]
    shapes = [name for name in kind.model_fields if takes(kind, name, (1,))]
    assert numbers
    assert [name for name in numbers if takes(kind, name, HUGE) and name not in WITHOUT_LIMIT] == []
    assert [name for name in shapes if takes(kind, name, (HUGE,)) and name not in WITHOUT_LIMIT] == []
    assert [name for name in numbers if takes(kind, name, math.nan)] == []


OPTIONS = {
    "--temperature": ("1e-300", "inf", "1e300"),
    "--epochs": (10**18, 2**70),
    "--passes": (10**9, 2**70),
    "--rounds": (10**18, 2**70),
    "--hidden": (10**9, 2**70, "8," * 200 + "8"),
    "--noise": ("1e300", "inf"),
    "--learning-rate": ("1e300", "inf"),
    "--seed": (2**200,),
    "--device": ("cpu:99", "cpu:1", "meta", "hpu", ""),
    "--max-minutes": ("nan",),
    "--kappa-p": ("nan",),
}


@pytest.mark.parametrize(("option", "value"), [(name, value) for name, values in OPTIONS.items() for value in values])
def test_fit_refuses_it_before_it_trains(command: Command, option: str, value: object) -> None:
    line = command.fails(2, *FIT, option, value, "--out", "run")
    assert line.startswith(f"Invalid value for '{option}': ")
    assert not Path("run").exists()


@pytest.mark.parametrize(("option", "value"), [("--passes", 10**9), ("--temperature", "1e-300")])
def test_so_it_does_for_a_classifier_of_scikit_learn(command: Command, option: str, value: object) -> None:
    words = ("--estimator", "sklearn.linear_model:LogisticRegression", option, value, "--out", "run")
    assert command.fails(2, *FIT, *words).startswith(f"Invalid value for '{option}': ")


def test_a_seed_of_any_usual_size_is_fine(command: Command) -> None:
    assert command(*FIT, *QUICK, "--seed", 2**70, "--out", "run").code == 0


def test_the_other_commands_refuse_it_too(command: Command) -> None:
    assert command(*FIT, *QUICK, "--validation", "0.5", "--out", "run").code == 0
    assert command.fails(2, "resume", "run", "--rounds", 10**18).startswith("Invalid value for '--rounds'")
    for option, value in (("--seeds", 10**18), ("--rounds", 10**18), ("--device", "cpu:99")):
        assert command.fails(2, "reproduce", "table5", option, value).startswith(f"Invalid value for '{option}'")
    assert "at most 1,000,000 minutes; got 1e+300" in command.fails(1, "reproduce", "table5", "--budget", "1e300")
    assert command.fails(2, "demo", "--seeds", 10**18).startswith("Invalid value for '--seeds'")
    result = command("thresholds", "run", "--max-error", "1e-300")
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"passes": 10**9}, "passes"),
        ({"temperature": 1e-300}, "temperature"),
        ({"epochs": 10**18}, "epochs"),
        ({"hidden": (10**9,)}, "hidden"),
        ({"noise": 1e300}, "noise"),
        ({"learning_rate": 1e300}, "learning_rate"),
        ({"estimator": LogisticRegression(), "temperature": 1e-300}, "temperature"),
        ({"estimator": LogisticRegression(), "passes": 10**9}, "passes"),
    ],
)
def test_the_estimator_refuses_it(changes: dict[str, Any], name: str) -> None:
    x, y = np.arange(24.0).reshape(12, 2), np.array([0, 1, *[-1] * 10])
    with pytest.raises(InvalidInputError, match=name):
        UPSClassifier(random_state=0, **changes).fit(x, y)


def test_arguments_of_functions_are_refused_by_their_values() -> None:
    with pytest.raises(InvalidInputError, match=r"'members' argument must be a whole number of at most 10000. Got"):
        DeepEnsemble(members=10**9)
    with pytest.raises(InvalidInputError, match=r"'passes' argument must be a whole number of at most 10000. Got"):
        MCDropout(passes=10**9)
    with pytest.raises(InvalidInputError, match=r"'hidden' argument must be a whole number of at most 65536. Got"):
        TorchLearner(lambda shape, classes: table_network(shape, classes, hidden=(10**9,))).build((2,), 2)


def test_no_number_of_wrong_labels_is_allowed_for_an_error_of_nothing() -> None:
    p, y = np.array([[0.9, 0.1], [0.8, 0.2]] * 50), np.zeros(100, dtype=np.int64)
    chosen = thresholds(p, np.zeros_like(p), y, max_error=1e-300)
    assert chosen.tau_p is None


def test_all_recipes_stay_within_the_limits() -> None:
    for experiment in EXPERIMENTS.values():
        for entry in experiment.entries:
            if entry.variant is not None:
                for recipe in ("fast", "paper"):
                    settings = entry.of(entry.base(0, recipe))
                    assert RunSettings.model_validate(settings.to_json()) == settings
