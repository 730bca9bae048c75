import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import nn

from surelabel.errors import InvalidInputError
from surelabel.models.dropout import Dropout
from surelabel.models.stochastic import stochastic_mode
from surelabel.models.table import TableNetwork


def linear():
    """A network without hidden layers whose one logit is the sum of its standardized features."""
    network = TableNetwork(3, 1, hidden=())
    nn.init.ones_(network.layers[-1].weight)
    nn.init.zeros_(network.layers[-1].bias)
    return network


def standardized(network, mean, scale):
    """The network after two rows with these means and standard deviations."""
    mean, scale = torch.tensor(mean, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64)
    network.standardize(lambda: [torch.stack([mean - scale, mean + scale])])
    return network


def test_the_input_is_standardized_by_mean_and_scale():
    network = standardized(linear(), [1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    # (3 - 1) / 1 + (6 - 2) / 2 + (11 - 3) / 4
    assert network(torch.tensor([[3.0, 6.0, 11.0]])).item() == pytest.approx(6.0)


def test_without_mean_and_scale_the_input_is_taken_as_it_is():
    assert linear()(torch.tensor([[3.0, 6.0, 11.0]])).item() == pytest.approx(20.0)


def test_constant_features_get_a_scale_of_one():
    # The third feature is constant but for the rounding error of a mean of 1e6.
    network = standardized(TableNetwork(3, 2), [0.0, 5.0, 1e6], [2.0, 0.0, 1e-10])
    assert network.scale.tolist() == [2.0, 1.0, 1.0]


def test_small_scales_are_kept_where_the_mean_is_small():
    network = standardized(TableNetwork(2, 2), [0.0, 1e-6], [1e-8, 1e-6])
    assert network.scale.tolist() == pytest.approx([1e-8, 1e-6])


def test_mean_and_scale_are_saved_with_the_weights_and_not_trained():
    network = standardized(TableNetwork(2, 2), [1.0, 2.0], [3.0, 4.0])
    loaded = TableNetwork(2, 2)
    loaded.load_state_dict(network.state_dict())
    assert loaded.mean.tolist() == [1.0, 2.0]
    assert loaded.scale.tolist() == [3.0, 4.0]
    assert {"mean", "scale"}.isdisjoint(name for name, _ in network.named_parameters())


def test_blocks_are_linear_relu_dropout_and_end_in_a_linear_layer():
    network = TableNetwork(4, 3, hidden=(8, 5), dropout=0.2, noise=0.1)
    kinds = [type(layer) for layer in network.layers]
    assert kinds == [nn.Linear, nn.ReLU, Dropout, nn.Linear, nn.ReLU, Dropout, nn.Linear]
    assert [layer.p for layer in network.layers if isinstance(layer, nn.Dropout)] == [0.2, 0.2]
    assert [layer.out_features for layer in network.layers if isinstance(layer, nn.Linear)] == [8, 5, 3]


def test_noise_is_measured_by_the_nearest_other_row():
    """The nearest to 0, 1, 3 and 7 are 1, 0, 1 and 3: differences of 1, 1, 2 and 4, which is shortened to 3."""
    rows = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    network = TableNetwork(1, 2, noise=0.5)
    network.standardize(lambda: rows.split(3))
    expected = ((1 + 1 + 4 + 9) / 4) ** 0.5 / rows.std(0, correction=0)
    torch.testing.assert_close(network.directions.abs().flatten(), expected)


@pytest.mark.parametrize(("count", "step"), [(700, 1), (3000, 4)])
def test_the_noise_has_the_covariance_of_differences_to_the_neighbors_that_scikit_learn_finds(count, step):
    mix = torch.tensor([[1.0, 0.5, 0.0], [0.0, 5.0, 0.0], [0.0, 0.1, 0.1]])
    rows = torch.randn(count, 3, generator=torch.Generator().manual_seed(0)) @ mix
    network = TableNetwork(3, 2, noise=1.0)
    network.standardize(lambda: rows.split(256))
    z = ((rows - rows.mean(0)) / rows.std(0, correction=0)).numpy()
    nearest = NearestNeighbors(n_neighbors=2).fit(z).kneighbors(z)[1][:, 1]
    differences = (z[nearest] - z)[::step]
    lengths = np.linalg.norm(differences, axis=1, keepdims=True)
    differences *= np.minimum(1, 3 * np.median(lengths) / lengths)  # the median of an even number may be either of two
    expected = differences.T @ differences / len(differences)
    np.testing.assert_allclose((network.directions.T @ network.directions).numpy(), expected, rtol=0.01, atol=1e-6)


def test_a_row_far_from_all_others_does_not_set_the_noise():
    rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    lengths = []
    for outlier in (0.0, 1e4):
        rows[0] = outlier
        network = TableNetwork(3, 2, noise=1.0)
        network.standardize(lambda: [rows])
        lengths.append(torch.linalg.matrix_norm(network.directions * network.scale))
    assert lengths[1] < 1.1 * lengths[0]


def test_few_rows_and_wide_tables_have_noise_too():
    few = TableNetwork(5, 2, noise=1.0)
    few.standardize(lambda: [torch.eye(5)[:2]])
    assert few.directions.shape == (5, 5)
    assert torch.linalg.matrix_rank(few.directions) == 1
    wide = TableNetwork(300, 2, noise=1.0)
    rows = torch.randn(400, 300, generator=torch.Generator().manual_seed(0))
    wide.standardize(lambda: rows.split(100))
    assert wide.directions.shape == (128, 300)
    alone = TableNetwork(3, 2, noise=1.0)
    alone.standardize(lambda: [torch.ones(1, 3)])
    assert not alone.directions.any()


def test_noise_is_added_in_training_only_and_is_not_part_of_mc_dropout():
    network = TableNetwork(3, 2, dropout=0.0, noise=0.5)
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    network.standardize(lambda: [x])
    network.train()
    assert not torch.equal(network(x), network(x))
    with stochastic_mode(network):
        assert torch.equal(network(x), network(x))
    seen = []
    network.layers.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    for _ in range(400):
        network(x)
    noise = torch.stack(seen) - network._standardized(x)
    covariance = torch.cov(noise.reshape(-1, 3).T)
    torch.testing.assert_close(covariance, 0.25 * network.directions.T @ network.directions, rtol=0.1, atol=1e-3)
    assert "directions" not in network.state_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8])
