"""MC-dropout: p is the mean, u the standard deviation (n - 1) of the probabilities over passes with dropout.

p_soft and u_soft are the same of the softened probabilities: softmax(z / T), multi-label sigmoid(z / T).
"""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.labels import Task
from surelabel.models.stochastic import LayerTypes, check_layer_types, stochastic_layers, stochastic_mode
from surelabel.uncertainty.deterministic import (
    Uncertainty,
    check_finite,
    check_task,
    check_temperature,
    logits,
    probabilities,
)
from surelabel.uncertainty.moments import RunningMoments


@dataclass(frozen=True)
class MCDropout:
    """Mean and spread over repeated passes of any network with dropout; the passes are not kept.

    Randomness comes from torch's global generator; seed it inside `torch.random.fork_rng` for a repeatable
    answer.

    Args:
        passes: how often the batch goes through the network, at least 2.
        temperature: T of the softened probabilities.
        stochastic_layers: layer classes of the user's own to switch on besides torch's dropout layers.
        task: "single" for softmax, "multi" for a sigmoid a class.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        >>> p, u, p_soft, u_soft = MCDropout(passes=10).estimate(model, torch.ones(5, 4), check=True)
        >>> p.shape, bool((u > 0).all())
        (torch.Size([5, 3]), True)
    """

    passes: int = 10
    temperature: float = 2.0
    stochastic_layers: LayerTypes = ()
    task: Task = "single"

    def __post_init__(self) -> None:
        _check_passes(self.passes)
        check_temperature(self.temperature)
        check_layer_types(self.stochastic_layers)
        check_task(self.task)

    # Not inference_mode: no later training could use its tensors, nor those that a network caches in itself.
    @torch.no_grad()
    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C) for a batch (N, ...).

        Args:
            model: returns logits (N, C). Each module's mode is as before afterwards, also after an exception.
            batch: samples, on the network's device. It is not changed.
            check: raise NotStochasticError when the logits of all passes are identical, and u silently 0.
        """
        if check and len(batch) == 0:
            raise InvalidInputError("The 'batch' argument has no samples to check the network on; pass at least one.")
        plain, soft, trial = RunningMoments(), RunningMoments(), _Trial()
        with stochastic_mode(model, self.stochastic_layers):
            for _ in range(self.passes):
                z = logits(model, batch)
                plain.add(probabilities(z, self.task))
                soft.add(probabilities(z / self.temperature, self.task))
                trial.add(z)
        check_finite(trial.finite)
        if check and not trial.differs.any():
            raise NotStochasticError(self._why_silent(model, batch))
        return Uncertainty(p=plain.mean, u=plain.std, p_soft=soft.mean, u_soft=soft.std)

    def _why_silent(self, model: nn.Module, batch: Tensor) -> str:
        found = stochastic_layers(model, self.stochastic_layers)
        names = ", ".join(f"'{name}' ({type(layer).__name__})" for name, layer in found.items()) or "none"
        return (
            f"All {self.passes} passes over {len(batch)} samples gave the same output: MC-dropout needs a "
            f"network that is random with dropout on, and the uncertainty would be 0 everywhere. Layers "
            f"switched on: {names}. Use nn.Dropout layers instead of torch.nn.functional.dropout; give "
            f"dropout a rate above 0 and below 1; or name the classes of your own layers with "
            f"stochastic_layers=(MyLayer,), in which F.dropout(x, p, self.training) works too."
        )


class _Trial:
    """Whether the logits were finite and whether they ever differed; no pass waits for the device to tell."""

    def __init__(self) -> None:
        self._first: Tensor | None = None
        self.finite = self.differs = torch.empty(0)

    def add(self, z: Tensor) -> None:
        finite = torch.isfinite(z).all(dim=1)
        if self._first is None:
            # A copy, because a network may write its next output into the same memory.
            self._first, self.finite, self.differs = z.clone(), finite, torch.zeros_like(z, dtype=torch.bool)
        else:
            self.finite &= finite
            self.differs |= z != self._first


def _check_passes(passes: Any) -> None:
    try:
        enough = operator.index(passes) >= 2
    except TypeError:
        enough = False
    if not enough:
        raise InvalidInputError(
            f"The 'passes' argument must be a whole number of at least 2: a single pass has no spread. "
            f"Got {passes!r} instead; the paper uses 10, and Deterministic() does without uncertainty."
        )
