"""Labels chosen by uncertainty, by confidence and by chance: the whole experiment in seconds, and its tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from does_uncertainty_help import EXPERIMENT, ROWS, Round1, check_data, find_run, main, round_0
from uncertainty_tables import NOT_YET, first_round, fresh_rounds

from surelabel.errors import RunError
from surelabel.reproduce.cifar import fast_recipe, paper_recipe
from surelabel.reproduce.paper import experiment
from surelabel.reproduce.plans import Options, Plans
from surelabel.reproduce.results import COLUMNS, append_rows, read_rows
from surelabel.runs.files import read_json, write_json


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny experiment with one seed, whose results are in `runs.csv`."""
    out = tmp_path_factory.mktemp("experiment")
    main(["--tiny", "--out", str(out), "--seeds", "0"])
    return out


@pytest.fixture(scope="module")
def round_1(done: Path) -> Round1:
    return Round1(round_0(0, done / "data"), done / "pools")


def by_class(round_1: Round1, row: str) -> list[int]:
    return np.bincount(round_1.pool.label[round_1.chosen(row)], minlength=10).tolist()


def test_every_row_is_recorded_with_its_labels_and_as_many_steps(done: Path, round_1: Round1) -> None:
    rows = read_rows(done / "runs.csv")
    values = {(row["row"], row["metric"]): float(row["value"]) for row in rows}
    assert len(rows) == len(values) == 16
    assert {row["experiment"] for row in rows} == {EXPERIMENT}
    assert {row["split_hash"] for row in rows} == {read_json(done / "pools" / "seed0" / "split.json")["hash"]}
    for letter, name in ROWS.items():
        chosen = round_1.chosen(letter)
        assert values[name, "labels"] == chosen.sum() > 0
        right = (round_1.pool.label == round_1.data.truth)[chosen]
        assert values[name, "labels right %"] == pytest.approx(100 * right.mean(), abs=1e-3)
        assert 0 <= values[name, "test error %"] < 90  # of ten classes
    # Two epochs over 200 labeled pictures and A's labels, in batches of 32.
    steps = np.ceil(2 * (200 + values[ROWS["A"], "labels"]) / 32)
    assert {values[name, "steps"] for name in ROWS.values()} == {steps}
    assert {row["images_seen"] for row in rows} == {str(int(steps) * 32)}
    assert (done / rows[0]["settings"]).exists()


def test_a_b_and_c_have_as_many_labels_of_each_class_and_differ_in_the_choice(round_1: Round1) -> None:
    a, b, c, d = (round_1.chosen(row) for row in ROWS)
    assert by_class(round_1, "A") == by_class(round_1, "B") == by_class(round_1, "C")
    confidence, label = round_1.pool.confidence, round_1.pool.label
    np.testing.assert_array_equal(d, confidence >= np.float32(0.7))
    assert all((chosen & ~d).sum() == 0 for chosen in (a, b, c))
    for code in np.unique(label[b]):
        mine = label == code
        assert confidence[b & mine].min() >= confidence[mine & ~b].max(initial=0)
    assert len({chosen.tobytes() for chosen in (a, b, c, d)}) == 4


def test_a_network_learns_from_the_labeled_pictures_and_the_chosen_labels_alone(round_1: Round1) -> None:
    chosen = round_1.chosen("C")
    training_set = round_1.training_set(chosen)
    y, labeled = training_set.y[training_set.rows], training_set.num_labeled
    ids = training_set.source.ids[training_set.rows]
    assert (training_set.round, labeled) == (1, 200)
    np.testing.assert_array_equal(ids[labeled:], round_1.pool.ids[chosen])
    np.testing.assert_array_equal(y[:labeled].argmax(axis=1), round_1.data.labeled[1])
    np.testing.assert_array_equal(y[labeled:].argmax(axis=1), round_1.pool.label[chosen])
    assert not (training_set.g & ~training_set.y)[200:].any()  # no negatives


def test_a_finished_training_is_neither_repeated_nor_recorded_twice(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Round1, "__init__", lambda *_: pytest.fail("trained again"))
    before = (done / "runs.csv").read_text()
    main(["--tiny", "--out", str(done), "--seeds", "0"])
    assert (done / "runs.csv").read_text() == before
    # Rows of a folder that was brought from elsewhere go into another file.
    main(["--tiny", "--out", str(done), "--seeds", "0", "--results", str(tmp_path / "runs.csv")])
    assert (tmp_path / "runs.csv").read_text() == before


