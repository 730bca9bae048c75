"""Figures in the documents come from rows in results/, and its links lead somewhere."""

import re
from pathlib import Path

import numpy as np
import pytest
from cli_support import QUICK, Command
from communication_tables import communication
from method_tables import figure, figure_link, lines_of, methods, settings
from rerun_tables import own_rows, rerun
from rooms import PACKAGE, ROOMS
from scale_tables import labels_at_scale, rounds_at_scale, sizes
from sklearn.datasets import load_iris
from soak import __main__ as soak
from update_documents import beside_alone, figure_is_stale, main, reliability, scale, updated

from benchmarks import pool_at_scale
from benchmarks import results as bench
from surelabel.base.references import resolve
from surelabel.core.thresholds import HeldOutLabels, choose
from surelabel.data.source import ArraySource
from surelabel.data.tables import write_table
from surelabel.data.training_set import make_problem
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.report.drawing import curves
from surelabel.reproduce import results as runs
from surelabel.reproduce.experiment import WHOLE_MINUTES
from surelabel.reproduce.methods import METHODS
from surelabel.runs import RunFolder
from surelabel.runs.comparison import CANDIDATES
from surelabel.runs.folds import DELTA
from surelabel.runs.rows import append

pytestmark = pytest.mark.usefixtures("short_fits")

ROOT = Path(__file__).parents[1]


def test_the_documents_tables_are_those_of_the_results() -> None:
    assert main(["--check"]) == 0, "run python experiments/update_documents.py"


def test_a_block_is_filled_in_and_a_mark_without_one_is_refused() -> None:
    text = "<!-- results:speeds -->\nold\n<!-- /results:speeds -->\n"
    assert updated(text, {"speeds": "new"}) == text.replace("old", "new")
    with pytest.raises(ValueError, match="no block 'speeds'; there are tables"):
        updated(text, {"tables": "new"})
    for broken in (text.replace("/results:speeds", "/results:tables"), text.replace("/", ""), text * 2 + text[:30]):
        with pytest.raises(ValueError, match="A block is broken"):
            updated(broken, {"speeds": "new"})


def test_a_table_has_the_newest_settings_of_each_row_and_all_of_their_seeds(tmp_path: Path) -> None:
    assert rerun(tmp_path, "coco18") == "Not run."
    row = dict.fromkeys(runs.COLUMNS, "") | {"experiment": "coco18", "dataset": "coco18", "row": "UPS", "labels": 500}
    row |= {"metric": "test mAP %", "rounds": 4, "minutes": 2, "device": "cuda (H200): CPU", "commit": "abcdefghij"}
    values = (("old.json", 0, 10), ("new.json", 0, 30), ("new.json", 1, 34))
    for name in ("old.json", "new.json"):
        (tmp_path / name).write_text('{"UPS": {}}')
    runs.append_rows(
        tmp_path / "runs.csv",
        [row | {"settings": settings, "seed": seed, "value": value} for settings, seed, value in values],
    )
    lines = rerun(tmp_path, "coco18").splitlines()
    assert lines[2:3] == ["| coco18 | UPS | 500 | mAP % |  | 32.00 ± 2.83 | 2 | 4 | 2.0 | abcdefg |"]
    assert lines[-1] == "`results/runs.csv`, coco18, last network, cuda (H200)."


def equal_minutes(folder: Path, experiment: str, metric: str, *given: tuple[str, int, float, int, float]) -> None:
    """Append rows of (row, labels, budget, seed, value) as `surelabel reproduce` does, of runs that differ in steps."""
    for number, (name, labels, budget, seed, value) in enumerate(given):
        learner = {"method": "ups", "training": {"steps": 1000 + number}}
        settings = {"budget": budget, "learner": learner, "config": {"max_rounds": 1}}
        file, text = runs.settings_file(experiment, {name: settings})
        (folder / file).write_bytes(text)
        row = dict.fromkeys(runs.COLUMNS, "") | {"experiment": experiment, "row": name, "labels": labels, "seed": seed}
        row |= {"metric": metric, "value": value, "minutes": budget + 0.1, "device": "cuda (H200): CPU"}
        row |= {"dataset": "cifar10", "commit": "abcdefghij", "settings": file}
        runs.append_rows(folder / "runs.csv", [row, row | {"metric": WHOLE_MINUTES, "value": budget + 0.5 + seed / 10}])


