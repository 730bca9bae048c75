"""ResNet-50 is torchvision's, and what both residual networks share: dropout, passes, weights, files of weights."""

import json
import logging
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

from surelabel.base.references import resolve
from surelabel.errors import InvalidInputError, RunError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.models.dropout import DropBlock2d, SpatialDropout2d, replace_dropout
from surelabel.models.pretrained import load_pretrained
from surelabel.models.resnet import ResNet, resnet50
from surelabel.models.resnet3d import ResNet3d, resnet3d18
from surelabel.models.stochastic import stochastic_layers
from surelabel.uncertainty import MCDropBlock, MCDropout, MCSpatialDropout

pytestmark = pytest.mark.usefixtures("seeded")

PICTURE, CLIP = (3, 64, 64), (3, 8, 32, 32)
SMALL = {
    "resnet": lambda classes=5, **more: ResNet(PICTURE, classes, blocks=(2, 1, 2, 1), width=8, **more),
    "resnet3d": lambda classes=5, **more: ResNet3d(CLIP, classes, width=8, **more),
}
SHAPES = {"resnet": PICTURE, "resnet3d": CLIP}
FORMATS = {"resnet": torch.channels_last, "resnet3d": torch.channels_last_3d}
KINDS = {"dropout": nn.Dropout, "spatial": SpatialDropout2d, "dropblock": DropBlock2d}

both = pytest.mark.parametrize("name", list(SMALL))


def randomize_norms(model: nn.Module) -> None:
    """Give BatchNorm statistics and weights that a wrong place or order would show."""
    for layer in model.modules():
        if isinstance(layer, (nn.BatchNorm2d, nn.BatchNorm3d)):
            for value in (layer.running_mean, layer.weight.data, layer.bias.data):
                value.normal_()
            layer.running_var.uniform_(0.5, 2)


def torchvision_models() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import torchvision.models
        except (ImportError, RuntimeError) as error:  # a RuntimeError: it was built for another torch
            pytest.skip(f"torchvision cannot be imported: {error}")
    return torchvision.models


def check_like_torchvision(theirs: nn.Module, make: Any, shape: tuple[int, ...], path: Path) -> None:
    """The same names in the same order, and for the same weights the same logits, gradients and statistics."""
    randomize_norms(theirs)
    torch.save(theirs.state_dict(), path)
    mine = make(shape, 7, dropout=0.0, pretrained=path)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    x = torch.randn(2, *shape)
    torch.testing.assert_close(mine.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-4)
    for model in (mine.train(), theirs.train()):
        functional.cross_entropy(model(x), torch.tensor([1, 4])).backward()
    for (name, own), other in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-3, atol=1e-4, msg=lambda text, n=name: f"{n}: {text}")
    for (name, own), other in zip(mine.named_buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4, msg=lambda text, n=name: f"{n}: {text}")


def test_resnet50_is_torchvisions(tmp_path: Path) -> None:
    models = torchvision_models()
    check_like_torchvision(models.resnet50(num_classes=7), resnet50, (3, 64, 64), tmp_path / "weights.pth")


def _names() -> list[str]:
    """Torchvision's names of ResNet-50's parameters and buffers, from the rule that they follow."""
    norm = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    names = ["conv1.weight", *(f"bn1.{part}" for part in norm)]
    for group, count in enumerate((3, 4, 6, 3), start=1):
        for block in range(count):
            here = f"layer{group}.{block}"
            for number in (1, 2, 3):
                names += [f"{here}.conv{number}.weight", *(f"{here}.bn{number}.{part}" for part in norm)]
            if block == 0:
                names += [f"{here}.downsample.0.weight", *(f"{here}.downsample.1.{part}" for part in norm)]
    return [*names, "fc.weight", "fc.bias"]


