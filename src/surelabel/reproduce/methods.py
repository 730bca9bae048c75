"""Methods side by side at equal minutes: CIFAR-10, CNN-13, the same splits and the same augmentation for all.

    surelabel reproduce method-trials --budget 1.5
    surelabel reproduce methods --labels 1000 --budget 4

A method alone trains one network for the whole time. Pseudo-labeling and UPS train in rounds, by the fast recipe, and
so does our own row, `UPS + consistency`, by the best one. Each uses the views that it defines: a weak view is flip
and crop, a strong one is the recipe's whole augmentation, which rows without a method use too.

`method-trials` compares two settings of each (`TRIED`) on 10,000 held-out training pictures; the test pictures are not
loaded. `methods` has the first setting of each, scored once on the test pictures.

Published figures are of CNN-13 and the same number of labels, all from the paper of UPS: its table 5 for the rows
without a method (its own runs), table 1 for the others (which cites them).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from surelabel.base.settings import JSONScalar
from surelabel.data.run_data import FunctionData
from surelabel.reproduce import variants
from surelabel.reproduce.cifar import CIFAR10
from surelabel.reproduce.entries import DataSet, Entry, Experiment, Labels, rows, table
from surelabel.reproduce.variants import Variant
from surelabel.settings import RunSettings

HELD_OUT = 10_000
"""Held-out training pictures on which settings are chosen."""


@dataclass(frozen=True)
class Alone:
    """A method alone, without rounds, in a few minutes on a GPU: makes its row from UPS's settings.

    Network, augmentation, precision, schedule and weight decay are the recipe's.

    Attributes:
        method: its name.
        labeled: labeled pictures in a batch.
        unlabeled: pictures of the pool in a batch.
        rate: the highest learning rate; it rises for a twentieth of the steps, and then falls to 0.
        average: the decay of the averaged weights, which are tested, and are the teacher if the method has one.
        dropout: of the network.
        parameters: the method's own.

    Example:
        >>> from surelabel.reproduce.cifar import fast_recipe
        >>> settings = Alone("fixmatch", parameters={"threshold": 0.9})(fast_recipe())
        >>> settings.config.max_rounds, settings.learner.method, settings.learner.training.ema_decay
        (0, 'fixmatch', 0.999)
    """

    method: str
    labeled: int = 64
    unlabeled: int = 448
    rate: float = 0.4
    average: float = 0.999
    dropout: float = 0.0
    parameters: Mapping[str, JSONScalar] = field(default_factory=dict, hash=False)

    def __call__(self, ups: RunSettings) -> RunSettings:
        """Return the complete settings of the row."""
        row = variants.one_network(ups).with_training(
            batch_size=self.unlabeled,
            labeled_batch_size=self.labeled,
            negative_batch_size=None,
            round_growth=1.0,
            learning_rate=self.rate,
            warmup=0.05,
            ema_decay=self.average,
        )
        model = {**row.network.model_parameters, "dropout": self.dropout}
        method = {"method": self.method, "method_parameters": dict(self.parameters)}
        return row.replace(learner=row.network.replace(model_parameters=model, **method))


def at_rate(rate: float, variant: Variant) -> Variant:
    """Return the variant with another learning rate than the recipe's."""
    return lambda ups: variant(ups.with_training(learning_rate=rate))


OURS = "UPS + consistency"
"""Our own row, made by the best recipe; the others are made by the fast one."""

