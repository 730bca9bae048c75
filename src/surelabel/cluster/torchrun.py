"""Several processes that torchrun has started become a group that trains one network (`engine.parallel`).

torchrun gives each process its rank and the address of the others in environment variables. It restarts all processes
when one dies (`--max-restarts`), and ends all when one ends with an error.
"""

import datetime
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from surelabel._version import __version__
from surelabel.base.together import job
from surelabel.errors import InvalidInputError

COMMANDS = ("fit", "resume", "reproduce")
"""The commands that several processes may run: those that train."""

TIMEOUT = datetime.timedelta(hours=2)
"""How long a process waits for the others, which may read large files meanwhile."""


def started() -> bool:
    """Whether torchrun has started this process; other schedulers set some of its variables too."""
    return job() is not None


def restarted() -> bool:
    """Whether torchrun has started the command again, after a process had died.

    A machine on which no process died does not count the restart, so all joined processes are asked.
    """
    if number() == 1:
        return _count() > 0
    from surelabel.engine.parallel import processes

    return any(count > 0 for count in processes().in_all(_count))


def number() -> int:
    """Return how many processes torchrun has started; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if started() else 1


def end(code: int) -> None:
    """End a process that is one of several; if it is alone, just return.

    Threads of gloo may outlive their group. If the interpreter ends as usual, they sometimes abort it, and a process
    that has done its work would count as crashed.
    """
    if number() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _count() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if started() else 0


def rank() -> int:
    """Return the number of this process among those that torchrun has started; 0 without it."""
    return int(os.environ["RANK"]) if started() else 0


def join(command: str, words: Sequence[str] = ()) -> None:
    """Join the other processes for a command; a single process, under torchrun or not, joins nothing.

    Args:
        command: its name.
        words: of the command line, not parsed yet: the device that they name decides how processes are joined.
    """
    if number() == 1:
        return
    if command not in COMMANDS:
        listed = ", ".join(COMMANDS)
        raise InvalidInputError(f"{number()} processes can only train ({listed}); start {command} without torchrun.")
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    from surelabel.engine.parallel import check_alike, processes

    backend, device = "gloo", None
    if torch.cuda.is_available() and not _on_cpu(words):
        local, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= there:
            wanted = f"{local + 1} or more processes on a machine with {there} GPUs"
            remedy = f"set --nproc-per-node to {there} at most, or CUDA_VISIBLE_DEVICES= to train on the CPU"
            raise InvalidInputError(f"torchrun has started {wanted}; {remedy}.")
        torch.cuda.set_device(local)
        # Tensors on a GPU are exchanged by NCCL; everything else does not go through GPU memory.
        backend, device = "cpu:gloo,cuda:nccl", torch.device("cuda", local)
    store, own_rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        # torchrun keeps its store across restarts, with the addresses of dead processes. Several machines count
        # restarts separately, so there torchrun must be told to make a new store (docs/several-gpus.md).
        store = PrefixStore(f"start {_count()}", store)
    dist.init_process_group(backend, store=store, rank=own_rank, world_size=size, timeout=TIMEOUT, device_id=device)
    versions = {"surelabel": __version__, "torch": str(torch.__version__)}
    check_alike(processes(), {**versions, "the command": command})


def check_same_folder(folder: Path) -> None:
    """Refuse processes whose results would go to other folders: the first one writes what the others read."""
    if number() > 1:
        from surelabel.engine.parallel import check_alike, processes

        check_alike(processes(), {"the folder": os.path.abspath(folder)})


def _on_cpu(words: Sequence[str]) -> bool:
    """Whether these words of a command ask for the CPU."""
    return "--device=cpu" in words or ("--device", "cpu") in itertools.pairwise(words)


def leave() -> None:
    """Leave the other processes, if this one has joined them."""
    dist = sys.modules.get("torch.distributed")
    if number() > 1 and dist is not None and dist.is_initialized():
        dist.destroy_process_group()
