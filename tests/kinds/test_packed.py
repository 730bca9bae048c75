"""Packed pictures go in as they are: Parquet, folders saved by Hugging Face datasets, tar shards."""

import csv
import hashlib
import io
import json
import os
import shlex
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backbone_support import computed, write_nets
from cli_support import Command
from packed_support import CLASSES, add, classes, pictures, write_parquet, write_saved, write_shards

from surelabel.data.decoding import watched
from surelabel.data.packed import as_labels, expanded, is_packed, open_packed
from surelabel.data.pictures import decode_picture
from surelabel.errors import ChangedFileError, DataError
from surelabel.kinds.packed import PackedData
from surelabel.runs import RunFolder

QUICK = ("--rounds", "1", "--epochs", "1", "--passes", "3", "--no-compare")
FORMS = {"parquet": "pool.parquet", "saved": "saved", "shards": "shards", "pattern": "shards/{000..001}.tar"}


@pytest.fixture
def home(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SURELABEL_DATA", str(own_folder / "cache"))
    write_parquet(own_folder / "pool.parquet", pictures(), classes())
    write_saved(own_folder / "saved", pictures(), classes())
    write_shards(own_folder / "shards", pictures(), classes())
    write_nets(own_folder)
    return own_folder


def packed(form: str, **changes: Any) -> PackedData:
    return PackedData(path=FORMS[form], labels=("y",) if form == "parquet" else (), **changes)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_hold_the_same_pictures_and_labels(home: Path, form: str) -> None:
    data = packed(form).load()
    assert list(data.classes) == ["blue", "red"]
    assert (len(data.labeled[0]), len(data.unlabeled)) == (8, 20)
    assert data.labeled[0].sample_shape == (3, 10, 10)
    for source, code in zip(data.labeled[0][np.arange(8)], data.labeled[1], strict=True):
        assert (source[0].mean() > source[2].mean()) == (data.classes[code] == "red")
    assert data.learned["reading"].side == 10
    expected = "000.tar/000" if form in ("shards", "pattern") else 0
    assert data.labeled[0].ids[0] == expected


def test_columns_beside_the_pictures_are_said_to_be_left_out(home: Path, command: Command) -> None:
    more = {"age": list(range(28)), "name": [f"p{row}" for row in range(28)]}
    write_parquet(home / "more.parquet", pictures(), classes(), **more)
    words = ("--label", "y", "--backbone", "nets.py:colors", "--hidden", "8", *QUICK, "--rounds", "0")
    fitted = command("fit", "more.parquet", *words, "--out", "all")
    assert "Left out: age, name." in fitted.out.splitlines()
    fitted = command("fit", "more.parquet", "--id", "name", *words, "--out", "named")
    assert "Left out: age." in fitted.out.splitlines()
    assert "Left out" not in command("fit", "pool.parquet", *words, "--out", "pool").out


@pytest.mark.parametrize("form", ["parquet", "saved", "pattern"])
def test_fit_and_predict_on_features(home: Path, command: Command, form: str) -> None:
    words = [FORMS[form], *(["--label", "y"] if form == "parquet" else []), "--backbone", "nets.py:colors"]
    fitted = command("fit", *words, *QUICK, "--out", "run")
    assert fitted.code == 0, fitted.err
    assert "8 labeled, 20 unlabeled" in fitted.out
    assert computed(home) == 28
    assert command("predict", "run", FORMS[form], "--out", "p.csv").code == 0
    (line,) = (line for line in fitted.out.splitlines() if line.startswith("  surelabel label "))
    assert command(*shlex.split(line)[1:]).code == 0
    new = {"parquet": "new.parquet", "saved": "new/", "pattern": "new.tar"}[form]
    assert f"surelabel predict run {new} --out predictions.csv" in fitted.out
    line = command.fails(2, "label", "run", FORMS[form], "--format", "label-studio", "--out", "l.json")
    assert "--format label-studio shows files, and packed pictures are none; unpack them into a folder" in line
    assert computed(home) == 28
    found = rows(home / "p.csv")
    assert len(found) == 28
    if form == "parquet":
        assert [row["prediction"] for row in found] == ["red", "blue"] * 14
        assert [row["id"] for row in found][:3] == ["0", "1", "2"]


def test_fit_without_a_backbone_trains_a_network_for_pictures(home: Path, command: Command) -> None:
    write_parquet(home / "test.parquet", pictures(6, seed=1), classes(6, labeled=6), name=list("abcdef"))
    words = ("fit", "pool.parquet", "--label", "y", "--test", "test.parquet", *QUICK, "--out", "run")
    result = command(*words)
    assert result.code == 0, result.err
    assert "Found pictures in pool.parquet: 8 labeled, 20 unlabeled, 6 for test." in result.out
    assert command("predict", "run", "test.parquet", "--id", "name", "--out", "p.csv").code == 0
    assert [row["id"] for row in rows(home / "p.csv")] == list("abcdef")
    assert RunFolder.open("run").data().labeled[0].sample_shape == (3, 10, 10)
    assert "has no packed pictures, as the run's are" in command.fails(2, "predict", "run", "nets.py")


def test_a_share_is_held_out_and_the_same_picture_is_on_one_side(home: Path) -> None:
    files = [*pictures(8), *pictures(8), *pictures(4, seed=2)]
    write_parquet(home / "twice.parquet", files, [*classes(8), *classes(8), *[None] * 4])
    data = PackedData(path="twice.parquet", labels=("y",), validation=0.3).load()
    assert data.validation is not None
    held_out, labeled = ({int(one) % 8 for one in part[0].ids} for part in (data.validation, data.labeled))
    assert held_out
    assert not held_out & labeled


def test_content_that_has_changed_is_refused(home: Path) -> None:
    for form in ("parquet", "saved", "shards"):
        learned = packed(form).load().learned["sha256"]
        assert packed(form, sha256=learned).load().learned["sha256"] == learned
    write_parquet(home / "pool.parquet", pictures(seed=5), classes())
    with pytest.raises(ChangedFileError, match="pool.parquet' has changed since the run began"):
        packed("parquet", sha256="0" * 64).load()


def test_a_picture_that_cannot_be_read_is_named_or_left_out(home: Path) -> None:
    files: list[Any] = pictures()
    files[3], files[20] = files[3][:40], None
    write_parquet(home / "pool.parquet", files, classes())
    with pytest.raises(DataError, match=r"Picture '.*pool.parquet: 3' is .*Or leave such pictures out: --on-error"):
        packed("parquet").load()
    for more in ({}, {"backbones": [{"reference": "nets.py:colors"}]}):
        with pytest.warns(UserWarning, match=r"2 of 28 pictures in '.*' cannot be read and are left out: '3', '20'. P"):
            data = packed("parquet", on_error="skip", **more).load()
        assert data.learned["skipped"] == ("3", "20")
        assert (len(data.labeled[0]), len(data.unlabeled)) == (7, 19)
        assert len(packed("parquet", skipped=("3", "20"), **more).load().unlabeled) == 19


@pytest.mark.filterwarnings("ignore:1 of 6 pictures")
def test_labels_of_a_test_stay_with_their_pictures_after_one_is_left_out(home: Path) -> None:
    files: list[Any] = pictures(6, seed=1)
    files[2] = files[2][:40]
    write_parquet(home / "test.parquet", files, classes(6, labeled=6))
    samples, codes = packed("parquet", test_path="test.parquet", on_error="skip").load().test
    assert samples.ids.tolist() == [0, 1, 3, 4, 5]
    assert [CLASSES[code] for code in codes] == ["red", "blue", "blue", "red", "blue"]


def test_groups_are_those_of_the_labeled_pictures_and_then_of_the_pool(home: Path) -> None:
    files = pictures()
    write_parquet(home / "pool.parquet", files, classes()[::-1])
    data = packed("parquet").load()
    ids = [*data.labeled[0].ids.tolist(), *data.unlabeled.ids.tolist()]
    assert ids[:2] == [20, 21]
    assert data.groups.tolist() == [hashlib.sha256(files[row]).hexdigest() for row in ids]


@pytest.mark.filterwarnings("ignore:1 of 28 pictures")
def test_each_picture_is_decoded_once_where_one_is_left_out(home: Path) -> None:
    files: list[Any] = pictures()
    files[3] = files[3][:40]
    write_parquet(home / "pool.parquet", files, classes())
    done: list[tuple[str, int, int]] = []
    with watched(lambda *at: done.append(at)):
        first = packed("parquet", on_error="skip").load()
        again = packed("parquet", **first.learned).load()
    assert len(done) == 28
    expected = [decode_picture(io.BytesIO(file), 10) for row, file in enumerate(files[:8]) if row != 3]
    for data in (first, again):
        np.testing.assert_array_equal(data.labeled[0][np.arange(7)], expected)


def test_only_bytes_are_read_never_a_path(home: Path) -> None:
    pq.write_table(pa.table({"image": [{"bytes": None, "path": "shards/000.tar"}], "label": ["a"]}), "no.parquet")
    source = open_packed(home / "no.parquet")
    with pytest.raises(DataError, match="no.parquet: 0' has no bytes in the file; write them into it"):
        source.read(0)


def test_a_table_with_bytes_that_are_no_pictures_stays_a_table(home: Path) -> None:
    pq.write_table(pa.table({"id": [b"\0a", b"\0b"], "x": [1.0, 2.0], "y": ["a", "b"]}), "table.parquet")
    assert not is_packed(home / "table.parquet")
    assert not is_packed(home / "gone.parquet")
    assert is_packed(home / "pool.parquet")


def test_links_and_sparse_members_of_a_tar_file_are_refused_and_nothing_is_unpacked(home: Path) -> None:
    for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "000.png"), (tarfile.FIFOTYPE, "")):
        member = tarfile.TarInfo("evil.png")
        member.type, member.linkname = kind, target
        with tarfile.open("evil.tar", "w") as archive:
            archive.addfile(member)
        with pytest.raises(DataError, match=r"evil.tar: 'evil.png' is a link, sparse or no plain file; write the"):
            open_packed(home / "evil.tar")
    with tarfile.open("dots.tar", "w") as archive:
        add(archive, "../../dots.png", pictures(1)[0])
    before = sorted(home.rglob("*"))
    source = open_packed(home / "dots.tar")
    assert source.ids.tolist() == ["dots.tar/../../dots"]
    assert source.read(0) == pictures(1)[0]
    assert sorted(home.rglob("*")) == before


