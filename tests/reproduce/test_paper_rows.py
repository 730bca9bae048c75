"""Each row of the paper's tables: its figures, and what it changes of UPS; the recipes, setting by setting."""

import pytest

from surelabel.reproduce.cifar import CIFAR10, CIFAR100, fast_recipe, paper_recipe
from surelabel.reproduce.outcome import differences
from surelabel.reproduce.paper import experiment

# Every figure of the paper on CIFAR, by experiment, row, data set and labels: mean and standard deviation.
FIGURES = {
    "table1": {
        "DeepLP": [(22.02, 0.88), (12.69, 0.29), (46.20, 0.76), (38.43, 1.88)],
        "TSSDL": [(21.13, 1.17), (10.90, 0.23), None, None],
        "MeanTeacher": [(19.04, 0.51), (11.41, 0.25), (45.36, 0.49), (36.08, 0.51)],
        "MeanTeacher+DeepLP": [(16.93, 0.70), (10.61, 0.28), (43.73, 0.20), (35.92, 0.47)],
        "ICT": [(15.48, 0.78), (7.29, 0.02), None, None],
        "DualStudent": [(14.17, 0.38), (8.89, 0.09), None, (32.77, 0.24)],
        "R2-D2": [None, None, None, (32.87, 0.51)],
        "MixMatch": [None, (6.84, None), None, None],
        "UPS": [(8.18, 0.15), (6.39, 0.02), (40.77, 0.10), (32.00, 0.49)],
    },
    "table2": {
        "MixMatch/WRN-28-2": [7.75, 6.24],
        "MixMatch/Shake-Shake": [None, 4.95],
        "ReMixMatch/WRN-28-2": [5.73, 5.14],
        "TC-SSL/WRN-28-2": [6.15, 5.07],
        "R2-D2/Shake-Shake": [None, 5.72],
        "UPS/WRN-28-2": [7.95, 6.42],
        "UPS/Shake-Shake": [None, 4.86],
    },
    "table5": {
        "Supervised": [27.66, 16.65],
        "UPS, no selection": [22.60, 12.94],
        "UPS, no UA": [16.50, 10.02],
        "UPS, no UA (Cal.)": [13.68, 8.09],
        "UPS, no NL": [9.46, 6.64],
        "UPS": [8.14, 6.36],
    },
    "table6": {
        "MC-Dropout": [8.14, 6.36],
        "MC-SpatialDropout": [8.28, 6.60],
        "MC-DropBlock": [9.76, 7.50],
        "DataAug": [8.28, 6.72],
    },
    "mixup": {"UPS, no NL": [9.46], "UPS": [8.14], "UPS+Mixup, no NL": [7.30]},
    "no-augmentation": {"Pi-model": [32.18, 17.08], "MeanTeacher": [30.62, 17.74], "UPS": [28.14, 14.98]},
    "class-balance": {"with class balance": [91.86, 93.64], "without class balance": [88.77, 93.14]},
}
COLUMNS = [("cifar10", 1000), ("cifar10", 4000), ("cifar100", 4000), ("cifar100", 10_000)]


@pytest.mark.parametrize("name", FIGURES)
def test_all_figures_of_a_table_are_the_papers(name):
    expected = {
        (row, *column): value if isinstance(value, tuple) else (value, None)
        for row, values in FIGURES[name].items()
        for column, value in zip(COLUMNS, values, strict=False)
        if value is not None
    }
    found = {(e.row, e.dataset.name, e.labels): e.paper for e in experiment(name).entries if e.paper is not None}
    assert found == expected


def _changes(name, row, labels=1000):
    """What a row changes of UPS by the paper's recipe."""
    (entry,) = (e for e in experiment(name).entries if (e.row, e.labels) == (row, labels) and e.dataset is CIFAR10)
    base = entry.base(0, "paper")
    return set(differences(entry.of(base).replace(name=base.name), base))


