"""Whose code may run: runs are signed with a key of the user who makes them; others may name only what is listed here.

A run's settings name code by reference, and a run folder can come from anywhere. A signature is the HMAC-SHA256 of the
settings, content hashes of files included, under a key that never leaves the user's configuration folder. The lists are
compared by the exact text of a reference, before anything is imported.
"""

import contextlib
import errno
import functools
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import warnings
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from surelabel.base.system import flush_folder, open_itself
from surelabel.errors import UnsignedRunWarning

VARIABLE = "SURELABEL_CONFIG"
"""The environment variable that names the folder of the key."""


def _references(names: Mapping[str, str]) -> frozenset[str]:
    """Return the references "module:name" of the names, with spaces between them, that each module has."""
    return frozenset(f"{module}:{name}" for module, listed in names.items() for name in listed.split())


NETWORKS = _references(
    {
        "surelabel.models.cnn13": "CNN13 cnn13",
        "surelabel.models.heads": "heads",
        "surelabel.models.image": "SmallImageNetwork small_image_network",
        "surelabel.models.pooled": "PooledNetwork pooled_network",
        "surelabel.models.resnet": "ResNet resnet50",
        "surelabel.models.resnet3d": "ResNet3d resnet3d18",
        "surelabel.models.shake_shake": "ShakeShake shake_shake",
        "surelabel.models.table": "table_network",
        "surelabel.models.wide_resnet": "WideResNet wide_resnet",
    }
)
_ESTIMATORS = "DeepEnsemble Deterministic MCDropBlock MCDropout MCSpatialDropout RandomAugmentation"
ESTIMATORS = _references({"surelabel.uncertainty": _ESTIMATORS})
_PLACES = dict.fromkeys(("folder", "cache"), ())
DATA_SETS: dict[str, dict[str, tuple[int, ...]]] = {
    "surelabel.data.sets:cifar10": {},
    "surelabel.data.sets:cifar100": {},
    "surelabel.data.sets:ucf101": dict.fromkeys((*_PLACES, "passages", "frames", "stride", "height", "width"), ()),
    "surelabel.data.sets:voc2007": {**_PLACES, "side": (224,)},
    "surelabel.reproduce.digits:digits": {},
}
"""Functions that make data; and arguments that say where decoded files are written and how large they are, which other
people's runs may not set, except to these values."""

# Those with predict_proba that can be made from numbers and text; others take a classifier, which settings cannot hold.
CLASSIFIERS = _references(
    {
        "surelabel.kinds.linear": "LinearOnPixels LinearOnTable",
        "sklearn.calibration": "CalibratedClassifierCV",
        "sklearn.discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
        "sklearn.dummy": "DummyClassifier",
        "sklearn.ensemble": """
            AdaBoostClassifier BaggingClassifier ExtraTreesClassifier GradientBoostingClassifier
            HistGradientBoostingClassifier RandomForestClassifier
        """,
        "sklearn.gaussian_process": "GaussianProcessClassifier",
        "sklearn.linear_model": "LogisticRegression LogisticRegressionCV SGDClassifier",
        "sklearn.naive_bayes": "BernoulliNB CategoricalNB ComplementNB GaussianNB MultinomialNB",
        "sklearn.neighbors": "KNeighborsClassifier NearestCentroid RadiusNeighborsClassifier",
        "sklearn.neural_network": "MLPClassifier",
        "sklearn.semi_supervised": "LabelPropagation LabelSpreading",
        "sklearn.svm": "NuSVC SVC",
        "sklearn.tree": "DecisionTreeClassifier ExtraTreeClassifier",
    }
)
_TORCH_LAYERS = """
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout
AvgPool1d AvgPool2d AvgPool3d BatchNorm1d BatchNorm2d BatchNorm3d Bilinear CELU ChannelShuffle CircularPad1d
CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d
ConvTranspose2d ConvTranspose3d CosineSimilarity CrossMapLRN2d Dropout Dropout1d Dropout2d Dropout3d ELU Embedding
EmbeddingBag FeatureAlphaDropout Flatten Fold FractionalMaxPool2d FractionalMaxPool3d GELU GLU GRU GRUCell GroupNorm
Hardshrink Hardsigmoid Hardswish Hardtanh Identity InstanceNorm1d InstanceNorm2d InstanceNorm3d LPPool1d LPPool2d
LPPool3d LSTM LSTMCell LayerNorm LeakyReLU Linear LocalResponseNorm LogSigmoid LogSoftmax MaxPool1d MaxPool2d MaxPool3d
MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish MultiheadAttention PReLU PairwiseDistance PixelShuffle PixelUnshuffle RMSNorm
RNN RNNCell RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
ReplicationPad3d SELU Sequential SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink Softsign SyncBatchNorm Tanh
Tanhshrink Threshold Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer
Unflatten Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
"""
LAYERS = _references({"surelabel.models.dropout": "DropBlock2d Dropout SpatialDropout2d", "torch.nn": _TORCH_LAYERS})


