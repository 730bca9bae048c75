"""What `reproduce` plans, trains again, shows and records: whole pools, finished rounds, last scores, percents."""

import dataclasses
import functools
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_support import Command
from report_support import scripted_run

from surelabel.errors import InvalidInputError
from surelabel.learners.network import TorchLearner
from surelabel.methods.ups import UPSMethod
from surelabel.reproduce import plans, variants
from surelabel.reproduce.entries import Experiment
from surelabel.reproduce.experiment import reproduce
from surelabel.reproduce.first_selection import NetworkPair, label_figures, selection_figures
from surelabel.reproduce.outcome import collect, percent
from surelabel.reproduce.paper import experiment
from surelabel.reproduce.plans import Cut, Options, Plans, Speed, measure
from surelabel.reproduce.results import read_rows
from surelabel.runs import RunFolder
from tests.reproduce.test_experiment import small as small
from tests.reproduce.test_first_selection import on


def test_the_last_networks_score_is_shown_and_not_the_best(tmp_path: Path) -> None:
    made = scripted_run(tmp_path / "run", held_out=True)
    scores = ({"test accuracy": 0.9, "validation accuracy": 0.8}, {"test accuracy": 0.5, "validation accuracy": 0.25})
    entries = [{**entry, "scores": score} for entry, score in zip(made.entries, scores, strict=True)]
    run = RunFolder(made.path, made.settings, made.version, entries)
    assert [percent(run, metric) for metric in ("error", "accuracy", "validation error")] == [50, 50, 75]


