"""Samples that are files in a folder: what is found, what is refused, and a run that goes on after they have moved."""

import csv
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_support import Command, rows
from folder_support import QUICK, write_folder, write_picture, write_sound
from PIL import Image

from surelabel.cli._sources import KIND_NAMES
from surelabel.data import decoding
from surelabel.data.pictures import PictureSettings
from surelabel.kinds import KINDS, folder
from surelabel.kinds.folder import FolderData
from surelabel.kinds.pictures import Pictures
from surelabel.runs import RunFolder


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rounds of a moment, and a cache of the test's own."""
    for kind in KINDS.values():
        monkeypatch.setattr(type(kind), "defaults", {**kind.defaults, "min_steps": 2, "batch_size": 8})
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "cache"))


def test_the_command_line_knows_all_kinds() -> None:
    assert tuple(KINDS) == KIND_NAMES


def test_odd_names_of_files_go_through_fit_predict_label_and_report(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "my photos")
    odd = ["a b.png", 'it\'s "1".png', "naïve 画.png", "line\nbreak.png", "50%;x,y.png", "-dash.png"]
    for number, name in enumerate(odd):
        write_picture(photos / "unlabeled" / name, number % 2, 500 + number)
    assert command("fit", photos, "--out", tmp_path / "run", *QUICK).code == 0
    result = command("predict", tmp_path / "run", photos / "unlabeled")
    assert {*odd} < {row["id"] for row in rows(result.out)}
    out = tmp_path / "labels.csv"
    assert command("label", tmp_path / "run", photos, "--out", out).code == 0
    with out.open(newline="") as file:
        assert {f"unlabeled/{name}" for name in odd} < {row["id"] for row in csv.DictReader(file)}
    assert command("report", tmp_path / "run", "--out", tmp_path / "report.html").code == 0


def test_a_folder_by_another_path_an_exact_copy_and_more_files_in_it_are_the_runs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = write_folder(tmp_path / "photos")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    data = FolderData(of="pictures", path="../photos").pinned()
    data = data.replace(**data.load().learned)
    copy = shutil.copytree(photos, tmp_path / "copy")
    assert data.is_own(photos)
    assert data.is_own(copy)
    for place in (photos, copy):
        write_picture(place / "unlabeled" / "new.png", 0, 999)
    assert data.is_own(photos)
    assert not data.is_own(copy)


def test_a_link_out_of_the_folder_is_refused_and_one_within_is_taken(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "photos")
    (photos / "unlabeled" / "again.png").symlink_to(photos / "cat" / "0.png")
    write_picture(tmp_path / "secret.png", 0, 0)
    assert command("fit", photos, "--out", tmp_path / "run", *QUICK).code == 0
    (photos / "unlabeled" / "link.png").symlink_to(tmp_path / "secret.png")
    line = command.fails(1, "fit", photos, "--out", tmp_path / "other", *QUICK)
    assert f"is a link to '{tmp_path / 'secret.png'}', outside of" in line
    assert "copy the file (cp -L), or remove the link" in line
    (photos / "unlabeled" / "link.png").unlink()
    (photos / "unlabeled" / "more").symlink_to(tmp_path)  # a folder elsewhere is not looked into
    result = command("fit", photos, "--out", tmp_path / "third", *QUICK)
    assert "secret" not in result.out
    assert "links to folders are not followed: 'unlabeled/more'; copy what is in them." in result.err


def test_folders_without_samples_are_named(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "photos")
    for name in ("owl", ".hidden", "cat/more"):
        (photos / name).mkdir()
    result = command("fit", photos, "--out", tmp_path / "run", *QUICK)
    found = "these folders have no samples and name no class: 'owl'; put some in, or remove them."
    assert f"warning: {found}" in result.err.splitlines()
    assert RunFolder.open(tmp_path / "run").settings.classes == ("cat", "dog")


@pytest.mark.parametrize("option", ["--label", "--separator", "--none", "--unlabeled"])
def test_options_of_a_table_of_labels_need_one(tmp_path: Path, command: Command, option: str) -> None:
    line = command.fails(2, "fit", write_folder(tmp_path / "photos"), option, "x", "--out", tmp_path / "run")
    assert line == f"{option} has no effect without --labels-file: folders name the classes; leave it out."


