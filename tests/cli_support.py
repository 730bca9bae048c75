"""What the tests of the command line share: a table with few labels, and a way to call `surelabel` in this process."""

import csv
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from surelabel.cli import main
from surelabel.data.tables import read_table, write_table

QUICK = ("--rounds", "1", "--hidden", "8", "--epochs", "1", "--passes", "3", "--no-compare")
"""Settings that make a fit take a moment; the thresholds stay the defaults."""
LOGISTIC = (
    "--estimator",
    "sklearn.linear_model:LogisticRegression",
    "--rounds",
    "1",
    "--passes",
    "3",
    "--no-compare",
)


class Result(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    """Calls `surelabel` in this process and returns its exit code and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: object) -> Result:
        self.capsys.readouterr()
        code = main([str(word) for word in words])
        return Result(code, *self.capsys.readouterr())

    def fails(self, code: int, *words: object) -> str:
        """Return the one line of an expected failure; nothing else may be printed, no traceback above all."""
        result = self(*words)
        lines = result.err.splitlines()
        assert (result.code, result.out, len(lines)) == (code, "", 1), result
        assert lines[0].startswith("error: ")
        return lines[0].removeprefix("error: ")


def blobs(num_rows: int = 60, num_labeled: int = 8, seed: int = 0) -> dict[str, list[object]]:
    """Two far groups of points, alternating; the first `num_labeled` rows have a label."""
    generator = np.random.default_rng(seed)
    label = ["cat" if row % 2 else "dog" for row in range(num_rows)]
    center = np.array([4.0 if name == "cat" else -4.0 for name in label])
    return {
        "id": [f"r{row}" for row in range(num_rows)],
        "width": (center + generator.normal(size=num_rows)).tolist(),
        "height": (center + generator.normal(size=num_rows)).tolist(),
        "pet": [name if row < num_labeled else None for row, name in enumerate(label)],
    }


def write_blobs(path: Path, **changes: object) -> Path:
    """Write `blobs` with some columns changed; None leaves a column out."""
    columns = {**blobs(), **changes}
    return write_table(path, {name: values for name, values in columns.items() if values is not None})


def labels_read(path: Path, cells: list[str]) -> list[object]:
    """Return the labels of a table with these cells, or array, as y: ";" separates, "?" is unlabeled, "none" none."""
    if path.suffix == ".npz":
        np.savez(path, x=np.zeros((len(cells), 1)), y=np.array(cells))
    else:
        write_table(path, {"x": [0.0] * len(cells), "y": cells})
    table = read_table(path, labels=["y"], separator=";", unlabeled="?", none="none")
    assert table.y is not None
    assert table.label_names == ("y",)
    return list(table.y.tolist())


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a printed CSV table."""
    return list(csv.DictReader(io.StringIO(text)))


def small_network(folder: Path) -> str:
    """Write the code of a network for pictures that trains in a moment, and return its reference."""
    code = "from torch import nn\n\ndef make(shape, num_classes):\n    return nn.Sequential(nn.Flatten(), "
    code += "nn.Dropout(0.2), nn.Linear(shape[0] * shape[1] * shape[2], num_classes))\n"
    (folder / "nets.py").write_text(code)
    return f"{folder / 'nets.py'}:make"
