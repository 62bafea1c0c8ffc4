"""STL.  Yu et al., NeurIPS 2024, "Self-supervised transformation learning for equivariant representations",
arXiv:2501.08712; as SER compares with it.

    t_12 = g([h_1; h_2]),  t_21 = g([h_2; h_1])            what lies between two views, as a vector
    trans = ctr(t of an image, t of its partner)           partners were transformed alike in both views
    equi  = ctr(H(t_21 of the partner) h_2, h_1), and with 1 and 2 exchanged         H(t): a matrix, linear in t
    L = L_base + 1.0 equi + 0.1 trans

ctr is MoCo-v3's contrast.  Images 2m and 2m + 1 are partners; the last image of an odd batch has none.  In SER's code
the keys of ctr have no gradient; here they have one.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor, nn

from reglet.dist import concat_over_ranks, rank, world_size
from reglet.method import Batch, Method, MethodWrapper
from reglet.methods.heads import normed_mlp
from reglet.methods.moco import contrast
from reglet.methods.view_features import Reader, add, require_draws
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar, Terms
from reglet.views import Draw
from reglet.views.multiview import PolicyWrapper


@dataclass(frozen=True)
class PartnerViews(PolicyWrapper):
    """`policy`, except that images 2m and 2m + 1 have the same draw in every view.

    >>> from reglet.views import policy
    >>> first = PartnerViews(policy("simclr", size=16)).draw(4)[0]
    >>> torch.equal(first.crop[0], first.crop[1]), torch.equal(first.crop[1], first.crop[2])
    (True, False)
    """

    def draw(
        self, n: int, generator: torch.Generator | None = None, *, aspect: Float[Tensor, " n"] | None = None
    ) -> list[Draw]:
        """Partners share the draw of the first, even if their aspects differ."""
        partner = torch.arange(n) // 2
        aspect = None if aspect is None else aspect[::2]
        return [draw.take(partner) for draw in self.policy.draw((n + 1) // 2, generator, aspect=aspect)]


class STL(MethodWrapper):
    """The terms of `method`, and "stl_equivariance" and "stl_transformation" of views 0 and 1, made by `PartnerViews`.

    equivariance, transformation: weights.
    width: of t.  H has width dim^2 weights: 18.9 million for 384 features.
    layer: None for the backbone's features, or an intermediate layer.

    >>> from reglet import BarlowTwinsLoss, backbones, methods, views
    >>> net = backbones.ConvNet(widths=(8, 16), depth=1)
    >>> base = methods.JointEmbedding(net, BarlowTwinsLoss(), projector=backbones.projector(16, widths=(16, 8)))
    >>> policy = PartnerViews(views.policy("simclr", size=16))
    >>> draws = policy.draw(8)
    >>> sorted(STL(base, width=8)(Batch(policy.apply(torch.rand(8, 3, 20, 20), draws), n_global=2, draws=draws)))
    ['invariance', 'redundancy', 'stl_equivariance', 'stl_transformation']
    """

    def __init__(
        self,
        method: Method,
        *,
        equivariance: float = 1.0,
        transformation: float = 0.1,
        temperature: float = 0.2,
        layer: int | str | None = None,
        width: int = 128,
        example: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.method, self.temperature = method, temperature
        self.equivariance, self.transformation = equivariance, transformation
        self.reader = Reader(method, layer, example=example)
        self.transform = normed_mlp(2 * self.reader.dim, widths=(width, width))
        self.matrix = nn.Linear(width, self.reader.dim**2, bias=False)

    def forward(self, batch: Batch) -> Terms:
        pairs = len(batch.views[0]) // 2
        if pairs * world_size() < 2:
            raise ValueError(f"STL contrasts pairs of images: at least 4 images are needed, got {len(batch.views[0])}")
        for draw in require_draws(batch, of="STL")[:2]:
            _require_partners(draw)
        terms, h = self.reader.run(self.method, batch)
        h1, h2 = (y[: 2 * pairs] for y in h[:2])
        t12, t21 = self.transform(torch.cat([h1, h2], dim=1)), self.transform(torch.cat([h2, h1], dim=1))
        equi = [self._contrast(self._moved(h2, t21), h1), self._contrast(self._moved(h1, t12), h2)]
        trans = [self._contrast(a, b) for t in (t12, t21) for a, b in ((t[::2], t[1::2]), (t[1::2], t[::2]))]
        own = {
            "stl_equivariance": self.equivariance * torch.stack(equi).mean(),
            "stl_transformation": self.transformation * torch.stack(trans).mean(),
        }
        return add(terms, own)

    def _moved(self, h: Float[Tensor, "n d"], t: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
        """H(t of the partner) h."""
        partners = t.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
        matrices = self.matrix(partners).unflatten(1, (h.shape[1], h.shape[1]))
        return (matrices @ h[:, :, None]).squeeze(2)

    def _contrast(self, q: Float[Tensor, "n d"], k: Float[Tensor, "n d"]) -> Scalar:
        with no_autocast(q):
            return contrast(
                at_least_float32(q),
                concat_over_ranks(at_least_float32(k)),
                temperature=self.temperature,
                first=len(q) * rank(),
            )


def _require_partners(draw: Draw) -> None:
    for field in fields(draw):
        values = getattr(draw, field.name)
        even, odd = values[::2], values[1::2]
        if not torch.equal(even[: len(odd)], odd):
            raise ValueError(
                f"images 2m and 2m + 1 should be transformed alike, but their {field.name} differs. "
                "Make views by PartnerViews(policy)."
            )
