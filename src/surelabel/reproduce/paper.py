"""The paper's experiments: every row of its tables and every curve of its figures, one recipe each.

The rows have the paper's own numbers, from its tables as numbered there. Rows of other methods have no recipe and are
not run. Our own row, `UPS + consistency`, is in the tables of CIFAR, without a figure of the paper. Errors, accuracies
and mean average precisions are in percent.
"""

import dataclasses
import functools
from collections.abc import Callable

from surelabel.base.references import resolve
from surelabel.errors import InvalidInputError
from surelabel.reproduce import variants
from surelabel.reproduce.cifar import CIFAR10, CIFAR100
from surelabel.reproduce.entries import Entry, Experiment, rows, table
from surelabel.reproduce.methods import METHOD_TRIALS, METHODS, OURS, ours
from surelabel.reproduce.ucf101 import UCF101
from surelabel.reproduce.voc2007 import ALL_PICTURES, VOC2007
from surelabel.settings import RunSettings


def experiment(name: str) -> Experiment:
    """Return the experiment of this name, or your own by its reference, "file.py:NAME".

    Example:
        >>> [entry.row for entry in experiment("table5").entries if entry.labels == 1000][-2:]
        ['UPS, no NL', 'UPS']
    """
    if ":" in name:
        found = resolve(name)
        if not isinstance(found, Experiment):
            kind = type(found).__name__
            raise InvalidInputError(f"{name!r} must name a surelabel.reproduce.entries.Experiment; got {kind}.")
        return found
    if name not in EXPERIMENTS:
        remedy = (
            f"name it with its file, {name}:TABLE" if name.endswith(".py") else f"there are {', '.join(EXPERIMENTS)}"
        )
        raise InvalidInputError(f"There is no experiment {name!r}; {remedy}.")
    return EXPERIMENTS[name]


SUPERVISED, PLAIN = ("Supervised", variants.supervised), ("UPS, no selection", variants.pseudo_labeling)
CONFIDENCE, UPS = ("UPS, no UA", variants.confidence_based), ("UPS", variants.full_ups)
ALL_LABELS = "Supervised, all labels"
"""With all labels, no pool is left. The numbers are from the paper's appendix."""

FIRST = (SUPERVISED, ("Supervised, one pass", variants.one_network))
"""The first selection is made by round 0's network: from the mean of its passes, and from one deterministic pass."""

_FEW_AND_MANY = ((CIFAR10, 1000), (CIFAR10, 4000))

