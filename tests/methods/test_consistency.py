"""The consistency methods: each loss beside a reference that is written row by row, and what all of them promise."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine.plain import train_plainly
from sklearn.linear_model import LogisticRegression
from small_runs import LEARNER, difference, small_settings
from torch import Tensor, nn

import surelabel as sl
from surelabel.augment.chain import Augment
from surelabel.augment.draws import Draws
from surelabel.augment.mixup import mixup_coefficients
from surelabel.augment.settings import AugmentSettings
from surelabel.core.labels import Task
from surelabel.core.selection import Selection
from surelabel.data.source import ArraySource
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.method import Batch, Method
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.step import batch_loss
from surelabel.engine.train import Trainer
from surelabel.learners.settings import METHODS, TorchLearnerSettings
from surelabel.runs.session import resume, start
from surelabel.uncertainty.compiled import with_code_of_its_own

CPU = torch.device("cpu")
NAMES = [name for name in METHODS if name != "ups"]
MATCHING = ["fixmatch", "flexmatch", "freematch", "softmatch", "teacher-match"]
SEVERAL_LABELS = [name for name in NAMES if name not in MATCHING]
LABELED, POOL, CLASSES = 4, 6, 3
AUGMENT = AugmentSettings(flip=True, crop=1, operations=2, hole=3, jitter=0.3, mean=(0.5,) * 3, std=(0.25,) * 3)
FEW = AUGMENT.replace(operations=0, jitter=0.0)
"""Quickly compiled; that all of an augmentation can be is tested where it is defined."""
PROGRESS = 0.1
WEIGHTS = {"pi-model": (10, 10), "mean-teacher": (50, 5), "ict": (100, 10), "mixmatch": (75, 7.5)}
"""Of the part without labels, where none is given: for pictures and for tables; 1 for the others."""


def make(name: str, task: Task = "single", augment: AugmentSettings | None = None, **changes: Any) -> Any:
    """A method by its name, for batches of the pool of 6 rows."""
    parameters = changes.pop("parameters", {})
    training = TrainingSettings(
        **{"batch_size": POOL, "steps": 8, "ema_decay": 0.9, "augment": augment, "learning_rate": 0.05, **changes}
    )
    settings = TorchLearnerSettings(method=name, method_parameters=parameters, training=training)
    return settings.make_method()(task, training)


def samples(pictures: bool) -> np.ndarray:
    generator = np.random.default_rng(3)
    if pictures:
        return generator.integers(0, 256, size=(LABELED + POOL, 3, 6, 6)).astype(np.uint8)
    return generator.normal(size=(LABELED + POOL, 5)).astype(np.float32)


def training_set(task: Task = "single", selected: bool = False, pictures: bool = False) -> TrainingSet:
    """Four labels; if asked, a selected positive in row 5, a negative in row 6, and all as negatives in row 7.

    With several labels, rows 0, 2 and 3 are known in part; if asked, class 0 is selected as absent in row 3.
    """
    x = samples(pictures)
    y = np.arange(LABELED) % CLASSES
    several = np.array([[1, 0, -1], [0, 1, 0], [1, 1, -1], [-1, -1, 1]])
    in_part = 0 if task == "single" else 3
    positive, negative = np.zeros((2, in_part + POOL, CLASSES), dtype=bool)
    if selected:
        positive[in_part + 1, 2] = negative[in_part + 2, 0] = True
        negative[in_part + 3] = True
        negative[:in_part, 0] = [False, False, True][:in_part]
    problem = make_problem((x[:LABELED], y if task == "single" else several), x[LABELED:], task, CLASSES)
    return problem.training_set(Selection(positive, negative) if selected else None)


def batch(method: Method, rows: TrainingSet) -> Batch:
    """All rows in order, as the engine would give them."""
    count = len(rows.y)
    draws = Draws(torch.tensor(5), torch.arange(count) * 7919, torch.zeros(count, dtype=torch.int64))
    state = {name: value.clone() for name, value in method.tensors(*rows.y.shape).items()}
    state["parts"] = torch.zeros(len(method.parts))
    x, y, g = torch.from_numpy(rows.source[np.arange(count)]), *(torch.from_numpy(part[:]) for part in (rows.y, rows.g))
    return Batch(x, y, g, draws, torch.tensor(PROGRESS), (LABELED, POOL), torch.arange(count), state)


def network(pictures: bool, seed: int) -> nn.Module:
    """Without dropout and BatchNorm, so that a row's answer does not depend on its batch."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Flatten(), nn.Linear(108 if pictures else 5, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    with torch.no_grad():
        made[3].weight.mul_(6)  # sure of some answers, and not of all
    return made


