"""MC-dropout, promise by promise. A long file, because every kind of layer shares the networks below."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.models.stochastic import stochastic_layers, stochastic_mode
from surelabel.models.table import TableNetwork
from surelabel.uncertainty import Deterministic, MCDropout, UncertaintyEstimator, predict_proba

CLASSES = 3


pytestmark = pytest.mark.usefixtures("seeded")


def modes(model):
    return {name: module.training for name, module in model.named_modules()}


def softmax(z):
    """Softmax from the formula, independent of torch's."""
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def perceptron(dropout=0.5):
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, CLASSES))


class Pooled(nn.Module):
    """A layer over sequences (N, L, 8), averaged over the positions, then a linear head."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        output = self.layer(x, x, x) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        output = output[0] if isinstance(output, tuple) else output
        return self.head(output.flatten(2).mean(dim=1))


class Padded(nn.Module):
    """An encoder over padded sequences: the batch that sends nn.TransformerEncoder into nested tensors."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        padding = torch.zeros(x.shape[:2], dtype=torch.bool)
        padding[:, -2:] = True
        return self.head(self.encoder(x, src_key_padding_mask=padding)[:, 0])


class FunctionalDropout(nn.Module):
    """Dropout by function: only its own flag says whether it drops. With a BatchNorm child to watch."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return functional.dropout(self.norm(x), 0.5, self.training)


class AlwaysRandom(nn.Module):
    """Random in evaluation mode too, without any dropout."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.linear(x + torch.randn_like(x))


def encoder_layer(dropout=0.5):
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)


def encoder(*rates):
    stack = nn.TransformerEncoder(encoder_layer(), len(rates))
    stack.layers = nn.ModuleList([encoder_layer(rate) for rate in rates])
    return stack


def attention_dropout_only():
    layer = encoder_layer(0.0)
    layer.self_attn.dropout = 0.5
    return layer


def feed_forward_dropout_only():
    layer = encoder_layer(0.0)
    layer.dropout.p = 0.5
    return layer


def flat(*layers):
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(CLASSES))


SEQUENCES = (6, 5, 8)
NETWORKS = {
    "Dropout": (lambda: flat(nn.Dropout(0.5)), (6, 4)),
    "Dropout1d": (lambda: flat(nn.Dropout1d(0.5)), (6, 8, 5)),
    "Dropout2d": (lambda: flat(nn.Dropout2d(0.5)), (6, 8, 3, 3)),
    "Dropout3d": (lambda: flat(nn.Dropout3d(0.5)), (6, 8, 2, 2, 2)),
    "AlphaDropout": (lambda: flat(nn.AlphaDropout(0.5)), (6, 4)),
    "FeatureAlphaDropout": (lambda: flat(nn.FeatureAlphaDropout(0.5)), (6, 8, 5)),
    "MultiheadAttention": (
        lambda: Pooled(nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)),
        SEQUENCES,
    ),
    "TransformerEncoderLayer": (lambda: Pooled(encoder_layer()), SEQUENCES),
    "TransformerEncoderLayer, attention only": (lambda: Pooled(attention_dropout_only()), SEQUENCES),
    "TransformerEncoderLayer, feed-forward only": (lambda: Pooled(feed_forward_dropout_only()), SEQUENCES),
    "TransformerEncoder": (lambda: Pooled(encoder(0.5, 0.5)), SEQUENCES),
    "TransformerEncoder, padded": (lambda: Padded(encoder(0.5, 0.5)), SEQUENCES),
    "TransformerEncoder, padded, second layer": (lambda: Padded(encoder(0.0, 0.5)), SEQUENCES),
    "RNN": (lambda: Pooled(nn.RNN(8, 8, 2, dropout=0.5, batch_first=True)), SEQUENCES),
    "LSTM": (lambda: Pooled(nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True)), SEQUENCES),
    "GRU": (lambda: Pooled(nn.GRU(8, 8, 2, dropout=0.5, batch_first=True)), SEQUENCES),
    "TableNetwork": (lambda: TableNetwork(4, CLASSES), (6, 4)),
}


def network_and_batch(name):
    make, shape = NETWORKS[name]
    model, batch = make(), torch.randn(shape)
    model.eval()(batch)  # Gives lazy layers their shape.
    return model, batch


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [True, False])
def test_every_kind_of_dropout_gives_a_spread_and_gets_its_mode_back(name, training):
    model, batch = network_and_batch(name)
    before = modes(model.train(training))
    estimate = MCDropout(passes=10).estimate(model, batch, check=True)
    assert (estimate.u > 0).all()
    assert (estimate.u_soft > 0).all()
    assert modes(model) == before


