"""Methods at equal minutes: their settings, the planning of their minutes, and all of their rows on small pictures."""

import dataclasses
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from cifar_support import small_set

from surelabel.cli import main
from surelabel.data.images import store
from surelabel.data.run_data import FunctionData
from surelabel.data.training_set import make_problem
from surelabel.errors import InvalidInputError
from surelabel.reproduce import plans
from surelabel.reproduce.cifar import CIFAR10, best_recipe, fast_recipe
from surelabel.reproduce.entries import Entry, Experiment
from surelabel.reproduce.experiment import WHOLE_MINUTES, check_request, chosen, reproduce
from surelabel.reproduce.methods import HELD_OUT, METHOD_TRIALS, METHODS, OURS, TRIED, Alone
from surelabel.reproduce.outcome import write_outcome
from surelabel.reproduce.paper import EXPERIMENTS, experiment
from surelabel.reproduce.plans import MARGIN, Cut, Options, Speed, batch_of, measure
from surelabel.reproduce.results import read_rows
from surelabel.reproduce.voc2007 import VOC2007
from surelabel.runs.files import read_json, write_json
from surelabel.settings import RunSettings

pytestmark = pytest.mark.usefixtures("own_folder", "undrawn")

SPEED = Speed(90_000.0, 50_000.0)
ROWS = tuple(dict.fromkeys(entry.row for entry in METHODS.entries))
IN_ROUNDS = "Pseudo-labeling", "UPS", OURS
ALONE = [row for row in TRIED if row not in ("Supervised", *IN_ROUNDS)]


def tiny(*given: Any, **more: Any) -> RunSettings:
    """The fast recipe with a narrow network, and thresholds that most labels pass."""
    fast = fast_recipe(*given, **more)
    learner = fast.network.replace(model_parameters={"dropout": 0.3, "width": 4}, threads=1)
    fast = fast.replace(learner=learner, config=fast.config.replace(tau_p=0.1, kappa_p=1.0, balance=None))
    return fast.with_training(batch_size=8, negative_batch_size=4, learning_rate=0.05)


def tiny_best(*given: Any, **more: Any) -> RunSettings:
    """The best recipe with the same network, and thresholds that most labels pass."""
    best = best_recipe(*given, **more)
    learner = best.network.replace(model_parameters={"dropout": 0.0, "width": 4}, threads=1)
    best = best.replace(learner=learner, config=best.config.replace(tau_p=0.1, kappa_p=1.0, balance=None))
    return best.with_training(batch_size=8, labeled_batch_size=4, learning_rate=0.05)


def small(whole: Experiment, num_validation: int = 0) -> Experiment:
    """The experiment with 20 labels of a small CIFAR-10."""
    dataset = dataclasses.replace(CIFAR10, fast=tiny, best=tiny_best)
    changes = {"dataset": dataset, "labels": 20, "num_validation": num_validation}
    entries = tuple(dataclasses.replace(entry, **changes) for entry in whole.entries if entry.labels == 1000)
    return dataclasses.replace(whole, entries=entries)


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small CIFAR-10 in a folder of its own."""
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "data"))
    store(tmp_path / "data" / "cifar10", small_set(per_batch=12))


@pytest.fixture
def three_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of three steps, and of one round where there are rounds, whatever the minutes are."""
    monkeypatch.setattr(plans, "measure", lambda *_: SPEED)
    monkeypatch.setattr(plans, "cut_to", lambda settings, *_: Cut(min(1, settings.config.max_rounds), 3))


def test_the_rows_are_those_that_are_compared() -> None:
    assert (
        *("Supervised", "Pseudo-labeling", "UPS", "Pi-model", "Mean Teacher", "ICT", "MixMatch"),
        *("FixMatch", "FlexMatch", "FreeMatch", "SoftMatch", "UPS + consistency"),
    ) == ROWS
    assert [(row, len(tried)) for row, tried in TRIED.items()] == [(row, 2) for row in ROWS]
    assert {EXPERIMENTS[name] for name in ("methods", "method-trials")} == {METHODS, METHOD_TRIALS}


def test_published_figures_are_those_of_the_papers_tables_for_this_network() -> None:
    names = {"Pseudo-labeling": "UPS, no selection", "Mean Teacher": "MeanTeacher"}
    own = {(entry.row, entry.labels): entry.paper for entry in experiment("table5").entries}
    cited = {(e.row, e.labels): e.paper for e in experiment("table1").entries if e.dataset == CIFAR10}
    for entry in METHODS.entries:
        # The main table has UPS's mean of three runs, and the ablation one of them.
        assert entry.paper == (own | cited).get((names.get(entry.row, entry.row), entry.labels))


