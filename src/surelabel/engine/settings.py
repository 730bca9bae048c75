"""How one network is trained: the optimizer, its schedule, the batches, and what makes it fast."""

from typing import Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from surelabel.augment.settings import AugmentSettings
from surelabel.base.defaults import FitDefaults
from surelabel.base.settings import MOST_PROCESSES, MOST_SAMPLES, MOST_STEPS, Settings

LATER: dict[str, Any] = {"ema_share": 1.0, "sync_batchnorm": False}
"""Settings that came after the first version, with their defaults."""


class TrainingSettings(Settings):
    """How one network is trained. The defaults are the paper's: SGD, 0.03, cosine annealing.

    Attributes:
        optimizer: "sgd" (momentum and Nesterov as published), "adamw", or "muon", for networks in which a norm follows
            each convolution (`surelabel.engine.muon`): a step turns the weights of convolutions by a tenth of the rate,
            without weight decay, and SGD learns the rest.
        learning_rate: the initial learning rate, or the highest with a warm-up.
        reference_batch_size: the batch size that `learning_rate` is meant for; the rate is scaled in proportion to the
            actual size of a mini-batch, not counting samples with only negative labels. None: it is not scaled.
        momentum: of SGD and Muon.
        nesterov: of SGD; Muon always has it.
        weight_decay: decoupled for AdamW; the published code parses one and never passes it on.
        decay_all: False exempts norms, biases, weight norm's sizes and other 1-d tensors from weight decay.
        schedule: "cosine" anneals to 0; "cosine-7/16" is the published code's, which ends at 0.195 of the initial
            rate; "linear" falls to 0; "constant".
        warmup: the share of the steps in which the rate rises from 0, before the schedule.
        batch_size: the samples in a mini-batch, not counting the two kinds below; fewer if there are fewer. For
            consistency methods: those from the pool.
        labeled_batch_size: labeled samples that are added to each mini-batch in rounds with pseudo-labels, so that many
            pseudo-labels do not crowd out the few labels; `batch_size` then counts only pseudo-labeled samples. 0:
            labels and pseudo-labels in proportion, as in the paper. For consistency methods: the labeled samples of
            each mini-batch, in all rounds; 0: `batch_size` divided by the method's `ratio`.
        negative_batch_size: other samples that are added, such as those with only negative labels; None: in proportion,
            rounded up to a power of two, at most `batch_size`. A number gives the batches of all rounds the same shape,
            so that one compiled step fits all.
        epochs: passes over a round's samples, not counting added ones; with `labeled_batch_size`, over both the labeled
            and the pseudo-labeled samples, until each has had at least this many. For consistency methods: over the
            labeled samples and over the pool, likewise.
        min_steps: small training sets are repeated until this many steps are done.
        steps: the steps of a round, whatever `epochs` and `min_steps` are; None: these two decide.
        round_growth: a round is this many times as long as the one before it; 1: all have the same length.
        gradient_clip: the largest norm of the gradient; None: no clipping.
        label_smoothing: the share of each positive target that is spread over all classes.
        ema_decay: of an average of the weights over the steps, which is used to label and predict; 0: the last weights.
        ema_share: the most of the steps so far that the average covers; below 1, it forgets the first steps sooner.
        warm_start: start a round from the last round's weights instead of fresh ones.
        augment: augmentation in training; labeling and testing only normalize. None: samples are not changed.
        precision: "bfloat16" runs the network under autocast.
        channels_last: use the memory format that makes convolutions fastest on a GPU.
        compile: compile augmentation, network and loss into one function, and the passes of labeling into another;
            None: on a GPU, except for the small network for tables.
        cuda_graph: capture a whole step, so that it is launched at once; None: if possible.
        data_on_device: keep the samples in the device's memory; None: if they fit.
        workers: processes that load samples if these are not on the device; 0: none.
        deterministic: use only algorithms that give the same bits every time, even on a GPU.
        sync_batchnorm: with several processes, BatchNorm normalizes by the rows of all, instead of each by its own; the
            step is not captured then. With one process it changes nothing.
    """

    optimizer: Literal["sgd", "adamw", "muon"] = "sgd"
    learning_rate: float = Field(0.03, gt=0, le=1000)
    reference_batch_size: int | None = Field(None, ge=1, le=MOST_SAMPLES)
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = True
    weight_decay: float = Field(0.0, ge=0, le=1000)
    decay_all: bool = True
    schedule: Literal["cosine", "cosine-7/16", "linear", "constant"] = "cosine"
    warmup: float = Field(0.0, ge=0, lt=1)
    batch_size: int = Field(128, ge=1, le=MOST_SAMPLES)
    labeled_batch_size: int = Field(0, ge=0, le=MOST_SAMPLES)
    negative_batch_size: int | None = Field(None, ge=1, le=MOST_SAMPLES)
    epochs: int = Field(100, ge=1, le=1_000_000)
    min_steps: int = Field(0, ge=0, le=MOST_STEPS)
    steps: int | None = Field(None, ge=1, le=MOST_STEPS)
    round_growth: float = Field(1.0, ge=1, le=10)
    gradient_clip: float | None = Field(None, gt=0)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    ema_decay: float = Field(0.0, ge=0, lt=1)
    ema_share: float = Field(1.0, gt=0, le=1)
    warm_start: bool = False
    augment: AugmentSettings | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    channels_last: bool = False
    compile: bool | None = None
    cuda_graph: bool | None = None
    data_on_device: bool | None = None
    workers: int = Field(0, ge=0, le=MOST_PROCESSES)
    deterministic: bool = False
    sync_batchnorm: bool = FitDefaults.sync_batchnorm

    def times(self, processes: int) -> Self:
        """Return settings for several processes with batches of these sizes each: the rate grows with them.

        >>> TrainingSettings(batch_size=64, learning_rate=0.25).times(4).learning_rate
        1.0
        """
        sizes = {name: getattr(self, name) for name in ("batch_size", "labeled_batch_size", "negative_batch_size")}
        more = {name: size and size * processes for name, size in sizes.items()}
        # A rate with a reference batch size grows by itself.
        rate = self.learning_rate * (processes if self.reference_batch_size is None else 1)
        return self.replace(**more, learning_rate=rate)

    @model_serializer(mode="wrap")
    def _without_later(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out later settings that are not used, so that old runs keep their hashes."""
        values: dict[str, Any] = write(self)
        return {name: value for name, value in values.items() if name not in LATER or value != LATER[name]}
