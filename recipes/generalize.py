"""What the LatentDR recipes share: the arms, the training of one of them, and its scores.

Runs that differ in `arm` alone begin with the same weights and see the same batches.  Adam without weight decay, cosine
to zero.  The hyper-parameters of an arm are its paper's or DomainBed's and the same in all recipes; the learning rate
is that of plain training (see recipes/contest.py), times `rate` of the arm.  The network of the last step is scored.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from recipes.arms import Result, Run
from reglet.attach import alter, attach
from reglet.blocks import SIM
from reglet.diagnostics import class_alignment, uniformity
from reglet.latent import BatchFormer, Criterion, CrossEntropy, CutMix, LatentDR, ManifoldMixup, MixStyle, Mixup
from reglet.latent.latentdr import Degrade, Parts
from reglet.latent.layer import Norm
from reglet.methods.domains import CORAL, IRM, Batches, OnDomains, OnUnion, VREx
from reglet.methods.domains.annealed import Annealed

SIM_WEIGHT = 5e-3
WARM = 0.1  # of the steps, before VREx has its full weight: 500 of 5,000 in DomainBed


class Labelled(NamedTuple):
    x: Float[Tensor, "n ..."]
    y: Int64[Tensor, " n"]
    domain: Int64[Tensor, " n"]
    classes: int


class Network(NamedTuple):
    """x -> latents, and where its blocks are."""

    body: nn.Module
    dim: int
    blocks: list[str]  # for SIM and, besides the input, Manifold Mixup
    style: list[str]  # for MixStyle


class Setting(NamedTuple):
    """What an arm's loss is made for."""

    dim: int
    steps: int
    criterion: Criterion | None = None


@dataclass(frozen=True)
class Training(Run):
    arm: str
    case: str  # the domain left out, or the data set
    seed: int
    lr: float  # of plain training
    steps: int
    per_domain: int
    data: str  # digest

    @property
    def name(self) -> str:
        return f"{self.arm}, {self.case}, lr {self.lr:g}, batch {self.per_domain} a domain, seed {self.seed}"


@dataclass(frozen=True)
class Arm:
    """How a row of the table differs from plain training (ERM)."""

    loss: Callable[[Setting], OnUnion | OnDomains] = lambda s: OnUnion(CrossEntropy(criterion=s.criterion))
    mix: Literal["", "mixup", "cutmix", "manifold"] = ""
    style: bool = False
    sim: bool = False
    rate: float = 1.0  # times the learning rate
    times: float = 1.0  # times the loss


def irm(_: Setting) -> IRM:
    return IRM(weight=1.0)


def vrex(s: Setting) -> VREx:
    return VREx(weight=3.0, anneal=int(WARM * s.steps))


def latentdr(degrade: Degrade = "attention", *, parts: Parts = "D+R", norm: Norm = "post", rate: float = 0.5) -> Arm:
    """At half the rate, as in the paper."""
    return Arm(
        lambda s: OnUnion(LatentDR(s.dim, degrade=degrade, parts=parts, norm=norm, criterion=s.criterion)), rate=rate
    )


# IRM and VREx with the weights of the Transfer-Learning-Library: DomainBed's (100 and
# 10) are for a hundred times as many steps.  LatentDR's ablation (its table 2) is of the pooling model.
ARMS = {
    "ERM": Arm(),
    "ERM, half rate": Arm(rate=0.5),
    "ERM, 3 x loss": Arm(times=3),
    "Mixup": Arm(mix="mixup"),
    "CutMix": Arm(mix="cutmix"),
    "Manifold Mixup": Arm(mix="manifold"),
    "MixStyle": Arm(style=True),
    "BatchFormer": Arm(lambda s: OnUnion(BatchFormer(s.dim, criterion=s.criterion))),
    "CORAL": Arm(lambda s: CORAL()),
    "IRM": Arm(irm),
    "VREx": Arm(vrex),
    "LatentDR SA": latentdr(),
    "LatentDR SA, full rate": latentdr(rate=1.0),
    "LatentDR Pool": latentdr("pool"),
    "D only": latentdr("pool", parts="D"),
    "R only": latentdr("pool", parts="R"),
    "Gaussian": latentdr("gaussian"),
    "LatentDR pre": latentdr(norm="pre"),
    "LatentDR eq13": latentdr(norm="eq13"),
    "ERM + SIM": Arm(sim=True),
    "IRM + SIM": Arm(irm, sim=True),
    "MixStyle + SIM": Arm(style=True, sim=True),
    "VREx + SIM": Arm(vrex, sim=True),
}