def test_resnet50_has_torchvisions_names_and_number_of_parameters() -> None:
    with torch.device("meta"):
        model = resnet50((3, 224, 224), 1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    assert list(model.state_dict()) == _names()
    assert len(_names()) == 320
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert shapes["layer3.5.conv2.weight"] == (256, 256, 3, 3)
    assert shapes["layer4.2.conv3.weight"] == (2048, 512, 1, 1)
    assert shapes["fc.weight"] == (1000, 2048)


def _reference(state: dict[str, torch.Tensor], x: torch.Tensor, blocks: tuple[int, ...]) -> torch.Tensor:
    """The evaluation pass, block by block from the formula."""

    def convolution(x: torch.Tensor, conv: str, norm: str, stride: int = 1) -> torch.Tensor:
        weight = state[f"{conv}.weight"]
        x = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, variance, scale, shift = (
            state[f"{norm}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * scale + shift

    x = convolution(x, "conv1", "bn1", 2).clamp(min=0)
    # What is behind a ReLU is at least 0, so that a border of 0 is never more than its neighbors.
    x = functional.pad(x, (1, 1, 1, 1)).unfold(2, 3, 2).unfold(3, 3, 2).amax(dim=(4, 5))
    for group, count in enumerate(blocks, start=1):
        for block in range(count):
            here, stride = f"layer{group}.{block}", 2 if group > 1 and block == 0 else 1
            inner = convolution(x, f"{here}.conv1", f"{here}.bn1").clamp(min=0)
            inner = convolution(inner, f"{here}.conv2", f"{here}.bn2", stride).clamp(min=0)
            inner = convolution(inner, f"{here}.conv3", f"{here}.bn3")
            if block == 0:
                x = convolution(x, f"{here}.downsample.0", f"{here}.downsample.1", stride)
            x = (x + inner).clamp(min=0)
    return x.mean(dim=(2, 3)) @ state["fc.weight"].T + state["fc.bias"]


@pytest.mark.parametrize("shape", [(3, 64, 64), (2, 45, 71)])
def test_the_evaluation_pass_is_that_of_an_independent_reference(shape: tuple[int, ...]) -> None:
    blocks = (2, 1, 2, 1)
    model = ResNet(shape, 5, blocks=blocks, width=8).double()
    randomize_norms(model)
    x = torch.randn(3, *shape, dtype=torch.float64)
    torch.testing.assert_close(model.eval()(x), _reference(dict(model.state_dict()), x, blocks))


@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 128, 128), (3, 224, 224), (1, 33, 100)])
def test_pictures_of_other_sizes_work(shape: tuple[int, ...]) -> None:
    assert ResNet(shape, 4, blocks=(1, 1, 1, 1), width=4)(torch.rand(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize("shape", [(3, 31, 64), (3, 64, 31), (64,), (3, 16, 64, 64)])
def test_pictures_that_are_too_small_or_no_pictures_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError, match="'sample_shape' argument must be .*at least 32 pixels"):
        resnet50(shape, 5)


@both
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dropout": 1.0}, "'dropout' argument must be a number in .* Got 1.0"),
        ({"dropout": None}, "'dropout' argument must be a number in .* Got None"),
    ],
)
def test_bad_settings_are_named(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SMALL[name](**settings)


def test_groups_without_a_block_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'blocks' argument must be a whole number of at least 1. Got 0"):
        ResNet(PICTURE, 5, blocks=(1, 0, 1, 1), width=8)


@both
@pytest.mark.parametrize("kind", list(KINDS))
def test_one_dropout_behind_the_average_pool_is_all_that_is_random(name: str, kind: str) -> None:
    model = SMALL[name]()
    replace_dropout(model, kind)
    assert {path: (type(layer), layer.p) for path, layer in stochastic_layers(model).items()} == {
        "dropout": (KINDS[kind], 0.3)
    }
    seen: list[tuple[str, int]] = []
    for path in ("avgpool", "dropout", "fc"):
        model.get_submodule(path).register_forward_hook(lambda _, x, y, path=path: seen.append((path, x[0].numel())))
    batch = torch.rand(4, *SHAPES[name])
    model(batch)
    assert [path for path, _ in seen] == ["avgpool", "dropout", "fc"]
    assert seen[1][1] == seen[2][1] == 4 * model.fc.in_features
    before = {path: value.clone() for path, value in model.state_dict().items()}
    estimate = MCDropout(passes=3).estimate(model, batch, check=True)
    assert (estimate.u > 0).all()
    assert all(torch.equal(before[path], value) for path, value in model.state_dict().items())


@both
@pytest.mark.parametrize("estimator", [MCDropout, MCSpatialDropout, MCDropBlock])
def test_everything_before_the_dropout_runs_once_for_all_passes(name: str, estimator: Any) -> None:
    model, batch = SMALL[name](), torch.rand(20, *SHAPES[name])
    estimator().prepare(model)
    passes = estimator(passes=10, compile=False)
    assert passes.plan(model, batch).way == "repeated"
    assert estimator(compile=True).plan(model, batch).way == "repeated"
    passes.estimate(model, batch)  # tries how the passes may run, and remembers it
    rows = {"first": 0, "last": 0}

    def count(key: str, x: tuple[torch.Tensor]) -> None:
        rows[key] += len(x[0])

    first = next(layer for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.Conv3d)))
    first.register_forward_pre_hook(lambda _, x: count("first", x))
    model.fc.register_forward_pre_hook(lambda _, x: count("last", x))
    assert (passes.estimate(model, batch).u > 0).all()
    assert rows == {"first": 20, "last": 200}


@both
def test_a_training_pass_is_one_graph_for_the_compiler(name: str) -> None:
    model = SMALL[name]()
    z = torch.compile(model, backend="eager", fullgraph=True, dynamic=False)(torch.rand(4, *SHAPES[name]))
    assert z.shape == (4, 5)
    z.sum().backward()


