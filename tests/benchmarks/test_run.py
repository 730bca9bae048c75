"""The bench: all ways do the same work, take turns, and what did not fit is said. No test looks at a speed."""

import csv
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image, ImageOps
from torch import nn

from benchmarks import __main__ as command
from benchmarks import run as bench_run
from benchmarks.operations import MultiplyAdds, multiply_adds
from benchmarks.pillow_augment import OPERATIONS, normalized, pillow_augment
from benchmarks.plain import Plain
from benchmarks.published_like import PublishedLike
from benchmarks.results import COLUMNS, append_rows, check_file, origin
from benchmarks.run import ENGINE, PLAIN, PUBLISHED_LIKE, WAYS, Bench, BenchSettings, Row, run_bench
from benchmarks.timing import Deadline, medians
from benchmarks.work import AUGMENTATION, NUM_CLASSES
from surelabel.augment.settings import AugmentSettings
from surelabel.cli._errors import WrongUse
from surelabel.errors import InvalidInputError

TINY = BenchSettings(
    device="cpu", width=2, batches=(4, 2), label_batch=4, passes=2, images=8, workers=0, repeats=1, minutes=60
)


class Recorder(nn.Module):
    """A network that notes each batch that it sees: its size, mode and kind."""

    seen: list[tuple[int, bool, torch.dtype]]

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(3 * 32 * 32, NUM_CLASSES))
        Recorder.seen = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Recorder.seen.append((len(x), self.layers[1].training, x.dtype))
        return self.layers(x)


def recorder(sample_shape: tuple[int, ...], num_classes: int) -> Recorder:
    assert (sample_shape, num_classes) == ((3, 32, 32), NUM_CLASSES)
    return Recorder()


@pytest.mark.parametrize("kind", [PublishedLike, Plain])
def test_a_way_trains_on_every_batch_and_labels_every_image_in_all_passes(kind):
    settings = TINY.replace(model=f"{__name__}:recorder", images=9)
    way = kind(settings.work(4))
    assert way.train_seconds() > 0
    assert Recorder.seen == [(4, True, torch.float32)] * 2, "two steps of four; the ninth image fills no batch"
    Recorder.seen.clear()
    assert way.label_seconds() > 0
    assert Recorder.seen == [(4, True, torch.float32)] * 2 * 2, "two batches, two passes with dropout on"
    assert way.restart_seconds() > 0
    assert len(Recorder.seen) == 1, "a new network has taken one step"


@pytest.mark.parametrize("kind", WAYS.values(), ids=WAYS)
def test_training_changes_the_weights_and_labeling_does_not(kind):
    way = kind(TINY.work(4))
    way.train_seconds()
    network = way.learner.network if kind is WAYS[ENGINE] else way.model
    before = {name: value.clone() for name, value in network.state_dict().items()}
    way.label_seconds()
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    way.train_seconds()
    network = way.learner.network if kind is WAYS[ENGINE] else way.model
    assert not torch.equal(before["layers.0.weight"], network.state_dict()["layers.0.weight"])


def test_loader_workers_give_the_same_work_and_are_stopped():
    way = PublishedLike(TINY.replace(workers=1).work(4))
    assert way.train_seconds() > 0
    assert way.label_seconds() > 0
    assert not torch.multiprocessing.active_children()


@pytest.fixture
def tf32_on():
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = True
    yield
    matmul.allow_tf32 = before


def test_the_published_like_way_multiplies_without_tf32_and_leaves_the_flags_as_they_were(tf32_on, monkeypatch):
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    seen = []

    class Watching(Recorder):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((matmul.allow_tf32, cudnn.allow_tf32))
            return super().forward(x)

    monkeypatch.setattr(f"{__name__}.Recorder", Watching)
    way = PublishedLike(TINY.replace(model=f"{__name__}:recorder").work(4))
    flags = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    way.train_seconds()
    assert set(seen) == {(False, False)}
    assert (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark) == flags


def test_every_row_is_timed_by_every_way_and_progress_is_told():
    told = []
    bench = run_bench(TINY, lambda what, done, total: told.append((what, done, total)))
    names = [(row.what, row.batch) for row in bench.rows]
    assert names == [("training", 4), ("labeling, 2 passes", 4), ("next round", 4), ("training", 2)]
    assert all(row.missing == [] and set(row.seconds) == set(WAYS) for row in bench.rows)
    assert all(seconds > 0 for row in bench.rows for seconds in row.seconds.values())
    assert [done for _, done, _ in told] == list(range(24))
    assert {total for _, _, total in told} == {24}
    assert told[0][0] == "training, published-like"
    assert [bool(bench.fraction_of_peak(row)) for row in bench.rows] == [True, True, False, True]


