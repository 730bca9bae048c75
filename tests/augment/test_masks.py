"""Masks cover whole rows and columns, each sample's own, and runs without them keep their hashes."""

import numpy as np
import torch

from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.augment.masks import mask_lines
from surelabel.augment.settings import AugmentSettings
from surelabel.data.draws import draw
from surelabel.engine.settings import TrainingSettings

KEYS = range(200)


def _draws(keys: object = KEYS) -> Draws:
    numbers = torch.tensor(list(keys))  # type: ignore[call-overload]
    return Draws(torch.tensor(3), numbers, torch.ones_like(numbers))


def _reference(name: str, most: int, length: int) -> list[list[int]]:
    """Which lines are covered: a width in 0 ... most and a first line that leaves room, one sample after another."""
    covered = []
    for key in KEYS:
        bits = [int(draw(3, 1, np.uint64(key), f"{name} {part}")) for part in ("width", "first")]
        width = (bits[0] >> 32) * (min(most, length) + 1) >> 32
        start = (bits[1] >> 40) * (length - width + 1) >> 24
        covered.append([int(start <= line < start + width) for line in range(length)])
    return covered


def test_masks_are_those_of_the_description() -> None:
    images = torch.ones(len(KEYS), 1, 12, 20)
    rows = mask_lines(images, _draws(), rows=5, columns=0)
    assert (1 - rows[:, 0, :, 0]).tolist() == _reference("mask 0 rows", 5, 12)
    assert torch.equal(rows, rows[..., :1].expand(-1, -1, -1, 20))
    columns = mask_lines(images, _draws(), rows=0, columns=8)
    assert (1 - columns[:, 0, 0]).tolist() == _reference("mask 0 columns", 8, 20)
    both = mask_lines(images, _draws(), rows=5, columns=8)
    assert torch.equal(both, rows * columns)


def test_widths_and_places_are_uniform() -> None:
    count = 4000
    covered = mask_lines(torch.ones(count, 1, 1, 10), _draws(range(count)), 0, 4)[:, 0, 0] == 0
    widths = np.bincount(covered.sum(dim=1), minlength=5) / count
    np.testing.assert_allclose(widths, 0.2, atol=0.03)
    one_wide = covered[covered.sum(dim=1) == 1].float().mean(dim=0)
    np.testing.assert_allclose(one_wide, 0.1, atol=0.05)


def test_several_masks_may_cover_all_and_a_wide_one_fits() -> None:
    images = torch.ones(len(KEYS), 2, 6, 6)
    one, many = (mask_lines(images, _draws(), 3, 0, masks).mean() for masks in (1, 10))
    assert many < one
    wide = mask_lines(images, _draws(), rows=0, columns=1000)
    assert {0, 6} <= set((wide[:, 0, 0] == 0).sum(dim=1).tolist())


def test_a_sample_is_masked_alike_in_any_batch_and_in_all_frames_of_a_clip() -> None:
    settings = AugmentSettings(mask_rows=4, mask_columns=4, masks=2, mean=(0.2,), std=(0.5,))
    images = torch.randint(0, 256, (8, 1, 10, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    together = Augment(settings)(images, _draws(range(8)))
    alone = torch.cat([Augment(settings)(images[row : row + 1], _draws([row])) for row in range(8)])
    assert torch.equal(together, alone)
    masked = together != Augment(settings.replace(mask_rows=0, mask_columns=0, masks=1))(images, _draws(range(8)))
    assert masked.any()
    assert not together[masked].any()
    clips = Augment(settings)(images[:, :, None].expand(-1, -1, 3, -1, -1), _draws(range(8)))
    assert torch.equal(clips[:, :, 0], together)
    assert torch.equal(clips[:, :, 2], together)
    assert torch.equal(Augment(settings).plain(images), Augment(AugmentSettings(mean=(0.2,), std=(0.5,))).plain(images))


def test_the_chain_with_masks_compiles_into_one_graph() -> None:
    augment = Augment(AugmentSettings(crop=1, mask_rows=4, mask_columns=4, masks=2))
    images = torch.randint(0, 256, (8, 1, 10, 10), dtype=torch.uint8)
    torch._dynamo.reset()
    compiled = torch.compile(augment, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images, _draws(range(8))), augment(images, _draws(range(8))))


def test_settings_without_masks_are_written_as_before_there_were_any() -> None:
    written = TrainingSettings(augment=AugmentSettings(crop=4)).model_dump(mode="json")["augment"]
    assert not [name for name in written if name.startswith("mask")]
    assert AugmentSettings.model_validate(written) == AugmentSettings(crop=4)
    masked = AugmentSettings(crop=4, mask_columns=3)
    assert masked.model_dump()["mask_columns"] == 3
    assert "mask_rows" not in masked.model_dump()
    assert AugmentSettings.model_validate_json(masked.model_dump_json()) == masked
