"""Multiply-adds of a network, counted as it runs: one for each weight that meets an input value.

A convolution needs out_channels · positions · in_channels / groups · kernel of them, a linear layer out · in for each
row it is given; pooling, normalization and activations are small beside these and not counted, nor is what a layer of
another kind (attention, recurrence) multiplies in itself. An operation (FLOP) is half a multiply-add.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from surelabel.models.stochastic import evaluation_mode, stochastic_layers

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class MultiplyAdds(NamedTuple):
    """Multiply-adds for one sample."""

    once: int
    """In layers that run before the first stochastic one: the same in every MC pass."""
    each_pass: int
    """In the layers from there on."""

    @property
    def total(self) -> int:
        """Of one pass through the whole network."""
        return self.once + self.each_pass

    def training_operations(self) -> float:
        """Operations of a training step: forward, and the gradients of inputs and of weights, two each."""
        return 6.0 * self.total

    def labeling_operations(self, passes: int) -> float:
        """Operations that `passes` MC passes need, with what does not differ between them done once."""
        return 2.0 * (self.once + passes * self.each_pass)


@torch.no_grad()
def multiply_adds(model: nn.Module, batch: Tensor) -> MultiplyAdds:
    """Run the network once on a batch (N, ...) and return the multiply-adds for one sample.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        >>> multiply_adds(model, torch.zeros(3, 4))
        MultiplyAdds(once=32, each_pass=16)
    """
    counted = {"once": 0, "each_pass": 0}
    part = "once"

    def count(layer: nn.Module, inputs: Any, output: Any) -> None:
        counted[part] += _layer_multiply_adds(layer, output)

    def note_randomness(layer: nn.Module, inputs: Any) -> None:
        nonlocal part
        part = "each_pass"

    handles = [layer.register_forward_hook(count) for layer in model.modules()]
    handles += [layer.register_forward_pre_hook(note_randomness) for layer in stochastic_layers(model).values()]
    try:
        with evaluation_mode(model):
            model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return MultiplyAdds(**{name: value // len(batch) for name, value in counted.items()})


def _layer_multiply_adds(layer: nn.Module, output: Any) -> int:
    if isinstance(layer, _CONVOLUTIONS):
        return int(output.numel()) * (layer.in_channels // layer.groups) * math.prod(layer.kernel_size)
    if isinstance(layer, nn.Linear):
        return int(output.numel()) * layer.in_features
    return 0
