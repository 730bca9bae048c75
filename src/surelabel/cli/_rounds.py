"""Progress of a command: a line for each round of a run as it ends, and any other work of many steps.

A terminal gets bars with the time left; a pipe or a file gets a line now and then.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from surelabel.cli._console import command_line, out, say, show_table, warn
from surelabel.cli._errors import Interrupted, is_lost_process
from surelabel.cli._options import open_run
from surelabel.errors import RunError

if TYPE_CHECKING:
    from surelabel.base.system import Progress as Report
    from surelabel.data.run_data import RunData
    from surelabel.records import RoundRecord
    from surelabel.runs import RunFolder
    from surelabel.settings import RunSettings, UPSConfig

SECONDS_BETWEEN_LINES = 30.0
"""How often long work reports its progress without a terminal."""

_WIDTH = 7
"""The least width of a column."""
_COUNTERS = 32
"""The width of a short bar and "100000/200000 rounds 0:01:23"."""
_WHAT = {"train": "training", "label": "labeling"}
_STOPS = {
    "converged": "the number of selected labels has settled",
    "max_rounds": "the last round asked for is done",
    "max_minutes": "the time given is used up",
    "no_unlabeled": "there is nothing to label",
    "interrupted": "it was asked to stop",
}


class _Bars(Progress):
    """Bars, with the `note` of a task on a line of its own below them: beside a bar, there is no room for it."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the table of bars, then the notes."""
        yield from super().get_renderables()
        for task in self.tasks:
            if note := task.fields.get("note"):
                yield Text(note, style="dim", no_wrap=True, overflow="ellipsis")


def bars(quiet: bool = False) -> Progress:
    """Return bars that are drawn only on a terminal; they count without one too."""
    # In a narrow window the bar becomes shorter, then the text is cut; the counters stay whole.
    text = TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=max(out.width - _COUNTERS, 1)))
    done, unit = MofNCompleteColumn(table_column=Column(no_wrap=True)), TextColumn("{task.fields[unit]}")
    columns = (text, BarColumn(), done, unit, TimeRemainingColumn(table_column=Column(no_wrap=True)))
    # The estimate of a round's time uses all rounds, not only the last half minute.
    look_back, hidden = 24 * 3600.0, quiet or out.quiet or not out.is_terminal
    return _Bars(*columns, console=out, transient=True, disable=hidden, speed_estimate_period=look_back)


@contextlib.contextmanager
def shown_work(unit: str, quiet: bool = False) -> "Iterator[Report]":
    """Yield what to call with (what is done now, steps done, steps in all).

    Args:
        unit: what the steps are called, "rounds".
        quiet: whether to show nothing at all.
    """
    from surelabel.data.decoding import watched

    with bars(quiet) as shown:
        task, said = shown.add_task("starting", total=None, unit=unit), time.monotonic()

        def update(what: str, done: int, total: int) -> None:
            nonlocal said
            shown.update(task, description=what, completed=done, total=total)
            if not (quiet or out.is_terminal) and time.monotonic() - said >= SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                say(f"{done}/{total} {unit}: {what}")

        # A terminal has room for one display: decoding is shown next to this bar.
        with watched(lambda what, done, total: shown.update(task, description=f"{_work(what)} {done}/{total}")):
            yield update


@contextlib.contextmanager
def shown_decoding(quiet: bool = False) -> Iterator[None]:
    """Show the progress of decoding pictures or videos in the block, if there is any; `quiet`: show nothing."""
    from surelabel.data.decoding import watched

    def update(what: str, done: int, total: int) -> None:
        show(_work(what), done, total)

    with shown_work("files", quiet) as show, watched(update):
        yield


def _work(what: str) -> str:
    """Return the name of the work before any round: samples are decoded, or their features computed."""
    if what == "shards":
        return "looking through shards"
    return what if what.startswith("features") else f"decoding {what}"


def _doing(what: str) -> tuple[str, str]:
    """Return what a round does, and the parts of its loss if its method notes them.

    >>> _doing("train: labeled 0.31, unlabeled 0.024"), _doing("label")
    (('training', 'labeled 0.31, unlabeled 0.024'), ('labeling', ''))
    """
    work, _, parts = what.partition(": ")
    return _WHAT.get(work, work), parts