_TABLE1 = (
    *table(
        (*_FEW_AND_MANY, (CIFAR100, 4000), (CIFAR100, 10_000)),
        {
            "DeepLP": (None, (22.02, 0.88), (12.69, 0.29), (46.20, 0.76), (38.43, 1.88)),
            "TSSDL": (None, (21.13, 1.17), (10.90, 0.23), None, None),
            "MeanTeacher": (None, (19.04, 0.51), (11.41, 0.25), (45.36, 0.49), (36.08, 0.51)),
            "MeanTeacher+DeepLP": (None, (16.93, 0.70), (10.61, 0.28), (43.73, 0.20), (35.92, 0.47)),
            "ICT": (None, (15.48, 0.78), (7.29, 0.02), None, None),
            "DualStudent": (None, (14.17, 0.38), (8.89, 0.09), None, (32.77, 0.24)),
            "R2-D2": (None, None, None, None, (32.87, 0.51)),
            "MixMatch": (None, None, 6.84, None, None),
            "UPS": (variants.full_ups, (8.18, 0.15), (6.39, 0.02), (40.77, 0.10), (32.00, 0.49)),
        },
    ),
    *ours(CIFAR10, 1000, 4000),
    *ours(CIFAR100, 4000, 10_000),
)
_TABLE2 = (
    *table(
        _FEW_AND_MANY,
        {
            "MixMatch/WRN-28-2": (None, 7.75, 6.24),
            "MixMatch/Shake-Shake": (None, None, 4.95),
            "ReMixMatch/WRN-28-2": (None, 5.73, 5.14),
            "TC-SSL/WRN-28-2": (None, 6.15, 5.07),
            "R2-D2/Shake-Shake": (None, None, 5.72),
        },
    ),
    *table(_FEW_AND_MANY, {"UPS/WRN-28-2": (variants.full_ups, 7.95, 6.42)}, "wrn-28-2"),
    *table([(CIFAR10, 4000)], {"UPS/Shake-Shake": (variants.full_ups, 4.86)}, "shake-shake"),
    *ours(CIFAR10, 1000, 4000, row=f"{OURS}/WRN-28-2", network="wrn-28-2"),
)
_TABLE3 = (
    *table(
        ((UCF101, 0.2), (UCF101, 0.5)),
        {
            "Supervised": (variants.supervised, 33.5, 45.6),
            "MeanTeacher": (None, 36.3, 45.8),
            "Pseudo-labeling": (variants.pseudo_labeling, 37.0, 47.5),
            "S4L": (None, 37.7, 47.9),
            "UPS": (variants.full_ups, 39.4, 50.2),
        },
    ),
    Entry(ALL_LABELS, UCF101, 1.0, (50.4, None), variants.supervised),
)
_TABLE4 = (
    *table(
        ((VOC2007, 500), (VOC2007, 1000)),
        {
            "Supervised": (variants.supervised, (18.36, 0.65), (28.84, 1.68)),
            "Pseudo-labeling": (variants.pseudo_labeling, (27.44, 0.55), (34.84, 1.88)),
            "MixMatch": (None, (29.57, 0.78), (37.02, 0.97)),
            "MeanTeacher": (None, (32.55, 1.48), (39.62, 1.66)),
            "UPS": (variants.full_ups, (34.22, 0.79), (40.34, 0.08)),
        },
    ),
    Entry(ALL_LABELS, VOC2007, ALL_PICTURES, (52.62, None), variants.supervised),
)
_TABLE5 = table(
    _FEW_AND_MANY,
    {
        "Supervised": (variants.supervised, 27.66, 16.65),
        "UPS, no selection": (variants.pseudo_labeling, 22.60, 12.94),
        "UPS, no UA": (variants.confidence_based, 16.50, 10.02),
        "UPS, no UA (Cal.)": (variants.confidence_based_calibrated, 13.68, 8.09),
        "UPS, no NL": (variants.ups_without_negatives, 9.46, 6.64),
        "UPS": (variants.full_ups, 8.14, 6.36),
    },
)
_TABLE6 = table(
    _FEW_AND_MANY,
    {
        row: (functools.partial(variants.with_estimator, uncertainty=estimator), *paper)
        for row, estimator, *paper in (
            ("MC-Dropout", "mc-dropout", 8.14, 6.36),
            ("MC-SpatialDropout", "mc-spatial-dropout", 8.28, 6.60),
            ("MC-DropBlock", "mc-dropblock", 9.76, 7.50),
            ("DataAug", "augmentation", 8.28, 6.72),
            ("Deep ensemble (not in the paper)", "deep-ensemble", None, None),
        )
    },
)
_MIXUP = table(
    [(CIFAR10, 1000)],
    {
        "UPS, no NL": (variants.ups_without_negatives, 9.46),
        "UPS": (variants.full_ups, 8.14),
        "UPS+Mixup, no NL": (variants.with_mixup, 7.30),
    },
)
_NO_AUGMENTATION = table(
    _FEW_AND_MANY,
    {
        "Pi-model": (None, 32.18, 17.08),
        "MeanTeacher": (None, 30.62, 17.74),
        "UPS": (variants.without_augmentation, 28.14, 14.98),
    },
)
_BALANCE = table(
    _FEW_AND_MANY,
    {
        "with class balance": (variants.full_ups, 91.86, 93.64),
        "without class balance": (variants.without_balance, 88.77, 93.14),
    },
)
_BALANCE_VOC2007 = table(
    ((VOC2007, 500), (VOC2007, 1000)),
    {
        "with class balance": (variants.full_ups, 34.72, 40.33),
        "without class balance": (variants.without_balance, 31.88, 40.06),
    },
)
# Round 0's network on every data set, with the fewest labels of its table.
_FIGURE1A = (
    _TABLE5[0],
    Entry("Supervised", CIFAR100, 4000, None, variants.supervised),
    dataclasses.replace(_TABLE3[0], metric="accuracy"),
    dataclasses.replace(_TABLE4[0], metric="mAP"),
)


