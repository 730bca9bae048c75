"""`surelabel label`: since which round a label is learned from, and tasks for Label Studio."""

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_support import LOGISTIC, QUICK, blobs, rows, small_network, write_blobs
from PIL import Image

from surelabel import UPSClassifier
from surelabel.cli import main
from surelabel.data.tables import read_table, write_table
from surelabel.errors import DataError
from surelabel.runs import RunFolder
from surelabel.runs.label_studio import table_rows

pytestmark = pytest.mark.usefixtures("short_fits")

SEVERAL_ROUNDS = (*QUICK, "--rounds", "3", "--kappa-p", "0.2")


def fit(folder: Path, data: Path, *options: object) -> Path:
    assert main([str(word) for word in ("fit", data, *options, "--quiet", "--out", folder)]) == 0
    return folder


def near_blobs(**changes: Any) -> dict[str, Any]:
    """Two groups that overlap, so that labels come and go from round to round."""
    columns: dict[str, Any] = blobs()
    generator = np.random.default_rng(3)
    for name in ("width", "height"):
        columns[name] = (np.sign(columns[name]) + generator.normal(size=60)).tolist()
    return {name: values for name, values in {**columns, **changes}.items() if values is not None}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three rounds: of a table with ids, without ids, and with several labels; the tests only read them."""
    folder = tmp_path_factory.mktemp("label")
    write_table(folder / "named.csv", near_blobs())
    write_table(folder / "counted.csv", near_blobs(id=None))
    left = [row % 2 for row in range(20)] + [None] * 40
    right = [None if cell is None else 1 - cell for cell in left]
    write_table(folder / "both.csv", near_blobs(pet=None, left=left, right=right))
    fit(folder / "named", folder / "named.csv", "--label", "pet", "--id", "id", *SEVERAL_ROUNDS)
    fit(folder / "counted", folder / "counted.csv", "--label", "pet", *LOGISTIC, "--rounds", 3)
    fit(folder / "both", folder / "both.csv", "--label", "left", "--label", "right", "--id", "id", *SEVERAL_ROUNDS)
    return folder


def by_hand(run: RunFolder, entries: bool = False) -> dict[Any, int | None]:
    """Go back from the last round's selection as long as there is no break, sample by sample."""
    pools = [run.pool_table(round).to_pylist() for round in range(run.num_rounds - 1)]
    multi = run.settings.config.task == "multi"
    kinds = ("positive", "negative") if entries else ("positive",)
    chosen = [set[Any]() for _ in pools]
    for names, pool in zip(chosen, pools, strict=True):
        names |= {(row["id"], row["class"]) if entries else row["id"] for row in pool if row["selected"] in kinds}
    everyone = {(row["id"], row["class"]) if entries and multi else row["id"] for row in pools[0]}
    found: dict[Any, int | None] = {}
    for name in everyone:
        first = None
        for round in range(len(pools), 0, -1):
            if name not in chosen[round - 1]:
                break
            first = round
        found[name] = first
    return found


def cell(text: str) -> int | None:
    return int(text) if text else None


def test_the_round_is_the_first_of_those_without_a_break_up_to_the_last(command, home):
    found = {row["id"]: cell(row["round"]) for row in rows(command("label", home / "named", home / "named.csv").out)}
    expected = by_hand(RunFolder.open(home / "named"))
    assert {name: found[name] for name in expected} == expected
    assert {1, None} < set(expected.values()), "the data must have labels that come and go"
    assert all(found[name] is None for name in blobs()["id"][:8]), "labeled rows are not in the pool"


def test_several_labels_have_a_round_for_each_sample_or_each_entry(command, home):
    run = RunFolder.open(home / "both")
    found = rows(command("label", home / "both", home / "both.csv").out)
    expected = by_hand(run)
    assert {row["id"]: cell(row["round"]) for row in found if row["id"] in expected} == expected
    entries = rows(command("label", home / "both", home / "both.csv", "--entries").out)
    expected = by_hand(run, entries=True)
    assert {(r["id"], r["class"]): cell(r["round"]) for r in entries if (r["id"], r["class"]) in expected} == expected
    assert len(set(expected.values())) > 1


