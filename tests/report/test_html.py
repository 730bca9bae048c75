"""The report: every section, nothing from elsewhere, and numbers that the tables themselves give."""

import base64
import io
import math
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import surelabel as sl
from surelabel.data.run_data import FunctionData
from surelabel.errors import InvalidInputError, RunError
from surelabel.report.drawing import Picture, panel
from surelabel.report.figures import (
    calibration_figure,
    ece_by_uncertainty,
    first_selection_figure,
    risk_coverage_figure,
    rounds_figure,
    uncertainty_grid,
)
from surelabel.report.html import summary_table, write_report
from surelabel.report.pictures import pictures_figure, to_pixels
from surelabel.report.tables import (
    JudgedLabels,
    Row,
    Statistic,
    by_round,
    group_runs,
    judged_labels,
    main_row,
    statistic,
)
from surelabel.reproduce.digits import Job, demo_settings, run_jobs
from surelabel.reproduce.first_selection import difference_at_equal_counts, find_pairs
from surelabel.reproduce.variants import VARIANTS, full_ups
from surelabel.runs import RunFolder
from surelabel.runs.session import run
from surelabel.settings import RunSettings

SECTIONS = [
    "Summary",
    "Selected labels and scores by round",
    "Calibration of the certain samples",
    "Right and wrong labels",
    "Reliability",
    "Risk and coverage",
    "Classes of the first selection",
    "Confident, wrong and kept out",
    "Settings",
    "Environment",
]
"""What a report with nothing missing has; tables that do not apply to its runs are left out."""


def quick(settings: RunSettings) -> RunSettings:
    assert settings.learner is not None
    config = settings.config.replace(
        max_rounds=min(2, settings.config.max_rounds), kappa_p=min(0.1, settings.config.kappa_p)
    )
    if settings.config.kappa_p == math.inf:
        config = config.replace(kappa_p=math.inf)
    training = settings.learner.training.replace(min_steps=60, batch_size=64, learning_rate=0.1)
    return settings.replace(config=config, learner=settings.learner.replace(training=training))


@pytest.fixture(scope="module")
def demo_runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    folder = tmp_path_factory.mktemp("runs")
    made = []
    for seed, variants in ((0, VARIANTS), (1, (full_ups,))):
        for variant in variants:
            path = folder / f"{variant.__name__}-{seed}"
            run_jobs([Job(path, quick(variant(demo_settings(seed))))], workers=1)
            made.append(RunFolder.open(path))
    return made


@pytest.fixture(scope="module")
def ups(demo_runs: list[RunFolder]) -> Row:
    return next(row for row in group_runs(demo_runs) if row.name == "UPS")


