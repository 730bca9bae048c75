"""Dropout of single values, of whole channels or of blocks, and replacing one kind by another.

DropBlock (Ghiasi et al., 2018) drops squares of b x b values. A position becomes the corner of one with probability

    gamma = (1 - keep_probability) / b² · H W / ((H - b + 1) (W - b + 1)),

so that about 1 - keep_probability of an H x W map is dropped, or a little less, because blocks may overlap.
"""

import math
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from surelabel.core.arrays import bad_argument, require_choice, require_count, require_number
from surelabel.errors import InvalidInputError

DropoutKind: TypeAlias = Literal["dropout", "spatial", "dropblock"]
"""Dropout of single values (MC-Dropout), whole channels (MC-SpatialDropout) or blocks (MC-DropBlock)."""

BLOCK_SIZE = 7
"""The published side of a block, for 14 x 14 and 7 x 7 maps; CNN-13's dropout layers see 16 x 16 and 8 x 8 maps."""


class Dropout(nn.Dropout):
    """Torch's dropout, with uniform draws on a CPU, where torch's own Bernoulli draws take twice as long.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> Dropout(0.5)(torch.ones(8))
        tensor([0., 2., 0., 0., 0., 2., 0., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Set some values to 0 and scale the others by 1 / (1 - p)."""
        if not self.training or self.p in (0, 1) or x.device.type != "cpu":
            return super().forward(x)
        kept = torch.rand(x.shape, device=x.device) >= self.p
        return x * kept.to(x.dtype).div_(1 - self.p)


class SpatialDropout2d(nn.Dropout2d):
    """Torch's Dropout2d, which drops each channel of each row with probability p, for maps (N, C, H, W) only.

    For other inputs, torch only warns, and then drops something else.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> SpatialDropout2d(0.5)(torch.ones(2, 4, 3, 3)).mean(dim=(2, 3))
        tensor([[0., 0., 2., 0.],
                [0., 0., 2., 2.]])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Set some channels of maps (N, C, H, W) to 0 and scale the others by 1 / (1 - p)."""
        _check_maps(self, x)
        return super().forward(x)


class DropBlock2d(nn.Module):
    """Drop blocks of neighboring values in maps (N, C, H, W), and scale up the rest of each row.

    Each channel of each row has its own blocks, which lie entirely within the map. A row is divided by the share of its
    values that was kept (published: the share in the whole batch), so that rows do not depend on each other. A row that
    lost everything is 0. In evaluation mode nothing is dropped.

    Args:
        keep_probability: about this share of the values is kept; 0.9 in the paper.
        block_size: the side of a block. The paper does not give it; DropBlock's authors use 7 with this keep
            probability. It is clipped to the sides of smaller maps; if both are shorter, whole channels are dropped.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> DropBlock2d(0.7, block_size=2)(torch.ones(1, 1, 3, 5))
        tensor([[[[1.6667, 1.6667, 0.0000, 0.0000, 0.0000],
                  [1.6667, 1.6667, 0.0000, 0.0000, 0.0000],
                  [1.6667, 1.6667, 1.6667, 1.6667, 1.6667]]]])
    """

    def __init__(self, keep_probability: float = 0.9, block_size: int = BLOCK_SIZE) -> None:
        super().__init__()
        self.keep_probability = require_number("keep_probability", keep_probability, 0, 1, ends="(]")
        self.block_size = require_count("block_size", block_size, 1)

    @property
    def p(self) -> float:
        """The dropout rate, under the name that torch's layers use."""
        return round(1 - self.keep_probability, 12)  # 1 - 0.9 is not 0.1

    def forward(self, x: Tensor) -> Tensor:
        """Set blocks of maps (N, C, H, W) to 0."""
        _check_maps(self, x)
        if not self.training or self.p == 0:
            return x
        dtype = torch.promote_types(x.dtype, torch.float32)
        height, width = x.shape[2:]
        rows, columns = min(self.block_size, height), min(self.block_size, width)
        places = height - rows + 1, width - columns + 1
        gamma = self.p * height * width / (rows * columns * math.prod(places))
        corners = torch.rand(*x.shape[:2], *places, dtype=dtype, device=x.device) < gamma
        kept = 1 - _blocks(corners.to(dtype), rows, columns)
        share = kept.mean(dim=(1, 2, 3), keepdim=True)
        # At least the share of one value: a row that lost everything is 0, not 0 / 0.
        return (x * (kept / share.clamp(min=1 / math.prod(x.shape[1:])))).to(x.dtype)

    def extra_repr(self) -> str:
        """Return the settings, for the printed form of the network."""
        return f"keep_probability={self.keep_probability}, block_size={self.block_size}"


