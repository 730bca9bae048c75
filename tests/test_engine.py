import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

import surelabel as sl
from surelabel.data.source import ArraySource
from surelabel.data.training_set import make_problem
from surelabel.engine.train import TrainingSettings, gather, make_optimizer, set_learning_rate, train
from surelabel.losses import learning_rule
from surelabel.selection import Selection

CPU = torch.device("cpu")
X = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
Y = np.arange(10) % 2


def learning_rates(schedule: str, steps: int = 4) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    settings = TrainingSettings(schedule=schedule, learning_rate=2.0)
    rates = []
    for step in range(steps):
        set_learning_rate(optimizer, settings, step / steps)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def test_the_cosine_anneals_to_zero() -> None:
    assert learning_rates("cosine") == pytest.approx([2.0, 1 + math.cos(math.pi / 4), 1.0, 1 - math.cos(math.pi / 4)])


def test_the_published_cosine_ends_at_a_fifth() -> None:
    rates = learning_rates("cosine-7/16", steps=1000)
    assert rates[0] == 2.0
    assert rates[-1] / 2 == pytest.approx(0.195, abs=0.002)


def test_the_papers_optimizer_is_the_default() -> None:
    optimizer = make_optimizer(torch.nn.Linear(2, 2), TrainingSettings())
    assert isinstance(optimizer, torch.optim.SGD)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (0.03, 0.9, True, 0.0)


def test_frozen_parameters_are_left_alone() -> None:
    network = torch.nn.Linear(2, 2)
    network.bias.requires_grad_(False)
    assert len(make_optimizer(network, TrainingSettings(optimizer="adamw")).param_groups[0]["params"]) == 1


class Recorder(torch.nn.Module):
    """A linear network that remembers the batches it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.batches: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.batches.append(x.detach().clone())
        return self.linear(x)


def fit(settings: TrainingSettings, selection: Selection | None = None, seed: int = 0) -> Recorder:
    problem = make_problem((X[:4], Y[:4]), X[4:], "single")
    torch.manual_seed(0)
    network = Recorder()
    train(network, problem.training_set(selection), learning_rule, settings, seed=seed, device=CPU)
    return network


def test_training_is_plain_stochastic_gradient_descent() -> None:
    """An independent loop, written with torch's own cross-entropy, ends with the same weights."""
    settings = TrainingSettings(batch_size=2, epochs=3)
    network = fit(settings)
    torch.manual_seed(0)
    reference = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    label_of = {tuple(row.tolist()): int(label) for row, label in zip(X, Y, strict=True)}
    for step, batch in enumerate(network.batches):
        optimizer.param_groups[0]["lr"] = 0.03 * 0.5 * (1 + math.cos(math.pi * step / 6))
        optimizer.zero_grad()
        target = torch.tensor([label_of[tuple(row.tolist())] for row in batch])
        torch.nn.functional.cross_entropy(reference(batch), target).backward()
        optimizer.step()
    assert len(network.batches) == 6
    torch.testing.assert_close(network.linear.weight, reference.weight, rtol=1e-5, atol=1e-7)


def test_every_epoch_sees_every_row_once_in_another_order() -> None:
    epochs = [batch[:, 0].tolist() for batch in fit(TrainingSettings(batch_size=4, epochs=5)).batches]
    assert all(sorted(epoch) == sorted(X[:4, 0].tolist()) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_small_sets_are_repeated_until_the_least_number_of_steps() -> None:
    assert len(fit(TrainingSettings(batch_size=4, epochs=1, min_steps=7)).batches) == 7
    assert len(fit(TrainingSettings(batch_size=3, epochs=1, min_steps=7)).batches) == 8  # whole epochs of 2 steps


def test_batches_mix_labeled_positive_and_negative_rows_in_proportion() -> None:
    positive, negative = np.zeros((6, 2), dtype=bool), np.zeros((6, 2), dtype=bool)
    positive[:4, 0] = True
    negative[:, 1] = True
    network = fit(TrainingSettings(batch_size=5, epochs=4), Selection(positive, negative))
    kind_of = {
        tuple(row.tolist()): "labeled" if i < 4 else "positive" if i < 8 else "negative" for i, row in enumerate(X)
    }
    for batch in network.batches:
        kinds = [kind_of[tuple(row.tolist())] for row in batch]
        assert (kinds.count("labeled"), kinds.count("positive"), kinds.count("negative")) == (2, 2, 1)


def test_no_batch_is_left_with_a_single_row() -> None:
    sizes = [len(batch) for batch in fit(TrainingSettings(batch_size=3, epochs=1)).batches]
    assert sizes == [2, 2]


def test_rows_with_nothing_to_learn_from_are_not_seen() -> None:
    nothing = np.zeros((6, 2), dtype=bool)
    assert all(len(batch) == 4 for batch in fit(TrainingSettings(epochs=2), Selection(nothing, nothing)).batches)


def test_sparse_rows_become_dense_and_integers_stay() -> None:
    assert gather(ArraySource(csr_matrix(X)), np.array([1, 0]), CPU).tolist() == X[[1, 0]].tolist()
    assert gather(ArraySource(X.astype(np.float64)), np.array([0]), CPU).dtype == torch.float32
    assert gather(ArraySource(np.ones((2, 3), dtype=np.int64)), np.array([0]), CPU).dtype == torch.int64


def test_divergence_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="Training diverged.*Lower the learning rate"):
        fit(TrainingSettings(learning_rate=1e38, epochs=20, schedule="constant"))


def test_progress_is_told() -> None:
    seen: list[tuple[str, int, int]] = []
    problem = make_problem((X[:4], Y[:4]), X[4:], "single")
    train(
        Recorder(),
        problem.training_set(None),
        learning_rule,
        sl.TrainingSettings(batch_size=2, epochs=2),
        seed=0,
        device=CPU,
        progress=lambda *values: seen.append(values),
    )
    assert seen == [("train", step, 4) for step in (1, 2, 3, 4)]