@pytest.fixture(scope="module")
def page(demo_runs: list[RunFolder], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = write_report(demo_runs, tmp_path_factory.mktemp("report") / "new" / "report.html", title="Digits & <more>")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


class Addresses(HTMLParser):
    """Collects every address that a browser would load, and checks that each tag is closed."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> Addresses:
    parser = Addresses()
    parser.feed(page)
    parser.close()
    assert not parser.open
    return parser


def headings(page: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", page)


def test_the_page_has_every_section_and_loads_nothing(page: str) -> None:
    assert headings(page) == SECTIONS
    assert "<title>Digits &amp; &lt;more&gt;</title>" in page
    found = parsed(page)
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in found.found)
    assert len(found.ids) == len(set(found.ids))
    assert not re.search(r"@import|<script|url\((?!#)", page)
    assert page.count("<svg") == page.count("</svg>") >= 12


def test_a_figure_is_the_same_when_it_is_drawn_again(ups: Row) -> None:
    first, second = (first_selection_figure(ups).panels[0].svg for _ in range(2))
    assert first == second


def test_references_inside_the_drawings_lead_somewhere(page: str) -> None:
    named = set(re.findall(r"url\(#([^)]*)\)", page)) | set(re.findall(r'href="#([^"]*)"', page))
    assert named
    assert named <= set(parsed(page).ids)


def test_runs_without_truth_and_scores_get_a_report_that_says_what_is_missing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), np.arange(20) % 2
    learner = sl.TorchLearner(training=sl.TrainingSettings(epochs=1, min_steps=3), device="cpu")
    list(run(tmp_path / "run", learner, (x[:20], y), x[20:], sl.UPSConfig(max_rounds=1, kappa_p=0.5)))
    page = write_report([RunFolder.open(tmp_path / "run")], tmp_path / "report.html").read_text(encoding="utf-8")
    parsed(page)
    assert headings(page) == [*SECTIONS[:2], SECTIONS[6], *SECTIONS[8:]]
    assert "“Risk and coverage”: the true labels of the pool are not known." in page
    assert "Not known, so not drawn: share of them that is right, test score." in page
    assert "test accuracy" not in page


def test_a_run_that_knows_all_labels_gets_a_report(tmp_path: Path) -> None:
    """There is no pool, so that all figures of it say so."""
    x = np.random.default_rng(0).normal(size=(20, 3))
    learner = sl.TorchLearner(training=sl.TrainingSettings(epochs=1), device="cpu")
    list(
        run(tmp_path / "run", learner, (x, np.arange(20) % 2), None, sl.UPSConfig(max_rounds=0), test=(x, x[:, 0] > 0))
    )
    found = RunFolder.open(tmp_path / "run")
    assert (found.has_pool, found.truth) == (False, None)
    with pytest.raises(RunError, match="made without unlabeled samples"):
        found.pool()
    write_report([found], tmp_path / "report.html")
    assert headings((tmp_path / "report.html").read_text())[0] == "Summary"


@pytest.mark.usefixtures("undrawn")
def test_a_run_of_several_labels_gets_a_report(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 4))
    y = (x[:, :3] > 0).astype(int)
    learner = sl.TorchLearner(
        training=sl.TrainingSettings(epochs=1, min_steps=30, learning_rate=0.1), device="cpu", task="multi"
    )
    config = sl.UPSConfig(task="multi", tau_p=0.5, kappa_p=0.5, kappa_n=0.5, tau_n=0.4, max_rounds=1)
    parts = {"test": (x[60:], y[60:]), "validation": (x[50:60], y[50:60])}
    list(run(tmp_path / "run", learner, (x[:20], y[:20]), x[20:50], config, truth=y[20:50], **parts))
    folder = RunFolder.open(tmp_path / "run")
    page = write_report([folder], tmp_path / "report.html").read_text(encoding="utf-8")
    assert headings(page) == [*SECTIONS[:7], "Classes of the last network", *SECTIONS[8:]]
    assert "test mAP (%)" in page
    assert "test mAP, 11 points (%)" in page
    assert "Not drawn: “Confident, wrong and kept out”: the samples are not pictures (one has shape (4,))." in page
    labels = judged_labels(group_runs([folder])[0], 0)
    pool, truth = folder.pool(0), folder.truth
    assert labels.right.shape == (90,)
    assert labels.right.mean() == (pool.label == truth).mean()
    assert labels.confidence.min() >= 0.5


def test_a_supervised_run_alone_gets_a_report_with_its_name_escaped(demo_runs: list[RunFolder], tmp_path: Path) -> None:
    only = demo_runs[0]
    assert only.settings.config.max_rounds == 0
    renamed = RunFolder(only.path, only.settings.replace(name="<b>"), only.version, only.entries)
    page = write_report([renamed], tmp_path / "report.html").read_text(encoding="utf-8")
    assert headings(page) == [SECTIONS[0], *SECTIONS[2:]]
    assert f"Not drawn: “{SECTIONS[1]}”: nothing was selected, round 0 is the only one." in page
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def test_the_main_row_is_the_last_one_that_selects_by_uncertainty(demo_runs: list[RunFolder]) -> None:
    rows = group_runs(demo_runs)
    assert main_row(rows).name == "UPS"
    assert main_row(rows[:3]).name == "Confidence-based"
    assert main_row(rows[:1]).name == "Supervised"


def test_the_summary_is_the_mean_and_deviation_of_the_last_rounds(demo_runs: list[RunFolder], ups: Row) -> None:
    last = [one.records()[-1] for one in ups.runs]
    scores = [record.test_score for record in last]
    table = summary_table(group_runs(demo_runs))
    assert [line[0] for line in table.lines] == [variant(demo_settings()).name for variant in VARIANTS]
    column = table.header.index("test accuracy (%)")
    assert table.lines[-1][column] == f"{100 * np.mean(scores):.2f} ± {100 * np.std(scores, ddof=1):.2f}"
    assert table.lines[0][table.header.index("labels selected")] == "–"


def test_a_statistic_leaves_out_what_is_unknown() -> None:
    assert statistic([None, None]) is None
    assert statistic([2.0]) == Statistic(2.0, None, 1)
    assert f"{statistic([1.0, 3.0]):.1f}" == "2.0 ± 1.4"


def test_rounds_are_averaged_over_those_that_every_run_has(ups: Row) -> None:
    values = by_round(ups, "num_positive")
    assert len(values) == 3
    expected = np.mean([one.records()[2].num_positive for one in ups.runs])
    assert values[2].mean == expected


def test_the_ece_curve_is_equation_6_of_the_certain_samples(ups: Row) -> None:
    labels = judged_labels(ups, 0)
    grid = uncertainty_grid(labels)
    curve = ece_by_uncertainty(labels, grid)
    for t, value in zip(grid[1:], curve[1:], strict=True):
        gaps = 0.0
        confidences, rights = [], []
        for one in ups.runs:
            table = one.pool_table(0).to_pylist()
            chosen = [entry for entry in table if entry["uncertainty"] <= np.float32(t)]
            confidences += [entry["confidence"] for entry in chosen]
            rights += [entry["label"] == entry["truth"] for entry in chosen]
        confidence, right = np.array(confidences, dtype=np.float32), np.array(rights)
        for k in range(15):
            inside = (confidence > np.float32(k / 15)) & (confidence <= np.float32((k + 1) / 15))
            gaps += abs(confidence[inside].sum(dtype=np.float64) - right[inside].sum())
        assert value == pytest.approx(gaps / len(right), abs=1e-6)
    assert curve[-1] == pytest.approx(sl.calibration.calibration_error(labels.confidence, labels.right))


def test_an_empty_stretch_of_the_ece_curve_is_left_open() -> None:
    labels = JudgedLabels(np.array([0.9, 0.8]), np.array([0.2, 0.4]), np.array([True, False]), np.array([True, False]))
    curve = ece_by_uncertainty(labels, np.array([0.1, 0.2, 0.4]))
    assert math.isnan(curve[0])
    assert curve[1:] == pytest.approx([0.1, 0.45])


def test_the_risk_figure_names_the_auroc_of_the_tables(ups: Row) -> None:
    labels = judged_labels(ups, 0)
    expected = sl.uncertainty_auroc(labels.uncertainty, ~labels.right)
    assert f"u (AUROC {expected:.3f})" in risk_coverage_figure(ups).panels[0].svg


def test_figures_of_one_deterministic_pass_say_that_there_is_no_uncertainty(demo_runs: list[RunFolder]) -> None:
    row = next(row for row in group_runs(demo_runs) if row.name == "Confidence-based")
    for figure in (calibration_figure(row), risk_coverage_figure(row), pictures_figure(row)):
        assert not figure.panels
        assert "estimated no uncertainty" in figure.note
    assert first_selection_figure(row).panels


def test_every_row_has_a_line_in_the_figure_of_rounds(demo_runs: list[RunFolder]) -> None:
    figure = rounds_figure(group_runs(demo_runs))
    number, accuracy, score = panels = [panel.svg for panel in figure.panels]
    for name in ("Pseudo-labeling", "Confidence-based", "UPS, no negatives", "UPS"):
        assert all(f">{name}<" in one for one in panels)
    assert ">Supervised<" in score
    assert ">Supervised<" not in number + accuracy


def test_pictures_are_confident_wrong_and_uncertain(ups: Row) -> None:
    expected = []
    for network in range(ups.num_rounds):
        for one in ups.runs:
            pool, kappa = one.pool(network), one.settings.config.kappa_p
            wrong = (pool.confidence > 0.9) & (pool.uncertainty > kappa) & (pool.label != one.truth)
            assert not pool.selection.positive[wrong].any()
            expected += [f"confidence {pool.confidence[at]:.2f}" for at in np.flatnonzero(wrong)]
    figure = pictures_figure(ups, limit=4)
    assert len(figure.pictures) == min(4, len(expected))
    assert all(any(text in picture.caption for text in expected) for picture in figure.pictures)
    assert bool(figure.note) == (not expected)


def test_confidence_and_uncertainty_are_compared_on_the_same_network(demo_runs: list[RunFolder], ups: Row) -> None:
    (pair,) = find_pairs(ups.runs, demo_runs)  # the second seed has no other run
    assert pair.deterministic.settings.name == "Pseudo-labeling"
    entries = [run.pool_table(0).to_pylist() for run in (pair.stochastic, pair.deterministic)]
    chosen = [entry for entry in entries[0] if entry["before_balancing"]]
    others: list[dict[str, object]] = []
    for name, count in Counter(entry["label"] for entry in chosen).items():
        ranked = sorted((entry for entry in entries[1] if entry["label"] == name), key=lambda one: -one["confidence"])
        others += ranked[:count]
    shares = [np.mean([entry["label"] == entry["truth"] for entry in part]) for part in (chosen, others)]
    found = difference_at_equal_counts(pair, "confidence")
    assert found.mean == pytest.approx(shares[0] - shares[1])


def test_a_picture_holds_the_sample_enlarged() -> None:
    pixels = to_pixels(np.array([[[0.0, 0.5], [1.0, 0.25]]]))
    assert pixels.shape == (96, 96)
    assert pixels[::48, ::48].tolist() == [[0, 128], [255, 64]]
    assert to_pixels(np.zeros((3, 2, 2))).shape == (96, 96, 3)


def test_the_pixels_of_a_picture_are_left_as_they_are() -> None:
    sample = np.arange(100, 112, dtype=np.uint8).reshape(3, 2, 2)
    np.testing.assert_array_equal(to_pixels(sample)[::48, ::48], sample.transpose(1, 2, 0))
    large = np.zeros((200, 100), np.uint8)
    assert to_pixels(large).shape == (200, 100)


def test_a_picture_is_a_png_inside_an_address() -> None:
    from PIL import Image

    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    address = Picture(pixels, "four pixels").source
    assert address.startswith("data:image/png;base64,")
    found = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))
    np.testing.assert_array_equal(found, pixels)


def test_a_function_from_elsewhere_is_not_called_without_being_asked(ups: Row) -> None:
    only = ups.runs[0]
    foreign = only.settings.replace(data=FunctionData(function="elsewhere:data"))
    notes = [
        pictures_figure(Row("UPS", (RunFolder(only.path, foreign, only.version, only.entries, trust),))).note
        for trust in (False, True)
    ]
    assert "names the code 'elsewhere:data', and the run is not signed by you" in notes[0]
    assert "'elsewhere:data' cannot be used" in notes[1]


@pytest.mark.usefixtures("undrawn")
def test_a_function_that_fails_leaves_out_the_pictures_alone(ups: Row, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def data():\n    return {}['gone']\n")
    only, reference = ups.runs[0], f"{tmp_path}/mine.py:data"
    settings = only.settings.replace(data=FunctionData(function=reference))
    signed = RunFolder(only.path, settings, only.version, only.entries, trust_code=True)
    page = write_report([signed], tmp_path / "report.html").read_text()
    assert "the run&#39;s data cannot be read. KeyError: &#39;gone&#39;" in page
    (tmp_path / "mine.py").unlink()
    page = write_report([signed], tmp_path / "report.html").read_text()
    assert "mine.py&#39;, which does not exist" in page


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="at least one run folder"):
        write_report([], tmp_path / "report.html")


def test_a_run_without_a_finished_round_is_named(demo_runs: list[RunFolder], tmp_path: Path) -> None:
    begun = RunFolder(tmp_path / "begun", demo_runs[0].settings, demo_runs[0].version, [])
    with pytest.raises(InvalidInputError, match="begun.*no finished round"):
        write_report([begun], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_text_in_a_drawing_is_escaped_and_follows_the_ink() -> None:
    with panel('a "b" <c>') as drawn:
        drawn.axes.set(xlabel="<script>")
    assert "<script>" not in drawn.svg
    assert 'aria-label="a &quot;b&quot; &lt;c&gt;"' in drawn.svg
    assert "currentColor" in drawn.svg
