"""The tokens that a loss looks at in each step."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from reglet import check
from reglet.attach.tokens import Grid, Places, average_onto, has_equal_windows, points, take, windows
from reglet.moves import moved

LEAST = 3  # two standardized values are always +-0.7, so their gradient vanishes
REMEMBERED = 24  # the last sizes, whose places are kept
Sampling = Literal["shared", "per_sample", "salient"]
Size = tuple[int, int, torch.device]  # tokens, rows of places, device


class Sampler(nn.Module):
    """Draws `rho` of the tokens (a ratio in (0, 1], or a count) anew at each step.  The draw depends only on (seed,
    step).

    All blocks with the same number of tokens look at the same places.  The global random numbers are not used.  Places
    are drawn on the host.  `advance` draws for all sizes seen before and sends them in one copy.  So a compiled forward
    has nothing random in it, and no device has to wait.

    least: the fewest tokens.
    """

    def __init__(self, rho: int | float, *, sampling: Sampling = "shared", seed: int = 0, least: int = LEAST) -> None:
        super().__init__()
        check.choice("sampling", sampling, ("shared", "per_sample", "salient"))
        check.whole(0, seed=seed)
        if isinstance(rho, bool) or not isinstance(rho, int | float):
            raise TypeError(f"rho is a ratio in (0, 1] or a count of at least {least}, got {rho!r}")
        if not (0 < rho <= 1 or (isinstance(rho, int) and rho >= least)):
            raise ValueError(f"rho is a ratio in (0, 1] or a count of at least {least}, got {rho}")
        self.rho, self.sampling, self.seed, self.least = rho, sampling, seed, least
        self.step = 0
        self._places: dict[Size, Places] = {}

    def get_extra_state(self) -> Tensor:  # a tensor, so that safetensors can hold it
        return torch.tensor(self.step, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)
        self._places.clear()

    @torch.compiler.disable
    def advance(self) -> None:
        self.step += 1
        self._places.update(self._draw(list(self._places)))

    def count(self, tokens: int) -> int:
        """How many of `tokens` are looked at: ceil(rho N), at least `least`."""
        if tokens < self.least:
            raise ValueError(f"statistics over tokens need at least {self.least} of them, got {tokens}")
        if self.rho > tokens:
            raise ValueError(f"rho={self.rho} tokens were asked for, and there are {tokens}")
        if self.rho > 1:
            return int(self.rho)
        return min(tokens, max(self.least, math.ceil(self.rho * tokens - 1e-9)))

    def choose(self, x: Float[Tensor, "b s c"], source: Grid, target: Grid) -> tuple[Places, Float[Tensor, "b n c"]]:
        """Places of the grid `target`, and the mean of x, which lives on the grid `source`, over their windows."""
        places = self.places(points(target), x)
        rows = _mean_at(x, source, target, places)
        if self.sampling != "salient":
            return places, rows
        best = rows.mean(-1).topk(self.count(points(target)), dim=1).indices
        return places.expand(len(x), -1).gather(1, best), take(rows, best)

    def places(self, tokens: int, x: Float[Tensor, "b ..."]) -> Places:
        """Of this step, in ascending order, on the device of x.  With "salient", three times as many to choose from."""
        size = (tokens, len(x) if self.sampling == "per_sample" else 1, x.device)
        if isinstance(x, FakeTensor):  # of torch.export or a counter: never kept
            return self._draw([size])[size]
        if size not in self._places:
            self._remember(size)
        return self._places[size]

    @torch.compiler.disable
    def _remember(self, size: Size) -> None:
        while len(self._places) >= REMEMBERED:
            del self._places[next(iter(self._places))]
        self._places |= self._draw([size])

    def _draw(self, sizes: Sequence[Size]) -> dict[Size, Places]:
        drawn: dict[Size, Places] = {}
        with torch.inference_mode(False):
            for device in {device for _, _, device in sizes}:
                here = [size for size in sizes if size[2] == device]
                rows = [self._order(tokens, count) for tokens, count, _ in here]
                drawn |= dict(zip(here, moved(rows, device), strict=True))
        return drawn

    def _order(self, tokens: int, rows: int) -> Places:
        """Points without replacement, on the host."""
        n = min(tokens, 3 * self.count(tokens)) if self.sampling == "salient" else self.count(tokens)
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.step) % 2**63)
        order = torch.rand(rows, tokens, generator=generator, device="cpu").argsort(1)
        return order[:, :n].sort(1).values


def _mean_at(x: Tensor, source: Grid, target: Grid, places: Places) -> Tensor:
    """Pools only the windows that are looked at, where that is possible."""
    if source == target:
        return take(x, places)
    if not has_equal_windows(source, target):
        return take(average_onto(x, source, target), places)
    inside = windows(source, target, like=x)[places].flatten(1)
    return take(x, inside).unflatten(1, (places.shape[1], -1)).mean(2)
