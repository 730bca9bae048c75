import math
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import KINDS, LOW_PRECISION, masks, neighbors, probabilities, shapes, uncertainties

from surelabel.core import arrays
from surelabel.core.labels import pseudo_labels
from surelabel.core.selection import Selection, balance, select
from surelabel.errors import InvalidInputError

DTYPES = [torch.float32, torch.float64, *LOW_PRECISION]
P = np.array([[0.90, 0.06, 0.04], [0.70, 0.25, 0.05], [0.34, 0.33, 0.33], [0.05, 0.05, 0.90]])
U = np.array([[0.05, 0.005, 0.005], [0.06, 0.001, 0.001], [0.01, 0.01, 0.01], [0.005, 0.006, 0.01]])


def _reference_select(p, u, tau_p, tau_n, kappa_p, kappa_n, task, gamma, p_soft, u_soft):
    """Equation 5, entry by entry."""

    def rounded(array, value):
        return float(array.dtype.type(value))

    positive, negative = [], []
    for i, row in enumerate(p.tolist()):
        top = row.index(max(row))
        label = [v >= rounded(p, gamma) if task == "multi" else c == top for c, v in enumerate(row)]
        certain = [v <= rounded(u, kappa_p) for v in u[i].tolist()]
        certain_soft = [v <= rounded(u_soft, kappa_n) for v in u_soft[i].tolist()]
        positive.append([bool(label[c] and row[c] >= rounded(p, tau_p) and certain[c]) for c in range(len(row))])
        low = [v <= rounded(p_soft, tau_n) for v in p_soft[i].tolist()]
        negative.append([bool(not label[c] and low[c] and certain_soft[c]) for c in range(len(row))])
    return positive, negative


def _reference_balance(positive, u, floor, shares=None):
    """The balance rule, class by class."""
    num_rows, num_classes = positive.shape
    counts = [sum(positive[:, c].tolist()) for c in range(num_classes)]
    shares = [1.0] * num_classes if shares is None else shares
    scale = min(counts[c] / shares[c] for c in range(num_classes))
    kept = [[False] * num_classes for _ in range(num_rows)]
    for c in range(num_classes):
        members = sorted((float(u[i, c]), i) for i in range(num_rows) if positive[i, c])
        for _, i in members[: max(floor, math.floor(scale * shares[c]))]:
            kept[i][c] = True
    return kept


@pytest.mark.parametrize("kind", KINDS)
def test_select_by_hand(kind):
    s = select(KINDS[kind](P), KINDS[kind](U))
    # Row 0: confident and certain. Row 1: certain enough nowhere. Row 2: not confident. Row 3: a positive.
    assert s.positive.tolist() == [[True, False, False], [False] * 3, [False] * 3, [False, False, True]]
    # Row 3, class 1 has p = tau_n, but u = 0.006 > kappa_n.
    assert s.negative.tolist() == [
        [False, False, True],
        [False, False, True],
        [False] * 3,
        [True, False, False],
    ]


def test_negatives_come_from_the_softened_pass_and_labels_from_the_plain_one():
    p, u = [[0.9, 0.02, 0.08]], [[0.0, 0.0, 0.0]]
    s = select(p, u, p_soft=[[0.04, 0.2, 0.05]], u_soft=[[0.0, 0.0, 0.0]])
    assert s.positive.tolist() == [[True, False, False]]
    assert s.negative.tolist() == [[False, False, True]]
    uncertain = select(p, u, p_soft=[[0.9, 0.05, 0.05]], u_soft=[[0.0, 0.006, 0.005]])
    assert uncertain.negative.tolist() == [[False, False, True]]


def test_multi_label_select_by_hand():
    p = [[0.9, 0.6, 0.5, 0.45, 0.05, 0.04]]
    u = [[0.05, 0.05, 0.01, 0.001, 0.005, 0.006]]
    s = select(p, u, tau_p=0.6, task="multi")
    assert s.positive.tolist() == [[True, True, False, False, False, False]]
    assert s.negative.tolist() == [[False, False, False, False, True, False]]
    assert select(p, u, tau_p=0.2, tau_n=0.2, task="multi", gamma=0.55).positive.tolist() == [
        [True, True, False, False, False, False]
    ]


