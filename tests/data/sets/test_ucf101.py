"""UCF-101 by its official lists, on miniature files in their format, through to a run; and ucf3, where it is there."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import ucf3
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from video_support import numbered, write_video

from surelabel.augment.settings import AugmentSettings
from surelabel.data.decoding import watched
from surelabel.data.images import data_folder
from surelabel.data.run_data import FunctionData, RunData
from surelabel.data.sets import ucf101
from surelabel.data.sets.ucf101 import SIZES, read_ucf101
from surelabel.data.splits import share_split
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import DataError, InvalidInputError
from surelabel.learners.network import TorchLearner
from surelabel.loop import self_train
from surelabel.settings import UPSConfig

CLASSES = ("ApplyEyeMakeup", "HandstandPushups", "YoYo")
CLIPS = {"passages": 3, "frames": 4, "height": 16, "width": 16}
Lists = dict[str, list[str]]


def clip_name(label: str, group: int, clip: int) -> str:
    # As in the official lists, the files of this class spell it in another way than its folder does.
    return f"{label}/v_{label.replace('stand', 'Stand')}_g{group:02}_c{clip:02}.avi"


def official_lists() -> Lists:
    """Ten groups of two clips a class; each split tests three other groups."""
    lists = {"classInd": [f"{number} {name}" for number, name in enumerate(CLASSES, start=1)]}
    for split in SIZES:
        tested = range(3 * split - 2, 3 * split + 1)
        for part in ("train", "test"):
            lists[f"{part}list{split:02}"] = [
                clip_name(label, group, clip) + (f" {CLASSES.index(label) + 1}" if part == "train" else "")
                for label in CLASSES
                for group in range(1, 11)
                for clip in (1, 2)
                if (group in tested) == (part == "test")
            ]
    return lists


def write_lists(folder: Path, lists: Lists, end: str = "\r\n") -> None:
    (folder / "ucfTrainTestlist").mkdir(parents=True, exist_ok=True)
    for name, lines in lists.items():
        text = "".join(line + end for line in lines)
        (folder / "ucfTrainTestlist" / f"{name}.txt").write_bytes(text.encode())


def write_files(folder: Path, write: Callable[[Path], object] = Path.touch, ending: str = ".avi") -> None:
    for label in CLASSES:
        (folder / label).mkdir(parents=True)
        for group in range(1, 11):
            for clip in (1, 2):
                write(folder / Path(clip_name(label, group, clip)).with_suffix(ending))


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The folders with empty files: for what does not decode them."""
    write_lists(tmp_path, official_lists())
    write_files(tmp_path / "UCF-101")
    return tmp_path


# The lists


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("split", SIZES)
def test_a_split_is_read_from_its_official_lists(tmp_path: Path, split: int, end: str) -> None:
    write_lists(tmp_path, official_lists(), end)
    write_files(tmp_path / "UCF-101")
    lists = read_ucf101(tmp_path, split)
    assert lists.classes == CLASSES
    assert (len(lists.train.names), len(lists.test.names), len(lists.videos)) == (42, 18, 60)
    assert lists.train.names.tolist() == [
        line.split(".")[0] for line in official_lists()[f"trainlist{split:02}"]
    ]  # in the order of the list
    assert np.bincount(lists.train.y).tolist() == [14] * 3
    assert np.bincount(lists.test.y).tolist() == [6] * 3
    assert lists.test.groups[:2].tolist() == [f"ApplyEyeMakeup/g{3 * split - 2:02}"] * 2
    assert not set(lists.train.groups.tolist()) & set(lists.test.groups.tolist())
    name = "HandstandPushups/v_HandStandPushups_g01_c02"
    assert lists.videos[name] == tmp_path / "UCF-101" / f"{name}.avi"


