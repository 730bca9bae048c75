"""Which score separates right from wrong labels of a teacher while a network learns from it?

    python experiments/consistency_trials.py study --out runs/consistency-trials
    python experiments/gates.py runs/consistency-trials --results results

and, on a CPU, for the trial "small, study", the same with --trial small-study.

The trial `study` writes, at a quarter, a half and three quarters of the training, what can judge the teacher's labels
of 10,000 pictures of the pool; their true labels are not used for training. The label of a picture is the teacher's
answer to a weak view, aligned to even classes as in the training. Each score ranks the same labels:

- confidence: the aligned probability of the label, as SoftMatch judges it;
- plain: the same for the picture as it is;
- memory: the mean probability, over the teacher's last answers to the picture during the training;
- second view, student: the mean of the probability and of that for a second weak view, or by the network itself;
- dropout: the mean over ten passes of what follows CNN-13's last dropout layer;
- heads: the mean over ten linear models of the teacher's features, each fitted to a resample of the labels;
- all of them: the mean of the scores above.

"..., spread" is, for the sources of several answers, minus the standard deviation of these instead of their mean (of
two answers: minus half of the difference), as UPS judges.

Two figures for each score: the area under the ROC curve of right against wrong labels, and the share of right labels
among the best half, as many of each class as by any other score. That share minus the share by confidence has a 95 %
interval: a paired bootstrap over the pictures.
"""

import argparse
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gate_material import LABELED_VIEWS
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from surelabel.reproduce.first_selection import bootstrap_difference, most_confident
from surelabel.reproduce.results import append_rows, read_rows, settings_file
from surelabel.runs.files import read_json, write_file
from surelabel.runs.rows import alone

EXPERIMENT, FIRST = "gates", "confidence"
COVERAGE, HEADS = 0.5, 10
AREA, RIGHT, DIFFERENCE = "area under the ROC curve, %", "right in the best half, %", "minus confidence, points"
AFTER = {1: "a quarter", 2: "half", 3: "three quarters"}

Floats = npt.NDArray[np.floating]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder of the trial `study`")
    parser.add_argument("--trial", default="study", help="the name of its files")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of runs.csv")
    options = parser.parse_args()
    trial = read_json(options.out / f"{options.trial}.json")
    settings, text = settings_file(EXPERIMENT, trial["settings"])
    same = {**trial["rows"][0], "experiment": EXPERIMENT, "settings": settings}
    rows = []
    for number, moment in AFTER.items():
        with np.load(options.out / f"{options.trial}-{number}.npz") as file:
            found = judged(dict(file))
        print(f"after {moment} of the training")
        for name, figures in found.items():
            print(f"  {name:22}", *(f"{metric} {value:+.2f}" for metric, value in figures.items()), sep="  ")
            rows += [
                {**same, "row": name, "metric": f"{metric}, after {moment}", "value": value}
                for metric, value in figures.items()
            ]
    runs = options.results / "runs.csv"
    with alone(runs):
        known = {tuple(row[name] for name in ("experiment", "dataset", "commit")) for row in read_rows(runs)}
        if tuple(same[name] for name in ("experiment", "dataset", "commit")) not in known:
            write_file(options.results / settings, text)
            append_rows(runs, rows)


def judged(arrays: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the figures of each score at one moment."""
    label, found = scores(arrays)
    right = label == arrays["y"]
    counts = [round(COVERAGE * number) for number in np.bincount(label)]
    first = most_confident(label, found[FIRST], counts)
    figures = {}
    for name, score in found.items():
        best = most_confident(label, score, counts)
        difference = bootstrap_difference(best, right, first, right)
        figures[name] = {
            AREA: 100 * float(roc_auc_score(right, score)),
            RIGHT: 100 * float(right[best].mean()),
            DIFFERENCE: 100 * difference.mean,
            f"{DIFFERENCE}, low": 100 * difference.low,
            f"{DIFFERENCE}, high": 100 * difference.high,
        }
    return figures


def scores(arrays: Mapping[str, Any]) -> tuple[npt.NDArray[np.int64], dict[str, Floats]]:
    """Return the label of each picture (N,), and each score of it (N,).

    Args:
        arrays: of `gate_material.Looker.material`, with the memory and the mean answer of each class.
    """

    def aligned(name: str) -> Floats:
        q: Floats = arrays[name].astype(np.float64) / arrays["classes"]
        return q / q.sum(axis=1, keepdims=True)

    weak = aligned("weak")
    label = weak.argmax(axis=1)
    rows = np.arange(len(label))
    two = {"second view": aligned("second"), "student": aligned("student")}
    several = {name: np.stack([weak, other])[:, rows, label] for name, other in two.items()}
    several["heads"] = heads(arrays)[:, rows, label]
    mean = {name: answers.mean(axis=0) for name, answers in several.items()}
    spread = {name: answers.std(axis=0) for name, answers in several.items()}
    for name, first, second in (("memory", "answers", "squares"), ("dropout", "dropout", "dropout_squares")):
        mean[name], square = (arrays[part].astype(np.float64)[rows, label] for part in (first, second))
        spread[name] = np.sqrt(np.maximum(square - mean[name] ** 2, 0))
    found = {FIRST: weak[rows, label], "plain": aligned("plain")[rows, label], **mean}
    found["all of them"] = np.mean(list(found.values()), axis=0)
    return label, found | {f"{name}, spread": -value for name, value in spread.items()}


def heads(arrays: Mapping[str, Any]) -> Floats:
    """Return the answers of linear models of the features, each fitted to a resample of the labels, (heads, N, C).

    All views of a labeled picture are drawn together, as many pictures of each class as there are.
    """
    y = arrays["labeled_y"]
    scaler = StandardScaler().fit(arrays["labeled_features"].astype(np.float64))
    known, asked = (scaler.transform(arrays[name].astype(np.float64)) for name in ("labeled_features", "features"))
    views = np.arange(len(y)).reshape(LABELED_VIEWS, -1)
    classes = [np.flatnonzero(y[views[0]] == c) for c in np.unique(y)]
    generator, found = np.random.default_rng(0), []
    for _ in range(HEADS):
        rows = views[:, np.concatenate([generator.choice(same, len(same)) for same in classes])].ravel()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a solver that stops a little early
            found.append(LogisticRegression(max_iter=200).fit(known[rows], y[rows]).predict_proba(asked))
    return np.stack(found)


if __name__ == "__main__":
    main()
