"""Several processes that train one network together, each on its part of every batch (data-parallel).

All run the same program and have the same weights. A process computes the loss of its own rows; the mean of the
gradients over the processes is then the gradient of the whole batch, if the loss is a mean over rows and all have the
same number of them. `over_all` is for means over rows that were counted, and `gathered` for everything else that looks
at a whole batch. Where torch.distributed was not initialized there is one process, and these functions do nothing.
"""

import contextlib
import itertools
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from surelabel.base.text import visible
from surelabel.base.together import Alone
from surelabel.errors import ElsewhereError, InvalidInputError

T = TypeVar("T")


class Group(Alone):
    """The processes that torch.distributed connects."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def in_all(self, function: Callable[[], T]) -> list[T]:
        """Call a function in every process; all get all results, or all raise the first error."""
        result, error = _outcome(function)
        self._raise_first(error)
        results: list[Any] = [None] * self.size
        dist.all_gather_object(results, result)
        return results

    def by_first(self, function: Callable[[], T]) -> T:
        """Call a function in the first process; all get its result, or all raise its error."""
        results: list[Any] = [self.only_first(function)]
        dist.broadcast_object_list(results, src=0)
        return results[0]  # type: ignore[no-any-return]

    def only_first(self, function: Callable[[], T]) -> T | None:
        """Call a function in the first process, which gets the result; the others get None once it is done."""
        result, error = _outcome(function) if self.rank == 0 else (None, None)
        self._raise_first(error)
        return result

    def _raise_first(self, mine: Exception | None) -> None:
        errors: list[Exception | None] = [None] * self.size
        dist.all_gather_object(errors, None if mine is None else _sendable(mine))
        for rank, error in enumerate(errors):
            if error is not None:
                if rank == self.rank:
                    assert mine is not None
                    raise mine
                raise error from ElsewhereError(f"It came up in process {rank}.")


def processes() -> Alone:
    """Return this process's group: its rank and the number of processes."""
    return Group() if connected() else Alone()


def connected() -> bool:
    """Whether torch.distributed connects this process with others."""
    return dist.is_available() and dist.is_initialized()


def check_alike(group: Alone, values: Mapping[str, Any]) -> None:
    """Refuse processes in which a value differs; both are shown."""
    everywhere = group.in_all(lambda: dict(flat(values)))
    for rank, other in enumerate(everywhere):
        for name in {**everywhere[0], **other}:
            ours, theirs = str(everywhere[0].get(name)), str(other.get(name))
            if ours != theirs:
                ours, theirs = _around_difference(ours, theirs)
                problem = f"Process {rank} has {name} {theirs}, and process 0 has {ours}"
                raise InvalidInputError(f"{problem}; start the same command, with the same versions, in all.")


def _around_difference(first: str, second: str) -> tuple[str, str]:
    """Return two texts, shortened, from a little before where they begin to differ.

    >>> _around_difference("/a/long/path/that/both/have/net.py:small", "/a/long/path/that/both/have/net.py:plain")
    ('...ave/net.py:small', '...ave/net.py:plain')
    """
    alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    start = max(0, alike - 11)
    end = start + 60

    def part(text: str) -> str:
        return "..." * (start > 0) + visible(text[start:end]) + "..." * (len(text) > end)

    return part(first), part(second)


def flat(values: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield the values of nested mappings by their whole names.

    >>> dict(flat({"seed": 0, "data": {"path": "a.csv"}}))
    {'seed': 0, 'data.path': 'a.csv'}
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", one) for inner, one in flat(value))
        else:
            yield name, value


def gathered(values: Tensor) -> Tensor:
    """Return the rows of all processes, in the order of one process's batch, shape (N, ...) from (N / size, ...).

    The gradient of this process's rows counts once for each process; the mean over the processes corrects this.
    """
    if not connected():
        return values
    mine, size = values.detach().contiguous(), dist.get_world_size()
    everything = mine.new_empty((size * len(mine), *mine.shape[1:]))
    dist.all_gather(list(everything.chunk(size)), mine)
    if not values.requires_grad:
        return everything
    start = dist.get_rank() * len(mine)
    own = mine + size * (values - mine)
    return torch.cat([everything[:start], own, everything[start + len(mine) :]])


def own(values: Tensor) -> Tensor:
    """Return this process's rows of what was computed from `gathered` ones."""
    if not connected():
        return values
    return values.chunk(dist.get_world_size())[dist.get_rank()]


def over_all(mean: Tensor, count: Tensor) -> Tensor:
    """Return a mean over `count` rows so that its mean over the processes is that over the rows of all processes.

    Args:
        mean: over rows of this process; 0 if there are none.
        count: how many these are, 0-d.
    """
    if not connected():
        return mean
    mine, size = count.to(mean.dtype), dist.get_world_size()
    total = mine.clone()
    dist.all_reduce(total)
    return mean * mine * size / total.clamp(min=1)


class _Total(torch.autograd.Function):
    """A sum over the processes; the gradient of each one's part is the sum of all their gradients."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return _summed(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)


def total(values: Tensor) -> Tensor:
    """Return the sum over all processes, through which gradients flow to all of them."""
    return _Total.apply(values) if connected() else values  # type: ignore[no-untyped-call]


def _summed(values: Tensor) -> Tensor:
    everywhere = values.contiguous().clone()
    dist.all_reduce(everywhere)
    return everywhere


@torch.no_grad()
def average(tensors: Iterable[Tensor]) -> None:
    """Replace tensors by their means over the processes, in place, by one all-reduce for each dtype."""
    if not connected():
        return
    for same in _by_dtype(tensors):
        together = torch.cat([tensor.reshape(-1) for tensor in same])
        dist.all_reduce(together)
        _put_back(together.div_(dist.get_world_size()), same)


@contextlib.contextmanager
def gradients_in_all(weights: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """While gradients are averaged, give each weight without a gradient one of zeros: another process may have one.

    The data may decide which weights take part in a loss. Afterwards a weight has a gradient if any process has one,
    as in one process; optimizers leave weights without a gradient as they are.

    Yields:
        What must be averaged with the gradients: 1 for each weight with a gradient, else 0.
    """
    learning = [weight for weight in weights if weight.requires_grad] if connected() else []
    missing = [place for place, weight in enumerate(learning) if weight.grad is None]
    if not learning:
        yield []
        return
    found = torch.ones(len(learning), device=learning[0].device)
    for place in missing:
        learning[place].grad = torch.zeros_like(learning[place])
        found[place] = 0
    yield [found]
    # `found` is read only if some are missing: on a GPU this waits for the step.
    shares = found.tolist() if missing else []
    for place in missing:
        if shares[place] == 0:
            learning[place].grad = None


@torch.no_grad()
def take_first(tensors: Iterable[Tensor]) -> None:
    """Replace tensors by those of the first process, in place."""
    if not connected():
        return
    for same in _by_dtype(tensors):
        together = torch.cat([tensor.reshape(-1) for tensor in same])
        dist.broadcast(together, src=0)
        _put_back(together, same)


def _by_dtype(tensors: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    same: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        same[tensor.dtype].append(tensor)
    return same.values()


def _put_back(together: Tensor, tensors: list[Tensor]) -> None:
    parts = together.split([tensor.numel() for tensor in tensors])
    torch._foreach_copy_(tensors, [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)])


def _outcome(function: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return function(), None
    except Exception as error:  # raised again, in all processes
        return None, error


def _sendable(error: Exception) -> Exception:
    """Return the error, or one with its text if it cannot be sent to other processes."""
    try:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    assert isinstance(copy, Exception)
    return copy
