"""Generated inputs: files for every reader, options for every command, and run folders that somebody has edited.

Each follows from the seed and its number alone.
"""

import contextlib
import csv
import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from soak import bases, readers
from soak.children import Verdict, call, judge
from surelabel import cli
from surelabel.cli import _train
from surelabel.cli._rounds import RoundsDisplay
from surelabel.errors import SurelabelError
from surelabel.runs import RunFolder

STEPS = 210
"""After so many steps of training a command is interrupted, which is an end that is right; round 0 takes 200."""
NUMBERS = "0 1 2 3 0.5 0.05 0.9 -1 1e-300 1e308 inf nan 10 1000000000 1000000000000000000 1_0 ½".split()
TEXTS = (
    *(
        "",
        " ",
        "|",
        "$x$",
        "ü",
        "\udcff",
        "a" * 5000,
        "--help",
        "-",
        "two\nlines",
        "[red]",
        "0.2",
        "8,8",
        "8",
        "1000000000",
    ),
    *"id pet width tags cat x0 cpu cpu:99 cuda meta os:system none.py:make none:make ../../outside/none.py:make".split(),
    *"sklearn.linear_model:LogisticRegression sklearn.svm:SVC surelabel.references:os.system equal prior none".split(),
)
FILES = "pets.csv pets.parquet pets.npz x.npy y.npy tags.csv unlabeled.csv none.csv network /dev/null .".split()
OUTPUTS = "out.csv out.parquet out.html out.svg out none/out.csv pets.csv network .".split()
NAMED = {"rounds": "max_rounds"}
"""Settings that have another name than their option."""
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 3, 10**9, 10**30, 0.5, -0.5, 1.5, 1e308, float("nan"), float("inf"), [], {}, ["x"], [1, 2]),
    *("", "x", "2", "inf", "cat", "$10_$20", "\ud800", "\0", "a" * 5000, "network", {"x": 1}, [[[[]]]], "deep"),
    *(
        "os:system",
        "surelabel.references:os.system",
        "../../outside/evil.py:touch",
        "subprocess:Popen",
        "builtins:open",
    ),
    *("../../outside/touched", "sklearn.tree:DecisionTreeClassifier", "torch.nn:Dropout"),
)
EVIL = "../../outside/evil.py:touch"
ATTACKS: tuple[tuple[str, Any], ...] = (
    (
        "learner",
        {"kind": "sklearn", "estimator": "os:system", "parameters": {"command": "touch ../../outside/touched"}},
    ),
    (
        "learner",
        {"kind": "sklearn", "estimator": "surelabel.references:os.system", "parameters": {"command": "touch ~/t"}},
    ),
    ("learner", {"kind": "sklearn", "estimator": EVIL}),
    ("learner", {"kind": "torch", "model": EVIL}),
    ("learner", {"kind": "torch", "stochastic_layers": [EVIL]}),
    ("learner", {"kind": "torch", "uncertainty": EVIL}),
    ("data", {"kind": "function", "function": EVIL}),
)


class Counted(RoundsDisplay):
    """Interrupts a command that trains for long, as Ctrl-C does."""

    steps = 0

    def step(self, what: str, done: int, total: int) -> None:
        Counted.steps += 1
        if Counted.steps > STEPS:
            raise KeyboardInterrupt
        super().step(what, done, total)


def prepare(base: Path) -> Path:
    """Make the data and the runs that inputs begin with."""
    base.mkdir()
    os.chdir(base)
    bases.write_data(base)
    bases.make(base)
    return base


def check(seed: int, index: int, base: Path) -> Verdict:
    """Make the input, hand it over, look at what comes of it, and remove it."""
    rng, folder = random.Random(f"{seed}/{index}"), base.with_name(f"input{index}")
    kind = rng.choices((readers.check, options, run_folder), (8, 1, 1))[0]
    Counted.steps, _train.RoundsDisplay = 0, Counted
    if kind is readers.check:
        folder.mkdir()
    else:
        shutil.copytree(base, folder)
    os.chdir(folder)
    try:
        return kind(rng, folder)
    finally:
        os.chdir(base)
        shutil.rmtree(folder)


# Options.


