"""The demo as a whole, on a tiny budget: runs, table, report, and folders that are never written over."""

from pathlib import Path

import pytest

import surelabel.reproduce.digits as recipe
from surelabel.reproduce.demo import free_folder, run_demo
from surelabel.reproduce.variants import full_ups, supervised
from surelabel.settings import RunSettings


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    settings_of = recipe.demo_settings

    def tiny_settings(seed: int = 0) -> RunSettings:
        settings = settings_of(seed)
        assert settings.learner is not None
        training = settings.learner.training.replace(min_steps=60, batch_size=64, learning_rate=0.1)
        return settings.replace(
            config=settings.config.replace(max_rounds=1), learner=settings.learner.replace(training=training)
        )

    monkeypatch.setattr(recipe, "demo_settings", tiny_settings)


@pytest.mark.usefixtures("tiny")
def test_the_demo_makes_runs_a_table_and_a_report(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    result = run_demo(
        tmp_path / "demo", seeds=(0,), variants=(supervised, full_ups), workers=1, progress=lambda *e: seen.append(e)
    )
    assert result.folder == tmp_path / "demo"
    assert sorted(path.name for path in result.folder.iterdir()) == ["full-ups-0", "report.html", "supervised-0"]
    assert [line[0] for line in result.table.lines] == ["Supervised", "UPS"]
    assert {"test accuracy (%)", "labels selected", "selected labels right (%)"} <= set(result.table.header)
    assert "4 labels per class" in result.report.read_text(encoding="utf-8")
    assert all(run.finished for run in result.runs)
    assert seen[-1][1:] == (2, 2)


@pytest.mark.usefixtures("tiny", "undrawn")
def test_the_demo_leaves_an_older_one_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "mine.txt").write_text("kept")
    result = run_demo(tmp_path / "demo", seeds=(0,), variants=(supervised,), workers=1)
    assert result.folder == tmp_path / "demo-2"
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["mine.txt"]


def test_a_free_folder_is_new_or_empty(tmp_path: Path) -> None:
    assert free_folder(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "a").mkdir()
    assert free_folder(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "a" / "file").touch()
    (tmp_path / "a-2").touch()
    assert free_folder(tmp_path / "a") == tmp_path / "a-3"
