"""Which score separates right from wrong labels of a teacher while a network learns from it?

    python experiments/consistency_trials.py study --out runs/consistency-trials
    python experiments/gates.py runs/consistency-trials/study.npz

The trial `study` keeps, at some moments of the training, the teacher's answers to 10,000 pictures of the pool, whose
labels are not used for training. Each score ranks these answers; q is the teacher's last answer, m and v are the mean
and the spread of its answers over the last visits:

- last: the largest q, as SoftMatch judges it;
- mean: the largest m;
- spread: -v of m's class, as UPS judges it;
- mean - spread: the largest m less v;
- plain: the largest answer to the unaugmented picture.

A score judges the label that goes with it: the class of the largest q, m, m, m, and of the plain answer. Two figures
for each: the area under the ROC curve of right against wrong labels, and the share of right labels among the best half,
as many of each predicted class.
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

COVERAGE = 0.5

Floats = npt.NDArray[np.floating]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="study.npz of the trial")
    with np.load(parser.parse_args().study) as file:
        arrays = dict(file)
    moments = 1 + max(int(name.split(".")[1]) for name in arrays if "." in name)
    for moment in range(1, moments):  # at moment 0 nothing has been answered
        part = {name.split(".")[0]: value for name, value in arrays.items() if name.endswith(f".{moment}")}
        print(f"after {moment} of {moments} parts of the training")
        for name, (label, score) in scores(**part).items():
            right = label == arrays["y"]
            best = right[taken(label, score)].mean()
            area = roc_auc_score(right, score)
            print(f"  {name:14} all {100 * right.mean():.2f} %  area {area:.4f}  best half {100 * best:.2f} %")


def scores(
    last: Floats, answers: Floats, squares: Floats, visits: Floats, plain: Floats
) -> dict[str, tuple[npt.NDArray[np.int64], Floats]]:
    """Return the label of each row and its score, by the names above.

    >>> q, m = np.array([[0.6, 0.4]]), np.array([[0.3, 0.7]])
    >>> found = scores(q, m, m**2 + 0.01, np.array([3.0]), q)
    >>> {name: (int(label[0]), round(float(score[0]), 3)) for name, (label, score) in found.items()}
    {'last': (0, 0.6), 'mean': (1, 0.7), 'spread': (1, -0.1), 'mean - spread': (1, 0.6), 'plain': (0, 0.6)}
    """
    last, mean, square, plain = (part.astype(np.float64) for part in (last, answers, squares, plain))
    label = mean.argmax(axis=1)
    spread = np.sqrt(np.maximum(square - mean**2, 0))[np.arange(len(label)), label]
    largest = mean.max(axis=1)
    return {
        "last": (last.argmax(axis=1), last.max(axis=1)),
        "mean": (label, largest),
        "spread": (label, -spread),
        "mean - spread": (label, largest - spread),
        "plain": (plain.argmax(axis=1), plain.max(axis=1)),
    }


def taken(label: npt.NDArray[np.int64], score: Floats) -> npt.NDArray[np.int64]:
    """Return the rows of the best half of each predicted class.

    >>> taken(np.array([0, 0, 1, 1]), np.array([0.2, 0.9, 0.5, 0.1])).tolist()
    [1, 2]
    """
    parts = []
    for one in np.unique(label):
        rows = np.flatnonzero(label == one)
        parts.append(rows[np.argsort(-score[rows], kind="stable")][: round(COVERAGE * len(rows))])
    return np.concatenate(parts)


if __name__ == "__main__":
    main()
