"""Frozen backbones: features are computed once, kept by content, and a small network learns from them."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from backbone_support import computed, write_nets, write_pictures
from cli_support import Command
from safetensors.torch import save_file

from surelabel.errors import ChangedFileError, DataError, InvalidInputError
from surelabel.kinds.backbones import BackboneSettings, PictureInput
from surelabel.kinds.features import FeatureCache, compute_features, picture_features, text_features
from surelabel.kinds.folder import FolderData
from surelabel.runs import RunFolder

QUICK = ("--rounds", "1", "--hidden", "8", "--epochs", "1", "--passes", "3", "--no-compare")


@pytest.fixture
def home(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with pictures and networks, and a cache of its own."""
    monkeypatch.setenv("SURELABEL_DATA", str(own_folder / "cache"))
    write_pictures(own_folder / "photos")
    write_nets(own_folder)
    return own_folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def folder(**changes: object) -> FolderData:
    backbones = [{"reference": "nets.py:colors"}]
    return FolderData(**{"of": "pictures", "path": "photos", "backbones": backbones, **changes})


def test_a_folder_is_fitted_on_features_and_new_pictures_are_predicted_and_labeled(
    home: Path, command: Command
) -> None:
    fitted = command("fit", "photos", "--backbone", "nets.py:colors", *QUICK, "--out", "run")
    assert fitted.code == 0, fitted.err
    assert "Features: 3 by nets.py:colors." in fitted.out
    write_pictures(home / "new", labeled=0, pool=6, seed=1)
    assert command("predict", "run", "new", "--out", "predictions.csv").code == 0
    found = {row["id"]: row["prediction"] for row in rows(home / "predictions.csv")}
    assert found == {f"unlabeled/{number:03}.png": ("red", "blue")[number % 2] for number in range(6)}
    assert command("label", "run", "new", "--out", "labels.csv").code == 0
    assert [row["label"] for row in rows(home / "labels.csv")] == list(found.values())
    assert command("report", "run", "--out", "report.html").code == 0


def test_features_are_computed_once_for_each_content(home: Path, command: Command) -> None:
    fit = ("fit", "photos", "--backbone", "nets.py:colors", *QUICK, "--quiet")
    assert command(*fit, "--out", "first").code == 0
    assert computed(home) == 28
    assert command(*fit, "--out", "second").code == 0
    shutil.copy(home / "photos/red/000.png", home / "photos/red/again.png")
    shutil.move(home / "photos/unlabeled/010.png", home / "photos/red/moved.png")
    assert command(*fit, "--out", "third").code == 0
    assert command("predict", "first", "photos/unlabeled", "--out", "p.csv").code == 0
    assert computed(home) == 28
    assert json.loads((home / "first/run.json").read_text()) != json.loads((home / "third/run.json").read_text())


def test_a_resumed_run_ends_as_one_that_was_not_interrupted(home: Path, command: Command) -> None:
    fit = ("fit", "photos", "--backbone", "nets.py:colors", "--hidden", "8", "--epochs", "1", "--quiet")
    assert command(*fit, "--rounds", "2", "--out", "whole").code == 0
    assert command(*fit, "--rounds", "1", "--out", "parts").code == 0
    assert command("resume", "parts", "--rounds", "2", "--quiet").code == 0
    whole, parts = RunFolder.open("whole"), RunFolder.open("parts")
    assert whole.model_bytes() == parts.model_bytes()


