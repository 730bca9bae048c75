"""The paper's experiments: every cell has complete settings, and a small one runs, is resumed and shares its rounds."""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cifar_support import small_set

from surelabel.base.references import file_hash
from surelabel.cli import main
from surelabel.data.images import store
from surelabel.data.run_data import FunctionData
from surelabel.data.sets.cifar import CIFAR10_CLASSES
from surelabel.errors import ChangedFileError, DamagedFileError, DataError, InvalidInputError, UntrustedCodeError
from surelabel.learners.network import TorchLearner
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.reproduce import paper, plans, variants
from surelabel.reproduce.cifar import CIFAR10, CIFAR100, fast_recipe, paper_recipe
from surelabel.reproduce.entries import DataSet, Entry, Experiment, Metric, RecipeName, labels_text, parse_labels, rows
from surelabel.reproduce.experiment import check_request, chosen, reproduce
from surelabel.reproduce.outcome import OTHERS, code_of, collect, differences, settings_hash, write_outcome
from surelabel.reproduce.paper import EXPERIMENTS, experiment
from surelabel.reproduce.plans import LEAST_SAMPLES, MARGIN, Cut, Options, Speed, batch_of, cut_to
from surelabel.reproduce.results import read_rows
from surelabel.reproduce.ucf101 import UCF101
from surelabel.runs import RunFolder
from surelabel.runs.files import read_json, write_json
from surelabel.settings import RunSettings

pytestmark = pytest.mark.usefixtures("own_folder", "undrawn")

TARGETS = {  # as the paper prints them
    ("table1", "UPS", "cifar10", 1000): 8.18,
    ("table1", "UPS", "cifar100", 10_000): 32.0,
    ("table1", "DualStudent", "cifar10", 4000): 8.89,
    ("table2", "UPS/Shake-Shake", "cifar10", 4000): 4.86,
    ("table5", "UPS, no UA (Cal.)", "cifar10", 1000): 13.68,
    ("table6", "MC-DropBlock", "cifar10", 4000): 7.5,
    ("few-labels", "UPS", "cifar10", 250): 15.9,
    ("mixup", "UPS+Mixup, no NL", "cifar10", 1000): 7.3,
    ("no-augmentation", "UPS", "cifar10", 4000): 14.98,
    ("class-balance", "without class balance", "cifar10", 1000): 88.77,
    ("class-balance-voc2007", "with class balance", "voc2007", 500): 34.72,
    ("class-balance-voc2007", "without class balance", "voc2007", 1000): 40.06,
    ("table3", "S4L", "ucf101", 0.2): 37.7,
    ("table3", "UPS", "ucf101", 0.5): 50.2,
    ("table3", "Supervised, all labels", "ucf101", 1.0): 50.4,
    ("table4", "Pseudo-labeling", "voc2007", 500): 27.44,
    ("table4", "UPS", "voc2007", 1000): 40.34,
    ("table4", "Supervised, all labels", "voc2007", 5011): 52.62,
}


def tiny(*given: Any, **more: Any) -> RunSettings:
    """The fast recipe with a narrow network, few steps and two rounds."""
    fast = fast_recipe(*given, **more)
    assert isinstance(fast.learner, TorchLearnerSettings)
    training = fast.learner.training.replace(steps=2, batch_size=8, negative_batch_size=4, learning_rate=0.05)
    learner = fast.learner.replace(training=training, model_parameters={"dropout": 0.3, "width": 4}, threads=1)
    config = fast.config.replace(max_rounds=2, tau_p=0.1, kappa_p=1.0, balance=None)
    return fast.replace(learner=learner, config=config)


def test_runs_of_the_first_version_are_found_under_their_names() -> None:
    """Letters as 0.1 made them: settings and data functions that came or moved later must not change these."""
    assert settings_hash(paper_recipe(CIFAR10, 1000)) == "350b55bc"
    assert settings_hash(fast_recipe(CIFAR10, 4000)) == "196c944f"


def test_the_longest_round_of_the_fast_recipe_is_never_left_out() -> None:
    """With 100 classes no round is balanced, and counts that hardly change would end the rounds before their time."""
    config, counts = fast_recipe(CIFAR100).config, [0, 9000, 9000, 9000, 9000, 9000]
    assert config.stop_reason(counts, num_classes=100, minutes=1.0) is None
    assert config.stop_reason([*counts, 9000], num_classes=100, minutes=1.0) == "max_rounds"


SMALL = dataclasses.replace(CIFAR10, fast=tiny)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """An experiment on a small CIFAR-10 in a folder of its own."""
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "data"))
    store(tmp_path / "data" / "cifar10", small_set(per_batch=12))
    one = Experiment(
        "small",
        "A small table",
        (
            Entry("Other", SMALL, 20, (12.5, 0.5)),
            Entry("Supervised", SMALL, 20, (27.66, None), variants.supervised),
            Entry("UPS, no NL", SMALL, 20, None, variants.ups_without_negatives),
            Entry("UPS", SMALL, 20, (8.14, None), variants.full_ups),
        ),
    )
    monkeypatch.setitem(EXPERIMENTS, "small", one)
    return one


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("recipe", ["paper", "fast"])
def test_every_cell_that_is_run_has_complete_settings(name: str, recipe: RecipeName) -> None:
    entries = [entry for entry in experiment(name).entries if entry.variant is not None]
    assert entries
    for entry in entries:
        settings = entry.of(entry.base(3, recipe))
        assert settings.name == entry.row
        assert settings.config.seed == 3
        assert settings.data is not None
        arguments = settings.data.model_dump()["arguments"]
        assert arguments["seed"] == 3
        assert arguments["share" if isinstance(entry.labels, float) else "labels"] == entry.labels
        assert isinstance(settings.learner, TorchLearnerSettings)
        settings.learner.build(settings.config.task)  # the network's and the estimator's parameters are known to them
        assert RunSettings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize(("place", "value"), TARGETS.items())
def test_the_papers_figures_are_in_their_places(place: tuple[str, str, str, int | float], value: float) -> None:
    name, *cell = place
    (entry,) = (e for e in experiment(name).entries if [e.row, e.dataset.name, e.labels] == cell)
    assert entry.paper is not None
    assert entry.paper[0] == value


def test_the_papers_recipe_is_the_papers() -> None:
    ups = paper_recipe(CIFAR10, 1000, seed=0)
    assert isinstance(ups.learner, TorchLearnerSettings)
    training = ups.learner.training
    assert (training.optimizer, training.learning_rate, training.momentum, training.nesterov) == (
        "sgd",
        0.03,
        0.9,
        True,
    )
    assert (training.schedule, training.weight_decay, training.epochs) == ("cosine", 0.0, 1024)
    assert (ups.config.tau_p, ups.config.tau_n, ups.config.kappa_p, ups.config.kappa_n) == (0.7, 0.05, 0.05, 0.005)
    assert (ups.learner.passes, ups.learner.temperature, ups.learner.model_parameters["dropout"]) == (10, 2.0, 0.3)
    assert ups.config.num_balanced_rounds(10) == 10
    assert ups.config.num_balanced_rounds(100) == 0