TRIED: dict[str, dict[str, Variant]] = {
    "Supervised": {"rate 0.8": variants.one_network, "rate 0.2": at_rate(0.2, variants.one_network)},
    "Pseudo-labeling": {"rate 0.8": variants.pseudo_labeling, "rate 0.2": at_rate(0.2, variants.pseudo_labeling)},
    "UPS": {"rate 0.8": variants.full_ups, "rate 0.2": at_rate(0.2, variants.full_ups)},
    # Both views of each picture are trained.
    "Pi-model": {
        "weight 10": Alone("pi-model", unlabeled=192, dropout=0.15, parameters={"weight": 10.0}),
        "weight 50": Alone("pi-model", unlabeled=192, dropout=0.15, parameters={"weight": 50.0}),
    },
    "Mean Teacher": {
        "weight 50": Alone("mean-teacher", dropout=0.15, parameters={"weight": 50.0}),
        "weight 100, average 0.99": Alone("mean-teacher", dropout=0.15, average=0.99, parameters={"weight": 100.0}),
    },
    "ICT": {
        "rate 0.4": Alone("ict", labeled=128, unlabeled=384),
        "rate 0.1": Alone("ict", labeled=128, unlabeled=384, rate=0.1),
    },
    # Both views of each picture of the pool are mixed. Published runs are long enough for a weight of 75; in short ones
    # it can outweigh the labels, and all answers become alike.
    "MixMatch": {
        "weight 75": Alone("mixmatch", labeled=128, unlabeled=192, rate=0.2, parameters={"weight": 75.0}),
        "weight 15": Alone("mixmatch", labeled=128, unlabeled=192, rate=0.2, parameters={"weight": 15.0}),
    },
    "FixMatch": {
        "threshold 0.95": Alone("fixmatch", parameters={"threshold": 0.95}),
        "threshold 0.8": Alone("fixmatch", parameters={"threshold": 0.8}),
    },
    "FlexMatch": {
        "no ramp": Alone("flexmatch", parameters={"ramp": 0.0}),
        "ramp 0.1": Alone("flexmatch", parameters={"ramp": 0.1}),
    },
    "FreeMatch": {
        "no ramp": Alone("freematch", parameters={"ramp": 0.0}),
        "ramp 0.1, momentum 0.99": Alone("freematch", parameters={"ramp": 0.1, "momentum": 0.99}),
    },
    "SoftMatch": {
        "no ramp": Alone("softmatch", parameters={"ramp": 0.0}),
        "ramp 0.1, momentum 0.99": Alone("softmatch", parameters={"ramp": 0.1, "momentum": 0.99}),
    },
    OURS: {"one round": variants.full_ups, "no round": variants.one_network},
}
"""The two settings of each row, named by their difference; the first one is used in `methods`."""


def first(row: str) -> Variant:
    """Return the setting of a row that `methods` has."""
    return next(iter(TRIED[row].values()))


def ours(dataset: DataSet, *labels: Labels, row: str = OURS, network: str | None = None) -> tuple[Entry, ...]:
    """Return our own row for a data set, with each number of labels."""
    return tuple(Entry(row, dataset, number, None, first(OURS), network, recipe="best") for number in labels)


def without_test(variant: Variant) -> Variant:
    """Return the variant whose runs do not load the test pictures."""

    def change(ups: RunSettings) -> RunSettings:
        row = variant(ups)
        assert isinstance(row.data, FunctionData)
        return row.replace(data=row.data.replace(arguments={**row.data.arguments, "test": False}))

    return change


METHODS = Experiment(
    "methods",
    "Methods at equal minutes, CIFAR-10, CNN-13",
    table(
        ((CIFAR10, 1000), (CIFAR10, 4000)),
        {
            "Supervised": (first("Supervised"), 27.66, 16.65),
            "Pseudo-labeling": (first("Pseudo-labeling"), 22.60, 12.94),
            "UPS": (first("UPS"), (8.18, 0.15), (6.39, 0.02)),
            "Pi-model": (first("Pi-model"), None, None),
            "Mean Teacher": (first("Mean Teacher"), (19.04, 0.51), (11.41, 0.25)),
            "ICT": (first("ICT"), (15.48, 0.78), (7.29, 0.02)),
            "MixMatch": (first("MixMatch"), None, 6.84),
            **{row: (first(row), None, None) for row in ("FixMatch", "FlexMatch", "FreeMatch", "SoftMatch")},
        },
    )
    + ours(CIFAR10, 1000, 4000),
    equal_minutes=True,
)

METHOD_TRIALS = Experiment(
    "method-trials",
    "Two settings of each method at equal minutes, CIFAR-10, CNN-13",
    tuple(
        entry
        for row, tried in TRIED.items()
        for entry in rows(
            CIFAR10,
            1000,
            *((f"{row}, {what}", without_test(variant)) for what, variant in tried.items()),
            num_validation=HELD_OUT,
            recipe="best" if row == OURS else None,
        )
    ),
    "validation error",
    equal_minutes=True,
)
