"""Retinal vessels: does self identity mapping help a U-Net with three heads, at home and on another camera's images?

Paper     Cai et al., Self Identity Mapping, table 7
Command   python -m recipes.retina_vessels --data ../shared/data/retina_vessel256.npz
Machine   not run yet
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

from rich.console import Console

from recipes import arms
from recipes.arms import Result, paired
from reglet.tasks.segmentation import TASK
from reglet.tasks.segmentation.config import SegmentationConfig
from reglet.tasks.segmentation.data import Raw, prepare
from reglet.tasks.segmentation.read import read_npz

DATA = arms.DATA.with_name("retina_vessel256.npz")
MODELS = ("fcn", "psp", "deeplabv3")
THRESHOLD = 127  # of a pixel's coverage by vessel
SHOWN = ("dice", "iou", "auroc")


@dataclass(frozen=True)
class Run(arms.Run):
    """Runs that differ in `sim` only are paired."""

    model: str
    trained_on: str
    seed: int
    sim: bool
    data: str  # digest of the images
    steps: int
    batch: int = 4
    crop: int = 64
    width: int = 8
    stages: int = 3
    lr: float = 1e-2
    weight: float = 5e-3
    rho: float = 0.2

    @property
    def name(self) -> str:
        return f"{self.model} on {self.trained_on}, seed {self.seed}" + (" + SIM" if self.sim else "")


def train(run: Run, raw: Raw) -> Result:
    """Scores in per cent."""
    config = SegmentationConfig(
        model=run.model,
        train_on=run.trained_on,
        threshold=THRESHOLD,
        sim="auto",
        steps=run.steps,
        batch=run.batch,
        crop=run.crop,
        width=run.width,
        stages=run.stages,
        lr=run.lr,
        weight=run.weight,
        rho=run.rho,
    )
    data = prepare(raw, threshold=THRESHOLD, crop=run.crop, train_on=run.trained_on)
    scores = TASK.train(config, data, seed=run.seed, sim=run.sim).scores
    return {name: 100 * value for name, value in scores.items()}


def plan(options: argparse.Namespace, digest: str, domains: Sequence[str]) -> list[Run]:
    """Both arms of a seed before the next one."""
    first = Run("", "", 0, False, digest, steps=options.steps, crop=options.crop, width=options.width)
    return [
        replace(first, model=model, trained_on=domain, seed=seed, sim=sim)
        for seed in range(options.seeds)
        for domain in domains
        for model in MODELS
        for sim in (False, True)
    ]


def summarise(results: Sequence[Result], domains: Sequence[str]) -> list[Result]:
    """A row for each head, training set and test set: means without SIM, and what SIM changed."""
    rows = []
    for trained_on in domains:
        for tested_on in domains:
            for model in MODELS:
                mine = [r for r in results if (r["run"]["model"], r["run"]["trained_on"]) == (model, trained_on)]
                row: Result = {"model": model, "trained_on": trained_on, "tested_on": tested_on}
                for score in SHOWN:
                    without, with_sim = (
                        {r["run"]["seed"]: r[f"{score} {tested_on}"] for r in mine if r["run"]["sim"] == sim}
                        for sim in (False, True)
                    )
                    row[score] = {"without": mean(without.values()), "difference": paired(with_sim, without)}
                rows.append(row)
    return rows


def markdown(rows: Sequence[Result]) -> str:
    lines = ["| trained on | tested on | head | Dice | IoU | AUROC |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = []
        for score in SHOWN:
            difference, half = row[score]["difference"]
            cells.append(f"{row[score]['without']:.2f} ({difference:+.2f} ± {half:.2f})")
        lines.append(f"| {row['trained_on']} | {row['tested_on']} | {row['model']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def recipe(options: argparse.Namespace, console: Console) -> None:
    digest = arms.require_data(options.data)
    domains = sorted(set(read_npz(options.data).domain or ()))
    if len(domains) < 2:
        raise SystemExit(
            f"{options.data} has {len(domains)} domains; expected two or more, such as DRIVE and CHASE_DB1"
        )
    runs = plan(options, digest, domains)
    results = arms.execute(runs, train, load=read_npz, options=options, console=console, shown="dice")
    rows = summarise(results, domains)
    arms.report(options.out, results, rows, markdown(rows))


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("retina_vessels", "rhoSIM on retinal vessels", seeds=5)
    parser.set_defaults(data=DATA)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--crop", type=int, default=64)
    parser.add_argument("--width", type=int, default=8)
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
