"""Stochastic passes and their tally as one compiled function, kept for each network as long as it lives.

Weights are inputs of the function: a network that is trained on or takes new weights in place is not compiled again.
Shapes are fixed; too few rows are filled up with repeated ones, and the results of those are cut off.
"""

import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from surelabel.labels import Task
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
        self._affine: dict[str, _Affine] = {}

    @contextmanager
    def affine_norms(self, model: nn.Module) -> Iterator[None]:
        """Put x * scale + shift in the place of every BatchNorm in evaluation mode; each is put back.

        The compiler would take the root of the variance anew for every value, and be bound by that, not by memory.
        """
        places = [
            (parent, name, norm, self._affine.setdefault(f"{path}.{name}", _Affine()))
            for path, parent in model.named_modules()
            for name, norm in parent.named_children()
            if _is_affine(norm)
        ]
        try:
            for parent, name, norm, affine in places:
                affine.take(norm)
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

    def take(self, norm: _BatchNorm) -> None:
        """Compute scale and shift from a norm's statistics and weights, in place where there is a place."""
        mean, variance = norm.running_mean, norm.running_var
        assert mean is not None
        assert variance is not None
        scale = torch.rsqrt(variance + norm.eps)
        scale = scale if norm.weight is None else norm.weight * scale
        shift = -mean * scale if norm.bias is None else norm.bias - mean * scale
        if self.scale.shape != scale.shape or self.scale.device != scale.device:
            self.scale, self.shift = torch.empty_like(scale), torch.empty_like(shift)
        self.scale.copy_(scale)
        self.shift.copy_(shift)

    def forward(self, x: Tensor) -> Tensor:
        shape = [1, -1] + [1] * (x.ndim - 2)
        return (x * self.scale.view(shape) + self.shift.view(shape)).to(x.dtype)


_COMPILED: weakref.WeakKeyDictionary[nn.Module, CompiledPasses] = weakref.WeakKeyDictionary()


def compiled_passes(model: nn.Module) -> CompiledPasses:
    """Return the network's compiled passes; the same object as long as the network lives."""
    if model not in _COMPILED:
        _COMPILED[model] = CompiledPasses()
    return _COMPILED[model]


def shared_sums(model: nn.Module, block: Tensor, passes: int, way: Way, task: Task, temperature: float) -> Sums:
    """Return the sums over `passes` passes of a block (N, ...); the rows repeat already where the way needs it."""
    tally = Tally(task, temperature)
    for z in shared_logits(model, block, passes, way).unbind():
        tally.add(z)
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
