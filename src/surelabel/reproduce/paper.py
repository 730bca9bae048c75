"""The paper's experiments: every row of its tables and every curve of its figures, one recipe each.

The figures that the paper reports stand beside the rows, from its tables as numbered there; rows of other methods have
no recipe and are not run. Errors, accuracies and mean average precisions are in percent.
"""

import dataclasses
import functools

from surelabel.base.references import resolve
from surelabel.errors import InvalidInputError
from surelabel.reproduce import variants
from surelabel.reproduce.cifar import CIFAR10, CIFAR100, Network
from surelabel.reproduce.entries import DataSet, Entry, Experiment, Paper, rows
from surelabel.reproduce.ucf101 import UCF101
from surelabel.reproduce.variants import Variant
from surelabel.reproduce.voc2007 import ALL_PICTURES, VOC2007
from surelabel.settings import RunSettings


def experiment(name: str) -> Experiment:
    """Return the experiment of this name, or one of your own by its reference, "file.py:NAME".

    Example:
        >>> [entry.row for entry in experiment("table5").entries if entry.labels == 1000][-2:]
        ['UPS, no NL', 'UPS']
    """
    if ":" in name:
        found = resolve(name)
        if not isinstance(found, Experiment):
            raise InvalidInputError(
                f"The reference {name!r} must name an Experiment (surelabel.reproduce.entries). Got "
                f"{type(found).__name__} instead."
            )
        return found
    if name.endswith(".py"):
        raise InvalidInputError(f"Name the experiment in the file, too: {name}:TABLE. Got {name!r}.")
    if name not in EXPERIMENTS:
        raise InvalidInputError(f"There is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def _columns(row: str, paper: dict[int, Paper], variant: Variant | None, network: Network | None = None) -> list[Entry]:
    return [Entry(row, CIFAR10, labels, value, variant, network) for labels, value in paper.items()]


def _table1() -> list[Entry]:
    columns: list[tuple[DataSet, int]] = [
        (CIFAR10, 1000),
        (CIFAR10, 4000),
        (CIFAR100, 4000),
        (CIFAR100, 10_000),
    ]
    rows: dict[str, list[Paper]] = {
        "DeepLP": [(22.02, 0.88), (12.69, 0.29), (46.20, 0.76), (38.43, 1.88)],
        "TSSDL": [(21.13, 1.17), (10.90, 0.23), None, None],
        "MeanTeacher": [(19.04, 0.51), (11.41, 0.25), (45.36, 0.49), (36.08, 0.51)],
        "MeanTeacher+DeepLP": [(16.93, 0.70), (10.61, 0.28), (43.73, 0.20), (35.92, 0.47)],
        "ICT": [(15.48, 0.78), (7.29, 0.02), None, None],
        "DualStudent": [(14.17, 0.38), (8.89, 0.09), None, (32.77, 0.24)],
        "R2-D2": [None, None, None, (32.87, 0.51)],
        "MixMatch": [None, (6.84, None), None, None],
        "UPS": [(8.18, 0.15), (6.39, 0.02), (40.77, 0.10), (32.00, 0.49)],
    }
    return [
        Entry(row, *column, paper, variants.full_ups if row == "UPS" else None)
        for row, values in rows.items()
        for column, paper in zip(columns, values, strict=True)
        if paper is not None
    ]


def _table2() -> list[Entry]:
    others: dict[str, dict[int, Paper]] = {
        "MixMatch/WRN-28-2": {1000: (7.75, None), 4000: (6.24, None)},
        "MixMatch/Shake-Shake": {4000: (4.95, None)},
        "ReMixMatch/WRN-28-2": {1000: (5.73, None), 4000: (5.14, None)},
        "TC-SSL/WRN-28-2": {1000: (6.15, None), 4000: (5.07, None)},
        "R2-D2/Shake-Shake": {4000: (5.72, None)},
    }
    entries = [entry for row, paper in others.items() for entry in _columns(row, paper, None)]
    wide: dict[int, Paper] = {1000: (7.95, None), 4000: (6.42, None)}
    return [
        *entries,
        *_columns("UPS/WRN-28-2", wide, variants.full_ups, network="wrn-28-2"),
        *_columns("UPS/Shake-Shake", {4000: (4.86, None)}, variants.full_ups, network="shake-shake"),
    ]


def _table3() -> list[Entry]:
    rows: dict[str, tuple[Variant | None, float, float]] = {
        "Supervised": (variants.supervised, 33.5, 45.6),
        "MeanTeacher": (None, 36.3, 45.8),
        "Pseudo-labeling": (variants.pseudo_labeling, 37.0, 47.5),
        "S4L": (None, 37.7, 47.9),
        "UPS": (variants.full_ups, 39.4, 50.2),
    }
    entries = [
        Entry(row, UCF101, share, (value, None), variant)
        for row, (variant, *values) in rows.items()
        for share, value in zip((0.2, 0.5), values, strict=True)
    ]
    return [*entries, Entry(ALL_LABELS, UCF101, 1.0, (50.4, None), variants.supervised)]


def _table4() -> list[Entry]:
    rows: dict[str, tuple[Variant | None, Paper, Paper]] = {
        "Supervised": (variants.supervised, (18.36, 0.65), (28.84, 1.68)),
        "Pseudo-labeling": (variants.pseudo_labeling, (27.44, 0.55), (34.84, 1.88)),
        "MixMatch": (None, (29.57, 0.78), (37.02, 0.97)),
        "MeanTeacher": (None, (32.55, 1.48), (39.62, 1.66)),
        "UPS": (variants.full_ups, (34.22, 0.79), (40.34, 0.08)),
    }
    entries = [
        Entry(row, VOC2007, labels, value, variant)
        for row, (variant, *values) in rows.items()
        for labels, value in zip((500, 1000), values, strict=True)
    ]
    return [*entries, Entry(ALL_LABELS, VOC2007, ALL_PICTURES, (52.62, None), variants.supervised)]


def _table5() -> list[Entry]:
    rows: dict[str, tuple[Variant, float, float]] = {
        "Supervised": (variants.supervised, 27.66, 16.65),
        "UPS, no selection": (variants.pseudo_labeling, 22.60, 12.94),
        "UPS, no UA": (variants.confidence_based, 16.50, 10.02),
        "UPS, no UA (Cal.)": (variants.confidence_based_calibrated, 13.68, 8.09),
        "UPS, no NL": (variants.ups_without_negatives, 9.46, 6.64),
        "UPS": (variants.full_ups, 8.14, 6.36),
    }
    return [
        entry
        for row, (variant, few, many) in rows.items()
        for entry in _columns(row, {1000: (few, None), 4000: (many, None)}, variant)
    ]


def _table6() -> list[Entry]:
    rows: dict[str, tuple[str, dict[int, Paper]]] = {
        "MC-Dropout": ("mc-dropout", {1000: (8.14, None), 4000: (6.36, None)}),
        "MC-SpatialDropout": ("mc-spatial-dropout", {1000: (8.28, None), 4000: (6.60, None)}),
        "MC-DropBlock": ("mc-dropblock", {1000: (9.76, None), 4000: (7.50, None)}),
        "DataAug": ("augmentation", {1000: (8.28, None), 4000: (6.72, None)}),
        "Deep ensemble (not in the paper)": ("deep-ensemble", {1000: None, 4000: None}),
    }
    return [
        entry
        for row, (estimator, paper) in rows.items()
        for entry in _columns(row, paper, functools.partial(variants.with_estimator, uncertainty=estimator))
    ]


def _no_augmentation() -> list[Entry]:
    rows: dict[str, tuple[Variant | None, float, float]] = {
        "Pi-model": (None, 32.18, 17.08),
        "MeanTeacher": (None, 30.62, 17.74),
        "UPS": (variants.without_augmentation, 28.14, 14.98),
    }
    return [
        entry
        for row, (variant, few, many) in rows.items()
        for entry in _columns(row, {1000: (few, None), 4000: (many, None)}, variant)
    ]


def _sweep(name: str, values: tuple[float, ...]) -> list[Entry]:
    variant = functools.partial(variants.with_threshold, name=name)
    return [
        Entry(f"{name} {value:g}", CIFAR10, 1000, None, functools.partial(variant, value=value)) for value in values
    ]


def _figure1a() -> list[Entry]:
    """Round 0's network on every data set with the fewest labels of its table, whose figures stand beside ours."""
    row, variant = SUPERVISED
    first = [next(entry for entry in table if entry.row == row) for table in (_table5(), _table3(), _table4())]
    cifar10, ucf101, voc2007 = first
    return [
        cifar10,
        Entry(row, CIFAR100, 4000, None, variant),
        dataclasses.replace(ucf101, metric="accuracy"),
        dataclasses.replace(voc2007, metric="mAP"),
    ]


def _few_labels() -> list[Entry]:
    return _columns("UPS", {250: (15.90, 0.61), 500: (10.64, 0.18)}, variants.full_ups)


def _mixup() -> list[Entry]:
    rows: dict[str, tuple[Variant, float]] = {
        "UPS, no NL": (variants.ups_without_negatives, 9.46),
        "UPS": (variants.full_ups, 8.14),
        "UPS+Mixup, no NL": (variants.with_mixup, 7.30),
    }
    return [Entry(row, CIFAR10, 1000, (value, None), variant) for row, (variant, value) in rows.items()]


def _balance(dataset: DataSet, with_balance: dict[int, float], without: dict[int, float]) -> list[Entry]:
    return [
        Entry(row, dataset, labels, (value, None), variant)
        for row, values, variant in (
            ("with class balance", with_balance, variants.full_ups),
            ("without class balance", without, variants.without_balance),
        )
        for labels, value in values.items()
    ]


SUPERVISED, PLAIN = ("Supervised", variants.supervised), ("UPS, no selection", variants.pseudo_labeling)
CONFIDENCE, UPS = ("UPS, no UA", variants.confidence_based), ("UPS", variants.full_ups)
ALL_LABELS = "Supervised, all labels"
"""Nothing is left to be labeled; the paper's appendix has its figures."""


def _supervised_one_pass(ups: RunSettings) -> RunSettings:
    return variants.supervised(variants.confidence_based(ups))


FIRST = (SUPERVISED, ("Supervised, one pass", _supervised_one_pass))
"""The first selection comes from round 0: of the mean of the passes, and of one deterministic pass."""

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment("table1", "Error rate on CIFAR-10 and CIFAR-100, CNN-13", tuple(_table1())),
        Experiment("table2", "Error rate on CIFAR-10 with other networks", tuple(_table2())),
        Experiment("table3", "Accuracy on UCF-101, 3-D ResNet-18", tuple(_table3()), "accuracy"),
        Experiment("table4", "Mean average precision on VOC2007, ResNet-50", tuple(_table4()), "mAP"),
        Experiment("table5", "Ablation on CIFAR-10", tuple(_table5())),
        Experiment("table6", "Uncertainty estimators on CIFAR-10", tuple(_table6())),
        Experiment("few-labels", "Very few labels on CIFAR-10 (appendix)", tuple(_few_labels())),
        Experiment("mixup", "Mixup, CIFAR-10 (appendix)", tuple(_mixup())),
        Experiment("no-augmentation", "No augmentation, CIFAR-10 (appendix)", tuple(_no_augmentation())),
        Experiment(
            "class-balance",
            "Class balance, CIFAR-10 (appendix)",
            tuple(_balance(CIFAR10, {1000: 91.86, 4000: 93.64}, {1000: 88.77, 4000: 93.14})),
            "accuracy",
        ),
        Experiment(
            "class-balance-voc2007",
            "Class balance, VOC2007 (appendix)",
            tuple(_balance(VOC2007, {500: 34.72, 1000: 40.33}, {500: 31.88, 1000: 40.06})),
            "mAP",
        ),
        Experiment(
            "temperature",
            "Temperature of the negatives, CIFAR-10",
            tuple(
                Entry(
                    f"temperature {t:g}",
                    CIFAR10,
                    1000,
                    None,
                    functools.partial(variants.with_temperature, temperature=t),
                )
                for t in (1.0, 2.0)
            ),
        ),
        Experiment(
            "figure1",
            "Calibration, accuracy and number of selected labels",
            rows(CIFAR10, 1000, PLAIN, CONFIDENCE, UPS),
        ),
        Experiment("figure1a", "Calibration of the first network on every data set", tuple(_figure1a())),
        Experiment(
            "figure2", "Robustness to kappa_p", tuple(_sweep("kappa_p", (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)))
        ),
        Experiment("tau", "Robustness to tau_p", tuple(_sweep("tau_p", (0.55, 0.6, 0.7, 0.8, 0.9, 0.95)))),
        Experiment(
            "figure3",
            "Right and wrong labels over confidence and uncertainty",
            rows(CIFAR10, 1000, SUPERVISED, num_validation=1000),
        ),
        Experiment("figure4", "Confident wrong labels that UPS leaves out", rows(CIFAR10, 1000, SUPERVISED)),
        Experiment(
            "first-selection",
            "The first selection, CIFAR-10",
            rows(CIFAR10, 1000, *FIRST) + rows(CIFAR10, 4000, *FIRST),
        ),
        Experiment(
            "first-selection-cifar100",
            "The first selection, CIFAR-100 (appendix)",
            rows(CIFAR100, 4000, *FIRST),
        ),
    )
}
"""All of them, by name."""
