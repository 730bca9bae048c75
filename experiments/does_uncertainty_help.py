"""Does uncertainty help? Fresh networks learn from equal numbers of pseudo-labels per class, chosen with or without it.

    surelabel reproduce first-selection --recipe paper --labels 1000 --seeds 3 --out runs/first
    python experiments/does_uncertainty_help.py --pools runs/first --out runs/does-uncertainty-help --minutes 9

The first command trains round 0 on CIFAR-10 by the paper's recipe and labels the pool. The second one trains round 1
again, four times per seed (ROWS), with different pseudo-labels but the same labeled pictures, initial weights,
augmentation and steps.

`--pools` is a folder with run folders in it, at any depth; of each, run.json, history.json, split.json and
rounds/000/pool.parquet are needed. A finished training is kept as a file in `--out` (seed0-A.json) and not repeated.
With `--minutes`, no training starts that would end too late, judged by the longest so far; `--minutes 0` trains
nothing. The rows of all kept trainings go to `--results`, once. `--tiny` is a test run of seconds: synthetic pictures,
on a CPU.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from surelabel.augment.settings import AugmentSettings
from surelabel.base.references import portable_settings
from surelabel.core.arrays import rounded_to
from surelabel.core.selection import Selection
from surelabel.data.draws import draw, sample_keys, seed_for
from surelabel.data.images import ImageSet, Pictures, store
from surelabel.data.run_data import FunctionData, RunData
from surelabel.data.sets.cifar import CIFAR10_CLASSES
from surelabel.data.training_set import TrainingSet, make_problem
from surelabel.engine.order import num_steps
from surelabel.errors import RunError
from surelabel.methods.ups import UPSMethod
from surelabel.reproduce.cifar import CIFAR10, paper_recipe
from surelabel.reproduce.first_selection import most_confident
from surelabel.reproduce.results import append_rows, read_rows, settings_file
from surelabel.reproduce.variants import supervised
from surelabel.runs import RunFolder
from surelabel.runs.checks import check_same_data, split_of
from surelabel.runs.environment import describe_environment
from surelabel.runs.files import make_folder, read_json, write_file, write_json
from surelabel.runs.layout import RUN
from surelabel.runs.rows import alone
from surelabel.runs.session import start
from surelabel.settings import RunSettings

EXPERIMENT = "does-uncertainty-help"
ROWS = {"A": "A: UPS", "B": "B: most confident", "C": "C: drawn above 0.7", "D": "D: all above 0.7"}
PROTOCOL = (
    "Round 0's network, by the paper's recipe, labels the pool: p is the mean of its stochastic passes. A fresh "
    "network learns from the labeled pictures and A: all that UPS selects before balancing, n_c of class c; B: the n_c "
    "labels of class c with the highest p; C: n_c labels of class c with p >= tau_p, drawn by a hash of (seed, id); D: "
    "all labels with p >= tau_p. No negatives. A has its epochs; the others of its seed take as many steps. The test "
    "error is the last network's, in one plain pass; the minutes are those of this training, not of round 0."
)

Mask = npt.NDArray[np.bool_]


class Pool(NamedTuple):
    """What round 0's network says of each sample of the pool, (N,) each; `selected` by UPS, before balancing."""

    ids: npt.NDArray[np.int64]
    label: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.floating[Any]]
    selected: Mask


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=Path, help="a folder of the runs of round 0; --tiny makes its own")
    parser.add_argument("--out", type=Path, default=Path("runs") / EXPERIMENT, help="where trainings are kept")
    parser.add_argument("--results", type=Path, help="the CSV file; results/runs.csv, of --tiny runs.csv in --out")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for this call")
    parser.add_argument("--tiny", action="store_true", help="made-up pictures, a narrow network, few steps")
    options = parser.parse_args(arguments)
    if options.pools is None and not options.tiny:
        parser.error("--pools is missing: name the folder of the runs of round 0.")
    results = options.results or (options.out / "runs.csv" if options.tiny else Path("results/runs.csv"))
    work(options, results)


def work(options: argparse.Namespace, results: Path) -> None:
    """Train what is not kept yet, as far as the minutes go, and record it."""
    started, folder = time.monotonic(), options.out / "data" if options.tiny else None
    make_folder(options.out)
    if folder is not None:
        options.pools = make_tiny(options.out, folder, options.seeds)
    record(options.out, results)
    for seed in options.seeds:
        round_1 = None
        for row in ROWS:
            file = options.out / f"seed{seed}-{row}.json"
            if file.exists():
                continue
            if (time.monotonic() - started) / 60 + longest(options.out) > options.minutes:
                print(f"Stopped before seed {seed}, {ROWS[row]}: it might not end in time. The same command goes on.")
                return
            round_1 = round_1 or Round1(round_0(seed, folder), options.pools)
            write_json(file, round_1.train(row))
            record(options.out, results)


