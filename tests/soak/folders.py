"""Run folders that somebody has edited, with every checksum made right again: a refusal in one line, or a result."""

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from soak import bases, hostile
from soak.children import Verdict, call, judge
from soak.options import OUT, places, rows_of
from surelabel.errors import SurelabelError
from surelabel.runs import RunFolder

EVIL, TOUCH = "../../outside/evil.py:touch", {"command": "touch ../../outside/touched"}
VALUES = json.loads(r"""[null, true, -1, 0, 1, 3, 1000000000, 100000000000000000000000000, 0.5, -0.5, 1.5, 1e308, NaN,
Infinity, [], {}, ["x"], [1, 2], [[[]]], {"x": 1}, "", "x", "2", "inf", "cat", "$10_$20", "\ud800", "\u0000", "network",
"deep", "../../outside/touched", "os:system", "../../outside/evil.py:touch", "builtins:open", "torch.nn:Dropout"]""")
ATTACKS: tuple[dict[str, Any], ...] = (
    {"learner": {"kind": "sklearn", "estimator": "os:system", "parameters": TOUCH}},
    {"learner": {"kind": "sklearn", "estimator": "surelabel.base.references:os.system", "parameters": TOUCH}},
    {"learner": {"kind": "sklearn", "estimator": EVIL}},
    {"learner": {"kind": "torch", "model": EVIL}},
    {"learner": {"kind": "torch", "stochastic_layers": [EVIL]}},
    {"learner": {"kind": "torch", "uncertainty": EVIL}},
    {"learner": {"kind": "torch", "method": EVIL}},
    {"data": {"kind": "function", "function": EVIL}},
)


def check(rng: random.Random, folder: Path) -> Verdict:
    """Edit a run's folder and call a command on it."""
    command = rng.choices(("predict", "label", "resume", "thresholds", "report"), (5, 5, 5, 2, 1))[0]
    run = rng.choice(list(bases.RUNS))
    edit = rng.choices((edit_json, edit_table, edit_model, link, attack), (12, 4, 2, 1, 1))[0]
    what = edit(rng, folder / run)
    words = [command, run, *(bases.RUNS[run][1:2] if OUT.get(command) == "out.csv" else ())]
    code, text = call(*words, *(("--out", OUT[command]) if command in OUT else ("--rounds", "3")))
    ended, fault = judge(code, text)
    if code == 0 and not fault:
        text = _wrong(command, folder / run)
        fault = "differences" if text else ""
    return Verdict(f"run folders: {command}", ended, fault, f"{run}, {what}: {text[-400:]}")


def _wrong(command: str, run: Path) -> str:
    """Say in what a result cannot be right, whatever was edited; empty: in nothing."""
    if command == "resume":
        try:
            RunFolder.open(run).verify()
        except SurelabelError as error:
            return f"it ended, and left this: {error}"
    rows = rows_of(run.with_name("out.csv")) if OUT.get(command) == "out.csv" else []
    sure = [float(row["confidence"]) for row in rows if row.get("confidence")]
    is_right = not rows or (len(rows) == bases.ROWS and all(0 <= value <= 1 for value in sure))
    return "" if is_right else f"{len(rows)} rows, confidences {sure}"


def edit_json(rng: random.Random, run: Path) -> str:
    """Put something else into a few places of a JSON file."""
    name = rng.choices(("run.json", "history.json", "split.json", "environment.json"), (5, 4, 1, 1))[0]
    content, what = json.loads((run / name).read_text()), []
    for _ in range(rng.choice((1, 1, 2))):
        parent, key = rng.choice([place for place in places(content) if place[1] != "checksum"])
        value, removed = rng.choice(VALUES), rng.random() < 0.15
        what.append(f"{name}: {'no ' if removed else ''}{key} = {value!r}")
        if removed:
            del parent[key]
        elif rng.random() < 0.1 and isinstance(parent, dict):
            parent["strange"] = value
        else:
            parent[key] = value
    sign(run / name, content)
    return ", ".join(what)


def sign(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with the checksum that belongs to it."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    text = json.dumps({**rest, "checksum": hashlib.sha256(canonical.encode()).hexdigest()})
    path.write_text(text.replace('"deep"', "[" * 100_000 + "]" * 100_000))


def edit_table(rng: random.Random, run: Path) -> str:
    """Change columns, types or rows of a table."""
    path = rng.choice(sorted(run.rglob("*.parquet")))
    table = pq.read_table(path)
    name, rows = rng.choice(table.column_names), table.num_rows
    at, pool = table.column_names.index(name), rng.choice(((None, "x", "\0"), (None, -1, 10**12), (2.5, -0.5, 1e300)))
    other = rng.choice((pa.int64(), pa.float64(), pa.string(), pa.list_(pa.int64()), pa.timestamp("s"), pa.bool_()))
    edits = {
        "another type": table.set_column(at, name, pa.nulls(rows, other)),
        "other values": table.set_column(at, name, pa.array(rng.choices(pool, k=rows))),
        "no column": table.drop_columns([name]),
        "another name": table.rename_columns([f"{one}?" if one == name else one for one in table.column_names]),
        "no rows": table.slice(0, 0),
        "fewer rows": table.slice(1),
        "rows twice": pa.concat_tables([table, table]),
        "no columns": table.select([]),
    }
    what = rng.choice(list(edits))
    pq.write_table(edits[what], path)
    list_again(run, path)
    return f"{path.relative_to(run)}: {what} {name}"


def edit_model(rng: random.Random, run: Path) -> str:
    """Change some bytes of the model, or put another run's in its place."""
    path, other = rng.choice(sorted(run.rglob("model.*"))), rng.choice(sorted(run.parent.rglob("model.*")))
    path.write_bytes(other.read_bytes() if rng.random() < 0.3 else hostile.changed(rng, path.read_bytes()))
    list_again(run, path)
    return f"{path.relative_to(run)} changed"


def list_again(run: Path, path: Path) -> None:
    """Put a file's new checksum into the history."""
    history, name = json.loads((run / "history.json").read_text()), str(path.relative_to(run))
    for entry in history["rounds"]:
        if name in entry["files"]:
            entry["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
    sign(run / "history.json", history)


def link(rng: random.Random, run: Path) -> str:
    """Put a link to something outside in the place of a file or folder."""
    name = rng.choice((".lock", "run.json", "rounds/x", "rounds/000"))
    shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(run.parents[2] / "outside" / ("below" if "rounds" in name else "mine.csv"))
    return f"{name} is a link"


def attack(rng: random.Random, run: Path) -> str:
    """Let the settings name code that leaves a mark outside."""
    content, change = json.loads((run / "run.json").read_text()), rng.choice(ATTACKS)
    sign(run / "run.json", {**content, "settings": {**content["settings"], **change}})
    return f"run.json: {change}"
