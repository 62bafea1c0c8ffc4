"""DirectCLR: NT-Xent on the first features, without a projector.  Jing et al., ICLR 2022, arXiv:2110.09348.

    L = NTXent(z[:, :dims], z'[:, :dims])

Only these features get a gradient from the loss.  The others learn because all features share the network.
"""

from torch import Tensor

from reglet import check
from reglet.dist import Group, Ranks
from reglet.losses.base import OnViews, separate
from reglet.losses.ntxent import NTXentLoss
from reglet.types import Terms


class DirectCLRLoss(OnViews):
    """dims: the number of features, lightly's loss_dim.  A smaller embedding is taken whole.

    >>> import torch
    >>> z = torch.randn(2, 8, 16)
    >>> DirectCLRLoss(dims=4)(z).item() == NTXentLoss()(z[..., :4]).item()
    True
    """

    def __init__(
        self,
        *,
        dims: int = 64,
        temperature: float = 0.5,
        gather: bool = False,
        group: Group = None,
        check_finite: bool = False,
    ) -> None:
        super().__init__(gather=gather, group=group, check_finite=check_finite)
        check.whole(1, dims=dims)
        self.dims, self.contrast = dims, NTXentLoss(temperature=temperature)

    def compute_on_ranks(self, z: Tensor | list[Tensor], n_global: int, ranks: Ranks) -> Terms:
        views = separate(z)
        if views[0].shape[1] > self.dims:
            views = [view[:, : self.dims] for view in views]
        return self.contrast.compute_on_ranks(views, n_global, ranks)