@pytest.mark.parametrize("row", ROWS)
def test_rows_differ_in_how_they_learn_alone(row: str) -> None:
    entry = next(entry for entry in METHODS.entries if entry.row == row)
    ours, base = entry.of(entry.base(0, entry.recipe or "fast")), entry.base(0, "fast")
    fast = base.network
    assert ours.data == base.data
    assert ours.network.model == fast.model
    assert ours.network.training.augment == fast.training.augment
    assert (ours.network.training.precision, ours.network.training.channels_last) == ("bfloat16", True)
    assert ours.config.max_rounds == (1 if row == OURS else 6 if row in IN_ROUNDS else 0)


def test_the_settings_that_are_tried_differ_and_never_see_a_test_picture() -> None:
    settings = [entry.of(entry.base(0, entry.recipe or "fast")) for entry in METHOD_TRIALS.entries]
    assert len({one.replace(name="").model_dump_json() for one in settings}) == len(settings) == 24
    for one in settings:
        assert isinstance(one.data, FunctionData)
        assert one.data.arguments == {"seed": 0, "labels": 1000, "num_validation": HELD_OUT, "test": False}
    entries = [entry for entry in METHODS.entries if entry.labels == 1000]
    compared = {entry.row: entry.of(entry.base(0, entry.recipe or "fast")) for entry in entries}
    for row, tried in TRIED.items():
        (first, *_) = (one for one in settings if one.name == f"{row}, {next(iter(tried))}")
        assert first.replace(name=row, data=compared[row].data) == compared[row]


def test_our_own_row_is_that_of_the_best_recipe_and_of_no_other() -> None:
    table1 = experiment("table1")
    of = {
        recipe: {entry.row for entry in chosen(table1, Options(recipe=recipe))} for recipe in ("paper", "fast", "best")
    }
    assert of == {"paper": {"UPS"}, "fast": {"UPS", OURS}, "best": {OURS}}
    with pytest.raises(InvalidInputError, match="table5 has no rows by the recipe 'best'"):
        chosen(experiment("table5"), Options(recipe="best"))
    entry = next(entry for entry in table1.entries if entry.row == OURS)
    plan = plans.Plans(None, Options(recipe="best", device="cpu"))
    settings = plan.settings(entry, 3)
    assert plans.Plans(None, Options(device="cpu")).settings(entry, 3) == settings
    assert (settings.name, settings.network.method, settings.config.max_rounds) == (OURS, "teacher-match", 1)
    with pytest.raises(InvalidInputError, match="'voc2007' has no recipe 'best'"):
        Entry(OURS, VOC2007, 500, recipe="best").base(0, "best")


def test_a_round_of_our_own_row_follows_a_network_that_got_half_of_the_minutes() -> None:
    entry = next(entry for entry in METHODS.entries if entry.row == OURS)
    timed = plans.Plans(None, Options(minutes=4.0, device="cpu"))._timed(entry)
    cut = plans.cut_to(timed, 4.0, SPEED, 49_000)
    assert cut.max_rounds == 1
    trained = 2 * cut.steps * batch_of(timed) / SPEED.training
    assert trained + 2 * 49_000 / SPEED.labeling == pytest.approx(240 * MARGIN, rel=1e-3)


def test_a_budget_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("methods", "method-trials"):
        with pytest.raises(InvalidInputError, match=f"The rows of {name} are compared at equal minutes; .* --budget 4"):
            check_request(EXPERIMENTS[name], Options())
        assert check_request(EXPERIMENTS[name], Options(minutes=1.0))
    assert main(["reproduce", "methods"]) == 1
    assert "--budget 4" in capsys.readouterr().err


@pytest.mark.parametrize("row", ["Supervised", *ALONE])
def test_a_method_alone_has_all_of_the_minutes_for_one_network(row: str) -> None:
    entry = next(entry for entry in METHODS.entries if entry.row == row)
    timed = plans.Plans(None, Options(minutes=4.0, device="cpu"))._timed(entry)
    cut = plans.cut_to(timed, 4.0, SPEED, 49_000)
    assert cut.max_rounds == 0
    trained = cut.steps * batch_of(timed) / SPEED.training
    assert trained + 49_000 / SPEED.labeling == pytest.approx(240 * MARGIN, rel=1e-3)
    # What is planned is what a run takes.
    learner = cut.apply(timed).network
    method = learner.make_method()("single", learner.training)
    assert method.samples_in_round(1000, 0, 0, 0, 49_000)[1] == cut.steps * batch_of(timed)


@pytest.mark.usefixtures("pictures", "ticking")
@pytest.mark.parametrize("row", ALONE)
def test_what_is_measured_are_the_samples_of_the_methods_own_steps(row: str) -> None:
    (entry,) = (one for one in small(METHODS).entries if one.row == row)
    timed = plans.Plans(None, Options(minutes=1.0, device="cpu"))._timed(entry)
    assert timed.data is not None
    data = timed.data.load()
    learner = timed.network.build("single")
    rows = make_problem(data.labeled, data.unlabeled, "single").training_set(None)
    sizes = [stream.size for stream in learner.method(rows, shared=True).streams(rows)]
    # All of the 60 pictures are labeled for it, and there is no pool: two steps, in a second.
    assert measure(timed, data) == Speed(2 * (60 + 60), 40)
    assert sizes == [20, 40]


