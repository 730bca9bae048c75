"""Every estimator of p and u: alone, and through the learner that trains for it."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from estimator_support import (
    SIDE,
    each,
    fitted,
    fitted_once,
    labeled,
    learner,
    links,
    pictures,
    small_network,
    training_set,
)
from torch import Tensor, nn

from surelabel.augment.chain import Augment
from surelabel.augment.settings import AugmentSettings
from surelabel.core.labels import Task
from surelabel.data.source import ArraySource
from surelabel.engine.train import Trainer
from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.learners.network import TorchLearner
from surelabel.learners.preflight import check_random
from surelabel.models.dropout import DropBlock2d, SpatialDropout2d
from surelabel.uncertainty import (
    DeepEnsemble,
    Deterministic,
    MCDropBlock,
    MCDropout,
    MCSpatialDropout,
    RandomAugmentation,
    Uncertainty,
    UncertaintyEstimator,
)

pytestmark = pytest.mark.usefixtures("seeded")


@each
@pytest.mark.parametrize("task", ["single", "multi"])
def test_an_estimator_says_how_sure_a_learner_is(make: Callable[..., UncertaintyEstimator], task: Task) -> None:
    made = fitted_once(make, task)
    p, u, p_soft, u_soft = labeled(made)
    y = pictures()[1]
    assert p.shape == u.shape == p_soft.shape == u_soft.shape == (60, 3)
    assert (p.argmax(axis=1) == y).mean() > 0.9
    assert (u >= 0).all()
    assert (u.max(axis=1) > 0).all()
    assert np.abs(p_soft - 0.5).mean() < np.abs(p - 0.5).mean()
    assert (made.predict_proba(ArraySource(pictures()[0])).argmax(axis=1) == y).mean() > 0.9


@each
def test_the_same_seeds_give_the_same_bits(make: Callable[..., UncertaintyEstimator]) -> None:
    first, second, other = (labeled(one) for one in (fitted_once(make), fitted(make()), fitted(make(), seed=1)))
    for one, same in zip(first, second, strict=True):
        assert np.array_equal(one, same)
    assert not np.array_equal(first[0], other[0])


@each
def test_labeling_with_another_seed_moves_only_what_is_drawn(make: Callable[..., UncertaintyEstimator]) -> None:
    made = fitted_once(make)
    differ = not np.array_equal(labeled(made, seed=1)[0], labeled(made, seed=2)[0])
    assert differ != isinstance(made.uncertainty, DeepEnsemble)


@each
def test_a_saved_and_a_copied_model_say_the_same(make: Callable[..., UncertaintyEstimator]) -> None:
    made, again = fitted_once(make), learner(make())
    again.from_bytes(made.to_bytes(), sample_shape=(1, SIDE, SIDE), num_classes=3)
    for other in (again, copy.copy(made)):
        assert str(other.network) == str(made.network)
        assert other.to_bytes() == made.to_bytes()
        for one, same in zip(labeled(other), labeled(made), strict=True):
            assert np.array_equal(one, same)


@each
def test_an_estimator_leaves_modes_batch_and_statistics_alone(make: Callable[..., UncertaintyEstimator]) -> None:
    made = copy.copy(fitted_once(make))
    assert made.network is not None
    made.network.train()
    batch = torch.from_numpy(pictures()[0][:5])
    before = {name: value.clone() for name, value in made.network.state_dict().items()}
    kept = batch.clone()
    made.uncertainty.estimate(made.network, batch, check=True)
    assert all(module.training for module in made.network.modules())
    assert torch.equal(batch, kept)
    assert all(torch.equal(value, before[name]) for name, value in made.network.state_dict().items())


@each
def test_an_empty_batch_gives_empty_arrays_but_cannot_be_checked(make: Callable[..., UncertaintyEstimator]) -> None:
    made = fitted_once(make)
    assert made.network is not None
    empty = torch.zeros(0, 1, SIDE, SIDE)
    assert made.uncertainty.estimate(made.network, empty).p.shape == (0, 3)
    with pytest.raises(InvalidInputError, match=r"'batch' argument has no samples"):
        made.uncertainty.estimate(made.network, empty, check=True)


@each
def test_wrong_temperatures_and_tasks_are_refused(make: Callable[..., UncertaintyEstimator]) -> None:
    with pytest.raises(InvalidInputError, match=r"'temperature' argument must be a number in"):
        make(temperature=0.0)
    with pytest.raises(InvalidInputError, match=r"'task' argument must be one of 'single'"):
        make(task="both")


# Layers in the place of dropout.


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (MCSpatialDropout(), "SpatialDropout2d(p=0.3, inplace=False)"),
        (MCSpatialDropout(rate=0.2), "SpatialDropout2d(p=0.2, inplace=False)"),
        (MCDropBlock(), "DropBlock2d(keep_probability=0.9, block_size=7)"),
        (MCDropBlock(keep_probability=0.8, block_size=3), "DropBlock2d(keep_probability=0.8, block_size=3)"),
    ],
)
def test_a_network_is_trained_with_the_layers_that_label(estimator: MCDropout, expected: str) -> None:
    made = fitted(estimator)
    assert isinstance(made.network, nn.Sequential)
    assert str(made.network[3]) == expected
    assert made.to_bytes() != fitted_once(MCDropout).to_bytes()


@pytest.mark.parametrize(
    ("layer", "stays", "changes", "rate"),
    [
        (nn.Dropout2d(0.6), MCSpatialDropout(), MCSpatialDropout(rate=0.2), 0.2),
        (SpatialDropout2d(0.6), MCSpatialDropout(), MCSpatialDropout(rate=0.2), 0.2),
        (DropBlock2d(0.4, 2), MCDropBlock(), MCDropBlock(keep_probability=0.5), 0.5),
        (DropBlock2d(0.4, 2), MCDropBlock(), MCDropBlock(block_size=3), 0.1),
    ],
)
def test_layers_that_are_there_already_stay_unless_parameters_are_given(
    layer: nn.Module, stays: MCDropout, changes: MCDropout, rate: float
) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), layer)
    stays.prepare(model)
    assert model[1] is layer
    changes.prepare(model)
    assert model[1] is not layer
    assert model[1].p == pytest.approx(rate)


@pytest.mark.parametrize("estimator", [MCSpatialDropout(), MCDropBlock()])
def test_networks_that_cannot_drop_maps_are_named(estimator: MCDropout) -> None:
    with pytest.raises(InvalidInputError, match=r"takes maps \(N, C, H, W\).* Got shape"):
        fitted(estimator, model=None)  # a table's network drops single features
    with pytest.raises(InvalidInputError, match=r"must have nn.Dropout.* Got Sequential without any"):
        fitted(estimator, model=lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(64, classes)))


def test_wrong_rates_and_blocks_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'rate' argument must be a number in \(0, 1\). Got 1 instead"):
        MCSpatialDropout(rate=1)
    with pytest.raises(InvalidInputError, match=r"'keep_probability' argument must be a number in \(0, 1\). Got 1.0"):
        MCDropBlock(keep_probability=1.0)
    with pytest.raises(InvalidInputError, match=r"'block_size' argument must be a whole number of at least 1. Got 0"):
        MCDropBlock(block_size=0)
    with pytest.raises(InvalidInputError, match=r"'passes' argument must be a whole number of at least 2"):
        MCSpatialDropout(passes=1)


def test_another_estimator_is_used_by_the_next_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "shares", True)  # as on a GPU, where step and network stay from round to round
    made = fitted(MCDropout())
    made.uncertainty = MCSpatialDropout()
    made.fit(training_set(), seed=0)
    assert made.to_bytes() == fitted(MCSpatialDropout()).to_bytes()
    assert isinstance(made.network, nn.Sequential)
    assert isinstance(made.network[3], SpatialDropout2d)


# Random augmentation.


def all_views(picture: npt.NDArray[Any], crop: int) -> set[bytes]:
    """Every flipped and shifted view of a picture (C, H, W), by numpy's reflecting pad."""
    views = set()
    for flipped in (picture, picture[:, :, ::-1]):
        padded = np.pad(flipped, ((0, 0), (crop, crop), (crop, crop)), mode="reflect")
        for down in range(2 * crop + 1):
            for right in range(2 * crop + 1):
                views.add(padded[:, down : down + SIDE, right : right + SIDE].tobytes())
    return views