def test_a_run_that_broke_off_is_not_in_the_table(small: Experiment, tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    options = Options(device="cpu", rows=("UPS",))
    with pytest.raises(KeyboardInterrupt):
        reproduce(small, tmp_path / "runs", options, progress=stop)
    (path,) = (tmp_path / "runs" / "cifar10-20").glob("ups-*")
    assert RunFolder.open(path).num_rounds == 2
    assert [len(cell.runs) for cell in collect(small, tmp_path / "runs", options)] == [0, 0, 0, 0]


def test_a_row_of_results_has_the_time_and_samples_of_all_rounds(small: Experiment, tmp_path: Path) -> None:
    results = tmp_path / "runs.csv"
    cells = reproduce(small, tmp_path / "runs", Options(device="cpu", rows=("UPS",), seeds=(3,)), results=results)
    (row,) = read_rows(results)
    records = cells[3].runs[0].records()
    assert float(row["minutes"]) == records[-1].minutes > records[0].minutes
    # 2, 3 and 4 steps (each round half as long again) of 8 samples, and of 4 negatives where there are some.
    assert int(row["images_seen"]) >= (2 + 3 + 4) * 8
    assert (row["seed"], row["rounds"]) == ("3", "2")


def test_minutes_are_planned_for_the_whole_pool(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(plans, "measure", lambda *_: Speed(900.0, 800.0))
    monkeypatch.setattr(plans, "cut_to", lambda settings, minutes, speed, size: (sizes.append(size), Cut(1, 3))[1])
    for labels in (10, 60):  # of 60 pictures; where all are labeled, they are labeled again
        plan = Plans(tmp_path / f"{labels}.json", Options(minutes=1.0, device="cpu"))
        plan.settings(dataclasses.replace(small.entries[1], labels=labels), 0)
    assert sizes == [50, 60]


def test_bfloat16_is_for_gpus_alone(small: Experiment) -> None:
    found = {
        device: Plans(None, Options(device=device)).settings(small.entries[-1], 0).network.training.precision
        for device in ("cpu", "cuda")
    }
    assert found == {"cpu": "float32", "cuda": "bfloat16"}


@pytest.mark.parametrize("estimator", ["mc-dropout", "deep-ensemble"])
def test_speed_is_that_of_the_second_round_and_of_all_members(
    small: Experiment, monkeypatch: pytest.MonkeyPatch, estimator: str
) -> None:
    variant = functools.partial(variants.with_estimator, uncertainty=estimator)
    entry = dataclasses.replace(small.entries[-1], variant=variant)
    settings = Plans(None, Options(device="cpu")).settings(entry, 0)
    clock = iter([0.0, 90.0, 190.0, 200.0, 202.0, 206.0])  # training and labeling: 90 and 100 seconds, then 2 and 4
    monkeypatch.setattr(plans, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    _, samples = UPSMethod("single", settings.network.training.replace(steps=2)).samples_in_round(60, 0, 0, 0)
    assert measure(settings, settings.data.load()) == (settings.network.members * samples / 2, 40 / 4)


def test_finished_rounds_are_not_trained_again(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    options, out = Options(device="cpu", rows=("UPS",)), tmp_path / "runs"
    with pytest.raises(KeyboardInterrupt):
        reproduce(small, out, options, progress=stop)
    shutil.rmtree(out / ".shared")  # else it would give the networks of a run that began anew
    fits: list[int] = []
    fit = TorchLearner.fit
    monkeypatch.setattr(
        TorchLearner, "fit", lambda self, rows, seed: (fits.append(seed), fit(self, rows, seed=seed))[1]
    )
    reproduce(small, out, options)
    assert len(fits) == 1  # of three rounds two were there


def test_first_selections_are_recorded_in_percent_beside_the_papers(tmp_path: Path) -> None:
    runs = (scripted_run(tmp_path / str(one), one_pass=one) for one in (True, False))
    pair = NetworkPair(*(on(run, "cifar10") for run in runs))
    found = {figure.metric: figure for figure in (*selection_figures(pair.stochastic), *label_figures(pair))}
    values = {metric: figure.value for metric, figure in found.items()}
    for stage, number, accuracy, above in (("before", 6, 80, 20), ("after", 4, 100, 100 / 3)):
        assert values[f"first selection, positives {stage} balancing"] == number
        assert values[f"first selection, accuracy % {stage} balancing"] == accuracy
        what = f"first selection {stage} balancing, points above confidence at equal counts"
        assert values[what] == pytest.approx(above)
        assert values[f"{what}, 95 % low"] <= above <= values[f"{what}, 95 % high"]
    assert found["first labels by UPS, tau_p 0.7, accuracy %"][1:] == (80, pytest.approx(94.87))
    assert found["first labels by confidence, tau_p 0.7, accuracy %"][1:] == (
        pytest.approx(500 / 7),
        pytest.approx(77.44),
    )
    in_paper = {metric: figure.paper for metric, figure in found.items() if " of cat " in metric}
    assert list(in_paper.values()) == [1065, None]


def test_measuring_is_told(small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def measured(*_: object) -> Speed:
        assert told == ["UPS, cifar10: measuring the speed"]
        return Speed(900.0, 800.0)

    monkeypatch.setattr(plans, "measure", measured)
    monkeypatch.setattr(plans, "cut_to", lambda *_: Cut(0, 2))
    options = Options(device="cpu", rows=("UPS",), minutes=1.0)
    for _ in range(2):  # what was planned is kept
        reproduce(small, tmp_path / "runs", options, progress=lambda what, done, total: told.append(what))
    assert sum("measuring" in what for what in told) == 1


def test_a_file_without_the_tables_name_is_told_how_to_name_it() -> None:
    with pytest.raises(InvalidInputError, match=r"name it with its file, experiments/tin100.py:TABLE"):
        experiment("experiments/tin100.py")


@pytest.mark.usefixtures("small", "own_folder")
def test_an_interruption_says_whether_anything_is_kept(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("surelabel.reproduce.experiment.reproduce", interrupted)
    asked = ("reproduce", "table5", "--device", "cpu", "--no-results")
    assert command(*asked).err.splitlines() == [
        "error: interrupted.",
        "note: no round is done yet; the same command goes on: surelabel reproduce table5 …",
    ]
    scripted_run(tmp_path / "runs" / "reproduce" / "cifar10-1000" / "ups-01234567-0")
    assert "note: finished rounds are kept in runs/reproduce; the same command goes on" in command(*asked).err
