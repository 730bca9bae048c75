"""`surelabel label` for a pool of any size: a part with labels for each shard, made by the given number of workers."""

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from surelabel.cli._console import warn
from surelabel.cli._errors import Interrupted, WrongUse
from surelabel.cli._options import open_run, refuse
from surelabel.cli._rounds import shown_work
from surelabel.cli._samples import check_entries
from surelabel.errors import DataError

if TYPE_CHECKING:
    from surelabel.cluster.labeling import LabelJob
    from surelabel.cluster.workers import Engine
    from surelabel.data.decoding import OnError
    from surelabel.data.shards import Place, Shard
    from surelabel.kinds.shard_reading import Reading
    from surelabel.runs import RunFolder
    from surelabel.runs.parts import Part, Parts

_MAGIC = "*?["


def names_folder(out: str | None) -> bool:
    """Whether --out names a folder, here or in an object store, rather than a file.

    >>> [names_folder(out) for out in ("labels/", "labels", "s3://bucket/labels", "labels.csv", "", None)]
    [True, True, True, False, False, False]
    """
    from surelabel.data.shards import is_address

    if not out:
        return False
    return is_address(out) or out.endswith("/") or Path(out).is_dir() or not Path(out).suffix


def check_one_file(samples: str, engine: str | None, workers: int | None) -> None:
    """Refuse options and inputs for pools in shards if all labels go to one file."""
    from surelabel.data.packed import is_packed
    from surelabel.data.shards import is_address

    given = [name for name, value in {"engine": engine, "workers": workers}.items() if value is not None]
    refuse(given, "has no effect on one file of labels; name a folder for the labels: --out labels/.")
    is_pattern = not Path(samples).exists() and any(mark in samples for mark in _MAGIC)
    if is_address(samples) or (is_pattern and not is_packed(Path(samples))):
        problem = f"Invalid value for 'INPUT': '{samples}' names a pool of shards"
        raise WrongUse(f"{problem}; name a folder for the labels: --out labels/.")


class How(NamedTuple):
    """How samples are labeled and written, as options say.

    Attributes:
        entries: with several labels per sample, whether each sample and class has a row.
        id_column: the column that names each row; None: as in the run; "": rows are numbered.
        on_error: whether what cannot be read is skipped.
        trusted: types in a scikit-learn model that are known to be safe.
        trust_code: whether all code that the run names may be run.
        force: whether a file may be replaced.
        excel_safe: whether text that a spreadsheet would take as a formula gets an apostrophe.
        prefix: of files in Label Studio.
    """

    entries: bool
    id_column: str | None
    on_error: "OnError"
    trusted: tuple[str, ...]
    trust_code: bool
    force: bool
    excel_safe: bool
    prefix: str | None


def label_pool(run: Path, samples: str, out: str, how: How, engine: "Engine", workers: int | None) -> list[str]:
    """Label the shards that have no part yet; return the lines to print about the folder's labels."""
    from surelabel.report.held_out import selected_lines

    without_effect = {"prefix": how.prefix is not None, "force": how.force, "excel_safe": how.excel_safe}
    given = [name for name, is_given in without_effect.items() if is_given]
    refuse(given, "has no effect with a folder as --out; leave it out, or name a file.")
    folder, started = open_run(run, how.trust_code), time.monotonic()
    check_entries(folder, how.entries)
    checked = selected_lines(folder)  # first, so that a damaged table is reported before anything is labeled
    job, shards = _job(folder, samples, out, how)
    job.parts.place.tidy()
    found = job.parts.finished(shards)
    there = {part.shard for part in found}
    try:
        made, faults = _label(job, [shard for shard in shards if shard.name not in there], engine, workers)
    except KeyboardInterrupt:
        stay = f"The parts that are complete stay in '{out}'; the same command goes on with the others."
        nothing = "No part is complete yet; the same command begins again."
        raise Interrupted(stay if job.parts.place.files() else nothing) from None
    if faults and not (made or found):
        raise DataError(f"None of the {len(shards)} shards can be read. {next(iter(faults.values()))}")
    summary = _summary([*found, *made], len(found), faults)
    if job.reader.reading.named_by is not None or any(shard.name.lower().endswith(".tar") for shard in shards):
        job.parts.check_ids([*found, *made])
    return [f"{summary} They are in '{out}', after {time.monotonic() - started:.0f} s.", *checked]


