"""rhoSIM: the input of a block should be recoverable from its output (Cai et al., Self Identity Mapping)."""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from reglet import check
from reglet.attach.sampling import Sampler, Sampling
from reglet.attach.tokens import Layout
from reglet.blocks.sim_head import Pair, Reconstructor, SIMHead, losses
from reglet.seeded import seeded
from reglet.types import Scalar

Loss = Literal["norm_l2", "norm_mse", "mse", "l1", "smooth_l1", "cosine", "kl", "wasserstein"]
Match = Literal["stem", "pre", "shortcut", "skip"]
Reduction = Literal["mean", "sum"]
LEAST_WIDTH = 16


class SIM(nn.Module):
    """rhoSIM for the blocks of a network.  Give it to `attach`, or call `SIM()(x, y)` for the loss of one block.

    A block's input x and output y have N tokens.  The same n = rho N of both are picked and projected: h_x = H(x_S) and
    h_y = H(y_S) with H: C -> 2K -> K -> K (eq. 2).  t(.) standardizes each feature over the n tokens (eq. 3), and G is
    a linear predictor.  The loss of a block is

        mean over tokens of || t(G(h_y)) - sg t(h_x) ||_2        lambda = 5e-3, rho = 0.2

    This is the authors' code.  The paper (eq. 4) prints MSE(sg t(h_x), G(t(h_y))), summed over blocks:
    `loss="norm_mse", norm_before_predictor=True, reduction="sum"`.  `SIM.plain()` is eq. 1, without sampling and
    projection.

    rho: ratio of tokens, or a count of at least 3.  At least 3 tokens are picked.  Blocks with fewer tokens (vectors)
        take the tokens of the whole batch as one sample.
    dim: K; None leaves the projection out.  "auto" is int(sqrt(C)) of the output's channels C, and at least 16.  "sqrt"
        is the authors', without a least width: at 16 channels it is 4, and all ReLUs of a head can be dead at once.
    loss: norm_l2 (code), norm_mse (paper) and l1 use standardized features, the others raw ones.
    sampling: "shared" takes the same places in every sample, "per_sample" other places in each.  "salient" draws three
        times as many and keeps those where the mean of x over channels is largest.
    match: what to do if input and output differ in channels.  "stem" gives x its own frozen random first layer; "pre"
        maps y to the channels of x first, as the code does; "shortcut" replaces x by the output of the block's child
        `shortcut`; "skip" leaves such blocks out.
    shared: one projection for x and y, as in the code.  Otherwise x has its own, which stays random, because no
        gradient reaches it.
    channel_dim, batch_dim, skip_tokens: see `Layout`.
    seed: of the heads' weights and of the places.  The global random numbers are not used.

    eps: t divides by sqrt(var + eps^2).  The authors' code divides by std + 1e-6, whose gradient is infinite for a
        constant feature (a dead ReLU).  Ours is at most 1 / eps.  With 1e-6 one dead feature would dominate the
        gradient, so the default is 1e-4.  It changes a feature of std 0.01 by 5e-5 of its value; the code's 1e-6
        changes it by 1e-4.

    An output token of a strided block is compared with the mean of x over its window.

    >>> x, y = torch.randn(2, 8, 49, 32)  # what went into a block and what came out: 8 samples of 49 tokens
    >>> SIM()(x, y).shape
    torch.Size([])
    """

    def __init__(
        self,
        *,
        rho: int | float = 0.2,
        dim: int | Literal["auto", "sqrt"] | None = "auto",
        loss: Loss = "norm_l2",
        reduction: Reduction = "mean",
        sampling: Sampling = "shared",
        match: Match = "stem",
        shortcut: str = "downsample",
        shared: bool = True,
        norm_before_predictor: bool = False,
        channel_dim: int | None = None,
        batch_dim: int = 0,
        skip_tokens: int = 0,
        eps: float = 1e-4,
        seed: int = 0,
    ) -> None:
        super().__init__()
        choices: dict[str, tuple[object, Any]] = {
            "loss": (loss, Loss),
            "reduction": (reduction, Reduction),
            "match": (match, Match),
        }
        for name, (given, known) in choices.items():
            check.choice(name, given, get_args(known))
        width = isinstance(dim, int) and not isinstance(dim, bool) and dim >= 1
        if not (width or dim is None or dim in ("auto", "sqrt")):
            raise ValueError(f"dim is a width, 'auto', 'sqrt' or None, got {dim!r}")
        check.positive(eps=eps)
        check.flag(shared=shared, norm_before_predictor=norm_before_predictor)
        self.sampler = Sampler(rho, sampling=sampling, seed=seed)
        self.layout = Layout(channel_dim=channel_dim, batch_dim=batch_dim, skip_tokens=skip_tokens)
        self.dim, self.loss, self.reduction = dim, loss, reduction
        self.match, self.shortcut, self.shared = match, shortcut, shared
        self.norm_before_predictor, self.eps, self.seed = norm_before_predictor, eps, seed
        self.head: SIMHead | None = None

    @classmethod
    def plain(cls, *, channel_dim: int | None = None, batch_dim: int = 0, seed: int = 0) -> "SIM":
        """SIM without sampling and projection (eq. 1): sum over blocks of MSE(sg(x), G(y)).

        The paper does not say what G is.  Here it has two layers with a ReLU, for each token.
        """
        return cls(
            rho=1.0, dim=None, loss="mse", reduction="sum", channel_dim=channel_dim, batch_dim=batch_dim, seed=seed
        )

    def extra_repr(self) -> str:
        return (
            f"rho={self.sampler.rho}, dim={self.dim}, loss={self.loss}, match={self.match}, reduction={self.reduction}"
        )

    def source(self, block: nn.Module) -> str | None:
        """The child whose output replaces the block's input: with match="shortcut" the shortcut, if there is one."""
        has = isinstance(getattr(block, self.shortcut, None), nn.Module)
        return self.shortcut if self.match == "shortcut" and has else None

    def build(self, x: Tensor, y: Tensor, *, position: int) -> SIMHead | None:
        """The head of a block with such an input and output; None if the block is left out."""
        x_tokens, y_tokens = self.layout.tokens(x)[0], self.layout.tokens(y)[0]
        if len(x_tokens) != len(y_tokens):
            raise ValueError(f"input {tuple(x.shape)} and output {tuple(y.shape)} differ in batch size")
        c_in, c_out = x_tokens.shape[2], y_tokens.shape[2]
        if c_in != c_out and self.match == "skip":
            return None
        with seeded((self.seed * 1_000_003 + 7919 * (position + 1)) % 2**63), torch.inference_mode(False):
            head = self.head_of(c_in, c_out)
        return head.to(device=y.device, dtype=torch.float64 if y.dtype == torch.float64 else torch.float32)

    def head_of(self, c_in: int, c_out: int) -> SIMHead:
        """The head of a block with these channels, initialized from the global random numbers."""
        if c_in != c_out and self.match == "shortcut":
            raise ValueError(
                f"{c_in} channels become {c_out}, and there is no child {self.shortcut!r} to replace the input"
            )
        width = c_in if self.match == "pre" else c_out
        net = Reconstructor(c_in, c_out, dim=self.width(width), pre=self.match == "pre", shared=self.shared)
        return SIMHead(
            net,
            sampler=self.sampler,
            layout=self.layout,
            loss=self.loss,
            norm_before_predictor=self.norm_before_predictor,
            eps=self.eps,
        )

    def width(self, channels: int) -> int | None:
        """K of a block with so many channels.

        >>> SIM().width(64), SIM().width(1024), SIM(dim="sqrt").width(64)
        (16, 32, 8)
        """
        if isinstance(self.dim, str):
            return max(LEAST_WIDTH if self.dim == "auto" else 1, math.isqrt(channels))
        return self.dim

    def losses(self, heads: Sequence[SIMHead], pairs: Sequence[Pair]) -> list[Scalar]:
        """The losses of one call of each head."""
        return losses(heads, pairs)

    def advance(self) -> None:
        """Draw new places."""
        self.sampler.advance()

    def forward(self, x: Tensor, y: Tensor) -> Scalar:
        """The loss of a single block.  The first call builds the head, and every call draws new places."""
        check.tensor("x", x, None, None, -1)
        check.tensor("y", y, None, None, -1)
        if self.head is None:
            self.head = self.build(x, y, position=0)
        if self.head is None:
            raise ValueError(f"match='skip', and {tuple(x.shape)} and {tuple(y.shape)} differ in channels")
        value: Scalar = self.head(self.head.after(self.head.before(x), y))
        self.advance()
        check.no_overflow("SIM", {self.loss: value}, x, y)
        return value
