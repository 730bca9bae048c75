"""The samples that a report shows: the surest and the least sure of those selected, and what to label next."""

from pathlib import Path

import numpy as np
import pytest
from cli_support import LOGISTIC, blobs, write_blobs
from PIL import Image

from surelabel.augment.settings import AugmentSettings
from surelabel.data.pool import Entries, PoolLabels
from surelabel.engine.settings import TrainingSettings
from surelabel.kinds.folder import FolderData
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.report.samples import chosen_samples, samples_figures
from surelabel.report.tables import group_runs
from surelabel.runs import RunFolder
from surelabel.runs.session import start
from surelabel.settings import RunSettings, UPSConfig


def pool(label: list[int], p: list[float], u: list[float], positive: list[int]) -> PoolLabels:
    """A pool of two classes; `positive` marks selected rows."""
    marked, nothing = np.array(positive, dtype=bool), np.zeros(0)
    negative = Entries.of(np.zeros((len(p), 2), dtype=bool))
    values = np.array(p), np.array(u)
    return PoolLabels(np.arange(len(p)), np.array(label), *values, *values, marked, marked, negative, nothing, nothing)


def test_selected_samples_are_ranked_by_uncertainty_and_the_others_by_confidence() -> None:
    labels = pool(
        [0, 0, 1, 1, 0, 1], [0.9, 0.8, 0.9, 0.55, 0.6, 0.5], [0.03, 0.01, 0.02, 0.2, 0.3, 0.1], [1, 1, 1, 0, 0, 0]
    )
    chosen = chosen_samples(labels, limit=2)
    assert {title: rows.tolist() for title, rows in chosen.items()} == {
        "The surest labels": [1, 2],
        "Selected, but barely": [0],  # no sample is shown twice
        "Left out, and worth labeling next": [5, 4],  # the least confident of each class in turn
    }


@pytest.fixture
def table_run(command, tmp_path, monkeypatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    write_blobs(Path("pets.csv"))
    monkeypatch.setattr("sys.argv", ["/usr/bin/surelabel", "fit", "pets.csv"])
    words = ("fit", "pets.csv", "--label", "pet", "--id", "id", "--validation", "0.5", *LOGISTIC, "--out", "run")
    assert command(*words).code == 0
    return RunFolder.open("run")


def test_rows_of_a_table_are_shown_by_their_values(table_run: RunFolder) -> None:
    by_class, *shown = samples_figures(group_runs([table_run])[0])
    assert by_class.tables[0].header[:3] == ["class", "labels given", "labels selected"]
    assert [line[:2] for line in by_class.tables[0].lines] == [["cat", "2"], ["dog", "2"]]
    identifier, label, values = shown[0].tables[0].lines[0]
    assert identifier.startswith("r")
    assert label.split()[0] in ("cat", "dog")
    assert values.startswith("width ")
    assert ", height " in values


@pytest.mark.usefixtures("undrawn")
def test_given_labels_that_models_trained_without_them_contradict_are_shown(command, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pet = blobs(num_labeled=20)["pet"]
    pet[6] = "cat"  # a dog, as all even rows
    write_blobs(Path("pets.csv"), pet=pet)
    quick = [word for word in LOGISTIC if word != "--no-compare"]
    assert command("fit", "pets.csv", "--label", "pet", "--id", "id", *quick, "--out", "run").code == 0
    figure = samples_figures(group_runs([RunFolder.open("run")])[0])[-1]
    assert figure.title == "Given labels to check"
    identifier, said, values = figure.tables[0].lines[0]
    assert (identifier, said.startswith("given as cat, looks like dog ")) == ("r6", True)
    assert values.startswith("width -")


def test_a_report_says_how_to_run_it_again_and_that_data_are_gone(command, table_run: RunFolder) -> None:
    Path("pets.csv").unlink()
    assert command("report", "run", "--out", "report.html").code == 0
    page = Path("report.html").read_text()
    assert "<pre>surelabel fit pets.csv</pre>" in page
    assert "the run&#39;s data cannot be read" in page


@pytest.mark.parametrize("name", ["pool.parquet", "negatives.parquet"])
def test_a_damaged_table_of_the_last_round_is_an_error_and_no_reason_to_show_less(
    command, table_run: RunFolder, name: str
) -> None:
    Path("run/rounds/001", name).write_bytes(b"")
    assert f"run/rounds/001/{name}" in command.fails(1, "report", "run", "--out", "report.html")
    assert not Path("report.html").exists()


def test_files_of_a_folder_are_shown_as_pictures(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    for number in range(40):
        name, bright = ("day", 170) if number % 2 else ("night", 0)
        folder = Path("photos", name if number < 12 else "unlabeled")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(bright, bright + 80, size=(8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    training = TrainingSettings(steps=5, augment=AugmentSettings())
    learner = TorchLearnerSettings(model="surelabel.models.image:small_image_network", training=training, passes=3)
    data = FolderData(of="pictures", path=Path("photos"))
    config = UPSConfig(tau_p=0.3, kappa_p=0.5, max_rounds=0)
    list(start("run", RunSettings(config=config, learner=learner, data=data)))
    figures = samples_figures(group_runs([RunFolder.open("run")])[0])
    picture = figures[1].pictures[0]
    assert picture.pixels.shape == (96, 96, 3)
    assert "(unlabeled/" in picture.caption
