"""What the comparisons on small tables share: the split of a seed, scikit-learn's methods, and a row for each fit."""

import contextlib
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
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
from surelabel.core.metrics import paired_difference
from surelabel.methods.ups import UPSMethod
from surelabel.reproduce.results import append_rows, read_rows, settings_file
from surelabel.runs.environment import describe_environment
from surelabel.runs.files import make_folder, write_file
from surelabel.runs.rows import alone

LABELS_PER_CLASS = 5
METRIC = "test accuracy %"
UPS, SUPERVISED = "UPS", "supervised network (round 0)"
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


def accuracy(classifier: Any, split: Split) -> dict[str, float]:
    """Return the share of test rows whose class is right, by the metric's name."""
    return {METRIC: float(np.mean(classifier.predict(split.x_test) == split.y_test))}


def fit_rows(
    name: str,
    dataset: str,
    split: Split,
    seed: int,
    classifier: Any,
    score: Callable[[Any, Split], dict[str, float]] = accuracy,
) -> list[dict[str, Any]]:
    """Fit on a split and return a row of `results/runs.csv` for each metric, but for the columns that a `Book` adds."""
    started = time.perf_counter()
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The `probability` parameter was deprecated", category=FutureWarning)
        classifier.fit(split.x, split.y)
    minutes = (time.perf_counter() - started) / 60
    same = {
        "row": name,
        "dataset": dataset,
        "labels": split.num_labels,
        "validation_labels": 0,
        "split_hash": split.digest,
        "seed": seed,
        "paper": None,
        "rounds": getattr(classifier, "n_iter_", None),
        # Positives of several labels a row are counted by entries, which do not tell the epochs.
        "epochs": epochs_done(classifier, split.num_labels) if split.y.ndim == 1 else None,
        "images_seen": None,
        "minutes": round(minutes, 5),
        "device": f"cpu (1 thread, {describe_environment()['processor']})",
    }
    values = score(classifier, split)
    return [{**same, "metric": metric, "value": round(100 * value, 4)} for metric, value in values.items()]


def epochs_done(classifier: Any, num_labels: int) -> int | None:
    """Return the epochs of all rounds of a UPSClassifier, None for other methods."""
    if not isinstance(classifier, UPSClassifier):
        return None
    method = UPSMethod("single", classifier.learner_.training)
    return sum(
        method.samples_in_round(num_labels, record.num_positive, record.num_negative_only, record.round)[0]
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
    """Appends rows with the experiment, torch, commit and settings; what stands in the file is read back."""

    def __init__(self, path: Path, experiment: str, settings: Mapping[str, Any]) -> None:
        self.path = path
        name, text = settings_file(experiment, {"protocol": PROTOCOL, **settings})
        make_folder(path.parent)
        write_file(path.parent / name, text)
        commit = describe_environment()["commit"] or ""
        self.origin = {"experiment": experiment, "torch": torch.__version__, "commit": commit, "settings": name}

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append finished rows."""
        with alone(self.path):
            append_rows(self.path, [{**row, **self.origin} for row in rows])

    def values(self, metric: str = METRIC) -> dict[tuple[str, str], dict[int, float]]:
        """Return, for each (data set, row), the value of each seed; of runs that were repeated the last counts."""
        found: dict[tuple[str, str], dict[int, float]] = {}
        for row in read_rows(self.path):
            if all(row[key] == value for key, value in {"metric": metric, **self.origin}.items()):
                found.setdefault((row["dataset"], row["row"]), {})[int(row["seed"])] = float(row["value"])
        return found


def show(book: Book, dataset: str, seeds: Sequence[int], metric: str = METRIC) -> None:
    """Print the rows of a data set: means, and UPS minus each other method with its 95 % interval."""
    values = {row: by_seed for (name, row), by_seed in book.values(metric).items() if name == dataset}
    ups = [values[UPS][seed] for seed in seeds]
    print(f"\n{dataset}: {metric}, seeds {seeds[0]} to {seeds[-1]}")
    for row, by_seed in values.items():
        mine = [by_seed[seed] for seed in seeds]
        mean, low, high = paired_difference(ups, mine)
        difference = "" if row == UPS else f"UPS is {mean:+.2f} [{low:+.2f}, {high:+.2f}]"
        print(f"  {row:36s}{sum(mine) / len(mine):6.2f}  {difference}", flush=True)
