"""ICT (Verma et al., "Interpolation consistency training for semi-supervised learning", 2019)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from surelabel.augment.mixup import mix, mixup_coefficients
from surelabel.core.arrays import require_number
from surelabel.engine.method import Batch
from surelabel.methods.consistency import ConsistencyMethod


@dataclass(frozen=True)
class ICT(ConsistencyMethod):
    """The answer to a mixture of two samples of the pool should be the same mixture of the teacher's answers.

        L = mean_x CE(m(y, y*), p(m(x, x*))) + w r(t) mean_u (1/C) sum_c (p_c(m(u, u*)) - m(p'_c(u), p'_c(u*)))^2

    m(a, b) = l a + (1 - l) b, with l from Beta(alpha, alpha) for each row; x* and u* are the next rows of the batch,
    and p' is the answer of the teacher, the average of the weights (`ema_decay`). Probabilities are mixed, as in the
    paper; the published code mixes logits. Multi-label: an entry of x is learned if it is known for x* too.

    Args:
        task: "single" or "multi".
        settings: of the training.
        weight: w; None: 100, and 10 for samples that are not augmented.
        ratio: rows of the pool for each labeled row; None: 1, or as `labeled_batch_size` says.
        ramp: the share of the round in which r(t) rises to 1.
        alpha: of the Beta distribution.
    """

    usual_weights = (100.0, 10.0)
    alpha: float = 1.0

    mixes = True
    teacher = True
    own_statistics = True  # as in the published code

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("alpha", self.alpha, 0, 1000, ends="(]")

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss; labeled and other rows are in one batch."""
        assert teacher is not None
        known, pool = batch.stream(0), batch.stream(1)
        x, u = self.weak(known, "weak"), self.weak(pool, "weak")
        self.check_samples(x)
        with torch.no_grad():
            q = self.with_selected(self.probabilities(self.logits(teacher, u, batch)), pool)
        of_known, of_pool = (mixup_coefficients(part.draws, self.alpha) for part in (known, pool))
        logits = self.logits(network, torch.cat([mix(x, of_known), mix(u, of_pool)]), batch)
        both_known = known.g & known.g.roll(-1, 0)
        labeled = self.supervised(logits[: len(x)], mix(known.y.float(), of_known), both_known)
        unlabeled = mse_loss(self.probabilities(logits[len(x) :]), mix(q, of_pool))
        return self.total(batch, labeled, unlabeled)
