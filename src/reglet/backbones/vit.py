"""Vision transformers.  Dosovitskiy et al., ICLR 2021, arXiv:2010.11929.

Parameters have timm's names (`patch_embed.proj`, `blocks.0.attn.qkv`, `norm`, `pos_embed`, `cls_token`).  So
state_dicts fit timm's models of the same shape, with [CLS] at the input or without it.  A late [CLS] (from SER, soft
equivariance) is not in timm: patch tokens have position embeddings and pass the first blocks alone, so that these learn
a map.
"""

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from reglet.backbones.protocol import Grid
from reglet.types import WrongKindError

EPS = 1e-6  # timm's, for LayerNorm


class PatchEmbed(nn.Module):
    def __init__(self, dim: int, *, patch: int, in_channels: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, patch, stride=patch)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d h2 w2"]:
        y: Tensor = self.proj(x)
        return y


class Attention(nn.Module):
    """causal: a token sees only itself and the tokens before it."""

    def __init__(self, dim: int, *, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        y: Tensor = self.proj(seen.transpose(1, 2).reshape(n, t, d))
        return y


class MLP(nn.Module):
    def __init__(self, dim: int, *, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        y: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return y


class DropPath(nn.Module):
    """In training, each sample of a residual branch is zero with probability `rate` and scaled up otherwise."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def extra_repr(self) -> str:
        return f"{self.rate:.3f}"

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        if self.rate == 0 or not self.training:
            return x
        keep = 1 - self.rate
        return x * x.new_empty(len(x), 1, 1).bernoulli_(keep).div_(keep)


class Block(nn.Module):
    def __init__(self, dim: int, *, heads: int, hidden: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.attn = Attention(dim, heads=heads)
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.mlp = MLP(dim, hidden=hidden)
        self.drop_path2 = DropPath(drop_path)

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        y: Tensor = x + self.drop_path2(self.mlp(self.norm2(x)))
        return y


class ViT(nn.Module):
    """Images -> features (n, dim): [CLS] of the last layer, or the mean of the patch tokens if there is no [CLS].

    size: image size of the position embeddings, square or (height, width).  For other sizes, which must be multiples of
        the patch, they are interpolated (bicubic, antialiased, as in timm).
    patch: None takes 16 from 128 px on, 8 from 64 px on, and 4 below.
    cls_layer: the block before which [CLS] joins.  0: at the input, with its own position embedding, as in timm.  Later
        blocks: without one.  None: there is no [CLS].
    drop_path: rate of the last block.  It rises from 0 at the first block in equal steps.

    >>> vit = vit_mini(size=32)
    >>> vit(torch.zeros(2, 3, 32, 32)).shape, vit.tokens(torch.zeros(2, 3, 32, 48))[1]
    (torch.Size([2, 192]), (8, 12))
    """

    def __init__(
        self,
        *,
        dim: int,
        depth: int,
        heads: int,
        size: int | Grid = 224,
        patch: int | None = None,
        cls_layer: int | None = 0,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.0,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        patch = default_patch(min(height, width)) if patch is None else patch
        if height % patch or width % patch:
            raise ValueError(f"an image of {height} x {width} is not made of patches of {patch} x {patch}")
        if dim % heads:
            raise ValueError(f"dim={dim} is not divisible by heads={heads}")
        if cls_layer is not None and not 0 <= cls_layer < depth:
            raise ValueError(f"cls_layer is None or one of the blocks 0 to {depth - 1}, got {cls_layer}")
        if not 0 <= drop_path < 1:
            raise ValueError(f"drop_path is a rate in [0, 1), got {drop_path}")
        self.dim, self.patch, self.cls_layer = dim, patch, cls_layer
        self.grid: Grid = (height // patch, width // patch)
        self.prefix = 1 if cls_layer == 0 else 0  # position embeddings before those of patches
        self.patch_embed = PatchEmbed(dim, patch=patch, in_channels=in_channels)
        self.cls_token = None if cls_layer is None else nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, self.prefix + self.grid[0] * self.grid[1], dim))
        rates = [drop_path * i / max(1, depth - 1) for i in range(depth)]
        hidden = int(dim * mlp_ratio)
        self.blocks = nn.Sequential(*(Block(dim, heads=heads, hidden=hidden, drop_path=rate) for rate in rates))
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self._initialize()

    def _initialize(self) -> None:
        """As timm: linear maps and positions are normal with std 0.02, patches have torch's default."""
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.zeros_(cast(Tensor, m.bias))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        if self.cls_token is not None:
            nn.init.normal_(self.cls_token, std=1e-6)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        y = self._encode(x)[0]
        return y.mean(1) if self.cls_token is None else y[:, 0]

    def tokens(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Grid]:
        """The patch tokens of the last layer after its norm, without [CLS], and their grid."""
        y, grid = self._encode(x)
        return (y if self.cls_token is None else y[:, 1:]), grid

    def visible(self, x: Float[Tensor, "n c h w"], places: Int64[Tensor, "n k"]) -> Float[Tensor, "n k d"]:
        """The tokens of an image if only the patches at `places`, counted row by row, are seen."""
        if self.cls_token is not None:
            raise WrongKindError("masked images need a ViT without [CLS]: make it with cls_layer=None")
        y, _ = self._patches(x)
        y = y.gather(1, places[:, :, None].expand(-1, -1, y.shape[2]))
        for block in self.blocks:
            y = block(y)
        seen: Tensor = self.norm(y)
        return seen

    def _encode(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Grid]:
        y, grid = self._patches(x)
        own = self.pos_embed[:, : self.prefix]
        for i, block in enumerate(self.blocks):
            if i == self.cls_layer:
                cls = cast(Tensor, self.cls_token) + own if self.prefix else cast(Tensor, self.cls_token)
                y = torch.cat([cls.expand(y.shape[0], -1, -1), y], dim=1)  # len(y) would be a constant in torch.export
            y = block(y)
        return self.norm(y), grid

    def _patches(self, x: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n t d"], Grid]:
        """The patches with their positions, as the first block sees them."""
        if x.shape[2] % self.patch or x.shape[3] % self.patch:
            raise ValueError(
                f"height and width must be multiples of the patch, {self.patch}; got {x.shape[2]} x {x.shape[3]}"
            )
        y: Tensor = self.patch_embed(x)
        grid: Grid = (y.shape[2], y.shape[3])
        positions = interpolated(self.pos_embed, self.grid, grid, prefix=self.prefix)[:, self.prefix :]
        return y.flatten(2).transpose(1, 2) + positions, grid


def interpolated(
    positions: Float[Tensor, "1 t d"], old: Grid, new: Grid, *, prefix: int = 0
) -> Float[Tensor, "1 t2 d"]:
    """Position embeddings, resized from the grid `old` to `new`.  The first `prefix`, which have no patch, stay."""
    if old == new:
        return positions
    own, patches = positions[:, :prefix], positions[:, prefix:]
    plane = patches.reshape(1, *old, -1).permute(0, 3, 1, 2).float()
    plane = F.interpolate(plane, size=new, mode="bicubic", antialias=True).to(positions.dtype)
    return torch.cat([own, plane.flatten(2).transpose(1, 2)], dim=1)


def default_patch(size: int) -> int:
    return 16 if size >= 128 else 8 if size >= 64 else 4


def vit_mini(
    *,
    size: int | Grid = 32,
    patch: int | None = None,
    cls_layer: int | None = 0,
    drop_path: float = 0.0,
    in_channels: int = 3,
) -> ViT:
    """192 wide, 6 deep: 2.7 million parameters, for experiments.

    >>> tokens, grid = vit_mini(size=32).tokens(torch.zeros(1, 3, 32, 32))
    >>> tokens.shape, grid
    (torch.Size([1, 64, 192]), (8, 8))
    """
    return ViT(
        dim=192,
        depth=6,
        heads=3,
        size=size,
        patch=patch,
        cls_layer=cls_layer,
        drop_path=drop_path,
        in_channels=in_channels,
    )


def vit_tiny(
    *,
    size: int | Grid = 224,
    patch: int | None = None,
    cls_layer: int | None = 0,
    drop_path: float = 0.0,
    in_channels: int = 3,
) -> ViT:
    """192 wide, 12 deep: 5.5 million parameters.

    >>> vit_tiny(size=32)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 192])
    """
    return ViT(
        dim=192,
        depth=12,
        heads=3,
        size=size,
        patch=patch,
        cls_layer=cls_layer,
        drop_path=drop_path,
        in_channels=in_channels,
    )


def vit_small(
    *,
    size: int | Grid = 224,
    patch: int | None = None,
    cls_layer: int | None = 0,
    drop_path: float = 0.0,
    in_channels: int = 3,
) -> ViT:
    """384 wide, 12 deep: 21.7 million parameters.

    >>> vit_small(size=224, patch=16).dim
    384
    """
    return ViT(
        dim=384,
        depth=12,
        heads=6,
        size=size,
        patch=patch,
        cls_layer=cls_layer,
        drop_path=drop_path,
        in_channels=in_channels,
    )


def vit_base(
    *,
    size: int | Grid = 224,
    patch: int | None = None,
    cls_layer: int | None = 0,
    drop_path: float = 0.0,
    in_channels: int = 3,
) -> ViT:
    """768 wide, 12 deep: 85.8 million parameters.

    >>> vit_base(size=224).dim
    768
    """
    return ViT(
        dim=768,
        depth=12,
        heads=12,
        size=size,
        patch=patch,
        cls_layer=cls_layer,
        drop_path=drop_path,
        in_channels=in_channels,
    )