def test_work_that_ends_early_loses_a_batch_at_most(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surelabel.kinds.features._BATCH", 8)
    calls = []

    def stop(what: str, done: int, total: int) -> None:
        calls.append((what, done, total))
        if done == 16:
            raise KeyboardInterrupt

    from surelabel.data.decoding import watched

    with pytest.raises(KeyboardInterrupt), watched(stop):
        folder().load()
    assert calls[-1] == ("features by nets.py:colors", 16, 28)
    # A power failure: a row and half a line more than what was finished.
    cache = next((home / "cache/features").iterdir())
    with (cache / "features.f32").open("ab") as stream:
        stream.write(b"\1" * 12)
    with (cache / "contents.txt").open("ab") as stream:
        stream.write(b"0123")
    data = folder().load()
    assert computed(home) == 28
    shutil.rmtree(home / "cache")
    again = folder().load()
    for one, other in ((data.labeled[0], again.labeled[0]), (data.unlabeled, again.unlabeled)):
        places = np.arange(len(one))
        np.testing.assert_allclose(one[places], other[places], rtol=1e-6)


def test_features_are_those_of_the_network(home: Path) -> None:
    from PIL import Image

    data = folder().load()
    source = data.labeled[0]
    pixels = [np.asarray(Image.open(f"photos/{name}").resize((8, 8), Image.Resampling.BILINEAR)) for name in source.ids]
    expected = (np.stack(pixels).astype(np.float64).mean((1, 2)) / 255 - 0.5) / 0.5
    np.testing.assert_allclose(source[np.arange(len(source))], expected, atol=1e-5)
    assert data.learned["backbones"][0].width == 3
    assert data.learned["backbones"][0].shown == PictureInput(side=8, mean=(0.5,) * 3, std=(0.5,) * 3)


def test_several_backbones_get_a_head_each_and_their_spread_is_the_uncertainty(home: Path, command: Command) -> None:
    both = ("--backbone", "nets.py:colors", "--backbone", "nets.py:others")
    fitted = command("fit", "photos", *both, "--rounds", "1", "--epochs", "1", "--no-compare", "--out", "run")
    assert fitted.code == 0, fitted.err
    assert "Features: 3 by nets.py:colors, 5 by nets.py:others." in fitted.out
    run = RunFolder.open("run")
    learner = run.learner()
    assert [head.num_features for head in learner.network.networks] == [3, 5]
    data = run.data()
    (chunk,) = learner.predict(data.unlabeled, seed=0)
    x = torch.from_numpy(data.unlabeled[np.arange(len(data.unlabeled))])
    each = np.stack([torch.softmax(head(x), 1).detach().numpy() for head in learner.network.networks])
    np.testing.assert_allclose(chunk.u, each.std(0, ddof=1), atol=1e-6)
    assert command("predict", "run", "photos/unlabeled", "--out", "p.csv").code == 0
    assert {row["prediction"] for row in rows(home / "p.csv")} == {"red", "blue"}


def test_weights_come_from_a_file_whose_content_is_pinned(home: Path, command: Command) -> None:
    weights = {"layer.weight": torch.eye(3), "layer.bias": torch.zeros(3)}
    save_file(weights, "net.safetensors")
    fit = ("fit", "photos", "--backbone", "nets.py:weighted", "--pretrained", "net.safetensors", *QUICK, "--quiet")
    assert command(*fit, "--out", "run").code == 0
    assert computed(home) == 28
    save_file({**weights, "layer.bias": torch.ones(3)}, "net.safetensors")
    assert "net.safetensors' has changed since the run began" in command.fails(1, "predict", "run", "photos/unlabeled")
    assert command(*fit, "--out", "other").code == 0
    assert computed(home) == 56


def test_a_changed_file_of_code_is_refused_for_new_pictures(home: Path, command: Command) -> None:
    assert command("fit", "photos", "--backbone", "nets.py:colors", *QUICK, "--quiet", "--out", "run").code == 0
    (home / "nets.py").write_text((home / "nets.py").read_text() + "\n# changed\n")
    write_pictures(home / "new", labeled=0, pool=2, seed=1)
    assert "nets.py' has changed since the run began" in command.fails(1, "predict", "run", "new")


COMMANDS = (
    ("predict", "run", "photos/unlabeled"),
    ("label", "run", "photos/unlabeled"),
    ("resume", "run", "--rounds", "2"),
    ("export", "run", "--out", "model.pt2"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("changed", ["nets.py", "net.safetensors"])
def test_a_changed_backbone_is_refused_with_all_features_in_the_cache(
    home: Path, command: Command, changed: str, words: tuple[str, ...]
) -> None:
    save_file({"layer.weight": torch.eye(3), "layer.bias": torch.zeros(3)}, "net.safetensors")
    fit = ("fit", "photos", "--backbone", "nets.py:weighted", "--pretrained", "net.safetensors", *QUICK, "--quiet")
    assert command(*fit, "--out", "run").code == 0
    if changed == "nets.py":
        (home / "nets.py").write_text((home / "nets.py").read_text() + "\n# changed\n")
    else:
        save_file({"layer.weight": torch.eye(3), "layer.bias": torch.ones(3)}, "net.safetensors")
    for trust in ((), ("--trust-code",)):
        assert f"File '{home / changed}' has changed since the run began" in command.fails(1, *words, *trust)
    assert computed(home) == 28
    assert not (home / "model.pt2").exists()


def test_a_strangers_run_that_names_a_file_of_code_is_refused(
    home: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("fit", "photos", "--backbone", "nets.py:colors", *QUICK, "--quiet", "--out", "run").code == 0
    monkeypatch.setenv("SURELABEL_CONFIG", str(home / "someone-else"))
    (home / "nets.py").write_text("raise SystemExit('it was run')")
    for words in (("predict", "run", "photos/unlabeled"), ("resume", "run", "--rounds", "3")):
        line = command.fails(1, *words)
        assert f"names the code '{home / 'nets.py'}:colors', and the run is not signed by you" in line


def test_what_a_strangers_run_may_name() -> None:
    listed = [
        BackboneSettings(reference="timm:resnet18", pretrained="a.pth"),
        BackboneSettings(reference="torchvision:resnet18", pretrained="a.pth"),
        BackboneSettings(reference="transformers:/models/vit"),
        BackboneSettings(reference="nets.py:colors"),
    ]
    assert [one.is_listed for backbone in listed for one in backbone.references()] == [True, True, False, False]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"reference": "resnet18"}, "A backbone must be timm:NAME, torchvision:NAME, transformers:FOLDER or file.py:f"),
        ({"reference": "os:system"}, "A backbone must be timm:NAME"),
        (
            {"reference": "timm:hf-hub:someone/net", "pretrained": "a.pth"},
            "NAME a plain name such as resnet18; got",
        ),
        ({"reference": "timm:resnet18"}, "needs a file of weights .--pretrained.; nothing is fetched"),
        ({"reference": "transformers:here", "pretrained": "a.pth"}, "has its weights in its folder; leave 'a.pth' out"),
        ({"reference": "timm:resnet18", "pretrained": "a.pkl"}, r"must end in .safetensors, .pth, .pt; got 'a.pkl'"),
    ],
)
def test_backbones_that_cannot_be(values: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        BackboneSettings(**values)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--backbone", "nonsense"], "A backbone must be timm:NAME"),
        (["--backbone", "nets.py:colors", "--model", "n.py:f", "--pretrained", "a.pth"], "could be for --model or for"),
        (["--pretrained", "a.pth"], "--pretrained needs --model"),
        (["--backbone", "nets.py:colors", "--estimator", "a:b"], "--backbone has no effect together with --estimator"),
        (["--backbone", "nets.py:a", "--pretrained", "none", "--pretrained", "none"], "2 files for 1 backbones; give"),
    ],
)
def test_options_that_do_not_go_together(home: Path, command: Command, words: list[str], problem: str) -> None:
    (home / "a.pth").touch()
    assert problem in command.fails(2, "fit", "photos", *words, "--out", "run")
    assert not (home / "run").exists()


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("broken", "The backbone nets.py:broken must return a torch.nn.Module; got str."),
        ("flat", r"The backbone nets.py:flat must return features of shape \(28, F\).*got shape \(28,\)."),
        ("nothing", "has no 'nothing'; it has"),
        ("weighted", "The backbone nets.py:weighted cannot be made: missing a required argument: 'pretrained'"),
    ],
)
def test_functions_that_return_no_backbone(home: Path, function: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        folder(backbones=[{"reference": f"nets.py:{function}"}]).load()


def test_pictures_that_cannot_be_read_stop_the_work_or_are_left_out(home: Path) -> None:
    (home / "photos/red/cut.png").write_bytes((home / "photos/red/000.png").read_bytes()[:50])
    with pytest.raises(DataError, match=r"Picture '.*cut.png' is .*; get it again. Or leave such pictures out"):
        folder().load()
    with pytest.warns(UserWarning, match=r"1 of 29 pictures cannot be read and are left out: 'red/cut.png'. Picture"):
        data = folder(on_error="skip").load()
    assert data.learned["skipped"] == ("red/cut.png",)
    assert len(data.labeled[0]) == 8
    # A run that has noted it does not try again.
    assert len(folder(skipped=("red/cut.png",)).load().labeled[0]) == 8


def test_a_picture_that_changes_after_it_was_hashed_is_refused(home: Path) -> None:
    path = home / "photos/red/000.png"
    with pytest.raises(DataError, match=r"000.png' has changed while it was read; try again when nothing writes"):
        picture_features([BackboneSettings(reference="nets.py:colors")], [path], np.array(["a"]), ["0" * 64], "stop")


def test_a_damaged_cache_is_named(home: Path) -> None:
    folder().load()
    cache = next((home / "cache/features").iterdir())
    features = (cache / "features.f32").read_bytes()
    (cache / "features.f32").write_bytes(features[:100])
    write_pictures(home / "photos", labeled=5, pool=21, seed=3)
    with pytest.raises(DataError, match=r"features.f32' is damaged \(it has 100 bytes, not 336\); remove its folder"):
        folder().load()
    (cache / "features.f32").write_bytes(features)
    (cache / "about.json").write_text("{}")
    with pytest.raises(DataError, match=r"about.json' is damaged .*; remove its folder, and the features are computed"):
        folder().load()


def test_texts_have_features_too(home: Path) -> None:
    backbone = BackboneSettings(reference="nets.py:letters")
    computed = text_features([backbone, backbone], ["banana", "", "banana"], np.arange(3))
    assert computed.samples.sample_shape == (4,)
    np.testing.assert_array_equal(computed.samples[np.arange(3)][:, :2], [[3, 6], [0, 0], [3, 6]])
    assert [one.width for one in computed.backbones] == [2, 2]


def test_a_backbone_with_another_width_than_the_run_learned_is_refused(home: Path) -> None:
    backbone = BackboneSettings(reference="nets.py:letters", width=7)
    with pytest.raises(DataError, match="nets.py:letters has 2 features, and the run learned from 7; use the network"):
        text_features([backbone], ["a"], np.arange(1))


def test_settings_that_are_part_of_the_key_have_features_of_their_own(home: Path) -> None:
    pinned = BackboneSettings(reference="nets.py:colors", shown=PictureInput()).pinned()
    other = [
        pinned.replace(shown=PictureInput(side=64)),
        pinned.replace(sha256="0" * 64),
        pinned.replace(pretrained="a.pth", pretrained_hash="1" * 64),
        pinned.replace(reference=str(home / "nets.py:others")),
    ]
    keys = {one.key("pictures") for one in (pinned, *other)} | {pinned.key("texts")}
    assert len(keys) == 6
    assert pinned.replace(device="cpu", width=3).key("pictures") == pinned.key("pictures")
    assert FeatureCache.open(pinned, "pictures").path == home / "cache/features" / pinned.key("pictures")


def test_other_content_than_was_pinned_is_refused(home: Path) -> None:
    backbone = BackboneSettings(reference="nets.py:colors", sha256="0" * 64)
    with pytest.raises(ChangedFileError, match="nets.py' has changed since the run began"):
        compute_features([backbone], "pictures", np.array(["a"]), ["1" * 64], lambda place, shown: None)
    save_file({"a": torch.zeros(1)}, "net.safetensors")
    weights = BackboneSettings(reference="nets.py:colors", pretrained="net.safetensors", pretrained_hash="0" * 64)
    with pytest.raises(ChangedFileError, match="net.safetensors' has changed since the run began"):
        weights.pinned()
    with pytest.raises(DataError, match="'.*gone.pth', the weights of nets.py:colors, is not a plain file; check the"):
        BackboneSettings(reference="nets.py:colors", pretrained="gone.pth").pinned()
