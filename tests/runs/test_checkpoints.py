"""A run that is ended inside a round goes on within it, and ends as if it had never been: bit for bit on a CPU."""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from small_runs import LEARNER, blobs, difference, small_settings
from torch import Tensor, nn

import surelabel as sl
from surelabel.data.source import ArraySource
from surelabel.data.targets import OneLabel
from surelabel.data.training_set import TrainingSet
from surelabel.engine.checkpoint import FitCheckpoint, _checked_generator
from surelabel.engine.method import Batch, Method
from surelabel.engine.settings import TrainingSettings
from surelabel.engine.train import Trainer
from surelabel.errors import RunError
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.runs.session import resume, start
from surelabel.runs.writing import RunCheckpoints
from surelabel.settings import RunSettings
from tests.engine.test_method import MeanTeacher, picture_network, pictures

STEPS = 12


class Killed(BaseException):
    """In the place of a kill: nothing that the run does afterwards can help it."""


class Kill:
    """Ends a run after so many steps of training; counts those that are taken."""

    def __init__(self, after: int | None = None) -> None:
        self.after, self.steps = after, 0

    def __call__(self, what: str, done: int, total: int) -> None:
        if what.startswith("train"):
            self.steps += 1
            if self.steps == self.after:
                raise Killed


def settings(folder: Path, training: dict[str, Any] | None = None, **learner: Any) -> RunSettings:
    """Rounds of 12 steps, a checkpoint after each."""
    changes = {"steps": STEPS, **(training or {})}
    made = LEARNER.replace(training=LEARNER.training.replace(**changes), **learner)
    return small_settings(folder, learner=made, checkpoint_minutes=0.0).pinned()


def finish(rounds: Iterator[Any]) -> None:
    for _ in rounds:
        pass


VARIANTS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adamw": {"training": {"optimizer": "adamw", "learning_rate": 0.01}},
    "average": {"training": {"ema_decay": 0.9, "gradient_clip": 1.0}},
    "warm start": {"training": {"warm_start": True}},
    "streamed": {"training": {"workers": 1}},
    "ensemble": {"passes": 10, "uncertainty": "deep-ensemble", "uncertainty_parameters": {"members": 2}},
    "shared step": {"training": {"compile": True}},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_that_is_killed_inside_a_round_goes_on_there_and_ends_with_the_same_bits(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # which would take a minute
    made = settings(tmp_path, **VARIANTS[name])
    whole = Kill()
    finish(start(tmp_path / "whole", made, progress=whole))
    kill, rest = Kill(after=whole.steps // 2 + 3), Kill()
    with pytest.raises(Killed):
        finish(start(tmp_path / "killed", made, progress=kill))
    assert list((tmp_path / "killed" / "rounds").glob("*/checkpoint.bin"))
    finish(resume(tmp_path / "killed", progress=rest))
    assert kill.steps + rest.steps == whole.steps
    assert difference(tmp_path / "killed", tmp_path / "whole") == ""


OWN_METHOD = """
from surelabel.engine.method import Method, Stream
from torch.nn.functional import cross_entropy

class Plain(Method):
    def __init__(self, task, settings):
        self.size = settings.batch_size

    def streams(self, training_set):
        return [Stream(training_set.rows, self.size)]

    def loss(self, network, batch, teacher):
        return cross_entropy(network(batch.samples), (batch.y & batch.g).float())

    def samples_in_step(self, max_rounds):
        return self.size

    def samples_in_round(self, num_labeled, num_positive, num_negative, round_number, num_unlabeled):
        return 1, self.size
"""


def test_a_method_of_any_class_goes_on_within_its_round(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_METHOD)
    made, kill, rest = settings(tmp_path, method=f"{tmp_path / 'own.py'}:Plain"), Kill(after=5), Kill()
    with pytest.raises(Killed):
        finish(start(tmp_path / "run", made, progress=kill))
    finish(resume(tmp_path / "run", progress=rest))
    assert kill.steps + rest.steps == 3 * STEPS


def test_killed_at_every_step_and_resumed_each_time(tmp_path: Path) -> None:
    made = settings(tmp_path)
    finish(start(tmp_path / "whole", made))
    begin: Callable[..., Iterator[Any]] = lambda folder, **more: start(folder, made, **more)  # noqa: E731
    for _ in range(3 * STEPS):
        with pytest.raises(Killed):
            finish(begin(tmp_path / "killed", progress=Kill(after=1)))
        begin = resume
    finish(resume(tmp_path / "killed", progress=Kill(after=1)))
    assert difference(tmp_path / "killed", tmp_path / "whole") == ""


def test_no_checkpoint_outlives_its_round(tmp_path: Path) -> None:
    finish(start(tmp_path / "run", settings(tmp_path)))
    assert not list((tmp_path / "run").rglob("*checkpoint*"))


def test_what_a_kill_after_the_round_left_behind_is_cleared_away(tmp_path: Path) -> None:
    finish(start(tmp_path / "run", settings(tmp_path)))
    (tmp_path / "run" / "rounds" / "001" / "checkpoint.bin").write_bytes(b"left")
    finish(resume(tmp_path / "run"))
    assert not list((tmp_path / "run").rglob("*checkpoint*"))


def test_checkpoints_are_five_minutes_apart_and_can_be_left_out(tmp_path: Path) -> None:
    made = settings(tmp_path)
    assert RunSettings().checkpoint_minutes == 5
    for minutes in (5.0, None):
        folder = tmp_path / str(minutes)
        with pytest.raises(Killed):
            finish(start(folder, made.replace(checkpoint_minutes=minutes), progress=Kill(after=5)))
        assert not list(folder.rglob("*checkpoint*"))


def test_every_state_of_the_generator_is_taken() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(1300):  # two tables of 624 numbers
            assert _checked_generator(torch.get_rng_state()) is not None
            torch.randint(2, ())


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:90] + bytes([data[90] ^ 1]) + data[91:]])
def test_a_damaged_checkpoint_is_told_and_the_round_begins_anew(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    made, rest = settings(tmp_path), Kill()
    finish(start(tmp_path / "whole", made))
    with pytest.raises(Killed):
        finish(start(tmp_path / "killed", made, progress=Kill(after=STEPS + 5)))
    (file,) = (tmp_path / "killed" / "rounds").glob("*/checkpoint.bin")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(UserWarning, match="Round 1 begins anew.*damaged"):
        finish(resume(tmp_path / "killed", progress=rest))
    assert rest.steps == 2 * STEPS
    assert difference(tmp_path / "killed", tmp_path / "whole") == ""


def test_a_checkpoint_of_another_torch_is_not_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed):
        finish(start(tmp_path / "run", settings(tmp_path), progress=Kill(after=5)))
    monkeypatch.setattr(torch, "__version__", "9.0")
    rest = Kill()
    with pytest.warns(UserWarning, match=r"Round 0 begins anew.*torch 9\.0"):
        finish(resume(tmp_path / "run", progress=rest))
    assert rest.steps == 3 * STEPS