def fit(
    run: Training,
    net: Network,
    data: Labelled,
    index: Int64[Tensor, " m"],
    *,
    criterion: Criterion | None = None,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
) -> nn.Linear:
    """Trains the network in place on the samples `index`, and gives its classifier."""
    arm = ARMS[run.arm]
    views, draws = (torch.Generator().manual_seed(1000 * run.seed + i) for i in range(2))
    torch.manual_seed(run.seed)
    head = nn.Linear(net.dim, data.classes)
    loss = arm.loss(Setting(net.dim, run.steps, criterion))
    net.body.train()
    sim = attach(net.body, net.blocks, SIM(seed=run.seed), example=data.x[index[:4]]) if arm.sim else None
    style = alter(net.body, net.style, MixStyle()) if arm.style else None
    forward = mixing(arm, net, data.classes, draws)
    trained = [*net.body.parameters(), *head.parameters(), *loss.parameters(), *(sim.parameters() if sim else ())]
    optimizer = torch.optim.Adam(trained)
    batches = Batches(data.domain[index], per_domain=run.per_domain, seed=run.seed)
    domains = len(batches.members)
    for step in range(run.steps):
        for group in optimizer.param_groups:
            group["lr"] = arm.rate * run.lr * (1 + math.cos(math.pi * step / run.steps)) / 2
        some = index[batches.indices(step)]
        x = data.x[some] if augment is None else augment(data.x[some], views)
        z, y = forward(x, data.y[some])
        value = arm.times * loss([z[e::domains] for e in range(domains)], [y[e::domains] for e in range(domains)], head)
        if sim is not None:
            value = value + SIM_WEIGHT * sim.loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        loss.after_step(step + 1)
        if isinstance(loss, Annealed) and step + 1 == loss.anneal:
            optimizer = torch.optim.Adam(trained)  # as DomainBed: its moments were those of another loss
    for attached in (sim, style):
        if attached is not None:
            attached.remove()
    return head


def mixing(
    arm: Arm, net: Network, classes: int, generator: torch.Generator
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Latents and labels of a batch, mixed as the arm says."""
    mixup, cutmix = Mixup(alpha=0.2), CutMix()
    manifold = ManifoldMixup(net.body, net.blocks) if arm.mix == "manifold" else None

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if manifold is not None:
            p = manifold.draw(len(x), generator)
            return manifold(x, p), manifold.labels(y, p, num_classes=classes)
        if arm.mix == "mixup":
            x, y = mixup.mix(x, y, mixup.draw(len(x), generator), num_classes=classes)
        elif arm.mix == "cutmix":
            x, y = cutmix.mix(x, y, cutmix.draw(len(x), generator), num_classes=classes)
        return net.body(x), y

    return forward


class Seen(NamedTuple):
    """What a trained network makes of some samples."""

    z: Float[Tensor, "n d"]
    logits: Float[Tensor, "n k"]
    y: Int64[Tensor, " n"]

    @property
    def hits(self) -> Tensor:
        return self.logits.argmax(1) == self.y

    @property
    def accuracy(self) -> float:
        """In per cent."""
        return 100 * self.hits.double().mean().item()


@torch.no_grad()
def see(net: Network, head: nn.Linear, data: Labelled, index: Int64[Tensor, " m"]) -> Seen:
    net.body.eval()
    z = torch.cat([net.body(data.x[some]) for some in index.split(250)])
    return Seen(z, head(z), data.y[index])


def scores(test: Seen, validation: Sequence[Seen]) -> Result:
    """Accuracies in per cent; validation averaged over its parts.  Alignment and uniformity of the test latents, both
    better lower."""
    return {
        "test": test.accuracy,
        "validation": sum(v.accuracy for v in validation) / len(validation),
        "alignment": class_alignment(test.z, test.y),
        "uniformity": uniformity(test.z),
    }
