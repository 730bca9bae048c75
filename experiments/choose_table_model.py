"""Trials of changes to `surelabel fit` for small tables, on the data on which defaults are chosen.

    SURELABEL_DATA=DATA python experiments/choose_table_model.py FOLDER --results results

DATA holds `sms_spam` and `tables`, as for `own_data.py --choosing`. For each data set and seed, `surelabel fit` runs
with its current defaults, and each trial learns from the same labels and the same pool:

- wide: a linear path in parallel to the network's hidden layers, logits = layers(x) + W x, with W = 0 at first;
- linear UPS: the rounds with an ensemble of logistic regressions in place of the network;
- averaged: the mean of the probabilities of the last round and of the linear model of the labels;
- ensemble: the rounds with a deep ensemble of five networks in place of one with MC-dropout, with the same thresholds;
  p and u come from the five, and their mean predicts;
- ensemble, last: the usual rounds, but the last one trains five networks on its selection, and their mean predicts.

On Glass, Vowel and Ionosphere the last round's network is 3 to 5 points behind round 0, and on penguins and
PimaIndiansDiabetes2 a little behind linear models, self-trained or not (`own_data.py --choosing`, 3 seeds). Four more
trials address this:

- pi-model: the rounds with the Pi-model as the method, because alone it is ahead of round 0, which learns from no pool;
- averaged rounds: the mean of the probabilities of the networks of all rounds, because which round is best differs;
- agreement: a sample of the pool counts as uncertain (u = 1) if the linear model of the labels gives it another class,
  because a selected wrong label is learned from;
- linear, selected: the mean of the probabilities of the last round and of a linear model that learns from the labels
  and selected pseudo-labels of a further round, because a linear model of the labels alone is too weak.

Self-training of logistic regression, as a further model to compare, is not among them: even a choice by the test labels
would gain only 0.7 points over the kept model (the same rows), and a choice by a few held-out labels much less.

Fixed before the first run: a trial is adopted if its mean gain over the last round, over the data sets, is at least 0.5
points, and the 95 % interval over the data sets excludes a loss of more than 0.3 points. Linear UPS would be a further
model to compare, so it is judged by the gain of the kept model (`--folds`): the last round is kept unless another
model, such as linear UPS, is clearly better.
"""

import argparse
import functools
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparison import METRIC, Book
from own_data import score, split_hash
from own_files import CHOOSING, TABLES
from torch import Tensor, nn

from surelabel.core.arrays import to_numpy
from surelabel.core.metrics import paired_difference
from surelabel.data.draws import seed_for
from surelabel.data.pool import PoolLabels, Prediction, join, label_chunk
from surelabel.data.run_data import RunData
from surelabel.data.source import Concatenation, Source, Subset, as_source
from surelabel.data.targets import Selected
from surelabel.data.training_set import make_problem
from surelabel.kinds.tables import linear_for
from surelabel.learners.settings import OF_TABLES
from surelabel.loop import PoolLabeler, rounds, self_train
from surelabel.models.table import TableNetwork, table_network
from surelabel.records import RoundRecord
from surelabel.runs import RunFolder
from surelabel.runs.comparison import Judged, choose, is_clear
from surelabel.runs.environment import describe_environment
from surelabel.runs.folds import folds_of
from surelabel.settings import EMA_DECAY, FitSettings, UPSConfig

