"""Small data and runs that the attacks begin with.

A network, a scikit-learn model, several labels a sample; a network with its comparison, and one for a folder.
"""

from pathlib import Path

import numpy as np
from cli_support import LOGISTIC, QUICK, blobs, write_blobs
from folder_support import write_folder

from soak.children import call
from surelabel.data.tables import write_table

ROWS = 60
CHECKPOINTS = ("--checkpoint-minutes", "0.0001")
"""Many in each round, which takes some tenths of a second."""
FIT = ("fit", "pets.csv", "--label", "pet", "--id", "id", "--validation", "0.25", *QUICK, "--device", "cpu")
COMPARED = ("fit", "few.csv", "--label", "pet", "--id", "id", *QUICK[:-1], "--device", "cpu")
"""Three folds of a linear model and two networks follow its rounds."""
FOLDER = ("fit", "photos", *QUICK[:2], *QUICK[4:], "--device", "cpu")
KILLED = {"": FIT, " with a comparison": COMPARED, " of a folder": FOLDER}
"""The runs that are killed, by what is said of `fit`."""
RUNS = {
    "network": FIT,
    "sklearn": ("fit", "pets.csv", "--label", "pet", "--id", "id", *LOGISTIC),
    "several": ("fit", "tags.csv", "--label", "tags", "--separator", "|", "--id", "id", *QUICK),
}


def write_data(folder: Path) -> None:
    """Write tables and arrays of the same samples."""
    columns = blobs(ROWS, num_labeled=20)
    write_blobs(folder / "pets.csv", **columns)
    write_blobs(folder / "few.csv", **blobs(24, num_labeled=6))
    write_folder(folder / "photos", labeled=2, pool=6)
    write_blobs(folder / "pets.parquet", **columns)
    pets = columns.pop("pet")
    tags = [None if name is None else (name if row % 3 else "cat|dog") for row, name in enumerate(pets)]
    write_table(folder / "tags.csv", {**columns, "tags": tags})
    write_table(folder / "unlabeled.csv", columns)
    x, y = np.array([columns["width"], columns["height"]]).T, np.array([name or "" for name in pets])
    np.savez(folder / "pets.npz", x=x, y=y, ids=np.array(columns["id"]))
    np.savez(folder / "strange.npz", x=x.astype(">f8"), y=y, ids=np.array([f"\ud800{row}" for row in range(ROWS)]))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)


def make(folder: Path) -> None:
    """Make the runs, each with what `predict` and `label` say of its own data beside it."""
    for name, words in RUNS.items():
        commands = [(command, folder / name, words[1]) for command in ("predict", "label")]
        for command in (words, *commands):
            out = name if command is words else f"{name}-{command[0]}.csv"
            code, text = call(*command, "--out", folder / out)
            assert code == 0, text