def test_the_classifier_follows_labels_by_the_same_rule():
    columns = near_blobs()
    x = np.stack([columns["width"], columns["height"]], axis=1)
    y = np.array([-1 if name is None else int(name == "cat") for name in columns["pet"]])
    pools = []
    options = {"hidden": (8,), "epochs": 1, "passes": 3, "max_rounds": 3, "kappa_p": 0.2}
    fitted = UPSClassifier(**options, random_state=0, callbacks=[lambda record: pools.append(record.pool)]).fit(x, y)
    for row, name in enumerate(pools[0].ids.tolist()):
        first = -1
        for round in range(len(pools) - 1, 0, -1):
            if not pools[round - 1].positive[row]:
                break
            first = round
        assert fitted.labeled_iter_[name] == first
    assert set(fitted.labeled_iter_[:8]) == {0}


def test_numbers_of_rows_name_samples_in_the_runs_own_file_alone(command, home, tmp_path):
    own = rows(command("label", home / "counted", home / "counted.csv").out)
    expected = by_hand(RunFolder.open(home / "counted"))
    assert {int(row["id"]): cell(row["round"]) for row in own if int(row["id"]) in expected} == expected
    assert any(expected.values())
    copy = tmp_path / "copy.csv"
    copy.write_bytes((home / "counted.csv").read_bytes())
    assert rows(command("label", home / "counted", copy).out) == own
    other = write_table(tmp_path / "other.csv", near_blobs(id=None, pet=None))
    assert {row["round"] for row in rows(command("label", home / "counted", other).out)} == {""}
    named = write_table(tmp_path / "named.csv", near_blobs(id=list(range(60))))
    assert {row["round"] for row in rows(command("label", home / "counted", named, "--id", "id").out)} == {""}


def test_ids_name_samples_in_any_file(command, home, tmp_path):
    all_rows = {row["id"]: row["round"] for row in rows(command("label", home / "named", home / "named.csv").out)}
    some = {name: [*values[30:50], *values[:1]] for name, values in near_blobs(pet=None).items()}
    some["id"][-1] = "new"
    found = rows(command("label", home / "named", write_table(tmp_path / "some.csv", some)).out)
    assert [row["round"] for row in found] == [*(all_rows[f"r{row}"] for row in range(30, 50)), ""]
    counted = rows(command("label", home / "named", home / "named.csv", "--id", "").out)
    assert {row["round"] for row in counted} == {""}


def read_tasks(out: Path) -> tuple[list[dict[str, Any]], Any]:
    """Return tasks and their configuration, held to what Label Studio documents of both."""
    tasks, view = json.loads(out.read_text()), ElementTree.parse(out.with_suffix(".xml")).getroot()
    shown, choices = view
    names = [choice.attrib["value"] for choice in choices]
    for task in tasks:
        assert shown.attrib["value"].removeprefix("$") in task["data"]
        (prediction,) = task["predictions"]
        assert 0 <= prediction["score"] <= 1
        for part in prediction["result"]:
            assert (part["from_name"], part["to_name"]) == (choices.attrib["name"], choices.attrib["toName"])
            assert choices.attrib["toName"] == shown.attrib["name"]
            assert part["type"] == "choices"
            assert set(part["value"]["choices"]) <= set(names)
    return tasks, view


def test_rows_become_tasks_with_their_columns(command, home, tmp_path):
    out = tmp_path / "tasks.json"
    result = command("label", home / "named", home / "named.csv", "--format", "label-studio", "--out", out)
    assert result.code == 0
    assert result.err.startswith(f"60 tasks are in {out}, and their labeling configuration in {tmp_path}/tasks.xml.\n")
    tasks, view = read_tasks(out)
    assert view[0].tag == "Table"
    assert view[1].attrib["choice"] == "single"
    run, table = RunFolder.open(home / "named"), rows(command("label", home / "named", home / "named.csv").out)
    raw = read_table(home / "named.csv", labels=["pet"], id_column="id")
    for task, row, x in zip(tasks, table, raw.x, strict=True):
        data, (prediction,) = task["data"], task["predictions"]
        assert [float(data["row"][name]) for name in ("width", "height")] == pytest.approx(x.tolist(), rel=1e-6)
        assert data["id"] == data["row"]["id"] == row["id"]
        assert data["uncertainty"] == pytest.approx(float(row["uncertainty"]), rel=1e-5)
        assert (data["round"], data["selected"]) == (cell(row["round"]), row["selected"])
        assert data["given"] == (row["given"] or None)
        assert prediction["result"][0]["value"]["choices"] == [row["label"]]
        assert prediction["score"] == pytest.approx(float(row["confidence"]), rel=1e-5)
        assert prediction["model_version"] == f"surelabel round {run.num_rounds - 1}, model {run.model_hash[:12]}"