def _sweep(name: str, *values: float) -> tuple[Entry, ...]:
    """Return a row for each value of a threshold, or of the temperature."""
    vary: Callable[..., RunSettings] = functools.partial(variants.with_threshold, name=name)
    if name == "temperature":
        vary = variants.with_temperature
    return rows(CIFAR10, 1000, *((f"{name} {value:g}", functools.partial(vary, value=value)) for value in values))


_FIGURE1 = rows(CIFAR10, 1000, PLAIN, CONFIDENCE, UPS)
_FIGURE3 = rows(CIFAR10, 1000, SUPERVISED, num_validation=1000)
_FIRST_CIFAR10 = rows(CIFAR10, 1000, *FIRST) + rows(CIFAR10, 4000, *FIRST)
_FIRST_CIFAR100 = rows(CIFAR100, 4000, *FIRST)
_FEW_LABELS = (
    *table(((CIFAR10, 250), (CIFAR10, 500)), {"UPS": (variants.full_ups, (15.90, 0.61), (10.64, 0.18))}),
    *ours(CIFAR10, 250, 500),
)

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one
    for one in (
        Experiment("table1", "Error rate on CIFAR-10 and CIFAR-100, CNN-13", _TABLE1),
        Experiment("table2", "Error rate on CIFAR-10 with other networks", _TABLE2),
        Experiment("table3", "Accuracy on UCF-101, 3-D ResNet-18", _TABLE3, "accuracy"),
        Experiment("table4", "Mean average precision on VOC2007, ResNet-50", _TABLE4, "mAP"),
        Experiment("table5", "Ablation on CIFAR-10", _TABLE5),
        Experiment("table6", "Uncertainty estimators on CIFAR-10", _TABLE6),
        Experiment("few-labels", "Very few labels on CIFAR-10 (appendix)", _FEW_LABELS),
        Experiment("mixup", "Mixup, CIFAR-10 (appendix)", _MIXUP),
        Experiment("no-augmentation", "No augmentation, CIFAR-10 (appendix)", _NO_AUGMENTATION),
        Experiment("class-balance", "Class balance, CIFAR-10 (appendix)", _BALANCE, "accuracy"),
        Experiment("class-balance-voc2007", "Class balance, VOC2007 (appendix)", _BALANCE_VOC2007, "mAP"),
        Experiment("temperature", "Temperature of the negatives, CIFAR-10", _sweep("temperature", 1.0, 2.0)),
        Experiment("figure1", "Calibration, accuracy and number of selected labels", _FIGURE1),
        Experiment("figure1a", "Calibration of the first network on every data set", _FIGURE1A),
        Experiment("figure2", "Robustness to kappa_p", _sweep("kappa_p", 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)),
        Experiment("tau", "Robustness to tau_p", _sweep("tau_p", 0.55, 0.6, 0.7, 0.8, 0.9, 0.95)),
        Experiment("figure3", "Right and wrong labels over confidence and uncertainty", _FIGURE3),
        Experiment("figure4", "Confident wrong labels that UPS leaves out", rows(CIFAR10, 1000, SUPERVISED)),
        Experiment("first-selection", "The first selection, CIFAR-10", _FIRST_CIFAR10),
        Experiment("first-selection-cifar100", "The first selection, CIFAR-100 (appendix)", _FIRST_CIFAR100),
        METHODS,
        METHOD_TRIALS,
    )
}
"""All of them, by name."""
