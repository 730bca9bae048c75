"""Runs whose every round begins with the weights of a file: on the command line, and from Python."""

import functools
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from cli_support import Command
from torch import nn

from surelabel import UPSClassifier
from surelabel.base.references import file_hash
from surelabel.data.training_set import make_problem
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import DataError, InvalidInputError
from surelabel.learners.network import TorchLearner
from surelabel.models.pretrained import load_pretrained, read_weights
from surelabel.models.resnet import ResNet
from surelabel.runs import RunFolder

NETS = """
from torch import nn
from surelabel.models.pretrained import load_pretrained

def make(sample_shape, num_classes, *, pretrained=None):
    layers = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, num_classes))
    if pretrained is not None:
        load_pretrained(layers, pretrained, last="4")
    return layers

def without(sample_shape, num_classes):
    return make(sample_shape, num_classes)
"""
STILL = (
    "--learning-rate",
    "1e-30",
    "--epochs",
    "1",
    "--passes",
    "3",
    "--rounds",
    "1",
    "--device",
    "cpu",
    "--no-compare",
)
"""Training changes nothing, so that the last network shows what its round began with."""


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NETS)
    x = np.random.default_rng(0).normal(size=(24, 3, 2, 2)).astype(np.float32)
    np.savez("photos.npz", x=x, y=np.array([0, 1, 0, 1] + [-1] * 20))


def _checkpoint(path: str, classes: int = 5, features: int = 12) -> dict[str, torch.Tensor]:
    network = nn.Sequential(nn.Flatten(), nn.Linear(features, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, classes))
    state = {name: torch.randn_like(value) for name, value in network.state_dict().items()}
    if path.endswith(".safetensors"):
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    return state


def _fit(weights: str, *more: object, model: str = "nets.py:make") -> tuple[object, ...]:
    return ("fit", "photos.npz", "--model", model, "--pretrained", weights, "--out", "runs/a", *STILL, *more)


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_every_round_begins_with_the_weights_of_the_file(command: Command, name: str) -> None:
    state = _checkpoint(name)
    result = command(*_fit(name))
    assert (result.code, result.err) == (0, "")
    run = RunFolder.open("runs/a")
    assert run.records()[-1].round == 1
    network = run.learner().network
    torch.testing.assert_close(network[1].weight, state["1.weight"], rtol=0, atol=1e-12)
    assert network[4].weight.shape == (2, 8), "the last layer has the classes of the data"
    learner = run.settings.learner
    assert learner.model_parameters == {"pretrained": str(Path(name).absolute())}
    assert learner.pretrained_hash == file_hash(name)


def test_a_run_goes_on_with_the_same_file_alone(command: Command) -> None:
    _checkpoint("weights.pth")
    content = Path("weights.pth").read_bytes()
    assert command(*_fit("weights.pth")).code == 0
    _checkpoint("weights.pth")
    line = command.fails(1, "resume", "runs/a", "--rounds", "2")
    assert "weights.pth' has changed since the run began" in line
    Path("weights.pth").write_bytes(content)
    assert command("resume", "runs/a", "--rounds", "2").code == 0
    assert RunFolder.open("runs/a").records()[-1].round == 2


def test_weights_that_are_no_plain_file_are_refused_unread(command: Command) -> None:
    _checkpoint("weights.pth")
    assert command(*_fit("weights.pth")).code == 0
    Path("weights.pth").unlink()
    os.mkfifo("weights.pth")
    assert "weights.pth', which cannot be read (it is not a plain file)" in command.fails(
        1, "resume", "runs/a", "--rounds", "2"
    )


