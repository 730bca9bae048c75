"""The engine where it matters: a compiled and captured step on a GPU is the plain loop, round after round."""

import logging
import random

import golden
import numpy as np
import pytest
import torch
from torch import distributed as dist

from surelabel.augment.chain import Augment
from surelabel.augment.settings import AugmentSettings
from surelabel.core.selection import Selection
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.train import Trainer
from surelabel.errors import InvalidInputError
from surelabel.learners.network import TorchLearner
from surelabel.methods.ups import UPSMethod
from tests.engine.plain import train_plainly
from tests.engine.test_method import MeanTeacher
from tests.runs.test_checkpoints import Kill, Killed, Memory

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")
IMAGES = np.random.default_rng(0).integers(0, 256, size=(96, 3, 16, 16), dtype=np.uint8)
SETTINGS = golden.SETTINGS.replace(deterministic=False)


PROBLEM = make_problem((IMAGES[:32], np.arange(32) % 4), IMAGES[32:], "single")


def rows() -> TrainingSet:
    positive, negative = np.zeros((64, 4), dtype=bool), np.zeros((64, 4), dtype=bool)
    positive[np.arange(32), np.arange(32) % 4] = True
    negative[32:, :2] = True
    return PROBLEM.training_set(Selection(positive, negative))


def network(dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.LeakyReLU(0.1),
        torch.nn.AvgPool2d(8),
        torch.nn.Flatten(),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(32, 4),
    ).to(CUDA)