@pytest.mark.filterwarnings("always::UserWarning")
def test_files_that_cannot_be_read_stop_fit_or_are_skipped(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "photos")
    whole = (photos / "cat" / "0.png").read_bytes()
    (photos / "unlabeled" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (photos / "unlabeled" / "empty.png").touch()
    line = command.fails(1, "fit", photos, "--out", tmp_path / "run", *QUICK)
    assert "cut.png' is truncated" in line
    assert not (tmp_path / "run").exists()
    result = command("fit", photos, "--out", tmp_path / "run", "--on-error", "skip", *QUICK)
    assert result.code == 0, result.err
    assert (
        "2 of 22 pictures cannot be decoded and are left out: 'unlabeled/cut.png', 'unlabeled/empty.png'" in result.err
    )
    data = RunFolder.open(tmp_path / "run").settings.data
    assert data is not None
    assert data.skipped == ("unlabeled/cut.png", "unlabeled/empty.png")
    assert "8 labeled, 12 unlabeled" in result.out
    assert command("resume", tmp_path / "run", "--rounds", "2").code == 0
    assert "is truncated" in command.fails(1, "predict", tmp_path / "run", photos)
    assert command("predict", tmp_path / "run", photos, "--on-error", "skip").code == 0


@pytest.mark.filterwarnings("always")
def test_a_picture_with_too_many_pixels_is_told_of_once(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = write_folder(tmp_path / "photos")
    Image.new("L", (15, 15)).save(photos / "unlabeled" / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)  # Pillow itself warns above this, and refuses twice as many
    line = command.fails(1, "fit", photos, "--out", tmp_path / "run", *QUICK)
    assert "large.png' has more pixels than" in line


@pytest.mark.filterwarnings("always::UserWarning")
def test_the_same_file_with_two_labels_and_in_the_test_folder_is_told(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "photos")
    test = write_folder(tmp_path / "test", pool=0, first=1000)
    shutil.copy(photos / "cat" / "0.png", photos / "dog" / "copy.png")
    shutil.copy(photos / "cat" / "1.png", test / "cat" / "copy.png")
    result = command("fit", photos, "--test", test, "--out", tmp_path / "run", *QUICK)
    assert result.code == 0
    assert "The same file has different labels, as 'cat/0.png', 'dog/copy.png'; correct them." in result.err
    assert "1 of the 9 files" in result.err
    assert "are labeled files of" in result.err


@pytest.mark.filterwarnings("always::UserWarning")
def test_labeled_copies_are_told_wherever_they_are_held_out(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "photos", labeled=6)
    for name in ("cat", "dog"):
        shutil.copy(photos / "cat" / "0.png", photos / name / "copy.png")
    names = [
        f"{kind}/{name}" for kind in ("cat", "dog") for name in (*(f"{number}.png" for number in range(6)), "copy.png")
    ]
    lines = ["file,label,animal", *(f"{name},{name[:3]},{name[:3]}{number}" for number, name in enumerate(names))]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    of_group = ("--labels-file", tmp_path / "labels.csv", "--group", "animal")
    same = "'cat/0.png', 'cat/copy.png', 'dog/copy.png'"
    for seed in range(3):  # whichever side of the split they are on
        result = command(
            "fit", photos, "--validation", "0.5", "--seed", seed, "--out", tmp_path / f"run {seed}", *QUICK
        )
        assert f"The same file has different labels, as {same}; correct them." in result.err
        assert "different groups" not in result.err
    result = command("fit", photos, *of_group, "--out", tmp_path / "run", *QUICK)
    assert result.code == 0
    assert f"The same file is in different groups, as {same}; name one group for it" in result.err


def test_a_class_with_one_label_is_learned(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "photos")
    for number in range(1, 4):
        (photos / "dog" / f"{number}.png").unlink()
    result = command("fit", photos, "--out", tmp_path / "run", *QUICK)
    assert result.code == 0
    assert "cat 4, dog 1" in result.out


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda root: shutil.rmtree(root / "unlabeled"), "has no unlabeled file to self-train on; put files without"),
        (lambda root: (root / "unlabeled").rename(root / "Unlabeled"), "'Unlabeled'; rename it to 'unlabeled'."),
        (lambda root: shutil.rmtree(root / "dog"), "has the class 'cat' alone"),
        (lambda root: [shutil.rmtree(root / name) for name in ("cat", "dog")], "has no labeled row"),
        (lambda root: write_picture(root / "lone.png", 0, 0), "has files outside of its folders: 'lone.png'; put each"),
        (lambda root: [shutil.rmtree(root / name) for name in ("cat", "dog", "unlabeled")], "has no file of a kind"),
    ],
)
def test_folders_that_nothing_can_be_learned_from_are_refused(
    tmp_path: Path, command: Command, change: object, line: str
) -> None:
    photos = write_folder(tmp_path / "photos")
    change(photos)  # type: ignore[operator]
    found = command.fails(1, "fit", photos, "--out", tmp_path / "run", *QUICK)
    assert line in found
    assert str(photos) in found
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("always::UserWarning")
def test_of_mixed_kinds_the_most_common_is_taken_and_the_others_are_told(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "photos")
    write_sound(photos / "unlabeled" / "bark.wav", 0, 0)
    result = command("fit", photos, "--out", tmp_path / "run", *QUICK)
    assert "Found pictures in" in result.out
    assert "files that are not pictures are left out: 'unlabeled/bark.wav'." in result.err
    line = command.fails(1, "fit", photos, "--kind", "video", "--out", tmp_path / "other", *QUICK)
    assert "has no video (.mp4," in line


