"""Passes that share what is deterministic: the same statistics as plain passes, by whichever way a network allows.

A long file, because every promise is tried on all of the networks below.
"""

import gc
import logging
import random
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch._C._functorch import get_unwrapped, is_batchedtensor
from torch.nn import functional

from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.models.stochastic import stochastic_layers, stochastic_mode
from surelabel.uncertainty import MCDropout, compiled, plan

CLASSES = 3


pytestmark = pytest.mark.usefixtures("seeded")


class NamedDropout(nn.Module):
    """Functional dropout in a layer of the user's own."""

    def forward(self, x):
        return functional.dropout(x, 0.5, self.training)


class BatchDropout(nn.Module):
    """One mask for the whole batch: a row alone does not say what was drawn."""

    def forward(self, x):
        keep = (torch.rand(x.shape[1], device=x.device) < 0.5).to(x.dtype)
        return 2 * keep * x if self.training else x


class Residual(nn.Module):
    """Convolutions with dropout inside the blocks, around which the skip connections go."""

    def __init__(self, dropout=nn.Dropout):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList([self.block(dropout) for _ in range(2)])
        self.head = nn.Linear(8, CLASSES)

    def block(self, dropout):
        inside = dropout(0.5) if issubclass(dropout, nn.Dropout) else dropout()
        return nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), inside, nn.Conv2d(8, 8, 3, padding=1))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean(dim=(2, 3)))


class Concatenated(nn.Module):
    """Two branches, one of them with dropout, and the input itself, side by side."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 5), nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5))
        self.head = nn.Linear(15, CLASSES)

    def forward(self, x):
        return self.head(torch.cat([self.one(x), self.other(x), x], dim=1))


class Recurrent(nn.Module):
    def __init__(self, layer=nn.LSTM, head_dropout=0.0):
        super().__init__()
        self.layer = layer(8, 8, 2, dropout=0.5, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(head_dropout), nn.Linear(8, CLASSES))

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.layer(x).mean(dim=1))


class Centered(nn.Module):
    """Rows that depend on one another: what follows the dropout is centered over the batch."""

    def __init__(self):
        super().__init__()
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(4, CLASSES)

    def forward(self, x):
        x = self.dropout(x)
        return self.head(x - x.mean(dim=0))


class DroppedWeights(nn.Linear):
    """Dropout on weights, by torch's own layer: one mask for all rows."""

    def __init__(self, rows):
        super().__init__(4, rows)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return functional.linear(x, self.dropout(self.weight), self.bias)


class DataDependent(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout, self.head = NamedDropout(), nn.Linear(4, CLASSES)

    def forward(self, x):
        z = self.head(self.dropout(x))
        return z if z.sum() > 0 else 2 * z


def perceptron(dropout=0.5):
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, CLASSES))


def deep(dropout=nn.Dropout):
    return nn.Sequential(
        *[nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), dropout(0.3)],
        *[nn.Linear(16, 16), nn.ReLU(), dropout(0.5), nn.Linear(16, CLASSES)],
    )


def convolutional(dropout=nn.Dropout):
    model = nn.Sequential(
        *[nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LeakyReLU(0.1), nn.MaxPool2d(2), dropout(0.5)],
        *[nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.LeakyReLU(0.1), dropout(0.5)],
        *[nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES)],
    )
    model(2 + torch.randn(16, 3, 10, 10))  # Statistics that are not 0 and 1.
    return model


def named(layer):
    return nn.Sequential(nn.Linear(4, 8), layer(), nn.Linear(8, CLASSES))