@given(data=st.data(), shape=shapes(), task=st.sampled_from(["single", "multi"]), soft=st.booleans())
def test_select_agrees_with_plain_loops_for_numpy_and_torch(data, shape, task, soft):
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    p, p_soft = (data.draw(probabilities(shape, dtype)) for _ in range(2))
    u, u_soft = (data.draw(uncertainties(shape, dtype)) for _ in range(2))
    tau_n, tau_p = sorted(data.draw(st.tuples(*[st.integers(0, 20).map(lambda k: k / 20)] * 2)))
    kappa_p, kappa_n = data.draw(st.tuples(*[st.sampled_from([0, 0.01, 0.05, 0.1, math.inf])] * 2))
    gamma = data.draw(st.sampled_from([0.3, 0.5, 0.9]))
    settings = (tau_p, tau_n, kappa_p, kappa_n, task, gamma)
    extra = (p_soft, u_soft) if soft else (None, None)
    expected = _reference_select(p, u, *settings, *((p_soft, u_soft) if soft else (p, u)))
    for kind in KINDS.values():
        s = select(kind(p), kind(u), *settings, *(None if a is None else kind(a) for a in extra))
        assert (s.positive.tolist(), s.negative.tolist()) == expected


@given(data=st.data(), shape=shapes(), task=st.sampled_from(["single", "multi"]))
def test_selected_labels_are_consistent_and_grow_with_looser_thresholds(data, shape, task):
    p, u = data.draw(probabilities(shape)), data.draw(uncertainties(shape))
    label = pseudo_labels(p, task)
    tight = select(p, u, 0.7, 0.05, 0.05, 0.005, task)
    loose = select(p, u, 0.6, 0.1, 0.1, 0.05, task)
    assert not (tight.positive & ~label).any()
    assert not (tight.negative & label).any()
    assert not (tight.positive & ~loose.positive).any()
    assert not (tight.negative & ~loose.negative).any()


