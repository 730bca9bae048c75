import functools
import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import golden
import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

import surelabel as sl
from surelabel.augment.settings import AugmentSettings
from surelabel.core.labels import Task
from surelabel.core.selection import Selection
from surelabel.data.source import ArraySource, Subset
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.feed import Samples, as_tensor, streamed
from surelabel.engine.method import Stream, sizes_of
from surelabel.engine.order import batch_order, num_steps
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.train import Trainer
from surelabel.methods.ups import UPSMethod, batch_sizes
from tests.engine.plain import train_plainly

CPU = torch.device("cpu")
X = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
Y = np.arange(10) % 2
PICTURES = np.random.default_rng(1).integers(0, 256, size=(24, 3, 8, 8), dtype=np.uint8)


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
    Trainer(settings, CPU, **options).train(network, rows, UPSMethod("single", settings), seed=seed)
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
    assert num_steps([Stream(np.arange(100), 32)], TrainingSettings(epochs=1)) == 4


def test_rounds_grow_also_after_a_run_was_resumed() -> None:
    ends: list[int] = []
    learner = sl.TorchLearner(
        lambda shape, classes: torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(3, 2)),
        training=TrainingSettings(steps=4, round_growth=1.5),
        progress=lambda what, done, total: ends.append(total) if (what, done) == ("train", total) else None,
    )
    config = sl.UPSConfig(max_rounds=3, tau_p=0.1, kappa_p=math.inf, tolerance=None)
    records = list(sl.self_train(learner, (X[:4], Y[:4]), X[4:], config))
    assert ends == [4, 6, 9, 14]
    list(sl.self_train(learner, (X[:4], Y[:4]), X[4:], config, resume_from=records[:2]))
    assert ends[4:] == [9, 14]
    assert [UPSMethod("single", learner.training).samples_in_round(4, 0, 0, number)[1] for number in range(4)] == [
        16,
        24,
        36,
        56,
    ]


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
    sizes = batch_sizes(labeled, 0, negative, settings)
    assert sizes == (min(64, labeled), 0, expected)
    steps = max(math.ceil(3 * labeled / sizes[0]), 11)
    epochs, seen = UPSMethod("single", settings).samples_in_round(labeled, 0, negative, 0)
    assert seen == steps * sum(sizes)
    assert (epochs - 1) * labeled < steps * sizes[0] <= epochs * labeled


def test_labels_on_top_are_as_many_in_every_batch_however_many_pseudo_labels_there_are() -> None:
    settings = TrainingSettings(batch_size=2, epochs=4, labeled_batch_size=3, negative_batch_size=1)
    batches = fit(settings, a_selection()).batches
    assert {kinds_of(batch) for batch in batches} == {(3, 2, 1)}
    assert len(batches) == 8  # four epochs over the four positives
    assert UPSMethod("single", settings).samples_in_round(4, 4, 2, 0) == (4, 48)


def test_a_round_of_few_pseudo_labels_is_no_shorter_for_labels_on_top() -> None:
    settings = TrainingSettings(batch_size=128, labeled_batch_size=128, epochs=100)
    method = UPSMethod("single", settings)
    without, few, many = (method.samples_in_round(4000, number, 0, 0)[1] for number in (0, 3, 50_000))
    assert without <= few < many


@pytest.mark.parametrize(("task", "size"), [("single", 4), ("multi", 3)])
def test_without_pseudo_labels_labels_take_the_places_of_what_comes_on_top(task: Task, size: int) -> None:
    settings = TrainingSettings(batch_size=2, labeled_batch_size=1, negative_batch_size=1)
    data = replace(training_set(), task=task)
    assert [(len(stream.rows), stream.size) for stream in UPSMethod(task, settings).streams(data)] == [(4, size)]


def test_with_several_labels_a_sample_all_pseudo_labels_are_one_stream_beside_the_labels() -> None:
    settings = TrainingSettings(batch_size=4, labeled_batch_size=2)
    data = replace(training_set(a_selection()), task="multi")
    streams = UPSMethod("multi", settings).streams(data)
    assert [(sorted(stream.rows), stream.size) for stream in streams] == [(list(range(4, 10)), 4), (list(range(4)), 2)]
    assert sizes_of(streams) == (6,)


def test_negatives_of_no_weight_are_not_drawn() -> None:
    streams = UPSMethod("single", TrainingSettings(), 0.0).streams(training_set(a_selection()))
    assert [sorted(stream.rows) for stream in streams] == [list(range(8))]


def test_rows_with_nothing_to_learn_from_are_not_seen() -> None:
    nothing = np.zeros((6, 2), dtype=bool)
    assert all(len(batch) == 4 for batch in fit(TrainingSettings(epochs=2), Selection(nothing, nothing)).batches)


def test_the_plan_does_not_depend_on_the_length_of_its_blocks() -> None:
    keys = np.arange(20, dtype=np.uint64)
    streams = [Stream(np.arange(13), 4), Stream(np.arange(13, 20), 3)]
    plans = [
        [np.concatenate(parts) for parts in zip(*batch_order(streams, keys, 1, 17, length=length), strict=True)]
        for length in (1, 5, 64)
    ]
    for rows, epochs in plans[1:]:
        assert np.array_equal(rows, plans[0][0])
        assert np.array_equal(epochs, plans[0][1])
    assert plans[0][0].shape == (17, 7)


