"""Finished runs as rows of `results/runs.csv`: one row a run, with all that explains its number."""

import math
from collections.abc import Sequence
from typing import Any

from surelabel.learners.settings import TorchLearnerSettings
from surelabel.records import RoundRecord
from surelabel.runs import RunFolder


def result_rows(
    runs: Sequence[RunFolder], *, experiment: str, dataset: str, num_labels: int, settings: str
) -> list[dict[str, Any]]:
    """Return a row for each run: the test score of its last network.

    Args:
        runs: finished runs with a test score.
        experiment: what they are part of, "demo".
        dataset: what they learned from.
        num_labels: how many labeled samples.
        settings: name of the JSON file, beside the table, that holds their settings.
    """
    return [_row(run, experiment, dataset, num_labels, settings) for run in runs]


def _row(run: RunFolder, experiment: str, dataset: str, num_labels: int, settings: str) -> dict[str, Any]:
    records, environment, config = run.records(), run.environment[-1], run.settings.config
    seen = [samples_seen(record, num_labels, run.settings.learner) for record in records]
    return {
        "experiment": experiment,
        "row": run.settings.name,
        "dataset": dataset,
        "labels": num_labels,
        "validation_labels": len(run.validation()) if run.has_validation else 0,
        "split_hash": run.settings.fingerprint,
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


def samples_seen(record: RoundRecord, num_labels: int, learner: Any) -> tuple[int, int]:
    """Return how many epochs a round's network was trained, and over how many samples in all; 0 where not a network."""
    if not isinstance(learner, TorchLearnerSettings):
        return 0, 0
    training = learner.training
    rows = num_labels + record.num_positive + record.num_negative_only
    steps = math.ceil(rows / training.batch_size)
    epochs = max(training.epochs, math.ceil(training.min_steps / steps))
    return epochs, epochs * rows
