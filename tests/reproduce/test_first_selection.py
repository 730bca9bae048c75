"""The first selection: numbers worked out by hand, the bootstrap against a plain one, which runs can be compared."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_support import SAMPLES, scripted_run

from surelabel.data.run_data import FunctionData
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.report.classes import Positives, first_selection, first_selection_table
from surelabel.report.tables import Row
from surelabel.reproduce.first_selection import (
    PAPER,
    NetworkPair,
    bootstrap_difference,
    difference_at_equal_counts,
    find_pairs,
    label_figures,
    most_confident,
    paper_counts,
    paper_experiment,
    pool_use,
    selection_figures,
)
from surelabel.reproduce.paper_figures import classes_figure, figures_table, first_labels_figure, pool_use_figure
from surelabel.runs import RunFolder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> NetworkPair:
    folder = tmp_path_factory.mktemp("runs")
    return NetworkPair(scripted_run(folder / "plain", one_pass=True), scripted_run(folder / "ups"))


def changed(run: RunFolder, **settings: Any) -> RunFolder:
    return RunFolder(run.path, run.settings.replace(**settings), run.version, run.entries)


def on(run: RunFolder, name: str, labels: int | None = None) -> RunFolder:
    arguments = {} if labels is None else {"labels": labels}
    learner = run.settings.network.replace(model="surelabel.models.cnn13:cnn13", hidden=(128, 128))
    data = FunctionData(function=f"surelabel.data.sets:{name}", arguments=arguments)
    return changed(run, data=data, learner=learner)


def test_classes_and_accuracy_of_the_first_selection_before_and_after_balancing(pair: NetworkPair) -> None:
    before, after = first_selection(pair.stochastic).values()
    assert before == Positives((4, 2), 4 / 5)  # sample 3 is wrong, the truth of sample 9 is not known
    assert after == Positives((2, 2), 1.0)
    assert (before.number, before.imbalance, after.imbalance) == (6, 2.0, 1.0)
    record = pair.stochastic.records()[1]
    assert (record.class_counts_before, record.class_counts) == ([4, 2], [2, 2])


def test_a_selection_without_a_class_or_without_anything_has_its_own_ratio() -> None:
    assert Positives((3, 0), None).imbalance == math.inf
    assert Positives((0, 0), None).imbalance is None


def test_the_papers_counts_have_the_papers_ratios() -> None:
    for labels, ratio in PAPER["imbalance"].items():
        # At 4000 labels the paper's text has 2.35, and its table 3920 / 1658 = 2.36.
        assert Positives(PAPER["class_counts"][labels], None).imbalance == pytest.approx(ratio, abs=0.015)


def test_the_table_of_the_first_selection(pair: NetworkPair) -> None:
    table = first_selection_table(Row("UPS", (pair.stochastic,)))
    assert table.lines == [["before balancing", "6", "2.00", "80.00"], ["after balancing", "4", "1.00", "100.00"]]
    twice = first_selection_table(Row("UPS", (pair.stochastic,) * 2))
    assert twice.lines[0] == ["before balancing", "6 ± 0", "2.00 ± 0.00", "80.00 ± 0.00"]


def test_the_classes_of_the_first_selection_have_the_papers_counts_for_its_experiments_alone(
    pair: NetworkPair, tmp_path: Path
) -> None:
    figure = classes_figure(Row("UPS", (pair.stochastic,)))
    before = [["first selection, positives of cat before balancing", "–", "4"]]
    assert before[0] in figure.tables[1].lines
    assert not figure.note
    for labels, counts, said in (
        (
            1000,
            [1065, 1924],
            "largest / smallest class 3.5. Its text has 20,217, 94.87 % right.",
        ),
        (4000, [1658, 2273], "30,709 positive labels, largest / smallest class 2.35."),
    ):
        run = on(pair.stochastic, "cifar10", labels)
        found = [figure.paper for figure in selection_figures(run) if " of " in figure.metric]
        assert found == [*counts, None, None]
        assert classes_figure(Row("UPS", (run,))).note.endswith(said)
    renamed = on(scripted_run(tmp_path / "renamed", classes=("cat", "hound")), "cifar10")
    assert [figure.paper for figure in selection_figures(renamed) if " of " in figure.metric][:2] == [1065, None]
    for other in (pair.stochastic, on(pair.stochastic, "cifar10", 250), on(pair.stochastic, "cifar100", 4000)):
        assert paper_counts(other) == {}


def test_the_papers_figures_are_not_set_beside_other_thresholds_networks_or_estimators(pair: NetworkPair) -> None:
    run = on(pair.stochastic, "cifar10")
    config, network = run.settings.config, run.settings.network
    assert paper_counts(run)
    assert [figure.paper for figure in pool_use(run)] == [93.12, 90.29, 3371, 2988, 6.57]
    for other in (
        changed(run, config=config.replace(kappa_p=0.01)),
        changed(run, config=config.replace(tau_p=0.5)),
        changed(run, learner=network.replace(model="surelabel.models.wide_resnet:wide_resnet")),
        changed(run, learner=network.replace(uncertainty="augmentation")),
    ):
        assert paper_counts(other) == {}
        found = [*label_figures(NetworkPair(pair.deterministic, other)), *selection_figures(other), *pool_use(other)]
        assert {figure.paper for figure in found} == {None}


def values(pair: NetworkPair) -> dict[str, float]:
    return {figure.metric.removeprefix("first labels by "): figure.value for figure in label_figures(pair)}


def test_accuracy_over_thresholds_and_methods(pair: NetworkPair) -> None:
    found = values(pair)
    for method, expected in {
        "confidence": [(9, 5 / 9), (7, 5 / 7), (6, 4 / 6), (5, 3 / 5)],
        "confidence (Cal.)": [(9, 6 / 9), (8, 5 / 8), (6, 4 / 6), (6, 4 / 6)],
        "UPS": [(6, 5 / 6), (5, 4 / 5), (4, 1.0), (4, 1.0)],
    }.items():
        for tau, (number, share) in zip(("no tau_p", "tau_p 0.7", "tau_p 0.8", "tau_p 0.9"), expected, strict=True):
            assert found[f"{method}, {tau}, number"] == number
            assert found[f"{method}, {tau}, accuracy %"] == pytest.approx(100 * share)


def test_of_no_label_no_share_is_right(pair: NetworkPair, tmp_path: Path) -> None:
    strict = NetworkPair(pair.deterministic, scripted_run(tmp_path / "strict", kappa_p=0.0, kappa_n=0.0))
    found = values(strict)
    assert found["UPS, tau_p 0.7, number"] == 0
    assert "UPS, tau_p 0.7, accuracy %" not in found
    assert not [name for name in found if "equal counts" in name]
    assert difference_at_equal_counts(strict, "confidence") is None


def test_numbers_stand_beside_the_papers(pair: NetworkPair) -> None:
    for name, lines in {
        "cifar100": {"confidence": "54.92", "confidence (Cal.)": "64.75", "UPS": "83.16"},
        "cifar10": {"confidence": "77.44", "confidence (Cal.)": "–", "UPS": "94.87"},
    }.items():
        pairs = NetworkPair(*(on(run, name) for run in pair))
        table = figures_table({"seed 0": label_figures(pairs)})
        assert table.header == ["", "paper", "seed 0"]
        papers = {line[0]: line[1] for line in table.lines}
        assert {method: papers[f"first labels by {method}, tau_p 0.7, accuracy %"] for method in lines} == lines
    few = NetworkPair(*(on(run, "cifar10", 250) for run in pair))
    assert {figure.paper for figure in label_figures(few)} == {None}


def test_a_table_compares_the_labels_of_each_pair(pair: NetworkPair) -> None:
    figure = first_labels_figure(Row("UPS", (pair.stochastic,)), list(pair))
    lines = {line[0]: line[1:] for line in figure.tables[0].lines}
    assert lines["first labels by UPS, tau_p 0.7, number"] == ["–", "5"]
    assert lines["first selection before balancing, points above confidence at equal counts"] == ["–", "20.00"]
    alone = first_labels_figure(Row("UPS", (pair.stochastic,)), [pair.stochastic])
    assert "no other run labels the same first network" in alone.note


def test_confidence_gets_as_many_labels_of_each_class_as_ups(pair: NetworkPair) -> None:
    # UPS: 0, 1, 3 and 5, 6; the deterministic pass: 0, 2, 4 and 7, 6; the mean of the passes: 0, 2, 1 and 5, 7.
    plain = difference_at_equal_counts(pair, "confidence")
    assert plain.mean == pytest.approx(4 / 5 - 3 / 5)
    assert plain.low <= 1 / 5 <= plain.high
    assert difference_at_equal_counts(pair, "confidence (Cal.)").mean == pytest.approx(4 / 5 - 3 / 5)
    # After balancing UPS has 0 and 5, 6 (and 9); the deterministic pass 0 and 7, 6.
    assert difference_at_equal_counts(pair, "confidence", balanced=True).mean == pytest.approx(1 - 2 / 3)


def test_a_class_with_too_few_labels_gives_all_that_it_has(tmp_path: Path) -> None:
    # The stochastic passes call both a cat, the deterministic one calls them dogs.
    samples = [(0, 0.9, 0.01, 0.2), (0, 0.9, 0.01, 0.1), (1, 0.1, 0.01, 0.1)]
    runs = NetworkPair(scripted_run(tmp_path / "a", samples, one_pass=True), scripted_run(tmp_path / "b", samples))
    # Three labels of UPS, all right; one dog by confidence, the second sample, which is a cat.
    assert difference_at_equal_counts(runs, "confidence").mean == 1


def test_of_equally_confident_samples_the_first_are_taken() -> None:
    marked = most_confident(np.array([1, 1, 0, 1]), np.array([0.8, 0.8, 0.9, 0.8]), [0, 2])
    assert marked.tolist() == [True, True, False, False]


def random_marks(seed: int, size: int = 400) -> tuple[Any, ...]:
    draw = np.random.default_rng(seed)
    return tuple(draw.random(size) < share for share in (0.4, 0.9, 0.5, 0.8))


def plain_bootstrap(marks: tuple[Any, ...], resamples: int) -> Any:
    """Draw samples one by one, and compute both accuracies of what was drawn."""
    draw, differences = np.random.default_rng(1), []
    for _ in range(resamples):
        rows = draw.integers(len(marks[0]), size=len(marks[0]))
        ups, ups_right, other, other_right = (mark[rows] for mark in marks)
        differences.append(ups_right[ups].mean() - other_right[other].mean())
    return np.quantile(differences, [0.025, 0.975])


def test_the_interval_is_that_of_a_bootstrap_that_draws_sample_by_sample() -> None:
    marks = ups, ups_right, other, other_right = random_marks(0)
    found = bootstrap_difference(*marks, resamples=4000)
    assert found.mean == pytest.approx(ups_right[ups].mean() - other_right[other].mean())
    assert (found.low, found.high) == pytest.approx(plain_bootstrap(marks, 1000), abs=0.012)


def test_a_bootstrap_follows_its_seed() -> None:
    first, same, other = (bootstrap_difference(*random_marks(0), seed=seed, resamples=100) for seed in (3, 3, 4))
    assert first == same != other


def test_equal_selections_differ_by_nothing() -> None:
    ups, right, _, _ = random_marks(0)
    assert bootstrap_difference(ups, right, ups, right) == (0, 0, 0)


def test_pairs_are_found_among_all_runs(pair: NetworkPair) -> None:
    plain, ups = pair
    other_seed = changed(ups, config=ups.settings.config.replace(seed=1))
    by_confidence = changed(ups, config=ups.settings.config.replace(kappa_p=math.inf))
    assert find_pairs([ups, other_seed, by_confidence, plain], [ups, plain, plain]) == [pair]
    assert find_pairs([ups], [ups]) == []


def test_runs_of_different_networks_are_not_compared(pair: NetworkPair) -> None:
    plain, ups = pair
    assert isinstance(ups.settings.learner, TorchLearnerSettings)
    shorter = ups.settings.learner.replace(training=ups.settings.learner.training.replace(epochs=1))
    spatial = ups.settings.learner.replace(uncertainty="mc-spatial-dropout")
    scored = RunFolder(
        ups.path, ups.settings, ups.version, [{**ups.entries[0], "scores": {"test accuracy": 0.5}}, *ups.entries[1:]]
    )
    for other in (
        changed(ups, fingerprint="other"),
        changed(ups, config=ups.settings.config.replace(seed=1)),
        changed(ups, learner=shorter),
        changed(ups, learner=spatial),
        changed(ups, learner=ups.settings.learner.replace(uncertainty="elsewhere.py:Mine")),
        changed(ups, learner=None),
        scored,
    ):
        assert find_pairs([other], [plain]) == []


def test_how_often_a_network_is_asked_does_not_make_it_another(pair: NetworkPair) -> None:
    assert isinstance(pair.stochastic.settings.learner, TorchLearnerSettings)
    more = pair.stochastic.settings.learner.replace(passes=50, temperature=1.0)
    assert find_pairs([changed(pair.stochastic, learner=more)], [pair.deterministic])


def test_what_cannot_be_judged_is_not_compared(pair: NetworkPair, tmp_path: Path) -> None:
    unknown = scripted_run(tmp_path / "unknown", [(-1, *rest) for _, *rest in SAMPLES])
    assert find_pairs([unknown], [pair.deterministic]) == []


def test_the_papers_experiments_are_told_by_their_data(pair: NetworkPair) -> None:
    assert paper_experiment(on(pair.stochastic, "cifar10")) == ("cifar10", 1000)
    assert paper_experiment(on(pair.stochastic, "cifar100", 10_000)) == ("cifar100", 10_000)
    assert paper_experiment(on(pair.stochastic, "svhn")) == ("", 0)
    assert paper_experiment(pair.stochastic) == ("", 0)


def test_use_of_the_pool(pair: NetworkPair) -> None:
    # Of the samples without a positive label after balancing, 1 alone has a negative one.
    assert [figure.value for figure in pool_use(pair.stochastic)] == pytest.approx([40, 100, 6, 1, 1])
    table = pool_use_figure(Row("UPS", (on(pair.stochastic, "cifar10"),))).tables[0]
    assert [line[1:] for line in table.lines] == [
        ["93.12", "40.00"],
        ["90.29", "100.00"],
        ["3,371", "6"],
        ["2,988", "1"],
        ["6.57", "1.00"],
    ]


def test_all_of_the_papers_first_selections_are_the_papers() -> None:
    assert PAPER["class_counts"] == {
        1000: (2707, 3734, 1929, 1065, 2145, 1924, 3224, 3266, 3083, 3214),
        4000: (3274, 3900, 2377, 1658, 2898, 2273, 3468, 3403, 3538, 3920),
    }
    assert PAPER["accuracy"]["cifar100", 4000] == {
        "confidence": {0.7: 0.5492, 0.8: 0.5875, 0.9: 0.6418},
        "confidence (Cal.)": {0.7: 0.6475, 0.8: 0.7048, 0.9: 0.7718},
        "UPS": {0.7: 0.8316, 0.8: 0.8337, 0.9: 0.8309},
    }


def test_labels_exactly_at_the_thresholds_are_counted_as_they_are_selected(tmp_path: Path) -> None:
    samples = [(0, 0.7, 0.05, 0.7), (1, 0.2, 0.05, 0.2), (1, 0.1, 0.06, 0.1)]
    pair = NetworkPair(*(scripted_run(tmp_path / str(one), samples, one_pass=one) for one in (True, False)))
    assert first_selection(pair.stochastic)["before"].number == 2
    found = values(pair)
    assert [found[f"{method}, tau_p 0.7, number"] for method in ("confidence", "confidence (Cal.)", "UPS")] == [3, 3, 2]
    assert found["UPS, tau_p 0.7, accuracy %"] == 100