def test_sparse_rows_become_dense_and_integers_stay() -> None:
    assert as_tensor(ArraySource(csr_matrix(X))[np.array([1, 0])]).tolist() == X[[1, 0]].tolist()
    assert as_tensor(X.astype(np.float64)).dtype == torch.float32
    assert as_tensor(X.astype(np.float64), exact=True).dtype == torch.float64
    assert as_tensor(np.ones((2, 3), dtype=np.int64)).dtype == torch.int64


def test_divergence_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"Training diverged.*Lower the learning rate"):
        fit(TrainingSettings(learning_rate=1000.0, weight_decay=1000.0, epochs=20, schedule="constant"))


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


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_the_engine_agrees_with_the_plain_loop(optimizer: str) -> None:
    settings = AUGMENTED.replace(optimizer=optimizer, learning_rate=0.003 if optimizer == "adamw" else 0.05)
    settings = settings.replace(round_growth=1.5)
    rows, method = pictures_with_a_selection(), UPSMethod("single", settings)
    reference, network = small_network(), small_network()
    train_plainly(reference, rows, method, settings, seed=5, device=CPU)
    Trainer(settings, CPU).train(network, rows, method, seed=5)
    assert num_steps([Stream(np.arange(17), 6)], settings) >= 20
    assert largest_difference(network, reference) < 1e-4
    assert largest_difference(network, small_network()) > 1e-2  # it did learn


def test_a_compiled_step_agrees_with_the_plain_loop_and_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # Traced as ever, but without the compiler of machine code, which takes a minute.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    # That all of an augmentation can be compiled is tested where it is defined.
    settings = AUGMENTED.replace(epochs=4, augment=AUGMENTED.augment.replace(operations=0, jitter=0.0))
    rows, method = pictures_with_a_selection(), UPSMethod("single", settings)
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
    rows, method = pictures_with_a_selection(), UPSMethod("single", settings)
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
    for source, expected in [
        (problem.source, X),
        (problem.pool, X[4:]),
        (Subset(problem.source, np.array([7, 0, 8])), X[[7, 0, 8]]),
        (Subset(problem.pool, np.array([2, 1, 5])[::-1]), X[[9, 5, 6]]),
    ]:
        parts = samples.part(source, 2)
        assert parts is not None
        parts = list(parts)
        assert {len(part) for part in parts[:-1]} == {2}
        assert torch.equal(torch.cat(parts), torch.from_numpy(expected))
    for other in (ArraySource(X), Subset(ArraySource(X), np.array([1]))):
        assert samples.part(other, 2) is None


def test_counters_of_the_average_are_those_of_the_network() -> None:
    settings = TrainingSettings(batch_size=2, epochs=4, ema_decay=0.7)

    class Counting(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.tensor(0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.calls += 1
            return super().forward(x)

    torch.manual_seed(0)
    network = Counting()
    average = Trainer(settings, CPU).train(network, training_set(), UPSMethod("single", settings), seed=0)
    assert average is not network
    assert (average.calls.item(), average.calls.dtype) == (network.calls.item(), torch.int64)
    assert network.calls.item() > 4


def test_the_average_of_the_weights_is_what_the_recurrence_says() -> None:
    settings = TrainingSettings(batch_size=2, epochs=4, ema_decay=0.7, learning_rate=0.5)
    weights: list[torch.Tensor] = []

    class Watched(Recorder):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights.append(self.linear.weight.detach().clone())
            return super().forward(x)

    torch.manual_seed(0)
    network = Watched()
    average = Trainer(settings, CPU).train(network, training_set(), UPSMethod("single", settings), seed=0)
    after = [*weights[1:], network.linear.weight.detach()]
    expected = after[0]
    for step, value in enumerate(after[1:], start=1):
        expected = expected + max(0.3, 1 / (step + 1)) * (value - expected)
    assert isinstance(average, Watched)
    torch.testing.assert_close(average.linear.weight, expected)


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_losses_are_those_kept_for_this_hardware(name: str) -> None:
    device = torch.device(name)
    kept = json.loads(golden.FILE.read_text())
    if golden.hardware(device) not in kept:
        pytest.skip(f"no losses are kept for {golden.hardware(device)}; python tests/golden.py adds them")
    seen, expected = golden.losses(device), kept[golden.hardware(device)]
    assert len(seen) == golden.STEPS
    assert seen[:10] == pytest.approx(expected[:10], rel=1e-5)
    # From then on an activation may round to the other side of a kink: CPUs with AVX-512 and AVX2 differ by 3e-4.
    assert seen == pytest.approx(expected, rel=1e-3)
    if name == "cpu":
        assert golden.losses(device) == seen  # the same seed, the same bits


@pytest.mark.gpu
def test_a_deterministic_run_on_a_gpu_gives_the_same_bits() -> None:
    device = torch.device("cuda")
    assert golden.losses(device) == golden.losses(device)


def test_loading_does_not_draw_from_the_generator_of_dropout() -> None:
    before = torch.get_rng_state()
    rows = [np.array([3, 1]), np.array([0])]
    batches = list(streamed(ArraySource(X), rows, TrainingSettings(workers=1), CPU))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.cat(batches), torch.from_numpy(X[[3, 1, 0]]))
