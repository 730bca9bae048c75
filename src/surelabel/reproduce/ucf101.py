"""Two complete recipes for UCF-101, clips of actions: the paper's, and a fast one that differs from it."""

from surelabel.augment.settings import AugmentSettings
from surelabel.base.settings import JSONScalar
from surelabel.data.video import ClipSettings
from surelabel.engine.settings import TrainingSettings
from surelabel.reproduce.entries import DataSet
from surelabel.settings import RunSettings, UPSConfig

WINDOW, SIDE = 16, 112
"""The number of input frames, and their height and width."""
CLIPS = AugmentSettings(side=SIDE, window=WINDOW, passages=ClipSettings().passages)
"""The paper's augmentation: a random crop and temporal jitter."""

MODEL = "surelabel.models.resnet3d:resnet3d18"
PARAMETERS: dict[str, JSONScalar] = {"dropout": 0.3, "stem": "paper", "shortcut": "padded"}
TORCHVISION = {"stem": "torchvision", "shortcut": "projection"}
"""The network's stem and shortcuts for pretrained weights: torchvision's fit only these."""


def paper_recipe(
    dataset: DataSet | None = None,
    labels: float = 0.2,
    seed: int = 0,
    *,
    num_validation: float = 0.0,
    test_windows: int = 1,
) -> RunSettings:
    """Return the complete settings of UPS for UCF-101 as in the paper; where it is silent, as for CIFAR.

    3-D ResNet-18 of Hara et al. from random weights with one dropout of 0.3 behind the global pool, 16 frames of
    112 x 112; random crop and temporal jitter, and no other augmentation; tau_p 0.7, no balance.

    Args:
        dataset: what is learned from; None: UCF-101, split 1.
        labels: the share of the training clips that is labeled.
        seed: draws the split, and everything random in the run.
        num_validation: the share of the training clips whose scores are recorded; their labels are additional.
        test_windows: how many windows of a clip a test averages; 1: the middle one.

    Example:
        >>> settings = paper_recipe(labels=0.5)
        >>> settings.config.tau_p, settings.config.balance, settings.learner.training.augment.window
        (0.7, None, 16)
    """
    dataset = dataset or UCF101
    augment = CLIPS.replace(test_windows=test_windows)
    training = TrainingSettings(learning_rate=0.03, batch_size=128, epochs=1024, augment=augment, channels_last=True)
    config = UPSConfig(balance=None, seed=seed, max_rounds=20)
    return dataset.ups(config, MODEL, PARAMETERS, training, share=labels, validation_share=num_validation)


def fast_recipe(
    dataset: DataSet | None = None,
    labels: float = 0.2,
    seed: int = 0,
    *,
    num_validation: float = 0.0,
    test_windows: int = 1,
    steps: int = 6000,
    batch_size: int = 128,
    learning_rate: float = 0.1,
) -> RunSettings:
    """Return the complete settings of UPS by a recipe that takes minutes; docs/several-labels-and-video.md says why.

    Args:
        dataset: as for `paper_recipe`, and so are the others but the last three.
        labels: the share of the training clips that is labeled.
        seed: draws the split, and everything random in the run.
        num_validation: the share of the training clips whose scores are recorded.
        test_windows: how many windows of a clip a test averages.
        steps: of each round.
        batch_size: clips with a label; a quarter as many that have negative labels only come on top.
        learning_rate: the highest.

    Example:
        >>> fast = fast_recipe()
        >>> fast.learner.training.negative_batch_size, fast.config.max_rounds, fast.config.kappa_p
        (32, 4, 0.05)
    """
    dataset = dataset or UCF101
    augment = CLIPS.replace(test_windows=test_windows, flip=True, jitter=0.4)
    training = TrainingSettings(
        learning_rate=learning_rate,
        warmup=0.1,
        weight_decay=5e-4,
        decay_all=False,
        batch_size=batch_size,
        negative_batch_size=max(1, batch_size // 4),
        epochs=1024,  # `steps` is used; this stays so that older runs are found
        steps=steps,
        augment=augment,
        precision="bfloat16",
        channels_last=True,
    )
    config = UPSConfig(balance=None, seed=seed, max_rounds=4)
    return dataset.ups(config, MODEL, PARAMETERS, training, share=labels, validation_share=num_validation)


UCF101 = DataSet(
    "ucf101",
    "surelabel.data.sets:ucf101",
    (0.43216, 0.394666, 0.37645),
    (0.22803, 0.22145, 0.216989),
    paper_recipe,
    fast_recipe,
)
"""Normalized by Kinetics' means, as checkpoints of 3-D ResNet-18 expect it."""
