"""`surelabel export`: a file that other programs run, with the same probabilities, and its model card."""

import contextlib
import csv
import datetime
import io
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_support import LOGISTIC, QUICK, blobs, rows, small_network, write_blobs
from PIL import Image

from surelabel.cli import main
from surelabel.data.tables import write_table
from surelabel.data.texts import from_bytes
from surelabel.errors import RunError
from surelabel.runs import RunFolder
from surelabel.runs.export import import_onnxruntime
from surelabel.runs.files import write_files

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"
OWN_NETWORK = """
import torch

class Sly(torch.nn.Module):
    def __init__(self, shape, num_classes):
        super().__init__()
        layers = torch.nn.Linear(shape[0], 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, num_classes)
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x):
        z = self.layers(x)
        {body}
        return z
"""


def fit(folder: Path, data: Path, *options: object) -> Path:
    assert main([str(word) for word in ("fit", data, *options, "--no-compare", "--quiet", "--out", folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a table with held-out labels; the tests only read it."""
    folder = tmp_path_factory.mktemp("export")
    write_table(folder / "pets.csv", blobs(num_labeled=24))
    fit(folder / "runs" / "pets", folder / "pets.csv", "--label", "pet", "--id", "id", *QUICK, "--validation", "0.5")
    return folder


def run_file(path: Path, x: Any) -> tuple[Any, list[str]]:
    """Run an exported file without our code; return p (N, C) and the names of the classes in it."""
    if path.suffix == ".onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(path)
        assert session.get_inputs()[0].shape[0] == session.get_outputs()[0].shape[0] == "batch"
        (p,) = session.run(["probabilities"], {"samples": x})
        return p, json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    extra = {"surelabel.json": ""}
    module = torch.export.load(path, extra_files=extra).module()
    return module(torch.as_tensor(x)).detach().numpy(), json.loads(extra["surelabel.json"])["classes"]


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2"])
def test_the_file_gives_what_predict_gives(command, home, tmp_path, name):
    if name.endswith("onnx"):
        pytest.importorskip("onnxruntime")
    out = tmp_path / name
    result = command("export", home / "runs/pets", "--out", out)
    assert (result.code, result.err) == (0, "")
    found = re.match(
        r"Compared with predict on (\d+) samples of the run's data: the largest difference is (\S+) ", result.out
    )
    assert found is not None
    assert int(found[1]) == 36
    assert float(found[2]) < 1e-5
    columns = blobs(num_labeled=24)
    x = np.stack([columns["width"], columns["height"]], axis=1).astype(np.float32)
    p, classes = run_file(out, x)
    predicted = rows(command("predict", home / "runs/pets", home / "pets.csv", "--proba").out)
    expected = [[float(row[f"p({name})"]) for name in classes] for row in predicted]
    np.testing.assert_allclose(p, expected, atol=1e-5)
    about = json.loads((tmp_path / f"{name}.json").read_text())
    assert (about["file"], about["classes"], about["input"]["features"]) == (name, ["cat", "dog"], ["width", "height"])
    assert about["input"]["shape"] == ["batch", 2]
    assert about["model_sha256"] == RunFolder.open(home / "runs/pets").model_hash
    assert about["check"]["tolerance"] == 1e-4
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, f"{name}.json", f"{name}.md"])


def test_onnxruntime_is_told_to_send_nothing_before_it_is_loaded(monkeypatch):
    seen = []

    class Loader:
        def find_spec(self, name, *rest):
            if name == "onnxruntime":
                seen.append(os.environ.get("ORT_DISABLE_TELEMETRY"))

    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Loader()])
    with pytest.raises(ImportError):
        import_onnxruntime()
    assert seen == ["1"]


@pytest.mark.parametrize("name", ["LinearOnTable", "LinearOnPixels"])
def test_the_linear_models_that_a_comparison_may_keep_are_exported(command, tmp_path, name):
    table = write_blobs(tmp_path / "pets.csv")
    linear = ("--estimator", f"surelabel.kinds.linear:{name}", "--rounds", "0", "--passes", "3")
    run = fit(tmp_path / "run", table, "--label", "pet", "--id", "id", *linear)
    result = command("export", run, "--out", tmp_path / "model.pt2")
    assert result.code == 0, result.err
    p, classes = run_file(tmp_path / "model.pt2", np.array([[4.0, 4.0], [-4.0, -4.0]], dtype=np.float32))
    assert [classes[code] for code in np.asarray(p).argmax(axis=1)] == ["cat", "dog"]


def test_pictures_go_in_as_bytes(command, tmp_path):
    pytest.importorskip("onnxruntime")
    generator = np.random.default_rng(0)
    for number in range(18):
        name = ("red", "blue", "unlabeled")[number % 3]
        pixels = generator.integers(0, 120, (9, 9, 3), dtype=np.uint8)
        pixels[..., 0 if number % 3 == 0 or number % 2 else 2] += 100
        (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    run = fit(tmp_path / "run", tmp_path / "photos", "--rounds", 0, "--epochs", 1, "--model", small_network(tmp_path))
    assert command("export", run, "--out", tmp_path / "model.onnx").code == 0
    about = json.loads((tmp_path / "model.onnx.json").read_text())
    assert about["input"] == {
        "name": "samples",
        "type": "uint8",
        "shape": ["batch", 3, 9, 9],
        "files_are_read_by": about["input"]["files_are_read_by"],
    }
    assert about["input"]["files_are_read_by"]["side"] == 9
    pixels = np.asarray(Image.open(tmp_path / "photos/unlabeled/2.png")).transpose(2, 0, 1)[None]
    read = RunFolder.open(run).samples(tmp_path / "photos/unlabeled/2.png")
    assert (read.ids.tolist(), read[np.array([0])].tolist()) == (["2.png"], pixels.tolist())
    p, classes = run_file(tmp_path / "model.onnx", pixels)
    predicted = rows(command("predict", run, tmp_path / "photos/unlabeled/2.png", "--proba").out)[0]
    np.testing.assert_allclose(p[0], [float(predicted[f"p({name})"]) for name in classes], atol=1e-5)


def test_several_labels_have_a_probability_each(command, tmp_path):
    left = [row % 2 for row in range(20)] + [None] * 40
    columns = {**blobs(), "left": left, "right": [None if cell is None else 1 - cell for cell in left]}
    del columns["pet"]
    table = write_table(tmp_path / "both.csv", columns)
    run = fit(tmp_path / "run", table, "--label", "left", "--label", "right", "--id", "id", *LOGISTIC)
    assert command("export", run, "--out", tmp_path / "model.pt2").code == 0
    x = np.stack([columns["width"], columns["height"]], axis=1).astype(np.float32)
    p, classes = run_file(tmp_path / "model.pt2", x)
    found = rows(command("predict", run, table, "--entries").out)
    np.testing.assert_allclose(p.ravel(), [float(row["confidence"]) for row in found], atol=1e-5)
    assert (classes, json.loads((tmp_path / "model.pt2.json").read_text())["present_from"]) == (["left", "right"], 0.5)


def test_a_file_that_differs_is_not_written(command, tmp_path):
    (tmp_path / "sly.py").write_text(OWN_NETWORK.format(body="z = z + 0.01 * torch.compiler.is_exporting() * z"))
    table = write_blobs(tmp_path / "pets.csv")
    run = fit(
        tmp_path / "run", table, "--label", "pet", "--id", "id", "--rounds", 0, "--model", f"{tmp_path}/sly.py:Sly"
    )
    (tmp_path / "out").mkdir()
    error = command.fails(1, "export", run, "--out", tmp_path / "out/model.pt2")
    assert re.search(
        r"The .pt2 file of the run in '.*' would differ by \S+ from predict_proba, and 0.0001 is allowed", error
    )
    assert list((tmp_path / "out").iterdir()) == []


def test_a_network_that_cannot_be_followed_is_named(command, tmp_path):
    (tmp_path / "sly.py").write_text(OWN_NETWORK.format(body="z = z * 2 if z.sum() > 0 else z"))
    table = write_blobs(tmp_path / "pets.csv")
    run = fit(
        tmp_path / "run", table, "--label", "pet", "--id", "id", "--rounds", 0, "--model", f"{tmp_path}/sly.py:Sly"
    )
    error = command.fails(1, "export", run, "--out", tmp_path / "model.pt2")
    assert error.startswith("The network cannot be exported (")
    assert error.endswith("); a forward() without branches on values, and for any number of rows, can.")


def test_what_is_there_is_kept(command, home, tmp_path):
    (tmp_path / "model.pt2.md").write_text("mine")
    out = tmp_path / "model.pt2"
    assert "model.pt2.md' exists and is kept; " in command.fails(1, "export", home / "runs/pets", "--out", out)
    assert command("export", home / "runs/pets", "--out", out, "--force").code == 0
    assert (tmp_path / "model.pt2.md").read_text().startswith("# Model card: pets\n")
    assert "model.pt2' exists and is kept; " in command.fails(1, "export", home / "runs/pets", "--out", out)
    error = command.fails(2, "export", home / "runs/pets", "--out", tmp_path / "model.pkl")
    assert error.endswith("model.pkl' must end in .onnx or .pt2.")


def test_missing_packages_are_named_with_the_command_that_installs_them(command, home, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name)
    error = command.fails(1, "export", home / "runs/pets", "--out", tmp_path / "model.onnx")
    install = 'pip install "surelabel[onnx]"'
    assert error == f"ONNX needs the package 'onnxscript'; install it with: {install}, or write a .pt2."


def test_without_the_runs_data_random_numbers_are_tried_and_the_user_is_told(command, home, tmp_path):
    shutil.copytree(home / "runs", tmp_path / "runs")
    table = write_blobs(tmp_path / "pets.csv")
    run = fit(tmp_path / "run", table, "--label", "pet", "--id", "id", *QUICK)
    table.unlink()
    result = command("export", run, "--out", tmp_path / "model.pt2")
    assert result.code == 0
    assert result.err.startswith(
        "warning: the run's data could not be read, so random numbers were tried instead: File '"
    )
    assert "on 256 samples of random numbers: " in result.out
    assert json.loads((tmp_path / "model.pt2.json").read_text())["check"]["of"] == "random numbers"


def test_a_file_that_cannot_be_written_leaves_none_of_them(tmp_path):
    with pytest.raises(RunError, match="could not be written"):
        write_files({tmp_path / "one": b"1", tmp_path / "missing" / "two": b"2"})
    assert list(tmp_path.iterdir()) == []


def test_the_card_has_the_runs_numbers_and_their_sources(command, home, tmp_path):
    assert command("export", home / "runs/pets", "--out", tmp_path / "model.pt2").code == 0
    card, run = (tmp_path / "model.pt2.md").read_text(), RunFolder.open(home / "runs/pets")
    split, last = run.split(), run.records()[-1]
    assert split is not None
    assert f"| labeled samples | {len(split['labeled'])} | split.json |" in card
    assert f"| hash of the split | {split['hash']} | split.json |" in card
    assert "| unlabeled samples | 36 | rounds/001/pool.parquet |" in card
    assert f"| 1 | {last.num_positive} | {last.num_negative} | {last.validation_score:.3f} |" in card
    right = round(last.validation_score * 12)
    assert (
        f"Validation accuracy of the last round: {100 * right / 12:.1f} % ({right} of 12; exact 95 % interval " in card
    )
    assert "Expected calibration error over 15 bins: 0." in card
    assert "- Of the selected labels in the validation set, " in card
    assert "| tau\\_p |" not in card
    assert "| tau_p | 0.7 | run.json |" in card


def test_the_card_of_a_run_without_held_out_labels_claims_nothing(command, tmp_path):
    run = fit(tmp_path / "run", write_blobs(tmp_path / "pets.csv"), "--label", "pet", "--id", "id", *LOGISTIC)
    assert command("export", run, "--out", tmp_path / "model.pt2").code == 0
    card = (tmp_path / "model.pt2.md").read_text()
    assert "**No score is known:** the run has neither validation nor test labels." in card
    assert "## Calibration\n\nNot known: the run has no validation labels." in card
    assert "- How often selected labels are right was not checked: " in card
    assert "- Nothing was held out for validation, so how good it is " in card


def test_the_guide_does_what_it_says(command, home, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(home)
    text = DOCUMENT.read_text()
    for line in re.findall(r"^surelabel (.*)$", text, flags=re.MULTILINE):
        assert command(*shlex.split(line)).code == 0, line
    numbers, of_file = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(numbers, {})
    assert printed.getvalue() == "['cat', 'dog']\n"
    names: dict[str, Any] = {}
    exec(of_file, names)
    predicted = rows(command("predict", "runs/pets", "pets.csv", "--proba").out)
    assert [row["id"] for row in predicted] == names["new"].ids.tolist()
    np.testing.assert_allclose(names["p"][:, 0], [float(row["p(cat)"]) for row in predicted], atol=1e-5)
    for name in ("model.onnx", "model.pt2"):
        assert json.loads(Path(f"{name}.json").read_text())["file"] == name


def by_hand(column: dict[str, Any], cell: str) -> list[float]:
    """Return the features of a cell by the table in the guide."""
    if column["use"] == "number":
        found = [float(cell) if cell else column["median"]]
    elif column["use"] == "boolean":
        found = [float(cell == "yes") if cell else float(column["usual"])]
    elif column["use"] == "category":
        found = [float(cell == name) for name in column["categories"]]
        found += [float(bool(cell) and cell not in column["categories"])] * column["other"]
    else:
        days = (datetime.date.fromisoformat(cell or "1970-01-01") - datetime.date(1970, 1, 1)).days
        turns = [days / 365.2425, (days + 3) / 7]
        found = [days - column["first"], *(turn(2 * np.pi * part) for part in turns for turn in (np.cos, np.sin))]
        found = found if cell else [column["median"], 0, 0, 0, 0]
    return [*found, *([float(not cell)] if column["gaps"] else [])]


def test_the_description_says_what_cells_become(command, tmp_path):
    pytest.importorskip("onnxruntime")
    drawn = np.random.default_rng(0)
    lines = [
        {
            "size": "" if row % 7 == 0 else str(round(drawn.normal(), 2)),
            "color": f"rare{row}" if row > 37 else ("red", "green", "blue", "")[row % 4],
            "when": "" if row % 9 == 0 else f"2024-{row % 12 + 1:02d}-11",
            "good": ("yes", "no", "")[row % 3],
            "pet": ("cat", "dog")[row % 2] if row < 12 else "",
        }
        for row in range(40)
    ]
    with open(tmp_path / "pets.csv", "w", newline="") as stream:
        csv.DictWriter(stream, lines[0]).writerows([dict(zip(lines[0], lines[0], strict=True)), *lines])
    run = fit(tmp_path / "run", tmp_path / "pets.csv", "--label", "pet", *QUICK)
    result = command("export", run, "--out", tmp_path / "model.onnx")
    assert result.out.splitlines()[-1] == (
        f"It takes numbers alone; surelabel.RunFolder.open('{run}').samples('new.csv') makes them of size (number), "
        "color (category), when (date), good (boolean)."
    )
    columns = json.loads((tmp_path / "model.onnx.json").read_text())["input"]["columns"]
    assert columns[1]["other"]
    x = [[value for column in columns for value in by_hand(column, line[column["name"]])] for line in lines]
    p, _ = run_file(tmp_path / "model.onnx", np.array(x, dtype=np.float32))
    predicted = rows(command("predict", run, tmp_path / "pets.csv", "--proba").out)
    np.testing.assert_allclose(p[:, 0], [float(row["p(cat)"]) for row in predicted], atol=1e-5)


def test_what_was_learned_from_texts_goes_along(command, tmp_path):
    lines = [["works well every day", "broken again and bad"][row % 2] + f" {row}" for row in range(40)]
    table = write_blobs(
        tmp_path / "pets.csv", width=None, height=None, id=None, note=lines, pet=["a", "b"] * 10 + [None] * 20
    )
    run = fit(tmp_path / "run", table, "--label", "pet", *QUICK)
    assert command("export", run, "--out", tmp_path / "model.pt2").code == 0
    learned = from_bytes((tmp_path / "model.pt2.texts.safetensors").read_bytes())["note"]
    p, _ = run_file(tmp_path / "model.pt2", learned.encode(lines))
    predicted = rows(command("predict", run, table, "--proba").out)
    np.testing.assert_allclose(p[:, 0], [float(row["p(a)"]) for row in predicted], atol=1e-5)

    other = fit(tmp_path / "other", write_blobs(tmp_path / "numbers.csv"), "--label", "pet", "--id", "id", *QUICK)
    assert command("export", other, "--out", tmp_path / "model.pt2", "--force").code == 0
    assert not (tmp_path / "model.pt2.texts.safetensors").exists()
