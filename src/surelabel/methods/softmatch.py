"""SoftMatch (Chen et al., "SoftMatch: addressing the quantity-quality trade-off in semi-supervised learning", 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from surelabel.core.arrays import require_number
from surelabel.engine.method import Batch
from surelabel.methods.consistency import LEAST, averaging_share
from surelabel.methods.fixmatch import Matching


@dataclass(frozen=True)
class SoftMatch(Matching):
    """Every label counts, but less the further its confidence is below the mean.

    p~ is a moving average of the mean of q over the batches; q~ = norm(q / p~) is q aligned to equal classes, and only
    its maximum c is used: the label is that of q. v and s^2 are moving averages of the mean and the variance of c. All
    take in a batch before it is judged:

        m(q) = exp(-min(c - v, 0)^2 / (2 s^2 / n^2))

    Args:
        task: "single"; there is no version for several labels.
        settings: of the training.
        weight: w; None: 1.
        ratio: rows of the pool for each labeled row; None: 7, or as `labeled_batch_size` says.
        ramp: the share of the round in which the weight of answers rises from 0.
        sharpness: n, how many times narrower than the confidences the weights are.
        momentum: what a moving average keeps of itself in a step.
    """

    sharpness: float = 2.0
    momentum: float = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("sharpness", self.sharpness, 0, 1000, ends="(]")
        require_number("momentum", self.momentum, 0, 1, ends="[)")

    def tensors(self, num_rows: int, num_classes: int) -> Mapping[str, Tensor]:
        """Return the moving averages, which the first batch sets."""
        names = "mean", "variance", "batches"
        return {"classes": torch.zeros(num_classes), **{name: torch.tensor(0.0) for name in names}}

    def judge(self, q: Tensor, pool: Batch) -> Tensor:
        """Return a weight in (0, 1] for each label."""
        state, moved = pool.state, averaging_share(pool.state, self.momentum)
        state["classes"].lerp_(q.mean(dim=0), moved)
        aligned = q / state["classes"].clamp(min=LEAST)
        confidence = (aligned / aligned.sum(dim=1, keepdim=True)).amax(dim=1)
        state["mean"].lerp_(confidence.mean(), moved)
        # Without bias, except for a pool of one sample, whose variance is 0.
        state["variance"].lerp_(confidence.var(correction=min(1, len(q) - 1)), moved)
        below = (confidence - state["mean"]).clamp(max=0)
        return torch.exp(-below.square() * self.sharpness**2 / (2 * state["variance"].clamp(min=LEAST)))