def test_our_own_rows_are_kept_apart_by_their_budgets_and_not_by_the_speed_of_the_day(tmp_path: Path) -> None:
    assert own_rows(tmp_path).startswith("Not run yet")
    rows = [("UPS + consistency", 1000, 8.5, seed, value) for seed, value in ((1, 5.0), (2, 6.0), (3, 7.0))]
    equal_minutes(tmp_path, "table1", "test error %", *rows, ("UPS + consistency", 1000, 4.0, 1, 8.0))
    equal_minutes(tmp_path, "table1", "test error %", ("UPS + consistency", 1000, 8.5, 1, 4.5))
    lines = own_rows(tmp_path).splitlines()
    assert lines[2:4] == [
        "| table1 | cifar10 | UPS + consistency | 1000 | 5.83 ± 1.26 | 1, 2, 3 | 8.5 | 9.3 | abcdefg |",
        "| table1 | cifar10 | UPS + consistency | 1000 | 8.00 | 1 | 4 | 4.6 | abcdefg |",
    ]
    assert rerun(tmp_path, "cifar10") == "Not run."


def test_methods_stand_side_by_side_by_labels_and_minutes(tmp_path: Path) -> None:
    assert methods(tmp_path).startswith("Not run yet: `surelabel reproduce methods --budget 4 --seed 1`")
    assert figure_link(tmp_path).startswith("No figure yet")
    rows = ("Supervised", 1000, 1.0, 0, 30.0), ("Supervised", 1000, 4.0, 0, 26.0), ("ICT", 1000, 4.0, 0, 14.0)
    more = ("Supervised", 4000, 4.0, 0, 16.0), ("ICT", 1000, 4.0, 1, 16.0), ("Mine", 1000, 4.0, 0, 9.0)
    equal_minutes(tmp_path, "methods", "test error %", *rows, *more)
    table, source, faults, origin = methods(tmp_path).split("\n\n")
    head, _, *lines = table.splitlines()
    assert head == (
        "| method | 1,000 labels, 1 minute | 1,000 labels, 4 minutes | 4,000 labels, 4 minutes "
        "| published, 1,000 | published, 4,000 |"
    )
    assert "| Supervised | 30.00 | 26.00 | 16.00 | 27.66 | 16.65 |" in lines
    assert "| ICT |  | 15.00 ± 1.41 |  | 15.48 ± 0.78 | 7.29 ± 0.02 |" in lines
    assert "| FixMatch |  |  |  |  |  |" in lines
    assert lines[-1] == "| Mine |  | 9.00 |  |  |  |"
    assert "table 1 for the others" in source
    assert faults.startswith("Not judged yet: Pseudo-labeling with 1000 labels; UPS with 1000 labels; ")
    assert origin == (
        "`results/runs.csv`, experiment `methods`, seed 0, 1, 1.1 to 4.1 minutes each on cuda (H200), commit abcdefg."
    )
    # A row of one budget is no line.
    assert lines_of(tmp_path) == {"Supervised": ([1.1, 4.1], [30.0, 26.0])}
    panel = figure(tmp_path)
    assert panel is not None
    assert panel.file("svg") == figure(tmp_path).file("svg")  # type: ignore[union-attr]
    assert b"Supervised" in panel.file("svg")
    assert figure_link(tmp_path).endswith("(images/methods.svg)")


