"""The losses of 20 steps that a change which should not alter the computation must not alter, kept per hardware.

python tests/golden.py          adds this machine's to tests/golden_losses.json
"""

import json
from pathlib import Path

import numpy as np
import torch

from surelabel.augment.settings import AugmentSettings
from surelabel.core.selection import Selection
from surelabel.data.training_set import make_problem
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.train import Trainer
from surelabel.methods.ups import UPSMethod
from surelabel.models.cnn13 import CNN13

FILE = Path(__file__).with_name("golden_losses.json")
STEPS = 20

SETTINGS = TrainingSettings(
    batch_size=16,
    negative_batch_size=8,
    epochs=1,
    min_steps=STEPS,
    learning_rate=0.05,
    weight_decay=5e-4,
    decay_all=False,
    warmup=0.2,
    label_smoothing=0.1,
    augment=AugmentSettings(flip=True, crop=4, hole=8, jitter=0.4, operations=2, mean=(0.5,) * 3, std=(0.25,) * 3),
    deterministic=True,
)


def hardware(device: torch.device) -> str:
    """Return what losses are kept for: the GPU's name; all CPUs share theirs, which differ by rounding alone."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def losses(device: torch.device) -> list[float]:
    """Return the loss of each step of one round on labels, positives and negatives."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(96, 3, 32, 32), dtype=np.uint8)
    positive, negative = np.zeros((64, 4), dtype=bool), np.zeros((64, 4), dtype=bool)
    positive[np.arange(32), np.arange(32) % 4] = True
    negative[32:, :2] = True
    problem = make_problem((images[:32], np.arange(32) % 4), images[32:], "single")
    seen: list[float] = []
    torch.manual_seed(0)
    # Without dropout, whose draws differ from device to device.
    network = CNN13((3, 32, 32), 4, width=8, dropout=0.0).to(device)
    trainer = Trainer(SETTINGS, device, compiled=device.type == "cuda")
    trainer.progress = lambda what, done, total: seen.append(trainer._step.value.item())
    rows = problem.training_set(Selection(positive, negative))
    # In TF32, which is a GPU's default, another order of sums changes the fourth digit within 20 steps.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        trainer.train(network, rows, UPSMethod("single", SETTINGS), seed=0)
    return seen


if __name__ == "__main__":
    here = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    kept[hardware(here)] = [round(value, 6) for value in losses(here)]
    FILE.write_text(json.dumps(kept, indent=1) + "\n")