def _without_generator(tensors: dict[str, Tensor]) -> None:
    del tensors["generator"]


def _of_another_shape(tensors: dict[str, Tensor]) -> None:
    tensors["network.0"] = torch.zeros(1)


def _without_about(tensors: dict[str, Tensor]) -> None:
    tensors["about"] = torch.tensor(list(b"[1, 2]"), dtype=torch.uint8)


def _of_another_optimizer(tensors: dict[str, Tensor]) -> None:
    tensors["optimizer.99.momentum_buffer"] = torch.zeros(1)


def _complex(tensors: dict[str, Tensor]) -> None:
    tensors["network.0"] = tensors["network.0"].to(torch.complex64)


def _of_half_a_generator(tensors: dict[str, Tensor]) -> None:
    tensors["generator"] = tensors["generator"][:2528].clone()


def _beyond_the_generators_table(tensors: dict[str, Tensor]) -> None:
    tensors["generator"][8:12].view(torch.int32)[0] = 624  # that are left
    tensors["generator"][16:24].view(torch.int64)[0] = 624  # the place of the next


CHANGES = [
    _without_generator,
    _of_another_shape,
    _without_about,
    _of_another_optimizer,
    _complex,
    _of_half_a_generator,
    _beyond_the_generators_table,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_checkpoint_that_does_not_fit_is_named_with_the_way_out(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], None]
) -> None:
    with pytest.raises(Killed):
        finish(start(tmp_path / "run", settings(tmp_path), progress=Kill(after=5)))
    file = _changed(tmp_path / "run", change)
    with pytest.raises(RunError, match=r"round 0 does not fit.*Remove checkpoint\.bin"):
        finish(resume(tmp_path / "run"))
    file.unlink()
    finish(resume(tmp_path / "run"))


def _changed(run: Path, change: Callable[[dict[str, Tensor]], None]) -> Path:
    """Change the run's checkpoint, as someone would who redoes its checksum."""
    (file,) = run.rglob("checkpoint.bin")
    tensors = safetensors.torch.load(file.read_bytes()[32:])
    change(tensors)
    data = safetensors.torch.save(tensors)
    file.write_bytes(hashlib.sha256(data).digest() + data)
    return file


def _small(value: Tensor) -> Tensor:
    return torch.zeros(3)


def _bytes(value: Tensor) -> Tensor:
    return value.to(torch.uint8)


def _flat(value: Tensor) -> Tensor:
    return value.flatten()


@pytest.mark.parametrize(
    ("optimizer", "name", "changed"),
    [
        ("adamw", "exp_avg", _small),
        ("adamw", "exp_avg_sq", _bytes),
        ("adamw", "step", lambda value: torch.zeros(0)),
        ("adamw", "step", None),
        ("sgd", "momentum_buffer", _small),
        ("sgd", "momentum_buffer", _flat),
        ("sgd", "momentum_buffer", None),
    ],
)
def test_what_an_optimizer_keeps_must_have_the_place_that_it_is_copied_to(
    tmp_path: Path, optimizer: str, name: str, changed: Callable[[Tensor], Tensor] | None
) -> None:
    # Fused optimizers would read and write beside a tensor that is too small: the process would crash, or go on.
    with pytest.raises(Killed):
        finish(start(tmp_path / "run", settings(tmp_path, {"optimizer": optimizer}), progress=Kill(after=5)))

    def change(tensors: dict[str, Tensor]) -> None:
        key = f"optimizer.0.{name}"
        value = tensors.pop(key)
        if changed is not None:
            tensors[key] = changed(value)

    _changed(tmp_path / "run", change)
    with pytest.raises(RunError, match=rf"round 0 does not fit.*optimizer\.0\.{name}.*Remove checkpoint\.bin"):
        finish(resume(tmp_path / "run"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seconds", math.nan),
        ("seconds", math.inf),
        ("seconds", -1.0),
        ("seconds", "1"),
        ("done", math.inf),
        ("done", -5),
        ("done", STEPS + 1),
        ("done", 2.5),
        ("finished", 1),
        ("finished", -1),
    ],
)
def test_a_checkpoint_with_numbers_that_cannot_be_is_named(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(Killed):
        finish(start(tmp_path / "run", settings(tmp_path), progress=Kill(after=5)))

    def change(tensors: dict[str, Tensor]) -> None:
        about = json.loads(tensors["about"].numpy().tobytes()) | {name: value}
        tensors["about"] = torch.tensor(list(json.dumps(about).encode()), dtype=torch.uint8)

    _changed(tmp_path / "run", change)
    rest = Kill()
    with pytest.raises(RunError, match=rf"round 0 does not fit.*'{name}' is .*Remove checkpoint\.bin"):
        finish(resume(tmp_path / "run", progress=rest))
    assert rest.steps == 0


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_checkpoint_that_is_no_file_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(Killed):
        finish(start(tmp_path / "run", settings(tmp_path), progress=Kill(after=5)))
    (file,) = (tmp_path / "run").rglob("checkpoint.bin")
    file.unlink()
    {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": Path.mkdir}[kind](file)
    with pytest.raises(RunError, match=r"checkpoint\.bin' cannot be read \(it is not a plain file\). Remove it"):
        finish(resume(tmp_path / "run"))


def test_a_full_disk_is_told_and_stops_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surelabel.runs import files

    write = files._write

    def full(path: Path, data: bytes) -> None:
        if "checkpoint" in path.name:
            path.write_bytes(data[:10])
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(files, "_write", full)
    with pytest.warns(UserWarning, match="without a new checkpoint.*No space left.*Free some space"):
        finish(start(tmp_path / "run", settings(tmp_path)))
    assert not list((tmp_path / "run").rglob("*checkpoint*"))

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    store = RunCheckpoints(tmp_path / "run", 0.0)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.warns(UserWarning, match="without a new checkpoint.*No space left"):
        store.write(9, b"state")


def test_the_minutes_before_a_kill_count(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        finish(start(tmp_path / "run", settings(tmp_path), progress=Kill(after=5)))
    (file,) = (tmp_path / "run").rglob("checkpoint.bin")
    about = json.loads(safetensors.torch.load(file.read_bytes()[32:])["about"].numpy().tobytes())
    before = about["seconds"]
    assert before > 0
    records = list(resume(tmp_path / "run"))
    assert records[0].minutes * 60 > before


def test_rounds_that_runs_share_go_on_too(tmp_path: Path) -> None:
    made, shared = settings(tmp_path), tmp_path / "shared"
    finish(start(tmp_path / "whole", made))
    rest = Kill()
    with pytest.raises(Killed):
        finish(start(tmp_path / "killed", made, shared=shared, progress=Kill(after=5)))
    finish(resume(tmp_path / "killed", shared=shared, progress=rest))
    assert rest.steps == 3 * STEPS - 5
    assert difference(tmp_path / "killed", tmp_path / "whole") == ""


def test_a_learner_in_memory_has_checkpoints_while_its_run_lasts(tmp_path: Path) -> None:
    x, y = blobs()
    made = settings(tmp_path)
    arguments: Any = ((x[:9], y[:9]), x[9:60], made.config)

    def learner(progress: Kill | None = None) -> sl.TorchLearner:
        assert made.learner is not None
        built: Any = made.learner.build("single", progress)
        return built  # type: ignore[no-any-return]

    whole = learner()
    finish(sl.run(tmp_path / "whole", whole, *arguments, checkpoint_minutes=0))
    assert whole.checkpoints is None
    with pytest.raises(Killed):
        finish(sl.run(tmp_path / "killed", learner(Kill(after=7)), *arguments, checkpoint_minutes=0))
    rest = Kill()
    finish(sl.run(tmp_path / "killed", learner(rest), *arguments, resume=True))
    assert rest.steps == 3 * STEPS - 7
    assert difference(tmp_path / "killed", tmp_path / "whole") == ""


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ({"learning_rate": 0.03}, {"learning_rate": 0.3}, "settings"),
        ({"steps": STEPS}, {"steps": 4}, "settings"),
        ({"optimizer": "adamw"}, {"optimizer": "sgd"}, "settings"),
        ({"ema_decay": 0.9}, {}, "settings"),
        ({}, {"hidden": (7,)}, "network"),
        ({}, {"dropout": 0.5}, "network"),
        ({}, {"negative_weight": 2.0}, "settings"),
    ],
)
def test_a_round_that_would_be_trained_in_two_ways_begins_anew(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], what: str
) -> None:
    x, y = blobs()

    def run(folder: str, changes: dict[str, Any], kill: Kill | None = None, resume: bool = False) -> Any:
        own = {name: changes[name] for name in changes if name in type(LEARNER).model_fields}
        training = {name: changes[name] for name in changes if name not in own}
        made = settings(tmp_path, training, **own)
        assert made.learner is not None
        learner = made.learner.build("single", kill)
        arguments: Any = ((x[:9], y[:9]), x[9:60], made.config)
        finish(sl.run(tmp_path / folder, learner, *arguments, checkpoint_minutes=0, resume=resume))

    run("whole", after)
    with pytest.raises(Killed):
        run("killed", before, Kill(after=7))
    with pytest.warns(UserWarning, match=f"Round 0 begins anew: its checkpoint was made with {what} "):
        run("killed", after, resume=True)
    assert difference(tmp_path / "killed", tmp_path / "whole") == ""


def test_a_round_with_other_labels_begins_anew(tmp_path: Path) -> None:
    x, y = blobs()
    made = settings(tmp_path).learner
    assert isinstance(made, TorchLearnerSettings)
    learner: Any = made.build("single", Kill(after=5))
    learner.checkpoints = Memory()

    def training_set(y: Any) -> TrainingSet:
        return TrainingSet(ArraySource(x), OneLabel.of(y, 3), len(x), "single")

    with pytest.raises(Killed):
        learner.fit(training_set(y), seed=0)
    with pytest.warns(UserWarning, match="begins anew: its checkpoint was made with targets "):
        learner.fit(training_set(y[::-1]), seed=0)


def test_runs_that_take_turns_with_one_learner_are_as_each_alone(tmp_path: Path) -> None:
    x, y = blobs()
    made = settings(tmp_path)
    assert made.learner is not None
    shared: Any = made.learner.build("single")
    configs = {name: made.config.replace(tau_p=tau_p, balance=None) for name, tau_p in (("a", 0.5), ("b", 0.95))}

    def run(folder: Path, name: str, learner: Any) -> Iterator[Any]:
        return sl.run(folder / name, learner, (x[:9], y[:9]), x[9:60], configs[name], checkpoint_minutes=0)

    for name in configs:
        finish(run(tmp_path / "alone", name, made.learner.build("single")))
    assert difference(tmp_path / "alone" / "a", tmp_path / "alone" / "b") != ""
    finish(zip(*(run(tmp_path / "turns", name, shared) for name in configs), strict=True))
    for name in configs:
        assert difference(tmp_path / "turns" / name, tmp_path / "alone" / name) == ""
    assert not list((tmp_path / "turns").rglob("*checkpoint*"))


