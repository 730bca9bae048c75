"""Steps: which are shared and kept, what can be captured, and the networks and samples that none can be made of."""

import functools
import gc
import logging
import random
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import surelabel as sl
from surelabel.core.selection import Selection
from surelabel.data.source import ArraySource
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.method import Stream
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.step import Step, algorithms, failure_named, obstacle_to_capture
from surelabel.engine.train import Trainer
from surelabel.errors import InvalidInputError
from surelabel.methods.ups import UPSMethod

CPU = torch.device("cpu")
X = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
Y = np.arange(10) % 2
PROBLEM = make_problem((X[:4], Y[:4]), X[4:], "single")
PICTURES = np.random.default_rng(1).integers(0, 256, size=(24, 3, 8, 8), dtype=np.uint8)


def training_set(with_negatives: bool = False) -> TrainingSet:
    positive, negative = np.zeros((6, 2), dtype=bool), np.zeros((6, 2), dtype=bool)
    negative[:, 1] = with_negatives
    return PROBLEM.training_set(Selection(positive, negative))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Steps as they are made, where networks share them, as on a GPU."""
    steps: list[Step] = []
    begin = Step.__init__

    def noted(step: Step, *arguments: object, **options: object) -> None:
        steps.append(step)
        begin(step, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Step, "__init__", noted)
    monkeypatch.setattr(Trainer, "shares", True)
    return steps


class Parts(UPSMethod):
    """UPS whose batches hold the labeled rows in two parts."""

    parts = (2, 2)

    def streams(self, training_set: TrainingSet) -> list[Stream]:
        return [Stream(np.arange(4), size) for size in self.parts]


def test_a_step_is_used_again_as_long_as_its_shape_stays(made: list[Step], caplog: pytest.LogCaptureFixture) -> None:
    settings = TrainingSettings(batch_size=2, epochs=2)
    trainer, method = Trainer(settings, CPU), UPSMethod("single", settings)
    weights = []
    with caplog.at_level(logging.INFO, logger="surelabel"):
        for seed, with_negatives in [(0, False), (1, True), (2, True), (1, True), (0, False)]:
            torch.manual_seed(seed)
            trained = trainer.train(nn.Linear(3, 2), training_set(with_negatives), method, seed=seed)
            weights.append(trained.state_dict()["weight"].clone())
    assert len(made) == 3
    assert torch.equal(weights[0], weights[4])
    assert torch.equal(weights[1], weights[3])
    assert caplog.text.count("made again") == 2
    assert "batches of 4 rows" in caplog.text
    assert "negative_batch_size" in caplog.text


def test_steps_are_made_for_the_size_of_each_stream(made: list[Step]) -> None:
    settings = TrainingSettings(steps=1)
    trainer, method = Trainer(settings, CPU), Parts("single", settings)

    def steps_made(parts: tuple[int, ...]) -> int:
        object.__setattr__(method, "parts", parts)
        trainer.train(nn.Linear(3, 2), training_set(), method, seed=0)
        return len(made)

    assert [steps_made(parts) for parts in [(2, 2), (2, 2), (1, 3), (3, 1)]] == [1, 1, 2, 3]  # all of four rows


def test_other_samples_leave_no_step_behind(made: list[Step]) -> None:
    settings = TrainingSettings(batch_size=2, epochs=1)
    trainer, method = Trainer(settings, CPU), UPSMethod("single", settings)
    trainer.train(nn.Linear(3, 2), training_set(), method, seed=0)
    first = weakref.ref(made.pop())
    other = make_problem((X[:4], Y[:4]), X[4:], "single").training_set(None)
    trainer.train(nn.Linear(3, 2), other, method, seed=0)
    assert len(made) == 1
    assert first() is None


def test_a_network_of_the_wrong_width_is_named() -> None:
    rows = make_problem((X[:4], np.arange(4)), X[4:], "single").training_set(None)
    settings = TrainingSettings()
    with pytest.raises(ValueError, match=r"one logit for each of the 4 classes.*Got \(4, 2\)"):
        Trainer(settings, CPU).train(nn.Linear(3, 2), rows, UPSMethod("single", settings), seed=0)


def test_a_step_whose_making_is_interrupted_is_made_again(made: list[Step], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TrainingSettings(batch_size=2, epochs=1)
    trainer, method = Trainer(settings, CPU), UPSMethod("single", settings)
    first = trainer.train(nn.Linear(3, 2), training_set(), method, seed=0)

    def interrupted(step: Step) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(Step, "capture", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.train(nn.Linear(3, 2), training_set(True), method, seed=0)
    again = trainer.train(nn.Linear(3, 2), training_set(True), method, seed=0)
    assert again is not first
    assert len(made) == 3


def test_a_finished_step_is_freed_without_the_garbage_collector() -> None:
    settings = TrainingSettings(batch_size=2, epochs=1)
    trainer = Trainer(settings, CPU)
    gc.disable()
    try:
        trainer.train(nn.Linear(3, 2), training_set(), UPSMethod("single", settings), seed=0)
        step, samples = weakref.ref(trainer._step), weakref.ref(trainer.samples)
        del trainer
        assert step() is None
        assert samples() is None
    finally:
        gc.enable()


def test_the_users_choice_of_algorithms_is_put_back() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with algorithms(deterministic=False):
            assert torch.backends.cudnn.benchmark
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert not torch.backends.cudnn.benchmark


def test_a_network_that_cannot_learn_is_named() -> None:
    network = nn.Linear(3, 2).requires_grad_(False)
    settings = TrainingSettings()
    with pytest.raises(ValueError, match="no trainable parameter"):
        Trainer(settings, CPU).train(network, training_set(), UPSMethod("single", settings), seed=0)


HOST_DRAWS: dict[str, Callable[[], object]] = {
    "torch's CPU generator": lambda: torch.rand(1),
    "Python's random": random.random,
    "numpy's random": lambda: np.random.rand(),
}


@pytest.mark.parametrize("name", HOST_DRAWS)
def test_a_step_that_draws_on_the_host_is_not_captured(name: str) -> None:
    obstacle = obstacle_to_capture(lambda: HOST_DRAWS[name]() and None, CPU)
    assert f"draws from {name} on the host" in obstacle
    assert "draw on the device" in obstacle


def test_a_step_that_leaves_the_host_alone_may_be_captured() -> None:
    own = np.random.default_rng(0)
    taken: list[float] = []
    assert obstacle_to_capture(lambda: taken.append(own.random()), CPU) == ""
    assert len(taken) == 1


def test_a_step_that_waits_is_not_captured_and_other_failures_are_not_hidden() -> None:
    def fails(message: str) -> None:
        raise RuntimeError(message)

    obstacle = obstacle_to_capture(functools.partial(fails, "called a synchronizing CUDA operation"), CPU)
    assert "waits for the GPU, as .item()" in obstacle
    assert "torch.tensor(..., device=...)" in obstacle
    with pytest.raises(RuntimeError, match="out of memory"):
        obstacle_to_capture(functools.partial(fails, "out of memory"), CPU)


def test_what_cannot_be_captured_is_a_warning_or_where_a_graph_was_asked_for_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = TrainingSettings(batch_size=2, epochs=1)
    for dropout in (0.0, 0.5):  # whose masks are drawn on the host, here
        trainer = Trainer(settings, CPU)
        network = nn.Sequential(nn.Linear(3, 2), nn.Dropout(dropout))
        trainer.train(network, training_set(), UPSMethod("single", settings), seed=0)
        step = trainer._step
        assert step is not None
        with caplog.at_level(logging.WARNING, logger="surelabel"):
            assert step._can_be_captured() == (dropout == 0.0)
    message = "runs without a CUDA graph, which is slower: the network or the loss draws from torch's"
    assert caplog.text.count(message) == 1
    step.settings = settings.replace(cuda_graph=True)
    with pytest.raises(InvalidInputError, match=r"cuda_graph=True is not possible: .*draws from torch's.*set None"):
        step._can_be_captured()


def test_a_capture_that_fails_says_what_to_do() -> None:
    named = "operation not permitted.*Set cuda_graph=False, and start again in a new process"
    with pytest.raises(InvalidInputError, match=named), failure_named():
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")


def conv_network(first: nn.Module | None = None) -> nn.Module:
    return nn.Sequential(
        first or nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(4, 2)
    )


def fit_pictures(make: Callable[[], nn.Module], samples: np.ndarray, **settings: object) -> sl.TorchLearner:
    training = TrainingSettings(batch_size=4, steps=2, **settings)  # type: ignore[arg-type]
    learner = sl.TorchLearner(lambda shape, classes: make(), training=training, device="cpu")
    learner.fit(make_problem((samples[:8], np.arange(8) % 2), samples[8:], "single").training_set(None), seed=0)
    return learner


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
@pytest.mark.parametrize(
    "first", [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(3), nn.LayerNorm(8), nn.AvgPool2d(2)], ids=lambda m: type(m).__name__
)
def test_whole_numbers_that_a_network_cannot_take_are_named(first: nn.Module, kind: type) -> None:
    message = rf"cannot take samples stored as torch.{kind.__name__}: .*augment=AugmentSettings\(mean="
    with pytest.raises(InvalidInputError, match=message):
        fit_pictures(lambda: conv_network(first), PICTURES.astype(kind))


def test_whole_numbers_are_named_where_they_are_labeled() -> None:
    learner = fit_pictures(conv_network, PICTURES.astype(np.float32))
    with pytest.raises(InvalidInputError, match=r"cannot take samples stored as torch.uint8"):
        list(learner.predict(ArraySource(PICTURES), seed=0))
    with pytest.raises(InvalidInputError, match=r"cannot take samples stored as torch.uint8"):
        learner.predict_proba(ArraySource(PICTURES))


class OfBytes(nn.Module):
    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.body, self.fails = conv_network(), fails

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.dtype == torch.uint8
        if self.fails:
            raise RuntimeError("a failure of its own")
        return self.body(x.float() / 255)


def test_a_network_may_take_bytes() -> None:
    learner = fit_pictures(OfBytes, PICTURES)
    assert learner.predict_proba(ArraySource(PICTURES)).shape == (24, 2)
    with pytest.raises(RuntimeError, match="^a failure of its own$"):
        fit_pictures(lambda: OfBytes(fails=True), PICTURES)


@pytest.mark.filterwarnings("ignore:.*torch.nn.utils.weight_norm:FutureWarning")
def test_a_network_that_cannot_be_copied_is_named_with_the_one_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = PICTURES.astype(np.float32)

    def old() -> nn.Module:
        return conv_network(nn.utils.weight_norm(nn.Conv2d(3, 4, 3)))

    def new() -> nn.Module:
        return conv_network(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)))

    fit_pictures(old, samples)
    message = "cannot be copied.*use torch.nn.utils.parametrizations.weight_norm"
    with pytest.raises(InvalidInputError, match=message):
        fit_pictures(old, samples, ema_decay=0.9)
    fit_pictures(new, samples, ema_decay=0.9)
    monkeypatch.setattr(Trainer, "shares", True)
    with pytest.raises(InvalidInputError, match=message):
        fit_pictures(old, samples)
    fit_pictures(new, samples)


def test_lazy_modules_have_to_be_given_their_shapes() -> None:
    message = r"0.weight, 0.bias is lazy; run the network once where it is made"
    with pytest.raises(InvalidInputError, match=message):
        fit_pictures(lambda: conv_network(nn.LazyConv2d(4, 3)), PICTURES.astype(np.float32), channels_last=True)

    def initialized() -> nn.Module:
        network = conv_network(nn.LazyConv2d(4, 3))
        network(torch.zeros(2, 3, 8, 8))
        return network

    fit_pictures(initialized, PICTURES.astype(np.float32), channels_last=True)
