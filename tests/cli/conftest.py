"""What tests of the command line may ask for."""

import dataclasses
from collections.abc import Iterator

import pytest

from surelabel import settings


@dataclasses.dataclass(kw_only=True, eq=False)
class ShortFits(settings.FitSettings):
    min_steps: int = 80


@pytest.fixture(scope="module")
def short_fits() -> Iterator[None]:
    """Networks that take 80 steps a round at least, in place of 200, for tests that do not look at the default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "FitSettings", ShortFits)
        yield
