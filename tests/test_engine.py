import functools
import gc
import json
import math
import weakref
from collections import Counter
from typing import Any

import golden
import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

import surelabel as sl
from surelabel.augment import AugmentSettings
from surelabel.data.source import ArraySource
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.feed import Samples, read
from surelabel.engine.method import Batch, Method, Stream
from surelabel.engine.optimizer import learning_rate, make_optimizer
from surelabel.engine.order import Plan, num_steps
from surelabel.engine.plain import train_plainly
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.step import Step, algorithms
from surelabel.engine.train import Trainer
from surelabel.learners.rule import UPSMethod, batch_sizes, samples_trained_on
from surelabel.losses import learning_rule
from surelabel.selection import Selection

CPU = torch.device("cpu")
X = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
Y = np.arange(10) % 2
PICTURES = np.random.default_rng(1).integers(0, 256, size=(24, 3, 8, 8), dtype=np.uint8)


def learning_rates(steps: int = 4, **changes: Any) -> list[float]:
    settings = TrainingSettings(**{"learning_rate": 2.0, **changes})
    return [learning_rate(settings, step, steps) for step in range(steps)]


def test_the_cosine_anneals_to_zero() -> None:
    assert learning_rates() == pytest.approx([2.0, 1 + math.cos(math.pi / 4), 1.0, 1 - math.cos(math.pi / 4)])


def test_the_published_cosine_ends_at_a_fifth() -> None:
    rates = learning_rates(1000, schedule="cosine-7/16")
    assert rates[0] == 2.0
    assert rates[-1] / 2 == pytest.approx(0.195, abs=0.002)


def test_a_warm_up_rises_to_the_rate_before_the_schedule() -> None:
    assert learning_rates(8, schedule="linear", warmup=0.5) == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0, 1.5, 1.0, 0.5])


def test_the_rate_can_grow_with_the_batch() -> None:
    assert learning_rates(1, batch_size=512, reference_batch_size=128) == [8.0]


def test_the_papers_optimizer_is_the_default() -> None:
    optimizer = make_optimizer(torch.nn.Linear(2, 2), TrainingSettings(), torch.tensor(0.03))
    assert isinstance(optimizer, torch.optim.SGD)
    (group,) = optimizer.param_groups
    assert (group["momentum"], group["nesterov"], group["weight_decay"]) == (0.9, True, 0.0)


def test_norms_and_biases_can_be_spared_the_weight_decay() -> None:
    settings = TrainingSettings(weight_decay=0.1, decay_all=False)
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    decays = {
        tuple(parameter.shape): group["weight_decay"]
        for group in make_optimizer(network, settings, torch.tensor(0.1)).param_groups
        for parameter in group["params"]
    }
    assert decays == {(2, 2): 0.1, (2,): 0.0}


def test_frozen_parameters_are_left_alone() -> None:
    network = torch.nn.Linear(2, 2)
    network.bias.requires_grad_(False)
    optimizer = make_optimizer(network, TrainingSettings(optimizer="adamw"), torch.tensor(0.1))
    assert len(optimizer.param_groups[0]["params"]) == 1


class Recorder(torch.nn.Module):
    """A linear network that remembers the batches it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.batches: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.batches.append(x.detach().clone())
        return self.linear(x)


def training_set(selection: Selection | None = None) -> TrainingSet:
    return make_problem((X[:4], Y[:4]), X[4:], "single").training_set(selection)


def fit(settings: TrainingSettings, selection: Selection | None = None, seed: int = 0, **options: Any) -> Recorder:
    torch.manual_seed(0)
    network, rows = Recorder(), training_set(selection)
    Trainer(settings, CPU, **options).train(network, rows, UPSMethod("single", 1.0, settings), seed=seed)
    return network


def a_selection() -> Selection:
    """Of the six unlabeled rows, four positives; the other two have negatives only."""
    positive, negative = np.zeros((6, 2), dtype=bool), np.zeros((6, 2), dtype=bool)
    positive[:4, 0] = True
    negative[:, 1] = True
    return Selection(positive, negative)


def kinds_of(batch: torch.Tensor) -> tuple[int, int, int]:
    kind_of = {
        tuple(row.tolist()): "labeled" if i < 4 else "positive" if i < 8 else "negative" for i, row in enumerate(X)
    }
    count = Counter(kind_of[tuple(row.tolist())] for row in batch)
    return count["labeled"], count["positive"], count["negative"]


def test_training_is_plain_stochastic_gradient_descent() -> None:
    """An independent loop, written with torch's own cross-entropy, ends with the same weights."""
    network = fit(TrainingSettings(batch_size=2, epochs=3))
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


