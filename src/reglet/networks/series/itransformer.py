"""iTransformer: attention among variates.  Liu et al., ICLR 2024, arXiv:2310.06625."""

from jaxtyping import Float
from torch import Tensor, nn

from reglet.networks.series.window_norm import normalized, restored


class ITransformer(nn.Module):
    """A token is a variate: its whole window, embedded by one linear layer.

        h_c = Linear(x_{:, c}),    h = Block_l(h),    x^_{:, c} = Linear(LayerNorm(h_c))

    A block is a transformer layer with norms after each residual.  Its attention mixes variates; its feed-forward net
    works on each variate.  Variates have no positions, so permuting channels permutes the output.  The sizes are those
    of copies of the authors' code (the paper: 2 to 4 blocks, 256 or 512 wide).

    >>> import torch
    >>> net = ITransformer(channels=3, length=20, width=16, depth=1, heads=2, hidden=16)
    >>> net(torch.randn(4, 20, 3)).shape  # the windows, reconstructed
    torch.Size([4, 20, 3])
    """

    sim_blocks = ("blocks.*",)

    def __init__(
        self,
        *,
        channels: int,
        length: int,
        width: int = 512,
        depth: int = 3,
        heads: int = 8,
        hidden: int = 512,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} does not divide among {heads} heads")
        self.embed = nn.Linear(length, width)
        self.blocks = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, heads, hidden, dropout=dropout, activation="gelu", batch_first=True)
                for _ in range(depth)
            )
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, length)

    def forward(self, x: Float[Tensor, "n t c"]) -> Float[Tensor, "n t c"]:
        z, level = normalized(x)
        tokens = self.blocks(self.embed(z.transpose(1, 2)))
        return restored(self.head(self.norm(tokens)).transpose(1, 2), level)


def itransformer_small(*, channels: int, length: int, width: int = 32) -> ITransformer:
    """Two blocks, without dropout: it trains in seconds on a CPU.

    >>> import torch
    >>> itransformer_small(channels=3, length=20)(torch.randn(4, 20, 3)).shape
    torch.Size([4, 20, 3])
    """
    return ITransformer(channels=channels, length=length, width=width, depth=2, heads=4, hidden=2 * width, dropout=0.0)