def test_each_view_is_flipped_and_shifted_by_draws_of_its_own() -> None:
    picture = pictures()[0][0]
    batch = torch.from_numpy(np.repeat(picture[None], 400, axis=0))
    seen = {view.numpy().tobytes() for view in RandomAugmentation(crop=1).view(batch)}
    assert seen == all_views(picture, 1)
    only_flips = {view.numpy().tobytes() for view in RandomAugmentation(crop=0).view(batch)}
    assert only_flips == all_views(picture, 0)
    only_shifts = {view.numpy().tobytes() for view in RandomAugmentation(crop=1, flip=False).view(batch)}
    assert len(only_shifts) == 9
    assert only_shifts < seen


def test_all_frames_of_a_clip_are_flipped_and_shifted_alike() -> None:
    batch, estimator = torch.from_numpy(pictures()[0][:20]), RandomAugmentation(crop=3)
    views = []
    for samples in (batch, batch.unsqueeze(2).repeat(1, 1, 5, 1, 1)):
        torch.manual_seed(1)
        views.append(estimator.view(samples))
    assert views[1].shape == (20, 1, 5, SIDE, SIDE)
    assert all(torch.equal(views[1][:, :, frame], views[0]) for frame in range(5))
    assert not torch.equal(views[0], batch)


def test_normalizing_before_or_after_shows_the_same_views() -> None:
    """The learner normalizes before it labels; training shifts grey levels and normalizes then."""
    levels = torch.randint(256, (20, 2, SIDE, SIDE), dtype=torch.uint8)
    normalize = Augment(AugmentSettings(mean=(0.5, 0.4), std=(0.2, 0.3))).plain
    views = []
    for first, second in ((normalize, RandomAugmentation(crop=3).view), (RandomAugmentation(crop=3).view, normalize)):
        torch.manual_seed(1)
        views.append(second(first(levels)))
    assert torch.equal(*views)
    assert not torch.equal(views[0], normalize(levels))


