"""Domain losses by name."""

from collections.abc import Callable
from typing import NamedTuple

from reglet.latent import BatchFormer, CrossEntropy, LatentDR, NoisyLatents
from reglet.methods.domains import CORAL, ERM, IRM, MMD, GroupDRO, OnDomains, OnUnion, VREx


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
NAMES = tuple(LOSSES)


def make_loss(name: str, size: Size) -> OnDomains | OnUnion:
    return LOSSES[name](size)
