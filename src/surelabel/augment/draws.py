"""Random numbers for each sample, on the device: a hash of (seed, epoch, sample key, operation name).

It is the hash of `surelabel.data.draws.draw`, bit for bit, in int64 arithmetic, which every device has: products wrap
like unsigned ones, and a logical shift is an arithmetic shift with the copies of the sign bit masked off. A sample's
numbers depend neither on its batch nor on the device, and computing them needs no host synchronization.
"""

import hashlib

import torch
from torch import Tensor


def signed(value: int) -> int:
    """Return the int64 with the bits of this number modulo 2**64.

    >>> signed(2**64 - 1)
    -1
    """
    return (value + 2**63) % 2**64 - 2**63


_GOLDEN = signed(0x9E3779B97F4A7C15)
_FIRST = signed(0xBF58476D1CE4E5B9)
_SECOND = signed(0x94D049BB133111EB)
_UNIFORM_BITS = 24  # as many as a float32 holds, so that every draw is exact and below 1


def _name_key(name: str) -> int:
    return signed(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


# The tracer of torch.compile cannot look into hashlib; a name is a constant, and so is its key. This is what
# torch.compiler.assume_constant_result sets; calling it here would import torch._dynamo, which takes a second.
_name_key._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _shift(h: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros: torch's `>>` on int64 fills with the sign."""
    shifted: Tensor = (h >> bits) & (2 ** (64 - bits) - 1)
    return shifted


def _mix(h: Tensor, part: Tensor | int) -> Tensor:
    h = (h ^ part) + _GOLDEN
    h = (h ^ _shift(h, 30)) * _FIRST
    h = (h ^ _shift(h, 27)) * _SECOND
    return h ^ _shift(h, 31)


class Draws:
    """The random numbers for the samples of a batch: each named draw is a hash of (seed, epoch, key, name).

    Args:
        seed: int64 of shape (), a tensor, so that a compiled function or a CUDA graph works for every seed.
        keys: the samples' keys, int64 of shape (N,): the bits of `surelabel.data.draws.sample_keys`.
        epochs: each sample's epoch, int64 of shape (N,).

    Example:
        >>> draws = Draws(torch.tensor(0), torch.arange(4), torch.zeros(4, dtype=torch.int64))
        >>> draws.uniform("flip")
        tensor([0.2649, 0.3683, 0.8812, 0.2993])
    """

    def __init__(self, seed: Tensor, keys: Tensor, epochs: Tensor) -> None:
        assert seed.dtype == keys.dtype == epochs.dtype == torch.int64, "uint64 keys are viewed as int64"
        assert (seed.ndim, keys.ndim) == (0, 1)
        assert epochs.shape == keys.shape
        self.count = keys.shape[0]
        """N, the number of samples."""
        self.device = keys.device
        self._seed, self._keys, self._epochs = seed, keys, epochs
        self._prefix: Tensor | None = None

    def named(self, name: str) -> "Draws":
        """Return the draws for another view of the same samples: its name is hashed into the seed; "" is this view.

        >>> draws = Draws(torch.tensor(0), torch.arange(4), torch.zeros(4, dtype=torch.int64))
        >>> draws.named("second").uniform("flip")
        tensor([0.3426, 0.4466, 0.3886, 0.8752])
        """
        return Draws(_mix(self._seed, _name_key(name)), self._keys, self._epochs) if name else self

    def repeated(self, times: int) -> "Draws":
        """Return draws for N * times samples, those of each sample `times` times in a row: the frames of a clip.

        >>> Draws(torch.tensor(0), torch.arange(2), torch.zeros(2, dtype=torch.int64)).repeated(2).uniform("flip")
        tensor([0.2649, 0.2649, 0.3683, 0.3683])
        """
        return Draws(self._seed, *(part.repeat_interleave(times) for part in (self._keys, self._epochs)))

    def rows(self, rows: slice) -> "Draws":
        """Return the draws for some of the samples.

        >>> Draws(torch.tensor(0), torch.arange(4), torch.zeros(4, dtype=torch.int64)).rows(slice(2, 4)).uniform("flip")
        tensor([0.8812, 0.2993])
        """
        return Draws(self._seed, self._keys[rows], self._epochs[rows])

    def bits(self, name: str) -> Tensor:
        """Return 64 random bits for each sample, int64 of shape (N,)."""
        # The part that all draws share is computed on the first draw: a batch that is not augmented needs none.
        if self._prefix is None:
            self._prefix = _mix(_mix(_mix(torch.zeros_like(self._keys), self._seed), self._epochs), self._keys)
        return _mix(self._prefix, _name_key(name))

    def uniform(self, name: str) -> Tensor:
        """Return a number in [0, 1) for each sample, float32 of shape (N,), from the top 24 bits."""
        return _shift(self.bits(name), 64 - _UNIFORM_BITS).to(torch.float32) * 2.0**-_UNIFORM_BITS

    def integer(self, name: str, count: int) -> Tensor:
        """Return one of 0, ..., count - 1 for each sample, int64 of shape (N,), from the top 32 bits."""
        return _shift(_shift(self.bits(name), 32) * count, 32)

    def sign(self, name: str) -> Tensor:
        """Return -1 or 1 for each sample, float32 of shape (N,)."""
        return (2 * self.integer(name, 2) - 1).to(torch.float32)
