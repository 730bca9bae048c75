"""`surelabel predict`: the run's last model on new samples, one deterministic pass."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from surelabel.cli import _runs
from surelabel.cli._errors import WrongUse

if TYPE_CHECKING:
    from surelabel.runs import RunSettings

EXAMPLE = """[bold]Examples[/bold]

surelabel predict runs/iris new.csv --out predictions.csv

surelabel predict runs/iris new.csv --proba | head"""


def command(
    run: _runs.Run,
    file: _runs.Samples,
    out: _runs.Out = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add a column with each class's probability.")] = False,
    id: _runs.Id = None,
    trust: _runs.Trust = None,
    force: _runs.Force = False,
) -> None:
    """Predict the labels of new samples: id, prediction, confidence.

    With several labels a sample there is a row for each sample and class: the
    prediction is 1 (present) or 0, and the confidence is the probability that
    the class is present.
    """
    _runs.check_files(file, out, force)
    folder = _runs.open_run(run)
    if proba and folder.settings.config.task == "multi":
        raise WrongUse(
            "--proba has no effect: with several labels a sample the confidence is the probability; leave it out."
        )
    learner = folder.learner(trusted=tuple(trust or ()))
    samples = _runs.read_samples(folder.settings, file, id)
    p = learner.predict_proba(samples)
    _runs.write(predictions(samples.ids, p, folder.settings, proba), out, force)


def predictions(ids: Any, p: Any, settings: "RunSettings", proba: bool = False) -> dict[str, Any]:
    """Return the columns of the table of predictions.

    Args:
        ids: shape (N,).
        p: probabilities, shape (N, C).
        settings: the run's, for its classes.
        proba: whether to add a column for each class.
    """
    import numpy as np

    classes = np.asarray(settings.classes, dtype=object)
    if settings.config.task == "multi":
        return {
            "id": np.repeat(ids, len(classes)),
            "class": np.tile(classes, len(ids)),
            "prediction": (p >= settings.config.gamma).astype(np.int8).ravel(),
            "confidence": p.ravel(),
        }
    columns = {"id": ids, "prediction": classes[p.argmax(axis=1)], "confidence": p.max(axis=1)}
    probabilities = {f"p({name})": p[:, code] for code, name in enumerate(classes)} if proba else {}
    return {**columns, **probabilities}