IMAGES, ROWS, SEQUENCES = (6, 3, 8, 8), (6, 4), (6, 5, 8)
NAMED = (NamedDropout, BatchDropout)
NETWORKS = {
    "perceptron": (perceptron, ROWS, "repeated"),
    "in place": (lambda: nn.Sequential(nn.Dropout(0.5, inplace=True), nn.Linear(4, CLASSES)), ROWS, "repeated"),
    "convolutions with BatchNorm": (convolutional, IMAGES, "repeated"),
    "Dropout2d": (lambda: convolutional(nn.Dropout2d), IMAGES, "repeated"),
    "AlphaDropout": (lambda: convolutional(nn.AlphaDropout), IMAGES, "repeated"),
    "residual": (Residual, IMAGES, "vectorized"),
    "concatenated": (Concatenated, ROWS, "vectorized"),
    "functional dropout": (lambda: named(NamedDropout), ROWS, "vectorized"),
    "one mask a batch": (lambda: named(BatchDropout), ROWS, "vectorized"),
    "residual, a layer of the user's own": (lambda: Residual(NamedDropout), IMAGES, "vectorized"),
    "dropped weights": (lambda: DroppedWeights(CLASSES), ROWS, "vectorized"),
    "dropped weights, as many as rows": (lambda: DroppedWeights(6), ROWS, "vectorized"),
    "dropped weights after dropout": (lambda: nn.Sequential(nn.Dropout(0.5), DroppedWeights(12)), ROWS, "vectorized"),
    "rows that depend on one another": (Centered, ROWS, "one by one"),
    "rows that depend on one another before the dropout": (
        lambda: nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Dropout(0.5), nn.Linear(4, CLASSES)),
        ROWS,
        "one by one",
    ),
    "TransformerEncoderLayer": (Encoder, SEQUENCES, "one by one"),
    "LSTM": (Recurrent, SEQUENCES, "one by one"),
    "LSTM and dropout": (lambda: Recurrent(head_dropout=0.5), SEQUENCES, "one by one"),
    "GRU": (lambda: Recurrent(nn.GRU), SEQUENCES, "one by one"),
    "data-dependent": (DataDependent, ROWS, "one by one"),
}
SHARED = [name for name, (_, _, way) in NETWORKS.items() if way != "one by one"]
FALLBACKS = [name for name in NETWORKS if name not in SHARED]


def network_and_batch(name):
    make, shape, _ = NETWORKS[name]
    return make(), torch.randn(shape)


def estimator(**options):
    return MCDropout(stochastic_layers=NAMED, **options)


def modes(model):
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [True, False])
def test_each_network_takes_the_way_that_it_allows(name, training):
    model, batch = network_and_batch(name)
    before = modes(model.train(training))
    statistics = {key: value.clone() for key, value in model.state_dict().items()}
    kept = batch.clone()
    estimate = estimator().estimate(model, batch, check=True)
    assert estimator().plan(model, batch).way == NETWORKS[name][2]
    assert (estimate.u > 0).any(dim=1).all()
    assert modes(model) == before
    assert torch.equal(batch, kept)
    assert all(torch.equal(value, statistics[key]) for key, value in model.state_dict().items())


def plain_logits(model, batch, passes):
    """Plain passes, all kept, in float64: the reference that shares nothing with the estimator but the modes."""
    with torch.no_grad(), stochastic_mode(model, NAMED):
        return torch.stack([model(batch.clone()).double() for _ in range(passes)])


def assert_same_statistics(mean, spread, kept):
    """Compare with kept passes, each within 5 standard errors of a difference: those are not met by chance.

    A mean has the standard error s / sqrt(n), a standard deviation s sqrt((kurtosis - 1) / 4n).
    """
    deviations, s = kept - kept.mean(dim=0), kept.std(dim=0)
    kurtosis = deviations.pow(4).mean(dim=0) / deviations.square().mean(dim=0).square()
    limit = 5 * (2 / len(kept)) ** 0.5 * s
    assert ((mean - kept.mean(dim=0)).abs() <= limit).all()
    assert ((spread - s).abs() <= limit * ((kurtosis - 1) / 4).sqrt()).all()


@pytest.mark.parametrize("name", SHARED)
def test_over_many_passes_p_and_u_are_those_of_plain_passes(name):
    model, batch = network_and_batch(name)
    shared = estimator(passes=600).estimate(model, batch)
    assert estimator().plan(model, batch).way == NETWORKS[name][2]
    z = plain_logits(model, batch, 600)
    assert_same_statistics(shared.p, shared.u, z.softmax(dim=2))
    assert_same_statistics(shared.p_soft, shared.u_soft, (z / 2.0).softmax(dim=2))


