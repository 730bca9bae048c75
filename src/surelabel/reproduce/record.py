"""Finished runs as rows of `results/runs.csv`: one row a run, with all that explains its number."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from surelabel.base.references import portable_settings
from surelabel.learners.settings import ESTIMATORS, METHODS, TorchLearnerSettings
from surelabel.records import RoundRecord
from surelabel.reproduce.outcome import slug
from surelabel.reproduce.results import append_rows, read_rows
from surelabel.runs import RunFolder
from surelabel.runs.files import write_file
from surelabel.runs.rows import alone


class Figure(NamedTuple):
    """A number that was found of a run, and the paper's where it has one."""

    metric: str
    value: float
    paper: float | None = None


def record_runs(
    path: str | os.PathLike[str], runs: Sequence[RunFolder], *, experiment: str, dataset: str, num_labels: int
) -> None:
    """Append a row for each run, the test score of its last network; their settings go into a JSON file beside.

    Several labels a sample have two scores, and so two rows: "test mAP" and "test mAP, 11 points".

    Args:
        path: the CSV file, `results/runs.csv`.
        runs: finished runs with a test score; runs of one name differ in their seeds only.
        experiment: what they are part of, "demo".
        dataset: what they learned from.
        num_labels: how many labeled samples.
    """
    path = Path(path)
    name, text = settings_file(experiment, {run.settings.name: _without_seed(run) for run in runs})
    lines = [_row(run, experiment, dataset, num_labels, name) for run in runs]
    with alone(path):
        write_file(path.parent / name, text)
        append_rows(path, [scored for run, line in zip(runs, lines, strict=True) for scored in _both_scores(run, line)])


def record_run(
    path: str | os.PathLike[str], run: RunFolder, figures: Iterable[Figure], *, row: str, **values: Any
) -> None:
    """Append a row for each figure of a run but those that are there already; its settings go into a JSON file beside.

    Args:
        path: the CSV file, `results/runs.csv`.
        run: finished, with a test score.
        figures: what was found.
        row: what the table calls it.
        values: experiment, dataset, num_labels and, as the table says it, labels.
    """
    path = Path(path)
    name, text = settings_file(values["experiment"], {row: _without_seed(run)})
    line = _row(run, values["experiment"], values["dataset"], values["num_labels"], name)
    line |= {"row": row, "labels": values["labels"]}
    lines = [{**line, **figure._asdict()} for figure in figures]
    with alone(path):
        known = {_told_by(old) for old in read_rows(path)}
        new = [line for line in lines if _told_by(line) not in known]
        if new:
            write_file(path.parent / name, text)
            append_rows(path, new)


def _told_by(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Return as text what tells a row from others, whatever its value."""
    same = ("experiment", "row", "dataset", "labels", "split_hash", "seed", "settings", "commit", "metric")
    return tuple("" if line[name] is None else str(line[name]) for name in same)


def _both_scores(run: RunFolder, line: dict[str, Any]) -> list[dict[str, Any]]:
    eleven = run.records()[-1].test_score_11
    return [line] if eleven is None else [line, {**line, "metric": f"{line['metric']}, 11 points", "value": eleven}]


def settings_file(experiment: str, settings: dict[str, Any]) -> tuple[str, bytes]:
    """Return the name and the content of a JSON file of settings; an estimator among them stands there as its repr."""
    text = (json.dumps(settings, indent=2, sort_keys=True, default=repr) + "\n").encode()
    # Named by its content: other settings later get a file of their own, and old rows keep theirs.
    return f"{slug(experiment)}-{hashlib.sha256(text).hexdigest()[:8]}.json", text


def _without_seed(run: RunFolder) -> dict[str, Any]:
    settings = portable_settings(run.settings.to_json(), hashes=True)
    settings.pop("fingerprint")
    settings["config"].pop("seed")
    ((settings["data"] or {}).get("arguments") or {}).pop("seed", None)
    return settings


def _row(run: RunFolder, experiment: str, dataset: str, num_labels: int, settings: str) -> dict[str, Any]:
    records, environment, config = run.records(), run.environment[-1], run.settings.config
    seen, split = [samples_seen(record, num_labels, run) for record in records], run.split()
    return {
        "experiment": experiment,
        "row": run.settings.name,
        "dataset": dataset,
        "labels": num_labels,
        "validation_labels": len(run.validation()) if run.has_validation else 0,
        "split_hash": run.settings.fingerprint if split is None else split["hash"],
        "seed": config.seed,
        "metric": "test accuracy" if config.task == "single" else "test mAP",
        "value": records[-1].test_score,
        "paper": None,
        "rounds": records[-1].round,
        "epochs": sum(epochs for epochs, _ in seen),
        "images_seen": sum(images for _, images in seen),
        "minutes": records[-1].minutes,
        "device": f"{environment['device']}: {environment['processor']}",
        "torch": environment["versions"]["torch"],
        "commit": environment["commit"],
        "settings": settings,
    }


def samples_seen(record: RoundRecord, num_labels: int, run: RunFolder) -> tuple[int, int]:
    """Return how many epochs a round's network was trained, and over how many samples in all; 0 where not a network."""
    learner = run.settings.learner
    if not isinstance(learner, TorchLearnerSettings):
        return 0, 0
    if learner.uncertainty not in ESTIMATORS or learner.method not in METHODS:
        run.check_code()  # these classes say how many networks are trained, and on how many samples
    num_negative: int | None
    if record.round == 0:  # which learns from labels alone, and where all are labeled there is no table of a pool
        num_positive, num_negative = 0, 0 if run.settings.config.task == "single" else None
    elif run.settings.config.task == "single":
        num_positive, num_negative = record.num_positive, record.num_negative_only
    else:
        # Several labels a sample: positives are counted by entries, the table has a row for each class, and all samples
        # are drawn alike. One that is labeled in part, and has an entry selected too, counts twice.
        with_positive = round(record.positive_share * run.pool_table().num_rows / len(run.settings.classes))
        num_positive, num_negative = with_positive + record.num_negative_only, None
    method = learner.make_method()(run.settings.config.task, learner.training)
    epochs, samples = method.samples_in_round(num_labels, num_positive, num_negative, record.round)
    return learner.members * epochs, learner.members * samples
