"""The samples that a report shows: the surest and the least sure of those selected, and what to label next."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from backbone_support import write_nets
from cli_support import LOGISTIC, blobs, rows, write_blobs
from folder_support import QUICK, write_folder
from packed_support import classes, pictures, write_parquet
from PIL import Image

from surelabel.augment.settings import AugmentSettings
from surelabel.data.pool import PoolLabels
from surelabel.data.tables import write_table
from surelabel.data.targets import Marks
from surelabel.engine.settings import TrainingSettings
from surelabel.kinds.folder import FolderData
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.report.card import model_card
from surelabel.report.comparison import side_by_side
from surelabel.report.samples import chosen_samples, samples_figures
from surelabel.report.tables import group_runs
from surelabel.runs import RunFolder
from surelabel.runs.files import write_json
from surelabel.runs.session import start
from surelabel.settings import RunSettings, UPSConfig

pytestmark = pytest.mark.usefixtures("short_fits")


def pool(label: list[int], p: list[float], u: list[float], positive: list[int]) -> PoolLabels:
    """A pool of two classes; `positive` marks selected rows."""
    marked = np.array(positive, dtype=bool)
    negative = Marks.of(np.zeros((len(p), 2), dtype=bool))
    values = np.array(p), np.array(u)
    return PoolLabels(np.arange(len(p)), np.array(label), *values, *values, marked, marked, negative)


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
    assert shown[0].tables[0].header == ["id", "label", "width", "height"]
    identifier, label, *cells = shown[0].tables[0].lines[0]
    assert label.split()[0] in ("cat", "dog")
    assert [float(cell) for cell in cells] == [blobs()[name][int(identifier[1:])] for name in ("width", "height")]


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
    identifier, said, width, _ = figure.tables[0].lines[0]
    assert (identifier, said.startswith("given as cat, looks like dog ")) == ("r6", True)
    assert float(width) == blobs(num_labeled=20)["width"][6]


@pytest.mark.usefixtures("undrawn")
def test_a_report_says_how_to_run_it_again_and_that_data_are_gone(command, table_run: RunFolder) -> None:
    Path("pets.csv").unlink()
    assert command("report", "run", "--out", "report.html").code == 0
    page = Path("report.html").read_text()
    assert "<pre>surelabel fit pets.csv</pre>" in page
    assert "The samples are left out: the run&#39;s data cannot be read. File " in page
    assert "pets.csv&#39;, which the run began with, is not there any more; put it back" in page
    assert "The surest labels" not in page
    assert '<th scope="row">cat</th><td>2 of 2</td>' in page  # what the run itself knows of the classes
    write_blobs(Path("pets.csv"), width=[0.0] * 60)
    assert command("report", "run", "--out", "report.html", "--force").code == 0
    assert "pets.csv&#39; has changed since the run began" in Path("report.html").read_text()


PIXELS = "surelabel.kinds.linear:LinearOnPixels"
SENTENCES = ("win a <b>prize</b> now, call free", "see you at home after lunch\ntoday")


@pytest.fixture
def texts_run(command, own_folder, keeps_linear) -> RunFolder:
    """A run on sentences, a category with gaps and dates; its linear model is kept."""
    rows = range(48)
    table = {
        "place": [("Zürich", "Genève", None)[row % 3] for row in rows],
        "day": [f"2024-02-{1 + row % 28:02}" for row in rows],
        "message": [f"{SENTENCES[row % 2]} {row} {'really ' * (40 * (row == 47))}" for row in rows],
        "kind": [("spam", "ham")[row % 2] if row < 24 else None for row in rows],
    }
    write_table(own_folder / "mail.csv", table)
    quick = [word for word in LOGISTIC if word != "--no-compare"]
    assert command("fit", "mail.csv", "--label", "kind", *quick, "--out", "mail").code == 0
    return RunFolder.open("mail")


@pytest.mark.usefixtures("undrawn")
def test_words_dates_and_sentences_are_shown_as_the_file_has_them(command, texts_run: RunFolder) -> None:
    assert texts_run.kept == "linear"
    figures = samples_figures(group_runs([texts_run])[0])
    shown = [line for figure in figures[1:] for line in figure.tables[0].lines]
    assert figures[1].tables[0].header == ["id", "label", "place", "day", "message"]
    for identifier, _, place, day, message in shown:
        row = int(identifier)
        assert place == ("Zürich", "Genève", "–")[row % 3]
        assert day == f"2024-02-{1 + row % 28:02}"
        assert message.startswith(" ".join(SENTENCES[row % 2].split()))
        assert len(message) <= 240
    assert any(message.endswith(" really re...") or len(message) == 240 for *_, message in shown)
    assert command("report", "mail", "--out", "mail.html").code == 0
    page = Path("mail.html").read_text()
    assert "win a &lt;b&gt;prize&lt;/b&gt; now, call free 2" in page
    assert "<b>prize" not in page


@pytest.mark.usefixtures("undrawn")
def test_samples_and_classes_are_those_of_the_kept_model(command, texts_run: RunFolder) -> None:
    assert command("label", "mail", "mail.csv", "--out", "labels.csv").code == 0
    labels = {row["id"]: row for row in rows(Path("labels.csv").read_text()) if int(row["id"]) >= 24}
    by_class, *figures = samples_figures(group_runs([texts_run])[0])
    chosen = [row["label"] for row in labels.values() if row["selected"] == "positive"]
    assert [line[2] for line in by_class.tables[0].lines] == [str(chosen.count(name)) for name in ("ham", "spam")]
    assert "labels that the kept linear model selects" in by_class.caption
    judged = texts_run.comparison().judged()
    right = [f"{(found.label[truth == 0] == 0).sum()} of 12" for found, truth in judged.values()]
    assert by_class.tables[0].header[3:] == [
        f"held-out right: {name}" for name in ("linear model", "round 0", "round 1")
    ]
    assert by_class.tables[0].lines[0][3:] == right
    for line in figures[0].tables[0].lines:
        label = labels[line[0]]
        assert line[1] == f"{label['label']} {float(label['confidence']):.2f}, u {float(label['uncertainty']):.2f}"


@pytest.mark.usefixtures("undrawn")
def test_a_doubted_label_of_a_validation_file_is_shown_from_that_file(command, own_folder) -> None:
    table, held_out = blobs(60, 20), blobs(20, 20, seed=1)
    held_out["pet"][6] = "cat"  # a dog
    for name, columns in (("pets.csv", table), ("check.csv", held_out)):
        write_table(own_folder / name, {column: columns[column] for column in ("width", "height", "pet")})
    quick = [word for word in LOGISTIC if word != "--no-compare"]
    assert command("fit", "pets.csv", "--label", "pet", "--validation", "check.csv", *quick, "--out", "run").code == 0
    figure = samples_figures(group_runs([RunFolder.open("run")])[0])[-1]
    assert figure.title == "Given labels to check"
    identifier, said, width, height = figure.tables[0].lines[0]
    assert (identifier, said.startswith("given as cat, looks like dog ")) == ("6", True)
    assert [float(width), float(height)] == [held_out["width"][6], held_out["height"][6]]


@pytest.mark.usefixtures("undrawn")
def test_samples_of_a_kept_round_0_are_those_that_its_network_selects(table_run: RunFolder, monkeypatch) -> None:
    monkeypatch.setattr(RunFolder, "kept", "first")
    labels = table_run.pool(0)
    by_class, surest, *_ = samples_figures(group_runs([table_run])[0])
    counts = labels.class_counts(labels.positive_before)
    assert [line[2] for line in by_class.tables[0].lines] == [str(count) for count in counts]
    assert "the network of round 0 selects" in surest.caption


@pytest.mark.usefixtures("undrawn")
def test_runs_of_several_kinds_stand_side_by_side(command, texts_run: RunFolder, monkeypatch) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(Path("cache").absolute()))
    monkeypatch.chdir(texts_run.path.absolute().parent)
    quick = [word for word in LOGISTIC if word != "--no-compare"]
    write_table(Path("pets.csv"), blobs(80, 20))
    write_folder(Path("photos"))
    assert command("fit", "pets.csv", "--label", "pet", "--id", "id", *quick, "--out", "pets").code == 0
    assert command("fit", "photos", "--estimator", PIXELS, *quick[2:], "--out", "photos-run").code == 0
    assert command("report", "mail", "pets", "photos-run", "--out", "all.html").code == 0
    runs = [RunFolder.open(name) for name in ("mail", "pets", "photos-run")]
    table = side_by_side(group_runs(runs))
    assert table.header[1:5] == ["linear model of the labels", "round 0, the labels alone", "self-training", "kept"]
    assert [line[0] for line in table.lines] == ["mail", "pets", "photos-run"]
    for line, run in zip(table.lines, runs, strict=True):
        judged = run.comparison().judged()
        assert [cell.split(" %")[0] for cell in line[1:4]] == [f"{100 * one.score.mean:.1f}" for one in judged.values()]
        assert line[4] == {"linear": "linear model", "first": "round 0", "last": "round 1"}[run.kept]
        assert line[5:] == [str(len(judged["last"].truth)), run.comparison().judge]
    page = Path("all.html").read_text()
    assert all(f"<td>{cell}</td>" in page for line in table.lines for cell in line[1:])
    assert "Classes and samples are those of one run, <strong>photos-run</strong>" in page


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("packed", [False, True])
def test_pictures_that_a_backbone_made_features_of_are_shown_themselves(
    command, own_folder, monkeypatch, packed
) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(own_folder / "cache"))
    data = "shown.parquet" if packed else "photos"
    if packed:
        write_parquet(Path(data), pictures(), classes())
    else:
        write_folder(Path(data))
    words = ("--backbone", f"{write_nets(own_folder)}:colors", *(("--label", "y") if packed else ()))
    assert command("fit", data, *words, *QUICK, "--no-compare", "--out", "run").code == 0
    assert RunFolder.open("run").settings.sample_shape == (3,)
    _, surest, *_ = samples_figures(group_runs([RunFolder.open("run")])[0])
    assert surest.pictures[0].pixels.shape == (96, 96, 3)
    assert command("report", "run", "--out", "report.html").code == 0
    assert Path("report.html").read_text().count("data:image/png;base64,") >= len(surest.pictures)


def test_pictures_in_an_array_are_shown_as_pictures(command, own_folder) -> None:
    x = np.random.default_rng(0).integers(0, 200, size=(40, 1, 8, 8)).astype(np.uint8)
    y = np.arange(40) % 2
    x[y == 1, :, :4] += 55
    np.savez("pictures.npz", x=x, y=np.where(np.arange(40) < 16, y, -1))
    pixels = ("--estimator", PIXELS, "--rounds", "1", "--passes", "3", "--no-compare")
    assert command("fit", "pictures.npz", *pixels, "--out", "run").code == 0
    _, surest, *_ = samples_figures(group_runs([RunFolder.open("run")])[0])
    assert surest.pictures[0].pixels.shape == (96, 96)


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


def test_a_model_card_is_of_the_kept_model(texts_run: RunFolder) -> None:
    part = {"name": "x", "type": "float32", "shape": ["batch", 2], "meaning": "probabilities"}
    check = {"samples": 8, "of": "the run's data", "largest_difference": 0.0, "tolerance": 1e-4}
    about = {"check": check, "input": part, "output": part, "surelabel": "0", "torch": "0", "round": None}
    card = model_card(texts_run, "model.pt2", about)
    assert "one label a sample, from the linear model of a self-training run" in card
    assert "on 24 cross-validation samples (`comparison`)" in card
    assert "| linear model of the labels |" in card
    assert "labels that an earlier network gave" not in card
    assert texts_run.model_hash == hashlib.sha256((texts_run.path / "linear.skops").read_bytes()).hexdigest()


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_that_has_not_chosen_yet_is_not_shown(command, texts_run: RunFolder) -> None:
    content = texts_run.comparison().content
    write_json(texts_run.path / "comparison.json", {**content, "kept": None, "folds": content["folds"][:1]})
    assert command("report", "mail", "--out", "begun.html").code == 0
    (texts_run.path / "comparison.json").unlink()
    assert command("report", "mail", "--out", "never.html").code == 0
    assert Path("begun.html").read_text() == Path("never.html").read_text()
