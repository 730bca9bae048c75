"""A table's column of texts by frozen backbones: from `fit` to `predict`, `label`, `resume` and `export`."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_support import QUICK, Command
from cli_support import rows as printed

from surelabel.kinds.texts import TextData
from surelabel.runs import RunFolder

NETS = """
import zlib
from pathlib import Path

import torch

COUNT = Path(__file__).with_name("count.txt")


def hashed(width, skip=0):
    def features(texts):
        assert all(isinstance(text, str) for text in texts)
        before = int(COUNT.read_text()) if COUNT.exists() else 0
        COUNT.write_text(str(before + len(texts)))
        found = torch.zeros(len(texts), width)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                found[row, zlib.crc32(word[skip:].encode()) % width] += 1
        return found

    return features


def words():
    return hashed(16)


def endings():
    return hashed(8, skip=1)


def flat():
    return lambda texts: torch.zeros(len(texts))


def broken():
    return 3


def pictures():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
"""
WORDS = {"ham": "see you at lunch tomorrow", "spam": "win free money prize now"}


def lines(number: int = 40, labeled: int = 12) -> list[list[str]]:
    """Messages, each with a number of its own, and their labels."""
    names = [("ham", "spam")[row % 2] for row in range(number)]
    return [[f"{WORDS[name]} {row}, naïve 無料", name if row < labeled else ""] for row, name in enumerate(names)]


def write(path: str, head: list[str], body: list[list[str]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([head, *body])


@pytest.fixture
def home(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with messages and functions for them, and a cache of its own."""
    monkeypatch.setenv("SURELABEL_DATA", str(own_folder / "cache"))
    (own_folder / "nets.py").write_text(NETS)
    write("messages.csv", ["message", "kind"], lines())
    return own_folder


def computed(home: Path) -> int:
    return int((home / "count.txt").read_text())


FIT = ("fit", "messages.csv", "--label", "kind", "--backbone", "nets.py:words")


def test_a_table_is_fitted_on_features_and_new_texts_are_predicted_and_labeled(home: Path, command: Command) -> None:
    fitted = command(*FIT, *QUICK, "--out", "run")
    assert fitted.code == 0, fitted.err
    assert "Used as texts: message." in fitted.out.splitlines()
    assert "Features: 16 by nets.py:words." in fitted.out.splitlines()
    assert RunFolder.open("run").settings.network.together == ((0, 16),)
    assert computed(home) == 40
    write("new.csv", ["other", "message"], [["x", WORDS["ham"]], ["y", WORDS["spam"]], ["z", ""]])
    predicted = command("predict", "run", "new.csv")
    assert [row["prediction"] for row in printed(predicted.out)][:2] == ["ham", "spam"]
    labeled = command("label", "run", "new.csv")
    assert [row["label"] for row in printed(labeled.out)][:2] == ["ham", "spam"]
    assert computed(home) == 43
    assert command("report", "run", "--out", "report.html").code == 0
    again = command("label", "run", "messages.csv")
    assert {row["round"] for row in printed(again.out)} <= {"", "1"}
    assert [row["given"] for row in printed(again.out)][:3] == ["ham", "spam", "ham"]


@pytest.mark.filterwarnings("ignore:.*rows without any value")
def test_features_are_computed_once_for_each_text(home: Path, command: Command) -> None:
    assert command(*FIT, *QUICK, "--quiet", "--out", "first").code == 0
    write("messages.csv", ["message", "kind"], [*lines()[::-1], ["something quite new", ""], ["  ", ""], ["", ""]])
    assert command(*FIT, *QUICK, "--quiet", "--out", "second").code == 0
    assert computed(home) == 42  # the new one, and the empty one


def test_features_are_those_of_the_function_in_the_order_of_the_rows(home: Path) -> None:
    backbones = [{"reference": "nets.py:words"}, {"reference": "nets.py:endings"}]
    data = TextData(path="messages.csv", labels=("kind",), backbones=backbones).load()
    assert data.learned["drop"] == ()
    assert [one.width for one in data.learned["backbones"]] == [16, 8]
    names: dict[str, object] = {"__file__": str(home / "nets.py")}
    exec(NETS, names)
    texts = [text for text, _ in lines()][12:]
    expected = np.concatenate([names[one]()(texts).numpy() for one in ("words", "endings")], axis=1)
    np.testing.assert_array_equal(data.unlabeled[np.arange(28)], expected)
    assert data.unlabeled.ids.tolist() == list(range(12, 40))