def test_a_tar_file_that_claims_more_than_it_has_is_damaged(home: Path) -> None:
    member = tarfile.TarInfo("large.png")
    member.size = 10**13
    (home / "bomb.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024)
    with pytest.raises(DataError, match="bomb.tar' is damaged or not really a tar file"):
        open_packed(home / "bomb.tar")
    cut = (home / "shards/000.tar").read_bytes()
    (home / "cut.tar").write_bytes(cut[: len(cut) // 3])
    with pytest.raises(DataError, match="cut.tar' is damaged or not really a tar file"):
        open_packed(home / "cut.tar")
    (home / "text.tar").write_text("no tar file at all" * 100)
    with pytest.raises(DataError, match="text.tar' is damaged or not really a tar file"):
        open_packed(home / "text.tar")


def test_a_tar_file_that_goes_on_behind_its_end_is_refused(home: Path) -> None:
    first, second = ((home / f"shards/00{number}.tar").read_bytes() for number in range(2))
    header = first.index(b"ustar", 1024) - 257  # of a member in the middle
    with_hole = first[:header] + bytes(512) + first[header + 512 :]
    for content in (first + second, with_hole):
        (home / "more.tar").write_bytes(content)
        with pytest.raises(DataError, match=r"more.tar' goes on behind its end at byte [\d,]+.*write it again"):
            open_packed(home / "more.tar")
    (home / "more.tar").write_bytes(first + bytes(10**5))
    open_packed(home / "more.tar")


def test_a_large_picture_is_refused_before_it_is_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURELABEL_MAX_BYTES", "50")
    with pytest.raises(DataError, match="000.png' has .* bytes, and at most 50 are allowed; remove it"):
        open_packed(home / "shards")


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"a.cls": b"cat"}, "has no pictures .jpg, jpeg"),
        ({"a.png": b"", "b.cls": b"cat"}, "has the label 'odd.tar/b.cls' without a picture; add it"),
        ({"a.png": b"", "a.jpg": b""}, "'a.jpg' is there twice; give each sample a key of its own"),
        ({"a.png": b"", "a.cls": b"\xff"}, "'a.cls' is not UTF-8 text; write a class's name or number to it"),
        ({"a.png": b"", "a.cls": b"x" * 2000}, "'a.cls' has 2,000 bytes, too many for a label; write a class's name"),
    ],
)
def test_shards_that_are_odd(home: Path, parts: dict[str, bytes], problem: str) -> None:
    with tarfile.open("odd.tar", "w") as archive:
        for name, data in parts.items():
            add(archive, name, data)
    with pytest.raises(DataError, match=problem):
        open_packed(home / "odd.tar")


