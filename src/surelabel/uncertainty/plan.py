"""How a network's passes run, and the ways in which they share the layers before the first stochastic one.

*Repeated*: rows are repeated before the first stochastic layers, one copy per pass, and the rest of the network sees a
batch of passes x N rows; every kernel and memory layout is the network's own. *Vectorized*: `torch.func.vmap` over the
passes. It also works for layers that draw for a whole batch and for skip connections around a stochastic layer, and is
slower if little is shared. *One by one*: plain passes.

A way is tried once for each network, on some rows, and used only if it cannot change the statistics. Trials restore
torch's generators.
"""

import functools
import math
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.overrides import TorchFunctionMode

from surelabel.models.stochastic import draws_for_each_row, evaluation_mode
from surelabel.uncertainty.deterministic import logits

Way: TypeAlias = Literal["repeated", "vectorized", "one by one"]

SMALL_BATCH = 16_384
"""A batch with at most this many values is small: more rows at once hardly cost memory, and fewer calls save time."""

LARGEST_BLOCK = 2**25
"""A block with this many values fills a GPU: more would need more memory, and waste more on padding."""


@dataclass(frozen=True)
class PassPlan:
    """How the passes of a network run, and why not in a faster way.

    Attributes:
        way: all but "one by one" run the layers before the first stochastic one once for all passes.
        reason: why the passes share nothing, or run without the compiler; empty if they run as they should.
        growth: how many times larger a row is where it is repeated, see `growth_of`.
        compiled: whether they run as one compiled function.
    """

    way: Way
    reason: str = ""
    growth: float = 1.0
    compiled: bool = False


class NotSharedError(Exception):
    """The passes of a network cannot share their first layers; the message says why. It never reaches the user."""


def make_plan(model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor, compiled: bool = False) -> PassPlan:
    """Return the first way that works on this batch (N, ...); the model is in its stochastic mode."""
    if not layers:
        return PassPlan("one by one", "it has no stochastic layer to switch on")
    reasons = []
    ways: tuple[Way, ...] = ("repeated", "vectorized")
    for way in ways:
        with generators_restored(batch.device):
            try:
                if way == "repeated":
                    _try_repeated(model, layers, batch)
                else:
                    _try_vectorized(model, batch)
                _try_blocks(model, batch)
                return PassPlan(way, growth=growth_of(model, layers.values(), batch), compiled=compiled)
            # A network's code may raise any error on an unexpected batch.
            except Exception as error:
                reasons.append(f"{way}: {summary(error)}")
    return PassPlan("one by one", "; ".join(reasons))


