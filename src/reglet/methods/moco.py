"""MoCo-v3.  Chen, Xie, He, ICCV 2021, arXiv:2104.02057.

    q = predictor(projector(f(x))),  k = teacher's projector(f(x)), without gradient, of all ranks
    ctr(q, k) = 2 tau CE(q k^T / tau, own row)        q, k of unit length
    L = sum over views v and global views g != v of ctr(q_v, k_g)       two views: ctr(q_1, k_2) + ctr(q_2, k_1)

The authors move the teacher between the forwards of queries and keys.  We move it after the step.  The student does not
change in between, so the numbers are the same.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.protocol import dim_of
from reglet.dist import concat_over_ranks, rank, world_size
from reglet.method import Batch, Method
from reglet.methods.crops import ordered_pairs
from reglet.methods.heads import normed_mlp, require_both
from reglet.methods.momentum import Teacher, half_cosine
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar, Terms


def contrast(
    q: Float[Tensor, "n d"], keys: Float[Tensor, "m d"], *, temperature: float = 0.2, first: int = 0
) -> Scalar:
    """2 tau CE(q keys^T / tau).  Query i belongs to key `first + i`."""
    logits = F.normalize(q, dim=1) @ F.normalize(keys, dim=1).T / temperature
    own = first + torch.arange(len(q), device=q.device)
    return 2 * temperature * F.cross_entropy(logits, own)


class MoCoV3(Method):
    """Queries come from every view, one view at a time, and keys from the global views.

    projector, predictor: by default 4096-4096-256 and 4096-256 with batch norm after every layer.
    momentum: of the teacher at the start; it rises to 1 in a half cosine.
    freeze: a part of the backbone that is not trained.  The authors freeze a ViT's "patch_embed".

    >>> from reglet.backbones import ConvNet
    >>> method = MoCoV3(ConvNet(widths=(8, 16), depth=1))
    >>> list(method(Batch(torch.rand(2, 8, 3, 16, 16).unbind(), n_global=2)))
    ['contrast']
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        projector: nn.Module | None = None,
        predictor: nn.Module | None = None,
        temperature: float = 0.2,
        momentum: float = 0.99,
        freeze: str | None = None,
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        require_both(projector, predictor)
        self.backbone, self.temperature, self.momentum = backbone, temperature, momentum
        if freeze is not None:
            backbone.get_submodule(freeze).requires_grad_(False)
        self.projector = normed_mlp(dim_of(backbone), widths=(4096, 4096, 256)) if projector is None else projector
        self.predictor = normed_mlp(256, widths=(4096, 256)) if predictor is None else predictor
        self.teacher = Teacher(self._student())

    def forward(self, batch: Batch) -> Terms:
        pairs = ordered_pairs(batch)
        queries = [self.predictor(self.projector(self.backbone(x))) for x in batch.views]
        keys = [self.teacher(x) for x in batch.views[: batch.n_global]]
        n = len(queries[0])
        with no_autocast(queries[0]):
            every = [_of_all_ranks(at_least_float32(k), n) for k in keys]
            losses = [
                contrast(at_least_float32(queries[v]), every[g], temperature=self.temperature, first=n * rank())
                for v, g in pairs
            ]
            return {"contrast": torch.stack(losses).sum()}

    def after_step(self, step: int, steps: int) -> None:
        self.teacher.follow(self._student(), momentum=half_cosine(step / steps, start=self.momentum, end=1.0))

    def _student(self) -> nn.Sequential:
        return nn.Sequential(self.backbone, self.projector)


@torch.no_grad()
def _of_all_ranks(keys: Float[Tensor, "n d"], n: int) -> Float[Tensor, "m d"]:
    every = concat_over_ranks(keys)
    if len(every) != n * world_size():
        raise ValueError(
            f"MoCoV3 needs the same number of samples on all {world_size()} ranks: {n} here, {len(every)} in all"
        )
    return every
