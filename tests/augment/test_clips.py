"""Clips on the device: windows, squares and flips by the draws of each clip, the same in all of its frames."""

import numpy as np
import pytest
import torch
from augment_support import all_pictures, batch, check_one_graph, draws_of
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from surelabel.augment.chain import Augment
from surelabel.augment.clips import middle
from surelabel.augment.draws import Draws
from surelabel.augment.mixup import mixup
from surelabel.augment.settings import AugmentSettings
from surelabel.data.draws import draw, sample_keys
from surelabel.errors import InvalidInputError

MEAN, STD = (0.43, 0.39, 0.38), (0.23, 0.22, 0.22)
PAPER = AugmentSettings(side=12, window=4, passages=3)
EVERYTHING = PAPER.replace(flip=True, crop=2, hole=4, jitter=0.4, operations=2, mean=MEAN, std=STD)


def clips_of(count: int, frames: int = 18, height: int = 16, width: int = 20) -> torch.Tensor:
    random = np.random.default_rng(0)
    return torch.from_numpy(random.integers(0, 256, (count, 3, frames, height, width), dtype=np.uint8))


def numpy_integer(name: str, key: int, count: int) -> int:
    return (int(draw(0, 0, sample_keys(np.array([key])), name)[0] >> np.uint64(32)) * count) >> 32


def _reference_cut(clip: np.ndarray, key: int) -> np.ndarray:
    """A window of 4 frames in one of 3 passages of 6, and a square of 12, from the numpy hash and slices."""
    first = 6 * numpy_integer("passage", key, 3) + numpy_integer("window", key, 3)
    top, left = numpy_integer("cut y", key, 5), numpy_integer("cut x", key, 9)
    return clip[:, first : first + 4, top : top + 12, left : left + 12]


def test_random_windows_and_squares_are_their_reference() -> None:
    clips = clips_of(40)
    augmented = Augment(PAPER)(clips, draws_of(np.arange(40)))
    assert augmented.shape == (40, 3, 4, 12, 12)
    assert augmented.dtype == torch.float32
    for key, (clip, result) in enumerate(zip(clips.numpy(), augmented, strict=True)):
        np.testing.assert_allclose(result.numpy(), _reference_cut(clip, key) / 255, rtol=1e-6)


def test_a_clip_is_mirrored_whole() -> None:
    clips = clips_of(40)
    draws = draws_of(np.arange(40))
    plain = Augment(PAPER)(clips, draws)
    flipped = Augment(PAPER.replace(flip=True))(clips, draws)
    mirrored = draws.uniform("flip") < 0.5
    assert 10 < mirrored.sum() < 30
    assert torch.equal(flipped, torch.where(mirrored[:, None, None, None, None], plain.flip(4), plain))


def test_all_frames_of_a_clip_go_through_the_same() -> None:
    image = batch(*all_pictures(20))[:, :, :16]
    still = image[:, :, None].expand(-1, -1, 18, -1, -1)
    augmented = Augment(EVERYTHING)(still, draws_of(np.arange(len(still))))
    assert torch.equal(augmented, augmented[:, :, :1].expand_as(augmented))


def test_a_clip_goes_through_what_a_picture_goes_through() -> None:
    images = batch(*all_pictures(20))
    draws = draws_of(np.arange(len(images)))
    settings = AugmentSettings(flip=True, crop=2, hole=4, jitter=0.4, operations=2, mean=MEAN, std=STD)
    of_clips = Augment(settings)(images[:, :, None].expand(-1, -1, 3, -1, -1), draws)
    assert torch.equal(of_clips[:, :, 1], Augment(settings)(images, draws))


