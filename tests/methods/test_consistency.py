"""What all consistency methods promise: parity, the same bits, resuming, parameters, and what they refuse."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine.plain import train_plainly
from method_support import (
    ALIKE,
    AUGMENT,
    CLASSES,
    CPU,
    FEW,
    LABELED,
    MATCHING,
    NAMES,
    POOL,
    SEVERAL_LABELS,
    batch,
    make,
    network,
    samples,
    training_set,
)
from sklearn.linear_model import LogisticRegression
from small_runs import LEARNER, difference, small_settings
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import surelabel as sl
from surelabel.augment.settings import AugmentSettings
from surelabel.core.labels import Task
from surelabel.core.selection import Selection
from surelabel.data.source import ArraySource
from surelabel.data.training_set import make_problem
from surelabel.engine.method import Batch
from surelabel.engine.order import num_steps
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.step import batch_loss
from surelabel.engine.train import Trainer
from surelabel.kinds import KINDS
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.runs.session import resume, start
from surelabel.settings import FitSettings
from surelabel.uncertainty.compiled import with_code_of_its_own

KEEPING = ["flexmatch", "freematch", "softmatch", "teacher-match"]
"""Those with tensors of their own."""
QUICK = {"hidden": (32,), "min_steps": 60, "epochs": 1, "learning_rate": 0.1, "random_state": 0}


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


@pytest.mark.parametrize(("name", "pictures"), [(name, name not in KEEPING) for name in NAMES])
def test_nothing_keeps_a_loss_from_being_compiled_as_one_graph(name: str, pictures: bool) -> None:
    rows = training_set(selected=True, pictures=pictures)
    # That all of an augmentation can be compiled, which takes long, is tested where it is defined.
    flipped = AugmentSettings(flip=True, mean=AUGMENT.mean, std=AUGMENT.std)
    method = make(name, augment=flipped if pictures else None).for_round(rows, shared=True)
    teacher = network(pictures, 1) if method.teacher else None
    given, same = batch(method, rows), batch(method, rows)
    drawn = torch.tensor(5), torch.arange(len(rows.y)) * 7919, torch.zeros(len(rows.y), dtype=torch.int64)
    parts = {field: getattr(same, field) for field in Batch._fields if field != "draws"}
    # Nor do methods that change tensors of their own need pictures, to be traced with their gradients.
    backend = "eager" if pictures else "aot_eager"
    compiled = torch.compile(with_code_of_its_own(batch_loss), fullgraph=True, backend=backend)
    student = network(pictures, 0)
    value, expected = compiled(student, teacher, method, False, drawn, parts), method.loss(student, given, teacher)
    torch.testing.assert_close(value, expected)
    weights = list(student.parameters())
    gradients = [torch.autograd.grad(one, weights) for one in (value, expected)]
    for mine, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, plain)
    for key, kept in given.state.items():
        torch.testing.assert_close(same.state[key], kept)


@pytest.mark.parametrize("pictures", [False, True], ids=["tables", "pictures"])
@pytest.mark.parametrize("name", NAMES)
def test_a_loss_never_looks_at_values_so_that_its_step_can_be_captured(name: str, pictures: bool) -> None:
    """The compiler takes `.item()` and boolean indexing; a CUDA graph and tensors without values do not."""
    rows = training_set(selected=True, pictures=pictures)
    method = make(name, augment=AUGMENT if pictures else None).for_round(rows, shared=True)
    given, student, teacher = batch(method, rows), network(pictures, 0), network(pictures, 1)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert method.loss(student, given, teacher if method.teacher else None).shape == ()


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
    classifier = sl.UPSClassifier(method=name, max_rounds=max_rounds, **QUICK).fit(x, labels)
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
    classifier = sl.UPSClassifier(method=name, max_rounds=max_rounds, **QUICK).fit(x, labels)
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
        ("fixmatch", {"parameters": {"threshold": True}}, "must be a number in .* Got True"),
        ("fixmatch", {"parameters": {"ratio": True}}, "must be a whole number of at least 1. Got True"),
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


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("ict", {"alpha": 1.0}),
        ("mixmatch", {"alpha": 0.75, "temperature": 0.5}),
        ("fixmatch", {"threshold": 0.95, "ramp": 0.0, "usual_ratio": 7}),
        ("flexmatch", {"threshold": 0.95, "usual_ratio": 7}),
        ("freematch", {"momentum": 0.999, "fairness": 0.001, "usual_ratio": 7}),
        ("softmatch", {"momentum": 0.999, "sharpness": 2.0, "usual_ratio": 7}),
        ("teacher-match", {"momentum": 0.99, "sharpness": 2.0, "views": 2, "ramp": 0.4}),  # ours
    ],
)
def test_what_is_not_given_is_as_published(name: str, published: dict[str, float]) -> None:
    method = make(name)
    assert {key: getattr(method, key) for key in published} == published


@pytest.mark.parametrize("name", KEEPING)
def test_where_unsure_labels_count_their_weight_rises(name: str) -> None:
    method = make(name)
    weight = [method.risen(torch.tensor(moment)).item() for moment in (0.0, 0.2, 0.4, 1.0)]
    assert weight == sorted(weight)
    assert weight[0] < 0.01
    assert weight[2:] == [1.0, 1.0]


@pytest.mark.parametrize("selected", [False, True], ids=["alone", "in a round"])
@pytest.mark.parametrize(
    ("name", "task"), [*((name, "single") for name in NAMES), *((name, "multi") for name in SEVERAL_LABELS)]
)
def test_rows_with_a_label_are_one_stream_and_those_with_unknown_entries_the_other(
    name: str, task: Task, selected: bool
) -> None:
    rows = training_set(task, selected)
    labeled, pool = make(name, task).for_round(rows, shared=False).streams(rows)
    assert labeled.rows.tolist() == list(range(LABELED))
    in_part = [0, 2, 3] if task == "multi" else []
    assert pool.rows.tolist() == [*in_part, *range(LABELED, LABELED + POOL)]


@pytest.mark.parametrize("unlabeled", [0, 1])
def test_rows_that_are_known_in_part_stay_in_the_pool(unlabeled: int) -> None:
    x, labels = samples(False)[:5], np.array([[1, 0], [0, 1], [1, -1], [-1, 0]])
    problem = make_problem((x[:4], labels), x[4 : 4 + unlabeled], "multi")
    chosen = np.ones((2 + unlabeled, 2), dtype=bool)
    for rows in (problem.training_set(None), problem.training_set(Selection(chosen, ~chosen))):
        pool = make("pi-model", "multi").streams(rows)[1].rows
        assert pool.tolist() == [2, 3, 4][: 2 + unlabeled] == problem.pool_rows.tolist()


def test_a_batch_takes_no_more_rows_than_there_are() -> None:
    method, rows = make("fixmatch", batch_size=50, labeled_batch_size=40), training_set()
    assert [stream.size for stream in method.streams(rows)] == [LABELED, POOL]


def test_epochs_are_passes_over_labels_and_pool() -> None:
    rows = training_set()
    for batch_size, labeled_batch_size, expected in ((1, 4, 5 * POOL), (6, 1, 5 * LABELED)):
        method = make("fixmatch", steps=None, epochs=5, batch_size=batch_size, labeled_batch_size=labeled_batch_size)
        assert num_steps(method.streams(rows), method.settings) == expected


@pytest.mark.parametrize(
    ("name", "channels", "teacher"), [("video", 3, True), ("pictures", 3, False), ("sounds", 1, False)]
)
def test_kinds_whose_strong_views_are_no_stronger_get_labels_from_a_teacher(
    name: str, channels: int, teacher: bool
) -> None:
    shape = (8, 3, 30, 40, 40) if name == "video" else (8, channels, 32, 32)
    network = KINDS[name].network(ArraySource(np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)))
    for method in MATCHING:
        settings = FitSettings(method=method).network("single", network)
        made = settings.make_method()("single", settings.training)
        assert made.teacher == (teacher or method == "teacher-match")


def test_a_magnitude_without_operations_makes_no_view_strong() -> None:
    with pytest.warns(UserWarning, match="'operations' is 0"):
        method = make("fixmatch", augment=ALIKE.replace(magnitude=4))
    assert method.teacher


def test_a_method_for_a_round_is_another_one() -> None:
    method = make("flexmatch")
    assert method.for_round(training_set(), shared=False).num_labeled == LABELED
    assert method.num_labeled == 0


@pytest.mark.parametrize("steps", [None, 7])
@pytest.mark.parametrize("labeled_batch_size", [0, 3])
def test_a_round_is_as_long_as_it_says(labeled_batch_size: int, steps: int | None) -> None:
    method = make("fixmatch", steps=steps, epochs=4, batch_size=3, labeled_batch_size=labeled_batch_size)
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
        ("fixmatch", 5, 0, 17),
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
