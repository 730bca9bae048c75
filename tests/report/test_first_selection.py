"""The first selection: numbers worked out by hand, the bootstrap against a plain one, which runs can be compared."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_support import SAMPLES, scripted_run

from surelabel.data.run_data import FunctionData
from surelabel.errors import InvalidInputError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.report.analysis import PAPER as PAPER_USE
from surelabel.report.analysis import PoolUse, analysis_table, analysis_text
from surelabel.report.equal_counts import (
    Chosen,
    bootstrap_difference,
    compare_at_equal_counts,
    comparison_table,
    most_confident,
)
from surelabel.report.first_selection import (
    PAPER,
    Accuracy,
    NetworkPair,
    Positives,
    check_pair,
    class_counts_table,
    find_pairs,
    first_round_accuracy,
    first_round_table,
    first_selection,
    first_selection_table,
    paper_accuracy,
    paper_counts,
    paper_experiment,
)
from surelabel.report.sections import pool_use_section
from surelabel.report.tables import Row
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
    before, after = first_selection(pair.stochastic)
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


def test_the_table_of_the_first_selection_has_the_papers_lines_for_its_experiment_alone(pair: NetworkPair) -> None:
    own = [["before balancing", "6", "2.00", "80.00"], ["after balancing", "4", "1.00", "100.00"]]
    assert first_selection_table(Row("UPS", (pair.stochastic,))).lines == own
    classes = ["paper, table of classes", "26,291", "3.5", "–"]
    text = ["paper, text", "20,217", "–", "94.87"]
    assert first_selection_table(Row("UPS", (on(pair.stochastic, "cifar10"),))).lines == [*own, classes, text]
    many = first_selection_table(Row("UPS", (on(pair.stochastic, "cifar10", 4000),)))
    assert many.lines == [*own, ["paper, table of classes", "30,709", "2.35", "–"]]
    assert first_selection_table(Row("UPS", (on(pair.stochastic, "cifar100"),))).lines == own


def test_the_table_of_classes_has_a_line_for_each_and_their_ratio_last(pair: NetworkPair) -> None:
    table = class_counts_table(Row("UPS", (pair.stochastic,)))
    assert table.header == ["class", "before balancing", "after balancing"]
    assert table.lines == [["cat", "4", "2"], ["dog", "2", "2"], ["largest / smallest class", "2.00", "1.00"]]
    twice = class_counts_table(Row("UPS", (pair.stochastic,) * 2))
    assert twice.lines[0] == ["cat", "4 ± 0", "2 ± 0"]


def test_the_table_of_classes_has_the_papers_counts_for_its_experiments_alone(
    pair: NetworkPair, tmp_path: Path
) -> None:
    for labels, column in {1000: ["1,065", "1,924", "3.5"], 4000: ["1,658", "2,273", "2.35"]}.items():
        table = class_counts_table(Row("UPS", (on(pair.stochastic, "cifar10", labels),)))
        assert table.header[3:] == ["paper"]
        assert [line[3] for line in table.lines] == column
    renamed = on(scripted_run(tmp_path / "renamed", classes=("cat", "hound")), "cifar10")
    assert [line[3] for line in class_counts_table(Row("UPS", (renamed,))).lines] == ["1,065", "–", "3.5"]
    assert sum(paper_counts(renamed).values()) == 26_291
    for other in (pair.stochastic, on(pair.stochastic, "cifar10", 250), on(pair.stochastic, "cifar100", 4000)):
        assert paper_counts(other) == {}
        assert len(class_counts_table(Row("UPS", (other,))).header) == 3


def test_the_papers_figures_are_not_set_beside_other_thresholds_networks_or_estimators(pair: NetworkPair) -> None:
    run = on(pair.stochastic, "cifar10")
    config, network = run.settings.config, run.settings.network
    assert paper_counts(run)
    for other in (
        changed(run, config=config.replace(kappa_p=0.01)),
        changed(run, config=config.replace(tau_p=0.5)),
        changed(run, learner=network.replace(model="surelabel.models.wide_resnet:wide_resnet")),
        changed(run, learner=network.replace(uncertainty="augmentation")),
    ):
        assert paper_counts(other) == {}
        assert paper_accuracy(other, "UPS", 0.7) is None
        assert len(first_selection_table(Row("UPS", (other,))).lines) == 2
        assert pool_use_section(Row("UPS", (other,))).tables[0].header[-1] == "before balancing"
    assert pool_use_section(Row("UPS", (run,))).tables[0].header[-1] == "paper, round 10"


def test_accuracy_over_thresholds_and_methods(pair: NetworkPair) -> None:
    assert first_round_accuracy(pair) == {
        "confidence": [Accuracy(9, 5 / 9), Accuracy(7, 5 / 7), Accuracy(6, 4 / 6), Accuracy(5, 3 / 5)],
        "confidence (Cal.)": [Accuracy(9, 6 / 9), Accuracy(8, 5 / 8), Accuracy(6, 4 / 6), Accuracy(6, 4 / 6)],
        "UPS": [Accuracy(6, 5 / 6), Accuracy(5, 4 / 5), Accuracy(4, 1.0), Accuracy(4, 1.0)],
    }
    assert first_round_accuracy(pair, [1.0])["UPS"] == [Accuracy(0, None)]


def test_the_table_of_thresholds_averages_pairs_and_has_the_papers_lines(pair: NetworkPair) -> None:
    table = first_round_table([pair, pair], [0.7, 1.0])
    assert table.header[1:] == ["τ_p = 0.7", "τ_p = 1"]
    assert table.lines[2] == ["UPS", "80.00 ± 0.00, of 5", "none"]
    for name, lines in {
        "cifar100": [["paper: confidence", "–", "54.92", "58.75", "64.18"]],
        "cifar10": [["paper: confidence", "72.03", "77.44", "–", "–"], ["paper: UPS", "–", "94.87", "–", "–"]],
    }.items():
        table = first_round_table([NetworkPair(*(on(run, name) for run in pair))])
        assert table.lines[3 : 3 + len(lines)] == lines
        assert len(table.lines) == 3 + (2 if name == "cifar10" else 3)
    assert len(first_round_table([NetworkPair(*(on(run, "cifar10", 250) for run in pair))]).lines) == 3


def test_confidence_gets_as_many_labels_of_each_class_as_ups(pair: NetworkPair) -> None:
    plain = compare_at_equal_counts([pair])
    # UPS: 0, 1, 3 and 5, 6; the deterministic pass: 0, 2, 4 and 7, 6; the mean of the passes: 0, 2, 1 and 5, 7.
    assert (plain.number.mean, plain.number_other.mean) == (5, 5)
    assert (plain.accuracy.mean, plain.accuracy_other.mean) == (4 / 5, 3 / 5)
    assert plain.difference.mean == pytest.approx(1 / 5)
    assert plain.difference.low <= 1 / 5 <= plain.difference.high
    calibrated = compare_at_equal_counts([pair], "confidence (Cal.)")
    assert calibrated.accuracy_other.mean == 3 / 5
    # After balancing UPS has 0 and 5, 6 (and 9); the deterministic pass 0 and 7, 6.
    balanced = compare_at_equal_counts([pair], balanced=True)
    assert (balanced.accuracy.mean, balanced.accuracy_other.mean) == (1.0, pytest.approx(2 / 3))


def test_a_class_with_too_few_labels_gives_all_that_it_has(tmp_path: Path) -> None:
    # The stochastic passes call both a cat, the deterministic one calls them dogs.
    samples = [(0, 0.9, 0.01, 0.2), (0, 0.9, 0.01, 0.1), (1, 0.1, 0.01, 0.1)]
    runs = NetworkPair(scripted_run(tmp_path / "a", samples, one_pass=True), scripted_run(tmp_path / "b", samples))
    found = compare_at_equal_counts([runs])
    assert (found.number.mean, found.number_other.mean) == (3, 1)
    assert comparison_table([runs]).lines[0][1] == "3 / 1"


def test_nothing_selected_is_nothing_to_compare(tmp_path: Path, pair: NetworkPair) -> None:
    strict = NetworkPair(pair.deterministic, scripted_run(tmp_path / "strict", kappa_p=0.0, kappa_n=0.0))
    assert compare_at_equal_counts([strict]) is None
    assert comparison_table([strict]).lines == []
    assert compare_at_equal_counts([]) is None


def test_the_table_of_comparisons_names_its_stages(pair: NetworkPair) -> None:
    table = comparison_table([pair])
    assert [line[0] for line in table.lines] == [
        "UPS − confidence, before balancing",
        "UPS − confidence (Cal.), before balancing",
        "UPS − confidence, after balancing",
        "UPS − confidence (Cal.), after balancing",
    ]
    assert table.lines[0][1:5] == ["5", "80.00", "60.00", "+20.00"]
    assert table.lines[0][5].startswith("−")


def test_of_equally_confident_samples_the_first_are_taken() -> None:
    marked = most_confident(np.array([1, 1, 0, 1]), np.array([0.8, 0.8, 0.9, 0.8]), [0, 2])
    assert marked.tolist() == [True, True, False, False]


def random_part(seed: int, size: int = 400) -> Chosen:
    draw = np.random.default_rng(seed)
    return Chosen(draw.random(size) < 0.4, draw.random(size) < 0.9, draw.random(size) < 0.5, draw.random(size) < 0.8)


def plain_bootstrap(parts: list[tuple[Any, Chosen]], resamples: int) -> Any:
    """Draw samples one by one, and compute both accuracies of what was drawn."""
    draw = np.random.default_rng(1)
    ids = np.unique(np.concatenate([part_ids for part_ids, _ in parts]))
    differences = np.zeros((resamples, len(parts)))
    for i in range(resamples):
        drawn = draw.choice(ids, size=len(ids))
        for j, (part_ids, part) in enumerate(parts):
            place = {sample: index for index, sample in enumerate(part_ids.tolist())}
            rows = [place[sample] for sample in drawn.tolist() if sample in place]
            ups, other = part.ups[rows], part.other[rows]
            differences[i, j] = part.ups_right[rows][ups].mean() - part.other_right[rows][other].mean()
    return np.quantile(differences.mean(axis=1), [0.025, 0.975])


@pytest.mark.parametrize("shift", [0, 150, 400])
def test_the_interval_is_that_of_a_bootstrap_that_draws_sample_by_sample(shift: int) -> None:
    """Two runs that share all, some or none of their samples."""
    parts = [(np.arange(400), random_part(0)), (np.arange(400) + shift, random_part(1))]
    found = bootstrap_difference(parts, seed=0, resamples=4000)
    expected = np.mean([part.ups_right[part.ups].mean() - part.other_right[part.other].mean() for _, part in parts])
    assert found.mean == pytest.approx(expected)
    assert (found.low, found.high) == pytest.approx(plain_bootstrap(parts, 1000), abs=0.008)


def test_a_bootstrap_follows_its_seed_and_not_how_it_is_cut_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [(np.arange(400), random_part(0))]
    found = bootstrap_difference(parts, seed=3, resamples=100)
    assert bootstrap_difference(parts, seed=3, resamples=100) == found
    assert bootstrap_difference(parts, seed=4, resamples=100) != found
    monkeypatch.setattr("surelabel.report.equal_counts._BLOCK", 50)
    assert bootstrap_difference(parts, seed=3, resamples=100) == found


def test_the_same_run_twice_is_as_uncertain_as_once() -> None:
    part = (np.arange(400), random_part(0))
    once, twice = (bootstrap_difference([part] * times, seed=0, resamples=500) for times in (1, 2))
    assert twice == pytest.approx(once)


def test_equal_selections_differ_by_nothing() -> None:
    part = random_part(0)
    same = Chosen(part.ups, part.ups_right, part.ups, part.ups_right)
    assert bootstrap_difference([(np.array([str(i) for i in range(400)]), same)], seed=0) == (0, 0, 0)


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
    for other, problem in (
        (changed(ups, fingerprint="other"), "their data differ"),
        (changed(ups, config=ups.settings.config.replace(seed=1)), "their seeds differ"),
        (changed(ups, learner=shorter), "trained in different ways"),
        (changed(ups, learner=spatial), "labels with one network"),
        (changed(ups, learner=None), "runs by reference"),
        (scored, "scores differ"),
    ):
        with pytest.raises(InvalidInputError, match=f"same network, and .*{problem}"):
            check_pair(NetworkPair(plain, other))
        assert find_pairs([other], [plain]) == []


def test_how_often_a_network_is_asked_does_not_make_it_another(pair: NetworkPair) -> None:
    assert isinstance(pair.stochastic.settings.learner, TorchLearnerSettings)
    more = pair.stochastic.settings.learner.replace(passes=50, temperature=1.0)
    check_pair(NetworkPair(pair.deterministic, changed(pair.stochastic, learner=more)))


def test_what_cannot_be_compared_is_said(pair: NetworkPair, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="give them in this order"):
        check_pair(NetworkPair(pair.stochastic, pair.deterministic))
    unknown = scripted_run(tmp_path / "unknown", [(-1, *rest) for _, *rest in SAMPLES])
    with pytest.raises(InvalidInputError, match="unknown.*whose truth is known"):
        check_pair(NetworkPair(pair.deterministic, unknown))
    with pytest.raises(InvalidInputError, match=r"'other' argument must be one of .*Got 'UPS'"):
        compare_at_equal_counts([pair], "UPS")


def test_the_papers_experiments_are_told_by_their_data(pair: NetworkPair) -> None:
    assert paper_experiment(on(pair.stochastic, "cifar10")) == ("cifar10", 1000)
    assert paper_experiment(on(pair.stochastic, "cifar100", 10_000)) == ("cifar100", 10_000)
    assert paper_experiment(on(pair.stochastic, "svhn")) is None
    assert paper_experiment(pair.stochastic) is None


def test_use_of_the_pool_before_and_after_balancing(pair: NetworkPair) -> None:
    # Of the samples without a positive label after balancing, 1 alone has a negative one.
    assert analysis_text(pair.stochastic) == PoolUse(0.4, 1.0, 6, 1, 1.0)
    assert analysis_text(pair.stochastic, before_balancing=True) == PoolUse(0.6, 4 / 5, 4, 0, None)
    record = pair.stochastic.records()[1]
    assert (record.positive_share, record.positive_accuracy, record.num_negative_only) == (0.4, 1.0, 1)


def test_the_table_of_use_stands_beside_the_papers(pair: NetworkPair) -> None:
    table = analysis_table(Row("UPS", (pair.stochastic,)), PAPER_USE)
    assert table.header == ["", "learned from in round 1", "before balancing", "paper, round 10"]
    assert [line[1:] for line in table.lines] == [
        ["40.00", "60.00", "93.12"],
        ["100.00", "80.00", "90.29"],
        ["6", "4", "3,371"],
        ["1", "0", "2,988"],
        ["1.00", "–", "6.57"],
    ]


def test_use_of_the_pool_needs_a_round(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="which has 1; resume it"):
        analysis_text(scripted_run(tmp_path / "run", max_rounds=0))


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
    assert first_selection(pair.stochastic).before.number == 2
    found = first_round_accuracy(pair, [0.7])
    assert found == {"confidence": [Accuracy(3, 1)], "confidence (Cal.)": [Accuracy(3, 1)], "UPS": [Accuracy(2, 1)]}
