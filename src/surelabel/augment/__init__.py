"""Batched augmentations that run on the device the batch is on.

`Augment` is the chain; each operation is also a function over a batch: `points`, `color`, `geometry`, `holes`.
"""

from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.augment.mixup import mixup
from surelabel.augment.settings import AugmentSettings

__all__ = ["Augment", "AugmentSettings", "Draws", "mixup"]
