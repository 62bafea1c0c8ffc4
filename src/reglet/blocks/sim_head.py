"""What SIM trains for one block, and how it looks at one call of that block."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from reglet.blocks import chain
from reglet.blocks.distances import DISTANCES, STANDARDIZED, Standardize
from reglet.blocks.fused import distances, pick
from reglet.blocks.sampling import LEAST, Sampler
from reglet.blocks.tokens import Grid, Layout, common_grids, onto, points
from reglet.blocks.tokens import pick as plain_pick
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


class Taken(NamedTuple):
    """From the input of one call: x_S, for the picked places of the output's grid."""

    rows: Float[Tensor, "b n _"]
    places: Int[Tensor, "b_or_1 n"]
    grid: Grid


class Pair(NamedTuple):
    """From one call: x_S, and y_S with its gradient."""

    x: Float[Tensor, "b n _"]
    y: Float[Tensor, "b n _"]


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
        """The picked tokens, copied: the block may overwrite x, and x itself need not live on.

        At the first input of a new size it is not known yet which places the output will have: then all of x.
        """
        grid = self.grids.get(self.layout.tokens(x)[1])
        return x.detach().clone() if grid is None else self._take(x, grid)

    def after(self, taken: Taken | Tensor, y: Tensor) -> Pair | Scalar:
        """What the loss of this call takes; or, of a map, whose tokens are many, that loss itself.

        Not in a compiled forward, which cannot have gradients inside.
        """
        grid = self.layout.tokens(y)[1]
        if isinstance(taken, Tensor):
            self.grids[self.layout.tokens(taken)[1]] = grid
            taken = self._take(taken, grid)
        if taken.grid != grid:
            raise RuntimeError(f"inputs of one size gave outputs of grid {taken.grid}, and now {grid}")
        if torch.compiler.is_compiling():
            return Pair(taken.rows, plain_pick(self._tokens(y), taken.places).to(taken.rows.dtype))
        with torch.autocast(y.device.type, enabled=False):
            pair = Pair(taken.rows, pick(y, self._tokens, taken.places, taken.rows.dtype))
            return pair if len(grid) < 2 else self(pair)

    def forward(self, pair: Pair | Scalar) -> Scalar:
        if isinstance(pair, Tensor):
            return pair
        if not torch.compiler.is_compiling():
            return distances_of([self], [pair])[0]
        with torch.no_grad():
            target = nn.Sequential(*self.x_layers)(pair.x)
        return DISTANCES[self.loss](nn.Sequential(*self.layers)(pair.y), target)

    @property
    def x_layers(self) -> Sequence[nn.Module]:
        """What x_S goes through."""
        return [*self.net.x_stem, *self.net.x_trunk, *self._standardization]

    @property
    def layers(self) -> Sequence[nn.Module]:
        """What y_S goes through: stem, trunk, predictor, and before or after the latter the standardization."""
        predictor = _unrolled(self.net.predictor)
        t = self._standardization
        end = [*t, *predictor] if self.norm_before_predictor else [*predictor, *t]
        return [*self.net.stem, *self.net.trunk, *end]

    @property
    def _standardization(self) -> Sequence[nn.Module]:
        return [self.standardize] if self.loss in STANDARDIZED else []

    def _tokens(self, y: Tensor) -> Float[Tensor, "b t c"]:
        """Those of an output; where a sample has too few, the tokens of the whole batch, as one sample."""
        tokens, _ = self.layout.tokens(y)
        return tokens if tokens.shape[1] >= LEAST else tokens.flatten(0, 1)[None]

    @torch.no_grad()
    def _take(self, x: Tensor, grid: Grid) -> Taken:
        tokens, own = self.layout.tokens(x)
        source, target = common_grids(own, grid)
        if points(target) < LEAST:  # the tokens of the whole batch, as one sample
            tokens = onto(tokens, source, target).flatten(0, 1)[None]
            source = target = (tokens.shape[1],)
        index, rows = self.sampler.choose(tokens, source, target)
        return Taken(rows.to(torch.float64 if rows.dtype == torch.float64 else torch.float32), index, grid)


def distances_of(heads: Sequence[SIMHead], pairs: Sequence[Pair]) -> Float[Tensor, " h"]:
    """The losses of one call of each of some heads that are alike, on as many tokens."""
    targets = chain.output(list(zip(*(head.x_layers for head in heads), strict=True)), [pair.x for pair in pairs])
    chains = [head.layers for head in heads]
    return distances([p.y for p in pairs], targets, chains, DISTANCES[heads[0].loss], stem=len(heads[0].net.stem))


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