def test_class_folders_may_lie_beside_the_lists_with_other_endings_and_capitals(tmp_path: Path) -> None:
    write_lists(tmp_path, official_lists())
    write_files(tmp_path, lambda path: path.with_name(path.name.lower()).touch(), ending=".mp4")
    lists = read_ucf101(tmp_path)
    assert lists.videos["YoYo/v_YoYo_g01_c01"] == tmp_path / "YoYo" / "v_yoyo_g01_c01.mp4"


def test_of_several_files_of_a_clip_the_video_is_taken(empty: Path) -> None:
    avi = empty / "UCF-101" / clip_name("YoYo", 1, 1)
    for ending in (".txt", ".mp4", ".xml"):
        avi.with_suffix(ending).touch()
    name = "YoYo/v_YoYo_g01_c01"
    assert read_ucf101(empty).videos[name] == avi
    avi.unlink()
    assert read_ucf101(empty).videos[name] == avi.with_suffix(".mp4")


def test_one_split_is_enough_and_classes_can_be_chosen(empty: Path) -> None:
    for name in ("trainlist02", "testlist02", "trainlist03", "testlist03"):
        (empty / "ucfTrainTestlist" / f"{name}.txt").unlink()
    lists = read_ucf101(empty, classes=("YoYo", "ApplyEyeMakeup"))
    assert lists.classes == ("ApplyEyeMakeup", "YoYo")
    assert len(lists.videos) == 40
    assert np.bincount(lists.train.y).tolist() == [14, 14]
    with pytest.raises(DataError, match=r"trainlist02.txt' does not exist"):
        read_ucf101(empty, 2)


def test_a_list_that_names_a_missing_clip_stops_the_work_or_leaves_it_out(empty: Path) -> None:
    (empty / "UCF-101" / clip_name("YoYo", 10, 2)).unlink()
    message = r"1 of 60 listed clips are not in '.*': 'YoYo/v_YoYo_g10_c02'; "
    with pytest.raises(DataError, match=message + "get them again, or leave them out: --on-error skip"):
        read_ucf101(empty)
    with pytest.warns(UserWarning, match=message + "they are left out"):
        lists = read_ucf101(empty, on_error="skip")
    assert len(lists.train.names) == 41
    assert "YoYo/v_YoYo_g10_c02" not in lists.train.names


def test_a_folder_without_videos_is_an_error_whatever_on_error_says(tmp_path: Path) -> None:
    write_lists(tmp_path, official_lists())
    with pytest.raises(DataError, match="60 of 60 listed clips are not in"):
        read_ucf101(tmp_path, on_error="skip")


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("classInd", "x YoYo", r"classInd.txt', line 4: 'x YoYo' is not a number and a new class; get it again"),
        ("classInd", "4 YoYo", r"classInd.txt', line 4: '4 YoYo' is not a number and a new class"),
        ("trainlist01", "YoYo/v_YoYo.avi 3", r"trainlist01.txt', line 43: 'YoYo/v_YoYo.avi 3' is not a clip of a"),
        ("testlist02", "../a_g01_c01.avi", r"testlist02.txt', line 19: '../a_g01_c01.avi' is not a clip of a class"),
        (
            "testlist01",
            "Yo/v_Yo_g01_c01.avi",
            r"testlist01.txt', line 19: .* is not a clip of a class",
        ),
        (
            "trainlist01",
            "YoYo/v_YoYo_g11_c01.avi 1",
            r"line 43: 'YoYo/.* 1' is not a clip of a class with its number",
        ),
        ("testlist01", clip_name("YoYo", 10, 1), "lists of split 1 in .* name 'YoYo/v_YoYo_g10_c01' more than once"),
    ],
)
def test_a_list_that_is_not_official_is_named(empty: Path, name: str, line: str, message: str) -> None:
    lists = official_lists()
    lists[name].append(line)
    write_lists(empty, lists)
    with pytest.raises(DataError, match=message):
        read_ucf101(empty)


