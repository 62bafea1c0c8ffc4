"""The head that SIM trains for one block."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.attach.hooks import saved_as_they_are
from reglet.attach.sampling import LEAST, Sampler
from reglet.attach.tokens import Grid, Layout, Places, average_onto, common_grids, points, tokens_at
from reglet.blocks.distances import DISTANCES, STANDARDIZED, Standardize
from reglet.blocks.stacked import kind, run_together
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar


class Reconstructor(nn.Module):
    """Projector H: C -> 2K -> K -> K with ReLUs, and predictor G: K -> K.  `dim=None`: no H, and G has two layers.

    pre: y is first mapped to the channels of x.  Otherwise, if they differ, x has its own first layer.
    Layers that only x uses never get a gradient.  They are buffers, so they are not trained and not counted.
    """

    def __init__(self, c_in: int, c_out: int, *, dim: int | None, pre: bool, shared: bool) -> None:
        super().__init__()
        self.x_stem: nn.Sequential | None = None  # None: x takes the last layer of `stem`
        self.x_trunk: nn.Sequential | None = None  # None: x takes `trunk`
        self.stem, self.trunk = nn.Sequential(), nn.Sequential()
        if dim is None:
            self.predictor: nn.Module = nn.Sequential(nn.Linear(c_out, c_in), nn.ReLU(), nn.Linear(c_in, c_in))
            return
        width = c_in if pre else c_out
        mapped = [nn.Linear(c_out, c_in, bias=False)] if pre and c_in != c_out else []
        self.stem, self.trunk = nn.Sequential(*mapped, nn.Linear(width, 2 * dim)), _trunk(dim)
        self.predictor = nn.Linear(dim, dim)
        if not shared or width != c_in:
            self.x_stem = _frozen(nn.Sequential(nn.Linear(c_in, 2 * dim)))
        if not shared:
            self.x_trunk = _frozen(_trunk(dim))

    @property
    def stem_of_x(self) -> list[nn.Module]:
        return list(self.stem)[-1:] if self.x_stem is None else list(self.x_stem)

    @property
    def trunk_of_x(self) -> list[nn.Module]:
        return list(self.trunk if self.x_trunk is None else self.x_trunk)


class Taken(NamedTuple):
    """Kept from the input of one call: x_S after the first layer, at these places of the output's grid."""

    hidden: Float[Tensor, "b n _"]
    places: Places
    grid: Grid


class Pair(NamedTuple):
    """Kept from one call: x_S and y_S after their first layer.  The rest is computed for several heads together."""

    x: Float[Tensor, "b n _"]
    y: Float[Tensor, "b n _"]


class SIMHead(nn.Module):
    """The loss of one block.  `before` looks at its input, `after` at its output, `forward` computes.  See `SIM`.

    >>> from reglet.blocks import SIM
    >>> head = SIM().head_of(32, 64)
    >>> pair = head.after(head.before(torch.randn(8, 49, 32)), torch.randn(8, 49, 64))
    >>> head(pair).shape
    torch.Size([])
    """

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
        self.grids: dict[Grid, Grid] = {}  # grid of an input -> grid of its output, for the sizes seen so far

    def before(self, x: Tensor) -> Taken | Tensor:
        """x_S after the first layer.  The block may overwrite x, and x need not be kept.

        For the first input of a new size, the grid of the output is not known yet.  Then all of x is kept.
        """
        grid = self.grids.get(self.layout.tokens(x)[1])
        return x.detach().clone() if grid is None else self._take(x, grid)

    def after(self, taken: Taken | Tensor, y: Tensor) -> Pair:
        """What the loss of this call needs."""
        tokens, grid = self.layout.tokens(y)
        if isinstance(taken, Tensor):
            self.grids[self.layout.tokens(taken)[1]] = grid
            taken = self._take(taken, grid)
        if taken.grid != grid:
            raise RuntimeError(f"inputs of one size gave outputs of grid {taken.grid}, and now {grid}")
        if tokens.shape[1] < LEAST:  # the tokens of the whole batch, as one sample
            tokens = tokens.flatten(0, 1)[None]
        with no_autocast(y), saved_as_they_are():
            rows = tokens_at(tokens, taken.places).to(taken.hidden.dtype)
            return Pair(taken.hidden, run_together([list(self.net.stem)], rows[None])[0])

    def forward(self, pair: Pair) -> Scalar:
        return losses_of_equal([self], [pair])[0]

    @property
    def end_of_x(self) -> Sequence[nn.Module]:
        """The layers of x after the first."""
        return [*self.net.trunk_of_x, *self._standardization]

    @property
    def end_of_y(self) -> Sequence[nn.Module]:
        """The layers of y after the first.  The standardization comes before or after the predictor."""
        predictor = list(self.net.predictor) if isinstance(self.net.predictor, nn.Sequential) else [self.net.predictor]
        t = self._standardization
        return [*self.net.trunk, *t, *predictor] if self.norm_before_predictor else [*self.net.trunk, *predictor, *t]

    @property
    def _standardization(self) -> Sequence[nn.Module]:
        return [self.standardize] if self.loss in STANDARDIZED else []

    @torch.no_grad()
    def _take(self, x: Tensor, grid: Grid) -> Taken:
        tokens, own = self.layout.tokens(x)
        source, target = common_grids(own, grid)
        if points(target) < LEAST:  # the tokens of the whole batch, as one sample
            tokens = average_onto(tokens, source, target).flatten(0, 1)[None]
            source = target = (tokens.shape[1],)
        places, rows = self.sampler.choose(tokens, source, target)
        with no_autocast(x):
            return Taken(run_together([self.net.stem_of_x], at_least_float32(rows)[None])[0], places, grid)


def losses(heads: Sequence[SIMHead], pairs: Sequence[Pair]) -> list[Scalar]:
    """The losses of one call of each head.  A head may occur several times."""
    groups: dict[object, list[int]] = {}
    for i, (head, pair) in enumerate(zip(heads, pairs, strict=True)):
        layers = head.loss, kind(head.end_of_x), kind(head.end_of_y)
        groups.setdefault((layers, pair.x.shape, pair.y.shape, pair.y.dtype, pair.y.device), []).append(i)
    found: dict[int, Scalar] = {}
    for group in groups.values():
        values = losses_of_equal([heads[i] for i in group], [pairs[i] for i in group])
        found.update(zip(group, values.unbind(), strict=True))
    return [found[i] for i in range(len(pairs))]


def losses_of_equal(heads: Sequence[SIMHead], pairs: Sequence[Pair]) -> Float[Tensor, " h"]:
    """The losses of one call of each head.  All heads are of one kind, with the same number of tokens."""
    with no_autocast(pairs[0].y):
        with torch.no_grad():
            target = run_together([head.end_of_x for head in heads], torch.stack([pair.x for pair in pairs]))
        prediction = run_together([head.end_of_y for head in heads], torch.stack([pair.y for pair in pairs]))
        return DISTANCES[heads[0].loss](prediction, target)


def _trunk(dim: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))


M = TypeVar("M", bound=nn.Module)


def _frozen(module: M) -> M:
    for part in list(module.modules()):
        for name, value in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, value.detach())
    return module
