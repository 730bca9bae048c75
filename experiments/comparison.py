"""What the comparisons on small tables share: the split of a seed, scikit-learn's methods, and a row for each fit."""

import contextlib
import hashlib
import json
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from surelabel import UPSClassifier
from surelabel.learners.rule import samples_trained_on
from surelabel.report.results import append_rows, read_rows
from surelabel.runs.environment import describe_environment

LABELS_PER_CLASS = 5
METRIC = "test accuracy %"
PROTOCOL = (
    "A stratified quarter of the rows is held out for the test, five rows of each class keep their labels, the others "
    "of the training rows are unlabeled; features are standardized by the training rows. The seed draws all of it and "
    "is the method's random_state."
)

BASELINES: dict[str, Callable[[], Any]] = {
    "self-training, logistic regression": lambda: SelfTrainingClassifier(LogisticRegression(max_iter=2000)),
    "self-training, SVC": lambda: SelfTrainingClassifier(SVC(probability=True, random_state=0)),
    "self-training, calibrated SVC": lambda: SelfTrainingClassifier(CalibratedClassifierCV(SVC(), ensemble=False)),
    "label spreading": lambda: LabelSpreading(kernel="knn", n_neighbors=7, max_iter=200),
}


class Split(NamedTuple):
    """One seed's data: training rows with -1 where unlabeled, test rows, and what identifies the split."""

    x: Any
    y: Any
    x_test: Any
    y_test: Any
    num_labels: int
    digest: str


def draw_split(x: Any, y: Any, seed: int) -> Split:
    """Hold out a stratified quarter, keep five labels of each class, standardize by the training rows."""
    train, test = train_test_split(np.arange(len(y)), test_size=0.25, stratify=y, random_state=seed)
    generator = np.random.RandomState(seed)
    classes = [generator.permutation(train[y[train] == c])[:LABELS_PER_CLASS] for c in np.unique(y)]
    labeled = np.sort(np.concatenate(classes))
    scaler = StandardScaler().fit(x[train])
    y_few = np.where(np.isin(train, labeled), y[train], -1)
    rows = json.dumps({"labeled": labeled.tolist(), "test": np.sort(test).tolist()})
    digest = hashlib.sha256(rows.encode()).hexdigest()
    return Split(scaler.transform(x[train]), y_few, scaler.transform(x[test]), y[test], len(labeled), digest)


def fit_row(experiment: str, name: str, dataset: str, split: Split, seed: int, classifier: Any) -> dict[str, Any]:
    """Fit on a split and return the row of `results/runs.csv` but for its last three columns."""
    started = time.perf_counter()
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The `probability` parameter was deprecated", category=FutureWarning)
        classifier.fit(split.x, split.y)
    minutes = (time.perf_counter() - started) / 60
    return {
        "experiment": experiment,
        "row": name,
        "dataset": dataset,
        "labels": split.num_labels,
        "validation_labels": 0,
        "split_hash": split.digest,
        "seed": seed,
        "metric": METRIC,
        "value": round(100 * float(np.mean(classifier.predict(split.x_test) == split.y_test)), 4),
        "paper": None,
        "rounds": getattr(classifier, "n_iter_", None),
        "epochs": epochs_done(classifier, split.num_labels),
        "images_seen": None,
        "minutes": round(minutes, 5),
        "device": f"cpu (1 thread, {describe_environment()['processor']})",
    }


def epochs_done(classifier: Any, num_labels: int) -> int | None:
    """Return the epochs of all rounds of a UPSClassifier, None for other methods."""
    if not isinstance(classifier, UPSClassifier):
        return None
    training = classifier.learner_.training
    return sum(
        samples_trained_on(num_labels, record.num_positive, record.num_negative_only, training)[0]
        for record in classifier.history_
    )


@contextlib.contextmanager
def one_thread() -> Any:
    """Let torch use one thread, as on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Book:
    """Appends rows with the commit, the version of torch and the settings; what stands in the file is read back."""

    def __init__(self, path: Path, experiment: str, settings: Mapping[str, Any]) -> None:
        self.path, self.experiment = path, experiment
        text = json.dumps({"protocol": PROTOCOL, **settings}, indent=2, sort_keys=True, default=repr) + "\n"
        name = f"{experiment.replace(' ', '-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
        folder = path.parent
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        self.origin = {"torch": torch.__version__, "commit": commit(), "settings": name}

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append finished rows."""
        append_rows(self.path, [{**row, **self.origin} for row in rows])

    def values(self, metric: str = METRIC) -> dict[tuple[str, str], dict[int, float]]:
        """Return, for each (data set, row), the value of each seed; of runs that were repeated the last counts."""
        found: dict[tuple[str, str], dict[int, float]] = {}
        for row in read_rows(self.path):
            ours = {"experiment": self.experiment, "metric": metric, **self.origin}
            if all(row[key] == value for key, value in ours.items()):
                found.setdefault((row["dataset"], row["row"]), {})[int(row["seed"])] = float(row["value"])
        return found


def commit() -> str:
    """Return the short commit of this repository, with "-dirty" when anything but its results has changed."""
    here = Path(__file__).resolve().parents[1]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", here, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!results")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")
