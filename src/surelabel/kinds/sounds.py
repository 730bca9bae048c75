"""Sounds: WAV and FLAC, as log-mel spectrograms of one size, and a convolutional network."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from surelabel.augment.settings import AugmentSettings
from surelabel.base.defaults import KIND_DEFAULTS
from surelabel.data.sound_files import SoundHeader, sound_header
from surelabel.data.sounds import SoundSettings
from surelabel.data.source import Source
from surelabel.errors import DataError
from surelabel.kinds.kind import Kind, Network, channel_statistics

MELS = 40
FRAMES = 8, 64
"""The fewest and the most columns of a spectrogram."""
HIGHEST_RATE = 16_000
"""The highest rate: frequencies above half of it, 8,000 Hz, are not used."""
SHORTEST_HOP, LONGEST = 0.01, 10.0
"""The least number of seconds between columns, and the most seconds of a sound that are kept."""
QUIET = 30.0
"""How many decibels below the loudest column the beginning and the end of a sound may be to be kept."""
_MOST = 0.95
"""The share of the files that are kept whole, unless they are longer than `LONGEST`."""
_LOOKED_AT = 200


class Sounds(Kind):
    """Spectrograms of a length that fits nearly all recordings, with frequencies up to half of the usual rate."""

    name = "sounds"
    endings = (".wav", ".flac")
    defaults = KIND_DEFAULTS[name]
    linear = "surelabel.kinds.linear:LinearOnPixels"

    def reading(self, files: Sequence[Path]) -> SoundSettings:
        """Choose length and frequencies from some of the files; unreadable ones are reported later."""
        headers: list[SoundHeader] = []
        for place in np.unique(np.linspace(0, len(files) - 1, _LOOKED_AT).astype(int)):
            try:
                headers.append(sound_header(files[place]))
            except DataError:
                continue
        rate = float(np.median([header.rate for header in headers])) if headers else HIGHEST_RATE
        seconds = float(np.quantile([header.seconds for header in headers], _MOST)) if headers else 1.0
        # Rounded up to a tenth of a millisecond, so that the whole length fits.
        hop = max(SHORTEST_HOP, np.ceil(1e4 * min(seconds, LONGEST) / FRAMES[1]) / 1e4)
        frames = int(np.clip(np.ceil(min(seconds, LONGEST) / hop), *FRAMES))
        # A window is longer than the hop, so that no sample is skipped.
        window, highest = max(0.032, 2 * hop), min(rate, HIGHEST_RATE) / 2
        times = {"window": round(float(window), 4), "hop": round(float(hop), 4)}
        return SoundSettings(highest=highest, mels=MELS, frames=frames, quiet=QUIET, **times)

    def network(self, samples: Source) -> Network:
        """Return a small network that keeps the pitch of a sound, and roughly its time."""
        mean, std = channel_statistics(samples)
        augment = AugmentSettings(crop=4, mask_rows=8, mask_columns=12, mean=mean, std=std)
        parameters = {"width": 16, "rows": 5, "columns": 8, "stride": 2}
        return Network("surelabel.models.pooled:pooled_network", parameters, augment)
