"""Stochastic passes and their summary as one compiled function, kept for each network as long as it lives.

Weights are inputs of the function: a network that is trained further or gets new weights in place is not compiled
again. Shapes are fixed: a block with too few rows is padded with repeated ones, whose results are dropped.
"""

import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from surelabel.core.labels import Task
from surelabel.uncertainty.moments import Summary, summarize
from surelabel.uncertainty.plan import Way, shared_logits

BACKEND = "inductor"
"""The backend of `torch.compile`."""


class CompiledPasses:
    """The compiled function of one network, and the affine maps that replace its norms."""

    def __init__(self) -> None:
        # Otherwise all networks would share one limit: torch counts recompilations by code object.
        function = with_code_of_its_own(shared_summary)
        self.function: Callable[..., Summary] = torch.compile(function, backend=BACKEND, fullgraph=True, dynamic=False)
        self._affine: dict[tuple[object, ...], _Affine] = {}

    @contextmanager
    def affine_norms(self, model: nn.Module) -> Iterator[None]:
        """Replace every BatchNorm in evaluation mode by x * scale + shift, and put them back afterwards.

        Compiled kernels would otherwise take the root of the variance again for every value, and be limited by that
        rather than by memory.
        """
        places = [
            (parent, name, norm, self._affine_for(f"{path}.{name}", norm))
            for path, parent in model.named_modules()
            for name, norm in parent.named_children()
            if _is_affine(norm)
        ]
        if places:
            _fill([affine for *_, affine in places], [norm for *_, norm, _ in places])
        try:
            for parent, name, _, affine in places:
                parent._modules[name] = affine
            yield
        finally:
            for parent, name, norm, _ in places:
                parent._modules[name] = norm

    def _affine_for(self, path: str, norm: nn.Module) -> "_Affine":
        """Return the map for the norm at this path, the same one every time, so that nothing is compiled again."""
        like = cast(Tensor, norm.weight)
        key = path, like.shape, like.device
        if key not in self._affine:
            self._affine[key] = _Affine(like)
        return self._affine[key]


def _is_affine(module: nn.Module) -> bool:
    """Return whether a module is a BatchNorm in evaluation mode that only scales and shifts.

    A subclass may add an activation, and a hook may do anything.
    """
    if type(module) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d) or module.training:
        return False
    hooks = module._forward_hooks or module._forward_pre_hooks
    parts = (module.running_mean, module.weight, module.bias)
    return not hooks and all(part is not None for part in parts)


class _Affine(nn.Module):
    """BatchNorm in evaluation mode: x * scale + shift."""

    scale: Tensor
    shift: Tensor

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", torch.empty_like(like.detach()))
        self.register_buffer("shift", torch.empty_like(like.detach()))

    def forward(self, x: Tensor) -> Tensor:
        shape = [1, -1] + [1] * (x.ndim - 2)
        return (x * self.scale.view(shape) + self.shift.view(shape)).to(x.dtype)


def _fill(affines: list[_Affine], norms: list[nn.BatchNorm2d]) -> None:
    """Compute scales and shifts from the norms' statistics and weights, in place and for all norms together.

    One by one, some fifty norms would launch several kernels each, and the device would wait for them.
    """
    scales = torch._foreach_add([cast(Tensor, norm.running_var) for norm in norms], [norm.eps for norm in norms])
    torch._foreach_rsqrt_(scales)
    torch._foreach_mul_(scales, [norm.weight for norm in norms])
    shifts = torch._foreach_mul([cast(Tensor, norm.running_mean) for norm in norms], scales)
    torch._foreach_neg_(shifts)
    torch._foreach_add_(shifts, [norm.bias for norm in norms])
    torch._foreach_copy_([affine.scale for affine in affines], scales)
    torch._foreach_copy_([affine.shift for affine in affines], shifts)


_COMPILED: weakref.WeakKeyDictionary[nn.Module, CompiledPasses] = weakref.WeakKeyDictionary()


def compiled_passes(model: nn.Module) -> CompiledPasses:
    """Return the network's compiled passes; the same object as long as the network lives."""
    if model not in _COMPILED:
        _COMPILED[model] = CompiledPasses()
    return _COMPILED[model]


def shared_summary(model: nn.Module, block: Tensor, passes: int, way: Way, task: Task, temperature: float) -> Summary:
    """Return the summary of `passes` passes over a block (N, ...); rows are already repeated if the way needs it."""
    return summarize([shared_logits(model, block, passes, way)], task, temperature)


AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])


def with_code_of_its_own(function: AnyFunction) -> AnyFunction:
    """Return a copy of a function that torch.compile treats as a different function."""
    copied = types.FunctionType(function.__code__.replace(), function.__globals__)
    return cast(AnyFunction, copied)


def filled(block: Tensor, rows: int) -> Tensor:
    """Return a block (N, ...) padded to `rows` rows by repeating its own from the first one.

    Example:
        >>> filled(torch.tensor([1, 2, 3]), 5)
        tensor([1, 2, 3, 1, 2])
    """
    return block if len(block) == rows else block[torch.arange(rows, device=block.device) % len(block)]