@pytest.mark.parametrize("way", ["repeated", "vectorized"])
def test_masks_differ_between_passes_and_between_samples(way):
    model, batch = nn.Dropout(0.5), torch.ones(5, 64)
    with stochastic_mode(model), plan.repeating([model] if way == "repeated" else [], 5, 7):
        z = plan.shared_logits(model, batch, 7, way)
    assert z.shape == (7, 5, 64)
    assert len({tuple(mask) for mask in z.flatten(0, 1).tolist()}) == 35


class Masks:
    """Stands in for functional.dropout: keeps the masks of shared passes, then gives them to plain ones."""

    def __init__(self):
        self.kept, self.replayed = [], None

    def __call__(self, x, p=0.5, training=True, inplace=False):
        if not training:
            return x
        if self.replayed is not None:
            return x * self.replayed.pop(0) / (1 - p)
        mask = torch.bernoulli(torch.full_like(x, 1 - p, dtype=torch.float32)).to(x.dtype)
        self.kept.append(get_unwrapped(mask) if is_batchedtensor(mask) else mask)
        return x * mask / (1 - p)

    def replay(self, layers, rows, passes):
        """Sort masks by pass: kept they are by block of rows, then layer."""
        kept, by_layer = iter(self.kept), [[] for _ in range(layers)]
        for number in rows:
            for masks in by_layer:
                mask = next(kept)
                shape = mask.shape[1 if len(mask) == passes * number else 2 :]
                masks.append(mask.reshape(passes, number, *shape))
        assert next(kept, None) is None
        joined = [torch.cat(masks, dim=1) for masks in by_layer]
        self.replayed = [layer[number] for number in range(passes) for layer in joined]


class Subclass(nn.Dropout):
    """Torch's dropout under another name, which only vmap may serve."""


@pytest.mark.parametrize("small_batch", [0, 100_000], ids=["blocks of rows", "all rows"])
@pytest.mark.parametrize(
    ("make", "shape", "way"),
    [
        (deep, (12, 4), "repeated"),
        (lambda: deep(Subclass), (12, 4), "vectorized"),
        (convolutional, (12, 3, 10, 10), "repeated"),
        (lambda: convolutional(Subclass), (12, 3, 10, 10), "vectorized"),
        (Residual, (12, 3, 10, 10), "vectorized"),
    ],
)
def test_with_the_same_masks_shared_passes_agree_with_plain_ones(monkeypatch, make, shape, way, small_batch):
    model, batch, masks = make(), torch.randn(shape), Masks()
    compare(monkeypatch, model, batch, masks, way, small_batch, tolerance=1e-5)


@pytest.mark.parametrize(("dropout", "way"), [(nn.Dropout, "repeated"), (Subclass, "vectorized")])
def test_under_bfloat16_the_same_masks_agree_within_the_stated_tolerance(monkeypatch, dropout, way):
    # Linear layers: bfloat16 convolutions end the process on some processors (oneDNN's AMX kernels).
    model, batch, masks = deep(dropout), torch.randn(12, 4), Masks()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compare(monkeypatch, model, batch, masks, way, 0, tolerance=0.02)


