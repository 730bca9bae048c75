"""Dropout of values, channels or blocks: what is dropped, how often, for each row apart; each in the others' place."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.models.cnn13 import cnn13
from surelabel.models.dropout import DropBlock2d, Dropout, SpatialDropout2d, dropout_layer, replace_dropout
from surelabel.models.image import small_image_network
from surelabel.models.stochastic import draws_for_each_row, stochastic_layers, stochastic_mode
from surelabel.uncertainty import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")


def _reference_gamma(keep: float, rows: int, columns: int, height: int, width: int) -> float:
    return (1 - keep) / (rows * columns) * (height * width) / ((height - rows + 1) * (width - columns + 1))


def _reference_drop_block(x: torch.Tensor, keep: float, block: int) -> torch.Tensor:
    """Blocks set to 0 one by one, each row divided by its own share."""
    height, width = x.shape[2:]
    rows, columns = min(block, height), min(block, width)
    gamma = _reference_gamma(keep, rows, columns, height, width)
    draws = torch.rand(x.shape[0], x.shape[1], height - rows + 1, width - columns + 1)
    mask = torch.ones_like(x)
    for row, channel, i, j in torch.nonzero(draws < gamma).tolist():
        mask[row, channel, i : i + rows, j : j + columns] = 0
    shares = [max(1.0, float(one.sum())) / one.numel() for one in mask]
    return torch.stack([one * kept / share for one, kept, share in zip(x, mask, shares, strict=True)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_drops_a_share_p_and_lets_the_rest_grow(p: float, dtype: torch.dtype) -> None:
    x = torch.full((200, 300), 3.0, dtype=dtype, requires_grad=True)
    layer = Dropout(p)
    y = layer(x)
    assert y.dtype == dtype
    # Six standard deviations of the share of 60,000 draws.
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=6 * (p * (1 - p) / x.numel()) ** 0.5)
    expected = torch.where(y == 0, 0, nn.Dropout(p).eval()(x) / max(1 - p, 1e-9))
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach() / 3)
    assert torch.equal(layer.eval()(x), x)


def test_gamma_of_a_map_worked_by_hand():
    # 0.1 / 4 · 16 / 9: of nine corners on a 4 x 4 map each begins a 2 x 2 block with this probability.
    assert _reference_gamma(0.9, 2, 2, 4, 4) == pytest.approx(0.4 / 9)
    ones = torch.ones(1, 40_000, 4, 4)
    dropped = (DropBlock2d(0.9, block_size=2)(ones) == 0).float().mean(dim=(0, 1))
    # A corner of the map lies in one block only, a value in the middle in four.
    for place, blocks in (((0, 0), 1), ((0, 1), 2), ((1, 1), 4)):
        expected = 1 - (1 - 0.4 / 9) ** blocks
        assert dropped[place].item() == pytest.approx(expected, abs=5 * (expected / 40_000) ** 0.5)


@pytest.mark.parametrize(("side", "block"), [(16, 7), (8, 7), (8, 3), (6, 1), (4, 7)])
def test_about_one_minus_keep_probability_is_dropped(side, block):
    channels = 4000
    dropped = (DropBlock2d(0.9, block_size=block)(torch.ones(1, channels, side, side)) == 0).float().mean().item()
    assert 0.08 < dropped < 0.1 + 5 * (0.09 / channels) ** 0.5, "overlaps make it less than 0.1, never more"


@given(
    shape=st.tuples(*[st.integers(1, hi) for hi in (4, 3, 9, 9)]),
    block=st.integers(1, 10),
    keep=st.floats(0.05, 1),
    seed=st.integers(0, 99),
)
def test_blocks_are_those_of_an_independent_reference(shape, block, keep, seed):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    layer = DropBlock2d(keep, block_size=block)
    torch.manual_seed(seed)
    found = layer(x)
    torch.manual_seed(seed)
    expected = _reference_drop_block(x, keep, block) if layer.p > 0 else x
    torch.testing.assert_close(found, expected)


@given(block=st.integers(1, 6), keep=st.floats(0.2, 0.95), seed=st.integers(0, 99))
def test_a_row_keeps_its_size_whatever_the_other_rows_lost(block, keep, seed):
    torch.manual_seed(seed)
    found = DropBlock2d(keep, block_size=block)(torch.ones(5, 3, 6, 7))
    for row in found:
        if row.any():
            assert row.mean().item() == pytest.approx(1, rel=1e-5)
            assert len(row[row > 0].unique()) == 1


def test_a_block_as_large_as_the_map_drops_whole_channels():
    found = DropBlock2d(0.7, block_size=7)(torch.ones(50, 40, 4, 3)).flatten(2)
    assert (found == found[..., :1]).all()
    assert (found == 0).float().mean().item() == pytest.approx(0.3, abs=5 * (0.21 / 2000) ** 0.5)


def test_a_row_that_loses_everything_is_zero_and_so_is_its_gradient():
    x = torch.randn(64, 1, 2, 2, requires_grad=True)
    found = DropBlock2d(0.05, block_size=2)(x)
    assert (found == 0).flatten(1).all(dim=1).any(), "with one channel, most rows lose everything"
    assert torch.isfinite(found).all()
    found.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert (x.grad[found == 0] == 0).all()


@pytest.mark.parametrize("layer", [DropBlock2d(0.5).eval(), DropBlock2d(1.0)], ids=["evaluation", "nothing to drop"])
def test_dropblock_is_the_identity_without_anything_to_drop(layer):
    x = torch.randn(2, 3, 8, 8)
    assert layer(x) is x


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_dropblock_keeps_the_precision_and_rounds_once(dtype):
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64).to(dtype)
    layer = DropBlock2d(0.8, block_size=3)
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
    assert found.dtype == dtype
    if dtype != torch.float64:
        torch.manual_seed(1)
        assert torch.equal(found, layer(x.float()).to(dtype))


def test_draws_do_not_depend_on_the_memory_format():
    x = torch.randn(4, 3, 8, 8)
    layer = DropBlock2d(0.8, block_size=3)
    results = []
    for value in (x, x.contiguous(memory_format=torch.channels_last)):
        torch.manual_seed(2)
        results.append(layer(value))
    assert torch.equal(*results)
    assert results[1].is_contiguous(memory_format=torch.channels_last)


def test_an_empty_batch_stays_empty():
    assert DropBlock2d(0.5)(torch.ones(0, 3, 8, 8)).shape == (0, 3, 8, 8)


@pytest.mark.parametrize("kind", ["dropout", "spatial", "dropblock"])
def test_passes_can_be_vmapped_and_compiled_with_draws_of_their_own(kind):
    layer = dropout_layer(kind, 0.5, block_size=3)
    x = torch.ones(4, 6, 8, 8)
    passes = torch.func.vmap(lambda _: layer(x), randomness="different")(torch.zeros(3))
    assert passes.shape == (3, 4, 6, 8, 8)
    assert not torch.equal(passes[0], passes[1])
    assert not torch.equal(passes[0, 0], passes[0, 1]), "rows differ within a pass"
    compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=False)
    assert (compiled(x) == 0).any()


@pytest.mark.parametrize("kind", ["dropout", "spatial", "dropblock"])
def test_each_kind_is_known_as_random_where_it_drops_something(kind):
    model = nn.Sequential(dropout_layer(kind, 0.3), dropout_layer(kind, 0.0))
    assert list(stochastic_layers(model)) == ["0"]
    assert draws_for_each_row(model[0])
    with stochastic_mode(model.eval()):
        assert [layer.training for layer in model] == [True, False]


def test_kinds_make_the_layers_that_they_name():
    assert type(dropout_layer("dropout", 0.3)) is nn.Dropout
    assert isinstance(dropout_layer("spatial", 0.3), nn.Dropout2d)
    block = dropout_layer("dropblock", 0.1, block_size=5)
    assert (block.keep_probability, block.block_size, block.p) == (0.9, 5, 0.1)


def test_spatial_dropout_drops_whole_channels():
    found = SpatialDropout2d(0.3)(torch.ones(50, 40, 3, 3)).flatten(2)
    assert (found == found[..., :1]).all()
    assert (found == 0).float().mean().item() == pytest.approx(0.3, abs=5 * (0.21 / 2000) ** 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: dropout_layer("drop", 0.3),
            "'kind' argument must be one of 'dropout', 'spatial', 'dropblock'",
        ),
        (lambda: dropout_layer("dropout", 1.0), r"'dropout' argument must be a number in \[0, 1\). Got 1.0"),
        (lambda: dropout_layer("dropblock", 0.1, block_size=0), "'block_size' argument must be a whole number"),
        (lambda: DropBlock2d(0.0), r"'keep_probability' argument must be a number in \(0, 1\]. Got 0.0"),
        (
            lambda: DropBlock2d(0.9, block_size=2.5),
            "'block_size' argument must be a whole number of at least 1. Got 2.5",
        ),
    ],
)
def test_bad_settings_are_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize("kind", ["spatial", "dropblock"])
@pytest.mark.parametrize("shape", [(4, 10), (4, 10, 10)])
@pytest.mark.parametrize("training", [True, False])
def test_what_is_no_map_is_refused_by_name(kind, shape, training):
    layer = dropout_layer(kind, 0.3).train(training)
    message = rf"{type(layer).__name__} takes maps .* Got shape \({', '.join(map(str, shape))}\)"
    with pytest.raises(InvalidInputError, match=message):
        layer(torch.ones(shape))


def test_every_dropout_of_a_network_is_replaced_in_place():
    model = cnn13((3, 16, 16), 4, width=4)
    weights = copy.deepcopy(model.state_dict())
    assert replace_dropout(model, "dropblock", rate=0.1, block_size=3) == 2
    layers = list(stochastic_layers(model).values())
    assert [(type(layer), layer.p, layer.block_size) for layer in layers] == [(DropBlock2d, 0.1, 3)] * 2
    assert list(model.state_dict()) == list(weights)
    assert replace_dropout(model, "spatial") == 2
    layers = list(stochastic_layers(model).values())
    assert [(type(layer), layer.p) for layer in layers] == [(SpatialDropout2d, 0.1)] * 2, "the rate before it"
    assert replace_dropout(model, "dropout", rate=0.3) == 2
    assert [type(layer) for layer in stochastic_layers(model).values()] == [nn.Dropout] * 2


class TwoPlaces(nn.Module):
    """One dropout layer under two names, the second within a dictionary, behind a layer in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2).eval()
        self.parts = nn.ModuleDict({"again": self.drop, "other": nn.Dropout2d(0.4)})