def test_a_method_that_learns_nothing_or_errs_far_more_than_published_is_named_as_a_fault(tmp_path: Path) -> None:
    def faults() -> list[str]:
        return methods(tmp_path).split("\n\n")[2:-1]

    rows = dict.fromkeys(entry.row for entry in METHODS.entries)
    good = dict.fromkeys(rows, 9.0) | {"Supervised": 20.0}
    given = [(row, labels, 4.0, 1, error) for row, error in good.items() for labels in (1000, 4000)]
    equal_minutes(tmp_path, "methods", "test error %", *given)
    assert faults() == ["No row is worse than Supervised, and none is above 1.5 times its published error."]
    # Each row is judged in its own longest runs that Supervised has too.
    more = ("Supervised", 1000, 1.0, 1, 8.5), ("ICT", 1000, 9.0, 1, 40.0), ("MixMatch", 4000, 4.0, 1, 10.3)
    equal_minutes(tmp_path, "methods", "test error %", *more, ("FlexMatch", 1000, 4.0, 1, 20.0))
    assert faults() == [
        "**Faults to be found:** FlexMatch with 1000 labels is no better than Supervised (20.00, 20.00); "
        "MixMatch with 4000 labels is above 1.5 times its published error (10.30, 6.84)."
    ]


def test_a_figure_of_the_documents_is_drawn_when_there_are_rows_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, drawn = tmp_path / "one.svg", curves({"a": ([0, 1], [0, 1])}, "x", "y")
    monkeypatch.setattr("update_documents.FIGURES", {"one.svg": lambda results: drawn})
    assert figure_is_stale(path, check=True)
    assert not path.exists()
    assert figure_is_stale(path, check=False)
    assert path.read_bytes() == drawn.file("svg")
    assert not figure_is_stale(path, check=True)
    monkeypatch.setattr("update_documents.FIGURES", {"one.svg": lambda results: None})
    assert figure_is_stale(path, check=False)
    assert not path.exists()
    assert not figure_is_stale(path, check=True)


def test_a_method_that_may_be_broken_is_named(tmp_path: Path) -> None:
    rows = ("Supervised", 1000, 1.0, 0, 20.0), ("ICT", 1000, 1.0, 0, 29.0)  # too short to tell
    more = ("Supervised", 1000, 4.0, 0, 26.0), ("ICT", 1000, 4.0, 0, 23.3), ("SoftMatch", 1000, 4.0, 0, 26.0)
    equal_minutes(tmp_path, "methods", "test error %", *rows, *more)
    assert methods(tmp_path).split("\n\n")[2] == (
        "**Faults to be found:** ICT with 1000 labels is above 1.5 times its published error (23.30, 15.48); "
        "SoftMatch with 1000 labels is no better than Supervised (26.00, 26.00)."
    )


def test_a_setting_that_is_used_against_the_trials_is_named(tmp_path: Path) -> None:
    assert settings(tmp_path).startswith("Not run yet: `surelabel reproduce method-trials --budget 1.5`")
    values = {"ICT, rate 0.4": 20.0, "ICT, rate 0.1": 21.0, "MixMatch, weight 75": 25.0, "MixMatch, weight 15": 24.5}
    trials = [(name, 1000, 1.5, 0, value) for name, value in values.items()]
    equal_minutes(tmp_path, "method-trials", "validation error %", *trials, ("ICT, rate 0.1", 1000, 0.5, 0, 1.0))
    table, note, _ = settings(tmp_path).split("\n\n")
    assert "| ICT | rate 0.4 | 20.00 | yes |" in table
    assert "| MixMatch | weight 15 | 24.50 |  |" in table
    assert "| FixMatch | threshold 0.8 | not run |  |" in table
    assert note == "The other setting has the lower error: MixMatch."


def test_the_network_alone_stands_beside_the_engine(tmp_path: Path) -> None:
    row = dict.fromkeys(bench.COLUMNS, "") | {"device": "H200", "model": "resnet50, 128 px", "batch": 256}
    row |= {"what": "training, beside a fixed batch alone", "per_second": 900, "plain_per_second": 1000, "ratio": 0.9}
    bench.append_rows(tmp_path / "bench.csv", [{**row, "commit": "abcdefghij"}])
    assert beside_alone(tmp_path).splitlines()[2] == (
        "| H200, resnet50, 128 px | training, beside a fixed batch alone | 256 | 900 /s (0.90 x) | 1,000 /s |"
    )