@both
def test_every_parameter_learns(name: str) -> None:
    model = SMALL[name]()
    functional.cross_entropy(model(torch.rand(8, *SHAPES[name])), torch.arange(8) % 5).backward()
    for path, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), path
        assert parameter.grad.any(), path


@both
def test_weights_start_as_torchvisions(name: str) -> None:
    model = SMALL[name]()
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Conv3d)):
            expected = (2 / (layer.weight.numel() / layer.in_channels)) ** 0.5
            # The standard error of a standard deviation over n values is 1 / sqrt(2 n) of it.
            assert layer.weight.std().item() == pytest.approx(expected, rel=5 / (2 * layer.weight.numel()) ** 0.5)
            assert layer.bias is None
        if isinstance(layer, (nn.BatchNorm2d, nn.BatchNorm3d)):
            assert (layer.weight == 1).all()
            assert (layer.bias == 0).all()
    if name == "resnet3d":
        assert model.fc.weight.std().item() == pytest.approx(0.01, rel=5 / (2 * model.fc.weight.numel()) ** 0.5)
        assert (model.fc.bias == 0).all()
    else:
        bound = model.fc.in_features**-0.5
        assert 0.9 * bound < model.fc.weight.abs().max().item() <= bound


@both
def test_networks_are_found_by_reference(name: str) -> None:
    factory = {"resnet": ("resnet50", resnet50), "resnet3d": ("resnet3d18", resnet3d18)}[name]
    assert resolve(f"surelabel.models.{name}:{factory[0]}") is factory[1]


def _save(model: nn.Module, path: Path) -> dict[str, torch.Tensor]:
    state = {name: value.clone() for name, value in model.state_dict().items()}
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    return state


@both
@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_a_network_begins_with_the_weights_of_a_file(name: str, suffix: str, tmp_path: Path) -> None:
    saved = SMALL[name]()
    randomize_norms(saved)
    state = _save(saved, tmp_path / f"weights{suffix}")
    model = SMALL[name]().to(memory_format=FORMATS[name])
    load_pretrained(model, tmp_path / f"weights{suffix}")
    assert all(torch.equal(value, state[path]) for path, value in model.state_dict().items())
    x = torch.rand(2, *SHAPES[name])
    torch.testing.assert_close(model.eval()(x), saved.eval()(x), rtol=1e-4, atol=1e-4)


@both
def test_factories_take_the_file(name: str, tmp_path: Path) -> None:
    make = {"resnet": resnet50, "resnet3d": resnet3d18}[name]
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file({"conv1.weight": torch.zeros(1)}, path)
    with pytest.raises(InvalidInputError, match="weights.safetensors' do not fit the network"), torch.device("meta"):
        make(SHAPES[name], 5, pretrained=path)


def test_the_last_layer_is_left_out_where_the_classes_differ(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "weights.safetensors"
    state = _save(SMALL["resnet"](classes=9), path)
    model = SMALL["resnet"]()
    fresh = {name: model.state_dict()[name].clone() for name in ("fc.weight", "fc.bias")}
    with caplog.at_level(logging.INFO, logger="surelabel"):
        load_pretrained(model, path)
    assert [record.getMessage() for record in caplog.records] == [
        f"'{path}' differs in number of classes (9 and 5): its last layer 'fc' is left out"
    ]
    for name, value in model.state_dict().items():
        assert torch.equal(value, fresh.get(name, state[name])), name


def test_files_without_counters_or_in_half_precision_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As torchvision's older files, and smaller ones, are."""
    state = SMALL["resnet"]().state_dict()
    state = {name: value.half() for name, value in state.items() if not name.endswith("num_batches_tracked")}
    torch.save(state, tmp_path / "old.pth")
    model = SMALL["resnet"]()
    with caplog.at_level(logging.INFO, logger="surelabel"):
        load_pretrained(model, tmp_path / "old.pth")
    assert not caplog.records
    for name, value in state.items():
        assert torch.equal(model.state_dict()[name], value.float()), name
    assert model.bn1.num_batches_tracked == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conv1.weight": None, "fc.bias": None}, r"missing: conv1.weight, fc.bias\. Use weights of the same"),
        (
            {"head.a": (1,), "head.b": (1,), "head.c": (1,), "head.d": (1,), "head.e": (1,)},
            "unexpected: head.a, head.b, head.c and 2 more",
        ),
        ({"conv1.weight": (8, 1, 7, 7)}, r"of another shape: conv1.weight \(8, 1, 7, 7\) for \(8, 3, 7, 7\)"),
        ({"fc.weight": (9, 64), "fc.bias": (9,)}, r"of another shape: fc.weight \(9, 64\) for \(5, 256\)"),
        ({"bn1.bias": None, "bias": (3,)}, "missing: bn1.bias; unexpected: bias"),
    ],
)
def test_names_and_shapes_that_do_not_fit_are_listed(
    changes: dict[str, tuple[int, ...] | None], message: str, tmp_path: Path
) -> None:
    state = dict(SMALL["resnet"]().state_dict())
    for name, shape in changes.items():
        state.pop(name, None)
        if shape is not None:
            state[name] = torch.zeros(shape)
    torch.save(state, tmp_path / "weights.pth")
    model = SMALL["resnet"]()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InvalidInputError, match=message):
        load_pretrained(model, tmp_path / "weights.pth")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items()), "nothing was loaded"