@pytest.fixture(autouse=True)
def whole_float32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def assert_same(first: torch.nn.Module, second: torch.nn.Module) -> None:
    for (name, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        scale = b.abs().max().clamp(min=1e-3) if b.is_floating_point() else 1
        assert float(((a - b).abs() / scale).max()) < 1e-3, name


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_a_captured_step_agrees_with_the_plain_loop(optimizer: str) -> None:
    settings = SETTINGS.replace(optimizer=optimizer, learning_rate=0.003 if optimizer == "adamw" else 0.05)
    training_set, method, reference = rows(), UPSMethod("single", settings), network()
    train_plainly(reference, training_set, method, settings, seed=5, device=CUDA)
    trainer = Trainer(settings, CUDA, compiled=True)
    for seed in (4, 5):  # the second round takes the first one's step
        trained = trainer.train(network(), training_set, method, seed=seed)
    assert trainer._step is not None
    assert trainer._step._graph is not None
    assert_same(trained, reference)


def test_captured_steps_of_several_shapes_do_not_disturb_each_other() -> None:
    settings = SETTINGS.replace(negative_batch_size=None)
    trainer, method = Trainer(settings, CUDA, compiled=True), UPSMethod("single", settings)
    sets = [PROBLEM.training_set(None), rows()]
    for index in (0, 1, 0, 1):
        reference = network()
        train_plainly(reference, sets[index], method, settings, seed=index, device=CUDA)
        assert_same(trainer.train(network(), sets[index], method, seed=index), reference)


def test_a_mean_teacher_is_the_same_in_a_graph() -> None:
    networks, augment = [], Augment(AugmentSettings(flip=True, crop=2))
    for graph in (True, False):
        settings = SETTINGS.replace(ema_decay=0.9, cuda_graph=graph, augment=None)
        trainer = Trainer(settings, CUDA, compiled=graph)
        for seed in (0, 1):
            trained = trainer.train(network(), rows(), MeanTeacher(8, augment=augment), seed=seed)
        assert trainer._step is not None
        assert (trainer._step._graph is not None) == graph
        networks.append(trained)
    assert_same(*networks)


def test_samples_that_stream_are_those_on_the_device() -> None:
    training_set, networks = rows(), []
    for on_device in (True, False):
        settings = SETTINGS.replace(data_on_device=on_device, workers=0 if on_device else 2)
        trainer = Trainer(settings, CUDA, compiled=True)
        networks.append(trainer.train(network(), training_set, UPSMethod("single", settings), seed=1))
        assert trainer.samples is not None
        assert (trainer.samples.store is not None) == on_device
    assert_same(*networks)


def test_a_round_does_not_depend_on_whether_it_made_its_step() -> None:
    """With dropout, whose masks come from torch's generator."""
    settings = SETTINGS.replace(deterministic=True)
    weights = []
    for rounds in ((0, 1), (1,)):
        learner = TorchLearner(lambda shape, classes: network(dropout=0.5), training=settings, device=CUDA)
        for seed in rounds:
            learner.fit(rows(), seed=seed)
        weights.append(learner.to_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_a_captured_step_goes_on_from_a_checkpoint_with_the_same_bits(optimizer: str) -> None:
    """With dropout and an average; the step is captured anew in another trainer, and then gets its state in place."""
    settings = SETTINGS.replace(deterministic=True, ema_decay=0.9, optimizer=optimizer, learning_rate=0.01)

    def fit(store: Memory | None, kill: Kill | None) -> bytes:
        make = lambda shape, classes: network(dropout=0.5)  # noqa: E731
        learner = TorchLearner(make, training=settings, device=CUDA, progress=kill)
        learner.checkpoints = store
        learner.fit(rows(), seed=3)
        assert learner._trainer is not None
        assert learner._trainer._step is not None
        assert learner._trainer._step._graph is not None
        return learner.to_bytes()

    store = Memory()
    with pytest.raises(Killed):
        fit(store, Kill(after=7))
    rest, whole = Kill(), Kill()
    assert fit(store, rest) == fit(None, whole)
    assert rest.steps == whole.steps - 7


def test_the_average_of_the_weights_is_the_same_in_a_graph() -> None:
    averages = []
    for graph in (True, False):
        settings = SETTINGS.replace(ema_decay=0.9, cuda_graph=graph)
        trainer = Trainer(settings, CUDA, compiled=graph)
        averages.append(trainer.train(network(), rows(), UPSMethod("single", settings), seed=0))
    assert_same(*averages)


class LooksAtItsInput(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = network(dropout=0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) if x.sum().item() > -1e9 else self.body(-x)


def test_a_network_that_cannot_be_captured_trains_without_a_graph(caplog: pytest.LogCaptureFixture) -> None:
    settings = SETTINGS.replace(compile=False)
    trainer = Trainer(settings, CUDA)
    with caplog.at_level(logging.WARNING, logger="surelabel"):
        trainer.train(LooksAtItsInput().to(CUDA), rows(), UPSMethod("single", settings), seed=0)
    assert "waits for the GPU" in caplog.text
    assert trainer._step.value > 0
    # Dropout draws as before: the attempt leaves no trace.
    torch.nn.functional.dropout(torch.ones(4, device=CUDA))


class DrawsOnTheHost(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x * (1 + random.random()))


def test_draws_on_the_host_are_not_frozen_into_a_graph(caplog: pytest.LogCaptureFixture) -> None:
    settings = SETTINGS.replace(compile=False)
    graphs = []
    with caplog.at_level(logging.WARNING, logger="surelabel"):
        for made in (network(dropout=0.3), DrawsOnTheHost().to(CUDA)):
            trainer = Trainer(settings, CUDA)
            trainer.train(made, rows(), UPSMethod("single", settings), seed=0)
            assert trainer._step is not None
            graphs.append(trainer._step._graph)
    assert graphs[0] is not None  # dropout draws on the device
    assert graphs[1] is None
    assert "draws from Python's random on the host" in caplog.text


def test_a_graph_that_is_asked_for_and_cannot_be_had_is_an_error() -> None:
    settings = SETTINGS.replace(compile=False, cuda_graph=True)
    with pytest.raises(InvalidInputError, match="waits for the GPU"):
        Trainer(settings, CUDA).train(LooksAtItsInput().to(CUDA), rows(), UPSMethod("single", settings), seed=0)


def test_bfloat16_learns() -> None:
    settings = TrainingSettings(
        batch_size=32, epochs=60, learning_rate=0.1, precision="bfloat16", channels_last=True, augment=None
    )
    y = np.arange(32) % 4
    x = (IMAGES[:32].astype(np.float32) / 255) + y[:, None, None, None]
    training_set = make_problem((x, y), x, "single").training_set(None)
    trainer = Trainer(settings, CUDA, compiled=True)
    trainer.train(network(), training_set, UPSMethod("single", settings), seed=0)
    assert trainer._step.value < 0.5


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_that_exchanges_gradients_is_captured_and_trains_the_same(compiled: bool) -> None:
    def trained() -> torch.nn.Module:
        trainer = Trainer(SETTINGS, CUDA, compiled=compiled)
        made = trainer.train(network(), rows(), UPSMethod("single", SETTINGS), seed=0)
        assert trainer._step is not None
        assert trainer._step._graph is not None
        return made

    alone = trained()
    dist.init_process_group(
        "cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda", 0)
    )
    try:
        assert_same(trained(), alone)
    finally:
        dist.destroy_process_group()