def test_batches_are_of_one_size_and_go_on_into_the_next_epoch() -> None:
    batches = fit(TrainingSettings(batch_size=3, epochs=3)).batches
    assert [len(batch) for batch in batches] == [3, 3, 3, 3]
    rows = torch.cat(batches)[:, 0].tolist()
    assert all(sorted(rows[start : start + 4]) == sorted(X[:4, 0].tolist()) for start in (0, 4, 8))


def test_small_sets_are_repeated_until_the_least_number_of_steps() -> None:
    assert len(fit(TrainingSettings(batch_size=4, epochs=1, min_steps=7)).batches) == 7
    assert len(fit(TrainingSettings(batch_size=128, epochs=1, min_steps=7)).batches) == 7
    assert num_steps(100, 32, TrainingSettings(epochs=1)) == 4


def test_labeled_and_positive_rows_come_in_proportion_and_negative_ones_on_top() -> None:
    for batch in fit(TrainingSettings(batch_size=4, epochs=4), a_selection()).batches:
        assert kinds_of(batch) == (2, 2, 1)


def test_negatives_do_not_take_the_place_of_labels() -> None:
    """As many labels are seen with negatives as without."""
    without = Selection(a_selection().positive, np.zeros((6, 2), dtype=bool))
    settings = TrainingSettings(batch_size=4, epochs=1, min_steps=10)
    seen = [
        [sum(kinds_of(batch)[:2]) for batch in fit(settings, selection).batches]
        for selection in (a_selection(), without)
    ]
    assert seen[0] == seen[1] == [4] * 10


def test_a_fixed_number_of_negatives_keeps_all_batches_of_one_shape() -> None:
    settings = TrainingSettings(batch_size=4, epochs=4, negative_batch_size=2)
    assert {kinds_of(batch) for batch in fit(settings, a_selection()).batches} == {(2, 2, 2)}
    without = Selection(a_selection().positive, np.zeros((6, 2), dtype=bool))
    assert {len(batch) for batch in fit(settings, without).batches} == {6}


@pytest.mark.parametrize(("labeled", "negative", "expected"), [(10, 0, 0), (300, 75, 16), (50, 400, 64), (1000, 10, 1)])
def test_what_a_round_sees_is_counted_as_it_is_drawn(labeled: int, negative: int, expected: int) -> None:
    settings = TrainingSettings(batch_size=64, epochs=3, min_steps=11)
    sizes = batch_sizes(labeled, negative, settings)
    assert sizes == (min(64, labeled), expected)
    steps = max(math.ceil(3 * labeled / sizes.labeled), 11)
    epochs, seen = samples_trained_on(labeled, negative, settings)
    assert seen == steps * (sizes.labeled + sizes.negative)
    assert (epochs - 1) * labeled < steps * sizes.labeled <= epochs * labeled


def test_negatives_of_no_weight_are_not_drawn() -> None:
    streams = UPSMethod("single", 0.0, TrainingSettings()).streams(training_set(a_selection()))
    assert [sorted(stream.rows) for stream in streams] == [list(range(8))]


def test_rows_with_nothing_to_learn_from_are_not_seen() -> None:
    nothing = np.zeros((6, 2), dtype=bool)
    assert all(len(batch) == 4 for batch in fit(TrainingSettings(epochs=2), Selection(nothing, nothing)).batches)


