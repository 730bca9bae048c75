"""The recipes of tables 3 and 4 made tiny: two steps of a narrow network of the same kind."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surelabel.data.run_data import FunctionData
from surelabel.reproduce.entries import DataSet, Experiment, Labels
from surelabel.settings import RunSettings

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def tiny(settings: RunSettings, model: str, parameters: dict[str, Any], **augment: int) -> RunSettings:
    """Two steps of another network, one round, and thresholds that let most labels through."""
    learner = settings.network
    assert learner.training.augment is not None
    training = learner.training.replace(
        steps=2, batch_size=6, precision="float32", augment=learner.training.augment.replace(**augment)
    )
    training = training.replace(
        labeled_batch_size=min(training.labeled_batch_size, 4), negative_batch_size=training.negative_batch_size and 2
    )
    return settings.replace(
        config=settings.config.replace(max_rounds=1, kappa_p=0.5, kappa_n=0.5, tau_n=0.4, tau_p=0.45),
        learner=learner.replace(model=model, model_parameters=parameters, training=training, threads=1),
    )


def tiny_pictures(settings: RunSettings) -> RunSettings:
    """For settings whose pictures have a side of 32."""
    return tiny(settings, "surelabel.models.resnet:ResNet", {"dropout": 0.3, "width": 2})


def tiny_clips(settings: RunSettings) -> RunSettings:
    """Clips of 16 frames of 36 x 36, of which 32 x 32 are shown."""
    assert isinstance(settings.data, FunctionData)
    parameters = {**settings.network.model_parameters, "width": 2}
    settings = tiny(settings, "surelabel.models.resnet3d:ResNet3d", parameters, side=32)
    clips = {"frames": 16, "height": 36, "width": 36}
    return settings.replace(data=settings.data.replace(arguments={**settings.data.arguments, **clips}))


def miniature(whole: Experiment, dataset: DataSet, labels: Mapping[Labels, Labels]) -> Experiment:
    """The experiment with all of its rows, on another data set and with fewer labels."""
    entries = [dataclasses.replace(one, dataset=dataset, labels=labels[one.labels]) for one in whole.entries]
    return dataclasses.replace(whole, entries=tuple(entries))