@pytest.mark.parametrize("lost", [False, True])
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(home: Path, command: Command, lost: bool) -> None:
    fit = (*FIT, *QUICK, "--quiet", "--out")
    assert command(*fit, "whole", "--rounds", "2").code == 0
    assert command(*fit, "parts").code == 0
    if lost:
        shutil.rmtree("cache")
    assert command("resume", "parts", "--rounds", "2", "--quiet").code == 0
    whole, parts = RunFolder.open("whole"), RunFolder.open("parts")
    assert whole.model_bytes() == parts.model_bytes()
    assert computed(home) == 40 * (1 + lost)


@pytest.mark.filterwarnings("ignore:.* have the very features of labeled rows")  # numbers share a place in the hash
def test_models_are_compared_and_the_kept_one_serves(home: Path, command: Command, keeps_linear: None) -> None:
    write("test.csv", ["message", "kind"], lines(60, 60)[40:])
    fit = (*FIT, "--hidden", "8", "--epochs", "1", "--rounds", "1", "--passes", "3", "--test", "test.csv")
    fitted = command(*fit, "--out", "run")
    assert fitted.code == 0, fitted.err
    assert "linear model of the labels" in fitted.out
    assert "on 20 samples" in fitted.out
    assert RunFolder.open("run").kept == "linear"
    predicted = printed(command("predict", "run", "test.csv").out)
    assert [row["prediction"] for row in predicted] == ["ham", "spam"] * 10
    assert command("export", "run", "--out", "model.pt2").code == 0
    program = torch.export.load("model.pt2").module()
    data = RunFolder.open("run").data()
    p = program(torch.from_numpy(data.test[0][np.arange(20)])).numpy()
    assert p.argmax(1).tolist() == [0, 1] * 10


def test_several_backbones_get_a_head_each(home: Path, command: Command) -> None:
    fitted = command(*FIT, "--backbone", "nets.py:endings", *QUICK[:-3], "--no-compare", "--out", "run")
    assert fitted.code == 0, fitted.err
    assert "Features: 16 by nets.py:words, 8 by nets.py:endings." in fitted.out
    settings = RunFolder.open("run").settings.network
    assert settings.training.learning_rate == 0.0005
    assert settings.training.labeled_batch_size == 32
    assert settings.model_parameters["one_scale"] is True
    learner = RunFolder.open("run").learner()
    assert [head.num_features for head in learner.network.networks] == [16, 8]
    assert command("label", "run", "messages.csv").code == 0


@pytest.mark.filterwarnings("always")
def test_columns_beside_the_text_are_left_out_only_when_it_is_asked_for(home: Path, command: Command) -> None:
    body = [[str(row), str(row * row % 7), ("a", "b")[row % 3 == 0], *line] for row, line in enumerate(lines())]
    write("messages.csv", ["row", "length of it", "sender", "message", "kind"], body)
    line = command.fails(1, *FIT, "--drop", "row", "--out", "run")
    where = "File 'messages.csv' has 'length of it', 'sender' beside the text 'message'"
    remedy = "leave out what is no text: --drop 'length of it' --drop sender."
    assert line == f"{where}, and a backbone takes the text alone; {remedy}"
    drop = ("--drop", "length of it", "--drop", "sender")
    fitted = command(*FIT, *drop, *QUICK, "--out", "run")
    assert fitted.code == 0
    assert "warning: 'row' of 'messages.csv' only counts the rows and is left out" in fitted.err
    assert "Left out: length of it, sender, row." in fitted.out.splitlines()


