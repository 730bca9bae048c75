"""Small networks on the features of several backbones, one for each, which sees only its backbone's features.

They are trained separately, like the members of a deep ensemble: p is their mean, and u their spread.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from surelabel.errors import InvalidInputError
from surelabel.models.table import TableNetwork


class Head(TableNetwork):
    """A `TableNetwork` that sees some of the columns.

    Args:
        start: the first column it sees.
        stop: one more than the last column it sees.
        num_classes: C.
        options: those of `TableNetwork`.

    Example:
        >>> head = Head(1, 3, 2)
        >>> torch.equal(head.eval()(torch.tensor([[0.0, 1.0, 2.0]])), head(torch.tensor([[9.0, 1.0, 2.0]])))
        True
    """

    columns: Tensor

    def __init__(self, start: int, stop: int, num_classes: int, **options: Any) -> None:
        super().__init__(stop - start, num_classes, **options)
        # A buffer: networks of the same shape may take over each other's state, and then see other columns.
        self.register_buffer("columns", torch.arange(start, stop))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for the features of all backbones, (N, F)."""
        return super().forward(x.flatten(1).index_select(1, self.columns))

    def standardize(self, chunks: Callable[[], Iterable[Tensor]]) -> None:
        """Set mean, scale and the directions of noise from these columns of all rows."""
        super().standardize(lambda: (chunk.flatten(1).index_select(1, self.columns) for chunk in chunks()))


def heads(
    sample_shape: tuple[int, ...], num_classes: int, *, widths: Sequence[int], one_scale: bool = False, **options: Any
) -> nn.ModuleList:
    """Return a `Head` for each backbone, as a list, which the learner trains as members of an ensemble.

    Args:
        sample_shape: of the features of all backbones, side by side.
        num_classes: C.
        widths: how many features each backbone has.
        one_scale: whether the features of a backbone share one scale.
        options: those of `TableNetwork`.

    Example:
        >>> [head.num_features for head in heads((5,), 2, widths=(2, 3))]
        [2, 3]
    """
    if min(widths, default=0) < 1 or sum(widths) != math.prod(sample_shape):
        got = f"{tuple(widths)} for samples of shape {sample_shape}"
        raise InvalidInputError(f"'widths' must count the features of each backbone, all of them; got {got}.")
    ends = [0, *(sum(widths[: place + 1]) for place in range(len(widths)))]
    made = []
    for start, stop in pairwise(ends):
        together = [(0, stop - start)] if one_scale else []
        made.append(Head(start, stop, num_classes, together=together, **options))
    return nn.ModuleList(made)