def test_a_test_folder_with_an_unknown_class_is_refused(tmp_path: Path, command: Command) -> None:
    photos, test = write_folder(tmp_path / "photos"), write_folder(tmp_path / "test", pool=0)
    (test / "cow").mkdir()
    write_picture(test / "cow" / "0.png", 0, 900)
    line = command.fails(1, "fit", photos, "--test", test, "--out", tmp_path / "run", *QUICK)
    assert f"Folder '{test}' has the class 'cow', which no labeled file has; label some" in line


def test_a_file_that_changes_while_it_is_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = write_folder(tmp_path / "photos")
    read = PictureSettings.read

    def growing(self: PictureSettings, path: Path) -> object:
        if path.name == "3.png" and path.parent.name == "cat":
            path.write_bytes(path.read_bytes() + b"more")
        return read(self, path)

    monkeypatch.setattr(PictureSettings, "read", growing)
    with pytest.raises(folder.DataError, match=r"'cat/3.png' changed while it was read; start again when nothing"):
        folder.FolderData(of="pictures", path=photos).load()


def test_a_run_goes_on_after_its_folder_has_moved_and_not_after_it_has_changed(
    tmp_path: Path, command: Command
) -> None:
    photos = write_folder(tmp_path / "photos")
    test = write_folder(tmp_path / "test", pool=0, first=1000)
    run, plain = tmp_path / "run", tmp_path / "plain"
    assert command("fit", photos, "--test", test, "--out", run, *QUICK).code == 0
    assert command("fit", photos, "--test", test, "--out", plain, *QUICK[2:], "--rounds", "2").code == 0
    (tmp_path / "moved").mkdir()
    photos.rename(tmp_path / "moved" / "pictures")
    test.rename(tmp_path / "moved" / "test")
    more, moved = ("resume", run, "--rounds", "2"), tmp_path / "moved" / "pictures"
    line = command.fails(1, *more)
    assert f"'{photos}', which the run began with, is not there any more" in line
    assert "--data FOLDER" in line
    assert "are a folder; got" in command.fails(1, *more, "--data", moved / "cat" / "0.png")
    assert command(*more, "--data", moved).code == 0
    last = RunFolder.open(run)
    assert last.settings.data is not None
    assert last.settings.data.path == moved
    assert last.records()[-1].scores == RunFolder.open(plain).records()[-1].scores
    write_picture(moved / "unlabeled" / "0.png", 1, 777)
    line = command.fails(1, "resume", run, "--rounds", "3")
    assert f"Folder '{moved}' has changed since the run began" in line
    assert "Put the old files back" in line


