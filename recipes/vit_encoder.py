"""The small vision transformer that the recipes on equivariance share: its training, its scores, its tables.

16 px views cut out of the images by SMI's CIFAR policy (crops of a fifth of the image and more; MoCo-v3's own, down to
a twelfth, leaves a few pixels), patches of 4 px, so 4 x 4 tokens, 64 wide and 6 deep, [CLS] before the fourth block;
AdamW with warm-up and cosine.  SER has a share r = 0.125 of the batch, 16 of 128 images, where the paper has 0.01 of
256 on each of 8 ranks; lambda, tau and layer are the paper's.  Scores are those of [CLS] after the last three blocks.
"""

import argparse
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from recipes import arms
from recipes.arms import Result
from recipes.encoder import Data, known, quietly, scores
from recipes.encoder import load_parts as load_arrays
from reglet import views
from reglet.backbones import ViT, projector
from reglet.data import Images, InMemory, Part
from reglet.diagnostics import equivariance, layer_maps, predict_flip, predict_rotation
from reglet.diagnostics.equivariance import standard_transforms
from reglet.engine.feed import Policy
from reglet.export import preprocessing
from reglet.groups import Symmetry
from reglet.losses import BarlowTwinsLoss, SMILoss, VISRegLoss
from reglet.losses.base import OnViews
from reglet.method import Method
from reglet.methods import JointEmbedding, MoCoV3, normed_mlp
from reglet.methods.augself import AugSelf
from reglet.methods.class_tokens import class_tokens
from reglet.methods.equimod import EquiMod
from reglet.methods.equivariant import Equivariant
from reglet.methods.equivariant_views import AlignedViews
from reglet.probes import linear_probe

PATCH, DEPTH, LAST = 4, 6, 3
PROBED = 3000  # training images that the linear probe is fitted to
LOSSES: dict[str, OnViews] = {  # with the weights that recipes/ssl_losses.py found
    "Barlow Twins": BarlowTwinsLoss(weight=0.08),
    "VISReg": VISRegLoss(lam=0.3, slices=256),
    "SMI": SMILoss(weight=0.1),
}


@dataclass(frozen=True)
class Pretraining(arms.Run):
    """Runs of one seed start from the same weights and see the same images in the same order, crops and colours; of
    SER's share of the batch both views have one crop."""

    arm: str  # its name in the table
    seed: int
    epochs: int
    data: str  # digest of the images
    images: int = 0  # of the training part; 0: all
    base: str = "Barlow Twins"
    wrapper: str = ""  # ser, augself, equimod, or none
    layer: int = 3  # 0: the backbone's features
    weight: float = 0.5
    grad_mode: str = "full"
    turns: bool = True
    flips: bool = True
    scales: bool = True
    cls_layer: int = 3
    share: float = 0.125
    lr: float = 2e-3
    batch: int = 128
    size: int = 16
    dim: int = 64

    @property
    def name(self) -> str:
        return f"{self.base}, {self.arm}, seed {self.seed}"


def load(path: Path) -> Data:
    """Images as arrays, or as JPEG files one after the other."""
    with np.load(path) as archive:
        if "jpeg" not in archive.files:
            return load_arrays(path)
        files, offsets, labels, split = (archive[key] for key in ("jpeg", "offsets", "labels", "split"))
    images = torch.stack([_decoded(files[a:b].tobytes()) for a, b in pairwise(offsets)])
    parts = [torch.from_numpy(np.flatnonzero(split == i)) for i in (0, 1)]
    y = torch.from_numpy(labels.astype(np.int64))
    train, test = (InMemory(images[p], labels=y[p], name=f"{path.stem}/{i}") for i, p in enumerate(parts))
    return Data(train, test)


def _decoded(jpeg: bytes) -> Tensor:
    from PIL import Image

    return torch.from_numpy(np.array(Image.open(io.BytesIO(jpeg)).convert("RGB"))).permute(2, 0, 1)