def test_several_labels_become_several_choices(command, home, tmp_path):
    out = tmp_path / "tasks.json"
    assert command("label", home / "both", home / "both.csv", "--format", "label-studio", "--out", out).code == 0
    tasks, view = read_tasks(out)
    assert view[1].attrib["choice"] == "multiple"
    entries = rows(command("label", home / "both", home / "both.csv", "--entries").out)
    for task in tasks:
        own = [row for row in entries if row["id"] == task["data"]["id"]]
        chosen = [choice for part in task["predictions"][0]["result"] for choice in part["value"]["choices"]]
        assert chosen == [row["class"] for row in own if row["label"] == "1"]
        sure = [max(float(row["confidence"]), 1 - float(row["confidence"])) for row in own]
        assert task["predictions"][0]["score"] == pytest.approx(min(sure), rel=1e-5)
        assert set(task["data"]["uncertainty"]) == {"left", "right"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    for number in range(12):
        name = ('r"<ed', "blüe", "unlabeled")[number % 3]
        pixels = generator.integers(0, 120, (8, 8, 3), dtype=np.uint8)
        pixels[..., 0 if number % 3 == 0 else 2] += 100
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / "photos" / name / f"{number} & #1.png")
    sure = ("--tau-p", 0.4, "--kappa-p", 1)
    fit(
        folder / "run",
        folder / "photos",
        "--rounds",
        1,
        "--epochs",
        1,
        "--passes",
        2,
        "--no-compare",
        *sure,
        "--model",
        small_network(folder),
    )
    return folder


def test_files_become_tasks_with_addresses(command, photos, tmp_path):
    out = tmp_path / "tasks.json"
    words = ("label", photos / "run", photos / "photos", "--format", "label-studio", "--out", out)
    assert command(*words).code == 0
    tasks, view = read_tasks(out)
    assert view[0].tag == "Image"
    assert [choice.attrib["value"] for choice in view[1]] == ["blüe", 'r"<ed']
    by_id = {task["data"]["id"]: task["data"] for task in tasks}
    assert by_id["unlabeled/2 & #1.png"]["image"] == "/data/local-files/?d=unlabeled/2%20%26%20%231.png"
    assert by_id["unlabeled/2 & #1.png"]["round"] == 1, "with such thresholds all of the pool is learned from"
    assert by_id["blüe/1 & #1.png"]["round"] is None
    assert command(*words, "--force", "--prefix", "s3://mine/").code == 0
    tasks, _ = read_tasks(out)
    assert tasks[-1]["data"]["image"] == f"s3://mine/{tasks[-1]['data']['id']}"


def test_names_of_files_name_samples_in_the_runs_own_folder_alone(command, photos, tmp_path):
    own = rows(command("label", photos / "run", photos / "photos").out)
    assert {row["round"] for row in own} == {"", "1"}
    shutil.copytree(photos / "photos", tmp_path / "copy")
    assert rows(command("label", photos / "run", tmp_path / "copy").out) == own
    Image.new("RGB", (8, 8), "red").save(tmp_path / "copy" / "unlabeled" / "2 & #1.png")  # another picture
    other = rows(command("label", photos / "run", tmp_path / "copy").out)
    assert [row["id"] for row in other] == [row["id"] for row in own]
    assert {row["round"] for row in other} == {""}


