"""Names of classes and runs may be anything: figures and reports show them as they are, or shortened."""

import html
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from report_support import scripted_run

import surelabel as sl
from surelabel.data.pool import Prediction
from surelabel.data.run_data import RunData, TableData
from surelabel.report.drawing import (
    Panel,
    classes,
    curves,
    histogram,
    lines_by_round,
    literal,
    panel,
    visible,
)
from surelabel.report.held_out import checked_table
from surelabel.report.html import write_report
from surelabel.report.tables import Statistic, TextTable, _of_one_split, all_but_seed, group_runs
from surelabel.reproduce.paper_figures import figure_1_by_round, figure_4, write_figures
from surelabel.runs import RunFolder
from surelabel.runs.session import run
from surelabel.settings import RunSettings

PLAIN = [
    "$10_$20",
    "cost $5 to $6",
    r"\frac{",
    "<script>",
    "🐱",
    "_hidden",
    "a, b & c",
    'id="x"#010203',
    "שלום",
    "犬\u3000猫",
]
"""Names that are shown as they are."""
CHANGED = {"\n": r"\n", "a\x00b\x1b": r"a\x00b\x1b", "\u202egnp.exe": r"\u202egnp.exe", "\ud800": r"\ud800"}
"""Names that are shown in another way, and how: nothing in them can be seen, or it would turn the text around."""
LONG = "begin" + "x" * 300 + "end"


def texts(drawing: Panel | Path) -> list[str]:
    """Return the texts of a drawing, which must be well-formed."""
    root = ElementTree.parse(drawing).getroot() if isinstance(drawing, Path) else ElementTree.fromstring(drawing.svg)
    return ["".join(text.itertext()) for text in root.iter() if text.tag.endswith("text")]


SHOWN = {**{name: name for name in PLAIN}, **CHANGED}


def test_names_are_shown_literally_in_every_kind_of_panel() -> None:
    line = [Statistic(0.5, None, 1)]
    panels = [
        curves({name: ([0, 1], [0, 1]) for name in SHOWN}, "x", "y"),
        lines_by_round({"other": line * 2, **dict.fromkeys(SHOWN, line)}, "score", 0),
        classes(["other", *SHOWN], [2] * (len(SHOWN) + 1), [1] * (len(SHOWN) + 1), "classes"),
    ]
    for drawn in panels:
        assert set(SHOWN.values()) <= set(texts(drawn))


@pytest.mark.parametrize(("name", "shown"), [*SHOWN.items()])
def test_the_first_name_is_shown_literally_too(name: str, shown: str) -> None:
    line = [Statistic(0.5, None, 1)]
    assert shown in texts(lines_by_round({name: line * 2, "other": line}, "score", 0))


def test_a_long_name_is_shown_by_its_beginning_and_its_end() -> None:
    for drawn in (curves({LONG: ([0, 1], [0, 1])}, "x", "y"), classes([LONG] * 30, [1] * 30, [1] * 30, "classes")):
        (found,) = {text for text in texts(drawn) if text.startswith("begin")}
        assert len(found) <= 40
        assert found.endswith("xend")
        assert "…" in found
    assert literal("x" * 40) == "x" * 40


@pytest.mark.parametrize("length", [2, 3, 7, 8])
def test_a_shortened_name_is_as_long_as_asked_for(length: int) -> None:
    assert len(literal("abcdefghijkl", length)) == length


def test_what_joins_letters_stays() -> None:
    family = "👩\u200d👧"
    assert visible(family) == family


def test_every_line_has_its_name_however_many_there_are() -> None:
    names = [f"row {number}" for number in range(9)]
    drawn = curves({name: ([0, 1], [0, 1]) for name in names}, "x", "y")
    assert [text for text in texts(drawn) if text.startswith("row")] == names


def test_counts_on_a_logarithmic_axis_are_plain_numbers() -> None:
    found = texts(histogram(np.full(2000, 0.5), np.arange(2000) < 1990, "confidence"))
    assert {"1", "10", "100", "1,000"} <= set(found)
    assert not any("$" in text or "{" in text for text in found)


def test_ids_and_ink_in_the_text_of_a_drawing_are_left_alone() -> None:
    name = 'id="x" url(#y) xlink:href="#z" #010203'
    with panel("a drawing") as drawn:
        drawn.axes.set(xlabel=name)
    assert name in texts(drawn)


class Guess:
    """A learner that is confident, wrong about all samples but those of the first class, and sure of some."""

    model_file = "model.safetensors"

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def fit(self, training_set: Any, *, seed: int) -> None:
        """Do nothing."""

    def predict(self, source: Any, *, seed: int) -> Iterator[Prediction]:
        number, others = len(source.ids), self.num_classes - 1
        p = np.tile(np.float32([0.95, *[0.05 / others] * others]), (number, 1))
        yield Prediction(source.ids, p, np.tile(np.float32([0.01, 0.2]), number)[:number, None] * np.ones_like(p))

    def to_bytes(self) -> bytes:
        return b"nothing"


