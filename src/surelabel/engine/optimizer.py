"""The optimizer and its schedule; the rate is a tensor on the device, so that a captured step can read it."""

import math

import torch
from torch import Tensor, nn

from surelabel.engine.settings import TrainingSettings
from surelabel.errors import InvalidInputError


def make_optimizer(network: nn.Module, settings: TrainingSettings, rate: Tensor) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name, over all parameters that learn, at the rate in `rate` (0-d)."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in parameters if settings.decay_all or parameter.ndim > 1]
    spared = [parameter for parameter in parameters if not settings.decay_all and parameter.ndim <= 1]
    groups = [
        {"params": members, "weight_decay": decay}
        for members, decay in [(decayed, settings.weight_decay), (spared, 0.0)]
        if members
    ]
    if not groups:
        raise InvalidInputError("The network has no parameter that learns: all are frozen (requires_grad=False).")
    if settings.optimizer == "adamw":
        # What torch asks for before a step may be captured.
        capturable = rate.is_cuda and settings.cuda_graph is not False
        return torch.optim.AdamW(groups, lr=rate, fused=True, capturable=capturable)
    nesterov = settings.nesterov and settings.momentum > 0
    return torch.optim.SGD(groups, lr=rate, momentum=settings.momentum, nesterov=nesterov, fused=True)


def learning_rate(settings: TrainingSettings, step: int, steps: int) -> float:
    """Return the rate of one step of `steps`.

    >>> [learning_rate(TrainingSettings(learning_rate=2.0), step, 4) for step in (0, 2)]
    [2.0, 1.0]
    """
    highest = settings.learning_rate
    if settings.reference_batch_size is not None:
        highest *= settings.batch_size / settings.reference_batch_size
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