def options(rng: random.Random, folder: Path) -> Verdict:
    """Call a command with some options, right and wrong ones."""
    command = rng.choices(("fit", "predict", "label", "resume", "thresholds", "report"), (8, 4, 4, 4, 2, 1))[0]
    run = rng.choice(list(bases.RUNS))
    words = list(bases.RUNS[run]) if command == "fit" else [command, run]
    if command in ("predict", "label"):
        words.append(rng.choice(FILES) if rng.random() < 0.3 else bases.DATA[run])
    given = [_option(rng, command) for _ in range(rng.choice((0, 1, 1, 2, 3, 4)))]
    if command != "resume" and "--out" not in dict(given):
        given.append(
            ("--out", {"fit": "fitted", "report": "out.html", "thresholds": "out.svg"}.get(command, "out.csv"))
        )
    words += [word for pair in given for word in pair if word is not None]
    code, text = call(*words)
    ended, fault = judge(code, text)
    note = text[-400:] if fault else ""
    if ended == "accepted" and not fault:
        note = _wrong_result(command, folder, run, dict(given), code)
        fault = "differences" if note else ""
    return Verdict(f"options: {command}", ended, fault, note and f"{words}: {note}")


def _option(rng: random.Random, command: str) -> tuple[str, str | None]:
    known = [one for one in typer.main.get_command(cli.app).commands[command].params if one.param_type_name == "option"]
    option = rng.choice([one for one in known if one.opts != ["--help"]])
    if option.is_flag:
        return option.opts[0], None
    kind = str(get_args(getattr(cli, command).command.__annotations__[option.name])[0])
    texts = OUTPUTS if option.opts == ["--out"] else (*TEXTS, *FILES)
    return option.opts[0], rng.choice(NUMBERS if "float" in kind or "int" in kind else texts)


def _wrong_result(command: str, folder: Path, run: str, given: dict[str, str | None], code: int) -> str:
    """Say in what a command did something else than it was asked for; empty: in nothing."""
    out = folder / (given.get("--out") or "")
    if command == "fit" and (out / "run.json").exists():
        return _other_settings(json.loads((out / "run.json").read_text())["settings"], given)
    if command in ("predict", "label") and out.is_file():
        return _other_rows(
            rows_of(out), rows_of(folder / f"{run}-{command}.csv"), "--id" in given, "--entries" in given
        )
    if command in ("report", "thresholds") and code == 0 and "--out" in given:
        end = {"report": "</html>", "thresholds": "</svg>"}[command]
        return "" if out.read_text().rstrip().lower().endswith(end) else "another kind of file"
    return ""


def _other_settings(settings: dict[str, Any], given: dict[str, str | None]) -> str:
    leaves: dict[str, list[Any]] = {}
    for parent, key in places(settings):
        leaves.setdefault(str(key), []).append(parent[key])
    for flag, value in given.items():
        name = flag[2:].replace("-", "_")
        found = leaves.get(NAMED.get(name, name), [])
        with contextlib.suppress(TypeError, ValueError):
            if found and not any(float(one) == float(value or "") for one in found if one is not None):
                return f"{flag} {value} became {found}"
    return ""


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table that a command wrote."""
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _other_rows(found: list[dict[str, Any]], expected: list[dict[str, Any]], other_ids: bool, entries: bool) -> str:
    if entries:
        return "" if len(found) == 2 * len(expected) else f"{len(found)} rows"
    for column in ({"prediction", "label", "id"} & set(expected[0])) - ({"id"} if other_ids else set()):
        values, wanted = ([row[column] for row in rows] for rows in (found, expected))
        if values != wanted:
            return f"{column} {values} for {wanted}"
    return ""


# Run folders.


def run_folder(rng: random.Random, folder: Path) -> Verdict:
    """Edit a run's folder, with its checksums made right again, and call a command on it."""
    command = rng.choices(("predict", "label", "resume", "thresholds", "report"), (5, 5, 5, 2, 1))[0]
    run = rng.choice(list(bases.RUNS))
    edit = rng.choices((edit_json, edit_table, edit_model, edit_links, attack), (12, 4, 2, 1, 1))[0]
    what = edit(rng, folder / run)
    words = [command, run, *([bases.DATA[run]] if command in ("predict", "label") else ())]
    out = {"report": "out.html", "thresholds": "out.svg", "resume": None}.get(command, "out.csv")
    words += ["--out", out] if out else ["--rounds", "3"]
    code, text = call(*words)
    ended, fault = judge(code, text)
    note = text[-400:] if fault else ""
    if code == 0 and not fault:
        note = _wrong_run(command, folder, run)
        fault = "differences" if note else ""
    return Verdict(f"run folders: {command}", ended, fault, note and f"{run}, {what}: {note}")


