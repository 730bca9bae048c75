"""A run's settings and its folder: environment, history, selections, models; written atomically, resumed exactly.

- `run.json`: settings, with absolute paths and content hashes; written last, it makes the folder a run
- `environment.json`: versions, machine and command line, an entry for each start and resume
- `split.json`: the ids of the labeled and of the validation samples, and their hash
- `history.json`: the finished rounds and the checksums of their files: the one commit point
- `rounds/000/`: pool.parquet, negatives.parquet, validation.parquet, validation_negatives.parquet and the model
- `pictures.npz`: the few pictures that figure 4 shows of the run
- `.lock`: held by the process that writes
"""

from surelabel.data.reference import FunctionData, RunData, TableData
from surelabel.learners.settings import SklearnLearnerSettings, TorchLearnerSettings
from surelabel.runs.driving import resume, run, start
from surelabel.runs.reading import RunFolder
from surelabel.runs.settings import FORMAT, RunSettings

__all__ = [
    "FORMAT",
    "FunctionData",
    "RunData",
    "RunFolder",
    "RunSettings",
    "SklearnLearnerSettings",
    "TableData",
    "TorchLearnerSettings",
    "resume",
    "run",
    "start",
]