@pytest.mark.parametrize("kind", KINDS)
def test_infinite_kappas_are_selection_by_confidence_with_or_without_u(kind):
    p, u = KINDS[kind](P), KINDS[kind](U + 9)
    without = select(p, None, kappa_p=math.inf, kappa_n=math.inf)
    given_u = select(p, u, kappa_p=math.inf, kappa_n=math.inf)
    assert without.positive.tolist() == given_u.positive.tolist() == (pseudo_labels(P) & (P >= 0.7)).tolist()
    assert without.negative.tolist() == given_u.negative.tolist() == (~pseudo_labels(P) & (P <= 0.05)).tolist()
    assert select(p, None, kappa_p=math.inf, u_soft=KINDS[kind](U)).negative.tolist() == [
        [False, False, True],
        [False, False, True],
        [False, False, False],
        [True, False, False],
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_thresholds_are_rounded_to_the_dtype_they_meet_and_included(dtype):
    one_row_each = [torch.stack(neighbors(t, dtype)).reshape(3, 1) for t in (0.7, 0.05, 0.05, 0.005)]
    at_tau_p, at_kappa_p, at_tau_n, at_kappa_n = one_row_each
    zero = torch.zeros(3, 1, dtype=dtype)
    kinds = [lambda a: a] + ([] if dtype is torch.bfloat16 else [lambda a: a.numpy()])
    for kind in kinds:

        def selected(p, u, kind=kind):
            s = select(kind(p), kind(u), tau_p=0.7, tau_n=0.05, kappa_p=0.05, kappa_n=0.005)
            return s.positive[:, 0].tolist(), s.negative[:, 1].tolist()

        high = torch.full((3, 1), 0.875, dtype=dtype)
        assert selected(torch.cat([at_tau_p, zero], 1), torch.cat([zero, zero], 1))[0] == [False, True, True]
        assert selected(torch.cat([high, zero], 1), torch.cat([at_kappa_p, zero], 1))[0] == [
            True,
            True,
            False,
        ]
        assert selected(torch.cat([high, at_tau_n], 1), torch.cat([zero, zero], 1))[1] == [True, True, False]
        assert selected(torch.cat([high, zero], 1), torch.cat([zero, at_kappa_n], 1))[1] == [
            True,
            True,
            False,
        ]


def test_thresholds_given_as_numpy_numbers_are_rounded_too():
    p, u = np.array([[0.7, 0.05]], np.float32), np.array([[0.05, 0.005]], np.float32)
    settings = {"tau_p": np.float64(0.7), "tau_n": np.float64(0.05)}
    s = select(p, u, **settings, kappa_p=np.float64(0.05), kappa_n=np.float64(0.005))
    assert float(p[0, 0]) < 0.7
    assert s.positive.tolist() == [[True, False]]


def test_p_and_u_may_have_different_dtypes():
    u = torch.tensor([[0.05, 0.005]], dtype=torch.bfloat16)
    s = select(torch.tensor([[0.7, 0.05]], dtype=torch.float64), u)
    assert (s.positive.tolist(), s.negative.tolist()) == ([[True, False]], [[False, True]])


def test_a_kappa_beyond_the_range_of_float16_selects_all():
    p, u = np.array([[0.9, 0.0]], np.float16), np.array([[6e4, 6e4]], np.float16)
    s = select(p, u, kappa_p=1e6, kappa_n=1e6)
    assert (s.positive.tolist(), s.negative.tolist()) == ([[True, False]], [[False, True]])


def test_rows_are_selected_alike_whatever_block_they_fall_into(monkeypatch):
    rng = np.random.default_rng(0)
    p, u = rng.random((1000, 7)), rng.random((1000, 7)) * 0.1
    whole = select(p, u)
    assert len(arrays.row_blocks(p)) == 1
    monkeypatch.setattr("surelabel.core.selection.row_blocks", lambda array: arrays.row_blocks(array, 100))
    assert len(arrays.row_blocks(p, 100)) == 72
    blocked = select(p, u)
    assert (blocked.positive == whole.positive).all()
    assert (blocked.negative == whole.negative).all()


@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_selections(kind):
    zero, one_class = KINDS[kind](np.zeros((3, 2))), KINDS[kind](np.tile([0.9, 0.1], (3, 1)))
    nothing = select(KINDS[kind](np.full((3, 2), 0.5)), zero)
    assert not nothing.positive.any()
    assert not nothing.negative.any()
    one = select(one_class, zero)
    assert one.positive.tolist() == [[True, False]] * 3
    assert not one.negative.any()
    everything = select(one_class, zero, tau_p=0.5, tau_n=0.5)
    assert (everything.positive ^ everything.negative).all()
    assert balance(nothing, zero).positive.tolist() == [[False, False]] * 3
    assert balance(one, zero).positive.tolist() == [[True, False]] * 3
    assert balance(one, zero, floor=0).positive.tolist() == [[False, False]] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_balance_by_hand(kind):
    positive = np.array([[1, 0], [1, 0], [0, 1], [1, 0], [1, 0], [0, 1]]) == 1
    negative = ~positive
    u = np.array([[0.02, 9], [0.01, 9], [9, 0.03], [0.02, 9], [0.04, 9], [9, 0.01]])
    s = Selection(KINDS[kind](positive), KINDS[kind](negative))
    kept = balance(s, KINDS[kind](u), floor=0)
    # Class 1 has two; of class 0 the most certain (row 1) and, of the tie at 0.02, the lower row stay.
    assert kept.positive.tolist() == [
        [True, False],
        [True, False],
        [False, True],
        [False] * 2,
        [False] * 2,
        [False, True],
    ]
    assert kept.negative is s.negative
    assert balance(s, KINDS[kind](u), floor=3).positive[:, 0].tolist() == [
        True,
        True,
        False,
        True,
        False,
        False,
    ]
    assert balance(s, KINDS[kind](u)).positive.tolist() == positive.tolist()
    assert s.positive.tolist() == positive.tolist()


@given(data=st.data(), shape=shapes(), floor=st.integers(0, 6))
def test_balance_agrees_with_plain_loops_for_numpy_and_torch(data, shape, floor):
    positive, u = data.draw(masks(shape)), data.draw(uncertainties(shape))
    expected = _reference_balance(positive, u, floor)
    equal = np.full(shape[1], 1 / shape[1])
    for kind in KINDS.values():
        s = Selection(kind(positive), kind(~positive))
        assert balance(s, kind(u), floor).positive.tolist() == expected
        assert balance(s, kind(u), floor, shares=kind(equal)).positive.tolist() == expected


@given(data=st.data(), shape=shapes(), floor=st.integers(0, 6))
def test_balance_keeps_the_most_certain_of_each_class_and_is_idempotent(data, shape, floor):
    positive, u = data.draw(masks(shape)), data.draw(uncertainties(shape))
    kept = balance(Selection(positive, ~positive), u, floor).positive
    count = positive.sum(axis=0)
    assert (kept.sum(axis=0) == np.minimum(count, max(floor, count.min()))).all()
    assert not (kept & ~positive).any()
    for c in range(shape[1]):
        dropped = positive[:, c] & ~kept[:, c]
        if dropped.any() and kept[:, c].any():
            assert u[dropped, c].min() >= u[kept[:, c], c].max()
    assert (balance(Selection(kept, ~positive), u, floor).positive == kept).all()


@given(
    data=st.data(),
    floor=st.integers(0, 4),
    eighths=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=3, max_size=3),
)
def test_balance_by_shares_agrees_with_plain_loops(data, floor, eighths):
    positive, u = data.draw(masks((12, 3))), data.draw(uncertainties((12, 3)))
    shares = [k / 8 for k in eighths]
    expected = _reference_balance(positive, u, floor, shares)
    for kind in KINDS.values():
        s = Selection(kind(positive), kind(~positive))
        assert balance(s, kind(u), floor, kind(np.array(shares))).positive.tolist() == expected


