"""Stochastic passes and their tally as one compiled function, kept for each network as long as it lives.

Weights are inputs of the function: a network that is trained on or takes new weights in place is not compiled again.
Shapes are fixed; too few rows are filled up with repeated ones, and the results of those are cut off.
"""

import types
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from surelabel.core.labels import Task
from surelabel.uncertainty.sharing import Way, shared_logits
from surelabel.uncertainty.tally import Sums, Tally

BACKEND = "inductor"
"""The compiler that `torch.compile` is asked for."""

Function: TypeAlias = Callable[[nn.Module, Tensor, int, Way, Task, float], Sums]


class CompiledPasses:
    """The compiled function of one network, and what stands in the place of its norms."""

    def __init__(self) -> None:
        # Else all networks would share a limit: torch counts recompilations by code object.
        function = with_code_of_its_own(shared_sums)
        self.function: Function = torch.compile(function, backend=BACKEND, fullgraph=True, dynamic=False)
        self._affine: defaultdict[str, _Affine] = defaultdict(_Affine)

    @contextmanager
    def affine_norms(self, model: nn.Module) -> Iterator[None]:
        """Put x * scale + shift in the place of every BatchNorm in evaluation mode; each is put back.

        The compiler would take the root of the variance anew for every value, and be bound by that, not by memory.
        """
        places = [
            (parent, name, norm, self._affine[f"{path}.{name}"])
            for path, parent in model.named_modules()
            for name, norm in parent.named_children()
            if _is_affine(norm)
        ]
        _fill([affine for *_, affine in places], [norm for *_, norm, _ in places])
        try:
            for parent, name, _, affine in places:
                parent._modules[name] = affine
            yield
        finally:
            for parent, name, norm, _ in places:
                parent._modules[name] = norm


def _is_affine(module: nn.Module) -> bool:
    """Tell whether a module does what BatchNorm in evaluation mode does, and nothing else.

    A class derived from it may add an activation, a hook may do anything.
    """
    if type(module) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        return False
    hooks = module._forward_hooks or module._forward_pre_hooks
    return not hooks and module.running_mean is not None and not module.training


class _Affine(nn.Module):
    """BatchNorm in evaluation mode: x * scale + shift, with both in the same memory from network to network."""

    scale: Tensor
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.empty(0))
        self.register_buffer("shift", torch.empty(0))

    def place_for(self, like: Tensor) -> None:
        """Have memory for numbers like these: the same as before where it fits."""
        if self.scale.shape != like.shape or self.scale.device != like.device:
            self.scale, self.shift = torch.empty_like(like), torch.empty_like(like)

    def forward(self, x: Tensor) -> Tensor:
        shape = [1, -1] + [1] * (x.ndim - 2)
        return (x * self.scale.view(shape) + self.shift.view(shape)).to(x.dtype)


def _fill(affines: list[_Affine], norms: list[_BatchNorm]) -> None:
    """Compute scales and shifts from the norms' statistics and weights, in place and of all norms together.

    One by one, each of some fifty norms would launch several kernels, and the device would wait for them.
    """
    if not norms:
        return
    variances = [norm.running_var for norm in norms if norm.running_var is not None]
    means = [norm.running_mean for norm in norms if norm.running_mean is not None]
    scales = torch._foreach_add(variances, [norm.eps for norm in norms])
    torch._foreach_rsqrt_(scales)
    _where_given(torch._foreach_mul_, scales, [norm.weight for norm in norms])
    shifts = torch._foreach_mul(means, scales)
    torch._foreach_neg_(shifts)
    _where_given(torch._foreach_add_, shifts, [norm.bias for norm in norms])
    for affine, scale in zip(affines, scales, strict=True):
        affine.place_for(scale)
    torch._foreach_copy_([affine.scale for affine in affines], scales)
    torch._foreach_copy_([affine.shift for affine in affines], shifts)


def _where_given(change: Callable[..., None], tensors: Sequence[Tensor], others: Sequence[Tensor | None]) -> None:
    """Change tensors in place by their others; those without another stay as they are."""
    pairs = [(tensor, other) for tensor, other in zip(tensors, others, strict=True) if other is not None]
    if pairs:
        change(*zip(*pairs, strict=True))


_COMPILED: weakref.WeakKeyDictionary[nn.Module, CompiledPasses] = weakref.WeakKeyDictionary()


def compiled_passes(model: nn.Module) -> CompiledPasses:
    """Return the network's compiled passes; the same object as long as the network lives."""
    if model not in _COMPILED:
        _COMPILED[model] = CompiledPasses()
    return _COMPILED[model]


def shared_sums(model: nn.Module, block: Tensor, passes: int, way: Way, task: Task, temperature: float) -> Sums:
    """Return the sums over `passes` passes of a block (N, ...); the rows repeat already where the way needs it."""
    tally = Tally(task, temperature)
    tally.add(shared_logits(model, block, passes, way))
    return tally.sums()


AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])


def with_code_of_its_own(function: AnyFunction) -> AnyFunction:
    """Return a function that does the same, and that torch.compile takes for another one."""
    copied = types.FunctionType(function.__code__.replace(), function.__globals__)
    return cast(AnyFunction, copied)


def filled(block: Tensor, rows: int) -> Tensor:
    """Return a block (N, ...) filled up to `rows` rows, its own again from the first on.

    Example:
        >>> filled(torch.tensor([1, 2, 3]), 5)
        tensor([1, 2, 3, 1, 2])
    """
    return block if len(block) == rows else block[torch.arange(rows, device=block.device) % len(block)]
