"""UPSClassifier's defaults on three small tables with several labels a row: yeast, scene and emotions of Mulan.

    python experiments/mulan.py --results results

It is compared with its own supervised network (round 0 of the same seed), with plain pseudo-labeling by the same
network, and with one-vs-rest logistic regression and random forests on the labels alone; also where 40 % of the known
entries are hidden. Mulan's files are in the folder `mulan` below SURELABEL_DATA: `<name>.arff.xz`, or a training and a
test part of it, and `<name>.xml.xz`, which names the label columns.
"""

import argparse
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
from comparison import SUPERVISED, UPS, Book, Split, fit_rows, show
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from surelabel import UPSClassifier
from surelabel.base.text import check_file, damage_named, damaged, shown
from surelabel.core.metrics import mean_average_precision
from surelabel.data.draws import draw
from surelabel.data.images import data_folder
from surelabel.data.sets.voc import NoDocumentType
from surelabel.data.splits import multi_label_split, split_hash
from surelabel.errors import DataError

FILES = {
    "yeast": ("yeast.arff.xz",),
    "scene": ("scene-train.arff.xz", "scene-test.arff.xz"),
    "emotions": ("emotions.arff.xz",),
}
NUM_LABELS = 100
HIDDEN = 0.4
METRICS = ("test mAP %", "test mAP, 11 points %")
PROTOCOL = (
    "All rows of a data set are put together. A third of them is held out for the test, "
    f"{NUM_LABELS} of the others are labeled, with a positive and a negative of every class among them, and the rest "
    "is unlabeled; features are standardized by the training rows. Where entries are hidden, "
    f"{HIDDEN:.0%} of the known ones are, but for one positive and one negative of every class. The seed draws all of "
    "it and is the method's random_state. The last model counts, and so do all seeds. Classes without a positive in "
    "the test are left out of the mean."
)

_LARGEST_FILE = 1 << 26
_ATTRIBUTE = re.compile(r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))\s+(.+)""", re.IGNORECASE)


class Mulan(NamedTuple):
    """A table with several labels a row: features (N, F), 1 and 0 (N, C), and the classes' names."""

    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.int64]
    classes: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds (at least 2)")
    parser.add_argument("--first-seed", type=int, default=2, help="the first of them; 0 and 1 were seen in development")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of runs.csv")
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("--seeds must be at least 2: a paired interval needs two.")
    if options.first_seed < 0:
        parser.error("--first-seed must be at least 0.")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    book = Book(options.results / "runs.csv", "mulan", settings())
    for name in options.datasets:
        data = read_mulan(name)
        for hidden in (0.0, HIDDEN):
            dataset = f"{name}, {hidden:.0%} of entries hidden" if hidden else name
            for seed in seeds:
                split = draw_split(data, seed, hidden)
                for row, new in methods(seed).items():
                    book.add(fit_rows(row, dataset, split, seed, new, mean_precisions))
            for metric in METRICS:
                show(book, dataset, seeds, metric)


def methods(seed: int) -> dict[str, Any]:
    """Return a new classifier for each row of the table."""
    ups = {"random_state": seed, "device": "cpu"}
    every_entry = {"tau_p": 0.5, "tau_n": 0.5, "kappa_p": np.inf, "kappa_n": np.inf, "temperature": 1.0}
    return {
        UPS: UPSClassifier(**ups),
        SUPERVISED: UPSClassifier(**ups, max_rounds=0),
        "pseudo-labeling, every entry": UPSClassifier(**ups, **every_entry),
        "one-vs-rest logistic regression": OneVsRest(LogisticRegression(max_iter=2000)),
        "one-vs-rest random forest": OneVsRest(RandomForestClassifier(random_state=seed)),
    }


def settings() -> dict[str, Any]:
    """Return the complete settings of every method."""
    parameters = {}
    for row, new in methods(0).items():
        parameters[row] = new.estimator.get_params() if isinstance(new, OneVsRest) else new.get_params()
        if "random_state" in parameters[row] and parameters[row]["random_state"] is not None:
            parameters[row]["random_state"] = "the row's seed"
        if isinstance(new, UPSClassifier):
            # What the parameters that are None stand for.
            config, training = new.settings().config("multi", 2, 0), new.settings().training("multi")
            resolved = {**config.model_dump(), **training.model_dump()}
            parameters[row] |= {name: resolved[name] for name in parameters[row].keys() & resolved}
    return {"protocol": PROTOCOL, "methods": parameters}


