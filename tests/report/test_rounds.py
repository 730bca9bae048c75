"""Runs whose networks differ from round to round: what is said of one must not be said of another."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_support import CONFIG, SAMPLES, Scripted

from surelabel.learners.settings import TorchLearnerSettings
from surelabel.report.tables import Row
from surelabel.reproduce.paper_figures import figure_1_a, figure_1_by_round
from surelabel.runs import RunFolder
from surelabel.runs.session import run


class Learning(Scripted):
    """From the second fit on it is certain of the first three samples alone, and its p is another."""

    fits = 0

    def fit(self, training_set: Any, *, seed: int) -> None:
        self.fits += 1
        if self.fits == 2:
            self.u = np.where(np.arange(len(self.u))[:, None] < 3, 0.01, 0.3).astype(np.float32).repeat(2, axis=1)


@pytest.fixture
def learned(tmp_path: Path) -> RunFolder:
    truth, p0, u, plain = (np.array(column) for column in zip(*SAMPLES, strict=True))
    rows = np.arange(len(truth))[:, None]
    config = CONFIG.replace(max_rounds=2, balance=None)
    list(
        run(
            tmp_path / "run",
            Learning(plain, p0, u),
            (np.zeros((2, 1)), np.arange(2)),
            rows,
            config,
            truth=truth,
            classes=["cat", "dog"],
        )
    )
    found = RunFolder.open(tmp_path / "run")
    return RunFolder(found.path, found.settings.replace(learner=TorchLearnerSettings()), found.version, found.entries)


def test_figure_1_a_is_of_the_first_network(learned: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("surelabel.report.drawing.curves", lambda lines, *_: drawn.append(lines))
    figure_1_a({"digits": [learned]})
    largest = float(np.max(drawn[0]["digits"][0]))
    truth = learned.truth
    assert largest == pytest.approx(float(learned.pool(0).uncertainty[truth >= 0].max()), rel=1e-3)


def test_figure_1_b_and_c_begin_with_the_round_that_learned_from_labels(
    learned: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(
        "surelabel.report.drawing.lines_by_round",
        lambda lines, label, first: drawn.update({label: (first, [one.mean for one in lines["UPS"]])}),
    )
    figure_1_by_round([Row("UPS", (learned,))])
    records = learned.records()[1:]
    assert drawn == {
        "share of right labels among the selected": (1, [record.positive_accuracy for record in records]),
        "selected positive labels": (1, [record.num_positive for record in records]),
    }
