"""The Pi-model (Laine and Aila, "Temporal ensembling for semi-supervised learning", 2017)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from surelabel.engine.method import Batch
from surelabel.methods.consistency import ConsistencyMethod


@dataclass(frozen=True)
class PiModel(ConsistencyMethod):
    """Two weak views a, a' of every sample z, labeled or not, should get the same probabilities.

        L = mean_x CE(y, p(a(x))) + w r(t) mean_z (1/C) sum_c (p_c(a(z)) - p_c(a'(z)))^2

    Both views have gradients, and differ by the network's noise and dropout as well.

    Args:
        task: "single" or "multi".
        settings: of the training.
        weight: w; None: 10.
        ratio: rows of the pool for each labeled row; None: 1, or as `labeled_batch_size` says.
        ramp: the share of the round in which r(t) rises to 1.

    Example:
        >>> from surelabel.engine.settings import TrainingSettings
        >>> PiModel("single", TrainingSettings(batch_size=32, epochs=10)).samples_in_round(60, 0, 0, 0, 640)
        (107, 12800)
    """

    usual_weights = (10.0, 10.0)

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss; both views are in one batch."""
        views = torch.cat([self.weak(batch, "first"), self.weak(batch, "second")])
        first, second = self.logits(network, views, batch).chunk(2)
        return self.agreement(batch, first, self.probabilities(second))

    def agreement(self, batch: Batch, logits: Tensor, q: Tensor) -> Tensor:
        """Return the loss of logits for one view, where another view got the answers q."""
        known, pool = batch.stream(0), batch.stream(1)
        rows = batch.sizes[0]
        q = torch.cat([q[:rows], self.with_selected(q[rows:], pool)])
        labeled = self.supervised(logits[:rows], known.y, known.g)
        unlabeled = mse_loss(self.probabilities(logits), q)
        return self.total(batch, labeled, unlabeled)