def test_the_hash_tells_names_with_line_ends_apart(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        root.mkdir()
        write_picture(root / "a.png", 0, 0)
    digest = folder.file_hash(one / "a.png")
    shutil.copy(one / "a.png", one / "b.png")
    (other / "a.png").rename(other / f"a.png\n{digest} b.png")
    found = [folder._Files.find(root, Pictures()).sha256 for root in (one, other)]
    assert found[0] != found[1]


def test_a_table_of_labels_with_groups_keeps_them_on_one_side(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "photos")
    lines = ["file,label,animal"]
    lines += [f"{name}/{number}.png,{name},{name}{number // 2}" for name in ("cat", "dog") for number in range(4)]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\nunlabeled/0.png,,cat0\n")
    options = ("--labels-file", tmp_path / "labels.csv", "--group", "animal", "--validation", "0.5")
    result = command("fit", photos, *options, "--out", tmp_path / "run", *QUICK)
    assert result.code == 0, result.err
    data = RunFolder.open(tmp_path / "run").settings.data
    assert data is not None
    loaded = data.load()
    assert loaded.validation is not None
    held_out = {name[:3] + str(int(name[4]) // 2) for name in loaded.validation[0].ids.tolist()}
    labeled = {name[:3] + str(int(name[4]) // 2) for name in loaded.labeled[0].ids.tolist()}
    assert held_out.isdisjoint(labeled)
    (tmp_path / "labels.csv").write_text("file,label\nnowhere.png,cat\n")
    line = command.fails(1, "fit", photos, *options[:2], "--out", tmp_path / "other", *QUICK)
    assert "names what is not among the pictures in" in line
    assert "'nowhere.png'" in line
    (tmp_path / "labels.csv").write_text("file,label\ncat/0.png,cat\n./cat/0.png,dog\n")
    line = command.fails(1, "fit", photos, *options[:2], "--out", tmp_path / "other", *QUICK)
    assert "labels.csv' names 'cat/0.png' in two rows, with and without './'; leave one out." in line


def test_decoding_is_kept_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = folder.FolderData(of="pictures", path=write_folder(tmp_path / "photos"))
    first = settings.load()
    monkeypatch.setattr(decoding, "_decode", None)  # would fail if it were called
    again = settings.load()
    np.testing.assert_array_equal(first.labeled[0][np.arange(8)], again.labeled[0][np.arange(8)])


@pytest.mark.filterwarnings("ignore:1 of 21 pictures")
def test_a_resumed_run_decodes_nothing_again_after_a_file_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = write_folder(tmp_path / "photos")
    (photos / "unlabeled" / "empty.png").touch()
    settings = folder.FolderData(of="pictures", path=photos, on_error="skip")
    first = settings.load()
    monkeypatch.setattr(decoding, "_decode", None)  # would fail if it were called
    again = settings.replace(**first.learned).load()
    assert again.unlabeled.ids.tolist() == first.unlabeled.ids.tolist()
    np.testing.assert_array_equal(again.unlabeled[np.arange(12)], first.unlabeled[np.arange(12)])


@pytest.mark.parametrize("table", [False, True])
def test_groups_are_those_of_the_labeled_files_and_then_of_the_pool(tmp_path: Path, table: bool) -> None:
    photos = write_folder(tmp_path / "photos")
    (photos / "unlabeled").rename(photos / "a pool")  # comes before the labeled files
    names = [f"{kind}/{number}.png" for kind in ("cat", "dog") for number in range(4)]
    lines = ["file,label,animal", *(f"{name},{name[:3]},{name[4]}" for name in names), "a pool/3.png,,7"]
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    group = "animal" if table else None
    settings = folder.FolderData(of="pictures", path=photos, labels_path=tmp_path / "labels.csv", group=group)
    data = settings.load()
    of_pool = data.unlabeled.ids.tolist()
    assert data.labeled[0].ids.tolist() == names
    if table:
        expected = [name[4] for name in names] + ["7" if name == "a pool/3.png" else None for name in of_pool]
    else:
        expected = [folder.file_hash(photos / name) for name in (*names, *of_pool)]
    assert data.groups.tolist() == expected


@pytest.mark.filterwarnings("ignore:1 of 9 pictures")
def test_labels_of_a_test_folder_stay_with_their_files_after_one_is_left_out(tmp_path: Path) -> None:
    photos = write_folder(tmp_path / "photos")
    test = write_folder(tmp_path / "test", pool=0, first=1000)
    (test / "cat" / "00.png").touch()
    data = folder.FolderData(of="pictures", path=photos, test_path=test, on_error="skip").load()
    samples, codes = data.test
    assert [data.classes[code] for code in codes] == [name.partition("/")[0] for name in samples.ids.tolist()]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path, command: Command) -> None:
    photos = write_folder(tmp_path / "photos")
    (photos / "dog").chmod(0)
    try:
        assert "dog" in command.fails(1, "fit", photos, "--out", tmp_path / "run", *QUICK)
    finally:
        (photos / "dog").chmod(0o755)


def test_defaults_of_selection_are_for_one_label_a_sample() -> None:
    for kind in KINDS.values():
        several = kind.defaults_for("multi")
        assert {**several, "min_steps": 0}.keys() <= kind.defaults_for("single").keys()
        assert not {"tau_p", "kappa_p", "labeled_batch_size", "max_rounds"} & several.keys()
    assert KINDS["pictures"].defaults_for("single")["labeled_batch_size"] == 32
