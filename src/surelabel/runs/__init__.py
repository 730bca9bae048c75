"""A run's folder: environment, history, selections, models; written atomically, resumed exactly.

- `run.json`: settings, with absolute paths and content hashes; written last, it makes the folder a run
- `environment.json`: versions, machine and command line, an entry for each start and resume
- `split.json`: the ids of the labeled and of the validation samples, and their hash
- `history.json`: the finished rounds and the checksums of their files: the one commit point
- `rounds/000/`: pool.parquet, negatives.parquet, validation.parquet, validation_negatives.parquet and the model
- `.lock`: held by the process that writes

What reads a folder imports nothing that trains; `surelabel.runs.session` starts and resumes runs.
"""

from surelabel.runs.reading import RunFolder

__all__ = ["RunFolder"]