def round_0(seed: int, folder: Path | None = None) -> RunSettings:
    """Return the settings of round 0, whose network labels the pool; with a folder of data, tiny ones."""
    settings = supervised(paper_recipe(CIFAR10, 1000, seed))
    if folder is None:
        return settings
    assert isinstance(settings.data, FunctionData)
    arguments = {**settings.data.arguments, "labels": 200, "folder": str(folder.resolve())}
    learner = settings.network.replace(model_parameters={"dropout": 0.1, "width": 8}, threads=1, device="cpu")
    settings = settings.replace(learner=learner, data=settings.data.replace(arguments=arguments))
    augment = AugmentSettings(mean=CIFAR10.mean, std=CIFAR10.std)
    return settings.with_training(batch_size=32, steps=150, learning_rate=0.2, augment=augment)


def round_1_of(settings: RunSettings) -> RunSettings:
    """Return the settings of the trainings, which the tiny ones differ from in their length and precision."""
    tiny = settings.network.training.steps is not None
    length = {"steps": None, "epochs": 2} if tiny else {"epochs": 256, "precision": "bfloat16"}
    settings = settings.with_training(**length)
    return settings.replace(name="", learner=settings.network.replace(negative_weight=0.0))


class Round1:
    """Trains fresh networks, which share a compiled step, on what `pools` has of a round 0 of these settings."""

    def __init__(self, settings: RunSettings, pools: Path) -> None:
        assert settings.data is not None
        self.seed, self.settings = settings.config.seed, round_1_of(settings)
        self.data = settings.data.load()
        run = find_run(pools, settings)
        self.tau, self.pool = run.settings.config.tau_p, read_pool(run)
        self.split = check_data(run, self.data, self.pool)
        self.problem = make_problem(self.data.labeled, self.data.unlabeled, "single", len(self.data.classes))
        training, first = self.settings.network.training, self.training_set(self.chosen("A"))
        learner = self.settings.network.build("single")
        # One number for all rows: steps are a part of what a compiled step is made for.
        steps = num_steps(learner.method(first, shared=True).streams(first), training)
        learner.training = training.replace(steps=steps)
        self.learner = learner

    def chosen(self, row: str) -> Mask:
        """Return which of the pool's labels a row learns from."""
        ids, label, confidence, selected = self.pool
        above = confidence >= rounded_to(confidence, self.tau)
        counts = np.bincount(label[selected], minlength=len(self.data.classes)).tolist()
        if row == "A":
            return selected
        if row == "B":
            return most_confident(label, confidence, counts)
        if row == "C":
            drawn = draw(self.seed, EXPERIMENT, sample_keys(ids)).astype(np.float64)
            return most_confident(label, np.where(above, drawn, -1.0), counts)
        return above

    def training_set(self, chosen: Mask) -> TrainingSet:
        """Return the labeled samples and these of the pool as round 1 learns from them."""
        positive = np.zeros((len(chosen), len(self.data.classes)), dtype=bool)
        positive[chosen, self.pool.label[chosen]] = True
        return self.problem.training_set(Selection(positive, np.zeros_like(positive)), round=1)

    def train(self, row: str) -> dict[str, Any]:
        """Return the settings and the rows of a results file of one training."""
        assert self.data.test is not None
        (samples, y), started, chosen = self.data.test, time.monotonic(), self.chosen(row)
        self.learner.fit(self.training_set(chosen), seed=seed_for(self.seed, 1, "fit"))
        error = np.mean(self.learner.predict_proba(samples).argmax(axis=1) != y)
        minutes = (time.monotonic() - started) / 60
        metrics = {
            "test error %": round(100 * float(error), 4),
            "labels": int(chosen.sum()),
            "labels right %": round(100 * float(np.mean((self.pool.label == self.data.truth)[chosen])), 4),
            "steps": self.learner.training.steps,
        }
        print(f"seed {self.seed}, {ROWS[row]}, {minutes:.2f} minutes: {metrics}", flush=True)
        same = self._row(row, int(chosen.sum()), minutes)
        rows = [{**same, "metric": metric, "value": value} for metric, value in metrics.items()]
        return {"settings": kept_settings(self.settings), "rows": rows}

    def _row(self, row: str, number: int, minutes: float) -> dict[str, Any]:
        labeled, environment = len(self.data.labeled[1]), describe_environment(self.learner)
        method = UPSMethod("single", self.learner.training)
        epochs, seen = method.samples_in_round(labeled, number, 0, 1)
        return {
            "experiment": EXPERIMENT,
            "row": ROWS[row],
            "dataset": CIFAR10.name,
            "labels": labeled,
            "validation_labels": 0,
            "split_hash": self.split,
            "seed": self.seed,
            "paper": None,
            "rounds": 1,
            "epochs": epochs,
            "images_seen": seen,
            "minutes": minutes,
            "device": f"{environment['device']}: {environment['processor']}",
            "torch": torch.__version__,
            "commit": environment["commit"] or "",
        }


