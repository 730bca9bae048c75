"""VOC2007: labels as the devkit's own lists have them, difficult objects as asked, files that are not whole named."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from voc_support import annotation, small_voc, write_voc

from surelabel.data import sets as datasets
from surelabel.data.decoding import watched
from surelabel.data.images import VARIABLE
from surelabel.data.run_data import FunctionData
from surelabel.data.sets import voc2007
from surelabel.data.sets.voc import VOC_CLASSES, read_voc
from surelabel.data.splits import multi_label_split, split_hash
from surelabel.data.training_set import make_problem
from surelabel.errors import DataError, InvalidInputError
from surelabel.runs.checks import fingerprint

VOC = small_voc()


def devkit_lists(root: Path, part: str) -> np.ndarray:
    """Read `<class>_<part>.txt` as the devkit does: a name and 1, 0 or -1 on each line."""
    columns = [np.loadtxt(root / "ImageSets/Main" / f"{name}_{part}.txt", dtype=int)[:, 1] for name in VOC_CLASSES]
    return np.stack(columns, axis=1)


def test_there_are_twenty_classes_in_the_order_of_the_devkit() -> None:
    assert len(VOC_CLASSES) == 20
    assert list(VOC_CLASSES) == sorted(VOC_CLASSES)


@pytest.mark.parametrize("part", ["trainval", "test"])
def test_labels_are_those_of_the_devkits_own_lists(part: str, tmp_path: Path) -> None:
    root = write_voc(tmp_path, VOC)
    lists = devkit_lists(root, part)
    assert (lists == 0).any()
    # There 0 is difficult and -1 absent; here -1 is unknown and 0 absent.
    for difficult, code in (("ignore", -1), ("present", 1), ("absent", 0)):
        found = read_voc(tmp_path, part, difficult)
        assert np.array_equal(found.y, np.where(lists == 0, code, np.where(lists == 1, 1, 0)))
        assert found.y.dtype == np.int64
        assert found.files == {name: root / "JPEGImages" / f"{name}.jpg" for name in VOC[part]}
        assert list(found.files) == list(VOC[part])


def test_a_class_with_an_object_that_is_not_difficult_is_present(tmp_path: Path) -> None:
    objects = {"000001": [("cat", 0), ("cat", 1)], "000002": [("cat", 1), ("cat", 0)], "000003": [("cat", 1)]}
    write_voc(tmp_path, {"trainval": objects})
    assert read_voc(tmp_path, "trainval").y[:, VOC_CLASSES.index("cat")].tolist() == [1, 1, -1]
    assert read_voc(tmp_path, "trainval", "absent").y[:, VOC_CLASSES.index("cat")].tolist() == [1, 1, 0]


def test_parts_of_a_person_are_not_objects(tmp_path: Path) -> None:
    write_voc(tmp_path, {"trainval": {"000001": [("person", 0)]}})
    assert "<name>head</name>" in (tmp_path / "VOCdevkit/VOC2007/Annotations/000001.xml").read_text()
    assert read_voc(tmp_path, "trainval").y.sum() == 1


def test_the_folder_may_be_named_at_any_height(tmp_path: Path) -> None:
    root = write_voc(tmp_path, VOC)
    for folder in (tmp_path, tmp_path / "VOCdevkit", root, str(root)):
        assert len(read_voc(folder, "test").files) == 20


def test_a_picture_without_objects_shows_none_of_the_classes(tmp_path: Path) -> None:
    write_voc(tmp_path, {"trainval": {"000001": [], "000002": [("dog", 0)]}})
    y = read_voc(tmp_path, "trainval").y
    assert y[0].tolist() == [0] * 20
    assert y[1].sum() == 1


def test_other_data_in_this_format_have_their_own_classes(tmp_path: Path) -> None:
    write_voc(tmp_path, {"all": {"1": [("zebra", 0)], "2": [("gnu", 1), ("zebra", 0)]}})
    assert read_voc(tmp_path, "all", classes=("gnu", "zebra")).y.tolist() == [[0, 1], [-1, 1]]


def test_annotations_that_are_not_whole_are_named(tmp_path: Path) -> None:
    root = write_voc(tmp_path, VOC)
    path = root / "Annotations" / "000003.xml"
    good = annotation("000003", [("cat", 0)])
    for text, problem in (
        (
            good.replace("cat", "sheeep"),
            r"has an object of the class 'sheeep'; the classes are 'aeroplane', .*'sheep', .*'tvmoni",
        ),
        (good.replace("<name>cat</name>", ""), r"has an object of the class ''"),
        (good.replace(">0</difficult>", ">maybe</difficult>"), r"<difficult> must be 0 or 1; got 'maybe'"),
        (good[: len(good) // 2], r"is damaged or not really an annotation in XML \(no element found|unclosed"),
        ("", r"is damaged or not really an annotation in XML \(no element found"),
        ("000003", r"is damaged or not really an annotation in XML \(syntax error"),
        ("<html></html>", r"must hold an <annotation>; got <html>"),
        ('<?xml version="1.0" encoding="klingon"?>' + good, r"is damaged or not really an annotation in XML"),
        (good + " " * 2**20, r"has \d+ bytes, more than any annotation"),
        ("<a>" * 100_000, r"is damaged or not really an annotation in XML \(no element found"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=rf"File '{path}'.*{problem}"):
            read_voc(tmp_path, "trainval")
    path.write_text(good.replace("\t\t<difficult>0</difficult>\n", ""))
    assert read_voc(tmp_path, "trainval").y[2, VOC_CLASSES.index("cat")] == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize(
    "definition",
    [
        '<!DOCTYPE annotation [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;">]>',
        '<!DOCTYPE annotation [<!ENTITY x SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE annotation SYSTEM "http://127.0.0.1:9/voc.dtd">',
    ],
)
def test_an_annotation_that_defines_entities_is_refused(definition: str, encoding: str, tmp_path: Path) -> None:
    root = write_voc(tmp_path, VOC)
    header = f'<?xml version="1.0" encoding="{encoding}"?>'
    attack = annotation("000003", [("&x;", 0)]) if "ENTITY" in definition else annotation("000003", [("cat", 0)])
    (root / "Annotations" / "000003.xml").write_bytes((header + definition + attack).encode(encoding))
    with pytest.raises(DataError, match=r"000003.xml' is damaged .* \(it has a document type\)"):
        read_voc(tmp_path, "trainval")


def test_lists_and_files_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"VOC2007 is not in '{tmp_path}': there is no ImageSets/Main, .* unpack VOCt"):
        read_voc(tmp_path, "trainval")
    root = write_voc(tmp_path, VOC)
    with pytest.raises(DataError, match=r"Main/val.txt' does not exist; unpack the official archive of this part"):
        read_voc(tmp_path, "val")
    with pytest.raises(InvalidInputError, match="difficult must be one of 'ignore', 'present', 'absent'"):
        read_voc(tmp_path, "trainval", "maybe")
    (root / "JPEGImages" / "000007.jpg").unlink()
    (root / "JPEGImages" / "000009.jpg").unlink()
    with pytest.raises(
        DataError, match=rf"'{root}/JPEGImages' lacks 2 of the 40 files that trainval.txt names: '000007.jpg"
    ):
        read_voc(tmp_path, "trainval")
    (root / "Annotations" / "000041.xml").unlink()
    with pytest.raises(
        DataError, match=rf"'{root}/Annotations' lacks 1 of the 20 files that test.txt names: '000041.xml'"
    ):
        read_voc(tmp_path, "test")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"000001\n000002  1\n", r"line 2: '000002  1' is not the name of one picture"),
        (b"000001\n\n../../../etc/passwd\n", r"line 3: '../../../etc/passwd' is not the name of one picture"),
        (b"000001\n000002\n000001\n", r"lines 1 and 3 both name '000001'; remove one"),
        (b"\n", r"names no picture"),
        (b"", r"names no picture"),
        (b"\xff\xfe1", r"is damaged or not really a list of pictures"),
    ],
)
def test_lists_that_are_not_lists_of_pictures_are_named(content: bytes, problem: str, tmp_path: Path) -> None:
    root = write_voc(tmp_path, VOC)
    (root / "ImageSets/Main/trainval.txt").write_bytes(content)
    with pytest.raises(DataError, match=rf"File '{root}/ImageSets/Main/trainval.txt'.*{problem}"):
        read_voc(tmp_path, "trainval")


def test_a_list_may_have_other_line_ends(tmp_path: Path) -> None:
    root = write_voc(tmp_path, VOC)
    (root / "ImageSets/Main/trainval.txt").write_bytes(b"000001\r\n000002 \r\n")
    assert list(read_voc(tmp_path, "trainval").files) == ["000001", "000002"]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_voc(tmp_path, VOC)
    monkeypatch.setattr(datasets, "VOC2007_PICTURES", {"trainval": 40, "test": 20})
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_a_run_has_labels_pool_and_test_set(small: Path) -> None:
    data = voc2007(seed=1, labels=30, num_validation=4, side=8)
    trainval, test = (read_voc(small, part) for part in ("trainval", "test"))
    split = multi_label_split(trainval.y, 30, 1, 4, ids=np.array(list(trainval.files)))
    names, files = list(trainval.files), list(trainval.files.values())
    assert data.task == "multi"
    assert tuple(data.classes) == VOC_CLASSES
    parts = (data.labeled, data.validation, (data.unlabeled, data.truth))
    for (source, y), rows in zip(parts, split, strict=True):
        assert source.ids.tolist() == [names[row] for row in rows]
        assert np.array_equal(y, trainval.y[rows])
        for x, row in zip(source.x, rows, strict=True):
            with Image.open(files[row]) as image:
                assert abs(x.astype(int) - np.array(image.getpixel((0, 0)))[:, None, None]).max() <= 1
    assert data.labeled[0].x.dtype == np.uint8
    assert data.test[0].x.shape == (20, 3, 8, 8)
    assert data.test[0].ids.tolist() == list(test.files)
    assert np.array_equal(data.test[1], test.y)


def test_unknown_entries_of_labeled_pictures_are_pseudo_labeled(small: Path) -> None:
    data = voc2007(labels=30, side=8)
    unknown = data.labeled[1] == -1
    assert unknown.any()
    problem = make_problem(data.labeled, data.unlabeled, data.task)
    assert len(problem.pool_rows) == 10 + unknown.any(axis=1).sum()
    assert np.array_equal(problem.training_set(None).g[:30], ~unknown)


def test_with_all_labels_there_is_no_pool(small: Path) -> None:
    data = voc2007(labels=40, side=8, difficult="absent")
    assert data.unlabeled is None
    assert data.truth is None
    assert len(data.labeled[1]) == 40


def test_pictures_are_decoded_once_for_all_runs(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[tuple[str, int, int]] = []
    with watched(lambda *count: counts.append(count)):
        first = voc2007(labels=30, side=8)
    assert counts[39:41] == [("pictures", 40, 40), ("pictures", 1, 20)]
    before = sorted((small / "voc2007-pictures").iterdir())
    again = FunctionData(function="surelabel.data.sets:voc2007", arguments={"labels": 30, "side": 8, "seed": 0}).load()
    assert fingerprint(first) == fingerprint(again)
    assert fingerprint(first) != fingerprint(voc2007(labels=30, side=8, seed=1))
    assert fingerprint(first) != fingerprint(voc2007(labels=30, side=8, difficult="present"))
    assert sorted((small / "voc2007-pictures").iterdir()) == before
    assert fingerprint(voc2007(labels=30, side=8, cache=str(small / "elsewhere"))) == fingerprint(first)
    assert len(list((small / "elsewhere").iterdir())) == len(before) == 2


def test_broken_pictures_stop_a_run_or_are_left_out(small: Path) -> None:
    path = small / "VOCdevkit/VOC2007/JPEGImages/000031.jpg"
    whole = voc2007(labels=30, side=8)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match=rf"Picture '{path}' is truncated or damaged"):
        voc2007(labels=30, side=8)
    with pytest.warns(UserWarning, match="1 of 40 pictures cannot be decoded and are left out: '000031'"):
        data = voc2007(labels=30, side=8, on_error="skip")
    ids = np.concatenate([data.labeled[0].ids, data.unlabeled.ids])
    assert sorted(ids) == [name for name in VOC["trainval"] if name != "000031"]
    # The draw is by name: without one picture the others are drawn as before.
    assert len(set(data.labeled[0].ids) ^ set(whole.labeled[0].ids)) <= 2


@pytest.mark.filterwarnings("ignore:1 of 40 pictures cannot be decoded")
def test_all_labels_are_those_of_the_pictures_that_are_not_skipped(small: Path) -> None:
    path = small / "VOCdevkit/VOC2007/JPEGImages/000031.jpg"
    path.write_bytes(path.read_bytes()[:-50])
    data = voc2007(labels=40, side=8, on_error="skip")
    assert sorted(data.labeled[0].ids) == [name for name in VOC["trainval"] if name != "000031"]
    assert (data.unlabeled, data.truth) == (None, None)
    with pytest.raises(InvalidInputError, match="must be at most the number of samples, 39; got 41"):
        voc2007(labels=41, side=8, on_error="skip")


def test_other_pictures_than_the_official_ones_are_told(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "VOC2007_PICTURES", {"trainval": 40, "test": 4952})
    with pytest.warns(
        UserWarning, match=r"The list 'test' in '.*' names 20 pictures, and that of VOC2007 4952; scores"
    ):
        voc2007(labels=30, side=8)


def test_the_split_is_told_apart_by_the_names(small: Path) -> None:
    first, again, other = (voc2007(labels=30, side=8, seed=seed) for seed in (0, 0, 1))
    hashes = [split_hash(data.labeled[0].ids) for data in (first, again, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_official_lists_have_5011_and_4952_pictures() -> None:
    assert datasets.VOC2007_PICTURES == {"trainval": 5011, "test": 4952}