def network(run: Pretraining) -> ViT:
    return ViT(dim=run.dim, depth=DEPTH, heads=run.dim // 32, size=run.size, patch=PATCH, cls_layer=run.cls_layer)


def method(run: Pretraining) -> Method:
    """The network is made first, then the base's heads, then the wrapper's: arms of a seed start alike."""
    torch.manual_seed(run.seed)
    net = network(run)
    if run.base == "MoCo-v3":
        head = normed_mlp(run.dim, widths=(256, 128))
        base: Method = MoCoV3(net, projector=head, predictor=normed_mlp(128, widths=(256, 128)))
    else:
        base = JointEmbedding(net, LOSSES[run.base], projector=projector(run.dim, widths=(512, 512, 128)))
    layer = run.layer or None
    if run.wrapper == "ser":
        area = (0.7, 1.3) if run.scales else None
        group = Symmetry(turns=run.turns, flips=run.flips, area=area)
        return Equivariant(
            base,
            layer=run.layer,
            share=run.share,
            weight=run.weight,
            group=group,
            grad_mode="released" if run.grad_mode == "released" else "full",
            width=128,
        )
    if run.wrapper == "augself":
        return AugSelf(base, crop=run.weight, color=run.weight, layer=layer, hidden=128)
    if run.wrapper == "equimod":
        return EquiMod(base, weight=run.weight, layer=layer, width=64)
    return base


def policy(run: Pretraining) -> Policy:
    two = views.policy("smi", size=run.size)
    if run.wrapper == "ser":
        return AlignedViews(two, share=run.share)
    if run.wrapper == "equimod":
        return views.Policy((*two.views, *views.policy("plain", size=run.size).views), n_global=2)
    return two


def pretrain(run: Pretraining, images: Images) -> ViT:
    learner = method(run)
    quietly(learner, images, policy(run), run)
    backbone = learner.get_submodule("backbone") if not run.wrapper else learner.backbone
    assert isinstance(backbone, ViT)
    return backbone


def compute(run: Pretraining, data: Data, *, folder: Path | None = None) -> Result:
    """Train, keep the weights in `folder`, and measure.  Without epochs: the weights as they start."""
    torch.manual_seed(run.seed)
    net = pretrain(run, some(data.train, run.images or len(data.train))) if run.epochs else network(run)
    if folder is not None:
        save_file({k: v.contiguous() for k, v in net.state_dict().items()}, folder / f"{run.key}.safetensors")
    train = some(data.train, PROBED)
    x, x_test = (features(net, pixels(part, run.size)) for part in (train, data.test))
    found = scores(x, known(train), x_test, known(data.test))
    return found | symmetry(net, pixels(some(data.test, 300), run.size))


def some(images: Images, n: int) -> Images:
    """At most n of them, the same in every run."""
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:n]
    return Part(images, chosen, name=f"some-{n}")


def trained(run: Pretraining, folder: Path) -> ViT:
    net = network(run)
    net.load_state_dict(load_file(folder / f"{run.key}.safetensors"))
    return net.eval()


def pixels(images: Images, size: int) -> Float[Tensor, "n 3 h w"]:
    return preprocessing(size)(images.batch(torch.arange(len(images))))