def find_run(pools: Path, settings: RunSettings) -> RunFolder:
    """Return the run of round 0, of this seed and network, somewhere in a folder."""
    learner, seed = settings.network.pinned().replace(device=None), settings.config.seed
    for path in sorted(pools.rglob(RUN)):
        run = RunFolder.open(path.parent)
        if run.settings.config.seed == seed and run.settings.network.replace(device=None) == learner:
            return run
    raise RunError(
        f"The folder '{pools}' has no run of seed {seed} by the paper's recipe; make it with: surelabel reproduce "
        f"first-selection --recipe paper --labels 1000 --seed {seed} --out {pools}"
    )


def check_data(run: RunFolder, data: RunData, pool: Pool) -> str:
    """Return the hash of the split; refuse data other than the run's: split, ids, their order, samples, labels."""
    ours, theirs = split_of(data)["hash"], (run.split() or {}).get("hash")
    if ours != theirs:
        raise RunError(
            f"The labeled samples of seed {run.settings.config.seed} have the split hash {ours}, and those of the run "
            f"in '{run.path}' {theirs}; run round 0 again with this version."
        )
    check_same_data(run, data)
    if not np.array_equal(pool.ids, data.unlabeled.ids):
        raise RunError(f"The pool in '{run.path}' has other ids than the data, or in another order; run it again.")
    return str(ours)


def read_pool(run: RunFolder) -> Pool:
    """Return round 0's labels of the pool; the table of negatives is not needed."""
    table = run.pool_table(0)
    code = {name: index for index, name in enumerate(run.settings.classes)}
    label = np.array([code[name] for name in table["label"].to_pylist()])
    ids, confidence, selected = (table[name].to_numpy() for name in ("id", "confidence", "before_balancing"))
    return Pool(ids, label, confidence, selected)


def kept_settings(settings: RunSettings) -> dict[str, Any]:
    """Return the settings that the trainings of all seeds have in common."""
    values = portable_settings(settings.to_json())
    return {"protocol": PROTOCOL, "learner": values["learner"], "tau_p": values["config"]["tau_p"]}


def kept(out: Path) -> list[dict[str, Any]]:
    """Return what the folder keeps of finished trainings."""
    return [read_json(path) for path in sorted(out.glob("seed*-[A-D].json"))]


def longest(out: Path) -> float:
    """Return the minutes of the longest training that is kept; 0: there is none."""
    return max((training["rows"][0]["minutes"] for training in kept(out)), default=0.0)


def record(out: Path, results: Path) -> None:
    """Append the rows of all kept trainings that the results file lacks, and keep their settings in its folder."""

    def told(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in ("experiment", "row", "split_hash", "metric", "settings", "commit"))

    with alone(results):
        known = {told(row) for row in read_rows(results)}
        for training in kept(out):
            name, text = settings_file(EXPERIMENT, training["settings"])
            rows = [{**row, "settings": name} for row in training["rows"]]
            write_file(results.parent / name, text)
            append_rows(results, [row for row in rows if told(row) not in known])


def make_tiny(out: Path, folder: Path, seeds: Sequence[int]) -> Path:
    """Make pictures, and round 0 of each seed; return the folder of these runs."""
    store_made_up(folder)
    for seed in seeds:
        place = out / "pools" / f"seed{seed}"
        if not (place / RUN).exists():
            list(start(place, round_0(seed, folder)))
    return out / "pools"


def store_made_up(folder: Path) -> None:
    """Store 600 pictures and 200 for tests in the place of CIFAR-10's: classes are colors, and hard to tell."""
    generator = np.random.default_rng(0)
    colors = generator.integers(40, 216, size=(10, 3))

    def pictures(count: int) -> Pictures:
        y = np.arange(count) % 10
        color = colors[y] + 20 * generator.normal(size=(count, 3))
        noise = 10 * generator.normal(size=(count, 3, 12, 12))
        return Pictures((color[:, :, None, None] + noise).clip(0, 255).astype(np.uint8), y)

    store(folder / CIFAR10.name, ImageSet(pictures(600), pictures(200), CIFAR10_CLASSES, origin="made up"))


if __name__ == "__main__":
    main()