@pytest.mark.parametrize("name", NETWORKS)
def test_plain_passes_are_those_of_a_network_in_training_mode(name):
    model, batch = network_and_batch(name)
    torch.manual_seed(1)
    p = MCDropout(passes=3, shared=False).estimate(model, batch).p
    torch.manual_seed(1)
    model.train()  # None of these networks has BatchNorm, so that training mode is the same computation.
    with torch.no_grad():
        reference = torch.stack([model(batch).softmax(dim=1) for _ in range(3)]).mean(dim=0)
    torch.testing.assert_close(p, reference)


# torch's own fast path for padded batches, in evaluation mode, warns of its own nested tensors.
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_deterministic_pass_has_no_dropout_and_gives_the_modes_back(name):
    model, batch = network_and_batch(name)
    before = modes(model.train())
    p = predict_proba(model, batch)
    assert torch.equal(p, predict_proba(model, batch))
    assert modes(model) == before
    with torch.no_grad():
        torch.testing.assert_close(p, model.eval()(batch).softmax(dim=1))


@pytest.mark.parametrize(
    ("task", "link"), [("single", softmax), ("multi", sigmoid)], ids=["single-label", "multi-label"]
)
def test_means_and_spreads_agree_with_numpy_over_kept_passes(task, link):
    model, batch = perceptron(), torch.randn(7, 4)
    torch.manual_seed(3)
    estimate = MCDropout(passes=6, temperature=2.0, task=task).estimate(model, batch)
    torch.manual_seed(3)
    with torch.no_grad():
        kept = np.stack([model(batch).numpy().astype(np.float64) for _ in range(6)])
    p, p_soft = np.stack([link(z) for z in kept]), np.stack([link(z / 2) for z in kept])
    np.testing.assert_allclose(estimate.p, p.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(estimate.u, p.std(axis=0, ddof=1), atol=1e-6)
    np.testing.assert_allclose(estimate.p_soft, p_soft.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(estimate.u_soft, p_soft.std(axis=0, ddof=1), atol=1e-6)


class Alternating(nn.Module):
    """Logits (0, z) with z from a list, one for each pass: a spread that can be worked out by hand."""

    def __init__(self, *values):
        super().__init__()
        self.values = list(values)

    def forward(self, x):
        return torch.tensor([[0.0, self.values.pop(0)]]).expand(len(x), 2)


def test_hand_worked_two_passes():
    # sigmoid(log 3) = 3/4 and sigmoid(-log 3) = 1/4: mean 1/2, and with n - 1 = 1 the spread is sqrt(2 / 16).
    model = Alternating(np.log(3.0), -np.log(3.0))
    p, u, p_soft, u_soft = MCDropout(passes=2).estimate(model, torch.zeros(1, 1))
    assert p.tolist() == [[pytest.approx(0.5), pytest.approx(0.5)]]
    assert u.tolist() == [[pytest.approx(8**-0.5), pytest.approx(8**-0.5)]]
    # Softened by 2: 1 / (1 + 1 / sqrt(3)) = 0.633975 and its complement.
    assert p_soft[0, 1].item() == pytest.approx(0.5)
    assert u_soft[0, 1].item() == pytest.approx((0.633975 - 0.366025) / 2**0.5, abs=1e-5)


def test_a_temperature_of_one_leaves_the_softened_values_equal():
    estimate = MCDropout(temperature=1.0).estimate(perceptron(), torch.randn(4, 4))
    assert torch.equal(estimate.p, estimate.p_soft)
    assert torch.equal(estimate.u, estimate.u_soft)


@pytest.mark.parametrize("task", ["single", "multi"])
def test_probabilities_stay_in_range_for_extreme_logits(task):
    model = nn.Sequential(perceptron(), nn.Hardtanh(-1e4, 1e4))
    with torch.no_grad():
        model[0][-1].weight *= 1e6
    p, u, p_soft, u_soft = MCDropout(passes=20, task=task).estimate(model, torch.randn(50, 4))
    for values in (p, p_soft):
        assert ((values >= 0) & (values <= 1)).all()
    for spread in (u, u_soft):
        assert (spread >= 0).all()
        assert torch.isfinite(spread).all()


def test_a_bfloat16_network_is_averaged_in_float32():
    model, batch = perceptron().bfloat16(), torch.randn(5, 4).bfloat16()
    torch.manual_seed(3)
    estimate = MCDropout(passes=10).estimate(model, batch, check=True)
    assert {values.dtype for values in estimate} == {torch.float32}
    torch.manual_seed(3)
    with torch.no_grad():
        kept = np.stack([softmax(model(batch).double().numpy()) for _ in range(10)])
    np.testing.assert_allclose(estimate.p, kept.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(estimate.u, kept.std(axis=0, ddof=1), atol=1e-6)


def test_autocast_does_not_reach_the_averages():
    model, batch = perceptron(), torch.randn(5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        estimate = MCDropout().estimate(model, batch)
    assert {values.dtype for values in estimate} == {torch.float32}
    np.testing.assert_allclose(estimate.p.sum(dim=1), 1, atol=1e-6)


def test_a_float64_network_stays_in_float64():
    estimate = MCDropout().estimate(perceptron().double(), torch.randn(5, 4).double())
    assert {values.dtype for values in estimate} == {torch.float64}


def test_batch_norm_keeps_its_statistics_and_uses_them():
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, CLASSES))
    model(torch.randn(64, 4))  # Statistics that differ from those of the batch below.
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = 5 + torch.randn(8, 4)
    torch.manual_seed(3)
    p = MCDropout(passes=2).estimate(model, batch).p
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.manual_seed(3)
    model[1].eval()
    with torch.no_grad():
        reference = (model(batch).softmax(dim=1) + model(batch).softmax(dim=1)) / 2
    torch.testing.assert_close(p, reference)


def mixed_modes():
    """In training, but for a frozen part with BatchNorm and dropout, of which one dropout was left on."""
    frozen = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Dropout(0.2)).eval()
    model = nn.Sequential(frozen, nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, CLASSES))
    model[0][3].train()
    return model


