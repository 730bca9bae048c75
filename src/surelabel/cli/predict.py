"""`surelabel predict`: the run's last model on new samples, one deterministic pass."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from surelabel.cli import _runs, _several
from surelabel.cli._errors import WrongUse

if TYPE_CHECKING:
    from surelabel.settings import RunSettings

EXAMPLE = """[bold]Examples[/bold]

surelabel predict runs/iris new.csv --out predictions.csv

surelabel predict runs/iris new.csv --proba | head"""


def command(
    run: _runs.Run,
    file: _runs.Samples,
    out: _runs.Out = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add a column with each class's probability.")] = False,
    entries: _several.Entries = False,
    id: _runs.Id = None,
    trust: _runs.Trust = None,
    trust_code: _runs.TrustCode = False,
    force: _runs.Force = False,
    excel_safe: _runs.ExcelSafe = False,
) -> None:
    """Predict the labels of new samples: id, prediction, confidence.

    Several labels a sample have the form of the run's own table: one column with
    a separator between them, or one of 0 and 1 for each class. With --entries
    there is a row for each sample and class: the prediction is 1 (present) or 0,
    and the confidence is the probability that the class is present.
    """
    _runs.check_files(file, out, force, excel_safe)
    folder = _runs.open_run(run, trust_code)
    _several.check_entries(entries, folder.settings)
    if proba and entries:
        raise WrongUse("--proba has no effect: with --entries the confidence is the probability; leave it out.")
    learner = folder.learner(trusted=tuple(trust or ()))
    samples, _ = _runs.read_samples(folder.settings, file, id)
    p = learner.predict_proba(samples)
    _runs.write(predictions(samples.ids, p, folder.settings, proba, entries), out, force, excel_safe)


def predictions(
    ids: Any, p: Any, settings: "RunSettings", proba: bool = False, entries: bool = False
) -> dict[str, Any]:
    """Return the columns of the table of predictions.

    Args:
        ids: shape (N,).
        p: probabilities, shape (N, C).
        settings: the run's, for its classes.
        proba: whether to add a column for each class.
        entries: several labels a sample: whether each sample and class has a row.
    """
    import numpy as np

    classes = np.asarray(settings.classes, dtype=object)
    present = p >= settings.config.gamma
    if entries:
        return {
            "id": np.repeat(ids, len(classes)),
            "class": np.tile(classes, len(ids)),
            "prediction": present.astype(np.int8).ravel(),
            "confidence": p.ravel(),
        }
    probabilities = {f"p({name})": p[:, code] for code, name in enumerate(classes)} if proba else {}
    if settings.config.task == "multi":
        return _several.together({"id": ids}, _several.present_columns("prediction", present, settings), probabilities)
    return {"id": ids, "prediction": classes[p.argmax(axis=1)], "confidence": p.max(axis=1), **probabilities}
