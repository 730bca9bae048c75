"""Thresholds chosen on held-out labels: the sequence of tests, the promise by simulation, and what is missing."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom
from strategies import KINDS, masks, probabilities, uncertainties

import surelabel as sl
from surelabel.core.thresholds import HeldOutLabels, Thresholds, _allowed, choose, judge
from surelabel.errors import InvalidInputError


def held_out(confidence, uncertainty, wrong) -> HeldOutLabels:
    """One label a sample, from arrays (N,)."""
    wide = [None if values is None else np.asarray(values)[:, None] for values in (confidence, uncertainty, wrong)]
    return HeldOutLabels(wide[0], wide[1], np.ones_like(wide[2]), wide[2])


def _reference(labels: HeldOutLabels, max_error: float, delta: float, min_coverage: float) -> tuple | None:
    """The sequence of tests in plain loops: (tau_p, kappa_p, selected, wrong) of the last that rejects."""
    rows = range(len(labels.label))
    entries = [(i, k) for i in rows for k in range(labels.label.shape[1]) if labels.label[i, k]]
    confident = sorted((float(labels.confidence[e]) for e in entries), reverse=True)
    certain = [math.inf] * len(entries)
    if labels.uncertainty is not None:
        certain = sorted(float(labels.uncertainty[e]) for e in entries)
    tests, allowed_before = [], -1
    for m, (tau, kappa) in enumerate(zip(confident, certain, strict=True)):
        chosen = [e for e in entries if labels.confidence[e] >= tau]
        if labels.uncertainty is not None:
            chosen = [e for e in chosen if labels.uncertainty[e] <= kappa]
        number = len({i for i, _ in chosen})
        wrong = len({i for i, k in chosen if labels.wrong[i, k]})
        allowed = -1
        while binom.cdf(allowed + 1, max(number, 1), max_error) <= delta:
            allowed += 1
        due = allowed > allowed_before or m == len(entries) - 1
        allowed_before = allowed
        if due and number > 0 and allowed >= 0:
            tests.append((tau, kappa, number, wrong, allowed))
    # They begin with the one nearest to the least coverage, and not below half of it.
    wide = [test for test in tests if test[2] / len(rows) >= min_coverage / 2] or tests[-1:]
    gaps = [abs(test[2] / len(rows) - min_coverage) for test in wide]
    last = None
    for test in wide[gaps.index(min(gaps)) :] if wide else []:
        if test[3] > test[4]:
            break
        last = test[:4]
    return last


@given(
    data=st.data(),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 3)),
    multi=st.booleans(),
    without_u=st.booleans(),
    max_error=st.sampled_from([0.1, 0.3, 0.6]),
    delta=st.sampled_from([0.05, 0.3]),
    min_coverage=st.sampled_from([0.05, 0.2, 0.5, 1.0]),
)
def test_the_sequence_of_tests_agrees_with_plain_loops(
    data, shape, multi, without_u, max_error, delta, min_coverage
) -> None:
    p, u = data.draw(probabilities(shape)), data.draw(uncertainties(shape))
    mostly_right = sl.pseudo_labels(p, "multi" if multi else "single")
    flipped = np.array(data.draw(st.lists(st.integers(0, 9), min_size=p.size, max_size=p.size))).reshape(shape) == 0
    y = (mostly_right ^ flipped).astype(int) if multi else (mostly_right ^ flipped).argmax(axis=1)
    labels = judge(p, None if without_u else u, y, "multi" if multi else "single")
    found = choose(labels, max_error, delta, min_coverage)
    expected = _reference(labels, max_error, delta, min_coverage)
    assert (None if found.tau_p is None else found[:4]) == expected
    assert (found.more_labels == 0) == (expected is not None)


def test_59_labels_without_an_error_pass_and_58_do_not() -> None:
    confidence, uncertainty = np.linspace(0.99, 0.8, 59), np.linspace(0.001, 0.05, 59)
    found = choose(held_out(confidence, uncertainty, np.zeros(59, dtype=bool)))
    assert found == Thresholds(confidence[-1], uncertainty[-1], 59, 0, 59, 0.05, 0.05, 0)
    assert found.coverage == 1.0
    short = choose(held_out(confidence[1:], uncertainty[1:], np.zeros(58, dtype=bool)))
    assert (short.tau_p, short.kappa_p, short.num_selected, short.coverage) == (None, None, 0, 0.0)
    assert short.more_labels > 0


def test_tests_end_with_the_first_that_does_not_reject() -> None:
    # 59, 93, 124, 153, 181, 208, 234, 260, 286, 311 labels allow 0, 1, 2 ... 8, 9 wrong ones. Ten in the middle stop
    # the sequence at 311, although all labels together have an error of 1 %.
    wrong = np.zeros(1000, dtype=bool)
    wrong[300:310] = True
    found = choose(held_out(np.linspace(1, 0.5, 1000), None, wrong))
    assert (found.num_selected, found.num_wrong) == (286, 0)
    assert binom.cdf(10, 1000, 0.05) < 1e-9
    wrong[:50] = True
    assert choose(held_out(np.linspace(1, 0.5, 1000), None, wrong)).tau_p is None


def test_min_coverage_is_where_the_tests_begin() -> None:
    # The surest tenth is wrong at times: too few of them for a test to pass, but not for all of them together.
    wrong = np.zeros(1000, dtype=bool)
    wrong[:100:15] = True
    labels = held_out(np.linspace(1, 0.5, 1000), None, wrong)
    assert choose(labels, min_coverage=0.1).tau_p is None
    assert choose(labels, min_coverage=0.5).num_selected == 1000
    assert choose(labels, min_coverage=1.0).num_selected == 1000


@given(seed=st.integers(0, 10_000), wrong=masks(40), corrected=masks(40), delta=st.sampled_from([0.05, 0.3]))
def test_more_right_labels_never_select_less(seed, wrong, corrected, delta) -> None:
    confidence, uncertainty = np.random.default_rng(seed).random((2, 40)).round(1)
    worse, better = (choose(held_out(confidence, uncertainty, w), 0.5, delta) for w in (wrong, wrong & ~corrected))
    assert better.num_selected >= worse.num_selected


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("task", ["single", "multi"])
def test_select_takes_exactly_the_samples_that_were_counted(task, dtype) -> None:
    generator = np.random.default_rng(0)
    p = torch.from_numpy(generator.dirichlet([0.3] * 4, 500)).to(dtype)
    u = ((1 - p) * p).abs()
    label = sl.pseudo_labels(p, task)
    y = label.int() if task == "multi" else label.int().argmax(dim=1)
    y[:10] = 1 - y[:10] if task == "multi" else (y[:10] + 1) % 4
    for with_u in (u, None):
        found = sl.thresholds(p, with_u, y, max_error=0.15, task=task)
        assert found.num_selected > 100
        s = sl.select(p, with_u, found.tau_p, 0.0, found.kappa_p, math.inf, task)
        assert int(s.positive.any(dim=1).sum()) == found.num_selected
        truth = y == 1 if task == "multi" else torch.nn.functional.one_hot(y.long(), 4) == 1
        assert int((s.positive & ~truth).any(dim=1).sum()) == found.num_wrong


def test_numpy_and_torch_give_the_same_and_lists_are_taken() -> None:
    generator = np.random.default_rng(1)
    p, y = generator.dirichlet([0.1, 0.1, 0.1], 300), generator.integers(0, 3, 300)
    u = np.sqrt(p * (1 - p)) / 5
    y[20:] = p[20:].argmax(axis=1)
    results = [sl.thresholds(*(kind(values) for values in (p, u, y)), max_error=0.1) for kind in KINDS.values()]
    results.append(sl.thresholds(p.tolist(), u.tolist(), y.tolist(), max_error=0.1))
    assert results[0].tau_p is not None
    assert results[0] == results[1] == results[2]
    assert results[0] == sl.thresholds(torch.tensor(p, requires_grad=True), torch.tensor(u), torch.tensor(y), 0.1)


def test_probabilities_rounded_beyond_1_give_a_threshold_that_select_takes() -> None:
    p = np.tile([1 + 1e-7, 0.0], (100, 1))
    found = sl.thresholds(p, None, np.zeros(100, dtype=int))
    assert found.tau_p == 1.0
    assert sl.select(p, None, found.tau_p, 0.0, math.inf, math.inf).positive[:, 0].all()


def test_with_several_labels_a_sample_is_wrong_once_however_many_of_its_labels_are() -> None:
    p = np.full((200, 5), 0.9)
    y = np.ones((200, 5), dtype=int)
    y[:4] = 0  # 20 wrong labels, but 4 wrong samples: as in the docstring's example
    found = sl.thresholds(p, None, y, task="multi")
    assert (found.num_selected, found.num_wrong) == (200, 4)
    y[:100, 0] = 0  # 100 of 1000 labels in 100 of 200 samples
    assert sl.thresholds(p, None, y, 0.2, task="multi").tau_p is None
    nothing = sl.thresholds(np.full((200, 5), 0.1), None, y, task="multi")
    assert (nothing.tau_p, nothing.more_labels) == (None, None)


# The promise, by simulation. A sample has a rank r, uniform on (0, 1), u = r and confidence = 1 - r / 2, and is wrong
# with probability error(r), so that the error of all samples with u <= kappa and p >= tau is known exactly.
MAX_ERROR, DELTA, NUM_SAMPLES, REPEATS = 0.1, 0.1, 200, 1000
GRID = (np.arange(100_000) + 0.5) / 100_000
CURVES = {
    "at the limit everywhere": np.full_like(GRID, 1.001 * MAX_ERROR),
    "over the limit after the first test": np.where(GRID < 0.25, 0.99, 1.02) * MAX_ERROR,
    "rises slowly across the limit": MAX_ERROR * (0.5 + 1.2 * GRID),
    "rises fast across the limit": MAX_ERROR * 4 * GRID,
    "jumps": np.where(GRID < 0.5, 0.1 * MAX_ERROR, 0.8),
    "comb": np.where((GRID * 200).astype(int) % 10 == 0, 0.95, 0.006),
}


def _repeat(error, num_samples: int = NUM_SAMPLES, repeats: int = REPEATS) -> list[tuple[float, float]]:
    """Return the true error and coverage of the thresholds chosen on each of many held-out sets."""
    generator, true_error = np.random.default_rng(0), np.cumsum(error) / np.arange(1, len(GRID) + 1)
    results = []
    for _ in range(repeats):
        place = generator.integers(0, len(GRID), num_samples)
        rank, wrong = GRID[place], generator.random(num_samples) < error[place]
        found = choose(held_out(1 - rank / 2, rank, wrong), MAX_ERROR, DELTA)
        if found.tau_p is None:
            results.append((0.0, 0.0))
            continue
        last = min(found.kappa_p, 2 * (1 - found.tau_p))
        results.append((float(true_error[int(last * len(GRID))]), last))
    return results


@pytest.mark.parametrize("name", CURVES)
def test_the_error_is_above_the_limit_no_more_often_than_delta(name) -> None:
    results = _repeat(CURVES[name])
    violations = sum(error >= MAX_ERROR for error, _ in results)
    # A violation rate of delta exactly would exceed this in one of 10,000 simulations.
    assert violations <= binom.ppf(0.9999, REPEATS, DELTA)


def test_a_test_that_ignored_delta_would_be_caught_by_the_simulation() -> None:
    # The largest coverage whose observed error is below the limit: what one would do by eye.
    generator, error = np.random.default_rng(0), CURVES["rises slowly across the limit"]
    true_error = np.cumsum(error) / np.arange(1, len(GRID) + 1)
    violations = 0
    for _ in range(REPEATS):
        place = np.sort(generator.integers(0, len(GRID), NUM_SAMPLES))
        observed = np.cumsum(generator.random(NUM_SAMPLES) < error[place]) / np.arange(1, NUM_SAMPLES + 1)
        below = np.flatnonzero(observed < MAX_ERROR)
        violations += len(below) > 0 and true_error[place[below[-1]]] >= MAX_ERROR
    assert violations > 3 * binom.ppf(0.9999, REPEATS, DELTA)


def test_the_promise_holds_where_confidence_and_uncertainty_are_independent() -> None:
    generator = np.random.default_rng(0)
    violations = 0
    for _ in range(REPEATS):
        a, b = generator.random((2, NUM_SAMPLES))
        wrong = generator.random(NUM_SAMPLES) < 0.15 * a + 0.1 * b
        found = choose(held_out(1 - b / 2, a, wrong), MAX_ERROR, DELTA)
        if found.tau_p is not None:
            # The mean of a over (0, kappa) and of b over (0, 2 - 2 tau).
            violations += 0.15 * found.kappa_p / 2 + 0.1 * (1 - found.tau_p) >= MAX_ERROR
    assert 0 < violations <= binom.ppf(0.9999, REPEATS, DELTA)


# Four groups of samples: (confidence, uncertainty, share, wrong or not). Who takes the second or the third with the
# first, whichever is larger among the held-out samples, takes what is wrong more seldom there.
GROUPS = np.array([(0.95, 0.01, 1 / 29, 1), (0.95, 0.02, 9 / 29, 0), (0.8, 0.01, 9 / 29, 0), (0.8, 0.02, 10 / 29, 1)])


def _of_groups(number: int, generator: np.random.Generator) -> HeldOutLabels:
    confidence, uncertainty, _, wrong = GROUPS[generator.choice(4, number, p=GROUPS[:, 2])].T
    return held_out(confidence, uncertainty, wrong == 1)


def test_with_a_pool_the_promise_holds_where_the_held_out_samples_would_choose_their_pairs() -> None:
    generator, violations = np.random.default_rng(0), {"held out": 0, "pool": 0}
    for _ in range(REPEATS):
        labels = _of_groups(1000, generator)
        for path, pool in (("held out", None), ("pool", _of_groups(3000, generator))):
            # The error of either pair of groups is the limit, and that of all is above it.
            violations[path] += choose(labels, MAX_ERROR, DELTA, pool=pool).tau_p is not None
    limit = binom.ppf(0.9999, REPEATS, DELTA)
    assert violations["pool"] <= limit
    assert REPEATS * DELTA < violations["held out"] <= 1.5 * REPEATS * DELTA


@pytest.mark.parametrize("name", CURVES)
def test_with_a_pool_the_promise_holds_on_every_curve(name) -> None:
    generator, error, violations, repeats = np.random.default_rng(0), CURVES[name], 0, 500
    true_error = np.cumsum(error) / np.arange(1, len(GRID) + 1)
    for _ in range(repeats):
        rank, of_pool = GRID[(place := generator.integers(0, len(GRID), NUM_SAMPLES))], generator.random(2000)
        pool = held_out(1 - of_pool / 2, of_pool, np.zeros(2000, dtype=bool))
        wrong = generator.random(NUM_SAMPLES) < error[place]
        found = choose(held_out(1 - rank / 2, rank, wrong), MAX_ERROR, DELTA, pool=pool)
        if found.tau_p is not None:
            violations += true_error[int(min(found.kappa_p, 2 * (1 - found.tau_p)) * len(GRID))] >= MAX_ERROR
    assert violations <= binom.ppf(0.9999, repeats, DELTA)


def test_the_pool_says_which_pairs_and_the_held_out_samples_whether_they_pass() -> None:
    generator = np.random.default_rng(0)
    p, p_pool = (generator.dirichlet([0.2] * 3, number) for number in (300, 900))
    u, u_pool = (0.3 * np.sqrt(values * (1 - values)) for values in (p, p_pool))
    found = sl.thresholds(p, u, p.argmax(axis=1), pool=(p_pool, u_pool))
    assert found.tau_p in p_pool
    assert found.kappa_p in u_pool
    chosen = sl.select(p, u, found.tau_p, 0.0, found.kappa_p, math.inf)
    assert int(chosen.positive.any(axis=1).sum()) == found.num_selected
    with pytest.raises(InvalidInputError, match="'pool' argument must have uncertainties if 'u' is given"):
        sl.thresholds(p, u, p.argmax(axis=1), pool=(p_pool, None))
    several = sl.thresholds(p, u, (p > 0.5).astype(int), task="multi", pool=(p_pool, u_pool))
    assert several.tau_p in p_pool
    with pytest.raises(InvalidInputError, match="'pool' must have the classes of 'p'. Got 2 and 3"):
        sl.thresholds(p, u, (p > 0.5).astype(int), task="multi", pool=(p_pool[:, :2], u_pool[:, :2]))


@pytest.mark.parametrize("number", [290, 295, 296, 300])
def test_one_more_label_does_not_undo_the_choice(number: int) -> None:
    rank = (np.arange(number) + 0.5) / number
    found = choose(held_out(1 - rank / 2, None, rank > 0.27))
    assert found.num_selected >= 59


def test_labels_of_fewer_samples_than_the_tests_begin_with_are_tested_at_once() -> None:
    p = np.full((1000, 2), 0.1)
    p[:150, 0] = 0.9
    found = sl.thresholds(p, None, (p > 0.5).astype(int), task="multi")
    assert (found.num_selected, found.num_wrong) == (150, 0)


def test_hoeffdings_condition_holds_where_it_is_said_to() -> None:
    """w <= n max_error - 1 for every w above 0 that a test allows; w = 0 needs no condition."""
    sizes = np.arange(1, 1500)
    for max_error in np.linspace(0.01, 0.5, 50):
        allowed = _allowed(sizes, max_error, 0.3)
        assert (allowed <= np.maximum(sizes * max_error - 1, 0) + 1e-9).all()


def test_printed_thresholds_are_the_very_numbers() -> None:
    tau, kappa = 0.9999999999306355, 0.1 + 0.2
    assert f"tau_p={tau!r} and kappa_p=0.30000000000000004 select" in str(Thresholds(tau, kappa, 5, 0, 9, 0.5, 0.5, 0))


@pytest.mark.parametrize(("name", "least"), [("rises fast across the limit", 0.35), ("jumps", 0.45)])
def test_most_of_the_coverage_that_the_limit_allows_is_found(name, least) -> None:
    # The error reaches the limit at a coverage of 0.5 and of 0.57.
    results = _repeat(CURVES[name], num_samples=1000, repeats=50)
    assert np.mean([coverage for _, coverage in results]) > least


@pytest.mark.parametrize("number", [1, 9, 10, 30, 58])
def test_where_no_label_is_wrong_59_are_needed(number: int) -> None:
    found = choose(held_out(np.full(number, 0.9), np.full(number, 0.02), np.zeros(number, dtype=bool)))
    assert (found.tau_p, found.more_labels) == (None, 59 - number)


@pytest.mark.parametrize("number", [50, 100])
@pytest.mark.parametrize("with_pool", [False, True])
@pytest.mark.parametrize(
    "error",
    [0.4 * GRID**2, 0.08 * GRID, np.full_like(GRID, 0.01), np.full_like(GRID, 0.02)],
    ids=["mostly the least sure", "rises slowly", "1 % everywhere", "2 % everywhere"],
)
def test_about_half_pass_with_the_estimated_number_of_labels(error, with_pool: bool, number: int) -> None:
    generator = np.random.default_rng(0)

    def found(number: int) -> Thresholds:
        labels, pool = (
            held_out(1 - GRID[place] / 2, GRID[place], generator.random(len(place)) < error[place])
            for place in (generator.integers(0, len(GRID), count) for count in (number, 1000))
        )
        return choose(labels, pool=pool if with_pool else None)

    failed = [few.more_labels for few in (found(number) for _ in range(200)) if few.tau_p is None]
    more = [value for value in failed if value is not None and value < 5000]
    assert len(more) > 0.8 * len(failed) > 40  # with 1000 labels most of them pass
    passed = [found(number + value).tau_p is not None for value in more]
    assert 0.25 < np.mean(passed) < 0.9


def test_a_pool_of_few_samples_does_not_say_how_many_labels_are_selected() -> None:
    rank = np.arange(300) / 300
    labels = held_out(1 - rank / 2, rank, np.zeros(300, dtype=bool))
    found = choose(labels, pool=held_out(1 - rank[:30] / 2, rank[:30], np.zeros(30, dtype=bool)))
    assert found.more_labels == 59 * 300 / 30 - 300  # 30 of 300 are as sure as these


def test_more_labels_are_counted_in_samples_of_which_a_part_is_selected() -> None:
    # The first test is made of 93 of 500 samples, two of them wrong; what it needs are so many that are selected.
    confidence = np.linspace(1, 0.5, 500)
    found = choose(held_out(confidence, None, np.isin(np.arange(500), [3, 50])))
    assert found.tau_p is None
    error = beta.median(2.5, 91.5)

    def passes(number: int) -> bool:
        allowed = max((w for w in range(number) if binom.cdf(w, number, 0.05) <= 0.05), default=-1)
        return allowed >= 0 and binom.cdf(allowed, number, error) >= 0.5

    needed = next(number for number in range(1, 999) if passes(number))
    assert found.more_labels == math.ceil(needed / (93 / 500)) - 500 > 300


def test_more_labels_move_the_first_test_to_the_least_coverage() -> None:
    # Of 385 the first test is made of 93, two of them wrong; of 465 the surest 93 have none.
    rank = np.arange(385) / 385
    assert choose(held_out(1 - rank / 2, rank, np.isin(np.arange(385), [80, 90]))).more_labels == 465 - 385


def test_labels_that_are_wrong_where_they_are_least_sure_need_few_more() -> None:
    # Of 50 the least sure fifth is wrong; of 74 the surest 59 are right.
    rank = np.arange(50) / 50
    assert choose(held_out(1 - rank / 2, rank, rank >= 0.8)).more_labels == 24


def test_no_number_of_labels_helps_where_the_surest_are_wrong_too_often() -> None:
    wrong = np.arange(500) % 10 == 0
    found = choose(held_out(np.linspace(1, 0.5, 500), None, wrong))
    assert (found.tau_p, found.more_labels) == (None, None)
    assert "More samples would not help" in str(found)


def test_results_print_as_a_sentence() -> None:
    found = Thresholds(0.75, 0.05, 531, 12, 1000, 0.05, 0.1, 0)
    assert str(found) == (
        "tau_p=0.75 and kappa_p=0.05 select 531 of 1000 held-out samples (53.1%), 12 of them wrong (2.26%): an error "
        "below 0.05 with probability 0.9."
    )
    missing = Thresholds(None, None, 0, 0, 40, 0.05, 0.1, 120)
    assert str(missing) == (
        "With 40 held-out samples, no thresholds can promise an error below 0.05 with probability 0.9. About 120 more "
        "would be enough, if the share of wrong labels stays as it is."
    )


GOOD = {"p": np.array([[0.9, 0.1]]), "u": np.array([[0.1, 0.1]]), "y": np.array([0])}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"p": np.array([[1.9, 0.1]])}, "'p' argument must hold probabilities"),
        ({"u": np.array([[-1.0, 0.1]])}, "'u' argument must hold uncertainties"),
        ({"u": np.array([[0.1]])}, r"one shape: 'p' has \(1, 2\), 'u' has \(1, 1\)"),
        ({"y": torch.tensor([0])}, "one kind and on one device"),
        ({"y": np.array([0.0])}, r"'y' argument must hold one class index per sample.*Got float64 of shape \(1,\)"),
        (
            {"y": np.array([0, 1])},
            r"must hold one class index.*in shape \(1,\).*Got int64 of shape \(2,\)",
        ),
        ({"y": np.array([-1])}, "'y' argument must hold values from 0 to 1. Got values from -1 to -1.*leave out"),
        ({"y": np.array([2])}, "'y' argument must hold values from 0 to 1. Got values from 2 to 2"),
        ({"task": "multi"}, r"'y' argument must hold 0 or 1 per sample and class, in shape \(1, 2\)"),
        (
            {"task": "multi", "y": np.array([[0, 2]])},
            "'y' argument must hold values from 0 to 1. Got values from 0 to 2",
        ),
        ({"task": "many"}, "'task' argument must be one of 'single'"),
        ({"gamma": 1.0}, r"'gamma' argument must be a number in \(0, 1\)"),
        ({"max_error": 0.0}, r"'max_error' argument must be a number in \(0, 1\). Got 0.0"),
        ({"delta": 1.0}, r"'delta' argument must be a number in \(0, 1\). Got 1.0"),
        ({"min_coverage": 0.0}, r"'min_coverage' argument must be a number in \(0, 1\]. Got 0.0"),
        ({"pool": np.ones((3, 2))}, r"'pool' argument must be a pair \(p, u\). Got ndarray"),
        ({"pool": (np.array([[0.9, 0.1]]),)}, r"'pool' argument must be a pair \(p, u\). Got tuple"),
        (
            {"pool": (np.full((1, 3), 1 / 3), np.ones((1, 3)))},
            "'pool' .* the classes of 'p'. Got 3 and 2",
        ),
        ({"pool": (np.full((2, 2), 0.5), np.ones((1, 2)))}, r"one shape: 'p' has \(2, 2\), 'u' has \(1, 2\)"),
        ({"pool": (np.full((2, 2), 0.5), -np.ones((2, 2)))}, "'pool' argument must hold uncertainties"),
    ],
)
def test_bad_input_is_named(changes, message) -> None:
    with pytest.raises(InvalidInputError, match=message):
        sl.thresholds(**(GOOD | changes))