class _Code:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("executed"),))


def test_files_that_are_no_weights_are_named_and_no_code_of_theirs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("code.pth").write_bytes(pickle.dumps({"a": _Code()}))
    torch.save({"a": _Code()}, "zipped.pth")
    Path("damaged.pth").write_bytes(b"PK\x03\x04 and no more")
    Path("empty.pt").write_bytes(b"")
    Path("damaged.safetensors").write_bytes(b"\xff" * 20)
    for name in ("code.pth", "zipped.pth", "damaged.pth", "empty.pt", "damaged.safetensors"):
        with pytest.raises(InvalidInputError, match=f"'pretrained' file '{name}' cannot be read as weights"):
            load_pretrained(nn.Linear(1, 1), name)
    assert not Path("executed").exists()
    torch.save({"epoch": 3, "state_dict": {"weight": torch.zeros(1, 1)}}, "checkpoint.pth")
    with pytest.raises(InvalidInputError, match=r"Got epoch, state_dict; save state_dict\(\)"):
        load_pretrained(nn.Linear(1, 1), "checkpoint.pth")
    torch.save(torch.zeros(1), "tensor.pth")
    with pytest.raises(InvalidInputError, match="must hold tensors by name. Got Tensor"):
        load_pretrained(nn.Linear(1, 1), "tensor.pth")
    with pytest.raises(InvalidInputError, match="'nowhere.pth' cannot be read as weights .*No such file"):
        load_pretrained(nn.Linear(1, 1), "nowhere.pth")
    wrong: list[Any] = [True, "IMAGENET1K_V2", "weights.onnx"]
    for value in wrong:
        with pytest.raises(InvalidInputError, match=r"path of a weights file \(.safetensors, .pth, .pt\). Got "):
            load_pretrained(nn.Linear(1, 1), value)


FACTORY = """
import torch
from surelabel.models.pretrained import load_pretrained

def network(sample_shape, num_classes, *, pretrained=None):
    layers = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(sample_shape[0], num_classes))
    if pretrained not in (None, "imagenet"):
        load_pretrained(layers, pretrained, last="1")
    return layers
"""


def _settings(folder: Path, value: float, pretrained: str = "weights.safetensors") -> TorchLearnerSettings:
    (folder / "nets.py").write_text(FACTORY)
    weights = {"1.weight": torch.full((2, 3), value), "1.bias": torch.zeros(2)}
    safetensors.torch.save_file(weights, folder / "weights.safetensors")
    return TorchLearnerSettings(model="nets.py:network", model_parameters={"pretrained": pretrained}, device="cpu")


def test_a_run_depends_on_the_content_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = _settings(tmp_path, 1.0).pinned()
    path = tmp_path / "weights.safetensors"
    assert settings.model_parameters == {"pretrained": str(path)}
    assert settings.pinned() == settings
    assert TorchLearnerSettings.model_validate(json.loads(settings.model_dump_json())) == settings
    learner = pickle.loads(pickle.dumps(settings.build("single")))
    assert (learner.build((3,), 2)[1].weight == 1).all()
    content, other = path.read_bytes(), _settings(tmp_path, 2.0).pinned()
    assert other.fit_settings() != settings.fit_settings()
    for make in (lambda: settings.build("single"), lambda: learner.build((3,), 2)):
        with pytest.raises(RunError, match=r"weights.safetensors' has changed since the run began"):
            make()
    path.write_bytes(content)
    assert (settings.build("single").build((3,), 2)[1].weight == 1).all()
    path.unlink()
    for make in (_unpinned(settings).pinned, lambda: settings.build("single")):
        with pytest.raises(InvalidInputError, match=r"'pretrained' names the file .*weights.safetensors', .*No such"):
            make()


def _unpinned(settings: TorchLearnerSettings) -> TorchLearnerSettings:
    return settings.replace(pretrained_hash=None)


def test_a_factory_of_ones_own_may_mean_something_else_by_pretrained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = _settings(tmp_path, 1.0, pretrained="imagenet").pinned()
    assert settings.model_parameters == {"pretrained": "imagenet"}
    assert settings.pretrained_hash is None
    assert isinstance(settings.build("single").build((3,), 2), nn.Sequential)
