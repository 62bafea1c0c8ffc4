"""Which tokens a block loss looks at in this step."""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from reglet.blocks.tokens import Grid, gather, onto, points, windows

LEAST = 3  # two standardized values are +-0.7 whatever they were, so their gradient vanishes
REMEMBERED = 64  # pairs of grids, the last ones seen
Sampling = Literal["shared", "per_sample", "salient"]


class Places(NamedTuple):
    """Points of the output's grid, and the points of the input's grid in their windows, if windows are all alike."""

    target: Int[Tensor, "r n"]
    source: Int[Tensor, "r nw"] | None


class Sampler(nn.Module):
    """`rho` of the tokens (a ratio in (0, 1], or a count), drawn anew in each step from (seed, step) alone.

    All blocks with the same number of tokens look at the same places.  The global random numbers are not touched.
    Places for sizes seen before are drawn by `advance`, so that nothing random is left for a compiled forward.
    """

    def __init__(self, rho: int | float, *, sampling: Sampling, seed: int) -> None:
        super().__init__()
        if not (0 < rho <= 1 or (isinstance(rho, int) and rho >= LEAST)):
            raise ValueError(f"rho is a ratio in (0, 1] or a count of at least {LEAST}, got {rho}")
        self.rho, self.sampling, self.seed = rho, sampling, seed
        self.step = 0
        self._places: dict[tuple[Grid, Grid, int, torch.device], Places] = {}

    def get_extra_state(self) -> Tensor:  # a tensor, so that safetensors can hold it
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)
        self._places.clear()

    def advance(self) -> None:
        self.step += 1
        for key in list(self._places):
            self._places[key] = self._draw(*key)

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
        """Places of the grid `target`, and the mean of x, which lives on the grid `source`, over their windows."""
        key = (source, target, len(x) if self.sampling == "per_sample" else 1, x.device)
        if key not in self._places:
            self._remember(key)
        places = self._places[key]
        rows = _at(x, source, target, places)
        if self.sampling != "salient":
            return places.target, rows
        best = rows.mean(-1).topk(self.count(points(target)), dim=1).indices
        return places.target.expand(len(x), -1).gather(1, best), gather(rows, best)

    @torch.compiler.disable
    def _remember(self, key: tuple[Grid, Grid, int, torch.device]) -> None:
        while len(self._places) >= REMEMBERED:
            del self._places[next(iter(self._places))]
        self._places[key] = self._draw(*key)

    def _draw(self, source: Grid, target: Grid, rows: int, device: torch.device) -> Places:
        """n points (salient: 3n, to choose from) without replacement, in ascending order."""
        t = points(target)
        n = min(t, 3 * self.count(t)) if self.sampling == "salient" else self.count(t)
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.step) % 2**63)
        order = torch.rand(rows, t, generator=generator).argsort(1)
        index = order[:, :n].sort(1).values
        table = None if source == target else windows(source, target)
        return Places(index.to(device), None if table is None else table[index].flatten(1).to(device))


def _at(x: Tensor, source: Grid, target: Grid, places: Places) -> Tensor:
    """Picks before it pools where it can: only the windows that are looked at."""
    if source == target:
        return gather(x, places.target)
    if places.source is None:
        return gather(onto(x, source, target), places.target)
    n = places.target.shape[1]
    return gather(x, places.source).unflatten(1, (n, -1)).mean(2)