def _job(folder: "RunFolder", samples: str, out: str, how: How) -> "tuple[LabelJob, list[Shard]]":
    """Return what labels a shard, and all shards."""
    from surelabel.cluster.labeling import LabelJob
    from surelabel.data.shards import place_of
    from surelabel.kinds.shard_reading import Reading, find_pool

    settings = folder.settings
    learned = settings.sample_shape, settings.feature_names, folder.texts()
    reading = Reading(settings.data, *learned, how.id_column, how.on_error)
    reader, shards = find_pool(samples, reading)
    if how.id_column is not None and not any(shard.name.lower().endswith(".parquet") for shard in shards):
        raise WrongUse("--id has no effect: pictures in tar shards and files in folders have names; leave it out.")
    parts = _parts(folder, place_of(out), reading, how.entries)
    if parts.place.is_local and _real(parts.place) == os.path.realpath(folder.path):
        raise WrongUse(f"Invalid value for '--out': '{out}' is the run's own folder; name another one.")
    _check_outside(parts.place, reader.place, samples, shards)
    model, skip = folder.kept_model(how.trusted), how.on_error == "skip"
    return LabelJob(model, folder.labeling(), reader, parts, how.entries, skip), shards


def _label(
    job: "LabelJob", shards: "list[Shard]", engine: "Engine", workers: int | None
) -> "tuple[list[Part], dict[str, str]]":
    """Return the parts that were made, and the errors of unreadable shards by name."""
    from surelabel.cluster.workers import in_workers

    made, faults = list["Part"](), dict[str, str]()
    if not shards:
        return made, faults
    with shown_work("shards") as show, contextlib.closing(in_workers(job, shards, engine, workers)) as results:
        show("labeling", 0, len(shards))
        for shard, result in results:
            if isinstance(result, str):
                faults[shard.name] = result
            else:
                made.append(result)
            show("labeling", len(made) + len(faults), len(shards))
    return made, faults


def _summary(parts: "list[Part]", before: int, faults: dict[str, str]) -> str:
    """Return how much is labeled; warn about what could not be read."""
    rows, selected = sum(part.rows for part in parts), sum(part.selected for part in parts)
    left_out = sum(part.left_out for part in parts)
    if faults:
        warn(f"{len(faults)} of {len(faults) + len(parts)} shards cannot be read and are left out.")
        for name, reason in sorted(faults.items()):
            warn(f"'{name}' is left out: {reason}")
    if left_out:
        warn(f"{left_out:,} of {rows + left_out:,} samples cannot be read and are left out.")
    skipped = f", {before:,} of them before," if before else ""
    shards = "1 shard" if len(parts) == 1 else f"{len(parts):,} shards"
    verb = "is" if len(parts) == 1 else "are"
    return f"{shards} with {rows:,} samples {verb} labeled{skipped} and {selected:,} have a selected label."


def _parts(folder: "RunFolder", place: "Place", reading: "Reading", entries: bool) -> "Parts":
    from surelabel.runs.parts import Parts

    thresholds = ", ".join(f"{name} {value}" for name, value in folder.label_thresholds().items())
    made_with = {
        "model": folder.model_hash,
        "thresholds": thresholds,
        "ids": f"from column {reading.named_by!r}" if reading.named_by else "by number or file",
        "rows": "one for each sample and class" if entries else "one for each sample",
    }
    return Parts(place, made_with)


def _check_outside(out: "Place", pool: "Place", samples: str, shards: "list[Shard]") -> None:
    """Refuse an output folder in which parts would replace shards, or be taken for shards."""
    from surelabel.data.shards import place_of

    if out.system.type_name != pool.system.type_name:
        return
    inner, outer = _real(out), _real(pool)
    below = f"{inner}/".startswith(f"{outer}/")
    names: Any = (os.path.relpath(inner, outer) + "/") if below else ""
    taken = below and inner != outer and any(shard.name.startswith(names) for shard in shards)
    if inner == outer or taken or (below and _real(place_of(samples)) == outer):
        raise WrongUse(f"Invalid value for '--out': '{out.text}' lies in INPUT; name a folder outside of it.")


def _real(place: "Place") -> str:
    return os.path.realpath(place.root) if place.is_local else place.root.rstrip("/")
