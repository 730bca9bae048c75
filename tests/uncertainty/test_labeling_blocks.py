"""How many rows are labeled at once, and where samples are kept: pictures and clips of the paper's sizes.

What comes before the only dropout runs once for all passes, in blocks that fill a GPU.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from surelabel.augment.settings import AugmentSettings
from surelabel.data.source import ArraySource
from surelabel.engine.feed import on_device
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError
from surelabel.learners.network import TorchLearner
from surelabel.models.resnet import ResNet
from surelabel.models.resnet3d import ResNet3d
from surelabel.uncertainty import MCDropout, compiled
from surelabel.uncertainty.plan import LARGEST_BLOCK, SMALL_BATCH, block_rows, growth_of

CLIPS = AugmentSettings(window=8, side=16, passages=2)
NETWORKS: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...], AugmentSettings]] = {
    "resnet": (functools.partial(ResNet, blocks=(1, 1, 1, 1), width=4), (3, 40, 40), AugmentSettings()),
    "resnet3d": (functools.partial(ResNet3d, width=4), (3, 20, 18, 18), CLIPS),
}
both = pytest.mark.parametrize("name", NETWORKS)


def _learner(name: str, **options: object) -> tuple[TorchLearner, ArraySource]:
    make, shape, augment = NETWORKS[name]
    training = TrainingSettings(augment=augment, channels_last=True)
    learner = TorchLearner(make, training=training, device="cpu", threads=1, **options)
    torch.manual_seed(0)
    learner.network = learner.build(_shown(shape, augment), 5).eval()
    # Untrained, its passes hardly differ, and are looked at again one by one.
    nn.init.normal_(learner.network.fc.weight)
    samples = np.random.default_rng(0).integers(0, 256, (12, *shape), dtype=np.uint8)
    return learner, ArraySource(samples)


def _shown(shape: tuple[int, ...], augment: AugmentSettings) -> tuple[int, ...]:
    return (3, augment.window, augment.side, augment.side) if augment.window else shape


def _trunk_rows(learner: TorchLearner, work: Callable[[], object]) -> list[int]:
    """Return how many rows go through the first convolution, call by call."""
    assert learner.network is not None
    rows: list[int] = []
    first = next(layer for layer in learner.network.modules() if isinstance(layer, (nn.Conv2d, nn.Conv3d)))
    handle = first.register_forward_hook(lambda layer, inputs, output: rows.append(len(inputs[0])))
    work()
    handle.remove()
    return rows


@both
def test_ten_passes_run_the_network_before_its_only_dropout_once(name: str) -> None:
    learner, source = _learner(name, predict_batch_size=5)
    list(learner.predict(source, seed=0))  # how the passes run is tried once a network
    one = _trunk_rows(learner, lambda: learner.predict_proba(source))
    ten = _trunk_rows(learner, lambda: list(learner.predict(source, seed=0)))
    assert one == ten == [5, 5, 2]


@both
def test_compiled_passes_run_it_once_too_in_blocks_of_one_shape(name: str) -> None:
    learner, source = _learner(name, predict_batch_size=5, uncertainty=MCDropout(compile=True))
    assert learner.network is not None
    shapes: list[torch.Size] = []

    def watched(model: nn.Module, block: torch.Tensor, *rest: Any) -> Any:
        shapes.append(block.shape)
        return compiled.shared_summary(model, block, *rest)

    compiled.compiled_passes(learner.network).function = watched  # as what it was compiled from does
    estimates = list(learner.predict(source, seed=0))
    assert [len(estimate.p) for estimate in estimates] == [5, 5, 2]
    assert len(shapes) == 3
    assert {shape[0] for shape in shapes} == {5}


def test_a_network_that_is_random_from_its_beginning_is_in_smaller_blocks() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4 * 32 * 32, 2))
    batch, rows = torch.zeros(200, 3, 32, 32), []
    MCDropout().estimate(model, batch)
    model[0].register_forward_hook(lambda layer, inputs, output: rows.append(len(inputs[0])))
    MCDropout().estimate(model, batch)
    assert rows == [20] * 10


@pytest.mark.parametrize(
    ("size", "shape", "features", "expected"),
    [
        (20_480, (3, 32, 32), 128 * 16 * 16, 2048),  # CNN-13: repeated while it is large
        (1365, (3, 128, 128), 2048, 455),  # ResNet-50: three blocks of one size
        (445, (3, 224, 224), 2048, 149),
        (111, (3, 16, 112, 112), 512, 37),  # 3-D ResNet-18
        (341, (3, 128, 128), 2048, 341),  # a CPU's chunk
    ],
)
def test_blocks_of_the_papers_networks(size: int, shape: tuple[int, ...], features: int, expected: int) -> None:
    values = int(np.prod(shape))
    assert block_rows(size, values, 10, features / values) == expected


@given(st.integers(1, 30_000), st.integers(1, 10**6), st.integers(1, 30), st.floats(0, 5))
def test_a_block_needs_no_more_memory_than_a_pass_over_the_batch(
    size: int, values: int, passes: int, growth: float
) -> None:
    rows, most = block_rows(size, values, passes, growth), max(size, SMALL_BATCH // values)
    assert 1 <= rows <= size
    assert rows * values <= max(LARGEST_BLOCK, values)
    assert min(growth, 1.0) * passes * (rows - 1) < most


def test_growth_looks_at_every_layer_from_the_first_stochastic_one_on() -> None:
    model = nn.Sequential(nn.Linear(4, 100), nn.Linear(100, 2), nn.Dropout(0.5), nn.Linear(2, 12), nn.Linear(12, 1))
    assert growth_of(model, [model[2]], torch.zeros(3, 4)) == 3
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())


@pytest.mark.parametrize(
    ("shape", "augment", "expected"),
    [
        ((4,), None, 1024),
        ((3, 32, 32), AugmentSettings(), 1024),
        ((3, 128, 128), AugmentSettings(), 341),
        ((3, 224, 224), AugmentSettings(), 111),
        ((3, 60, 128, 128), AugmentSettings(window=16, side=112, passages=3), 27),
        ((3, 600, 1000, 1000), AugmentSettings(), 1),
    ],
)
def test_a_chunk_counts_what_the_network_is_shown(
    shape: tuple[int, ...], augment: AugmentSettings | None, expected: int
) -> None:
    learner = TorchLearner(training=TrainingSettings(augment=augment), device="cpu")
    samples = np.broadcast_to(np.zeros(1, dtype=np.uint8), (2, *shape))
    assert learner.chunk_size(ArraySource(samples)) == expected


class _AllocatedError(Exception):
    """In the place of memory that this machine may not have."""


@pytest.mark.parametrize(("free", "fits"), [(19 * 2**30, True), (18 * 2**30, False)])
def test_clips_are_kept_on_a_device_as_bytes_where_they_take_half_of_it_at_most(
    free: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (9537, 3, 16, 128, 171)
    clips = ArraySource(np.broadcast_to(np.zeros(1, dtype=np.uint8), shape))
    for name, value in {"mem_get_info": (free, free), "memory_reserved": 0, "memory_allocated": 0}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)

    def allocate(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        assert (size, dtype, device.type) == (shape, torch.uint8, "cuda")
        raise _AllocatedError

    monkeypatch.setattr(torch, "empty", allocate)
    if fits:
        with pytest.raises(_AllocatedError):
            on_device(clips, TrainingSettings(), torch.device("cuda"))
        return
    assert on_device(clips, TrainingSettings(), torch.device("cuda")) is None
    with pytest.raises(InvalidInputError, match=r"data_on_device=True needs 9.3 GiB, more than half of the 18.0 GiB"):
        on_device(clips, TrainingSettings(data_on_device=True), torch.device("cuda"))
