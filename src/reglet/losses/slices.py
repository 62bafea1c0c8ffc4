"""Random directions on the unit sphere, drawn by the loss itself.

No global generator is used.  Block b of step s is a function of (seed, s, b) and, unless the slices are shared, of the
rank.  So a global `manual_seed` cannot make all ranks draw the same slices, a resumed run draws what it would have
drawn, and the number drawn at a time changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.dist import rank
from reglet.losses.recomputation import same_again

BLOCK = 128  # directions that are seeded together; ranks and threads get whole blocks
EVALUATION = -1  # the number of the step whose slices are used in eval mode


@runtime_checkable
class Directions(Protocol):
    """Unit vectors, which a loss asks for a chunk at a time."""

    @property
    def count(self) -> int: ...

    def chunks(self, size: int, own: int = 0, of: int = 1) -> Iterator[Float[Tensor, "k d"]]:
        """Part `own` of `of` parts, about `size` directions at a time.  The next chunk overwrites the last one."""
        ...


@dataclass(frozen=True)
class Given:
    """Directions that exist already."""

    directions: Float[Tensor, "k d"]

    @property
    def count(self) -> int:
        return len(self.directions)

    def chunks(self, size: int, own: int = 0, of: int = 1) -> Iterator[Float[Tensor, "k d"]]:
        part = self.directions.tensor_split(of)[own]
        yield from part.split(size) if len(part) else ()


class Slices(nn.Module):
    """`count` new directions at each training step; in eval mode the same ones at every call.

    shared: all ranks use the same directions.  Otherwise each rank draws its own, and W ranks average over W * count.
    unit: directions have length 1.  Otherwise they are normal with variance 1 / d, so the mean squared length is 1.
    """

    def __init__(self, count: int, *, shared: bool, seed: int = 0, unit: bool = True) -> None:
        super().__init__()
        check.whole(1, slices=count)
        check.whole(0, seed=seed)
        check.flag(shared_slices=shared)
        self.count, self.shared, self.seed, self.unit = count, shared, seed, unit
        self.step = 0

    def extra_repr(self) -> str:
        return f"{self.count}, shared={self.shared}, seed={self.seed}"

    def get_extra_state(self) -> Tensor:  # a tensor, so that safetensors can hold it
        return torch.tensor(self.step, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)

    def next(self, z: Float[Tensor, "v n d"], *, part: tuple[int, int] = (0, 1)) -> "Drawn":
        """The directions for a call on `z`.  In training, the next call gets those of the next step.

        Activation checkpointing calls the loss again in the backward pass.  That call gets the same directions.
        """
        step = same_again(self, self._advance) if self.training else EVALUATION
        return self.at(step, z, part=part)

    def _advance(self) -> int:
        self.step += 1
        return self.step - 1

    def at(self, step: int, like: Float[Tensor, "*_ d"], *, part: tuple[int, int] = (0, 1)) -> "Drawn":
        """The directions of `step`, for embeddings like these.  part: (which, of how many) parts of shared slices."""
        first, of = part
        blocks = range(first, -(-self.count // BLOCK), of)
        key = (self.seed, step, -1 if self.shared else rank())
        return Drawn(key, self.count, blocks, like.shape[-1], like.dtype, like.device, self.unit)


@dataclass(frozen=True)
class Drawn:
    """Directions that are drawn when they are asked for: `blocks` among the first `total` directions of `key`."""

    key: tuple[int, int, int]
    total: int
    blocks: range
    d: int
    dtype: torch.dtype
    device: torch.device
    unit: bool = True

    @property
    def count(self) -> int:
        return sum(min(BLOCK, self.total - BLOCK * b) for b in self.blocks)

    def generator(self) -> torch.Generator:
        """For what else is drawn in this step: the same wherever the directions are, and independent of them."""
        return torch.Generator(self.device).manual_seed(_mix(*self.key, -1) & 0xFFFFFFFF)

    def chunks(self, size: int, own: int = 0, of: int = 1) -> Iterator[Float[Tensor, "k d"]]:
        """`size` is rounded up to whole blocks."""
        part = self.blocks[len(self.blocks) * own // of : len(self.blocks) * (own + 1) // of]
        together = max(1, min(len(part), -(-size // BLOCK)))
        memory = torch.empty(together * BLOCK, self.d, dtype=self.dtype, device=self.device)
        generator = None if memory.is_meta else torch.Generator(self.device)
        for first in range(0, len(part), together):
            some = part[first : first + together]
            for b, block in zip(some, memory.split(BLOCK), strict=False):
                if generator is not None:
                    _fill(block, generator, _mix(*self.key, b))
            w = memory[: min(BLOCK * len(some), self.total - BLOCK * (some[-1] + 1 - len(some)))]
            yield w.div_(torch.linalg.vector_norm(w, dim=1, keepdim=True) if self.unit else (2 * self.d) ** 0.5)


def _fill(block: Float[Tensor, "k d"], generator: torch.Generator, seed: int) -> None:
    """Independent normal numbers of variance 2, a function of all 64 bits of the seed.

    The CPU's generator takes only 32 bits.  So each half of the block is drawn from one half of the seed.  The sum and
    the difference of the halves depend on both, and are again independent and normal.
    """
    a, b = block.chunk(2)
    a.normal_(generator=generator.manual_seed(seed & 0xFFFFFFFF))
    b.normal_(generator=generator.manual_seed(seed >> 32))
    torch.sub(a, b, out=b)
    a.mul_(2).sub_(b)


def _mix(*numbers: int) -> int:
    """One 64-bit seed from several integers (the finalizer of splitmix64, folded)."""
    mask, state = (1 << 64) - 1, 0
    for number in numbers:
        state = (state + number * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state