def test_balance_by_shares_keeps_the_prior_and_never_loses_one_to_rounding():
    counts, shares = np.array([30, 100, 49]), np.array([0.1, 0.2, 0.7])
    classes = np.repeat(np.arange(3), counts)
    positive = classes[:, None] == np.arange(3)
    kept = balance(Selection(positive, ~positive), np.zeros(positive.shape), 0, shares).positive
    # 49 / 0.7 = 70 sets the scale: 7, 14 and 49.
    assert kept.sum(axis=0).tolist() == [7, 14, 49]
    with_zero = balance(Selection(positive, ~positive), np.zeros(positive.shape), 5, [0.5, 0.5, 0.0]).positive
    assert with_zero.sum(axis=0).tolist() == [30, 30, 5]
    for count, share in ((8, 0.09), (30, 0.43), (57, 0.11)):
        assert count / share * share < count  # in float64: a plain floor would keep one too few
        all_of_first = np.tile([True, False], (count, 1))
        s = Selection(all_of_first, ~all_of_first)
        kept = balance(s, np.zeros((count, 2)), 0, [share, 0.0]).positive
        assert (kept == all_of_first).all()


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_low_precision_uncertainties_are_ranked_with_ties_to_the_lower_row(dtype):
    positive = torch.tensor([[True, False], [True, False], [True, False], [False, True]])
    u = torch.tensor([[0.25, 0], [0.125, 0], [0.125, 0], [0, 0.5]], dtype=dtype)
    kept = balance(Selection(positive, ~positive), u, floor=0).positive
    assert kept.tolist() == [[False, False], [True, False], [False, False], [False, True]]


def test_results_keep_the_kind_and_carry_no_gradient():
    p = torch.tensor(P, requires_grad=True)
    s = select(p, torch.tensor(U, requires_grad=True))
    kept = balance(s, torch.tensor(U, requires_grad=True))
    for mask in (*s, *kept):
        assert isinstance(mask, torch.Tensor)
        assert (mask.dtype, mask.shape, mask.requires_grad) == (torch.bool, p.shape, False)


