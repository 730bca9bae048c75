"""Figure 1 a with a curve for each of the paper's data sets, on miniature files in the official formats."""

import dataclasses
from pathlib import Path

import pytest
from cifar_support import small_set
from video_support import numbered, write_video
from voc_support import small_voc, write_voc

from surelabel.cli import main
from surelabel.data import sets as datasets
from surelabel.data.images import store
from surelabel.errors import DataError, InvalidInputError
from surelabel.reproduce.cifar import CIFAR10, CIFAR100
from surelabel.reproduce.entries import Experiment
from surelabel.reproduce.experiment import check_request, reproduce
from surelabel.reproduce.paper import EXPERIMENTS, experiment
from surelabel.reproduce.plans import Options
from surelabel.reproduce.results import read_rows
from tests.data.sets.test_ucf101 import official_lists, write_files, write_lists
from tests.reproduce.test_experiment import tiny
from tests.reproduce.test_several_labels_and_video import SMALL_UCF, SMALL_VOC

pytestmark = [
    pytest.mark.usefixtures("own_folder", "undrawn"),
    pytest.mark.filterwarnings("ignore:.*scores on it are not scores on UCF-101"),
    pytest.mark.filterwarnings("ignore:The labeled classes are far from even"),
]

SMALL = {
    "cifar10": (dataclasses.replace(CIFAR10, fast=tiny), 20),
    "cifar100": (dataclasses.replace(CIFAR100, fast=tiny), 100),
    "ucf101": (SMALL_UCF, 0.2),
    "voc2007": (SMALL_VOC, 25),
}


@pytest.fixture
def figure1a(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """The experiment with other data and fewer labels, on files that are there for all but CIFAR-100."""
    data = tmp_path / "data"
    store(data / "cifar10", small_set(per_batch=12))
    write_voc(data, small_voc(40, 20))
    write_lists(data / "ucf101", official_lists())
    write_files(data / "ucf101" / "UCF-101", lambda path: write_video(path, numbered(18, 36, 36), "mpeg4"))
    monkeypatch.setenv("SURELABEL_DATA", str(data))
    monkeypatch.setattr(datasets, "VOC2007_PICTURES", {"trainval": 40, "test": 20})
    whole = experiment("figure1a")
    small = [(entry, *SMALL[entry.dataset.name]) for entry in whole.entries]
    entries = [dataclasses.replace(entry, dataset=dataset, labels=labels) for entry, dataset, labels in small]
    mine = dataclasses.replace(whole, entries=tuple(entries))
    monkeypatch.setitem(EXPERIMENTS, "figure1a", mine)
    return mine


def test_it_has_the_papers_data_sets() -> None:
    entries = experiment("figure1a").entries
    assert [(entry.dataset.name, entry.labels) for entry in entries] == [
        ("cifar10", 1000),
        ("cifar100", 4000),
        ("ucf101", 0.2),
        ("voc2007", 500),
    ]
    for entry in entries:
        settings = entry.of(entry.base(0, "paper"))
        assert (settings.config.max_rounds, settings.network.uncertainty) == (0, "mc-dropout")


def test_every_data_set_has_a_curve_and_its_own_metric(figure1a: Experiment, tmp_path: Path) -> None:
    out, results = tmp_path / "runs", tmp_path / "runs.csv"
    words = ["figure1a", "--device", "cpu", "--out", str(out), "--results", str(results)]
    chosen = [word for name in ("cifar10", "ucf101", "voc2007") for word in ("--data", name)]
    assert main(["reproduce", *words, *chosen]) == 0
    written = (out / "figure1a.md").read_text()
    assert "Test error, test accuracy, test mAP in %, the last network's" in written
    head = "| row | data | labels | paper | ours: error | ours: accuracy | ours: mAP | ours: mAP, 11 points | seeds |"
    assert head in written
    assert "| Supervised | cifar100 | 100 |  | not run |  |  |  |  |" in written
    cells = {line.split(" | ")[1]: line.strip("| \n").split(" | ") for line in written.splitlines() if " | " in line}
    assert [bool(text) for text in cells["ucf101"][4:8]] == [False, True, False, False]
    assert [bool(text) for text in cells["voc2007"][4:8]] == [False, False, True, True]
    assert [(row["dataset"], row["metric"]) for row in read_rows(results)] == [
        ("cifar10", "test error %"),
        ("ucf101", "test accuracy %"),
        ("voc2007", "test mAP %"),
        ("voc2007", "test mAP, 11 points %"),
    ]
    together = out / "figure1a-cifar10-and-ucf101-and-voc2007"
    drawing = (together / "figure-1-a.svg").read_text()
    names = ("cifar10, 20 labeled", "ucf101, 20 % labeled", "voc2007, 25 labeled")
    assert all(f">{name}<" in drawing for name in names)
    multi = "In multi-label data, each class of each sample is a label"
    assert multi in (together / "figures.md").read_text()
    alone = out / "figure1a-voc2007-25"
    assert multi in (alone / "figures.md").read_text()
    assert ">voc2007, 25 labeled<" in (alone / "figure-1-a.svg").read_text()
    assert multi not in (out / "figure1a-ucf101-20-percent" / "figures.md").read_text()


def test_cifar_100_has_a_curve_too(figure1a: Experiment, tmp_path: Path) -> None:
    store(tmp_path / "data" / "cifar100", small_set(per_batch=100, num_classes=100))
    words = ["figure1a", "--device", "cpu", "--out", str(tmp_path / "runs")]
    assert main(["reproduce", *words, "--data", "cifar10", "--data", "cifar100"]) == 0
    drawing = (tmp_path / "runs" / "figure1a-cifar10-and-cifar100" / "figure-1-a.svg").read_text()
    assert all(f">{name}<" in drawing for name in ("cifar10, 20 labeled", "cifar100, 100 labeled"))


def test_missing_data_are_named_before_anything_starts(figure1a: Experiment, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="CIFAR-100 is not in .*; get it with: surelabel data get cifar100") as caught:
        reproduce(figure1a, tmp_path / "runs", Options(device="cpu"))
    assert caught.value.__notes__ == ["to run the other rows alone: --data cifar10 --data ucf101 --data voc2007"]
    assert not (tmp_path / "runs").exists()


def test_a_metric_of_an_entrys_own_must_fit_its_data(figure1a: Experiment, tmp_path: Path) -> None:
    (entry,) = check_request(figure1a, Options(datasets=("voc2007",)))
    wrong = dataclasses.replace(figure1a, entries=(dataclasses.replace(entry, metric="accuracy"),))
    with pytest.raises(InvalidInputError, match="metric='accuracy', and the data set 'voc2007' has task='multi'"):
        reproduce(wrong, tmp_path / "runs", Options(device="cpu"))
    assert not (tmp_path / "runs").exists()