def test_pictures_added_to_the_runs_folder_have_no_round_and_the_others_keep_theirs(command, photos):
    before = rows(command("label", photos / "run", photos / "photos").out)
    added = photos / "photos" / "unlabeled" / "zzz.png"
    Image.new("RGB", (8, 8), "red").save(added)
    after = rows(command("label", photos / "run", photos / "photos").out)
    added.unlink()
    assert [row["round"] for row in after if "zzz" not in row["id"]] == [row["round"] for row in before]
    assert [row["round"] for row in after if "zzz" in row["id"]] == [""]


def test_label_studio_itself_accepts_the_tasks(command, home, photos, tmp_path):
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="label-studio-sdk takes 483 MB")
    for run, data in (("named", "named.csv"), ("both", "both.csv"), ("run", "photos")):
        place = photos if run == "run" else home
        out = tmp_path / f"{run}.json"
        assert command("label", place / run, place / data, "--format", "label-studio", "--out", out).code == 0
        config = interface.LabelInterface(out.with_suffix(".xml").read_text())
        config.validate()
        for task in json.loads(out.read_text()):
            assert not config.validate_prediction(task["predictions"][0], return_errors=True)
            wrong = {**task["predictions"][0], "score": 2}
            assert config.validate_prediction(wrong, return_errors=True)


def test_options_and_files_that_do_not_fit_are_refused(command, home, tmp_path):
    label = ("label", home / "named", home / "named.csv")
    studio = (*label, "--format", "label-studio")
    assert command.fails(2, *studio) == "--format label-studio writes two files; name the first: --out tasks.json."
    assert command.fails(2, *studio, "--out", tmp_path / "tasks.csv").endswith("tasks.csv' must end in .json.")
    out = ("--out", tmp_path / "tasks.json")
    assert "--entries has no effect" in command.fails(2, *studio, *out, "--entries")
    assert "--excel-safe has no effect" in command.fails(2, *studio, *out, "--excel-safe")
    assert "--prefix has no effect" in command.fails(2, *studio, *out, "--prefix", "x")
    assert "--prefix has no effect" in command.fails(2, *label, "--prefix", "x")
    (tmp_path / "tasks.xml").write_text("mine")
    assert "tasks.xml' exists and is kept" in command.fails(1, *studio, *out)
    with pytest.raises(DataError, match="a.npz' has no named columns for Label Studio to show; give one of .csv, "):
        table_rows(Path("a.npz"), 3)


def test_a_small_parquet_file_does_not_fill_the_memory_with_tasks(tmp_path, monkeypatch):
    text = pa.array(["x" * 10**5] * 300).dictionary_encode()
    nested = [[cell] for cell in text], [{"a": cell} for cell in text]
    pairs = pa.array([[(cell.as_py(), 1)] for cell in text], pa.map_(pa.string(), pa.int8()))
    for column in (text, *map(pa.array, nested), pairs):
        pq.write_table(pa.table({"note": column}), tmp_path / "bomb.parquet", compression="zstd")
        monkeypatch.setenv("SURELABEL_MAX_BYTES", str(10**7))
        with pytest.raises(DataError, match="bomb.parquet.* at most 10,000,000 are allowed"):
            table_rows(tmp_path / "bomb.parquet", 300)
        monkeypatch.setenv("SURELABEL_MAX_BYTES", str(10**8))
        assert len(table_rows(tmp_path / "bomb.parquet", 300)) == 300


def test_text_that_is_not_utf_8_is_named_in_a_column_that_is_only_shown(tmp_path):
    broken = pa.array([b"a", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"note": broken}), tmp_path / "broken.parquet")
    with pytest.raises(DataError, match="broken.parquet' is damaged or not really Parquet"):
        table_rows(tmp_path / "broken.parquet", 2)


def test_a_class_called_round_is_written_by_entries(command, tmp_path):
    known = {"round": [1, 0] * 4 + [None] * 52, "other": [0, 1] * 4 + [None] * 52}
    path = write_blobs(tmp_path / "t.csv", pet=None, **known)
    words = ("--id", "id", "--label", "round", "--label", "other", *QUICK, "--rounds", 0)
    run = fit(tmp_path / "run", path, *words)
    assert command.fails(1, "label", run, path).endswith(
        "has the name of another column; give each a row with --entries."
    )
    assert command("label", run, path, "--entries").code == 0