def test_a_layer_in_two_places_stays_one_layer_in_its_mode():
    model = TwoPlaces()
    assert replace_dropout(model, "dropblock") == 2
    assert model.drop is model.parts["again"]
    assert (model.drop.p, model.drop.training) == (0.2, False)
    assert (model.parts["other"].p, model.parts["other"].training) == (0.4, True)


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.Dropout(0.5)], ids=["none", "the model itself"])
def test_a_network_without_dropout_within_it_is_refused(model):
    with pytest.raises(InvalidInputError, match=f"'model' argument must have nn.Dropout.* Got {type(model).__name__} "):
        replace_dropout(model, "spatial", rate=0.3)


def test_maps_that_are_flattened_before_dropout_are_refused_when_the_network_runs():
    model = small_image_network((1, 8, 8), 4)
    assert replace_dropout(model, "spatial", rate=0.3) == 2
    with pytest.raises(InvalidInputError, match=r"SpatialDropout2d takes maps .* shape \(5, 128\)"):
        MCDropout(passes=2).estimate(model, torch.rand(5, 1, 8, 8), check=True)


@pytest.mark.parametrize("kind", ["spatial", "dropblock"])
@pytest.mark.parametrize("shared", [False, True], ids=["plain passes", "shared passes"])
def test_mc_passes_over_replaced_layers_differ(kind, shared):
    model = cnn13((3, 16, 16), 4, width=4).eval()
    replace_dropout(model, kind, rate=0.3, block_size=3)
    estimator = MCDropout(passes=10, shared=shared)
    batch = torch.rand(6, 3, 16, 16)
    assert estimator.plan(model, batch).way == ("repeated" if shared else "one by one")
    assert (estimator.estimate(model, batch, check=True).u > 0).all()
    replace_dropout(model, kind, rate=0.0)
    with pytest.raises(NotStochasticError):
        estimator.estimate(model, batch, check=True)


def test_shared_passes_spread_like_plain_ones():
    model = cnn13((3, 16, 16), 4, width=8).eval()
    replace_dropout(model, "dropblock", rate=0.2, block_size=3)
    batch = torch.rand(4, 3, 16, 16)
    plain, shared = (MCDropout(passes=200, shared=shared).estimate(model, batch) for shared in (False, True))
    # The standard error of a mean over 200 passes is u / sqrt(200), of a spread about u / sqrt(400).
    assert ((plain.p - shared.p).abs() < 6 * plain.u * (2 / 200) ** 0.5).all()
    torch.testing.assert_close(plain.u, shared.u, rtol=0.6, atol=0)
