"""What happens to samples of no class in the pool: digits 0 to 4 have labels, and 5 to 9 are in the pool too.

    python experiments/foreign_samples.py --results results

A foreign digit has no right label, so each one that is selected as a 0 to 4 is a wrong label. Selection by confidence
alone (eq. 2) and by confidence and uncertainty (eq. 5) are compared, with the thresholds of `RULES`, for the networks
of round 0 and of the last round. Everything else is as in `surelabel fit` for tables.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from surelabel.data.pool import PoolLabels
from surelabel.data.source import ArraySource
from surelabel.data.splits import few_labels
from surelabel.loop import self_train
from surelabel.runs.environment import describe_environment
from surelabel.runs.rows import alone, append
from surelabel.settings import FitSettings

COUNTS = ["known", "known_selected", "known_right", "foreign", "foreign_selected"]
COLUMNS = ["rule", "tau_p", "kappa_p", "other_labels", "seed", "round", "labels", *COUNTS, "torch", "commit"]
FILE = "foreign.csv"
NUM_CLASSES, PER_CLASS = 5, 10


class Rule(NamedTuple):
    """Thresholds for positive labels, and how many foreign samples are labeled as a class of their own."""

    tau_p: float
    kappa_p: float
    other_labels: int = 0


RULES = {
    "confidence alone": Rule(0.7, math.inf),
    "confidence alone, stricter": Rule(0.95, math.inf),
    "UPS, the defaults": Rule(0.7, 0.1),
    "UPS, stricter kappa_p": Rule(0.7, 0.02),
    "UPS, both stricter": Rule(0.99, 0.005),
    "UPS, the defaults, and some labeled as a class “other”": Rule(0.7, 0.1, 2 * PER_CLASS),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... this many")
    parser.add_argument("--rounds", type=int, help="rounds after round 0; left out, as fit has it")
    parser.add_argument("--results", type=Path, default=Path("results"), help=f"the folder of {FILE}")
    options = parser.parse_args()
    origin = {"torch": torch.__version__, "commit": describe_environment()["commit"] or ""}
    for seed in range(options.seeds):
        rows = [row | origin for name in RULES for row in run(name, seed, options.rounds)]
        with alone(options.results / FILE):
            append(options.results / FILE, COLUMNS, rows)
        print(f"seed {seed} done", flush=True)


def run(name: str, seed: int, max_rounds: int | None = None) -> Iterator[dict[str, Any]]:
    """Train by a rule, and yield what the networks of round 0 and of the last round select of the pool."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    known = np.flatnonzero(y < NUM_CLASSES)
    chosen, _ = few_labels(y[known], PER_CLASS, seed)
    rule, labeled = RULES[name], known[chosen]
    if rule.other_labels:
        foreign = np.flatnonzero(y >= NUM_CLASSES)
        labeled = np.concatenate([labeled, np.random.default_rng(seed).choice(foreign, rule.other_labels, False)])
    pool = np.setdiff1d(np.arange(len(y)), labeled)
    # Selection by confidence alone ignores uncertainty for negatives too.
    kappa_n = {"kappa_n": math.inf} if math.isinf(rule.kappa_p) else {}
    fit = FitSettings(tau_p=rule.tau_p, kappa_p=rule.kappa_p, max_rounds=max_rounds, device="cpu", **kappa_n)
    learner = fit.network("single").build("single")
    samples = x.astype(np.float32)
    records = list(
        self_train(
            learner,
            (ArraySource(samples[labeled], ids=labeled), np.minimum(y[labeled], NUM_CLASSES)),
            ArraySource(samples[pool], ids=pool),
            fit.config("single", NUM_CLASSES + (rule.other_labels > 0), seed),
        )
    )
    for record in {0: records[0], len(records) - 1: records[-1]}.values():
        assert record.pool is not None
        about = {"rule": name, **rule._asdict(), "seed": seed, "round": record.round, "labels": len(labeled)}
        yield about | counts(record.pool, y[pool])


def counts(labels: PoolLabels, truth: Any) -> dict[str, int]:
    """Return how many samples of the classes and how many foreign ones there are, and how many are selected as one."""
    selected, known = labels.positive_before & (labels.label < NUM_CLASSES), truth < NUM_CLASSES
    return {
        "known": int(known.sum()),
        "known_selected": int((selected & known).sum()),
        "known_right": int((selected & known & (labels.label == truth)).sum()),
        "foreign": int((~known).sum()),
        "foreign_selected": int((selected & ~known).sum()),
    }


if __name__ == "__main__":
    main()
