"""The paper's recipe for VOC2007, several labels a picture, and a fast one that departs from it where it says so."""

from surelabel.augment.settings import AugmentSettings
from surelabel.data.run_data import FunctionData
from surelabel.data.sets import VOC2007_PICTURES
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.reproduce.entries import DataSet
from surelabel.settings import RunSettings, UPSConfig

ALL_PICTURES = VOC2007_PICTURES["trainval"]
"""With so many labels nothing is left to be labeled: the fully supervised network."""


def paper_recipe(
    dataset: DataSet | None = None, labels: int = 500, seed: int = 0, *, num_validation: int = 0, side: int = 224
) -> RunSettings:
    """Return the complete settings of UPS as the paper has them for VOC2007; where it is silent, as for CIFAR.

    ResNet-50 from random weights with one dropout of 0.3 behind the global pool; gamma 0.5, tau_p 0.5, tau_n 0.05,
    kappa_p 0.05, kappa_n 0.005; ten passes, negatives at temperature 2; the first round is balanced.

    Args:
        dataset: what is learned from; None: VOC2007.
        labels: labeled pictures in all.
        seed: draws the split, and all that is random in the run.
        num_validation: labels on top, whose scores are recorded.
        side: pictures are side x side; shifts and holes keep the proportion that they have on CIFAR.

    Example:
        >>> settings = paper_recipe(labels=1000)
        >>> settings.config.task, settings.config.tau_p, settings.learner.training.augment.crop
        ('multi', 0.5, 28)
    """
    dataset = dataset or VOC2007
    augment = AugmentSettings(
        operations=3,
        magnitude=4,
        flip=True,
        crop=side // 8,
        jitter=0.4,
        hole=side // 2,
        mean=dataset.mean,
        std=dataset.std,
    )
    training = TrainingSettings(learning_rate=0.03, batch_size=128, epochs=1024, augment=augment, channels_last=True)
    return RunSettings(
        name="UPS",
        config=UPSConfig(task="multi", tau_p=0.5, gamma=0.5, balance_rounds=1, seed=seed, max_rounds=20),
        learner=TorchLearnerSettings(
            model="surelabel.models.resnet:resnet50", model_parameters={"dropout": 0.3}, training=training
        ),
        data=FunctionData(
            function=dataset.function,
            arguments={"seed": seed, "labels": labels, "num_validation": num_validation, "side": side},
        ),
    )


def fast_recipe(settings: RunSettings, *, steps: int = 3000) -> RunSettings:
    """Return a row by a recipe that takes minutes; docs/several-labels-and-video.md says why.

    AdamW with warm-up in bfloat16; batches of 128 pseudo-labeled and 128 labeled pictures, so that the many do not
    crowd out the few; two RandAugment operations with random magnitudes and smaller holes; 4 rounds.

    Args:
        settings: of the paper's recipe.
        steps: of each round.

    Example:
        >>> fast = fast_recipe(paper_recipe())
        >>> fast.learner.training.labeled_batch_size, fast.config.max_rounds, fast.config.tau_p
        (128, 4, 0.5)
    """
    augment = settings.network.training.augment
    assert augment is not None
    fast = settings.with_training(
        optimizer="adamw",
        learning_rate=1e-3,
        weight_decay=0.05,
        decay_all=False,
        warmup=0.1,
        batch_size=128,
        labeled_batch_size=128,
        steps=steps,
        augment=augment.replace(operations=2, magnitude=None, hole=augment.hole // 2),
        precision="bfloat16",
    )
    return fast.replace(config=fast.config.replace(max_rounds=4))


VOC2007 = DataSet(
    "voc2007",
    "surelabel.data.sets:voc2007",
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
    paper_recipe,
    fast_recipe,
)
"""Normalized by ImageNet's means, as checkpoints of ResNet-50 expect it."""
