"""FreeMatch (Wang et al., "FreeMatch: self-adaptive thresholding for semi-supervised learning", 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from surelabel.core.arrays import require_number
from surelabel.engine.method import Batch
from surelabel.engine.parallel import gathered
from surelabel.methods.consistency import averaging_share
from surelabel.methods.fixmatch import Matching

_TINY = 1e-12


@dataclass(frozen=True)
class FreeMatch(Matching):
    """Labels are judged by thresholds that follow the network's confidence, and classes should be predicted alike.

    t, p~ and h~ are moving averages, over the batches, of the mean of max q, the mean of q, and the histogram of
    argmax q; they take in a batch before it is judged:

        m(q) = 1 where max q >= t p~_c / max_d p~_d for c = argmax q,
        L = mean_x CE + w (mean_u r(t) m CE + f r(t) sum_c a_c log b_c),   a = norm(p~ / h~),   b = norm(p- / h-)

    p- and h- are the mean of the answers to the strong views with m = 1, and the histogram of their largest classes;
    norm divides by the sum, a class that is in no histogram counts 0, and if no view has m = 1 the last sum is 0.

    Args:
        task: "single"; there is no version for several labels.
        settings: of the training.
        weight: w; None: 1.
        ratio: rows of the pool for each labeled row; None: 7, or as `labeled_batch_size` says.
        ramp: the share of the round in which the weight of answers rises from 0.
        fairness: f.
        momentum: what a moving average keeps of itself in a step.
    """

    fairness: float = 0.001
    momentum: float = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("fairness", self.fairness, 0, 1e6)
        require_number("momentum", self.momentum, 0, 1, ends="[)")

    def tensors(self, num_rows: int, num_classes: int) -> Mapping[str, Tensor]:
        """Return the moving averages: all classes alike."""
        alike = torch.full((num_classes,), 1 / num_classes)
        return {"threshold": alike[0], "mean": alike, "histogram": alike, "batches": torch.tensor(0.0)}

    def judge(self, q: Tensor, pool: Batch) -> Tensor:
        """Return 1 for labels that are confident enough for their class, and 0 for others."""
        top, label = q.max(dim=1)
        new = {"threshold": top.mean(), "mean": q.mean(dim=0), "histogram": shares(label, torch.ones_like(top), q)}
        moved = averaging_share(pool.state, self.momentum)
        for name, value in new.items():
            pool.state[name].lerp_(value, moved)
        mean = pool.state["mean"]
        return (top >= (pool.state["threshold"] * mean / mean.max())[label]).to(q.dtype)

    def unlabeled(self, logits: Tensor, label: Tensor, share: Tensor, pool: Batch) -> Tensor:
        """Return the part of the loss that needs no labels: that of FixMatch, and fairness."""
        # Fairness looks at the answers to the whole batch, whichever process they come from.
        answers, taken = gathered(logits.softmax(dim=1)), gathered((share > 0).to(logits.dtype))
        mean = (taken[:, None] * answers).sum(dim=0) / taken.sum().clamp(min=1)
        wanted = normalized(pool.state["mean"], pool.state["histogram"])
        found = normalized(mean, shares(answers.argmax(dim=1), taken, answers))
        fairness = self.risen(pool.progress) * (wanted * (found + _TINY).log()).sum()
        fairness = torch.where(taken.sum() > 0, fairness, 0.0)
        return super().unlabeled(logits, label, share, pool) + self.fairness * fairness


def shares(label: Tensor, weight: Tensor, like: Tensor) -> Tensor:
    """Return the share of each class among weighted labels, shape (C,).

    >>> shares(torch.tensor([0, 2, 2]), torch.tensor([1.0, 1.0, 0.0]), torch.zeros(3, 3))
    tensor([0.5000, 0.0000, 0.5000])
    """
    of_class = label[:, None] == torch.arange(like.shape[1], device=like.device)
    return (weight[:, None] * of_class).sum(dim=0) / weight.sum().clamp(min=1)


def normalized(mean: Tensor, histogram: Tensor) -> Tensor:
    """Return mean / histogram, 0 for classes that the histogram does not have, divided by its sum."""
    ratio = torch.where(histogram > 0, mean / histogram.clamp(min=_TINY), 0.0)
    return ratio / ratio.sum().clamp(min=_TINY)
