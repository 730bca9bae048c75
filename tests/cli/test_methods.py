"""`surelabel fit --method`: each method on tables, pictures and sounds, in rounds and without, and what is refused."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from backbone_support import NETS, write_pictures
from cli_support import write_blobs
from folder_support import QUICK, write_folder, write_sound
from kinds.test_texts import NETS as TEXT_NETS
from kinds.test_texts import lines as messages
from kinds.test_texts import write as write_messages
from video_support import write_clip

from surelabel.data.tables import write_table
from surelabel.engine import train
from surelabel.kinds import KINDS
from surelabel.learners.settings import METHODS
from surelabel.runs import RunFolder

NAMES = [name for name in METHODS if name != "ups"]


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SURELABEL_DATA", str(tmp_path / "cache"))
    num_steps = train.num_steps
    monkeypatch.setattr(train, "num_steps", lambda *given: min(num_steps(*given), 60))
    for kind in KINDS.values():
        monkeypatch.setattr(type(kind), "defaults", {**kind.defaults, "min_steps": 2, "batch_size": 8})
    write_blobs(Path("pets.csv"))


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_learned_by_each_method(command, name):
    options = ("--label", "pet", "--id", "id", "--validation", "0.5", *QUICK)
    result = command("fit", "pets.csv", *options, "--out", "run", "--method", name)
    assert (result.code, result.err) == (0, "")
    run = RunFolder.open(Path("run"))
    assert run.settings.network.method == name
    assert run.settings.network.training.ema_decay == 0.99
    assert run.records()[-1].round == 1
    assert run.records()[-1].validation_score > 0.7
    for asked in (("predict", "run", "pets.csv"), ("label", "run", "pets.csv", "--out", "labels.csv")):
        assert command(*asked).code == 0


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_learned_by_each_method_with_strong_views(command, name):
    write_folder(Path("photos"))
    result = command("fit", "photos", "--out", "run", "--method", name, *QUICK)
    assert (result.code, result.err) == (0, "")
    augment = RunFolder.open(Path("run")).settings.network.training.augment
    assert (augment.operations, augment.hole) == (2, 6)


@pytest.mark.parametrize("name", ["mixmatch", "freematch"])
def test_sounds_too_and_without_rounds(command, name):
    write_folder(Path("sounds"), write_sound, ".wav")
    result = command("fit", "sounds", "--out", "run", "--method", name, *QUICK, "--rounds", "0")
    assert (result.code, result.err) == (0, "")
    run = RunFolder.open(Path("run"))
    assert run.settings.network.training.augment.mask_rows > 0
    assert len(run.records()) == 1


@pytest.mark.parametrize(("name", "rounds"), [("mean-teacher", 1), ("softmatch", 0)])
def test_texts_frozen_features_and_clips_too(command, name, rounds):
    Path("nets.py").write_text(NETS + TEXT_NETS)
    write_messages("messages.csv", ["message", "kind"], messages())
    write_pictures(Path("colors"))
    write_folder(Path("clips"), write_clip, ".avi", labeled=2, pool=4)
    features = ("--backbone", "nets.py:colors", "--backbone", "nets.py:others")
    for number, data in enumerate(
        [
            ("messages.csv", "--label", "kind", "--kind", "texts"),
            ("messages.csv", "--label", "kind", "--backbone", "nets.py:words"),
            ("colors", *features),
            ("clips", "--passes", "3"),
        ]
    ):
        more = ("--rounds", str(rounds), "--epochs", "1", "--no-compare", "--device", "cpu", "--quiet")
        assert command("fit", *data, *more, "--method", name, "--out", f"run{number}").code == 0
        run = RunFolder.open(Path(f"run{number}"))
        assert run.settings.network.method == name
        assert len(run.records()) == rounds + 1


def test_what_is_said_of_round_0_names_the_method(command):
    words = [word for word in QUICK if word != "--no-compare"]
    options = ("--label", "pet", "--id", "id", "--validation", "0.5", *words)
    told = command("fit", "pets.csv", *options, "--out", "run", "--method", "flexmatch").out
    assert command("report", "run", "--out", "report.html").code == 0
    assert command("export", "run", "--out", "model.pt2").code == 0
    page, card = Path("report.html").read_text(), Path("model.pt2.md").read_text()
    for text in (told, page, card):
        assert "round 0, flexmatch alone" in text
        assert "labels alone" not in text
    assert "Round 0 was trained with flexmatch alone" in page
    assert "Round 0 was trained with flexmatch alone." in card
    assert "supervised" not in command("fit", "--help").out


def test_a_model_card_names_the_method_with_its_parameters(command):
    options = ("--label", "pet", "--id", "id", *QUICK)
    method = ("--method", "fixmatch", "--method-parameter", "threshold=0.9")
    cards = []
    for name, more in (("plain", ()), ("fixmatch", method)):
        assert command("fit", "pets.csv", *options, "--out", name, *more).code == 0
        assert command("export", name, "--out", f"{name}.pt2").code == 0
        cards.append(Path(f"{name}.pt2.md").read_text().splitlines())
    added = [line for line in cards[1] if line.startswith("|") and line not in cards[0]]
    assert added[:2] == ["| method | fixmatch | run.json |", '| its parameters | {"threshold": 0.9} | run.json |']
    assert "| ema_decay | 0.99 | run.json |" in added
    assert not any(line.startswith(("| method |", "| ema_decay |")) for line in cards[0])


def test_without_rounds_a_network_needs_no_dropout(command):
    Path("nets.py").write_text(
        "from torch import nn\n"
        "def make(shape, classes):\n"
        "    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))\n"
    )
    options = ("fit", "pets.csv", "--label", "pet", "--id", "id", "--epochs", "1", "--model", "nets.py:make")
    options = (*options, "--method", "fixmatch", "--no-compare")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = command(*options, "--rounds", "0", "--passes", "3", "--out", "run")
    assert result.code == 0
    assert result.err == (
        "warning: Ignored: --passes, because the network has no randomness, so its labels have no uncertainty.\n"
    )
    assert RunFolder.open(Path("run")).settings.network.uncertainty == "none"
    labeled = command("label", "run", "pets.csv", "--out", "labels.csv")
    assert labeled.code == 0
    assert "Ignored" not in labeled.err
    assert "All 10 passes" in command.fails(1, *options, "--rounds", "1", "--out", "other")
    resumed = command("resume", "run", "--rounds", "1", "--trust-code")
    assert resumed.code == 0
    assert "its rounds select labels by confidence alone" in resumed.err


def test_a_method_has_parameters(command):
    options = ("fit", "pets.csv", "--label", "pet", "--id", "id", "--out", "run", "--method", "fixmatch", *QUICK)
    assert command(*options, "--method-parameter", "threshold=0.9", "--method-parameter", "ratio=2").code == 0
    assert RunFolder.open(Path("run")).settings.network.method_parameters == {"threshold": 0.9, "ratio": 2}
    for given, expected in (
        (("threshold=.9", "ratio=1e3"), {"threshold": 0.9, "ratio": 1000}),
        (("threshold=1.", "ratio=+3.0"), {"threshold": 1, "ratio": 3}),
        (("threshold=5e-1", "weight=null"), {"threshold": 0.5, "weight": None}),
    ):
        more = [word for one in given for word in ("--method-parameter", one)]
        assert command(*options[:7], f"run {given[0]}", *options[8:], *more).code == 0
        assert RunFolder.open(Path(f"run {given[0]}")).settings.network.method_parameters == expected
    for given, message in (
        ("threshold", "must be NAME=VALUE"),
        ("thresold=0.9", "thresold"),
        ("threshold=x", "thresh"),
        ("threshold=NaN", "The 'threshold' argument must be a number in [0, 1]. Got 'NaN'"),
        ("threshold=[1]", "The 'threshold' argument must be a number in [0, 1]. Got '[1]'"),
        ("threshold=1e999", "it must be a finite number, true, false, a text or nothing. Got inf."),
    ):
        result = command(*options[:7], "other", *options[8:], "--method-parameter", given)
        assert result.code != 0
        assert message in result.err
        assert result.err.count("\n") == 1
        assert not Path("other").exists()
    two = ("--method-parameter", "threshold=0.9", "--method-parameter", "threshold=0.8")
    twice = command(*options[:7], "other", *options[8:], *two)
    assert "--method-parameter sets 'threshold' twice; leave one of them out." in twice.err


def test_a_wrong_parameter_is_reported_before_the_data_are_read(command, monkeypatch):
    Path("broken.csv").write_text("pet,a\ncat,1,2,3\n")
    options = ("fit", "broken.csv", "--label", "pet", "--out", "run", "--method")
    assert "threshold" in command.fails(1, *options, "fixmatch", "--method-parameter", "threshold=2")
    assert "cannot be made" in command.fails(1, *options, "ict", "--method-parameter", "threshold=2")
    assert "broken.csv" in command.fails(1, *options, "fixmatch")


@pytest.mark.parametrize("name", ["ict", "mixmatch"])
def test_samples_that_cannot_be_mixed_are_refused_before_anything_is_written(command, name):
    Path("nets.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x.float() / 255)\n"
        "def make(shape, classes):\n"
        "    return Net(nn.Flatten(), nn.Dropout(0.2), nn.Linear(48, classes))\n"
    )
    pictures = np.random.default_rng(0).integers(0, 256, size=(30, 3, 4, 4)).astype(np.uint8)
    np.savez("pictures.npz", x=pictures, y=np.where(np.arange(30) < 10, np.arange(30) % 2, -1))
    options = (
        "fit",
        "pictures.npz",
        "--model",
        "nets.py:make",
        "--rounds",
        "1",
        "--epochs",
        "1",
        "--no-compare",
        "--out",
    )
    said = command.fails(1, *options, "run", "--method", name)
    assert said.endswith('give float32, such as x / 255; for codes of words choose "mean-teacher".')
    assert not Path("run").exists()
    assert command(*options, "run", "--method", "mean-teacher").code == 0


def test_the_help_names_every_method(command):
    words = " ".join(command("fit", "--help").out.replace("│", " ").split())
    asked = words.split("How a network learns within a round:")[1].split("FILE.py:CLASS")[0]
    assert set(re.findall("[a-z-]+", asked)) - {"or"} == set(METHODS)


def test_a_method_that_takes_one_label_refuses_several_before_it_begins(command):
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, size=(40, 2))
    x = y + 0.1 * generator.normal(size=(40, 2))
    columns = {"a": x[:, 0], "b": x[:, 1]}
    columns |= {name: [str(v) if row < 20 else "" for row, v in enumerate(y[:, i])] for i, name in enumerate("pq")}
    write_table(Path("two.csv"), columns)
    asked = ("fit", "two.csv", "--label", "p", "--label", "q", "--out", "run", *QUICK)
    result = command(*asked, "--method", "fixmatch")
    assert result.code != 0
    assert "FixMatch takes one label for each sample, not several" in result.err
    assert not Path("run").exists()
    assert command(*asked, "--method", "mean-teacher").code == 0
