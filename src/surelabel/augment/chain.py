"""The chain in the published order: RandAugment, flip, crop, jitter, normalize, hole; and then masks.

Windows of clips and squares of frames are cut out before that.
"""

import warnings

import torch
from torch import Tensor

from surelabel.augment.clips import cut, cut_size, middle, random_place
from surelabel.augment.color import LARGEST, jitter, per_channel
from surelabel.augment.draws import Draws
from surelabel.augment.geometry import flip_and_crop, hole
from surelabel.augment.masks import mask_lines
from surelabel.augment.randaugment import rand_augment
from surelabel.augment.settings import AugmentSettings
from surelabel.core.arrays import bad_argument
from surelabel.errors import InvalidInputError


class Augment:
    """Augments a batch on its own device, each sample with its own draws.

    Operations that are off cost nothing. Nothing in the chain waits for the device, and the whole chain compiles into
    one graph (`torch.compile(fullgraph=True)`). The result for a sample does not depend on the batch it is in.

    Args:
        settings: which augmentations run.

    Example:
        >>> images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
        >>> draws = Draws(torch.tensor(0), torch.arange(2), torch.zeros(2, dtype=torch.int64))
        >>> Augment(AugmentSettings(flip=True, crop=4, operations=2))(images, draws).shape
        torch.Size([2, 3, 32, 32])
    """

    def __init__(self, settings: AugmentSettings) -> None:
        if settings.magnitude is not None and settings.operations == 0:
            message = f"'magnitude' ({settings.magnitude}) is ignored: 'operations' is 0, so RandAugment is off."
            warnings.warn(message, UserWarning, stacklevel=2)
        self.settings = settings

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Return augmented and normalized images, float32 of shape (N, C, H, W), from uint8 images of that shape.

        All frames of a clip (N, C, T, H, W) are augmented alike. If the settings cut out a window or a square, the
        result has smaller T, H and W.
        """
        self._check_images(images)
        assert draws.count == images.shape[0]
        if images.ndim == 4 and not self.settings.side:
            return self._augment(images, draws)
        clips = images if images.ndim == 5 else images.unsqueeze(2)
        size = cut_size(clips.shape, self.settings)
        frames = cut(clips, random_place(clips.shape, size, self.settings.passages, draws), size)
        augmented = self._augment(frames.flatten(0, 1), draws.repeated(size[0])).reshape(frames.shape)
        return augmented.transpose(1, 2) if images.ndim == 5 else augmented.squeeze(1)

    def plain(self, images: Tensor, window: int | None = None) -> Tensor:
        """Return images that are only normalized, for labeling and testing.

        Args:
            images: uint8 of shape (N, C, H, W), or clips (N, C, T, H, W).
            window: which of the `test_windows` of a clip; None: the middle one.
        """
        self._check_images(images)
        settings = self.settings
        clips = images if images.ndim == 5 else images.unsqueeze(2)
        place = (0, 1) if window is None else (window, settings.test_windows)
        clips = middle(clips, cut_size(clips.shape, settings), settings.passages, *place)
        return self._normalize((clips if images.ndim == 5 else clips.squeeze(2)).to(torch.float32))

    def _augment(self, images: Tensor, draws: Draws) -> Tensor:
        settings = self.settings
        levels = rand_augment(images.to(torch.float32), draws, settings.operations, settings.magnitude)
        levels = self._flip_and_crop(levels, draws)
        if settings.jitter > 0:
            levels = jitter(levels, draws, settings.jitter)
        images = self._hole(self._normalize(levels), draws)
        return mask_lines(images, draws, settings.mask_rows, settings.mask_columns, settings.masks)

    def _check_images(self, images: Tensor) -> None:
        if images.dtype != torch.uint8 or images.ndim not in (4, 5):
            got = f"{images.dtype} of shape {tuple(images.shape)}"
            remedy = "pass images as they were read, since the chain normalizes them"
            raise bad_argument("images", "be uint8 of shape (N, C, H, W) or (N, C, T, H, W)", got, remedy)
        if images.ndim == 4 and self.settings.window:
            got = f"window={self.settings.window} and images of shape {tuple(images.shape)}"
            raise InvalidInputError(f"The 'window' setting is for clips, (N, C, T, H, W). Got {got}; set it to 0.")

    def _flip_and_crop(self, levels: Tensor, draws: Draws) -> Tensor:
        crop = self.settings.crop
        if not (self.settings.flip or crop):
            return levels
        if crop >= min(levels.shape[2:]):
            must = f"be smaller than the images' sides, {tuple(levels.shape[2:])}"
            raise bad_argument("crop", must, crop, "an eighth of a side is usual")
        flipped = torch.zeros(draws.count, dtype=torch.bool, device=levels.device)
        if self.settings.flip:
            flipped = draws.uniform("flip") < 0.5
        right, down = (draws.integer(f"crop {axis}", 2 * crop + 1) - crop for axis in ("x", "y"))
        return flip_and_crop(levels, flipped, right, down)

    def _normalize(self, levels: Tensor) -> Tensor:
        """Return (level / 255 - mean) / std, as one product and one sum."""
        channels = levels.shape[1]
        mean, std = self.settings.mean or (0.0,) * channels, self.settings.std or (1.0,) * channels
        for name, values in (("mean", mean), ("std", std)):
            if len(values) != channels:
                raise bad_argument(name, f"have one number per channel, {channels}", values, "use those of your data")
        scale = per_channel([1 / (LARGEST * deviation) for deviation in std], levels)
        shift = per_channel([-center / deviation for center, deviation in zip(mean, std, strict=True)], levels)
        return levels * scale + shift

    def _hole(self, images: Tensor, draws: Draws) -> Tensor:
        if self.settings.hole == 0:
            return images
        side = 1 + draws.integer("hole side", self.settings.hole)
        center_x = draws.integer("hole x", images.shape[3])
        center_y = draws.integer("hole y", images.shape[2])
        return hole(images, side, center_x, center_y)