def compare(monkeypatch, model, batch, masks, way, small_batch, tolerance):
    monkeypatch.setattr(plan, "SMALL_BATCH", small_batch)
    monkeypatch.setattr(functional, "dropout", masks)
    shared = MCDropout(passes=4, stochastic_layers=(Subclass,))
    shared.estimate(model, batch)
    assert shared.plan(model, batch).way == way
    masks.kept.clear()
    estimate = shared.estimate(model, batch)
    growth = shared.plan(model, batch).growth
    rows = [len(block) for block in batch.split(plan.block_rows(12, batch[0].numel(), 4, growth))]
    assert (len(rows) == 1) == bool(small_batch)
    masks.replay(len(stochastic_layers(model)), rows, 4)
    plain = MCDropout(passes=4, shared=False, stochastic_layers=(Subclass,)).estimate(model, batch)
    assert masks.replayed == []
    assert (plain.u > 0).all()
    for one, other in zip(estimate, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", SHARED)
def test_what_comes_before_the_first_stochastic_layer_runs_once(name):
    model, batch = network_and_batch(name)
    first = next(iter(stochastic_layers(model, NAMED).values()))
    estimator().estimate(model, batch)
    calls = []
    handle = first.register_forward_hook(lambda *_: calls.append(1))
    estimator().estimate(model, batch)
    assert len(calls) == 1
    handle.remove()


@pytest.mark.parametrize("way", ["repeated", "vectorized"])
def test_no_more_rows_are_in_the_network_at_once_than_the_batch_has(monkeypatch, way):
    monkeypatch.setattr(plan, "SMALL_BATCH", 0)
    model = deep(nn.Dropout if way == "repeated" else Subclass)
    several, batch = MCDropout(passes=6, stochastic_layers=(Subclass,)), torch.randn(50, 4)
    several.estimate(model, batch)
    assert several.plan(model, batch).way == way
    sizes = []

    def record(layer, arguments):
        x = arguments[0]
        sizes.append(get_unwrapped(x).shape[:2].numel() if is_batchedtensor(x) else len(x))

    model[-1].register_forward_pre_hook(record)
    several.estimate(model, batch)
    # 6 blocks of up to 9 rows, 6 passes at once.
    assert len(sizes) == 6
    assert max(sizes) == 54
    assert sum(sizes) == 50 * 6


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_seed_gives_the_same_estimate_whether_the_way_was_known_or_not(name):
    model, batch = network_and_batch(name)
    estimates = []
    for _ in range(2):
        torch.manual_seed(5)
        estimates.append(estimator().estimate(model, batch, check=True))
    assert all(torch.equal(one, other) for one, other in zip(*estimates, strict=True))


@pytest.mark.parametrize("name", FALLBACKS)
def test_a_fallback_gives_exactly_the_plain_passes(name):
    model, batch = network_and_batch(name)
    torch.manual_seed(5)
    fallback = estimator().estimate(model, batch)
    torch.manual_seed(5)
    plain = estimator(shared=False).estimate(model, batch)
    assert all(torch.equal(one, other) for one, other in zip(fallback, plain, strict=True))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("TransformerEncoderLayer", "inplace randomness"),
        ("LSTM", "lstm draws the same numbers for all passes"),
        ("LSTM and dropout", "lstm draws the same numbers for all passes"),
        ("data-dependent", "data-dependent control flow"),
    ],
)
def test_a_fallback_is_decided_and_logged_once(name, reason, caplog, monkeypatch):
    model, batch = network_and_batch(name)
    tried, make_plan = [], plan.make_plan
    monkeypatch.setattr(
        "surelabel.uncertainty.mc_dropout.make_plan", lambda *arguments: tried.append(1) or make_plan(*arguments)
    )
    with caplog.at_level(logging.INFO, logger="surelabel"):
        for _ in range(3):
            estimator().estimate(model, batch)
    assert len(tried) == 1
    assert len(caplog.records) == 1
    assert "the stochastic passes run one by one, because" in caplog.text
    assert reason in caplog.text
    assert reason in estimator().plan(model, batch).reason


def test_shared_passes_are_not_logged(caplog):
    with caplog.at_level(logging.INFO, logger="surelabel"):
        estimator().estimate(perceptron(), torch.randn(5, 4))
    assert not caplog.records


def test_a_network_without_stochastic_layers_is_not_tried(caplog):
    model = nn.Linear(4, CLASSES)
    assert "no stochastic layer" in MCDropout().plan(model, torch.randn(5, 4)).reason
    assert torch.equal(MCDropout().estimate(model, torch.randn(5, 4)).u, torch.zeros(5, CLASSES))


class OtherRandomness(nn.Module):
    """Scales the whole batch by a number that torch knows nothing of."""

    def __init__(self, draw):
        super().__init__()
        self.draw, self.dropout = draw, NamedDropout()

    def forward(self, x):
        return self.dropout(x) * self.draw()


