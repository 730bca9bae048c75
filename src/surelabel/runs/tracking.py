"""Each round's record for TensorBoard or MLflow: callbacks for `runs.session.start` and `resume`.

Both write to a folder on this machine; nothing is sent anywhere. Their packages are an extra, `surelabel[track]`.
"""

import importlib.util
import logging
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from surelabel.base.text import shown
from surelabel.errors import DataError, InvalidInputError, RunError
from surelabel.records import RoundRecord
from surelabel.settings import RunSettings

FOLDER = "tracking"
"""Where trackers write within a run's folder, unless told otherwise."""
_NUMBERS = ("positive_share", "mean_confidence", "mean_uncertainty", "ece", "positive_accuracy", "negative_accuracy")
_AT_ONCE = 100
"""The most parameters that MLflow takes at once."""


def trackers(
    names: Sequence[str], run: Path, settings: RunSettings, place: Path | None = None, done: int | None = None
) -> "list[TensorBoardTracker | MLflowTracker]":
    """Return a callback for each tracker; refuse missing packages, and a place that is already in use.

    Args:
        names: "tensorboard" or "mlflow", or both.
        run: the run's folder.
        settings: the run's.
        place: the folder to write to; None: one inside the run's.
        done: how many rounds of a resumed run are done; None for a new run.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            install = 'pip install "surelabel[track]"'
            raise InvalidInputError(f"--track {name} needs the package {name!r}; install it with: {install}.")
    folder = run / FOLDER if place is None else place
    if place is None:
        _refuse_links(folder)
    made: list[TensorBoardTracker | MLflowTracker] = []
    for name in dict.fromkeys(names):
        make = TensorBoardTracker if name == "tensorboard" else MLflowTracker
        made.append(make(folder, run, settings, done))
    return made


def _refuse_links(folder: Path) -> None:
    """Refuse links in a run's folder, which may be someone else's: trackers would write to where they lead."""
    link = next((path for path in (folder, *folder.rglob("*")) if path.is_symlink()), None)
    if link is not None:
        raise RunError(f"'{link}' is a symbolic link; remove it, or name another place with --track-dir.")


def metrics(record: RoundRecord) -> dict[str, float]:
    """Return a round's numbers by names that both trackers accept; unknown ones are left out."""
    found = {"positives": record.num_positive, "negatives": record.num_negative, "minutes": record.minutes}
    found |= {name: value for name in _NUMBERS if (value := getattr(record, name)) is not None}
    return found | {_name(name): value for name, value in record.scores.items()}


def parameters(settings: RunSettings) -> dict[str, str]:
    """Return all settings on one level, `config.tau_p` and so on, as short text."""
    values = settings.to_json()
    parts = {name: values[name] for name in ("config", "learner", "data")}
    return {_name(name): shown(value, quote=False, limit=250) for name, value in _flat(parts, "")}


def _flat(values: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(values, dict):
        for key, value in values.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    elif values is not None:
        yield name, values


def _name(name: str) -> str:
    """Return a name with only characters that both trackers accept.

    >>> _name("test mAP, 11 points")
    'test_mAP_11_points'
    """
    return re.sub(r"[^\w.\-/]+", "_", name)


class TensorBoardTracker:
    """Writes event files to a folder named after the run; the settings are logged as text.

    Args:
        folder: where runs have their folders; `tensorboard --logdir` takes it.
        run: the run's folder, for its name.
        settings: the run's.
        done: as for `trackers`.
    """

    def __init__(self, folder: Path, run: Path, settings: RunSettings, done: int | None) -> None:
        self.path, self.settings, self.done = folder / run.absolute().name, settings, done
        self._writer: Any = None
        if done is None and self.path.is_dir() and any(self.path.iterdir()):
            raise DataError(f"The folder '{self.path}' holds another run's events; give another --track-dir.")

    def __call__(self, record: RoundRecord) -> None:
        """Add a round."""
        if self._writer is None:
            self._writer = self._begun()
        for name, value in metrics(record).items():
            self._writer.add_scalar(name, value, record.round)
        self._writer.flush()  # flushed, so that a later kill does not lose it
        if record.stop is not None:
            self._writer.close()

    def _begun(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from torch.utils.tensorboard import SummaryWriter

        # A round that was logged but not kept, as after a crash, is logged again, and its first numbers are dropped.
        writer: Any = SummaryWriter(str(self.path), purge_step=self.done)
        if not self.done:
            lines = [f"| {name} | {value.replace('|', ' ')} |" for name, value in parameters(self.settings).items()]
            writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]), 0)
        return writer


class MLflowTracker:
    """Writes to an SQLite file, `mlflow.db`; a run's rounds are the steps of one MLflow run.

    Args:
        folder: where the file is; `mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db` shows it.
        run: the run's folder; its name is that of the MLflow run.
        settings: the run's, its parameters.
        done: as for `trackers`.
    """

    EXPERIMENT = "surelabel"
    _TAG = "surelabel.folder"

    def __init__(self, folder: Path, run: Path, settings: RunSettings, done: int | None) -> None:
        self.path, self.run, self.settings, self.done = folder.absolute(), run.absolute(), settings, done
        self._client: Any = None
        self._id = ""

    def __call__(self, record: RoundRecord) -> None:
        """Add a round, unless it is there already, as after a crash."""
        if self._client is None:
            self._begin()
        known = {one.step for one in self._client.get_metric_history(self._id, "minutes")}
        if record.round not in known:
            for name, value in metrics(record).items():
                self._client.log_metric(self._id, name, value, step=record.round)
        if record.stop is not None:
            self._client.set_terminated(self._id)

    def _begin(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing is sent anywhere
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self.path.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from mlflow.tracking import MlflowClient

            client: Any = MlflowClient(tracking_uri=f"sqlite:///{self.path / 'mlflow.db'}")
            experiment = client.get_experiment_by_name(self.EXPERIMENT)
        artifacts = (self.path / "artifacts").as_uri()
        known = None if experiment is None else experiment.experiment_id
        number = client.create_experiment(self.EXPERIMENT, artifacts) if known is None else known
        folder = str(self.run)
        earlier = [one for one in client.search_runs([number]) if one.data.tags.get(self._TAG) == folder]
        if self.done is not None and earlier:
            self._id = earlier[0].info.run_id
            client.set_terminated(self._id, "RUNNING")
        else:
            self._id = client.create_run(number, tags={self._TAG: folder}, run_name=self.run.name).info.run_id
            self._log_parameters(client)
        self._client = client

    def _log_parameters(self, client: Any) -> None:
        from mlflow.entities import Param

        found = [Param(name, value) for name, value in parameters(self.settings).items()]
        for start in range(0, len(found), _AT_ONCE):
            client.log_batch(self._id, params=found[start : start + _AT_ONCE])
