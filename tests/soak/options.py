"""Commands with random options, right and wrong: a refusal in one line, or what was asked for."""

import contextlib
import csv
import importlib
import inspect
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import typer

from soak import bases
from soak.children import Verdict, call, judge

NUMBERS = "0 1 2 3 0.5 0.05 0.9 -1 1e-300 1e308 inf nan 10 1000000000 1000000000000000000 1_0 ½"
TEXTS = ("", " ", "\udcff", "a" * 5000, "two\nlines")
WORDS = """id pet width tags cat x0 0.2 8 8,8 1000000000 | - --help $x$ ü [red] cpu cpu:99 cuda meta equal prior none
none.py:make none:make ../../outside/none.py:make os:system surelabel.base.references:os.system
sklearn.linear_model:LogisticRegression sklearn.svm:SVC"""
FILES = "pets.csv pets.parquet pets.npz strange.npz x.npy y.npy tags.csv unlabeled.csv none.csv network /dev/null ."
OUTPUTS = "out.csv out.parquet out.html out.svg out none/out.csv pets.csv network ."
NAMED = {"rounds": "max_rounds"}
"""Settings that have another name than their option."""
OUT = {"fit": "fitted", "predict": "out.csv", "label": "out.csv", "report": "out.html", "thresholds": "out.svg"}

Given = dict[str, str | None]
"""Options and their values; a flag has none."""


def check(rng: random.Random, folder: Path) -> Verdict:
    """Call a command with some options."""
    command = rng.choices((*OUT, "resume"), (8, 4, 4, 1, 2, 4))[0]
    run = rng.choice(list(bases.RUNS))
    _, data, *rest = bases.RUNS[run]
    data = rng.choice(FILES.split()) if rng.random() < 0.3 else data
    words = (
        [command, data, *rest]
        if command == "fit"
        else [command, run, *([data] if OUT.get(command) == "out.csv" else ())]
    )
    given = dict(_option(rng, command) for _ in range(rng.choice((0, 1, 1, 1, 2, 3))))
    if command in OUT:
        given.setdefault("--out", OUT[command])
    words += [word for pair in given.items() for word in pair if word is not None]
    code, text = call(*words)
    ended, fault = judge(code, text)
    if ended == "accepted" and not fault:
        text = wrong(command, folder, run, given)
        fault = "differences" if text else ""
    return Verdict(f"options: {command}", ended, fault, f"{words}: {text[-400:]}" if fault else "")


def _option(rng: random.Random, command: str) -> tuple[str, str | None]:
    parameters = inspect.signature(importlib.import_module(f"surelabel.cli.{command}").command).parameters.values()
    option = rng.choice([one for one in parameters if isinstance(one.default, typer.models.OptionInfo)])
    flag = next(iter(option.default.param_decls or ()), f"--{option.name.replace('_', '-')}")
    if option.annotation is bool:
        return flag, None
    texts = OUTPUTS.split() if flag == "--out" else [*TEXTS, *WORDS.split(), *FILES.split()]
    number = "float" in str(option.annotation) or "int" in str(option.annotation)
    return flag, rng.choice(NUMBERS.split() if number else texts)


def wrong(command: str, folder: Path, run: str, given: Given) -> str:
    """Say in what a command did something else than it was asked for; empty: in nothing."""
    out = folder / (given.get("--out") or "none")
    if command == "fit" and (out / "run.json").exists():
        return _other_settings(json.loads((out / "run.json").read_text())["settings"], given)
    if command in ("predict", "label") and out.is_file():
        return _other_rows(rows_of(out), rows_of(folder / f"{run}-{command}.csv"), given)
    if command in ("report", "thresholds") and not out.read_text().rstrip().lower().endswith(("</html>", "</svg>")):
        return "not a whole file"
    return ""


def _other_settings(settings: dict[str, Any], given: Given) -> str:
    for flag, value in given.items():
        name = NAMED.get(flag[2:], flag[2:].replace("-", "_"))
        found = [parent[key] for parent, key in places(settings) if key == name and parent[key] is not None]
        with contextlib.suppress(TypeError, ValueError):  # what is not a number is not compared
            asked, kept = float(value or ""), [float(one) for one in found]
            # What reading took, here far less than a minute, is taken from the minutes of the rounds.
            less = flag == "--max-minutes" and any(max(asked - 1, 0) <= one <= asked for one in kept)
            if found and asked not in kept and not less:
                return f"{flag} {value} became {found}"
    return ""


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in JSON: what holds it, and its key or index."""
    keys = list(content) if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    for key in keys:
        yield content, key
        yield from places(content[key])


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table that a command wrote."""
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _other_rows(found: list[dict[str, Any]], expected: list[dict[str, Any]], given: Given) -> str:
    if "--entries" in given:
        return "" if len(found) == 2 * len(expected) else f"{len(found)} rows for {len(expected)} samples"
    for column in {"prediction", "label", "id"} & set(expected[0]) - ({"id"} if "--id" in given else set()):
        if (values := [row[column] for row in found]) != (wanted := [row[column] for row in expected]):
            return f"{column} {values} for {wanted}"
    return ""
