"""Tables 3 and 4 on miniature files in the official formats, from the command line to the results file."""

import dataclasses
import functools
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny_recipes import miniature, tiny_clips, tiny_pictures
from video_support import numbered, write_video
from voc_support import small_voc, write_voc

from surelabel.cli import main
from surelabel.data import sets as datasets
from surelabel.data.run_data import FunctionData
from surelabel.errors import DataError, InvalidInputError
from surelabel.reproduce import ucf101, variants, voc2007
from surelabel.reproduce.entries import Experiment, Labels
from surelabel.reproduce.experiment import chosen, reproduce
from surelabel.reproduce.outcome import Result, differences
from surelabel.reproduce.paper import ALL_LABELS, EXPERIMENTS, experiment
from surelabel.reproduce.plans import Options, Plans, Speed, batch_of, cut_to
from surelabel.reproduce.results import read_rows
from surelabel.reproduce.ucf101 import UCF101
from surelabel.reproduce.voc2007 import VOC2007
from surelabel.runs import RunFolder
from surelabel.settings import RunSettings
from tests.data.sets.test_ucf101 import official_lists, write_files, write_lists

pytestmark = [
    pytest.mark.usefixtures("own_folder", "undrawn"),
    pytest.mark.filterwarnings("ignore:.*scores on it are not scores on UCF-101"),
    pytest.mark.filterwarnings("ignore:The labeled classes are far from even"),
]


def tiny_voc2007(*given: Any, **more: Any) -> RunSettings:
    return tiny_pictures(voc2007.fast_recipe(*given, **{"side": 32, **more}))


def tiny_ucf101(*given: Any, **more: Any) -> RunSettings:
    return tiny_clips(ucf101.fast_recipe(*given, **more))


def longer_ucf101(*given: Any, **more: Any) -> RunSettings:
    return tiny_ucf101(*given, **more).with_training(steps=3)


SMALL_VOC = dataclasses.replace(VOC2007, paper=functools.partial(voc2007.paper_recipe, side=32), fast=tiny_voc2007)
SMALL_UCF = dataclasses.replace(UCF101, fast=tiny_ucf101)
LONGER_UCF = dataclasses.replace(UCF101, fast=longer_ucf101)
FEW = {500: 25, 1000: 30, 5011: 40}


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("voc")
    write_voc(folder, small_voc(40, 20))
    return folder


@pytest.fixture(scope="module")
def ucf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ucf")
    write_lists(folder / "ucf101", official_lists())
    write_files(folder / "ucf101" / "UCF-101", lambda path: write_video(path, numbered(18, 36, 36), "mpeg4"))
    return folder


