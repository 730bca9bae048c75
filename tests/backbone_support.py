"""What tests of backbones share: pictures of two colors in folders, and tiny networks that count their work."""

from pathlib import Path

import numpy as np
from PIL import Image

NETS = '''
from pathlib import Path

import torch
from torch import nn

from surelabel.models.pretrained import load_pretrained

COUNT = Path(__file__).with_name("count.txt")


class Colors(nn.Module):
    """The mean of each channel, through a linear layer."""

    side, mean, std = 8, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)

    def __init__(self, width, sign=1.0):
        super().__init__()
        self.layer = nn.Linear(3, width)
        nn.init.constant_(self.layer.bias, 0.0)
        with torch.no_grad():
            self.layer.weight.copy_(sign * torch.eye(3).repeat(2, 1)[:width])

    def forward(self, x):
        assert not self.training and x.shape[1:] == (3, self.side, self.side)
        before = int(COUNT.read_text()) if COUNT.exists() else 0
        COUNT.write_text(str(before + len(x)))
        return self.layer(x.mean((2, 3)))


def colors():
    return Colors(3)


def others():
    return Colors(5, -1.0)


def weighted(pretrained):
    network = Colors(3)
    load_pretrained(network, pretrained)
    return network


def letters():
    return lambda texts: torch.tensor([[text.count("a"), len(text)] for text in texts], dtype=torch.float32)


def broken():
    return "no network"


def flat():
    network = Colors(3)
    network.forward = lambda x: x.mean((1, 2, 3))
    return network
'''


def write_nets(folder: Path) -> Path:
    """Write the file with the networks."""
    path = folder / "nets.py"
    path.write_text(NETS)
    return path


def computed(folder: Path) -> int:
    """How many pictures have gone through the networks in a folder's file."""
    count = folder / "count.txt"
    return int(count.read_text()) if count.exists() else 0


def write_pictures(folder: Path, labeled: int = 4, pool: int = 20, seed: int = 0) -> Path:
    """Write red and blue pictures: some in a folder for each class, the others in `unlabeled`."""
    generator = np.random.default_rng(seed)
    for number in range(2 * labeled + pool):
        name = ("red", "blue")[number % 2]
        pixels = generator.integers(0, 60, (10, 12, 3), dtype=np.uint8)
        pixels[..., 0 if name == "red" else 2] += 180
        path = folder / (name if number < 2 * labeled else "unlabeled") / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder
