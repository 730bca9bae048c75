"""The comparison by which the defaults of small networks on frozen features were chosen, on separate data.

    python experiments/choose_head_defaults.py FOLDER --results results

FOLDER holds a folder of pictures for each data set, with a folder for each class, or a CSV file with the columns `text`
and `label`; docs/backbones.md says where they come from, and `examples` how to install the networks. A seed draws the
labeled samples of each class, 10 pictures or 20 texts, and a quarter as the test set. The others are the pool. A
candidate is the defaults with a few changes; linear models of the labels are shown too.
"""

import argparse
import csv
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from choose_kind_defaults import show
from comparison import METRIC, Book, one_thread

from surelabel.base.references import file_hash
from surelabel.data.draws import draw, sample_keys
from surelabel.data.source import Subset
from surelabel.kinds.backbones import BackboneSettings
from surelabel.kinds.features import Computed, picture_features, text_features
from surelabel.kinds.kind import walk
from surelabel.kinds.linear import LinearOnPixels, LinearOnTable
from surelabel.loop import self_train
from surelabel.runs.environment import describe_environment
from surelabel.settings import FitSettings

EXAMPLES = Path(__file__).parents[1] / "examples"
CANDIDATES: dict[str, dict[str, Any]] = {
    "a scale each, rate 0.01": {},
    "one scale, rate 0.002": {"one_scale": True, "learning_rate": 0.002},
    "one scale, rate 0.0005": {"one_scale": True, "learning_rate": 0.0005},
    "a scale each, rate 0.0005, labels on top": {"learning_rate": 0.0005, "labeled_batch_size": 32},
    "one scale, rate 0.0005, labels on top": {"one_scale": True, "learning_rate": 0.0005, "labeled_batch_size": 32},
}
LINEAR = {"linear, a scale each": LinearOnTable, "linear, one scale": LinearOnPixels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of the data sets")
    parser.add_argument("--datasets", nargs="+", help="some of them")
    parser.add_argument("--backbones", nargs="+", help="file.py:function, in place of those in examples")
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--change", type=json.loads, help="one more candidate, as JSON, in place of these")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, … this many")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of defaults.csv")
    options = parser.parse_args()
    candidates = {name: CANDIDATES[name] for name in options.candidates}
    if options.change is not None:
        candidates = {json.dumps(options.change): options.change}
    about = {"protocol": __doc__, "candidates": candidates}
    about |= {"backbones": [Path(one).name for one in options.backbones]} if options.backbones else {}
    book = Book(options.results / "defaults.csv", "choose defaults of heads", about)
    for path in sorted(path for path in options.folder.iterdir() if path.is_dir() or path.suffix == ".csv"):
        if options.datasets and path.stem not in options.datasets:
            continue
        features, y, labels = read(path, options.backbones)
        for seed in range(options.seeds):
            for name, changes in candidates.items():
                book.add(rows(name, path.stem, features, y, labels, seed, changes))
        show(book, path.stem, list(candidates))


def pieces() -> Any:
    """A second backbone for texts: hashed counts of 2 to 4 letters in a row, (N, 512)."""
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=512)
    return lambda texts: vectorizer.transform(texts).toarray()


def read(path: Path, references: list[str] | None) -> tuple[Computed, Any, int]:
    """Return the features of all samples of a data set, their classes, and how many of each are labeled."""
    default = "backbone.py:lite0" if path.is_dir() else "text_backbone.py:wordllama"
    backbones = [BackboneSettings(reference=one) for one in references or [f"{EXAMPLES}/{default}"]]
    if path.is_dir():
        files = list(walk(path))
        hashes = [file_hash(file) for file in files]
        features = picture_features(backbones, files, np.arange(len(files)), hashes, "stop")
        return features, np.unique([file.parent.name for file in files], return_inverse=True)[1], 10
    with path.open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    features = text_features(backbones, [line["text"] for line in lines], np.arange(len(lines)))
    return features, np.unique([line["label"] for line in lines], return_inverse=True)[1], 20


def rows(
    name: str, dataset: str, computed: Computed, y: Any, per_class: int, seed: int, changes: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return rows of `results/defaults.csv`: for round 0, for the last round, and for the linear models."""
    source = computed.samples
    keys = draw(seed, "test", sample_keys(np.arange(len(y))))
    is_test = keys < np.quantile(keys, 0.25)
    order = np.argsort(draw(seed, "labels", sample_keys(np.arange(len(y)))))
    order = order[~is_test[order]]
    labeled = np.sort(np.concatenate([order[y[order] == c][:per_class] for c in np.unique(y)]))
    pool, test = np.setdiff1d(order, labeled), np.flatnonzero(is_test)
    fit = FitSettings(**{key: value for key, value in changes.items() if key != "one_scale"})
    widths = [backbone.width for backbone in computed.backbones]
    together = ((0, sum(widths)),) if changes.get("one_scale") else ()
    learner = fit.network("single", None, widths, together=together).replace(device="cpu", threads=1).build("single")
    config = fit.config("single", int(y.max()) + 1, seed)
    parts = {part: Subset(source, at) for part, at in (("labeled", labeled), ("pool", pool), ("test", test))}
    started = time.process_time()
    with one_thread():
        judged = {"test": (parts["test"], y[test]), "truth": y[pool]}
        records = list(self_train(learner, (parts["labeled"], y[labeled]), parts["pool"], config, **judged))
    minutes = (time.process_time() - started) / 60
    scores = [100 * record.scores["test accuracy"] for record in records]
    linear = {
        model: 100 * np.mean(make().fit(source[labeled], y[labeled]).predict(source[test]) == y[test])
        for model, make in LINEAR.items()
    }
    trace = " ".join(
        f"{score:.1f} ({record.num_positive}, {100 * (record.positive_accuracy or 0):.0f} %)"
        for score, record in zip(scores, records, strict=True)
    )
    beside = ", ".join(f"{model} {value:.1f}" for model, value in linear.items())
    print(f"{dataset} {seed} {name}: {trace}; {beside}; {60 * minutes:.0f} s", flush=True)
    same = {
        "dataset": dataset,
        "labels": len(labeled),
        "validation_labels": 0,
        "split_hash": hashlib.sha256(json.dumps([labeled.tolist(), test.tolist()]).encode()).hexdigest(),
        "seed": seed,
        "metric": METRIC,
        **dict.fromkeys(("paper", "epochs", "images_seen", "minutes")),
        "device": f"cpu (1 thread, {describe_environment()['processor']})",
    }
    values = {f"{name}: round 0": scores[0], **linear, name: scores[-1]}
    found = [{**same, "row": row, "value": round(float(value), 4), "rounds": 0} for row, value in values.items()]
    found[-1] |= {"rounds": records[-1].round, "minutes": minutes}
    return found


if __name__ == "__main__":
    main()