@pytest.fixture
def table4(voc: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.setenv("SURELABEL_DATA", str(voc))
    monkeypatch.setattr(datasets, "VOC2007_PICTURES", {"trainval": 40, "test": 20})
    return miniature(experiment("table4"), SMALL_VOC, FEW)


@pytest.fixture
def table3(ucf: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.setenv("SURELABEL_DATA", str(ucf))
    return miniature(experiment("table3"), SMALL_UCF, {share: share for share in (0.2, 0.5, 1.0)})


def by_place(cells: list[Result]) -> dict[tuple[str, Labels], Result]:
    return {(cell.entry.row, cell.entry.labels): cell for cell in cells}


def test_table_4_runs_every_row_of_ours_and_shows_both_means(table4: Experiment, tmp_path: Path) -> None:
    results, out = tmp_path / "runs.csv", tmp_path / "runs"
    cells = by_place(reproduce(table4, out, Options(device="cpu"), results=results))
    ran = {place for place, cell in cells.items() if cell.runs}
    ours = {(row, labels) for row in ("Supervised", "Pseudo-labeling", "UPS") for labels in (25, 30)}
    assert ran == {*ours, (ALL_LABELS, 40)}

    every = cells["Pseudo-labeling", 25].runs[0].records()[1]
    pool = cells["Pseudo-labeling", 25].runs[0].pool(0)
    unknown = pool.label.size - int((pool.label < 0).sum())
    assert every.num_positive + every.num_negative <= unknown
    assert (pool.positive | pool.selection.negative)[-15:].all()  # every entry of every picture without labels
    ups = cells["UPS", 25].runs[0]
    assert ups.records()[1].balanced
    assert ups.records()[0].test_score == cells["Supervised", 25].runs[0].records()[0].test_score

    rows = [row for row in read_rows(results) if row["row"] == "UPS" and row["labels"] == "25"]
    assert [(row["metric"], row["paper"]) for row in rows] == [
        ("test mAP %", "34.22"),
        ("test mAP, 11 points %", "34.22"),
    ]
    last = ups.records()[-1]
    assert last.test_score is not None
    assert last.test_score_11 is not None
    assert [float(row["value"]) for row in rows] == [100 * last.test_score, 100 * last.test_score_11]
    assert last.test_score != last.test_score_11


def test_the_command_shows_both_means_beside_the_papers_figure(
    table4: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "table4", table4)
    words = ["table4", "--rows", "Supervised", "--labels", "25", "--device", "cpu", "--out", str(tmp_path)]
    assert main(["reproduce", *words]) == 0
    assert "The paper does not say whether its figures are" in " ".join(capsys.readouterr().out.split())
    written = (tmp_path / "table4.md").read_text()
    assert "| row | data | labels | paper | ours: mAP | ours: mAP, 11 points | seeds |" in written
    assert "uninterpolated (mAP) or VOC2007's (mAP, 11 points)." in written
    assert "| MixMatch | voc2007 | 25 | 29.57 ± 0.78 | not run | not run |  |" in written
    assert "| Supervised | voc2007 | 25 | 18.36 ± 0.65 | " in written
    assert (tmp_path / "table4-voc2007-25" / "figures.md").exists()


def test_classes_without_a_test_positive_are_named(
    table4: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = small_voc(40, 20)
    parts["test"] = {
        name: [one for one in objects if one[0] not in ("cow", "sheep")] for name, objects in parts["test"].items()
    }
    write_voc(tmp_path / "data", parts)
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(EXPERIMENTS, "table4", table4)
    words = ["table4", "--rows", "Supervised", "--labels", "25", "--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main(["reproduce", *words]) == 0
    expected = "voc2007: left out of the means, without a positive in the test set: cow, sheep."
    assert expected in " ".join(capsys.readouterr().out.split())
    assert f"\n\n{expected}\n\n" in (tmp_path / "runs" / "table4.md").read_text()


def test_class_balance_is_on_or_off_in_the_first_round(table4: Experiment, tmp_path: Path) -> None:
    balance = miniature(experiment("class-balance-voc2007"), SMALL_VOC, FEW)
    cells = by_place(reproduce(balance, tmp_path, Options(device="cpu", labels=(25,))))
    balanced = [cells[row, 25].runs[0].records()[1].balanced for row in ("with class balance", "without class balance")]
    assert balanced == [True, False]


def test_table_3_says_shares_as_the_paper_does(
    table3: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "table3", table3)
    results, out = tmp_path / "runs.csv", tmp_path / "runs"
    words = ["--labels", "20%", "--device", "cpu", "--out", str(out), "--results", str(results)]
    assert main(["reproduce", "table3", *words]) == 0
    written = (out / "table3.md").read_text()
    assert "| S4L | ucf101 | 20 % | 37.70 | not run |  |" in written
    assert "| UPS | ucf101 | 50 % | 50.20 | not run |  |" in written
    assert f"| {ALL_LABELS} | ucf101 | 100 % | 50.40 | not run |  |" in written
    assert "**UPS, ucf101, 20 % labeled**" in written
    assert sorted(path.name for path in out.glob("ucf101*")) == ["ucf101-20-percent"]
    assert (out / "table3-ucf101-20-percent" / "figures.md").exists()
    rows = [row for row in read_rows(results) if row["metric"] == "test accuracy %"]
    found = [(row["row"], row["dataset"], row["labels"], row["paper"]) for row in rows]
    figures = {"Supervised": "33.5", "Pseudo-labeling": "37.0", "UPS": "39.4"}
    assert found == [(row, "ucf101", "20 %", paper) for row, paper in figures.items()]
    supervised = rows[0]
    # Two steps of eight (six and two that would be negative) over three clips of each of three classes.
    assert (supervised["epochs"], supervised["images_seen"]) == ("2", "16")


def test_with_all_clips_labeled_round_0_is_all(
    table3: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "runs.csv"
    cells = by_place(reproduce(table3, tmp_path / "runs", Options(device="cpu", labels=(1.0,)), results=results))
    (run,) = cells[ALL_LABELS, 1.0].runs
    assert [record.round for record in run.records()] == [0]
    (row,) = read_rows(results)
    assert (row["labels"], row["paper"], row["images_seen"]) == ("100 %", "50.4", "16")
    with monkeypatch.context() as without_data:
        without_data.setattr(RunFolder, "data", None)
        again = Options(device="cpu", labels=(1.0,))
        reproduce(table3, tmp_path / "runs", again, results=tmp_path / "again.csv")
    assert read_rows(tmp_path / "again.csv") == [row]
    (run.path / "split.json").unlink()  # a folder from before there was one, whose data are counted
    reproduce(table3, tmp_path / "runs", again, results=results)
    older = read_rows(results)[1]
    assert older == {**row, "split_hash": run.settings.fingerprint}
    fewer = by_place(reproduce(table3, tmp_path / "runs", Options(device="cpu", rows=("Supervised",), labels=(0.2,))))
    assert fewer[ALL_LABELS, 1.0].runs


def test_runs_with_other_arguments_are_kept_apart_and_say_so(
    table4: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "table4", table4)
    words = ["reproduce", "table4", "--labels", "25", "--rows", "Supervised", "--device", "cpu", "--out", str(tmp_path)]
    assert main(words) == 0
    plain = (tmp_path / "table4.md").read_text()
    assert main([*words, "--set", "difficult=absent"]) == 0
    other = (tmp_path / "table4.md").read_text()
    runs = [RunFolder.open(path) for path in sorted((tmp_path / "voc2007-25").iterdir())]
    found = [
        run.settings.data.arguments.get("difficult") for run in runs if isinstance(run.settings.data, FunctionData)
    ]
    assert sorted(map(str, found)) == ["None", "absent"]
    assert "difficult absent (paper ignore)" in other
    assert "difficult" not in plain
    assert main([*words, "--set", "difficult=ignore"]) == 0  # as it is anyway
    assert (tmp_path / "table4.md").read_text() == plain
    assert len(list((tmp_path / "voc2007-25").iterdir())) == 2


@pytest.mark.filterwarnings("ignore:1 of 40 pictures cannot be decoded")
def test_all_labels_can_be_learned_from_where_a_picture_is_skipped(
    table4: Experiment, voc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(voc, tmp_path / "data")
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "data"))
    path = tmp_path / "data/VOCdevkit/VOC2007/JPEGImages/000031.jpg"
    path.write_bytes(path.read_bytes()[:-50])
    options = Options(device="cpu", labels=(40,), arguments={"on_error": "skip"})
    results = tmp_path / "runs.csv"
    cell = by_place(reproduce(table4, tmp_path / "runs", options, results=results))[ALL_LABELS, 40]
    assert "on_error skip (paper stop)" in cell.differences
    assert len(cell.runs[0].data().labeled[1]) == 39
    assert {row["labels"] for row in read_rows(results)} == {"39"}


def test_splits_groups_and_windows_of_table_3_can_be_set(table3: Experiment, tmp_path: Path) -> None:
    arguments = {"split": 2, "groups": True, "test_windows": 3, "on_error": "skip"}
    options = Options(device="cpu", rows=("Supervised",), labels=(0.5,), arguments=arguments)
    cell = by_place(reproduce(table3, tmp_path, options))["Supervised", 0.5]
    told = {"split 2 (paper 1)", "groups True (paper False)", "test_windows 3 (paper 1)", "on_error skip (paper stop)"}
    assert told <= set(cell.differences)
    data = cell.runs[0].data()
    assert {name[-7:-4] for name in data.test[0].ids} == {"g04", "g05", "g06"}
    videos = [{name[:-4] for name in part.ids} for part in (data.labeled[0], data.unlabeled)]
    assert not videos[0] & videos[1]


@pytest.mark.usefixtures("ticking")
def test_minutes_can_be_planned_where_all_clips_are_labeled(table3: Experiment, tmp_path: Path) -> None:
    options = Options(device="cpu", minutes=0.2, labels=(1.0,))
    cell = by_place(reproduce(table3, tmp_path, options))[ALL_LABELS, 1.0]
    assert cell.runs
    assert "steps in place of 2 steps" in cell.cut


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("table3", "UCF-101 is not in '.*ucf101'; put its folders"),
        ("table4", "VOC2007 is not in '.*': there is no ImageSets/Main"),
        ("class-balance-voc2007", "VOC2007 is not in '.*': there is no ImageSets/Main"),
    ],
)
def test_missing_data_are_named_before_anything_starts(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=message):
        reproduce(experiment(name), tmp_path / "runs", Options(device="cpu"))
    assert not (tmp_path / "runs").exists()


def paper_voc2007(*given: Any) -> RunSettings:
    return tiny_pictures(voc2007.paper_recipe(*given, side=32))


def paper_ucf101(*given: Any) -> RunSettings:
    return tiny_clips(ucf101.paper_recipe(*given))


@pytest.mark.parametrize(("name", "labels", "recipe"), [("table4", 25, paper_voc2007), ("table3", 0.2, paper_ucf101)])
def test_the_papers_own_recipes_train_too(
    name: str, labels: Labels, recipe: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """With all of their settings but the width of the network, the number of steps and rounds, and the thresholds."""
    table = request.getfixturevalue(name)
    (ups,) = chosen(table, Options(rows=("UPS",), labels=(labels,)))
    ups = dataclasses.replace(ups, dataset=dataclasses.replace(ups.dataset, paper=recipe))
    (cell,) = reproduce(dataclasses.replace(table, entries=(ups,)), tmp_path, Options(recipe="paper", device="cpu"))
    training, last = cell.runs[0].settings.network.training, cell.runs[0].records()[-1]
    assert (training.optimizer, training.schedule, training.learning_rate) == ("sgd", "cosine", 0.03)
    assert last.round == 1
    assert last.test_score is not None


def test_labels_are_a_number_or_a_share() -> None:
    with pytest.raises(InvalidInputError, match="table3 has no labels 20 to run; it has 20 %; 50 %; 100 %"):
        chosen(experiment("table3"), Options(labels=(20,)))
    assert [entry.row for entry in chosen(experiment("table3"), Options(labels=(0.5,)))][-1] == "UPS"
    assert [entry.row for entry in chosen(experiment("table4"), Options(labels=(5011,)))] == [ALL_LABELS]
    assert main(["reproduce", "table3", "--labels", "a fifth"]) == 1


def test_the_recipe_of_table_4_is_the_papers() -> None:
    settings = voc2007.paper_recipe(labels=1000, seed=2)
    config, learner = settings.config, settings.network
    assert (config.task, config.gamma, config.tau_p, config.tau_n) == ("multi", 0.5, 0.5, 0.05)
    assert (config.kappa_p, config.kappa_n, config.num_balanced_rounds(20)) == (0.05, 0.005, 1)
    assert (learner.passes, learner.temperature, learner.uncertainty) == (10, 2.0, "mc-dropout")
    assert (learner.model, learner.model_parameters) == ("surelabel.models.resnet:resnet50", {"dropout": 0.3})
    assert learner.training.augment is not None
    assert learner.training.augment.operations == 3
    assert (learner.training.optimizer, learner.training.learning_rate) == ("sgd", 0.03)
    assert isinstance(settings.data, FunctionData)
    assert settings.data.arguments == {"seed": 2, "labels": 1000, "num_validation": 0, "side": 224}


def test_the_recipe_of_table_3_is_the_papers() -> None:
    settings = ucf101.paper_recipe(labels=0.5, seed=2)
    config, learner = settings.config, settings.network
    assert (config.task, config.tau_p, config.kappa_p, config.kappa_n) == ("single", 0.7, 0.05, 0.005)
    assert config.num_balanced_rounds(101) == config.num_balanced_rounds(3) == 0
    assert learner.model_parameters == {"dropout": 0.3, "stem": "paper", "shortcut": "padded"}
    augment = learner.training.augment
    assert augment is not None
    assert (augment.window, augment.side, augment.passages, augment.test_windows) == (16, 112, 3, 1)
    others = (augment.operations, augment.flip, augment.crop, augment.jitter, augment.hole)
    assert not any(others)
    assert isinstance(settings.data, FunctionData)
    assert settings.data.arguments == {"seed": 2, "share": 0.5, "validation_share": 0.0}


def test_checkpoints_of_table_3_meet_torchvisions_network(tmp_path: Path) -> None:
    weights = tmp_path / "r3d_18.pth"
    weights.write_bytes(b"weights")
    entry = experiment("table3").entries[0]
    settings = Plans(None, Options(device="cpu", pretrained=str(weights))).whole(entry, "paper")
    parameters = settings.network.model_parameters
    assert parameters == {"dropout": 0.3, "stem": "torchvision", "shortcut": "projection", "pretrained": str(weights)}
    listed = differences(settings, entry.of(entry.base(0, "paper")))
    assert {"stem torchvision (paper paper)", "shortcut projection (paper padded)"} <= set(listed)


def test_the_documents_way_to_a_figure_of_several_tables_works(
    table3: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With runs of two lengths, and of a row whose name begins with UPS too."""
    more = dataclasses.replace(table3.entries[-2], row="UPS, no NL", variant=variants.ups_without_negatives)
    table3 = dataclasses.replace(table3, entries=(*table3.entries, more))
    monkeypatch.setitem(EXPERIMENTS, "table3", table3)
    monkeypatch.chdir(tmp_path)
    options = Options(device="cpu", rows=("UPS", "UPS, no NL"), labels=(0.5,))
    reproduce(table3, "runs/reproduce", options)
    longer = [dataclasses.replace(entry, dataset=LONGER_UCF) for entry in table3.entries]
    reproduce(dataclasses.replace(table3, entries=tuple(longer)), "runs/reproduce", options)
    assert len(list(Path("runs/reproduce").glob("*/ups-*/run.json"))) == 4
    text = (Path(__file__).parents[2] / "docs" / "several-labels-and-video.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(snippet, {})
    assert Path("figures/figure-1-a.svg").exists()


def test_minutes_are_filled_by_batches_as_they_are() -> None:
    recipe = voc2007.fast_recipe(steps=1200)
    assert batch_of(recipe) == 256  # no negatives on top
    speed = Speed(6000.0, 15_000.0)
    for minutes, rounds in ((1.0, 1), (3.0, 2), (6.0, 4), (20.0, 4)):
        cut = cut_to(recipe, minutes, speed, 4511)
        assert cut.max_rounds == rounds
        seconds = (rounds + 1) * (cut.steps * 256 / speed.training + 4511 / speed.labeling)
        assert seconds == pytest.approx(0.93 * 60 * minutes, rel=0.01)
        assert rounds == 1 or cut.steps >= 1200