def test_time_and_memory_of_each_size_are_those_of_its_last_measurement(tmp_path: Path) -> None:
    assert scale(tmp_path) == "Not run."
    row = dict.fromkeys(pool_at_scale.COLUMNS, "") | {"classes": 1000, "machine": "EPYC, 2 cores", "python": "3.11.7"}
    row |= {"numpy": "2.4.6", "commit": "abcdefghij", "pool": "memory", "samples": 2000, "negatives_only": 500}
    big = {"pool": "file", "samples": 10_000}
    rows: list[dict[str, object]] = [
        {"what": "label", "seconds": 9, "peak_mib": 1, "kept_bytes": 99},
        {"what": "label", "seconds": 1.5, "peak_mib": 300, "kept_bytes": 33},
        {"what": "targets", "seconds": 0.01, "peak_mib": 400, "kept_bytes": 4},
        {"what": "label", "seconds": 4, "peak_mib": 700, **big},
        {"what": "targets", "seconds": 0.02, "peak_mib": 1800, "kept_bytes": 4, **big},
        {"what": "3 rounds over shards", "seconds": 60, "samples": 30_000, "pool": "", "kept_bytes": ""},
    ]
    # What is measured of pools in shards is in another table.
    rows.append({"what": "label, 1 process", "seconds": 9, "pool": ""})
    append(tmp_path / "scale.csv", pool_at_scale.COLUMNS, [row | more for more in rows])
    assert scale(tmp_path).splitlines() == [
        "| step | 2,000, in memory | 10,000, in a file |",
        "|---|---|---|",
        "| label | 1.50 s | 4.00 s |",
        "| targets | 0.01 s | 0.02 s |",
        "| largest memory of the process | 400 MiB | 1,800 MiB |",
        "| bytes a sample: problem + labels + targets + order | 33 + 4 | 4 |",
        "| samples with negatives only | 25% | 5% |",
        "",
        "`results/scale.csv`, commit abcdefg: 1000 classes, EPYC, 2 cores, one of them used, Python 3.11.7, "
        "numpy 2.4.6.",
    ]


def test_what_is_measured_of_communication_stands_apart_from_what_is_computed(tmp_path: Path) -> None:
    assert communication(tmp_path) == "Not run."
    row = dict.fromkeys(pool_at_scale.COLUMNS, "") | {"model": "cnn13", "exchange_bytes": 12_500_000}
    here = {"samples": 16, "processes": 2, "source": "measured", "machine": "EPYC, 2 cores", "commit": "abcdefghij"}
    here |= {"seconds": 0.2, "waiting_seconds": 0.01, "exchange_seconds": 0.01, "share": 0.05}
    there = {"source": "computed from bench.csv: training, batch 512, NVIDIA H200, 1234567"}
    rows: list[dict[str, object]] = [
        {"pool": "memory", "model": "", "source": ""},
        {**here, "share": 0.5, "commit": "older"},
        here,
        {**here, "share": 0.07},
        {**there, "samples": 4096, "processes": 8, "seconds": 0.0063, "exchange_seconds": 0.0001, "share": 0.016},
        {**there, "samples": 32768, "processes": 64, "seconds": 0.0072, "exchange_seconds": 0.001, "share": 0.14},
    ]
    append(tmp_path / "scale.csv", pool_at_scale.COLUMNS, [row | more for more in rows])
    lines = communication(tmp_path).splitlines()
    assert lines[0].startswith("| measured, 2 processes on a CPU |")
    assert lines[2:5] == [
        "| cnn13 | 16 | 12.5 MB | 5 to 7 % | 5 to 5 % |",
        "",
        "`results/scale.csv`, medians over the steps of each run, from the lowest to the highest of 2 runs; gloo, "
        "commit abcdefg, EPYC, 2 cores, one for each process.",
    ]
    assert lines[6].count("(computed)") == 2
    assert lines[8] == "| cnn13, 512 | 6.20 ms | 12.5 MB | 0.10 ms | 98 % | 1.00 ms | 86 % |"
    assert lines[10].endswith("in `results/bench.csv`, commits 1234567.")


