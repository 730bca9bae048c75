"""What a method is given and may rely on, and UPS as one of them."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import surelabel as sl
from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.augment.settings import AugmentSettings
from surelabel.core.losses import learning_rule
from surelabel.core.selection import Selection
from surelabel.data.source import ArraySource
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.method import Batch, Method, Stream, sizes_of
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.step import Step
from surelabel.engine.train import Trainer
from surelabel.errors import ChangedFileError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.methods.ups import UPSMethod

CPU = torch.device("cpu")
X = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
Y = np.arange(10) % 2
AUGMENT = Augment(AugmentSettings(flip=True, crop=2, operations=2))


def training_set(with_negatives: bool = False) -> TrainingSet:
    negative = np.zeros((6, 2), dtype=bool)
    negative[:, 1] = with_negatives
    return make_problem((X[:4], Y[:4]), X[4:], "single").training_set(Selection(np.zeros_like(negative), negative))


def pictures() -> TrainingSet:
    """Bright pictures and dark ones, eight of 32 labeled."""
    y = np.arange(32) % 2
    noise = np.random.default_rng(1).integers(0, 120, size=(32, 3, 8, 8))
    images = (noise + 130 * y[:, None, None, None]).astype(np.uint8)
    return make_problem((images[:8], y[:8]), images[8:], "single").training_set(None)


def batch_of(samples: Tensor, y: Tensor, g: Tensor) -> Batch:
    draws = Draws(torch.tensor(5), torch.arange(len(samples)), torch.zeros(len(samples), dtype=torch.int64))
    return Batch(samples, y, g, draws, torch.tensor(0.0), (len(samples),), torch.arange(len(samples)), {})


def test_views_of_other_names_are_other_draws_of_the_same_samples() -> None:
    images = torch.from_numpy(pictures().source[np.arange(32)])
    batch = batch_of(images, torch.zeros(32, 2), torch.zeros(32, 2))
    first, second = batch.view(AUGMENT), batch.view(AUGMENT, "second")
    assert torch.equal(first, AUGMENT(images, batch.draws))  # no name: the draws as they always were
    assert torch.equal(second, batch.view(AUGMENT, "second"))
    differ = (first != second).flatten(1).any(dim=1)
    assert differ.float().mean() > 0.8
    assert not torch.equal(second, batch.view(AUGMENT, "third"))
    assert batch.view(None, "second") is images


def test_a_view_does_not_depend_on_the_batch() -> None:
    images = torch.from_numpy(pictures().source[np.arange(32)])
    batch = batch_of(images, torch.zeros(32, 2), torch.zeros(32, 2))
    some = batch_of(images[:5], torch.zeros(5, 2), torch.zeros(5, 2))
    assert torch.equal(some.view(AUGMENT, "second"), batch.view(AUGMENT, "second")[:5])


class OwnMethod(Method):
    """What the methods below have in common: how many samples they take is not asked for."""

    def samples_in_step(self, max_rounds: int) -> int:
        raise NotImplementedError

    def samples_in_round(self, *counts: object) -> tuple[int, int]:
        raise NotImplementedError


@dataclass(frozen=True)
class MeanTeacher(OwnMethod):
    """Cross-entropy on labels, and agreement of two views by network and teacher, which counts more and more."""

    batch_size: int
    weight: float = 1.0
    augment: Augment = AUGMENT

    teacher = True

    def streams(self, training_set: TrainingSet) -> list[Stream]:
        labeled = training_set.g.all(axis=1)
        size = min(self.batch_size, int(labeled.sum()))
        return [Stream(np.flatnonzero(labeled), size), Stream(np.flatnonzero(~labeled), 2 * self.batch_size)]

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        assert teacher is not None
        logits = network(batch.view(self.augment))
        with torch.no_grad():
            wanted = teacher(batch.view(self.augment, "teacher")).softmax(dim=1)
        labeled, _ = torch.split(logits, batch.sizes)
        supervised = cross_entropy(labeled, batch.y[: batch.sizes[0]].float())
        ramp = torch.exp(-5 * (1 - batch.progress) ** 2)
        return supervised + self.weight * ramp * mse_loss(logits.softmax(dim=1), wanted)


def picture_network(classes: int = 2) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(4, classes),
    )


class FarAway(OwnMethod):
    """The teacher sees other samples than the network: these and 10."""

    teacher = True

    def streams(self, training_set: TrainingSet) -> list[Stream]:
        return [Stream(np.flatnonzero(training_set.g.all(axis=1)), 4)]

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        assert teacher is not None
        with torch.no_grad():
            teacher(batch.samples + 10)
        return cross_entropy(network(batch.samples), batch.y.float())


@pytest.mark.parametrize("own", [False, True], ids=["the network's", "its own"])
def test_a_teacher_normalizes_by_its_own_batches_if_the_method_says_so(own: bool) -> None:
    method = FarAway()
    method.own_statistics = own
    network = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2))
    start = {name: value.clone() for name, value in network.state_dict().items()}
    settings = TrainingSettings(batch_size=4, steps=5, ema_decay=0.9)
    average = Trainer(settings, CPU).train(network, training_set(), method, seed=0)
    seen = X[:4].mean(axis=0)  # of all four labeled rows in each step
    of_network = (1 - 0.9**5) * seen
    np.testing.assert_allclose(network[0].running_mean, of_network, rtol=1e-4)
    steps = [(1 - 0.9 ** (step + 1)) * seen for step in range(5)]  # their mean, as an average of the weights begins
    expected = (1 - 0.9**5) * (seen + 10) if own else np.mean(steps, axis=0)
    np.testing.assert_allclose(average[0].running_mean, expected, rtol=1e-4)
    assert int(average[0].num_batches_tracked) == 5
    assert not torch.equal(average[1].weight, start["1.weight"])
    assert not average.training


def test_a_mean_teacher_learns_without_a_change_of_the_engine() -> None:
    method: Method = MeanTeacher(4)
    settings = TrainingSettings(batch_size=4, steps=60, ema_decay=0.9, learning_rate=0.1)
    torch.manual_seed(0)
    network = picture_network()
    average = Trainer(settings, CPU).train(network, pictures(), method, seed=0)
    assert average is not network
    images = AUGMENT.plain(torch.from_numpy(pictures().source[np.arange(32)]))
    assert (average.eval()(images).argmax(dim=1) == torch.arange(32) % 2).float().mean() > 0.9
    with pytest.raises(ValueError, match="set 'ema_decay' above 0"):
        Trainer(settings.replace(ema_decay=0.0), CPU).train(picture_network(), pictures(), method, seed=0)


def test_a_learner_takes_another_method() -> None:
    asked = []

    def make(task: str, training: TrainingSettings) -> Method:
        asked.append(task)
        return MeanTeacher(training.batch_size)

    settings = TrainingSettings(
        batch_size=4, steps=60, ema_decay=0.9, learning_rate=0.1, augment=AugmentSettings(flip=True)
    )
    model = lambda shape, classes: picture_network(classes)  # noqa: E731
    learner = sl.TorchLearner(model, training=settings, method=make, device="cpu")
    learner.fit(pictures(), seed=0)
    assert set(asked) == {"single"}
    p = learner.predict_proba(ArraySource(pictures().source[np.arange(32)]))
    assert (p.argmax(axis=1) == np.arange(32) % 2).mean() > 0.9


class Watcher(OwnMethod):
    """Remembers what its batches say."""

    teacher = True

    def __init__(self, *streams: Stream, asks: bool = False) -> None:
        self._streams, self._asks = list(streams), asks
        self.sizes: set[tuple[int, ...]] = set()
        self.progress: list[float] = []
        self.modes: set[bool] = set()
        self.learning: set[bool] = set()

    def streams(self, training_set: TrainingSet) -> list[Stream]:
        return self._streams

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        assert teacher is not None
        self.sizes.add(batch.sizes)
        self.progress.append(batch.progress.item())
        self.modes.add(teacher.training)
        self.learning.update(weights.requires_grad for weights in teacher.parameters())
        if self._asks:
            teacher(batch.samples + 100)
        first = batch.sizes[0]
        return cross_entropy(network(batch.samples[:first]), batch.y[:first].float())


LABELED, OTHERS = Stream(np.arange(4), 2), Stream(np.arange(4, 10), 3)


def train_watched(watcher: Watcher, **changes: object) -> tuple[nn.Module, nn.Module]:
    settings = TrainingSettings(**{"epochs": 3, "ema_decay": 0.5, **changes})
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.0), nn.Linear(4, 2))
    return network, Trainer(settings, CPU).train(network, training_set(), watcher, seed=0)


def test_a_batch_tells_how_much_of_the_round_is_done_and_which_rows_are_whose() -> None:
    watcher = Watcher(LABELED, OTHERS)
    train_watched(watcher)
    assert watcher.progress == pytest.approx([step / 6 for step in range(6)])
    assert watcher.sizes == {(2, 3)}
    assert sizes_of([LABELED, OTHERS, OTHERS._replace(joins=True)]) == (2, 6)


def test_asking_the_teacher_changes_nothing() -> None:
    """Neither the statistics of its BatchNorm nor its mode: one that drops values would not be the average."""
    watchers = [Watcher(LABELED, OTHERS, asks=asks) for asks in (False, True)]
    states = [[module.state_dict() for module in train_watched(watcher)] for watcher in watchers]
    assert watchers[1].modes == {False}
    assert watchers[1].learning == {False}, "its passes would be kept for a gradient"
    for untouched, asked in zip(*states, strict=True):
        assert all(torch.equal(untouched[name], asked[name]) for name in untouched)


def test_the_average_can_be_trained_on_as_the_network_can() -> None:
    network, average = train_watched(Watcher(LABELED))
    assert all(parameter.requires_grad for parameter in average.parameters())
    network[0].requires_grad_(False)
    settings = TrainingSettings(epochs=1, ema_decay=0.5)
    again = Trainer(settings, CPU).train(network, training_set(), Watcher(LABELED), seed=0)
    assert [parameter.requires_grad for parameter in again.parameters()] == [False] * 2 + [True] * 4


def test_a_seed_may_be_any_number_of_64_bits() -> None:
    """Whether it is written with a sign or without."""
    settings = TrainingSettings(batch_size=4, steps=3, augment=AUGMENT.settings)
    weights = []
    for seed in (2**63 + 5, 5 - 2**63, 5):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
        Trainer(settings, CPU).train(network, pictures(), UPSMethod("single", settings), seed=seed)
        weights.append(network.state_dict()["1.weight"])
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_stream_that_joins_another_leaves_the_shape_to_their_sum() -> None:
    """So one compiled step serves the rounds with negatives and those without."""
    method = UPSMethod("single", TrainingSettings(batch_size=2, negative_batch_size=2))
    sizes = [sizes_of(method.streams(training_set(with_negatives))) for with_negatives in (False, True)]
    assert sizes == [(4,), (4,)]


def test_mixup_refuses_rows_that_have_no_label_to_mix() -> None:
    mixed = UPSMethod("single", TrainingSettings(augment=AugmentSettings(mixup=0.5)))
    with pytest.raises(ValueError, match="negatives=False"):
        mixed.streams(training_set(with_negatives=True))
    with pytest.raises(ValueError, match="single-label data"):
        UPSMethod("multi", TrainingSettings(label_smoothing=0.1))


def test_label_smoothing_is_torchs() -> None:
    settings = TrainingSettings(label_smoothing=0.2)
    method, rows = UPSMethod("single", settings), training_set()
    network = torch.nn.Linear(3, 2)
    x, y, g = torch.from_numpy(X[:4]), torch.from_numpy(rows.y[:4]), torch.from_numpy(rows.g[:4])
    expected = torch.nn.functional.cross_entropy(network(x), torch.from_numpy(Y[:4]), label_smoothing=0.2)
    torch.testing.assert_close(method.loss(network, batch_of(x, y, g), None), expected)


class Logits(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize("kinds", ["mixed", "labels", "negatives", "nothing"])
@pytest.mark.parametrize("weight", [1.0, 0.3, 0.0])
def test_the_methods_loss_is_the_learning_rule(kinds: str, weight: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (5 * torch.randn(12, 4, generator=generator)).requires_grad_()
    y = torch.nn.functional.one_hot(torch.arange(12) % 4, 4).bool()
    g = {
        "mixed": torch.where(torch.arange(12)[:, None] < 5, torch.ones_like(y), ~y & (torch.arange(4) < 3)),
        "labels": torch.ones_like(y),
        "negatives": ~y,
        "nothing": torch.zeros_like(y),
    }[kinds]
    value = UPSMethod("single", TrainingSettings(), weight).loss(Logits(), batch_of(logits, y, g), None)
    expected = learning_rule(logits, y, g, negative_weight=weight)
    torch.testing.assert_close(value, expected)
    gradients = [torch.autograd.grad(one, logits, retain_graph=True)[0] for one in (value, expected)]
    torch.testing.assert_close(*gradients)


OWN = """
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from surelabel.engine.method import Method, Stream


