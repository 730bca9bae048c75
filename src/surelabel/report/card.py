"""A model card in Markdown, from a run folder alone: data, settings, scores, calibration, limits.

Every number has the file of the run that it comes from next to it; what the run does not know is marked as unknown.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from surelabel.core.calibration import calibration_error
from surelabel.core.metrics import share_interval
from surelabel.learners.settings import TorchLearnerSettings
from surelabel.report.comparison import comparison_table
from surelabel.report.held_out import rounds_change, selected_lines
from surelabel.report.tables import TextTable, in_markdown, judge, trained_with
from surelabel.runs import RunFolder
from surelabel.runs.layout import ENVIRONMENT, FOLDS, HISTORY, POOL, RUN, SPLIT, VALIDATION, round_file

_MOST_CLASSES = 50
"""The most classes that are listed individually."""


def model_card(run: RunFolder, file: str, description: Mapping[str, Any]) -> str:
    """Return the card of the model that a run keeps.

    Args:
        run: with a finished round.
        file: the name of the exported file.
        description: of that file, from `surelabel.runs.export`.
    """
    name = run.settings.name or run.path.name
    parts = [
        f"# Model card: {in_markdown(name)}",
        _model(run, file, description),
        _section("Data", _data(run)),
        _section("Settings", _settings(run)),
        _section("Scores", _scores(run)),
        _section("Calibration", _calibration(run)),
        _section("How the labels were checked", _checks(run)),
        _section("Limits", _limits(run)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"


def _model(run: RunFolder, file: str, about: Mapping[str, Any]) -> str:
    check, taken, given = about["check"], about["input"], about["output"]
    several = run.settings.config.task == "multi"
    what = "several labels a sample" if several else "one label a sample"
    source = f"the {run.model_name()}" if run.kept == "linear" else run.model_name()
    made = f"by surelabel {about['surelabel']} and torch {about['torch']}"
    shapes = [f"{part['type']} of shape ({', '.join(map(str, part['shape']))})" for part in (taken, given)]
    lines = [
        f"A classifier of {len(run.settings.classes)} classes, {what}, from {source} of a self-training "
        f"run; the file `{file}` was made {made}.",
        f"- Input `{taken['name']}`: {shapes[0]}. What is normalized or standardized is inside the file.",
        *([f"- How a file's columns become this input is in `{file}.json`, `columns`."] if "columns" in taken else []),
        f"- Output `{given['name']}`: {shapes[1]}, {given['meaning']}.",
        *([f"- A class counts as present from {about['present_from']:g} on."] if several else []),
        f"- Compared with the run's own `predict_proba` on {check['samples']} samples ({check['of']}): the largest "
        f"difference is {check['largest_difference']:.1g}, and {check['tolerance']:g} is allowed.",
    ]
    return "\n".join([lines[0], "", *lines[1:]])


def _data(run: RunFolder) -> str:
    settings, split = run.settings, run.split()
    source: Any = settings.data
    lines: list[list[str]] = []
    if source is None:
        lines.append(["where they are", "objects in memory", RUN])
    else:
        lines.append(["where they are", str(getattr(source, "path", getattr(source, "function", ""))), RUN])
        lines += [["SHA-256", source.sha256, RUN]] if source.sha256 else []
    if split is not None:
        lines.append(["labeled samples", f"{len(split['labeled']):,}", SPLIT])
        lines.append(["validation samples", f"{len(split['validation']):,}", SPLIT])
        lines.append(["hash of the split", split["hash"], SPLIT])
    pool = f"{len(run.pool().ids):,}" if run.has_pool else "0"
    lines.append(["unlabeled samples", pool, round_file(run.num_rounds - 1, POOL) if run.has_pool else HISTORY])
    lines.append(["shape of a sample", str(settings.sample_shape), RUN])
    if settings.feature_names is not None:
        lines.append(["features", _names(settings.feature_names), RUN])
    lines.append(["classes", _names(settings.classes), RUN])
    return TextTable(["what", "value", "source"], lines).markdown()


def _settings(run: RunFolder) -> str:
    config, learner = run.settings.config, run.settings.learner
    names = ("seed", "max_rounds", "tau_p", "tau_n", "kappa_p", "kappa_n", "negatives", "balance")
    lines = [[name, str(getattr(config, name))] for name in names]
    if isinstance(learner, TorchLearnerSettings):
        training = learner.training
        lines.append(["network", learner.model or "surelabel.models.table:table_network"])
        lines.append(["its parameters", json.dumps(learner.model_parameters) if learner.model else _of_table(learner)])
        lines.append(["uncertainty", f"{learner.uncertainty}, {learner.passes} passes"])
        if learner.method != "ups":
            lines.append(["method", learner.method])
            lines.append(["its parameters", json.dumps(learner.method_parameters)])
        changed = ("optimizer", "learning_rate", "batch_size", "epochs", "min_steps", "precision")
        lines += [[name, str(getattr(training, name))] for name in changed]
        lines += [["ema_decay", str(training.ema_decay)]] if training.ema_decay > 0 else []
    elif learner is not None:
        lines.append(["classifier", learner.estimator])
        lines.append(["its parameters", json.dumps(learner.parameters)])
        lines.append(["uncertainty", f"a bootstrap ensemble of {learner.members}"])
    table = TextTable(["setting", "value", "source"], [[*line, RUN] for line in lines]).markdown()
    last = run.environment[-1]
    versions = ", ".join(f"{name} {last['versions'][name]}" for name in ("python", "torch", "scikit-learn"))
    return f"{table}\n\nTrained with {versions} on {in_markdown(last['device'])} (`{ENVIRONMENT}`)."


def _of_table(learner: TorchLearnerSettings) -> str:
    return f"hidden {', '.join(map(str, learner.hidden))}; dropout {learner.dropout:g}; noise {learner.noise:g}"


def _scores(run: RunFolder) -> str:
    records = run.records()
    parts = [
        part for part in ("validation", "test") if any(getattr(one, f"{part}_score") is not None for one in records)
    ]
    lines = []
    for record in records:
        scores = [getattr(record, f"{part}_score") for part in parts]
        cells = [str(record.round), f"{record.num_positive:,}", f"{record.num_negative:,}"]
        lines.append([*cells, *("–" if score is None else f"{score:.3f}" for score in scores)])
    metric = "accuracy" if run.settings.config.task == "single" else "mean average precision"
    header = ["round", "positives learned from", "negatives", *(f"{part} {metric}" for part in parts)]
    source = f"Source: `{HISTORY}`. Round 0 was trained with {in_markdown(trained_with([run]))}."
    text = [f"{TextTable(header, lines).markdown()}\n\n{source}"]
    if (compared := comparison_table(run)) is not None:
        text.append(f"{compared.markdown()}\n\nThe models that were compared by held-out labels (`{FOLDS}`).")
    elif not parts:
        text.append("**No score is known:** the run has neither validation nor test labels.")
    text += filter(None, [_interval(run, metric) if "validation" in parts else None])
    if "test" in parts:
        text.append("Of the test set a run keeps no number of samples, so its score has no interval here.")
    return "\n\n".join(text)


def _interval(run: RunFolder, metric: str) -> str | None:
    score, truth = run.records()[-1].validation_score, run.validation_truth
    if score is None or truth is None:
        return None
    if metric != "accuracy":
        return f"The validation set has {len(truth):,} samples (`{_validation(run)}`); its score has no interval here."
    right, number = round(score * len(truth)), len(truth)
    share, low, high = (100 * value for value in share_interval(right, number))
    found = f"{share:.1f} % ({right:,} of {number:,}; exact 95 % interval {low:.1f} to {high:.1f} %)"
    return f"Validation accuracy of the last round: {found} (`{HISTORY}`, `{_validation(run)}`)."


def _calibration(run: RunFolder) -> str:
    comparison = run.comparison()
    if comparison is not None and run.kept in (judged := comparison.judged()):
        by, file, (held_out, truth) = comparison.judge.split()[0], FOLDS, judged[run.kept]
    elif (known := run.validation_truth) is not None:
        by, file, held_out, truth = "validation", _validation(run), run.validation(), known
    else:
        return "Not known: the run has no validation labels."
    labels = judge(held_out, truth, held_out.positive_before)
    if not len(labels.right):
        return "Not known: the validation set has no known label."
    error = calibration_error(labels.confidence, labels.right)
    entries = "entries (a class of a sample)" if run.settings.config.task == "multi" else "samples"
    return (
        f"Expected calibration error over 15 bins: {error:.3f}, on {len(labels.right):,} {by} {entries} "
        f"(`{file}`). It is that of the labels by `surelabel label`, which are means over stochastic "
        "passes or members; the exported file makes one deterministic pass. With few samples it is biased upwards."
    )


def _checks(run: RunFolder) -> str:
    change = rounds_change(run) if run.records()[-1].validation_score is not None else None
    lines = [*selected_lines(run), *filter(None, change or ())]
    return "\n".join(f"- {in_markdown(line)}" for line in lines)


def _limits(run: RunFolder) -> str:
    config = run.settings.config
    lines = ["It knows these classes alone: a sample of none of them gets one of them, perhaps with high confidence."]
    if config.task == "multi":
        lines = ["It knows these classes alone, and says nothing of others."]
    lines.append("It is for samples like those it learned from; of other sources, devices or times nothing was tried.")
    if run.kept == "last" and run.records()[-1].num_positive:
        number = f"{run.records()[-1].num_positive:,} labels that an earlier network gave (`{HISTORY}`)"
        lines.append(f"It learned from {number}; where these are wrong, it has learned the mistake.")
    if not run.has_validation and comparison_table(run) is None:
        lines.append("Nothing was held out for validation, so how good it is and how far to trust it are not known.")
    else:
        lines.append("Scores and intervals hold for samples drawn like the held-out labels.")
    return "\n".join(f"- {line}" for line in lines)


def _validation(run: RunFolder) -> str:
    return round_file(run.num_rounds - 1, VALIDATION)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_CLASSES} more" if len(names) > _MOST_CLASSES else ""
    return f"{len(names)}: {', '.join(names[:_MOST_CLASSES])}{more}"
