"""The rounds as they end, a line each, and where the present one stands: bars on a terminal, else plain lines."""

import contextlib
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress import TimeRemainingColumn as TimeLeftColumn
from rich.text import Text

from surelabel.cli._console import command_line, complain, list_commands, out, say
from surelabel.cli._runs import open_run

if TYPE_CHECKING:
    from surelabel.records import RoundRecord
    from surelabel.settings import UPSConfig

SECONDS_BETWEEN_LINES = 30.0
"""How often a round that takes long says where it stands, when there is no terminal."""

_WHAT = {"train": "training", "label": "labeling"}
_STOPS = {
    "converged": "the number of selected labels has settled",
    "max_rounds": "the last round asked for is done",
    "max_minutes": "the time given is used up",
    "no_unlabeled": "there is nothing to label",
    "interrupted": "it was asked to stop",
}


class RoundsDisplay:
    """Follows a run: call `step` as work goes on and `add` with each record.

    Args:
        done: how many rounds are done already.
        max_rounds: the last round's number, at most.
        scores: which of "validation" and "test" have a column for their score.
        quiet: whether to print nothing at all.
    """

    def __init__(self, done: int, max_rounds: int, scores: Container[str], quiet: bool = False) -> None:
        self.round, self.max_rounds, self.quiet = done, max_rounds, quiet
        self.columns = _columns(scores)
        self._step: StepBar | StepLines | None = None
        self._has_head = False

    @contextlib.contextmanager
    def shown(self) -> Iterator[Self]:
        """Show where the present round stands while the block runs."""
        if self.quiet:
            yield self
            return
        self._step = StepBar(self.max_rounds) if out.is_terminal else StepLines()
        with self._step:
            self._step.begin(self.round)
            yield self

    def step(self, what: str, done: int, total: int) -> None:
        """Take note that `done` of `total` steps of this round's training or labeling are over."""
        if self._step is not None:
            self._step.update(_WHAT.get(what, what), done, total)

    def add(self, record: "RoundRecord") -> None:
        """Print a round's line."""
        self.round = record.round + 1
        if self._step is not None:
            if not self._has_head:
                say("  ".join(name.rjust(width) for name, width, _ in self.columns), style="bold")
                self._has_head = True
            say("  ".join(cell(record).rjust(width) for _, width, cell in self.columns))
            self._step.begin(self.round)


class StepBar:
    """Two bars: the rounds, and the present round's training or labeling, with rate and time left."""

    def __init__(self, max_rounds: int) -> None:
        self.max_rounds = max_rounds
        columns = (TextColumn("{task.description}"), BarColumn(), StepColumn())
        # The estimate of a round's time looks back over all rounds, not over the last half minute.
        self.bars = Progress(*columns, TimeLeftColumn(), console=out, transient=True, speed_estimate_period=24 * 3600.0)
        self.rounds = self.bars.add_task("round", total=max_rounds + 1)
        self.steps = self.bars.add_task("starting", total=None)
        self._at = ("", 0)

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def begin(self, number: int) -> None:
        """A round starts."""
        number = min(number, self.max_rounds)
        self.bars.update(self.rounds, completed=number, description=f"round {number} of {self.max_rounds} at most")

    def update(self, what: str, done: int, total: int) -> None:
        """Move the lower bar; another kind of work, or its beginning again, starts it anew."""
        if what != self._at[0] or done < self._at[1]:
            self.bars.reset(self.steps, total=total, description=what)
        self.bars.update(self.steps, completed=done)
        self._at = what, done


