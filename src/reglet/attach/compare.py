"""A loss of two places, (n, t, d) and (n, t, d) -> scalar, on the outputs of two blocks."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.attach.features import On
from reglet.attach.link import Stop
from reglet.attach.sampling import Sampler
from reglet.attach.tap import PerBlock
from reglet.attach.tokens import Grid, Layout, average_onto, meeting_grids, tokens_at
from reglet.precision import at_least_float32
from reglet.seeded import seeded
from reglet.types import Scalar

Projector = Literal["auto", "none", "linear", "mlp"]
OfTwo = Callable[[Float[Tensor, "n t d"], Float[Tensor, "n t d"]], Scalar]


class Compare(nn.Module):
    """`loss` of the tokens of two outputs, place by place.  Made by `attach(..., to=)`.

    The loss is called with the side that learns, then the side it is compared with.  Both are (n, t, d), in float32 at
    least.  A loss on views (VICRegLoss, NTXentLoss, ...) gets the tokens as rows.

    on: "tokens" takes all places, "pooled" their mean (t = 1), "class" the first token of each sequence (t = 1).
    rho: with "tokens", the ratio or count of places.  They are drawn anew at every step, the same for all samples.
    layouts: of the side that learns, and of the other.
    projector: from the side that learns to the width of the other: "linear", "mlp" (two layers, GELU between), or
        "auto", which is linear if the widths differ and the loss needs equal ones.

    Grids of different sizes are averaged onto one that has the smaller number of points along each axis.

    >>> from reglet import Cosine
    >>> early, late = torch.randn(4, 9, 16), torch.randn(4, 9, 32)
    >>> compare = Compare(Cosine(), projector="linear")
    >>> head = compare.build(early, late, position=0)
    """

    reduction = "mean"

    def __init__(
        self,
        loss: OfTwo,
        *,
        on: On = "tokens",
        rho: int | float = 1.0,
        layouts: tuple[Layout, Layout] = (Layout(), Layout()),
        projector: Projector = "auto",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check.choice("on", on, get_args(On))
        check.choice("projector", projector, get_args(Projector))
        self.loss, self.on, self.layouts, self.projector, self.seed = loss, on, layouts, projector, seed
        self.sampler = Sampler(rho, least=1)
        self.on_rows = hasattr(loss, "least_views")  # a loss on views, (n, d) each
        self.any_width = getattr(loss, "any_width", False)

    def source(self, block: nn.Module) -> str | None:
        return None

    def build(self, x: Tensor, y: Tensor, *, position: int) -> nn.Module:
        """y: the side that learns.  x: the side it is compared with."""
        own, other = self.tokens(y, x)
        dtype = torch.float64 if y.dtype == torch.float64 else torch.float32
        with seeded((self.seed * 1_000_003 + 7919 * (position + 1)) % 2**63), torch.inference_mode(False):
            head = _Head(self, self._projector(own.shape[2], other.shape[2]))
        return head.to(device=y.device, dtype=dtype)

    def losses(self, heads: Sequence[Any], pairs: Sequence[Any]) -> list[Scalar]:
        return [head(pair) for head, pair in zip(heads, pairs, strict=True)]

    def advance(self) -> None:
        self.sampler.advance()

    def tokens(self, y: Tensor, x: Tensor) -> tuple[Float[Tensor, "n t c"], Float[Tensor, "n t d"]]:
        """The tokens of both sides, place by place."""
        if self.on == "class":
            own, other = (layout.first_token(z)[:, None] for layout, z in zip(self.layouts, (y, x), strict=True))
            return _paired(own, other)
        (own, a), (other, b) = (layout.tokens(z) for layout, z in zip(self.layouts, (y, x), strict=True))
        own, other = _paired(own, other)
        if self.on == "pooled":
            return own.mean(1, keepdim=True), other.mean(1, keepdim=True)
        self._require_known(a, b)
        a, b, target = meeting_grids(a, b)
        own, other = average_onto(own, a, target), average_onto(other, b, target)
        t = own.shape[1]
        if self.sampler.count(t) == t:
            return own, other
        places = self.sampler.places(t, own)
        return tokens_at(own, places), tokens_at(other, places)

    def _require_known(self, a: Grid, b: Grid) -> None:
        """Raise if sequences differ in length and the layouts do not say whether they are lines or squares."""
        if len(a) == len(b) == 1 and a != b and not all(layout.grid for layout in self.layouts):
            raise ValueError(
                f"{a[0]} tokens are compared with {b[0]}: say layout=Layout(grid='square') if they are patches of an "
                "image, Layout(grid='line') if they are a sequence; skip_tokens= leaves class tokens out"
            )

    def _projector(self, own: int, other: int) -> nn.Module:
        if own != other and self.projector == "none" and not self.any_width:
            raise ValueError(f"{own} features are compared with {other}, and projector='none'")
        if self.projector == "mlp":
            return nn.Sequential(nn.Linear(own, other), nn.GELU(), nn.Linear(other, other))
        wanted = self.projector == "linear" or (self.projector == "auto" and own != other and not self.any_width)
        return nn.Linear(own, other) if wanted else nn.Identity()


def of_two_places(
    loss: Any,
    name: str,
    *,
    on: On | None,
    rho: int | float,
    layout: Layout | tuple[Layout, Layout] | None,
    stop: Stop,
    projector: Projector,
) -> PerBlock:
    """The loss of `attach` on two places."""
    if getattr(loss, "least_views", 2) == 1:
        raise ValueError(f"{name} regularizes features of one place: leave to= out, and say on=")
    if isinstance(loss, PerBlock):  # SIM
        if stop is None:
            raise ValueError(f"{name} has a target that gets no gradient: say stop='to' or 'from'")
        if on is not None or rho != 1.0 or layout is not None or projector != "auto":
            raise ValueError(f"on=, rho=, layout= and projector= are not for {name}: it has its own")
        return loss
    both = layout if isinstance(layout, tuple) else (layout or Layout(), layout or Layout())
    layouts = (both[1], both[0]) if stop == "from" else both
    return Compare(loss, on=on or "tokens", rho=rho, layouts=layouts, projector=projector)


class _Head(nn.Module):
    """What `Compare` does at one pair of places."""

    compare: Compare

    def __init__(self, compare: Compare, projector: nn.Module) -> None:
        super().__init__()
        self.projector = projector
        object.__setattr__(self, "compare", compare)  # not a child: its loss is one of the attachment

    def before(self, x: Tensor) -> Tensor:
        return x

    def after(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return y, x

    def forward(self, pair: tuple[Tensor, Tensor]) -> Scalar:
        own, other = self.compare.tokens(*pair)
        own = self.projector(own.to(_parameter_dtype(self.projector, own)))
        widest = torch.promote_types(own.dtype, other.dtype)
        own, other = at_least_float32(own.to(widest)), at_least_float32(other.to(widest))
        if self.compare.on_rows:
            own, other = own.flatten(0, 1), other.flatten(0, 1)
        return self.compare.loss(own, other)


def _paired(own: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    if len(own) != len(other):
        raise ValueError(f"{len(own)} samples are compared with {len(other)}")
    return own, other


def _parameter_dtype(module: nn.Module, like: Tensor) -> torch.dtype:
    """The dtype of the head: float32 even if the network is bfloat16."""
    return next((p.dtype for p in module.parameters()), like.dtype)