def test_variants_change_what_their_names_say() -> None:
    ups = paper_recipe()
    assert isinstance(ups.learner, TorchLearnerSettings)
    calibrated = variants.confidence_based_calibrated(ups)
    assert calibrated.config == ups.config.replace(kappa_p=math.inf, kappa_n=math.inf)
    assert calibrated.learner == ups.learner
    assert differences(variants.without_balance(ups), ups) == (
        "name UPS, no class balance (paper UPS)",
        "balance None (paper equal)",
    )
    mixed = variants.with_mixup(ups)
    assert (mixed.config.tau_p, mixed.config.kappa_p, mixed.config.negatives) == (0.5, 0.1, False)
    plain = variants.without_augmentation(ups).learner
    assert isinstance(plain, TorchLearnerSettings)
    assert plain.training.augment is not None
    assert (plain.training.augment.flip, plain.training.augment.operations, plain.training.augment.crop) == (
        False,
        0,
        0,
    )
    assert plain.training.augment.mean == ups.learner.training.augment.mean  # type: ignore[union-attr]


def test_estimators_with_rates_of_their_own_are_not_said_to_have_the_networks() -> None:
    said = {}
    for entry in experiment("table6").entries:
        if entry.labels == 1000:
            fast = entry.of(entry.base(0, "fast"))
            listed = differences(fast, entry.of(entry.base(0, "paper")))
            said[entry.row] = (fast.network.uncertainty, "dropout 0.15 (paper 0.3)" in listed)
    assert said == {
        "MC-Dropout": ("mc-dropout", True),
        "MC-SpatialDropout": ("mc-spatial-dropout", False),
        "MC-DropBlock": ("mc-dropblock", False),
        "DataAug": ("augmentation", True),
        "Deep ensemble (not in the paper)": ("deep-ensemble", True),
    }


def test_what_a_recipe_leaves_to_the_network_is_listed_as_it_is() -> None:
    entry = next(entry for entry in experiment("table2").entries if entry.network == "wrn-28-2" and entry.variant)
    listed = differences(entry.of(entry.base(0, "fast")), entry.of(entry.base(0, "paper")), entry.defaults())
    expected = {"activation relu (paper mish)", "norm_momentum 0.1 (paper 0.001)", "norm_bias 0.0 (paper 0.1)"}
    assert expected <= set(listed)


def test_a_budget_is_kept_and_split_over_the_rounds() -> None:
    settings, speed = fast_recipe(), Speed(80_000.0, 50_000.0)
    for minutes in (0.1, 1.0, 6.0, 25.0):
        cut = cut_to(settings, minutes, speed, 49_000)
        length = sum(1.5**number for number in range(cut.max_rounds + 1))
        seconds = length * cut.steps * 640 / speed.training + (cut.max_rounds + 1) * 49_000 / speed.labeling
        assert 0.9 * seconds < 60 * minutes
        assert 60 * minutes < 1.2 * seconds
        assert cut.max_rounds == 1 or cut.steps * 640 >= 0.99 * min(LEAST_SAMPLES, 3000 * 640)
    assert cut.max_rounds == settings.config.max_rounds
    applied = cut.apply(settings)
    assert isinstance(applied.learner, TorchLearnerSettings)
    assert applied.learner.training.steps == cut.steps
    with pytest.raises(InvalidInputError, match="at least"):
        cut_to(settings, 0.001, speed, 49_000)


def test_a_network_without_rounds_fills_the_minutes_by_the_papers_recipe_too() -> None:
    """Its batches have no negatives on top, which the fast recipe fills up with labels."""
    for recipe, batch in ((paper_recipe(), 128), (fast_recipe(), 640)):
        supervised = variants.supervised(recipe)
        cut = cut_to(supervised, 6.0, Speed(80_000.0, 50_000.0), 49_000)
        assert cut.steps * batch == pytest.approx(80_000 * (360 * MARGIN - 49_000 / 50_000), rel=0.01)


def test_an_ensemble_gets_fewer_steps_for_the_same_minutes() -> None:
    one = fast_recipe()
    several = variants.with_estimator(one, "deep-ensemble")
    speed = Speed(80_000.0, 50_000.0)
    few, many = (cut_to(settings, 25, speed, 49_000) for settings in (several, one))
    fewer, more = (cut.steps * sum(1.5**number for number in range(cut.max_rounds + 1)) for cut in (few, many))
    assert fewer == pytest.approx(more / 5, rel=0.02)


