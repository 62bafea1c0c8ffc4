"""Domain losses by name, and how a batch is mixed for those that mix."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from reglet.attach import alter
from reglet.latent import BatchFormer, CrossEntropy, CutMix, LatentDR, ManifoldMixup, MixStyle, Mixup, NoisyLatents
from reglet.methods.domains import CORAL, ERM, IRM, MMD, GroupDRO, OnDomains, OnUnion, VREx

Forward = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Size(NamedTuple):
    """What a loss must know of the network and the data."""

    dim: int
    domains: int
    steps: int


WARM = 10  # a tenth of the steps before a penalty has its weight: DomainBed's 500 of 5,000
LOSSES: dict[str, Callable[[Size], OnDomains | OnUnion]] = {
    "erm": lambda s: ERM(),
    "irm": lambda s: IRM(anneal=s.steps // WARM),
    "vrex": lambda s: VREx(anneal=s.steps // WARM),
    "coral": lambda s: CORAL(),
    "mmd": lambda s: MMD(),
    "groupdro": lambda s: GroupDRO(domains=s.domains),
    "latentdr": lambda s: OnUnion(LatentDR(s.dim)),
    "latentdr-pool": lambda s: OnUnion(LatentDR(s.dim, degrade="pool")),
    "batchformer": lambda s: OnUnion(BatchFormer(s.dim)),
    "smoothing": lambda s: OnUnion(CrossEntropy(label_smoothing=0.1)),
    "noise": lambda s: OnUnion(NoisyLatents(s.dim)),
}
MIXED = ("mixup", "cutmix", "manifold", "mixstyle")  # with ERM's loss
AT_BLOCKS = ("manifold", "mixstyle")
NAMES = (*LOSSES, *MIXED)


def make_loss(name: str, size: Size) -> OnDomains | OnUnion:
    return ERM() if name in MIXED else LOSSES[name](size)


def mixing(name: str, net: nn.Module, blocks: list[str], *, classes: int, generator: torch.Generator) -> Forward:
    """Images and labels of a batch -> latents and labels, mixed as `name` says."""
    mixup, cutmix = Mixup(alpha=0.2), CutMix()
    manifold = ManifoldMixup(net, blocks) if name == "manifold" else None
    if name == "mixstyle":
        alter(net, blocks, MixStyle())

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if manifold is not None:
            p = manifold.draw(len(x), generator)
            return manifold(x, p), manifold.labels(y, p, num_classes=classes)
        if name == "mixup":
            x, y = mixup.mix(x, y, mixup.draw(len(x), generator), num_classes=classes)
        elif name == "cutmix":
            x, y = cutmix.mix(x, y, cutmix.draw(len(x), generator), num_classes=classes)
        return net(x), y

    return forward