def test_the_speed_of_each_way_to_label_a_pool_is_that_of_its_last_measurement(tmp_path: Path) -> None:
    row = dict.fromkeys(pool_at_scale.COLUMNS, "") | {"samples": 9000, "classes": 10, "machine": "EPYC, 2 cores"}
    row |= {"python": "3.11.7", "commit": "abcdefghij"}
    append(tmp_path / "scale.csv", pool_at_scale.COLUMNS, [row | {"what": "targets", "pool": "memory"}])
    assert labels_at_scale(tmp_path).startswith("Not run yet: `python -m benchmarks.labels_at_scale ")
    one = {"what": "label, 1 process", "seconds": 9, "per_second": 1000, "peak_mib": 1200}
    ray = {"what": "label, Ray, 2 workers", "seconds": 6.4, "per_second": 1406}
    append(tmp_path / "scale.csv", pool_at_scale.COLUMNS, [row | more for more in ({**one, "seconds": 99}, one, ray)])
    assert labels_at_scale(tmp_path).splitlines()[2:] == [
        "| 1 process | 9,000 | 9 | 1,000 | 1,200 MiB |",
        "| Ray, 2 workers | 9,000 | 6 | 1,406 |  |",
        "",
        "`results/scale.csv`, commit abcdefg: 10 classes, 64 features, ten passes, EPYC, 2 cores, Python 3.11.7. "
        "Whole commands, start and all.",
    ]


def test_rounds_with_kills_stand_beside_those_without(tmp_path: Path) -> None:
    assert rounds_at_scale(tmp_path).startswith("Not run yet")
    how = "3 rounds over shards, 2 ray workers"
    row = dict.fromkeys(pool_at_scale.COLUMNS, "") | {"classes": 10, "machine": "EPYC, 2 cores", "commit": "abcdefghij"}
    rows: list[dict[str, object]] = [
        {"what": f"{how}, undisturbed", "samples": 3000, "seconds": 100, "per_second": 30},
        {"what": f"{how}, undisturbed: memory of a driver", "samples": 3000, "peak_mib": 1400},
        {"what": f"{how}, undisturbed: memory of a worker", "samples": 3000, "peak_mib": 700},
        {"what": f"{how}, killed", "samples": 3000, "seconds": 200, "per_second": 15},
        {"what": f"{how}: rows labeled twice after 9 kills", "samples": 612},
    ]
    append(tmp_path / "scale.csv", pool_at_scale.COLUMNS, [row | more for more in rows])
    assert rounds_at_scale(tmp_path).splitlines()[2:4] == [
        f"| {how}, undisturbed | 3,000 | 100 | 30 | 1,400 MiB | 700 MiB |  |",
        f"| {how}, killed | 3,000 | 200 | 15 |  |  | 612 (9 kills) |",
    ]


def test_what_rates_add_up_to_is_computed_from_the_largest_measurement(tmp_path: Path) -> None:
    assert sizes(tmp_path).startswith("Not computed yet")
    row = dict.fromkeys(pool_at_scale.COLUMNS, "") | {"what": "label, 1 process", "commit": "abcdefghij"}
    rows: list[dict[str, object]] = [{"samples": 10**6, "per_second": 20_000}, {"samples": 100, "per_second": 1}]
    append(tmp_path / "scale.csv", pool_at_scale.COLUMNS, [row | more for more in rows])
    lines = sizes(tmp_path).splitlines()
    assert lines[2] == "| 1,000 | `fit` | 40 kB | less than a second | less than a second |"
    assert lines[7].endswith(" | 4 GB | 83 minutes | 78 seconds |")
    assert lines[-1].startswith("Computed: 40 bytes a sample, and 20,000 samples a second")


def test_the_last_soak_is_shown_with_its_machine(tmp_path: Path) -> None:
    assert reliability(tmp_path) == "Not run."
    row = dict.fromkeys(soak.COLUMNS, 0) | {"what": "kills: fit", "details": "6 elsewhere", "seconds": 90}
    row |= {"machine": "EPYC, 2 cores", "python": "3.11.7", "torch": "2.11", "commit": "abcdefghij"}
    for commit, count in (("older", 1), ("abcdefghij", 1200)):
        append(tmp_path / "reliability.csv", soak.COLUMNS, [row | {"commit": commit, "count": count}])
    lines = reliability(tmp_path).splitlines()
    assert lines[2:] == [
        "| kills: fit | 1,200 | 6 elsewhere | 0 | 0 | 0 | 0 | 0 |",
        "",
        "`results/reliability.csv`, seed 0, commit abcdefg, 2 minutes on EPYC, 2 cores, Python 3.11.7, torch 2.11.",
    ]


