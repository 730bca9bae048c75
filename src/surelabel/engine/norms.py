"""BatchNorm in training: y = (x - mean) / sqrt(var + eps) * weight + bias, with statistics over all processes.

Without this, each of several processes normalizes by its own rows. torch's SyncBatchNorm is for GPUs alone, and
replaces modules of the network. Here the network stays as it is: while a loss is computed, torch's `batch_norm` is
replaced by a function that sums over the processes.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from surelabel.engine.parallel import processes, total
from surelabel.engine.settings import TrainingSettings


class SynchronizedBatchNorm(TorchFunctionMode):
    """Makes every BatchNorm in training use the statistics of the batches of all processes."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return (batch_norm if func is functional.batch_norm else func)(*args, **(kwargs or {}))


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Do what torch's function of this name does, in training by the statistics over all processes.

    The mean comes first, then the mean of squared distances to it: var = E[x²] - E[x]² would lose digits.

    Args:
        x: shape (N, C, ...); the processes may have different N.
        running_mean: shape (C,), updated in place; None: not kept.
        running_var: likewise, by the unbiased variance.
        weight: shape (C,).
        bias: shape (C,).
        training: whether statistics are those of the batch; else the running ones are used.
        momentum: how far the running statistics move.
        eps: is added to the variance.
    """
    if not training:
        return functional.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    across, shape = [0, *range(2, x.ndim)], [1, -1] + [1] * (x.ndim - 2)
    sums = total(torch.cat([wide.sum(across), wide.new_full((1,), x.numel() // x.shape[1])]))
    count = sums[-1].detach()
    mean = sums[:-1] / count
    centered = wide - mean.view(shape)
    var = total(centered.square().sum(across)) / count
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        if running_var is not None:
            running_var.lerp_((var * count / (count - 1)).to(running_var.dtype), momentum)
    y = centered * (var + eps).rsqrt().view(shape)
    if weight is not None:
        y = y * weight.view(shape)
    if bias is not None:
        y = y + bias.view(shape)
    return y.to(x.dtype)


@contextlib.contextmanager
def synchronized_again(network: nn.Module) -> Iterator[None]:
    """Synchronize the BatchNorms that a backward pass computes again, as it does with `torch.utils.checkpoint`.

    There a torch function mode has an effect only within a layer's own call.
    """
    within = contextlib.ExitStack()

    def enter(*called: Any) -> None:
        within.enter_context(SynchronizedBatchNorm())

    def leave(*called: Any) -> None:
        within.close()

    norms = norms_of(network)
    hooks = [norm.register_forward_pre_hook(enter) for norm in norms]
    hooks += [norm.register_forward_hook(leave, always_call=True) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def norms_of(network: nn.Module) -> list[nn.Module]:
    """Return the BatchNorm layers of a network."""
    return [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


def synchronizes(network: nn.Module, settings: TrainingSettings) -> bool:
    """Return whether BatchNorm is computed over several processes; warn of settings that change nothing."""
    if not settings.sync_batchnorm:
        return False
    if not norms_of(network):
        warnings.warn("Ignored: sync_batchnorm, because the network has no BatchNorm.", stacklevel=2)
        return False
    if processes().size == 1:  # a single process has all rows
        return False
    if settings.cuda_graph:
        why = "with sync_batchnorm the processes exchange sums in the middle of a step"
        warnings.warn(f"Ignored: cuda_graph, because {why}.", stacklevel=2)
    return True