class StepLines:
    """Without a terminal: a line now and then in a round that takes long."""

    def __init__(self) -> None:
        self.number, self._began, self._said = 0, 0.0, 0.0
        self._at = ("", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def begin(self, number: int) -> None:
        """A round starts."""
        self.number, self._at, self._said = number, ("", 0), time.monotonic()

    def update(self, what: str, done: int, total: int) -> None:
        """Print a line if the last one is long ago."""
        now = time.monotonic()
        if what != self._at[0] or done < self._at[1]:
            self._began = now
        self._at = what, done
        if now - self._said < SECONDS_BETWEEN_LINES or now == self._began:
            return
        self._said = now
        rate = done / (now - self._began)
        say(f"round {self.number}: {what} {done}/{total}, {rate:.1f} steps/s, {duration((total - done) / rate)} left")


class StepColumn(ProgressColumn):
    """Steps done, in all, and per second; nothing for the rounds, whose number stands in front of the bar."""

    def render(self, task: Task) -> Text:
        """Return the text."""
        if task.id == 0 or task.total is None:
            return Text("")
        rate = f", {task.speed:.0f}/s" if task.speed else ""
        return Text(f"step {task.completed:.0f}/{task.total:.0f}{rate}", style="progress.data.speed")


def tell_the_end(folder: Path, record: "RoundRecord", task: str, held_out: Mapping[str, int | None]) -> None:
    """Say why the rounds ended, what came out, where it is and what to do with it.

    Args:
        folder: the run's.
        record: the last round's.
        task: "single" or "multi".
        held_out: the sets that may have a score, "validation" and "test", and how many samples each has, if known.
    """
    from surelabel.report.held_out import rounds_change, selected_lines

    run = open_run(folder)
    first, names = run.records()[0], run.settings.classes
    parts = [text for name, size in held_out.items() if (text := _score_text(name, size, first, record, task, names))]
    why = _STOPS.get(record.stop or "", "")
    say()
    say(f"Done after round {record.round} in {duration(record.minutes * 60)}: {why}.", style="green")
    if parts:
        text = "; ".join(parts)
        say(f"{text[0].upper()}{text[1:]}.")
    change = rounds_change(run)
    for line in (" ".join(filter(None, change or ())), *selected_lines(run)):
        if line:
            say(line)
    say(f"The run is in {folder}. Go on with:")
    list_commands(
        [
            command_line("predict", folder, "new.csv", "--out", "predictions.csv"),
            command_line("label", folder, "pool.csv", "--out", "labels.csv"),
            command_line("report", folder, "--out", "report.html"),
        ]
    )


def warn_of_worse(folder: Path) -> None:
    """Warn of a run whose last round is worse than round 0 on its validation set."""
    from surelabel.report.held_out import rounds_change

    change = rounds_change(open_run(folder))
    if change is not None and change.worse:
        complain("warning", f"{change.worse} {change.text}", style="bold yellow")


def warn_of_no_positives(records: "Sequence[RoundRecord]", config: "UPSConfig") -> None:
    """Warn of a run whose rounds have learned from no positive label, and say what loosens that."""
    if len(records) > 1 and not any(record.num_positive for record in records):
        complain(
            "warning",
            f"no round selected a positive label: none was sure enough for tau_p={config.tau_p:g} and "
            f"kappa_p={config.kappa_p:g}. In another run lower --tau-p or raise --kappa-p; 'surelabel thresholds' "
            "shows what they select of labels held out with --validation.",
            style="bold yellow",
        )


def _score_text(
    part: str, size: int | None, first: "RoundRecord", record: "RoundRecord", task: str, classes: Sequence[str]
) -> str:
    score, eleven = getattr(record, f"{part}_score"), getattr(record, f"{part}_score_11")
    if score is None:
        return ""
    samples = "" if size is None else f" on {size} {'sample' if size == 1 else 'samples'}"
    # A run of an earlier version has one of the two means alone.
    values = {"over 11 points": eleven, "in round 0": getattr(first, f"{part}_score") if record.round else None}
    beside = [f"{value:.3f} {what}" for what, value in values.items() if value is not None]
    others = f" ({'; '.join(beside)})" if beside else ""
    if task == "single":
        return f"{part} accuracy {score:.3f}{others}{samples}"
    missing = [classes[code] for code, one in enumerate(getattr(record, f"{part}_class_scores") or ()) if one is None]
    verb = "has" if len(missing) == 1 else "have"
    number = f"{len(missing)} of {len(classes)} classes"
    without = f", without {', '.join(missing)} ({number}), which {verb} no positive there" if missing else ""
    return f"{part} mean average precision {score:.3f}{others}{samples}{without}"


def duration(seconds: float) -> str:
    """Return minutes and seconds, with hours where there are some.

    >>> duration(83.4), duration(7200)
    ('1:23', '2:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _columns(scores: Container[str]) -> list[tuple[str, int, Callable[["RoundRecord"], str]]]:
    columns: list[tuple[str, int, Callable[[RoundRecord], str]]] = [
        ("round", 5, lambda record: str(record.round)),
        ("positives", 9, lambda record: str(record.num_positive)),
        ("negatives", 9, lambda record: str(record.num_negative)),
        ("of pool", 7, lambda record: f"{record.positive_share:.0%}"),
        ("confidence", 10, lambda record: _number(record.mean_confidence)),
    ]
    if "validation" in scores:
        columns.append(("validation", 10, lambda record: _number(record.validation_score)))
    if "test" in scores:
        columns.append(("test", 6, lambda record: _number(record.test_score)))
    return [*columns, ("time", 7, lambda record: duration(record.minutes * 60))]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