def _wrong_run(command: str, folder: Path, run: str) -> str:
    if command == "resume":
        try:
            RunFolder.open(folder / run).verify()
        except SurelabelError as error:
            return f"it ended, and left this: {error}"
    rows = rows_of(folder / "out.csv") if command in ("predict", "label") else []
    sure = [float(row["confidence"]) for row in rows if row.get("confidence")]
    if rows and (len(rows) != bases.ROWS or not all(0 <= value <= 1 for value in sure)):
        return f"{len(rows)} rows, confidences {sure}"
    return ""


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in JSON: what holds it, and its key or index."""
    keys = list(content) if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    for key in keys:
        yield content, key
        yield from places(content[key])


def edit_json(rng: random.Random, run: Path) -> str:
    """Put something else into a few places of a JSON file."""
    name = rng.choices(("run.json", "history.json", "split.json", "environment.json"), (5, 4, 1, 1))[0]
    content, what = json.loads((run / name).read_text()), []
    for _ in range(rng.choice((1, 1, 2))):
        parent, key = rng.choice([place for place in places(content) if place[1] != "checksum"])
        value = rng.choice(VALUES)
        what.append(f"{name}: {key} = {value!r}"[:90])
        if rng.random() < 0.15:
            del parent[key]
        elif rng.random() < 0.1 and isinstance(parent, dict):
            parent["strange"] = value
        else:
            parent[key] = value
    sign(run / name, content)
    return ", ".join(what)


def sign(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with the checksum that belongs to it, also where it cannot be read."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    text = json.dumps({**rest, "checksum": hashlib.sha256(canonical.encode()).hexdigest()})
    path.write_text(text.replace('"deep"', "[" * 100_000 + "]" * 100_000))


def edit_table(rng: random.Random, run: Path) -> str:
    """Change columns, types or rows of a table."""
    path = rng.choice(sorted(run.rglob("*.parquet")))
    table = pq.read_table(path)
    name = rng.choice(table.column_names)
    at = table.column_names.index(name)
    other = rng.choice((pa.int64(), pa.float64(), pa.string(), pa.list_(pa.int64()), pa.timestamp("s"), pa.bool_()))
    pool = rng.choice(((None, "x", "\0", "cat"), (None, -1, 10**12), (2.5, -0.5, float("nan"))))
    column = pa.array(rng.choices(pool, k=table.num_rows))
    edits = {
        "another type": lambda: table.set_column(at, name, pa.nulls(table.num_rows, other)),
        "other values": lambda: table.set_column(at, name, column),
        "no column": lambda: table.drop_columns([name]),
        "another name": lambda: table.rename_columns([f"{one}?" if one == name else one for one in table.column_names]),
        "no rows": lambda: table.slice(0, 0),
        "fewer rows": lambda: table.slice(1),
        "rows twice": lambda: pa.concat_tables([table, table]),
        "no columns": lambda: table.select([]),
    }
    what = rng.choice(list(edits))
    pq.write_table(edits[what](), path)
    signed(run, path)
    return f"{path.relative_to(run)}: {what} {name}"


def edit_model(rng: random.Random, run: Path) -> str:
    """Change some bytes of the model, or put another file in its place."""
    path = rng.choice(sorted(run.rglob("model.*")))
    other = rng.choice(sorted(run.parent.rglob("model.*")))
    path.write_bytes(other.read_bytes() if rng.random() < 0.3 else readers.changed(rng, path.read_bytes()))
    signed(run, path)
    return f"{path.relative_to(run)} changed"


def signed(run: Path, path: Path) -> None:
    """Put a file's new checksum into the history."""
    history = json.loads((run / "history.json").read_text())
    for entry in history["rounds"]:
        if (name := str(path.relative_to(run))) in entry["files"]:
            entry["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
    sign(run / "history.json", history)


def edit_links(rng: random.Random, run: Path) -> str:
    """Put links to files outside into the folder."""
    outside = run.parents[2] / "outside"
    links = {
        ".lock": outside / "mine.csv",
        "rounds/x": outside / "below",
        "rounds/000": outside / "below",
        "run.json": outside / "mine.csv",
    }
    name = rng.choice(list(links))
    shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(links[name])
    return f"{name} is a link"


def attack(rng: random.Random, run: Path) -> str:
    """Let the settings name code that leaves a mark outside."""
    key, value = rng.choice(ATTACKS)
    content = json.loads((run / "run.json").read_text())
    content["settings"][key] = value
    sign(run / "run.json", content)
    return f"{key} = {value}"