def test_splits_and_classes_that_are_not_there_are_refused(empty: Path) -> None:
    with pytest.raises(InvalidInputError, match="split must be 1, 2 or 3; got 4"):
        read_ucf101(empty, 4)
    with pytest.raises(InvalidInputError, match="must name classes of UCF-101; got 'Golf'"):
        read_ucf101(empty, classes=("Golf",))
    (empty / "ucfTrainTestlist" / "testlist01.txt").write_text("")
    with pytest.raises(DataError, match=r"testlist01.txt' is empty"):
        read_ucf101(empty)


# The labeled share


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    share=st.floats(0.05, 1.0),
    validation=st.floats(0.0, 0.3),
    seed=st.integers(0, 3),
)
def test_each_class_has_its_share(counts: list[int], share: float, validation: float, seed: int) -> None:
    y = np.repeat(np.arange(len(counts)), counts)
    split = share_split(y, share, seed, min(validation, 1 - share))
    assert np.sort(np.concatenate(split)).tolist() == list(range(len(y)))
    labeled = np.bincount(y[split.labeled], minlength=len(counts))
    assert labeled.tolist() == [max(1, round(share * count)) for count in counts]
    larger = share_split(y, min(1.0, 2 * share), seed)
    assert set(split.labeled.tolist()) <= set(larger.labeled.tolist())


def test_seeds_draw_other_clips_and_classes_do_not_share_a_draw() -> None:
    y = np.repeat([0, 1], 50)
    first, second = (share_split(y, 0.2, seed).labeled for seed in (0, 1))
    assert first.tolist() != second.tolist()
    assert (first[:10]).tolist() != (first[10:] - 50).tolist()


