"""A report of runs that do not know the pool's labels: judged on a validation set, and short where there is none."""

from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_support import CONFIG, SAMPLES, scripted_run

import surelabel as sl
from surelabel.core.metrics import map_change, paired_change, paired_difference
from surelabel.data.pool import Prediction
from surelabel.data.run_data import FunctionData, RunData
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.report.drawing import curves, histogram, lines_by_round
from surelabel.report.held_out import check_selected, rounds_change, selected_lines
from surelabel.report.html import summary_table, write_report
from surelabel.report.pictures import pictures_figure
from surelabel.report.tables import Row, Statistic, group_runs, trained_with
from surelabel.runs import RunFolder
from surelabel.runs.session import run

pytestmark = pytest.mark.usefixtures("undrawn")

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
    changes = {name: rest.pop(name) for name in ("tau_p", "tau_n") if name in rest}
    config = CONFIG.replace(**changes) if unlabeled else CONFIG.replace(max_rounds=0)
    list(run(folder, learner, (numbered([0, 1]), np.arange(2)), pool, config, classes=["cat", "dog"], **rest))
    return RunFolder.open(folder)


def by_learner(made: RunFolder, learner: TorchLearnerSettings | SklearnLearnerSettings) -> RunFolder:
    """Return a run as if this learner had made it."""
    return RunFolder(made.path, made.settings.replace(learner=learner), made.version, made.entries)


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


@pytest.mark.parametrize(
    ("learner", "expected"),
    [
        (TorchLearnerSettings(), "the labels alone"),
        (SklearnLearnerSettings(estimator="sklearn.linear_model:LogisticRegression"), "the labels alone"),
        (TorchLearnerSettings(method="flexmatch"), "flexmatch alone"),
        (TorchLearnerSettings(method="/home/me/mine.py:Mine"), "Mine alone"),
    ],
)
def test_the_summary_has_the_score_of_round_0_by_the_runs_method(
    tmp_path: Path, learner: TorchLearnerSettings | SklearnLearnerSettings, expected: str
) -> None:
    parts = {"validation": held_out(TRUTH, KNOWN), "test": held_out(TRUTH, KNOWN[1:])}
    folder = by_learner(one_label_run(tmp_path / "run", scored=[WORSE, BETTER], **parts), learner)
    page = read(tmp_path, folder)
    width = page.cells.index("minutes") + 1
    found = dict(zip(page.cells[:width], page.cells[width : 2 * width], strict=True))
    assert found[f"test accuracy, {expected} (%)"] == "37.50"
    assert found[f"validation accuracy, {expected} (%)"] == "44.44"
    assert found["test accuracy (%)"] == found["validation accuracy (%)"] == "100.00"
    assert "did not help" not in page.text["Summary"]
    assert f"Round 0 was trained with {expected}; a difference of a few" in page.text["Summary"]
    assert expected not in " ".join(summary_table(group_runs([folder])).header)


def test_of_runs_of_several_methods_or_of_objects_in_memory_round_0_is_said_to_have_no_selected_label(
    tmp_path: Path,
) -> None:
    in_memory = one_label_run(tmp_path / "run")
    ups, match = (by_learner(in_memory, TorchLearnerSettings(method=name)) for name in ("ups", "flexmatch"))
    assert [trained_with(runs) for runs in ([in_memory], [ups, match])] == ["no selected label"] * 2
    assert trained_with([match, match]) == "flexmatch alone"


def test_the_summary_says_when_self_training_did_not_help(tmp_path: Path) -> None:
    parts = {"validation": held_out(TRUTH, KNOWN), "test": held_out(TRUTH, np.flatnonzero(TRUTH == 0))}
    in_memory = one_label_run(tmp_path / "fell", scored=[BETTER, WORSE], name="UPS", **parts)
    fell = by_learner(in_memory, TorchLearnerSettings())
    text = read(tmp_path, fell).text["Summary"]
    line = "Self-training did not help by the {} accuracy: 100.00 % with the labels alone, {} % after the last round."
    assert line.format("validation", "44.44") in text
    assert line.format("test", "100.00") in text  # the same is no help either
    by_method = by_learner(in_memory, TorchLearnerSettings(method="flexmatch"))
    text = read(tmp_path, by_method).text["Summary"]
    assert line.replace("the labels alone", "flexmatch alone").format("validation", "44.44") in text
    helped = one_label_run(tmp_path / "helped", scored=[WORSE, BETTER], name="other", validation=parts["validation"])
    text = read(tmp_path, fell, helped).text["Summary"]
    assert text.count("did not help") == text.count("did not help 'UPS' by") == 2