def test_rows_are_run_recorded_and_shared(small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[int] = []
    from surelabel.learners.network import TorchLearner

    fit = TorchLearner.fit
    monkeypatch.setattr(
        TorchLearner, "fit", lambda self, rows, seed: (fits.append(seed), fit(self, rows, seed=seed))[1]
    )
    out, results = tmp_path / "runs", tmp_path / "results" / "runs.csv"
    options = Options(seeds=(0,), device="cpu")
    monkeypatch.setenv("SURELABEL_COMMIT", "abc")  # a copy without git
    cells = reproduce(small, out, options, results=results)
    # Round 0 is one fit for three rows; where nothing is negative, rows share all of theirs.
    assert len(fits) < 1 + 2 * 2 + 1
    assert [len(cell.runs) for cell in cells] == [0, 1, 1, 1]
    supervised, ups = cells[1].runs[0], cells[3].runs[0]
    assert ups.records()[0].test_score == supervised.records()[0].test_score
    value = cells[3].value("error")
    assert value is not None
    assert value.mean == pytest.approx(100 * (1 - ups.records()[-1].test_score))  # type: ignore[operator]
    rows = read_rows(results)
    assert [(row["experiment"], row["row"], row["metric"], row["paper"]) for row in rows] == [
        ("small", "Supervised", "test error %", "27.66"),
        ("small", "UPS, no NL", "test error %", ""),
        ("small", "UPS", "test error %", "8.14"),
    ]
    assert {row["commit"] for row in rows} == {"abc"}
    assert all(row["device"].startswith("cpu: ") for row in rows)
    settings = json.loads((results.parent / rows[-1]["settings"]).read_text())
    assert settings["UPS"]["learner"]["training"]["steps"] == 2

    before = len(fits)
    again = reproduce(small, out, options, results=results)
    assert len(fits) == before
    assert again[3].value("error") == value
    assert read_rows(results) == rows


def test_another_estimator_takes_the_place_of_the_recipes(small: Experiment, tmp_path: Path) -> None:
    chosen_rows = ("UPS", "UPS, no NL")
    options = Options(device="cpu", rows=chosen_rows, uncertainty="augmentation")
    one = dataclasses.replace(small.entries[-1], row="UPS, no UA", variant=variants.confidence_based)
    both = dataclasses.replace(small, entries=(*small.entries, one))
    cells = {cell.entry.row: cell for cell in reproduce(both, tmp_path / "runs", options)}
    for row in chosen_rows:
        (run,) = cells[row].runs
        assert run.settings.network.uncertainty == "augmentation"
        assert "uncertainty augmentation (paper mc-dropout)" in cells[row].differences
    # A row that has an estimator of its own, or needs none, keeps that.
    plan = plans.Plans(None, options)
    assert plan.settings(one, 0).network.uncertainty == "none"
    own = plan.settings(next(e for e in experiment("table6").entries if e.row == "MC-DropBlock"), 0)
    assert own.network.uncertainty == "mc-dropblock"
    with pytest.raises(ValueError, match="'uncertainty' must be one of"):
        reproduce(small, tmp_path / "runs", options._replace(uncertainty="dropout"))
    with pytest.raises(InvalidInputError, match="leaves nothing for kappa_p and kappa_n to judge"):
        reproduce(small, tmp_path / "runs", options._replace(uncertainty="none"))
    with pytest.raises(InvalidInputError, match="'mine.py:Mine'"):
        reproduce(small, tmp_path / "runs", options._replace(uncertainty="mine.py:Mine"))


def test_a_broken_off_experiment_goes_on(small: Experiment, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(what: str, done: int, total: int) -> None:
        if done == 5:
            raise StopError

    options = Options(device="cpu", rows=("Supervised", "UPS, no NL", "UPS"))
    with pytest.raises(StopError):
        reproduce(small, tmp_path / "broken", options, progress=stop)
    broken = reproduce(small, tmp_path / "broken", options)
    whole = reproduce(small, tmp_path / "whole", options)
    for ours, other in zip(broken[1:], whole[1:], strict=True):
        assert ours.runs[0].model_bytes() == other.runs[0].model_bytes()


def test_other_settings_get_a_folder_of_their_own_and_equal_ones_are_run_once(
    small: Experiment, tmp_path: Path
) -> None:
    options, out = Options(device="cpu", rows=("UPS",)), tmp_path / "runs"
    first = reproduce(small, out, options)[3].runs[0]
    other = Experiment("other", "Other tables", (Entry("MC-Dropout", SMALL, 20, None, variants.full_ups),))
    assert reproduce(other, out, Options(device="cpu"))[0].runs[0].path == first.path
    wider = tiny().learner.model_parameters | {"width": 6}  # type: ignore[union-attr]
    recipe = lambda *s: (t := tiny(*s)).replace(learner=t.learner.replace(model_parameters=wider))  # noqa: E731
    wide = rows(dataclasses.replace(CIFAR10, fast=recipe), 20, ("UPS", variants.full_ups))
    assert reproduce(Experiment("wide", "Wide", wide), out, Options(device="cpu"))[0].runs[0].path != first.path


def test_runs_that_another_table_made_go_by_the_name_of_this_ones_row(small: Experiment, tmp_path: Path) -> None:
    out, results = tmp_path / "runs", tmp_path / "runs.csv"
    other = Experiment("other", "Other tables", (Entry("MC-Dropout", SMALL, 20, None, variants.full_ups),))
    reproduce(other, out, Options(device="cpu"))
    options = Options(device="cpu", rows=("UPS",), seeds=(0, 1))
    cells = reproduce(small, out, options, results=results)
    assert [run.settings.name for run in cells[3].runs] == ["UPS", "UPS"]
    assert len({row["settings"] for row in read_rows(results)}) == 1
    write_outcome(small, cells, out)
    figures = (out / "small-cifar10-20" / "figures.md").read_text()
    assert "MC-Dropout" not in figures
    assert "before balancing | " in figures
    assert " ± " in figures.partition("Classes of the first selection")[2]


def test_what_is_finished_needs_no_data(small: Experiment, tmp_path: Path) -> None:
    options = Options(device="cpu", rows=("Supervised",))
    first = reproduce(small, tmp_path / "runs", options)
    shutil.rmtree(tmp_path / "data")
    again = reproduce(small, tmp_path / "runs", options)
    assert again[1].value("error") == first[1].value("error")
    with pytest.raises(DataError, match="CIFAR-10 is not in"):
        reproduce(small, tmp_path / "runs", options._replace(seeds=(1,)))


@pytest.mark.usefixtures("ticking")
def test_where_all_are_labeled_a_budget_is_planned(small: Experiment, tmp_path: Path) -> None:
    every = Entry("all labels", SMALL, 60, None, variants.supervised)
    (cell,) = reproduce(Experiment("all", "All", (every,)), tmp_path / "runs", Options(device="cpu", minutes=0.2))
    assert len(cell.runs) == 1
    assert not cell.runs[0].has_pool


def test_rows_that_were_run_before_stay_in_the_table(small: Experiment, tmp_path: Path) -> None:
    reproduce(small, tmp_path / "runs", Options(device="cpu", rows=("UPS",)))
    cells = reproduce(small, tmp_path / "runs", Options(device="cpu", rows=("Supervised",)))
    assert [len(cell.runs) for cell in cells] == [0, 1, 0, 1]


def test_time_that_a_shared_round_took_counts_for_every_run(small: Experiment, tmp_path: Path) -> None:
    options = Options(device="cpu", rows=("Supervised",))
    reproduce(small, tmp_path / "runs", options)
    (made,) = (tmp_path / "runs" / ".shared").glob("*.json")
    write_json(made, {**read_json(made), "seconds": 6e7})
    cells = reproduce(small, tmp_path / "runs", options._replace(rows=("UPS",)))
    assert cells[3].runs[0].records()[0].minutes > 1e6
    assert cells[1].runs[0].records()[0].minutes < 1e6


def test_a_damaged_shared_network_is_trained_again(
    small: Experiment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = reproduce(small, tmp_path / "runs", Options(device="cpu", rows=("Supervised",)))[1].runs[0]
    for path in (tmp_path / "runs" / ".shared").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-4] + b"spam")
    ups = reproduce(small, tmp_path / "runs", Options(device="cpu", rows=("UPS",)))[3].runs[0]
    assert "is trained again" in caplog.text
    assert ups.records()[0].test_score == first.records()[0].test_score


def test_first_selections_are_recorded(small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for a network: UPS and no NL begin with the supervised one's selection."""
    monkeypatch.setattr("surelabel.reproduce.first_selection.paper_counts", lambda run: {"cat": 1065})
    same = (("no NL", variants.ups_without_negatives), paper.UPS)
    first = Experiment("first", "First", rows(SMALL, 20, *paper.FIRST, *same))
    results = tmp_path / "runs.csv"
    reproduce(first, tmp_path / "runs", Options(device="cpu"), results=results)
    found = {row["metric"]: float(row["value"]) for row in read_rows(results) if row["row"] == "Supervised"}
    assert found["first selection, positives before balancing"] > 0
    assert 0 <= found["first selection, accuracy % before balancing"] <= 100
    again = [row for row in read_rows(results) if row["metric"] == "first selection, positives before balancing"]
    assert len(again) == 1
    # Nor again where another of them was run first.
    some, few = tmp_path / "some.csv", tuple(row for row, _ in paper.FIRST if row != "Supervised")
    for chosen_rows in ((*few, "UPS"), ()):
        reproduce(first, tmp_path / "some", Options(device="cpu", rows=chosen_rows), results=some)
    again = [row for row in read_rows(some) if row["metric"] == "first selection, positives before balancing"]
    assert [row["row"] for row in again] == ["UPS"]
    for stage in ("before", "after"):
        each = [found[f"first selection, positives of {name} {stage} balancing"] for name in CIFAR10_CLASSES]
        assert sum(each) == found[f"first selection, positives {stage} balancing"]
    in_paper = {row["metric"]: row["paper"] for row in read_rows(results) if row["metric"].startswith("first")}
    assert {metric: figure for metric, figure in in_paper.items() if figure} == {
        "first selection, positives of cat before balancing": "1065"
    }
    numbers = [found[f"first labels by confidence, {tau}, number"] for tau in ("no tau_p", "tau_p 0.7", "tau_p 0.9")]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] == found["first labels by confidence (Cal.), no tau_p, number"]
    assert 0 < found["first labels by UPS, no tau_p, number"] <= numbers[0]
    assert 0 <= found["first labels by UPS, no tau_p, accuracy %"] <= 100
    assert "first labels by UPS, tau_p 0.9, accuracy %" not in found  # of none
    what = "first selection before balancing, points above confidence at equal counts"
    assert found[f"{what}, 95 % low"] <= found[what] <= found[f"{what}, 95 % high"]


def test_a_recipe_can_be_chosen_by_validation_errors(small: Experiment, tmp_path: Path) -> None:
    trial = Experiment("trial", "Trial", rows(SMALL, 20, paper.SUPERVISED, num_validation=10), "validation error")
    results = tmp_path / "runs.csv"
    (cell,) = reproduce(trial, tmp_path / "runs", Options(device="cpu"), results=results)
    score = cell.runs[0].records()[-1].validation_score
    (row,) = read_rows(results)
    assert (row["metric"], row["validation_labels"]) == ("validation error %", "10")
    assert float(row["value"]) == pytest.approx(100 * (1 - score))
    assert write_outcome(trial, [cell], tmp_path)[0].read_text().splitlines()[2].startswith("Validation error in %")


@pytest.mark.parametrize("name", ["TRIALS", "ALL_LABELS"])
def test_trials_of_the_recipe_differ_in_what_they_say(name: str) -> None:
    trials = experiment(f"{Path(__file__).parents[2] / 'experiments' / 'cifar_trials.py'}:{name}")
    settings = [entry.of(entry.base(0, "fast")).replace(name="") for entry in trials.entries]
    assert all(settings.count(one) == 1 for one in settings)
    assert {one.data.arguments["num_validation"] for one in settings if isinstance(one.data, FunctionData)} == {5000}


def test_what_would_fail_later_fails_at_once(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInputError, match="seeds must differ. Got 0, 0"):
        reproduce(small, tmp_path / "runs", Options(seeds=(0, 0), device="cpu"))
    with pytest.raises(InvalidInputError, match="above 0 and at most 1,000,000 minutes; got nan"):
        reproduce(small, tmp_path / "runs", Options(device="cpu", minutes=math.nan))
    with pytest.raises(InvalidInputError, match="No row has all of these"):
        reproduce(experiment("table2"), tmp_path, Options(rows=("UPS/Shake-Shake",), labels=(1000,)))
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="surelabel data get cifar10"):
        reproduce(small, tmp_path / "runs", Options(device="cpu"))
    with pytest.raises(DataError, match="surelabel data get cifar10") as caught:
        reproduce(experiment("table1"), tmp_path / "runs", Options(device="cpu"))
    assert caught.value.__notes__ == ["to run the other rows alone: --data cifar100"]
    assert not (tmp_path / "runs").exists()