class OneVsRest:
    """A classifier for each class, on the rows whose entry of that class is known."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, x: Any, y: Any) -> "OneVsRest":
        """Fit to features (N, F) and 1, 0 and -1 (unknown), (N, C)."""
        known = [y[:, c] >= 0 for c in range(y.shape[1])]
        self.parts = [clone(self.estimator).fit(x[rows], y[rows, c]) for c, rows in enumerate(known)]
        return self

    def predict_proba(self, x: Any) -> npt.NDArray[np.float64]:
        """Return the probability that each class is present, (N, C)."""
        return np.stack([part.predict_proba(x)[:, 1] for part in self.parts], axis=1)


def draw_split(data: Mulan, seed: int, hidden: float) -> Split:
    """Hold out a third, keep some labels, hide some of their entries; features are standardized by the others."""
    rows = np.arange(len(data.y))
    test = np.sort(np.argsort(draw(seed, "test", rows.astype(np.uint64)), kind="stable")[: len(rows) // 3])
    train = np.setdiff1d(rows, test)
    labeled = train[multi_label_split(data.y[train], NUM_LABELS, seed, ids=train).labeled]
    y = np.full(data.y.shape, -1)
    y[labeled] = hide(data.y[labeled], hidden, seed)
    scaler = StandardScaler().fit(data.x[train])
    x, x_test = scaler.transform(data.x[train]), scaler.transform(data.x[test])
    return Split(x, y[train], x_test, data.y[test], NUM_LABELS, split_hash(labeled, test))


def hide(y: npt.NDArray[np.int64], share: float, seed: int) -> npt.NDArray[np.int64]:
    """Return labels (N, C) with this share of the entries unknown, -1; each class keeps a positive and a negative."""
    generator = np.random.default_rng([seed, 1])
    order = generator.random(y.shape)
    for value in (0, 1):
        # The first of each class in the order drawn is never among the hidden ones.
        first = np.where(y == value, order, np.inf).argmin(axis=0)
        order[first, np.arange(y.shape[1])] = -1.0
    hidden = np.argsort(order, axis=None)[y.size - round(share * y.size) :]
    found = y.copy()
    found.flat[hidden] = -1
    return found


def mean_precisions(classifier: Any, split: Split) -> dict[str, float]:
    """Return the mean average precision of the test rows by both of its definitions."""
    known = np.ones(split.y_test.shape, dtype=bool)
    values = mean_average_precision(classifier.predict_proba(split.x_test), split.y_test == 1, known)
    assert values is not None
    return dict(zip(METRICS, values, strict=True))


def read_mulan(name: str, folder: Path | None = None) -> Mulan:
    """Return a data set of Mulan, its parts one after another."""
    folder = data_folder() / "mulan" if folder is None else folder
    if not folder.is_dir():
        raise DataError(
            f"Mulan's data sets are not in '{folder}'; put yeast.arff.xz, yeast.xml.xz and so on there, or name the "
            "folder above it in SURELABEL_DATA."
        )
    classes = _read_classes(folder / f"{name}.xml.xz")
    parts = [_read_arff(folder / file) for file in FILES[name]]
    columns = parts[0][0]
    for file, (other, _) in zip(FILES[name], parts, strict=True):
        missing = [label for label in classes if label not in other]
        if missing or other != columns:
            problem = (
                f"has no column of the class {missing[0]!r}" if missing else "has other columns than the first part"
            )
            raise DataError(f"File '{folder / file}' {problem}; get the files again.")
    table = np.concatenate([rows for _, rows in parts])
    labels = np.array([columns.index(label) for label in classes])
    y = table[:, labels]
    if not np.isin(y, (0, 1)).all():
        raise DataError(f"The label columns of '{folder / FILES[name][0]}' must hold 0 and 1; get the files again.")
    return Mulan(np.delete(table, labels, axis=1), y.astype(np.int64), classes)


def _read_text(path: Path, kind: str) -> str:
    """Return an unpacked text, at most as much of it as any of Mulan's files has."""
    check_file(path)
    with damage_named(path, kind):
        try:
            with lzma.open(path) as stream:
                data = stream.read(_LARGEST_FILE + 1)
            text = data.decode()
        except (lzma.LZMAError, UnicodeDecodeError) as error:
            raise damaged(path, kind, error) from error
    if len(data) > _LARGEST_FILE:
        raise DataError(f"File '{path}' unpacks to more than {_LARGEST_FILE} bytes; get it again.")
    return text


def _read_arff(path: Path) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return the names of the columns and the dense rows, all of them numbers, (N, columns)."""
    lines = _meaningful(_read_text(path, "an ARFF table").splitlines())
    names: list[str] = []
    for number, line in lines:
        if line.lower().startswith("@data"):
            break
        found = _ATTRIBUTE.fullmatch(line)
        if found:
            names.append(found[1] or found[2] or found[3])
        elif not line.lower().startswith("@relation"):
            raise _wrong_line(path, number, line, "a column's name and type")
    rows = [_numbers(path, number, line, len(names)) for number, line in lines]
    if not rows or not names:
        raise DataError(f"File '{path}' must hold columns and rows. Got {len(names)} columns and {len(rows)} rows.")
    return names, np.array(rows)


def _meaningful(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither empty nor a comment, with their numbers from 1."""
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("%"):
            yield number, text


def _numbers(path: Path, number: int, line: str, count: int) -> list[float]:
    try:
        values = [float(cell) for cell in line.split(",")]
    except ValueError:
        raise _wrong_line(path, number, line, f"{count} numbers") from None
    if len(values) != count or not np.isfinite(values).all():
        raise _wrong_line(path, number, line, f"{count} numbers")
    return values


def _wrong_line(path: Path, number: int, line: str, wanted: str) -> DataError:
    return DataError(f"File '{path}', line {number} must hold {wanted}. Got {shown(line)} instead.")


def _read_classes(path: Path) -> tuple[str, ...]:
    text = _read_text(path, "a list of classes")
    try:
        tree = ElementTree.fromstring(text.encode(), ElementTree.XMLParser(target=NoDocumentType()))
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise damaged(path, "a list of classes in XML", error) from error
    names = tuple(str(element.get("name")) for element in tree if element.tag.rpartition("}")[2] == "label")
    if not names or len(set(names)) != len(names):
        raise DataError(f"File '{path}' must name each class once. Got {len(names)} names.")
    return names


if __name__ == "__main__":
    main()
