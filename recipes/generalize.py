"""What the recipes of LatentDR share: the arms, the training of one of them by `reglet.train.fit`, and its scores.

Runs that differ in `arm` alone begin with the same weights and see the same batches.  Adam without weight decay, if a
recipe does not say otherwise, cosine to zero.  The hyper-parameters of an arm are its paper's or DomainBed's and the
same in all recipes.  The learning rate is searched for each arm on validation, with as many trials; arms at half rate
have half of plain training's.  The network of the last step is scored.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from recipes.dose import Dose
from recipes.many import Many, SideBySide
from recipes.recipe import Printed, Scores
from reglet.backbones.protocol import dim_of
from reglet.blocks import SIM
from reglet.diagnostics import class_alignment, uniformity
from reglet.engine.feed import TensorFeed
from reglet.engine.settings import Settings
from reglet.latent import BatchFormer, Criterion, CrossEntropy, LatentDR
from reglet.latent.attention import Norm
from reglet.latent.latentdr import Degrade, Parts
from reglet.method import Batch, Method, innermost
from reglet.methods.domains import CORAL, IRM, Batches, Domains, OnDomains, OnUnion, VREx
from reglet.methods.mixed import AT_BLOCKS, Mixed, Mixing
from reglet.methods.regularized import Regularized
from reglet.probes import linear_probe
from reglet.runs import Run
from reglet.train import fit

BASE, PIXELS = "ERM", "raw pixels"
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
    blocks: list[str]  # for SIM and, besides the input, Manifold Mixup
    style: list[str]  # for MixStyle


class Setting(NamedTuple):
    """What an arm's loss is made for."""

    dim: int
    classes: int
    steps: int
    criterion: Criterion | None = None


@dataclass(frozen=True)
class Arm:
    """How a row of the table differs from plain training (ERM).  rate: times the learning rate."""

    loss: Callable[[Setting], OnUnion | OnDomains] = lambda s: OnUnion(CrossEntropy(criterion=s.criterion))
    mix: Mixing | None = None
    sim: float = 0.0  # its weight
    rate: float = 1.0


def irm(_: Setting) -> IRM:
    return IRM(weight=1.0)


def vrex(s: Setting) -> VREx:
    return VREx(weight=3.0, anneal=int(WARM * s.steps))


def latentdr(degrade: Degrade = "attention", *, parts: Parts = "D+R", norm: Norm = "post", rate: float = 1.0) -> Arm:
    return Arm(
        lambda s: OnUnion(LatentDR(s.dim, degrade=degrade, parts=parts, norm=norm, criterion=s.criterion)), rate=rate
    )


# IRM and VREx with the weights of the Transfer-Learning-Library: DomainBed's (100 and
# 10) are for a hundred times as many steps.  LatentDR's ablation (its table 2) is of the pooling model.
ARMS = {
    BASE: Arm(),
    "ERM, half rate": Arm(rate=0.5),
    "Mixup": Arm(mix="mixup"),
    "CutMix": Arm(mix="cutmix"),
    "Manifold Mixup": Arm(mix="manifold"),
    "MixStyle": Arm(mix="mixstyle"),
    "BatchFormer": Arm(lambda s: OnUnion(BatchFormer(s.dim, criterion=s.criterion))),
    "CORAL": Arm(lambda s: CORAL()),
    "IRM": Arm(irm),
    "VREx": Arm(vrex),
    "LatentDR SA": latentdr(),
    "LatentDR SA, half rate": latentdr(rate=0.5),
    "LatentDR Pool": latentdr("pool"),
    "LatentDR Pool, half rate": latentdr("pool", rate=0.5),
    "D only": latentdr("pool", parts="D"),
    "R only": latentdr("pool", parts="R"),
    "Gaussian": latentdr("gaussian"),
    "LatentDR pre": latentdr(norm="pre"),
    "LatentDR eq13": latentdr(norm="eq13"),
    "LatentDR eq13, half rate": latentdr(norm="eq13", rate=0.5),
    "ERM + SIM": Arm(sim=SIM_WEIGHT),
    "IRM + SIM": Arm(irm, sim=SIM_WEIGHT),
    "MixStyle + SIM": Arm(mix="mixstyle", sim=SIM_WEIGHT),
    "VREx + SIM": Arm(vrex, sim=SIM_WEIGHT),
    "ERM + SIM, weight 0.05": Arm(sim=10 * SIM_WEIGHT),
    "Pool, own classifier": Arm(
        lambda s: OnUnion(LatentDR(s.dim, degrade="pool", classifier=nn.Linear(s.dim, s.classes)))
    ),
}


def searched(names: Sequence[str], rates: Sequence[float]) -> dict[str, Any]:
    """The part of a recipe that says which rates are tried: for every arm but the half-rate ones, which take half of
    plain training's, and those with SIM, which take that of the arm without."""
    takes = {name: BASE if "half rate" in name else name.split(" + SIM")[0] for name in names}
    return {
        "grid": {name: [{"lr": lr} for lr in rates] for name in names if takes[name] == name},
        "choice_of": {name: other for name, other in takes.items() if name != other},
    }


def against_base(printed: Mapping[str, float], where: str, paper: str = "") -> list[Printed]:
    """The paper's differences from plain training."""
    return [
        Printed(f"{arm} against {BASE}", where, arm, BASE, round(score - printed[BASE], 2), paper=paper)
        for arm, score in printed.items()
        if arm != BASE and score != printed[BASE]
    ]