def test_rows_of_any_number_type_give_float32_logits(dtype):
    logits = TableNetwork(3, 2).eval()(torch.ones(5, 3, dtype=dtype))
    assert logits.shape == (5, 2)
    assert logits.dtype == torch.float32


def test_samples_with_more_dimensions_are_flattened():
    network = TableNetwork(6, 2).eval()
    x = torch.arange(12.0).reshape(2, 2, 3)
    assert torch.equal(network(x), network(x.reshape(2, 6)))


def test_it_can_be_moved_to_float64():
    logits = TableNetwork(3, 2).double()(torch.ones(1, 3, dtype=torch.float64))
    assert logits.dtype == torch.float64


def test_gradients_reach_every_parameter():
    torch.manual_seed(0)
    network = standardized(TableNetwork(3, 2, hidden=(16,)), [0.1, 0.2, 0.3], [1.0, 2.0, 3.0])
    network(torch.randn(32, 3)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 1.0}, r"'dropout' argument must be a number in \[0, 1\). Got 1.0 instead; 0.3 is a common rate"),
        ({"noise": -0.1}, r"'noise' argument must be a number in \[0, 1000\]. Got -0.1"),
        ({"noise": None}, "'noise' argument must be a number"),
        ({"hidden": (8, 0)}, "'hidden' argument must be a whole number of at least 1. Got 0"),
    ],
)
def test_wrong_options_name_the_argument_and_the_value(options, message):
    with pytest.raises(InvalidInputError, match=message):
        TableNetwork(3, 2, **options)


def test_no_features_or_no_classes_are_refused():
    with pytest.raises(InvalidInputError, match=r"'num_features' argument must be a whole number of at least 1. Got 0"):
        TableNetwork(0, 2)
    with pytest.raises(InvalidInputError, match=r"'num_classes' argument must be a whole number of at least 1. Got 0"):
        TableNetwork(2, 0)


def test_rows_of_another_width_are_refused():
    with pytest.raises(InvalidInputError, match=r"takes rows of 3 features. Got rows of 4; pass the columns"):
        TableNetwork(3, 2)(torch.zeros(1, 4))


def test_features_that_belong_together_share_a_scale() -> None:
    rows = torch.tensor([[0.0, 3.0, 0.0, 0.0], [2.0, -3.0, 4.0, 0.0], [0.0, 3.0, 0.0, 0.0], [2.0, -3.0, 4.0, 0.0]])
    network = TableNetwork(4, 2, together=((1, 3), (3, 4)))
    network.standardize(lambda: [rows])
    # The spreads are 1, 3, 2 and 0; the root of the mean square of 3 and 2 is sqrt(6.5).
    assert torch.allclose(network.scale, torch.tensor([1.0, 6.5**0.5, 6.5**0.5, 1.0], dtype=torch.float64))
