"""Small networks and batches for the methods."""

from copy import deepcopy

import torch
from torch import Tensor, nn

import reglet
from reglet.backbones import ViT
from reglet.method import Batch, Method
from reglet.methods import (
    BYOL,
    DINO,
    DINOHead,
    JointEmbedding,
    MaskedTokens,
    MoCoV3,
    Predictive,
    Preserved,
    SimSiam,
    Supervised,
)
from reglet.views import BlockMasks, MaskedViews, Policy, View

DIM = 6


class Net(nn.Module):
    """Two blocks without batch norm, for images of any size.  (n, 6)"""

    def __init__(self) -> None:
        super().__init__()
        self.dim = DIM
        self.patch_embed = nn.Conv2d(3, 8, 4, stride=4)
        self.blocks = nn.Sequential(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Tanh()), nn.Sequential(nn.Conv2d(8, DIM, 1), nn.Tanh())
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.blocks(self.patch_embed(x)).mean((2, 3))
        return y


def mlp(*widths: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(widths[0], widths[1]), nn.Tanh(), nn.Linear(widths[1], widths[2]))


MASKS = BlockMasks((4, 4), targets=2, least=2)


def batch(n: int = 8, *, sizes: tuple[int, ...] = (16, 16), n_global: int = 2, seed: int = 0) -> Batch:
    """Random views with masks, the same number of them however the samples are cut."""
    g = torch.Generator().manual_seed(seed)
    views = [torch.randn(n, 3, size, size, generator=g, dtype=torch.float64) for size in sizes]
    draws = MaskedViews(Policy((View(16),) * len(sizes), n_global=n_global), MASKS).draw(n, g)
    return Batch(views, n_global=n_global, labels=torch.arange(n) % 3, draws=draws)


def cut(whole: Batch, part: slice) -> Batch:
    return whole.take(part)


MULTI = (16, 16, 8, 8)


def predictive() -> Predictive:
    vit = ViT(dim=12, depth=1, heads=2, size=16, patch=4, cls_layer=None)
    hidden = MaskedTokens(12, masks=MASKS, width=8, depth=1, heads=2, projector=mlp(12, 7, 5), embedding=5)
    regularizer = reglet.VISReg(slices=16, shared_slices=True, gather=True)
    return Predictive(vit, regularizer, predictor=hidden, weight=1.0)


def method(name: str) -> Method:
    """In double precision, without batch norm, the same weights every time."""
    torch.manual_seed(3)
    net = Net()
    made: dict[str, Method] = {
        "joint": JointEmbedding(net, reglet.VICRegLoss(gather=True), projector=mlp(DIM, 7, 5)),
        "moco": MoCoV3(net, projector=mlp(DIM, 7, 5), predictor=mlp(5, 7, 5), momentum=0.9),
        "dino": DINO(
            net, head=DINOHead(DIM, out_dim=9, hidden=7, bottleneck=5), momentum=0.9, warmup=0.5, freeze_last=0.0
        ),
        "byol": BYOL(net, projector=mlp(DIM, 7, 5), predictor=mlp(5, 7, 5), momentum=0.9),
        "simsiam": SimSiam(net, projector=mlp(DIM, 7, 5), predictor=mlp(5, 7, 5)),
        "supervised": Supervised(net, classes=3, label_smoothing=0.1),
        "predictive": predictive(),
    }
    return made[name].double()


def preserved() -> Method:
    """Held to weights that are not its own, so that every term has a gradient from the first step on."""
    m = method("joint")
    start = deepcopy(m.backbone)
    with torch.no_grad():
        for p in start.parameters():
            p *= 0.8
    return Preserved(m, ["features", "gram", "l2sp"], weight=0.5, start=start).double()


NAMES = ("joint", "moco", "dino", "byol", "simsiam", "supervised", "predictive")