@links
def test_views_give_mean_and_spread_of_the_probabilities(task: Task, link: Callable[..., Any]) -> None:
    kept: list[Tensor] = []
    model = small_network((1, SIDE, SIDE), 3)
    model.register_forward_hook(lambda module, arguments, z: kept.append(z.detach()))
    batch = torch.from_numpy(pictures()[0][:5])
    p, u, p_soft, u_soft = RandomAugmentation(passes=4, temperature=3.0, task=task).estimate(model, batch, check=True)
    z = torch.stack(kept).double().numpy()
    assert z.shape == (4, 5, 3)
    for mean, spread, passes in ((p, u, link(z)), (p_soft, u_soft, link(z / 3))):
        np.testing.assert_allclose(mean, passes.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(spread, passes.std(axis=0, ddof=1), atol=1e-6)


def test_dropout_is_off_and_views_keep_the_memory_format() -> None:
    formats: list[bool] = []
    model = nn.Sequential(nn.Dropout(0.9), nn.Flatten(), nn.Linear(3 * SIDE**2, 3))
    model.register_forward_pre_hook(
        lambda module, arguments: formats.append(arguments[0].is_contiguous(memory_format=torch.channels_last))
    )
    batch = torch.ones(4, 3, SIDE, SIDE).contiguous(memory_format=torch.channels_last)
    # Views of an even picture are all the same, so any spread would be dropout's.
    assert float(RandomAugmentation().estimate(model, batch).u.max()) == 0.0
    assert formats == [True] * 10


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"crop": -1}, "'crop' argument must be a whole number of at least 0. Got -1"),
        ({"crop": 0.5}, "'crop' argument must be a whole number of at least 0. Got 0.5"),
        ({"crop": 0, "flip": False}, "all views would be the same"),
        ({"passes": 1}, "'passes' argument must be a whole number of at least 2"),
    ],
)
def test_augmentation_without_chance_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        RandomAugmentation(**values)


