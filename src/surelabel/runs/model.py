"""A run's model with everything that is needed to build it, here or in another process."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surelabel.errors import InvalidInputError, UntrustedTypesError
from surelabel.runs.files import damaged
from surelabel.settings import RunSettings


@dataclass(frozen=True)
class Model:
    """A trained model, checked but not built yet; it can be pickled.

    Attributes:
        made_by: the settings of its learner; None: the caller builds the learner.
        content: of its file.
        path: of its file, for errors.
        settings: the run's.
        trusted: types in a skops file that are known to be safe.
    """

    made_by: Any
    content: bytes
    path: Path
    settings: RunSettings
    trusted: tuple[str, ...] = ()

    def learner(self) -> Any:
        """Return the learner with the model."""
        learner = self.made_by.build(self.settings.config.task)
        self.load(learner)
        return learner

    def load(self, learner: Any) -> None:
        """Load the model into a learner."""
        shapes = {"sample_shape": self.settings.sample_shape, "num_classes": len(self.settings.classes)}
        try:
            learner.from_bytes(self.content, trusted=self.trusted, **shapes)
        except UntrustedTypesError:
            raise
        except InvalidInputError as error:
            raise damaged(self.path, f"it is not the learner's model. {error}") from error
