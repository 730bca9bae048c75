"""The memory format that convolutions are fastest with on a GPU: the channels of a place beside each other."""

import torch
from torch import Tensor, nn

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""By the number of axes: pictures (N, C, H, W) and clips (N, C, T, H, W); what has others stays as it is."""


def channels_last(x: Tensor) -> Tensor:
    """Return pictures or clips in that format.

    >>> channels_last(torch.zeros(2, 3, 4, 4)).stride()
    (48, 1, 12, 3)
    """
    return x.contiguous(memory_format=_FORMATS[x.ndim]) if x.ndim in _FORMATS else x


def to_channels_last(network: nn.Module) -> nn.Module:
    """Put the weights of convolutions into that format, in place. `Module.to` takes one format for all of them."""
    for tensor in (*network.parameters(), *network.buffers()):
        tensor.data = channels_last(tensor.data)
    return network
