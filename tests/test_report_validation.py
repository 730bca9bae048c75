"""A report of runs that do not know the pool's labels: judged on a validation set, and short where there is none."""

from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_support import CONFIG, SAMPLES, scripted_run

import surelabel as sl
from surelabel.data.pool import Prediction
from surelabel.data.reference import RunData
from surelabel.report.html import summary_table, write_report
from surelabel.report.pictures import pictures_figure
from surelabel.report.plots import Curve, curves, histogram, lines_by_round
from surelabel.report.tables import Row, Statistic, group_runs
from surelabel.runs import FunctionData, RunFolder, run

JUDGED = ["Calibration of the certain samples", "Right and wrong labels", "Reliability", "Risk and coverage"]
TRUTH, P0, U, _ = (np.array(column) for column in zip(*SAMPLES, strict=True))
KNOWN = np.flatnonzero(TRUTH >= 0)
BOTH_U = np.stack([U, U], axis=1)
RIGHT = (P0 < 0.5) == TRUTH
SEVERAL_P = np.random.default_rng(0).uniform(size=(6, 3))
SEVERAL_TRUTH = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, -1], [0, 1, 1]])


class Told:
    """A learner that says of sample i what it is told, and whose scores are those of `scored`, one for each round."""

    model_file = "model.safetensors"

    def __init__(self, p: Any, u: Any, scored: Sequence[Any] = ()) -> None:
        self.p, self.u = np.asarray(p, dtype=np.float32), np.asarray(u, dtype=np.float32)
        self.scored, self.round = [np.asarray(one, dtype=np.float32) for one in scored or (p,)], -1

    def fit(self, training_set: Any, *, seed: int) -> None:
        self.round += 1

    def predict(self, source: Any, *, seed: int) -> Iterator[Prediction]:
        yield Prediction(source.ids, self.p[rows_of(source)], self.u[rows_of(source)])

    def predict_proba(self, source: Any) -> Any:
        return self.scored[min(self.round, len(self.scored) - 1)][rows_of(source)]

    def to_bytes(self) -> bytes:
        return b"nothing"


def rows_of(source: Any) -> Any:
    """The number that every value of a sample is."""
    values = np.asarray(source[np.arange(len(source.ids))])
    return values.reshape(len(values), -1)[:, 0].astype(int)


def numbered(rows: Any) -> Any:
    return np.asarray(rows)[:, None].astype(float)


def both(p0: Any) -> Any:
    return np.stack([p0, 1 - np.asarray(p0)], axis=1)


def one_label_run(folder: Path, *, scored: Sequence[Any] = (), unlabeled: bool = True, **rest: Any) -> RunFolder:
    """Make a run with `SAMPLES` as the pool, whose truth it does not know."""
    learner = Told(both(P0), BOTH_U, scored)
    pool = numbered(np.arange(len(SAMPLES))) if unlabeled else None
    config = CONFIG if unlabeled else CONFIG.replace(max_rounds=0)
    list(run(folder, learner, (numbered([0, 1]), np.arange(2)), pool, config, classes=["cat", "dog"], **rest))
    return RunFolder.open(folder)


def several_labels_run(folder: Path, **rest: Any) -> RunFolder:
    config = sl.UPSConfig(task="multi", tau_p=0.6, tau_n=0.3, kappa_p=0.5, kappa_n=0.5, max_rounds=1, balance=None)
    labeled = numbered([0, 1]), SEVERAL_TRUTH[:2]
    learner = Told(SEVERAL_P, SEVERAL_P / 10)
    list(run(folder, learner, labeled, numbered(np.arange(6)), config, classes=["cat", "dog", "owl"], **rest))
    return RunFolder.open(folder)


