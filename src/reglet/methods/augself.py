"""AugSelf.  Lee et al., NeurIPS 2021, "Improving transferability of representations via augmentation-aware
self-supervision", arXiv:2111.09613.

    L = L_base + sum_t w_t L_t(predictor_t([h1; h2]), omega_t(view 1) - omega_t(view 2))

The difference between the augmentations of two views is predicted from their features.  For crops, colours, blur and
solarization the loss is the squared error of tanh(p); for flips a binary cross-entropy; for the relative quarter turn a
4-way cross-entropy.  Both orders of the two views are used.  As in the authors' code, the centres of both crops are
mirrored if view 1 is flipped, which expresses view 2 in the frame of view 1.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.projector import projector
from reglet.method import Batch, Method, MethodWrapper
from reglet.methods.view_features import Reader, add, equal, require_draws
from reglet.moves import moved
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar, Terms
from reglet.views import ColorJitter, Draw

WIDTHS = {"crop": 4, "color": 4, "blur": 1, "solarize": 1, "flip": 1, "rotation": 4}


def differences(a: Draw, b: Draw, *, jitter: ColorJitter, sigma: float) -> dict[str, Tensor]:
    """The targets of each predictor: omega(a) - omega(b), in the frame of `a`, all in (-1, 1)."""
    boxes = [_box(d, mirrored=a.flip) for d in (a, b)]
    colors = [_color(d, jitter) for d in (a, b)]
    return {
        "crop": boxes[0] - boxes[1],
        "color": colors[0] - colors[1],
        "blur": ((a.sigma - b.sigma) / sigma)[:, None],
        "solarize": (a.solarize.float() - b.solarize.float())[:, None],
        "flip": equal(a.flip, b.flip)[:, None],
        "rotation": (a.turn - b.turn) % 4,
    }


def _box(draw: Draw, *, mirrored: Tensor) -> Float[Tensor, "n 4"]:
    """Centre (y, x), height and width in shares of the image."""
    sides = draw.crop[:, 2:]
    y, x = (draw.crop[:, :2] * (1 - sides) + sides / 2).unbind(1)
    return torch.cat([torch.stack([y, torch.where(mirrored, 1 - x, x)], dim=1), sides], dim=1)


def _color(draw: Draw, jitter: ColorJitter) -> Float[Tensor, "n 4"]:
    """(factor - identity) / width of its range; 0 where nothing was applied."""
    identity = draw.factors.new_tensor([1.0, 1.0, 1.0, 0.0])
    width = 2 * draw.factors.new_tensor([jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue])
    off = torch.where(draw.jitter[:, None], draw.factors - identity, 0.0)
    return off / width.clamp(min=1e-6)


def prediction_loss(kind: str, p: Float[Tensor, "n k"], target: Tensor) -> Scalar:
    if kind == "flip":
        return F.binary_cross_entropy_with_logits(p, target.to(p))
    if kind == "rotation":
        return F.cross_entropy(p, target)
    return F.mse_loss(p.tanh(), target.to(p))


class AugSelf(MethodWrapper):
    """The terms of `method`, and a term for each augmentation of views 0 and 1 whose weight is not zero.

    crop, color: 0.5 each, as in SER's comparison; the others are off.
    layer: None for the backbone's features, or an intermediate layer (SER's table 6, where weights were 0.03 to 0.5).
    jitter, sigma: the strengths of the view policy, by which differences are divided.

    >>> from reglet import BarlowTwinsLoss, backbones, methods, views
    >>> net = backbones.ConvNet(widths=(8, 16), depth=1)
    >>> base = methods.JointEmbedding(net, BarlowTwinsLoss(), projector=backbones.projector(16, widths=(16, 8)))
    >>> two, images = views.policy("simclr", size=16), torch.rand(8, 3, 20, 20)
    >>> draws = two.draw(8)
    >>> sorted(AugSelf(base, hidden=16)(Batch(two.apply(images, draws), n_global=2, draws=draws)))
    ['augself_color', 'augself_crop', 'invariance', 'redundancy']
    """

    def __init__(
        self,
        method: Method,
        *,
        crop: float = 0.5,
        color: float = 0.5,
        blur: float = 0.0,
        solarize: float = 0.0,
        flip: float = 0.0,
        rotation: float = 0.0,
        layer: int | str | None = None,
        hidden: int = 512,
        jitter: ColorJitter | None = None,
        sigma: float = 2.0,
        example: Tensor | None = None,
    ) -> None:
        super().__init__()
        given = {
            "crop": crop, "color": color, "blur": blur, "solarize": solarize, "flip": flip, "rotation": rotation
        }  # fmt: skip
        self.weights = {kind: weight for kind, weight in given.items() if weight != 0}
        if not self.weights or min(self.weights.values()) < 0:
            raise ValueError(f"expected weights >= 0, at least one of them above 0; got {given}")
        self.method, self.jitter, self.sigma = method, ColorJitter() if jitter is None else jitter, sigma
        self.reader = Reader(method, layer, example=example)
        width = 2 * self.reader.dim
        self.predictors = nn.ModuleDict(
            {kind: projector(width, widths=(hidden, hidden, WIDTHS[kind])) for kind in self.weights}
        )

    def forward(self, batch: Batch) -> Terms:
        a, b = require_draws(batch, of="AugSelf")[:2]
        terms, h = self.reader.run(self.method, batch)
        pairs = torch.cat([torch.cat([h[0], h[1]], dim=1), torch.cat([h[1], h[0]], dim=1)])
        there, back = (differences(*order, jitter=self.jitter, sigma=self.sigma) for order in ((a, b), (b, a)))
        targets = moved([torch.cat([there[kind], back[kind]]) for kind in self.weights], pairs.device)
        own: Terms = {}
        for (kind, weight), target in zip(self.weights.items(), targets, strict=True):
            p = self.predictors[kind](pairs)
            with no_autocast(p):
                own[f"augself_{kind}"] = weight * prediction_loss(kind, at_least_float32(p), target)
        return add(terms, own)
