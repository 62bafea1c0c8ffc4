"""What SIM trains for one block, and how it looks at one call of that block."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from reglet.blocks.distances import DISTANCES, STANDARDIZED, Standardize
from reglet.blocks.fused import at_once
from reglet.blocks.sampling import LEAST, Sampler
from reglet.blocks.tokens import Grid, Layout, common_grids, onto, pick, points
from reglet.types import Scalar


class Reconstructor(nn.Module):
    """Projector H: C -> 2K -> K -> K with ReLUs, and predictor G: K -> K.  `dim=None`: no H, and G has two layers.

    pre: y is first mapped to the channels of x.  Otherwise, where they differ, x has a first layer of its own.
    What only x uses never gets a gradient, so it is kept as buffers: not trained, not counted.
    """

    def __init__(self, c_in: int, c_out: int, *, dim: int | None, pre: bool, shared: bool) -> None:
        super().__init__()
        if dim is None:
            self.stem, self.x_stem = nn.Sequential(), nn.Sequential()
            self.trunk, self.x_trunk = nn.Sequential(), nn.Sequential()
            self.predictor: nn.Module = nn.Sequential(nn.Linear(c_out, c_in), nn.ReLU(), nn.Linear(c_in, c_in))
            return
        width = c_in if pre else c_out
        mapped = [nn.Linear(c_out, c_in, bias=False)] if pre and c_in != c_out else []
        first = nn.Linear(width, 2 * dim)
        self.stem, self.trunk = nn.Sequential(*mapped, first), _trunk(dim)
        self.predictor = nn.Linear(dim, dim)
        self.x_stem = nn.Sequential(first if shared and width == c_in else _frozen(nn.Linear(c_in, 2 * dim)))
        self.x_trunk = self.trunk if shared else _frozen(_trunk(dim))

    def target(self, x: Float[Tensor, "b n c"]) -> Float[Tensor, "b n k"]:
        h: Tensor = self.x_trunk(self.x_stem(x))
        return h


class Taken(NamedTuple):
    """From the input of one call: h_x at the picked places of the output's grid."""

    target: Float[Tensor, "b n k"]
    places: Int[Tensor, "b_or_1 n"]
    grid: Grid


class Pair(NamedTuple):
    """From one call: h_x, and y_S with its gradient."""

    target: Float[Tensor, "b n k"]
    tokens: Float[Tensor, "b n c"]


class SIMHead(nn.Module):
    """The loss of one block.  `before` looks at its input, `after` at its output, `forward` computes.  See `SIM`."""

    def __init__(
        self,
        net: Reconstructor,
        *,
        sampler: Sampler,
        layout: Layout,
        loss: str,
        norm_before_predictor: bool,
        eps: float,
    ) -> None:
        super().__init__()
        self.net, self.sampler, self.layout = net, sampler, layout
        self.loss, self.norm_before_predictor = loss, norm_before_predictor
        self.standardize = Standardize(eps=eps) if loss in STANDARDIZED else nn.Identity()
        self.grids: dict[Grid, Grid] = {}  # grid of an input -> grid of its output, as seen so far

    def before(self, x: Tensor) -> Taken | Tensor:
        """The target.  Made at once, since the block may overwrite x, and small, since x itself need not live on.

        At the first input of a new size it is not known yet which places the output will have: then all of x.
        """
        grid = self.grids.get(self.layout.tokens(x)[1])
        return x.detach().clone() if grid is None else self._take(x, grid)

    def after(self, taken: Taken | Tensor, y: Tensor) -> Pair | Scalar:
        """The loss of this call; in a compiled forward, which cannot have gradients inside, what it takes for it."""
        tokens, grid = self.layout.tokens(y)
        if isinstance(taken, Tensor):
            self.grids[self.layout.tokens(taken)[1]] = grid
            taken = self._take(taken, grid)
        if taken.grid != grid:
            raise RuntimeError(f"inputs of one size gave outputs of grid {taken.grid}, and now {grid}")
        if tokens.shape[1] < LEAST:
            tokens = tokens.flatten(0, 1)[None]
        if torch.compiler.is_compiling():
            return Pair(taken.target, pick(tokens, taken.places))
        with torch.autocast(y.device.type, enabled=False):
            distance = partial(DISTANCES[self.loss], v=self.standardize(taken.target))
            return at_once(
                tokens, taken.places, self.layers, distance, stem=len(self.net.stem), dtype=taken.target.dtype
            )

    def forward(self, pair: Pair | Scalar) -> Scalar:
        if isinstance(pair, Tensor):
            return pair
        prediction = nn.Sequential(*self.layers)(pair.tokens.to(pair.target.dtype))
        return DISTANCES[self.loss](prediction, self.standardize(pair.target))

    @property
    def layers(self) -> Sequence[nn.Module]:
        """What y_S goes through: stem, trunk, predictor, and before or after the latter the standardization."""
        predictor = _unrolled(self.net.predictor)
        t = _unrolled(self.standardize) if self.loss in STANDARDIZED else []
        end = [*t, *predictor] if self.norm_before_predictor else [*predictor, *t]
        return [*self.net.stem, *self.net.trunk, *end]

    @torch.no_grad()
    def _take(self, x: Tensor, grid: Grid) -> Taken:
        tokens, own = self.layout.tokens(x)
        source, target = common_grids(own, grid)
        if points(target) < LEAST:  # the tokens of the whole batch, as one sample
            tokens = onto(tokens, source, target).flatten(0, 1)[None]
            source = target = (tokens.shape[1],)
        index, rows = self.sampler.choose(tokens, source, target)
        dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
        with torch.autocast(rows.device.type, enabled=False):
            return Taken(self.net.target(rows.to(dtype)), index, grid)


def _trunk(dim: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))


def _unrolled(module: nn.Module) -> list[nn.Module]:
    return list(module) if isinstance(module, nn.Sequential) else [module]


M = TypeVar("M", bound=nn.Module)


def _frozen(module: M) -> M:
    for part in list(module.modules()):
        for name, value in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, value.detach())
    return module
