"""MC-DropBlock: MC-dropout whose layers drop blocks of a map (Ghiasi et al., 2018); the paper keeps 0.9 of it."""

from dataclasses import dataclass

from torch import nn

from surelabel.core.arrays import require_count, require_number
from surelabel.models.dropout import BLOCK_SIZE, DropBlock2d, replace_dropout
from surelabel.uncertainty.mc_dropout import MCDropout

KEEP_PROBABILITY = 0.9
"""The paper's."""


@dataclass(frozen=True)
class MCDropBlock(MCDropout):
    """`MCDropout` of a network that is trained with DropBlock in the place of its dropout.

    Args:
        keep_probability: about the share of a map that every dropout layer of the network keeps; None: 0.9.
        block_size: the side of a block; None: 7, see `DropBlock2d`. A network that has DropBlock already stays as it is
            when both are None.

    The other arguments are those of `MCDropout`.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout(0.5), nn.Flatten())
        >>> MCDropBlock(block_size=5).prepare(model)
        >>> model[1]
        DropBlock2d(keep_probability=0.9, block_size=5)
    """

    keep_probability: float | None = None
    block_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_probability is not None:
            require_number("keep_probability", self.keep_probability, 0, 1, ends="()")
        if self.block_size is not None:
            require_count("block_size", self.block_size, 1)

    def prepare(self, model: nn.Module) -> None:
        """Put DropBlock in the place of the network's dropout, before it is trained."""
        given = self.keep_probability is not None or self.block_size is not None
        if not given and any(isinstance(layer, DropBlock2d) for layer in model.modules()):
            return
        keep = KEEP_PROBABILITY if self.keep_probability is None else self.keep_probability
        replace_dropout(model, "dropblock", 1 - keep, self.block_size or BLOCK_SIZE)