def test_the_plan_does_not_depend_on_the_length_of_its_blocks() -> None:
    keys = np.arange(20, dtype=np.uint64)
    streams = [Stream(np.arange(13), 4), Stream(np.arange(13, 20), 3)]
    plans = [
        [np.concatenate(parts) for parts in zip(*Plan(streams, keys, seed=1).blocks(17, length), strict=True)]
        for length in (1, 5, 64)
    ]
    for rows, epochs in plans[1:]:
        assert np.array_equal(rows, plans[0][0])
        assert np.array_equal(epochs, plans[0][1])
    assert plans[0][0].shape == (17, 7)


def test_sparse_rows_become_dense_and_integers_stay() -> None:
    assert read(ArraySource(csr_matrix(X)), np.array([1, 0])).tolist() == X[[1, 0]].tolist()
    assert read(ArraySource(X.astype(np.float64)), np.array([0])).dtype == torch.float32
    assert read(ArraySource(X.astype(np.float64)), np.array([0]), exact=True).dtype == torch.float64
    assert read(ArraySource(np.ones((2, 3), dtype=np.int64)), np.array([0])).dtype == torch.int64


def test_divergence_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"Training diverged.*Lower the learning rate"):
        fit(TrainingSettings(learning_rate=1e38, epochs=20, schedule="constant"))


def test_progress_is_told() -> None:
    seen: list[tuple[str, int, int]] = []
    fit(sl.TrainingSettings(batch_size=2, epochs=2), progress=lambda *values: seen.append(values))
    assert seen == [("train", step, 4) for step in (1, 2, 3, 4)]


# The plain loop is the reference.


def small_network(classes: int = 2) -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False),  # a bias before BatchNorm has a gradient of pure rounding
        torch.nn.BatchNorm2d(8),
        torch.nn.LeakyReLU(0.1),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(32, classes),
    )


def pictures_with_a_selection() -> TrainingSet:
    positive, negative = np.zeros((16, 2), dtype=bool), np.zeros((16, 2), dtype=bool)
    positive[:9, 1] = True
    negative[9:14, 0] = True
    problem = make_problem((PICTURES[:8], np.arange(8) % 2), PICTURES[8:], "single")
    return problem.training_set(Selection(positive, negative))


AUGMENTED = TrainingSettings(
    batch_size=6,
    epochs=8,
    learning_rate=0.05,
    weight_decay=0.01,
    decay_all=False,
    warmup=0.2,
    label_smoothing=0.1,
    gradient_clip=1.0,
    augment=AugmentSettings(flip=True, crop=2, hole=3, operations=2, jitter=0.3, mean=(0.5,) * 3, std=(0.25,) * 3),
)


@torch.no_grad()
def largest_difference(first: torch.nn.Module, second: torch.nn.Module) -> float:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return max(float(((a - b).abs() / (1e-6 + b.abs().max())).max()) for a, b in pairs)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_engine_agrees_with_the_plain_loop(optimizer: str) -> None:
    settings = AUGMENTED.replace(optimizer=optimizer, learning_rate=0.05 if optimizer == "sgd" else 0.003)
    rows, method = pictures_with_a_selection(), UPSMethod("single", 1.0, settings)
    reference, network = small_network(), small_network()
    train_plainly(reference, rows, method, settings, seed=5, device=CPU)
    Trainer(settings, CPU).train(network, rows, method, seed=5)
    assert num_steps(17, 6, settings) >= 20
    assert largest_difference(network, reference) < 1e-4
    assert largest_difference(network, small_network()) > 1e-2  # it did learn