class Memory:
    """A store of one checkpoint, in memory."""

    def __init__(self, data: bytes | None = None, minutes: float = 0.0) -> None:
        self.data, self.minutes, self.at_end, self.writes = data, minutes, False, 0

    def read(self, round: int) -> bytes | None:
        return self.data

    def write(self, round: int, data: bytes) -> None:
        self.data, self.writes = data, self.writes + 1


class Counting(MeanTeacher):
    """A method with a tensor of its own, which its loss depends on and changes."""

    def tensors(self, num_rows: int, num_classes: int) -> dict[str, Tensor]:
        return {"seen": torch.zeros(num_rows)}

    def loss(self, network: nn.Module, batch: Batch, teacher: nn.Module | None) -> Tensor:
        seen = batch.state["seen"].index_add_(0, batch.rows, torch.ones(len(batch.rows)))
        return super().loss(network, batch, teacher) * (1 + 0.1 * seen[batch.rows].mean())


def test_a_teacher_and_a_methods_own_tensors_are_kept() -> None:
    training = TrainingSettings(batch_size=4, steps=STEPS, ema_decay=0.9, learning_rate=0.1)

    def train(store: Memory | None, progress: Kill | None = None) -> list[Tensor]:
        torch.manual_seed(0)
        method: Method = Counting(4)
        network = picture_network()
        checkpoint = None if store is None else FitCheckpoint(store, 0, {"seed": 1}, torch.device("cpu"))
        trainer = Trainer(training, torch.device("cpu"), progress=progress)
        average = trainer.train(network, pictures(), method, seed=0, checkpoint=checkpoint)
        assert trainer._step is not None
        return [*average.state_dict().values(), *trainer._step.state.values()]

    store = Memory()
    with pytest.raises(Killed):
        train(store, Kill(after=5))
    for kept, expected in zip(train(store), train(None), strict=True):
        assert torch.equal(kept, expected)


TESTS = Path(__file__).parents[1]
SCRIPT = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {root!r}]
from pathlib import Path
import torch._dynamo  # an optimizer would, in either child
from tests.runs.test_checkpoints import settings
from surelabel.runs.session import start

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may have inherited to ignore it
folder = Path({folder!r})

for name in {names!r}:
    def progress(what, done, total):
        if what == "train" and done == 4:
            os.kill(os.getpid(), signal.Signals[name])

    child = os.fork()  # both have what is imported
    if not child:
        for _ in start(folder / name, settings(folder).replace(checkpoint_minutes=1000.0), progress=progress):
            pass
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)  # the next child has a copy of what waits
"""


def test_a_signal_writes_a_checkpoint_at_once_and_then_ends_the_process(tmp_path: Path) -> None:
    made, names = settings(tmp_path).replace(checkpoint_minutes=1000.0), ["SIGTERM", "SIGINT"]
    finish(start(tmp_path / "whole", made))
    script = SCRIPT.format(tests=str(TESTS), root=str(TESTS.parent), folder=str(tmp_path), names=names)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert [int(code) for code in done.stdout.split()] == [-signal.Signals[name] for name in names], done.stderr
    for name in names:
        rest = Kill()
        finish(resume(tmp_path / name, progress=rest))
        # It came after step 4, was held back during step 5, and step 5 is kept.
        assert rest.steps == 3 * STEPS - 5
        assert difference(tmp_path / name, tmp_path / "whole") == ""


def test_a_signal_whose_handler_ends_nothing_lets_training_go_on(tmp_path: Path) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))

    def progress(what: str, done: int, total: int) -> None:
        if what == "train" and done in (4, 8):
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        finish(start(tmp_path / "run", settings(tmp_path), progress=progress))
        assert came == [signal.SIGTERM] * 6
        assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, before)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_training_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            finish(start(tmp_path / "run", settings(tmp_path)))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
    assert np.array_equal(sl.RunFolder.open(tmp_path / "run").num_rounds, 3)
