"""Our own: SoftMatch's weights on the answers of a teacher, which are learned on several strong views at once."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from surelabel.base.settings import MOST_PASSES
from surelabel.core.arrays import require_count
from surelabel.engine.method import Batch
from surelabel.methods.consistency import LEAST, without_negatives
from surelabel.methods.softmatch import SoftMatch


@dataclass(frozen=True)
class TeacherMatch(SoftMatch):
    """The aligned answer of a teacher to a weak view is learned on V strong views.

        q = p'(a(u)),   q~ = norm(q / p~),
        L = mean_x CE(y, p(a(x))) + w r(t) mean_u m(q) (1/V) sum_v CE(argmax q~, p(A_v(u)))

    p' is the answer of the average of the weights (`ema_decay`). Its BatchNorm normalizes by its own batches, which
    hold weak views only: with the statistics of the network's batches, which hold strong views, it errs more often. p~
    and m are SoftMatch's, but the aligned answer is also the label. Trials that led here: docs/methods.md.

    Args:
        task: "single"; there is no version for several labels.
        settings: of the training.
        weight: w; None: 1.
        ratio: rows of the pool for each labeled row; None: 7, or as `labeled_batch_size` says.
        ramp: the share of the round in which the weight rises from 0.
        sharpness: how many times narrower than the confidences the weights are.
        momentum: what a moving average keeps of itself in a step.
        views: V.
    """

    teacher: bool = field(init=False, default=True)
    momentum: float = 0.99
    views: int = 2

    own_statistics = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("views", self.views, 1, MOST_PASSES)
        object.__setattr__(self, "teacher", True)

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss; what the network sees is in one batch."""
        assert teacher is not None
        known, pool = batch.stream(0), batch.stream(1)
        with torch.no_grad():
            q = without_negatives(self.answers(teacher, pool, batch), pool)
            label, share = self.answered(q, pool)
        positive = pool.y & pool.g
        selected = positive.any(dim=1)
        label = torch.where(selected, positive.float().argmax(dim=1), label)
        share = torch.where(selected, 1.0, share)
        views = [self.weak(known, "weak"), *(self.strong(pool, f"strong {number}") for number in range(self.views))]
        logits = self.logits(network, torch.cat(views), batch)
        of_known, of_strong = logits.split([len(known.samples), self.views * len(pool.samples)])
        labeled = self.supervised(of_known, known.y, known.g)
        unlabeled = self.unlabeled(of_strong, label.repeat(self.views), share.repeat(self.views), pool)
        return self.total(batch, labeled, unlabeled, share.mean())

    def answers(self, teacher: nn.Module, pool: Batch, batch: Batch) -> Tensor:
        """Return what the teacher answers to the samples of the pool, (N, C)."""
        return self.logits(teacher, self.weak(pool, "weak"), batch).softmax(dim=1)

    def answered(self, q: Tensor, pool: Batch) -> tuple[Tensor, Tensor]:
        """Return the label of each answer q (N, C), and how much it counts, both (N,)."""
        share = self.judged(q, pool)
        return (q / pool.state["classes"].clamp(min=LEAST)).argmax(dim=1), share