def test_weights_that_unpack_to_far_more_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURELABEL_MAX_BYTES", str(1 << 24))
    path = tmp_path / "weights.pth"
    torch.save({"weight": torch.zeros(1)}, path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("weights/data/1", bytes(3 << 23))
    with pytest.raises(DataError, match=r"weights.pth' of [\d,]+ bytes would take [\d,]+ bytes of memory or more"):
        read_weights(path)


def test_a_trained_network_needs_the_file_no_more(command: Command) -> None:
    _checkpoint("weights.pth")
    assert command(*_fit("weights.pth")).code == 0
    Path("weights.pth").unlink()
    assert command("predict", "runs/a", "photos.npz", "--out", "predictions.csv").code == 0
    assert len(Path("predictions.csv").read_text().splitlines()) == 25


def test_a_file_that_does_not_fit_is_refused_before_anything_is_written(command: Command) -> None:
    _checkpoint("other.pth", features=27)
    line = command.fails(1, *_fit("other.pth"))
    assert "other.pth' do not fit the network: of another shape: 1.weight (8, 27) for (8, 12)" in line
    Path("damaged.pth").write_bytes(b"PK\x03\x04 and no more")
    assert "'damaged.pth' cannot be read as weights" in command.fails(1, *_fit("damaged.pth"))
    _checkpoint("weights.pth")
    line = command.fails(1, *_fit("weights.pth", model="nets.py:without"))
    assert "cannot be made with model_parameters={'pretrained': 'weights.pth'}" in line
    assert not Path("runs").exists()


def test_samples_that_are_no_floats_are_refused_before_anything_is_written(command: Command) -> None:
    _checkpoint("weights.pth")
    x = np.zeros((24, 3, 2, 2), dtype=np.uint8)
    np.savez("photos.npz", x=x, y=np.array([0, 1, 0, 1] + [-1] * 20))
    line = command.fails(1, *_fit("weights.pth"))
    assert "uint8" in line
    assert "float32, such as x / 255" in line
    line = command.fails(1, "fit", "photos.npz", "--model", "nets.py:without", "--out", "runs/a", *STILL)
    assert "uint8" in line
    # The weights' own fault is not laid on the samples.
    _checkpoint("other.pth", features=27)
    assert "do not fit the network" in command.fails(1, *_fit("other.pth"))
    assert not Path("runs").exists()
    np.savez("photos.npz", x=x.astype("float32") / 255, y=np.array([0, 1, 0, 1] + [-1] * 20))
    assert command(*_fit("weights.pth")).code == 0


def test_what_is_no_file_of_weights_is_wrong_use(command: Command) -> None:
    assert command.fails(2, *_fit("gone.pth")).startswith("Invalid value for '--pretrained': file 'gone.pth' does not")
    line = command.fails(2, *_fit("photos.npz"))
    assert line.startswith("Invalid value for '--pretrained': 'photos.npz' must end in one of .safetensors, .pth, .pt;")
    words = ("fit", "photos.npz", "--out", "runs/a", "--pretrained", "weights.pth")
    assert command.fails(2, *words).startswith("--pretrained needs --model")
    forest = ("--estimator", "sklearn.ensemble:RandomForestClassifier")
    assert command.fails(2, *words, *forest).startswith("--pretrained has no effect together with --estimator;")


def _small(sample_shape: tuple[int, ...], num_classes: int, pretrained: str | None = None) -> ResNet:
    network = ResNet(sample_shape, num_classes, blocks=(1, 1, 1, 1), width=2)
    if pretrained is not None:
        load_pretrained(network, pretrained)
    return network


def _resnet_checkpoint() -> dict[str, torch.Tensor]:
    state = {name: value.clone() for name, value in _small((3, 32, 32), 1000).state_dict().items()}
    torch.save(state, "resnet.pth")
    return state


def test_a_learner_begins_with_the_file_in_every_fit() -> None:
    state = _resnet_checkpoint()
    training = TrainingSettings(optimizer="adamw", learning_rate=1e-30, steps=1, batch_size=4)
    learner = TorchLearner(functools.partial(_small, pretrained="resnet.pth"), training=training, device="cpu")
    x = np.random.default_rng(0).normal(size=(8, 3, 32, 32)).astype(np.float32)
    labeled = make_problem((x, np.arange(8) % 2), None, "single").training_set(None)
    for seed in (0, 1):
        learner.fit(labeled, seed=seed)
        assert learner.network is not None
        found = learner.network.state_dict()
        torch.testing.assert_close(found["layer4.0.conv2.weight"], state["layer4.0.conv2.weight"], rtol=0, atol=1e-12)
        assert found["fc.weight"].shape == (2, 64)


def test_the_estimator_takes_a_factory_that_reads_the_file() -> None:
    state = _resnet_checkpoint()
    x = np.random.default_rng(0).normal(size=(8, 3, 32, 32)).astype(np.float32)
    y = np.array([0, 1, 0, 1, -1, -1, -1, -1])
    make = functools.partial(_small, pretrained="resnet.pth")
    still = {"learning_rate": 1e-30, "min_steps": 1, "epochs": 1, "max_rounds": 1, "passes": 2}
    classifier = UPSClassifier(model=make, device="cpu", random_state=0, **still).fit(x, y)
    found = classifier.learner_.network.state_dict()
    torch.testing.assert_close(found["conv1.weight"], state["conv1.weight"], rtol=0, atol=1e-12)
    Path("resnet.pth").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"'resnet.pth' cannot be read as weights"):
        classifier.fit(x, y)