def test_the_minutes_are_planned_once(small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(
        plans, "measure", lambda settings, data: (measured.append(settings.name), Speed(900.0, 800.0))[1]
    )
    monkeypatch.setattr(plans, "cut_to", lambda *_: Cut(1, 3))
    options = Options(seeds=(0, 1), device="cpu", minutes=1.0, rows=("Supervised", "UPS"))
    cells = reproduce(small, tmp_path / "runs", options)
    assert measured == ["UPS"]
    assert cells[1].cut == "3 steps in place of 2 steps"
    assert cells[3].cut == "1 round of 3 to 4 steps in place of 2 rounds of 2 to 4 steps"
    run = cells[3].runs[1]
    assert isinstance(run.settings.learner, TorchLearnerSettings)
    assert (run.settings.learner.training.steps, run.settings.config.max_rounds) == (3, 1)
    reproduce(small, tmp_path / "runs", options)
    assert len(measured) == 1


def test_the_number_of_rounds_can_be_set(small: Experiment, tmp_path: Path, own_folder: Path) -> None:
    words = ["reproduce", "small", "--labels", "20", "--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main([*words, "--rows", "Supervised", "--rows", "UPS", "--rounds", "1"]) == 0
    assert {row["row"]: row["rounds"] for row in read_rows("results/runs.csv")} == {"Supervised": "0", "UPS": "1"}
    assert "max_rounds 1" in (tmp_path / "runs" / "small.md").read_text()


@pytest.mark.parametrize(("rounds", "planned"), [(None, 2), (1, 1)])
def test_minutes_are_planned_for_the_rounds_that_are_asked_for(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int | None, planned: int
) -> None:
    monkeypatch.setattr(plans, "measure", lambda *_: Speed(900.0, 800.0))
    plan = plans.Plans(tmp_path / "plans.json", Options(rounds=rounds, minutes=1.0, device="cpu"))
    assert plan.settings(small.entries[-1], 0).config.max_rounds == planned


def test_a_row_without_rounds_has_one_network_for_all_of_the_minutes(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    monkeypatch.setattr(plans, "measure", lambda settings, _: (measured.append(settings.name), Speed(1000.0, 1e9))[1])
    plan = plans.Plans(tmp_path / "plans.json", Options(minutes=1.0, device="cpu"))
    supervised, *_, ups = (plan.settings(entry, 0) for entry in small.entries if entry.variant is not None)
    assert (supervised.config.max_rounds, ups.config.max_rounds) == (0, 2)
    samples = [(settings.network.training.steps or 0) * batch_of(settings) for settings in (supervised, ups)]
    # 1 + 1.5 + 1.5² times as long as its round 0 are all of UPS's.
    assert samples == [pytest.approx(60_000 * MARGIN, abs=20), pytest.approx(60_000 * MARGIN / 4.75, abs=20)]
    assert len(measured) == 1
    assert plan.knows(small.entries[1])


def test_rows_with_a_length_of_their_own_refuse_another(tmp_path: Path) -> None:
    trials = experiment(f"{Path(__file__).parents[2] / 'experiments' / 'cifar_trials.py'}:TRIALS")
    for length in (Options(rounds=10), Options(minutes=5.0)):
        with pytest.raises(
            InvalidInputError, match="Leave out 'rounds' and 'budget'.*: Mixup; 4 rounds of 4,500 steps"
        ):
            reproduce(trials, tmp_path / "runs", length._replace(rows=("Mixup", "4 rounds of 4,500 steps")))
    assert not (tmp_path / "runs").exists()


def test_a_row_with_a_length_of_its_own_is_not_taken_for_another(small: Experiment, tmp_path: Path) -> None:
    ups = small.entries[-1]

    def of_its_own(settings: RunSettings) -> RunSettings:
        return settings.replace(config=settings.config.replace(max_rounds=3))

    both = dataclasses.replace(small, entries=(ups, dataclasses.replace(ups, row="own", variant=of_its_own)))
    cells = reproduce(both, tmp_path / "runs", Options(rows=(ups.row,), rounds=1, device="cpu"))
    assert [len(cell.runs) for cell in cells] == [1, 0]
    cells = reproduce(both, tmp_path / "runs", Options(rows=("own",), device="cpu"))
    assert [run.records()[-1].round for run in cells[1].runs] == [3]


def test_runs_of_other_minutes_stay_in_the_table(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "measure", lambda settings, data: Speed(900.0, 800.0))
    monkeypatch.setattr(plans, "cut_to", lambda settings, minutes, *_: Cut(1, round(minutes)))
    out, options = tmp_path / "runs", Options(device="cpu", rows=("UPS",), minutes=3.0)
    reproduce(small, out, options._replace(seeds=(0, 1)))
    other = options._replace(rows=("Supervised",), minutes=4.0)
    cells = reproduce(small, out, other)
    assert [(len(cell.runs), cell.asked_for) for cell in cells] == [(0, True), (1, True), (0, True), (2, False)]
    assert cells[1].cut == "4 steps in place of 2 steps"
    assert cells[3].cut == "1 round of 3 to 4 steps in place of 2 rounds of 2 to 4 steps"
    assert "steps 3 (paper 1024 epochs)" in cells[3].differences
    (written, *_) = write_outcome(small, cells, out)
    lines = [line for line in written.read_text().splitlines() if "cifar10 | 20 |" in line]
    assert [line.count("*") for line in lines] == [0, 0, 0, 1]
    assert OTHERS in written.read_text()
    # Those of the options count where there are some, though another has more seeds.
    cells = reproduce(small, out, other._replace(rows=("UPS",)))
    assert (cells[3].cut[:23], len(cells[3].runs), cells[3].asked_for) == ("1 round of 4 to 6 steps", 1, True)
    assert cells[1].runs
    # Without a limit there is none, and the longest counts.
    (cell,) = (one for one in collect(small, out, Options(device="cpu")) if one.entry.row == "UPS")
    paths = [path.parent for path in (out / "cifar10-20").glob("ups-*/run.json")]
    minutes = {RunFolder.open(path).path: RunFolder.open(path).records()[-1].minutes for path in paths}
    groups = {path.name.split("-")[-2]: [] for path in paths}
    for path, value in minutes.items():
        groups[path.name.split("-")[-2]].append(value)
    longest = max(groups, key=lambda name: sum(groups[name]) / len(groups[name]))
    assert len(groups) == 2
    assert {run.path.name.split("-")[-2] for run in cell.runs} == {longest}


def test_runs_of_another_machine_stay_in_the_table(small: Experiment, tmp_path: Path) -> None:
    reproduce(small, tmp_path, Options(device="cpu", rows=("Supervised",)))
    cell = collect(small, tmp_path, Options(device="cuda"))[1]
    assert (len(cell.runs), cell.asked_for, cell.cut) == (1, False, "")


def test_an_experiment_of_ones_own_is_named_by_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from surelabel.reproduce.cifar import CIFAR10\n"
        "from surelabel.reproduce.entries import Experiment, rows\n"
        "from surelabel.reproduce.paper import UPS\n"
        'TABLE = Experiment("mine", "My table", rows(CIFAR10, 50, UPS))\n'
    )
    assert experiment(f"{tmp_path}/mine.py:TABLE").entries[0].labels == 50
    with pytest.raises(InvalidInputError, match=r"mine.py:UPS' must name a surelabel.*Experiment; got tuple"):
        experiment(f"{tmp_path}/mine.py:UPS")
    assert main(["reproduce", f"{tmp_path}/mine.py:TABLE", "--labels", "7", "--out", str(tmp_path / "runs")]) == 1
    assert "mine has no labels 7 to run; it has 50" in " ".join(capsys.readouterr().err.split())


def test_a_table_of_several_data_sets_has_their_calibration_in_one_figure(small: Experiment, tmp_path: Path) -> None:
    store(tmp_path / "data" / "cifar100", small_set(per_batch=40, num_classes=100))
    other = dataclasses.replace(CIFAR100, fast=tiny)
    both = Experiment("both", "Both", rows(SMALL, 20, paper.UPS) + rows(other, 100, paper.UPS))
    cells = reproduce(both, tmp_path / "runs", Options(device="cpu"))
    written = write_outcome(both, cells, tmp_path / "runs")
    folders = [path.parent.name for path in written[1:]]
    assert folders == ["both-cifar10-20", "both-cifar100-100", "both-cifar10-and-cifar100"]
    text = (tmp_path / "runs" / folders[-1] / "figure-1-a.svg").read_text()
    assert ">cifar10, 20 labeled<" in text
    assert ">cifar100, 100 labeled<" in text


def test_labels_are_written_as_they_are_read() -> None:
    assert [parse_labels(labels_text(labels)) for labels in (250, 0.2, 0.5, 1.0)] == [250, 0.2, 0.5, 1.0]
    with pytest.raises(InvalidInputError, match="500, or a share, 20%; got 'x%'"):
        parse_labels("x%")


NETS = """
from torch import nn
from surelabel.models.pretrained import load_pretrained

def make(sample_shape, num_classes, *, dropout, width, pretrained=None):
    layers = nn.Sequential(nn.Flatten(), nn.Linear(3072, width), nn.Dropout(dropout), nn.Linear(width, num_classes))
    if pretrained is not None:
        load_pretrained(layers, pretrained, last="3")
    return layers
"""


def of_file(folder: Path, **config: float) -> Experiment:
    """UPS with data and a network of a file in the folder, as `reproduce mine.py:TABLE` has it."""
    folder.mkdir()
    more = "\nfrom surelabel.data.sets import cifar10 as data\n"
    (folder / "mine.py").write_text(NETS + more)

    def recipe(*given: Any) -> RunSettings:
        fast = tiny(*given)
        assert isinstance(fast.learner, TorchLearnerSettings)
        training = fast.learner.training.replace(channels_last=False)
        learner = fast.learner.replace(model=f"{folder}/mine.py:make", training=training)
        return fast.replace(learner=learner, config=fast.config.replace(**config))

    dataset = dataclasses.replace(CIFAR10, name="mine", function=f"{folder}/mine.py:data", fast=recipe)
    return Experiment("my/table", "Mine", rows(dataset, 20, paper.UPS))


@pytest.mark.usefixtures("small")
def test_runs_of_a_file_before_and_after_a_change_are_not_averaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine, out, results = of_file(tmp_path / "mine"), tmp_path / "runs", tmp_path / "runs.csv"
    file, options = tmp_path / "mine" / "mine.py", Options(device="cpu")
    (first,) = reproduce(mine, out, options._replace(seeds=(0, 1)), results=results)
    assert (len(first.runs), first.asked_for) == (2, True)
    file.write_text(file.read_text().replace("nn.Linear(3072, width)", "nn.Linear(3072, width, bias=False)"))
    (still,) = reproduce(mine, out, options, results=results)
    assert (len(still.runs), still.asked_for) == (2, False)
    assert f"The run in '{first.runs[0].path}' is of your files as they were; remove it" in caplog.text
    (after,) = reproduce(mine, out, options._replace(seeds=(2,)), results=results)
    assert ([run.settings.config.seed for run in after.runs], after.asked_for) == ([2], True)
    by_seed = {row["seed"]: row["settings"] for row in read_rows(results)}
    assert by_seed["0"] == by_seed["1"] != by_seed["2"]
    # Another copy of the same file finds them.
    moved = of_file(tmp_path / "moved")
    (tmp_path / "moved" / "mine.py").write_text(file.read_text())
    (cell,) = collect(moved, out, options._replace(seeds=(2,)))
    assert ([run.settings.config.seed for run in cell.runs], cell.asked_for) == ([2], True)


def test_the_content_of_each_file_tells_runs_apart(tmp_path: Path) -> None:
    mine = of_file(tmp_path / "mine")
    (tmp_path / "data.py").write_text("from surelabel.data.sets import cifar10 as data")
    (tmp_path / "layer.py").write_text("from torch.nn import Dropout as Layer")
    base = plans.Plans(None, Options(device="cpu")).settings(mine.entries[0], 0)
    learner = base.network.replace(stochastic_layers=(f"{tmp_path}/layer.py:Layer",), layer_hashes=(), model_hash=None)
    data = base.data.replace(function=f"{tmp_path}/data.py:data")
    settings = base.replace(learner=learner, data=data)
    before = code_of(settings.pinned())
    for file in ("data.py", "mine/mine.py", "layer.py"):
        with (tmp_path / file).open("a") as opened:
            opened.write("\n# edited\n")
        after = code_of(settings.pinned())
        assert len(set(after) - set(before)) == 1
        before = after


@pytest.mark.usefixtures("small")
def test_a_run_that_cannot_go_on_with_a_changed_file_is_named(tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    mine, out = of_file(tmp_path / "mine"), tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        reproduce(mine, out, Options(device="cpu"), progress=stop)
    with (tmp_path / "mine" / "mine.py").open("a") as file:
        file.write("# edited\n")
    with pytest.raises(ChangedFileError, match=r"mine.py' has changed since the run began") as caught:
        reproduce(mine, out, Options(device="cpu"))
    (run,) = (path.parent for path in out.glob("*/*/run.json"))
    assert caught.value.__notes__ == [f"to begin this run again, remove '{run}'"]
    shutil.rmtree(run)
    (cell,) = reproduce(mine, out, Options(device="cpu"))
    assert len(cell.runs) == 1


@pytest.mark.usefixtures("small")
def test_code_that_the_command_names_itself_needs_no_signature(tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    mine, out, results = of_file(tmp_path / "mine"), tmp_path / "runs", tmp_path / "runs.csv"
    with pytest.raises(KeyboardInterrupt):
        reproduce(mine, out, Options(device="cpu"), progress=stop)
    (file,) = out.glob("*/*/run.json")
    content = read_json(file)
    del content["signature"]
    mark, foreign = tmp_path / "mark", json.loads(json.dumps(content))
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    foreign["settings"]["learner"]["model"] = f"{tmp_path}/evil.py:make"
    write_json(file, foreign)
    with pytest.raises(UntrustedCodeError, match=rf"'{file}' names the code '{tmp_path}/evil.py:make'") as caught:
        reproduce(mine, out, Options(device="cpu"))
    assert caught.value.__notes__ == [f"to begin this run again, remove '{file.parent}'"]
    assert not mark.exists()
    write_json(file, content)
    (cell,) = reproduce(mine, out, Options(device="cpu"), results=results)
    (run,) = cell.runs
    assert run.trust_code
    assert not RunFolder.open(run.path).trust_code
    assert len(read_rows(results)) == 1


ESTIMATOR = """
import torch
from surelabel.uncertainty import Uncertainty, UncertaintyEstimator

class Mine(UncertaintyEstimator):
    def estimate(self, model, batch, *, check=False):
        p = torch.softmax(model(batch), dim=1)
        return Uncertainty(p=p, u=LEVEL * p, p_soft=p, u_soft=LEVEL * p)
"""


def test_estimators_of_one_name_and_other_content_make_runs_of_their_own(small: Experiment, tmp_path: Path) -> None:
    for folder, level in (("a", 0.5), ("b", 0.25)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(ESTIMATOR.replace("LEVEL", str(level)))
    options, out = Options(device="cpu", rows=("UPS",)), tmp_path / "runs"
    first, second = (
        reproduce(small, out, options._replace(uncertainty=f"{folder}/mine.py:Mine"))[-1] for folder in ("a", "b")
    )
    assert [len(cell.runs) for cell in (first, second)] == [1, 1]
    assert first.runs[0].path != second.runs[0].path
    assert "uncertainty mine.py:Mine (paper mc-dropout)" in second.differences
    assert not [text for text in second.differences if "hash" in text]
    with_minutes = [
        plans.Plans(None, options._replace(uncertainty=f"{folder}/mine.py:Mine", minutes=1.0)) for folder in ("a", "b")
    ]
    keys = {plans._key(plan._timed(small.entries[-1]), 1.0) for plan in with_minutes}
    assert len(keys) == 2  # one may be slower
    (tmp_path / "b" / "mine.py").write_text(ESTIMATOR.replace("LEVEL", "0.125"))
    edited = collect(small, out, options._replace(uncertainty="b/mine.py:Mine"))[-1]
    assert (bool(edited.runs), edited.asked_for) == (True, False)
    (tmp_path / "b" / "mine.py").write_text((tmp_path / "a" / "mine.py").read_text())
    again = reproduce(small, out, options._replace(uncertainty="b/mine.py:Mine"))[-1]
    assert [run.path for run in again.runs] == [run.path for run in first.runs]


def test_every_row_is_asked_whether_its_thresholds_have_uncertainties(small: Experiment) -> None:
    one = dataclasses.replace(small.entries[-1], row="UPS, no UA", variant=variants.confidence_based)
    both = dataclasses.replace(small, entries=(small.entries[-1], one))  # the last row has nothing against it
    with pytest.raises(InvalidInputError, match="leaves nothing for kappa_p and kappa_n to judge"):
        check_request(both, Options(device="cpu", uncertainty="none"))


def weights_file(path: Path, features: int = 3072) -> str:
    shapes = {"1.weight": (4, features), "1.bias": (4,), "3.weight": (7, 4), "3.bias": (7,)}
    torch.save({name: torch.ones(shape) for name, shape in shapes.items()}, path)
    return str(path)


def test_runs_belong_to_the_content_of_the_weights_that_they_begin_with(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pth"

    def begun(path: Path) -> RunSettings:
        options = Options(device="cpu", pretrained=str(path))
        return plans.Plans(None, options).settings(experiment("table4").entries[0], 0)

    found = []
    for content in (b"one", b"other"):
        weights.write_bytes(content)
        settings = begun(weights)
        assert isinstance(settings.learner, TorchLearnerSettings)
        assert settings.learner.model_parameters == {"dropout": 0.3, "pretrained": str(weights)}
        assert settings.learner.pretrained_hash == file_hash(weights)
        found.append((settings_hash(settings), plans._key(settings, 1.0)))
    (tmp_path / "elsewhere").mkdir()
    moved = begun(weights.rename(tmp_path / "elsewhere" / weights.name))
    assert not set(found[0]) & set(found[1])
    assert (settings_hash(moved), plans._key(moved, 1.0)) == found[1]


def test_weights_that_do_not_fit_are_refused_before_there_is_a_run(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, out = of_file(tmp_path / "mine"), tmp_path / "runs"
    options = Options(device="cpu", pretrained=weights_file(tmp_path / "other.pth", features=27))
    with pytest.raises(InvalidInputError, match=r"other.pth' do not fit the network: of another shape: 1.weight"):
        reproduce(mine, out, options)
    assert not out.exists()
    right = options._replace(pretrained=weights_file(tmp_path / "right.pth"))
    (cell,) = reproduce(mine, out, right)
    assert "pretrained right.pth (paper None)" in cell.differences
    # A network that takes none is told before data are loaded, and so is a file that is not there.
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InvalidInputError, match="cnn13' cannot be made with model_parameters=.*'pretrained'"):
        reproduce(small, tmp_path / "others", right)
    with pytest.raises(InvalidInputError, match=r"gone.pth', which cannot be read"):
        reproduce(mine, tmp_path / "others", right._replace(pretrained="gone.pth"))
    assert not (tmp_path / "others").exists()
    assert main(["reproduce", "table4", "--pretrained", str(tmp_path / "nowhere.pth")]) == 2


def test_another_copy_of_the_file_finds_its_runs(small: Experiment, tmp_path: Path) -> None:
    results, out, options = tmp_path / "results" / "runs.csv", tmp_path / "runs", Options(device="cpu")
    (cell,) = reproduce(of_file(tmp_path / "one"), out, options, results=results)
    other = of_file(tmp_path / "other")
    (found,) = collect(other, out, options)
    assert [run.path for run in found.runs] == [run.path for run in cell.runs]
    assert found.asked_for
    assert reproduce(other, out, options)[0].runs[0].path == cell.runs[0].path
    data, learner = cell.runs[0].settings.data, cell.runs[0].settings.learner
    assert isinstance(data, FunctionData)
    assert isinstance(learner, TorchLearnerSettings)
    assert data.sha256 == learner.model_hash == file_hash(tmp_path / "one" / "mine.py")
    (kept,) = results.parent.glob("*.json")
    assert str(tmp_path) not in kept.read_text()
    assert json.loads(kept.read_text())["UPS"]["data"]["function"] == "mine.py:data"
    timed = [plans.Plans(None, options)._timed(one.entries[0]) for one in (other, of_file(tmp_path / "third"))]
    assert len({plans._key(settings, 1.0) for settings in timed}) == 1
    # Its name is no path.
    assert kept.name.startswith("my-table-")
    assert write_outcome(other, [cell], out)[0] == out / "my-table.md"


WITHOUT_TEST = """
import dataclasses
from surelabel.data.sets import cifar10

def data(**arguments):
    return dataclasses.replace(cifar10(**arguments), test=None)

def several(**arguments):
    return dataclasses.replace(cifar10(**arguments), task="multi")
"""


def test_a_metric_that_the_data_cannot_have_is_refused_before_training(small: Experiment, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WITHOUT_TEST)
    without, several = (
        dataclasses.replace(SMALL, function=f"{tmp_path}/mine.py:{name}") for name in ("data", "several")
    )
    cases: list[tuple[DataSet, Metric, str]] = [
        (SMALL, "mAP", "metric='mAP', and the data set 'cifar10' has task='single'; use metric='error' or 'accuracy'"),
        (
            several,
            "accuracy",
            "metric='accuracy', and the data set 'cifar10' has task='multi'; use metric='mAP'",
        ),
        (several, "validation error", "task='multi'; use metric='mAP'"),
        (SMALL, "validation error", "no validation samples; let '.*cifar10' return some.* set num_validation"),
        (without, "error", r"no test samples; let '.*mine.py:data' return some as RunData\(test="),
    ]
    for dataset, metric, message in cases:
        mine = Experiment("mine", "Mine", rows(dataset, 20, paper.UPS), metric)
        with pytest.raises(InvalidInputError, match=message):
            reproduce(mine, tmp_path / "runs", Options(device="cpu"))
    assert not (tmp_path / "runs").exists()
    trial = Experiment("mine", "Mine", rows(without, 20, paper.SUPERVISED, num_validation=10), "validation error")
    assert reproduce(trial, tmp_path / "runs", Options(device="cpu"))[0].value("validation error") is not None


def test_wrong_use_leaves_what_is_there_alone(
    small: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["reproduce", "small", "--rows", "Supervised", "--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main(words) == 0
    table = tmp_path / "runs" / "small.md"
    table.write_text("mine")
    both = ["--results", "mine.csv", "--no-results"]
    for wrong in (
        ["--labels", "33%"],
        ["--budget", "-1"],
        ["--rows", "FixMatch"],
        ["--seed", "0", "--seed", "0"],
        ["--uncertainty", "mine.py:Mine"],
        both,
    ):
        capsys.readouterr()
        assert main([*words, *wrong]) == 1
        shown = capsys.readouterr()
        assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert table.read_text() == "mine"
    # What fails while the table is shown does not hide why the command failed.
    table.unlink()
    table.mkdir()
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "nowhere"))
    capsys.readouterr()
    assert main([*words, "--seed", "1"]) == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert "warning: the finished runs cannot be shown: " in shown
    assert "error: " in shown
    assert "surelabel data get cifar10" in shown


def test_a_damaged_run_does_not_stop_other_rows(
    small: Experiment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, options = tmp_path / "runs", Options(device="cpu", rows=("Supervised",))
    broken = reproduce(small, out, options)[1].runs[0]
    (broken.path / "run.json").write_text("{")
    cells = reproduce(small, out, options._replace(rows=("UPS",)))
    assert [len(cell.runs) for cell in cells] == [0, 0, 0, 1]
    assert f"The run in '{broken.path}' is left out: File " in caplog.text
    with pytest.raises(DamagedFileError, match=r"run.json' is damaged"):
        reproduce(small, out, options)


STRANGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "a table": lambda settings: settings.update(data={"kind": "table", "path": "/nowhere/a.csv"}),
    "no data": lambda settings: settings.update(data=None),
    "a classifier": lambda settings: settings.update(learner={"kind": "sklearn", "estimator": "sklearn.svm:SVC"}),
    "a reference of another form": lambda settings: settings["learner"].update(model="a b:c d"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_run_of_no_experiment_does_not_stop_other_rows(
    small: Experiment, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    options = Options(device="cpu", rows=("Supervised",))
    strange = reproduce(small, tmp_path, options)[1].runs[0].path
    change_settings(strange, STRANGE[kind])
    assert [len(cell.runs) for cell in collect(small, tmp_path, options)] == [0, 0, 0, 0]
    assert f"The run in '{strange}' is left out: " in caplog.text


def test_no_file_that_a_run_names_is_opened_to_compare_it(
    small: Experiment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = Options(device="cpu", rows=("Supervised",))
    strange = reproduce(small, tmp_path, options)[1].runs[0].path
    parameters = {"pretrained": f"{tmp_path}/gone.pth"}
    change_settings(
        strange,
        lambda settings: settings["learner"].update(
            model=f"{tmp_path}/gone.py:make", model_hash=None, model_parameters=parameters
        ),
    )
    assert [len(cell.runs) for cell in collect(small, tmp_path, options)] == [0, 0, 0, 0]
    assert "left out" not in caplog.text


def change_settings(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((run / "run.json").read_text())
    content.pop("checksum")
    change(content["settings"])
    write_json(run / "run.json", content)


def test_a_share_that_is_no_round_number_is_chosen_as_it_is_listed() -> None:
    thirds = Experiment("thirds", "Thirds", rows(UCF101, 1 / 3, paper.UPS) + rows(UCF101, 0.5, paper.UPS))
    with pytest.raises(InvalidInputError, match=r"thirds has no labels 33 % to run; it has 33.3333 %; 50 %"):
        chosen(thirds, Options(labels=(parse_labels("33%"),)))
    (entry,) = chosen(thirds, Options(labels=(parse_labels("33.3333 %"),)))
    assert entry.labels == 1 / 3


def test_speed_is_measured_on_the_rows_own_network(small: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """And on batches that are as large as in most rounds, however few labels there are."""
    learned_from: list[int] = []
    fit = TorchLearner.fit
    monkeypatch.setattr(
        TorchLearner,
        "fit",
        lambda self, training_set, seed: (
            learned_from.append(training_set.num_labeled) or fit(self, training_set, seed=seed)
        ),
    )
    settings = small.entries[3].base(0, "fast")
    assert isinstance(settings.learner, TorchLearnerSettings)
    training = settings.learner.training.replace(precision="float32")
    settings = settings.replace(learner=settings.learner.replace(device="cpu", training=training))
    assert settings.data is not None
    data = settings.data.load()
    speed = plans.measure(settings, data)
    assert data.unlabeled is not None
    assert set(learned_from) == {len(data.labeled[1]) + len(data.unlabeled)}
    assert min(speed) > 0


def test_unknown_rows_and_numbers_are_named() -> None:
    with pytest.raises(InvalidInputError, match="has no rows FixMatch to run; it has .*UPS"):
        chosen(experiment("table5"), Options(rows=["FixMatch"]))
    with pytest.raises(InvalidInputError, match="has no labels 7 to run; it has 1000; 4000"):
        chosen(experiment("table5"), Options(labels=[7]))
    with pytest.raises(InvalidInputError, match="has no data voc2007 to run; it has cifar10; cifar100."):
        chosen(experiment("table1"), Options(datasets=["voc2007"]))
    (entry,) = chosen(experiment("table1"), Options(rows=["UPS"], labels=[4000], datasets=["cifar10"]))
    assert (entry.row, entry.dataset.name, entry.labels) == ("UPS", "cifar10", 4000)
    with pytest.raises(InvalidInputError, match="no experiment 'table9'; there are table1, "):
        experiment("table9")


def test_the_command_shows_the_papers_figures_beside_ours(
    small: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "small", "--rows", "UPS", "--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "not run" in shown
    assert "8.14" in shown
    written = (tmp_path / "runs" / "small.md").read_text()
    assert "| Other | cifar10 | 20 | 12.50 ± 0.50 | not run |  |" in written
    assert "steps 2 (paper 1024 epochs)" in written
    assert "*" not in written.split("**")[0]
    assert (tmp_path / "runs" / "small-cifar10-20" / "figures.md").exists()
    assert list((tmp_path / "runs" / "small-cifar10-20").glob("figure-3-*.svg"))


@pytest.mark.parametrize("words", [[], ["--results", "mine.csv"], ["--no-results"]])
def test_every_run_adds_its_row_to_the_results(words: list[str], small: Experiment, own_folder: Path) -> None:
    assert main(["reproduce", "small", "--rows", "UPS", "--device", "cpu", *words]) == 0
    found = {path.name: [row["row"] for row in read_rows(path)] for path in own_folder.rglob("*.csv")}
    assert found == ({} if "--no-results" in words else {words[-1] if words else "runs.csv": ["UPS"]})


def test_without_a_name_the_command_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in EXPERIMENTS)