@pytest.mark.usefixtures("pictures", "three_steps")
def test_all_rows_are_run_and_recorded_with_their_budget(tmp_path: Path) -> None:
    out, results, options = tmp_path / "runs", tmp_path / "runs.csv", Options(device="cpu", minutes=4.0)
    cells = reproduce(small(METHODS), out, options, results=results)
    assert [len(cell.runs) for cell in cells] == [1] * len(ROWS)
    found = [row for row in read_rows(results) if row["metric"] == "test error %"]
    assert tuple(row["row"] for row in found) == ROWS
    assert [row["row"] for row in found if row["rounds"] == "1"] == list(IN_ROUNDS)
    assert {row["images_seen"] for row in found if row["row"] in ALONE} == {str(3 * (20 + 40))}
    for row in found:
        settings = json.loads((tmp_path / row["settings"]).read_text())[row["row"]]
        assert settings["budget"] == 4.0
        assert settings["learner"]["training"]["steps"] == 3
    text = write_outcome(small(METHODS), cells, out)[0].read_text()
    assert "| ICT | cifar10 | 20 | 15.48 ± 0.78 |" in text
    assert "method ict (paper" not in text  # the paper's recipe has it in this row too
    # Nothing is left to do, and nothing to be recorded.
    reproduce(small(METHODS), out, options, results=results)
    assert [row for row in read_rows(results) if row["metric"] == "test error %"] == found


@pytest.mark.usefixtures("pictures", "three_steps")
def test_rows_that_are_broken_off_go_on_one_after_another(tmp_path: Path) -> None:
    def recipe(*given: Any, **more: Any) -> RunSettings:
        return tiny(*given, **more).replace(checkpoint_minutes=0.0)

    dataset = dataclasses.replace(CIFAR10, fast=recipe)
    some = [dataclasses.replace(one, dataset=dataset) for one in small(METHODS).entries]
    one, rows = dataclasses.replace(METHODS, entries=tuple(some)), ("Mean Teacher", "FreeMatch")
    options = Options(device="cpu", minutes=4.0, rows=rows)
    for row, out in itertools.product(rows, ("broken", "whole")):

        def stop(what: str, done: int, total: int, row: str = row, out: str = out) -> None:
            if out == "broken" and what.startswith(row) and " 2/3" in what:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt) if out == "broken" else pytest.MonkeyPatch.context():
            reproduce(one, tmp_path / out, options._replace(rows=(row,)), progress=stop)
    assert len(list((tmp_path / "broken").rglob("checkpoint.bin"))) == 2
    broken, whole = (reproduce(one, tmp_path / out, options) for out in ("broken", "whole"))
    pairs = [(ours.runs[0], other.runs[0]) for ours, other in zip(broken, whole, strict=True) if other.runs]
    assert len(pairs) == 2
    assert all(ours.model_bytes() == other.model_bytes() for ours, other in pairs)


@pytest.mark.usefixtures("pictures", "three_steps")
def test_settings_are_tried_on_held_out_training_pictures(tmp_path: Path) -> None:
    results, trials = tmp_path / "runs.csv", small(METHOD_TRIALS, num_validation=20)
    options = Options(device="cpu", minutes=1.5, rows=[e.row for e in trials.entries if e.row.startswith("MixMatch")])
    cells = [cell for cell in reproduce(trials, tmp_path / "runs", options, results=results) if cell.runs]
    assert [cell.entry.row for cell in cells] == ["MixMatch, weight 75", "MixMatch, weight 15"]
    scores = [row for row in read_rows(results) if row["metric"] == "validation error %"]
    for row, cell in zip(scores, cells, strict=True):
        (record,) = cell.runs[0].records()
        assert record.test_score is None
        assert (row["validation_labels"], row["labels"]) == ("20", "20")
        assert float(row["value"]) == pytest.approx(100 * (1 - record.validation_score))  # type: ignore[operator]
    text = write_outcome(trials, cells, tmp_path / "runs")[0].read_text()
    assert text.splitlines()[2].startswith("Validation error in %, the last network's")


