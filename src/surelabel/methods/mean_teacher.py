"""Mean Teacher (Tarvainen and Valpola, "Mean teachers are better role models", 2017)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surelabel.engine.method import Batch
from surelabel.methods.pi_model import PiModel


@dataclass(frozen=True)
class MeanTeacher(PiModel):
    """A weak view of every sample z, labeled or not, should get the answer of the teacher to another weak view.

        L = mean_x CE(y, p(a(x))) + w r(t) mean_z (1/C) sum_c (p_c(a(z)) - p'_c(a'(z)))^2

    p' is the answer of the teacher, the average of the network's weights over the steps (`ema_decay`), without gradient
    and, unlike the published method, without dropout.

    Args:
        task: "single" or "multi".
        settings: of the training.
        weight: w; None: 50, and 5 for samples that are not augmented.
        ratio: rows of the pool for each labeled row; None: 1, or as `labeled_batch_size` says.
        ramp: the share of the round in which r(t) rises to 1.
    """

    usual_weights = (50.0, 5.0)

    teacher = True
    own_statistics = True  # as in the published code

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss."""
        assert teacher is not None
        with torch.no_grad():
            q = self.probabilities(self.logits(teacher, self.weak(batch, "second"), batch))
        return self.agreement(batch, self.logits(network, self.weak(batch, "first"), batch), q)
