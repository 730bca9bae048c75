"""The loss of each method, beside a reference that is written row by row from the equations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from method_support import (
    ALIKE,
    AUGMENT,
    CLASSES,
    FEW,
    LABELED,
    MATCHING,
    NAMES,
    POOL,
    PROGRESS,
    SEVERAL_LABELS,
    batch,
    make,
    network,
    samples,
    training_set,
)
from torch import Tensor, nn

from surelabel.augment.chain import Augment
from surelabel.augment.mixup import mixup_coefficients
from surelabel.augment.settings import AugmentSettings
from surelabel.core.labels import Task
from surelabel.data.training_set import make_problem
from surelabel.engine.method import Batch
from surelabel.methods.consistency import averaging_share, without_negatives

WEIGHTS = {"pi-model": (10, 10), "mean-teacher": (50, 5), "ict": (100, 10), "mixmatch": (75, 7.5)}
"""Of the part without labels, where none is given: for pictures and for tables; 1 for the others."""


class Reference:
    """One row after another, from the equations."""

    def __init__(
        self, method: Any, given: Batch, student: nn.Module, teacher: nn.Module, task: Task, weight: float
    ) -> None:
        self.method, self.batch, self.student, self.teacher, self.task = method, given, student, teacher, task
        self.known, self.pool = range(LABELED), range(LABELED, LABELED + POOL)
        self.draws, self.weight = given.draws, weight
        self.used: list[float] = []  # how much each label of the pool counts, apart from the ramp
        self.entries = 0  # of the pool that MixMatch learns

    @property
    def strong_is_stronger(self) -> bool:
        return self.method.settings.augment == AUGMENT

    def view(self, strong: bool, name: str) -> Tensor:
        augment = self.method.settings.augment
        if augment is None:
            return self.batch.samples
        weak = AugmentSettings(flip=True, crop=1, mean=augment.mean, std=augment.std)
        return Augment(augment if strong else weak)(self.batch.samples, self.draws.named(name))

    def p(self, by: nn.Module, x: Tensor) -> Tensor:
        logits = by(x[None])[0]
        return torch.sigmoid(logits) if self.task == "multi" else torch.exp(logits) / torch.exp(logits).sum()

    def entropy(self, wanted: Tensor, p: Tensor, known: Tensor) -> list[Tensor]:
        """One value; none where nothing is known of a row."""
        if self.task == "single":
            return [-(wanted * p.log()).sum()]
        entries = [-(wanted[c] * p[c].log() + (1 - wanted[c]) * (1 - p[c]).log()) for c in range(CLASSES) if known[c]]
        return [torch.stack(entries).mean()] if entries else []

    def replaced(self, row: int, q: Tensor) -> Tensor:
        """What was selected in place of an answer, one class after another."""
        y, g = self.batch.y[row], self.batch.g[row]
        if self.task == "multi":
            return torch.stack([y[c].float() if g[c] else q[c] for c in range(CLASSES)])
        if any(y[c] and g[c] for c in range(CLASSES)):
            return (y & g).float()
        if all(g):
            return q
        left = torch.stack([q[c] * 0 if g[c] else q[c] for c in range(CLASSES)])
        return left / left.sum()

    def squares(self, first: Tensor, second: Tensor) -> Tensor:
        return sum(((first[c] - second[c]) ** 2 for c in range(CLASSES)), start=torch.tensor(0.0)) / CLASSES

    def sigmoid_ramp(self) -> float:
        return math.exp(-5 * (1 - PROGRESS / self.method.ramp) ** 2) if self.method.ramp else 1.0

    def labeled(self, view: Tensor) -> Tensor:
        losses: list[Tensor] = []
        for row in self.known:
            losses += self.entropy(self.batch.y[row].float(), self.p(self.student, view[row]), self.batch.g[row])
        return torch.stack(losses).mean()

    def agreement(self, first: Tensor, answers: Callable[[int], Tensor]) -> Tensor:
        terms = []
        for row in (*self.known, *self.pool):
            q = answers(row)
            wanted = self.replaced(row, q) if row in self.pool else q
            terms.append(self.squares(self.p(self.student, first[row]), wanted))
        return self.labeled(first) + self.weight * self.sigmoid_ramp() * torch.stack(terms).mean()

    def pi_model(self) -> Tensor:
        second = self.view(False, "second")
        return self.agreement(self.view(False, "first"), lambda row: self.p(self.student, second[row]))

    def mean_teacher(self) -> Tensor:
        second = self.view(False, "second")
        return self.agreement(self.view(False, "first"), lambda row: self.p(self.teacher, second[row]).detach())

    def ict(self) -> Tensor:
        view, labeled, unlabeled = self.view(False, "weak"), [], []
        shares = mixup_coefficients(self.draws, self.method.alpha)
        for rows, terms in ((self.known, labeled), (self.pool, unlabeled)):
            for row in rows:
                other, share = (row + 1 if row + 1 in rows else rows[0]), shares[row]
                p = self.p(self.student, share * view[row] + (1 - share) * view[other])
                if rows is self.known:
                    y = share * self.batch.y[row].float() + (1 - share) * self.batch.y[other].float()
                    terms += self.entropy(y, p, self.batch.g[row] & self.batch.g[other])
                else:
                    mine, its = (self.replaced(one, self.p(self.teacher, view[one]).detach()) for one in (row, other))
                    terms.append(self.squares(p, share * mine + (1 - share) * its))
        weight = self.weight * self.sigmoid_ramp()
        return torch.stack(labeled).mean() + weight * torch.stack(unlabeled).mean()

    def mixmatch(self) -> Tensor:
        views = [self.view(False, name) for name in ("first", "second")]
        everything = [(views[0][row], self.batch.y[row].float(), self.batch.g[row]) for row in self.known]
        guessed = torch.ones(CLASSES, dtype=torch.bool)
        guesses = {}
        for row in self.pool:
            q = (self.p(self.student, views[0][row]) + self.p(self.student, views[1][row])).detach() / 2
            if self.task == "single":
                q = q ** (1 / self.method.temperature)
                q = q / q.sum()
            guesses[row] = self.replaced(row, q)
        everything += [(view[row], guesses[row], guessed) for view in views for row in self.pool]
        parts = [self.draws.rows(slice(0, LABELED))]
        parts += [self.draws.rows(slice(LABELED, None)).named(name) for name in ("first", "second")]
        bits = [bit for part in parts for bit in part.bits("partner").tolist()]
        shares = [share for part in parts for share in mixup_coefficients(part, self.method.alpha)]
        order = sorted(range(len(bits)), key=lambda place: bits[place])
        labeled: list[Tensor] = []
        unlabeled: list[Tensor] = []
        for place, (x, y, g) in enumerate(everything):
            other_x, other_y, other_g = everything[order[place]]
            share = max(shares[place], 1 - shares[place])
            p = self.p(self.student, share * x + (1 - share) * other_x)
            wanted = share * y + (1 - share) * other_y
            if place < LABELED:
                labeled += self.entropy(wanted, p, g & other_g)
            else:
                unlabeled += [(p[c] - wanted[c]) ** 2 for c in range(CLASSES) if g[c] and other_g[c]]
        self.entries = len(unlabeled)
        weight = self.weight * min(PROGRESS / self.method.ramp, 1)
        return torch.stack(labeled).mean() + weight * torch.stack(unlabeled).mean()

    def matching(self, judged: Callable[[list[Tensor]], list[float]]) -> Tensor:
        weak, strong = self.view(False, "weak"), self.view(True, "strong")
        by = self.student if self.strong_is_stronger else self.teacher
        answers = []
        for row in self.pool:
            q = self.p(by, weak[row]).detach()
            positive = (self.batch.y[row] & self.batch.g[row]).any()
            answers.append(q if positive else self.replaced(row, q))
        shares = judged(answers)
        terms, self.taken = [], []
        for row, q, share in zip(self.pool, answers, shares, strict=True):
            positive = (self.batch.y[row] & self.batch.g[row]).tolist()
            label = positive.index(True) if any(positive) else int(q.argmax())
            p = self.p(self.student, strong[row])
            terms.append(-(1.0 if any(positive) else self.sigmoid_ramp() * share) * p[label].log())
            self.taken.append((label, 1.0 if any(positive) else share, p))
        self.used = [share for _, share, _ in self.taken]
        fairness = self.sigmoid_ramp() * self.fairness()
        return self.labeled(weak) + self.weight * (torch.stack(terms).mean() + fairness)

    def fairness(self) -> Tensor:
        return torch.tensor(0.0)

    def fixmatch(self) -> Tensor:
        return self.matching(lambda answers: [float(max(q) >= self.method.threshold) for q in answers])

    def flexmatch(self) -> Tensor:
        """In a state in which three samples were sure once: two of class 0, one of class 1, and three never."""
        least = [self.method.threshold * b / (2 - b) for b in (2 / 3, 1 / 3, 0.0)]
        return self.matching(lambda answers: [float(max(q) >= least[int(q.argmax())]) for q in answers])

    def freematch(self) -> Tensor:
        """In the second step of a round; the averages are then halfway between those of the first and these."""

        def judged(answers: list[Tensor]) -> list[float]:
            t = (0.6 + float(torch.stack([max(q) for q in answers]).mean())) / 2
            self.mean = (torch.tensor([0.5, 0.3, 0.2]) + torch.stack(answers).mean(dim=0)) / 2
            labels = [int(q.argmax()) for q in answers]
            now = torch.tensor([labels.count(c) / POOL for c in range(CLASSES)])
            self.histogram = (torch.tensor([0.25, 0.25, 0.5]) + now) / 2
            return [float(max(q) >= t * self.mean[int(q.argmax())] / max(self.mean)) for q in answers]

        def fairness() -> Tensor:
            taken = [p for _, share, p in self.taken if share]
            if not taken:
                return torch.tensor(0.0)
            mean = torch.stack(taken).mean(dim=0)
            of_class = [sum(int(p.argmax()) == c for p in taken) / len(taken) for c in range(CLASSES)]
            a = torch.stack([self.mean[c] / self.histogram[c] for c in range(CLASSES)])
            b = torch.stack([mean[c] / of_class[c] if of_class[c] else 0 * mean[c] for c in range(CLASSES)])
            return self.method.fairness * (a / a.sum() * (b / b.sum() + 1e-12).log()).sum()

        self.fairness = fairness  # type: ignore[method-assign]
        return self.matching(judged)

    def softmatch(self) -> Tensor:
        def judged(answers: list[Tensor]) -> list[float]:
            classes = (torch.tensor([0.5, 0.3, 0.2]) + torch.stack(answers).mean(dim=0)) / 2
            sure = [float(max(q / classes) / (q / classes).sum()) for q in answers]
            mean = (0.6 + np.mean(sure)) / 2
            variance = (0.04 + np.var(sure, ddof=1)) / 2
            return [math.exp(-(min(c - mean, 0) ** 2) / (2 * variance / 4)) for c in sure]

        return self.matching(judged)

    def teacher_match(self) -> Tensor:
        """In the state of SoftMatch; each label is learned on two views."""
        terms, old = [], torch.tensor([0.5, 0.3, 0.2])
        answers = [self.p(self.teacher, self.view(False, "weak")[row]).detach() for row in self.pool]
        replaced = []
        for row, q in zip(self.pool, answers, strict=True):
            positive = (self.batch.y[row] & self.batch.g[row]).any()
            replaced.append(q if positive else self.replaced(row, q))
        classes = (old + torch.stack(replaced).mean(dim=0)) / 2
        aligned = [(q / classes) / (q / classes).sum() for q in replaced]
        sure = [float(max(q)) for q in aligned]
        mean, variance = (0.6 + np.mean(sure)) / 2, (0.04 + np.var(sure, ddof=1)) / 2
        for name in ("strong 0", "strong 1"):
            strong = self.view(True, name)
            for row, q, c in zip(self.pool, aligned, sure, strict=True):
                positive = (self.batch.y[row] & self.batch.g[row]).tolist()
                label = positive.index(True) if any(positive) else int(q.argmax())
                share = math.exp(-(min(c - mean, 0) ** 2) / (2 * variance / 4))
                self.used.append(1.0 if any(positive) else share)
                share = 1.0 if any(positive) else self.sigmoid_ramp() * share
                terms.append(-share * self.p(self.student, strong[row])[label].log())
        return self.labeled(self.view(False, "weak")) + self.weight * torch.stack(terms).mean()


STATES: dict[str, dict[str, Tensor]] = {
    "flexmatch": {"last": torch.tensor([3, 3, 3, 3, 0, -1, 0, -1, 1, -1])},
    "freematch": {
        "threshold": torch.tensor(0.6),
        "mean": torch.tensor([0.5, 0.3, 0.2]),
        "histogram": torch.tensor([0.25, 0.25, 0.5]),
        "batches": torch.tensor(1.0),
    },
    "softmatch": {
        "classes": torch.tensor([0.5, 0.3, 0.2]),
        "mean": torch.tensor(0.6),
        "variance": torch.tensor(0.04),
        "batches": torch.tensor(1.0),
    },
}
STATES["teacher-match"] = STATES["softmatch"]


@pytest.mark.parametrize("selected", [False, True], ids=["alone", "in a round"])
@pytest.mark.parametrize("augment", [None, AUGMENT, ALIKE], ids=["tables", "pictures", "weak views only"])
@pytest.mark.parametrize(
    ("name", "task"), [*((name, "single") for name in NAMES), *((name, "multi") for name in SEVERAL_LABELS)]
)
def test_the_loss_is_that_of_the_equations(
    name: str, task: Task, augment: AugmentSettings | None, selected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, summed = augment is not None, []
    monkeypatch.setattr("surelabel.methods.mixmatch.over_all", lambda *given: summed.append(given) or given[0])
    loose = {"threshold": 0.7} if name in ("fixmatch", "flexmatch") else {}
    loose |= {"fairness": 0.5} if name == "freematch" else {}
    loose |= {"weight": 3.0} if selected else {}
    weight = 3.0 if selected else WEIGHTS.get(name, (1, 1))[not pictures]
    rows = training_set(task, selected, pictures)
    method = make(name, task, augment, parameters=loose).for_round(rows, shared=False)
    given, values, gradients = batch(method, rows), [], []
    assert set(STATES.get(name, {})) <= set(given.state)
    given.state.update({key: value.clone() for key, value in STATES.get(name, {}).items()})  # type: ignore[attr-defined]
    teacher = network(pictures, 1)
    for by in ("method", "reference"):
        student = network(pictures, 0)
        if by == "method":
            value = method.loss(student, given, teacher if method.teacher else None)
        else:
            reference = Reference(method, given, student, teacher, task, weight)
            value = getattr(reference, name.replace("-", "_"))()
        value.backward()
        values.append(value.detach())
        gradients.append([weights.grad for weights in student.parameters()])
    torch.testing.assert_close(*values, rtol=1e-5, atol=1e-6)
    for mine, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-6)
    assert all(weights.grad is None for weights in teacher.parameters())
    labeled, unlabeled, *used = given.state["parts"].tolist()
    assert labeled > 0
    rise = 1.0 if name in MATCHING else float(method.risen(given.progress))
    assert values[0] == pytest.approx(labeled + weight * rise * unlabeled, rel=1e-5)  # the parts are shown unweighted
    assert used == ([pytest.approx(np.mean(reference.used), rel=1e-5)] if name in MATCHING else [])
    assert [number for _, number in summed] == ([reference.entries] if name == "mixmatch" else [])
    # The Pi-model's two views of a table differ only by the network's noise, and here it has none.
    alike = name == "pi-model" and not (pictures or selected)
    assert (abs(unlabeled) < 1e-12) == alike


@pytest.mark.parametrize("name", MATCHING)
def test_a_selected_positive_counts_fully_however_its_answer_is_judged(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = training_set(selected=True)
    parameters = {"weight": 3.0, **({"fairness": 0.0} if name == "freematch" else {})}
    method = make(name, parameters=parameters).for_round(rows, shared=False)
    monkeypatch.setattr(type(method), "judge", lambda self, q, pool: torch.zeros(len(q)))
    given, student = batch(method, rows), network(False, 0)
    given.state.get("classes", torch.zeros(CLASSES)).fill_(1 / CLASSES)
    loss = method.loss(student, given, network(False, 1))
    labeled, unlabeled, used = given.state["parts"]
    row, its_class = LABELED + 1, 2
    expected = -student(given.samples[row : row + 1]).log_softmax(dim=1)[0, its_class] / POOL
    assert used == pytest.approx(1 / POOL)
    torch.testing.assert_close(unlabeled, expected.detach())
    torch.testing.assert_close(loss.detach(), labeled + 3 * unlabeled)


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_smoothed_and_pictures_laid_out_as_the_settings_say(name: str) -> None:
    method, rows = make(name, augment=FEW, label_smoothing=0.3, channels_last=True), training_set(pictures=True)
    logits, y = torch.randn(LABELED, CLASSES, generator=torch.Generator().manual_seed(0)), torch.arange(LABELED) % 3
    wanted = 0.7 * torch.eye(CLASSES)[y] + 0.1
    expected = -(wanted * logits.log_softmax(dim=1)).sum(dim=1).mean()
    torch.testing.assert_close(method.supervised(logits, torch.eye(CLASSES)[y], torch.ones(4, 3)), expected)
    formats = []

    def network_of(module: nn.Module, x: tuple[Tensor]) -> None:
        formats.append(x[0].is_contiguous(memory_format=torch.channels_last))

    student, teacher = network(True, 0), network(True, 1)
    for one in (student, teacher):
        one.register_forward_pre_hook(network_of)
    method.loss(student, batch(method, rows), teacher if method.teacher else None)
    assert formats
    assert all(formats)


def test_a_label_that_is_as_sure_as_the_threshold_is_taken() -> None:
    method, given = make("fixmatch", parameters={"threshold": 0.75}), batch(make("fixmatch"), training_set())
    answers = torch.tensor([[0.25, 0.75], [0.7499, 0.2501], [0.75, 0.25]])
    assert method.judge(answers, given).tolist() == [1, 0, 1]

    method = make("flexmatch", parameters={"threshold": 0.75})
    given = batch(method, training_set()).stream(1)
    given.state["last"].copy_(torch.tensor([*[CLASSES] * LABELED, 0, 0, 0, 1, -1, -1]))  # so b = 1 for class 0
    answers = torch.tensor([[0.75, 0.25, 0.0], [0.7499, 0.2501, 0.0]])
    assert method.judge(answers, given._replace(rows=torch.tensor([8, 9]))).tolist() == [1, 0]
    assert given.state["last"][8:].tolist() == [0, -1]

    method = make("freematch", parameters={"momentum": 0.0})  # the averages are those of the batch
    answers = torch.tensor([[0.75, 0.25, 0.0]] * 2)
    assert method.judge(answers, batch(method, training_set())).tolist() == [1, 1]


def test_softmatch_judges_a_pool_of_one_sample() -> None:
    method = make("softmatch")
    assert method.judge(torch.tensor([[0.7, 0.2, 0.1]]), batch(method, training_set())).tolist() == [1]


def test_averages_forget_all_but_the_last_batches() -> None:
    state = {"batches": torch.tensor(0.0)}
    towards = [averaging_share(state, 0.9).item() for _ in range(30)]
    assert towards[:3] == pytest.approx([1, 1 / 2, 1 / 3])
    assert towards[9:] == pytest.approx([0.1] * 21)


def test_selected_negatives_leave_the_other_classes_alike_where_the_answer_has_nothing_else() -> None:
    pool = batch(make("fixmatch"), training_set(selected=True)).stream(1)
    answers = torch.tensor([[1.0, 0.0, 0.0]] * POOL)
    assert without_negatives(answers, pool)[2].tolist() == [0, 0.5, 0.5]


def test_losses_are_computed_in_full_precision() -> None:
    method, rows = make("fixmatch"), training_set()
    found = method.logits(
        lambda x: torch.zeros(len(x), CLASSES, dtype=torch.bfloat16), torch.ones(3, 5), batch(method, rows)
    )
    assert found.dtype == torch.float32


def test_weak_views_of_spectrograms_are_not_masked() -> None:
    masked = AugmentSettings(mask_rows=3, mask_columns=3, masks=2, mean=AUGMENT.mean, std=AUGMENT.std)
    method, rows = make("fixmatch", augment=masked), training_set(pictures=True)
    pool = batch(method, rows).stream(1)
    assert torch.equal(method.weak(pool, "one"), Augment(masked).plain(pool.samples))
    assert (method.strong(pool, "one") == 0).any()


def test_freematch_counts_the_strong_views_and_not_their_labels() -> None:
    """Where these differ: all labels are class 0, and the strong views are taken for classes 1 and 2."""
    method, rows = make("freematch", parameters={"fairness": 1.0, "ramp": 0.0}), training_set()
    given = batch(method, rows).stream(1)
    strong = torch.log(torch.tensor([[0.1, 0.8, 0.1]] * 4 + [[0.2, 0.2, 0.6]] * 2))
    label, share = torch.zeros(POOL, dtype=torch.int64), torch.ones(POOL)
    a = given.state["mean"] / given.state["histogram"]
    b = torch.tensor([0.0, (4 * 0.8 + 2 * 0.2) / 4, (4 * 0.1 + 2 * 0.6) / 2])
    cross = -(4 * math.log(0.1) + 2 * math.log(0.2)) / 6
    expected = cross + (a / a.sum() * (b / b.sum() + 1e-12).log()).sum()
    torch.testing.assert_close(method.unlabeled(strong, label, share, given), expected)
    assert method.unlabeled(strong, label, torch.zeros(POOL), given) == 0  # no view counts, and neither do classes


def test_flexmatch_judges_by_the_answers_before_the_step_and_then_takes_in_its_own() -> None:
    """Two samples were last sure of class 0, one each of the others, and two never; so b = 1, 1/2, 1/2."""
    method = make("flexmatch", parameters={"threshold": 0.9}).for_round(training_set(), shared=False)
    given = batch(method, training_set()).stream(1)
    before = torch.tensor([*[CLASSES] * LABELED, 0, 0, 1, -1, -1, 2])
    rows, answers, used = zip(
        (4, [0.30, 0.40, 0.30], 1),  # at least 0.9 (1/2) / (2 - 1/2) = 0.3, and not sure
        (5, [0.85, 0.10, 0.05], 0),  # less than 0.9
        (6, [0.02, 0.95, 0.03], 1),
        (7, [0.02, 0.95, 0.03], 1),
        (7, [0.02, 0.03, 0.95], 1),  # twice in the batch: the larger class is kept
        (8, [0.02, 0.95, 0.03], 1),
        (8, [0.31, 0.31, 0.38], 1),  # not sure: it stays with the other answer
        (9, [0.92, 0.04, 0.04], 1),  # another class than before, and a smaller one
        strict=True,
    )
    for order in (slice(None), torch.arange(len(rows)).flip(0)):
        given.state["last"].copy_(before)
        judged = method.judge(torch.tensor(answers)[order], given._replace(rows=torch.tensor(rows)[order]))
        assert judged.tolist() == torch.tensor(used)[order].tolist()
        assert given.state["last"].tolist() == [*[CLASSES] * LABELED, 0, 0, 1, 2, 1, 0]


def test_flexmatch_counts_all_samples_where_there_is_no_pool() -> None:
    x = samples(False)
    rows = make_problem((x, np.arange(len(x)) % CLASSES), None, "single").training_set(None)
    method = make("flexmatch", parameters={"threshold": 0.7}).for_round(rows, shared=False)
    assert method.tensors(len(x), CLASSES)["last"].tolist() == [-1] * len(x)


def test_flexmatch_remembers_the_last_sure_answer_of_each_sample() -> None:
    method = make("flexmatch", parameters={"threshold": 0.7}).for_round(training_set(), shared=False)
    given = batch(method, training_set())
    assert given.state["last"].tolist() == [CLASSES] * LABELED + [-1] * POOL
    teacher = network(False, 1)
    method.loss(network(False, 0), given, teacher)
    top, label = teacher(given.samples[LABELED:]).softmax(dim=1).max(dim=1)
    expected = torch.where(top >= 0.7, label, -1)
    assert given.state["last"].tolist() == [CLASSES] * LABELED + expected.tolist()
    assert set(expected.tolist()) > {-1}