DATASETS = ("iris", *TABLES, "SMS spam, even rows")
LAST, KEPT, KEPT_OF_FOUR = "last round", "kept model", "kept model, linear UPS compared too"
WIDE, LINEAR_UPS, AVERAGED, LINEAR = "wide", "linear UPS", "averaged", "linear model of fit"
ENSEMBLE, ENSEMBLE_LAST = "ensemble", "ensemble, last"
PI_MODEL, AVERAGED_ROUNDS, AGREEMENT, LINEAR_SELECTED = "pi-model", "averaged rounds", "agreement", "linear, selected"
OF_LABELS = WIDE, LINEAR_UPS, AVERAGED, LINEAR, ENSEMBLE, ENSEMBLE_LAST
AGAINST_ERRORS = PI_MODEL, AVERAGED_ROUNDS, AGREEMENT, LINEAR_SELECTED
BASES = {**dict.fromkeys((*OF_LABELS, *AGAINST_ERRORS), LAST), KEPT_OF_FOUR: KEPT}
"""What each trial is compared with."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where files and runs are written; what is in it is replaced")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--trials", nargs="+", choices=list(TRIALS), default=list(TRIALS), help="without --folds")
    parser.add_argument("--folds", action="store_true", help="compare models as `fit` does, with linear UPS or not")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the folder of defaults.csv")
    options = parser.parse_args()
    settings = {"protocol": __doc__, "folds": options.folds} | ({} if options.folds else {"trials": options.trials})
    book = Book(options.results / "defaults.csv", "choose table model", settings)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name in options.datasets:
            folder = options.folder / name.replace(" ", "-") / str(seed)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            run, data = fitted(name, folder, seed, compared=options.folds)
            found = of_four(run, data) if options.folds else trials(run, data, options.trials)
            rows = [scored(row, value, data, seed, name) for row, value in found]
            book.add(rows)
            print(name, seed, *(f"{row['row']}: {row['value']:.1f}" for row in rows), sep=" | ", flush=True)
        show(book)


def fitted(name: str, folder: Path, seed: int, *, compared: bool) -> tuple[RunFolder, RunData]:
    """Run `surelabel fit` with its defaults, and return the run and its data."""
    case, out = CHOOSING[name].write(folder, seed), folder / "run"
    command = ["fit", str(case.data), *case.options, "--test", str(case.test), "--seed", str(seed), "--out", str(out)]
    more = [] if compared else ["--no-compare"]
    subprocess.run([sys.executable, "-m", "surelabel", *command, "--quiet", *more], check=True)
    run = RunFolder.open(out)
    return run, run.data()


def trials(run: RunFolder, data: RunData, names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield the test score of the last round, and of each trial."""
    assert data.test is not None
    test, truth = as_source("test", data.test[0]), to_numpy(data.test[1])
    yield LAST, score(run.learner().predict_proba(test), truth)
    for name in names:
        yield name, score(TRIALS[name](run, data, test), truth)