def test_patterns_count_and_match(home: Path) -> None:
    assert expanded(Path("shards/*.tar")) == [Path("shards/000.tar"), Path("shards/001.tar")]
    with pytest.raises(DataError, match=r"No file matches 'none\*.tar'; check the path"):
        expanded(Path("none*.tar"))
    with pytest.raises(DataError, match="must count up, over 100,000 files at most; correct it"):
        expanded(Path("{9..1}.tar"))
    with pytest.raises(DataError, match=r"Shard 'shards/002.tar' is not a file; check the path"):
        open_packed(Path("shards/{000..002}.tar"))


def test_a_saved_dataset_that_names_files_elsewhere_or_is_of_several_parts_is_refused(home: Path) -> None:
    state = home / "saved/state.json"
    good = state.read_text()
    for name in ("../pool.parquet", "/etc/passwd", "..", 7):
        state.write_text(json.dumps({"_data_files": [{"filename": name}]}))
        with pytest.raises(DataError, match="which is not beside it; save it again"):
            open_packed(home / "saved")
    for text in ("{", "[" * 10**5):
        state.write_text(text)
        with pytest.raises(DataError, match="state.json' is damaged or not really a saved dataset"):
            open_packed(home / "saved")
    state.write_text(good)
    (home / "saved/dataset_info.json").write_text("[" * 10**5)
    with pytest.raises(DataError, match="dataset_info.json' is damaged or not really a description"):
        open_packed(home / "saved")
    (home / "saved/dataset_info.json").unlink()
    shutil.move(home / "saved", home / "both" / "train")
    (home / "both/dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(DataError, match="both' has several parts; name one of them: train"):
        open_packed(home / "both")


@pytest.mark.parametrize("nested", [True, False])
def test_a_picture_that_a_small_file_repeats_is_kept_once(home: Path, nested: bool) -> None:
    picture = pictures(1)[0] + bytes(1 << 20)
    column = [{"bytes": picture, "path": None} if nested else picture] * 60
    pq.write_table(pa.table({"image": column}), "small.parquet")
    assert Path("small.parquet").stat().st_size < 100_000
    before = pa.total_allocated_bytes()
    assert is_packed(Path("small.parquet"))
    found = open_packed(Path("small.parquet"))
    assert found.read(50) == picture
    assert pa.total_allocated_bytes() - before < 10 << 20


def test_packed_arrow_files_are_refused_before_they_are_unpacked(home: Path) -> None:
    table = pa.table({"image": [pictures(1)[0] + bytes(1 << 20)] * 2, "label": pa.array(["a", "b"])})
    for column in (table["label"], table["label"].dictionary_encode()):
        plain = table.set_column(1, "label", column)
        for packing in (None, "zstd"):
            options = pa.ipc.IpcWriteOptions(compression=packing)
            name = "saved/data-00000-of-00002.arrow"
            with pa.OSFile(name, "wb") as sink, pa.ipc.new_stream(sink, plain.schema, options=options) as writer:
                writer.write_table(plain)
            (home / "saved/state.json").write_text(json.dumps({"_data_files": [{"filename": Path(name).name}]}))
            (home / "saved/dataset_info.json").unlink(missing_ok=True)
            if packing is None:
                assert open_packed(Path("saved")).labels.tolist() == ["a", "b"]
            else:
                with pytest.raises(DataError, match="is a packed Arrow stream; save the dataset again, without"):
                    open_packed(Path("saved"))


@pytest.mark.parametrize(("form", "name"), [("saved", "data-00000-of-00002.arrow"), ("shards", "000.tar")])
def test_files_that_are_elsewhere_or_none_are_refused(home: Path, command: Command, form: str, name: str) -> None:
    file, out = home / form / name, home / "run"
    file.rename(home / "elsewhere")
    file.symlink_to(home / "elsewhere")
    line = command.fails(1, "fit", form, "--out", out)
    assert f"'{form}/{name}' is a link to '{home / 'elsewhere'}', outside of '{form}'; copy the file" in line
    file.unlink()
    os.mkfifo(file)  # nobody waits for what comes out of it
    assert f"'{form}/{name}' is not a plain file; remove it." in command.fails(1, "fit", form, "--out", out)
    assert not out.exists()


def test_a_shard_that_ends_early_is_damaged_wherever_it_ends(home: Path) -> None:
    path = home / "shards/000.tar"
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        ends = [member.offset for member in archive.getmembers()][3:]
    for end in (*ends, *(end + 100 for end in ends)):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"000.tar' is damaged .*cut off"):
            open_packed(Path("shards"))
    path.write_bytes(whole[: ends[0]] + b"?" + whole[ends[0] + 1 :])  # the name in a header
    with pytest.raises(DataError, match=rf"000.tar' is damaged .* damaged at byte {ends[0]:,}"):
        open_packed(Path("shards"))