def test_what_cannot_be_flipped_or_shifted_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"must be images \(N, channels, height, width\).* Got shape \(5, 4\)"):
        RandomAugmentation().estimate(nn.Linear(4, 3), torch.zeros(5, 4))
    with pytest.raises(InvalidInputError, match=r"smaller than the images' sides, \(8, 8\). Got 8"):
        RandomAugmentation(crop=8).estimate(nn.Flatten(), torch.zeros(5, 1, SIDE, SIDE))
    with pytest.raises(NotStochasticError, match=r"All 10 views of each image gave the same output"):
        RandomAugmentation().estimate(nn.Flatten(), torch.zeros(5, 1, SIDE, SIDE), check=True)


# Estimators of one's own.


class Noisy(UncertaintyEstimator):
    """The least that an estimator needs: `estimate`."""

    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Any:
        estimate = Deterministic().estimate(model, batch, check=check)
        return estimate._replace(u=torch.rand_like(estimate.p), u_soft=torch.rand_like(estimate.p))


def test_an_estimator_of_ones_own_needs_one_method() -> None:
    _, u, _, _ = labeled(fitted(Noisy()))
    assert u.std() > 0.2


@each
def test_an_estimator_for_the_other_task_is_refused(make: Callable[..., UncertaintyEstimator]) -> None:
    with pytest.raises(InvalidInputError, match=r"must be for task='multi'. Got 'single' instead; make it as"):
        learner(make(), task="multi")


class Useless(UncertaintyEstimator):
    """Lacks `estimate`."""


class Memberless(Noisy):
    members = 0


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (Useless(), "Useless does not define 'estimate'"),
        (Memberless(), "'members of Memberless' argument must be a whole number of at least 1. Got 0"),
    ],
)
def test_an_estimator_that_lacks_something_is_refused_before_training(wrong: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        learner(wrong)


def test_samples_that_an_estimator_does_not_take_are_refused_before_training() -> None:
    rows = ArraySource(np.ones((9, 4), np.float32))
    with pytest.raises(InvalidInputError, match=r"must be images .* Got shape \(8, 4\) instead"):
        check_random(TorchLearner(uncertainty=RandomAugmentation(), device="cpu"), rows, 3)
    for uncertainty in (DeepEnsemble(), Deterministic(), Noisy()):
        check_random(TorchLearner(uncertainty=uncertainty, device="cpu"), rows, 3)


class Comparing(UncertaintyEstimator):
    def estimate(self, model: nn.Module, batch: torch.Tensor, *, check: bool = False) -> Uncertainty:
        assert len(batch) > 1
        p = torch.softmax(model(batch), dim=1)
        with torch.enable_grad():
            weight = torch.ones((), requires_grad=True)
            (weight * p.mean()).backward()
        assert weight.grad is not None
        return Uncertainty(p=p, u=p, p_soft=p, u_soft=p)


def test_the_trial_shows_an_estimator_several_samples_and_gives_it_back() -> None:
    rows, estimator = ArraySource(np.ones((9, 4), np.float32)), Comparing()
    tried = TorchLearner(uncertainty=estimator, device="cpu")
    check_random(tried, rows, 3)
    assert tried.uncertainty is estimator
    alone = ArraySource(np.ones((1, 4), np.float32))
    with pytest.raises(AssertionError):
        check_random(tried, alone, 3)
    assert tried.uncertainty is estimator


@pytest.mark.parametrize("wrong", [MCDropout, "mc-dropout", object()])
def test_what_is_no_estimator_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="'uncertainty' argument must be an estimator.* derive your own from"):
        learner(wrong)


def test_views_are_the_papers_crops() -> None:
    assert (RandomAugmentation().passes, RandomAugmentation().crop, RandomAugmentation().flip) == (10, 4, True)
