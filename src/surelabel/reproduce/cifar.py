"""The paper's recipe for CIFAR, and a fast one beside it that departs from the paper where it says so."""

from typing import Literal

from surelabel.augment.settings import AugmentSettings
from surelabel.data.run_data import FunctionData
from surelabel.engine.settings import TrainingSettings
from surelabel.learners.settings import JSONScalar, TorchLearnerSettings
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
"""Where each network is made, and what is peculiar to the published one."""


def paper_recipe(
    dataset: DataSet | None = None,
    labels: int = 1000,
    seed: int = 0,
    network: Network = "cnn13",
    num_validation: int = 0,
) -> RunSettings:
    """Return the complete settings of UPS as the paper and, where it is silent, its published code have them.

    At most 20 rounds of 1024 epochs: 35 hours at the published code's speed. `fast_recipe` departs from it to train in
    minutes.

    Args:
        dataset: what is learned from; None: CIFAR-10.
        labels: labeled pictures in all.
        seed: draws the split, and all that is random in the run.
        network: "cnn13", "wrn-28-2" or "shake-shake", with the published peculiarities.
        num_validation: labels on top, whose scores are recorded.

    Example:
        >>> settings = paper_recipe(CIFAR10, labels=4000)
        >>> settings.config.kappa_p, settings.learner.training.learning_rate, settings.learner.training.epochs
        (0.05, 0.03, 1024)
    """
    dataset = dataset or CIFAR10
    model, parameters = NETWORKS[network]
    augment = AugmentSettings(
        operations=3, magnitude=4, flip=True, crop=4, jitter=0.4, hole=16, mean=dataset.mean, std=dataset.std
    )
    training = TrainingSettings(learning_rate=0.03, batch_size=128, epochs=1024, augment=augment, channels_last=True)
    return RunSettings(
        name="UPS",
        config=UPSConfig(seed=seed, max_rounds=20),
        learner=TorchLearnerSettings(model=model, model_parameters={"dropout": 0.3, **parameters}, training=training),
        data=FunctionData(
            function=dataset.function,
            arguments={"seed": seed, "labels": labels, "num_validation": num_validation},
        ),
    )


def fast_recipe(settings: RunSettings) -> RunSettings:
    """Return a row of the paper by a recipe that trains well in few epochs; docs/recipes.md says what each part gives.

    Batches of 512 in bfloat16, a peak rate of 0.8 with warm-up, weight decay on matrices only, two RandAugment
    operations with random magnitudes, dropout 0.15, no weight norm, standard BatchNorm; 6 rounds of so many steps, each
    half as long again as the one before it.

    Example:
        >>> fast = fast_recipe(paper_recipe())
        >>> fast.learner.training.batch_size, fast.config.max_rounds, fast.config.kappa_p
        (512, 6, 0.05)
    """
    augment = settings.network.training.augment
    assert augment is not None
    fast = settings.with_training(
        learning_rate=0.8,
        weight_decay=5e-4,
        decay_all=False,
        warmup=0.2,
        schedule="linear",
        batch_size=512,
        negative_batch_size=128,
        steps=3000,
        round_growth=1.5,
        augment=augment.replace(operations=2, magnitude=None),
        precision="bfloat16",
    )
    plain = fast.network.replace(model_parameters={"dropout": 0.15})
    # The last round is the longest, so that it must not be left out where the number selected hardly changes.
    return fast.replace(config=fast.config.replace(max_rounds=6, tolerance=None), learner=plain)


CIFAR10 = DataSet(
    "cifar10",
    "surelabel.data.sets:cifar10",
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
    paper_recipe,
    fast_recipe,
)
CIFAR100 = DataSet(
    "cifar100",
    "surelabel.data.sets:cifar100",
    (0.5071, 0.4865, 0.4409),
    (0.2673, 0.2564, 0.2762),
    paper_recipe,
    fast_recipe,
)