@pytest.mark.usefixtures("pictures", "three_steps")
def test_each_row_is_planned_when_the_rows_before_it_are_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def measure(settings: RunSettings, _: object) -> Speed:
        if measured == ["FixMatch"]:
            raise KeyboardInterrupt
        measured.append(settings.name)
        return SPEED

    monkeypatch.setattr(plans, "measure", measure)
    results, rows = tmp_path / "runs.csv", ("FixMatch", "SoftMatch")
    told: list[tuple[str, int, int]] = []
    with pytest.raises(KeyboardInterrupt):
        reproduce(
            small(METHODS),
            tmp_path / "runs",
            Options(device="cpu", minutes=4.0, rows=rows),
            progress=lambda *state: told.append(state),
            results=results,
        )
    assert {row["row"] for row in read_rows(results)} == {"FixMatch"}
    assert told[0] == ("FixMatch, cifar10: measuring the speed", 0, 2)
    assert told[-1] == ("SoftMatch, cifar10: measuring the speed", 1, 2)


@pytest.mark.usefixtures("pictures", "three_steps")
def test_progress_ends_at_its_total_if_rows_share_a_plan_with_fewer_rounds(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    options = Options(device="cpu", minutes=4.0, rows=("Pseudo-labeling", "UPS"))
    reproduce(small(METHODS), tmp_path / "runs", options, progress=lambda *state: told.append(state))
    assert told[0][1:] == (0, 14)  # the recipe's six rounds and round 0 of both, before they are planned
    assert told[-1][1:] == (4, 4)


@pytest.mark.usefixtures("pictures", "three_steps")
def test_the_minutes_of_everything_are_recorded_of_runs_that_began_in_this_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times(name: str, **more: Any) -> list[tuple[str, float, float]]:
        results = tmp_path / f"{name}.csv"
        options = Options(device="cpu", minutes=4.0, rows=("FixMatch", "SoftMatch"))
        reproduce(small(METHODS), tmp_path / "runs", options._replace(**more), results=results)
        found = {row["row"]: row for row in read_rows(results) if row["metric"] == WHOLE_MINUTES}
        return [(row, float(cells["value"]), float(cells["minutes"])) for row, cells in found.items()]

    def slow(*_: object) -> Speed:
        time.sleep(0.3)
        return SPEED

    monkeypatch.setattr(plans, "measure", slow)
    (row, whole, trained), (other, *_) = times("first")
    assert (row, other) == ("FixMatch", "SoftMatch")
    assert whole > trained + 0.3 / 60
    assert times("again") == []  # the runs were there


def plan_of(path: Path, minutes: float, entry: Entry) -> Cut:
    settings = plans.Plans(path, Options(minutes=minutes, device="cpu")).settings(entry, 0)
    return Cut(settings.config.max_rounds, settings.network.training.steps or 0)


@pytest.mark.usefixtures("pictures")
def test_other_minutes_are_planned_by_the_speed_that_was_measured_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    monkeypatch.setattr(plans, "measure", lambda settings, _: (measured.append(settings.name), SPEED)[1])
    path, (*_, entry, _) = tmp_path / "plans.json", small(METHODS).entries
    first, second = plan_of(path, 1.0, entry), plan_of(path, 2.0, entry)
    assert second.steps == pytest.approx(2 * first.steps, abs=1)
    assert measured == ["SoftMatch"]
    other = dataclasses.replace(entry, row="other", variant=Alone("softmatch", rate=0.1, parameters={"momentum": 0.9}))
    assert plan_of(path, 1.0, other) == first
    assert measured == ["SoftMatch"]  # whose steps take as long
    kept = read_json(path)
    elsewhere = {"machine": "another"}
    write_json(path, {key: (one | elsewhere if "machine" in one else one) for key, one in kept.items()})
    plan_of(path, 3.0, entry)
    assert measured == ["SoftMatch"] * 2
    # As plans were kept before.
    plain = {key: {name: one[name] for name in ("max_rounds", "steps")} for key, one in kept.items() if "steps" in one}
    write_json(path, plain)
    assert plan_of(path, 1.0, entry) == first
    assert len(measured) == 2


@pytest.mark.usefixtures("pictures")
def test_a_measured_speed_is_kept_if_the_minutes_are_too_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(plans, "measure", lambda settings, _: (measured.append(settings.name), SPEED)[1])
    *_, entry, _ = small(METHODS).entries
    with pytest.raises(InvalidInputError, match="The budget must be at least"):
        plan_of(tmp_path / "plans.json", 1e-6, entry)
    plan_of(tmp_path / "plans.json", 1.0, entry)
    assert measured == ["SoftMatch"]


def test_a_method_alone_is_the_recipes_network_on_the_recipes_views() -> None:
    settings = Alone("mean-teacher", dropout=0.2, average=0.99)(fast_recipe())
    training = settings.network.training
    assert (training.batch_size, training.labeled_batch_size, training.negative_batch_size) == (448, 64, None)
    assert (training.ema_decay, training.round_growth, training.schedule) == (0.99, 1.0, "linear")
    assert settings.network.model_parameters == {"dropout": 0.2}
    assert settings.network.uncertainty == "none"
