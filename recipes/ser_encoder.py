"""The small conv net that the recipes on equivariance share: its training, its scores, its tables.

16 px views cut out of the images by SMI's CIFAR policy (crops of a fifth of the image and more; MoCo-v3's own, down to
a twelfth, leaves a few pixels), a conv net 32-64-128 whose three stages have maps of 16, 8 and 4 px; AdamW with warm-up
and cosine.  (A ViT of six blocks, which these recipes had before, was below raw pixels after five epochs.)  SER has a
share r = 0.125 of the batch, 16 of 128 images, where the paper has 0.01 of 256 on each of 8 ranks, and stands after the
second stage; lambda is such that it has a fifth of the gradient, tau is the paper's.  Probes see the mean of the last
map.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from recipes.encoder import Data, known, load_parts, quietly, scores
from recipes.recipe import DATA, Printed, Recipe, Scores
from reglet import views
from reglet.backbones import ConvNet, projector
from reglet.data import Images, Part
from reglet.diagnostics import equivariance, layer_maps, predict_flip, predict_rotation
from reglet.diagnostics.equivariance import standard_transforms
from reglet.diagnostics.robustness import robustness, stability
from reglet.engine.feed import ViewPolicy
from reglet.export import preprocessing
from reglet.groups import Symmetry
from reglet.losses import BarlowTwinsLoss, SMILoss, VISRegLoss
from reglet.losses.base import OnViews
from reglet.method import Method, innermost
from reglet.methods import JointEmbedding, MoCoV3, normed_mlp
from reglet.methods.augself import AugSelf
from reglet.methods.equimod import EquiMod
from reglet.methods.equivariant import Equivariant
from reglet.methods.equivariant_views import AlignedViews
from reglet.probes import linear_probe
from reglet.probes.linear import logistic_regression
from reglet.probes.standard import Standard
from reglet.runs import Run

STRIDE, STAGES = 4, 3
MAPS = (2, STAGES)  # the stages whose maps are measured
PROBED = 3000  # training images that the linear probe is fitted to
LOSSES: dict[str, OnViews] = {  # with the weights that recipes/ssl_losses.py found
    "Barlow Twins": BarlowTwinsLoss(weight=0.08),
    "VISReg": VISRegLoss(lam=0.3, slices=256),
    "SMI": SMILoss(weight=0.1),
}


@dataclass(frozen=True)
class Arm:
    """Settings of a run.  Runs of one seed start from the same weights and see the same images in the same order, crops
    and colours; of SER's share of the batch both views have one crop."""

    epochs: int = 3
    batch: int = 128
    lr: float = 2e-3
    images: int = 3000  # of the training part; 0: all
    base: str = "Barlow Twins"
    wrapper: str = ""  # ser, augself, equimod, or none
    layer: int = 2  # a stage; 0: the backbone's features
    weight: str = "share:0.2"  # lambda, or the share of the gradient that it shall have
    grad_mode: str = "full"
    turns: bool = True
    flips: bool = True
    scales: bool = True
    share: float = 0.125
    size: int = 16
    width: int = 32
    corrupted: int = 0  # test images to corrupt and perturb
    frames: int = 6  # of a perturbation


def settings(**changes: Any) -> dict[str, Any]:
    """All of them, so that a changed default is another run."""
    return {f.name: changes.get(f.name, f.default) for f in fields(Arm)}


def arm_of(run: Run) -> Arm:
    return Arm(**{f.name: run.settings[f.name] for f in fields(Arm)})


def network(arm: Arm) -> ConvNet:
    return ConvNet(widths=(arm.width, 2 * arm.width, 4 * arm.width))


def stage(layer: int) -> str:
    return f"stages.{layer - 1}"


def method(arm: Arm, *, seed: int) -> Method:
    """The network is made first, then the base's heads, then the wrapper's: arms of a seed start alike."""
    torch.manual_seed(seed)
    net = network(arm)
    if arm.base == "MoCo-v3":
        head = normed_mlp(net.dim, widths=(256, 128))
        base: Method = MoCoV3(net, projector=head, predictor=normed_mlp(128, widths=(256, 128)))
    else:
        base = JointEmbedding(net, LOSSES[arm.base], projector=projector(net.dim, widths=(512, 512, 128)))
    layer, example = stage(arm.layer) if arm.layer else None, torch.zeros(2, 3, arm.size, arm.size)
    if arm.wrapper == "ser":
        area = (0.7, 1.3) if arm.scales else None
        return Equivariant(
            base,
            layer=stage(arm.layer),
            fraction=arm.share,
            weight=arm.weight,
            group=Symmetry(turns=arm.turns, flips=arm.flips, area=area),
            grad_mode="released" if arm.grad_mode == "released" else "full",
            width=128,
            patch=STRIDE,
            example=example,
        )
    if arm.wrapper == "augself":
        return AugSelf(base, crop=0.5, color=0.5, layer=layer, hidden=128, example=example)
    if arm.wrapper == "equimod":
        return EquiMod(base, weight=arm.weight, layer=layer, width=64, example=example)
    return base


def policy(arm: Arm) -> ViewPolicy:
    two = views.policy("smi", size=arm.size)
    if arm.wrapper == "ser":
        return AlignedViews(two, fraction=arm.share)
    if arm.wrapper == "equimod":
        return views.Policy((*two.views, *views.policy("plain", size=arm.size).views), n_global=2)
    return two