def train(
    run: Run,
    net: Network,
    data: Labelled,
    index: Int64[Tensor, " m"],
    *,
    criterion: Criterion | None = None,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    dose: Dose | None = None,
) -> Domains:
    """A classifier on the network, trained on the samples `index`."""
    order = Batches(data.domain[index], per_domain=run.settings["per_domain"], seed=run.seed)
    method = learner(run, net, data, index[order.indices(0)], domains=len(order.members), criterion=criterion)

    def batch(some: Tensor, generator: torch.Generator) -> Batch:
        x = data.x[index[some]]
        x = x if augment is None else augment(x, generator)
        return Batch([x], labels=data.y[index[some]])

    feed = TensorFeed(batch, order, name=run.fold or "samples", fingerprint=str(run.settings.get("data", "")))
    watch = [] if dose is None else [dose.begin(method, batch(order.indices(0), torch.Generator()))]
    _fit(run, method, feed, watch)
    return classifier(method)


def train_many(
    run: Run,
    nets: Sequence[Network],
    data: Labelled,
    indices: Sequence[Int64[Tensor, " m"]],
    seeds: Sequence[int],
    *,
    criterion: Criterion | None = None,
) -> list[Domains]:
    """A classifier for each of the seeds, trained side by side on the seed's samples; without an attachment."""
    per_domain = run.settings["per_domain"]
    orders = [Batches(data.domain[i], per_domain=per_domain, seed=s) for i, s in zip(indices, seeds, strict=True)]
    one_hot = torch.nn.functional.one_hot(data.y, data.classes).float()
    copies = [
        learner(replace(run, seed=s), net, data, i[order.indices(0)], domains=len(order.members), criterion=criterion)
        for s, net, i, order in zip(seeds, nets, indices, orders, strict=True)
    ]

    def batch(some: Tensor, generator: torch.Generator) -> Batch:
        taken = torch.stack([i[column] for i, column in zip(indices, some.unbind(1), strict=True)], 1)
        return Batch([data.x[taken]], labels=one_hot[taken])  # `vmap` has no scatter

    many = Many(copies)
    _fit(
        run,
        many,
        TensorFeed(
            batch, SideBySide(orders), name=run.fold or "samples", fingerprint=str(run.settings.get("data", ""))
        ),
    )
    return [classifier(copy) for copy in many.apart()]


def learner(
    run: Run,
    net: Network,
    data: Labelled,
    first: Int64[Tensor, " b"],
    *,
    domains: int,
    criterion: Criterion | None = None,
) -> Method:
    """What an arm trains.  first: the samples of the first batch, of every domain, as domain losses need."""
    s, arm = run.settings, ARMS[run.arm]
    torch.manual_seed(run.seed)
    loss = arm.loss(Setting(dim_of(net.body), data.classes, s["steps"], criterion))
    method: Method = Domains(net.body, loss, classes=data.classes, interleaved=domains)
    if arm.mix:
        blocks = net.style if arm.mix == "mixstyle" else net.blocks
        method = Mixed(method, arm.mix, classes=data.classes, blocks=blocks if arm.mix in AT_BLOCKS else ())
    if arm.sim:
        where = [f"backbone.{block}" for block in net.blocks]
        example = Batch([data.x[first]], labels=data.y[first])
        method = Regularized(method, where, SIM(dim="sqrt", seed=run.seed), weight=arm.sim, example=example)
    return method


def classifier(method: Method) -> Domains:
    """What an arm trained, without what was added for training."""
    if isinstance(method, Regularized):
        method.remove()
    found = innermost(method)
    assert isinstance(found, Domains)
    return found


def _fit(run: Run, method: Method, feed: TensorFeed, watch: Sequence[Dose] = ()) -> None:
    """Trained, with nothing shown and nothing left on disk."""
    s = run.settings
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            out=f"{folder}/run",
            steps=s["steps"],
            batch=feed.order.batch,
            optimizer=s.get("optimizer", "adam"),
            lr=ARMS[run.arm].rate * s["lr"],
            weight_decay=s.get("weight_decay", 0.0),
            warmup=0.0,
            seed=run.seed,
            accelerator="cpu",
            save_every=10**9,
            log_every=10**9,
        )
        if not fit(method, feed, settings, watch=list(watch), shown=False).finished:
            raise KeyboardInterrupt


def probe_pixels(data: Labelled, known: Int64[Tensor, " m"], test: Labelled, index: Int64[Tensor, " k"]) -> Scores:
    """The simplest alternative: a linear probe of what the network would see."""
    parts = data.x[known].flatten(1), data.y[known], test.x[index].flatten(1), test.y[index]
    return {"test": 100 * linear_probe(*parts).accuracy}


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
def see(trained: Domains, data: Labelled, index: Int64[Tensor, " m"]) -> Seen:
    trained.eval()
    z = torch.cat([trained.encode(data.x[some]) for some in index.split(250)])
    return Seen(z, trained.head(z), data.y[index])


def scores(test: Seen, validation: Sequence[Seen]) -> Scores:
    """Accuracies in per cent; validation averaged over its parts.  Alignment and uniformity of the test latents, both
    better lower."""
    return {
        "test": test.accuracy,
        "validation": sum(v.accuracy for v in validation) / len(validation),
        "alignment": class_alignment(test.z, test.y),
        "uniformity": uniformity(test.z),
    }