class Keeping(nn.Module):
    """Keeps its last output, as networks do whose features are looked at later."""

    def __init__(self):
        super().__init__()
        self.dropout = NamedDropout()

    def forward(self, x):
        self.last = self.dropout(x)
        return self.last


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: OtherRandomness(random.random), "Python's or numpy's generator"),
        (lambda: OtherRandomness(np.random.random), "Python's or numpy's generator"),
        (Keeping, "'0' (Keeping) keeps a pass's tensor in 'last'"),
    ],
)
def test_what_vmap_would_do_once_for_all_passes_is_done_pass_by_pass(layer, reason):
    model, batch = nn.Sequential(layer(), nn.Linear(4, CLASSES)), torch.randn(5, 4)
    assert (estimator().estimate(model, batch, check=True).u > 0).all()
    found = estimator().plan(model, batch)
    assert found.way == "one by one"
    assert reason in found.reason
    if isinstance(model[0], Keeping):
        assert model[0].last.sum().isfinite()


class Unused(nn.Module):
    """Dropout that reaches the output only through a factor of 0."""

    def __init__(self, dropout):
        super().__init__()
        self.dropout, self.head = dropout, nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(x) + 0 * self.dropout(x).sum(dim=1, keepdim=True)


@pytest.mark.parametrize("dropout", [nn.Dropout(0.5), NamedDropout()], ids=["torch's", "the user's own"])
def test_a_network_that_ignores_its_dropout_is_still_an_error(dropout):
    model, batch = Unused(dropout), torch.randn(50, 4)
    with pytest.raises(NotStochasticError, match=r"All 10 passes over 50 samples gave the same output"):
        estimator().estimate(model, batch, check=True)


