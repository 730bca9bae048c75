"""Which augmentations run, as plain numbers. Everything is off by default."""

from typing import Any, Self

from pydantic import Field, FiniteFloat, SerializerFunctionWrapHandler, model_serializer, model_validator

from surelabel.base.settings import Settings

_MOST_PIXELS, _MOST_FRAMES = 65_536, 1_000_000
_LATER = {"mask_rows": 0, "mask_columns": 0, "masks": 1}
"""Settings that came after the first version; they are not written if they have these values, so hashes of runs stay
the same."""


class AugmentSettings(Settings):
    """Which augmentations run, in the published order: RandAugment, flip, crop, jitter, normalize, hole; then masks.

    The published chain for CIFAR is `operations=3, magnitude=4, flip=True, crop=4, jitter=0.4, hole=16`, with the mean
    and the standard deviation of the data. Random crop and temporal jittering of clips, as for UCF-101, are
    `side=112, window=16`, and come before everything else. All frames of a clip share the same draws.

    Attributes:
        flip: mirror half of the images.
        crop: shift by up to this many pixels, filling the border by reflection; 0: off.
        hole: the largest side of the square that is set to 0 after normalizing; 0: off.
        jitter: brightness, contrast and saturation change by factors in [1 - jitter, 1 + jitter]; 0: off.
        operations: how many operations RandAugment draws for an image, its n; 0: off.
        magnitude: RandAugment's m of 30, with the published ranges; None: drawn for each image and operation.
        mean: per channel, for values from 0 to 1; None: 0.
        std: per channel, for values from 0 to 1; None: 1.
        mixup: alpha of Mixup's Beta(alpha, alpha); 0: off. `Augment` leaves it to the code that has the targets.
        side: cut a square of this side out of larger images or frames (for labeling and testing, the middle); 0: off.
        window: cut this many consecutive frames out of clips (for labeling and testing, the middle); 0: all frames.
        passages: how many stretches of consecutive frames the stored clips consist of (`ClipSettings.passages`); a
            window lies within one.
        test_windows: how many windows per clip are averaged in testing, at most `passages`; 1: the middle one.
        mask_rows: the most adjacent rows that a mask sets to 0 after normalizing (a frequency band of a spectrogram);
            0: off.
        mask_columns: the most adjacent columns (a stretch of time of a spectrogram); 0: off.
        masks: how many masks of each are drawn.

    Example:
        >>> AugmentSettings(flip=True, crop=4).replace(operations=2).operations
        2
    """

    flip: bool = False
    crop: int = Field(0, ge=0, le=_MOST_PIXELS)
    hole: int = Field(0, ge=0, le=_MOST_PIXELS)
    jitter: float = Field(0.0, ge=0, le=1000)
    operations: int = Field(0, ge=0, le=100)
    magnitude: int | None = Field(None, ge=0, le=30)
    mean: tuple[FiniteFloat, ...] | None = None
    std: tuple[FiniteFloat, ...] | None = None
    mixup: float = Field(0.0, ge=0, le=1e6)
    side: int = Field(0, ge=0, le=_MOST_PIXELS)
    window: int = Field(0, ge=0, le=_MOST_FRAMES)
    passages: int = Field(1, ge=1, le=_MOST_FRAMES)
    test_windows: int = Field(1, ge=1, le=_MOST_FRAMES)
    mask_rows: int = Field(0, ge=0, le=_MOST_PIXELS)
    mask_columns: int = Field(0, ge=0, le=_MOST_PIXELS)
    masks: int = Field(1, ge=1, le=100)

    @model_serializer(mode="wrap")
    def _without_later(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = write(self)
        return {name: value for name, value in values.items() if name not in _LATER or value != _LATER[name]}

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.std is not None and min(self.std, default=0.0) <= 0:
            raise ValueError(f"The 'std' setting must be above 0 for every channel. Got {self.std} instead")
        if self.mean is not None and self.std is not None and len(self.mean) != len(self.std):
            got = f"{len(self.mean)} and {len(self.std)}"
            raise ValueError(f"The 'mean' and 'std' settings must have one number per channel. Got {got} instead")
        if self.test_windows > self.passages:
            got = f"{self.test_windows} and {self.passages}"
            raise ValueError(f"The 'test_windows' setting must not be larger than 'passages'. Got {got} instead")
        return self
