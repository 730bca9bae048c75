import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from surelabel.augment.settings import AugmentSettings
from surelabel.core.selection import Selection
from surelabel.data.training_set import make_problem
from surelabel.engine.muon import orthogonal
from surelabel.engine.optimizer import learning_rate, make_optimizer
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.train import Trainer
from surelabel.errors import InvalidInputError
from surelabel.methods.ups import UPSMethod
from surelabel.models.cnn13 import CNN13
from tests.engine.plain import train_plainly

CPU = torch.device("cpu")


def learning_rates(steps: int = 4, size: int = 128, **changes: Any) -> list[float]:
    settings = TrainingSettings(**{"learning_rate": 2.0, **changes})
    return [learning_rate(settings, step, steps, size) for step in range(steps)]


def test_the_cosine_anneals_to_zero() -> None:
    assert learning_rates() == pytest.approx([2.0, 1 + math.cos(math.pi / 4), 1.0, 1 - math.cos(math.pi / 4)])


def test_the_published_cosine_ends_at_a_fifth() -> None:
    rates = learning_rates(1000, schedule="cosine-7/16")
    assert rates[0] == 2.0
    assert rates[-1] / 2 == pytest.approx(0.195, abs=0.002)


def test_a_warm_up_rises_to_the_rate_before_the_schedule() -> None:
    assert learning_rates(8, schedule="linear", warmup=0.5) == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0, 1.5, 1.0, 0.5])


def test_the_rate_can_grow_with_the_batch() -> None:
    assert learning_rates(1, size=512, reference_batch_size=128) == [8.0]


def test_the_rate_grows_with_the_rows_that_a_batch_really_has() -> None:
    """Of 20 labels no batch has 512."""
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    rows = make_problem((x[:20], np.arange(20) % 2), x[20:], "single").training_set(None)
    settings = TrainingSettings(batch_size=512, reference_batch_size=128, learning_rate=0.5, schedule="constant")
    trainer = Trainer(settings.replace(epochs=1), CPU)
    trainer.train(nn.Linear(3, 2), rows, UPSMethod("single", settings), seed=0)
    assert trainer._step is not None
    assert trainer._step.inputs.rate.item() == pytest.approx(0.5 * 20 / 128)


def test_labels_on_top_count_for_the_rate_in_every_round() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    problem = make_problem((x[:20], np.arange(20) % 2), x[20:], "single")
    positive = np.zeros((40, 2), dtype=bool)
    positive[:, 0] = True
    settings = TrainingSettings(batch_size=8, labeled_batch_size=8, reference_batch_size=8, schedule="constant")
    for selection in (None, Selection(positive, ~positive & False)):
        trainer = Trainer(settings.replace(epochs=1), CPU)
        trainer.train(nn.Linear(3, 2), problem.training_set(selection), UPSMethod("single", settings), seed=0)
        assert trainer._step is not None
        assert trainer._step.inputs.rate.item() == pytest.approx(0.03 * 16 / 8)


def test_the_papers_optimizer_is_the_default() -> None:
    optimizer = make_optimizer(torch.nn.Linear(2, 2), TrainingSettings(), torch.tensor(0.03))
    assert isinstance(optimizer, torch.optim.SGD)
    (group,) = optimizer.param_groups
    assert (group["momentum"], group["nesterov"], group["weight_decay"]) == (0.9, True, 0.0)


def decays(network: nn.Module) -> dict[str, float]:
    settings = TrainingSettings(weight_decay=0.1, decay_all=False)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    groups = make_optimizer(network, settings, torch.tensor(0.1)).param_groups
    return {names[id(parameter)]: group["weight_decay"] for group in groups for parameter in group["params"]}


def test_norms_and_biases_can_be_spared_the_weight_decay() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert decays(network) == {"0.weight": 0.1, "0.bias": 0.0, "1.weight": 0.0, "1.bias": 0.0}


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm3d(2),
        nn.SyncBatchNorm(2),
        nn.InstanceNorm2d(2, affine=True),
        nn.LayerNorm((3, 4, 4)),
        nn.GroupNorm(1, 2),
        nn.RMSNorm((4, 4)),
    ],
    ids=lambda norm: type(norm).__name__,
)
def test_norms_of_any_shape_are_spared(norm: nn.Module) -> None:
    assert decays(nn.Sequential(nn.Linear(2, 2, bias=False), norm)).pop("0.weight") == 0.1
    assert set(decays(norm).values()) == {0.0}


def test_biases_of_any_shape_are_spared() -> None:
    network = nn.Linear(2, 2)
    network.relative_bias = nn.Parameter(torch.zeros(3, 3))
    network.table = nn.Parameter(torch.zeros(3, 3))
    assert decays(network) == {"weight": 0.1, "bias": 0.0, "relative_bias": 0.0, "table": 0.1}
    spared = {name for name, decay in decays(nn.LSTM(2, 2)).items() if decay == 0}
    assert spared == {"bias_ih_l0", "bias_hh_l0"}


@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.weight_norm:FutureWarning")
def test_the_sizes_of_weight_norm_are_spared_and_the_directions_are_not() -> None:
    new, old = parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), nn.utils.weight_norm(nn.Conv2d(3, 8, 3))
    weight = "parametrizations.weight.original"
    assert decays(new) == {"bias": 0.0, f"{weight}0": 0.0, f"{weight}1": 0.1}
    assert decays(old) == {"bias": 0.0, "weight_g": 0.0, "weight_v": 0.1}


