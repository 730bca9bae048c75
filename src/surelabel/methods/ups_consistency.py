"""UPS with consistency: SoftMatch's weights on a teacher's answers, and a gate by how much these differ over visits."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from surelabel.engine.method import Batch
from surelabel.methods.consistency import LEAST, averaging_share, without_negatives
from surelabel.methods.softmatch import SoftMatch


@dataclass(frozen=True)
class UPSConsistency(SoftMatch):
    """SoftMatch with a teacher, several strong views, and what is tried on top in experiments/consistency_trials.py.

    Args:
        task: "single".
        settings: of the training.
        weight: of the part of the loss that needs no labels.
        ratio: rows of the pool for each labeled row.
        ramp: the share of the round in which the weight rises from 0.
        sharpness: of the weights, as in SoftMatch.
        momentum: what a moving average keeps of itself in a step.
        views: strong views of each row of the pool.
        memory: what the memory of a row's answers keeps of itself in a visit; 0: each answer alone counts.
        kappa: answers whose spread over the visits of a row is larger do not count.
        cutmix: the share of strong views with a rectangle of the next row.
        soft: the temperature of soft labels; 0: hard labels.
        weak_views: how many the teacher answers.
        keep: answers are remembered, but not used.
    """

    views: int = 2
    memory: float = 0.0
    kappa: float = float("inf")
    cutmix: float = 0.0
    soft: float = 0.0
    weak_views: int = 1
    momentum: float = 0.99
    ramp: float = 0.0
    keep: bool = False

    own_statistics = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "teacher", True)

    def samples_in_step(self, max_rounds: int) -> int:
        """Return how many views the network takes."""
        settings = self.settings
        return settings.labeled_batch_size + self.views * settings.batch_size

    def samples_in_round(
        self,
        num_labeled: int,
        num_positive: int,
        num_negative: int | None,
        round_number: int,
        num_unlabeled: int,
    ) -> tuple[int, int]:
        """Return the epochs over the labeled rows, and the views that the network takes in all."""
        epochs, _ = super().samples_in_round(num_labeled, num_positive, num_negative, round_number, num_unlabeled)
        return epochs, (self.settings.steps or 0) * self.samples_in_step(0)

    def tensors(self, num_rows: int, num_classes: int) -> Mapping[str, Tensor]:
        """Return the moving averages, and the memory of the answers for each row."""
        tensors = dict(super().tensors(num_rows, num_classes))
        if self.memory or self.keep:
            tensors["answers"] = torch.zeros(num_rows, num_classes)
            tensors["squares"] = torch.zeros(num_rows, num_classes)
            tensors["visits"] = torch.zeros(num_rows)
        return tensors

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        """Return the loss."""
        assert teacher is not None
        known, pool = batch.stream(0), batch.stream(1)
        with torch.no_grad():
            q = self.answers(teacher, pool)
            target, share = self.judged(q, pool)
        strong = [self.strong(pool, f"strong {number}") for number in range(self.views)]
        cuts = [self.cut(pool, x, f"strong {number}") for number, x in enumerate(strong)] if self.cutmix else []
        x = self.weak(known, "weak")
        logits = self.logits(network, torch.cat([x, *([mixed for mixed, _ in cuts] or strong)]), batch)
        of_known, *of_strong = logits.split([len(x)] + [len(pool.samples)] * self.views)
        labeled = self.supervised(of_known, known.y, known.g)
        parts = []
        for number, one in enumerate(of_strong):
            each = share * cross_entropy(one, target, reduction="none")
            if cuts:
                left = cuts[number][1]
                other = share.roll(-1, 0) * cross_entropy(one, target.roll(-1, 0), reduction="none")
                each = left * each + (1 - left) * other
            parts.append(each.mean())
        return self.total(batch, labeled, torch.stack(parts).mean(), share.mean())

    def answers(self, teacher: nn.Module, pool: Batch) -> Tensor:
        """Return the teacher's mean answer to weak views."""
        logits = [self.logits(teacher, self.weak(pool, f"weak {i}"), pool) for i in range(self.weak_views)]
        q = torch.stack([one.softmax(dim=1) for one in logits]).mean(dim=0)
        return without_negatives(q, pool)

    def judged(self, q: Tensor, pool: Batch) -> tuple[Tensor, Tensor]:
        """Return the targets (N, C), and how much each counts (N,)."""
        state, moved = pool.state, averaging_share(pool.state, self.momentum)
        state["classes"].lerp_(q.mean(dim=0), moved)
        aligned = q / state["classes"].clamp(min=LEAST)
        aligned = aligned / aligned.sum(dim=1, keepdim=True)
        u = torch.zeros_like(aligned[:, 0])
        if self.memory or self.keep:
            visits = state["visits"].index_select(0, pool.rows)
            towards = (1 / (visits + 1)).clamp(min=1 - (self.memory or 0.7))[:, None]
            mean = state["answers"].index_select(0, pool.rows).lerp(aligned, towards)
            square = state["squares"].index_select(0, pool.rows).lerp(aligned.square(), towards)
            state["answers"].index_copy_(0, pool.rows, mean)
            state["squares"].index_copy_(0, pool.rows, square)
            state["visits"].index_copy_(0, pool.rows, visits + 1)
            if self.memory:
                aligned = mean
            spread = (square - mean.square()).clamp(min=0).sqrt()
            u = spread.gather(1, mean.argmax(dim=1, keepdim=True))[:, 0]
        confidence, label = aligned.max(dim=1)
        state["mean"].lerp_(confidence.mean(), moved)
        state["variance"].lerp_(confidence.var(), moved)
        below = (confidence - state["mean"]).clamp(max=0)
        share = torch.exp(-below.square() * self.sharpness**2 / (2 * state["variance"].clamp(min=LEAST)))
        share = share * (u <= self.kappa)
        target = torch.nn.functional.one_hot(label, q.shape[1]).float()
        if self.soft:
            target = (aligned.clamp(min=LEAST).log() / self.soft).softmax(dim=1)
        positive = pool.y & pool.g
        selected = positive.any(dim=1)
        target = torch.where(selected[:, None], positive.float(), target)
        return target, torch.where(selected, 1.0, share)

    def cut(self, pool: Batch, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """Return views with rectangles of the next row, and the share of each that is its own."""
        draws, (height, width) = pool.draws.named(name), x.shape[2:]
        side = (1 - draws.uniform("cutmix share")).sqrt()
        side = torch.where(draws.uniform("cutmix") < self.cutmix, side, 0.0)
        inside = []
        for axis, length in (("y", height), ("x", width)):
            extent = (side * length).round()
            start = (draws.uniform(f"cutmix {axis}") * (length - extent + 1)).floor()
            position = torch.arange(length, device=x.device)
            inside.append((position >= start[:, None]) & (position < (start + extent)[:, None]))
        box = inside[0][:, :, None] & inside[1][:, None, :]
        return torch.where(box[:, None], x.roll(-1, 0), x), 1 - box.float().mean(dim=(1, 2))