def test_no_training_is_begun_that_would_end_too_late(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = read_json(done / "seed0-A.json")
    for row in kept["rows"]:
        row["minutes"] = 3.0
    write_json(tmp_path / "seed0-A.json", kept)
    monkeypatch.setattr(Round1, "__init__", lambda *_: pytest.fail("begun"))
    arguments = ["--pools", str(tmp_path), "--out", str(tmp_path), "--results", str(tmp_path / "runs.csv")]
    main([*arguments, "--minutes", "2.9"])
    assert "Stopped before seed 0, B: most confident" in capsys.readouterr().out
    with pytest.raises(pytest.fail.Exception, match="begun"):
        main([*arguments, "--minutes", "3.1"])


def test_pools_of_other_data_are_refused(done: Path, tmp_path: Path) -> None:
    settings, place = round_0(0, done / "data"), tmp_path / "pools"
    pool = find_run(done / "pools", settings).path
    copied = place / "somewhere" / "deep"
    (copied / "rounds" / "000").mkdir(parents=True)
    for name in ("run.json", "history.json", "split.json", "rounds/000/pool.parquet"):  # all that is needed
        (copied / name).write_bytes((pool / name).read_bytes())
    assert Round1(settings, place).tau == 0.7
    split = read_json(copied / "split.json")
    write_json(copied / "split.json", {**split, "hash": "of another split"})
    with pytest.raises(RunError, match="split hash .* of another split; run round 0 again"):
        Round1(settings, place)
    write_json(copied / "split.json", split)
    other = settings.replace(data=settings.data.replace(arguments={**settings.data.arguments, "num_validation": 10}))
    with pytest.raises(RunError, match="split hash"):
        Round1(other, place)
    run, round_1 = find_run(place, settings), Round1(settings, place)
    with pytest.raises(RunError, match="other ids than the data, or in another order; run it again"):
        check_data(run, round_1.data, round_1.pool._replace(ids=round_1.pool.ids[::-1]))
    round_1.data.labeled[0][:][0] += 1  # another picture under the same id
    with pytest.raises(RunError, match="data are not those that the run in"):
        check_data(run, round_1.data, round_1.pool)


def test_pools_come_from_the_papers_recipe_of_the_seed(done: Path) -> None:
    entries = experiment("first-selection").entries
    entry = next(one for one in entries if (one.row, one.labels) == ("Supervised", 1000))
    made = Plans(None, Options(recipe="paper")).settings(entry, 2)
    assert (made.network, made.config, made.data) == (round_0(2).network, round_0(2).config, round_0(2).data)
    for settings in (round_0(1, done / "data"), round_0(0)):
        with pytest.raises(RunError, match=f"no run of seed {settings.config.seed} .* surelabel reproduce"):
            find_run(done / "pools", settings)


def result(**values: Any) -> dict[str, Any]:
    return dict.fromkeys(COLUMNS, "") | {"device": "cuda (H200): CPU", "commit": "abcdefghij"} | values


def test_the_table_of_fresh_rounds_says_which_differences_are_shown(tmp_path: Path) -> None:
    assert fresh_rounds(tmp_path) == NOT_YET
    errors = {"A": (20.0, 21.0, 22.0), "B": (20.3, 21.4, 22.5), "C": (23.0, 24.1, 24.9), "D": (21.0, 24.0, 22.0)}
    rows = []
    for row, by_seed in errors.items():
        for seed, error in enumerate(by_seed):
            same = result(experiment=EXPERIMENT, row=ROWS[row], seed=seed, images_seen=6400, minutes=1.5)
            metrics = {"test error %": error, "labels": 23_000, "labels right %": 92.5, "steps": 50}
            rows += [same | {"metric": metric, "value": value} for metric, value in metrics.items()]
    append_rows(tmp_path / "runs.csv", rows)
    lines = fresh_rounds(tmp_path).splitlines()
    assert lines[2] == "| A: UPS | 23,000 | 92.50 | 21.00 ± 1.00 |  |  | 50 | 6,400 | 1.5 | 3 |"
    assert "| -0.40 [-0.65, -0.15] | no |" in lines[3]  # sure, and below 0.7 points
    assert "| -3.00 [-3.25, -2.75] | yes |" in lines[4]
    assert "] | no |" in lines[5]  # 1.33 points, whose interval has 0 in it
    assert lines[-1] == f"`results/runs.csv`, experiment `{EXPERIMENT}`, commit abcdefg (cuda (H200))."


def test_the_table_of_first_selections_has_the_papers_recipe_alone(tmp_path: Path) -> None:
    recipes = {"fast.json": fast_recipe(), "paper.json": paper_recipe()}
    for name, settings in recipes.items():
        (tmp_path / name).write_text(json.dumps({"Supervised": settings.to_json()}))
    what = "first selection before balancing, points above"
    numbers = {
        "test error %": 27.5,
        "first labels by confidence, no tau_p, accuracy %": 72.0,
        "first labels by confidence, tau_p 0.7, accuracy %": 78.0,
        "first selection, positives before balancing": 23_000,
        "first selection, accuracy % before balancing": 92.0,
        **{f"{what} {other} at equal counts{end}": -0.25 for other in ("confidence", "confidence (Cal.)")
           for end in ("", ", 95 % low", ", 95 % high")},
    }  # fmt: skip
    same = result(experiment="first-selection", row="Supervised", labels=1000)
    fast = [same | {"settings": "fast.json", "seed": 7, "metric": m, "value": v} for m, v in numbers.items()]
    append_rows(tmp_path / "runs.csv", fast)
    assert first_round(tmp_path) == NOT_YET
    for seed in (0, 1):
        rows = [{"metric": metric, "value": value + seed} for metric, value in numbers.items()]
        append_rows(tmp_path / "runs.csv", [same | {"settings": "paper.json", "seed": seed} | row for row in rows])
    lines = first_round(tmp_path).splitlines()
    assert lines[0] == "|  | paper | ours | seed 0 | seed 1 |"
    assert lines[2] == "| test error, % | 27.66 | 28.00 ± 0.71 | 27.50 | 28.50 |"
    assert lines[5] == "| UPS's labels | 20,217 | 23,000 ± 1 | 23,000 | 23,001 |"
    assert "| +0.25 | -0.25 [-0.25, -0.25] | +0.75 [+0.75, +0.75] |" in lines[7]