def test_every_module_gets_its_own_mode_back():
    model = mixed_modes()
    before = modes(model)
    assert len(set(before.values())) == 2
    MCDropout().estimate(model, torch.randn(5, 4), check=True)
    assert modes(model) == before
    Deterministic().estimate(model, torch.randn(5, 4))
    assert modes(model) == before


@pytest.mark.parametrize("estimator", [MCDropout(), Deterministic()])
def test_every_module_gets_its_own_mode_back_after_an_exception(estimator):
    model = mixed_modes()
    before, batch = modes(model), torch.randn(5, 4)
    during = {}

    def fail(module, args, output):
        during.update(modes(model))
        raise RuntimeError("out of memory")

    model[-1].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match=r"out of memory"):
        estimator.estimate(model, batch)
    assert during != before
    assert modes(model) == before


def test_only_the_random_layers_are_in_training_mode_during_a_pass():
    model = nn.ModuleDict(
        {
            "norm": nn.BatchNorm1d(4),
            "dropout": nn.Dropout(0.5),
            "dropout at 0": nn.Dropout(0.0),
            "attention": nn.MultiheadAttention(8, 2, dropout=0.5),
            "attention at 0": nn.MultiheadAttention(8, 2),
            "lstm": nn.LSTM(4, 4, 2, dropout=0.5),
            "lstm at 0": nn.LSTM(4, 4, 2),
            "encoder layer at 0": encoder_layer(0.0),
            "encoder": encoder(0.0, 0.5),
        }
    )
    with stochastic_mode(model):
        on = {name for name, module in model.named_modules() if module.training}
    layers = {f"encoder.layers.1.{name}" for name in ("self_attn", "dropout", "dropout1", "dropout2")}
    assert on == {"dropout", "attention", "lstm", "encoder.layers.0", "encoder.layers.1"} | layers
    assert on == set(stochastic_layers(model))


def test_functional_dropout_in_a_layer_that_is_not_named_is_an_error():
    model = nn.Sequential(FunctionalDropout(), nn.Linear(4, CLASSES))
    with pytest.raises(NotStochasticError, match=r"Use nn.Dropout layers instead of torch.nn.functional") as error:
        MCDropout().estimate(model, torch.randn(5, 4), check=True)
    assert "All 10 passes over 5 samples gave the same output" in str(error.value)
    assert "Layers switched on: none." in str(error.value)
    assert "stochastic_layers=(MyLayer,)" in str(error.value)


def test_a_layer_type_that_the_user_names_is_switched_on_without_its_batch_norm():
    model = nn.Sequential(FunctionalDropout(), nn.Linear(4, CLASSES))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    estimate = MCDropout(stochastic_layers=(FunctionalDropout,)).estimate(model, torch.randn(5, 4), check=True)
    assert (estimate.u > 0).all()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(modes(model).values())


def test_torch_layers_that_are_random_in_training_mode_only_can_be_named():
    model = nn.Sequential(nn.Linear(4, 8), nn.RReLU(), nn.Linear(8, CLASSES))
    estimate = MCDropout(stochastic_layers=(nn.RReLU,)).estimate(model, torch.randn(5, 4), check=True)
    assert (estimate.u > 0).all()


