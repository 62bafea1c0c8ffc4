"""Distributionally robust optimization over groups.  Sagawa et al., ICLR 2020, arXiv:1911.08731, algorithm 1."""

from collections.abc import Sequence

import torch
from torch import Tensor

from reglet import check
from reglet.dist import sum_over_ranks, world_size
from reglet.methods.domains.base import OnDomains, risks
from reglet.types import Terms


class GroupDRO(OnDomains):
    """sum_e q_e R_e,  q_e <- q_e exp(eta R_e), then normalized, in every training step before the sum.

    domains: their number.  Each batch must hold all of them, in the same order.
    eta: 0.01 as in the paper and DomainBed.

    q is saved with the state.  It follows the mean risk over ranks, so that all ranks have the same q.

    >>> z, y, head = torch.randn(2, 8, 4).unbind(), (torch.arange(8) % 3,) * 2, torch.nn.Linear(4, 3)
    >>> GroupDRO(domains=2)(z, y, head).shape
    torch.Size([])
    """

    q: Tensor

    def __init__(self, *, domains: int, eta: float = 0.01) -> None:
        super().__init__()
        check.whole(1, domains=domains)
        check.not_negative(eta=eta)
        self.eta = eta
        self.register_buffer("q", torch.full((domains,), 1 / domains))

    def compute(self, z: Sequence[Tensor], logits: Sequence[Tensor], y: Sequence[Tensor]) -> Terms:
        if len(z) != len(self.q):
            raise ValueError(f"GroupDRO was built for {len(self.q)} domains, and this batch has {len(z)}")
        r = risks(logits, y)
        if self.training:
            with torch.no_grad():
                mean = sum_over_ranks(r.detach()) / world_size()
                self.q.copy_((self.q.log() + self.eta * mean.to(self.q.dtype)).softmax(0))
        return {"risk": (self.q.to(r.dtype, copy=True) * r).sum()}
