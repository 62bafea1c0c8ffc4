"""Small networks and batches with draws, for the wrappers that read them."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

import reglet
from reglet.backbones.vit import ViT
from reglet.method import Batch, Method
from reglet.methods import DINO, DINOHead, JointEmbedding, MoCoV3
from reglet.methods.equivariant_views import AlignedViews
from reglet.views import ColorJitter, Policy, ResizedCrop, View

N, SHARE = 8, 0.375  # three images in b2
DIM, DEPTH, PATCH, SIZE = 8, 4, 4, 16


def vit(cls_layer: int | None = 2, *, depth: int = DEPTH) -> ViT:
    torch.manual_seed(3)
    net = ViT(dim=DIM, depth=depth, heads=2, size=SIZE, patch=PATCH, cls_layer=cls_layer)
    for p in net.parameters():  # timm's initialization is so small that all images look alike
        nn.init.normal_(p, std=0.3)
    return net


def mlp(*widths: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(widths[0], widths[1]), nn.Tanh(), nn.Linear(widths[1], widths[2]))


def base(name: str, net: nn.Module | None = None) -> Method:
    """In double precision, without batch norm."""
    net = vit() if net is None else net
    dim = net.dim
    torch.manual_seed(4)
    losses = {
        "vicreg": reglet.VICRegLoss(gather=True),
        "barlow": reglet.BarlowTwinsLoss(),
        "visreg": reglet.VISRegLoss(slices=16),
        "smi": reglet.SMILoss(),
        "simclr": reglet.NTXentLoss(),
    }
    if name in losses:
        return JointEmbedding(net, losses[name], projector=mlp(dim, 7, 5)).double()
    head = DINOHead(dim, out_dim=9, hidden=7, bottleneck=5)
    if name == "dino":
        return DINO(net, head=head, momentum=0.9, warmup=0.5, freeze_last=0.0).double()
    return MoCoV3(net, projector=mlp(dim, 7, 5), predictor=mlp(5, 7, 5), momentum=0.9).double()


BASES = ("vicreg", "barlow", "visreg", "smi", "simclr", "moco", "dino")


def policy(*, local: int = 0) -> Policy:
    view = View(SIZE, ResizedCrop((0.5, 1.0)), flip=0.5, jitter=ColorJitter(), gray=0.2, solarize=0.2)
    return Policy((view, view, *[replace(view, size=8)] * local), n_global=2)


def batch(n: int = N, *, share: float = SHARE, local: int = 0, seed: int = 0, **options: Any) -> Batch:
    g = torch.Generator().manual_seed(seed)
    made = AlignedViews(policy(local=local), fraction=share, **options)
    draws = made.draw(n, g)
    images = torch.rand(n, 3, 20, 20, generator=g)
    views = [x.double() for x in made.apply(images, draws)]
    return Batch(views, n_global=2, labels=torch.arange(n) % 3, draws=draws)