class Changing(Told):
    """A learner whose labels, too, are those of `scored`, one for each round."""

    def predict(self, source: Any, *, seed: int) -> Iterator[Prediction]:
        p = self.scored[min(self.round, len(self.scored) - 1)]
        yield Prediction(source.ids, p[rows_of(source)], self.u[rows_of(source)])


def changing_run(folder: Path, scored: Sequence[Any], truth: Any, config: sl.UPSConfig, **rest: Any) -> RunFolder:
    number, num_classes = scored[0].shape
    learner = Changing(scored[0], np.zeros((number, num_classes)), scored)
    labeled = numbered([0, 1]), np.arange(2) if truth.ndim == 1 else np.eye(2, num_classes, dtype=int)
    validation, pool = held_out(truth, np.arange(number)), numbered(np.arange(number))
    list(run(folder, learner, labeled, pool, config, validation, **rest))
    return RunFolder.open(folder)


def test_the_labels_of_both_rounds_are_compared_sample_by_sample(tmp_path: Path) -> None:
    truth = np.arange(40) % 2
    right, wrong = both(np.where(truth == 0, 0.9, 0.1)), both(np.where(truth == 0, 0.1, 0.9))
    mixed = np.where(np.arange(40)[:, None] < 6, wrong, right)
    other = np.where(np.arange(40)[:, None] < 1, wrong, right)
    worse = changing_run(tmp_path / "worse", [other, mixed], truth, CONFIG)
    # One is wrong in both rounds and five in the last alone.
    low, high = (f"{100 * end:+.1f}" for end in paired_change(np.arange(40) >= 1, np.arange(40) >= 6)[1:])
    told = (
        "By the labels of 'surelabel label', 34 of 40 validation samples are right, and 39 were in round 0: -12.5 "
        f"points (paired 95 % interval {low} to {high})."
    )
    assert rounds_change(worse) == ("By the validation score the last round is worse than round 0.", told)
    assert told in read(tmp_path, worse).text["Summary"]
    better = changing_run(tmp_path / "better", [mixed, other], truth, CONFIG)
    change = rounds_change(better)
    assert change is not None
    assert change.worse == ""
    assert change.text.startswith("By the labels of 'surelabel label', 39 of 40 validation samples are right")
    assert "did not help" not in read(tmp_path, better).text["Summary"]


def test_the_change_of_a_mean_average_precision_has_an_interval_where_samples_are_not_few(tmp_path: Path) -> None:
    config = sl.UPSConfig(task="multi", tau_p=0.6, tau_n=0.3, kappa_p=0.5, kappa_n=0.5, max_rounds=1, balance=None)
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 2, size=(30, 3))
    truth[:2] = np.eye(2, 3)
    first = np.clip(0.5 * truth + 0.5 * generator.random((30, 3)), 0, 1).astype(np.float32)
    last = generator.random((30, 3)).astype(np.float32)
    made = changing_run(tmp_path / "many", [first, last], truth, config)
    change, low, high = (f"{value:+.3f}" for value in map_change(first, last, truth == 1, truth >= 0))
    was, now = (record.validation_score for record in made.records())
    assert rounds_change(made) == (
        "By the validation score the last round is worse than round 0.",
        f"By the probabilities of 'surelabel label', the mean average precision is {now:.3f}, and was {was:.3f} in "
        f"round 0: {change} (95 % interval {low} to {high}, a bootstrap over 30 samples).",
    )
    few = rounds_change(changing_run(tmp_path / "few", [first[:12], last[:12]], truth[:12], config))
    assert few is not None
    assert few.text.endswith("in round 0; 12 samples are too few for an interval.")


def test_a_round_whose_labels_alone_are_worse_is_called_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = np.arange(40) % 2
    right = both(np.where(truth == 0, 0.9, 0.1))
    mixed = np.where(np.arange(40)[:, None] < 6, 1 - right, right)
    monkeypatch.setattr(Changing, "predict_proba", lambda self, source: right[rows_of(source)], raising=False)
    made = changing_run(tmp_path / "run", [right, mixed], truth, CONFIG)
    assert [record.validation_score for record in made.records()] == [1.0, 1.0]
    change = rounds_change(made)
    assert change is not None
    assert change.worse == "By its labels of the validation set the last round is worse than round 0."


