"""Wide ResNet and Shake-Shake are the cited networks, with dropout in its published places and random nowhere else."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from surelabel.base.references import resolve
from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.models.cnn13 import cnn13
from surelabel.models.dropout import DropBlock2d, SpatialDropout2d, replace_dropout
from surelabel.models.shake_shake import shake, shake_shake
from surelabel.models.stochastic import evaluation_mode, stochastic_layers, stochastic_mode
from surelabel.models.wide_resnet import wide_resnet
from surelabel.uncertainty import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")

SMALL = {
    "wide_resnet": lambda shape=(3, 16, 16), classes=5, **more: wide_resnet(shape, classes, depth=10, width=1, **more),
    "shake_shake": lambda shape=(3, 16, 16), classes=5, **more: shake_shake(shape, classes, width=4, **more),
}
# Of dropout: one in each of three blocks, one in each of two branches of twelve blocks.
DROPOUTS = {"wide_resnet": 3, "shake_shake": 24}
KINDS = {"dropout": nn.Dropout, "spatial": SpatialDropout2d, "dropblock": DropBlock2d}


def replaced(model: nn.Module, kind: str, rate: float = 0.3) -> nn.Module:
    replace_dropout(model, kind, rate, block_size=3)
    return model


both = pytest.mark.parametrize("name", list(SMALL))


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _wide_resnet_parameters(depth: int, width: int, classes: int) -> int:
    total, channels = 3 * 16 * 9, 16
    for wider in (16 * width, 32 * width, 64 * width):
        for _ in range((depth - 4) // 6):
            total += 2 * channels + 9 * channels * wider + 2 * wider + 9 * wider * wider
            total += channels * wider if channels != wider else 0
            channels = wider
    return total + 2 * channels + channels * classes + classes


def _shake_shake_parameters(width: int, classes: int) -> int:
    total, channels = 3 * 16 * 9 + 2 * 16, 16
    for wider in (width, 2 * width, 4 * width):
        for _ in range(4):
            total += 2 * (9 * channels * wider + 2 * wider + 9 * wider * wider + 2 * wider)
            total += channels * wider + 2 * wider if channels != wider else 0
            channels = wider
    return total + channels * classes + classes


def test_wrn_28_2_has_the_known_number_of_parameters():
    assert _count(wide_resnet((3, 32, 32), 10)) == _wide_resnet_parameters(28, 2, 10) == 1_467_610
    assert _count(wide_resnet((3, 32, 32), 7, depth=16, width=1)) == _wide_resnet_parameters(16, 1, 7)


def test_shake_shake_26_2x96d_has_the_published_26_2_million_parameters():
    assert _count(shake_shake((3, 32, 32), 10)) == _shake_shake_parameters(96, 10) == 26_192_922
    assert _count(shake_shake((3, 32, 32), 7, width=16)) == _shake_shake_parameters(16, 7)


def _normalized(state: dict[str, torch.Tensor], name: str, x: torch.Tensor) -> torch.Tensor:
    mean, variance, weight, bias = (
        state[f"{name}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def _reference_wide_resnet(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The evaluation pass of depth 10, block by block from the formula."""
    x = functional.conv2d(x, state["layers.0.weight"], padding=1)
    for block, stride in ((1, 1), (2, 2), (3, 2)):
        name = f"layers.{block}"
        active = _normalized(state, f"{name}.norm1", x).clamp(min=0)
        inner = functional.conv2d(active, state[f"{name}.conv1.weight"], stride=stride, padding=1)
        inner = _normalized(state, f"{name}.norm2", inner).clamp(min=0)
        around = f"{name}.shortcut.weight"
        x = functional.conv2d(active, state[around], stride=stride) if around in state else x
        x = x + functional.conv2d(inner, state[f"{name}.conv2.weight"], padding=1)
    x = _normalized(state, "layers.4", x).clamp(min=0).mean(dim=(2, 3))
    return x @ state["layers.8.weight"].T + state["layers.8.bias"]


