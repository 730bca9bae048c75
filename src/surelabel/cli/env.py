"""`surelabel env`: what a bug report needs to know about this machine."""

from surelabel.base.system import cores
from surelabel.cli._console import say

EXAMPLES = ("surelabel env",)


def command() -> None:
    """Show versions, device, cores and threads: paste it into an issue."""
    for name, value in environment().items():
        say(f"{name:<14}{value}")


def environment() -> dict[str, str]:
    """Return what results depend on: versions, machine, device and threads."""
    import torch

    from surelabel.runs.environment import describe_environment

    known = describe_environment()
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        **known["versions"],
        "platform": known["platform"],
        "processor": known["processor"],
        "cores": str(cores()),
        "torch threads": str(torch.get_num_threads()),
        "device": f"cuda {torch.version.cuda}: {', '.join(gpus)}" if gpus else "cpu",
    }