def test_a_row_tells_speeds_ratios_and_the_share_of_the_peak():
    row = Row("training", 4, {ENGINE: 0.001, PLAIN: 0.002, PUBLISHED_LIKE: 0.01}, operations=5e6)
    bench = Bench([row, Row("next round", 4, {PLAIN: 1.0})], 1e10, "cnn13", torch.device("cpu"))
    (result,) = bench.results()
    assert result == {
        "what": "training",
        "model": "cnn13",
        "batch": 4,
        "per_second": 1000.0,
        "plain_per_second": 500.0,
        "ratio": 2.0,
        "published_like_per_second": 100.0,
        "published_like_ratio": 10.0,
        "fraction_of_peak": 0.5,
        **origin(torch.device("cpu")),
    }
    assert bench.rows[1].missing == [PUBLISHED_LIKE, ENGINE]


def test_ways_take_turns_after_a_warm_up_and_the_median_counts():
    calls = []
    times = {"a": iter([100.0, 3.0, 1.0, 2.0]), "b": iter([0.0, 7.0, 9.0, 8.0])}

    def measure(name: str) -> float:
        calls.append(name)
        return next(times[name])

    assert medians({name: lambda name=name: measure(name) for name in times}, 3) == {"a": 2.0, "b": 8.0}
    assert calls == ["a", "b"] * 4


def test_after_the_deadline_nothing_begins_and_what_is_missing_is_left_out():
    class Third(Deadline):
        asked = 0

        @property
        def passed(self) -> bool:
            self.asked += 1
            return self.asked > 3

    assert medians({"a": lambda: 1.0, "b": lambda: 2.0}, 5, Third(1)) == {"a": 1.0}