class Section(HTMLParser):
    """Collects what stands below each heading: its text, and how many drawings and pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.text: dict[str, str] = {}
        self.drawings: dict[str, int] = {}
        self.cells: list[str] = []
        self.title, self.tag = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tag = tag
        if tag in ("svg", "img"):
            self.drawings[self.title] += 1
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self.tag = ""

    def handle_data(self, data: str) -> None:
        if self.tag == "h2":
            self.title = data
            self.text[data], self.drawings[data] = "", 0
        elif self.title:
            self.text[self.title] += data
        if self.tag in ("th", "td"):
            self.cells[-1] += data


def read(folder: Path, *runs: RunFolder) -> Section:
    """Write a report of these runs and read it."""
    page = Section()
    page.feed(write_report(runs, folder / "report.html").read_text(encoding="utf-8"))
    page.close()
    return page


def held_out(truth: Any, rows: Any) -> tuple[Any, Any]:
    return numbered(rows), truth[rows]


def test_labels_are_judged_on_the_validation_set_where_the_pool_is_not_known(tmp_path: Path) -> None:
    page = read(tmp_path, one_label_run(tmp_path / "run", validation=held_out(TRUTH, KNOWN)))
    for title in JUDGED:
        assert page.drawings[title] == 2
        assert "Judged on the validation set (9 samples): the pool's true labels are not known." in page.text[title]
    confidence, right = np.maximum(P0, 1 - P0)[KNOWN].astype(np.float32), RIGHT[KNOWN]
    error = sl.calibration.calibration_error(confidence, right)
    assert f"ECE {error:.3f} over 9 labels" in page.text["Reliability"]
    assert "over 5 labels" in page.text["Reliability"]  # samples 0, 1, 3, 5 and 6 pass the thresholds
    auroc = sl.uncertainty_auroc(U[KNOWN], ~right)
    assert page.text["Risk and coverage"].count(f"u (AUROC {auroc:.3f})") == 2


def test_several_labels_are_judged_on_the_validation_set_too(tmp_path: Path) -> None:
    validation = held_out(SEVERAL_TRUTH, np.arange(6))
    page = read(tmp_path, several_labels_run(tmp_path / "run", validation=validation))
    for title in JUDGED:
        assert page.drawings[title] == 2
        assert "Judged on the validation set (6 samples)" in page.text[title]
    assert "over 17 labels" in page.text["Reliability"]  # one entry is not known


def test_the_validation_sets_of_all_seeds_are_judged_together(tmp_path: Path) -> None:
    runs = [one_label_run(tmp_path / name, validation=held_out(TRUTH, KNOWN), name="UPS") for name in "ab"]
    page = read(tmp_path, *runs)
    assert "Judged on the validation set (18 samples in 2 runs)" in page.text["Reliability"]
    assert "over 18 labels" in page.text["Reliability"]


def test_a_run_without_a_pool_is_judged_on_its_validation_set(tmp_path: Path) -> None:
    page = read(tmp_path, one_label_run(tmp_path / "run", unlabeled=False, validation=held_out(TRUTH, KNOWN)))
    assert all(page.drawings[title] for title in JUDGED)
    assert "No uncertainties" not in page.text["Right and wrong labels"]


def test_labels_are_judged_on_the_pool_where_it_is_known(tmp_path: Path) -> None:
    page = read(tmp_path, scripted_run(tmp_path / "run", held_out=True))
    assert {title: page.drawings[title] for title in JUDGED} == dict.fromkeys(JUDGED, 2) | {JUDGED[1]: 4}
    assert not any("Judged on" in text for text in page.text.values())
    assert "share of the pool with u ≤ t" in page.text[JUDGED[0]]
    assert "over 9 labels" in page.text["Reliability"]
    assert "over 3 labels" in page.text["Reliability"]  # balancing keeps fewer of the pool: 0, 5 and 6 are known


def test_sections_without_anything_to_draw_are_named_at_the_end_with_what_they_need(tmp_path: Path) -> None:
    page = read(tmp_path, one_label_run(tmp_path / "run"))
    titles = ["Summary", "Selected labels and scores by round", "Classes of the first selection"]
    assert list(page.text) == [*titles, "Settings", "Environment"]
    whole, end = "".join(page.text.values()), page.text["Environment"]
    named = ", ".join(f"“{title}”" for title in JUDGED)
    assert (
        f"Not drawn: {named}: the true labels of the pool are not known. Labels of a validation set would do: "
        "surelabel fit --validation 0.2."
    ) in end
    assert "Not drawn: “Confident, wrong and kept out”: the samples are not pictures (one has shape (1,))." in end
    assert whole.count("Not drawn:") == end.count("Not drawn:") == 2


def pictures() -> RunData:
    """Samples of one gray level each, their numbers; nothing of the pool is known."""
    levels = np.arange(len(SAMPLES), dtype=np.uint8)
    x = np.broadcast_to(levels[:, None, None, None], (len(SAMPLES), 3, 4, 4)).copy()
    return RunData((x[:2], np.arange(2)), x[::-1].copy(), ("cat", "dog"), validation=(x[KNOWN], TRUTH[KNOWN]))


def test_pictures_of_the_validation_set_are_shown(tmp_path: Path) -> None:
    data = pictures()
    parts = {"validation": data.validation, "classes": data.classes}
    list(run(tmp_path / "run", Told(both(P0), BOTH_U), data.labeled, data.unlabeled, CONFIG, **parts))
    made = RunFolder.open(tmp_path / "run")
    settings = made.settings.replace(data=FunctionData(function=f"{__file__}:pictures"))
    row = Row("UPS", (RunFolder(made.path, settings, made.version, made.entries, trust_code=True),))
    assert "true labels of the pool are not known" in pictures_figure(row).note
    figure = pictures_figure(row, validation=True)
    # Samples 2 (0.92 for cat) and 7 (0.92 for dog) are wrong; both rounds say the same.
    found = [(int(one.pixels[0, 0, 0]), one.caption.partition(",")[0]) for one in figure.pictures]
    assert sorted(found) == [(2, "dog taken for cat")] * 2 + [(7, "cat taken for dog")] * 2
    assert "Judged on the validation set (9 samples)" in figure.caption


WORSE, BETTER = both(np.full(10, 0.9)), both(np.where(TRUTH == 0, 0.9, 0.1))


def test_the_summary_has_the_score_of_the_labels_alone_beside_the_last_one(tmp_path: Path) -> None:
    parts = {"validation": held_out(TRUTH, KNOWN), "test": held_out(TRUTH, KNOWN[1:])}
    folder = one_label_run(tmp_path / "run", scored=[WORSE, BETTER], **parts)
    page = read(tmp_path, folder)
    width = page.cells.index("minutes") + 1
    found = dict(zip(page.cells[:width], page.cells[width : 2 * width], strict=True))
    assert found["test accuracy, labels alone (%)"] == "37.50"
    assert found["validation accuracy, labels alone (%)"] == "44.44"
    assert found["test accuracy (%)"] == found["validation accuracy (%)"] == "100.00"
    assert "did not help" not in page.text["Summary"]
    assert "labels alone" not in " ".join(summary_table(group_runs([folder])).header)


def test_the_summary_says_when_self_training_did_not_help(tmp_path: Path) -> None:
    parts = {"validation": held_out(TRUTH, KNOWN), "test": held_out(TRUTH, np.flatnonzero(TRUTH == 0))}
    fell = one_label_run(tmp_path / "fell", scored=[BETTER, WORSE], name="UPS", **parts)
    text = read(tmp_path, fell).text["Summary"]
    line = "Self-training did not help by the {} accuracy: 100.00 % with the labels alone, {} % after the last round."
    assert line.format("validation", "44.44") in text
    assert line.format("test", "100.00") in text  # the same is no help either
    helped = one_label_run(tmp_path / "helped", scored=[WORSE, BETTER], name="other", validation=parts["validation"])
    text = read(tmp_path, fell, helped).text["Summary"]
    assert text.count("did not help") == text.count("did not help 'UPS' by") == 2


def test_a_run_of_round_0_alone_has_one_score(tmp_path: Path) -> None:
    page = read(tmp_path, one_label_run(tmp_path / "run", unlabeled=False, validation=held_out(TRUTH, KNOWN)))
    assert "validation accuracy (%)" in page.cells
    assert not any("labels alone" in cell for cell in page.cells)
    assert "did not help" not in page.text["Summary"]


def test_counts_have_whole_ticks_and_small_uncertainties_few() -> None:
    counts = lines_by_round({"UPS": [Statistic(75, None, 1), Statistic(76, None, 1)]}, "labels", 1).axes
    assert all(float(tick).is_integer() for tick in counts.get_yticks())
    for drawn in (
        curves({"UPS": Curve(np.linspace(0, 0.012, 9), np.ones(9))}, "u", "ECE"),
        histogram(np.linspace(0, 0.012, 9), np.ones(9, dtype=bool), "u"),
    ):
        low, high = drawn.axes.get_xlim()
        assert sum(low <= tick <= high for tick in drawn.axes.get_xticks()) <= 7


@pytest.mark.parametrize(("first", "number"), [(1, 1), (0, 2), (1, 5), (0, 30)])
def test_the_ticks_of_rounds_are_whole_numbers(first: int, number: int) -> None:
    axes = lines_by_round({"UPS": [Statistic(0.5, None, 1)] * number}, "score", first).axes
    low, high = axes.get_xlim()
    shown = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert shown == sorted({round(tick) for tick in shown})
    assert shown[0] == first
