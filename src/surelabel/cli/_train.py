"""What `fit` and `resume` share: follow the rounds, and leave a run that can go on whatever ends them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from surelabel.cli._console import command_line
from surelabel.cli._errors import Interrupted
from surelabel.cli._rounds import RoundsDisplay, tell_the_end, warn_of_no_positives, warn_of_worse
from surelabel.cli._work import shown_decoding
from surelabel.errors import RunError

if TYPE_CHECKING:
    from surelabel.base.system import Progress
    from surelabel.records import RoundRecord
    from surelabel.settings import UPSConfig


def follow(
    begin: "Callable[[Progress], Iterator[RoundRecord]]",
    folder: Path,
    config: "UPSConfig",
    *,
    done: "Sequence[RoundRecord]" = (),
    held_out: Mapping[str, int | None],
    quiet: bool,
) -> "RoundRecord | None":
    """Show the rounds as they end; return the last record, None if nothing was left to do.

    An interruption or a full disk tells the command that goes on.

    Args:
        begin: starts or resumes the run, given what to call as work goes on.
        folder: the run's folder.
        config: the run's.
        done: the rounds that are done already.
        held_out: the sets whose scores are shown, "validation" and "test", and how many samples each has, if known.
        quiet: whether to print warnings alone.
    """
    display = RoundsDisplay(len(done), config.max_rounds, held_out, quiet)
    records = list(done)
    try:
        with shown_decoding(quiet):
            rounds = begin(display.step)
        with display.shown():
            for record in rounds:
                display.add(record)
                records.append(record.replace(pool=None, validation=None))
    except KeyboardInterrupt:
        raise _with_way_on(Interrupted(), folder, display.round) from None
    except (OSError, MemoryError, RunError) as error:
        _with_way_on(error, folder, display.round)
        raise
    if len(records) == len(done):
        return None
    if quiet:
        warn_of_worse(folder)
    else:
        tell_the_end(folder, records[-1], config.task, held_out)
    warn_of_no_positives(records, config)
    return records[-1]


def _with_way_on(error: Exception, folder: Path, done: int) -> Exception:
    # Of the run's own errors only a file that could not be written leaves something to go on with.
    not_written = isinstance(error, RunError) and isinstance(error.__cause__, OSError)
    if not (folder / "run.json").exists():
        if not_written:
            error.add_note("the run has not begun; the same command begins it")
    elif not_written or not isinstance(error, RunError):
        error.add_note(f"{_kept(folder, done)}; go on with: {command_line('resume', folder)}")
    return error


def _kept(folder: Path, done: int) -> str:
    from surelabel.runs.layout import CHECKPOINT, round_file

    rounds = "round 0 is done and kept" if done == 1 else f"rounds 0 to {done - 1} are done and kept"
    kept = [rounds] if done else []
    if (folder / round_file(done, CHECKPOINT)).exists():
        kept.append(f"round {done} is kept up to its last checkpoint")
    return ", ".join(kept) or "no round is done yet"
