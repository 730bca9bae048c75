"""Tables with words, dates, gaps and texts: from `fit` to `predict`, `label` and `resume`, and the guides' commands."""

import csv
import random
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from cli_support import QUICK

from surelabel.runs import RunFolder

pytestmark = pytest.mark.usefixtures("short_fits")

DOCS = Path(__file__).parents[2] / "docs"
HEAD = ["key", "color", "size", "bought on", "guarantee", "note", "verdict"]


def rows(number: int = 60, labeled: int = 16) -> list[list[object]]:
    drawn = random.Random(0)
    made: list[list[object]] = []
    for row in range(number):
        good = row % 2 == 0
        note = "works\nwell, every day" if good else "broken again, très mauvais"
        made.append(
            [
                f"K{row:03d}x",
                drawn.choice(["rot", "grün", 'say "hi"'] if good else ["rot", "gelb", ""]),
                round(drawn.gauss(5 if good else 3, 1), 2) if row % 7 else "NA",
                f"20{drawn.randint(10, 23)}-{drawn.randint(1, 12):02d}-01" if row % 9 else "",
                "yes" if good else "no",
                f"{note} {row} 無料",
                ("good" if good else "bad") if row < labeled else "",
            ]
        )
    return made


def write(path: str, head: list[str], lines: list[list[object]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([head, *lines])


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("messy.csv", HEAD, rows())


@pytest.mark.filterwarnings("always")
def test_a_messy_table_goes_all_the_way(command):
    result = command("fit", "messy.csv", "--label", "verdict", "--out", "run", *QUICK)
    assert result.code == 0
    assert "warning: 'key' of 'messy.csv' differs in most rows" in result.err
    for line in (
        "Used as numbers: size (gaps).",
        "Used as categories: color (4, gaps).",
        "Used as dates: bought on (gaps).",
        "Used as booleans: guarantee.",
        "Used as texts: note.",
        "Left out: key.",
    ):
        assert line in result.out.splitlines()
    write(
        "new.csv",
        ["extra", *HEAD[5:0:-1]],
        [[1, "works", "YES", "2031-01-01", "", "never seen"], [2, "", "", "", 1, ""]],
    )
    predicted = command("predict", "run", "new.csv")
    assert predicted.code == 0
    assert len(predicted.out.splitlines()) == 3
    assert command("label", "run", "new.csv").code == 0
    before = RunFolder.open("run").settings.data
    assert command("resume", "run", "--rounds", "2", "--quiet").code == 0
    assert RunFolder.open("run").settings.data == before
    assert command("report", "run", "--out", "report.html").code == 0


def test_new_files_that_cannot_be_used_are_told(command):
    command("fit", "messy.csv", "--label", "verdict", "--out", "run", "--drop", "key", "--quiet", *QUICK)
    write("lacks.csv", ["color", "size"], [["rot", 1]])
    line = command.fails(1, "predict", "run", "lacks.csv")
    assert "lacks 3 of the 5 feature columns that the model was trained on: 'bought on', 'guarantee', 'note'" in line
    write("date.csv", HEAD[1:6], [["rot", 1, "soon", "no", "x"]])
    line = command.fails(1, "predict", "run", "date.csv")
    assert "column 'bought on', row 1: 'soon' is not a date" in line
    path = Path("run/texts.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    assert "texts.safetensors' is damaged" in command.fails(1, "predict", "run", "messy.csv")
    assert "texts.safetensors' is damaged" in command.fails(1, "resume", "run", "--rounds", "3")


def test_a_lone_word_among_numbers_is_still_refused(command):
    lines = [[f"{row}.5", "u" if row % 2 else "v" if row < 20 else ""] for row in range(300)]
    write("t.csv", ["a", "label"], [*lines, ["x1", ""]])
    line = command.fails(1, "fit", "t.csv", "--label", "label", "--out", "run")
    assert "column 'a', row 301: 'x1' is not a number, as nearly all cells" in line
    assert "--use a=category" in line
    assert not Path("run").exists()


def test_parquet_of_pandas(command):
    pandas = pytest.importorskip("pandas")
    kind = np.arange(40) % 2
    frame = pandas.DataFrame(
        {
            "cat": pandas.Categorical(np.where(kind, "a", "b")),
            "code": pandas.Categorical(kind + 7),
            "when": pandas.date_range("2024-01-01", periods=40, freq="7h", tz="Europe/Berlin"),
            "count": pandas.array(kind, dtype="Int64"),
            "flag": pandas.array(kind == 1, dtype="boolean"),
            "word": pandas.array(["x", "y", "y", "x"] * 10, dtype="string"),
            "label": np.where(kind, "pos", "neg"),
        }
    )
    frame.loc[3, ["count", "flag", "when", "word"]] = pandas.NA
    frame.loc[12:, "label"] = None
    frame.to_parquet("t.parquet")
    result = command("fit", "t.parquet", "--label", "label", "--use", "code=category", "--out", "run", *QUICK)
    assert result.code == 0, result.err
    assert "Used as numbers: count (gaps), flag (gaps)." in result.out
    assert "Used as dates: when (gaps)." in result.out
    assert "cat (2), code (2), word (2, gaps)" in result.out.replace("code (2), cat (2)", "cat (2), code (2)")
    frame.drop(columns="label").head(4).to_parquet("new.parquet")
    assert command("predict", "run", "new.parquet").code == 0


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("guide", ["tables.md", "texts.md"])
def test_the_commands_of_a_guide_run(command, guide, tmp_path, monkeypatch):
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "cache"))
    Path("mine.py").write_text(re.findall(r"```python\n(.*?)```", (DOCS / "backbones.md").read_text(), re.DOTALL)[-1])
    write("customers.csv", HEAD, rows())
    write("new_customers.csv", HEAD[:6], [line[:6] for line in rows()])
    write("messages.csv", ["message", "spam"], [line[5:] for line in rows()])
    write("new.csv", ["message"], [line[5:6] for line in rows()])
    text = (DOCS / guide).read_text()
    shell = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    commands = re.findall(r"^surelabel (.+)$", shell, re.MULTILINE)
    assert len(commands) >= 3
    for line in commands:
        parts = shlex.split(line, comments=True)
        result = command(*parts, *(QUICK if parts[0] == "fit" else ()))
        assert result.code == 0, (line, result.err)


def test_the_program_for_texts_runs():
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "texts.md").read_text(), re.DOTALL)
    texts = [line[5] for line in rows()]
    names = {"texts": texts, "labels": [row % 2 if row < 16 else -1 for row in range(60)]}
    exec(compile(code, "texts.md", "exec"), names)
    assert names["classifier"].predict(texts).tolist() == [0, 1] * 30


