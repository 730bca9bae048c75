"""The plain training loop: mini-batches in proportion, one optimizer, one schedule. It knows nothing of UPS.

A method is a loss over a batch's logits and targets. The order of the samples is a hash of (seed, epoch, sample id),
so it does not depend on the batch size's past or on where a run was resumed.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from surelabel.config import Settings
from surelabel.data.draws import proportional_order, sample_keys
from surelabel.data.training_set import TrainingSet
from surelabel.errors import InvalidInputError

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(logits, y, g) to a scalar."""

Progress = Callable[[str, int, int], None]
"""Called as work goes on: (what, done, total)."""


class TrainingSettings(Settings):
    """How one network is trained. The defaults are the paper's: SGD, 0.03, cosine annealing.

    Attributes:
        optimizer: "sgd" (momentum and Nesterov as published) or "adamw".
        learning_rate: the initial learning rate.
        momentum: of SGD.
        nesterov: of SGD.
        weight_decay: decoupled for AdamW; the published code parses one and never passes it on.
        schedule: "cosine" anneals to 0; "cosine-7/16" is the published code's, which ends at 0.195 of the initial
            rate; "constant".
        batch_size: the largest mini-batch.
        epochs: passes over the round's training set.
        min_steps: small training sets are repeated until this many steps are done.
        gradient_clip: largest norm of the gradient; None leaves it as it is.
    """

    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float = Field(0.03, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = True
    weight_decay: NonNegativeFloat = 0.0
    schedule: Literal["cosine", "cosine-7/16", "constant"] = "cosine"
    batch_size: PositiveInt = 128
    epochs: PositiveInt = 100
    min_steps: NonNegativeInt = 0
    gradient_clip: float | None = Field(None, gt=0)


def train(
    model: torch.nn.Module,
    training_set: TrainingSet,
    loss: Loss,
    settings: TrainingSettings,
    *,
    seed: int,
    device: torch.device,
    exact: bool = False,
    progress: Progress | None = None,
) -> None:
    """Train `model` in place on the rows that have something to learn from; `exact` as for `gather`."""
    rows, kind = training_set.rows, training_set.kind
    keys = sample_keys(training_set.source.ids[rows])
    y, g = (torch.from_numpy(part[rows]).to(device) for part in (training_set.y, training_set.g))
    steps_per_epoch = math.ceil(len(rows) / settings.batch_size)
    epochs = max(settings.epochs, math.ceil(settings.min_steps / steps_per_epoch))
    total = epochs * steps_per_epoch
    optimizer = make_optimizer(model, settings)
    model.train()
    for step in range(total):
        epoch, part = divmod(step, steps_per_epoch)
        if part == 0:
            # Parts of nearly equal size: a last batch of one sample would break BatchNorm.
            order = np.array_split(proportional_order(keys, kind, seed, "order", epoch), steps_per_epoch)
        index = order[part]
        set_learning_rate(optimizer, settings, step / total)
        batch = gather(training_set.source, rows[index], device, exact)
        chosen = torch.from_numpy(index).to(device)
        optimizer.zero_grad(set_to_none=True)
        logits = model(batch)
        if logits.shape != (len(index), y.shape[1]):
            raise InvalidInputError(
                f"The network must return one logit for each of the {y.shape[1]} classes, shape "
                f"{(len(index), y.shape[1])} for this batch. Got {tuple(logits.shape)} instead."
            )
        value = loss(logits, y[chosen], g[chosen])
        value.backward()  # type: ignore[no-untyped-call]
        if settings.gradient_clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_clip)
        optimizer.step()
        if progress is not None:
            progress("train", step + 1, total)
    _check_finite(value)


def make_optimizer(model: torch.nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name, over all parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
    return torch.optim.SGD(
        parameters,
        lr=settings.learning_rate,
        momentum=settings.momentum,
        nesterov=settings.nesterov and settings.momentum > 0,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrainingSettings, done: float) -> None:
    """Set the learning rate for the share `done` of all steps."""
    factor = {
        "cosine": 0.5 * (1 + math.cos(math.pi * done)),
        "cosine-7/16": math.cos(7 * math.pi / 16 * done),
        "constant": 1.0,
    }[settings.schedule]
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * factor


def gather(source: Any, index: Any, device: torch.device, exact: bool = False) -> torch.Tensor:
    """Return the samples at `index` as one tensor: sparse rows dense, floats as float32, integers as they are.

    With `exact`, floats keep their width, for a network that standardizes them itself.
    """
    batch = source[index]
    if hasattr(batch, "toarray"):
        batch = batch.toarray()
    tensor = torch.as_tensor(batch).to(device)
    return tensor.float() if tensor.is_floating_point() and not exact else tensor


def _check_finite(value: torch.Tensor) -> None:
    if not torch.isfinite(value):
        raise InvalidInputError(
            f"Training diverged: the last loss is {value.item()}. Lower the learning rate, set gradient_clip, or check "
            "the samples for extreme values."
        )
