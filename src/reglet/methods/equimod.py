"""EquiMod.  Devillers and Lefort, ICLR 2023, "EquiMod: an equivariance module to improve visual instance
discrimination", arXiv:2211.01244.

    y_t = g(h_t),   y^_t = u(g(h_0), omega_t),   L = L_base + weight mean over t = 1, 2 of NT-Xent(y_t, y^_t)

h_0 are the features of the image without augmentation.  u predicts the embedding of view t from h_0 and from the
parameters omega_t of its augmentation.  NT-Xent is over all 2n rows, with a gradient to both sides, as in the authors'
code.  SER's code gathers one side without gradient and has a factor 2 tau.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.losses.ntxent import NTXentLoss
from reglet.method import Batch, Method, MethodWrapper
from reglet.methods.heads import normed_mlp
from reglet.methods.view_features import Reader, add, require_draws, without_last_view
from reglet.moves import moved
from reglet.schedules import Weight
from reglet.shares import SharedWeight
from reglet.types import Terms, total
from reglet.views import Draw

PARAMETERS = 18


def parameters_of(draw: Draw) -> Float[Tensor, "n 18"]:
    """Crop (4), flip, jitter, order (4), factors (4), grey, blur, sigma, solarization; all of order 1.

    The authors standardise by means and deviations of their policy.  A batch norm follows, there and here.
    """
    columns = [
        draw.crop,
        draw.flip,
        draw.jitter,
        draw.order / 3,
        draw.factors,
        draw.gray,
        draw.sigma > 0,
        draw.sigma,
        draw.solarize,
    ]
    return torch.cat([column.float().view(len(draw), -1) for column in columns], dim=1)


class EquiMod(MethodWrapper):
    """The terms of `method` on all views except the last, which shows the whole image without augmentation; and the
    term "equimod" of views 0 and 1 and the last view.

        plain = reglet.views.policy("plain", size=224).views[0]
        policy = Policy((*two.views, plain), n_global=2)

    layer: None for the backbone's features, or an intermediate layer (SER's table 6).

    >>> from reglet import BarlowTwinsLoss, backbones, methods, views
    >>> net = backbones.ConvNet(widths=(8, 16), depth=1)
    >>> base = methods.JointEmbedding(net, BarlowTwinsLoss(), projector=backbones.projector(16, widths=(16, 8)))
    >>> two, plain = views.policy("simclr", size=16), views.policy("plain", size=16)
    >>> three = views.Policy((*two.views, plain.views[0]), n_global=2)
    >>> draws = three.draw(8)
    >>> sorted(EquiMod(base, width=8)(Batch(three.apply(torch.rand(8, 3, 20, 20), draws), n_global=2, draws=draws)))
    ['equimod', 'invariance', 'redundancy']
    """

    def __init__(
        self,
        method: Method,
        *,
        weight: Weight = 1.0,
        temperature: float = 0.2,
        layer: int | str | None = None,
        width: int = 128,
        example: Tensor | None = None,
        gather: bool = True,
    ) -> None:
        super().__init__()
        self.method, self.balance = method, SharedWeight(weight)
        self.reader = Reader(method, layer, example=example)
        dim = self.reader.dim
        self.projector = normed_mlp(dim, widths=(dim, dim, width))
        self.parameter_layer = nn.Sequential(nn.Linear(PARAMETERS, width, bias=False), nn.BatchNorm1d(width))
        self.predictor = nn.Sequential(nn.Linear(2 * width, width, bias=False), nn.BatchNorm1d(width, affine=False))
        self.loss = NTXentLoss(temperature=temperature, gather=gather)

    def forward(self, batch: Batch) -> Terms:
        draws = require_draws(batch, of="EquiMod")
        given, plain = without_last_view(batch, of="EquiMod")
        _require_plain(draws[-1])
        terms, h = self.reader.run(self.method, given)
        y0 = self.projector(self.reader(self.backbone, plain))
        losses = []
        for t, omega in enumerate(moved([parameters_of(draw) for draw in draws[:2]], plain.device)):
            done = self.parameter_layer(omega.to(plain.dtype))
            predicted = self.predictor(torch.cat([y0, done], dim=1))
            losses.append(self.loss(self.projector(h[t]), predicted))
        loss = torch.stack(losses).mean()
        return add(terms, {"equimod": self.balance(loss, total(terms), on=self.backbone.parameters())})


def _require_plain(draw: Draw) -> None:
    changed = {
        "crop": bool((draw.crop[:, 2:] < 0.999).any()),
        "flip": bool(draw.flip.any()),
        "jitter": bool(draw.jitter.any()),
        "gray": bool(draw.gray.any()),
        "blur": bool((draw.sigma > 0).any()),
        "solarize": bool(draw.solarize.any()),
    }
    found = [name for name, value in changed.items() if value]
    if found:
        raise ValueError(f"EquiMod needs a last view without augmentation, and this one has {', '.join(found)}")
