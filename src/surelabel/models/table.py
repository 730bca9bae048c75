"""A small network for tables: standardize each feature, add noise in training, then linear, ReLU, dropout blocks.

The noise has the covariance of the differences between a row and the nearest other row, which are assumed to have the
same label. So it needs no knowledge of the table, and adds nothing in directions in which neighbors agree.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from surelabel.base.settings import MOST_NOISE, MOST_UNITS
from surelabel.core.arrays import require_count, require_number
from surelabel.errors import InvalidInputError
from surelabel.models.dropout import Dropout


def looked_at(num_features: int) -> int:
    """Return the most rows for which nearest neighbors are found: fewer for wide tables, where noise costs more."""
    return 1024 if num_features <= 128 else 128


class TableNetwork(nn.Module):
    """Logits from the rows of a table: `x -> (x - mean) / scale (+ noise) -> [linear, ReLU, dropout] ... -> linear`.

    The mean and scale of the training data (`standardize`; 0 and 1 before) are buffers that are saved with the weights,
    so a loaded network takes raw rows. They are float64, so that a small spread around a large mean (a timestamp) is
    not lost.

    Args:
        num_features: F, the number of columns.
        num_classes: C, the number of logits.
        hidden: the width of each hidden layer; empty for a linear model.
        dropout: the rate after each hidden layer; MC-dropout needs one above 0.
        noise: the scale of the noise on the standardized features in training; 1: as large as the differences between
            nearest rows (measured by `standardize`; no noise before that). It is off in MC-dropout.
        together: blocks of columns, from the first to before the second, that share one scale, such as those of one
            category: their differences in spread say which of them matter.

    Example:
        >>> network = TableNetwork(2, 3)
        >>> network.standardize(lambda: [torch.tensor([[1.0, 5.0], [3.0, 5.0]])])
        >>> network.mean, network.scale
        (tensor([2., 5.], dtype=torch.float64), tensor([1., 1.], dtype=torch.float64))
        >>> network(torch.zeros(4, 2)).shape
        torch.Size([4, 3])
    """

    for_tables = True
    """Too small for compiling to pay off, and given floats at their full width."""

    mean: Tensor
    scale: Tensor
    directions: Tensor

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        hidden: Sequence[int] = (128, 128),
        dropout: float = 0.3,
        noise: float = 0.0,
        together: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__()
        require_count("num_features", num_features, 1, remedy="count the columns again")
        require_count("num_classes", num_classes, 1, remedy="count the classes again")
        for width in hidden:
            require_count("hidden", width, 1, MOST_UNITS)
        require_number("dropout", dropout, 0, 1, ends="[)", remedy="0.3 is a common rate")
        require_number("noise", noise, 0, MOST_NOISE)
        self.num_features, self.together = num_features, [tuple(block) for block in together]
        self.register_buffer("mean", torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(num_features, dtype=torch.float64))
        self.noise = noise
        directions = torch.zeros(min(num_features, looked_at(num_features)), num_features)
        self.register_buffer("directions", directions, persistent=False)
        layers: list[nn.Module] = []
        for before, after in pairwise((num_features, *hidden)):
            layers += [nn.Linear(before, after), nn.ReLU(), Dropout(dropout)]
        self.layers = nn.Sequential(*layers, nn.Linear((num_features, *hidden)[-1], num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, C) for rows (N, F), or (N, ...) with F values per row."""
        x = x.flatten(1)
        if x.shape[1] != self.num_features:
            got = f"{x.shape[1]}; pass the columns it was trained on, in the same order"
            raise InvalidInputError(f"The network takes rows of {self.num_features} features. Got rows of {got}.")
        standardized = self._standardized(x)
        if self.training and self.noise > 0:
            draws = torch.randn(len(x), len(self.directions), dtype=standardized.dtype, device=x.device)
            standardized = standardized + self.noise * (draws @ self.directions)
        logits: Tensor = self.layers(standardized)
        return logits

    def _standardized(self, x: Tensor) -> Tensor:
        standardized = (x.flatten(1).to(self.mean.dtype) - self.mean) / self.scale
        return standardized.to(next(self.layers.parameters()).dtype)

    def standardize(self, chunks: Callable[[], Iterable[Tensor]]) -> None:
        """Set the mean, the scale and, if there is noise, its directions from all rows.

        Args:
            chunks: returns the rows chunk by chunk, (N, F) each; called again for each pass over them.
        """
        self._set_mean_and_scale(chunks())
        if self.noise > 0:
            differences = _shortened(self._nearest_differences(chunks))
            # RᵀR = DᵀD, so normal numbers times R have the covariance of the differences D (Q, F).
            root = torch.linalg.qr(differences / math.sqrt(len(differences)), mode="r").R
            self.directions.zero_()
            self.directions[: len(root)] = root

    def _nearest_differences(self, chunks: Callable[[], Iterable[Tensor]]) -> Tensor:
        """Return the differences between some rows and their nearest other rows, shape (Q, F)."""
        most = looked_at(self.num_features)
        some, places = _evenly_spaced((self._standardized(chunk) for chunk in chunks()), most)
        nearest = torch.full((len(some),), torch.inf, dtype=some.dtype, device=some.device)
        differences = torch.zeros_like(some)
        start = 0
        for chunk in chunks():
            rows = self._standardized(chunk)
            distances = torch.cdist(some, rows)
            itself = places[:, None] == torch.arange(start, start + len(rows), device=rows.device)
            closest, index = distances.masked_fill(itself, torch.inf).min(dim=1)
            closer = closest < nearest
            differences = torch.where(closer[:, None], rows[index] - some, differences)
            nearest = torch.where(closer, closest, nearest)
            start += len(rows)
        return differences

    def _set_mean_and_scale(self, chunks: Iterable[Tensor]) -> None:
        total = torch.zeros_like(self.mean)
        count, squares = 0, torch.zeros_like(total)
        shift: Tensor | None = None
        for chunk in chunks:
            rows = chunk.flatten(1).to(self.mean.dtype)
            # Sums relative to the first row: squares of large values would cancel.
            shift = rows[0] if shift is None else shift
            count += len(rows)
            total = total + (rows - shift).sum(0)
            squares = squares + (rows - shift).square().sum(0)
        assert shift is not None
        mean = total / count
        wrong = torch.nonzero(~torch.isfinite(mean + squares)).flatten()
        if len(wrong):
            feature = f"Feature {int(wrong[0])} of the samples"
            raise InvalidInputError(f"{feature} has values that are missing, infinite or too large; replace them.")
        scale = (squares / count - mean.square()).clamp(min=0).sqrt()
        for start, end in self.together:
            scale[start:end] = scale[start:end].square().mean().sqrt()
        self.mean.copy_(shift + mean)
        # A spread below the mean's rounding error is a constant feature; dividing by it would blow up rounding errors.
        constant = scale <= torch.finfo(scale.dtype).eps * self.mean.abs()
        self.scale.copy_(scale.masked_fill(constant, 1.0))