def _reference_shake_shake(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The evaluation pass: the mean of both branches."""
    x = _normalized(state, "layers.1", functional.conv2d(x, state["layers.0.weight"], padding=1))
    for block in range(12):
        name, stride = f"layers.{2 + block}", 2 if block in (4, 8) else 1
        branches = []
        for branch in (f"{name}.first", f"{name}.second"):
            inner = functional.conv2d(x.clamp(min=0), state[f"{branch}.1.weight"], stride=stride, padding=1)
            inner = _normalized(state, f"{branch}.2", inner).clamp(min=0)
            branches.append(
                _normalized(state, f"{branch}.6", functional.conv2d(inner, state[f"{branch}.5.weight"], padding=1))
            )
        if block % 4 == 0:
            active = x.clamp(min=0)
            shifted = torch.zeros_like(active)
            shifted[..., 1:, 1:] = active[..., :-1, :-1]
            halves = [
                torch.einsum("oc,nchw->nohw", state[f"{name}.shortcut.{part}.weight"][..., 0, 0], seen)[
                    ..., ::stride, ::stride
                ]
                for part, seen in (("here", active), ("beside", shifted))
            ]
            x = _normalized(state, f"{name}.shortcut.norm", torch.cat(halves, dim=1))
        x = x + sum(branches) / 2
    return x.clamp(min=0).mean(dim=(2, 3)) @ state["layers.17.weight"].T + state["layers.17.bias"]


@both
@pytest.mark.parametrize("side", [16, 13])
def test_the_evaluation_pass_is_that_of_an_independent_reference(name, side):
    model = SMALL[name]((3, side, side)).double()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for value in (layer.running_mean, layer.weight.data, layer.bias.data):
                value.normal_()
            layer.running_var.uniform_(0.5, 2)
    x = torch.rand(4, 3, side, side, dtype=torch.float64)
    reference = {"wide_resnet": _reference_wide_resnet, "shake_shake": _reference_shake_shake}[name]
    torch.testing.assert_close(model.eval()(x), reference(dict(model.state_dict()), x))


@both
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 64), (4, 5, 17)])
def test_other_pictures_and_numbers_of_classes_work(name, shape):
    for classes in (2, 7):
        assert SMALL[name](shape, classes)(torch.rand(3, *shape)).shape == (3, classes)


@both
@pytest.mark.parametrize("shape", [(3, 4, 32), (3, 32, 4), (64,), (1, 3, 32, 32)])
def test_pictures_that_are_too_small_or_no_pictures_are_named(name, shape):
    with pytest.raises(InvalidInputError, match="'sample_shape' argument must be .*at least 5 pixels"):
        SMALL[name](shape)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wide_resnet((3, 32, 32), 10, depth=26), r"'depth' argument must be 6 n \+ 4.* Got 26 "),
        (lambda: wide_resnet((3, 32, 32), 10, depth=4), "'depth' argument must be .* at least 10. Got 4 "),
        (lambda: wide_resnet((3, 32, 32), 10, depth=28.0), "'depth' argument must be a whole number .* Got 28.0 "),
        (lambda: wide_resnet((3, 32, 32), 10, depth="28"), "'depth' argument must be a whole number .* Got '28' "),
        (lambda: wide_resnet((3, 32, 32), 10, norm_bias="a"), "'norm_bias' argument must be a number in .* Got 'a'"),
        (lambda: wide_resnet((3, 32, 32), 10, norm_bias=math.nan), "'norm_bias' argument must be a number .* Got nan"),
        (lambda: wide_resnet((3, 32, 32), 10, activation=["relu"]), "'activation' argument must be one of .* Got ..re"),
        (lambda: wide_resnet((3, 32, 32), 0), "'num_classes' argument must be a whole number of at least 1. Got 0"),
        (lambda: shake_shake((3, 32, 32), 0), "'num_classes' argument must be a whole number of at least 1. Got 0"),
        (lambda: cnn13((3, 32, 32), -1), "'num_classes' argument must be a whole number of at least 1. Got -1"),
        (lambda: wide_resnet((3, 32, 32), 10, width=0), "'width' argument must be a whole number of at least 1. Got 0"),
        (lambda: cnn13((3, 32, 32), 10, width=0), "'width' argument must be a whole number of at least 1. Got 0"),
        (
            lambda: wide_resnet((3, 32, 32), 10, activation="gelu"),
            "'activation' argument must be one of 'relu', 'mish'",
        ),
        (
            lambda: wide_resnet((3, 32, 32), 10, norm_momentum=0),
            "'norm_momentum' argument must be a number in .* Got 0",
        ),
        (lambda: shake_shake((3, 32, 32), 10, width=5), "'width' argument must be even.* Got 5 "),
        (lambda: shake_shake((3, 32, 32), 10, dropout=1.5), "'dropout' argument must be a number in .* Got 1.5"),
    ],
)
def test_bad_settings_are_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def _order(block: nn.Module, x: torch.Tensor) -> list[str]:
    """Return the kinds of a block's layers in the order in which they run."""
    seen: list[str] = []
    leaves = [layer for layer in block.modules() if not list(layer.children())]
    handles = [layer.register_forward_pre_hook(lambda layer, _: seen.append(type(layer).__name__)) for layer in leaves]
    block(x)
    for handle in handles:
        handle.remove()
    return seen


def test_wide_resnet_drops_between_the_first_convolution_and_the_second_norm():
    model = SMALL["wide_resnet"]()
    inner = ["Conv2d", "Dropout", "BatchNorm2d", "ReLU", "Conv2d"]
    assert _order(model.layers[1], torch.rand(2, 16, 8, 8)) == ["BatchNorm2d", "ReLU", *inner], "as many channels"
    assert _order(model.layers[2], torch.rand(2, 16, 8, 8)) == ["BatchNorm2d", "ReLU", "Conv2d", *inner]


def test_shake_shake_drops_after_the_activation_between_the_convolutions_of_each_branch():
    model = SMALL["shake_shake"]()
    branch = ["ReLU", "Conv2d", "BatchNorm2d", "ReLU", "Dropout", "Conv2d", "BatchNorm2d"]
    assert _order(model.layers[3], torch.rand(2, 4, 8, 8)) == ["Identity", *branch, *branch]
    assert _order(model.layers[2], torch.rand(2, 16, 8, 8)) == ["Conv2d", "Conv2d", "BatchNorm2d", *branch, *branch]


@both
@pytest.mark.parametrize("kind", list(KINDS))
def test_only_dropout_of_the_kind_asked_for_is_random_in_mc_passes(name, kind):
    model = replaced(SMALL[name](), kind, rate=0.2)
    layers = stochastic_layers(model)
    assert [type(layer) for layer in layers.values()] == [KINDS[kind]] * DROPOUTS[name]
    assert {layer.p for layer in layers.values()} == {0.2}
    with stochastic_mode(model):
        assert [path for path, layer in model.named_modules() if layer.training] == list(layers)
    before = {path: value.clone() for path, value in model.state_dict().items()}
    estimate = MCDropout(passes=3).estimate(model, torch.rand(4, 3, 16, 16), check=True)
    assert (estimate.u > 0).all()
    assert all(torch.equal(before[path], value) for path, value in model.state_dict().items())


@both
def test_without_dropout_passes_do_not_differ_as_the_shake_is_at_its_evaluation_value(name):
    model = SMALL[name](dropout=0.0)
    batch = torch.rand(4, 3, 16, 16)
    for shared in (False, True):
        with pytest.raises(NotStochasticError):
            MCDropout(passes=3, shared=shared).estimate(model, batch, check=True)
    with stochastic_mode(model):
        stochastic = model(batch)
    with evaluation_mode(model):
        assert torch.equal(model(batch), stochastic)


@both
@pytest.mark.parametrize("kind", list(KINDS))
def test_passes_share_what_comes_before_the_first_dropout(name, kind):
    model = replaced(SMALL[name](), kind)
    batch = torch.rand(4, 3, 16, 16)
    assert MCDropout(compile=False).plan(model, batch).way == "vectorized"
    assert MCDropout(compile=True).plan(model, batch).way == "vectorized"


@both
def test_a_training_pass_is_one_graph_for_the_compiler(name):
    model = replaced(SMALL[name](), "dropblock")
    found = torch.compile(model, backend="eager", fullgraph=True, dynamic=False)(torch.rand(4, 3, 16, 16))
    assert found.shape == (4, 5)
    found.sum().backward()


@both
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_parameter_learns(name, kind):
    model = replaced(SMALL[name](), kind)
    functional.cross_entropy(model(torch.rand(8, 3, 16, 16)), torch.arange(8) % 5).backward()
    for path, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), path
        assert parameter.grad.any(), path


