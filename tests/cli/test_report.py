"""`surelabel report` and `surelabel demo`: one HTML file, and a table that fits on a screen."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_support import LOGISTIC, write_blobs
from rich.console import Console

from surelabel import UPSConfig
from surelabel.cli.demo import show_summary
from surelabel.data.run_data import TableData
from surelabel.learners.settings import SklearnLearnerSettings
from surelabel.report.tables import TextTable
from surelabel.reproduce.digits import Job
from surelabel.runs import RunFolder
from surelabel.settings import RunSettings


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_blobs(Path("pets.csv"))


def test_a_report_is_one_html_file_that_is_replaced_only_when_forced(command):
    for run in ("a", "b"):
        assert command("fit", "pets.csv", "--label", "pet", "--id", "id", *LOGISTIC, "--quiet", "--out", run).code == 0
    assert command("report", "a", "b", "--title", "Cats & dogs") == (0, "The report is in report.html.\n", "")
    page = Path("report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "Cats &amp; dogs" in page
    assert "exists and is kept; choose another name, or give --force" in command.fails(1, "report", "a")
    assert Path("report.html").read_text() == page
    assert command("report", "a", "--force").code == 0
    assert Path("report.html").read_text() != page


@pytest.mark.usefixtures("undrawn")
def test_a_validation_set_gives_a_report_its_figures(command):
    fit = ("fit", "pets.csv", "--label", "pet", "--id", "id", *LOGISTIC, "--quiet")
    assert command(*fit, "--out", "a").code == 0
    assert command(*fit, "--validation", "0.5", "--out", "b").code == 0
    pages = []
    for run in ("a", "b"):
        assert command("report", run, "--out", f"{run}.html").code == 0
        pages.append(Path(f"{run}.html").read_text())
    assert ["<h2>Reliability</h2>" in page for page in pages] == [False, True]
    assert ["surelabel fit --validation 0.2" in page for page in pages] == [True, False]
    assert "Judged on the validation set (4 samples)" in pages[1]


def test_a_run_without_a_finished_round_is_refused(command, monkeypatch):
    def full(*arguments: object, **more: object) -> None:
        raise MemoryError

    monkeypatch.setattr("surelabel.learners.sklearn.SklearnLearner.fit", full)
    assert command("fit", "pets.csv", "--label", "pet", "--id", "id", *LOGISTIC, "--out", "a").code == 1
    assert RunFolder.open("a").num_rounds == 0
    assert "The run in 'a' has no finished round; resume it" in command.fails(1, "report", "a")
    assert "0 finished rounds" in command.fails(1, "predict", "a", "pets.csv")


def test_a_report_must_be_html(command):
    line = command.fails(2, "report", "a", "--out", "report.pdf")
    assert line == "Invalid value for '--out': 'report.pdf' must end in .html."


@pytest.mark.usefixtures("undrawn")
def test_the_demo_prints_a_table_and_tells_where_the_report_is(command, monkeypatch):
    def small_jobs(out: Path, seeds: Sequence[int], variants: object) -> list[Job]:
        """The demo's way with a task that takes a moment."""
        learner = SklearnLearnerSettings(estimator="sklearn.linear_model:LogisticRegression", members=3)
        data = TableData(path=Path("pets.csv"), labels=("pet",), id_column="id", validation=0.5)
        rows = {"Supervised": 0, "UPS": 1}
        return [
            Job(
                out / f"{name}-{seed}",
                RunSettings(
                    name=name, config=UPSConfig(max_rounds=last, seed=seed), learner=learner, data=data.pinned()
                ),
            )
            for seed in seeds
            for name, last in rows.items()
        ]

    monkeypatch.setattr("surelabel.reproduce.demo.demo_jobs", small_jobs)
    monkeypatch.setattr("surelabel.cli.demo.cores", lambda: 1)
    result = command("demo", "--out", "out/demo", "--seeds", "2")
    assert (result.code, result.err) == (0, "")
    rows = [line.split()[0] for line in result.out.splitlines() if line.startswith((" Supervised", " UPS"))]
    assert rows == ["Supervised", "UPS"]
    assert "The report is in out/demo/report.html" in result.out
    assert Path("out/demo/report.html").exists()
    assert sorted(path.name for path in Path("out/demo").iterdir() if path.is_dir()) == [
        "Supervised-0",
        "Supervised-1",
        "UPS-0",
        "UPS-1",
    ]


def test_the_table_of_the_demo_fits_into_80_columns_with_every_cell_whole(monkeypatch):
    score, count = "88.13 ± 1.23", "1307 ± 120"
    header = ["row", "seeds", "rounds", "test accuracy (%)", "labels selected", "selected labels right (%)"]
    line = ["UPS, no negatives", "3", "4", score, count, score, count, score, "0.7 ± 0.1"]
    table = TextTable([*header, "negatives selected", "negatives right (%)", "minutes"], [line])
    screen = Console(file=io.StringIO(), width=80)
    monkeypatch.setattr("surelabel.cli._console.out", screen)
    show_summary(table)
    shown = screen.file.getvalue().replace("\u00a0", " ")
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert f"UPS, no negatives   {score}" in shown
