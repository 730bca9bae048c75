"""The comparison by which UPSClassifier's defaults for small tables were chosen, on separate data sets.

    python experiments/choose_defaults.py FOLDER --results results

FOLDER holds one `<name>.npz` with X (N, F) and y (N,) for each data set; docs/defaults.md says where they come from.
A candidate is the defaults with a few changes, compared with its own round 0 and with scikit-learn's methods.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparison import BASELINES, Book, draw_split, fit_rows

from surelabel import UPSClassifier
from surelabel.core.metrics import paired_difference

CANDIDATES: dict[str, dict[str, Any]] = {
    "chosen": {},
    "noise=0": {"noise": 0.0},
    "noise=1": {"noise": 1.0},
    "kappa_p=0.05": {"kappa_p": 0.05},
    "balance='equal'": {"balance": "equal"},
    "negatives=False": {"negatives": False},
    "kappa_p=inf, kappa_n=inf (confidence)": {"kappa_p": np.inf, "kappa_n": np.inf},
    "learning_rate=0.003": {"learning_rate": 0.003},
    "batch_size=64": {"batch_size": 64},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of <name>.npz files")
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0, 1, … this many")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of defaults.csv")
    options = parser.parse_args()
    files = sorted(options.folder.glob("*.npz"))
    if len(files) < 2:
        parser.error(f"{options.folder} must hold at least two .npz files with X and y; found {len(files)}.")
    book = Book(options.results / "defaults.csv", "choose defaults", settings())
    for path in files:
        with np.load(path) as data:
            x, y = data["X"].astype(np.float64), data["y"]
        for seed in range(options.seeds):
            split = draw_split(x, y, seed)
            for name, new in methods(seed, options.candidates).items():
                book.add(fit_rows(name, path.stem, split, seed, new))
        print(f"{path.stem} done", flush=True)
    show(book, [path.stem for path in files], options.candidates)


def methods(seed: int, candidates: Sequence[str]) -> dict[str, Any]:
    """Return a new classifier for each row: the baselines, and each candidate with its round 0."""
    rows = {name: make() for name, make in BASELINES.items()}
    for name in candidates:
        changes = {"random_state": seed, "device": "cpu", **CANDIDATES[name]}
        rows[name] = UPSClassifier(**changes)
        rows[f"{name}: round 0"] = UPSClassifier(**{**changes, "max_rounds": 0})
    return rows


def settings() -> dict[str, Any]:
    """Return the complete settings of every row."""
    parameters = {name: new.get_params() for name, new in methods(0, list(CANDIDATES)).items()}
    for name in parameters.keys() - BASELINES.keys():
        parameters[name]["random_state"] = "the row's seed"
    return {"methods": parameters}


def show(book: Book, datasets: Sequence[str], candidates: Sequence[str]) -> None:
    """Print each data set's means, then each candidate over all data sets, with 95 % intervals over data sets."""
    means = {key: float(np.mean(list(by_seed.values()))) for key, by_seed in book.values().items()}
    best = {name: max(means[name, row] for row in BASELINES) for name in datasets}
    for name in datasets:
        parts = (f"{means[name, f'{row}: round 0']:.1f} -> {means[name, row]:.1f}" for row in candidates)
        print(f"{name:12s} best baseline {best[name]:.1f};  {',  '.join(parts)}")
    print(f"\n{'candidate':40s}{'round 0':>8s}{'last':>8s}   last - round 0            up on   last - best baseline")
    for row in candidates:
        first = [means[name, f"{row}: round 0"] for name in datasets]
        last = [means[name, row] for name in datasets]
        gain, gap = paired_difference(last, first), paired_difference(last, [best[name] for name in datasets])
        up = sum(after > before for before, after in zip(first, last, strict=True))
        print(
            f"{row:40s}{np.mean(first):8.2f}{np.mean(last):8.2f}   {gain.mean:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}]"
            f"   {up:3d}/{len(datasets)}   {gap.mean:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]"
        )


if __name__ == "__main__":
    main()