class RoundsDisplay:
    """Follows a run: call `step` as work goes on and `add` with each record.

    Args:
        done: how many rounds are done already.
        max_rounds: the last round's number, at most.
        quiet: whether to print nothing at all.
    """

    def __init__(self, done: int, max_rounds: int, quiet: bool = False) -> None:
        self.round, self.max_rounds, self.quiet = done, max_rounds, quiet
        self.bars = bars(quiet)
        self._rounds = self.bars.add_task("round", total=max_rounds + 1, unit="rounds")
        self._steps = self.bars.add_task("starting", total=None, unit="steps")
        self._has_head = False
        self.begin()

    def begin(self) -> None:
        """A round starts."""
        number, self._said = min(self.round, self.max_rounds), time.monotonic()
        self.bars.update(self._rounds, completed=number, description=f"round {number} of {self.max_rounds} at most")

    def step(self, what: str, done: int, total: int) -> None:
        """Note that `done` of `total` steps of this round's training or labeling are over."""
        task, (work, parts) = self.bars.tasks[self._steps], _doing(what)
        # Another kind of work, or a restart of the same, resets the bar.
        if work != task.description or done < task.completed:
            self.bars.reset(self._steps, total=total)
        self.bars.update(self._steps, completed=done, description=work, note=parts)
        if out.is_terminal or self.quiet or time.monotonic() - self._said < SECONDS_BETWEEN_LINES or not task.speed:
            return
        self._said, left = time.monotonic(), duration(task.time_remaining or 0)
        now = ", ".join(filter(None, (work, parts)))
        say(f"round {self.round}: {now} {done}/{total}, {task.speed:.1f} steps/s, {left} left")

    def add(self, record: "RoundRecord") -> None:
        """Print a round's line."""
        self.round = record.round + 1
        self.begin()
        if self.quiet:
            return
        cells = _cells(record)
        if not self._has_head:
            say("  ".join(name.rjust(_WIDTH) for name in cells), style="bold")
            self._has_head = True
        say("  ".join(text.rjust(max(_WIDTH, len(name))) for name, text in cells.items()))


def follow(
    begin: "Callable[..., Iterator[RoundRecord]]",
    folder: Path,
    config: "UPSConfig",
    *,
    done: int = 0,
    held_out: Mapping[str, int] | None = None,
    data: "RunData | None" = None,
    minutes_before: float = 0.0,
    asked: "RunSettings | None" = None,
    trust_code: bool = False,
    quiet: bool,
) -> None:
    """Show the rounds as they end, then the comparison of the models, and what came out.

    After an interruption, a full disk or a lost process, the error says how to continue.

    Args:
        begin: starts or resumes the run, given `progress`, which it calls as work goes on.
        folder: the run's folder.
        config: the run's.
        done: how many rounds are done already.
        held_out: how many samples the sets "validation" and "test" have, if known.
        data: the run's, if they are loaded already.
        minutes_before: the time that the command has taken so far.
        asked: settings that come from this command: the code that they name may run even if it is not signed.
        trust_code: whether the run's code may run, whoever made it.
        quiet: whether to print only warnings.
    """
    display = RoundsDisplay(done, config.max_rounds, quiet)
    try:
        with shown_decoding(quiet):
            rounds = begin(progress=display.step)
        with display.bars:
            for record in rounds:
                display.add(record)
                del record  # its pool would be kept while the next network trains
        run = open_run(folder, trust_code)
        show_comparison(run if asked is None else run.asked_for(asked), data, minutes_before, quiet)
    except KeyboardInterrupt:
        raise Interrupted(_way_on(folder, display.round)) from None
    except (OSError, MemoryError, RuntimeError, RunError) as error:
        if _leaves_something(error):
            error.add_note(_way_on(folder, display.round))
        raise
    if out.quiet:  # the first process reports it
        return
    run = open_run(folder)
    tell_the_end(run, held_out or {}, quiet)
    if display.round > max(done, 1) and not any(record.num_positive for record in run.records()):
        remedy = "lower --tau-p or raise --kappa-p ('surelabel thresholds' shows what they select of held-out labels)"
        warn(f"no round selected a positive label by tau_p={config.tau_p:g} and kappa_p={config.kappa_p:g}; {remedy}.")


def _leaves_something(error: Exception) -> bool:
    """Whether a run can continue after this error; after our own errors, only if a file could not be used."""
    if isinstance(error, RunError):
        return isinstance(error.__cause__, OSError)
    return isinstance(error, (OSError, MemoryError)) or is_lost_process(error)


def show_comparison(run: "RunFolder", data: "RunData | None", minutes_before: float, quiet: bool) -> None:
    """Compare the run's models if its settings ask for it, and show the progress."""
    if run.settings.comparison is None or not run.finished:
        return
    from surelabel.runs.folds import compare

    with shown_work("folds", quiet) as show:
        done, planned = 0, 0

        def step(what: str, steps: int, total: int) -> None:
            fold, (work, _) = min(done + 1, planned), _doing(what)
            show(f"comparing, fold {fold} of {planned}: {work} {steps}/{total}", done, planned)

        for done, planned in compare(run, data, progress=step, minutes_before=minutes_before):
            show("comparing", done, planned)