def test_groups_are_labeled_held_out_or_pool_as_a_whole() -> None:
    y = np.repeat([0, 1], 40)
    groups = np.char.add(np.where(y == 0, "a", "b"), (np.arange(80) // 4).astype(str))
    split = share_split(y, 0.2, 0, 0.1, groups)
    parts = [set(groups[part].tolist()) for part in split]
    assert [len(part) for part in parts] == [4, 2, 14]
    assert not parts[0] & parts[1]
    assert not (parts[0] | parts[1]) & parts[2]


def test_groups_of_several_classes_are_kept_together_too() -> None:
    y, groups = np.arange(200) % 2, np.arange(200) // 4
    split = share_split(y, 0.2, 0, 0.1, groups)
    parts = [set(groups[part].tolist()) for part in split]
    assert sum(len(part) for part in parts) == len(set().union(*parts)) == 50
    assert [np.bincount(y[part]).tolist() for part in split] == [[20, 20], [10, 10], [70, 70]]


@pytest.mark.parametrize("shares", [(0.0, 0.0), (1.2, 0.0), (0.8, 0.3), (0.5, -0.1)])
def test_shares_that_make_no_sense_are_refused(shares: tuple[float, float]) -> None:
    with pytest.raises(InvalidInputError, match="share must be above 0 and, with validation_share, at most"):
        share_split(np.zeros(10, dtype=int), shares[0], 0, shares[1])


# A run's data


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ucf101` with its official folders, and videos that a network can tell apart by their gray levels."""
    root = tmp_path_factory.mktemp("data")
    folder = root / "ucf101"
    write_lists(folder, official_lists())

    def write(path: Path) -> None:
        level = 3 * CLASSES.index(path.parent.name) + 1
        write_video(path, numbered(5 + int(path.stem[-1]), 24, 32, step=3) // 4 + np.uint8(20 * level), "mpeg4")

    write_files(folder / "UCF-101", write)
    return root


def made(root: Path, **arguments: object) -> RunData:
    with pytest.warns(
        UserWarning, match="has 42 and 18 clips, and that of UCF-101 9537 and 3783; scores on it are not"
    ):
        return ucf101(folder=str(root), **{**CLIPS, **arguments})


def test_a_run_has_labeled_clips_a_pool_and_test_clips(root: Path) -> None:
    data = made(root, share=0.5, validation_share=0.2)
    assert data.classes == CLASSES
    assert data.task == "single"
    assert [len(part[0]) for part in (data.labeled, data.validation, data.test)] == [21, 9, 18]
    assert len(data.unlabeled) == len(data.truth) == 12
    assert data.labeled[0].sample_shape == (3, 12, 16, 16)
    ids = np.concatenate([part.ids for part in (data.labeled[0], data.validation[0], data.unlabeled, data.test[0])])
    assert len(set(ids.tolist())) == 60
    for source, y in (data.labeled, data.test, (data.unlabeled, data.truth)):
        assert [name.split("/")[0] for name in source.ids.tolist()] == [CLASSES[label] for label in y]
        # The videos of a class are brighter than those of the class before.
        brightness = source[np.arange(len(source))].mean((1, 2, 3, 4))
        assert np.array_equal(np.round((brightness - 20) / 60), y)


def test_every_split_shares_one_cache(root: Path) -> None:
    made(root)
    calls: list[tuple[str, int, int]] = []
    with pytest.warns(UserWarning, match="9586 and 3734"), watched(lambda *told: calls.append(told)):
        data = ucf101(folder=str(root), split=2, **CLIPS)
    assert not calls
    assert {name.split("_")[-2] for name in data.test[0].ids.tolist()} == {"g04", "g05", "g06"}


def test_with_all_clips_labeled_there_is_no_pool(root: Path) -> None:
    data = made(root, share=1)
    assert len(data.labeled[0]) == 42
    assert data.unlabeled is None
    assert data.truth is None


def test_groups_keep_the_clips_of_a_video_together(root: Path) -> None:
    data = made(root, share=0.5, groups=True)
    labeled, pool = (
        {name.rpartition("_")[0] for name in part.ids.tolist()} for part in (data.labeled[0], data.unlabeled)
    )
    assert not labeled & pool
    apart = made(root, share=0.5)
    labeled, pool = (
        {name.rpartition("_")[0] for name in part.ids.tolist()} for part in (apart.labeled[0], apart.unlabeled)
    )
    assert labeled & pool


def test_a_run_names_the_function_and_its_arguments(root: Path) -> None:
    arguments = {"seed": 1, "share": 0.5, "folder": str(root), **CLIPS}
    settings = FunctionData(function="surelabel.data.sets:ucf101", arguments=arguments)
    with pytest.warns(UserWarning, match="scores on it are not scores on UCF-101"):
        assert len(settings.load().labeled[0]) == 21


def test_a_clip_that_cannot_be_decoded_stops_the_run_or_is_left_out(root: Path, tmp_path: Path) -> None:
    path = root / "ucf101" / "UCF-101" / clip_name("YoYo", 1, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    try:
        with pytest.raises(DataError, match=r"Video '.*v_YoYo_g01_c01.avi' cannot be read"):
            made(root, cache=str(tmp_path))
        with pytest.warns(UserWarning, match="1 of 60 clips cannot be decoded and are left out: 'YoYo/v_YoYo_g01_c01'"):
            data = made(root, cache=str(tmp_path), on_error="skip")
    finally:
        path.write_bytes(whole)
    assert len(data.test[0]) == len(data.test[1]) == 17


def test_a_clip_that_is_missing_for_a_while_does_not_cost_the_others_decoded_again(root: Path, tmp_path: Path) -> None:
    totals: list[int] = []
    options = {"cache": str(tmp_path), "on_error": "skip"}
    path = root / "ucf101" / "UCF-101" / clip_name("YoYo", 1, 1)
    path.rename(tmp_path / "away")
    try:
        with (
            pytest.warns(UserWarning, match="1 of 60 listed clips are not in"),
            pytest.warns(UserWarning, match="has 42 and 17 clips"),
            watched(lambda what, done, total: totals.append(total)),
        ):
            before = ucf101(folder=str(root), **options, **CLIPS)
    finally:
        (tmp_path / "away").rename(path)
    assert totals == [59] * 59
    with watched(lambda what, done, total: totals.append(total)):
        after = made(root, **options)
    assert totals[59:] == [1]
    assert len(after.test[0]) == len(before.test[0]) + 1
    whole = made(root, cache=str(tmp_path / "other"))
    assert np.array_equal(after.test[0][np.arange(18)], whole.test[0][np.arange(18)])


def test_missing_data_and_wrong_settings_are_named(tmp_path: Path, root: Path) -> None:
    with pytest.raises(DataError, match=r"UCF-101 is not in '.*ucf101'; put its folders UCF-101 \(of UCF101.rar\)"):
        ucf101(folder=str(tmp_path))
    with pytest.raises(ValueError, match="ClipSettings has no setting 'passage': did you mean 'passages'"):
        made(root, passage=3)


class Network(nn.Module):
    """Channel means, which are all that differs between these clips; the shape is checked on the way."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Conv3d(3, 8, 3, padding=1)
        self.last = nn.Sequential(nn.Dropout(0.3), nn.Linear(8, num_classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.shape[1:] == (3, 3, 12, 12)
        return self.last(self.first(x).relu().mean((2, 3, 4)))


def test_clips_go_through_the_loop_like_any_other_samples(root: Path) -> None:
    data = made(root, share=0.5)
    augment = AugmentSettings(
        side=12, window=3, passages=3, flip=True, mean=(0.4, 0.4, 0.4), std=(0.2, 0.2, 0.2), test_windows=3
    )
    training = TrainingSettings(epochs=30, batch_size=8, learning_rate=0.1, augment=augment)
    learner = TorchLearner(lambda shape, classes: Network(classes), training=training, device="cpu", threads=1)
    config = UPSConfig(max_rounds=1, balance=None, num_classes=3)
    records = list(self_train(learner, data.labeled, data.unlabeled, config, test=data.test, truth=data.truth))
    assert records[-1].num_positive > 0
    assert records[-1].test_score > 0.9


# ucf3, which is real


@pytest.fixture
def real() -> Path:
    folder = data_folder() / "ucf3"
    if not folder.is_dir():
        pytest.skip(f"ucf3 is not in '{folder}'")
    return folder


def test_the_official_lists_have_the_official_sizes(real: Path, tmp_path: Path) -> None:
    (tmp_path / "ucfTrainTestlist").symlink_to((real / "ucfTrainTestlist").absolute())
    for part in ("train", "test"):
        for line in (real / "ucfTrainTestlist" / f"{part}list01.txt").read_text().split("\n"):
            name = line.split(" ")[0].strip()
            if name:
                path = tmp_path / "UCF-101" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
    for split, sizes in SIZES.items():
        lists = read_ucf101(tmp_path, split)
        assert (len(lists.train.names), len(lists.test.names)) == sizes
        assert (len(lists.classes), len(lists.videos)) == (101, 13_320)
        assert not set(lists.train.groups.tolist()) & set(lists.test.groups.tolist())


def test_ucf3_has_the_clips_of_three_classes(real: Path) -> None:
    lists = read_ucf101(real, classes=ucf3.CLASSES)
    assert (len(lists.train.names), len(lists.test.names), len(lists.videos)) == (290, 104, 394)


def test_ucf3_says_where_its_data_should_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"ucf3 is not in '.*ucf3'; put the class folders BabyCrawling, Punch, PushUps"):
        ucf3.ucf3()


def test_ucf3_is_a_run_on_its_own_clips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ucf3, "CLASSES", CLASSES)
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path))
    write_lists(tmp_path / "ucf3", official_lists())
    write_files(tmp_path / "ucf3", lambda path: write_video(path, numbered(4), "mpeg4"), ending=".mp4")
    data = ucf3.ucf3(share=0.5, cache=str(tmp_path / "clips"), **CLIPS)
    assert [len(part) for part in (data.labeled[0], data.unlabeled, data.test[0])] == [21, 21, 18]
