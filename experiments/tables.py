"""UPSClassifier's defaults on three small tables with five labels per class.

    python experiments/tables.py --results results

It is compared with its own supervised network (round 0 of the same seed) and with scikit-learn's semi-supervised
methods. The defaults were chosen on other data sets (experiments/choose_defaults.py, docs/defaults.md).
"""

import argparse
from pathlib import Path
from typing import Any

from comparison import BASELINES, SUPERVISED, UPS, Book, draw_split, fit_rows, show
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from surelabel import UPSClassifier

DATASETS = {"digits": load_digits, "breast cancer": load_breast_cancer, "wine": load_wine}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--seeds", type=int, default=20, help="seeds 0, 1, … this many (at least 2)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of runs.csv")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("--seeds must be at least 2: a paired interval needs two.")
    book = Book(options.results / "runs.csv", "tables", settings())
    for dataset in options.datasets:
        x, y = DATASETS[dataset](return_X_y=True)
        for seed in range(options.seeds):
            split = draw_split(x, y, seed)
            for name, new in methods(seed).items():
                book.add(fit_rows(name, dataset, split, seed, new))
        show(book, dataset, range(options.seeds))


def methods(seed: int) -> dict[str, Any]:
    """Return a new classifier for each row of the table."""
    ups = {
        UPS: UPSClassifier(random_state=seed, device="cpu"),
        SUPERVISED: UPSClassifier(random_state=seed, device="cpu", max_rounds=0),
    }
    return {**ups, **{name: make() for name, make in BASELINES.items()}}


def settings() -> dict[str, Any]:
    """Return the complete settings of every method."""
    parameters = {name: new.get_params() for name, new in methods(0).items()}
    for name in (UPS, SUPERVISED):
        parameters[name]["random_state"] = "the row's seed"
    return {"methods": parameters}


if __name__ == "__main__":
    main()