def test_a_change_over_several_seeds_has_their_interval(tmp_path: Path) -> None:
    parts = {"validation": held_out(TRUTH, KNOWN), "name": "UPS"}
    runs = [one_label_run(tmp_path / "a", scored=[BETTER, WORSE], **parts)]
    runs += [one_label_run(tmp_path / "b", scored=[BETTER, both(P0)], **parts)]
    last, first = ([run.records()[place].validation_score for run in runs] for place in (-1, 0))
    change, low, high = (f"{100 * value:+.2f}" for value in paired_difference(last, first))
    told = f"The mean change over 2 runs is {change} points (95 % interval {low} to {high})."
    assert told in read(tmp_path, *runs).text["Summary"]
    page = read(tmp_path, runs[0], one_label_run(tmp_path / "c", name="UPS"))
    assert (
        f"By the labels of 'surelabel label', {RIGHT[KNOWN].sum()} of 9 validation samples are right"
        in page.text["Summary"]
    )


def by_hand(labels: Any, truth: Any) -> list[tuple[int, int]]:
    """Count samples without a wrong positive, and without a wrong negative, among those that have some."""
    present = truth if truth.ndim == 2 else np.where(truth[:, None] < 0, -1, np.arange(2) == truth[:, None])
    found = []
    for marked, value in ((labels.before, 1), (labels.selection.negative, 0)):
        rows = [
            [entry == value for entry, there in zip(*row, strict=True) if there and entry >= 0]
            for row in zip(present, marked, strict=True)
        ]
        found.append((sum(all(row) for row in rows if row), sum(bool(row) for row in rows)))
    return found


def test_selected_labels_are_counted_as_right_by_sample(tmp_path: Path) -> None:
    single = one_label_run(tmp_path / "single", validation=held_out(TRUTH, KNOWN))
    known = scripted_run(tmp_path / "known", held_out=True)
    several = several_labels_run(tmp_path / "several", validation=held_out(SEVERAL_TRUTH, np.arange(6)))
    for made, name in ((single, "validation set"), (known, "pool"), (several, "validation set")):
        labels = made.pool() if name == "pool" else made.validation()
        truth = made.truth if name == "pool" else made.validation_truth
        positive, _ = by_hand(labels, truth)
        # Of a pool, negatives of samples with a positive are only counted; the validation set has the same samples.
        _, negative = by_hand(made.validation(), made.validation_truth)
        assert check_selected(made) == (name, positive, negative, ())
        assert 0 < positive[0] < positive[1], "some of the selected labels are wrong"
    # Of samples 0, 1, 3, 5 and 6, which pass the thresholds, 3 is wrong. Of the pool, 9 is not known; 1 and 3 are left
    # out by balancing, and counted all the same.
    assert check_selected(single)[1] == check_selected(known)[1] == (4, 5)
    assert check_selected(one_label_run(tmp_path / "none")) is None


def test_the_summary_says_how_often_selected_labels_are_right(tmp_path: Path) -> None:
    checked = one_label_run(tmp_path / "checked", validation=held_out(TRUTH, KNOWN))
    page = read(tmp_path, checked)
    assert page.cells[page.cells.index("judged by the") + 3 :][:3] == [
        "checked",
        "validation set",
        "80.0 % (4 of 5; 95 % interval 28.4 to 99.5 %)",
    ]
    assert "was not checked" not in page.text["Summary"]
    blind = one_label_run(tmp_path / "blind")
    assert (
        "How often selected labels are right was not checked: the run has no validation labels"
        in (read(tmp_path, blind).text["Summary"])
    )
    page = read(tmp_path, checked, blind)
    assert page.cells[page.cells.index("blind", page.cells.index("judged by the")) :][1:4] == [
        "–",
        "not checked",
        "–",
    ]


def test_a_set_of_which_nothing_is_selected_is_not_checked(tmp_path: Path) -> None:
    made = one_label_run(tmp_path / "run", validation=held_out(TRUTH, KNOWN), tau_p=1.0, tau_n=0.0)
    assert selected_lines(made) == [
        "No label in the validation set is selected, so how often selected labels are right was not checked."
    ]


def test_a_run_of_round_0_alone_has_one_score(tmp_path: Path) -> None:
    page = read(tmp_path, one_label_run(tmp_path / "run", unlabeled=False, validation=held_out(TRUTH, KNOWN)))
    assert "validation accuracy (%)" in page.cells
    assert not any("no selected label" in cell for cell in page.cells)
    assert "did not help" not in page.text["Summary"]


def test_counts_have_whole_ticks_and_small_uncertainties_few() -> None:
    counts = lines_by_round({"UPS": [Statistic(75, None, 1), Statistic(76, None, 1)]}, "labels", 1).axes
    assert all(float(tick).is_integer() for tick in counts.get_yticks())
    for drawn in (
        curves({"UPS": (np.linspace(0, 0.012, 9), np.ones(9))}, "u", "ECE"),
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
