"""Complete recipes for CIFAR: the paper's, a fast one that differs from it, and our own, UPS with consistency."""

from typing import Literal

from surelabel.augment.settings import AugmentSettings
from surelabel.base.settings import JSONScalar
from surelabel.engine.settings import TrainingSettings
from surelabel.reproduce.entries import DataSet
from surelabel.settings import RunSettings, UPSConfig

Network = Literal["cnn13", "wrn-28-2", "shake-shake"]

NETWORKS: dict[str, tuple[str, dict[str, JSONScalar]]] = {
    "cnn13": ("surelabel.models.cnn13:cnn13", {"weight_norm": True}),
    "wrn-28-2": (
        "surelabel.models.wide_resnet:wide_resnet",
        {"activation": "mish", "norm_momentum": 0.001, "norm_bias": 0.1},
    ),
    "shake-shake": ("surelabel.models.shake_shake:shake_shake", {}),
}
"""The factory of each network, and the peculiarities of the published one."""


def paper_recipe(
    dataset: DataSet | None = None,
    labels: int = 1000,
    seed: int = 0,
    network: Network = "cnn13",
    num_validation: int = 0,
) -> RunSettings:
    """Return the complete settings of UPS as in the paper or, where it is silent, its published code.

    At most 20 rounds of 1024 epochs: 35 hours at the published code's speed. `fast_recipe` trains in minutes.

    Args:
        dataset: what is learned from; None: CIFAR-10.
        labels: labeled pictures in all.
        seed: draws the split, and everything random in the run.
        network: "cnn13", "wrn-28-2" or "shake-shake", with the published peculiarities.
        num_validation: additional labels, whose scores are recorded.

    Example:
        >>> settings = paper_recipe(CIFAR10, labels=4000)
        >>> settings.config.kappa_p, settings.learner.training.learning_rate, settings.learner.training.epochs
        (0.05, 0.03, 1024)
    """
    dataset = dataset or CIFAR10
    model, peculiar = NETWORKS[network]
    augment = AugmentSettings(operations=3, magnitude=4, flip=True, crop=4, jitter=0.4, hole=16)
    training = TrainingSettings(learning_rate=0.03, batch_size=128, epochs=1024, augment=augment, channels_last=True)
    config = UPSConfig(seed=seed, max_rounds=20)
    return dataset.ups(
        config, model, {"dropout": 0.3, **peculiar}, training, labels=labels, num_validation=num_validation
    )


def fast_recipe(
    dataset: DataSet | None = None,
    labels: int = 1000,
    seed: int = 0,
    network: Network = "cnn13",
    num_validation: int = 0,
) -> RunSettings:
    """Return the complete settings of UPS by a recipe that trains well in few epochs.

    docs/recipes.md says what each part gains. The network has no weight norm and standard BatchNorm.

    Args:
        dataset: as for `paper_recipe`, and so are the others.
        labels: labeled pictures in all.
        seed: draws the split, and everything random in the run.
        network: "cnn13", "wrn-28-2" or "shake-shake".
        num_validation: additional labels, whose scores are recorded.

    Example:
        >>> fast = fast_recipe()
        >>> fast.learner.training.batch_size, fast.config.max_rounds, fast.config.kappa_p
        (512, 6, 0.05)
    """
    dataset = dataset or CIFAR10
    augment = AugmentSettings(operations=2, magnitude=None, flip=True, crop=4, jitter=0.4, hole=16)
    training = TrainingSettings(
        learning_rate=0.8,
        warmup=0.2,
        schedule="linear",
        weight_decay=5e-4,
        decay_all=False,
        batch_size=512,
        negative_batch_size=128,
        epochs=1024,  # `steps` is used; this stays so that older runs are found
        steps=3000,
        round_growth=1.5,
        augment=augment,
        precision="bfloat16",
        channels_last=True,
    )
    # The last round is the longest. It must run even if the number selected hardly changes.
    config = UPSConfig(seed=seed, max_rounds=6, tolerance=None)
    return dataset.ups(
        config, NETWORKS[network][0], {"dropout": 0.15}, training, labels=labels, num_validation=num_validation
    )


def best_recipe(
    dataset: DataSet | None = None,
    labels: int = 1000,
    seed: int = 0,
    network: Network = "cnn13",
    num_validation: int = 0,
) -> RunSettings:
    """Return the complete settings of UPS with consistency: `teacher-match`, and a round of UPS after it.

    The network has no dropout, so passes differ by flip and crop. docs/methods.md has the trials behind the other
    choices.

    Args:
        dataset: as for `paper_recipe`, and so are the others.
        labels: labeled pictures in all.
        seed: draws the split, and everything random in the run.
        network: "cnn13", "wrn-28-2" or "shake-shake".
        num_validation: additional labels, whose scores are recorded.

    Example:
        >>> best = best_recipe()
        >>> best.learner.method, best.learner.uncertainty, best.config.max_rounds
        ('teacher-match', 'augmentation', 1)
    """
    dataset = dataset or CIFAR10
    training = TrainingSettings(
        learning_rate=0.4,
        warmup=0.05,
        schedule="linear",
        weight_decay=5e-4,
        decay_all=False,
        batch_size=224,
        labeled_batch_size=64,
        steps=35_000,
        ema_decay=0.999,
        ema_share=0.1,
        augment=AugmentSettings(operations=2, magnitude=None, flip=True, crop=4, jitter=0.4, hole=16),
        precision="bfloat16",
        channels_last=True,
    )
    config = UPSConfig(seed=seed, max_rounds=1, tolerance=None)
    ups = dataset.ups(
        config, NETWORKS[network][0], {"dropout": 0.0}, training, labels=labels, num_validation=num_validation
    )
    method = {"method": "teacher-match", "method_parameters": {"ramp": 0.0}}
    return ups.replace(learner=ups.network.replace(uncertainty="augmentation", **method))


_RECIPES = paper_recipe, fast_recipe, best_recipe
CIFAR10 = DataSet(
    "cifar10", "surelabel.data.sets:cifar10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), *_RECIPES
)
CIFAR100 = DataSet(
    "cifar100", "surelabel.data.sets:cifar100", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), *_RECIPES
)
