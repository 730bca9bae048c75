"""What all kinds of files share."""

import numpy as np

from surelabel.data.source import ArraySource
from surelabel.kinds.kind import channel_statistics


def test_a_channel_has_its_mean_and_its_spread_and_a_constant_one_almost_none() -> None:
    samples = np.zeros((2, 3, 1, 2), dtype=np.uint8)
    samples[:, 0] = [[[0, 255]], [[255, 0]]]
    samples[:, 1] = [[[102, 102]], [[153, 153]]]
    samples[:, 2] = 51
    mean, std = channel_statistics(ArraySource(samples))
    np.testing.assert_allclose(mean, [0.5, 0.5, 0.2], rtol=1e-6)
    np.testing.assert_allclose(std, [0.5, 0.1, 0.001], rtol=1e-5)
