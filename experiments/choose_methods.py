"""Trials of the weights of consistency methods for tables, on the data on which defaults are chosen.

    SURELABEL_DATA=DATA python experiments/choose_methods.py FOLDER --results results

DATA holds `sms_spam`, `mulan` and `tables`, as for `own_data.py --choosing`. For each data set and seed, the network of
`surelabel fit` is trained by each method alone, without rounds: with the published weight and ratio, and with others.

Fixed before the first run: a value other than the published one is adopted if its mean gain over the data sets is at
least 0.5 points, and the 95 % interval over the data sets excludes a loss of more than 0.3 points. If several qualify,
the one with the largest mean gain becomes the default.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from choose_table_model import DATASETS, scored
from comparison import METRIC, Book
from own_data import METRICS, score
from own_files import CHOOSING

from surelabel.core.arrays import to_numpy
from surelabel.core.metrics import paired_difference
from surelabel.data.source import as_source
from surelabel.data.training_set import make_problem
from surelabel.runs import RunFolder
from surelabel.settings import EMA_DECAY

SEVERAL = "scene, mAP", "emotions, mAP"
SOUNDS = "spoken digits, others"
UPS = "round 0"
MATCHING = "fixmatch", "flexmatch", "freematch", "softmatch"
PUBLISHED = {"pi-model": 10.0, "mean-teacher": 50.0, "ict": 100.0, "mixmatch": 75.0}
TRIALS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {"weight": weight}) for name, weight in PUBLISHED.items()},
    **{f"{name}, weight / 10": (name, {"weight": weight / 10}) for name, weight in PUBLISHED.items()},
    **{name: (name, {"ratio": 7}) for name in MATCHING},
    **{f"{name}, ratio 1": (name, {"ratio": 1}) for name in MATCHING},
}
"""The method and parameters of each row; the first row of a method has the published value."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where files and runs are written; what is in it is replaced")
    parser.add_argument("--datasets", nargs="+", choices=(*DATASETS, *SEVERAL, SOUNDS), default=[*DATASETS, *SEVERAL])
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of defaults.csv")
    options = parser.parse_args()
    book = Book(options.results / "defaults.csv", "choose methods", {"protocol": __doc__, "trials": TRIALS})
    for seed in range(options.seeds):
        for name in options.datasets:
            folder = options.folder / name.replace(" ", "-") / str(seed)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            rows = trials(name, folder, seed)
            book.add(rows)
            print(name, seed, *(f"{row['row']}: {row['value']:.1f}" for row in rows), sep=" | ", flush=True)
        show(book)


def trials(name: str, folder: Path, seed: int) -> list[dict[str, Any]]:
    """Return the test scores of one data set and seed."""
    case, out = CHOOSING[name].write(folder, seed), folder / "run"
    command = ["fit", str(case.data), *case.options, "--test", str(case.test), "--seed", str(seed), "--out", str(out)]
    more = ["--quiet", "--no-compare", "--rounds", "0"]
    subprocess.run([sys.executable, "-m", "surelabel", *command, *more], check=True)
    run = RunFolder.open(out)
    data, settings = run.data(), run.settings.network
    assert data.test is not None
    test, truth = as_source("test", data.test[0]), to_numpy(data.test[1])
    training_set = make_problem(data.labeled, data.unlabeled, data.task, len(data.classes)).training_set(None)
    found = {UPS: score(run.learner().predict_proba(test), truth)}
    for row, (method, parameters) in TRIALS.items():
        if data.task == "multi" and method in MATCHING:
            continue
        training = settings.training.replace(ema_decay=EMA_DECAY)
        changed = settings.replace(method=method, method_parameters=parameters, training=training)
        learner = changed.build(data.task)
        learner.fit(training_set, seed=seed)
        found[row] = score(learner.predict_proba(test), truth)
    metric = METRIC if data.task == "single" else METRICS[0]
    return [scored(row, value, data, seed, name) | {"metric": metric} for row, value in found.items()]


def show(book: Book) -> None:
    """Print the gain of each trial over the published value, and over round 0, with 95 % intervals."""
    values = book.values() | book.values(METRICS[0])
    means = {key: float(np.mean(list(by_seed.values()))) for key, by_seed in values.items()}
    for several in (False, True):
        for row, (method, _) in TRIALS.items():
            for base in (UPS, method):
                sets = [name for name, one in means if one == row and (name in SEVERAL) == several]
                if len(sets) < 2 or row == base:
                    continue
                mean, low, high = paired_difference([means[n, row] for n in sets], [means[n, base] for n in sets])
                print(f"= {row} minus {base}: {mean:+.2f} [{low:+.2f}, {high:+.2f}], {len(sets)} data sets", flush=True)


if __name__ == "__main__":
    main()