def test_multiply_adds_of_convolutions_groups_and_linear_layers_by_hand():
    model = nn.Sequential(
        nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 2)
    )
    found = multiply_adds(model.train(), torch.zeros(7, 4, 3, 3))
    assert found == MultiplyAdds(once=6 * (4 // 2) * 9 + 6 * 5, each_pass=5 * 2)
    assert found.labeling_operations(10) == 2 * (found.once + 10 * found.each_pass)
    assert found.training_operations() == 6 * (found.once + found.each_pass)
    assert all(layer.training for layer in model)
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model), "hooks are taken off"


def test_without_a_random_layer_all_multiply_adds_are_done_once():
    assert multiply_adds(nn.Linear(3, 2), torch.zeros(1, 3)) == MultiplyAdds(6, 0)


PHOTO = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def test_there_are_sixteen_operations_and_each_changes_an_image_in_its_own_way():
    random.seed(0)
    changed = [np.asarray(operation(Image.fromarray(PHOTO), 0.3)) for operation in OPERATIONS]
    assert len(OPERATIONS) == 16
    assert all(image.shape == PHOTO.shape and image.dtype == np.uint8 for image in changed)
    # Random noise has the full range already: auto-contrast leaves it.
    assert sum((image == PHOTO).all() for image in changed) == 1
    assert len({image.tobytes() for image in changed}) == 16
    assert (changed[2] == 255 - PHOTO).all()
    assert (changed[4] == np.asarray(ImageOps.posterize(Image.fromarray(PHOTO), 1))).all()


def test_the_published_magnitude_posterizes_to_black():
    assert not np.asarray(OPERATIONS[4](Image.fromarray(PHOTO), 4 / 30)).any()


def test_the_chain_without_operations_only_normalizes():
    settings = AugmentSettings(operations=0, magnitude=4, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    expected = torch.from_numpy(PHOTO).permute(2, 0, 1) / 255 - torch.tensor([0.5, 0.25, 0.0]).view(3, 1, 1)
    expected = expected / torch.tensor([0.5, 0.25, 1.0]).view(3, 1, 1)
    assert torch.allclose(pillow_augment(PHOTO, settings), expected, atol=1e-6)
    assert torch.allclose(normalized(PHOTO, settings), expected, atol=1e-6)


def test_flip_crop_and_hole_move_and_cover_pixels_and_nothing_else():
    random.seed(1)
    image = np.arange(1, 32 * 32 + 1, dtype=np.int64).reshape(32, 32) % 251 + 1
    pixels = np.repeat(image[:, :, None], 3, axis=2).astype(np.uint8)
    outcomes = set()
    for _ in range(50):
        augmented = pillow_augment(pixels, AugmentSettings(magnitude=4, flip=True, crop=4, hole=16)) * 255
        levels = augmented[0].round().int().numpy()
        assert set(np.unique(levels)) <= {0, *np.unique(pixels).tolist()}
        covered = np.argwhere(levels == 0)
        assert 1 <= len(covered) <= 256
        assert ((covered.max(0) - covered.min(0)) < 16).all()
        outcomes.add(levels.tobytes())
    assert len(outcomes) == 50


def test_the_chain_of_all_ways_is_the_published_one():
    published = {"operations": 3, "magnitude": 4, "flip": True, "crop": 4, "jitter": 0.4, "hole": 16}
    assert published.items() <= dict(AUGMENTATION).items()


def test_rows_are_appended_below_the_header_and_a_foreign_file_is_refused(tmp_path):
    path = tmp_path / "new" / "bench.csv"
    append_rows(path, [{"what": "training", "per_second": 12345.678}])
    append_rows(path, [{"what": "select", "ratio": 2.0}])
    lines = path.read_text().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert lines[1:] == ["training,,,12350.0,,,,,,,,", "select,,,,,2.0,,,,,,"]
    with pytest.raises(ValueError, match="nonsense"):
        append_rows(path, [{"nonsense": 1}])
    assert path.read_text().splitlines() == lines
    foreign = tmp_path / "runs.csv"
    foreign.write_text("experiment,row\n")
    for refuse in (check_file, lambda path: append_rows(path, [])):
        with pytest.raises(InvalidInputError, match="must have the columns what, model.*Got experiment, row instead"):
            refuse(foreign)


def test_the_commit_of_a_copy_without_git_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("SURELABEL_COMMIT", "abc")
    assert origin(torch.device("cpu"))["commit"] == "abc"


def test_fewer_images_than_a_batch_are_named():
    with pytest.raises(InvalidInputError, match="'images' setting must be at least the batch size, 4. Got 3 instead"):
        run_bench(TINY.replace(images=3))


@pytest.fixture
def tiny_defaults(monkeypatch):
    monkeypatch.setattr(bench_run, "default_settings", lambda device: TINY.replace(batches=(4,)))


def test_the_command_prints_a_table_and_writes_only_where_asked(tiny_defaults, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command.command(device="cpu", passes=3)
    out = capsys.readouterr().out
    assert "labeling, 3 passes" in out
    assert out.count("x)") == 6, "three rows, two ratios each"
    assert list(tmp_path.iterdir()) == []
    command.command(device="cpu", results=Path("results/bench.csv"))
    with open("results/bench.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["what"] for row in rows] == ["training", "labeling, 2 passes", "next round"]
    assert all(float(row["per_second"]) > 0 and row["device"].startswith("cpu (") for row in rows)
    assert all(float(row["ratio"]) > 0 and float(row["published_like_ratio"]) > 0 for row in rows)
    assert [row["fraction_of_peak"] != "" for row in rows] == [True, True, False]


def test_the_command_says_what_did_not_fit_into_its_minutes(tiny_defaults, capsys):
    command.command(device="cpu", minutes=1e-9)
    said = capsys.readouterr()
    assert "training (batch 4) was not timed in 1e-09 minutes: published-like, plain, engine" in said.err
    assert said.err.count("warning:") == 3


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"device": "nonsense"}, "Invalid value for '--device'"),
        ({"device": "cpu", "passes": 1}, "Invalid value for '--passes'"),
        ({"device": "cpu", "minutes": 0.0}, "Invalid value for '--minutes'"),
    ],
)
def test_wrong_options_are_named_before_anything_is_timed(options, problem):
    with pytest.raises(WrongUse, match=problem):
        command.command(**options)


def test_a_wrong_results_file_is_named_before_anything_is_timed(tmp_path, monkeypatch):
    path = tmp_path / "runs.csv"
    path.write_text("experiment,row\n")
    monkeypatch.setattr(bench_run, "run_bench", lambda *_: pytest.fail("it began to time"))
    with pytest.raises(InvalidInputError, match="must have the columns"):
        command.command(device="cpu", results=path)


def test_the_command_has_the_promised_options():
    names = {name for parameter in typer.main.get_command(command.app).params for name in parameter.opts}
    assert {"--model", "--batch", "--passes", "--images", "--workers", "--minutes", "--device", "--results"} <= names


def test_what_workers_loaded_ahead_is_thrown_away_before_the_clock_starts(monkeypatch):
    loaded_before = []

    def clock(work, device):
        loaded_before.append(loaded.count)
        work()
        return 1.0

    class Counted:
        def __init__(self, loader):
            self.loader, self.count = loader, 0

        def __iter__(self):
            return self

        def __next__(self):
            self.count += 1
            return next(self.loader)

    way = PublishedLike(TINY.work(4))
    make_loader = way._loader

    def counted_loader(images, order):
        nonlocal loaded
        loaded = Counted(make_loader(images, order))
        return loaded

    loaded = None
    monkeypatch.setattr(way, "_loader", counted_loader)
    monkeypatch.setattr("benchmarks.published_like.seconds", clock)
    assert way.train_seconds() == 1 / 8
    assert loaded_before == [1]
    assert loaded.count == 3