class Reference:
    """One row after another, from the equations."""

    def __init__(
        self, method: Any, given: Batch, student: nn.Module, teacher: nn.Module, task: Task, weight: float
    ) -> None:
        self.method, self.batch, self.student, self.teacher, self.task = method, given, student, teacher, task
        self.known, self.pool = range(LABELED), range(LABELED, LABELED + POOL)
        self.draws, self.weight = given.draws, weight

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
        weight = self.weight * min(PROGRESS / self.method.ramp, 1)
        return torch.stack(labeled).mean() + weight * torch.stack(unlabeled).mean()

    def matching(self, judged: Callable[[list[Tensor]], list[float]]) -> Tensor:
        weak, strong = self.view(False, "weak"), self.view(True, "strong")
        by = self.teacher if self.method.settings.augment is None else self.student
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
            share = 1.0 if any(positive) else share
            p = self.p(self.student, strong[row])
            terms.append(-share * p[label].log())
            self.taken.append((label, share, p))
        weight = self.weight * self.sigmoid_ramp()
        return self.labeled(weak) + weight * (torch.stack(terms).mean() + self.fairness())

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
                share = 1.0 if any(positive) else math.exp(-(min(c - mean, 0) ** 2) / (2 * variance / 4))
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
@pytest.mark.parametrize("pictures", [False, True], ids=["tables", "pictures"])
@pytest.mark.parametrize(
    ("name", "task"), [*((name, "single") for name in NAMES), *((name, "multi") for name in SEVERAL_LABELS)]
)
def test_the_loss_is_that_of_the_equations(name: str, task: Task, pictures: bool, selected: bool) -> None:
    loose = {"threshold": 0.7} if name in ("fixmatch", "flexmatch") else {}
    loose |= {"fairness": 0.5} if name == "freematch" else {}
    loose |= {"weight": 3.0} if selected else {}
    weight = 3.0 if selected else WEIGHTS.get(name, (1, 1))[not pictures]
    rows = training_set(task, selected, pictures)
    method = make(name, task, AUGMENT if pictures else None, parameters=loose).for_round(rows, shared=False)
    given, values, gradients = batch(method, rows), [], []
    assert set(STATES.get(name, {})) <= set(given.state)
    given.state.update({key: value.clone() for key, value in STATES.get(name, {}).items()})  # type: ignore[attr-defined]
    teacher = network(pictures, 1)
    for by in ("method", "reference"):
        student = network(pictures, 0)
        if by == "method":
            value = method.loss(student, given, teacher if method.teacher else None)
        else:
            value = getattr(Reference(method, given, student, teacher, task, weight), name.replace("-", "_"))()
        value.backward()
        values.append(value.detach())
        gradients.append([weights.grad for weights in student.parameters()])
    torch.testing.assert_close(*values, rtol=1e-5, atol=1e-6)
    for mine, reference in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-6)
    assert all(weights.grad is None for weights in teacher.parameters())
    labeled, unlabeled, *_ = given.state["parts"].tolist()
    assert labeled > 0
    assert unlabeled != 0


