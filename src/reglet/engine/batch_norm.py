"""Batch norm over the samples of all ranks: `sync_batchnorm=true`.

torch's SyncBatchNorm runs only on CUDA.  Elsewhere `OverRanks` replaces it, so that W processes train like one.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from reglet.dist import Ranks, concat_over_ranks, world_size
from reglet.precision import at_least_float32, no_autocast


class OverRanks(_BatchNorm):
    """Batch norm with the mean and variance of the whole batch, of which each rank r has an equal part:

        mean = mean_r m_r          var = mean_r v_r + var_r m_r

    Ranks exchange numbers once in the forward pass and once in the backward pass.
    """

    def _check_input_dim(self, x: Tensor) -> None:
        if x.ndim < 2:
            raise ValueError(f"batch norm takes (n, channels, ...), got {tuple(x.shape)}")

    def forward(self, x: Tensor) -> Tensor:
        world = world_size()
        if not self.training or world == 1:
            return super().forward(x)
        self._check_input_dim(x)
        with no_autocast(x):
            y = at_least_float32(x)
            others = [axis for axis in range(y.ndim) if axis != 1]
            own = torch.stack(torch.var_mean(y, others, correction=0))
            v, m = concat_over_ranks(own[None], ranks=Ranks((1,) * world)).unbind(1)
            mean, var = m.mean(0), v.mean(0) + m.var(0, correction=0)
            self._remember(mean.detach(), var.detach(), n=world * y.numel() // y.shape[1])
            shape = [1, -1] + [1] * (y.ndim - 2)
            y = (y - mean.view(shape)) * (var + self.eps).rsqrt().view(shape)
            if self.affine:
                y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, var: Tensor, *, n: int) -> None:
        """Updates the running averages.  The variance is divided by n - 1, as in torch."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_((var * n / (n - 1)).to(self.running_var.dtype), rate)


def synchronize(network: nn.Module, *, cuda: bool) -> None:
    """Makes every batch norm in `network` see all ranks.  Its parameters and buffers stay the same tensors."""
    if cuda:
        nn.SyncBatchNorm.convert_sync_batchnorm(network)
        return
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm) and not isinstance(child, OverRanks):
                setattr(parent, name, _over_ranks(child))


def _over_ranks(given: _BatchNorm) -> OverRanks:
    norm = OverRanks(
        given.num_features, given.eps, given.momentum, affine=False, track_running_stats=given.track_running_stats
    )
    norm.affine, norm.weight, norm.bias = given.affine, given.weight, given.bias
    norm.running_mean, norm.running_var = given.running_mean, given.running_var
    norm.num_batches_tracked = given.num_batches_tracked
    return norm.train(given.training)
