"""BYOL (Grill et al., NeurIPS 2020, arXiv:2006.07733) and SimSiam (Chen and He, CVPR 2021, arXiv:2011.10566).

Both predict the projection of one view from another.  The target has no gradient.

    BYOL:     L = sum over (v, g != v) of mean_i || q_v / |q_v| - k_g / |k_g| ||^2 = 2 - 2 cos    k of an EMA teacher
    SimSiam:  L = mean over (v, g != v) of mean_i -cos(q_v, z_g)                             z of the network itself

v runs over all views, g over the global ones.  For two views this is equation 2 of each paper.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.projector import projector as plain_mlp
from reglet.backbones.protocol import dim_of
from reglet.method import Batch, Method
from reglet.methods.crops import ordered_pairs
from reglet.methods.heads import normed_mlp, require_both
from reglet.methods.momentum import Teacher, half_cosine
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar, Terms


def cosine(q: Float[Tensor, "n d"], z: Float[Tensor, "n d"]) -> Scalar:
    """mean_i cos(q_i, sg z_i)"""
    with no_autocast(q):
        return F.cosine_similarity(at_least_float32(q), at_least_float32(z.detach()), dim=1).mean()


class BYOL(Method):
    """projector, predictor: by default Linear - BN - ReLU - Linear, 4096 wide, 256 out.

    momentum: of the teacher at the start; it rises to 1 in a half cosine.
    Each view has its own forward, so batch norm sees one view at a time.  All ranks hold the same number of samples.

    >>> from reglet.backbones import ConvNet
    >>> method = BYOL(ConvNet(widths=(8, 16), depth=1))
    >>> list(method(Batch(torch.rand(2, 8, 3, 16, 16).unbind(), n_global=2)))
    ['prediction']
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        projector: nn.Module | None = None,
        predictor: nn.Module | None = None,
        momentum: float = 0.996,
    ) -> None:
        super().__init__()
        require_both(projector, predictor)
        self.backbone, self.momentum = backbone, momentum
        self.projector = plain_mlp(dim_of(backbone), widths=(4096, 256)) if projector is None else projector
        self.predictor = plain_mlp(256, widths=(4096, 256)) if predictor is None else predictor
        self.teacher = Teacher(self._student())

    def forward(self, batch: Batch) -> Terms:
        pairs = ordered_pairs(batch)
        q = [self.predictor(self.projector(self.backbone(x))) for x in batch.views]
        k = [self.teacher(x) for x in batch.views[: batch.n_global]]
        return {"prediction": torch.stack([2 - 2 * cosine(q[v], k[g]) for v, g in pairs]).sum()}

    def after_step(self, step: int, steps: int) -> None:
        self.teacher.follow(self._student(), momentum=half_cosine(step / steps, start=self.momentum, end=1.0))

    def _student(self) -> nn.Sequential:
        return nn.Sequential(self.backbone, self.projector)


class SimSiam(Method):
    """projector: by default 2048-2048-2048 with batch norm after every layer.
    predictor: by default 512-2048 with batch norm between.

    The authors keep the predictor's learning rate constant.  All ranks hold the same number of samples.

    >>> from reglet.backbones import ConvNet
    >>> method = SimSiam(ConvNet(widths=(8, 16), depth=1))
    >>> list(method(Batch(torch.rand(2, 8, 3, 16, 16).unbind(), n_global=2)))
    ['prediction']
    """

    def __init__(
        self, backbone: nn.Module, *, projector: nn.Module | None = None, predictor: nn.Module | None = None
    ) -> None:
        super().__init__()
        require_both(projector, predictor)
        self.backbone = backbone
        self.projector = normed_mlp(dim_of(backbone), widths=(2048, 2048, 2048)) if projector is None else projector
        self.predictor = plain_mlp(2048, widths=(512, 2048)) if predictor is None else predictor

    def forward(self, batch: Batch) -> Terms:
        pairs = ordered_pairs(batch)
        z = [self.projector(self.backbone(x)) for x in batch.views]
        q = [self.predictor(y) for y in z]
        return {"prediction": torch.stack([-cosine(q[v], z[g]) for v, g in pairs]).mean()}