class RoundedDifferently(nn.Module):
    """As `Unused`, but the rows of a larger batch differ by rounding, as they do in some matrix products."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        x = self.dropout(x)[:, :CLASSES] * 0 + 1
        return x + 1e-7 * torch.arange(len(x))[:, None]


def test_rounding_is_not_taken_for_randomness():
    with pytest.raises(NotStochasticError):
        MCDropout().estimate(RoundedDifferently(), torch.randn(50, 4), check=True)


class Failing(nn.Module):
    """Refuses more rows than the batch has, but only once told to: what a trial cannot foresee."""

    def __init__(self):
        super().__init__()
        self.layers, self.most = perceptron(), None

    def forward(self, x):
        z = self.layers(x)
        if self.most is not None and len(z) > self.most:
            raise MemoryError("no room for so many rows")
        return z


def test_a_shared_way_that_fails_later_gives_way_to_plain_passes(caplog):
    model, batch = Failing(), torch.randn(5, 4)
    MCDropout().estimate(model, batch)
    assert MCDropout().plan(model, batch).way == "repeated"
    model.most, before = 5, modes(model)
    with caplog.at_level(logging.INFO, logger="surelabel"):
        torch.manual_seed(5)
        late = MCDropout().estimate(model, batch)
    torch.manual_seed(5)
    plain = MCDropout(shared=False).estimate(model, batch)
    assert all(torch.equal(one, other) for one, other in zip(late, plain, strict=True))
    assert modes(model) == before
    assert MCDropout().plan(model, batch) == plan.PassPlan("one by one", "repeated: no room for so many rows")
    assert len(caplog.records) == 1


@pytest.mark.parametrize("name", ["perceptron", "residual", "functional dropout"])
def test_modes_and_hooks_are_given_back_after_an_error_in_any_way(name):
    model, batch = network_and_batch(name)
    estimator().estimate(model, batch)
    model.eval()
    before = modes(model)

    def fail(*_):
        raise RuntimeError("out of luck")

    handle = list(model.modules())[-1].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match=r"out of luck"):
        estimator().estimate(model, batch)
    handle.remove()
    assert modes(model) == before
    assert not any(module._forward_pre_hooks for module in model.modules())
    # The mistake was not the network's: nothing is held against it.
    assert estimator().plan(model, batch).way == NETWORKS[name][2]


@pytest.mark.parametrize("name", ["perceptron", "functional dropout"])
def test_a_wrong_output_is_named_as_in_plain_passes(name):
    model, batch = network_and_batch(name)
    model.append(nn.Unflatten(1, (CLASSES, 1)))
    with pytest.raises(InvalidInputError, match=r"logits .N, C., here \(6, C\)\. Got shape \(6, 3, 1\)"):
        estimator().estimate(model, batch)
    model[-1] = nn.Softplus()
    with pytest.raises(RuntimeError, match=r"cannot be multiplied"):
        estimator().estimate(model, torch.randn(6, 5))
    assert estimator().plan(model, batch).way == NETWORKS[name][2]


def test_a_plan_holds_for_the_layers_that_were_switched_on():
    model, batch = named(NamedDropout), torch.randn(5, 4)
    assert MCDropout().plan(model, batch).way == "one by one"
    MCDropout().estimate(model, batch)
    assert estimator().plan(model, batch).way == "vectorized"


def test_a_plan_holds_as_long_as_the_layers_are_of_the_same_kind():
    model, batch = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES)), torch.randn(5, 4)
    assert MCDropout().plan(model, batch).way == "repeated"
    MCDropout().estimate(model, batch)
    model[1] = type("SharedMask", (BatchDropout, nn.Dropout), {})()
    assert MCDropout().plan(model, batch).way != "repeated"


@pytest.mark.parametrize("name", ["perceptron", "residual"])
def test_a_network_that_diverged_is_tried_again_when_it_is_initialized_anew(name):
    model, batch = network_and_batch(name)
    good = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(InvalidInputError, match=r"not finite for 6 of 6 samples"):
        estimator().estimate(model, batch)
    model.load_state_dict(good)
    estimator().estimate(model, batch)
    assert estimator().plan(model, batch).way == NETWORKS[name][2]


@pytest.mark.parametrize("name", ["residual", "concatenated", "rows that depend on one another"])
@pytest.mark.parametrize("passes", [10, 100])
def test_a_way_found_on_a_single_sample_serves_more(name, passes):
    model, batch = network_and_batch(name)
    one_first = estimator(passes=passes)
    one_first.estimate(model, batch[:1])
    estimate = one_first.estimate(model, batch, check=True)
    assert (estimate.u > 0).any(dim=1).all()
    assert one_first.plan(model, batch).way == NETWORKS[name][2]


def test_channels_last_survives_the_repetition():
    model = convolutional().to(memory_format=torch.channels_last)
    batch = torch.randn(IMAGES).contiguous(memory_format=torch.channels_last)
    kept = []
    model[5].register_forward_hook(lambda layer, arguments, output: kept.append((arguments[0], output)))
    MCDropout().estimate(model, batch)
    assert all(x.is_contiguous(memory_format=torch.channels_last) for pair in kept for x in pair)


@pytest.mark.parametrize("rows", [0, -1, 2.5])
def test_batches_of_no_rows_are_refused(rows):
    with pytest.raises(InvalidInputError, match=r"'rows' argument must be a whole number of at least 1.* Got"):
        MCDropout(rows=rows)


@pytest.mark.parametrize(("make", "way"), [(deep, "repeated"), (lambda: deep(Subclass), "vectorized")])
def test_compiled_passes_are_compiled_once_for_a_network(monkeypatch, make, way):
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    monkeypatch.setattr(plan, "SMALL_BATCH", 0)
    model, batch = make(), torch.randn(20, 4)
    quick = MCDropout(passes=2, compile=True, rows=20, stochastic_layers=(Subclass,))
    torch.manual_seed(5)
    estimate = quick.estimate(model, batch, check=True)
    assert quick.plan(model, batch).way == way
    torch.manual_seed(5)
    eager = MCDropout(passes=2, compile=False, stochastic_layers=(Subclass,)).estimate(model, batch)
    for one, other in zip(estimate, eager, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    with torch.no_grad(), torch.compiler.set_stance("fail_on_recompile"):
        for parameter in model.parameters():
            parameter.normal_()
        # A smaller last batch, in the same shape.
        assert quick.estimate(model, batch[:13]).p.shape == (13, CLASSES)
        again = quick.estimate(model, batch)
    assert quick.plan(model, batch).way == way
    assert not torch.allclose(again.p, estimate.p, atol=0.05)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    assert not compiled._COMPILED


def test_a_smaller_batch_is_filled_up_and_cut_afterwards(monkeypatch):
    """Its rows get what they would get in a whole batch."""
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    model, batch, estimates = perceptron(), torch.randn(8, 4), []
    quick = MCDropout(passes=20, compile=True, rows=8)
    for given in (batch, batch[:3]):
        torch.manual_seed(5)
        estimates.append(quick.estimate(model, given))
    assert quick.plan(model, batch).way == "repeated"
    whole, few = estimates
    assert few.p.shape == (3, CLASSES)
    assert (few.u > 0).all()
    for one, other in zip(few, whole, strict=True):
        torch.testing.assert_close(one, other[:3], rtol=0, atol=1e-6)


def test_what_a_batch_gets_does_not_depend_on_those_before_it(monkeypatch):
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    for rows in (None, 12):
        quick, batch = MCDropout(passes=4, compile=True, rows=rows), torch.randn(30, 500)
        model = nn.Sequential(nn.Linear(500, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))
        estimates = []
        for before in (batch[:7], batch):
            quick.estimate(model, before)
            torch.manual_seed(5)
            estimates.append(quick.estimate(model, batch[:7]))
        assert torch.equal(estimates[0].u, estimates[1].u)


def test_a_compiler_that_fails_gives_way_to_passes_that_share_without_it(monkeypatch, caplog):
    def broken(graph, inputs):
        raise NotImplementedError("no compiler for this")

    monkeypatch.setattr(compiled, "BACKEND", broken)
    model, batch = perceptron(), torch.randn(5, 4)
    with caplog.at_level(logging.INFO, logger="surelabel"):
        torch.manual_seed(5)
        estimate = MCDropout(compile=True).estimate(model, batch)
    torch.manual_seed(5)
    shared = MCDropout(compile=False).estimate(model, batch)
    assert all(torch.equal(one, other) for one, other in zip(estimate, shared, strict=True))
    assert "run without the compiler, and slower, because" in caplog.text
    assert "no compiler for this" in caplog.text
    assert MCDropout(compile=True).plan(model, batch).way == "repeated"
    caplog.clear()
    MCDropout(compile=True).estimate(model, batch)
    assert not caplog.records


class NormAndActivation(nn.BatchNorm2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).relu()


@pytest.mark.parametrize("kind", ["derived", "hooked"])
def test_compiled_passes_keep_what_is_more_than_batch_norm(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    norm = NormAndActivation(4) if kind == "derived" else nn.BatchNorm2d(4)
    if kind == "hooked":
        norm.register_forward_hook(lambda module, inputs, output: output.relu())
    model = nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 3))
    batch, estimates = torch.randn(20, 3, 6, 6), []
    for compile in (True, False):
        torch.manual_seed(1)
        estimates.append(MCDropout(passes=4, compile=compile).estimate(model, batch))
    torch.testing.assert_close(estimates[0].p, estimates[1].p)


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}])
def test_compiled_passes_put_an_affine_map_in_the_place_of_batch_norm(
    options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    torch.manual_seed(0)
    maps = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, **options), nn.ReLU(), nn.BatchNorm2d(4, eps=0.5), nn.Dropout(0.5)]
    model = nn.Sequential(*maps, nn.Flatten(), nn.Linear(64, 3))
    nn.init.normal_(model[3].weight)
    nn.init.normal_(model[3].bias)
    batch = torch.randn(20, 3, 6, 6)
    model(5 * batch + 1)  # statistics and a batch that they are not of
    for _ in range(2):
        estimates = []
        for compile in (True, False):
            torch.manual_seed(1)
            estimates.append(MCDropout(passes=4, compile=compile).estimate(model, batch))
        torch.testing.assert_close(estimates[0].p, estimates[1].p)
        torch.testing.assert_close(estimates[0].u, estimates[1].u)
        assert list(model)[:5] == maps
        with torch.no_grad():  # another network in the same memory
            for value in model.state_dict().values():
                value.mul_(2)
