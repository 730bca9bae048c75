"""Random data augmentation: p is the mean, u the spread of the probabilities over flipped and shifted views.

The paper's appendix: "10 forward passes while performing random crop and random horizontal flip". Dropout is off.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surelabel.augment.geometry import flip_and_crop
from surelabel.core.arrays import require_count
from surelabel.core.labels import Task, check_task
from surelabel.errors import InvalidInputError, NotStochasticError
from surelabel.models.stochastic import evaluation_mode
from surelabel.uncertainty.deterministic import (
    Uncertainty,
    UncertaintyEstimator,
    check_not_empty,
    check_passes,
    check_temperature,
    logits,
)
from surelabel.uncertainty.moments import summarize


@dataclass(frozen=True)
class RandomAugmentation(UncertaintyEstimator):
    """Mean and spread over random views of each picture, by a network without anything random; views are not kept.

    Each pass sees each picture mirrored with probability 1/2 and moved by up to `crop` pixels each way, the border
    filled by reflection; all frames of a clip alike. Moving pixels and normalizing them can be done in either order, so
    the views are those of training. A pass needs the memory of a plain one.

    The draws come from torch's global generator, batch by batch: under one seed, p and u of a sample are equal in
    batches of the same size (a learner's `predict_batch_size`), and differ within their Monte-Carlo error in batches of
    another.

    Args:
        passes: how many views of each picture, at least 2.
        temperature: T of the softened probabilities.
        task: "single" for softmax, "multi" for a sigmoid per class.
        crop: the most pixels by which a picture is moved; 0: not at all.
        flip: whether pictures are mirrored.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        >>> p, u, _, _ = RandomAugmentation(crop=2).estimate(model, torch.rand(5, 1, 8, 8), check=True)
        >>> p.shape, bool((u > 0).all())
        (torch.Size([5, 3]), True)
    """

    passes: int = 10
    temperature: float = 2.0
    task: Task = "single"
    crop: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        check_passes(self.passes)
        check_temperature(self.temperature)
        check_task(self.task)
        require_count("crop", self.crop, 0)
        if not (self.crop or self.flip):
            raise InvalidInputError(
                "The 'crop' argument is 0 and 'flip' is False: all views of a picture would be the same; set one."
            )

    @torch.no_grad()
    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C) for pictures (N, channels, height, width) or clips (N, C, T, H, W).

        Args:
            model: returns logits (N, C). Each module's mode is as before afterwards, also after an exception.
            batch: pictures, normalized or not, on the network's device. It is not changed.
            check: raise NotStochasticError when the logits of all views are identical, and u silently 0.
        """
        self._check_pictures(batch)
        if check:
            check_not_empty(batch)
        with evaluation_mode(model):
            passes = (logits(model, self.view(batch)).unsqueeze(0) for _ in range(self.passes))
            found = summarize(passes, self.task, self.temperature)
        estimate = found.uncertainty()
        if check and not found.differs.any():
            raise NotStochasticError(
                f"All {self.passes} views of {len(batch)} pictures gave the same output: flips and shifts must change "
                f"what the network says, and the uncertainty would be 0 everywhere. Look for pictures that are blank, "
                f"or use another estimator, such as uncertainty='mc-dropout'."
            )
        return estimate

    def view(self, batch: Tensor) -> Tensor:
        """Return the pictures (N, channels, height, width) or clips, each flipped and shifted by draws of its own."""
        count, device = len(batch), batch.device
        chance = 0.5 if self.flip else 0.0
        flipped = torch.rand(count, device=device) < chance
        right, down = (torch.randint(-self.crop, self.crop + 1, (count,), device=device) for _ in range(2))
        # In the batch's memory format, which gathering does not keep.
        return torch.empty_like(batch).copy_(
            flip_and_crop(batch.flatten(1, -3), flipped, right, down).reshape(batch.shape)
        )

    def _check_pictures(self, batch: Tensor) -> None:
        if batch.ndim not in (4, 5):
            raise InvalidInputError(
                f"The 'batch' argument must be pictures (N, channels, height, width) or clips (N, channels, frames, "
                f"height, width), which can be flipped and shifted. Got shape {tuple(batch.shape)} instead; use "
                f"another estimator, such as uncertainty='mc-dropout'."
            )
        if self.crop >= min(batch.shape[-2:]):
            raise InvalidInputError(
                f"The 'crop' argument must be smaller than the pictures' sides, {tuple(batch.shape[-2:])}. Got "
                f"{self.crop} instead; an eighth of a side is usual."
            )
