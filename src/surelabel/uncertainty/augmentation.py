"""Random data augmentation: p is the mean and u the spread of the probabilities over flipped and shifted views.

The paper's appendix: "10 forward passes while performing random crop and random horizontal flip". Dropout is off.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surelabel.augment.geometry import flip_and_crop
from surelabel.base.defaults import FitDefaults
from surelabel.core.arrays import bad_argument, require_count
from surelabel.core.labels import Task
from surelabel.errors import InvalidInputError
from surelabel.models.stochastic import evaluation_mode
from surelabel.uncertainty.deterministic import Uncertainty, UncertaintyEstimator, check_settings, logits
from surelabel.uncertainty.moments import summarize


@dataclass(frozen=True)
class RandomAugmentation(UncertaintyEstimator):
    """Mean and spread over random views of each image, from a deterministic network; views are not kept.

    Each pass mirrors each image with probability 1/2 and shifts it by up to `crop` pixels in each direction, filling
    the border by reflection; all frames of a clip alike. Pixels can be shifted before or after they are normalized, so
    these are the views of training. A pass needs no more memory than a plain one.

    The draws come from torch's global generator, batch by batch. With the same seed, p and u of a sample are equal in
    batches of the same size (a learner's `predict_batch_size`), and differ within their Monte Carlo error in batches of
    different sizes.

    Args:
        passes: how many views of each image, at least 2.
        temperature: T of the softened probabilities.
        task: "single" for softmax, "multi" for a sigmoid per class.
        crop: the largest shift in pixels; 0: no shift.
        flip: whether images are mirrored.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        >>> p, u, _, _ = RandomAugmentation(crop=2).estimate(model, torch.rand(5, 1, 8, 8), check=True)
        >>> p.shape, bool((u > 0).all())
        (torch.Size([5, 3]), True)
    """

    passes: int = FitDefaults.passes
    temperature: float = FitDefaults.temperature
    task: Task = "single"
    crop: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        check_settings(self.temperature, self.task, self.passes)
        require_count("crop", self.crop, 0)
        if not (self.crop or self.flip):
            raise InvalidInputError("'crop' is 0 and 'flip' is False: all views would be the same; set one of them.")

    @torch.no_grad()
    def estimate(self, model: nn.Module, batch: Tensor, *, check: bool = False) -> Uncertainty:
        """Return p, u, p_soft and u_soft (N, C) for images (N, channels, height, width) or clips (N, C, T, H, W).

        Args:
            model: returns logits (N, C). Each module's mode is restored afterwards, even after an exception.
            batch: images, normalized or not, on the network's device. It is not changed.
            check: raise NotStochasticError if the logits of all views are identical, so that u would silently be 0.
        """
        self._check_pictures(batch)
        with evaluation_mode(model):
            passes = (logits(model, self.view(batch)).unsqueeze(0) for _ in range(self.passes))
            found = summarize(passes, self.task, self.temperature)
        remedy = "Look for blank images, or use another estimator, such as uncertainty='mc-dropout'."
        return found.checked(f"{self.passes} views of each image", remedy) if check else found.uncertainty()

    def view(self, batch: Tensor) -> Tensor:
        """Return the images (N, channels, height, width) or clips, each flipped and shifted by its own draws."""
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
            must = "be images (N, channels, height, width) or clips (N, channels, frames, height, width)"
            raise bad_argument("batch", must, f"shape {tuple(batch.shape)}", "use uncertainty='mc-dropout'")
        if self.crop >= min(batch.shape[-2:]):
            must = f"be smaller than the images' sides, {tuple(batch.shape[-2:])}"
            raise bad_argument("crop", must, self.crop, "an eighth of a side is usual")