NAN = float("nan")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"p": [[0.5, 1.5]]}, "'p' argument must hold probabilities.*1.5"),
        ({"p": [[NAN, 0.5]]}, "'p' argument must hold probabilities.*nan"),
        ({"p": np.empty((0, 2))}, "'p' argument must not be empty"),
        ({"u": [[-0.1, 0.5]]}, "'u' argument must hold uncertainties of at least 0.*-0.1"),
        ({"u": [[0.1, NAN]]}, "'u' argument must hold uncertainties.*nan"),
        ({"u": [[0.1, 0.1, 0.1]]}, r"one shape: 'p' has \(1, 2\), 'u' has \(1, 3\)"),
        ({"p_soft": [[0.5, -1.0]]}, "'p_soft' argument must hold probabilities"),
        ({"p_soft": [[0.5]]}, r"'p_soft' has \(1, 1\)"),
        ({"u_soft": [[0.5, -1.0]]}, "'u_soft' argument must hold uncertainties"),
        ({"u_soft": [[0.5]]}, r"'u_soft' has \(1, 1\)"),
        (
            {"u": None},
            "'u' argument must be given while 'kappa_p' is finite.*or kappa_p=math.inf",
        ),
        ({"u": None, "kappa_p": math.inf}, "'u_soft' argument must be given while 'kappa_n' is finite"),
        ({"tau_p": 0.3, "tau_n": 0.4}, "'tau_n' argument must not be above 'tau_p'.*tau_n=0.4 and tau_p=0.3"),
        ({"tau_p": NAN}, r"'tau_p' argument must be a number in \[0, 1\].*nan"),
        ({"tau_p": 1.1}, r"'tau_p' argument must be a number in \[0, 1\].*1.1"),
        ({"tau_n": -0.1}, r"'tau_n' argument must be a number in \[0, 1\].*-0.1"),
        ({"kappa_p": -1}, r"'kappa_p' argument must be a number in \[0, inf\].*-1"),
        ({"kappa_n": NAN}, r"'kappa_n' argument must be a number in \[0, inf\].*nan"),
        ({"gamma": 1}, r"'gamma' argument must be a number in \(0, 1\)"),
        ({"task": "many"}, "'task' argument must be one of 'single', 'multi'.*'many'"),
    ],
)
def test_bad_input_to_select_is_named(kind, changes, message):
    arguments = {"p": [[0.9, 0.1]], "u": [[0.0, 0.0]]} | changes
    for name in ("p", "u", "p_soft", "u_soft"):
        if arguments.get(name) is not None:
            arguments[name] = KINDS[kind](np.array(arguments[name]))
    with pytest.raises(InvalidInputError, match=message):
        select(**arguments)