def test_names_that_would_fill_the_memory_are_refused(home: Path) -> None:
    write_shards(home / "long", [], [], 0)
    with tarfile.open(home / "long/0.tar", "w") as archive:
        add(archive, "a" * 1001 + ".png", pictures(1)[0])
    with pytest.raises(DataError, match="has a name of more than 1,000 characters; shorten it"):
        open_packed(Path("long"))
    write_parquet(home / "long.parquet", pictures(2), ["a", "b"], key=["k", "k" * 1001])
    with pytest.raises(DataError, match="ids in 'key' of more than 1,000 characters; shorten them"):
        open_packed(Path("long.parquet"), "y", "key")


@pytest.mark.parametrize("form", ["parquet", "saved", "shards"])
def test_a_run_goes_on_after_its_pictures_have_moved(home: Path, command: Command, form: str) -> None:
    path = home / FORMS[form]
    words = (path, *(["--label", "y"] if form == "parquet" else []), "--backbone", "nets.py:colors", "--hidden", "8")
    assert command("fit", *words, "--no-compare", *QUICK, "--rounds", "0", "--out", "run").code == 0
    path.rename(home / f"moved{path.suffix}")
    line = command.fails(1, "resume", "run", "--rounds", "1")
    assert f"'{path}', which the run began with, is not there any more; put it back, or name its new place" in line
    assert command("resume", "run", "--rounds", "1", "--data", home / f"moved{path.suffix}").code == 0