def dropout_layer(kind: DropoutKind, rate: float, block_size: int = BLOCK_SIZE) -> nn.Module:
    """Return a layer that drops about this share of its input.

    Args:
        kind: "dropout", "spatial" or "dropblock".
        rate: the share, at least 0 and below 1. The paper uses 0.3, and 0.1 for DropBlock.
        block_size: for DropBlock only.

    Example:
        >>> dropout_layer("dropblock", 0.1)
        DropBlock2d(keep_probability=0.9, block_size=7)
    """
    rate = require_number("dropout", rate, 0, 1, ends="[)")
    require_choice("kind", kind, get_args(DropoutKind))
    if kind == "dropblock":
        return DropBlock2d(1 - rate, block_size)
    return SpatialDropout2d(rate) if kind == "spatial" else nn.Dropout(rate)


def replace_dropout(
    model: nn.Module, kind: DropoutKind, rate: float | None = None, block_size: int = BLOCK_SIZE
) -> int:
    """Replace a network's Dropout, Dropout2d and DropBlock2d layers by layers of this kind; return how many.

    The network is changed in place. Dropout of channels or blocks needs maps: after a flattening layer, it raises
    InvalidInputError when the network runs.

    Args:
        model: any network that contains such layers.
        kind: "dropout", "spatial" or "dropblock".
        rate: of the new layers; None: each keeps the rate of the layer it replaces.
        block_size: for DropBlock only.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout(0.3), nn.Flatten())
        >>> replace_dropout(model, "dropblock", rate=0.1), model[1]
        (1, DropBlock2d(keep_probability=0.9, block_size=7))
    """
    new: dict[nn.Module, nn.Module] = {}
    # Under every name: a layer used in two places stays one layer.
    for name, layer in list(model.named_modules(remove_duplicate=False)):
        if name and isinstance(layer, (nn.Dropout, nn.Dropout2d, DropBlock2d)):
            if layer not in new:
                new[layer] = dropout_layer(kind, layer.p if rate is None else rate, block_size).train(layer.training)
            model.set_submodule(name, new[layer])
    if not new:
        got, remedy = f"{type(model).__name__} without any", "add dropout where the network should be random"
        raise bad_argument("model", "have nn.Dropout, nn.Dropout2d or DropBlock2d layers to replace", got, remedy)
    return len(new)


def _blocks(corners: Tensor, rows: int, columns: int) -> Tensor:
    """Return 1 where a block covers a value (N, C, H, W), given the blocks' corners (N, C, H - rows + 1, ...)."""
    padded = functional.pad(corners, (columns - 1, columns - 1, rows - 1, rows - 1))
    # One axis after the other: this compares rows + columns values instead of rows · columns.
    return functional.max_pool2d(functional.max_pool2d(padded, (rows, 1), stride=1), (1, columns), stride=1)


def _check_maps(layer: nn.Module, x: Tensor) -> None:
    if x.ndim != 4:
        name, shape = type(layer).__name__, tuple(x.shape)
        raise InvalidInputError(f"{name} takes maps (N, C, H, W). Got shape {shape}; use nn.Dropout after flattening.")
