"""Passes that share what is deterministic: what comes before the first stochastic layer runs once for all of them.

*Repeated*: the first stochastic layers get their rows repeated, one copy a pass, and the rest of the network sees a
batch of passes x N rows; every kernel and memory layout is the network's own. *Aligned*: the same, and what goes around
a stochastic layer (a skip connection) is repeated where it meets the passes again. *Vectorized*: `torch.func.vmap` over
the passes, which also serves layers that draw for a whole batch, and is slower where little is shared.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from surelabel.uncertainty.deterministic import logits

Way: TypeAlias = Literal["repeated", "aligned", "vectorized", "one by one"]

Copies: TypeAlias = Callable[[Tensor], Tensor]

SMALL_BATCH = 16_384
"""Values of a batch so small that more rows at once cost no memory that matters, and fewer calls save time."""

LARGEST_BLOCK = 2**25
"""Values of a block that fills a GPU: more at once need more memory, and waste more where rows are filled up."""


class NotSharedError(Exception):
    """A network whose passes cannot share their beginning; the message says why. It never reaches the user."""


def row_blocks(batch: Tensor, passes: int, growth: float = 1.0) -> int:
    """Return how many rows go together, so that the passes hold no more values than the batch (N, ...) in one pass.

    So sharing needs about the memory of one plain pass. Small samples are taken together up to SMALL_BATCH values.

    Args:
        batch: samples.
        passes: that run at once.
        growth: of a row, see `growth_of`.

    Example:
        >>> row_blocks(torch.zeros(1000, 3, 32, 32), passes=10), row_blocks(torch.zeros(1000, 4), passes=10)
        (100, 410)
    """
    return min(len(batch), block_rows(len(batch), batch[0].numel(), passes, growth))


def block_rows(size: int, values: int, passes: int, growth: float = 1.0) -> int:
    """Return how many rows of a batch of `size` rows, of so many values each, go together.

    Where a row is small by the time it is repeated, as behind a global pool, all passes of it need less than the row
    itself, and a block is as large as LARGEST_BLOCK allows. Blocks of a batch are of one size, as nearly as may be.

    >>> block_rows(20_480, 3 * 32 * 32, passes=10), block_rows(1365, 3 * 128 * 128, passes=10, growth=2048 / 49_152)
    (2048, 455)
    """
    values = max(1, values)
    copies = min(passes, max(1, math.ceil(passes * growth)))
    rows = -(-max(size, SMALL_BATCH // values) // copies)
    blocks = -(-rows // max(1, LARGEST_BLOCK // values))
    return -(-rows // blocks)


@torch.no_grad()
def growth_of(model: nn.Module, layers: Iterable[nn.Module], batch: Tensor) -> float:
    """Return how many times as many values a row has, from the first stochastic layer on, as in the batch (N, ...).

    That is where rows are repeated, a copy a pass. The largest output of a module counts; where one is no tensor, as a
    recurrent layer's is, at least 1. What functions make between modules is not seen.

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
    """Return logits (passes, N, C), each pass with draws of its own; inside `repeating`, where the way needs it."""
    return vectorized(model, batch, passes) if way == "vectorized" else repeated_logits(model, batch, passes)


def repeated_logits(model: nn.Module, batch: Tensor, passes: int) -> Tensor:
    """Return logits (passes, N, C) of a network whose stochastic layers repeat their rows (`repeating`)."""
    z = logits(model, batch, rows=passes * len(batch))
    return z.reshape(passes, len(batch), z.shape[1])


def vectorized(model: nn.Module, batch: Tensor, passes: int) -> Tensor:
    """Return logits (passes, N, C) by vmap over the passes, each with draws of its own."""
    one_pass = torch.func.vmap(lambda _: logits(model, batch), randomness="different")
    # The zeros only say how many passes there are: what does not depend on draws is computed once.
    z: Tensor = one_pass(torch.zeros(passes, device=batch.device))
    return z


@contextmanager
def repeating(
    way: Way, layers: Iterable[nn.Module], rows: int, passes: int, copies: Copies | None = None
) -> Iterator[None]:
    """Repeat the input of each layer that still has `rows` rows; an input that is no batch is refused.

    Args:
        way: "repeated" or "aligned"; under any other, nothing is repeated.
        layers: the stochastic layers.
        rows: N, the rows of the batch.
        passes: copies of each row.
        copies: makes the copies, passes x N rows; None: the same rows again and again.
    """
    make = copies or (lambda x: _copies(x, passes))

    def before(layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if not arguments or not isinstance(arguments[0], Tensor) or arguments[0].ndim == 0:
            raise NotSharedError(f"{type(layer).__name__} does not get its input as its first argument")
        x = arguments[0]
        if x.shape[0] == rows * passes:
            return arguments
        if x.shape[0] != rows:
            # Dropout on weights or on flattened positions: its draws would not be those of single rows.
            raise NotSharedError(f"{type(layer).__name__} gets {x.shape[0]} rows, the batch has {rows}")
        return (make(x), *arguments[1:])

    handles = []
    try:
        for layer in layers if way in ("repeated", "aligned") else ():
            handles.append(layer.register_forward_pre_hook(before))
        with _Aligned(rows, rows * passes, make) if way == "aligned" else nullcontext():
            yield
    finally:
        for handle in handles:
            handle.remove()


def _copies(x: Tensor, passes: int) -> Tensor:
    # cat keeps channels_last, which repeat does not; a compiler chooses the layout itself, and fuses repeat better.
    return x.repeat(passes, *[1] * (x.ndim - 1)) if torch.compiler.is_compiling() else torch.cat([x] * passes)


_BY_ROW = {"add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "div", "rdiv", "truediv", "rtruediv"}
_BY_ROW |= {"idiv", "itruediv", "cat", "concat", "concatenate", "stack", "maximum", "minimum", "where", "lerp"}
"""Functions, without underscores, that take rows of several tensors together, each row with its own."""


class _Aligned(TorchFunctionMode):
    """Where rows of the batch meet those of the passes, repeat them. Tensors of other shapes stay as they are."""

    def __init__(self, rows: int, repeated_rows: int, copies: Copies) -> None:
        super().__init__()
        self.rows, self.repeated_rows, self.copies = rows, repeated_rows, copies

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "").strip("_") in _BY_ROW:
            tensors = [value for value in _flat(args) if isinstance(value, Tensor) and value.ndim > 0]
            axes = {value.ndim for value in tensors if value.shape[0] == self.repeated_rows}
            args = tuple(self._aligned(value, axes) for value in args)
        return function(*args, **(kwargs or {}))

    def _aligned(self, value: Any, axes: set[int]) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._aligned(one, axes) for one in value)
        is_batch = isinstance(value, Tensor) and value.ndim in axes and value.shape[0] == self.rows
        return self.copies(value) if is_batch else value


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value
