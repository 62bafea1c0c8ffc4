"""Predicts the next embedding from the past ones.  LeWM: Maes, Le Lidec et al. 2026, arXiv:2603.19312.

    z_t  = projector(backbone(frame t))                                   every frame is embedded alone
    z^_t+1 = predictor(z_1 ... z_t, a_1 ... a_t)                          a transformer that sees no later frame

The predictor is that of the authors' code: 6 layers of 16 heads, dropout 0.1, actions by adaptive layer norm with gates
that start at 0 (AdaLN-zero, arXiv:2212.09748), and a projector of one hidden layer of 2048 with batch norm.  Three
things differ: positions are sines, so that sequences may have any length; heads are `width / heads` wide and not 64;
and the last layer is followed by a linear map instead of a second projector.
"""

from jaxtyping import Float
from torch import Tensor, nn

from reglet import check
from reglet.backbones.projector import projector as with_batch_norm
from reglet.backbones.vit import MLP, Attention
from reglet.method import Batch
from reglet.methods.positions import line_positions
from reglet.methods.predictive import HIDDEN, Forecast


class NextEmbedding(nn.Module):
    """Predicts the embedding of frame t + 1 of each sequence from those of frames 1 to t.  For `Predictive`.

    Sequences are videos (n, t, c, h, w), whose frames are images, or series (n, c, length), such as telemetry and
    log-mel.  Series are cut into frames of `frame` points; points at the end that fill no frame are left out.

    dim: width of the backbone's features.
    frame: points of a series in one frame; 0 for videos.
    actions: numbers for what was done after each frame, as in `Batch.actions` (n, t, a); 0: there are none.
    width, depth, heads, dropout: of the transformer.
    projector: from the backbone's features to the predicted embeddings.  By default it has one hidden layer of 2048
        with batch norm, and `width` outputs.  nn.Identity() predicts the features themselves.
    embedding: the output width of a projector of your own.
    together: regularize the frames of all moments as one batch.  LeWM has a batch for each moment.  That demands
        different embeddings even if many sequences have the same frame at a moment, such as silence at the end.

    >>> import torch
    >>> from reglet.backbones import ConvNet
    >>> net = ConvNet(widths=(8, 16), depth=1)
    >>> step = NextEmbedding(net.dim, actions=2, width=16, depth=1, heads=2)
    >>> made = step(net, Batch([torch.rand(4, 5, 3, 16, 16)], actions=torch.rand(4, 5, 2)))
    >>> made.prediction.shape, made.embeddings.shape
    (torch.Size([4, 4, 16]), torch.Size([5, 4, 16]))
    """

    def __init__(
        self,
        dim: int,
        *,
        frame: int = 0,
        actions: int = 0,
        width: int = 192,
        depth: int = 6,
        heads: int = 16,
        dropout: float = 0.1,
        projector: nn.Module | None = None,
        embedding: int | None = None,
        together: bool = False,
    ) -> None:
        super().__init__()
        check.whole(1, dim=dim, width=width, depth=depth, heads=heads)
        check.whole(0, frame=frame, actions=actions)
        check.probability(dropout=dropout)
        check.flag(together=together)
        if width % heads:
            raise ValueError(f"width={width} is not divisible by heads={heads}")
        if (embedding is None) != (projector is None):
            raise ValueError("a projector of your own comes with embedding=, the width of what it gives")
        self.frame, self.actions, self.width, self.together = frame, actions, width, together
        out = width if embedding is None else embedding
        self.projector = (
            with_batch_norm(dim, widths=(HIDDEN, out), activation=nn.GELU) if projector is None else projector
        )
        self.enter = nn.Linear(out, width)
        self.action = nn.Sequential(nn.Linear(actions, width), nn.SiLU(), nn.Linear(width, width)) if actions else None
        self.blocks = nn.ModuleList(
            CausalBlock(width, heads=heads, dropout=dropout, conditioned=bool(actions)) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, out)

    def forward(self, backbone: nn.Module, batch: Batch) -> Forecast:
        z = self.embed(backbone, batch.views[0])
        actions = self._checked(batch.actions, z)
        rows = z.flatten(0, 1)[None] if self.together else z.transpose(0, 1)
        return Forecast(self.predict(z[:, :-1], actions), z[:, 1:], rows)

    def embed(self, backbone: nn.Module, x: Tensor) -> Float[Tensor, "n t e"]:
        """The embedding of every frame."""
        frames = self.frames(x)
        features = backbone(frames.flatten(0, 1))
        if features.ndim != 2:
            raise ValueError(f"a backbone gives features (n, d) of each frame, got {tuple(features.shape)}")
        z: Tensor = self.projector(features)
        return z.unflatten(0, frames.shape[:2])

    def predict(
        self, z: Float[Tensor, "n t e"], actions: Float[Tensor, "n t a"] | None = None
    ) -> Float[Tensor, "n t e"]:
        """For each t, the embedding of frame t + 1, from z and actions up to t."""
        y = self.enter(z)
        y = y + line_positions(z.shape[1], width=self.width, device=y.device).to(y.dtype)
        given = None if self.action is None or actions is None else self.action(actions.to(self.leave.weight.dtype))
        for block in self.blocks:
            y = block(y, given)
        out: Tensor = self.leave(self.norm(y))
        return out

    def frames(self, x: Tensor) -> Float[Tensor, "n t c ..."]:
        """The frames of a video or of a series."""
        if x.ndim == 5 and not self.frame:
            found = x
        elif x.ndim == 3 and self.frame:
            count = x.shape[2] // self.frame
            found = x[:, :, : count * self.frame].unflatten(2, (count, self.frame)).transpose(1, 2)
        else:
            wanted = "series (n, c, length), because frame= is given" if self.frame else "videos (n, t, c, h, w)"
            raise ValueError(f"NextEmbedding takes {wanted}; got {tuple(x.shape)}. Series need frame=, videos do not")
        if found.shape[1] < 2:
            raise ValueError(
                f"NextEmbedding needs at least 2 frames, and {tuple(x.shape)} has "
                f"{found.shape[1]}" + (f" of {self.frame} points" if self.frame else "")
            )
        return found

    def _checked(self, actions: Tensor | None, z: Float[Tensor, "n t e"]) -> Tensor | None:
        if not self.actions:
            return None
        wanted = (*z.shape[:2], self.actions)
        if actions is None or tuple(actions.shape) != wanted:
            got = "none" if actions is None else str(tuple(actions.shape))
            raise ValueError(f"actions={self.actions}: a batch has actions of shape {wanted}, got {got}")
        return actions[:, :-1]  # no frame follows the last action


class CausalBlock(nn.Module):
    """A transformer layer that sees only the past.  Actions shift, scale and gate it; with them it does nothing at
    first."""

    def __init__(self, dim: int, *, heads: int, dropout: float, conditioned: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=not conditioned)
        self.attn = Attention(dim, heads=heads, causal=True)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=not conditioned)
        self.mlp = MLP(dim, hidden=4 * dim)
        self.drop = nn.Dropout(dropout)
        self.modulation: nn.Linear | None = None
        if conditioned:
            self.modulation = nn.Linear(dim, 6 * dim)
            nn.init.zeros_(self.modulation.weight)
            nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Float[Tensor, "n t d"], given: Float[Tensor, "n t d"] | None = None) -> Float[Tensor, "n t d"]:
        if self.modulation is None:
            x = x + self.drop(self.attn(self.norm1(x)))
            y: Tensor = x + self.drop(self.mlp(self.norm2(x)))
            return y
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(given).chunk(6, dim=-1)
        x = x + gate1 * self.drop(self.attn(self.norm1(x) * (1 + scale1) + shift1))
        return x + gate2 * self.drop(self.mlp(self.norm2(x) * (1 + scale2) + shift2))