def test_links_inside_the_documents_lead_to_files() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    assert documents
    for document in documents:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_method_in_the_documents_learns(tmp_path: Path) -> None:
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "methods.md").read_text(), flags=re.DOTALL)
    (code,) = (one for one in found if "class MeanTeacher" in one)
    (tmp_path / "mine.py").write_text(code)
    training = TrainingSettings(batch_size=8, steps=150, ema_decay=0.9, learning_rate=0.1)
    settings = TorchLearnerSettings(method=f"{tmp_path / 'mine.py'}:MeanTeacher", training=training, device="cpu")
    y = np.arange(200) % 2
    x = (np.random.default_rng(0).normal(size=(200, 4)) + 2 * y[:, None]).astype(np.float32)
    learner = settings.build("single")
    learner.fit(make_problem((x[:8], y[:8]), x[8:], "single").training_set(None), seed=0)
    assert (learner.predict_proba(ArraySource(x)).argmax(axis=1) == y).mean() > 0.9


def test_the_commands_about_trust_run(own_folder: Path, command: Command) -> None:
    text = (ROOT / "docs" / "trust.md").read_text()
    commands = re.findall(r"^surelabel (.*)$", text, flags=re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["fit", "label", "resume", "fit"]
    flowers = load_iris(as_frame=True)
    columns = {name: flowers.data[name].tolist() for name in flowers.data}
    labels = [str(flowers.target_names[code]) if row % 5 == 0 else None for row, code in enumerate(flowers.target)]
    write_table(Path("flowers.csv"), {**columns, "species": labels})
    quick = ["--rounds", "1", "--hidden", "8", "--epochs", "1", "--passes", "3"]  # the commands as they are, but small
    for line in commands:
        words = line.split()
        result = command(*words, *(quick if words[0] == "fit" else []))
        assert result.code == 0, result.err
    assert RunFolder.open("runs/flowers").comparison().num_folds == 5
    assert RunFolder.open("runs/checked").comparison().promise is not None


def test_the_commands_for_arrays_run(own_folder: Path, command: Command) -> None:
    text = (ROOT / "docs" / "data.md").read_text()
    commands = "".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)).splitlines()
    y = np.arange(40) % 2
    x = np.random.default_rng(0).normal(size=(40, 3)) + 4 * y[:, None]
    some = np.where(np.arange(40) < 8, y, -1)
    np.savez("a.npz", x=x, y=some)
    np.savez("new.npz", x=x)
    np.save("x.npy", x)
    np.save("y.npy", some)
    assert [line.split()[:2] for line in commands] == [["surelabel", name] for name in ("fit", "predict", "fit")]
    for line in commands:
        words = line.split()[1:]
        result = command(*words, *(QUICK if words[0] == "fit" else ()))
        assert result.code == 0, result.err


def test_the_labels_that_a_promise_takes_are_as_many_as_the_document_says() -> None:
    number = int(re.findall(r"of (\d+) selected labels at least", (ROOT / "docs" / "trust.md").read_text())[0])
    sure = np.linspace(1.0, 0.9, number)[:, None]
    delta = DELTA / len(CANDIDATES)
    for most, passes in ((number, True), (number - 1, False)):
        labels = HeldOutLabels(sure[:most], None, sure[:most] > 0, sure[:most] < 0)
        assert (choose(labels, 0.05, delta).tau_p is not None) == passes


def test_every_call_of_the_walks_is_there() -> None:
    names = re.findall(r"`(surelabel\.[\w.]+:[\w.]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(names) > 20
    for name in names:
        resolve(name)


def test_the_map_has_every_room_and_floor() -> None:
    rooms = [path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert sorted(rooms) == sorted([*ROOMS, "__init__", "__main__", "_version"])
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert list(ROOMS) == re.findall(r"^\| `(\w+)/?` \|.*\|.*\|.*\|$", text, flags=re.MULTILINE)
