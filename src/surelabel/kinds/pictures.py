"""Pictures: JPEG, PNG and others, as squares of one size, and a convolutional network."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surelabel.augment.settings import AugmentSettings
from surelabel.base.defaults import KIND_DEFAULTS
from surelabel.data.pictures import PictureSettings, picture_size
from surelabel.data.source import Source
from surelabel.errors import DataError
from surelabel.kinds.kind import Kind, Network, channel_statistics

SIDES = 8, 32
"""The smallest and the largest side that pictures are read at."""
_LOOKED_AT = 100


class Pictures(Kind):
    """Pictures are read in color, as squares of the median shorter side, between `SIDES`."""

    name = "pictures"
    endings = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")
    defaults = KIND_DEFAULTS[name]
    linear = "surelabel.kinds.linear:LinearOnPixels"

    def reading(self, files: Sequence[Path]) -> PictureSettings:
        """Choose the side from the sizes of some of the files; unreadable ones are reported later."""
        return PictureSettings(side=usual_side(picture_size, files))

    def network(self, samples: Source) -> Network:
        """Return three convolutions, the first with a stride of 2 unless pictures are tiny."""
        side, (mean, std) = samples.sample_shape[-1], channel_statistics(samples)
        augment = AugmentSettings(crop=max(1, side // 8), mean=mean, std=std)
        parameters = {"width": 16, "stride": 1 if side <= 16 else 2}
        strong = augment.replace(operations=2, hole=max(1, side // 2))
        return Network("surelabel.models.pooled:pooled_network", parameters, augment, strong)


def usual_side(size_of: Callable[[Any], tuple[int, int]], pictures: Sequence[Any]) -> int:
    """Return the median shorter side of some of the pictures, between `SIDES`."""
    sizes = []
    for place in np.unique(np.linspace(0, len(pictures) - 1, _LOOKED_AT).astype(int)):
        try:
            sizes.append(min(size_of(pictures[place])))
        except DataError:
            continue
    usual = int(np.median(sizes)) if sizes else SIDES[1]
    return min(max(usual, SIDES[0]), SIDES[1])
