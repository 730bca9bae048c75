"""The comparison by which the defaults of `surelabel fit` for folders of files were chosen, on separate files.

    python experiments/choose_kind_defaults.py FOLDER --results results

FOLDER holds a folder for each data set, with a folder of files for each class; docs/pictures.md and docs/sounds.md say
where they come from. For pictures, a seed draws 10 labeled files of each class, and a quarter as the test set. For
sounds, named CLASS_SPEAKER_NUMBER.wav, the test set is one speaker in turn. The other files are the pool. A candidate
is the kind's defaults with a few changes; its rounds are compared with its own round 0.
"""

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from comparison import METRIC, Book, one_thread

from surelabel.core.metrics import paired_difference
from surelabel.data.draws import draw, sample_keys
from surelabel.data.source import ArraySource
from surelabel.kinds import guess
from surelabel.kinds.kind import walk
from surelabel.loop import self_train
from surelabel.runs.environment import describe_environment
from surelabel.settings import FitSettings

LABELS_PER_CLASS = 10
CANDIDATES: dict[str, dict[str, Any]] = {"chosen": {}}
OF_NETWORKS = ("model", "parameters", "augment")
"""Changes of the kind's network; all others are of `FitSettings`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the data sets' folders")
    parser.add_argument("--datasets", nargs="+", help="some of them")
    parser.add_argument("--candidates", nargs="*", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--change", type=json.loads, help="one more candidate, as JSON")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, … this many")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of defaults.csv")
    options = parser.parse_args()
    candidates = {name: CANDIDATES[name] for name in options.candidates}
    if options.change:
        candidates = {json.dumps(options.change): options.change}
    about = {"protocol": __doc__, "candidates": candidates}
    book = Book(options.results / "defaults.csv", "choose defaults of kinds", about)
    for path in sorted(path for path in options.folder.iterdir() if path.is_dir()):
        if options.datasets and path.name not in options.datasets:
            continue
        x, y, speakers = read(path)
        for seed in range(options.seeds):
            for name, changes in candidates.items():
                book.add(rows(name, path, x, y, speakers, seed, changes))
        show(book, path.name, list(candidates))


def read(path: Path) -> tuple[Any, Any, Any]:
    """Return all samples of a folder, their classes and, for sounds, the speakers."""
    kind = guess(path)
    files = list(walk(path))
    settings = kind.reading(files)
    x = np.stack([settings.read(file) for file in files])
    y = np.unique([file.parent.name for file in files], return_inverse=True)[1]
    speakers = np.array([file.stem.split("_")[1] for file in files]) if kind.name == "sounds" else None
    return x, y, speakers


def rows(
    name: str, path: Path, x: Any, y: Any, speakers: Any, seed: int, changes: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return a row of `results/defaults.csv` for round 0, and one for the last round."""
    keys = draw(seed, "test", sample_keys(np.arange(len(y))))
    is_test = keys < np.quantile(keys, 0.25)
    if speakers is not None:
        everyone = np.unique(speakers)
        is_test = speakers == everyone[seed % len(everyone)]
    order = np.argsort(draw(seed, "labels", sample_keys(np.arange(len(y)))))
    order = order[~is_test[order]]
    labeled = np.sort(np.concatenate([order[y[order] == c][:LABELS_PER_CLASS] for c in np.unique(y)]))
    pool = np.setdiff1d(order, labeled)
    test = np.flatnonzero(is_test)
    kind, source = guess(path), ArraySource(x[labeled], ids=labeled)
    suits = kind.network(ArraySource(x[order], ids=order))
    parameters = changes.get("parameters", {})
    suits = suits._replace(
        model=changes.get("model", suits.model),
        parameters=parameters if "model" in changes else {**suits.parameters, **parameters},
        augment=suits.augment.replace(**changes.get("augment", {})),
    )
    fit = FitSettings(
        **{**kind.defaults_for("single"), **{key: value for key, value in changes.items() if key not in OF_NETWORKS}}
    )
    learner = fit.network("single", suits).replace(device="cpu", threads=1).build("single")
    config = fit.config("single", int(y.max()) + 1, seed)
    started = time.process_time()
    with one_thread():
        records = list(
            self_train(
                learner,
                (source, y[labeled]),
                ArraySource(x[pool], ids=pool),
                config,
                test=(ArraySource(x[test], ids=test), y[test]),
                truth=y[pool],
            )
        )
    minutes = (time.process_time() - started) / 60
    scores = [100 * record.scores["test accuracy"] for record in records]
    trace = " ".join(
        f"{score:.1f} ({record.num_positive}, {100 * (record.positive_accuracy or 0):.0f} %)"
        for score, record in zip(scores, records, strict=True)
    )
    print(f"{path.name} {seed} {name}: {trace}; {60 * minutes:.0f} s", flush=True)
    same = {
        "dataset": path.name,
        "labels": len(labeled),
        "validation_labels": 0,
        "split_hash": hashlib.sha256(json.dumps([labeled.tolist(), test.tolist()]).encode()).hexdigest(),
        "seed": seed,
        "metric": METRIC,
        **dict.fromkeys(("paper", "epochs", "images_seen")),
        "device": f"cpu (1 thread, {describe_environment()['processor']})",
    }
    first = {**same, "row": f"{name}: round 0", "value": round(scores[0], 4), "rounds": 0, "minutes": None}
    last = {**same, "row": name, "value": round(scores[-1], 4), "rounds": records[-1].round, "minutes": minutes}
    return [first, last]


def show(book: Book, dataset: str, candidates: list[str]) -> None:
    """Print each candidate's means over the seeds, and the gain of its rounds with the 95 % interval."""
    values = book.values()
    for name in candidates:
        first, last = (list(values[dataset, row].values()) for row in (f"{name}: round 0", name))
        gain = f"{np.mean(last) - np.mean(first):+.1f}"
        if len(last) > 1:
            mean, low, high = paired_difference(last, first)
            gain = f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
        print(f"= {dataset:12s}{name:40s}{np.mean(first):7.1f} -> {np.mean(last):.1f}  {gain}", flush=True)


if __name__ == "__main__":
    main()