class RandomReplacement(nn.Dropout):
    """A dropout of the user's own that takes its rate from elsewhere and leaves torch's at 0."""

    def forward(self, input):
        return functional.dropout(input, 0.5, self.training)


def test_a_named_layer_inside_a_transformer_layer_is_not_skipped_by_the_fast_path():
    layer = encoder_layer(0.0)
    layer.dropout1 = RandomReplacement(0.0)
    model, batch = Pooled(layer), torch.randn(SEQUENCES)
    with pytest.raises(NotStochasticError):
        MCDropout().estimate(model, batch, check=True)
    estimate = MCDropout(stochastic_layers=(RandomReplacement,)).estimate(model, batch, check=True)
    assert (estimate.u > 0).all()


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_dropout_rate_that_leaves_nothing_to_chance_is_an_error(rate):
    with pytest.raises(NotStochasticError, match=r"a rate above 0 and below 1"):
        MCDropout().estimate(perceptron(rate), torch.randn(5, 4), check=True)


def test_the_error_names_the_layers_that_were_switched_on_in_vain():
    with pytest.raises(NotStochasticError, match=r"Layers switched on: '2' \(Dropout\)\."):
        MCDropout().estimate(perceptron(1.0), torch.randn(5, 4), check=True)


def test_modes_are_given_back_when_the_network_is_not_random():
    model = perceptron(0.0)
    model[0].eval()
    before = modes(model)
    with pytest.raises(NotStochasticError):
        MCDropout().estimate(model, torch.randn(5, 4), check=True)
    assert modes(model) == before


def test_a_network_that_is_random_by_itself_is_accepted():
    estimate = MCDropout().estimate(AlwaysRandom(), torch.randn(5, 4), check=True)
    assert (estimate.u > 0).all()


def test_one_pass_of_many_that_differs_is_enough():
    model = Alternating(*[1.0] * 4, 1.5, *[1.0] * 5)
    estimate = MCDropout(passes=10).estimate(model, torch.zeros(3, 1), check=True)
    assert (estimate.u > 0).all()


class SharedMemory(nn.Module):
    """Writes each output into the same memory, as a captured graph does."""

    def __init__(self):
        super().__init__()
        self.output = torch.zeros(5, CLASSES)

    def forward(self, x):
        return self.output.copy_(torch.randn(5, CLASSES))


def test_a_network_that_reuses_its_output_memory_is_not_taken_for_silent():
    assert (MCDropout().estimate(SharedMemory(), torch.randn(5, 4), check=True).u > 0).all()


def test_without_check_a_silent_network_gets_a_spread_of_exactly_zero():
    estimate = MCDropout().estimate(perceptron(0.0), torch.randn(5, 4))
    assert torch.equal(estimate.u, torch.zeros(5, CLASSES))


def test_the_batch_is_not_changed_by_layers_that_work_in_place():
    model = nn.Sequential(nn.Dropout(0.5, inplace=True), nn.Linear(4, CLASSES))
    batch = torch.randn(5, 4)
    kept = batch.clone()
    MCDropout().estimate(model, batch)
    assert torch.equal(batch, kept)
    predict_proba(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, CLASSES)), batch)
    assert torch.equal(batch, kept)


def test_results_can_be_trained_with_and_hold_no_graph():
    model, batch = perceptron(), torch.randn(5, 4)
    estimate = MCDropout().estimate(model, batch)
    assert not any(values.requires_grad for values in estimate)
    loss = functional.cross_entropy(model(batch), estimate.p)
    loss.backward()
    assert model[0].weight.grad is not None


def test_the_same_seed_gives_the_same_estimate():
    model, batch = perceptron(), torch.randn(5, 4)
    estimates = []
    for _ in range(2):
        torch.manual_seed(5)
        estimates.append(MCDropout().estimate(model, batch))
    assert all(torch.equal(one, other) for one, other in zip(*estimates, strict=True))


def test_an_empty_batch_gives_empty_arrays_but_cannot_be_checked():
    assert MCDropout().estimate(perceptron(), torch.zeros(0, 4)).u.shape == (0, CLASSES)
    with pytest.raises(InvalidInputError, match=r"'batch' argument has no samples"):
        MCDropout().estimate(perceptron(), torch.zeros(0, 4), check=True)


@pytest.mark.parametrize("passes", [1, 0, -3, 2.5, "10", True, None])
def test_fewer_than_two_passes_are_refused(passes):
    with pytest.raises(InvalidInputError, match=r"'passes' .* at least 2. Got .* instead; a single pass has no spread"):
        MCDropout(passes=passes)


