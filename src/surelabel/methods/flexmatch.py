"""FlexMatch (Zhang et al., "FlexMatch: boosting semi-supervised learning with curriculum pseudo labeling", 2021)."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from surelabel.data.training_set import TrainingSet
from surelabel.engine.method import Batch
from surelabel.methods.fixmatch import FixMatch

_NEVER = -1


@dataclass(frozen=True)
class FlexMatch(FixMatch):
    """FixMatch with a lower threshold for classes that are learned more slowly.

    s_c counts the samples of the pool whose last confident answer (max q >= threshold) was class c, and n those that
    never had one. Then

        b_c = s_c / max(max_d s_d, n),   m(q) = 1 where max q >= threshold * b_c / (2 - b_c) for c = argmax q.

    The counts are those before the step.

    Args:
        task: "single"; there is no version for several labels.
        settings: of the training.
        weight: w; None: 1.
        ratio: rows of the pool for each labeled row; None: 7, or as `labeled_batch_size` says.
        ramp: the share of the round in which the weight of answers rises from 0.
        threshold: the least confidence of a confident answer.
    """

    ramp: float = 0.4
    num_labeled: int = field(init=False, default=0)
    """How many rows do not belong to the pool."""

    def for_round(self, training_set: TrainingSet, shared: bool) -> "FlexMatch":
        """Return the method for a training set with this many labels; if all samples have one, they are the pool."""
        number, made = training_set.num_labeled, copy.copy(self)
        object.__setattr__(made, "num_labeled", number if number < len(training_set.source) else 0)
        return made

    def tensors(self, num_rows: int, num_classes: int) -> Mapping[str, Tensor]:
        """Return the class of each row's last confident answer; labeled rows, which get none, have an extra class."""
        last = torch.full((num_rows,), _NEVER)
        last[: self.num_labeled] = num_classes
        return {"last": last}

    def judge(self, q: Tensor, pool: Batch) -> Tensor:
        """Return 1 for labels that are confident enough for their class, and 0 for others."""
        last, classes = pool.state["last"], q.shape[1]
        # From the class "never" on: index 0 counts those without an answer, the last one the labeled rows.
        counts = torch.zeros(classes + 2, dtype=torch.int64, device=q.device)
        counts = counts.scatter_add(0, last - _NEVER, torch.ones_like(last))
        learned, never = counts[1:-1].to(q.dtype), counts[0].to(q.dtype)
        share = learned / torch.maximum(learned.max(), never)
        top, label = q.max(dim=1)
        sure = torch.where(top >= self.threshold, label, last[pool.rows])
        # For a row that is twice in the batch, the result must not depend on which copy comes last.
        last.scatter_reduce_(0, pool.rows, sure, "amax", include_self=False)
        return (top >= (self.threshold * share / (2 - share))[label]).to(q.dtype)
