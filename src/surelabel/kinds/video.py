"""Video in FFmpeg's formats, as a few stretches of small frames, and a 3-D network small enough for a CPU."""

from collections.abc import Sequence
from pathlib import Path

from surelabel.augment.settings import AugmentSettings
from surelabel.base.defaults import KIND_DEFAULTS
from surelabel.data.source import Source
from surelabel.data.video import ClipSettings, import_av
from surelabel.kinds.kind import Kind, Network, channel_statistics

CLIP = ClipSettings(passages=3, frames=10, stride=2, height=40, width=40)
"""Three stretches of 20 frames, every second one kept: 144 kB per video."""
WINDOW, SIDE = 8, 32
"""The network's input: consecutive frames of a stretch, and a square of each."""


class Video(Kind):
    """Clips are read alike, whatever their size and length; a test averages one window of each stretch."""

    name = "video"
    endings = (".mp4", ".avi", ".mkv", ".webm", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv")
    defaults = KIND_DEFAULTS[name]
    linear = "surelabel.kinds.linear:LinearOnPixels"

    def reading(self, files: Sequence[Path]) -> ClipSettings:
        """Return what is kept of each file; say at once where PyAV is missing."""
        import_av()
        return CLIP

    def network(self, samples: Source) -> Network:
        """Return a 3-D ResNet-18 with an eighth of the usual channels."""
        mean, std = channel_statistics(samples)
        passages = CLIP.passages
        augment = AugmentSettings(
            side=SIDE, window=WINDOW, passages=passages, test_windows=passages, mean=mean, std=std
        )
        return Network("surelabel.models.resnet3d:resnet3d18", {"width": 8}, augment)
