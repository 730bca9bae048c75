"""Deep ensembles: several networks as one, each trained from a seed of its own."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from estimator_support import (
    QUICK,
    SIDE,
    STEPS,
    fitted,
    labeled,
    learner,
    links,
    pictures,
    pseudo_labels,
    small_network,
    training_set,
)
from torch import Tensor, nn

from surelabel.core.labels import Task
from surelabel.core.selection import Selection
from surelabel.data.draws import seed_for
from surelabel.data.source import ArraySource
from surelabel.data.training_set import make_problem
from surelabel.engine.step import Step
from surelabel.engine.train import Trainer
from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.learners.network import TorchLearner
from surelabel.models.ensemble import Ensemble
from surelabel.models.table import TableNetwork
from surelabel.uncertainty import DeepEnsemble, MCDropout

pytestmark = pytest.mark.usefixtures("seeded")


@links
def test_an_ensemble_has_the_mean_probability_of_its_networks(task: Task, link: Callable[..., Any]) -> None:
    networks = [nn.Linear(4, 3).double() for _ in range(3)]
    batch = 5 * torch.randn(7, 4, dtype=torch.float64)
    expected = link(np.stack([network(batch).detach().numpy() for network in networks])).mean(axis=0)
    np.testing.assert_allclose(link(Ensemble(networks, task)(batch).detach().numpy()), expected, atol=1e-12)


@pytest.mark.parametrize("task", ["single", "multi"])
def test_extreme_logits_stay_finite_and_exact(task: Task) -> None:
    z = Ensemble([nn.Identity(), nn.Identity()], task)(torch.tensor([[200.0, -200.0]]))
    expected = torch.tensor([[0.0, -400.0]] if task == "single" else [[200.0, -200.0]])
    torch.testing.assert_close(z, expected)
    half = Ensemble([nn.Identity()], task)(torch.zeros(1, 2, dtype=torch.bfloat16))
    assert half.dtype == torch.float32


def test_a_network_that_works_in_place_does_not_reach_the_next() -> None:
    batch = torch.tensor([[-1.0, 2.0]])
    alone = DeepEnsemble(members=2).estimate(Ensemble([nn.ReLU(), nn.Identity()]), batch)
    inplace = Ensemble([nn.ReLU(inplace=True), nn.Identity()])
    assert torch.equal(DeepEnsemble(members=2).estimate(inplace, batch).p, alone.p)
    torch.testing.assert_close(torch.softmax(inplace(batch), dim=1), alone.p)


def test_an_ensemble_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'networks' argument is empty"):
        Ensemble([])


@links
def test_members_give_mean_and_spread_of_the_probabilities(task: Task, link: Callable[..., Any]) -> None:
    networks = [small_network((1, SIDE, SIDE), 3) for _ in range(4)]
    batch = torch.from_numpy(pictures()[0][:6])
    estimate = DeepEnsemble(members=4, temperature=3.0, task=task).estimate(Ensemble(networks, task), batch, check=True)
    with torch.no_grad():
        z = torch.stack([network.eval()(batch) for network in networks]).double().numpy()
    p, u, p_soft, u_soft = estimate
    for mean, spread, passes in ((p, u, link(z)), (p_soft, u_soft, link(z / 3))):
        np.testing.assert_allclose(mean, passes.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(spread, passes.std(axis=0, ddof=1), atol=1e-6)


def test_an_ensemble_estimate_agrees_with_its_deterministic_prediction() -> None:
    made = fitted(DeepEnsemble(members=3))
    np.testing.assert_allclose(labeled(made)[0], made.predict_proba(ArraySource(pictures()[0])), atol=1e-6)


@pytest.mark.parametrize("members", [1, 0, 2.5, "5"])
def test_an_ensemble_needs_two_members(members: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"'members' argument must be a whole number of at least 2. Got"):
        DeepEnsemble(members=members)


def test_a_model_that_is_no_ensemble_of_this_size_is_refused() -> None:
    batch = torch.zeros(1, 3)
    with pytest.raises(InvalidInputError, match=r"must be an Ensemble of 5 networks. Got Linear instead; train the"):
        DeepEnsemble().estimate(nn.Linear(3, 2), batch)
    with pytest.raises(InvalidInputError, match=r"must be an Ensemble of 5 networks. Got one of 2 instead"):
        DeepEnsemble().estimate(Ensemble([nn.Identity(), nn.Identity()]), batch)


def test_members_that_are_one_network_are_named() -> None:
    only = small_network((1, SIDE, SIDE), 3)
    made = fitted(DeepEnsemble(members=2), model=lambda shape, classes: only)
    with pytest.raises(NotStochasticError, match=r"All 2 networks gave the same output.*newly drawn"):
        labeled(made)


def states(network: nn.Module | None) -> list[dict[str, Tensor]]:
    assert isinstance(network, Ensemble)
    return [member.state_dict() for member in network.networks]


def assert_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("shares", [False, True])
def test_each_member_is_the_network_that_its_seed_alone_would_train(
    monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    monkeypatch.setattr(Trainer, "shares", shares)
    made: list[None] = []
    capture = Step.capture
    monkeypatch.setattr(Step, "capture", lambda self: made.append(None) or capture(self))
    network = fitted(DeepEnsemble(members=3), seed=5).network
    assert len(made) == (1 if shares else 3)  # one costly step serves all members
    for member, state in enumerate(states(network)):
        alone = fitted(MCDropout(), seed=seed_for(5, "member", member)).network
        assert alone is not None
        assert_equal(state, alone.state_dict())


@pytest.mark.parametrize("shares", [False, True])
def test_a_warm_start_begins_each_member_with_its_own_weights(monkeypatch: pytest.MonkeyPatch, shares: bool) -> None:
    monkeypatch.setattr(Trainer, "shares", shares)
    training = QUICK.replace(warm_start=True, learning_rate=1e-12)
    made = fitted(DeepEnsemble(members=3), training=training)
    first = copy.deepcopy(states(made.network))
    made.fit(training_set(selection=pseudo_labels()), seed=1)
    for before, after in zip(first, states(made.network), strict=True):
        torch.testing.assert_close(before["5.weight"], after["5.weight"])
    assert not torch.allclose(first[0]["5.weight"], first[1]["5.weight"])


def test_a_warm_start_needs_no_pool() -> None:
    """What a round selects may be unknown entries of labeled rows alone."""
    y = np.tile([[1, 0], [0, 1], [1, -1]], (10, 1))
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    problem = make_problem((x, y), None, "multi")
    training = QUICK.replace(warm_start=True, learning_rate=1e-12)
    learner = TorchLearner(lambda shape, classes: nn.Linear(*shape, classes), training=training, task="multi")
    learner.fit(problem.training_set(None), seed=0)
    first = copy.deepcopy(learner.network.state_dict())
    selected = np.zeros((10, 2), dtype=bool)
    learner.fit(problem.training_set(Selection(selected, ~selected)), seed=1)
    torch.testing.assert_close(learner.network.state_dict(), first)


def test_a_warm_start_without_the_members_weights_says_so() -> None:
    made = fitted(MCDropout(), training=QUICK.replace(warm_start=True))
    made.uncertainty = DeepEnsemble(members=2)
    with pytest.raises(InvalidInputError, match=r"warm_start=True begins a round with the last round's network"):
        made.fit(training_set(selection=pseudo_labels()), seed=1)


def test_the_progress_of_members_is_that_of_one_long_training() -> None:
    seen: list[tuple[str, int, int]] = []
    fitted(DeepEnsemble(members=3), progress=lambda *what: seen.append(what))
    assert seen == [("train", step, 3 * STEPS) for step in range(1, 3 * STEPS + 1)]


@pytest.mark.parametrize("shares", [False, True])
def test_a_fit_that_fails_keeps_all_members(monkeypatch: pytest.MonkeyPatch, shares: bool) -> None:
    monkeypatch.setattr(Trainer, "shares", shares)
    made = fitted(DeepEnsemble(members=2))
    kept = made.to_bytes()
    train, calls = Trainer.train, []

    def fails(self: Trainer, *arguments: Any, **rest: Any) -> nn.Module:
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(self, *arguments, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train", fails)
        with pytest.raises(KeyboardInterrupt):
            made.fit(training_set(), seed=1)
    assert made.to_bytes() == kept
    made.fit(training_set(), seed=1)
    assert made.to_bytes() == fitted(DeepEnsemble(members=2), seed=1).to_bytes() != kept


def test_members_of_a_table_are_exact_and_small_as_one_network_is() -> None:
    """Time stamps, which float32 cannot tell apart: an ensemble of table networks reads them in float64 too."""
    y = np.arange(60) % 3
    x = 1e9 + (np.random.default_rng(0).normal(size=(60, 4)) + 4.0 * np.eye(3, 4)[y])
    made = learner(DeepEnsemble(members=2), model=None)
    made.fit(make_problem((x[:30], y[:30]), x[30:], "single").training_set(None), seed=0)
    assert isinstance(made.network, Ensemble)
    assert all(isinstance(member, TableNetwork) for member in made.network.networks)
    assert (made.predict_proba(ArraySource(x)).argmax(axis=1) == y).mean() > 0.9


def test_weights_of_another_number_of_members_are_named() -> None:
    made = fitted(DeepEnsemble(members=2))
    for estimator in (DeepEnsemble(members=3), MCDropout()):
        with pytest.raises(InvalidInputError, match="weights do not fit.*Use the model and estimator"):
            learner(estimator).from_bytes(made.to_bytes(), sample_shape=(1, SIDE, SIDE), num_classes=3)
