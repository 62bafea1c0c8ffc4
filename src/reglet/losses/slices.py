"""Random directions on the unit sphere, drawn by the loss itself.

Directions come from no global generator: block b of step s is a function of (seed, s, b) and, unless the slices are
shared, of the rank.  So a global `manual_seed` cannot make ranks draw the same slices unnoticed, a resumed run goes on
with the slices that it would have had, and the number drawn at a time changes nothing.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.dist import rank, world_size
from reglet.threads import memory

BLOCK = 128  # directions seeded together: the grain at which ranks split shared slices, and threads all


class Slices(nn.Module):
    """`count` fresh directions a step.

    shared: all ranks use the same directions.  Otherwise each rank draws its own, and W ranks average over W * count.
    """

    def __init__(self, count: int, *, shared: bool, seed: int = 0) -> None:
        super().__init__()
        if count < 1:
            raise ValueError(f"slices must be at least 1, got {count}")
        self.count, self.shared, self.seed = count, shared, seed
        self.step = 0

    def extra_repr(self) -> str:
        return f"{self.count}, shared={self.shared}, seed={self.seed}"

    def get_extra_state(self) -> Tensor:  # a tensor, so that safetensors can hold it
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)

    def chunks(
        self, d: int, like: Tensor, *, split: bool, size: int, share: tuple[int, int] = (0, 1)
    ) -> Iterator[Float[Tensor, "k d"]]:
        """This step's directions, `size` at a time, rounded up to whole blocks.

        All come in the same memory: each holds until the next is asked for.
        split: only this rank's part of shared slices.
        share: of these, the blocks of one thread (which, of how many).
        """
        step, own = self.step, rank()
        generator = torch.Generator(like.device)
        blocks = range(own if split else 0, -(-self.count // BLOCK), world_size() if split else 1)
        which, of = share
        blocks = blocks[len(blocks) * which // of : len(blocks) * (which + 1) // of]
        together = max(1, min(len(blocks), -(-size // BLOCK)))
        w = memory("directions", together * BLOCK, d, dtype=like.dtype, device=like.device)
        places = w.split(BLOCK)
        for first in range(0, len(blocks), together):
            drawn = blocks[first : first + together]
            for b, place in zip(drawn, places, strict=False):
                generator.manual_seed(_mix(self.seed, step, b, -1 if self.shared else own))
                torch.randn(BLOCK, d, generator=generator, out=place)
            count = BLOCK * len(drawn) - max(0, BLOCK * (drawn[-1] + 1) - self.count)
            chunk = w if count == len(w) else w[:count]
            yield chunk.div_(torch.linalg.vector_norm(chunk, dim=1, keepdim=True))

    def advance(self) -> None:
        self.step += 1


def _mix(*numbers: int) -> int:
    """One 63-bit seed from several integers (the finalizer of splitmix64, folded)."""
    mask, state = (1 << 64) - 1, 0
    for number in numbers:
        state = (state + number * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state >> 1
