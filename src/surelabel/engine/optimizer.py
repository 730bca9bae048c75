"""The optimizer and its schedule; the rate is a tensor on the device, so that a captured step can read it."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList

from surelabel.engine.muon import Muon, convolutions
from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError

_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""The first is the base of all BatchNorms and InstanceNorms."""


def make_optimizer(network: nn.Module, settings: TrainingSettings, rate: Tensor) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name, over all trainable parameters, at the rate in `rate` (0-d).

    Its state for each parameter is there from the start, all zeros, as torch would make it in the first step. So there
    is a place for everything that a checkpoint may hold.
    """
    groups = parameter_groups(network, settings)
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "adamw":
        # Torch requires this before a step can be captured.
        capturable = rate.is_cuda and settings.cuda_graph is not False
        optimizer = torch.optim.AdamW(groups, lr=rate, fused=True, capturable=capturable)
        names = ["exp_avg", "exp_avg_sq"]
    elif settings.optimizer == "muon":
        half = settings.precision == "bfloat16"
        optimizer = Muon(groups, _turned(network), rate, settings.momentum, half)
        names = ["momentum_buffer"]
    else:
        nesterov = settings.nesterov and settings.momentum > 0
        optimizer = torch.optim.SGD(groups, lr=rate, momentum=settings.momentum, nesterov=nesterov, fused=True)
        names = ["momentum_buffer"] if settings.momentum > 0 else []
    for parameter in (parameter for group in groups for parameter in group["params"]):
        # Laid out like the weights: a fused optimizer goes through both in memory order.
        state = {name: torch.zeros_like(parameter, requires_grad=False) for name in names}
        if settings.optimizer == "adamw":
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        optimizer.state[parameter] = state
    return optimizer


def _turned(network: nn.Module) -> set[nn.Parameter]:
    """Return the parameters that Muon turns; refuse a network without convolutions or norms."""
    found = convolutions(network)
    normalized = any(isinstance(module, _NORMS) for module in network.modules())
    for what, there in (("trainable convolution", found), ("norm layer", normalized)):
        if not there:
            problem = f"optimizer='muon' is for convolutions that norms follow; this network has no {what}"
            raise InvalidInputError(f"{problem}. Choose 'sgd' or 'adamw'.")
    return found


def parameter_groups(network: nn.Module, settings: TrainingSettings) -> list[dict[str, Any]]:
    """Return the trainable parameters: those with weight decay, and those that `decay_all=False` exempts from it.

    >>> groups = parameter_groups(nn.Linear(2, 3), TrainingSettings(weight_decay=0.1, decay_all=False))
    >>> [(tuple(parameter.shape), group["weight_decay"]) for group in groups for parameter in group["params"]]
    [((3, 2), 0.1), ((3,), 0.0)]
    """
    spared = set() if settings.decay_all else _only_scale_or_shift(network)
    parts: tuple[list[nn.Parameter], list[nn.Parameter]] = [], []
    for parameter in network.parameters():
        if parameter.requires_grad:
            parts[parameter in spared].append(parameter)
    decays = settings.weight_decay, 0.0
    groups = [{"params": part, "weight_decay": decay} for part, decay in zip(parts, decays, strict=True) if part]
    if not groups:
        raise InvalidInputError("The network has no trainable parameter: all are frozen (requires_grad=False).")
    return groups


def _only_scale_or_shift(network: nn.Module) -> set[nn.Parameter]:
    """Return the parameters of norms, biases, the sizes that weight norm trains separately, and all 1-d parameters."""
    return {
        parameter
        for module in network.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if isinstance(module, _NORMS) or "bias" in name or parameter.ndim <= 1 or _is_size(module, name)
    }


def _is_size(module: nn.Module, name: str) -> bool:
    if isinstance(module, ParametrizationList):
        return name == "original0" and any(isinstance(part, _WeightNorm) for part in module)
    return name == "weight_g"  # of the older torch.nn.utils.weight_norm


def learning_rate(settings: TrainingSettings, step: int, steps: int, size: int) -> float:
    """Return the rate of one step of `steps`, for batches with `size` rows from counted streams.

    >>> [learning_rate(TrainingSettings(learning_rate=2.0), step, 4, 128) for step in (0, 2)]
    [2.0, 1.0]
    """
    highest = settings.learning_rate
    if settings.reference_batch_size is not None:
        highest *= size / settings.reference_batch_size
    rising = round(settings.warmup * steps)
    if step < rising:
        return highest * (step + 1) / (rising + 1)
    done = (step - rising) / (steps - rising)
    factor = {
        "cosine": 0.5 * (1 + math.cos(math.pi * done)),
        "cosine-7/16": math.cos(7 * math.pi / 16 * done),
        "linear": 1 - done,
        "constant": 1.0,
    }[settings.schedule]
    return highest * factor