@pytest.mark.parametrize("kind", [np.int64, np.array, torch.tensor])
def test_passes_may_be_counted_by_numpy_or_torch(kind):
    estimate = MCDropout(passes=kind(3)).estimate(nn.Dropout(0.5), torch.ones(4, 3))
    assert estimate.p.shape == (4, 3)


@pytest.mark.parametrize("estimator", [MCDropout, Deterministic])
@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf"), None])
def test_a_temperature_that_is_not_positive_is_refused(estimator, temperature):
    with pytest.raises(InvalidInputError, match=r"'temperature' argument must be a number in \[0.1, 1e\+06\]. Got"):
        estimator(temperature=temperature)


@pytest.mark.parametrize("estimator", [MCDropout, Deterministic])
def test_an_unknown_task_is_refused(estimator):
    with pytest.raises(InvalidInputError, match=r"'task' argument must be one of 'single'.* Got 'both' instead"):
        estimator(task="both")


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (nn.RReLU, r"must be a tuple of layer classes, .* Got <class .*RReLU'> instead"),
        ((nn.RReLU(),), r"derived from torch.nn.Module\. Got \(RReLU.* not an instance"),
        ((int,), r"derived from torch.nn.Module\. Got \(<class 'int'>"),
        ((nn.BatchNorm1d,), r"must not include normalization layers.* Got BatchNorm1d instead"),
        ((nn.InstanceNorm2d,), r"must not include normalization layers.* Got InstanceNorm2d instead"),
        ((nn.Module,), r"must not include normalization layers.* Got Module instead"),
    ],
)
def test_wrong_layer_types_are_refused(layers, message):
    with pytest.raises(InvalidInputError, match=message):
        MCDropout(stochastic_layers=layers)


class Returning(nn.Module):
    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, x):
        return self.output


@pytest.mark.parametrize("estimator", [MCDropout(), Deterministic()])
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"logits": torch.zeros(5, 3)}, "one tensor of logits .* Got dict; return logits alone"),
        (torch.zeros(5), r"floating-point logits .N, C., here \(5, C\)\. Got shape \(5,\)"),
        (torch.zeros(5, 3, 2), r"Got shape \(5, 3, 2\) of torch.float32"),
        (torch.zeros(4, 3), r"\(5, C\)\. Got shape \(4, 3\)"),
        (torch.zeros(5, 0), r"Got shape \(5, 0\)"),
        (torch.zeros(5, 3, dtype=torch.int64), r"Got shape \(5, 3\) of torch.int64"),
    ],
)
def test_an_output_that_is_not_logits_is_refused(estimator, output, message):
    with pytest.raises(InvalidInputError, match=message):
        estimator.estimate(Returning(output), torch.zeros(5, 4))


@pytest.mark.parametrize(
    "estimator", [MCDropout(), MCDropout(task="multi"), Deterministic(), Deterministic(task="multi")]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_not_finite_are_refused(estimator, value):
    output = torch.zeros(5, 3)
    output[1, 2] = output[3, 0] = value
    with pytest.raises(InvalidInputError, match=r"not finite for 2 of 5 samples.* lower the learning rate"):
        estimator.estimate(Returning(output), torch.zeros(5, 4), check=True)


def test_logits_that_are_not_finite_in_one_pass_only_are_refused():
    with pytest.raises(InvalidInputError, match=r"not finite for 1 of 1 samples"):
        MCDropout(passes=3).estimate(Alternating(0.0, float("nan"), 1.0), torch.zeros(1, 1))


@pytest.mark.parametrize(("task", "link"), [("single", softmax), ("multi", sigmoid)])
def test_the_deterministic_estimator_softens_and_has_no_uncertainty(task, link):
    z = torch.tensor([[1.0, -2.0, 0.5]])
    p, u, p_soft, u_soft = Deterministic(temperature=4.0, task=task).estimate(nn.Dropout(0.9), z)
    assert u is None
    assert u_soft is None
    np.testing.assert_allclose(p, link(z.double().numpy()), atol=1e-6)
    np.testing.assert_allclose(p_soft, link(z.double().numpy() / 4), atol=1e-6)


def test_estimators_are_values_that_fit_the_protocol():
    estimators: list[UncertaintyEstimator] = [MCDropout(), Deterministic()]
    assert estimators == [MCDropout(passes=10, temperature=2.0), Deterministic(temperature=2.0)]
    assert all(isinstance(one, UncertaintyEstimator) and one.members == 1 for one in estimators)
    with pytest.raises(AttributeError):
        estimators[0].passes = 20
