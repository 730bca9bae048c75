"""What the tests of kinds share: short trainings."""

import pytest

from surelabel.engine import train


@pytest.fixture(autouse=True)
def short_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train at most 60 steps a round: these tests look at what goes in and comes out, not at how well it is learned."""
    num_steps = train.num_steps
    monkeypatch.setattr(train, "num_steps", lambda *given: min(num_steps(*given), 60))
