"""Our own: SoftMatch's weights on the answers of a teacher, which are learned on several strong views at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from surelabel.base.settings import MOST_PASSES
from surelabel.core.arrays import require_count
from surelabel.engine.method import Batch
from surelabel.methods.consistency import LEAST
from surelabel.methods.softmatch import SoftMatch


@dataclass(frozen=True)
class TeacherMatch(SoftMatch):
    """The aligned answer of a teacher to a weak view is learned on V strong views.

        q = p'(a(u)),   q~ = norm(q / p~),
        L = mean_x CE(y, p(a(x))) + w mean_u r(t) m(q) (1/V) sum_v CE(argmax q~, p(A_v(u)))

    p' is the answer of the average of the weights (`ema_decay`). Its BatchNorm normalizes by its own batches, which
    hold weak views only: with the statistics of the network's batches, which hold strong views, it errs more often. p~
    and m are SoftMatch's, but the aligned answer is also the label. Trials that led here: docs/methods.md.

    Args:
        task: "single"; there is no version for several labels.
        settings: of the training.
        weight: w; None: 1.
        ratio: rows of the pool for each labeled row; None: 7, or as `labeled_batch_size` says.
        ramp: the share of the round in which the weight of answers rises from 0.
        sharpness: how many times narrower than the confidences the weights are.
        momentum: what a moving average keeps of itself in a step.
        views: V.
    """

    momentum: float = 0.99
    views: int = 2

    teacher = True
    own_statistics = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("views", self.views, 1, MOST_PASSES)

    @property
    def strong_views(self) -> Sequence[str]:
        """The names of the strong views that a label is learned on."""
        return [f"strong {number}" for number in range(self.views)]

    def answered(self, q: Tensor, pool: Batch) -> tuple[Tensor, Tensor]:
        """Return the class of each aligned answer, and how much it counts, both (N,)."""
        share = self.judged(q, pool)
        return (q / pool.state["classes"].clamp(min=LEAST)).argmax(dim=1), share
