r"""ucf3: three of UCF-101's 101 classes (BabyCrawling, Punch, PushUps), 394 clips, by UCF-101's official lists.

The clips are UCF-101's own at a short side of 128 pixels. Split 1 has 290 training and 104 test clips of these classes.
A score on ucf3 is not a score on UCF-101. SURELABEL_DATA names the folder above.

    surelabel reproduce experiments/ucf3.py:TABLE --budget 1.2 --out runs/ucf3
    surelabel reproduce experiments/ucf3.py:TABLE --budget 1.2 --out runs/ucf3 --labels 20% \
        --rows Supervised --rows UPS --seeds 3
"""

import functools
from pathlib import Path

from surelabel.data.decoding import decode_files
from surelabel.data.images import data_folder
from surelabel.data.run_data import RunData
from surelabel.data.sets import clip_data
from surelabel.data.sets.ucf101 import read_ucf101
from surelabel.data.video import ClipSettings
from surelabel.errors import DataError
from surelabel.reproduce import variants
from surelabel.reproduce.entries import DataSet, Experiment, rows
from surelabel.reproduce.paper import ALL_LABELS, SUPERVISED, UPS
from surelabel.reproduce.ucf101 import fast_recipe, paper_recipe

CLASSES = ("BabyCrawling", "Punch", "PushUps")
FILE = Path(__file__).resolve()
CLIPS = FILE.parents[1] / "runs" / "ucf3-clips"
UCF3 = DataSet(
    "ucf3",
    f"{FILE}:ucf3",
    (0.3977, 0.3484, 0.3217),
    (0.2748, 0.2611, 0.2708),
    paper_recipe,
    functools.partial(fast_recipe, steps=600, batch_size=32, learning_rate=0.05),
)
ROWS = (SUPERVISED, ("Pseudo-labeling", variants.pseudo_labeling), UPS)
TABLE = Experiment(
    "ucf3",
    "ucf3, 3-D ResNet-18",
    (
        *rows(UCF3, 0.2, *ROWS),
        *rows(UCF3, 0.5, *ROWS),
        *rows(UCF3, 1.0, (ALL_LABELS, variants.supervised)),
    ),
    "accuracy",
)


def ucf3(
    seed: int = 0,
    share: float = 0.2,
    *,
    validation_share: float = 0.0,
    cache: str | None = None,
    **clips: int,
) -> RunData:
    """Return a share of ucf3's training clips labeled, the rest as the pool, and its test clips.

    The arguments are those of `surelabel.data.sets.ucf101`; decoded clips are kept in runs/ucf3-clips.
    """
    folder = data_folder() / "ucf3"
    if not folder.is_dir():
        raise DataError(
            f"ucf3 is not in '{folder}'; put the class folders {', '.join(CLASSES)} and ucfTrainTestlist of UCF-101 "
            "there, or name the folder above it in SURELABEL_DATA."
        )
    lists = read_ucf101(folder, classes=CLASSES)
    clips_there, _ = decode_files(lists.videos, Path(cache or CLIPS), ClipSettings(**clips))
    return clip_data(lists, clips_there, seed, share, validation_share)