def test_the_text_is_chosen_where_there_are_several_or_none(home: Path, command: Command) -> None:
    write("messages.csv", ["subject", "message", "kind"], [[f"about item {line[0]}", *line] for line in lines()])
    line = command.fails(1, *FIT, "--out", "run")
    found = "File 'messages.csv' has 2 columns of texts, 'subject', 'message', and a backbone takes one"
    assert line == f"{found}; leave out the others with --drop."
    write("messages.csv", ["word", "size", "kind"], [[line[0].split()[0], "1.5", line[1]] for line in lines()])
    line = command.fails(1, *FIT, "--out", "run")
    found = "File 'messages.csv' has no column of texts for a backbone, but 'size' (number), 'word' (category)"
    assert line == f"{found}; name it with --use COLUMN=text, and leave out the others with --drop."
    for words in (("--use", "word=text"), ("--kind", "texts")):
        fitted = command(*FIT, "--drop", "size", *words, *QUICK, "--out", words[0].strip("-"))
        assert fitted.code == 0, fitted.err
        assert "Used as texts: word." in fitted.out.splitlines()


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["--backbone", "nets.py:flat"], 1, "The backbone nets.py:flat must return features of shape (32, F)"),
        (["--backbone", "nets.py:broken"], 1, "must return something that takes a list of texts; got int."),
        (["--backbone", "nets.py:pictures"], 1, "The backbone nets.py:pictures fails on texts (AttributeError: "),
        (["--backbone", "nets.py:gone"], 1, "has no 'gone'; it has"),
        (["--backbone", "transformers:nowhere"], 1, "nowhere' is not a folder; name one with config.json"),
        (
            ["--backbone", "timm:resnet18", "--pretrained", "a.pth"],
            2,
            "'timm:resnet18' takes pictures; for texts name transformers:FOLDER.",
        ),
        (["--backbone", "nonsense"], 2, "A backbone must be timm:NAME"),
        (
            ["--backbone", "nets.py:words", "--on-error", "skip"],
            2,
            "--on-error has no effect: 'messages.csv' is a file",
        ),
        (
            ["--backbone", "nets.py:words", "--estimator", "a:b"],
            2,
            "--backbone has no effect together with --estimator",
        ),
    ],
)
def test_what_cannot_be(home: Path, command: Command, words: list[str], code: int, problem: str) -> None:
    (home / "a.pth").touch()
    line = command.fails(code, "fit", "messages.csv", "--label", "kind", *words, "--out", "run")
    assert problem in line
    assert not (home / "run").exists()


def test_arrays_take_no_backbone(home: Path, command: Command) -> None:
    np.savez("a.npz", x=np.zeros((4, 2)), y=np.array([0, 1, -1, -1]))
    line = command.fails(2, "fit", "a.npz", "--backbone", "nets.py:words", "--out", "run")
    assert "Backbones take pictures or texts, and 'a.npz' has numbers; leave them out" in line


def test_a_run_refuses_another_function_and_files_without_its_text(home: Path, command: Command) -> None:
    assert command(*FIT, *QUICK, "--quiet", "--out", "run").code == 0
    write("new.csv", ["text"], [["win free money"]])
    assert "lacks 1 of the 1 feature columns that the model was trained on: 'message'" in command.fails(
        1, "predict", "run", "new.csv"
    )
    write("new.csv", ["message"], [["win free money"]])
    (home / "nets.py").write_text(NETS + "\n# changed\n")
    assert "nets.py' has changed since the run began" in command.fails(1, "predict", "run", "new.csv")


def test_a_strangers_run_that_names_a_file_of_code_is_refused(
    home: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(*FIT, *QUICK, "--quiet", "--out", "run").code == 0
    monkeypatch.setenv("SURELABEL_CONFIG", str(home / "someone-else"))
    (home / "nets.py").write_text("raise SystemExit('it was run')")
    for words in (("predict", "run", "messages.csv"), ("resume", "run", "--rounds", "3")):
        line = command.fails(1, *words)
        assert f"names the code '{home / 'nets.py'}:words', and the run is not signed by you" in line


@pytest.mark.filterwarnings("always")
def test_test_texts_that_are_labeled_ones_too_are_told(home: Path, command: Command) -> None:
    write("test.csv", ["message", "kind"], lines()[:3])
    fitted = command(*FIT, *QUICK, "--test", "test.csv", "--out", "run")
    assert fitted.code == 0
    assert "3 of the 3 labeled rows of 'test.csv' have the very features of labeled rows" in fitted.err