INF = {"kappa_p inf (paper 0.05)", "kappa_n inf (paper 0.005)"}
ONE_PASS = {"uncertainty none (paper mc-dropout)"}
CHANGES = {
    ("table5", "Supervised"): {"max_rounds 0 (paper 20)"},
    ("table5", "UPS, no selection"): {
        *INF,
        *ONE_PASS,
        "tau_p 0.0 (paper 0.7)",
        "tau_n 0.0 (paper 0.05)",
        "negatives False (paper True)",
        "balance None (paper equal)",
        "tolerance None (paper 0.01)",
    },
    ("table5", "UPS, no UA"): {*INF, *ONE_PASS},
    ("table5", "UPS, no UA (Cal.)"): INF,
    ("table5", "UPS, no NL"): {"negatives False (paper True)"},
    ("table5", "UPS"): set(),
    ("mixup", "UPS+Mixup, no NL"): {
        "tau_p 0.5 (paper 0.7)",
        "kappa_p 0.1 (paper 0.05)",
        "negatives False (paper True)",
        "mixup 0.5 (paper 0.0)",
    },
    ("class-balance", "without class balance"): {"balance None (paper equal)"},
    ("class-balance", "with class balance"): set(),
    ("temperature", "temperature 1"): {"temperature 1.0 (paper 2.0)"},
    ("temperature", "temperature 2"): set(),
    ("figure2", "kappa_p 0.01"): {"kappa_p 0.01 (paper 0.05)"},
    ("figure2", "kappa_p 0.1"): {"kappa_p 0.1 (paper 0.05)"},
    ("figure2", "kappa_p 0.5"): {"kappa_p 0.5 (paper 0.05)"},
    ("tau", "tau_p 0.95"): {"tau_p 0.95 (paper 0.7)"},
    ("first-selection", "Supervised, one pass"): {*INF, *ONE_PASS, "max_rounds 0 (paper 20)"},
}


@pytest.mark.parametrize("row", CHANGES, ids=": ".join)
def test_a_row_changes_what_its_name_says_and_nothing_else(row):
    found = _changes(*row)
    assert {one.replace("Infinity", "inf") for one in found} == CHANGES[row]


def test_rows_without_augmentation_and_with_another_network_are_that():
    (plain,) = (e for e in experiment("no-augmentation").entries if e.variant and e.labels == 1000)
    augment = plain.of(plain.base(0, "paper")).network.training.augment
    assert (augment.operations, augment.flip, augment.crop, augment.hole) == (0, False, 0, 0)
    models = {
        e.row: e.of(e.base(0, "paper")).network.model.rpartition(":")[2]
        for e in experiment("table2").entries
        if e.variant and e.recipe is None
    }
    assert models == {"UPS/WRN-28-2": "wide_resnet", "UPS/Shake-Shake": "shake_shake"}


def test_figure_3_has_a_validation_set():
    (entry,) = experiment("figure3").entries
    assert entry.of(entry.base(0, "paper")).data.arguments["num_validation"] == 1000


def test_the_rest_of_the_papers_recipe_is_the_papers():
    ups = paper_recipe(CIFAR10)
    training, augment = ups.network.training, ups.network.training.augment
    assert (training.batch_size, ups.config.max_rounds) == (128, 20)
    assert (augment.operations, augment.magnitude, augment.flip, augment.crop) == (3, 4, True, 4)
    assert (augment.jitter, augment.hole) == (0.4, 16)
    assert ups.network.model_parameters == {"dropout": 0.3, "weight_norm": True}
    stds = {d.name: paper_recipe(d).network.training.augment.std for d in (CIFAR10, CIFAR100)}
    assert stds == {"cifar10": (0.2470, 0.2435, 0.2616), "cifar100": (0.2673, 0.2564, 0.2762)}


def test_the_fast_recipe_is_the_one_whose_results_are_shown():
    """docs/recipes.md and results/ are of these settings."""
    fast = fast_recipe()
    assert set(differences(fast, paper_recipe())) == {
        "max_rounds 6 (paper 20)",
        "tolerance None (paper 0.01)",
        "dropout 0.15 (paper 0.3)",
        "weight_norm None (paper True)",
        "learning_rate 0.8 (paper 0.03)",
        "weight_decay 0.0005 (paper 0.0)",
        "decay_all False (paper True)",
        "warmup 0.2 (paper 0.0)",
        "schedule linear (paper cosine)",
        "batch_size 512 (paper 128)",
        "negative_batch_size 128 (paper None)",
        "steps 3000 (paper 1024 epochs)",
        "round_growth 1.5 (paper 1.0)",
        "operations 2 (paper 3)",
        "magnitude None (paper 4)",
        "precision bfloat16 (paper float32)",
    }