@both
def test_weights_start_as_he_proposes_and_signals_neither_vanish_nor_explode(name):
    model = SMALL[name]()
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert all(layer.bias is None for layer in convolutions)
    for layer in convolutions:
        expected = (2 / layer.weight[0].numel()) ** 0.5
        # The standard error of a standard deviation over n values is 1 / sqrt(2 n) of it.
        assert layer.weight.std().item() == pytest.approx(expected, rel=5 / (2 * layer.weight.numel()) ** 0.5)
    variance = model(torch.randn(16, 3, 16, 16)).var().item()
    assert 0.01 < variance < 100


def test_the_published_wide_resnet_is_a_matter_of_settings():
    model = SMALL["wide_resnet"](activation="mish", norm_momentum=0.001, norm_bias=0.1)
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert {layer.momentum for layer in norms} == {0.001}
    assert all((layer.bias == 0.1).all() for layer in norms)
    assert len([layer for layer in model.modules() if isinstance(layer, nn.Mish)]) == 4
    assert not [layer for layer in model.modules() if isinstance(layer, nn.ReLU)]


def test_shake_draws_one_share_a_picture_forward_and_another_backward():
    first, second = (torch.randn(200, 2, 3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mixed = shake(first, second, training=True)
    mixed.sum().backward()
    alpha = ((mixed - second) / (first - second)).detach().flatten(1)
    beta = first.grad.flatten(1)
    for share in (alpha, beta):
        torch.testing.assert_close(share, share[:, :1].expand_as(share), rtol=1e-6, atol=1e-6)
        assert share.min() >= 0
        assert share.max() <= 1
        # Uniform: mean 1/2 and variance 1/12, over 200 pictures.
        assert share[:, 0].mean().item() == pytest.approx(0.5, abs=5 * (1 / 12 / 200) ** 0.5)
        assert share[:, 0].var().item() == pytest.approx(1 / 12, rel=0.4)
    torch.testing.assert_close(second.grad.flatten(1), 1 - beta)
    assert abs(torch.corrcoef(torch.stack([alpha[:, 0], beta[:, 0]]))[0, 1]) < 5 / 200**0.5


def test_shake_is_the_mean_in_evaluation_with_its_gradient():
    first, second = torch.tensor([[[[1.0]]]], requires_grad=True), torch.tensor([[[[4.0]]]], requires_grad=True)
    mixed = shake(first, second, training=False)
    assert mixed.item() == 2.5
    mixed.sum().backward()
    assert first.grad.item() == second.grad.item() == 0.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_shake_keeps_the_precision_of_its_branches(dtype):
    first, second = torch.ones(4, 2, 3, 3, dtype=dtype), torch.zeros(4, 2, 3, 3, dtype=dtype)
    assert {shake(first, second, training).dtype for training in (True, False)} == {dtype}


def test_the_small_network_takes_parameters_by_reference():
    settings = TorchLearnerSettings(
        model="surelabel.models.image:small_image_network", model_parameters={"width": 3}, device="cpu"
    )
    assert settings.build("single").build((1, 8, 8), 4).layers[0].out_channels == 3


@both
def test_networks_are_found_by_reference(name):
    factory = {"wide_resnet": wide_resnet, "shake_shake": shake_shake}[name]
    assert resolve(f"surelabel.models.{name}:{name}") is factory