@dataclass(frozen=True, eq=False)
class ReadAgain(RunFolder):
    """A run whose data are given, since no reference names them."""

    again: list[RunData] = field(default_factory=list)

    def data(self) -> RunData:
        """Return what was given."""
        return self.again[0]


def hostile_run(folder: Path, classes: list[str], name: str = "") -> RunFolder:
    """Make a run on small pictures, which it can read again."""
    config, number = sl.UPSConfig(kappa_p=0.05, max_rounds=1, balance=None), len(classes)
    x, truth = np.zeros((4 * number, 1, 4, 4)), np.arange(4 * number) % number
    labeled, pool = (x[:number], truth[:number]), x
    learner = Guess(number)
    list(run(folder, learner, labeled, pool, config, (x, truth), None, truth, classes=classes, name=name or classes[0]))
    found = ReadAgain.open(folder)
    found.again.append(RunData(labeled, pool, classes, truth=truth))
    return found


NAMES = [*PLAIN, *(name for name in CHANGED if name != "\ud800"), LONG]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """A run of each name, whose classes have all of the names."""
    folder = tmp_path_factory.mktemp("runs")
    return [hostile_run(folder / str(place), NAMES, name) for place, name in enumerate(NAMES)]


def test_a_report_shows_every_name(runs: list[RunFolder], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = write_report(runs, tmp_path / "all.html", title="\ud800").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "\x00" not in text
    assert "taken for" in text, "the pictures are shown"
    assert r"<title>\ud800</title>" in text
    for name in NAMES:
        shown = html.escape(CHANGED.get(name, name)).replace("&#x27;", "&#39;")
        assert shown.replace("&quot;", "&#34;") in text


@pytest.mark.parametrize("form", ["svg", pytest.param("pdf", marks=pytest.mark.slow)])
def test_every_figure_of_the_paper_is_drawn_with_any_name(runs: list[RunFolder], tmp_path: Path, form: str) -> None:
    letters = ("1-a", "1-b", "1-c", "3-a", "3-b", "3-c", "3-d", "4")
    expected = [*(f"figure-{letter}" for letter in letters), "first-selection"]
    *files, _ = write_figures(runs[:1], tmp_path, [form])
    assert [file.name for file in files] == [f"{name}.{form}" for name in expected]
    if form == "svg":
        assert {literal(name, 16) for name in NAMES} <= set(texts(tmp_path / "first-selection.svg"))


def test_lines_of_the_papers_figures_have_any_name(runs: list[RunFolder]) -> None:
    for made in runs:
        for figure in figure_1_by_round(group_runs([made])).values():
            assert literal(made.settings.name) in texts(figure.panels[0])


@pytest.mark.parametrize(("first", "second"), [*zip(NAMES, [*NAMES[1:], NAMES[0]], strict=True)])
def test_captions_of_pictures_are_lines_of_their_own_whatever_the_names(
    first: str, second: str, tmp_path: Path
) -> None:
    (panel,) = figure_4(group_runs([hostile_run(tmp_path / "run", [first, second])])[0]).panels
    panel.save(tmp_path / "figure.svg")
    lines = [literal(second, 24), literal(f"taken for {first}", 24), "confidence 0.95", "u 0.20 (round 0)"]
    assert texts(tmp_path / "figure.svg")[:4] == lines


def test_a_table_in_markdown_shows_dollars_and_stars_as_they_are() -> None:
    assert TextTable(["row"], [["cost $5 to $6 *now*"]]).markdown().splitlines()[2] == r"| cost \$5 to \$6 \*now\* |"


def test_runs_without_a_name_are_one_row_if_their_folders_have_one_name_and_only_their_seeds_differ(
    tmp_path: Path,
) -> None:
    changes: dict[str, dict[str, Any]] = {"a": {}, "b": {"seed": 1}, "c": {"tau_p": 0.8}}
    runs = [scripted_run(tmp_path / place / "run", **change) for place, change in changes.items()]
    assert [(row.name, len(row.runs)) for row in group_runs(runs[:2])] == [("run", 2)]
    names = {row.name: row.runs for row in group_runs(runs)}
    assert names == {f"{tmp_path}/a/run": tuple(runs[:2]), f"{tmp_path}/c/run": tuple(runs[2:])}
    assert [line[0] for line in checked_table(group_runs(runs)).lines] == [f"{tmp_path}/{place}/run" for place in "abc"]


def test_other_seeds_draw_other_validation_rows_of_the_same_file() -> None:
    settings = [
        RunSettings(
            config=sl.UPSConfig(seed=seed), data=TableData(path=Path("a.csv"), validation=0.2, validation_seed=seed)
        )
        for seed in (0, 1)
    ]
    assert len({all_but_seed(_of_one_split(one)) for one in settings}) == 1


def test_a_report_shows_runs_of_other_classes_whose_folders_have_one_name(tmp_path: Path) -> None:
    classes = {"a": ["cat", "dog"], "b": ["cat", "dog", "owl"]}
    runs = [hostile_run(tmp_path / place / "run", names).called("") for place, names in classes.items()]
    text = write_report(runs, tmp_path / "both.html").read_text(encoding="utf-8")
    for place in classes:
        assert f'<th scope="row">{tmp_path}/{place}/run</th>' in text
