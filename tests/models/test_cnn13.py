"""CNN-13 is the network of the paper's tables, and one that shared passes and compilers can use."""

import pytest
import torch
from torch import nn

from benchmarks.operations import multiply_adds
from surelabel.base.references import resolve
from surelabel.errors import InvalidInputError
from surelabel.models.cnn13 import CNN13, cnn13
from surelabel.models.dropout import DropBlock2d, SpatialDropout2d, replace_dropout
from surelabel.models.stochastic import stochastic_layers, stochastic_mode
from surelabel.uncertainty import MCDropout

SHAPE = (3, 32, 32)


@pytest.fixture(scope="module")
def full() -> CNN13:
    return cnn13(SHAPE, 10)


def test_the_default_has_the_published_number_of_parameters(full):
    # Convolutions 3,116,416; BatchNorm 2 (3 · 128 + 3 · 256 + 512 + 256 + 128) = 4,096; linear 1,290.
    assert sum(parameter.numel() for parameter in full.parameters()) == 3_121_802


def test_the_default_needs_the_published_number_of_multiply_adds(full):
    found = multiply_adds(full, torch.zeros(1, *SHAPE))
    assert found.total == 731_383_040
    # The first block at 32 x 32 comes before the first dropout: once for all MC passes.
    assert found.once == 32 * 32 * 9 * (3 * 128 + 2 * 128 * 128)


def test_the_layers_stand_in_the_published_order(full):
    assert [(layer.in_channels, layer.out_channels, layer.kernel_size[0], layer.padding[0])
            for layer in full.layers if isinstance(layer, nn.Conv2d)] == [
        (3, 128, 3, 1), (128, 128, 3, 1), (128, 128, 3, 1),
        (128, 256, 3, 1), (256, 256, 3, 1), (256, 256, 3, 1),
        (256, 512, 3, 0), (512, 256, 1, 0), (256, 128, 1, 0),
    ]  # fmt: skip
    kinds = [type(layer).__name__ for layer in full.layers]
    block = ["Conv2d", "BatchNorm2d", "LeakyReLU"] * 3
    assert kinds == [*block, "MaxPool2d", "Dropout", *block, "MaxPool2d", "Dropout", *block,
                     "AdaptiveAvgPool2d", "Flatten", "Linear"]  # fmt: skip
    assert {layer.negative_slope for layer in full.layers if isinstance(layer, nn.LeakyReLU)} == {0.1}
    assert {layer.p for layer in full.layers if isinstance(layer, nn.Dropout)} == {0.3}


@pytest.mark.parametrize(("shape", "num_classes"), [((3, 32, 32), 10), ((1, 28, 28), 2), ((4, 12, 17), 7)])
def test_other_pictures_and_numbers_of_classes_work(shape, num_classes):
    model = cnn13(shape, num_classes, width=4)
    assert model(torch.rand(3, *shape)).shape == (3, num_classes)


@pytest.mark.parametrize("shape", [(3, 11, 32), (3, 32, 11), (64,), (1, 3, 32, 32)])
def test_pictures_that_are_too_small_or_no_pictures_are_named(shape):
    with pytest.raises(InvalidInputError, match="'sample_shape' argument must be .*at least 12 pixels"):
        cnn13(shape, 10, width=4)


@pytest.mark.usefixtures("seeded")
def test_weights_start_as_he_proposes_and_normalization_as_the_identity():
    model = cnn13(SHAPE, 10)
    convolutions = [layer for layer in model.layers if isinstance(layer, nn.Conv2d)]
    for layer in convolutions[1:]:
        fan_in = layer.in_channels * layer.kernel_size[0] ** 2
        expected = (2 / (1.01 * fan_in)) ** 0.5
        # The standard error of a standard deviation over n values is 1 / sqrt(2 n) of it.
        assert layer.weight.std().item() == pytest.approx(expected, rel=5 / (2 * layer.weight.numel()) ** 0.5)
        assert abs(layer.weight.mean().item()) < 5 * expected / layer.weight.numel() ** 0.5
    assert all(layer.bias is None for layer in convolutions)
    assert not model.layers[-1].bias.any()
    variance = model.eval()(torch.randn(8, *SHAPE)).var().item()
    assert 0.01 < variance < 10, "signals neither vanish nor explode"


def test_only_dropout_is_random_in_stochastic_passes():
    model = cnn13(SHAPE, 10, width=4)
    layers = stochastic_layers(model)
    assert [type(layer) for layer in layers.values()] == [nn.Dropout, nn.Dropout]
    with stochastic_mode(model):
        assert [name for name, layer in model.named_modules() if layer.training] == list(layers)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    estimate = MCDropout(passes=3).estimate(model, torch.rand(4, *SHAPE), check=True)
    assert (estimate.u > 0).any()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("kind", "layer_type"), [("spatial", SpatialDropout2d), ("dropblock", DropBlock2d)])
def test_other_dropout_stands_in_the_same_places_and_changes_no_weights(kind, layer_type):
    torch.manual_seed(0)
    plain = cnn13(SHAPE, 10, width=4)
    torch.manual_seed(0)
    model = cnn13(SHAPE, 10, width=4)
    replace_dropout(model, kind, rate=0.2, block_size=3)
    names = [name for name, layer in plain.named_modules() if isinstance(layer, nn.Dropout)]
    layers = stochastic_layers(model)
    assert list(layers) == names
    assert {(type(layer), layer.p) for layer in layers.values()} == {(layer_type, 0.2)}
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in plain.state_dict().items())
    batch = torch.rand(4, *SHAPE)
    assert MCDropout().plan(model, batch).way == "repeated"
    assert (MCDropout(passes=3).estimate(model, batch, check=True).u > 0).any()


def test_passes_can_be_vmapped_and_compiled_without_a_graph_break():
    model = cnn13((3, 12, 12), 5, width=4).eval()
    x = torch.rand(6, 3, 12, 12)

    def passes(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda _: model(x), randomness="different")(torch.zeros(3))

    with torch.no_grad():
        same = torch.compile(passes, backend="eager", fullgraph=True)(x)
        assert torch.allclose(same, model(x).expand(3, -1, -1), atol=1e-6)
        with stochastic_mode(model):
            logits = passes(x)
    assert logits.shape == (3, 6, 5)
    assert not torch.equal(logits[0], logits[1])


def test_weight_norm_changes_the_parameters_and_not_the_function():
    torch.manual_seed(0)
    plain = cnn13(SHAPE, 10, width=4).eval()
    torch.manual_seed(0)
    normed = cnn13(SHAPE, 10, width=4, weight_norm=True).eval()
    x = torch.rand(2, *SHAPE)
    assert torch.allclose(plain(x), normed(x), rtol=1e-4, atol=1e-5)
    names = [name for name, _ in normed.named_parameters() if name.endswith("original0")]
    assert len(names) == 10, "nine convolutions and the linear layer"


def test_it_is_found_by_reference():
    assert resolve("surelabel.models.cnn13:cnn13") is cnn13
