"""Which tokens a block loss looks at in this step."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from reglet.blocks.tokens import Grid, at, pick, points

LEAST = 3  # two standardized values are +-0.7 whatever they were, so their gradient vanishes
Sampling = Literal["shared", "per_sample", "salient"]


class Sampler(nn.Module):
    """`rho` of the tokens (a ratio in (0, 1], or a count), drawn anew in each step from (seed, step) alone.

    All blocks with the same number of tokens look at the same places.  The global random numbers are not touched.
    """

    def __init__(self, rho: float, *, sampling: Sampling, seed: int) -> None:
        super().__init__()
        if not (0 < rho <= 1 or (isinstance(rho, int) and rho >= LEAST)):
            raise ValueError(f"rho is a ratio in (0, 1] or a count of at least {LEAST}, got {rho}")
        self.rho, self.sampling, self.seed = rho, sampling, seed
        self.step = 0
        self._drawn: dict[tuple[int, int, int, torch.device], Tensor] = {}

    def get_extra_state(self) -> Tensor:  # a tensor, so that safetensors can hold it
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)
        self._drawn.clear()

    def advance(self) -> None:
        self.step += 1
        self._drawn.clear()

    def count(self, tokens: int) -> int:
        """How many of `tokens` are looked at: ceil(rho N), at least three."""
        if tokens < LEAST:
            raise ValueError(f"statistics over tokens need at least {LEAST} of them, got {tokens}")
        if self.rho > tokens:
            raise ValueError(f"rho={self.rho} tokens were asked for, and there are {tokens}")
        if self.rho > 1:
            return int(self.rho)
        return min(tokens, max(LEAST, math.ceil(self.rho * tokens - 1e-9)))

    def choose(
        self, x: Float[Tensor, "b s c"], source: Grid, target: Grid
    ) -> tuple[Int[Tensor, "b_or_1 n"], Float[Tensor, "b n c"]]:
        """Places of the grid `target`, and x, which lives on the grid `source`, at those places."""
        t = points(target)
        n = self.count(t)
        if self.sampling != "salient":
            index = self._draw(t, n, rows=len(x) if self.sampling == "per_sample" else 1, device=x.device)
            return index, at(x, source, target, index)
        index = self._draw(t, min(t, 3 * n), rows=1, device=x.device)
        candidates = at(x, source, target, index)
        best = candidates.mean(-1).topk(n, dim=1).indices
        return index.expand(len(x), -1).gather(1, best), pick(candidates, best)

    def _draw(self, tokens: int, n: int, *, rows: int, device: torch.device) -> Int[Tensor, "r n"]:
        """n of `tokens` places without replacement, in ascending order."""
        key = (tokens, n, rows, device)
        if key not in self._drawn:
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.step) % 2**63)
            order = torch.rand(rows, tokens, generator=generator).argsort(1)
            self._drawn[key] = order[:, :n].sort(1).values.to(device)
        return self._drawn[key]