def wide(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the test predictions after rounds of a network with a linear path."""
    return rounds_by(wide_learner(run), run, data).predict_proba(test)


def linear_ups(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the test predictions after rounds of linear models."""
    return rounds_by(linear_learner(run), run, data).predict_proba(test)


def of_labels(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the test predictions of the linear models of the labels alone."""
    return fitted_linear(run, data, None).predict_proba(test)


def averaged(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the mean of the predictions of the last round and of the linear models of the labels."""
    return (np.asarray(run.learner().predict_proba(test)) + of_labels(run, data, test)) / 2


def ensemble(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the test predictions after rounds of a deep ensemble."""
    return rounds_by(ensemble_learner(run), run, data).predict_proba(test)


def ensemble_last(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the test predictions of a deep ensemble trained like the run's last round."""
    *done, _ = run.records()
    done[-1] = done[-1].replace(pool=run.pool(done[-1].round))
    return rounds_by(ensemble_learner(run), run, data, done).predict_proba(test)


def pi_model(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the test predictions after rounds of the Pi-model."""
    settings = run.settings.network
    training = settings.training.replace(ema_decay=EMA_DECAY)
    learner = settings.replace(method="pi-model", training=training).build(data.task)
    return rounds_by(learner, run, data).predict_proba(test)


def averaged_rounds(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the mean prediction of the networks of all rounds."""
    learner = run.settings.network.build(data.task)
    records = self_train(learner, data.labeled, data.unlabeled, run.settings.config)
    return np.mean([np.asarray(learner.predict_proba(test)) for _ in records], axis=0)


def agreement(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the predictions of rounds that skip samples for which the linear model of the labels has another class.

    A sample's negatives are left out too: those of all other classes would mean the same as the positive.
    """
    linear = fitted_linear(run, data, None)

    def label(learner: Any, source: Source, _: int, config: UPSConfig, number: int) -> Iterator[PoolLabels]:
        classes, start = linear.predict_proba(source).argmax(axis=1), 0
        for prediction in learner.predict(source, seed=seed_for(config.seed, number, "predict")):
            p, u, p_soft, u_soft = map(to_numpy, prediction[1:])
            differs = (p.argmax(axis=1) != classes[start : start + len(p)])[:, None]
            start += len(p)
            u, u_soft = (np.where(differs, 1, part).astype(part.dtype) for part in (u, u_soft))
            changed = Prediction(prediction.ids, p, u, p_soft, u_soft)
            yield label_chunk(changed, config.task, config.thresholds, config.negatives)

    return rounds_by(run.settings.network.build(data.task), run, data, label=label).predict_proba(test)


def linear_selected(run: RunFolder, data: RunData, test: Source) -> Any:
    """Return the mean prediction of the last round and of a linear model of what a further round would learn from."""
    linear = fitted_linear(run, data, run.pool().selected)
    return (np.asarray(run.learner().predict_proba(test)) + linear.predict_proba(test)) / 2


TRIALS: dict[str, Callable[[RunFolder, RunData, Source], Any]] = {
    WIDE: wide,
    LINEAR_UPS: linear_ups,
    LINEAR: of_labels,
    AVERAGED: averaged,
    ENSEMBLE: ensemble,
    ENSEMBLE_LAST: ensemble_last,
    PI_MODEL: pi_model,
    AVERAGED_ROUNDS: averaged_rounds,
    AGREEMENT: agreement,
    LINEAR_SELECTED: linear_selected,
}


def of_four(run: RunFolder, data: RunData) -> Iterator[tuple[str, float]]:
    """Yield the test score of the kept model, and of the one that is kept if linear UPS is compared too."""
    assert data.test is not None
    found = run.comparison()
    assert found is not None
    test, truth = as_source("test", data.test[0]), to_numpy(data.test[1])
    kept = score(run.learner().predict_proba(test), truth)
    self_trained = score(rounds_by(linear_learner(run), run, data).predict_proba(test), truth)
    judged, fourth = found.judged(), linear_ups_held_out(run, data)
    last = judged["last"]
    assert np.array_equal(last.truth, fourth.truth)
    others = [one.score.mean for name, one in judged.items() if name == choose(judged) != "last"]
    keeps_fourth = is_clear(fourth, last) and fourth.score.mean >= max(others, default=0.0)
    yield KEPT, kept
    yield LINEAR_UPS, self_trained
    yield KEPT_OF_FOUR, self_trained if keeps_fourth else kept


def linear_ups_held_out(run: RunFolder, data: RunData) -> Judged:
    """Return the labels of held-out samples by linear UPS, in the folds of the run's comparison."""
    pool = as_source("unlabeled", data.unlabeled)
    labeled = as_source("labeled", data.labeled[0], first_id=len(pool))
    codes, parts, truths = to_numpy(data.labeled[1]), [], []
    assert run.settings.comparison is not None
    for fold in folds_of(data, run.settings.comparison.folds, run.settings.config.seed):
        samples, truth = Subset(labeled, fold.held_out), codes[fold.held_out]
        learned = Subset(labeled, fold.learned), codes[fold.learned]
        problem = make_problem(learned, Concatenation(pool, samples), data.task, len(data.classes))
        held_out = problem.held_out("validation", (samples, truth))
        assert held_out is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            records = list(rounds(linear_learner(run), problem, run.settings.config, {"validation": held_out}))
        assert records[-1].validation is not None
        parts.append(records[-1].validation)
        truths.append(truth)
    return Judged(join(parts), np.concatenate(truths))


def rounds_by(
    learner: Any, run: RunFolder, data: RunData, done: Sequence[RoundRecord] = (), label: PoolLabeler | None = None
) -> Any:
    """Return the learner after all rounds of a run's settings, or after the rounds that follow finished ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a solver that stops a little early
        for _ in self_train(learner, data.labeled, data.unlabeled, run.settings.config, resume_from=done, label=label):
            pass
    return learner


def linear_learner(run: RunFolder) -> Any:
    """Return the ensemble of linear models that `fit` compares networks with, not fitted."""
    columns = getattr(run.settings.data, "columns", None) or ()
    return FitSettings().ensemble(linear_for(columns)).build(run.settings.config.task)


def fitted_linear(run: RunFolder, data: RunData, selected: Selected | None) -> Any:
    """Return the linear models of the labels and, if given, of selected labels of the pool."""
    problem, linear = make_problem(data.labeled, data.unlabeled, data.task, len(data.classes)), linear_learner(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a solver that stops a little early
        linear.fit(problem.training_set(selected), seed=0)
    return linear


def ensemble_learner(run: RunFolder) -> Any:
    """Return a deep ensemble of five of the run's networks, not fitted."""
    changed = run.settings.network.replace(uncertainty="deep-ensemble", uncertainty_parameters={"members": 5})
    return changed.build(run.settings.config.task)


def wide_learner(run: RunFolder) -> Any:
    """Return the run's network with a linear path in parallel to the hidden layers, not fitted."""
    settings = run.settings.network
    assert settings.model is None
    options = {name: getattr(settings, name) for name in OF_TABLES}
    return settings.build(run.settings.config.task, make=functools.partial(wide_network, **options))


def wide_network(sample_shape: tuple[int, ...], num_classes: int, **options: Any) -> TableNetwork:
    """Return a network for tables with a linear path in parallel to its hidden layers."""
    network = table_network(sample_shape, num_classes, **options)
    network.layers = WideAndDeep(network.layers, network.num_features, num_classes)  # type: ignore[assignment]
    return network


class WideAndDeep(nn.Module):
    """The sum of some layers and of a linear one, whose weights are 0 at first."""

    def __init__(self, deep: nn.Module, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.deep, self.wide = deep, nn.Linear(num_features, num_classes, bias=False)
        nn.init.zeros_(self.wide.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, (N, C)."""
        logits: Tensor = self.deep(x) + self.wide(x)
        return logits


def scored(row: str, value: float, data: RunData, seed: int, dataset: str) -> dict[str, Any]:
    """Return a row of the results."""
    return {
        "row": row,
        "dataset": dataset,
        "labels": len(data.labeled[1]),
        "validation_labels": 0,
        "split_hash": split_hash(data),
        "seed": seed,
        "metric": METRIC,
        "value": round(100 * value, 4),
        **dict.fromkeys(("paper", "rounds", "epochs", "images_seen", "minutes")),
        "device": f"cpu (1 thread, {describe_environment()['processor']})",
    }


def show(book: Book) -> None:
    """Print the gain of each trial, with its 95 % interval over the data sets."""
    means = {key: float(np.mean(list(by_seed.values()))) for key, by_seed in book.values().items()}
    for trial, base in BASES.items():
        sets = [name for name, row in means if row == trial and (name, base) in means]
        if len(sets) < 2:
            continue
        gains = [means[name, trial] - means[name, base] for name in sets]
        mean, low, high = paired_difference([means[n, trial] for n in sets], [means[n, base] for n in sets])
        print(f"= {trial} minus {base}: {mean:+.2f} [{low:+.2f}, {high:+.2f}] over {len(sets)} data sets", flush=True)
        print("   ", ", ".join(f"{n} {g:+.1f}" for n, g in zip(sets, gains, strict=True)), flush=True)


if __name__ == "__main__":
    main()
