"""MambaTS: selective state spaces over patches of all variables.  Cai et al., 2024, arXiv:2405.16440.

Its recurrence is Mamba's: Gu and Dao, 2023, arXiv:2312.00752.
"""

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from reglet.networks.series.window_norm import normalized, restored


def selective_scan(
    u: Float[Tensor, "n l d"],
    delta: Float[Tensor, "n l d"],
    A: Float[Tensor, "d s"],
    B: Float[Tensor, "n l s"],
    C: Float[Tensor, "n l s"],
    D: Float[Tensor, " d"],
) -> Float[Tensor, "n l d"]:
    """h_t = exp(Delta_t A) h_{t-1} + Delta_t B_t u_t,    y_t = C_t h_t + D u_t,    h_0 = 0 before the first token.

    A state of s numbers for each of d features; step, input and output depend on the token.  As in the authors' code,
    A is discretized exactly and B by Euler's rule (the paper prints a zero-order hold for both).
    """
    first = [z.transpose(0, 1) for z in (u, delta, B, C)]  # time in front: a step of the recurrence is contiguous
    u_t, delta_t, B_t, C_t = first
    decay = (delta_t[..., None] * A).exp()
    h = linear_scan(decay, (delta_t * u_t)[..., None] * B_t[:, :, None, :])
    y = (h @ C_t[..., None]).squeeze(-1)
    return y.transpose(0, 1) + D * u


def linear_scan(a: Float[Tensor, "l *state"], b: Float[Tensor, "l *state"]) -> Float[Tensor, "l *state"]:
    """h_t = a_t h_{t-1} + b_t, with h_{-1} = 0."""
    h: Tensor = _LinearScan.apply(a, b)
    return h


class _LinearScan(torch.autograd.Function):
    """The gradient is a scan too, from the end:  g_t = dL/dh_t + a_{t+1} g_{t+1},  dL/db = g,  dL/da_t = g_t h_{t-1}.

    Autograd through a loop would keep a node for each step.  Here a step is two fused operations.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        h = b.clone(memory_format=torch.contiguous_format)
        steps, decays = h.unbind(0), a.unbind(0)
        for t in range(1, len(steps)):
            steps[t].addcmul_(decays[t], steps[t - 1])
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, h = ctx.saved_tensors
        g = grad.clone(memory_format=torch.contiguous_format)
        steps, decays = g.unbind(0), a.unbind(0)
        for t in range(len(steps) - 2, -1, -1):
            steps[t].addcmul_(decays[t + 1], steps[t + 1])
        return g * F.pad(h[:-1], [0, 0] * (h.ndim - 1) + [1, 0]), g


class TemporalMamba(nn.Module):
    """x + Linear(scan(SiLU(u)) SiLU(z)),  u, z = Linear(LayerNorm(x)): Mamba's block without its causal convolution,
    which would mix variables that are neighbours by chance, and with dropout on what makes the selection.
    """

    def __init__(self, width: int, *, state: int, dropout: float) -> None:
        super().__init__()
        self.rank, self.state = math.ceil(width / 16), state
        self.norm = nn.LayerNorm(width)
        self.enter = nn.Linear(width, 2 * width, bias=False)
        self.select = nn.Linear(width, self.rank + 2 * state, bias=False)
        self.drop = nn.Dropout(dropout)
        self.step = nn.Linear(self.rank, width)
        self.log_A = nn.Parameter(torch.arange(1.0, state + 1).log().repeat(width, 1))
        self.D = nn.Parameter(torch.ones(width))
        self.leave = nn.Linear(width, width, bias=False)
        with torch.no_grad():  # Delta begins between 1e-3 and 1e-1, as in Mamba: this is the inverse of softplus
            delta = torch.empty(width).uniform_(math.log(1e-3), math.log(1e-1)).exp()
            self.step.bias.copy_(delta + (-torch.expm1(-delta)).log())

    def forward(self, x: Float[Tensor, "n l d"]) -> Float[Tensor, "n l d"]:
        u, z = self.enter(self.norm(x)).chunk(2, dim=2)
        u = F.silu(u)
        rank, B, C = self.drop(self.select(u)).split([self.rank, self.state, self.state], dim=2)
        y = selective_scan(u, F.softplus(self.step(rank)), -self.log_A.exp(), B, C, self.D)
        return x + cast(Tensor, self.leave(y * F.silu(z)))


class MambaTS(nn.Module):
    """A token is a patch of one variable; the scan visits all variables at one time, then all at the next.

    A scan has an order and variables have none.  So in training they are shuffled in each forward (the paper's variable
    permutation training).  The paper's search for the best order at inference, by a travelling-salesman solver, is left
    out; the order there is that of the channels.  Width, depth, patch and dropout are those of the authors' code for
    electricity (they differ by data set).  The state is Mamba's; the expansion is 1 where Mamba has 2.

    >>> MambaTS(channels=3, length=20, width=8, depth=1, state=4, patch=5)(torch.randn(4, 20, 3)).shape
    torch.Size([4, 20, 3])
    """

    sim_blocks = ("blocks.*",)

    def __init__(
        self,
        *,
        channels: int,
        length: int,
        width: int = 128,
        depth: int = 4,
        state: int = 16,
        patch: int = 48,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.patch, self.fill = min(patch, length), -length % min(patch, length)
        patches = (length + self.fill) // self.patch
        self.embed = nn.Linear(self.patch, width)
        self.places = nn.Parameter(0.02 * torch.randn(patches, 1, width))
        self.blocks = nn.Sequential(*(TemporalMamba(width, state=state, dropout=dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(patches * width, length)

    def forward(self, x: Float[Tensor, "n t c"]) -> Float[Tensor, "n t c"]:
        n, _, c = x.shape
        z, level = normalized(x)
        order = torch.randperm(c, device=x.device) if self.training else torch.arange(c, device=x.device)
        filled = F.pad(z[:, :, order].transpose(1, 2), (0, self.fill), mode="replicate")
        patches = filled.unflatten(2, (-1, self.patch)).transpose(1, 2)  # (n, patches, c, patch)
        tokens = self.norm(self.blocks((self.embed(patches) + self.places).flatten(1, 2)))
        variables = tokens.view(n, -1, c, tokens.shape[2]).transpose(1, 2).flatten(2)
        y = cast(Tensor, self.head(variables)).transpose(1, 2)
        return restored(y[:, :, order.argsort()], level)


def mambats_small(*, channels: int, length: int, width: int = 16, dropout: float = 0.1) -> MambaTS:
    """Two narrow blocks with a state of four numbers: it trains in seconds on a CPU.

    >>> mambats_small(channels=3, length=20)(torch.randn(4, 20, 3)).shape
    torch.Size([4, 20, 3])
    """
    return MambaTS(channels=channels, length=length, width=width, depth=2, state=4, patch=20, dropout=dropout)