def test_frozen_parameters_are_left_alone() -> None:
    network = torch.nn.Linear(2, 2)
    network.bias.requires_grad_(False)
    optimizer = make_optimizer(network, TrainingSettings(optimizer="adamw"), torch.tensor(0.1))
    assert len(optimizer.param_groups[0]["params"]) == 1


@pytest.mark.parametrize(("rows", "columns"), [(8, 27), (27, 8), (16, 16)])
def test_muon_takes_the_orthogonal_matrix_next_to_a_gradient(rows: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(2, rows, columns, generator=generator)
    found = orthogonal(gradients)
    for gradient, matrix in zip(gradients, found, strict=True):
        u, _, v = torch.linalg.svd(gradient, full_matrices=False)
        values = u.T @ matrix @ v.T
        assert 0.5 < values.diagonal().min() <= values.diagonal().max() < 1.3
        assert (values - values.diagonal().diag()).abs().max() < 1e-3
    torch.testing.assert_close(orthogonal(1000 * gradients), found)
    torch.testing.assert_close(orthogonal(gradients, torch.bfloat16), found, atol=0.05, rtol=0)
    assert torch.isfinite(orthogonal(torch.zeros(1, rows, columns))).all()


def test_muon_turns_each_matrix_by_a_tenth_of_the_rate_whatever_the_gradient_and_keeps_its_size() -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, bias=False), nn.Conv2d(8, 4, 1), nn.Conv3d(2, 4, 3)
    network = nn.Sequential(layers[0], nn.BatchNorm2d(8), layers[1], nn.BatchNorm2d(4), layers[2])
    optimizer = make_optimizer(network, TrainingSettings(optimizer="muon", weight_decay=0.5), torch.tensor(0.5))
    for scale in (1e-6, 1e3):
        before = [layer.weight.detach().clone() for layer in layers]
        for parameter in network.parameters():
            parameter.grad = scale * torch.randn_like(parameter)
        optimizer.step()
        for old, layer in zip(before, layers, strict=True):
            new = layer.weight.detach()
            assert float(new.norm() / old.norm()) == pytest.approx(1, rel=1e-5)
            # A random direction is nearly orthogonal to the weights.
            assert float((new - old).norm() / old.norm()) == pytest.approx(0.05, rel=0.05)


def test_muon_leaves_all_but_the_weights_of_convolutions_to_sgd() -> None:
    def network() -> nn.Sequential:
        torch.manual_seed(0)
        parts = nn.Conv2d(4, 4, 3), nn.LayerNorm([4, 2, 2]), nn.Conv2d(4, 4, 1, groups=2), nn.ConvTranspose2d(4, 2, 3)
        network = nn.Sequential(*parts)
        network.position = nn.Parameter(torch.randn(1, 4, 8))
        return network

    settings, rate = TrainingSettings(learning_rate=0.1, weight_decay=0.01), torch.tensor(0.1)
    trained = []
    for name in ("sgd", "muon"):
        one = network()
        optimizer = make_optimizer(one, settings.replace(optimizer=name), rate)
        for _ in range(3):
            for parameter in one.parameters():
                parameter.grad = parameter.detach().sin()
            optimizer.step()
        trained.append(dict(one.named_parameters()))
    same = [name for name in trained[0] if torch.allclose(trained[0][name], trained[1][name])]
    assert set(trained[0]) - set(same) == {"0.weight"}


@pytest.mark.parametrize(
    ("network", "what"),
    [
        (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), "trainable convolution"),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 1)), "norm layer"),
    ],
)
def test_muon_refuses_networks_that_it_is_not_meant_for(network: nn.Module, what: str) -> None:
    with pytest.raises(InvalidInputError, match=f"this network has no {what}. Choose 'sgd' or 'adamw'"):
        make_optimizer(network, TrainingSettings(optimizer="muon"), torch.tensor(0.1))


@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 0.05), ("adamw", 0.003), ("muon", 0.1)])
def test_the_engine_agrees_with_the_plain_loop_on_cnn13_weight_by_weight(optimizer: str, rate: float) -> None:
    images = np.random.default_rng(0).integers(0, 256, size=(48, 3, 16, 16), dtype=np.uint8)
    positive, negative = np.zeros((32, 4), dtype=bool), np.zeros((32, 4), dtype=bool)
    positive[np.arange(16), np.arange(16) % 4] = True
    negative[16:, :2] = True
    problem = make_problem((images[:16], np.arange(16) % 4), images[16:], "single")
    rows = problem.training_set(Selection(positive, negative))
    settings = TrainingSettings(
        optimizer=optimizer,
        learning_rate=rate,
        batch_size=16,
        steps=20,
        weight_decay=5e-4,
        decay_all=False,
        augment=AugmentSettings(flip=True, crop=2),
    )
    networks = []
    for _ in range(2):
        torch.manual_seed(0)
        networks.append(CNN13((3, 16, 16), 4, width=8, dropout=0.0, weight_norm=True))
    method = UPSMethod("single", settings)
    train_plainly(networks[0], rows, method, settings, seed=0, device=CPU)
    Trainer(settings, CPU).train(networks[1], rows, method, seed=0)
    for reference, trained in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        # Muon's products of matrices round differently when they are taken together.
        torch.testing.assert_close(trained, reference, rtol=1e-4, atol=1e-6 if optimizer == "muon" else 0)
