"""Images of several kinds for the tests of augmentation, and the way to Pillow and back."""

import functools
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from surelabel.augment import color
from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.augment.geometry import affine, rotation
from surelabel.data.draws import sample_keys

Picture = np.ndarray
"""uint8 of shape (H, W, 3) or (H, W)."""


@functools.cache
def pictures(side: int = 32) -> dict[str, Picture]:
    """Noise, ramps, flat colors, few levels and photographs, uint8 of shape (side, side, 3)."""
    random = np.random.default_rng(0)
    ramp = np.linspace(0, 255, side).round().astype(np.uint8)
    across, down = np.broadcast_to(ramp, (side, side)), np.broadcast_to(ramp[:, None], (side, side))
    kinds = {
        "noise": random.integers(0, 256, (side, side, 3)),
        "dark noise": random.integers(0, 40, (side, side, 3)),
        "narrow noise": random.integers(100, 160, (side, side, 3)),
        "binomial noise": random.binomial(255, 0.5, (side, side, 3)),
        "ramps": np.stack([across, down, across[:, ::-1]], 2),
        "black": np.zeros((side, side, 3)),
        "white": np.full((side, side, 3), 255),
        "flat": np.broadcast_to([200, 30, 117], (side, side, 3)),
        "two levels": random.choice([7, 250], (side, side, 3)),
        "one odd pixel": np.where(np.arange(side * side).reshape(side, side, 1) == 37, 90, [10, 11, 12]),
        "checkers": np.where(np.indices((side, side)).sum(0)[..., None] % 2 == 0, [0, 128, 255], [255, 127, 0]),
    }
    for index, photograph in enumerate(load_sample_images().images):
        image = Image.fromarray(photograph)
        kinds[f"photograph {index}"] = np.asarray(image.resize((side, side)))
        kinds[f"detail {index}"] = np.asarray(image.crop((300, 150, 300 + side, 150 + side)))
    return {name: np.ascontiguousarray(picture, dtype=np.uint8) for name, picture in kinds.items()}


def batch(*images: Picture) -> torch.Tensor:
    """Pictures as uint8 (N, C, H, W)."""
    array = np.stack([image if image.ndim == 3 else image[..., None] for image in images])
    return torch.from_numpy(array.transpose(0, 3, 1, 2).copy())


def all_pictures(side: int = 32, grey: bool = False) -> list[Picture]:
    chosen = list(pictures(side).values())
    return [np.asarray(Image.fromarray(image).convert("L")) for image in chosen] if grey else chosen


def with_pillow(change: Callable[[Image.Image], Image.Image], image: Picture) -> torch.Tensor:
    """What Pillow makes of a picture, as (C, H, W)."""
    return batch(np.asarray(change(Image.fromarray(image))))[0]


def draws_of(ids: np.ndarray, seed: int = 0, epoch: int = 0, device: str = "cpu") -> Draws:
    """The draws of samples by their ids, all in one epoch."""
    keys = torch.from_numpy(sample_keys(ids).view(np.int64).copy()).to(device)
    return Draws(torch.tensor(seed, device=device), keys, torch.full_like(keys, epoch))


def check_one_graph(augment: Augment, samples: torch.Tensor, backend: str) -> None:
    """A chain compiles into one graph, which gives the same samples whatever the seed."""
    keys, epochs = torch.arange(len(samples)), torch.zeros(len(samples), dtype=torch.int64)

    def step(seed: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        return augment(samples, Draws(seed, keys, epochs))

    torch._dynamo.reset()
    compiled = torch.compile(step, backend=backend, fullgraph=True)
    for seed in (0, 1):
        assert torch.equal(compiled(torch.tensor(seed), samples), step(torch.tensor(seed), samples))


# Operations of RandAugment by themselves, which a step makes of the same parts for a mixed batch.


def auto_contrast(images: torch.Tensor) -> torch.Tensor:
    return color.stretch(images, *color.channel_limits(images))


def equalize(images: torch.Tensor) -> torch.Tensor:
    return color.lookup(images, color.equalizing_table(images))


def sharpness(images: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return color.blend(color.smooth(images), images, factor)


def rotate(images: torch.Tensor, degrees: torch.Tensor) -> torch.Tensor:
    return affine(images, rotation(degrees, *images.shape[2:]))


def shear_x(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return affine(images, (one, amount, zero, zero, one, zero))


def shear_y(images: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return affine(images, (one, zero, zero, amount, one, zero))


def translate_x(images: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    one, zero = torch.ones_like(pixels), torch.zeros_like(pixels)
    return affine(images, (one, zero, pixels, zero, one, zero))


def translate_y(images: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    one, zero = torch.ones_like(pixels), torch.zeros_like(pixels)
    return affine(images, (one, zero, zero, zero, one, pixels))
