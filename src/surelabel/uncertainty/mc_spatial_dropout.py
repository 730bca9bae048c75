"""MC-SpatialDropout: MC-dropout whose layers drop whole channels (Tompson et al., 2015); the paper's rate is 0.3."""

from dataclasses import dataclass

from torch import nn

from surelabel.core.arrays import require_number
from surelabel.models.dropout import replace_dropout
from surelabel.uncertainty.mc_dropout import MCDropout

RATE = 0.3
"""The paper's."""


@dataclass(frozen=True)
class MCSpatialDropout(MCDropout):
    """`MCDropout` of a network that is trained with SpatialDropout in the place of its dropout.

    Args:
        rate: the share of the channels that is dropped, by every dropout layer of the network. None: 0.3, and a network
            that has SpatialDropout already stays as it is.

    The other arguments are those of `MCDropout`.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout(0.5), nn.Flatten())
        >>> MCSpatialDropout().prepare(model)
        >>> model[1]
        SpatialDropout2d(p=0.3, inplace=False)
    """

    rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate is not None:
            require_number("rate", self.rate, 0, 1, ends="()")

    def prepare(self, model: nn.Module) -> None:
        """Put SpatialDropout in the place of the network's dropout, before it is trained."""
        if self.rate is None and any(isinstance(layer, nn.Dropout2d) for layer in model.modules()):
            return
        replace_dropout(model, "spatial", RATE if self.rate is None else self.rate)
