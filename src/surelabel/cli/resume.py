"""`surelabel resume`: go on with a run that was interrupted, crashed, or should have more rounds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surelabel.cli import _runs
from surelabel.cli._errors import existing_file, settings_from_options
from surelabel.cli._rounds import tell_the_end
from surelabel.cli._train import follow

if TYPE_CHECKING:
    from surelabel.runs import RunFolder

EXAMPLE = """[bold]Examples[/bold]

surelabel resume runs/iris

surelabel resume runs/iris --rounds 30

surelabel resume runs/iris --data moved/iris.csv"""


def command(
    run: _runs.Run,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=0, help="How many rounds at most, those that are done included.")
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option("--max-minutes", min=0, help="No round starts after this many minutes in all.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="Where the run's data lie now, if the file has moved; its content must be the same. Other files of "
            "the run that are gone are looked for beside it.",
            show_default=False,
        ),
    ] = None,
    trust_code: _runs.TrustCode = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but warnings and errors.")] = False,
) -> None:
    """Go on with a run; it ends as if it had never been interrupted."""
    existing_file("--data", data)
    folder = _runs.open_run(run)
    from surelabel.runs.session import resume

    records, config = folder.records(), folder.settings.config
    limits: dict[str, Any] = {"max_rounds": rounds, "max_minutes": max_minutes}
    held_out = dict.fromkeys(_scored(folder))
    with settings_from_options():
        limited = config.replace(**{name: value for name, value in limits.items() if value is not None})
    last = follow(
        lambda progress: resume(run, progress=progress, data=data, trust_code=trust_code, **limits),
        run,
        limited,
        done=records,
        held_out=held_out,
        quiet=quiet,
    )
    if last is None and not quiet:
        tell_the_end(run, _runs.open_run(run).records()[-1], config.task, held_out)


def _scored(folder: "RunFolder") -> list[str]:
    """Which of "validation" and "test" the run has, as far as can be told without reading its data."""
    from surelabel.data.run_data import TableData

    records, data = folder.records(), folder.settings.data
    if isinstance(data, TableData):
        known = {"validation": data.validation or data.validation_path, "test": data.test_path}
        return [name for name, found in known.items() if found]
    parts = ("validation", "test")
    return [part for part in parts if any(getattr(record, f"{part}_score") is not None for record in records)]