def _way_on(folder: Path, done: int) -> str:
    """Return what is kept of an interrupted run, and the command to continue with."""
    from surelabel.runs.layout import CHECKPOINT, RUN, round_file

    if not (folder / RUN).exists():
        return "the run has not begun; the same command begins it"
    kept = []
    if done:
        kept.append("round 0 is done and kept" if done == 1 else f"rounds 0 to {done - 1} are done and kept")
    if (folder / round_file(done, CHECKPOINT)).exists():
        kept.append(f"round {done} is kept up to its last checkpoint")
    folds = open_run(folder).comparison()
    if folds is not None and folds.num_folds:
        kept.append(f"{folds.num_folds} of {folds.content['planned']} folds of the comparison are kept too")
    return f"{', '.join(kept) or 'no round is done yet'}; go on with: {command_line('resume', folder)}"


def tell_the_end(run: "RunFolder", held_out: Mapping[str, int], quiet: bool) -> None:
    """Print why the rounds ended, the results, where the run is and what to do with it.

    Args:
        run: with its last round done.
        held_out: how many samples the sets "validation" and "test" have, if known.
        quiet: whether to warn only of a last round that is worse than round 0 on the validation set.
    """
    from surelabel.report.comparison import comparison_lines, comparison_table
    from surelabel.report.held_out import rounds_change, selected_lines

    change = rounds_change(run)
    if quiet:
        if change is not None and change.worse and run.kept == "last":
            warn(f"{change.worse} {change.text}")
        return
    last = run.records()[-1]
    why = _STOPS.get(last.stop or "", "")
    say()
    say(f"Done after round {last.round} in {duration(last.minutes * 60)}: {why}.", style="green")
    scores = "; ".join(filter(None, (_score_text(run, part, held_out.get(part)) for part in ("validation", "test"))))
    if scores:
        say(f"{scores[0].upper()}{scores[1:]}.")
    if change is not None:
        say(" ".join(filter(None, change)))
    if (table := comparison_table(run)) is not None:
        show_table(table.header, table.lines)
    for line in (*comparison_lines(run), *selected_lines(run)):
        say(line)
    say(f"The run is in {run.path}. Go on with:")
    (new, own), labels = _inputs(getattr(run.settings.data, "path", None)), "labels.csv"
    if run.settings.pool is not None:
        own, labels = run.settings.pool.place.removeprefix(f"{Path.cwd()}/"), "labels/"
    for words in (
        ("predict", run.path, new, "--out", "predictions.csv"),
        ("label", run.path, own, "--out", labels),
        ("report", run.path, "--out", "report.html"),
    ):
        say(f"  {command_line(*words)}", style="cyan")


def _inputs(path: Path | None) -> tuple[str, str]:
    """Return an example name for new samples, and the path of the run's data, relative to the current folder if inside.

    Args:
        path: of the run's data; None: they are in no file.

    >>> _inputs(Path("pets.parquet")), _inputs(Path("pets.csv.gz")), _inputs(None)
    (('new.parquet', 'pets.parquet'), ('new.csv', 'pets.csv.gz'), ('new.csv', 'pool.csv'))
    """
    if path is None:
        return "new.csv", "pool.csv"
    own = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    if path.is_dir():
        return "new/", f"{own}/"
    return f"new{path.suffix.removesuffix('.gz') or '.csv'}", str(own)


def _score_text(run: "RunFolder", part: str, size: int | None) -> str:
    """Return the last round's score on a held-out set, with what else is known about it; "" without a score."""
    records, classes = run.records(), run.settings.classes
    last, name = records[-1], f"{part}_score"
    score = getattr(last, name)
    if score is None:
        return ""
    samples = "" if size is None else f" on {size} {'sample' if size == 1 else 'samples'}"
    eleven, first = getattr(last, f"{name}_11"), getattr(records[0], name) if last.round else None
    # A run of an earlier version has only one of the two means.
    beside = [f"{eleven:.3f} over 11 points"] if eleven is not None else []
    beside += [f"{first:.3f} in round 0"] if first is not None else []
    others = f" ({'; '.join(beside)})" if beside else ""
    if run.settings.config.task == "single":
        return f"{part} accuracy {score:.3f}{others}{samples}"
    missing = [classes[code] for code, one in enumerate(getattr(last, f"{part}_class_scores") or ()) if one is None]
    number = f"{len(missing)} of {len(classes)} classes"
    without = f", without {', '.join(missing)} ({number} without a positive there)" if missing else ""
    return f"{part} mean average precision {score:.3f}{others}{samples}{without}"


def duration(seconds: float) -> str:
    """Return minutes and seconds, with hours if there are any.

    >>> duration(83.4), duration(7200)
    ('1:23', '2:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _cells(record: "RoundRecord") -> dict[str, str]:
    """Return the cells of a round's line, by column name."""
    scores = {"validation": record.validation_score, "test": record.test_score}
    return {
        "round": str(record.round),
        "positives": str(record.num_positive),
        "negatives": str(record.num_negative),
        "of pool": f"{record.positive_share:.0%}",
        "confidence": "-" if record.mean_confidence is None else f"{record.mean_confidence:.3f}",
        **{part: f"{score:.3f}" for part, score in scores.items() if score is not None},
        "time": duration(record.minutes * 60),
    }