def test_a_compiled_step_agrees_with_the_plain_loop_and_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # Traced as ever, but without the compiler of machine code, which takes a minute.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    settings = AUGMENTED.replace(epochs=4)
    rows, method = pictures_with_a_selection(), UPSMethod("single", 1.0, settings)
    reference = small_network()
    train_plainly(reference, rows, method, settings, seed=5, device=CPU)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        trainer = Trainer(settings, CPU, compiled=True)
        networks = [trainer.train(small_network(), rows, method, seed=seed) for seed in (4, 5)]
    assert networks[0] is networks[1]
    assert largest_difference(networks[1], reference) < 1e-4


def test_loader_processes_bring_the_same_samples() -> None:
    settings = AUGMENTED.replace(epochs=2)
    rows, method = pictures_with_a_selection(), UPSMethod("single", 1.0, settings)
    networks = [
        Trainer(settings.replace(workers=workers), CPU).train(small_network(), rows, method, seed=1)
        for workers in (0, 2)
    ]
    for first, second in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        assert torch.equal(first, second)


def test_samples_on_the_device_are_those_of_the_source() -> None:
    problem = make_problem((X[:4], Y[:4]), X[4:], "single")
    samples = Samples(problem.source, TrainingSettings(), CPU)
    assert samples.store is None  # a CPU reads them where they are
    samples.store = torch.from_numpy(X)
    assert torch.equal(samples.part(problem.pool), torch.from_numpy(X[4:]))
    assert torch.equal(samples.part(problem.source), torch.from_numpy(X))
    assert samples.part(ArraySource(X)) is None


def test_the_average_of_the_weights_is_what_the_recurrence_says() -> None:
    settings = TrainingSettings(batch_size=2, epochs=4, ema_decay=0.7, learning_rate=0.5)
    weights: list[torch.Tensor] = []

    class Watched(Recorder):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights.append(self.linear.weight.detach().clone())
            return super().forward(x)

    torch.manual_seed(0)
    network = Watched()
    average = Trainer(settings, CPU).train(network, training_set(), UPSMethod("single", 1.0, settings), seed=0)
    after = [*weights[1:], network.linear.weight.detach()]
    expected = after[0]
    for step, value in enumerate(after[1:], start=1):
        expected = expected + max(0.3, 1 / (step + 1)) * (value - expected)
    assert isinstance(average, Watched)
    torch.testing.assert_close(average.linear.weight, expected)


class MeanTeacher:
    """Another method: a cross-entropy on labels, and agreement with the average of the weights on all samples."""

    teacher = True

    def streams(self, training_set: TrainingSet) -> list[Stream]:
        return [Stream(np.arange(4), 2), Stream(np.arange(4, 10), 3)]

    def loss(self, network: torch.nn.Module, batch: Batch, teacher: torch.nn.Module | None) -> torch.Tensor:
        assert teacher is not None
        logits = network(batch.view(None))
        with torch.no_grad():
            wanted = teacher(batch.view(None)).softmax(dim=1)
        supervised = torch.nn.functional.cross_entropy(logits[:2], batch.y[:2].float())
        return supervised + torch.nn.functional.mse_loss(logits.softmax(dim=1), wanted)


def test_another_method_fits_without_a_change() -> None:
    method: Method = MeanTeacher()
    settings = TrainingSettings(batch_size=2, epochs=3, ema_decay=0.9)
    network = Recorder()
    average = Trainer(settings, CPU).train(network, training_set(), method, seed=0)
    assert average is not network
    assert [len(batch) for batch in network.batches] == [5] * 6
    with pytest.raises(ValueError, match="set 'ema_decay' above 0"):
        Trainer(settings.replace(ema_decay=0.0), CPU).train(Recorder(), training_set(), method, seed=0)


def test_mixup_refuses_rows_that_have_no_label_to_mix() -> None:
    with pytest.raises(ValueError, match="negatives=False"):
        fit(TrainingSettings(augment=AugmentSettings(mixup=0.5)), a_selection())
    with pytest.raises(ValueError, match="one label a sample"):
        UPSMethod("multi", 1.0, TrainingSettings(label_smoothing=0.1))