def pretrain(run: Run, images: Images) -> ConvNet:
    arm = arm_of(run)
    learner = method(arm, seed=run.seed)
    quietly(learner, images, policy(arm), run)
    backbone = innermost(learner).get_submodule("backbone")
    assert isinstance(backbone, ConvNet)
    return backbone


def compute(run: Run, data: Data) -> Scores:
    """Train and measure.  Without epochs: the weights as they start."""
    arm = arm_of(run)
    train = some(data.train, PROBED)
    if run.arm == "raw pixels":
        x, x_test = (pixels(part, arm.size).flatten(1) for part in (train, data.test))
        return scores(x, known(train), x_test, known(data.test))
    torch.manual_seed(run.seed)
    net = pretrain(run, some(data.train, arm.images or len(data.train))) if arm.epochs else network(arm)
    x, x_test = (features(net, pixels(part, arm.size)) for part in (train, data.test))
    found = scores(x, known(train), x_test, known(data.test))
    found |= symmetry(net, pixels(some(data.test, 300), arm.size))
    return found | (robust(net, arm, data) if arm.corrupted else {})


def robust(net: ConvNet, arm: Arm, data: Data) -> Scores:
    """A linear probe on clean features meets test images, corrupted and along sequences."""
    train, test, prepare = some(data.train, PROBED), some(data.test, arm.corrupted), preprocessing(arm.size)
    x = features(net, pixels(train, arm.size))
    standard = Standard(x)
    weight, bias = logistic_regression(x, known(train), strength=1e-2, standard=standard)

    def predict(pictures: Tensor) -> Tensor:
        seen = features(net, prepare((pictures * 255).round().to(torch.uint8)))
        return F.linear(standard(seen).double(), weight, bias)

    pictures, truth = test.batch(torch.arange(len(test))), known(test)
    corrupted = robustness(predict, pictures, truth, severities=(1, 3, 5))
    moved = stability(predict, pictures, truth, frames=arm.frames)
    return {
        "clean": 100 * corrupted.clean,
        "corrupted": 100 * corrupted.mean,
        "perturbed": 100 * mean(moved.accuracy.values()),
        "flip rate": 100 * moved.mean_flip_rate,
    }


def some(images: Images, n: int) -> Images:
    """At most n of them, the same in every run."""
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:n]
    return Part(images, chosen, name=f"some-{n}")


def pixels(images: Images, size: int) -> Float[Tensor, "n 3 h w"]:
    return preprocessing(size)(images.batch(torch.arange(len(images))))


@torch.no_grad()
def features(net: ConvNet, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
    net.eval()
    return torch.cat([net(part) for part in x.split(500)])


def symmetry(net: ConvNet, x: Float[Tensor, "n 3 h w"]) -> Scores:
    """Equivariance of the maps of two stages (centred cosines), and what a linear probe reads of turns and flips.

    The probe sees the means over the four quadrants of a map: the mean over all places of an equivariant map would not
    change at all when its image is turned.
    """
    maps = layer_maps(net, [stage(layer) for layer in MAPS])
    kinds = {"rot": ("rot90", "rot180", "rot270"), "flip": ("flip",), "scale": ("smaller", "larger")}
    transforms = {k: g for k, g in standard_transforms(multiple=STRIDE).items() if k != "shift"}
    by_layer = equivariance(maps, x, transforms=transforms)
    found: Scores = {}
    for kind, names in kinds.items():
        for layer, at in zip(MAPS, by_layer.values(), strict=True):
            found[f"{kind} {layer}"] = mean(at[name].centred for name in names)
            found[f"{kind} {layer}, shuffled"] = mean(at[name].centred_floor for name in names)

    def quadrants(images: Tensor) -> dict[str, Tensor]:
        return {name: nn.functional.adaptive_avg_pool2d(y, 2).flatten(1) for name, y in maps(images).items()}

    def accuracy(*parts: Tensor) -> float:
        return 100 * linear_probe(*parts, strengths=(1e-2,)).accuracy

    for kind, predicted in (("turn", predict_rotation), ("flip", predict_flip)):
        read = predicted(quadrants, x, score=accuracy).values()
        found |= {f"{kind} probe {layer}": value for layer, value in zip(MAPS, read, strict=True)}
    return found


MEASURES = (
    "linear",
    "knn",
    *(f"{kind} {layer}" for layer in MAPS for kind in ("rot", "flip", "scale", "turn probe", "flip probe")),
)


def recipe(
    name: str,
    arms: Mapping[str, Mapping[str, Any]],
    versus: Mapping[str, str],
    printed: Sequence[Printed],
    *,
    baseline: str,
    measures: Sequence[str] = (),
    fewer: Mapping[str, int] | None = None,
    seeds: int = 5,
    **changes: Any,
) -> Recipe[Data]:
    """What the recipes of SER share.  baseline: the arm that has to be above raw pixels."""
    own = settings(**changes)
    return Recipe(
        name=name,
        paper="SER",
        compute=compute,
        load=load_parts,
        data=DATA / "cifar10_12k.npz",
        settings=own,
        arms={**arms, "raw pixels": {}},
        base=versus,
        measures=(*MEASURES, *measures),
        once=("raw pixels",),
        fewer=fewer or {},
        seeds=seeds,
        printed=printed,
        baseline=baseline,
        reference="raw pixels",
        length="epochs",
        share=own["epochs"] * own["images"] / (100 * 1_281_167),
    )
