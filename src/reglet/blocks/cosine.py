"""The angle between the tokens of two places.

    L = mean over samples and tokens of 1 - cos(z_ij, target_ij)

REPA (Yu et al., ICLR 2025, arXiv:2410.06940) has it between a block behind an MLP and a frozen encoder, LayerSync
(Haghighi et al. 2025, arXiv:2510.12581) between a block and a deeper one whose gradient is stopped; both without the 1.
"""

from torch import nn

from reglet.blocks.pair import Tokens, checked, unit
from reglet.precision import no_autocast
from reglet.types import Scalar


class Cosine(nn.Module):
    """
    >>> import torch
    >>> Cosine()(torch.ones(2, 3, 4), -torch.ones(2, 3, 4)).item()
    2.0
    """

    def forward(self, z: Tokens, target: Tokens) -> Scalar:
        z, target = checked(z, target)
        with no_autocast(z):
            return 1 - (unit(z) * unit(target)).sum(-1).mean()
