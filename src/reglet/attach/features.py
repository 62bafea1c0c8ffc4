"""A regularizer of features, (n, d) -> scalar, on the outputs of blocks."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.attach.hooks import saved_as_they_are
from reglet.attach.sampling import Sampler
from reglet.attach.tap import PerBlock
from reglet.attach.tokens import Layout, tokens_at
from reglet.types import BlockLoss, Scalar

On = Literal["tokens", "pooled", "class"]
Regularizer = Callable[[Float[Tensor, "n d"]], Scalar]


class OnFeatures(nn.Module):
    """`loss` of the features of each block's output.  Made by `attach(..., on=)`.

    on: "tokens" takes the places of all samples as rows, "pooled" the mean over the places of each sample, "class" the
        first token of each sequence.
    rho: with "tokens", the ratio or count of places.  They are drawn anew at every step, the same for all samples.
    layout: which axis of an output holds the channels, and how many tokens at the start are no places.

    For the batch over all ranks, give the loss `gather=True`.

    >>> import torch
    >>> from reglet.losses import SIGReg
    >>> OnFeatures(SIGReg(), on="pooled").rows(torch.randn(4, 8, 5, 5)).shape
    torch.Size([4, 8])
    """

    reduction = "mean"
    output_only = True

    def __init__(self, loss: Regularizer, *, on: On, rho: int | float = 1.0, layout: Layout | None = None) -> None:
        super().__init__()
        check.choice("on", on, get_args(On))
        self.loss, self.on, self.layout = loss, on, Layout() if layout is None else layout
        self.sampler = Sampler(rho, least=1)

    def source(self, block: nn.Module) -> str | None:
        return None

    def build(self, x: Tensor | None, y: Tensor, *, position: int) -> nn.Module:
        return _Reader(self)

    def losses(self, heads: Sequence[Any], pairs: Sequence[Float[Tensor, "_ _"]]) -> list[Scalar]:
        return [self.loss(rows) for rows in pairs]

    def advance(self) -> None:
        self.sampler.advance()

    def rows(self, y: Tensor) -> Float[Tensor, "n d"]:
        """The features of one output."""
        if self.on == "class":
            return self.layout.first_token(y)
        tokens, _ = self.layout.tokens(y)
        if self.on == "pooled":
            return tokens.mean(1)
        if self.sampler.count(tokens.shape[1]) == tokens.shape[1]:
            return tokens.flatten(0, 1)
        return tokens_at(tokens, self.sampler.places(tokens.shape[1], tokens)).flatten(0, 1)


def of_one_place(
    loss: Any, name: str, *, on: On | None, rho: int | float, layout: Layout | tuple[Layout, Layout] | None
) -> BlockLoss | PerBlock:
    """The loss of `attach` on one place: of features, or of a block's input and output."""
    if isinstance(layout, tuple):
        raise ValueError("two layouts are for two places, and this loss is on one: give one layout")
    if on is not None:
        return OnFeatures(loss, on=on, rho=rho, layout=layout)
    if getattr(loss, "least_views", 2) == 1:  # else it would take a block's input and output as two views
        raise ValueError(f"{name} regularizes features of one place: say on='tokens', 'pooled' or 'class'")
    if rho != 1.0 or layout is not None:
        raise ValueError("rho= and layout= go with on=; a block loss has its own")
    found: BlockLoss | PerBlock = loss
    return found


class _Reader(nn.Module):
    """What `OnFeatures` does at one block."""

    features: OnFeatures

    def __init__(self, features: OnFeatures) -> None:
        super().__init__()
        object.__setattr__(self, "features", features)  # not a child: its loss is one of the attachment

    def after(self, _taken: None, y: Tensor) -> Float[Tensor, "n d"]:
        with saved_as_they_are():
            rows: Tensor = self.features.rows(y).clone()  # the network may overwrite its output
        return rows