@pytest.mark.parametrize("form", ["parquet", "saved", "shards"])
def test_packed_pictures_without_a_pool_are_refused(home: Path, command: Command, form: str) -> None:
    write: Any = {"parquet": write_parquet, "saved": write_saved, "shards": write_shards}[form]
    path = write(home / f"all.{form}", pictures(8), classes(8, 8))
    words = ("--label", "y") if form == "parquet" else ()
    line = command.fails(1, "fit", path, *words, "--out", "run", *QUICK)
    assert "has no unlabeled picture to self-train on; add pictures without a label" in line


def test_labels_are_texts_or_numbers_of_classes() -> None:
    assert as_labels(["cat", "", None, " dog "], None).tolist() == ["cat", None, None, "dog"]
    with pytest.raises(DataError, match="Row 1 has the label 7, and there are 2 classes; correct it"):
        as_labels([0, 7], ["cat", "dog"])


def test_columns_that_are_not_there_are_named(home: Path) -> None:
    with pytest.raises(DataError, match=r"pool.parquet' has no column 'z'; it has 'image', 'y'"):
        open_packed(home / "pool.parquet", "z")
    with pytest.raises(DataError, match=r"has no column 'label'; name its label column with --label"):
        PackedData(path="pool.parquet").load()
    with pytest.raises(DataError, match="is of tar shards, which have no column 'y'; leave it out"):
        open_packed(home / "shards", "y")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--separator", "|"], "--separator has no effect: 'shards' has packed pictures; leave it out."),
        (["--kind", "sounds"], "Invalid value for '--kind': 'shards' has packed pictures; got 'sounds'."),
        (["--label", "a", "--label", "b"], "--label names 2 columns, and packed pictures have one label; name one."),
        (["--validation", "x.tar"], "Invalid value for '--validation': 'x.tar'; give the share of the labels to hold"),
    ],
)
def test_options_that_packed_pictures_do_not_have(home: Path, command: Command, words: list[str], problem: str) -> None:
    assert problem in command.fails(2, "fit", "shards", *words, "--out", "run")


