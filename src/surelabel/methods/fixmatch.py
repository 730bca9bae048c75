"""FixMatch (Sohn et al., "FixMatch: simplifying semi-supervised learning with consistency and confidence", 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surelabel.core.arrays import require_number
from surelabel.engine.method import Batch
from surelabel.engine.parallel import gathered, own
from surelabel.errors import InvalidInputError
from surelabel.methods.consistency import ConsistencyMethod, without_negatives


@dataclass(frozen=True)
class Matching(ConsistencyMethod):
    """The base of FixMatch and of methods that weight its labels differently (`judge`).

        q = p(a(u)),   L = mean_x CE(y, p(a(x))) + w mean_u r(t) m(q) CE(argmax q, p(A(u)))

    a is a weak view and A a strong one; q has no gradient. Labels with m(q) = 0 count in the mean. A selected positive
    is the label, with 1 in place of r(t) m(q); selected negatives are taken out of q before it is judged. Published
    without the ramp r: thresholds that start low let every label in, from which 2^20 steps recover, but not a few
    hundred.

    If the strong view is no stronger than the weak one, as for samples that are not augmented, they differ by the
    network's own noise and dropout at most. Then q is the answer of the teacher, the average of the weights
    (`ema_decay`), which has neither.

    Args:
        task: "single"; there is no version for several labels.
        settings: of the training.
        weight: w; None: 1.
        ratio: rows of the pool for each labeled row; None: 7, or as `labeled_batch_size` says.
        ramp: the share of the round in which r(t) rises to 1.
    """

    usual_ratio = 7
    parts = ("labeled", "unlabeled", "used")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task == "multi":
            remedy = 'choose "pi-model", "mean-teacher", "ict", "mixmatch" or "ups"'
            raise InvalidInputError(f"{type(self).__name__} takes one label for each sample, not several; {remedy}.")

    @property
    def teacher(self) -> bool:  # type: ignore[override]
        """Whether the labels come from a teacher, because the strong view is no stronger than the weak one."""
        return self._strong is self._weak

    @property
    def strong_views(self) -> Sequence[str]:
        """The names of the strong views that a label is learned on."""
        return ["strong"]

    def judge(self, q: Tensor, pool: Batch) -> Tensor:
        """Return how much each label counts, m (N,), from q (N, C); `pool.state` may be changed in place."""
        raise NotImplementedError

    def judged(self, q: Tensor, pool: Batch) -> Tensor:
        """Return how much each label counts, m (N,), with the answers of all processes judged together."""
        return own(self.judge(gathered(q), pool._replace(rows=gathered(pool.rows))))

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss; all views are in one batch."""
        known, pool = batch.stream(0), batch.stream(1)
        weak = [] if self.teacher else [self.weak(pool, "weak")]
        strong = [self.strong(pool, name) for name in self.strong_views]
        logits = self.logits(network, torch.cat([self.weak(known, "weak"), *weak, *strong]), batch)
        rows = [len(views) * len(pool.samples) for views in (weak, strong)]
        of_known, of_weak, of_strong = logits.split([len(known.samples), *rows])
        with torch.no_grad():
            if self.teacher:
                assert teacher is not None
                q = self.answers(teacher, pool, batch)
            else:
                q = of_weak.softmax(dim=1)
            label, share = self.answered(without_negatives(q, pool), pool)
        positive = pool.y & pool.g
        selected = positive.any(dim=1)
        label = torch.where(selected, positive.float().argmax(dim=1), label)
        used = torch.where(selected, 1.0, share)
        share = torch.where(selected, 1.0, self.risen(batch.progress) * share)
        labeled = self.supervised(of_known, known.y, known.g)
        unlabeled = self.unlabeled(of_strong, label.repeat(len(strong)), share.repeat(len(strong)), pool)
        batch.note(labeled, unlabeled, used.mean())
        return labeled + self._weight * unlabeled

    def answers(self, teacher: nn.Module, pool: Batch, batch: Batch) -> Tensor:
        """Return what the teacher answers to the samples of the pool, (N, C)."""
        return self.logits(teacher, self.weak(pool, "weak"), batch).softmax(dim=1)

    def answered(self, q: Tensor, pool: Batch) -> tuple[Tensor, Tensor]:
        """Return the label of each answer q (N, C), and how much it counts, both (N,)."""
        return q.argmax(dim=1), self.judged(q, pool)

    def unlabeled(self, logits: Tensor, label: Tensor, share: Tensor, pool: Batch) -> Tensor:
        """Return the part of the loss that needs no labels, from the logits of strong views."""
        return (share * cross_entropy(logits, label, reduction="none")).mean()


@dataclass(frozen=True)
class FixMatch(Matching):
    """FixMatch: m(q) = 1 where max q is at least the threshold, else 0.

    Args:
        task: "single"; there is no version for several labels.
        settings: of the training.
        weight: w; None: 1.
        ratio: rows of the pool for each labeled row; None: 7, or as `labeled_batch_size` says.
        ramp: the share of the round in which the weight of answers rises; 0: it is the same from the start.
        threshold: the least confidence of a label.
    """

    ramp: float = 0.0
    threshold: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("threshold", self.threshold, 0, 1)

    def judge(self, q: Tensor, pool: Batch) -> Tensor:
        """Return 1 for confident labels and 0 for others."""
        return (q.amax(dim=1) >= self.threshold).to(q.dtype)
