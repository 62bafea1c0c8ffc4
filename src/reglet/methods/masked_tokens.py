"""Predicts the tokens of hidden blocks from visible ones.  I-JEPA: Assran et al., CVPR 2023, arXiv:2301.08243.

    s_x = f(visible patches)                                     the encoder gets no others
    s_y = f(the whole image), at the places of a target block
    s^_y = g(s_x, a mask token with its position for each patch of the block)

I-JEPA takes s_y from a moving average of f, without a gradient.  Here f itself is used, and a regularizer of s_y
prevents collapse (`Predictive`).  g is I-JEPA's narrow ViT with fixed positions.  It sees one target block at a time.
The loss is the mean of the paper's squared distance; the authors' code has a smooth L1 between layer-normed features.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.backbones.projector import projector as with_batch_norm
from reglet.backbones.protocol import Grid
from reglet.backbones.vit import Block
from reglet.method import Batch
from reglet.methods.positions import grid_positions
from reglet.methods.predictive import HIDDEN, Forecast
from reglet.moves import moved
from reglet.types import WrongKindError
from reglet.views.masks import BlockMasks, MaskedDraw, Masks


@runtime_checkable
class SeesParts(Protocol):
    """A backbone that can take only some patches of an image: `reglet.backbones.ViT` with cls_layer=None, or a ViT in
    `reglet.backbones.Timm` with mean=True."""

    def tokens(self, x: Tensor) -> tuple[Tensor, Grid]: ...

    def visible(self, x: Tensor, places: Tensor) -> Tensor: ...


class MaskedTokens(nn.Module):
    """Predicts the tokens of `masks.targets` blocks from those of the context.  For `Predictive`.

    It takes the first view of a batch, with the masks in `Batch.draws` that `MaskedViews` makes.  Without draws it
    draws masks itself, from torch's global random numbers.

    dim: width of the backbone's tokens.
    width, depth, heads: of the predictor; the paper has 384 and 6 for a ViT-B.
    projector: from tokens to what is predicted.  By default it has one hidden layer of 2048 with batch norm, as in
        LeWM, and `dim` outputs.  nn.Identity() predicts the tokens themselves, as I-JEPA does; the layer norm of a ViT
        then leaves a regularizer less room.
    embedding: the output width of a projector of your own.

    >>> from reglet.backbones import vit_mini
    >>> vit = vit_mini(size=32, cls_layer=None)
    >>> step = MaskedTokens(vit.dim, masks=BlockMasks(vit.grid), width=96, depth=1, heads=3)
    >>> made = step(vit, Batch([torch.rand(4, 3, 32, 32)]))
    >>> made.prediction.shape[:2], made.embeddings.shape
    (torch.Size([4, 4]), torch.Size([64, 4, 192]))
    """

    def __init__(
        self,
        dim: int,
        *,
        masks: BlockMasks,
        width: int = 384,
        depth: int = 6,
        heads: int = 6,
        projector: nn.Module | None = None,
        embedding: int | None = None,
    ) -> None:
        super().__init__()
        check.whole(1, dim=dim, width=width, depth=depth, heads=heads)
        if width % heads or width % 4:
            raise ValueError(f"width is a multiple of heads={heads} and of 4, got {width}")
        if (embedding is None) != (projector is None):
            raise ValueError("a projector of your own comes with embedding=, the width of what it gives")
        self.masks, self.width = masks, width
        out = dim if embedding is None else embedding
        self.projector = (
            with_batch_norm(dim, widths=(HIDDEN, out), activation=nn.GELU) if projector is None else projector
        )
        self.enter = nn.Linear(dim, width)
        self.mask = nn.Parameter(torch.zeros(width))
        self.blocks = nn.Sequential(*(Block(width, heads=heads, hidden=4 * width, drop_path=0.0) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, out)
        nn.init.trunc_normal_(self.mask, std=0.02)

    def forward(self, backbone: nn.Module, batch: Batch) -> Forecast:
        if not isinstance(backbone, SeesParts):
            raise WrongKindError(
                f"MaskedTokens shows the encoder only some patches: it needs a ViT of reglet.backbones with "
                f"cls_layer=None, or Timm(..., mean=True) of a ViT; got {type(backbone).__name__}"
            )
        x, masks = batch.views[0], self._masks(batch, len(batch))
        masks = Masks(*moved([masks.context, masks.targets], x.device))
        tokens, grid = backbone.tokens(x)
        if tuple(grid) != tuple(self.masks.grid):
            raise ValueError(f"masks are of a grid of {self.masks.grid} patches, the images have {tuple(grid)}")
        z: Tensor = self.projector(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])
        blocks, size = masks.targets.shape[1:]
        target = z.gather(1, masks.targets.flatten(1)[:, :, None].expand(-1, -1, z.shape[2]))
        prediction = self.predict(backbone.visible(x, masks.context), masks)
        return Forecast(prediction, target.unflatten(1, (blocks, size)), z.transpose(0, 1))

    def predict(self, context: Float[Tensor, "n k d"], masks: Masks) -> Float[Tensor, "n m s e"]:
        """The hidden tokens, block by block."""
        n, blocks, size = masks.targets.shape
        positions = grid_positions(self.masks.grid, width=self.width, device=context.device).to(context.dtype)
        seen = self.enter(context) + positions[masks.context]
        hidden = self.mask + positions[masks.targets.flatten(0, 1)]
        y = torch.cat([seen.repeat_interleave(blocks, 0), hidden.to(seen.dtype)], dim=1)
        y = self.norm(self.blocks(y)[:, -size:])
        out: Tensor = self.leave(y)
        return out.unflatten(0, (n, blocks))

    def _masks(self, batch: Batch, n: int) -> Masks:
        if batch.draws is None:
            return self.masks.draw(n)
        draw = batch.draws[0]
        if not isinstance(draw, MaskedDraw):
            raise ValueError(f"masks are drawn by MaskedViews(policy, masks); these views have a {type(draw).__name__}")
        return draw.masks