def test_label_smoothing_is_torchs() -> None:
    settings = TrainingSettings(label_smoothing=0.2)
    method, rows = UPSMethod("single", 1.0, settings), training_set()
    network = torch.nn.Linear(3, 2)
    x, y, g = torch.from_numpy(X[:4]), torch.from_numpy(rows.y[:4]), torch.from_numpy(rows.g[:4])
    expected = torch.nn.functional.cross_entropy(network(x), torch.from_numpy(Y[:4]), label_smoothing=0.2)
    torch.testing.assert_close(method.loss(network, Batch(x, y, g, None), None), expected)  # type: ignore[arg-type]


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
    value = UPSMethod("single", weight, TrainingSettings()).loss(Logits(), Batch(logits, y, g, None), None)  # type: ignore[arg-type]
    expected = learning_rule(logits, y, g, negative_weight=weight)
    torch.testing.assert_close(value, expected)
    gradients = [torch.autograd.grad(one, logits, retain_graph=True)[0] for one in (value, expected)]
    torch.testing.assert_close(*gradients)


def test_a_network_of_the_wrong_width_is_named() -> None:
    rows = make_problem((X[:4], np.arange(4)), X[4:], "single").training_set(None)
    settings = TrainingSettings()
    with pytest.raises(ValueError, match=r"one logit for each of the 4 classes.*Got \(4, 2\)"):
        Trainer(settings, CPU).train(torch.nn.Linear(3, 2), rows, UPSMethod("single", 1.0, settings), seed=0)


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_losses_are_those_kept_for_this_hardware(name: str) -> None:
    device = torch.device(name)
    kept = json.loads(golden.FILE.read_text())
    if golden.hardware(device) not in kept:
        pytest.skip(f"no losses are kept for {golden.hardware(device)}; python tests/golden.py adds them")
    seen = golden.losses(device)
    assert len(seen) == golden.STEPS
    assert seen == pytest.approx(kept[golden.hardware(device)], rel=1e-4)
    if name == "cpu":
        assert golden.losses(device) == seen  # the same seed, the same bits


@pytest.mark.gpu
def test_a_deterministic_run_on_a_gpu_gives_the_same_bits() -> None:
    device = torch.device("cuda")
    assert golden.losses(device) == golden.losses(device)


def test_a_step_whose_making_is_interrupted_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TrainingSettings(batch_size=2, epochs=1)
    trainer, method = Trainer(settings, CPU), UPSMethod("single", 1.0, settings)
    monkeypatch.setattr(Trainer, "shares", True)
    first = trainer.train(Recorder(), training_set(), method, seed=0)

    def interrupted(step: Step) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(Step, "capture", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.train(Recorder(), training_set(a_selection()), method, seed=0)
    again = trainer.train(Recorder(), training_set(a_selection()), method, seed=0)
    assert again is not first
    assert isinstance(again, Recorder)
    assert {len(batch) for batch in again.batches} == {3}


def test_a_finished_step_is_freed_without_the_garbage_collector() -> None:
    settings = TrainingSettings(batch_size=2, epochs=1)
    trainer = Trainer(settings, CPU)
    gc.disable()
    try:
        trainer.train(Recorder(), training_set(), UPSMethod("single", 1.0, settings), seed=0)
        step, samples = weakref.ref(trainer._step), weakref.ref(trainer.samples)
        del trainer
        assert step() is None
        assert samples() is None
    finally:
        gc.enable()


def test_loading_does_not_draw_from_the_generator_of_dropout() -> None:
    samples = Samples(ArraySource(X), TrainingSettings(workers=1), CPU)
    before = torch.get_rng_state()
    batches = list(samples.batches([np.array([3, 1]), np.array([0])]))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.cat(batches), torch.from_numpy(X[[3, 1, 0]]))


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
    network = torch.nn.Linear(3, 2).requires_grad_(False)
    settings = TrainingSettings()
    with pytest.raises(ValueError, match="no parameter that learns"):
        Trainer(settings, CPU).train(network, training_set(), UPSMethod("single", 1.0, settings), seed=0)