def test_a_folder_saved_by_the_real_package_is_read(home: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["blue", "red"])})
    codes = [-1 if label is None else ["blue", "red"].index(label) for label in classes()]
    images = [{"bytes": file, "path": None} for file in pictures()]
    made = datasets.Dataset.from_dict({"image": images, "label": codes}, features=features)
    made.save_to_disk(home / "real")
    made.to_parquet(home / "real.parquet")
    for path in ("real", "real.parquet"):
        source = open_packed(home / path)
        assert source.labels is not None
        assert source.labels.tolist() == classes()
        assert [source.read(place) for place in range(28)] == pictures()
        assert is_packed(home / path)
    assert io.BytesIO(source.read(0)).getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize("form", ["parquet", "shards"])
def test_new_pictures_of_the_same_names_are_not_those_of_the_run(home: Path, command: Command, form: str) -> None:
    sure = ("--tau-p", "0.4", "--kappa-p", "1")
    words = (FORMS[form], *(["--label", "y"] if form == "parquet" else []), "--backbone", "nets.py:colors", *sure)
    assert command("fit", *words, "--hidden", "8", *QUICK, "--out", "run").code == 0
    assert command("label", "run", FORMS[form], "--out", "own.csv").code == 0
    assert {row["round"] for row in rows(home / "own.csv")} == {"", "1"}
    if form == "parquet":
        new = write_parquet(home / "new.parquet", pictures(seed=1), None)
    else:
        new = write_shards(home / "new", pictures(seed=1), classes(labeled=0))
    result = command("label", "run", new, "--out", "other.csv")
    assert result.code == 0, result.err
    assert [row["id"] for row in rows(home / "other.csv")] == [row["id"] for row in rows(home / "own.csv")]
    assert {row["round"] for row in rows(home / "other.csv")} == {""}
