"""Two complete recipes for VOC2007, which is multi-label: the paper's, and a fast one that differs from it."""

from surelabel.augment.settings import AugmentSettings
from surelabel.data.sets import VOC2007_PICTURES
from surelabel.engine.settings import TrainingSettings
from surelabel.reproduce.entries import DataSet
from surelabel.settings import RunSettings, UPSConfig

MODEL = "surelabel.models.resnet:resnet50"
ALL_PICTURES = VOC2007_PICTURES["trainval"]
"""With this many labels, no pool is left: the fully supervised network."""


def paper_recipe(
    dataset: DataSet | None = None, labels: int = 500, seed: int = 0, *, num_validation: int = 0, side: int = 224
) -> RunSettings:
    """Return the complete settings of UPS for VOC2007 as in the paper; where it is silent, as for CIFAR.

    ResNet-50 from random weights with one dropout of 0.3 behind the global pool; gamma 0.5, tau_p 0.5, tau_n 0.05,
    kappa_p 0.05, kappa_n 0.005; ten passes, negatives at temperature 2; the first round is balanced.

    Args:
        dataset: what is learned from; None: VOC2007.
        labels: labeled pictures in all.
        seed: draws the split, and everything random in the run.
        num_validation: additional labels, whose scores are recorded.
        side: pictures are side x side; shifts and holes keep the proportion that they have on CIFAR.

    Example:
        >>> settings = paper_recipe(labels=1000)
        >>> settings.config.task, settings.config.tau_p, settings.learner.training.augment.crop
        ('multi', 0.5, 28)
    """
    dataset = dataset or VOC2007
    augment = AugmentSettings(operations=3, magnitude=4, flip=True, crop=side // 8, jitter=0.4, hole=side // 2)
    training = TrainingSettings(learning_rate=0.03, batch_size=128, epochs=1024, augment=augment, channels_last=True)
    config = UPSConfig(task="multi", tau_p=0.5, gamma=0.5, balance_rounds=1, seed=seed, max_rounds=20)
    return dataset.ups(
        config, MODEL, {"dropout": 0.3}, training, labels=labels, num_validation=num_validation, side=side
    )


def fast_recipe(
    dataset: DataSet | None = None,
    labels: int = 500,
    seed: int = 0,
    *,
    num_validation: int = 0,
    side: int = 224,
    steps: int = 3000,
) -> RunSettings:
    """Return the complete settings of UPS by a recipe that takes minutes; docs/several-labels-and-video.md says why.

    Args:
        dataset: as for `paper_recipe`, and so are the others but the last.
        labels: labeled pictures in all.
        seed: draws the split, and everything random in the run.
        num_validation: additional labels, whose scores are recorded.
        side: pictures are side x side.
        steps: of each round.

    Example:
        >>> fast = fast_recipe()
        >>> fast.learner.training.labeled_batch_size, fast.config.max_rounds, fast.config.tau_p
        (128, 4, 0.5)
    """
    dataset = dataset or VOC2007
    augment = AugmentSettings(operations=2, magnitude=None, flip=True, crop=side // 8, jitter=0.4, hole=side // 2 // 2)
    training = TrainingSettings(
        optimizer="adamw",
        learning_rate=1e-3,
        warmup=0.1,
        weight_decay=0.05,
        decay_all=False,
        batch_size=128,
        labeled_batch_size=128,  # so that many pseudo-labels do not crowd out the few labels
        epochs=1024,  # `steps` is used; this stays so that older runs are found
        steps=steps,
        augment=augment,
        precision="bfloat16",
        channels_last=True,
    )
    config = UPSConfig(task="multi", tau_p=0.5, gamma=0.5, balance_rounds=1, seed=seed, max_rounds=4)
    return dataset.ups(
        config, MODEL, {"dropout": 0.3}, training, labels=labels, num_validation=num_validation, side=side
    )


VOC2007 = DataSet(
    "voc2007", "surelabel.data.sets:voc2007", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), paper_recipe, fast_recipe
)
"""Normalized by ImageNet's means, as checkpoints of ResNet-50 expect it."""
