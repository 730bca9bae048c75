"""MixMatch (Berthelot et al., "MixMatch: a holistic approach to semi-supervised learning", 2019)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surelabel.augment.mixup import mixup_coefficients
from surelabel.core.arrays import require_number
from surelabel.engine.method import Batch
from surelabel.engine.parallel import over_all
from surelabel.methods.consistency import ConsistencyMethod, linear_ramp


@dataclass(frozen=True)
class MixMatch(ConsistencyMethod):
    """Labels of the pool are guessed from two weak views and sharpened; then all rows are mixed with each other.

        q = sharpen((p(a(u)) + p(a'(u))) / 2),   sharpen(p)_c = p_c^(1/T) / sum_d p_d^(1/T)
        L = mean_x CE(m(y), p(m(a(x)))) + w r(t) mean_u (1/C) sum_c (p_c(m(u)) - m(q)_c)^2

    m mixes a row with another one of the batch, in the order of a hash over the labeled rows and both views of the
    pool: m(v) = l v + (1 - l) v* with l = max(k, 1 - k), k from Beta(alpha, alpha) for each row. Guesses have no
    gradient. The weight rises linearly, published over the first 64th of 2^20 steps.

    Multi-label: guesses are not sharpened, as in the appendix of the UPS paper, and an entry is learned if it is known
    for both rows.

    Args:
        task: "single" or "multi".
        settings: of the training.
        weight: w; None: 75, and 7.5 for samples that are not augmented.
        ratio: rows of the pool for each labeled row; None: 1, or as `labeled_batch_size` says.
        ramp: the share of the round in which r(t) rises to 1.
        alpha: of the Beta distribution.
        temperature: T.
    """

    usual_weights = (75.0, 7.5)
    alpha: float = 0.75
    temperature: float = 0.5

    mixes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("alpha", self.alpha, 0, 1000, ends="(]")
        require_number("temperature", self.temperature, 0, 1000, ends="(]")

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss: one pass for the guesses, one for the mixtures."""
        known, pool = batch.stream(0), batch.stream(1)
        x, views = self.weak(known, "first"), [self.weak(pool, "first"), self.weak(pool, "second")]
        self.check_samples(x)
        with torch.no_grad():
            q = self.guesses(self.logits(network, torch.cat(views), batch))
        q = self.with_selected(q, pool)
        samples, targets = torch.cat([x, *views]), torch.cat([known.y.to(q.dtype), q, q])
        guessed = torch.ones_like(q)
        both_known = torch.cat([known.g.to(q.dtype), guessed, guessed])

        draws = [known.draws, pool.draws.named("first"), pool.draws.named("second")]
        other = torch.cat([one.bits("partner") for one in draws]).argsort(stable=True)
        k = torch.cat([mixup_coefficients(one, self.alpha) for one in draws])
        share = torch.maximum(k, 1 - k)
        samples, targets = (mixed(values, other, share) for values in (samples, targets))
        both_known = both_known * both_known[other]

        logits, rows = self.logits(network, samples, batch), len(x)
        labeled = self.supervised(logits[:rows], targets[:rows], both_known[:rows])
        squares = both_known[rows:] * (self.probabilities(logits[rows:]) - targets[rows:]).square()
        known_entries = both_known[rows:].sum()
        unlabeled = over_all(squares.sum() / known_entries.clamp(min=1), known_entries)
        return self.total(batch, labeled, unlabeled)

    def risen(self, progress: Tensor) -> Tensor:
        """Return r(t)."""
        return linear_ramp(progress, self.ramp)

    def guesses(self, logits: Tensor) -> Tensor:
        """Return the labels q (N, C) from the logits of both views, (2 N, C)."""
        first, second = self.probabilities(logits).chunk(2)
        mean = (first + second) / 2
        if self.task == "multi":
            return mean
        return (mean.log() / self.temperature).softmax(dim=1)


def mixed(values: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Return each row mixed with another row, by the row's own share.

    >>> mixed(torch.tensor([[0.0], [8.0]]), torch.tensor([1, 0]), torch.tensor([0.75, 0.5]))
    tensor([[2.],
            [4.]])
    """
    share = share.to(values.dtype).reshape(-1, *(1,) * (values.ndim - 1))
    return share * values + (1 - share) * values[other]