@pytest.mark.filterwarnings("always")
def test_columns_that_are_filled_with_the_labels_are_warned_of(command):
    quick = (*QUICK, "--rounds", "0")
    drawn, lines = random.Random(0), []
    for row in range(60):
        by_hand = [row % 2 + 7, f"A{row % 2}", f"2024-01-{row + 1:02d}", f"a remark on {row}"] if row < 12 else [""] * 4
        often = row % 2 if drawn.random() < 0.5 else ""
        lines.append([drawn.random(), often, *by_hand, "uv"[row % 2] if row < 12 else ""])
    head = ["size", "often empty", "kind id", "who", "when", "remark", "label"]
    write("t.csv", head, lines)
    result = command("fit", "t.csv", "--label", "label", "--out", "run", *quick)
    assert result.code == 0
    remedy = "--drop 'kind id' --drop who --drop when --drop remark"
    assert result.err == (
        "warning: nearly only labeled rows have a value for 'kind id', 'who', 'when', 'remark'; if it came with the "
        f"label, say {remedy}.\n"
    )
    result = command("fit", "t.csv", "--label", "label", "--out", "again", *shlex.split(remedy), *quick)
    assert (result.code, result.err) == (0, "")
    write("t.csv", head, [lines[row] for row in (0, 1, 2, 3, *range(12, 30))])
    result = command("fit", "t.csv", "--label", "label", "--out", "few", "--use", "remark=category", *quick)
    assert (result.code, result.err) == (0, ""), "gaps of four rows say nothing"
