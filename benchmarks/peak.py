"""What a device can multiply at best: 2 n³ operations of a product of n x n matrices over its time."""

import torch

from benchmarks.timing import seconds

_REPEATS = 5


def matmul_peak(device: torch.device) -> float:
    """Return the operations a second of the fastest of several products: 8192³ in bf16 on a GPU, 1024³ in float32 else.

    Example:
        >>> matmul_peak(torch.device("cpu")) > 1e8
        True
    """
    on_gpu = device.type == "cuda"
    size, count = (8192, 20) if on_gpu else (1024, 2)
    left, right = torch.randn(2, size, size, device=device, dtype=torch.bfloat16 if on_gpu else torch.float32)

    def multiply() -> None:
        for _ in range(count):
            torch.mm(left, right)

    multiply()
    best = min(seconds(multiply, device) for _ in range(_REPEATS))
    return 2.0 * count * size**3 / best
