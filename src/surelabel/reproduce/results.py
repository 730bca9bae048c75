"""Finished runs as rows of `results/runs.csv`: a row for each number, with everything that explains it."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from surelabel.base.references import portable_settings
from surelabel.learners.settings import ESTIMATORS, METHODS, TorchLearnerSettings
from surelabel.records import RoundRecord
from surelabel.reproduce.entries import slug
from surelabel.runs import RunFolder
from surelabel.runs.files import write_file
from surelabel.runs.rows import alone, append, content

COLUMNS = (
    "experiment",
    "row",
    "dataset",
    "labels",
    "validation_labels",
    "split_hash",
    "seed",
    "metric",
    "value",
    "paper",
    "rounds",
    "epochs",
    "images_seen",
    "minutes",
    "device",
    "torch",
    "commit",
    "settings",
)
"""The columns of `results/runs.csv`."""


def append_rows(path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a results file, all of them or none; a missing file is made. Several processes do it `alone`.

    Args:
        path: the CSV file; its header must be `COLUMNS`.
        rows: the values by column name; None leaves a cell empty.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "runs.csv"
        >>> append_rows(path, [dict.fromkeys(COLUMNS, None) | {"row": "UPS", "value": 91.5}])
        >>> [(row["row"], row["value"], row["paper"]) for row in read_rows(path)]
        [('UPS', '91.5', '')]
    """
    rows = list(rows)
    assert all(set(row) == set(COLUMNS) for row in rows)
    append(Path(path), COLUMNS, rows)


def read_rows(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return the rows of a results file, every value as text; a missing file has none."""
    return list(csv.DictReader(io.StringIO(content(Path(path), COLUMNS), newline="")))


class Figure(NamedTuple):
    """A number from a run, and the paper's if it has one."""

    metric: str
    value: float
    paper: float | None = None


def record_runs(
    path: str | os.PathLike[str],
    found: Sequence[tuple[RunFolder, Iterable[Figure]]],
    *,
    experiment: str,
    dataset: str,
    num_labels: int,
    labels: str | None = None,
    budget: float | None = None,
) -> None:
    """Append a row for each number that is not there yet; the settings go into a JSON file in the same folder.

    Args:
        path: the CSV file, `results/runs.csv`.
        found: finished runs with a test score, and the numbers of each; runs of one name differ only in their seeds.
        experiment: its name, such as "demo".
        dataset: its name.
        num_labels: how many labeled samples.
        labels: the same as text in the table; None: the number.
        budget: the minutes planned for each run, kept with its settings; None: there was no limit.
    """
    path, planned = Path(path), {} if budget is None else {"budget": budget}
    name, text = settings_file(experiment, {run.settings.name: _without_seed(run) | planned for run, _ in found})
    same = {"experiment": experiment, "dataset": dataset, "labels": labels or num_labels, "settings": name}
    lines = []
    for run, figures in found:
        about = _about(run, num_labels) | same
        lines += [about | figure._asdict() for figure in figures]
    with alone(path):
        known = {_told_by(old) for old in read_rows(path)}
        new = [line for line in lines if _told_by(line) not in known]
        if new:
            write_file(path.parent / name, text)
            append_rows(path, new)


def _told_by(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Return as text what distinguishes a row from others, apart from its value."""
    same = ("experiment", "row", "dataset", "labels", "split_hash", "seed", "settings", "commit", "metric")
    return tuple("" if line[name] is None else str(line[name]) for name in same)


def settings_file(experiment: str, settings: dict[str, Any]) -> tuple[str, bytes]:
    """Return the name and the content of a JSON file of settings; an estimator in them is given by its repr."""
    text = (json.dumps(settings, indent=2, sort_keys=True, default=repr) + "\n").encode()
    # Named by its content: changed settings get another file, and old rows keep theirs.
    return f"{slug(experiment)}-{hashlib.sha256(text).hexdigest()[:8]}.json", text


def _without_seed(run: RunFolder) -> dict[str, Any]:
    settings = portable_settings(run.settings.to_json(), hashes=True)
    settings.pop("fingerprint")
    settings["config"].pop("seed")
    ((settings["data"] or {}).get("arguments") or {}).pop("seed", None)
    return settings


def _about(run: RunFolder, num_labels: int) -> dict[str, Any]:
    """Return the cells that are the same for all numbers of a run."""
    records, environment, split = run.records(), run.environment[-1], run.split()
    seen = [samples_seen(record, num_labels, run) for record in records]
    return {
        "row": run.settings.name,
        "validation_labels": len(run.validation()) if run.has_validation else 0,
        "split_hash": run.settings.fingerprint if split is None else split["hash"],
        "seed": run.settings.config.seed,
        "rounds": records[-1].round,
        "epochs": sum(epochs for epochs, _ in seen),
        "images_seen": sum(images for _, images in seen),
        "minutes": records[-1].minutes,
        "device": f"{environment['device']}: {environment['processor']}",
        "torch": environment["versions"]["torch"],
        "commit": environment["commit"],
    }


def samples_seen(record: RoundRecord, num_labels: int, run: RunFolder) -> tuple[int, int]:
    """Return how many epochs a round's network was trained, and the total number of samples; 0 without a network."""
    learner = run.settings.learner
    if not isinstance(learner, TorchLearnerSettings):
        return 0, 0
    if learner.uncertainty not in ESTIMATORS or learner.method not in METHODS:
        run.check_code()  # these classes say how many networks are trained, and on how many samples
    task, num_positive, num_negative = run.settings.config.task, record.num_positive, record.num_negative_only
    num_unlabeled = 0
    if run.has_pool:
        # Multi-label: the table has a row for each class. Partly labeled samples count too.
        num_unlabeled = run.pool_table().num_rows // (len(run.settings.classes) if task == "multi" else 1)
    if record.round == 0:  # in which nothing is selected yet
        num_positive, num_negative = 0, 0
    elif task == "multi":
        # Positives are counted by entries, and all samples are drawn in the same way. A partly labeled sample with a
        # selected entry counts twice.
        num_positive = round(record.positive_share * num_unlabeled) + num_negative
    selected = num_positive, num_negative if task == "single" else None
    method = learner.make_method()(task, learner.training)
    epochs, samples = method.samples_in_round(num_labels, *selected, record.round, num_unlabeled)
    return learner.members * epochs, learner.members * samples