def test_every_window_and_every_square_is_drawn_and_none_lies_across_passages() -> None:
    # Each value says where it is from: 30 times the frame, and the column.
    clips = torch.arange(6, dtype=torch.uint8)[:, None, None] * 30 + torch.arange(8, dtype=torch.uint8)
    clips = clips.expand(2000, 1, 6, 8, 8).contiguous()
    augmented = Augment(AugmentSettings(side=6, window=2, passages=2))(clips, draws_of(np.arange(2000)))
    first = (augmented[:, 0, :, 0, 0] * 255).round().long()
    starts, counts = (first[:, 0] // 30).unique(return_counts=True)
    assert starts.tolist() == [0, 1, 3, 4]
    assert torch.equal(first[:, 1] // 30, first[:, 0] // 30 + 1)
    columns, column_counts = (first[:, 0] % 30).unique(return_counts=True)
    assert columns.tolist() == [0, 1, 2]
    assert min(counts.tolist()) > 400
    assert min(column_counts.tolist()) > 560


def test_a_clip_does_not_depend_on_the_batch_it_is_in() -> None:
    augment, clips = Augment(EVERYTHING), clips_of(12)
    ids = np.arange(12)
    whole = augment(clips, draws_of(ids))
    shuffled = np.random.default_rng(0).permutation(12)
    assert torch.equal(augment(clips[shuffled], draws_of(shuffled)), whole[shuffled])
    assert torch.equal(augment(clips[7:8], draws_of(ids[7:8])), whole[7:8])


def test_epochs_and_seeds_give_other_windows_and_the_same_ones_again() -> None:
    augment, clips = Augment(PAPER), clips_of(1).expand(40, -1, -1, -1, -1)
    first = augment(clips, draws_of(np.arange(40)))
    assert torch.equal(first, augment(clips, draws_of(np.arange(40))))
    for other in (draws_of(np.arange(40), epoch=1), draws_of(np.arange(40), seed=1)):
        assert (augment(clips, other) == first).flatten(1).all(1).sum() < 10


def test_labeling_and_testing_take_the_middle() -> None:
    clips = clips_of(5)
    plain = Augment(EVERYTHING).plain(clips)
    mean, std = (torch.tensor(values).reshape(3, 1, 1, 1) for values in (MEAN, STD))
    expected = (clips[:, :, 7:11, 2:14, 4:16] / 255 - mean) / std
    torch.testing.assert_close(plain, expected, atol=1e-5, rtol=1e-5)


def test_a_test_can_take_a_window_of_each_passage() -> None:
    clips = clips_of(5)
    augment = Augment(PAPER.replace(test_windows=3))
    for window, start in enumerate((1, 7, 13)):
        expected = clips[:, :, start : start + 4, 2:14, 4:16] * torch.tensor(1 / 255)
        assert torch.equal(augment.plain(clips, window), expected)
    assert torch.equal(augment.plain(clips), augment.plain(clips, 1))


@given(passages=st.integers(1, 9), data=st.data())
def test_test_windows_are_in_passages_of_their_own_and_lie_evenly(passages: int, data: st.DataObject) -> None:
    windows = data.draw(st.integers(1, passages))
    clips = torch.arange(passages * 4).reshape(1, 1, -1, 1, 1)
    starts = [int(middle(clips, (2, 1, 1), passages, window, windows)[0, 0, 0]) for window in range(windows)]
    assert [start % 4 for start in starts] == [1] * windows
    chosen = [start // 4 for start in starts]
    assert chosen == [int((window + 0.5) * passages / windows) for window in range(windows)]
    assert len(set(chosen)) == windows


def test_without_settings_clips_are_normalized_whole() -> None:
    clips = clips_of(3)
    augment = Augment(AugmentSettings(mean=MEAN, std=STD))
    assert torch.equal(augment(clips, draws_of(np.arange(3))), augment.plain(clips))
    assert augment.plain(clips).shape == clips.shape


def test_squares_are_cut_out_of_pictures_too() -> None:
    images = clips_of(30)[:, :, 0]
    settings = AugmentSettings(side=12)
    augmented = Augment(settings)(images, draws_of(np.arange(30)))
    for key, (image, result) in enumerate(zip(images, augmented, strict=True)):
        top, left = numpy_integer("cut y", key, 5), numpy_integer("cut x", key, 9)
        assert torch.equal(result, image[:, top : top + 12, left : left + 12] * torch.tensor(1 / 255))
    assert torch.equal(Augment(settings).plain(images), images[:, :, 2:14, 4:16] * torch.tensor(1 / 255))


def test_the_chain_of_clips_compiles_into_one_graph_and_gives_the_same() -> None:
    check_one_graph(Augment(EVERYTHING.replace(operations=0)), clips_of(6), "aot_eager")


def test_nothing_in_the_chain_of_clips_looks_at_a_value() -> None:
    with torch.device("meta"):
        draws = Draws(torch.tensor(0), torch.arange(8), torch.zeros(8, dtype=torch.int64))
        clips = torch.zeros(8, 3, 18, 16, 20, dtype=torch.uint8)
    assert Augment(EVERYTHING)(clips, draws).shape == (8, 3, 4, 12, 12)


def test_clips_can_be_mixed() -> None:
    clips = Augment(PAPER)(clips_of(4), draws_of(np.arange(4)))
    mixed, targets = mixup(clips, torch.eye(4), draws_of(np.arange(4)), 0.5)
    share = targets.diagonal()[:, None, None, None, None]
    torch.testing.assert_close(mixed, share * clips + (1 - share) * clips.roll(-1, 0))


@pytest.mark.parametrize(
    ("settings", "shape", "message"),
    [
        (
            PAPER,
            (2, 3, 16, 16),
            r"'window' setting is for clips, .* Got window=4 and images of shape \(2, 3, 16, 16\); set it to 0",
        ),
        (PAPER, (2, 3, 17, 16, 16), "Clips of 17 frames must have .* Got passages=3 and window=4"),
        (PAPER, (2, 3, 9, 16, 16), "Clips of 9 frames must have .* Got passages=3 and window=4"),
        (PAPER.replace(window=0), (2, 3, 18, 16, 16), "Got passages=3 and window=0; .* a window above 0"),
        (PAPER, (2, 3, 18, 16, 11), r"'side' argument must be no larger than the images, \(16, 11\). Got 12"),
        (AugmentSettings(side=17), (2, 3, 16, 16), "'side' argument must be no larger than the images"),
        (PAPER, (2, 3, 2, 18, 16, 16), r"must be uint8 of shape \(N, C, H, W\) or \(N, C, T, H, W\)"),
    ],
)
def test_clips_that_do_not_fit_the_settings_are_named(
    settings: AugmentSettings, shape: tuple[int, ...], message: str
) -> None:
    clips = torch.zeros(shape, dtype=torch.uint8)
    with pytest.raises(InvalidInputError, match=message):
        Augment(settings)(clips, draws_of(np.arange(2)))
    with pytest.raises(InvalidInputError, match=message):
        Augment(settings).plain(clips)


def test_more_test_windows_than_passages_are_refused() -> None:
    with pytest.raises(
        ValidationError, match="'test_windows' setting must not be larger than 'passages'.* Got 4 and 3"
    ):
        AugmentSettings(passages=3, test_windows=4)


@pytest.mark.gpu
def test_a_compiled_chain_of_clips_gives_the_clips_of_the_cpu() -> None:
    augment, clips = Augment(EVERYTHING.replace(operations=0)), clips_of(16)
    compiled = torch.compile(augment, fullgraph=True)
    found = compiled(clips.cuda(), draws_of(np.arange(16), device="cuda")).cpu()
    torch.testing.assert_close(found, augment(clips, draws_of(np.arange(16))), atol=0.02, rtol=0)
