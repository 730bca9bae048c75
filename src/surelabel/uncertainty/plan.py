"""How a network's passes run: repeated rows, else vmap, else one by one; tried once a network, on some of its rows.

A way is taken only where it cannot change the statistics. Trials leave torch's generators as they were.
"""

import functools
import random
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.overrides import TorchFunctionMode

from surelabel.models.stochastic import draws_for_each_row, evaluation_mode
from surelabel.uncertainty.deterministic import logits
from surelabel.uncertainty.sharing import NotSharedError, Way, growth_of, repeated_logits, repeating, vectorized

Key: TypeAlias = tuple[str | type[nn.Module], ...]
"""What a plan holds for besides the network: the ways that it could choose; names and types of layers switched on."""


@dataclass(frozen=True)
class PassPlan:
    """How the passes of a network run, and why they run one by one where they do.

    Attributes:
        way: all but "one by one" run what comes before the first stochastic layer once for a chunk of passes.
        reason: why the passes share nothing; empty where they do.
        growth: how many times as many values a row has where it is repeated, see `growth_of`.
    """

    way: Way
    reason: str = ""
    growth: float = 1.0


_PLANS: weakref.WeakKeyDictionary[nn.Module, dict[Key, PassPlan]] = weakref.WeakKeyDictionary()


def known_plan(model: nn.Module, key: Key) -> PassPlan | None:
    """Return what was found out about this network."""
    return _PLANS.get(model, {}).get(key)


def remember(model: nn.Module, key: Key, plan: PassPlan) -> None:
    """Keep a plan as long as the network lives."""
    _PLANS.setdefault(model, {})[key] = plan


def make_plan(model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor, ways: Sequence[Way]) -> PassPlan:
    """Return the first of the ways that works on this batch (N, ...); the model is in its stochastic mode."""
    if not layers:
        return PassPlan("one by one", "it has no stochastic layer that could be switched on")
    reasons = []
    for way in ways:
        with generators_restored(batch.device):
            try:
                _try_vectorized(model, batch) if way == "vectorized" else _try_repeated(model, layers, batch, way)
                _try_blocks(model, batch)
                return PassPlan(way, growth=growth_of(model, layers.values(), batch))
            # Whatever a network's code may raise when it meets a batch that is not what it expects.
            except Exception as error:
                reasons.append(f"{way}: {summary(error)}")
    return PassPlan("one by one", "; ".join(reasons))


def summary(error: Exception) -> str:
    """Return what an error says, in one line and shortened."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def generators_restored(device: torch.device, *, only_after_failure: bool = False) -> Iterator[None]:
    """Give torch's generators their state back: a trial must not change the draws of the passes after it."""
    states, failed = _generator_states(device), True
    try:
        yield
        failed = False
    finally:
        if failed or not only_after_failure:
            torch.set_rng_state(states[0])
        if len(states) > 1 and (failed or not only_after_failure):
            torch.get_device_module(device).set_rng_state(states[1], device)


def _generator_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type in ("cuda", "xpu"):
        states.append(torch.get_device_module(device).get_rng_state(device))
    return states


def _try_repeated(model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor, way: Way) -> None:
    """Refuse networks in which one pass could reach another: a copy of the rows must not feel what others hold.

    Without draws, the output of the true copy beside false ones must be that of the batch alone, in any place.
    Means over the batch or attention between samples fail here, as do other orders of the axes.
    """
    for name, layer in layers.items():
        if not draws_for_each_row(layer):
            raise NotSharedError(f"'{name}' ({type(layer).__name__}) may draw for several rows together")
    with evaluation_mode(model):
        alone = logits(model, batch)
        # Two and three copies: a tensor that is no batch (a weight) cannot have the right length for both by chance.
        for place, number in ((0, 2), (1, 2), (1, 3)):
            copies = functools.partial(_one_true_copy, place=place, number=number)
            with repeating(way, layers.values(), len(batch), number, copies):
                beside = repeated_logits(model, batch, number)[place]
            if not torch.allclose(beside, alone, rtol=0, atol=_tolerance(model, batch, alone)):
                raise NotSharedError("its rows depend on one another, or it is random beyond its stochastic layers")


def _try_blocks(model: nn.Module, batch: Tensor) -> None:
    """Refuse networks in which a block of rows gets other logits than among all: means over the batch, and the like."""
    half = len(batch) // 2
    with evaluation_mode(model):
        together, alone = logits(model, batch)[:half], logits(model, batch[:half])
    if not torch.allclose(alone, together, rtol=0, atol=_tolerance(model, batch, together), equal_nan=True):
        raise NotSharedError("its rows depend on one another, and blocks of them are not the batch")


def _one_true_copy(x: Tensor, place: int, number: int) -> Tensor:
    false = 0.5 * x.flip(0)
    return torch.cat([x if index == place else false for index in range(number)])


def _tolerance(model: nn.Module, batch: Tensor, z: Tensor) -> float:
    """Allow for other roundings in a batch of another size; what one pass does to another is far larger."""
    dtypes = {value.dtype for value in (batch, *model.parameters())}
    low = torch.is_autocast_enabled(batch.device.type) or not dtypes.isdisjoint({torch.bfloat16, torch.float16})
    return (0.05 if low else 0.005) * float(z.abs().amax())


def _try_vectorized(model: nn.Module, batch: Tensor) -> None:
    """Refuse networks in which vmap would give all passes the same draws, or leave its tensors behind."""
    before = other_generators()
    with warnings.catch_warnings(), _DrawsForEachPass(batch.device):
        # An operation without a batching rule runs once a pass, and slowly: then better pass by pass.
        warnings.filterwarnings("error", message="There is a performance drop", category=UserWarning)
        z = vectorized(model, batch, 2)
    if other_generators() != before:
        raise NotSharedError("it draws from a generator of Python or numpy, once for all passes")
    _check_nothing_kept(model)
    if torch.equal(z[0], z[1]):
        raise NotSharedError("vmap found nothing random in it")


def other_generators() -> tuple[Any, ...]:
    """Return the states of Python's generator and of numpy's, to be compared."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return (random.getstate(), name, np.asarray(keys).tobytes(), *rest)


def _check_nothing_kept(model: nn.Module) -> None:
    for name, module in model.named_modules():
        for key, value in [*vars(module).items(), *module._buffers.items()]:
            if isinstance(value, Tensor) and is_batchedtensor(value):
                raise NotSharedError(f"'{name}' ({type(module).__name__}) keeps a pass's tensor in '{key}'")


class _DrawsForEachPass(TorchFunctionMode):
    """Refuse a random function whose result is one for all passes, as fused kernels with dropout inside may give."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = _generator_states(self.device)
        result = function(*args, **(kwargs or {}))
        drew = any(not torch.equal(*pair) for pair in zip(before, _generator_states(self.device), strict=True))
        values = result if isinstance(result, (tuple, list)) else [result]
        if drew and not any(isinstance(value, Tensor) and is_batchedtensor(value) for value in values):
            raise NotSharedError(f"{getattr(function, '__name__', function)} draws the same numbers for all passes")
        return result