def block_rows(size: int, values: int, passes: int, growth: float = 1.0) -> int:
    """Return how many rows make a block, in a batch of `size` rows of `values` values each.

    All passes over a block hold no more values than one pass over the batch, so sharing needs about the memory of one
    plain pass. Small samples are grouped up to SMALL_BATCH values. If a row is small by the time it is repeated, as
    after a global pool, all passes over it need less than the row itself, and a block is as large as LARGEST_BLOCK
    allows. The blocks of a batch are as equal in size as possible.

    >>> block_rows(20_480, 3 * 32 * 32, passes=10), block_rows(1365, 3 * 128 * 128, passes=10, growth=2048 / 49_152)
    (2048, 455)
    """
    values = max(1, values)
    copies = min(passes, max(1, math.ceil(passes * growth)))
    rows = -(-max(size, SMALL_BATCH // values) // copies)
    blocks = -(-rows // max(1, LARGEST_BLOCK // values))
    return min(size, -(-rows // blocks))


@torch.no_grad()
def growth_of(model: nn.Module, layers: Iterable[nn.Module], batch: Tensor) -> float:
    """Return how many times larger a row is, from the first stochastic layer on, than in the batch (N, ...).

    From there on, rows are repeated, one copy per pass. The largest output of a module counts; an output that is not a
    tensor, as of a recurrent layer, counts as 1. Outputs of functions between modules are not seen.

    Example:
        >>> model = nn.Sequential(nn.Linear(100, 20), nn.Dropout(0.5), nn.Linear(20, 5))
        >>> growth_of(model, [model[1]], torch.zeros(2, 100))
        0.2
    """
    largest, repeats = 0, False

    def begin(layer: nn.Module, inputs: Any) -> None:
        nonlocal repeats
        repeats = True

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal largest
        if repeats:
            largest = max(largest, output.numel() if isinstance(output, Tensor) else batch.numel())

    handles = [layer.register_forward_pre_hook(begin) for layer in layers]
    handles += [module.register_forward_hook(look) for module in model.modules()]
    try:
        logits(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    return largest / max(1, batch.numel())


def shared_logits(model: nn.Module, batch: Tensor, passes: int, way: Way) -> Tensor:
    """Return logits (passes, N, C), each pass with its own draws; the repeated way runs inside `repeating`."""
    if way == "repeated":
        z = logits(model, batch, rows=passes * len(batch))
        return z.reshape(passes, len(batch), z.shape[1])
    one_pass = torch.func.vmap(lambda _: logits(model, batch), randomness="different")
    # The zeros only say how many passes there are: what does not depend on draws is computed once.
    return one_pass(torch.zeros(passes, device=batch.device))


@contextmanager
def repeating(
    layers: Iterable[nn.Module], rows: int, passes: int, copies: Callable[[Tensor], Tensor] | None = None
) -> Iterator[None]:
    """Repeat the input of each layer if it still has `rows` rows; refuse an input that is not a batch.

    Args:
        layers: the stochastic layers.
        rows: N, the rows of the batch.
        passes: copies of each row.
        copies: makes the copies, passes x N rows; None: repeats the rows.
    """
    make = copies or functools.partial(_copies, passes=passes)

    def before(layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if not arguments or not isinstance(arguments[0], Tensor) or arguments[0].ndim == 0:
            raise NotSharedError(f"{type(layer).__name__} does not get its input as its first argument")
        x = arguments[0]
        if x.shape[0] == rows * passes:
            return arguments
        if x.shape[0] != rows:
            # Dropout on weights or on flattened positions: it would not draw row by row.
            raise NotSharedError(f"{type(layer).__name__} gets {x.shape[0]} rows, the batch has {rows}")
        return (make(x), *arguments[1:])

    handles = [layer.register_forward_pre_hook(before) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _copies(x: Tensor, passes: int) -> Tensor:
    # cat keeps channels_last, which repeat does not; a compiler chooses the layout itself, and fuses repeat better.
    return x.repeat(passes, *[1] * (x.ndim - 1)) if torch.compiler.is_compiling() else torch.cat([x] * passes)


def summary(error: Exception) -> str:
    """Return an error's message, shortened and in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def generators_restored(device: torch.device, *, only_after_failure: bool = False) -> Iterator[None]:
    """Restore the state of torch's generators: a trial must not change the draws of later passes."""
    states, failed = _generator_states(device), True
    try:
        yield
        failed = False
    finally:
        if failed or not only_after_failure:
            torch.set_rng_state(states[0])
            if len(states) > 1:
                torch.get_device_module(device).set_rng_state(states[1], device)


def _generator_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type in ("cuda", "xpu"):
        states.append(torch.get_device_module(device).get_rng_state(device))
    return states


def other_generators() -> tuple[Any, ...]:
    """Return the states of Python's and numpy's generators, for comparison."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return (random.getstate(), name, np.asarray(keys).tobytes(), *rest)


def _try_repeated(model: nn.Module, layers: Mapping[str, nn.Module], batch: Tensor) -> None:
    """Refuse networks in which one pass could affect another: a copy of the rows must not depend on the others.

    Without draws, a true copy among false ones must give the same output as the batch alone, in any position. Means
    over the batch, attention between samples and other orders of the axes fail here.
    """
    for name, layer in layers.items():
        if not draws_for_each_row(layer):
            raise NotSharedError(f"'{name}' ({type(layer).__name__}) may draw for several rows together")
    with evaluation_mode(model):
        alone = logits(model, batch)
        # Two and three copies: a tensor that is not a batch (a weight) cannot have the right length for both by chance.
        for place, number in ((0, 2), (1, 2), (1, 3)):
            copies = functools.partial(_one_true_copy, place=place, number=number)
            with repeating(layers.values(), len(batch), number, copies):
                beside = shared_logits(model, batch, number, "repeated")[place]
            if not torch.allclose(beside, alone, rtol=0, atol=_tolerance(model, batch, alone)):
                raise NotSharedError("its rows depend on one another, or it is random beyond its stochastic layers")


def _one_true_copy(x: Tensor, place: int, number: int) -> Tensor:
    false = 0.5 * x.flip(0)
    return torch.cat([x if index == place else false for index in range(number)])


def _try_blocks(model: nn.Module, batch: Tensor) -> None:
    """Refuse networks that give a block of rows other logits than the whole batch, such as by means over the batch."""
    half = len(batch) // 2
    with evaluation_mode(model):
        together, alone = logits(model, batch)[:half], logits(model, batch[:half])
    if not torch.allclose(alone, together, rtol=0, atol=_tolerance(model, batch, together), equal_nan=True):
        raise NotSharedError("its rows depend on one another, so blocks of rows differ from the batch")


def _tolerance(model: nn.Module, batch: Tensor, z: Tensor) -> float:
    """Allow for rounding that differs between batch sizes; the effect of one pass on another is far larger."""
    dtypes = {value.dtype for value in (batch, *model.parameters())}
    low = torch.is_autocast_enabled(batch.device.type) or not dtypes.isdisjoint({torch.bfloat16, torch.float16})
    return (0.05 if low else 0.005) * float(z.abs().amax())


def _try_vectorized(model: nn.Module, batch: Tensor) -> None:
    """Refuse networks in which vmap would give all passes the same draws or leave its own tensors behind."""
    before = other_generators()
    with warnings.catch_warnings(), _DrawsForEachPass(batch.device):
        # An operation without a batching rule runs slowly, once per pass: plain passes are better then.
        warnings.filterwarnings("error", message="There is a performance drop", category=UserWarning)
        z = shared_logits(model, batch, 2, "vectorized")
    if other_generators() != before:
        raise NotSharedError("it draws from Python's or numpy's generator, once for all passes")
    for name, module in model.named_modules():
        for key, value in [*vars(module).items(), *module._buffers.items()]:
            if isinstance(value, Tensor) and is_batchedtensor(value):
                raise NotSharedError(f"'{name}' ({type(module).__name__}) keeps a pass's tensor in '{key}'")
    if torch.equal(z[0], z[1]):
        raise NotSharedError("vmap found nothing random in it")


class _DrawsForEachPass(TorchFunctionMode):
    """Refuse a random function that gives all passes one result, as fused kernels with dropout inside may."""

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