@pytest.mark.parametrize("name", MATCHING)
def test_a_selected_positive_counts_fully_however_its_answer_is_judged(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = training_set(selected=True)
    parameters = {"ramp": 0.0, **({"fairness": 0.0} if name == "freematch" else {})}
    method = make(name, parameters=parameters).for_round(rows, shared=False)
    monkeypatch.setattr(type(method), "judge", lambda self, q, pool: torch.zeros(len(q)))
    given, student = batch(method, rows), network(False, 0)
    given.state.get("classes", torch.zeros(CLASSES)).fill_(1 / CLASSES)
    method.loss(student, given, network(False, 1))
    _, unlabeled, used = given.state["parts"]
    row, its_class = LABELED + 1, 2
    expected = -student(given.samples[row : row + 1]).log_softmax(dim=1)[0, its_class] / POOL
    assert used == pytest.approx(1 / POOL)
    torch.testing.assert_close(unlabeled, expected.detach())


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


def test_fixmatch_takes_a_label_that_is_as_sure_as_the_threshold() -> None:
    method, given = make("fixmatch", parameters={"threshold": 0.75}), batch(make("fixmatch"), training_set())
    answers = torch.tensor([[0.25, 0.75], [0.7499, 0.2501], [0.75, 0.25]])
    assert method.judge(answers, given).tolist() == [1, 0, 1]


def test_freematch_counts_the_strong_views_and_not_their_labels() -> None:
    """Where these differ: all labels are class 0, and the strong views are taken for classes 1 and 2."""
    method, rows = make("freematch", parameters={"fairness": 1.0}), training_set()
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


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_captured_step_learns_as_the_plain_loop_does(name: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows, gpu = training_set(selected=True, pictures=True), torch.device("cuda")
    # Without RandAugment, some of whose operations round to whole levels.
    method = make(name, augment=FEW, batch_size=4).for_round(rows, shared=True)
    plain, trainer = network(True, 0).to(gpu), Trainer(method.settings, gpu, compiled=True)
    train_plainly(plain, rows, method, method.settings, seed=3, device=gpu)
    for seed in (2, 3):  # the second round takes the first one's step, with the method's tensors as they began
        trainer.train(network(True, 0).to(gpu), rows, method, seed=seed)
    assert trainer._step is not None
    assert trainer._step._graph is not None
    for mine, reference in zip(trainer._step.network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-3, atol=1e-3)


def trained(name: str, task: Task = "single", pictures: bool = False, plainly: bool = False, **changes: Any) -> Any:
    method = make(name, task, AUGMENT if pictures else None, batch_size=4, **changes)
    rows = training_set(task, selected=True, pictures=pictures)
    student, method = network(pictures, 0), method.for_round(rows, shared=False)
    if plainly:
        train_plainly(student, rows, method, method.settings, seed=3, device=CPU)
    else:
        Trainer(method.settings, CPU).train(student, rows, method, seed=3)
    return student.state_dict()


@pytest.mark.parametrize("pictures", [False, True], ids=["tables", "pictures"])
@pytest.mark.parametrize("name", NAMES)
def test_the_engine_trains_as_the_plain_loop_does_and_to_the_same_bits_again(name: str, pictures: bool) -> None:
    first, again, plain = (trained(name, pictures=pictures, plainly=plainly) for plainly in (False, False, True))
    for key, weights in first.items():
        assert torch.equal(weights, again[key])
        torch.testing.assert_close(weights, plain[key])
    assert not torch.equal(first["1.weight"], network(pictures, 0).state_dict()["1.weight"])


@pytest.mark.parametrize("name", NAMES)
def test_a_round_that_takes_the_last_ones_step_begins_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: with a fresh teacher, and the method's own tensors as they were at first."""
    monkeypatch.setattr(Trainer, "shares", True)
    rows = training_set(selected=True)
    method = make(name, batch_size=4).for_round(rows, shared=True)
    weights = []
    for seeds in ((3,), (2, 3)):
        trainer = Trainer(method.settings, CPU)
        for seed in seeds:
            trainer.train(network(False, seed), rows, method, seed=seed)
        assert trainer._step is not None
        weights.append([value.clone() for value in (*trainer._step.tensors().values(),)])
    for first, later in zip(*weights, strict=True):
        assert torch.equal(first, later)


@pytest.mark.parametrize("name", ["mean-teacher", "ict", "teacher-match"])
def test_a_teacher_with_statistics_of_its_own_teaches_as_in_the_plain_loop(name: str) -> None:
    method, rows, students = make(name, augment=AUGMENT, batch_size=4), training_set(pictures=True), []
    for plainly in (False, True, False):
        if len(students) == 2:  # once more, with the network's: another lesson
            object.__setattr__(method, "own_statistics", False)
        torch.manual_seed(0)
        student = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, CLASSES))
        if plainly:
            train_plainly(student, rows, method, method.settings, seed=3, device=CPU)
        else:
            Trainer(method.settings, CPU).train(student, rows, method, seed=3)
        students.append(student.state_dict())
    for key, weights in students[0].items():
        torch.testing.assert_close(weights, students[1][key])
    assert not torch.allclose(students[0]["3.weight"], students[2]["3.weight"], rtol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_keeps_a_loss_from_being_compiled_as_one_graph(name: str) -> None:
    rows = training_set(selected=True, pictures=True)
    method = make(name, augment=FEW).for_round(rows, shared=True)
    teacher = network(True, 1) if method.teacher else None
    given, same = batch(method, rows), batch(method, rows)
    drawn = torch.tensor(5), torch.arange(len(rows.y)) * 7919, torch.zeros(len(rows.y), dtype=torch.int64)
    parts = {field: getattr(same, field) for field in Batch._fields if field != "draws"}
    # Only what changes a method's own tensors in place needs to be traced through autograd too, which takes long.
    backend = "aot_eager" if method.tensors(*rows.y.shape) else "eager"
    compiled = torch.compile(with_code_of_its_own(batch_loss), fullgraph=True, backend=backend)
    student = network(True, 0)
    value = compiled(student, teacher, method, False, drawn, parts)
    torch.testing.assert_close(value, method.loss(student, given, teacher))
    for key, expected in given.state.items():
        torch.testing.assert_close(same.state[key], expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_run_goes_on_with_its_teacher_and_its_averages(name: str, tmp_path: Path) -> None:
    training = LEARNER.training.replace(steps=7, ema_decay=0.9)
    learner = LEARNER.replace(training=training, method=name)
    settings = small_settings(tmp_path, learner=learner, checkpoint_minutes=0.0).pinned()
    whole = list(start(tmp_path / "whole", settings))
    assert len(whole) > 1

    def kill(what: str, done: int, total: int) -> None:
        if what.startswith("train") and done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(start(tmp_path / "killed", settings, progress=kill))
    assert list((tmp_path / "killed").rglob("checkpoint.bin"))
    list(resume(tmp_path / "killed"))
    assert difference(tmp_path / "killed", tmp_path / "whole") == ""


@pytest.mark.parametrize("max_rounds", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_classifier_learns_from_the_pool_by_each_method(name: str, max_rounds: int) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = (generator.normal(size=(300, 4)) + 4.0 * np.eye(4)[y]).astype(np.float32)
    labels = np.where(np.arange(300) < 12, y, -1)
    classifier = sl.UPSClassifier(method=name, max_rounds=max_rounds, hidden=(32,), random_state=0).fit(x, labels)
    assert (classifier.predict(x) == y).mean() > 0.85
    assert len(classifier.history_) == max_rounds + 1


def test_a_classifier_hands_parameters_to_its_method() -> None:
    x = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    labels = np.where(np.arange(30) < 10, np.arange(30) % 2, -1)
    never, always = (
        sl.UPSClassifier(
            method="fixmatch", method_parameters={"threshold": threshold}, max_rounds=0, hidden=(8,), random_state=0
        ).fit(x, labels)
        for threshold in (1.0, 0.0)
    )
    assert not np.array_equal(never.predict_proba(x), always.predict_proba(x))
    not_a_number = "^Invalid value for 'method_parameters.threshold': it must be a finite number, [^;]* Got nan.$"
    for parameters, message in (
        ({"threshold": 2.0}, "threshold"),
        ({"sharpness": 2.0}, "sharpness"),
        ({"threshold": math.nan}, not_a_number),
    ):
        with pytest.raises(ValueError, match=message):
            sl.UPSClassifier(method="fixmatch", method_parameters=parameters).fit(x, labels)


@pytest.mark.parametrize("max_rounds", [0, 1])
@pytest.mark.parametrize("name", SEVERAL_LABELS)
def test_some_methods_take_several_labels(name: str, max_rounds: int) -> None:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, size=(200, 3))
    x = (y @ generator.normal(size=(3, 6)) + 0.3 * generator.normal(size=(200, 6))).astype(np.float32)
    labels = np.where(np.arange(200)[:, None] < 30, y, -1)
    labels[:5, 0] = -1  # known in part
    classifier = sl.UPSClassifier(method=name, max_rounds=max_rounds, hidden=(32,), random_state=0).fit(x, labels)
    assert (classifier.predict(x)[30:] == y[30:]).mean() > 0.85


@pytest.mark.parametrize("name", MATCHING)
def test_the_others_say_that_they_do_not(name: str) -> None:
    with pytest.raises(ValueError, match='takes one label for each sample, not several; choose "pi-model"'):
        make(name, "multi")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("fixmatch", {"augment": AugmentSettings(mixup=0.5)}, "FixMatch takes no mixup in the augmentation"),
        ("pi-model", {"task": "multi", "label_smoothing": 0.1}, "label_smoothing is for single-label data"),
        ("fixmatch", {"parameters": {"threshold": 1.5}}, "threshold"),
        ("mixmatch", {"parameters": {"alpha": 0}}, "alpha"),
        ("freematch", {"parameters": {"momentum": 1}}, "momentum"),
        ("ict", {"parameters": {"sharpness": 1}}, "sharpness"),
        ("mean-teacher", {"parameters": {"ratio": 0}}, "ratio"),
        ("mean-teacher", {"parameters": {"weight": -1}}, r"'weight' .* a number in \[0, 1e\+06\]. Got -1"),
        ("teacher-match", {"parameters": {"views": 0}}, "views"),
        ("flexmatch", {"parameters": {"num_labeled": 3}}, "It takes weight, ratio, ramp, threshold"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(name, **changes)


@pytest.mark.parametrize("name", ["ict", "teacher-match"])
def test_a_teacher_that_would_normalize_one_row_says_so(name: str) -> None:
    method = make(name, batch_size=1)
    student = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, CLASSES))
    with pytest.raises(ValueError, match="BatchNorm cannot normalize a mini-batch of one row, .* batch_size above 1"):
        Trainer(method.settings, CPU).train(student, training_set(), method, seed=0)


def test_settings_that_a_method_does_not_use_are_told_of() -> None:
    training = TrainingSettings(negative_batch_size=8, ema_decay=0.9)
    with pytest.warns(UserWarning, match="Ignored: negative_batch_size, because method='fixmatch' is not UPS's"):
        TorchLearnerSettings(method="fixmatch", training=training).build("single")
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.where(np.arange(30) < 20, np.arange(30) % 2, -1)
    with pytest.warns(UserWarning, match="Ignored: method, because a scikit-learn classifier") as told:
        sl.UPSClassifier(LogisticRegression(), method="fixmatch", max_rounds=0).fit(x, y)
    assert told[0].filename == __file__


@pytest.mark.parametrize("name", NAMES)
def test_codes_of_words_are_learned_from_unless_they_would_be_mixed(name: str) -> None:
    words = np.random.default_rng(0).integers(0, 9, size=(LABELED + POOL, 4))
    rows = make_problem((words[:LABELED], np.arange(LABELED) % CLASSES), words[LABELED:], "single").training_set(None)
    torch.manual_seed(0)
    reader = nn.Sequential(nn.EmbeddingBag(9, 8), nn.Dropout(0.2), nn.Linear(8, CLASSES))
    method = make(name)
    if name in ("ict", "mixmatch"):
        with pytest.raises(ValueError, match="mixes samples of floats; got torch.int64: give float32"):
            Trainer(method.settings, CPU).train(reader, rows, method, seed=0)
    else:
        before = reader[0].weight.detach().clone()
        Trainer(method.settings, CPU).train(reader, rows, method, seed=0)
        assert not torch.equal(reader[0].weight, before)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_as_stored_need_an_augmentation_that_normalizes_them(name: str) -> None:
    rows, method = training_set(pictures=True), make(name)
    with pytest.raises(ValueError, match=r"got torch.uint8: give|stored as torch.uint8: .* Give float32, such as"):
        Trainer(method.settings, CPU).train(network(True, 0), rows, method, seed=0)


@pytest.mark.parametrize("labeled_batch_size", [0, 3])
def test_a_round_is_as_long_as_it_says(labeled_batch_size: int) -> None:
    method = make("fixmatch", steps=None, epochs=4, batch_size=3, labeled_batch_size=labeled_batch_size)
    seen: list[int] = []
    rows = training_set()
    sizes = [stream.size for stream in method.streams(rows)]
    assert sizes == [labeled_batch_size or 1, 3]
    trainer = Trainer(method.settings, CPU, progress=lambda what, done, total: seen.append(total))
    trainer.train(network(False, 0), rows, method, seed=0)
    epochs, taken = method.samples_in_round(LABELED, 0, 0, 0, POOL)
    assert taken == len(seen) * sum(sizes)
    assert epochs == math.ceil(len(seen) * sizes[0] / LABELED)
    assert method.samples_in_step(0) == sum(sizes)


@pytest.mark.parametrize(
    ("name", "ratio", "labeled_batch_size", "expected"),
    [
        ("pi-model", None, 0, 84),
        ("fixmatch", None, 0, 12),
        ("fixmatch", None, 30, 30),
        ("fixmatch", 2, 30, 42),
        ("ict", 7, 0, 12),
    ],
)
def test_a_ratio_that_is_given_decides_how_many_labels_a_batch_has(
    name: str, ratio: int | None, labeled_batch_size: int, expected: int
) -> None:
    method = make(name, parameters={"ratio": ratio}, batch_size=84, labeled_batch_size=labeled_batch_size)
    assert method.samples_in_step(0) == 84 + expected


def test_without_a_pool_the_labeled_rows_take_its_place() -> None:
    x = samples(False)
    rows = make_problem((x, np.arange(len(x)) % CLASSES), None, "single").training_set(None)
    method = make("softmatch")
    Trainer(method.settings, CPU).train(network(False, 0), rows, method, seed=0)
    assert [len(stream.rows) for stream in method.streams(rows)] == [len(x), len(x)]


def test_progress_tells_the_parts_of_the_loss() -> None:
    told: list[str] = []
    method = make("fixmatch", steps=40)
    trainer = Trainer(method.settings, CPU, progress=lambda what, done, total: told.append(what))
    trainer.train(network(False, 0), training_set(), method, seed=0)
    assert len(told) == 40
    assert told[0] == "train"
    assert {text.split(": ")[0] for text in told} == {"train"}
    words = [part.split() for part in told[-1].split(": ")[1].split(", ")]
    assert [name for name, _ in words] == ["labeled", "unlabeled", "used"]
    assert all(math.isfinite(float(value)) for _, value in words)
    assert len(set(told)) > 10


def test_a_learner_of_ones_own_takes_a_method_by_its_class() -> None:
    from surelabel.methods.fixmatch import FixMatch

    learner = sl.TorchLearner(
        lambda shape, classes: network(True, 0),
        training=TrainingSettings(batch_size=4, steps=5, augment=AUGMENT, ema_decay=0.9),
        method=FixMatch,
        uncertainty=sl.Deterministic(),
        device="cpu",
    )
    learner.fit(training_set(pictures=True), seed=0)
    assert learner.predict_proba(ArraySource(samples(True))).shape == (LABELED + POOL, CLASSES)