@torch.no_grad()
def features(net: ViT, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
    net.eval()
    return torch.cat([class_tokens(net, part, layers=LAST) for part in x.split(500)])


def symmetry(net: ViT, x: Float[Tensor, "n 3 h w"]) -> Result:
    """Equivariance of every block's map, and what a linear probe reads of turns and flips at layers 3 and 6.

    The probe sees the means over the four quadrants of a map: the mean over all places of an equivariant map would not
    change at all when its image is turned.
    """
    maps = layer_maps(net, "blocks.*", patch=PATCH)
    probed = layer_maps(net, ["blocks.2", "blocks.5"], patch=PATCH)
    kinds = {"rot": ("rot90", "rot180", "rot270"), "flip": ("flip",), "scale": ("smaller", "larger")}
    transforms = {k: g for k, g in standard_transforms(multiple=PATCH).items() if k != "shift"}
    by_layer = equivariance(maps, x, transforms=transforms)
    score = {
        measure: {
            kind: [mean(getattr(layer[name], measure) for name in names) for layer in by_layer.values()]
            for kind, names in kinds.items()
        }
        for measure in ("raw", "centred", "centred_floor")
    }

    def quadrants(images: Tensor) -> dict[str, Tensor]:
        return {name: nn.functional.adaptive_avg_pool2d(y, 2).flatten(1) for name, y in probed(images).items()}

    def accuracy(*parts: Tensor) -> float:
        return 100 * linear_probe(*parts, strengths=(1e-2,)).accuracy

    return {
        "equivariance": score,
        "turn probe": list(predict_rotation(quadrants, x, score=accuracy).values()),
        "flip probe": list(predict_flip(quadrants, x, score=accuracy).values()),
    }


def measures(result: Result) -> dict[str, float]:
    """What tables show: accuracies in per cent, and centred cosines and probes at layers 3 and 6."""
    found: dict[str, float] = {"linear": result["linear"], "20-NN": result["knn"]}
    for i, layer in enumerate((3, DEPTH)):
        found |= {f"{kind} {layer}": v[layer - 1] for kind, v in result["equivariance"]["centred"].items()}
        found |= {f"{kind} probe {layer}": result[f"{kind} probe"][i] for kind in ("turn", "flip")}
    return found


def arguments(name: str, says: str, *, epochs: int, batch: int = 128, images: int = 0) -> argparse.ArgumentParser:
    parser = arms.arguments(name, says, seeds=3)
    parser.add_argument("--base", default="Barlow Twins", help="or MoCo-v3, VISReg, SMI")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--images", type=int, default=images, help="of the training part; 0: all")
    return parser


def table(
    changes: Mapping[str, Mapping[str, Any]],
    reference: Mapping[str, str],
    options: argparse.Namespace,
    console: Console,
) -> None:
    """Train the arms of every seed, and compare each with another one of its seed.

    changes: arm -> what differs from the plain base.  reference: arm -> the arm that it is compared with.
    """
    digest = arms.require_data(options.data)
    first = Pretraining("", 0, options.epochs, digest, images=options.images, base=options.base, batch=options.batch)
    runs = [
        replace(first, arm=arm, seed=seed, **fields) for seed in range(options.seeds) for arm, fields in changes.items()
    ]
    runs.sort(key=lambda run: (run.epochs == 0, run.grad_mode == "released"))  # last what is least in doubt
    work = partial(compute, folder=options.out)
    results = arms.execute(runs, work, load=load, options=options, console=console, shown="linear")
    rows = summarise(results, reference)
    arms.report(options.out, results, rows, markdown(rows))


def summarise(results: Sequence[Result], reference: Mapping[str, str]) -> list[Result]:
    """A row per base and arm: the interval of each measure and, paired by seed, of its difference from another arm.

    reference: arm -> the arm that it is compared with.
    """
    cells: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for result in results:
        run = result["run"]
        cells.setdefault((run["base"], run["arm"]), {})[run["seed"]] = measures(result)
    rows = []
    for (base, arm), seeds in cells.items():
        row: Result = {"base": base, "arm": arm, "seeds": len(seeds), "versus": reference.get(arm), "difference": {}}
        names = next(iter(seeds.values()))
        row["mean"] = {m: arms.interval([v[m] for v in seeds.values()]) for m in names}
        if other := cells.get((base, reference.get(arm, ""))):
            row["difference"] = {
                m: arms.paired(*({seed: v[m] for seed, v in side.items()} for side in (seeds, other))) for m in names
            }
        rows.append(row)
    return rows


def markdown(rows: Sequence[Result]) -> str:
    names = list(rows[0]["mean"])
    lines = ["| base | arm | versus | " + " | ".join(names) + " |", "|" + "---|" * (3 + len(names))]
    for row in rows:
        cells = []
        for name in names:
            digits = 3 if name.split()[0] in ("rot", "flip", "scale") and "probe" not in name else 2
            cell = f"{row['mean'][name][0]:.{digits}f}"
            if name in row["difference"]:
                cell += " ({:+.{d}f} ± {:.{d}f})".format(*row["difference"][name], d=digits)
            cells.append(cell)
        lines.append(f"| {row['base']} | {row['arm']} | {row['versus'] or '-'} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