class Reference(NamedTuple):
    """Code that settings name.

    Attributes:
        name: the reference, "module:name" or "file.py:name".
        listed: what anyone's run may name here.
    """

    name: str
    listed: Container[str]

    @property
    def is_listed(self) -> bool:
        """Whether it is listed, by its exact text."""
        return self.name in self.listed


def key_file() -> Path:
    """Return where the user's key is: in $SURELABEL_CONFIG, else $XDG_CONFIG_HOME/surelabel, else ~/.config/surelabel.

    A relative path is not used: anyone could have put a key into the current folder.
    """
    chosen, config = os.environ.get(VARIABLE), os.environ.get("XDG_CONFIG_HOME", "")
    folder = config if os.path.isabs(config) and not chosen else os.path.expanduser(chosen or "~/.config")
    if not os.path.isabs(folder):
        problem = f"{VARIABLE} must be an absolute path" if chosen else "there is no home folder"
        raise FileNotFoundError(errno.ENOENT, problem, chosen or folder)
    return Path(folder, "key") if chosen else Path(folder, "surelabel", "key")


def user_key() -> bytes | None:
    """Return the user's key, created now if there is none yet; None, with a warning, if it cannot be created."""
    try:
        path = key_file()
        if not os.path.lexists(path):
            _make_key(path)
        return _read_key(path)
    except OSError as error:
        text = (
            f"Runs are not signed and will need --trust-code for your own code: there is no key ('{error.filename}': "
            f"{error.strerror}). Let {VARIABLE} name a folder that you may write to."
        )
        warnings.warn(text, UnsignedRunWarning, stacklevel=2)
        return None


def sign(settings: Mapping[str, Any]) -> str | None:
    """Return the signature of a run's settings, given as JSON; None, with a warning, if there can be no key."""
    key = user_key()
    return None if key is None else _signature(key, settings)


def is_signed(settings: Mapping[str, Any], signature: object) -> bool:
    """Whether this user has signed these settings; False if the key is missing or damaged."""
    if not isinstance(signature, str):
        return False
    try:
        expected = _signature(_read_key(key_file()), settings)
    except OSError:
        return False
    return hmac.compare_digest(expected.encode(), signature.encode(errors="replace"))


def _signature(key: bytes, settings: Mapping[str, Any]) -> str:
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, b"surelabel run\n" + text.encode(), hashlib.sha256).hexdigest()


def _make_key(path: Path) -> None:
    """Write a new key, whole and readable by the user alone; if another process is faster, its key is kept."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".key.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb", opener=functools.partial(os.open, mode=0o600)) as stream:
            stream.write(secrets.token_hex(32).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_folder(path.parent)


def _read_key(path: Path) -> bytes:
    """Return the key; raise OSError unless it is a file (not a link) that belongs to the user and nobody else can read.

    Anyone who knows the key, or put it there, could sign code that this user would then run.
    """
    with open(path, "rb", opener=open_itself) as stream:
        found = os.fstat(stream.fileno())
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(errno.EPERM, "it must be a file of yours that no one else may read", str(path))
        text = stream.read(100)
    if not re.fullmatch(rb"[0-9a-f]{64}\n", text):
        raise OSError(errno.EINVAL, "it is damaged; remove it, and a new one is made", str(path))
    return bytes.fromhex(text.decode())