def test_kinds_that_differ_are_named():
    with pytest.raises(ValueError, match="one kind and on one device: 'p' is a numpy array, 'u' is a torch tensor"):
        select(P, torch.from_numpy(U))
    s = select(P, U)
    with pytest.raises(ValueError, match="'u' is a torch tensor on cpu"):
        balance(s, torch.from_numpy(U))
    with pytest.raises(ValueError, match="'shares' is a torch tensor on cpu"):
        balance(s, U, shares=torch.ones(3))
    with pytest.raises(ValueError, match="'p' is a torch tensor on cpu, 'u' is a torch tensor on meta"):
        arrays.namespace(p=torch.ones(1), u=torch.ones(1, device="meta"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"u": None}, "'u' argument must hold uncertainties.*Got None instead; pass 1 - p"),
        ({"u": U - 1}, "'u' argument must hold uncertainties of at least 0"),
        ({"u": U[:, :2]}, r"one shape: 'positive' has \(4, 3\).*'u' has \(4, 2\)"),
        ({"floor": -1}, "'floor' argument must be a whole number of at least 0. Got -1"),
        ({"floor": 2.5}, "'floor' argument must be a whole number of at least 0. Got 2.5"),
        ({"shares": [0.5, 0.5]}, r"'shares' argument must have shape \(3,\).*\(2,\)"),
        ({"shares": [0.5, 0.6, -0.1]}, "'shares' argument must hold finite numbers of at least 0.*-0.1"),
        ({"shares": [0, 0, 0]}, "'shares' argument must hold.*one of them above 0"),
        ({"shares": [1.0, NAN, 1.0]}, "'shares' argument must hold finite"),
        ({"s": Selection(P, P)}, "'s.positive' argument must be boolean.*float64"),
        ({"s": Selection(P > 0.5, P)}, "'s.negative' argument must be boolean.*float64"),
        ({"s": Selection(P > 0.5, P[:2] > 0.5)}, r"'negative' has \(2, 3\)"),
        ({"s": Selection(P[:0] > 0.5, P[:0] > 0.5)}, "'s.positive' argument must not be empty"),
    ],
)
def test_bad_input_to_balance_is_named(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        balance(**({"s": select(P, U), "u": U} | changes))


def test_a_pair_of_masks_is_balanced_and_anything_else_is_named() -> None:
    positive = np.array([[True, False]])
    assert balance((positive, ~positive), np.zeros((1, 2))).positive.tolist() == [[True, False]]
    with pytest.raises(ValueError, match=r"must be a Selection\(positive, negative\). Got NoneType"):
        balance(None, np.zeros((1, 2)))


def test_thresholds_may_be_scalars_of_numpy_and_torch() -> None:
    p, u = np.array([[0.8, 0.2]]), np.zeros((1, 2))
    for tau_p in (np.float32(0.75), np.array(0.75), torch.tensor(0.75)):
        assert select(p, u, tau_p=tau_p).positive.tolist() == [[True, False]]


def _peak_bytes(function) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("task", ["single", "multi"])
def test_labeling_and_selecting_allocate_less_than_half_of_p_and_u(task, soft):
    rng = np.random.default_rng(0)
    p, u, p_soft, u_soft = (rng.random((20_000, 100), dtype=np.float32) for _ in range(4))
    extra = {"p_soft": p_soft, "u_soft": u_soft} if soft else {}
    # The two masks that come back are a quarter.
    assert p.size * 2 <= _peak_bytes(lambda: select(p, u, task=task, **extra)) <= (p.nbytes + u.nbytes) // 2
    assert p.size <= _peak_bytes(lambda: pseudo_labels(p, task)) <= (p.nbytes + u.nbytes) // 2


def test_balancing_one_label_a_row_allocates_less_than_half_of_p_and_u():
    rng = np.random.default_rng(0)
    p, u = (rng.random((20_000, 100), dtype=np.float32) for _ in range(2))
    s = select(p, u, tau_p=0.05, kappa_p=math.inf)
    assert s.positive.sum() == len(p)
    assert p.size <= _peak_bytes(lambda: balance(s, u)) <= (p.nbytes + u.nbytes) // 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_value_is_named_with_its_array_in_whichever_block_it_is(kind):
    good, u = np.full((300_000, 2), 0.5), np.zeros((300_000, 2))
    early, late = good.copy(), good.copy()
    early[0, 0], late[-1, 0], late[-2, 1] = 7.0, 3.0, -2.0
    with pytest.raises(InvalidInputError, match=r"'p' argument must hold probabilities.*values from -2\.0 to 3\.0"):
        select(KINDS[kind](late), KINDS[kind](u), p_soft=KINDS[kind](good))
    with pytest.raises(InvalidInputError, match=r"'p_soft' argument must hold probabilities.*values from 0\.5 to 7\.0"):
        select(KINDS[kind](good), KINDS[kind](u), p_soft=KINDS[kind](early))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", ["single", "multi"])
def test_nan_in_a_late_row_is_found(kind, task):
    p, u = np.full((300_000, 2), 0.5), np.zeros((300_000, 2))
    u[-1, 1] = NAN
    with pytest.raises(InvalidInputError, match="'u' argument must hold uncertainties of at least 0, without NaN"):
        select(KINDS[kind](p), KINDS[kind](u), task=task)