class Pair(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first, self.second = first, nn.Linear(3, 2)

    def forward(self, x):
        return self.first(x)


@dataclass(frozen=True)
class Own(Method):
    task: str
    settings: object
    weight: float = 1.0

    looks = 3

    def prepare(self, network):
        return Pair(network)

    def tensors(self, num_rows, num_classes):
        return {"visits": torch.zeros(num_rows), "classes": torch.full((num_classes,), 0.5)}

    def streams(self, training_set):
        labeled = np.flatnonzero(training_set.g.all(axis=1))
        return [Stream(labeled, 2), Stream(np.arange(len(training_set.y)), 3)]

    def look(self, look, training_set, state):
        state["classes"].copy_(look(np.arange(len(training_set.y))).softmax(dim=1).mean(dim=0))

    def loss(self, network, batch, teacher):
        known, others = batch.stream(0), batch.stream(1)
        batch.state["visits"].index_add_(0, others.rows, torch.ones(3))
        agreement = (network(others.samples) - network.second(others.samples)).square().mean()
        supervised = cross_entropy(network(known.samples), known.y.float())
        return supervised + self.weight * agreement * batch.state["classes"].max()

    def samples_in_step(self, max_rounds):
        return 5

    def samples_in_round(self, num_labeled, num_positive, num_negative, round_number, num_unlabeled):
        return 1, 5
"""


def own_settings(folder: Path, **changes: object) -> TorchLearnerSettings:
    (folder / "own.py").write_text(OWN)
    values = {"training": TrainingSettings(steps=7), "device": "cpu", "hidden": (4,), **changes}
    return TorchLearnerSettings(method=f"{folder / 'own.py'}:Own", **values)


def test_a_method_in_a_file_has_tensors_looks_at_the_pool_and_brings_a_network_of_its_own(tmp_path: Path) -> None:
    learner = own_settings(tmp_path, method_parameters={"weight": 0.5}).build("single")
    seen: list[dict[str, Tensor]] = []
    begin = Step.begin

    def noted(step: Step, *arguments: Any) -> None:
        begin(step, *arguments)
        seen.append({name: value.clone() for name, value in step.state.items()})
        seen.append(step.state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "begin", noted)
        for number in range(2):
            learner.fit(training_set(), seed=number)
    first, after, second, _ = seen
    assert first["visits"].sum() == second["visits"].sum() == 0  # set back for each round
    assert after["visits"].sum() == 7 * 3
    assert after["classes"].tolist() != [0.5, 0.5]
    assert after["classes"].sum().item() == pytest.approx(1)
    assert learner.method(training_set(), shared=False).weight == 0.5  # type: ignore[attr-defined]
    names = set(safetensors.torch.load(learner.to_bytes()))
    assert {"second.weight", "first.mean"} & names >= {"second.weight"}
    again = own_settings(tmp_path).build("single")
    again.from_bytes(learner.to_bytes(), sample_shape=(3,), num_classes=2)
    assert np.array_equal(again.predict_proba(ArraySource(X)), learner.predict_proba(ArraySource(X)))


def test_a_method_of_ones_own_is_pinned_named_and_refused_when_it_changes(tmp_path: Path) -> None:
    settings = own_settings(tmp_path).pinned()
    assert settings.method_hash is not None
    assert [reference.name for reference in settings.references()] == [settings.method]
    (tmp_path / "own.py").write_text(OWN + "\n")
    with pytest.raises(ChangedFileError, match="own.py' has changed since the run began"):
        settings.build("single")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "fitmatch"}, "or your own 'file.py:Class'; got 'fitmatch'"),
        ({"method": "math:sqrt"}, "surelabel.engine.method.Method; got 'math:sqrt'"),
        (
            {"method_parameters": {"negative_weight": 0.5}},
            "are for other methods than 'ups'; got {'negative_weight'",
        ),
    ],
)
def test_methods_that_cannot_be_made_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TorchLearnerSettings(**changes).build("single").fit(training_set(), seed=0)


def test_a_network_has_the_layers_of_its_estimator_also_after_an_interrupted_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)

    def network(sample_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, num_classes))

    def interrupt(*told: Any) -> None:
        raise KeyboardInterrupt

    settings = TrainingSettings(steps=2, compile=True, augment=AugmentSettings())
    learner = sl.TorchLearner(network, training=settings, device="cpu")
    learner.fit(pictures(), seed=0)
    first = learner.network
    learner.fit(pictures(), seed=1)
    assert learner.network is first, "labeling may be compiled for it"
    learner.uncertainty, learner.progress = sl.MCSpatialDropout(), interrupt
    with pytest.raises(KeyboardInterrupt):
        learner.fit(pictures(), seed=0)
    learner.progress = None
    learner.fit(pictures(), seed=0)
    assert "SpatialDropout2d" in repr(learner.network)


def _stream(rows: Any, size: Any = 4) -> Any:
    return lambda self, training_set: [Stream(rows, size)]


@pytest.mark.parametrize(
    ("hook", "value"),
    [
        ("loss", lambda *_: None),
        ("loss", lambda *_: 1.0),
        ("loss", lambda self, network, batch, teacher: network(batch.samples).sum(dim=1)),
        ("loss", lambda *_: torch.zeros(())),
        ("streams", lambda *_: None),
        ("streams", lambda *_: []),
        ("streams", _stream(np.array([10**6]))),
        ("streams", _stream(np.array([-1]))),
        ("streams", _stream(np.empty(0, dtype=np.int64))),
        ("streams", _stream(np.ones(4, dtype=bool))),
        ("streams", _stream([0, 1, 2])),
        ("streams", _stream(np.arange(4), 0)),
        ("tensors", lambda *_: None),
        ("tensors", lambda *_: {"a": 3}),
        ("looks", 3),
        ("looks", "a"),
        ("prepare", lambda *_: None),
        ("for_round", lambda *_: None),
    ],
)
def test_what_a_method_returns_is_checked(hook: str, value: Any) -> None:
    method = type("Own", (UPSMethod,), {hook: value})
    learner = sl.TorchLearner(method=method, training=TrainingSettings(epochs=1), device="cpu")
    with pytest.raises(ValueError, match=rf"The method's {hook}.* must .* Got .* instead; correct the method"):
        learner.fit(training_set(), seed=0)


def test_the_part_of_a_batch_that_a_stream_has() -> None:
    batch = batch_of(torch.arange(5.0), torch.zeros(5, 2), torch.zeros(5, 2))._replace(sizes=(2, 3))
    second = batch.stream(1)
    assert second.samples.tolist() == second.rows.tolist() == [2, 3, 4]
    assert second.sizes == (3,)
    assert torch.equal(second.draws.uniform("flip"), batch.draws.uniform("flip")[2:])