def table_network(sample_shape: tuple[int, ...], num_classes: int, **options: Any) -> TableNetwork:
    """Return a `TableNetwork` for samples of this shape."""
    return TableNetwork(math.prod(sample_shape), num_classes, **options)


def _shortened(differences: Tensor) -> Tensor:
    """Clip lengths at three times the median: a row far from all others says nothing about neighbors."""
    lengths = torch.linalg.vector_norm(differences, dim=1, keepdim=True)
    return differences * torch.clamp(3 * lengths.median() / lengths.clamp(min=torch.finfo(lengths.dtype).tiny), max=1)


def _evenly_spaced(chunks: Iterable[Tensor], most: int) -> tuple[Tensor, Tensor]:
    """Return at most `most` rows, evenly spaced, and their positions among all rows."""
    kept: list[Tensor] = []
    places: list[Tensor] = []
    step, start = 1, 0
    for chunk in chunks:
        index = torch.arange(start, start + len(chunk), device=chunk.device)
        kept.append(chunk[index % step == 0])
        places.append(index[index % step == 0])
        start += len(chunk)
        while sum(map(len, places)) > most:
            step *= 2
            kept = [rows[where % step == 0] for rows, where in zip(kept, places, strict=True)]
            places = [where[where % step == 0] for where in places]
    return torch.cat(kept), torch.cat(places)
